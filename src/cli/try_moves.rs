//! `try`: strengths of one move, or several moves, side by side on one picture.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::setting;
use super::edit::{MEASURED_EDGE, encode, format_of, mask_spec};
use super::failure::Failure;
use super::photos::{refuse_existing, write_new};
use super::setup::{App, interactive_deadline, optional_text};
use super::sought;
use crate::tools::strengths::{Asked, SHEET_EDGE, lines};
use base::error::ErrorCode;
use base::ids::PhotoId;
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use darktable::state::EditState;
use pixels::sheet::contact_sheet;

pub(super) const TRY_EXAMPLES: &str = "\
Examples:
  chemigram try iguana exposure --values -0.5,0.5,1 -o sheet.jpg
  chemigram try iguana golden_hour --values 0.3,0.6,0.9 -o sheet.jpg
  chemigram try iguana clarity contrast vibrance -o sheet.jpg

The photo is not changed; `chemigram apply` makes the one you choose.";

#[derive(Args, Debug)]
pub struct TryArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// A move or look with --values, or 2 to 6 of them at their defaults
    #[arg(value_name = "MOVE", required = true)]
    pub moves: Vec<String>,
    /// 2 to 6 values to compare
    #[arg(long, value_name = "VALUE,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub values: Vec<f64>,
    /// The parameter that takes them [default: the only one, or a look's strength]
    #[arg(long, value_name = "NAME", requires = "values")]
    pub param: Option<String>,
    /// Set another parameter, the same for all; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, requires = "values")]
    pub set: Vec<(String, f64)>,
    /// Mask: JSON, or @FILE [default: the whole picture]
    #[arg(long, value_name = "JSON|@FILE")]
    pub mask: Option<String>,
    /// The edit to start from
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub at: String,
    /// Output file: .jpg, .png or .tif
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// Renders them, and writes the sheet.
pub fn try_moves(app: &App, args: &TryArgs) -> Result<(), Failure> {
    let mask = optional_text(args.mask.as_ref())?.map(|text| mask_spec(&text)).transpose()?;
    let format = format_of(&args.output)?;
    refuse_existing(&args.output, args.force)?;
    let workspace = app.photo(&args.photo)?;
    let commit = workspace.resolve(&args.at)?;
    let (state, facts) = (workspace.state_of(&commit)?, workspace.facts(&commit)?);
    let mask = mask.map(|mask| sought::find(app, &workspace, &state, &facts, mask)).transpose()?;
    let renderer = app.steady_renderer()?;
    let others = args.set.iter().cloned().collect();
    let asked = Asked {
        names: &args.moves,
        parameter: args.param.as_deref(),
        values: &args.values,
        others: &others,
        mask: mask.as_ref(),
    };
    let version = renderer.darktable_version();
    let trials = asked.trials(&state, &app.vocabulary()?, &facts, &app.layouts(), version)?;
    let raw = workspace.raw();
    let look = |state: &EditState| {
        let request = RenderRequest { raw: &raw, state, long_edge: MEASURED_EDGE, quality: Quality::Preview };
        renderer.render(&request, &interactive_deadline(), &ByHand).map(|rendered| rendered.picture)
    };
    let now = look(&state)?;
    let pictures = trials.iter().map(|trial| look(&trial.state)).collect::<Result<Vec<_>, _>>()?;
    let mut tiles: Vec<(String, &Picture)> = vec![("now".to_owned(), &now)];
    let labels = trials.iter().enumerate().map(|(at, trial)| format!("{}: {}", at + 1, trial.label));
    tiles.extend(labels.zip(pictures.iter().map(|picture| &**picture)));
    let too_large = || Failure::new(ErrorCode::StateError, "the pictures do not fit on one");
    let sheet = contact_sheet(&tiles, SHEET_EDGE).ok_or_else(too_large)?;
    write_new(&args.output, &encode(&sheet, format)?, args.force)?;
    let lines = lines(&tiles, mask.is_some());
    let result = json!({
        "file": args.output, "commit": commit, "tried": asked.words(), "tiles": lines,
        "width": sheet.width, "height": sheet.height,
    });
    app.output.result(&result, || format!("{}\n{}\n", lines.join("\n"), args.output.display()))
}
