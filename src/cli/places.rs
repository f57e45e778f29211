//! `apply-regions`, `spot` and `remove`: a person's edits on places of a photo.

use std::collections::HashMap;
use std::str::FromStr;

use clap::Args;
use serde_json::{Map, Value, json};

use super::edit::{MEASURED_EDGE, mask_spec};
use super::failure::Failure;
use super::history::current_branch;
use super::setup::{App, interactive_deadline, text};
use super::sought;
use crate::tools;
use base::error::Fault;
use base::ids::{Hash, PhotoId};
use darktable::render::{ByHand, Quality, RenderRequest};
use darktable::state::EditState;
use engine::photo::{LayerContext, Operation, Standing, Workspace};
use engine::vocabulary::{PhotoFacts, Region, RegionsRequest, fill};
use engine::vocabulary::{Spot, SpotAction};

pub(super) const REGIONS_EXAMPLES: &str = "\
Examples:
  chemigram apply-regions iguana exposure --regions @dodge.json
  chemigram apply-regions iguana exposure --regions '[
    {\"mask\": {\"shape\":\"ellipse\",\"center\":[0.4,0.3],\"radius\":[0.1,0.06]},
     \"parameter_values\": {\"ev\":0.3}},
    {\"mask\": {\"shape\":\"circle\",\"center\":[0.7,0.6],\"radius\":0.1},
     \"parameter_values\": {\"ev\":-0.3}}]'

Without MOVE each region names its own moves:
  {\"mask\": …, \"ops\": [{\"primitive_name\": \"saturation\"}]}";

#[derive(Args, Debug)]
pub struct RegionsArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The move for all regions
    #[arg(value_name = "MOVE")]
    pub name: Option<String>,
    /// 1 to 32 regions: a JSON list, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    pub regions: String,
    /// Message for the history
    #[arg(long)]
    pub label: Option<String>,
}

pub(super) const SPOT_EXAMPLES: &str = "\
Examples:
  chemigram spot iguana --heal 0.31,0.22 --heal 0.44,0.20,0.01
  chemigram spot iguana --clone 0.62,0.40,0.03:0.70,0.41
  chemigram spot iguana --heal '0,0.30 1,0.36 1,0.37 0,0.31'
  chemigram spot iguana --blur 0.80,0.15,0.05 --blur-radius 0.02
  chemigram spot iguana --remove 0.31,0.22

PLACE is a circle X,Y[,R] or an outline 'X,Y X,Y X,Y …'. X and Y are fractions (0 to 1) of the picture's width and \
height, counted from the upper left corner; R is the radius as a fraction of the shorter side. X,Y after a colon is the \
centre of the source; without it the nearest suitable source is used.";

#[derive(Args, Debug)]
pub struct SpotArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Heal a spot: texture from the source, brightness and colour from its surroundings; repeatable
    #[arg(long, value_name = "PLACE[:X,Y]", required_unless_present_any = ["clone", "fill", "blur", "remove"])]
    pub heal: Vec<SpotPlace>,
    /// Copy the source to a spot; repeatable
    #[arg(long, value_name = "PLACE[:X,Y]")]
    pub clone: Vec<SpotPlace>,
    /// Fill a spot with the source's mean colour; repeatable
    #[arg(long, value_name = "PLACE[:X,Y]")]
    pub fill: Vec<SpotPlace>,
    /// Blur a spot; repeatable
    #[arg(long, value_name = "PLACE")]
    pub blur: Vec<SpotPlace>,
    /// Radius of the blur, as a fraction of the picture's shorter side [default: 0.01]
    #[arg(long, value_name = "SHARE", requires = "blur")]
    pub blur_radius: Option<f64>,
    /// Remove the existing spot at X,Y; repeatable
    #[arg(long, value_name = "X,Y")]
    pub remove: Vec<SpotPlace>,
    /// Message for the history
    #[arg(long)]
    pub label: Option<String>,
}

impl SpotArgs {
    /// The spots in the order in which they are applied: removed, healed, cloned, filled, blurred.
    pub fn spots(&self) -> Vec<Spot> {
        let of = |places: &[SpotPlace], action: SpotAction| {
            let blur_radius = self.blur_radius.filter(|_| action == SpotAction::Blur);
            let spot = |place: &SpotPlace| Spot { action, blur_radius, ..place.0.clone() };
            places.iter().map(spot).collect::<Vec<_>>()
        };
        [
            of(&self.remove, SpotAction::Remove),
            of(&self.heal, SpotAction::Heal),
            of(&self.clone, SpotAction::Clone),
            of(&self.fill, SpotAction::Fill),
            of(&self.blur, SpotAction::Blur),
        ]
        .concat()
    }
}

/// `X,Y[,R][:X,Y]`, or `X,Y X,Y X,Y …[:X,Y]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpotPlace(Spot);

impl FromStr for SpotPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            "write it like 0.31,0.22 or 0.31,0.22,0.01 or 0.31,0.22,0.01:0.40,0.22, an outline like '0.1,0.1 0.2,0.1 0.2,0.3'"
                .to_owned()
        };
        let numbers = |text: &str| {
            text.split(',').map(|n| n.trim().parse::<f64>().map_err(|_| bad())).collect::<Result<Vec<_>, _>>()
        };
        let (place, source) =
            text.split_once(':').map_or((text, None), |(place, source)| (place, Some(source)));
        let source = match source.map(numbers).transpose()?.as_deref() {
            None => None,
            Some(&[x, y]) => Some([x, y]),
            Some(_) => return Err(bad()),
        };
        let spot = Spot { source, ..Spot::default() };
        if let Ok(circle) = numbers(place) {
            return match *circle.as_slice() {
                [x, y] => Ok(Self(Spot { x: Some(x), y: Some(y), ..spot })),
                [x, y, radius] => Ok(Self(Spot { x: Some(x), y: Some(y), radius: Some(radius), ..spot })),
                _ => Err(bad()),
            };
        }
        let corner = |text: &str| <[f64; 2]>::try_from(numbers(text)?).map_err(|_| bad());
        let path = place.split_whitespace().map(corner).collect::<Result<Vec<_>, _>>()?;
        if path.len() < 2 {
            return Err(bad());
        }
        Ok(Self(Spot { path: Some(path), ..spot }))
    }
}

