//! `schema`: JSON Schemas of what commands print with `--json`, made from the very types that are printed.

use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Value, json};

use super::export::{Sidecar, Written};
use super::failure::{ErrorOutput, Failure};
use super::photos::{Added, Row, Tried};
use super::prune::Pruned;
use super::run::RunResult;
use super::setup::App;
use super::watch::Moment;
use crate::review::ReviewModel;
use crate::session::listing::Summary;
use base::error::ErrorCode;
use engine::photo::{LogEntry, Status, Undone};

/// The version of the outputs. It is raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA_VERSION: u32 = 1;

/// An output: its name, the commands that print it, and its schema.
struct Known {
    name: &'static str,
    commands: &'static str,
    make: fn() -> Schema,
}

/// A list of rows.
fn rows<T: JsonSchema>() -> Schema {
    schema_for!(Vec<T>)
}

/// An object, which says by what version it is.
fn object<T: JsonSchema>() -> Schema {
    let mut schema = schema_for!(T);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("schema_version".into(), json!({ "const": SCHEMA_VERSION }));
    }
    schema
}

const KNOWN: [Known; 14] = [
    Known { name: "added", commands: "ingest RAW", make: object::<Added> },
    Known { name: "added-several", commands: "ingest RAW…, ingest FOLDER", make: rows::<Tried> },
    Known { name: "error", commands: "every command that fails", make: object::<ErrorOutput> },
    Known { name: "exports", commands: "export", make: rows::<Written> },
    Known { name: "log", commands: "log", make: rows::<LogEntry> },
    Known { name: "moment", commands: "mode-b watch, one per line", make: object::<Moment> },
    Known { name: "photos", commands: "photos", make: rows::<Row> },
    Known { name: "prune", commands: "prune, mode-b delete", make: object::<Pruned> },
    Known {
        name: "result",
        commands: "run-mode-b and run-protocol, the last line",
        make: object::<RunResult>,
    },
    Known { name: "review", commands: "mode-b show", make: object::<ReviewModel> },
    Known { name: "sessions", commands: "mode-b list", make: rows::<Summary> },
    Known { name: "sidecars", commands: "export --sidecar", make: rows::<Sidecar> },
    Known { name: "status", commands: "status", make: object::<Status> },
    Known { name: "undo", commands: "undo", make: object::<Undone> },
];

/// Prints a schema, or the names of all.
pub fn schema(app: &App, name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else {
        let rows: Vec<Value> =
            KNOWN.iter().map(|known| json!({ "name": known.name, "commands": known.commands })).collect();
        return app.output.result(&json!({ "outputs": rows }), || {
            KNOWN.iter().map(|known| format!("{:14}  {}\n", known.name, known.commands)).collect()
        });
    };
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        let message = format!("there is no schema `{name}`");
        return Err(
            Failure::new(ErrorCode::NotFound, message).remedy(format!("choose one of {}", names.join(", ")))
        );
    };
    let schema = (known.make)();
    let text = serde_json::to_string_pretty(&schema).map_err(|e| Failure::input(e.to_string()))?;
    app.output.line(&text);
    Ok(())
}
