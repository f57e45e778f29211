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
use crate::session::start::Request;
use crate::session::{listing, talk};
use crate::tools;
use crate::transcript::Vector;
use base::error::Fault;
use base::ids::{PhotoId, SessionId};
use engine::photo::Workspace;

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
    let call = |session: &mut Session, tool: &str, arguments: Value| -> Result<(), Failure> {
        let result = session.by_hand(tool, &arguments, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
        shown.print(&told(&result));
        show(app, session, &result, shown, command)
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
            let result =
                session.by_hand("log", &json!({}), shown).map_err(|e| Failure::from(Fault::from(&e)))?;
            let commits = data(&result).get_mut("commits").map(Value::take).unwrap_or_default();
            let row = |commit: &Value| {
                let text = |field: &str| line(commit.get(field).and_then(Value::as_str).unwrap_or_default());
                let short: String = text("commit").chars().take(12).collect();
                format!("  {short}  {}  {}", text("op"), text("label")).trim_end().to_owned()
            };
            let rows: Vec<String> = commits.as_array().into_iter().flatten().map(row).collect();
            shown.print(&if rows.is_empty() { told(&result) } else { rows.join("\n") });
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
            let yes = shown.ask(&question).unwrap_or_default();
            if matches!(yes.to_lowercase().as_str(), "y" | "yes") {
                session.hand_over(words, shown).map_err(|e| Failure::from(Fault::from(&e)))?;
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
    show(app, session, &result, shown, "preview")
}

/// The pictures of a result, as files of this name in the session's folder: their paths always, themselves where the
/// terminal can show them.
fn show(
    app: &App,
    session: &Session,
    result: &ToolResult,
    shown: &Shown<'_>,
    name: &str,
) -> Result<(), Failure> {
    let several = result.images.len() > 1;
    for (number, picture) in (1..).zip(&result.images) {
        let name = if several { format!("{name}_{number}.jpg") } else { format!("{name}.jpg") };
        let file = session.folder.join(name);
        let blob = session.blobs.path(&picture.sha256);
        std::fs::copy(&blob, &file).map_err(|e| Failure::file("write", &file, &e))?;
        let which = if several { line(&picture.caption) } else { "the picture".to_owned() };
        shown.print(&format!("  {which}: {}", file.display()));
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
        Value::String(text) if text.is_empty() => {}
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
    let began = jiff::Timestamp::now();
    let choice = args.choice.choice(DEFAULT_SEED);
    let launcher = args.choice.launcher(app, args.prompts.as_ref())?;
    run::run_request(app, &launcher, app.photo(photo)?, (&choice, args.fallback.as_deref()), request)?;
    explored(&app.photo(photo)?, began).map(|(told, _)| told)
}

/// What came of an exploration that a conversation was cut off in, for the model; `None` if there was none.
pub fn explored_before(
    app: &App,
    workspace: &Workspace,
    session: &listing::Session,
) -> Result<Option<String>, Failure> {
    let Some(began) = talk::handed_over(&session.lines) else { return Ok(None) };
    let (told, open) = explored(workspace, began)?;
    if let Some(id) = open {
        app.output.remark(&format!(
            "the exploration was cut off; `chemigram run-mode-b --resume {}` goes on with it",
            id.short()
        ));
    }
    Ok(Some(told))
}

/// What came of an exploration, for the model; and its id, where it was cut off.
fn explored(workspace: &Workspace, began: jiff::Timestamp) -> Result<(String, Option<SessionId>), Failure> {
    let newest = listing::of_photo(workspace)?.into_iter().next();
    let newest = newest.map(|id| listing::read(workspace, &id)).transpose()?;
    let after = |session: &listing::Session| {
        !session.state.talks() && session.lines.first().is_some_and(|line| line.t >= began)
    };
    let Some(made) = newest.filter(after) else {
        return Ok(("An exploration that the photographer began did not take place.".into(), None));
    };
    let rows = made.state.branches.iter().map(|branch| {
        let score =
            branch.judgment.as_ref().map_or("not scored".into(), |j| format!("score {}", j.judged_score));
        format!("{} ({score})", branch.name)
    });
    let rows: Vec<String> = rows.collect();
    let cut = made.state.end.is_none();
    let told = format!(
        "The photographer had directions explored from here{}. Branches made: {}. They can be compared with `compare`.",
        if cut { ", which was cut off" } else { "" },
        if rows.is_empty() { "none".to_owned() } else { rows.join(", ") },
    );
    Ok((told, cut.then_some(made.id)))
}
