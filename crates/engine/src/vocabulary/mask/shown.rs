//! A mask made visible, by darktable itself.
//!
//! A masked exposure that adds the light of diffuse white shows by how much the picture brightens what the mask lets
//! through. It takes the place of the module that the mask confines, with the very blend parameters of that, so that
//! a range is evaluated on what enters the module. That is exact for every tone if nothing bends the light
//! afterwards: so both renders omit what comes later, but for geometry, and are darkened until the brightest tone has
//! room. On a finished picture (JPEG, PNG, TIFF) the exposure comes before the profile and works on codes, so that
//! these are compared; where a module blends in Lab, lightness is.

use crate::vocabulary::apply::{ApplyRequest, PhotoFacts, finish, renumber};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::tone::lightness;
use crate::vocabulary::mask::{Encoded, MaskSpec};
use darktable::blend;
use darktable::layout::{BlendSpace, Layouts};
use darktable::order;
use darktable::params;
use darktable::render::Picture;
use darktable::state::{Blend, EditState, Module, Params, Value};
use pixels::srgb;

/// The module that shows the mask, and a move of its own.
const PROBE: &str = "exposure";

/// How far both renders are darkened, in EV: up to 4.6 times diffuse white there is room for one more.
const DARKENED: f32 = -2.5;

/// What comes later and stays: geometry and profiles.
const KEPT: [&str; 13] = [
    "lens",
    "ashift",
    "flip",
    "clipping",
    "liquify",
    "rotatepixels",
    "scalepixels",
    "crop",
    "colorin",
    "colorout",
    "gamma",
    "enlargecanvas",
    "borders",
];

/// The two edits of which the difference is the mask.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskProbe {
    /// The same for every mask in this place of a state.
    pub without: EditState,
    /// With the light that the mask lets through.
    pub with: EditState,
    scale: Scale,
}

/// On what the mask's strength is linear.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Light,
    /// Of a finished picture.
    Codes,
    /// CIE L*.
    Lightness,
}

/// A mask as it lies on a rendered picture.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownMask {
    width: u32,
    height: u32,
    /// The effect of each pixel, 0…1, row by row.
    effect: Vec<f32>,
}

impl Vocabulary {
    /// The edits that show a mask on a state, where a masked exposure would see it. Where an exposure has this mask
    /// already, it counts as not made.
    ///
    /// # Errors
    /// [`VocabularyError`] for a mask that cannot be used on this state.
    pub fn mask_probe(
        &self,
        mask: &MaskSpec,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
    ) -> Result<MaskProbe, VocabularyError> {
        let Encoded { forms, blend } =
            mask.encode(self.masks(), (PROBE, BlendSpace::RgbScene), state, facts)?;
        let mut made = state.clone();
        made.modules.retain(|m| m.op != PROBE || m.instance == 0 || !same_mask(m, &blend));
        let used = made.modules.iter().filter(|m| m.op == PROBE).map(|m| m.instance).max().unwrap_or(0);
        let module = exposure(layouts, used + 1, (0.0, 0.0), Some(blend))?;
        made.modules.push(Module { name: PROBE.into(), ..module });
        made.masks.extend(forms.into_iter().filter(|form| !state.masks.iter().any(|m| m.id == form.id)));
        let instance = renumber(&mut made, facts, PROBE, used + 1);
        self.placed_mask_probe((PROBE, instance), mask.opacity, &made, facts, layouts)
    }

