//! `measure`: the colours under masks and at points, beside the baseline's.
//!
//! Masks are drawn on the baseline, so that before and after are the same pixels, whatever the edit did to the tones
//! that a range is made of, and so that a mask is rendered once for all states. Where the edit changed the frame, they
//! are drawn on the edited picture, and nothing is compared.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use crate::tools::{Answer, ToolContext};
use base::error::{ErrorCode, Fault};
use darktable::layout::Layouts;
use darktable::render::{Picture, Quality};
use darktable::state::EditState;
use engine::vocabulary::{MaskProbe, MaskSpec, PhotoFacts, Vocabulary, same_frame};
use pixels::metrics::difference::distances;
use pixels::metrics::region::{RegionStats, disc, mean_of};

/// The most of one call.
const MOST: (usize, usize) = (8, 16);

/// The radius of the disc around a point, as a share of the picture's shorter side.
pub const RADIUS: f64 = 0.01;

/// Arguments of `measure`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Up to 8, as in apply_primitive.
    #[serde(default)]
    #[schemars(schema_with = "masks")]
    pub masks: Vec<MaskSpec>,
    /// Up to 16 `[x, y]`, each a disc with a radius of 0.01.
    #[serde(default)]
    pub points: Vec<[f64; 2]>,
    /// Left out = where you stand.
    #[serde(default)]
    pub r#ref: Option<String>,
}

/// Without the schema of a mask once more: it goes to the model with every request.
fn masks(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "object" } })
}

pub fn measure(context: &mut ToolContext<'_>, args: Measure) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let baseline = context.place(Some("baseline"))?;
    let found = |mask| context.find_mask(mask, &place.state).map(Cow::into_owned);
    let masks = args.masks.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let engine = context.engine;
    let states = (&place.state, &baseline.state);
    let plan = Plan::new((&masks, &args.points), states, &engine.vocabulary, &engine.facts, &engine.layouts)?;
    let edge = context.view.start.preview_edge;
    let rendered = context.render_all(&plan.states(), edge, Quality::Preview)?;
    let pictures: Vec<&Picture> = rendered.iter().map(|rendered| &*rendered.picture).collect();
    let places: Vec<String> = plan.read(&pictures)?.iter().map(Place::line).collect();
    Ok(json!({
        "at": place.name,
        "state": place.commit.short(),
        "compared": plan.compared(),
        "places": places,
    })
    .into())
}

/// The states to be rendered for a measurement.
pub struct Plan<'a> {
    masks: &'a [MaskSpec],
    points: &'a [[f64; 2]],
    now: &'a EditState,
    /// Unless it is what is measured, or has another frame.
    baseline: Option<&'a EditState>,
    same_frame: bool,
    probes: Vec<MaskProbe>,
}

impl<'a> Plan<'a> {
    /// Checks what is asked for on the state `now`, to be compared with `baseline`.
    pub fn new(
        (masks, points): (&'a [MaskSpec], &'a [[f64; 2]]),
        (now, baseline): (&'a EditState, &'a EditState),
        vocabulary: &Vocabulary,
        facts: &PhotoFacts,
        layouts: &Layouts,
    ) -> Result<Self, Fault> {
        check(masks, points)?;
        let same_frame = same_frame(now, baseline, facts);
        let canvas = if same_frame { baseline } else { now };
        let probe = |(at, mask): (usize, &MaskSpec)| {
            let probe = vocabulary.mask_probe(mask, canvas, facts, layouts);
            probe.map_err(|error| Fault::from(&error).with("field", format!("masks[{at}]")))
        };
        let probes = masks.iter().enumerate().map(probe).collect::<Result<_, _>>()?;
        let baseline = Some(baseline).filter(|baseline| same_frame && *baseline != now);
        Ok(Self { masks, points, now, baseline, same_frame, probes })
    }

    /// What is rendered, in the order in which [`Self::read`] takes the pictures.
    pub fn states(&self) -> Vec<&EditState> {
        let mut states = vec![self.now];
        states.extend(self.baseline);
        // It is the same for all of them.
        states.extend(self.probes.first().map(|probe| &probe.without));
        states.extend(self.probes.iter().map(|probe| &probe.with));
        states
    }

