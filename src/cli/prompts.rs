//! `prompts`: the templates a model reads, and writing ones of your own.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::setup::App;
use crate::prompts::Store;
use crate::review::{line, plain};
use base::assets::Overlay;
use base::error::ErrorCode;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PromptVerb {
    /// List the prompts and their versions
    List {
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Print a prompt's template
    Show {
        /// The prompt: NAME or NAME@VERSION
        name: String,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Render a prompt with values filled in
    Render {
        /// The prompt: NAME or NAME@VERSION
        name: String,
        /// A value: JSON if it parses as JSON, otherwise text; repeatable
        #[arg(long = "var", value_name = "KEY=VALUE")]
        vars: Vec<String>,
        /// A JSON file with the values
        #[arg(long, value_name = "FILE")]
        context: Option<PathBuf>,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Start the next version of a prompt in your own folder
    New {
        /// The prompt to start from: NAME or NAME@VERSION
        name: String,
        /// Your own folder of prompts [default: prompts in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Show the differences between two versions of a prompt
    Diff {
        /// The prompt
        name: String,
        /// The older version
        from: String,
        /// The newer version
        to: String,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Publish a version of your own: its hash goes into the manifest, and its text can no longer change
    Publish {
        /// The prompt and version: NAME@VERSION
        name: String,
        /// Make it the default version
        #[arg(long)]
        activate: bool,
        /// Your own folder of prompts [default: prompts in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Check that no published prompt was changed, and list drafts
    Verify {
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
}

pub fn run(app: &App, verb: &PromptVerb) -> Result<u8, Failure> {
    match verb {
        PromptVerb::List { prompts } => {
            let entries = app.prompts(prompts.as_ref())?.list();
            let row = |e: &crate::prompts::Entry| {
                let versions: Vec<&str> = e.versions.iter().map(|v| v.version.as_str()).collect();
                json!({ "name": e.name, "summary": e.summary, "active": e.active, "versions": versions,
                        "context_required": e.context_required, "context_optional": e.context_optional })
            };
            let rows: Vec<Value> = entries.iter().map(row).collect();
            app.output.result(&rows, || {
                let row = |e: &crate::prompts::Entry| {
                    let others = e.versions.iter().map(|v| v.version.as_str()).filter(|v| *v != e.active);
                    let others = others.collect::<Vec<_>>().join(", ");
                    let also = if others.is_empty() { others } else { format!(" (also {others})") };
                    format!("{}@{}{also}  {}\n", e.name, e.active, line(&e.summary))
                };
                entries.iter().map(row).collect()
            })?;
        }
        PromptVerb::Show { name, prompts } => {
            let store = app.prompts(prompts.as_ref())?;
            let (name, version) = name.split_once('@').map_or((name.as_str(), None), |(n, v)| (n, Some(v)));
            let template = store.show(name, version)?;
            let result = json!({
                "name": template.name, "version": template.version,
                "template_sha256": template.template_sha256, "source": template.source,
            });
            app.output.result(&result, || plain(&template.source))?;
        }
        PromptVerb::Render { name, vars, context, prompts } => {
            let store = app.prompts(prompts.as_ref())?;
            render_prompt(app, &store, name, vars, context.as_ref())?;
        }
        PromptVerb::New { name, prompts } => {
            let folder = prompts.clone().unwrap_or_else(|| app.folders.prompts());
            let (name, from) = name.split_once('@').map_or((name.as_str(), None), |(n, v)| (n, Some(v)));
            let draft = store(app, &folder)?.draft(name, from, &folder)?;
            app.output.result(&draft, || {
                format!(
                    "{}\n  # copied from {}; describe your changes in {}\nchemigram prompts diff {} {} {}{}\n",
                    draft.template.display(),
                    draft.from,
                    draft.changelog.display(),
                    draft.name,
                    draft.from,
                    draft.version,
                    named(prompts.as_ref())
                )
            })?;
        }
        PromptVerb::Diff { name, from, to, prompts } => {
            let diff = app.prompts(prompts.as_ref())?.diff(name, from, to)?;
            app.output
                .result(&json!({ "name": name, "from": from, "to": to, "diff": diff }), || plain(&diff))?;
        }
        PromptVerb::Publish { name, activate, prompts } => {
            let folder = prompts.clone().unwrap_or_else(|| app.folders.prompts());
            let (name, version) = name.split_once('@').ok_or_else(|| {
                Failure::input(format!("`{name}` has no version")).remedy("write it like mode_b/system@v2")
            })?;
            let published = store(app, &folder)?.publish(name, version, *activate, &folder)?;
            app.output.result(&published, || {
                let active = if published.active { " and is now the default version" } else { "" };
                format!("{name}@{version} is published{active}: {}\n", published.template_sha256)
            })?;
        }
        PromptVerb::Verify { prompts } => {
            let remarks = app.prompts(prompts.as_ref())?.verify();
            let wrong = remarks.iter().filter(|remark| remark.wrong).count();
            app.output.result(&json!({ "wrong": wrong, "remarks": remarks }), || {
                let row =
                    |r: &crate::prompts::Remark| format!("{}@{}: {}\n", r.name, r.version, line(&r.text));
                match remarks.is_empty() {
                    true => "all published prompts are unchanged\n".to_owned(),
                    false => remarks.iter().map(row).collect(),
                }
            })?;
            if wrong > 0 {
                return Ok(ErrorCode::VersioningError.exit_status());
            }
        }
    }
    Ok(0)
}

/// The prompts with those of a folder that may not be there yet.
fn store(app: &App, folder: &PathBuf) -> Result<Store, Failure> {
    if folder.is_dir() { app.prompts(Some(folder)) } else { Ok(Store::new(Overlay::prompts(None))?) }
}

/// The option that names the folder again.
fn named(folder: Option<&PathBuf>) -> String {
    folder.map(|folder| format!(" --prompts {}", folder.display())).unwrap_or_default()
}

fn render_prompt(
    app: &App,
    store: &Store,
    name: &str,
    vars: &[String],
    context: Option<&PathBuf>,
) -> Result<(), Failure> {
    let mut values: Map<String, Value> = match context {
        Some(path) => serde_json::from_str(&crate::launch::read_text(path)?)
            .map_err(|e| Failure::input(format!("{} is not a JSON object: {e}", path.display())))?,
        None => Map::new(),
    };
    for var in vars {
        let (key, value) = var.split_once('=').ok_or_else(|| {
            Failure::input(format!("`{var}` is not KEY=VALUE")).remedy("write it like --var vision=true")
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        values.insert(key.trim().to_owned(), value);
    }
    let rendered = store.render(name, &Value::Object(values))?;
    let result = json!({
        "name": rendered.name, "version": rendered.version,
        "template_sha256": rendered.template_sha256, "text": rendered.text,
    });
    app.output.result(&result, || plain(&rendered.text))
}