    /// The edits that show a mask on a state, where this move at its defaults would see it. A move that is idle
    /// then counts as an exposure.
    ///
    /// # Errors
    /// [`VocabularyError`] for a move or a mask that cannot be used on this state.
    pub fn mask_probe_for(
        &self,
        move_name: &str,
        mask: &MaskSpec,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<MaskProbe, VocabularyError> {
        let values = std::collections::BTreeMap::new();
        let request = ApplyRequest { move_name, values: &values, mask: Some(mask) };
        let applied = self.apply(&request, state, facts, layouts, darktable_version)?;
        match applied.instance {
            0 => self.mask_probe(mask, state, facts, layouts),
            instance => {
                self.placed_mask_probe((&applied.op, instance), mask.opacity, &applied.state, facts, layouts)
            }
        }
    }

    /// The edits that show the mask of an instance that stands in a state, where it sees it: on the state without it.
    /// `opacity` is the mask's own, without the move's.
    ///
    /// # Errors
    /// [`VocabularyError::Mask`] when there is no such instance, or nothing confines it.
    pub fn placed_mask_probe(
        &self,
        (op, instance): (&str, u32),
        opacity: Option<f64>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
    ) -> Result<MaskProbe, VocabularyError> {
        let blend = state.module(op, instance).and_then(|module| module.blend.as_ref());
        let blend = blend.ok_or_else(|| VocabularyError::Mask(format!("{op} {instance} has no mask")))?;
        let space = match blend.colorspace {
            // What works on sensor values has no ranges, and nothing before the exposure bends a shape.
            space if space == BlendSpace::Raw as i32 => BlendSpace::RgbScene as i32,
            space => space,
        };
        let opacity = opacity.unwrap_or(1.0) as f32 * 100.0;
        let blend = Blend { opacity, colorspace: space, ..blend::plain(blend) };
        let mut slots = order::slots(state);
        let place = |op: &str, instance: u32| slots.iter().position(|(o, i)| o == op && *i == instance);
        // The exposure cannot run on sensor values.
        let at = place(op, instance).max(place(PROBE, 0));
        let mut without = state.clone();
        without.modules.retain(|m| {
            let own = m.op == op && m.instance == instance;
            !own && (place(&m.op, m.instance) < at || KEPT.contains(&m.op.as_str()))
        });
        let before_profile = op == PROBE || at <= place("colorin", 0);
        let used = without.modules.iter().filter(|m| m.op == PROBE).map(|m| m.instance).max().unwrap_or(0);
        if op != PROBE || !state.sequence.is_empty() {
            let stands = |op: &str, instance| without.module(op, instance).is_some();
            let at = at.unwrap_or_default();
            let before = slots.iter().take(at).filter(|(op, i)| *i == 0 || stands(op, *i)).count();
            slots.retain(|(op, i)| *i == 0 || stands(op, *i));
            let probes = [used + 1, used + 2].map(|instance| (PROBE.to_owned(), instance));
            slots.splice(before..before, probes);
            without.sequence = slots;
        }
        let mut with = without.clone();
        let darken = exposure(layouts, used + 2, (DARKENED, 0.0), None)?;
        without.modules.push(darken.clone());
        // With the black point at -1, and a gain that keeps the rest as it is.
        with.modules.extend([exposure(layouts, used + 1, (18.0, -1.0), Some(blend))?, darken]);
        for edit in [&mut without, &mut with] {
            finish(edit, facts);
            order::sort(edit);
        }
        // What is not developed from a sensor's data is a finished picture.
        let finished = !facts.baseline.modules.iter().any(|module| module.op == "rawprepare");
        let scale = match space {
            space if space == BlendSpace::Lab as i32 => Scale::Lightness,
            _ if finished && before_profile => Scale::Codes,
            _ => Scale::Light,
        };
        Ok(MaskProbe { without, with, scale })
    }

    /// The instance of a masked move in a state: of several of one name the one with this mask, else the last.
    pub fn placed(
        &self,
        (move_name, op): (&str, &str),
        mask: &MaskSpec,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
    ) -> Option<u32> {
        let ours = |m: &&Module| m.op == op && m.instance > 0 && m.name == move_name;
        let mut found = state.modules.iter().filter(ours).peekable();
        let space = layouts.module(op).ok()??.blend_colorspace;
        let space = self.rules(op).layer.map_or(space, blend::Layer::space);
        let wanted = mask.encode(self.masks(), (op, space), state, facts).ok();
        let has = |m: &&Module| {
            let (blend, wanted) = (m.blend.as_ref(), wanted.as_ref().map(|wanted| &wanted.blend));
            blend.zip(wanted).is_some_and(|(blend, wanted)| {
                blend.mask_id == wanted.mask_id
                    && wanted.ranges.iter().all(|(channel, range)| blend.ranges.get(channel) == Some(range))
            })
        };
        found.peek()?;
        let found: Vec<&Module> = found.collect();
        found.iter().copied().find(has).or(found.last().copied()).map(|module| module.instance)
    }
}

/// Whether an exposure was made under this mask, at any strength.
fn same_mask(module: &Module, mask: &Blend) -> bool {
    module.name == PROBE
        && module
            .blend
            .as_ref()
            .is_some_and(|blend| Blend { opacity: mask.opacity, ..blend.clone() } == *mask)
}

impl MaskProbe {
    /// The mask, from the renders of the two edits; `None` when they are not of one size.
    pub fn read(&self, without: &Picture, with: &Picture) -> Option<ShownMask> {
        if (without.width, without.height) != (with.width, with.height) {
            return None;
        }
        let full = f64::from(DARKENED).exp2();
        let linear = |code: u8| srgb::LINEAR.get(usize::from(code)).copied().unwrap_or(0.0);
        let seen = |rgb: &[u8]| {
            let weighted = rgb.iter().zip([0.2126, 0.7152, 0.0722]);
            weighted.map(|(code, weight)| weight * linear(*code)).sum::<f64>() / full
        };
        let brighter = |light: &dyn Fn(u8) -> f64, (a, b): (&[u8], &[u8])| {
            // A channel that is clipped shows less of it.
            a.iter().zip(b).map(|(a, b)| light(*b) - light(*a)).fold(0.0, f64::max) / full
        };
        let effect = |(a, b): (&[u8], &[u8])| {
            let effect = match self.scale {
                Scale::Light => brighter(&linear, (a, b)),
                Scale::Codes => brighter(&|code| f64::from(code) / 255.0, (a, b)),
                Scale::Lightness => {
                    let [before, after] = [a, b].map(seen);
                    (lightness(after) - lightness(before)) / (lightness(before + 1.0) - lightness(before))
                }
            };
            effect.clamp(0.0, 1.0) as f32
        };
        let effect = without.rgb.chunks_exact(3).zip(with.rgb.chunks_exact(3)).map(effect).collect();
        Some(ShownMask { width: with.width, height: with.height, effect })
    }
}

fn exposure(
    layouts: &Layouts,
    instance: u32,
    (ev, black): (f32, f32),
    blend: Option<Blend>,
) -> Result<Module, VocabularyError> {
    let unknown = |reason: String| VocabularyError::Unencodable { name: PROBE.into(), reason };
    let module = layouts.module(PROBE).map_err(|e| unknown(e.to_string()))?;
    let layout = module.as_ref().and_then(|module| module.lowest_with(["exposure", "black"]));
    let layout = layout.ok_or_else(|| unknown("its layout is not known".into()))?;
    let mut fields = params::defaults(layout);
    fields.insert("exposure".into(), Value::Float(ev));
    fields.insert("black".into(), Value::Float(black));
    fields.insert("compensate_exposure_bias".into(), Value::Int(0));
    Ok(Module {
        blend: Some(blend.unwrap_or_else(|| blend::normal(BlendSpace::RgbScene))),
        enabled: true,
        instance,
        modversion: layout.modversion,
        name: "mask".into(),
        op: PROBE.into(),
        params: Params::Fields(fields),
    })
}

impl ShownMask {
    /// The share of the picture that it covers, 0…1: a pixel of half effect counts half.
    pub fn covered(&self) -> f64 {
        self.effect.iter().map(|effect| f64::from(*effect)).sum::<f64>() / self.effect.len().max(1) as f64
    }

