//! The floors hold: the sources are read, and a module that names a higher floor fails here.
//!
//! What is read is the text with comments and literals blanked out, so a sentence about another module is
//! no dependency on it. A parser of Rust would see more than this needs and cost a dependency.
#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules and their floors, as the module documentation of `src/lib.rs` draws them.
const FLOORS: &[(u8, &[&str])] = &[
    (
        0,
        &[
            "assets",
            "budget",
            "clock",
            "conversation",
            "durable",
            "error",
            "files",
            "gate",
            "hint",
            "ids",
            "redact",
            "seal",
            "transcript",
        ],
    ),
    (1, &["darktable", "metrics", "prompts", "provider"]),
    (2, &["vocabulary"]),
    (3, &["photo"]),
    (4, &["tools"]),
    (5, &["protocol", "referee", "session"]),
    (6, &["eval", "overnight", "review"]),
    (7, &["cli"]),
];

/// `lib.rs` and `main.rs` stand above all floors: they only say what there is.
const ROOTS: &[&str] = &["lib.rs", "main.rs"];

/// The most lines of a file, its unit tests not counted. A longer one is a table, or it is two things.
const LONGEST: usize = 700;

/// Files that may be longer, because they are tables.
const TABLES: &[&str] = &[];

/// Where the asynchronous runtime may be named: the loop, the wires, and who starts them.
const TOKIO: &[&str] = &["session/driver.rs", "provider/", "cli/", "main.rs"];

/// Where something may be printed.
const PRINTING: &[&str] = &["cli/"];

/// Every breach of the rules in the sources under `src`, one line each.
fn breaches(src: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(src) {
        let name = path.strip_prefix(src).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        let code = blank(&text);
        let tests = if name.ends_with("/tests.rs") { 0 } else { tests_begin(&code) };
        let mut breach = |at: usize, what: String| {
            let line = code[..at].matches('\n').count() + 1;
            found.push(format!("{name}:{line}: {what}"));
        };
        for (at, module) in named_modules(&code) {
            if let Some(what) = judge(&name, module) {
                breach(at, what);
            }
        }
        for at in climbs(&name, &code, tests) {
            breach(at, "`super` climbs to the crate's root: write `crate::`, so that the floor shows".into());
        }
        for (at, _) in words(&code).filter(|(_, word)| *word == "unsafe") {
            breach(at, "`unsafe` is not for this crate".into());
        }
        let program = &code[..tests];
        let allowed = |places: &[&str]| places.iter().any(|place| name.starts_with(place));
        for (at, word) in words(program) {
            let macro_call = program[at + word.len()..].starts_with('!');
            let prints = ["print", "println", "eprint", "eprintln", "dbg"].contains(&word);
            if prints && macro_call && !allowed(PRINTING) {
                breach(at, format!("`{word}!` belongs into cli/: a library does not print"));
            }
            if word == "tokio" && !allowed(TOKIO) {
                breach(at, format!("`tokio` is named outside of {}", TOKIO.join(", ")));
            }
        }
        let lines = program.lines().count();
        if lines > LONGEST && !TABLES.contains(&name.as_str()) {
            breach(0, format!("{lines} lines without tests, and {LONGEST} are the most"));
        }
    }
    found
}

