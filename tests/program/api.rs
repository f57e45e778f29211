//! What each crate exports, as it was agreed: `tests/api/CRATE.txt`. `CHEMIGRAM_UPDATE_SNAPSHOTS=1 cargo test --test program api::`
//! writes the files again, to be read before they are committed.
//!
//! The sources are read as rustfmt lays them out, from `lib.rs` along `pub mod` and `pub use`: an item that begins a line
//! with `pub` is exported. Methods and fields are left out, and so is what only the feature `testing` shows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 4] = ["base", "pixels", "darktable", "engine"];

/// The kinds of items, as they are written.
const KINDS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];

/// One module: where its text is, and where its children are.
struct Module {
    path: String,
    text: String,
    below: PathBuf,
}

impl Module {
    fn read(file: &Path, below: PathBuf, path: String) -> Self {
        Self { path, text: fs::read_to_string(file).unwrap(), below }
    }

    fn child(&self, name: &str) -> Option<Self> {
        let below = self.below.join(name);
        let file =
            [below.with_extension("rs"), below.join("mod.rs")].into_iter().find(|file| file.exists())?;
        Some(Self::read(&file, below, format!("{}{name}::", self.path)))
    }

    /// What it exports, each from `pub` to the end of the line or of the statement, less what is for tests.
    fn exports(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut for_tests = false;
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if let Some(item) = line.strip_prefix("pub ").filter(|_| !for_tests) {
                let mut item = item.to_owned();
                while item.starts_with("use ") && !item.ends_with(';') {
                    item += lines.next().unwrap().trim();
                }
                found.push(item.trim_end_matches(';').to_owned());
            }
            for_tests = line.starts_with("#[cfg(") && (line.contains("test") || line.contains("testing"))
                || for_tests && line.starts_with('#');
        }
        found
    }

    /// Adds `kind module::Name` for everything that can be reached, under the path of `shown`.
    fn list(&self, shown: &str, names: &mut BTreeSet<String>) {
        for item in self.exports() {
            if let Some(name) = item.strip_prefix("mod ") {
                self.child(name).unwrap().list(&format!("{shown}{name}::"), names);
            } else if let Some(path) = item.strip_prefix("use ") {
                let (from, used) = split(path);
                for name in used {
                    self.list_used(&from, &name, shown, names);
                }
            } else if let Some((kind, name)) = definition(&item) {
                names.insert(format!("{kind} {shown}{name}"));
            }
        }
    }

    fn list_used(&self, from: &[String], name: &str, shown: &str, names: &mut BTreeSet<String>) {
        let mut inner: Option<Self> = None;
        for step in from {
            inner = inner.as_ref().unwrap_or(self).child(step);
            if inner.is_none() {
                // It is of another crate.
                names.insert(format!("use {shown}{name}"));
                return;
            }
        }
        let source = inner.as_ref().unwrap_or(self);
        if let Some(module) = source.child(name) {
            return module.list(&format!("{shown}{name}::"), names);
        }
        for item in source.exports() {
            match (definition(&item), item.strip_prefix("use ").map(split)) {
                (Some((kind, defined)), _) if defined == name => {
                    names.insert(format!("{kind} {shown}{name}"));
                }
                (_, Some((from, used))) if used.iter().any(|used| used == name) => {
                    source.list_used(&from, name, shown, names);
                }
                _ => {}
            }
        }
    }
}

/// `struct Name<…> {` as (`struct`, `Name`).
fn definition(item: &str) -> Option<(String, String)> {
    let mut words = item.split_whitespace().skip_while(|word| ["async", "unsafe"].contains(word));
    let mut kind = words.next().filter(|word| KINDS.contains(word))?;
    let mut name = words.next()?;
    if (kind, name) == ("const", "fn") {
        (kind, name) = ("fn", words.next()?);
    }
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some((kind.to_owned(), name.to_owned()))
}

/// `a::b::{C, D}` as ([`a`, `b`], [`C`, `D`]).
fn split(path: &str) -> (Vec<String>, Vec<String>) {
    let (from, names) = match path.split_once("::{") {
        Some((from, names)) => (from, names.trim_end_matches('}')),
        None => path.rsplit_once("::").unwrap(),
    };
    let steps = from.trim_start_matches("crate::").trim_start_matches("self::").split("::");
    let names = names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    (steps.map(str::to_owned).collect(), names.collect())
}

fn exported(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("src");
    let mut names = BTreeSet::new();
    Module::read(&folder.join("lib.rs"), folder.clone(), String::new()).list("", &mut names);
    names.iter().map(|name| format!("{name}\n")).collect()
}

#[test]
fn every_crate_exports_what_was_read_and_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api");
    let update = std::env::var_os("CHEMIGRAM_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1");
    for name in CRATES {
        let (file, text) = (folder.join(format!("{name}.txt")), exported(name));
        if update {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, text).unwrap();
            continue;
        }
        let wanted = fs::read_to_string(&file).unwrap_or_default();
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (now, then) = (lines(&text), lines(&wanted));
        let (more, less) =
            (now.difference(&then).collect::<Vec<_>>(), then.difference(&now).collect::<Vec<_>>());
        assert!(
            more.is_empty() && less.is_empty(),
            "{name} exports {more:?} more and {less:?} less: CHEMIGRAM_UPDATE_SNAPSHOTS=1 cargo test --test program api::"
        );
    }
}

#[test]
fn the_walk_sees_what_it_is_to_see() {
    let names = exported("engine");
    for one in ["struct photo::Workspace", "fn photo::diff", "enum vocabulary::Selector"] {
        assert!(names.lines().any(|name| name == one), "{one} is not among\n{names}");
    }
    // Neither what is private nor what is for tests.
    for none in ["photo::Refs", "TestPhoto", "photo::positions"] {
        assert!(!names.contains(none), "{none} is among\n{names}");
    }
    assert_eq!(definition("const fn f<T>(x: T) {"), Some(("fn".into(), "f".into())));
}
