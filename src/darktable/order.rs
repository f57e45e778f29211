//! The order in which darktable runs its modules, and the text that spells it in a sidecar.
//!
//! Without an explicit list darktable does not know where a second instance belongs and runs it after the
//! last module, which ruins the picture without an error; so the list is written as soon as there is one.

use std::fmt::Write as _;

use super::state::{EditState, PipelineOrder};

/// "v3.0 RAW". The order of 4.2.1, with the modules that came later where 5.4.1 puts them in this order.
const RAW: [&str; 92] = [
    "rawprepare",
    "invert",
    "temperature",
    "rasterfile",
    "highlights",
    "cacorrect",
    "hotpixels",
    "rawdenoise",
    "demosaic",
    "denoiseprofile",
    "bilateral",
    "rotatepixels",
    "scalepixels",
    "lens",
    "cacorrectrgb",
    "hazeremoval",
    "ashift",
    "flip",
    "enlargecanvas",
    "overlay",
    "clipping",
    "liquify",
    "spots",
    "retouch",
    "exposure",
    "mask_manager",
    "tonemap",
    "toneequal",
    "crop",
    "graduatednd",
    "profile_gamma",
    "equalizer",
    "colorin",
    "channelmixerrgb",
    "diffuse",
    "censorize",
    "negadoctor",
    "blurs",
    "primaries",
    "nlmeans",
    "colorchecker",
    "defringe",
    "atrous",
    "lowpass",
    "highpass",
    "sharpen",
    "colortransfer",
    "colormapping",
    "channelmixer",
    "basicadj",
    "colorbalance",
    "colorequal",
    "colorbalancergb",
    "rgbcurve",
    "rgblevels",
    "basecurve",
    "filmic",
    "sigmoid",
    "agx",
    "filmicrgb",
    "lut3d",
    "colisa",
    "tonecurve",
    "levels",
    "shadhi",
    "zonesystem",
    "globaltonemap",
    "relight",
    "bilat",
    "colorcorrection",
    "colorcontrast",
    "velvia",
    "vibrance",
    "colorzones",
    "bloom",
    "colorize",
    "lowlight",
    "monochrome",
    "grain",
    "soften",
    "splittoning",
    "vignette",
    "colorreconstruct",
    "colorout",
    "clahe",
    "finalscale",
    "overexposed",
    "rawoverexposed",
    "dither",
    "borders",
    "watermark",
    "gamma",
];

/// The modules of [`RAW`] that 4.2.1 does not have: a list for it may name them only when the edit does.
const LATER: [&str; 6] = ["rasterfile", "enlargecanvas", "overlay", "primaries", "colorequal", "agx"];

/// The number that darktable gives this order (`iop_order_version`).
pub fn version(order: PipelineOrder) -> u32 {
    match order {
        PipelineOrder::V30 => 2,
        PipelineOrder::V30Jpeg => 3,
    }
}

/// The modules in the order in which they run.
pub fn modules(order: PipelineOrder) -> impl Iterator<Item = &'static str> {
    // "v3.0 JPEG" differs in one thing: the input profile is applied right after demosaic.
    let jpeg = order == PipelineOrder::V30Jpeg;
    RAW.into_iter()
        .flat_map(move |op| match op {
            "demosaic" if jpeg => [Some(op), Some("colorin")],
            "colorin" if jpeg => [None, None],
            _ => [Some(op), None],
        })
        .flatten()
}

/// Where `op` runs, counted from the sensor; `None` for a module that is not in the order.
pub fn position(order: PipelineOrder, op: &str) -> Option<usize> {
    modules(order).position(|name| name == op)
}

/// Brings a state into its canonical order: modules by position and instance (unknown ones last, by name),
/// mask forms by id.
pub fn sort(state: &mut EditState) {
    let order = state.order;
    state
        .modules
        .sort_by_cached_key(|m| (position(order, &m.op).unwrap_or(usize::MAX), m.op.clone(), m.instance));
    state.masks.sort_by_key(|form| form.id);
}