/// All Rust files under `folder`, in order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The floor of a top-level module.
fn floor(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// What is wrong with the file `name` naming the top-level module `module`, if anything.
fn judge(name: &str, module: &str) -> Option<String> {
    let Some(theirs) = floor(module) else {
        return Some(format!("`crate::{module}` is on no floor: give it one in tests/architecture.rs"));
    };
    if ROOTS.contains(&name) {
        return None;
    }
    let own = name.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let Some(ours) = floor(own) else {
        return Some(format!("`{own}` is on no floor: give it one in tests/architecture.rs"));
    };
    (theirs > ours).then(|| format!("`{own}` (floor {ours}) names `crate::{module}` (floor {theirs})"))
}

/// Every top-level module that a path names (`crate::x`, `chemigram::x`, `crate::{x, y::z}`), with its place.
fn named_modules(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let Some(rest) = code[at + word.len()..].strip_prefix("::") else { continue };
        if !["crate", "chemigram"].contains(&word) {
            continue;
        }
        let start = code.len() - rest.len();
        if let Some(group) = rest.strip_prefix('{') {
            let (mut depth, mut first) = (1, true);
            for (offset, part) in words_and_marks(group) {
                match part {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," => first = depth == 1,
                    name if first && depth == 1 => {
                        found.push((start + 1 + offset, name));
                        first = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
        } else if let Some((offset, name)) = words(rest).next().filter(|(offset, _)| *offset == 0) {
            found.push((start + offset, name));
        }
    }
    found
}

/// The places at which a chain of `super::` reaches the crate's root.
fn climbs(name: &str, code: &str, tests: usize) -> Vec<usize> {
    let file = name.trim_end_matches(".rs").trim_end_matches("/mod");
    let depth = if ROOTS.contains(&name) { 0 } else { file.split('/').count() };
    let mut found = Vec::new();
    let mut chain = (0, 0, 0);
    for (at, word) in words(code) {
        if word != "super" {
            continue;
        }
        let (start, length, end) = chain;
        chain = if at == end && length > 0 { (start, length + 1, 0) } else { (at, 1, 0) };
        chain.2 = at + "super::".len();
        let inner = usize::from(at >= tests && !name.ends_with("/tests.rs"));
        if chain.1 >= depth + inner {
            found.push(chain.0);
        }
    }
    found.dedup();
    found
}

/// Where the unit tests begin: a `#[cfg(test)]` before a module with a body; else the end.
fn tests_begin(code: &str) -> usize {
    let mark = "#[cfg(test)]";
    code.match_indices(mark)
        .find(|(at, _)| {
            let rest = code[at + mark.len()..].trim_start();
            let body = rest.find('{').unwrap_or(usize::MAX);
            rest.starts_with("mod ") && body < rest.find(';').unwrap_or(usize::MAX)
        })
        .map_or(code.len(), |(at, _)| at)
}

/// The identifiers and keywords, each with its place.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    words_and_marks(code).filter(|(_, part)| !["{", "}", ","].contains(part))
}

/// [`words`], with braces and commas among them.
fn words_and_marks(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &code[at..];
        let start = at + rest.find(|c| letter(c) || "{},".contains(c))?;
        let first = code[start..].chars().next()?;
        let tail = &code[start..];
        let length = if letter(first) { tail.find(|c| !letter(c)).unwrap_or(tail.len()) } else { 1 };
        at = start + length;
        Some((start, &code[start..at]))
    })
}

/// The source with comments, text and character literals turned into blanks; every line stays on its line,
/// every byte at its place.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(code).unwrap()
}

/// Where the comment or literal that begins at `at` ends; `at` itself where none begins.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        rest[from..].windows(what.len()).position(|w| w == what).map_or(rest.len(), |p| from + p + what.len())
    };
    let length = match rest {
        [b'/', b'/', ..] => find(0, b"\n"),
        [b'/', b'*', ..] => {
            let (mut depth, mut place) = (1, 2);
            while depth > 0 && place < rest.len() {
                let step = match &rest[place..] {
                    [b'/', b'*', ..] => (1, 2),
                    [b'*', b'/', ..] => (-1, 2),
                    _ => (0, 1),
                };
                depth += step.0;
                place += step.1;
            }
            place
        }
        [b'"', ..] => quoted(rest, b'"'),
        [b'r', more @ ..] if !at.checked_sub(1).is_some_and(|b| is_letter(bytes[b]) && bytes[b] != b'b') => {
            let hashes = more.iter().take_while(|b| **b == b'#').count();
            if more.get(hashes) != Some(&b'"') {
                return at;
            }
            let mut close = vec![b'"'];
            close.resize(hashes + 1, b'#');
            find(hashes + 2, &close)
        }
        // A quote begins a character or a lifetime; a lifetime has no quote after one character.
        [b'\'', b'\\', ..] => quoted(rest, b'\''),
        [b'\'', more @ ..] => {
            let text = std::str::from_utf8(more.get(..4.min(more.len())).unwrap_or_default());
            let first = match text {
                Ok(text) => text.chars().next(),
                Err(e) => std::str::from_utf8(&more[..e.valid_up_to()]).unwrap().chars().next(),
            };
            match first.map(char::len_utf8) {
                Some(width) if more.get(width) == Some(&b'\'') => width + 2,
                _ => return at,
            }
        }
        _ => return at,
    };
    at + length
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of a literal in quotes, with its escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

