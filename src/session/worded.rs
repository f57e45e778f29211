//! What counts have shown, put into words by a model: one call, which sees the findings and no picture.

use crate::conversation::Message;
use crate::provider::Provider;
use crate::session::{SessionError, check};
use base::error::{ErrorCode, Fault};
use base::redact::Redactor;

const SYSTEM: &str = "You put into words what a photographer's choices between pictures have shown, for her own notes \
on her taste. You say what the findings say and no more.";

/// The longest sentence, in characters.
const LONGEST: usize = 300;

/// A sentence for each finding, in their order.
///
/// # Errors
/// The provider's failure, or a reply that has not one sentence for each.
pub async fn findings(
    provider: &dyn Provider,
    redactor: &Redactor,
    findings: &[String],
) -> Result<Vec<String>, SessionError> {
    let rows: Vec<String> = (1..).zip(findings).map(|(number, row)| format!("{number}. {row}")).collect();
    let text = format!(
        "Write each finding as one sentence of at most twenty words that begins with \"Prefers\". Answer with the \
         sentences alone, a line each, numbered as they are here.\n\n{}",
        rows.join("\n")
    );
    let (came, _) = check::once(provider, redactor, (SYSTEM, &[]), text).await?;
    let reply = came.map_err(|fault| Fault::from(&fault))?;
    let Message::Assistant { text, .. } = &reply.message else { return Ok(Vec::new()) };
    let sentences: Vec<String> = text.lines().map(sentence).filter(|said| !said.is_empty()).collect();
    let legal = |said: &String| said.chars().count() <= LONGEST && !said.chars().any(char::is_control);
    if sentences.len() != findings.len() || !sentences.iter().all(legal) {
        let message = format!(
            "{} wrote {} lines for {} findings",
            provider.info().model,
            sentences.len(),
            findings.len()
        );
        return Err(Fault::new(ErrorCode::ProviderError, message)
            .with("remedy", "try again, or leave out `--provider`")
            .into());
    }
    Ok(sentences)
}

/// A line without its number.
fn sentence(line: &str) -> String {
    let line = line.trim();
    let bare = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let bare = if bare.len() < line.len() { bare.trim_start_matches(['.', ')', ':']) } else { line };
    bare.trim_start_matches(['-', '*', ' ']).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::script::Script;
    use crate::session::model_call::alone;

    fn worded(reply: &str) -> Result<Vec<String>, SessionError> {
        let script = serde_json::json!({ "reply": [{ "text": reply }] }).to_string();
        let script = Script::parse("s", &script).unwrap();
        let rows =
            ["Prefers low contrast. (9 of 11)".to_owned(), "Prefers warm colours. (8 of 11)".to_owned()];
        alone(findings(&script, &Redactor::default(), &rows))
    }

    #[test]
    fn each_finding_gets_its_sentence_or_none_is_taken() {
        let said = worded("1. Prefers quiet contrast.\n\n2) Prefers warm light.\n").unwrap();
        assert_eq!(said, ["Prefers quiet contrast.", "Prefers warm light."]);
        for wrong in [
            "",
            "Prefers quiet contrast.",
            "Here they are:\n1. Prefers a.\n2. Prefers b.",
            "1. a\u{1b}[2J\n2. b",
        ] {
            let error = worded(wrong).unwrap_err();
            assert!(error.to_string().contains("for 2 findings"), "{wrong:?}: {error}");
        }
    }
}
