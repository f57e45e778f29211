//! What a person types in a conversation besides words.

use serde_json::{Value, json};

use super::{ChatArgs, Ended, Shown};
use crate::budget::Budget;
use crate::cli::failure::Failure;
use crate::cli::images;
use crate::cli::review::write_page;
use crate::cli::run;
use crate::cli::setup::App;
use crate::conversation::ToolResult;
use crate::launch::DEFAULT_SEED;
use crate::review::{count, line};
use crate::session::driver::Session;
use crate::session::listing;
use crate::session::start::Request;
use crate::tools;
use crate::transcript::Vector;
use base::error::Fault;
use base::ids::PhotoId;

const COMMANDS: &str = "\
/look [x0,y0,x1,y1]      render where you stand, or a part of it (0 to 1)
/compare REF             compare with another branch, tag or commit
/try MOVE VALUE...       compare strengths of a move; changes nothing
/undo                    take back the last edit
/log                     list the edits
/branch                  show the branch and its moves
/budget [SPEC]           show what is left, or add to it: /budget time=30m
/review                  write the review page
/explore NAME=\"WORDS\"   explore directions unattended from here, one branch each
/done                    end, with a short look back
/help                    this list
Ctrl-C stops a reply. Ctrl-D leaves; `chemigram chat --resume last` goes on.";

/// What an exploration from within a conversation may spend for each direction.
const EXPLORE: &str = "time=10m,iterations=30";

/// Carries out a command; `Some` where the conversation pauses or ends for it.
pub fn perform(
    app: &App,
    session: &mut Session,
    command: &str,
    words: &[String],
    shown: &Shown<'_>,
) -> Result<Option<Ended>, Failure> {
    let call = |session: &mut Session, tool: &str, arguments: Value| -> Result<ToolResult, Failure> {
        let result = session.by_hand(tool, &arguments, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
        shown.print(&told(&result));
        if let Some(picture) = result.images.last() {
            shown.print(&format!("  the picture: {}", session.blobs.path(&picture.sha256).display()));
        }
        Ok(result)
    };
    let first = words.first().map(String::as_str);
    match command {
        "help" | "?" => shown.print(COMMANDS),
        "look" => {
            let crop = first.map(crop).transpose()?;
            let arguments = crop.map_or_else(|| json!({}), |crop| json!({ "crop": crop }));
            look(app, session, &arguments, shown, true)?;
        }
        "compare" => {
            let with = first.ok_or_else(|| Failure::input("name a branch, tag or commit"))?;
            call(session, "compare", json!({ "a": with }))?;
        }
        "try" => {
            let name =
                first.ok_or_else(|| Failure::input("name a move and its values: /try exposure -0.5 0.5"))?;
            let values: Result<Vec<f64>, _> = words.iter().skip(1).map(|word| word.parse::<f64>()).collect();
            let values =
                values.map_err(|_| Failure::input("the values are numbers: /try exposure -0.5 0.5"))?;
            call(session, "try_strengths", json!({ "primitive_name": name, "values": values }))?;
        }
        "undo" => {
            let result = session
                .by_hand(tools::UNDO, &json!({}), shown)
                .map_err(|e| Failure::from(Fault::from(&e)))?;
            let found = data(&result);
            match found.get("taken_back").and_then(Value::as_str) {
                Some(op) => {
                    shown.print(&format!("  taken back: {}", line(op)));
                    let told = format!("The photographer took back: {op}.");
                    session.tell(&told, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
                }
                None => shown.print(&told(&result)),
            }
        }
        "log" => {
            call(session, "log", json!({}))?;
        }
        "branch" => {
            call(session, "get_state", json!({}))?;
        }
        "budget" => {
            if let Some(spec) = first {
                session.raise(spec, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
            }
            shown.print(&session.gate.ledger().line(session.gate.elapsed()));
        }
        "review" => {
            let id = session.state.start.session.clone();
            let workspace = session.photo.workspace().clone();
            let page = write_page(&workspace, &id)?;
            shown.print(&format!("{}", page.display()));
        }
        "explore" => {
            if words.is_empty() {
                return Err(Failure::input(
                    "say what to explore: /explore tone=\"more dramatic\" color=\"warmer\"",
                ));
            }
            let vectors: Result<Vec<Vector>, String> = words.iter().map(|word| word.parse()).collect();
            let vectors = vectors.map_err(Failure::input)?;
            let from = session.state.head.commit.to_string();
            let question = format!(
                "Explore {} from here, unattended, within {EXPLORE} each? [yes/no]",
                count(vectors.len() as u64, "direction")
            );
            let yes = app.output.ask(&question).unwrap_or_default();
            if matches!(yes.to_lowercase().as_str(), "y" | "yes") {
                return Ok(Some(Ended::Explore(vectors, from)));
            }
        }
        "done" | "end" | "quit" => session.conclude(shown).map_err(|e| Failure::from(Fault::from(&e)))?,
        _ => return Err(Failure::input("there is no such command").remedy("/help lists them")),
    }
    Ok(None)
}

/// Renders where the conversation stands, for the person: the newest picture is always the same file.
pub fn look(
    app: &App,
    session: &mut Session,
    arguments: &Value,
    shown: &Shown<'_>,
    numbers: bool,
) -> Result<(), Failure> {
    let result =
        session.by_hand("render_preview", arguments, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
    if numbers || result.is_error {
        shown.print(&told(&result));
    }
    if let Some(picture) = result.images.last() {
        let file = session.folder.join("preview.jpg");
        let blob = session.blobs.path(&picture.sha256);
        std::fs::copy(&blob, &file).map_err(|e| Failure::file("write", &file, &e))?;
        shown.print(&format!("  the picture: {}", file.display()));
        images::show_one(app, &file)?;
    }
    Ok(())
}

/// A part of the picture: `x0,y0,x1,y1`, or the four numbers.
fn crop(text: &str) -> Result<Vec<f64>, Failure> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|number| number.trim().parse::<f64>()).collect();
    numbers
        .ok()
        .filter(|numbers| numbers.len() == 4)
        .ok_or_else(|| Failure::input("write the part as x0,y0,x1,y1, from 0 to 1"))
}

/// The data of a result, or its error.
fn data(result: &ToolResult) -> Value {
    let read = serde_json::Deserializer::from_str(&result.text).into_iter::<Value>().next();
    let mut read = read.and_then(Result::ok).unwrap_or_default();
    let field = if result.is_error { "error" } else { "data" };
    read.get_mut(field).map(Value::take).unwrap_or_default()
}

/// A result for a person: a row a field.
fn told(result: &ToolResult) -> String {
    let data = data(result);
    if result.is_error {
        return format!("  {}", data.get("message").and_then(Value::as_str).unwrap_or("it failed"));
    }
    let mut rows = Vec::new();
    flatten("", &data, &mut rows);
    rows.join("\n")
}

fn flatten(name: &str, value: &Value, rows: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(field, value)| {
            let full = if name.is_empty() { field.clone() } else { format!("{name} {field}") };
            flatten(&full, value, rows);
        }),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(word).collect();
            rows.push(format!("  {name}: {}", items.join(", ")));
        }
        Value::Array(items) => items.iter().for_each(|item| flatten(name, item, rows)),
        other => rows.push(format!("  {name}: {}", word(other))),
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), line)
}