    /// What the figures are compared with, in words.
    pub fn compared(&self) -> &'static str {
        match self {
            Self { same_frame: false, .. } => "with nothing: the frame is not the baseline's",
            Self { baseline: None, .. } => "with nothing: this is the baseline",
            _ => "baseline→now",
        }
    }

    /// The figures of every mask and point, in order.
    pub fn read(&self, pictures: &[&Picture]) -> Result<Vec<Place>, Fault> {
        let missing = || Fault::new(ErrorCode::StateError, "a picture did not come back");
        let mut pictures = pictures.iter().copied();
        let now = pictures.next().ok_or_else(missing)?;
        let baseline = self.baseline.and_then(|_| pictures.next());
        let without = self.probes.first().and_then(|_| pictures.next());
        let apart = baseline.and_then(|baseline| distances(baseline, now));
        // Of another size it shows other places.
        let baseline = baseline.filter(|_| apart.is_some());
        let place = |name: String, kind, weights: Vec<(usize, f32)>| Place {
            name,
            kind,
            now: RegionStats::of(now, weights.iter().copied()),
            baseline: baseline.and_then(|baseline| RegionStats::of(baseline, weights.iter().copied())),
            delta_e: apart.as_ref().map(|apart| mean_of(apart, weights)),
        };
        let mut places = Vec::new();
        for (mask, probe) in self.masks.iter().zip(&self.probes) {
            let with = pictures.next().ok_or_else(missing)?;
            let shown = without.and_then(|without| probe.read(without, with));
            let shown = shown.filter(|shown| shown.effect().len() * 3 == now.rgb.len()).ok_or_else(|| {
                Fault::new(ErrorCode::MaskingError, "the mask's picture has another size than the photo's")
            })?;
            places.push(place(mask.summary(), "mask", shown.effect().iter().copied().enumerate().collect()));
        }
        for [x, y] in self.points {
            places.push(place(format!("{x}, {y}"), "point", disc(now, [*x, *y], RADIUS)));
        }
        Ok(places)
    }
}

fn check(masks: &[MaskSpec], points: &[[f64; 2]]) -> Result<(), Fault> {
    let refuse =
        |field: &str, message: String| Err(Fault::new(ErrorCode::InvalidInput, message).with("field", field));
    if masks.is_empty() && points.is_empty() {
        return refuse("masks", "there is nothing to measure: give a mask or a point".into());
    }
    if masks.len() > MOST.0 {
        return refuse("masks", format!("{} masks; up to {} are measured at once", masks.len(), MOST.0));
    }
    if points.len() > MOST.1 {
        return refuse("points", format!("{} points; up to {} are measured at once", points.len(), MOST.1));
    }
    match points.iter().position(|point| !point.iter().all(|at| (0.0..=1.0).contains(at))) {
        Some(at) => refuse(
            &format!("points[{at}]"),
            "a point is [x, y] in 0..1 of the displayed picture, from its upper left corner".into(),
        ),
        None => Ok(()),
    }
}

/// What was measured of a mask or a point.
pub struct Place {
    /// The mask in words, or the point.
    pub name: String,
    /// `mask` or `point`.
    pub kind: &'static str,
    /// `None` where the mask covers nothing.
    pub now: Option<RegionStats>,
    /// The same pixels of the baseline.
    pub baseline: Option<RegionStats>,
    /// Mean ΔE2000 between the two.
    pub delta_e: Option<f64>,
}

impl Place {
    /// The figures in a line, each that changed as `before→after`.
    pub fn line(&self) -> String {
        let Some(now) = &self.now else { return format!("{}: covers nothing", self.name) };
        let before = self.baseline.as_ref();
        let step = |read: &dyn Fn(&RegionStats) -> String| {
            let (before, now) = (before.map(read), read(now));
            match before {
                Some(before) if before != now => format!("{before}→{now}"),
                _ => now,
            }
        };
        let covered = match self.kind {
            "mask" => format!(", {} %", number(now.covered_pct, 1)),
            _ => String::new(),
        };
        let change = before.map(|before| now.l - before.l).filter(|change| change.abs() >= 0.05);
        let change =
            change.map(|change| format!(" ({}{})", if change > 0.0 { "+" } else { "" }, number(change, 1)));
        let mut line = format!(
            "{}{covered}: L* {}{} (5–95 %: {}), a* {}, b* {}, C* {}",
            self.name,
            step(&|of| number(of.l, 1)),
            change.unwrap_or_default(),
            step(&|of| format!("{}–{}", number(of.p5, 0), number(of.p95, 0))),
            step(&|of| number(of.a, 1)),
            step(&|of| number(of.b, 1)),
            step(&|of| number(of.chroma, 1)),
        );
        let hue = step(&|of| of.hue.map_or("none".into(), |hue| number(hue, 0)));
        if hue != "none" {
            line += &format!(", hue {hue}");
        }
        let clipped = step(&|of| format!("{}/{}", number(of.clip_low_pct, 1), number(of.clip_high_pct, 1)));
        if clipped != "0.0/0.0" {
            line += &format!(", clipped low/high {clipped} %");
        }
        if let Some(delta_e) = self.delta_e {
            line += &format!(", ΔE {}", number(delta_e, 2));
        }
        line
    }
}

