//! What Cargo does not check: the order of the modules within `src/`, where the asynchronous runtime may be named, that
//! no file grows out of hand, and that the documentation has no example that nobody compiles. Cargo keeps the order of
//! the crates, and clippy keeps printing in `cli/`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of `src/`, lowest first. A module uses those of its own line and of the lines above it here.
const FLOORS: &[&[&str]] = &[
    &["budget", "conversation", "gate", "transcript"],
    &["prompts", "provider", "render_queue", "traces"],
    &["tools"],
    &["protocol", "referee", "session"],
    &["batch", "launch", "review"],
    &["eval", "overnight"],
    &["cli"],
];

/// The most lines of a file. A longer one is a table, or it is two things.
const LONGEST: usize = 600;

/// Where the asynchronous runtime may be named: the loop, the wires, and where they are started.
const TOKIO: &[&str] = &[
    "session/driver.rs",
    "session/model_call.rs",
    "provider/",
    "traces/export.rs",
    "batch/nats/",
    "launch.rs",
    "cli/",
    "main.rs",
];

/// Every breach of the rules by one file of `src/`, with its line.
fn breaches(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let own = name.split(['/', '.']).next().unwrap();
    let ours = floor(own);
    if ours.is_none() && !["lib", "main"].contains(&own) {
        found.push(format!("{name}:1: `{own}` is on no floor: give it one in tests/program/architecture.rs"));
    }
    for (at, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap();
        for module in code.split("crate::").skip(1).map(identifier).filter(|module| !module.is_empty()) {
            if floor(module) > ours && ours.is_some() {
                found.push(format!("{name}:{}: `{own}` uses `crate::{module}`, which is above it", at + 1));
            }
        }
        if code.contains("tokio::") && !TOKIO.iter().any(|place| name.starts_with(place)) {
            found.push(format!("{name}:{}: `tokio` is named outside of {}", at + 1, TOKIO.join(", ")));
        }
    }
    found.extend(outgrown(name, text));
    found.extend(examples(name, text));
    found
}

fn outgrown(name: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LONGEST).then(|| format!("{name}: {lines} lines, and {LONGEST} are the most"))
}

/// Examples in the documentation that would have to compile. Cargo is told not to look for any, because each crate costs
/// it about a second.
fn examples(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let fences = lines.filter_map(|(at, line)| {
        let words =
            line.trim_start().strip_prefix("//!").or_else(|| line.trim_start().strip_prefix("///"))?;
        Some((at + 1, words.trim().strip_prefix("```")?))
    });
    let opening = fences.step_by(2).filter(|(_, language)| !["text", "toml"].contains(language));
    opening
        .map(|(line, _)| format!("{name}:{line}: an example that nobody compiles: make it a test"))
        .collect()
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

/// All Rust files under `folder`, with their paths from there.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn the_sources_keep_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<String> =
        sources(&root.join("src")).iter().flat_map(|(name, text)| breaches(name, text)).collect();
    for (name, text) in sources(&root.join("crates")) {
        found.extend(outgrown(&name, &text));
        found.extend(examples(&name, &text));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_rule_can_fail() {
    let long = "fn f() {}\n".repeat(LONGEST + 1);
    for (name, text, word) in [
        ("tools/look.rs", "use crate::session::State;", "above it"),
        ("gate.rs", "fn f() {\n    let _ = crate::provider::connect;\n}", "gate.rs:2: "),
        ("cellar.rs", "use crate::budget::Ledger;", "on no floor"),
        ("session/state.rs", "async fn f() { tokio::time::sleep(d).await }", "tokio"),
        ("gate.rs", &long, "lines"),
        ("gate.rs", "/// ```text\n/// a\n/// ```\n/// ```\n/// f();\n/// ```", "gate.rs:4: "),
    ] {
        let found = breaches(name, text);
        assert_eq!(found.len(), 1, "{name}: {text:.80}: {found:?}");
        assert!(found[0].contains(word), "{found:?}");
    }
    let fine = "// crate::cli\nuse crate::{budget::Ledger};\nuse crate::tools::Tool;";
    assert!(breaches("session/driver.rs", fine).is_empty());
}
