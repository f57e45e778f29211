//! What a model is told of its budget, and a text without what the clock says in it.

/// A reminder of the budget, for the end of a tool result.
pub fn reminder(percent: u8) -> &'static str {
    match percent {
        50 => "Half of the budget is left.",
        25 => "A quarter of the budget is left: finish the branch you are on, and leave room to judge.",
        _ => "A tenth of the budget is left: judge your branches now and end the session.",
    }
}

/// The text without the time that is left, reminders of it, and the numbers and seconds of the lines of a transcript,
/// which has more lines where a picture was not rendered before: what a session that is run again says otherwise.
pub fn without_clock(text: &str) -> String {
    let mut text = text.to_owned();
    for percent in [50, 25, 10] {
        let line = format!("\n{}", reminder(percent));
        if text.contains(&line) {
            text = text.replace(&line, "");
        }
    }
    let text = masked(&text, "[budget: ", |c| c.is_ascii_digit() || c == ':');
    let text = masked(&text, "time_seconds\":", |c| c.is_ascii_digit());
    if !text.contains("\"events\":[") {
        return text;
    }
    // `"12 34s called branch"`: a line's number, and its time.
    let row = |part: &str| {
        let (line, rest) = part.split_once(' ')?;
        let (at, what) = rest.split_once("s ")?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (number(line) && number(at)).then(|| format!("… …s {what}"))
    };
    text.split('"').map(|part| row(part).unwrap_or_else(|| part.to_owned())).collect::<Vec<_>>().join("\"")
}

/// The text, with `…` for what is of that kind behind each mark.
fn masked(text: &str, mark: &str, kind: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        masked.push_str(mark);
        masked.push('…');
        masked.push_str(part.trim_start_matches(&kind));
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_clock_is_left_out() {
        let say = |left: &str, seconds: u32, note: &str| {
            format!(
                "{{\"time_seconds\":{seconds},\"events\":[\"{seconds} {seconds}s called log {{\\\"limit\\\":5}}\",\"40 2 s\"]}}{note}\n\
                 [budget: {left} left, 3/30 iterations]"
            )
        };
        let one = without_clock(&say("29:58", 7, ""));
        assert_eq!(one, without_clock(&say("4:01", 310, &format!("\n{}", reminder(25)))));
        for kept in ["\"… …s called log {\\\"limit\\\":5}\"", "\"40 2 s\"", "3/30 iterations]"] {
            assert!(one.contains(kept), "{one}");
        }
        assert_eq!(without_clock("It is 12 34s late."), "It is 12 34s late.");
    }
}
