//! The command line as a person meets it: help, errors with their exit statuses, keys, and what reaches a terminal.

#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;

/// A user with a home of her own and nothing in it.
pub struct Home(pub tempfile::TempDir);

impl Home {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("chemigram").unwrap();
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).env("HOME", self.0.path()).env("COLUMNS", "100");
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut with = arguments.to_vec();
        with.push("--json");
        serde_json::from_str(&self.ok(&with)).unwrap()
    }

    /// Standard error of a command that must fail with this status.
    pub fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}{}", text(&output.stdout));
        assert!(!error.contains("panicked"), "{error}");
        error
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let after = help.split("Commands:\n").nth(1).unwrap_or_default();
    let rows = after.lines().take_while(|l| !l.is_empty());
    let names = rows.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_help_and_the_way_there_is_short() {
    let home = Home::new();
    let help = home.ok(&["--help"]);
    for words in ["Exit status", "CHEMIGRAM_LIBRARY", "chemigram demo"] {
        assert!(help.contains(words), "{words}");
    }
    let verbs = listed(&help);
    assert!(verbs.len() >= 26, "{verbs:?}");
    for verb in verbs {
        let help = home.ok(&[&verb, "--help"]);
        assert!(help.contains("Usage: chemigram"), "{verb}");
        for below in listed(&help) {
            assert!(home.ok(&[&verb, &below, "--help"]).contains("Usage:"), "{verb} {below}");
        }
    }
    assert!(home.ok(&["--version"]).starts_with("chemigram "));
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 0, "help leaves nothing behind");
}

#[test]
fn bad_input_is_refused_with_its_cause_and_a_remedy() {
    let home = Home::new();
    std::fs::write(home.path("text.nef"), "this is no raw file").unwrap();
    let cases: &[(i32, &[&str], &str)] = &[
        (2, &["frobnicate"], "unrecognized subcommand"),
        (2, &["run-mode-b", "iguana", "--yes"], "--budget"),
        (2, &["run-mode-b", "iguana", "--yes", "--budget", "time=5m,branches=1"], "lacks iterations"),
        (2, &["run-mode-b", "iguana", "--yes", "--budget", "time=soon,iterations=1,branches=1"], "30m"),
        (2, &["run-mode-b", "iguana", "--yes", "--budget", "lite", "--vector", "tone"], "write it like"),
        (2, &["run-mode-b", "iguana", "--yes", "--budget", "lite", "--vector", "To ne=x"], "a-z0-9_"),
        (2, &["run-mode-b", "iguana", "--budget", "lite"], "--yes"),
        (3, &["run-mode-b", "iguana", "--yes", "--budget", "lite"], "no photo `iguana`"),
        (
            3,
            &["run-mode-b", "x", "--yes", "--budget", "lite", "--provider", "opnai"],
            "did you mean `openai`",
        ),
        (12, &["run-mode-b", "x", "--yes", "--budget", "lite", "--provider", "openai"], "OPENAI_API_KEY"),
        (3, &["run-mode-b", "/nowhere/x.NEF", "--yes", "--budget", "lite"], "/nowhere/x.NEF"),
        (3, &["run-mode-b", "--resume", "abcdef", "--yes"], "no session"),
        (2, &["mode-b", "show", "abc"], "too short"),
        (3, &["mode-b", "show", "abcdef"], "mode-b list"),
        (3, &["ingest", "/nowhere/x.NEF"], "cannot read /nowhere/x.NEF"),
        (3, &["status", "iguana"], "there is no photo `iguana`"),
        (2, &["status", "../etc"], "photo id"),
        (2, &["tag", "iguana", "../x"], "branch or tag name"),
        (2, &["apply", "iguana", "exposure", "ev=high"], "not a number"),
        (2, &["render", "iguana", "-o", "x.gif"], ".jpg"),
        (2, &["render", "iguana", "-o", "x.png", "--quality", "preview", "--proxy", "half"], "auto, off"),
        (2, &["log"], "required"),
        (3, &["proposals", "accept", "deadbeef"], "deadbeef"),
        (3, &["vocab", "show", "exposre"], "exposure"),
        (3, &["providers", "show", "openia"], "openai"),
        (3, &["prompts", "show", "mode_b/sistem"], "mode_b/system"),
        (2, &["prompts", "render", "mode_b/system"], "needs `"),
        (3, &["vocab", "check", "/nowhere.toml"], "/nowhere.toml"),
    ];
    for (status, arguments, words) in cases {
        let error = home.fails(*status, arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
        assert!(error.starts_with("error: "), "{error}");
        assert!(!error.contains("(os error 2): No such"), "a cause is said once: {error}");
    }
    // darktable itself is asked about this one.
    let error = home.fails(2, &["ingest", "text.nef"]);
    assert!(error.contains("text.nef"), "{error}");
    assert!(home.ok(&["photos", "-q"]).is_empty(), "a refused raw leaves no photo");
}

#[test]
fn with_json_an_error_is_json_too() {
    let home = Home::new();
    for (arguments, status, code) in [
        (&["--json", "status", "iguana"][..], 3, "NOT_FOUND"),
        (&["--json", "frobnicate"], 2, "INVALID_INPUT"),
        (
            &["run-mode-b", "x", "--budget", "lite", "--yes", "--provider", "openai", "--json"],
            12,
            "PROVIDER_ERROR",
        ),
    ] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(status));
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["error"]["code"], code);
        assert!(error["error"]["message"].as_str().is_some_and(|m| !m.is_empty()));
        assert!(error["error"]["remedy"].as_str().is_some_and(|m| !m.is_empty()), "{error}");
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
}