pub(super) const REMOVE_EXAMPLES: &str = "\
Examples:
  chemigram remove iguana shadows_lift
  chemigram remove iguana exposure#2
  chemigram remove iguana retouch

By its name a move goes everywhere, with and without a mask; by its id only this one, exposure#0 being the one without \
a mask. `chemigram diff PHOTO baseline` lists the ids.";

#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The move or darktable module to undo, or the id of one placed move
    #[arg(value_name = "MOVE|MODULE|ID")]
    pub name: String,
    /// Only this instance of the module, by darktable's number, which changes as others come and go
    #[arg(long, value_name = "N", hide = true)]
    pub instance: Option<u32>,
}

pub(super) const REPLACE_MASK_EXAMPLES: &str = "\
Example:
  chemigram replace-mask iguana exposure#2 --mask '{\"shape\":\"circle\",\"center\":[0.5,0.4],\"radius\":0.2}'";

#[derive(Args, Debug)]
pub struct ReplaceMaskArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The placed move, such as exposure#2; `chemigram diff PHOTO baseline` lists the ids
    #[arg(value_name = "ID")]
    pub id: String,
    /// The new mask: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    pub mask: String,
    /// Message for the history
    #[arg(long)]
    pub label: Option<String>,
}

/// Applies a batch.
pub fn apply_regions(app: &App, args: &RegionsArgs) -> Result<(), Failure> {
    let regions = regions(&text(&args.regions)?)?;
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    let named = app.photo(&args.photo)?;
    edit(app, &args.photo, "apply-regions", args.label.as_deref(), None, |state, facts| {
        let regions = sought::find_regions(app, &named, state, facts, &regions)?;
        let request = RegionsRequest { move_name: args.name.as_deref(), regions: &regions };
        let applied = vocabulary.apply_regions(&request, state, facts, &app.layouts(), &version)?;
        let operation = Operation::of_regions(&request, &applied, &vocabulary);
        Ok((applied.state, operation))
    })
}

