//! What the documents list is what there is: event kinds, exit codes, tests, dependencies.
#![allow(clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base::error::ErrorCode;
use chemigram::transcript::Outcome;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `CamelCase` as serde writes it.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// The public fields of the structs, and the variants and fields of the enum `Event`, of a source file that
/// is formatted by rustfmt.
fn said(source: &str) -> (Vec<String>, Vec<String>) {
    let (mut kinds, mut fields) = (Vec::new(), Vec::new());
    let mut in_event = false;
    for line in source.lines() {
        in_event = (in_event || line.starts_with("pub enum Event")) && line != "}";
        let name = |line: &str| line.split([' ', '(', ',', ':', '{']).next().unwrap().to_owned();
        if let Some(field) = line.strip_prefix("    pub ").filter(|l| l.contains(": ") && !l.contains("fn "))
        {
            fields.push(name(field));
        } else if in_event
            && line.starts_with("        ")
            && line.contains(": ")
            && !line.contains(['#', '/'])
        {
            fields.push(name(line.trim()));
        } else if in_event && line.starts_with("    ") && line[4..].starts_with(char::is_uppercase) {
            kinds.push(snake(&name(&line[4..])));
        }
    }
    (kinds, fields)
}

#[test]
fn every_event_and_every_field_is_in_the_transcript_page() {
    let page = text("docs/transcript.md");
    let (kinds, fields) = said(&text("src/transcript/event.rs"));
    assert!(kinds.len() > 20 && fields.len() > 60, "the events were not found: {kinds:?} {fields:?}");
    for kind in kinds {
        assert!(page.contains(&format!("### `{kind}`")), "docs/transcript.md has no section `{kind}`");
    }
    for field in fields {
        assert!(page.contains(&format!("`{field}`")), "docs/transcript.md does not name the field `{field}`");
    }
}

#[test]
fn every_exit_code_is_in_the_tables() {
    use ErrorCode as E;
    let errors = [
        E::InvalidInput,
        E::NotFound,
        E::StateError,
        E::VersioningError,
        E::DarktableError,
        E::MaskingError,
        E::SynthesizerError,
        E::PermissionDenied,
        E::BudgetExhausted,
        E::SessionNotConfirmed,
        E::ProviderError,
        E::Interrupted,
    ];
    let page = text("docs/exit-codes.md");
    for code in errors {
        let (status, name) = (code.exit_status(), serde_json::to_value(code).unwrap());
        let row = format!("| {status} | `{}` |", name.as_str().unwrap());
        assert!(page.contains(&row), "docs/exit-codes.md has no row `{row}`");
    }
    use Outcome as O;
    for outcome in [
        O::Completed,
        O::BudgetExhausted,
        O::NeedsClarification,
        O::Cancelled,
        O::ProviderFailed,
        O::EngineFailed,
        O::ProtocolFailed,
        O::Interrupted,
    ] {
        for harvest in [false, true] {
            let (status, name) = (outcome.exit_status(harvest), outcome.as_str());
            let row = format!("| {status} | `{name}` |");
            assert!(page.contains(&row), "docs/exit-codes.md has no row `{row}`");
        }
    }
}

#[test]
fn every_test_behind_a_guarantee_is_there() {
    for (page, least) in [
        ("docs/budget.md", 16),
        ("docs/reliability.md", 30),
        ("docs/adr/0025-differences.md", 40),
        ("docs/adr/0026-dialects.md", 20),
        ("docs/adr/0027-conversations.md", 16),
    ] {
        let words = text(page);
        let named: Vec<&str> = words
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| {
                ["tests/", "src/", "crates/"].iter().any(|start| name.starts_with(start))
                    && name.contains(".rs")
            })
            .collect();
        assert!(named.len() > least, "the table of guarantees was not found in {page}");
        for name in named {
            let (file, test) = name.split_once("::").unwrap_or((name, ""));
            let there = text(file).contains(&format!("fn {test}("));
            assert!(there || test.is_empty(), "{page} names `{name}`, which is not there");
        }
    }
}

#[test]
fn every_row_that_was_missing_once_has_its_number_in_a_tests_name() {
    let words = text("docs/adr/0025-differences.md");
    let (_, held) = words.split_once("are held by a test each").unwrap();
    let rows = held.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut seen = 0;
    for row in rows {
        let (numbers, names) = row[2..].split_once(" | ").unwrap();
        // "D1 to D7" is told by its ends.
        for number in numbers.split([',', ' ']).filter(|part| part.starts_with(char::is_uppercase)) {
            let number = number.to_lowercase();
            let named = names.split("::").any(|name| name.split(['_', '`']).any(|part| part == number));
            assert!(named, "no test of the row has {number} in its name: {row}");
            seen += 1;
        }
    }
    assert!(seen > 40, "the table was not found: {seen} numbers");
}

/// All Rust code below a folder, in one text.
fn code(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &code(&path);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}

#[test]
fn every_dependency_is_used() {
    for package in [".", "crates/base", "crates/pixels", "crates/darktable", "crates/engine"] {
        let manifest: toml::Table = text(&format!("{package}/Cargo.toml")).parse().unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(package).join("src");
        let code = code(&folder);
        let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for name in manifest["dependencies"].as_table().unwrap().keys() {
            assert!(words.contains(name.replace('-', "_").as_str()), "{package} does not use `{name}`");
        }
    }
}

/// Every page of `docs/`, the pages of `docs/adr/` aside, is in its map; every link from the README and from a page
/// of `docs/` to a file or a heading leads to one.
#[test]
fn the_map_has_every_page_and_every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = text("docs/README.md");
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".md") {
            continue;
        }
        assert!(name == "README.md" || map.contains(&format!("]({name})")), "docs/README.md misses {name}");
        pages.push(format!("docs/{name}"));
    }
    for page in pages {
        let words = text(&page);
        for link in words.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&page).parent().unwrap();
            let file = if file.is_empty() { root.join(&page) } else { root.join(folder).join(file) };
            assert!(file.exists(), "{page} links to {link}, which is not there");
            if heading.is_empty() {
                continue;
            }
            let there = fs::read_to_string(&file)
                .unwrap()
                .lines()
                .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading);
            assert!(there, "{page} links to {link}, and there is no such heading");
        }
    }
}

/// A heading as the name that a link gives it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_dependency_has_its_reason() {
    let page = text("docs/adr/0007-dependencies.md");
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let listed = manifest["workspace"]["dependencies"].as_table().unwrap();
    let wanted: Vec<&str> = listed.keys().map(String::as_str).collect();
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    for name in &wanted {
        assert!(named.contains(name), "docs/adr/0007-dependencies.md gives no reason for `{name}`");
    }
    // The other way round: what is listed is still used.
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            assert!(wanted.contains(&name), "docs/adr/0007-dependencies.md lists `{name}`, which is gone");
        }
    }
}
