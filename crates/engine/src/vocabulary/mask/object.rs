//! Masks that have to be found in a picture: a thing from a few points, and colours like those at a point.
//!
//! What was found is kept in the mask as `found`, a mask of paths or ranges, so that nothing has to be found again:
//! an edit that is replayed or copied is the same. The picture is the untouched photo's, cropped and turned as the
//! state is: the same points find the same thing whatever was done to the tones.

use serde::{Deserialize, Serialize};

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::mask::spec::{End, MaskSpec, RangeKind, ShapeKind};
use darktable::order;
use darktable::state::{EditState, Module};
use pixels::Picture;
use pixels::lab::Lab;
use pixels::outline::{Outline, Ring};
use pixels::segment::segment;

/// The longest side of the picture in which things are found.
pub const OBJECT_EDGE: u32 = 1024;

/// How softly an object's edge ends if nothing is said, as a share of the shorter side.
const FEATHER: f64 = 0.006;
/// The most corners of an outline, and the most outlines of an object.
const CORNERS: usize = 160;
const RINGS: usize = 12;
/// The least share of the picture that is a piece or a hole of its own.
const LEAST: f64 = 0.0005;
/// The most points that an object may have.
const POINTS: usize = 16;
/// The modules that decide where things lie in the picture.
const GEOMETRY: [&str; 8] =
    ["ashift", "crop", "flip", "lens", "liquify", "rotatepixels", "enlargecanvas", "borders"];
const EXAMPLE: &str = r#"{"object":{"inside":[[0.5,0.4]],"outside":[[0.1,0.1]]}}"#;

/// A thing, by points on it and points beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectSpec {
    /// Points on it.
    pub inside: Vec<[f64; 2]>,
    /// Points beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<[f64; 2]>,
    /// How far its outline is moved outwards, or inwards if negative, as a share of the shorter side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow: Option<f64>,
    /// The width of its soft edge, as a share of the shorter side; half of the effect is on its outline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feather: Option<f64>,
}

impl MaskSpec {
    /// Whether the mask or a part of it has yet to be found in a picture.
    pub fn is_sought(&self) -> bool {
        let own = self.object.is_some() || self.similar_to.is_some();
        own && self.found.is_none() || self.lists().any(Self::is_sought)
    }

    /// Whether a mask is meant by its name in it.
    pub fn is_named(&self) -> bool {
        self.named.is_some() || self.lists().any(Self::is_named)
    }

    /// The mask with `named`'s masks in place of the names that it knows.
    #[must_use]
    pub fn replacing(&self, named: &dyn Fn(&str) -> Option<Self>) -> Self {
        let mut mask = self.clone();
        for list in [&mut mask.union, &mut mask.intersection, &mut mask.difference] {
            for part in list.iter_mut().flatten() {
                *part = part.replacing(named);
            }
        }
        let Some(found) = mask.named.as_deref().and_then(named) else { return mask };
        mask.named = None;
        if mask == Self::default() {
            return found;
        }
        // Beside anything else that the mask says, it stays a part of it.
        match (&mut mask.union, &mut mask.intersection) {
            (union @ None, _) => *union = Some(vec![found]),
            (_, Some(all)) => all.push(found),
            (_, all) => *all = Some(vec![found]),
        }
        mask
    }

    /// The masks of its lists.
    fn lists(&self) -> impl Iterator<Item = &Self> {
        [&self.union, &self.intersection, &self.difference].into_iter().flatten().flatten()
    }

    /// The mask with everything found in the picture of [`sought_in`].
    ///
    /// # Errors
    /// [`VocabularyError::Mask`] for points outside of the picture, or if nothing is found.
    pub fn find(&self, picture: &Picture) -> Result<Self, VocabularyError> {
        let mut mask = self.clone();
        for list in [&mut mask.union, &mut mask.intersection, &mut mask.difference] {
            for part in list.iter_mut().flatten() {
                *part = part.find(picture)?;
            }
        }
        if mask.found.is_none() {
            let thing = mask.object.as_ref().map(|object| object.find(picture)).transpose()?;
            let alike = mask.similar_to.map(|at| similar(picture, at, mask.tolerance)).transpose()?;
            mask.found = match (thing, alike) {
                (Some(a), Some(b)) => {
                    Some(Box::new(Self { intersection: Some(vec![a, b]), ..Self::default() }))
                }
                (one, other) => one.or(other).map(Box::new),
            };
        }
        Ok(mask)
    }