    /// Of the pixels that it reaches (a tenth of its greatest effect or more), the share that it does not cover whole
    /// (less than nine tenths): 0 is a hard edge, 1 a mask that is soft all over.
    pub fn soft(&self) -> f64 {
        let most = self.effect.iter().copied().fold(0.0, f32::max);
        let reached = self.effect.iter().filter(|effect| **effect > 0.0 && **effect >= 0.1 * most).count();
        let whole = self.effect.iter().filter(|effect| **effect > 0.0 && **effect >= 0.9 * most).count();
        (reached - whole) as f64 / reached.max(1) as f64
    }

    /// The effect at a point of the picture, `[x, y]` in 0…1.
    pub fn at(&self, [x, y]: [f64; 2]) -> f32 {
        let place =
            |share: f64, size: u32| (share * f64::from(size)).clamp(0.0, f64::from(size) - 1.0) as usize;
        let at = place(y, self.height) * self.width as usize + place(x, self.width);
        self.effect.get(at).copied().unwrap_or(0.0)
    }

    /// The share of this mask that lies on the other, 0…1: of each pixel the lesser effect. `None` when they are not
    /// of one size.
    pub fn share_on(&self, other: &Self) -> Option<f64> {
        if (self.width, self.height) != (other.width, other.height) {
            return None;
        }
        let common = self.effect.iter().zip(&other.effect).map(|(a, b)| f64::from(a.min(*b))).sum::<f64>();
        let all: f64 = self.effect.iter().map(|effect| f64::from(*effect)).sum();
        Some(if all > 0.0 { common / all } else { 0.0 })
    }