#[test]
fn no_floor_names_a_higher_one() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found = breaches(&src);
    assert!(found.is_empty(), "the house is not in order:\n{}", found.join("\n"));
}

#[test]
fn every_module_is_drawn_where_it_stands() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let code = blank(&lib);
    let declared: Vec<&str> = code
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert!(declared.len() > 10, "the modules were not found in src/lib.rs");
    for module in declared {
        assert!(floor(module).is_some(), "`{module}` has no floor in tests/architecture.rs");
        let drawn = lib.lines().filter_map(|line| line.strip_prefix("//!")).any(|line| {
            let names = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
            names.split("  ").any(|name| name.trim() == module)
        });
        assert!(drawn, "`{module}` is missing from the map in src/lib.rs");
    }
}

/// A fake tree of one file, and what is said about it.
fn verdict(name: &str, text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    breaches(folder.path())
}

#[test]
fn each_rule_can_fail() {
    let long = "fn f() {}\n".repeat(LONGEST + 1);
    for (name, text, line, word) in [
        ("photo/refs.rs", "use crate::tools::Tool;", 1, "floor 4"),
        ("gate.rs", "fn f() {\n    let _ = crate::provider::connect;\n}", 2, "floor 1"),
        ("gate.rs", "use crate::{budget::Ledger, clock::{Stop, Clock}, session};", 1, "floor 5"),
        ("gate.rs", "#[cfg(test)]\nmod tests {\n    use crate::tools::TOOLS;\n}", 3, "floor 4"),
        ("gate.rs", "use crate::cellar::Wine;", 1, "on no floor"),
        ("cellar.rs", "use crate::budget::Ledger;", 1, "on no floor"),
        ("main.rs", "use chemigram::cellar;", 1, "on no floor"),
        ("gate.rs", "use super::session::State;", 1, "climbs"),
        ("photo/refs.rs", "use super::super::session::State;", 1, "climbs"),
        ("photo/refs.rs", "// a\nunsafe fn f() {}", 2, "unsafe"),
        ("session/state.rs", "async fn f() { tokio::time::sleep(d).await }", 1, "tokio"),
        ("photo/refs.rs", "fn f() { println!(\"x\"); }", 1, "println"),
        ("photo/refs.rs", "fn f() { dbg!(1); }", 1, "dbg"),
        ("photo/refs.rs", &long, 1, "lines"),
    ] {
        let found = verdict(name, text);
        assert_eq!(found.len(), 1, "{name}: {text:.80}: {found:?}");
        assert!(found[0].starts_with(&format!("{name}:{line}: ")), "{found:?}");
        assert!(found[0].contains(word), "{found:?}");
    }
}

#[test]
fn what_is_allowed_passes() {
    for (name, text) in [
        ("photo/refs.rs", "use crate::{ids::Hash, photo::Workspace, vocabulary};"),
        (
            "photo/mod.rs",
            "//! See [`crate::tools`] and \"crate::session\".\n/* crate::cli /* nested */ */ mod refs;",
        ),
        ("photo/refs.rs", "const A: &str = \"crate::tools unsafe\"; const B: &str = r#\"\"crate::cli\"\"#;"),
        (
            "photo/refs.rs",
            "fn f<'a>(q: char, x: &'a str) -> bool { q == '\"' || q == '\\'' || x == \"tokio\" }",
        ),
        ("photo/refs.rs", "use super::objects::Commit;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
        ("photo/refs.rs", "#[cfg(test)]\nmod tests {\n    fn f() { eprintln!(\"x\"); }\n}"),
        ("darktable/xmp/tests.rs", "use super::*;\nfn f() { eprintln!(\"x\"); }"),
        ("session/driver.rs", "use tokio::select;"),
        ("cli/show.rs", "fn f() { println!(\"x\"); }"),
        ("lib.rs", "pub mod cli; use crate::cli::run;"),
    ] {
        assert_eq!(verdict(name, text), Vec::<String>::new(), "{text}");
    }
}