#[test]
fn a_key_in_the_environment_never_comes_out() {
    let home = Home::new();
    let canary = "sk-canary-0123456789";
    let output = home
        .command(&["-vvv", "--json", "providers", "check", "openai"])
        .env("OPENAI_API_KEY", canary)
        .env("CHEMIGRAM_BASE_URL", "http://127.0.0.1:9/v1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(12));
    assert!(!text(&output.stdout).contains(canary) && !text(&output.stderr).contains(canary));
}

/// A server that tells who asked it with a key.
fn eavesdropper() -> (String, std::sync::mpsc::Receiver<bool>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (heard, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let _ = heard.send(head.iter().any(|line| line.to_lowercase().starts_with("authorization:")));
        }
    });
    (url, hears)
}

#[test]
fn an_address_in_the_environment_is_the_named_providers_and_a_key_goes_there_encrypted() {
    let home = Home::new();
    let (url, heard) = eavesdropper();
    let check = |url: &str, provider: &str| {
        let mut command = home.command(&["providers", "check", provider]);
        command.env("OPENAI_API_KEY", "sk-canary-0123456789").env("CHEMIGRAM_BASE_URL", url).output().unwrap()
    };
    // The one that is named goes there, and there is nothing wrong with that.
    check(&url, "openai");
    assert!(heard.recv().unwrap());
    // To another machine it goes over https alone.
    let output = check("http://gpu-box.invalid:8080/v1", "openai");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("over plain http"), "{}", text(&output.stderr));
}

#[test]
fn completions_and_manual_pages_come_from_the_definitions() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        // What can come next is asked of the program itself.
        let script = home.ok(&["completions", shell]);
        assert!(script.contains("COMPLETE") && script.contains("chemigram"), "{shell}: {script}");
    }
    assert!(home.ok(&["man"]).contains(".TH chemigram"));
    home.ok(&["man", "pages"]);
    let page = std::fs::read_to_string(home.path("pages/chemigram-run-mode-b.1")).unwrap();
    assert!(page.contains("budget"));
}

#[test]
fn e20_what_the_program_knows_can_be_listed_without_a_photo() {
    let home = Home::new();
    let moves = home.json(&["vocab", "list"]);
    assert!(moves.as_array().unwrap().len() > 40);
    assert!(home.ok(&["vocab", "show", "exposure"]).contains("-3 to 3 EV"));
    assert!(home.ok(&["vocab", "list", "--axis", "warmth"]).starts_with("warmth "));
    assert!(home.ok(&["vocab", "list", "--query", "wb"]).contains("white_balance_gains"));
    let providers = home.json(&["providers", "list"]);
    let row = |name: &str| providers.as_array().unwrap().iter().find(|p| p["name"] == name).unwrap();
    assert_eq!((&row("explorer")["ready"], &row("openai")["ready"]), (&true.into(), &false.into()));
    assert!(home.ok(&["prompts", "list"]).contains("mode_b/system@v3 (also v1, v2)"));
    let own = home.path("prompts");
    let own = own.to_str().unwrap();
    let verify = ["prompts", "verify", "--prompts", own];
    let draft = home.ok(&["prompts", "new", "mode_b/system@v1", "--prompts", own]);
    let template = draft.lines().next().unwrap();
    assert_eq!(std::fs::read(template).unwrap(), std::fs::read("prompts/mode_b/system_v1.j2").unwrap());
    let prompt = format!("mode_b/system@{}", template.rsplit_once('_').unwrap().1.trim_end_matches(".j2"));
    assert!(home.ok(&verify).contains("a draft"));
    std::fs::write(template.replace(".j2", ".changelog.md"), "Shorter.").unwrap();
    home.ok(&["prompts", "publish", &prompt, "--prompts", own]);
    assert!(home.ok(&verify).contains("all published prompts are unchanged"));
    std::fs::write(template, "Be quick.").unwrap();
    assert!(home.command(&verify).output().unwrap().status.code() == Some(5));
    assert!(home.ok(&["providers", "show", "openai"]).contains("OPENAI_API_KEY"));
    assert_eq!(home.json(&["cache", "info"])["entries"], 0);
    std::fs::write(home.path("own.toml"), "[[move]]\nname = \"x\"\n").unwrap();
    assert!(home.fails(2, &["vocab", "check", "own.toml"]).contains("own.toml"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("chemigram"));
    command.args(["completions", "bash"]).env("HOME", home.0.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_with_its_status() {
    let home = Home::new();
    for arguments in
        [&["vocab", "list"][..], &["vocab", "list", "--json"], &["man"], &["--help"], &["--version"]]
    {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("chemigram"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.args(arguments).env("HOME", home.0.path()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("standard output") && said.contains("No space left"), "{arguments:?}: {said}");
    }
}

#[test]
fn what_a_name_does_to_a_terminal_never_reaches_it() {
    let home = Home::new();
    let name = "odd\u{1b}[31m\u{1b}]0;pwn\u{7}\u{9b}2J.dng";
    std::fs::write(home.path(name), "no raw").unwrap();
    for arguments in
        [&["ingest", name][..], &["ingest", "a", name], &["--library", name, "photos"], &["render", name]]
    {
        let output = home.run(arguments);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.contains("odd"), "{arguments:?} does not name it: {all}");
        assert!(!all.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{arguments:?}: {all:?}");
    }
}
