//! The order in which darktable runs its modules, and the text that spells it in a sidecar.
//!
//! Without an explicit list darktable does not know where a second instance belongs and runs it after the
//! last module, which ruins the picture without an error; so the list is written as soon as there is one.

use std::collections::BTreeSet;
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

/// The order of darktable before 3.0, with the modules that came later where 5.4.1 puts them in it.
const LEGACY: [&str; 92] = [
    "rawprepare",
    "invert",
    "temperature",
    "rasterfile",
    "highlights",
    "cacorrect",
    "hotpixels",
    "rawdenoise",
    "demosaic",
    "mask_manager",
    "denoiseprofile",
    "tonemap",
    "exposure",
    "spots",
    "retouch",
    "lens",
    "cacorrectrgb",
    "ashift",
    "liquify",
    "rotatepixels",
    "scalepixels",
    "flip",
    "enlargecanvas",
    "clipping",
    "toneequal",
    "crop",
    "overlay",
    "graduatednd",
    "basecurve",
    "bilateral",
    "profile_gamma",
    "hazeremoval",
    "colorin",
    "channelmixerrgb",
    "diffuse",
    "censorize",
    "negadoctor",
    "blurs",
    "basicadj",
    "primaries",
    "colorreconstruct",
    "colorchecker",
    "defringe",
    "equalizer",
    "vibrance",
    "colorbalance",
    "colorequal",
    "colorbalancergb",
    "colorize",
    "colortransfer",
    "colormapping",
    "bloom",
    "nlmeans",
    "globaltonemap",
    "shadhi",
    "atrous",
    "bilat",
    "colorzones",
    "lowlight",
    "monochrome",
    "sigmoid",
    "agx",
    "filmic",
    "filmicrgb",
    "colisa",
    "zonesystem",
    "tonecurve",
    "levels",
    "rgblevels",
    "rgbcurve",
    "relight",
    "colorcorrection",
    "sharpen",
    "lowpass",
    "highpass",
    "grain",
    "lut3d",
    "colorcontrast",
    "colorout",
    "channelmixer",
    "soften",
    "vignette",
    "splittoning",
    "velvia",
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

/// What darktable wants first and last in any order.
const FIRST: &str = "rawprepare";
const LAST: &str = "gamma";

/// How many entries a list of one's own may have: every module, and hundreds of instances.
pub(crate) const MAX_SLOTS: usize = 600;

/// The number that darktable gives this order (`iop_order_version`).
pub(crate) fn version(order: PipelineOrder) -> u32 {
    match order {
        PipelineOrder::Custom => 0,
        PipelineOrder::Legacy => 1,
        PipelineOrder::V30 => 2,
        PipelineOrder::V30Jpeg => 3,
        PipelineOrder::V50 => 4,
        PipelineOrder::V50Jpeg => 5,
    }
}

/// The order of that number; `None` for one that is not known.
pub(crate) fn of_version(version: u32) -> Option<PipelineOrder> {
    use PipelineOrder::{Custom, Legacy, V30, V30Jpeg, V50, V50Jpeg};
    [Custom, Legacy, V30, V30Jpeg, V50, V50Jpeg].into_iter().find(|order| self::version(*order) == version)
}

/// The modules in the order in which they run; for an order of one's own those of "v3.0 RAW", by which what
/// its list does not name finds its place.
pub fn modules(order: PipelineOrder) -> impl Iterator<Item = &'static str> {
    // The JPEG orders apply the input profile right after demosaic; v5.0 scales before the output profile.
    let jpeg = matches!(order, PipelineOrder::V30Jpeg | PipelineOrder::V50Jpeg);
    let v50 = matches!(order, PipelineOrder::V50 | PipelineOrder::V50Jpeg);
    let table: &[&'static str] = if order == PipelineOrder::Legacy { &LEGACY } else { &RAW };
    table
        .iter()
        .flat_map(move |op| match *op {
            "demosaic" if jpeg => [Some("demosaic"), Some("colorin")],
            "colorin" if jpeg => [None, None],
            "colorout" if v50 => [Some("finalscale"), Some("colorout")],
            "finalscale" if v50 => [None, None],
            op => [Some(op), None],
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
    let own = if state.sequence.is_empty() { Vec::new() } else { sequence(state) };
    let names: Vec<&str> = if own.is_empty() { modules(state.order).collect() } else { Vec::new() };
    // Most states are in order already, so that each module is found right behind the one before.
    let mut last = 0;
    let mut place = |op: &str, instance: u32| {
        if !own.is_empty() {
            return own.iter().position(|(o, i)| o == op && *i == instance);
        }
        let (before, behind) = names.split_at(last);
        let found = behind.iter().position(|name| *name == op).map(|at| last + at);
        last = found.or_else(|| before.iter().position(|name| *name == op))?;
        Some(last)
    };
    state.modules.sort_by_cached_key(|m| match place(&m.op, m.instance) {
        Some(place) => (place, None, m.instance),
        None => (usize::MAX, Some(m.op.clone()), m.instance),
    });
    state.masks.sort_by_key(|form| form.id);
}

/// The whole `iop_order_list`; `None` when nothing in the state needs it.
pub fn list(state: &EditState) -> Option<String> {
    if state.sequence.is_empty() && state.modules.iter().all(|m| m.instance == 0) {
        return None;
    }
    let slots = slots(state);
    let mut text = String::with_capacity(1600);
    for (op, instance) in slots {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{op},{instance}");
    }
    Some(text)
}

/// Module instances in the order in which they run, with those of the built-in order that the state does not have.
pub fn slots(state: &EditState) -> Vec<(String, u32)> {
    if state.sequence.is_empty() { built_in(state) } else { sequence(state) }
}

/// The slots of the state's built-in order: further instances right after their base, and what the order does
/// not know before the last module, which darktable wants to be `gamma`.
pub fn built_in(state: &EditState) -> Vec<(String, u32)> {
    let used = |op: &str| state.modules.iter().any(|m| m.op == op);
    let mut slots = Vec::new();
    let mut entry = |op: &str| {
        let mut instances: Vec<u32> =
            state.modules.iter().filter(|m| m.op == op).map(|m| m.instance).collect();
        instances.push(0);
        instances.sort_unstable();
        instances.dedup();
        slots.extend(instances.into_iter().map(|instance| (op.to_owned(), instance)));
    };
    for op in modules(state.order).filter(|op| *op != LAST && (!LATER.contains(op) || used(op))) {
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
    unknown.into_iter().for_each(&mut entry);
    entry(LAST);
    slots
}

/// The state's own slots, with those of its modules that they do not name yet: a further instance right after
/// the last one of its module, a new module after the one that it follows in the built-in order.
fn sequence(state: &EditState) -> Vec<(String, u32)> {
    let mut slots = state.sequence.clone();
    let mut missing: Vec<(&str, u32)> = state
        .modules
        .iter()
        .map(|m| (m.op.as_str(), m.instance))
        .filter(|(op, instance)| !slots.iter().any(|(o, i)| o == op && i == instance))
        .collect();
    missing.sort_unstable();
    for (op, instance) in missing {
        let before: Vec<&str> = modules(state.order).take_while(|name| *name != op).collect();
        let last_of = |op: &str| slots.iter().rposition(|(o, _)| o == op);
        let at = last_of(op).or_else(|| before.iter().rev().find_map(|name| last_of(name)));
        let at = at.map_or(0, |at| at + 1).min(slots.len().saturating_sub(1));
        slots.insert(at, (op.to_owned(), instance));
    }
    slots
}

/// Makes `slots`, with places for what they do not name, the order of the state, unless that comes to the same
/// as the built-in one.
pub(crate) fn follow(state: &mut EditState, slots: Vec<(String, u32)>) {
    state.sequence = Vec::new();
    let built_in = built_in(state);
    let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) = (slots.iter().collect(), built_in.iter().collect());
    let same = slots.iter().filter(|s| ours.contains(s)).eq(built_in.iter().filter(|s| theirs.contains(s)));
    if !same || state.order == PipelineOrder::Custom {
        state.sequence = slots;
        state.sequence = sequence(state);
    }
}

/// Whether a module can be called that.
pub(crate) fn is_module(op: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=20).contains(&op.len()) && op.bytes().all(plain)
}

/// Reads an `iop_order_list`. The error says what is wrong with it.
pub(crate) fn parse(list: &str) -> Result<Vec<(String, u32)>, String> {
    let words: Vec<&str> = list.split(',').map(str::trim).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a list of odd length".into());
    }
    if pairs.len() > MAX_SLOTS {
        return Err(format!("a list of more than {MAX_SLOTS} modules"));
    }
    let mut slots: Vec<(String, u32)> = Vec::with_capacity(pairs.len());
    for [op, instance] in pairs {
        if !is_module(op) {
            return Err(format!("a module `{}`", op.chars().take(40).collect::<String>()));
        }
        let instance = instance.parse().map_err(|_| format!("an instance of {op} that is no number"))?;
        if slots.iter().any(|(o, i)| o == op && *i == instance) {
            return Err(format!("instance {instance} of {op} twice"));
        }
        slots.push(((*op).to_owned(), instance));
    }
    let ends = |slot: Option<&(String, u32)>, op: &str| slot.is_some_and(|(name, _)| name == op);
    if !ends(slots.first(), FIRST) || !ends(slots.last(), LAST) {
        return Err(format!("a list that does not run from {FIRST} to {LAST}"));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::{MaskForm, Module, Params, Shape};

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

    #[test]
    fn the_orders_of_other_darktables_differ_where_those_do() {
        let place = |order, op| position(order, op).unwrap();
        for order in [PipelineOrder::V50, PipelineOrder::V50Jpeg] {
            assert_eq!(modules(order).count(), 92);
            assert_eq!(place(order, "finalscale") + 1, place(order, "colorout"));
        }
        let legacy = PipelineOrder::Legacy;
        let all = |order| modules(order).collect::<BTreeSet<_>>();
        assert_eq!(all(legacy), all(PipelineOrder::V30), "darktable looks for each module in either order");
        assert!(place(legacy, "exposure") < place(legacy, "lens"));
        assert_eq!((modules(legacy).next(), modules(legacy).last()), (Some(FIRST), Some(LAST)));
        for number in 0..6 {
            assert_eq!(of_version(number).map(version), Some(number));
        }
        assert_eq!(of_version(6), None);
    }

    #[test]
    fn a_list_of_ones_own_is_kept_and_new_modules_find_their_places() {
        let slots = parse("rawprepare,0,exposure,0,colorin,0,exposure,3,gamma,0").unwrap();
        let mut state = EditState {
            modules: vec![instance("exposure", 3), instance("colorin", 0), instance("exposure", 0)],
            order: PipelineOrder::Custom,
            sequence: slots,
            ..EditState::default()
        };
        sort(&mut state);
        assert_eq!(names(&state), [("exposure", 0), ("colorin", 0), ("exposure", 3)]);
        state.modules.extend([instance("exposure", 4), instance("sharpen", 0), instance("zzz", 0)]);
        sort(&mut state);
        let expected = "rawprepare,0,exposure,0,colorin,0,sharpen,0,exposure,3,exposure,4,zzz,0,gamma,0";
        assert_eq!(list(&state).unwrap(), expected);
        // What is further than the built-in order is before the last module there too.
        let built = EditState { modules: vec![instance("zzz", 1)], ..EditState::default() };
        assert!(list(&built).unwrap().ends_with(",watermark,0,zzz,0,zzz,1,gamma,0"));
    }
}
