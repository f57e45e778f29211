//! The help of every command, whole, as a terminal of 80 columns shows it: `tests/help/COMMAND.txt`.
//! `CHEMIGRAM_UPDATE_SNAPSHOTS=1 cargo test --test program help::` writes the files again, to be read before they are committed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use assert_cmd::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

/// The help of a command, `[]` for the program's own.
fn help(command: &[String]) -> String {
    let mut program = Command::cargo_bin("chemigram").unwrap();
    let output = program.env_clear().env("COLUMNS", "80").args(command).arg("--help").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {output:?}");
    // Help pads empty lines; an editor that strips them would change the file.
    String::from_utf8(output.stdout).unwrap().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let rows = help.split("Commands:\n").nth(1).unwrap_or_default().lines().take_while(|row| !row.is_empty());
    let rows = rows.filter(|row| row.starts_with("  ") && !row.starts_with("   "));
    rows.filter_map(|row| row.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The help of a command and of every command below it, by file name.
fn collect(command: &[String], texts: &mut BTreeMap<String, String>) {
    let text = help(command);
    for name in listed(&text) {
        collect(&[command, &[name]].concat(), texts);
    }
    let name = if command.is_empty() { "chemigram".to_owned() } else { command.join("-") };
    texts.insert(format!("{name}.txt"), text);
}

#[test]
fn every_help_text_is_the_one_that_was_read_and_committed() {
    let mut texts = BTreeMap::new();
    collect(&[], &mut texts);
    assert!(texts.len() > 60, "{:?}", texts.keys());
    let there: BTreeSet<String> = match std::fs::read_dir(folder()) {
        Ok(entries) => entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect(),
        Err(_) => BTreeSet::new(),
    };
    let left: Vec<&String> = there.iter().filter(|name| !texts.contains_key(*name)).collect();
    if std::env::var_os("CHEMIGRAM_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(folder()).unwrap();
        texts.iter().for_each(|(name, text)| std::fs::write(folder().join(name), text).unwrap());
        left.iter().for_each(|name| std::fs::remove_file(folder().join(name)).unwrap());
        return;
    }
    let how = "CHEMIGRAM_UPDATE_SNAPSHOTS=1 cargo test --test program help::";
    assert_eq!(left, Vec::<&String>::new(), "no command has these files: {how}");
    for (name, text) in &texts {
        let wanted = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
        if *text != wanted {
            let at = text.lines().zip(wanted.lines()).take_while(|(now, then)| now == then).count();
            let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
            panic!(
                "tests/help/{name}, line {}: {:?}, and not {:?}: {how}",
                at + 1,
                line(text),
                line(&wanted)
            );
        }
    }
}

#[test]
fn no_line_of_help_is_wider_than_the_terminal() {
    let mut texts = BTreeMap::new();
    collect(&[], &mut texts);
    for (name, text) in &texts {
        // clap does not wrap a line of usage.
        let wide = text.lines().find(|line| line.chars().count() > 80 && !line.starts_with("Usage: "));
        assert_eq!(wide, None, "{name}");
    }
}
