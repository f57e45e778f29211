//! From arguments as typed to what they stand for.

use std::path::Path;

use super::failure::Failure;
use base::files;

/// The text itself, or that of the file after an `@`.
pub fn text(given: &str) -> Result<String, Failure> {
    match given.strip_prefix('@') {
        Some(path) => file(Path::new(path)),
        None => Ok(given.to_owned()),
    }
}

/// [`text`] of an optional argument.
pub fn optional_text(given: Option<&String>) -> Result<Option<String>, Failure> {
    given.map(|given| text(given)).transpose()
}

/// A text file of reasonable size.
pub fn file(path: &Path) -> Result<String, Failure> {
    files::read_text(path, files::LARGEST_TEXT).map_err(|e| Failure::file("read", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_sign_names_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("brief.md");
        std::fs::write(&path, "warm").unwrap();
        assert_eq!(text(&format!("@{}", path.display())).unwrap(), "warm");
        assert_eq!(text("plain").unwrap(), "plain");
        let missing = text("@/nowhere").unwrap_err();
        assert_eq!((missing.exit_status(), missing.message().contains("/nowhere")), (3, true));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(file(&path).unwrap_err().exit_status(), 2);
    }
}