    /// Refuses what is written wrongly, before a picture is made for it.
    ///
    /// # Errors
    /// [`VocabularyError::Mask`] says which field, its range and an example.
    pub fn check_sought(&self) -> Result<(), VocabularyError> {
        self.lists().try_for_each(Self::check_sought)?;
        self.object.as_ref().map_or(Ok(()), ObjectSpec::check)?;
        if self.tolerance.is_some() && self.similar_to.is_none() {
            return Err(wrong(
                "`tolerance` goes with `similar_to`, as in {\"similar_to\":[0.5,0.4],\"tolerance\":10}",
            ));
        }
        if self.tolerance.is_some_and(|tolerance| !(1.0..=40.0).contains(&tolerance)) {
            return Err(wrong("`tolerance` is 1 to 40 units of colour difference, 10 if left out"));
        }
        self.similar_to.map_or(Ok(()), |at| shown("similar_to", &[at]))
    }
}

/// The state whose picture an object is looked for in: the baseline with the geometry of this state.
pub fn sought_in(state: &EditState, baseline: &EditState) -> EditState {
    let geometric = |module: &&Module| GEOMETRY.contains(&module.op.as_str());
    let places =
        |state: &EditState| -> Vec<Module> { state.modules.iter().filter(geometric).cloned().collect() };
    if places(state) == places(baseline) {
        return baseline.clone();
    }
    let mut sought = baseline.clone();
    sought.modules.retain(|module| !geometric(&module));
    sought.modules.extend(places(state));
    sought.masks.clone_from(&state.masks);
    order::sort(&mut sought);
    sought
}

impl ObjectSpec {
    fn check(&self) -> Result<(), VocabularyError> {
        if self.inside.is_empty() || self.inside.len() + self.outside.len() > POINTS {
            return Err(wrong(&format!(
                "an object needs 1 to {POINTS} points, at least one of them `inside`, as in {EXAMPLE}"
            )));
        }
        shown("inside", &self.inside)?;
        shown("outside", &self.outside)?;
        if self.grow.is_some_and(|grow| !(-0.1..=0.1).contains(&grow)) {
            return Err(wrong("`grow` of an object is -0.1 to 0.1 of the picture's shorter side"));
        }
        if self.feather.is_some_and(|feather| !(0.0..=0.2).contains(&feather)) {
            return Err(wrong("`feather` of an object is 0 to 0.2 of the picture's shorter side"));
        }
        Ok(())
    }

    /// Paths around the thing.
    fn find(&self, picture: &Picture) -> Result<MaskSpec, VocabularyError> {
        self.check()?;
        let region = segment(picture, &self.inside, &self.outside);
        let feather = self.feather.unwrap_or(FEATHER);
        // A path's soft edge is outside of it.
        let grow = self.grow.unwrap_or(0.0);
        let outline = Outline::of(&region, grow - 0.5 * feather, CORNERS, LEAST);
        // So is that of a hole.
        let holes = Outline::of(&region, grow + 0.5 * feather, CORNERS, LEAST).holes;
        let path = |ring: &Ring| MaskSpec {
            shape: Some(ShapeKind::Path),
            points: Some(ring.clone()),
            feather: Some(feather),
            ..MaskSpec::default()
        };
        let paths = |rings: &[Ring]| rings.iter().take(RINGS).map(path).collect::<Vec<_>>();
        let [pieces, holes, islands] = [&outline.pieces, &holes, &outline.islands].map(|rings| paths(rings));
        let union = |masks| MaskSpec { union: Some(masks), ..MaskSpec::default() };
        match (pieces.is_empty(), holes.is_empty()) {
            (true, _) => Err(wrong(
                "nothing is found around these points: put a point on each different part of the thing, \
                 and `outside` points on what is beside it",
            )),
            (false, true) => Ok(union(pieces)),
            (false, false) => {
                let first = std::iter::once(union(pieces));
                let body = MaskSpec { difference: Some(first.chain(holes).collect()), ..MaskSpec::default() };
                Ok(if islands.is_empty() {
                    body
                } else {
                    union(std::iter::once(body).chain(islands).collect())
                })
            }
        }
    }

