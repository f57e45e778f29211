//! `bind-layers`.

use clap::Args;
use serde_json::json;

use super::failure::Failure;
use super::history::current_branch;
use super::setup::App;
use crate::review::line;
use base::ids::PhotoId;
use engine::photo::{LayerContext, LayerReport, Layers, bind_layers};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram bind-layers iguana --dry-run\n  chemigram bind-layers iguana --look quiet_evening=0.6\n\n\
                  Bindings are in `bindings/*.toml` in your vocabulary folder; docs/import.md shows one."
)]
pub struct BindArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Only the layers bound to camera and lens, without a look
    #[arg(long, conflicts_with = "look")]
    pub camera_lens: bool,
    /// Only this look or style, ignoring bindings
    #[arg(long, value_name = "NAME[=STRENGTH]", value_parser = look)]
    pub look: Option<(String, Option<f64>)>,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Message for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

/// `NAME` or `NAME=STRENGTH`.
fn look(text: &str) -> Result<(String, Option<f64>), String> {
    let Some((name, strength)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    let strength = strength.parse().map_err(|_| format!("`{strength}` is not a number from 0 to 1"))?;
    Ok((name.to_owned(), Some(strength)))
}

/// Binds the layers on the branch that HEAD follows.
pub fn bind(app: &App, args: &BindArgs) -> Result<(), Failure> {
    let layers = match &args.look {
        Some((name, strength)) => Layers::Look { name: name.clone(), strength: *strength },
        None if args.camera_lens => Layers::CameraLens,
        None => Layers::Bound,
    };
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    let mut writer = app.writer(&args.photo, "bind layers")?;
    let workspace = writer.workspace();
    let branch = current_branch(&workspace.head()?, &args.photo)?;
    let parent = workspace.head_commit()?;
    let (state, facts) = (workspace.state_of(&parent)?, workspace.facts(&parent)?);
    let layouts = app.layouts();
    let context =
        LayerContext { vocabulary: &vocabulary, facts: &facts, layouts: &layouts, darktable: &version };
    let bound = bind_layers(&layers, &state, &workspace.photo().facts, context)?;
    let info = match bound.operation {
        Some(operation) if !args.dry_run => {
            Some(writer.record_edit(&branch, &parent, &bound.state, operation, &args.label)?)
        }
        _ => None,
    };
    let unchanged = bound.state == state;
    let result = json!({
        "branch": branch, "commit": info.as_ref().map(|i| &i.commit), "unchanged": unchanged,
        "dry_run": args.dry_run, "layers": bound.report,
    });
    app.output.result(&result, || {
        let done = match (&info, unchanged) {
            _ if bound.report.applied.is_empty() => "nothing to do".to_owned(),
            (_, true) => "unchanged: already applied".to_owned(),
            (Some(info), false) => format!("{branch}  {}", info.commit.short()),
            (None, false) => "dry run: nothing was changed".to_owned(),
        };
        format!("{}{done}\n", text(&bound.report))
    })
}

fn text(report: &LayerReport) -> String {
    let said = |words: &Option<String>| match words {
        Some(words) => format!("\"{}\"", line(words)),
        None => "not in the file".to_owned(),
    };
    let mut text = format!("camera   {}\nlens     {}\n", said(&report.camera), said(&report.lens));
    for step in &report.applied {
        text.push_str(&format!("applied  {}\n", line(step)));
    }
    for layer in &report.nothing_for {
        text.push_str(&format!("none     nothing is bound to {layer}\n"));
    }
    text
}
