//! Arguments of the verbs that edit several places or several photos.

use std::str::FromStr;

use clap::{Args, ValueEnum};

use base::ids::{PhotoId, RefName};
use engine::vocabulary::{Extra, Spot, SpotAction};

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
    /// What is asked for: first what is taken back, then what is healed, cloned, filled and blurred.
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
  chemigram remove iguana exposure --instance 2
  chemigram remove iguana retouch

`chemigram diff PHOTO baseline` shows the modules and the numbers of their instances.";

#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The move or darktable module to undo
    #[arg(value_name = "MOVE|MODULE")]
    pub name: String,
    /// Only this instance of the module: 0 is the unmasked one, 1 and up are masked
    #[arg(long, value_name = "N")]
    pub instance: Option<u32>,
}

pub(super) const PROPAGATE_EXAMPLES: &str = "\
Examples:
  chemigram propagate iguana@branch_b_tone iguana_2 iguana_3
  chemigram propagate iguana heron --moves warmth,shadows_lift --branch from_iguana
  chemigram propagate iguana heron --include crop,spots --dry-run

White balance and exposure are applied relative to each photo; masks keep their position in the picture. The target's \
other edits are kept. Each target gets one commit, on its current branch or on --branch.";

#[derive(Args, Debug)]
pub struct PropagateArgs {
    /// The photo to copy from, at HEAD or at REF
    #[arg(value_name = "SOURCE[@REF]", value_parser = source)]
    pub source: (PhotoId, Option<String>),
    /// The photos to copy to
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<PhotoId>,
    /// Only these moves
    #[arg(long, value_name = "MOVE,…", value_delimiter = ',', conflicts_with = "modules")]
    pub moves: Vec<String>,
    /// Only these darktable modules
    #[arg(long, value_name = "MODULE,…", value_delimiter = ',')]
    pub modules: Vec<String>,
    /// Also copy what is left out by default
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',')]
    pub include: Vec<Include>,
    /// Commit to this branch of each target; created at HEAD if it does not exist
    #[arg(long, value_name = "NAME")]
    pub branch: Option<RefName>,
    /// Message for the history [default: the source]
    #[arg(long)]
    pub label: Option<String>,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub dry_run: bool,
}

/// What `propagate` leaves out by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Include {
    /// The crop.
    Crop,
    /// Perspective and straightening.
    Perspective,
    /// Retouched spots; they replace the target's own.
    Spots,
    /// Lens corrections.
    Lens,
}

impl From<Include> for Extra {
    fn from(include: Include) -> Self {
        match include {
            Include::Crop => Self::Crop,
            Include::Perspective => Self::Perspective,
            Include::Spots => Self::Spots,
            Include::Lens => Self::Lens,
        }
    }
}

/// `PHOTO[@REF]`.
fn source(text: &str) -> Result<(PhotoId, Option<String>), String> {
    let (photo, at) = text.split_once('@').map_or((text, None), |(photo, at)| (photo, Some(at)));
    let photo = photo.parse().map_err(|e: base::ids::InvalidName| e.to_string())?;
    match at {
        Some("") => Err("there is no ref after the @".into()),
        at => Ok((photo, at.map(str::to_owned))),
    }
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

    #[test]
    fn a_source_is_a_photo_and_perhaps_a_ref() {
        let read = |text: &str| source(text).map(|(photo, at)| (photo.to_string(), at));
        assert_eq!(read("iguana"), Ok(("iguana".into(), None)));
        assert_eq!(read("iguana@branch_b_tone"), Ok(("iguana".into(), Some("branch_b_tone".into()))));
        assert!(read("iguana@").is_err() && read("../x").is_err());
    }
}
