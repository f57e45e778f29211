//! What is printed for programs, against the schemas that the program itself gives.

use serde_json::Value;

use crate::verbs::Home;

/// Whether a value has the form that a schema describes: the part of JSON Schema that is used here.
pub(crate) fn fits(schema: &Value, root: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap_or(&Value::Null);
        fits(target, root, value, at)?;
    }
    for all in schema["allOf"].as_array().into_iter().flatten() {
        fits(all, root, value, at)?;
    }
    for kind in ["anyOf", "oneOf"] {
        if let Some(ways) = schema[kind].as_array() {
            let tried: Vec<_> = ways.iter().map(|way| fits(way, root, value, at)).collect();
            if tried.iter().all(Result::is_err) {
                return Err(format!("{at}: none of {kind}: {tried:?}"));
            }
        }
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    let is = |name: &Value| match name.as_str().unwrap_or_default() {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    };
    if !types.is_empty() && !types.iter().any(is) {
        return Err(format!("{at}: {value} is not {types:?}"));
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return Err(format!("{at}: {value} is not {constant}"));
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        return Err(format!("{at}: {value} is none of {names:?}"));
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            object.get(name).ok_or_else(|| format!("{at}: `{name}` is missing"))?;
        }
        for (name, part) in object {
            if let Some(known) = schema["properties"].get(name) {
                fits(known, root, part, &format!("{at}/{name}"))?;
            } else if schema["additionalProperties"].is_object() {
                fits(&schema["additionalProperties"], root, part, &format!("{at}/{name}"))?;
            }
        }
    }
    for (place, part) in value.as_array().into_iter().flatten().enumerate() {
        fits(&schema["items"], root, part, &format!("{at}/{place}"))?;
    }
    Ok(())
}

/// Whether a JSON text names a key twice in one object.
fn doubled(text: &str) -> Option<String> {
    let mut open: Vec<std::collections::BTreeSet<String>> = Vec::new();
    let mut rest = text.char_indices();
    while let Some((at, char)) = rest.next() {
        match char {
            '{' => open.push(Default::default()),
            '}' => drop(open.pop()),
            '"' => {
                let mut escaped = false;
                let end = rest.find(|(_, c)| {
                    let ends = *c == '"' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                let word = &text[at + 1..end.unwrap().0];
                let key = text[end.unwrap().0 + 1..].trim_start().starts_with(':');
                if key && !open.last_mut().unwrap().insert(word.to_owned()) {
                    return Some(word.to_owned());
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn what_is_printed_for_programs_fits_the_schemas_and_says_no_key_twice() {
    assert_eq!(doubled(r#"{"a": {"a": 1}, "b": [{"c": "a\":"}, {"c": 2}]}"#), None);
    assert_eq!(doubled(r#"{"a": 1, "b": {"x": 1}, "a": 2}"#), Some("a".into()));
    let home = Home::new();
    home.edit("branch_b_tone", 0.5);
    let broken = home.0.path().join("data/chemigram/photos/broken");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("photo.json"), "{}").unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("error", &["status", "nobody"]),
        ("error", &["status"]),
        ("photos", &["photos"]),
        ("status", &["status", "iguana"]),
        ("log", &["log", "iguana", "branch_b_tone"]),
        ("sessions", &["mode-b", "list"]),
        ("sidecars", &["export", "iguana", "branch_b_tone", "--sidecar", "-o", "out"]),
        ("prune", &["prune", "--photo", "iguana", "--all", "--dry-run"]),
        ("undo", &["undo", "iguana"]),
    ];
    for (name, arguments) in cases {
        let schema = String::from_utf8(home.run(&["schema", name]).stdout).unwrap();
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let output = home.run(&[*arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
        assert_eq!(doubled(&text), None, "{name}: {text}");
        fits(&schema, &schema, &value, name).unwrap_or_else(|why| panic!("{why}\n{text}\n{schema:#}"));
        let version = value.as_object().map(|object| object["schema_version"].as_u64());
        assert!(version.is_none_or(|version| version == Some(1)), "{name}: {text}");
        // The schema is no empty promise: another value does not fit it.
        assert!(fits(&schema, &schema, &Value::from("something else"), name).is_err(), "{name}");
    }
    let listed = home.json(&["schema"]);
    assert!(listed["outputs"].as_array().unwrap().len() >= 14, "{listed}");
    assert_eq!(home.run(&["schema", "nonsense"]).status.code(), Some(3));
}