/// The whole `iop_order_list`, further instances right after their base; `None` when nothing in the state
/// needs it.
pub fn list(state: &EditState) -> Option<String> {
    if state.modules.iter().all(|m| m.instance == 0) {
        return None;
    }
    let used = |op: &str| state.modules.iter().any(|m| m.op == op);
    let mut text = String::with_capacity(1600);
    let mut entry = |op: &str| {
        let mut instances: Vec<u32> =
            state.modules.iter().filter(|m| m.op == op).map(|m| m.instance).collect();
        instances.push(0);
        instances.sort_unstable();
        instances.dedup();
        for instance in instances {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{op},{instance}");
        }
    };
    for op in modules(state.order).filter(|op| !LATER.contains(op) || used(op)) {
        entry(op);
    }
    let mut unknown: Vec<&str> = state
        .modules
        .iter()
        .map(|m| m.op.as_str())
        .filter(|op| position(state.order, op).is_none())
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.into_iter().for_each(entry);
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::darktable::state::{MaskForm, Module, Params, Shape};

    fn instance(op: &str, instance: u32) -> Module {
        Module {
            blend: None,
            enabled: true,
            instance,
            modversion: 1,
            name: String::new(),
            op: op.into(),
            params: Params::Fields(BTreeMap::new()),
        }
    }

    fn names(state: &EditState) -> Vec<(&str, u32)> {
        state.modules.iter().map(|m| (m.op.as_str(), m.instance)).collect()
    }

    #[test]
    fn the_orders_have_each_module_once_and_differ_in_the_input_profile_only() {
        for order in [PipelineOrder::V30, PipelineOrder::V30Jpeg] {
            let mut all: Vec<&str> = modules(order).collect();
            assert_eq!((all.len(), all[0], all[91]), (92, "rawprepare", "gamma"));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 92);
        }
        let jpeg = PipelineOrder::V30Jpeg;
        assert_eq!(position(jpeg, "colorin"), position(jpeg, "demosaic").map(|p| p + 1));
        let raw = PipelineOrder::V30;
        assert!(position(raw, "colorin") > position(raw, "exposure"));
        assert!(LATER.iter().all(|op| position(raw, op).is_some()));
        assert_eq!(position(raw, "nosuchop"), None);
    }

    #[test]
    fn sorting_follows_the_pipeline_then_the_instance_and_leaves_strangers_last() {
        let mut state = EditState {
            masks: vec![
                MaskForm {
                    id: 9,
                    name: "b".into(),
                    shape: Shape::Group { members: vec![] },
                    source: [0.0; 2],
                },
                MaskForm {
                    id: 2,
                    name: "a".into(),
                    shape: Shape::Group { members: vec![] },
                    source: [0.0; 2],
                },
            ],
            modules: vec![
                instance("zzz", 0),
                instance("aaa", 0),
                instance("exposure", 2),
                instance("gamma", 0),
                instance("exposure", 0),
                instance("demosaic", 0),
            ],
            ..EditState::default()
        };
        sort(&mut state);
        assert_eq!(
            names(&state),
            [("demosaic", 0), ("exposure", 0), ("exposure", 2), ("gamma", 0), ("aaa", 0), ("zzz", 0)]
        );
        assert_eq!(state.masks[0].id, 2);
        // Order of arrival must not matter to the hash.
        let hash = state.hash();
        state.modules.reverse();
        sort(&mut state);
        assert_eq!(state.hash(), hash);
    }

    #[test]
    fn the_list_is_written_when_an_instance_needs_it_and_names_later_modules_only_when_used() {
        let mut state = EditState { modules: vec![instance("exposure", 0)], ..EditState::default() };
        assert_eq!(list(&state), None);
        state.modules.push(instance("exposure", 2));
        let text = list(&state).unwrap();
        assert!(text.starts_with("rawprepare,0,invert,0,temperature,0,highlights,0,"), "{text}");
        assert!(text.ends_with(",watermark,0,gamma,0"), "{text}");
        assert!(text.contains(",retouch,0,exposure,0,exposure,2,mask_manager,0,"), "{text}");
        assert!(!text.contains("agx"), "{text}");
        assert_eq!(text.split(',').count(), 2 * (86 + 1));
        state.modules.push(instance("colorequal", 0));
        assert!(list(&state).unwrap().contains(",colorbalance,0,colorequal,0,colorbalancergb,0,"));
    }
}
