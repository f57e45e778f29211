//! Foreign text (a model's, a file's) on its way to a terminal: nothing in it may move the cursor, change
//! colours, or make text read otherwise than it stands.

/// The text with control characters, escape sequences' beginnings and direction marks taken out; line breaks
/// and tabs stay.
pub fn plain(text: &str) -> String {
    text.chars().filter(|&c| c == '\n' || c == '\t' || !is_unsafe(c)).collect()
}

/// [`plain`], on one line.
pub fn line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_unsafe(c: char) -> bool {
    // Controls (C0, DEL, C1), and what Unicode has to turn the direction of text or to hide in it.
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A number with its noun: `1 branch`, `3 branches`.
pub fn count(n: u64, noun: &str) -> String {
    let ending = match (n, noun.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{n} {noun}{ending}")
}

/// Breaks text into lines of at most `width` characters, at blanks; a longer word stands alone.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in plain(text).split_whitespace() {
        let needed = current.chars().count() + 1 + word.chars().count();
        if !current.is_empty() && needed > width {
            lines.push(std::mem::take(&mut current));
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    if !current.is_empty() {
        lines.push(current);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_the_cursor_or_turns_the_text_gets_through() {
        assert_eq!(plain("a\x1b[2Jb\x07\u{9b}c\u{202e}d\u{2066}\re\n\tf"), "a[2Jbcde\n\tf");
        assert_eq!(line("two\nlines\t\u{200f}here"), "two lines here");
        assert_eq!(plain("Größe, 写真, 🙂 ΔE"), "Größe, 写真, 🙂 ΔE");
    }

    #[test]
    fn a_noun_agrees_with_its_number() {
        assert_eq!([1, 3].map(|n| count(n, "branch")), ["1 branch", "3 branches"]);
        assert_eq!([0, 1].map(|n| count(n, "commit")), ["0 commits", "1 commit"]);
    }

    #[test]
    fn lines_are_no_wider_than_asked() {
        let lines = wrap("the shadows open without flattening the cup", 16);
        assert_eq!(lines, ["the shadows open", "without", "flattening the", "cup"]);
        assert_eq!(wrap("incomprehensibilities a", 5), ["incomprehensibilities", "a"]);
        assert!(wrap("  ", 10).is_empty());
    }
}