    /// Where it is, in words.
    pub(super) fn words(&self) -> String {
        match self.inside.first() {
            Some([x, y]) => format!("object at {x:.2}, {y:.2}"),
            None => "object".into(),
        }
    }
}

/// The radius of the disc that a colour is measured on, as a share of the shorter side.
const DISC: f64 = 0.008;

/// Ranges around the colour at a point, as wide as the colours there vary, and by the tolerance wider.
fn similar(picture: &Picture, at: [f64; 2], tolerance: Option<f64>) -> Result<MaskSpec, VocabularyError> {
    let tolerance = tolerance.unwrap_or(10.0);
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let radius = (DISC * width.min(height)).max(1.5);
    let (cx, cy) = (at[0] * width, at[1] * height);
    let mut colours: Vec<[f64; 3]> = Vec::new();
    let mut mean = [0.0; 3];
    for (index, rgb) in picture.rgb.chunks_exact(3).enumerate() {
        let (x, y) = (index as f64 % width, (index as f64 / width).floor());
        if let ([r, g, b], true) = (rgb, (x + 0.5 - cx).hypot(y + 0.5 - cy) <= radius) {
            let lab = Lab::from_srgb([*r, *g, *b]);
            colours.push([f64::from(lab.l), f64::from(lab.a), f64::from(lab.b)]);
            [*r, *g, *b].iter().zip(&mut mean).for_each(|(code, sum)| *sum += f64::from(*code));
        }
    }
    let count = colours.len() as f64;
    if colours.is_empty() {
        return Err(wrong("`similar_to` lies outside of the picture"));
    }
    let average = |of: &dyn Fn(&[f64; 3]) -> f64| colours.iter().map(of).sum::<f64>() / count;
    let spread = |of: &dyn Fn(&[f64; 3]) -> f64| {
        let middle = average(of);
        average(&|colour| (of(colour) - middle).powi(2)).sqrt()
    };
    let light = average(&|colour| colour[0]);
    let [a, b] = [1, 2].map(|axis: usize| average(&|colour| colour.get(axis).copied().unwrap_or(0.0)));
    let chroma = a.hypot(b);
    let wide = tolerance + spread(&|colour| colour[0]);
    let range = |kind, from: f64, to: f64, softness: f64| MaskSpec {
        range: Some(kind),
        from: Some(End::Value(rounded(from))),
        to: Some(End::Value(rounded(to))),
        softness: Some(rounded(softness)),
        ..MaskSpec::default()
    };
    let soft = (0.5 * tolerance).min(20.0);
    let mut ranges =
        vec![range(RangeKind::Luminance, (light - wide).max(0.0), (light + wide).min(100.0), soft)];
    // A grey has no hue; a colour's may vary the less the stronger it is.
    match chroma > 8.0 {
        true => {
            let angle = (tolerance / chroma).atan().to_degrees().clamp(8.0, 60.0);
            let hue = hue(mean.map(|sum| sum / count));
            let turned = |degrees: f64| degrees.rem_euclid(360.0);
            ranges.push(range(RangeKind::Chroma, (0.6 * (chroma - tolerance)).max(2.0), 100.0, 4.0));
            ranges.push(range(RangeKind::Hue, turned(hue - angle), turned(hue + angle), 10.0));
        }
        false => ranges.push(range(RangeKind::Chroma, 0.0, chroma + 0.6 * tolerance, 4.0)),
    }
    Ok(MaskSpec { intersection: Some(ranges), ..MaskSpec::default() })
}