fn regions(text: &str) -> Result<Vec<Region>, Failure> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!(" at regions{path}") };
        Failure::input(format!("invalid regions{at}: {}", error.inner())).remedy(
            r#"write a list like [{"mask":{"shape":"circle","center":[0.5,0.4],"radius":0.2},"parameter_values":{"ev":0.3}}]"#,
        )
    })
}

/// Retouches, or takes spots back.
pub fn spot(app: &App, args: &SpotArgs) -> Result<(), Failure> {
    let asked = args.spots();
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    let raw = app.photo(&args.photo)?.raw();
    edit(app, &args.photo, "spot", args.label.as_deref(), None, |state, facts| {
        let layouts = app.layouts();
        let mut spots = vocabulary.place_spots(&asked, state, facts, &layouts, &version)?;
        if spots.iter().any(fill::is_wanting) {
            let probe = fill::probe(state);
            let (long_edge, quality) = (MEASURED_EDGE, Quality::Preview);
            let request = RenderRequest { raw: &raw, state: &probe, long_edge, quality };
            fill::measure(
                &mut spots,
                &app.steady_renderer()?.render(&request, &interactive_deadline(), &ByHand)?.picture,
            );
        }
        let applied = vocabulary.apply_spots(&spots, state, facts, &layouts, &version)?;
        Ok((applied.state, Operation::ApplySpot { spots: applied.spots }))
    })
}

/// Gives a placed move another mask.
pub fn replace_mask(app: &App, args: &ReplaceMaskArgs) -> Result<(), Failure> {
    let mask = mask_spec(&text(&args.mask)?)?;
    let named = app.photo(&args.photo)?;
    placed(app, &args.photo, "replace-mask", args.label.as_deref(), None, |standing, state, with| {
        let mask = sought::find(app, &named, state, with.facts, mask)?;
        Ok(standing.replace_mask(&args.id, &mask, state, with)?)
    })
}

/// Takes a move or a module back.
pub fn remove(app: &App, args: &RemoveArgs) -> Result<(), Failure> {
    placed(app, &args.photo, "remove", None, None, |standing, state, with| {
        Ok(standing.remove(&args.name, args.instance, state, with)?)
    })
}

