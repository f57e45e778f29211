//! Help for people who write files and names by hand: the nearest known name, and where a TOML error is.

/// The candidate nearest to `name`, if it is near enough to be meant (up to a third of its letters differ).
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(&name, &candidate.to_lowercase()), candidate))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …?` for an error message, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}

/// A TOML error on one line: `line 3, column 5: unknown field …`.
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return message;
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    format!("line {line}, column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let names = ["openai", "openrouter", "ollama"];
        assert_eq!(nearest("opnai", names), Some("openai"));
        assert_eq!(nearest("Ollamma", names), Some("ollama"));
        assert_eq!(nearest("mistral", names), None);
        assert_eq!(did_you_mean("opnai", names), "; did you mean `openai`?");
    }

    #[test]
    fn a_toml_error_says_where() {
        let text = "a = 1\nb = {\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        assert!(toml_error(text, &error).starts_with("line 2, column "), "{}", toml_error(text, &error));
    }
}
