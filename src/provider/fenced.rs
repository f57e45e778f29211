//! Calls that a model wrote as text instead of making them.

use serde_json::Value;

use super::ToolSpec;

/// A call found in text.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    /// The tool; always one that was offered.
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

/// Takes the calls out of `text`: fenced JSON blocks, `<tool_call>` tags, or a text or a paragraph that is nothing but
/// one call. Blocks that do not name an offered tool stay where they are. Gives the remaining text too.
pub(super) fn extract(text: &str, tools: &[ToolSpec]) -> (String, Vec<Written>) {
    if let Some(calls) = calls(text, tools) {
        return (String::new(), calls);
    }
    let mut found = Vec::new();
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, inner, whole, after)) = next_block(rest) {
        kept.push_str(before);
        match calls(inner, tools) {
            Some(calls) => found.extend(calls),
            None => kept.push_str(whole),
        }
        rest = after;
    }
    kept.push_str(rest);
    let mut said = Vec::new();
    for paragraph in kept.split("\n\n") {
        match calls(paragraph, tools) {
            Some(calls) => found.extend(calls),
            None => said.push(paragraph),
        }
    }
    (said.join("\n\n").trim().to_owned(), found)
}

/// The first block: what stands before it, its inside, the whole of it, and what follows. A block whose
/// end is missing reaches to the end of the text (a closing tag is often the stop word itself).
fn next_block(text: &str) -> Option<(&str, &str, &str, &str)> {
    let tag = text.find("<tool_call>").map(|at| (at, "<tool_call>", "</tool_call>"));
    let fence = text.find("```").map(|at| (at, "```", "```"));
    let (at, open, close) = [tag, fence].into_iter().flatten().min_by_key(|(at, ..)| *at)?;
    let (before, block) = text.split_at(at);
    let inside = block.strip_prefix(open)?;
    let (inside, end) = match inside.find(close) {
        Some(end) => (inside.get(..end)?, at + open.len() + end + close.len()),
        None => (inside, text.len()),
    };
    // A language label stands between the fence and the first brace or bracket.
    let inner = if open == "```" {
        inside.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_')
    } else {
        inside
    };
    Some((before, inner, text.get(at..end)?, text.get(end..)?))
}

/// `text` as one call or a list of calls of offered tools; `None` if any of it is something else.
fn calls(text: &str, tools: &[ToolSpec]) -> Option<Vec<Written>> {
    let text = text.trim();
    // Qwen copies the doubled braces of the example in its own template.
    let doubled = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let doubled = doubled.filter(|inner| inner.starts_with('{') && inner.ends_with('}'));
    let items = match serde_json::from_str(text).or_else(|e| serde_json::from_str(doubled.ok_or(e)?)).ok()? {
        Value::Array(items) => items,
        one @ Value::Object(_) => vec![one],
        _ => return None,
    };
    let calls: Vec<Written> = items.iter().filter_map(|item| call(item, tools)).collect();
    (!calls.is_empty() && calls.len() == items.len()).then_some(calls)
}

fn call(item: &Value, tools: &[ToolSpec]) -> Option<Written> {
    let item = item.get("function").filter(|f| f.is_object()).unwrap_or(item);
    let name = item.get("name")?.as_str()?;
    let arguments = match item.get("arguments").or_else(|| item.get("parameters"))? {
        Value::String(text) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object)?,
        object @ Value::Object(_) => object.clone(),
        _ => return None,
    };
    let offered = tools.iter().any(|tool| tool.name == name);
    offered.then(|| Written { name: name.to_owned(), arguments: arguments.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let tool = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: Value::Null,
        };
        vec![tool("look"), tool("edit")]
    }

    fn names(text: &str) -> (String, Vec<String>) {
        let (kept, calls) = extract(text, &tools());
        (kept, calls.into_iter().map(|c| format!("{} {}", c.name, c.arguments)).collect())
    }

    #[test]
    fn calls_written_as_text_are_found() {
        let fenced = "I look.\n```json\n{\"name\": \"look\", \"arguments\": {\"size\": 8}}\n```\nThen more.";
        assert_eq!(names(fenced), ("I look.\n\nThen more.".into(), vec!["look {\"size\":8}".into()]));
        let tags = "<tool_call>\n{\"name\":\"look\",\"arguments\":{}}\n</tool_call><tool_call>{\"name\":\"edit\",\"arguments\":\"{}\"}";
        assert_eq!(names(tags), (String::new(), vec!["look {}".into(), "edit {}".into()]));
        let bare = " {\"name\":\"edit\",\"parameters\":{\"a\":1}} ";
        assert_eq!(names(bare), (String::new(), vec!["edit {\"a\":1}".into()]));
        let list = "```\n[{\"name\":\"look\",\"arguments\":{}},{\"name\":\"edit\",\"arguments\":{}}]\n```";
        assert_eq!(names(list).1.len(), 2);
        let after = "{\"name\":\"edit\",\"arguments\":{}}\n\nThis makes it\n\nwarmer.";
        assert_eq!(names(after), ("This makes it\n\nwarmer.".into(), vec!["edit {}".into()]));
        let doubled = "{{\"name\":\"look\",\"arguments\":{\"at\":{}}}}";
        assert_eq!(names(doubled), (String::new(), vec!["look {\"at\":{}}".into()]));
    }

    #[test]
    fn other_text_is_left_alone() {
        for text in [
            "no call at all",
            "```json\n{\"name\": \"rm_rf\", \"arguments\": {}}\n```",
            "```json\n{\"name\": \"look\", \"arguments\": {\n```",
            "```rust\nfn look() {}\n```",
            "{\"name\":\"look\"}",
            "an open fence ```",
        ] {
            assert_eq!(names(text), (text.to_owned(), vec![]));
        }
    }
}
