//! `grey-card`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::point;
use super::edit::{self, MEASURED_EDGE};
use super::failure::Failure;
use super::photos::{refuse_existing, write_new};
use super::places;
use super::setup::{App, interactive_deadline};
use base::ids::PhotoId;
use darktable::render::{ByHand, Quality, RenderRequest};
use engine::photo::LayerContext;
use engine::vocabulary::ApplyRequest;
use engine::vocabulary::grey_card::{self as card, Patch, RADIUS};

pub(super) const GREY_CARD_EXAMPLES: &str = "\
Examples:
  chemigram grey-card iguana 0.42,0.6
  chemigram grey-card iguana 0.42,0.6 --strength 0.7 --preview spot.jpg

It replaces warmth and tint; a later warmth or tint shifts from there.";

#[derive(Args, Debug)]
pub struct GreyCardArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The spot, as fractions (0 to 1) of the displayed picture's width and height
    #[arg(value_name = "X,Y", value_parser = point)]
    pub center: [f64; 2],
    /// Its radius, as a fraction of the picture's shorter side
    #[arg(long, value_name = "SHARE", default_value_t = RADIUS)]
    pub radius: f64,
    /// How far towards neutral, from 0 (as it is) to 1
    #[arg(long, value_name = "0..1", default_value_t = 1.0, value_parser = strength)]
    pub strength: f64,
    /// Change nothing; write the picture as it would be, with the spot marked, to this file
    #[arg(long, value_name = "FILE")]
    pub preview: Option<PathBuf>,
    /// Set it even if no light explains the spot's colour; overwrite the preview
    #[arg(long)]
    pub force: bool,
}

fn strength(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

/// Measures a place that should be grey, and sets the white balance by it on the branch that HEAD follows.
pub fn grey_card(app: &App, args: &GreyCardArgs) -> Result<(), Failure> {
    let format = args.preview.as_deref().map(edit::format_of).transpose()?;
    if let Some(file) = &args.preview {
        refuse_existing(file, args.force)?;
    }
    let workspace = app.photo(&args.photo)?;
    let head = workspace.head_commit()?;
    let (state, facts) = (workspace.state_of(&head)?, workspace.facts(&head)?);
    let renderer = app.steady_renderer()?;
    let (vocabulary, layouts, darktable) = (app.vocabulary()?, app.layouts(), renderer.darktable_version());
    let probes = vocabulary.grey_card_probes(&state, &facts, &layouts, darktable)?;
    let raw = workspace.raw();
    let look = |state| {
        let request = RenderRequest { raw: &raw, state, long_edge: MEASURED_EDGE, quality: Quality::Preview };
        renderer.render(&request, &interactive_deadline(), &ByHand).map(|rendered| rendered.picture)
    };
    let [plain, red, blue] = &probes;
    let (plain, red, blue) = (look(plain)?, look(red)?, look(blue)?);
    let place = Patch { center: args.center, radius: args.radius };
    let light = card::light(&plain, &place)?;
    card::check(light, args.force)?;
    let solved = card::solve([&plain, &red, &blue], &place)?;
    let values = card::part_way(solved, args.strength, &state, &facts);
    let request = ApplyRequest { move_name: card::MOVE, values: &values, mask: None };
    let standing = workspace.standing(&head, &vocabulary, &mut std::collections::HashMap::new())?;
    let with = LayerContext { vocabulary: &vocabulary, facts: &facts, layouts: &layouts, darktable };
    let (balanced, operation) = standing.apply(&request, &state, with)?;
    let (before, after) = (look(&state)?, look(&balanced)?);
    let lab = [&before, &after].map(|picture| card::colour(picture, &place));
    let [was, is] = lab.map(|[l, a, b]| format!("L* {l:.1}, a* {a:+.1}, b* {b:+.1}"));
    let measured = format!(
        "spot: {was} before; {is} after\nits light: {:.0} K, Duv {:+.3}, where the camera balanced for 6504 K\n",
        light.kelvin, light.duv
    );
    let fields = json!({ "before": lab[0], "after": lab[1], "kelvin": light.kelvin, "duv": light.duv });
    let mut fields = fields.as_object().cloned().unwrap_or_default();
    if let (Some(file), Some(format)) = (&args.preview, format) {
        write_new(file, &edit::encode(&card::marked(&after, &place), format)?, args.force)?;
        fields.insert("preview".into(), json!(file));
        fields.insert("would_be".into(), operation.to_string().into());
        return app.output.result(&fields, || format!("{}  {operation}\n{measured}", file.display()));
    }
    places::placed(
        app,
        &args.photo,
        "apply",
        Some("grey card"),
        Some((fields, measured)),
        |standing, state, with| Ok(standing.apply(&request, state, with)?),
    )
}
