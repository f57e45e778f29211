//! `protocol`: the state machines that steer a session.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::App;
use crate::protocol::finding::Severity;
use crate::protocol::model::{Protocol, Target};
use crate::protocol::schema::{Kind, Trust};
use crate::protocol::variables::{Purpose, Values};
use crate::protocol::{Options, load, store};
use crate::review::{count, line, plain};
use base::assets::{Origin, Overlay};

const CHECK_EXAMPLES: &str = "\
Examples:
  chemigram protocol check mine.toml
  chemigram protocol check old.json --var repo=core --json

Exit status: 0 if it can run (with or without warnings), 2 if it has errors.";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ProtocolVerb {
    /// List the protocols, built in and your own
    List,
    /// Show a protocol: its states, transitions and variables
    #[command(after_help = "Example:\n  chemigram protocol show mode_b_explore")]
    Show {
        /// The protocol
        name: String,
        /// Print the file itself
        #[arg(long)]
        source: bool,
    },
    /// Check a protocol file: report each error, where it is and how to correct it
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The protocol file, TOML or JSON
    pub file: PathBuf,
    /// Set a variable; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Check a file in the original format by the rules of version 2
    #[arg(long)]
    pub strict: bool,
}

/// `NAME=VALUE`.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".into()),
    }
}

/// `protocol`; the status of a check says whether it can run.
pub fn protocol(app: &App, verb: &ProtocolVerb) -> Result<u8, Failure> {
    let files = Overlay::protocols(Some(app.folders.protocols()));
    match verb {
        ProtocolVerb::List => list(app, &files).map(|()| 0),
        ProtocolVerb::Show { name, source } => show(app, &files, name, *source).map(|()| 0),
        ProtocolVerb::Check(args) => check(app, args),
    }
}

/// Options to load a protocol without values.
fn look() -> Options {
    Options { purpose: Purpose::Check, ..Options::default() }
}

fn list(app: &App, files: &Overlay) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (name, entry) in store::list(files) {
        let text = files.text(&entry.file).unwrap_or_default();
        let loaded = load(&entry.file, &text, &look());
        let description = loaded.draft().map(|p| p.description.clone()).unwrap_or_default();
        let user = entry.origin != Origin::Embedded;
        rows.push(json!({
            "name": name, "description": description, "user": user,
            "version": loaded.dialect, "errors": loaded.has_errors(),
        }));
    }
    let wide = rows.iter().filter_map(|row| row["name"].as_str()).map(str::len).max().unwrap_or(0);
    app.output.result(&rows, || {
        let word = |row: &Value, key: &str| line(row[key].as_str().unwrap_or_default());
        let row = |row: &Value| {
            let mark = if row["errors"] == true { "  (has errors)" } else { "" };
            let own = if row["user"] == true { "  (your own)" } else { "" };
            format!("{:wide$}  {}{own}{mark}\n", word(row, "name"), word(row, "description"))
        };
        rows.iter().map(row).collect()
    })
}

fn show(app: &App, files: &Overlay, name: &str, source: bool) -> Result<(), Failure> {
    let (entry, text) = store::find(files, name)?;
    if source {
        return app
            .output
            .result(&json!({ "name": name, "file": entry.file, "source": text }), || plain(&text));
    }
    let protocol = load(&entry.file, &text, &look()).into_protocol()?;
    app.output.result(&as_json(&protocol, &entry.file), || as_text(&protocol))
}

/// A protocol for a program.
pub(super) fn as_json(protocol: &Protocol, file: &str) -> Value {
    let states: Vec<Value> = protocol.states.iter().map(|state| state_json(protocol, state)).collect();
    let variables: Vec<Value> = protocol
        .variables
        .iter()
        .map(|(name, v)| {
            json!({ "name": name, "type": v.kind, "trust": v.trust, "default": v.default, "description": v.description })
        })
        .collect();
    json!({
        "name": protocol.name, "file": file, "description": protocol.description,
        "version": protocol.dialect, "initial_state": protocol.names().get(protocol.initial),
        "max_iterations": protocol.max_transitions, "budget": protocol.budget, "variables": variables,
        "states": states,
    })
}