/// Records a change for which it matters what stands. `more` is added to the result: fields, and lines of text.
pub(super) fn placed(
    app: &App,
    photo: &PhotoId,
    purpose: &str,
    label: Option<&str>,
    more: Option<(Map<String, Value>, String)>,
    change: impl FnOnce(&Standing, &EditState, LayerContext<'_>) -> Result<(EditState, Operation), Failure>,
) -> Result<(), Failure> {
    let (vocabulary, layouts) = (app.vocabulary()?, app.layouts());
    let darktable = app.darktable()?.version().to_owned();
    let workspace = app.photo(photo)?;
    edit(app, photo, purpose, label, more, |state, facts| {
        let standing = workspace.standing(&workspace.head_commit()?, &vocabulary, &mut HashMap::new())?;
        let with = LayerContext { vocabulary: &vocabulary, facts, layouts: &layouts, darktable: &darktable };
        change(&standing, state, with)
    })
}

/// Records what `change` makes of the branch that HEAD follows.
fn edit(
    app: &App,
    photo: &PhotoId,
    purpose: &str,
    label: Option<&str>,
    more: Option<(Map<String, Value>, String)>,
    change: impl FnOnce(&EditState, &PhotoFacts) -> Result<(EditState, Operation), Failure>,
) -> Result<(), Failure> {
    let mut writer = app.writer(photo, purpose)?;
    let branch = current_branch(&writer.workspace().head()?, photo)?;
    let parent = writer.workspace().head_commit()?;
    let workspace = writer.workspace();
    let (state, operation) = change(&workspace.state_of(&parent)?, &workspace.facts(&parent)?)?;
    let (words, done) = (operation.to_string(), operation.clone());
    let info = writer.record_edit(&branch, &parent, &state, operation, label.unwrap_or_default())?;
    let mut result = json!({
        "branch": branch, "commit": info.commit, "state": info.state, "op": words, "unchanged": info.unchanged,
    });
    let (said, further) = instances(app, writer.workspace(), (&parent, &info.commit), &done, &mut result)?;
    let (mut fields, lines) = more.unwrap_or_default();
    if let Some(result) = result.as_object_mut() {
        result.append(&mut fields);
    }
    app.output.result(&result, || match info.unchanged {
        true => {
            format!("{branch}  {}  unchanged: already has this ({words})\n{lines}", info.commit.short())
        }
        false => format!("{branch}  {}  {words}{said}\n{further}{lines}", info.commit.short()),
    })
}

/// Adds to a result which placed moves came, changed or went, and returns the same in words.
fn instances(
    app: &App,
    workspace: &Workspace,
    (parent, commit): (&Hash, &Hash),
    done: &Operation,
    result: &mut Value,
) -> Result<(String, String), Failure> {
    let (vocabulary, mut known) = (app.vocabulary()?, HashMap::new());
    let before = workspace.standing(parent, &vocabulary, &mut known)?;
    let after = workspace.standing(commit, &vocabulary, &mut known)?;
    if matches!(done, Operation::RemoveModule { .. } | Operation::RemovePlaced { .. }) {
        let read = |hash: &Hash| workspace.commit(hash).map_err(|e| Fault::from(&e));
        let state = |hash: &Hash| workspace.state(hash).map_err(|e| Fault::from(&e));
        let moves = |at: &Hash| tools::moves_of(&read, at, workspace.baseline(), &state);
        let removed = tools::taken((&before, &moves(parent)?), (&after, &moves(commit)?));
        result["removed"] = json!(removed);
        let said = if removed.is_empty() { String::new() } else { format!("  ({})", removed.join(", ")) };
        return Ok((said, String::new()));
    }
    let ids = after.made(done, &before);
    result["instances"] = json!(tools::words(&ids));
    let placed: Vec<String> = ids.iter().filter(|id| id.number > 0).map(ToString::to_string).collect();
    let said = if placed.is_empty() { String::new() } else { format!("  ({})", placed.join(", ")) };
    let further = Standing::further(&ids, &before);
    if let Some(further) = &further {
        result["note"] = json!(further);
    }
    Ok((said, further.map(|text| format!("{text}\n")).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_is_a_circle_or_an_outline_and_perhaps_has_a_source() {
        let read = |text: &str| text.parse::<SpotPlace>().map(|SpotPlace(spot)| spot);
        let (x, y, source) = (Some(0.3), Some(0.2), Some([0.4, 0.2]));
        let place = Spot { x, y, ..Spot::default() };
        assert_eq!(read("0.3,0.2"), Ok(place.clone()));
        assert_eq!(read("0.3, 0.2,0.01"), Ok(Spot { radius: Some(0.01), ..place.clone() }));
        assert_eq!(read("0.3,0.2:0.4,0.2"), Ok(Spot { source, ..place }));
        let path = Some(vec![[0.1, 0.1], [0.2, 0.1], [0.2, 0.3]]);
        let outline = Spot { path, source, ..Spot::default() };
        assert_eq!(read(" 0.1,0.1 0.2,0.1  0.2,0.3:0.4,0.2"), Ok(outline));
        for bad in ["", "0.3", "0.3,0.2,0.1,1", "0.3,0.2:0.4", "a,b", "0.3,0.2:", "0.1,0.1 0.2"] {
            assert!(read(bad).unwrap_err().contains("write it like"), "{bad}");
        }
    }
}