/// A number of so many decimals, without a negative zero.
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return text.trim_start_matches('-').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;
    use darktable::frame::{Orientation, StoredSize};
    use engine::vocabulary::Shot;

    fn facts() -> PhotoFacts {
        PhotoFacts {
            baseline: EditState::default(),
            size: StoredSize { width: 300, height: 200 },
            orientation: Orientation::default(),
            shot: Shot::default(),
        }
    }

    fn flat(code: u8) -> Picture {
        Picture { width: 30, height: 20, rgb: vec![code; 30 * 20 * 3] }
    }

    fn stats(code: u8) -> RegionStats {
        RegionStats::of(&flat(code), (0..600).map(|at| (at, 0.5))).unwrap()
    }

    #[test]
    fn a_line_has_what_changed_before_and_after_and_the_rest_once() {
        let place =
            |now, baseline, delta_e| Place { name: "sky".into(), kind: "mask", now, baseline, delta_e };
        let changed = place(Some(stats(160)), Some(stats(119)), Some(7.456));
        assert_eq!(
            changed.line(),
            "sky, 50.0 %: L* 50.0→65.9 (+15.8) (5–95 %: 50–50→66–66), a* 0.0, b* 0.0, C* 0.0, ΔE 7.46"
        );
        let same = place(Some(stats(255)), Some(stats(255)), Some(0.0));
        assert_eq!(
            same.line(),
            "sky, 50.0 %: L* 100.0 (5–95 %: 100–100), a* 0.0, b* 0.0, C* 0.0, clipped low/high 0.0/100.0 %, ΔE 0.00"
        );
        assert_eq!(place(None, None, None).line(), "sky: covers nothing");
        assert_eq!([number(-0.04, 1), number(-0.06, 1), number(12.5, 0)], ["0.0", "-0.1", "12"]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_its_field() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let (layouts, facts, state) =
            (Layouts::new(Overlay::vocabulary(None)), facts(), EditState::default());
        let named = |name: &str| MaskSpec { named: Some(name.into()), ..MaskSpec::default() };
        let refused = |masks: &[MaskSpec], points: &[[f64; 2]]| {
            let plan = Plan::new((masks, points), (&state, &state), &vocabulary, &facts, &layouts);
            let fault = plan.err().unwrap();
            (fault.details["field"].as_str().unwrap().to_owned(), fault.message)
        };
        assert!(refused(&[], &[]).1.contains("give a mask or a point"));
        assert!(refused(&vec![named("sky"); 9], &[]).1.contains("up to 8"));
        assert!(refused(&[], &[[0.5, 0.5]; 17]).1.contains("up to 16"));
        assert_eq!(refused(&[], &[[0.5, 0.5], [0.5, 1.1]]).0, "points[1]");
        let (field, message) = refused(&[named("sky"), named("skyy")], &[]);
        assert_eq!(field, "masks[1]");
        assert!(message.contains("did you mean `sky`?"), "{message}");
    }

    #[test]
    fn masks_lie_on_the_baseline_and_nothing_is_compared_with_itself_or_across_frames() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let (layouts, facts, baseline) =
            (Layouts::new(Overlay::vocabulary(None)), facts(), EditState::default());
        let masks = ["left_half", "top_half"]
            .map(|name| MaskSpec { named: Some(name.into()), ..MaskSpec::default() });
        let plan = |now| {
            Plan::new((&masks, &[[0.5, 0.5]]), (now, &baseline), &vocabulary, &facts, &layouts).unwrap()
        };
        let applied = |name: &str, values: &[(&str, f64)]| {
            let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let request = engine::vocabulary::ApplyRequest { move_name: name, values: &values, mask: None };
            vocabulary.apply(&request, &baseline, &facts, &layouts, "4.2.1").unwrap().state
        };
        let brighter = applied("exposure", &[("ev", 0.5)]);
        let there = plan(&brighter);
        let states = there.states();
        assert_eq!(states.len(), 5, "now, the baseline, without and with each mask");
        assert_eq!((states[0], states[1]), (&brighter, &baseline));
        assert!(states[2..] == plan(&baseline).states()[1..], "the same masks for every state");
        assert_eq!(there.compared(), "baseline→now");
        assert_eq!(plan(&baseline).states().len(), 4);
        let cropped = applied("crop_left", &[("margin", 0.2)]);
        assert_eq!(plan(&cropped).states().len(), 4);
        assert!(plan(&cropped).compared().contains("frame"));
        assert_ne!(plan(&cropped).states()[1..], plan(&baseline).states()[1..]);
    }
}