    /// The effect of each pixel, 0…1, row by row.
    pub fn effect(&self) -> &[f32] {
        &self.effect
    }

    /// The picture in greys, red where the mask is; `None` when it is not of the mask's size.
    pub fn over(&self, picture: &Picture) -> Option<Picture> {
        if (picture.width, picture.height) != (self.width, self.height) {
            return None;
        }
        let tinted = |(rgb, effect): (&[u8], &f32)| {
            let [r, g, b] = [0, 1, 2].map(|at: usize| rgb.get(at).copied().map_or(0.0, f32::from));
            let grey = 0.2126 * r + 0.7152 * g + 0.0722 * b;
            // The red keeps some of the picture's light, so that what is under it stays visible.
            let red = [128.0 + 0.5 * grey, 0.4 * grey, 0.4 * grey];
            red.map(|red| (grey + effect * (red - grey)).round().clamp(0.0, 255.0) as u8)
        };
        let rgb = picture.rgb.chunks_exact(3).zip(&self.effect).flat_map(tinted).collect();
        Some(Picture { width: self.width, height: self.height, rgb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;
    use darktable::frame::{Orientation, StoredSize};

    #[test]
    fn the_probe_keeps_geometry_and_leaves_out_what_bends_light() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let module = |op: &str, instance| Module {
            op: op.into(),
            ..exposure(&layouts, instance, (0.5, 0.0), None).unwrap()
        };
        let names = ["demosaic", "exposure", "crop", "colorin", "filmicrgb", "grain", "colorout"];
        let baseline = EditState { modules: names.map(|op| module(op, 0)).to_vec(), ..EditState::default() };
        let facts = PhotoFacts {
            baseline: baseline.clone(),
            size: StoredSize { width: 300, height: 200 },
            orientation: Orientation::default(),
            shot: crate::vocabulary::Shot::default(),
        };
        let mask = MaskSpec { named: Some("center".into()), ..MaskSpec::default() };
        let probe = vocabulary.mask_probe(&mask, &baseline, &facts, &layouts).unwrap();
        let listed = |state: &EditState| {
            state.modules.iter().map(|m| format!("{}{}", m.op, m.instance)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(listed(&probe.without), "demosaic0 exposure0 exposure2 crop0 colorin0 colorout0");
        assert_eq!(listed(&probe.with), "demosaic0 exposure0 exposure1 exposure2 crop0 colorin0 colorout0");
        assert_eq!((probe.without.masks.len(), probe.with.masks.len()), (0, 2));
    }

    #[test]
    fn the_difference_of_light_is_the_mask() {
        let picture = |codes: [u8; 6]| Picture { width: 2, height: 1, rgb: codes.to_vec() };

        let read = |scale: Scale, with: [u8; 6]| {
            let (without, probed) = (EditState::default(), EditState::default());
            let probe = MaskProbe { without, with: probed, scale };
            probe.read(&picture([0, 0, 0, 50, 60, 70]), &picture(with)).unwrap()
        };
        // 0.1768 of full light is code 117, and of all codes 45.
        assert!(
            read(Scale::Codes, [45, 45, 45, 72, 82, 92])
                .effect()
                .iter()
                .all(|effect| (0.48..1.0).contains(effect))
        );
        let shown = read(Scale::Light, [117, 117, 117, 50, 60, 70]);
        assert!(shown.effect()[0] > 0.98 && shown.effect()[1] == 0.0);
        assert!((shown.covered() - 0.5).abs() < 0.01);
        let over = shown.over(&picture([100, 100, 100, 200, 0, 0])).unwrap();
        assert!(over.rgb[0] > 170 && over.rgb[1] < 45, "{:?}", over.rgb);
        assert_eq!(over.rgb[3..], [43, 43, 43]);
        assert!(shown.over(&Picture { width: 1, height: 1, rgb: vec![0; 3] }).is_none());
    }
}