/// The hue of an sRGB colour on the HSV circle, in degrees.
fn hue([r, g, b]: [f64; 3]) -> f64 {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let span = (most - least).max(1e-9);
    let sector = if most == r {
        (g - b) / span
    } else if most == g {
        2.0 + (b - r) / span
    } else {
        4.0 + (r - g) / span
    };
    (60.0 * sector).rem_euclid(360.0)
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn shown(name: &str, points: &[[f64; 2]]) -> Result<(), VocabularyError> {
    let within = |at: &[f64; 2]| at.iter().all(|share| (0.0..=1.0).contains(share));
    match points.iter().find(|at| !within(at)) {
        Some([x, y]) => Err(wrong(&format!(
            "`{name}` has [{x}, {y}]; points are in 0..1 of the picture, as in {EXAMPLE}"
        ))),
        None => Ok(()),
    }
}

fn wrong(what: &str) -> VocabularyError {
    VocabularyError::Mask(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A red disc of a third of the height on green.
    fn picture() -> Picture {
        let colour = |at: u32| match (f64::from(at % 300) - 150.0).hypot(f64::from(at / 300) - 100.0) < 66.0 {
            true => [200, 60, 50],
            false => [70, 120, 80],
        };
        Picture { width: 300, height: 200, rgb: (0..60_000).flat_map(colour).collect() }
    }

    fn read(text: &str) -> MaskSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_found_object_is_a_path_that_keeps_its_points() {
        let asked = read(r#"{"object":{"inside":[[0.5,0.5]]},"opacity":0.5}"#);
        assert!(asked.is_sought());
        let found = asked.find(&picture()).unwrap();
        assert!(!found.is_sought() && found.object == asked.object && found.opacity == Some(0.5));
        let paths = found.found.as_ref().unwrap().union.as_ref().unwrap();
        let points = paths[0].points.as_ref().unwrap();
        assert!(paths.len() == 1 && points.len() >= 8);
        // Half of the soft edge lies within the outline.
        let far = |[x, y]: &[f64; 2]| ((x - 0.5) * 300.0).hypot((y - 0.5) * 200.0);
        assert!(points.iter().all(|at| (far(at) - 65.4).abs() < 2.0), "{points:?}");
        assert_eq!(found.find(&picture()).unwrap(), found);
        assert_eq!(found.summary(), "object at 0.50, 0.50 at 50 %");
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(read(&text), found);
    }

    #[test]
    fn objects_are_found_inside_of_lists() {
        let mask = read(
            r#"{"intersection":[{"object":{"inside":[[0.5,0.5]],"grow":0.02}},{"range":"hue","from":340,"to":20}]}"#,
        );
        assert!(mask.is_sought() && !mask.find(&picture()).unwrap().is_sought());
    }

    #[test]
    fn similar_colours_are_ranges_around_the_colour() {
        let mask = read(r#"{"similar_to":[0.5,0.5]}"#).find(&picture()).unwrap();
        let ranges = mask.found.unwrap().intersection.unwrap();
        assert_eq!(ranges.len(), 3);
        let ends = |at: usize| match (ranges[at].from, ranges[at].to) {
            (Some(End::Value(from)), Some(End::Value(to))) => (from, to),
            _ => panic!("a range"),
        };
        let light = f64::from(Lab::from_srgb([200, 60, 50]).l);
        assert!(ends(0).0 < light && light < ends(0).1 && ends(0).1 - ends(0).0 < 25.0);
        // The hue is 4 degrees.
        assert!(ends(2).0 > 330.0 && ends(2).1 < 30.0, "{:?}", ends(2));
    }

    #[test]
    fn what_cannot_be_found_says_why() {
        for (text, part) in [
            (r#"{"object":{"inside":[]}}"#, "at least one"),
            (r#"{"object":{"inside":[[1.5,0.5]]}}"#, "0..1"),
            (r#"{"object":{"inside":[[0.5,0.5]],"grow":0.5}}"#, "`grow`"),
            (r#"{"tolerance":5}"#, "similar_to"),
        ] {
            let error = read(text).check_sought().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