fn state_json(protocol: &Protocol, state: &crate::protocol::model::State) -> Value {
    let ways: Vec<Value> = state
        .transitions
        .iter()
        .map(|t| json!({ "on": t.on, "to": target(protocol, t.to), "conditional": t.when.is_some(), "default": !t.written }))
        .collect();
    json!({
        "name": state.name, "kind": state.kind, "tools": state.tools, "checks": state.checks,
        "max_attempts": state.max_attempts, "uses_reserve": state.uses_reserve, "transitions": ways,
    })
}

fn target(protocol: &Protocol, target: Target) -> &str {
    match target {
        Target::State(id) => protocol.state(id).map_or("", |state| state.name.as_str()),
        Target::Retry => "retry",
        Target::End => "@done",
    }
}

/// A protocol for a person.
pub(super) fn as_text(protocol: &Protocol) -> String {
    let mut text = format!("{}\n{}\n", line(&protocol.name), line(&protocol.description));
    if !protocol.variables.is_empty() {
        text.push_str("\nVariables (--var NAME=VALUE):\n");
    }
    for (name, variable) in &protocol.variables {
        let default = match &variable.default {
            Some(Value::String(empty)) if empty.is_empty() => "(optional)".to_owned(),
            Some(value) => format!("(default: {value})"),
            None => "(required)".to_owned(),
        };
        let who = if variable.trust == Trust::Host { " (set by the program)" } else { "" };
        let _ = writeln!(text, "  {:14} {} {}{who}", line(name), line(&variable.description), line(&default));
    }
    text.push_str("\nStates:\n");
    for state in &protocol.states {
        let _ = writeln!(text, "  {} ({})", line(&state.name), state.kind);
        if state.kind != Kind::Final {
            let ways = state.transitions.iter().filter(|t| t.written);
            let ways: Vec<String> = ways
                .map(|t| {
                    let when = if t.when.is_some() { " (if a condition is met)" } else { "" };
                    format!("{}{when} → {}", t.on, target(protocol, t.to))
                })
                .collect();
            let _ = writeln!(text, "      {}", line(&ways.join(", ")));
        }
        if let Some(tools) = state.tools.as_ref().filter(|tools| !tools.is_empty()) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let _ = writeln!(text, "      tools: {}", line(&tools.join(", ")));
        }
        if let Some(action) = &state.action {
            let _ = writeln!(text, "      action: {}", line(&action.tool));
        }
    }
    if let Some(budget) = protocol.budget.and_then(|budget| serde_json::to_value(budget).ok()) {
        let caps: Vec<String> = budget
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, cap)| cap.is_number())
            .map(|(name, cap)| format!("{name} {cap}"))
            .collect();
        if !caps.is_empty() {
            let _ = writeln!(text, "\nLimits: {}", caps.join(", "));
        }
    }
    text
}

fn check(app: &App, args: &CheckArgs) -> Result<u8, Failure> {
    let text = crate::launch::read_text(&args.file)?;
    let mut values = Values::default();
    for (name, value) in &args.vars {
        values.set(name, value.as_str(), Trust::User);
    }
    let options = Options { strict: args.strict, values, ..look() };
    let file = args.file.display().to_string();
    let loaded = load(&file, &text, &options);
    let status = if loaded.has_errors() { 2 } else { 0 };
    let result = json!({
        "file": file, "version": loaded.dialect, "ok": status == 0, "findings": loaded.findings,
    });
    let findings: Vec<String> = loaded.findings.iter().map(|f| plain(&f.to_string())).collect();
    app.output.result(&result, || {
        let errors = loaded.findings.iter().filter(|f| f.severity == Severity::Error).count();
        let warnings = findings.len() - errors;
        let said = match (errors, warnings) {
            (0, 0) => "no errors".to_owned(),
            (0, _) => format!("no errors, {}", count(warnings as u64, "warning")),
            _ => format!(
                "{}, {}; it cannot run",
                count(errors as u64, "error"),
                count(warnings as u64, "warning")
            ),
        };
        let list: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        format!("{list}{}: {said}\n", line(&file))
    })?;
    Ok(status)
}