/// Explores from within a conversation, and says what came of it, for the model.
pub fn explore(
    app: &App,
    args: &ChatArgs,
    photo: &PhotoId,
    vectors: Vec<Vector>,
    from: &str,
) -> Result<String, Failure> {
    let directions = vectors.len() as u64;
    let each = Budget::parse(&format!("{EXPLORE},branches=1"))?;
    let budget = Budget {
        time_seconds: each.time_seconds * directions,
        max_iterations: each.max_iterations * directions,
        max_branches: directions,
        ..each
    };
    let request = Request {
        brief: None,
        vectors,
        budget,
        from: from.to_owned(),
        criteria: None,
        prompt: crate::launch::usual_prompt(false).into(),
        preview_edge: args.preview_size,
        unattended: true,
        proposes: true,
        seed: DEFAULT_SEED,
    };
    run::run_request(app, app.photo(photo)?, &args.choice.choice(DEFAULT_SEED), request)?;
    let last = listing::of_photo(&app.photo(photo)?)?.into_iter().next();
    let made = last.map(|id| listing::read(&app.photo(photo)?, &id).map_err(Failure::from)).transpose()?;
    let rows = made.iter().flat_map(|session| &session.state.branches).map(|branch| {
        let score =
            branch.judgment.as_ref().map_or("not scored".into(), |j| format!("score {}", j.judged_score));
        format!("{} ({score})", branch.name)
    });
    let rows: Vec<String> = rows.collect();
    Ok(format!(
        "The photographer had directions explored from here. Branches made: {}. They can be compared with `compare`.",
        rows.join(", ")
    ))
}
