//! A mask made visible, by darktable itself.
//!
//! A masked exposure that adds the light of diffuse white shows by how much the picture brightens what the mask lets
//! through. That is exact for every tone if nothing bends the light afterwards: so both renders omit what
//! comes after the exposure, but for geometry, and are darkened until the brightest tone has room. On a finished
//! picture (JPEG, PNG, TIFF) the exposure comes before the profile and works on codes, so that these are compared.

use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::{Encoded, MaskSpec};
use darktable::blend;
use darktable::layout::{BlendSpace, Layouts};
use darktable::order;
use darktable::params;
use darktable::render::Picture;
use darktable::state::{Blend, EditState, Module, Params, Value};
use pixels::srgb;

/// The module that shows the mask.
const PROBE: &str = "exposure";

/// How far both renders are darkened, in EV: up to 4.6 times diffuse white there is room for one more.
const DARKENED: f32 = -2.5;

/// What comes after the exposure and stays: geometry and profiles.
const KEPT: [&str; 6] = ["crop", "colorin", "colorout", "gamma", "enlargecanvas", "borders"];

/// The two edits of which the difference is the mask.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskProbe {
    /// The same for every mask on a state.
    pub without: EditState,
    /// With the light that the mask lets through.
    pub with: EditState,
    /// Whether the exposure adds codes and not light.
    codes: bool,
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
    /// The edits that show a mask on a state, where a masked exposure would see it.
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
        let mut without = state.clone();
        let place = |op: &str| order::position(state.order, op);
        without.modules.retain(|m| place(&m.op) <= place(PROBE) || KEPT.contains(&m.op.as_str()));
        let used = without.modules.iter().filter(|m| m.op == PROBE).map(|m| m.instance).max().unwrap_or(0);
        let mut with = without.clone();
        let darken = exposure(layouts, used + 2, (DARKENED, 0.0), None)?;
        without.modules.push(darken.clone());
        // With the black point at -1, and a gain that keeps the rest as it is.
        with.modules.extend([exposure(layouts, used + 1, (18.0, -1.0), Some(blend))?, darken]);
        with.masks.extend(forms.into_iter().filter(|form| !state.masks.iter().any(|m| m.id == form.id)));
        order::sort(&mut without);
        order::sort(&mut with);
        // What is not developed from a sensor's data is a finished picture.
        let codes = !facts.baseline.modules.iter().any(|module| module.op == "rawprepare");
        Ok(MaskProbe { without, with, codes })
    }
}

impl MaskProbe {
    /// The mask, from the renders of the two edits; `None` when they are not of one size.
    pub fn read(&self, without: &Picture, with: &Picture) -> Option<ShownMask> {
        if (without.width, without.height) != (with.width, with.height) {
            return None;
        }
        let light = |code: u8| match self.codes {
            true => f64::from(code) / 255.0,
            false => srgb::LINEAR.get(usize::from(code)).copied().unwrap_or(0.0),
        };
        let full = f64::from(DARKENED).exp2();
        let effect = |(a, b): (&[u8], &[u8])| {
            // A channel that is clipped shows less of it.
            let most = a.iter().zip(b).map(|(a, b)| light(*b) - light(*a)).fold(0.0, f64::max);
            (most / full).min(1.0) as f32
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

        let read = |codes: bool, with: [u8; 6]| {
            let (without, probed) = (EditState::default(), EditState::default());
            let probe = MaskProbe { without, with: probed, codes };
            probe.read(&picture([0, 0, 0, 50, 60, 70]), &picture(with)).unwrap()
        };
        // 0.1768 of full light is code 117, and of all codes 45.
        assert!(
            read(true, [45, 45, 45, 72, 82, 92]).effect().iter().all(|effect| (0.48..1.0).contains(effect))
        );
        let shown = read(false, [117, 117, 117, 50, 60, 70]);
        assert!(shown.effect()[0] > 0.98 && shown.effect()[1] == 0.0);
        assert!((shown.covered() - 0.5).abs() < 0.01);
        let over = shown.over(&picture([100, 100, 100, 200, 0, 0])).unwrap();
        assert!(over.rgb[0] > 170 && over.rgb[1] < 45, "{:?}", over.rgb);
        assert_eq!(over.rgb[3..], [43, 43, 43]);
        assert!(shown.over(&Picture { width: 1, height: 1, rgb: vec![0; 3] }).is_none());
    }
}
