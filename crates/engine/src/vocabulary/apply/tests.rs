use super::*;
use base::assets::Overlay;
use base::error::Coded as _;
use darktable::blend::Layer;
use darktable::layout::BlendSpace;

fn module(op: &str, modversion: u32, fields: &[(&str, f64)]) -> Module {
    let layouts = Layouts::new(Overlay::vocabulary(None));
    let layout = layouts.module(op).unwrap().unwrap().version(modversion).unwrap().clone();
    let mut values = params::defaults(&layout);
    for (name, value) in fields {
        let field = layout.field(name).unwrap();
        values.insert((*name).to_owned(), params::number(&layout, field, *value).unwrap());
    }
    Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion,
        name: String::new(),
        op: op.to_owned(),
        params: Params::Fields(values),
    }
}

/// Has every module, and reads what the oldest supported one wrote.
const NEWEST: &str = "5.4.1";

struct Photo {
    vocabulary: Vocabulary,
    layouts: Layouts,
    facts: PhotoFacts,
    state: EditState,
}

impl Photo {
    /// A photo as darktable 4.2.1 opens it.
    fn new() -> Self {
        let mut sensor = module("rawprepare", 2, &[("raw_white_point", 16_383.0)]);
        let Params::Fields(levels) = &mut sensor.params else { panic!("fields") };
        levels.insert("raw_black_level_separate".into(), Value::Ints(vec![512; 4]));
        let modules = vec![
            sensor,
            module("temperature", 3, &[("red", 2.0), ("green", 1.0), ("blue", 1.6)]),
            module("flip", 2, &[("orientation", 0.0)]),
            module("highlights", 4, &[("mode", 5.0)]),
            module("demosaic", 4, &[]),
            module("colorin", 7, &[]),
            module("exposure", 6, &[("exposure", 0.7), ("black", -0.000_244_140_63)]),
            module("filmicrgb", 6, &[("white_point_source", 4.56)]),
        ];
        let mut baseline = EditState { modules, ..EditState::default() };
        order::sort(&mut baseline);
        let facts = PhotoFacts {
            baseline: baseline.clone(),
            size: StoredSize { width: 300, height: 200 },
            orientation: Orientation::default(),
            shot: crate::vocabulary::Shot::default(),
        };
        Self {
            vocabulary: Vocabulary::load(&Overlay::vocabulary(None)).unwrap(),
            layouts: Layouts::new(Overlay::vocabulary(None)),
            facts,
            state: baseline,
        }
    }

    fn try_apply(
        &self,
        name: &str,
        values: &[(&str, f64)],
        mask: Option<&str>,
    ) -> Result<Applied, VocabularyError> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        self.vocabulary.apply(&request, &self.state, &self.facts, &self.layouts, NEWEST)
    }

    fn apply(&mut self, name: &str, values: &[(&str, f64)], mask: Option<&str>) -> Applied {
        let applied = self.try_apply(name, values, mask).unwrap();
        self.state = applied.state.clone();
        applied
    }

    fn remove(&mut self, selector: Selector) -> Result<(), VocabularyError> {
        self.state = self.vocabulary.remove_module(&self.state, &selector, &self.facts)?;
        Ok(())
    }

    fn float(&self, op: &str, instance: u32, target: &str) -> f32 {
        let Params::Fields(fields) = &self.state.module(op, instance).unwrap().params else {
            panic!("fields")
        };
        read(fields, &target.parse().unwrap()).unwrap()
    }
}

const SPOT: &str = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2}"#;
const SKY: &str = r#"{"shape":"gradient","anchor":[0.5,0.3]}"#;

#[test]
fn every_move_is_the_same_state_at_neutral_and_another_at_default() {
    let photo = Photo::new();
    for entry in photo.vocabulary.moves() {
        let neutral: Vec<(&str, f64)> = entry
            .parameters
            .iter()
            .filter(|(_, p)| !p.direction)
            .map(|(n, p)| (n.as_str(), p.neutral))
            .collect();
        let idle = photo.try_apply(&entry.name, &neutral, None).unwrap();
        assert_eq!(idle.state.hash(), photo.state.hash(), "{}", entry.name);
        let once = photo.try_apply(&entry.name, &[], None).unwrap();
        assert_ne!(once.state.hash(), photo.state.hash(), "{}", entry.name);
        // Neutral undoes, and twice is once.
        let photo = Photo { state: once.state.clone(), ..Photo::new() };
        assert_eq!(photo.try_apply(&entry.name, &[], None).unwrap().state, once.state, "{}", entry.name);
        let undone = photo.try_apply(&entry.name, &neutral, None).unwrap();
        assert_eq!(undone.state.hash(), photo.facts.baseline.hash(), "{}", entry.name);
    }
}

#[test]
fn the_ends_of_every_range_can_be_encoded() {
    let photo = Photo::new();
    for entry in photo.vocabulary.moves() {
        for end in [|p: &crate::vocabulary::Parameter| p.min, |p: &crate::vocabulary::Parameter| p.max] {
            let values: Vec<(&str, f64)> =
                entry.parameters.iter().map(|(n, p)| (n.as_str(), end(p))).collect();
            let applied = photo.try_apply(&entry.name, &values, None);
            assert!(applied.is_ok(), "{}: {}", entry.name, applied.unwrap_err());
        }
    }
}

#[test]
fn values_are_relative_to_the_baseline() {
    let mut photo = Photo::new();
    photo.apply("exposure", &[("ev", 0.5)], None);
    assert_eq!(photo.float("exposure", 0, "exposure"), 1.2);
    photo.apply("exposure", &[("ev", -0.5)], None);
    assert!((photo.float("exposure", 0, "exposure") - 0.2).abs() < 1e-6);
    photo.apply("warmth", &[("shift", 30.0)], None);
    assert!(photo.float("temperature", 0, "red") > 2.0 && photo.float("temperature", 0, "blue") < 1.6);
    photo.apply("tint", &[("magenta", 10.0)], None);
    assert_eq!(photo.float("temperature", 0, "green"), 0.9);
}

#[test]
fn moves_on_one_module_accumulate_in_any_order_and_come_off_one_by_one() {
    let (mut one, mut other) = (Photo::new(), Photo::new());
    one.apply("saturation", &[("amount", 0.4)], None);
    let only_saturation = one.state.hash();
    one.apply("vibrance", &[("amount", 0.3)], None);
    other.apply("vibrance", &[("amount", 0.3)], None);
    other.apply("saturation", &[("amount", 0.4)], None);
    assert_eq!(one.state.hash(), other.state.hash());
    assert_eq!(one.float("colorbalancergb", 0, "saturation_global"), 0.4);
    assert_eq!(one.float("colorbalancergb", 0, "vibrance"), 0.3);
    one.remove(Selector::Move("vibrance".into())).unwrap();
    assert_eq!(one.state.hash(), only_saturation);
    one.remove(Selector::Module { op: "colorbalancergb".into(), instance: None }).unwrap();
    assert_eq!(one.state, one.facts.baseline);
}

#[test]
fn one_tone_mapper_at_a_time_and_the_photos_own_comes_back() {
    let mut photo = Photo::new();
    photo.apply("filmic_contrast", &[], None);
    let filmic = photo.state.hash();
    photo.apply("sigmoid_contrast", &[], None);
    assert!(!photo.state.module("filmicrgb", 0).unwrap().enabled);
    assert!(photo.state.module("sigmoid", 0).unwrap().enabled);
    // Neutral on the mapper that is off changes nothing.
    let sigmoid = photo.state.hash();
    assert_eq!(photo.apply("filmic_contrast", &[("amount", 0.0)], None).state.hash(), sigmoid);
    photo.apply("filmic_contrast", &[], None);
    assert_eq!(photo.state.hash(), filmic);
    photo.apply("sigmoid_contrast", &[], None);
    photo.remove(Selector::Module { op: "sigmoid".into(), instance: None }).unwrap();
    assert_eq!(photo.state, photo.facts.baseline);
    assert!(
        photo.try_apply("sigmoid_contrast", &[], Some(SPOT)).unwrap_err().to_string().contains("tone mapper")
    );
}

#[test]
fn a_mask_makes_an_instance_that_starts_from_rest_and_leaves_the_global_one_alone() {
    let mut photo = Photo::new();
    photo.apply("exposure", &[("ev", 1.0)], None);
    let applied = photo.apply("exposure", &[("ev", -0.5)], Some(SPOT));
    assert_eq!((applied.op.as_str(), applied.instance), ("exposure", 1));
    assert_eq!(photo.float("exposure", 0, "exposure"), 1.7);
    assert_eq!(photo.float("exposure", 1, "exposure"), -0.5);
    let masked = photo.state.module("exposure", 1).unwrap();
    assert_eq!(masked.name, "exposure");
    assert_eq!(masked.blend.as_ref().unwrap().mask_id, applied.mask_id);
    assert_eq!(photo.state.masks.len(), 2);
    // The same again is the same; another value updates; neutral removes, with the forms.
    assert_eq!(photo.apply("exposure", &[("ev", -0.5)], Some(SPOT)).state, applied.state);
    photo.apply("exposure", &[("ev", -0.8)], Some(SPOT));
    assert_eq!(photo.float("exposure", 1, "exposure"), -0.8);
    photo.apply("exposure", &[("ev", 0.0)], Some(SPOT));
    assert!(photo.state.module("exposure", 1).is_none() && photo.state.masks.is_empty());
}

#[test]
fn masked_instances_are_the_same_whichever_came_first() {
    let moves = [("exposure", SPOT), ("exposure", SKY), ("black_point", SPOT)];
    let mut hashes = BTreeSet::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut photo = Photo::new();
        for at in order {
            let applied = photo.apply(moves[at].0, &[], Some(moves[at].1));
            let carrier = photo.state.module("exposure", applied.instance).unwrap();
            assert_eq!(carrier.name, moves[at].0);
            assert_eq!(carrier.blend.as_ref().unwrap().mask_id, applied.mask_id);
        }
        hashes.insert(photo.state.hash().to_string());
        photo.remove(Selector::Move("exposure".into())).unwrap();
        assert_eq!(photo.state.modules.iter().filter(|m| m.op == "exposure").count(), 2);
        assert_eq!(photo.state.module("exposure", 1).unwrap().name, "black_point");
    }
    assert_eq!(hashes.len(), 1);
}

#[test]
fn a_range_makes_an_instance_without_forms_that_another_strength_replaces() {
    let (dark, light) = (r#"{"named":"shadows"}"#, r#"{"named":"highlights"}"#);
    let mut hashes = BTreeSet::new();
    for order in [[dark, light], [light, dark]] {
        let mut photo = Photo::new();
        for mask in order {
            let applied = photo.apply("exposure", &[("ev", 0.5)], Some(mask));
            assert_eq!(applied.mask_id, None);
            let blend = photo.state.module("exposure", applied.instance).unwrap().blend.as_ref().unwrap();
            assert_eq!((blend.ranges.len(), photo.state.masks.len()), (1, 0));
        }
        hashes.insert(photo.state.hash().to_string());
        // The same mask at another strength is the same mask; at rest it goes.
        let weaker = dark.replace('}', r#","opacity":0.4}"#);
        let applied = photo.apply("exposure", &[("ev", 0.5)], Some(&weaker));
        let blend = photo.state.module("exposure", applied.instance).unwrap().blend.as_ref().unwrap();
        assert_eq!(blend.opacity, 40.0);
        assert_eq!(photo.state.modules.iter().filter(|m| m.op == "exposure").count(), 3);
        photo.apply("exposure", &[("ev", 0.0)], Some(dark));
        photo.apply("exposure", &[("ev", 0.0)], Some(light));
        assert_eq!(photo.state, photo.facts.baseline);
    }
    assert_eq!(hashes.len(), 1);
}

#[test]
fn a_later_layout_in_the_photo_is_kept_and_an_old_darktable_is_offered_what_it_has() {
    let mut photo = Photo::new();
    photo.facts.baseline.modules.retain(|m| m.op != "exposure");
    photo.facts.baseline.modules.push(module("exposure", 7, &[("exposure", 0.5)]));
    order::sort(&mut photo.facts.baseline);
    photo.state = photo.facts.baseline.clone();
    photo.apply("exposure", &[("ev", 0.5)], None);
    assert_eq!(photo.state.module("exposure", 0).unwrap().modversion, 7);
    assert_eq!(photo.float("exposure", 0, "exposure"), 1.0);
    let request = ApplyRequest { move_name: "exposure", values: &BTreeMap::new(), mask: None };
    let error =
        photo.vocabulary.apply(&request, &photo.state, &photo.facts, &photo.layouts, "3.0.0").unwrap_err();
    assert!(matches!(error, VocabularyError::Unavailable { .. }), "{error}");
}

#[test]
fn a_crop_shows_less_of_the_picture() {
    let mut photo = Photo::new();
    assert_eq!(<[f64; 2]>::from(photo.facts.shown(&photo.state)), [300.0, 200.0]);
    photo.apply("crop_left", &[("margin", 0.25)], None);
    photo.apply("crop_bottom", &[("margin", 0.25)], None);
    assert_eq!(<[f64; 2]>::from(photo.facts.shown(&photo.state)), [225.0, 150.0]);
}

#[test]
fn the_baseline_counts_towards_darktables_own_range() {
    let mut photo = Photo::new();
    photo.facts.baseline.modules.push(module("velvia", 2, &[("strength", 90.0)]));
    order::sort(&mut photo.facts.baseline);
    photo.state = photo.facts.baseline.clone();
    let error = photo.try_apply("velvia", &[("amount", 50.0)], None).unwrap_err();
    assert!(error.to_string().contains("140") && error.to_string().contains("0 to 100"), "{error}");
}

#[test]
fn a_layer_multiplies_everywhere_and_under_a_mask() {
    let mut photo = Photo::new();
    photo.apply("high_pass", &[], None);
    photo.apply("high_pass", &[], Some(SPOT));
    let blend = |instance| photo.state.module("highpass", instance).unwrap().blend.clone().unwrap();
    let (whole, masked) = (blend(0), blend(1));
    assert_eq!(whole, Layer::GreyMultiplies.over(blend::normal(BlendSpace::RgbScene)));
    assert!(whole.mask_id.is_none() && masked.mask_id.is_some());
    assert_eq!(Blend { mask_id: None, ..masked }, whole);
    photo.apply("high_pass", &[("contrast", 0.0)], None);
    photo.apply("high_pass", &[("contrast", 0.0)], Some(SPOT));
    assert_eq!(photo.state, photo.facts.baseline);
}

#[test]
fn whole_frame_modules_refuse_masks_and_nothing_cannot_be_removed() {
    let mut photo = Photo::new();
    for name in ["warmth", "crop_left"] {
        let error = photo.try_apply(name, &[], Some(SPOT)).unwrap_err();
        assert!(matches!(error, VocabularyError::NotMaskable { .. }), "{error}");
    }
    for selector in [
        Selector::Move("velvia".into()),
        Selector::Module { op: "velvia".into(), instance: None },
        Selector::Module { op: "exposure".into(), instance: Some(3) },
    ] {
        let error = photo.remove(selector).unwrap_err();
        assert!(matches!(error, VocabularyError::NothingToRemove { .. }), "{error}");
    }
    assert!(photo.remove(Selector::Move("velviaa".into())).unwrap_err().to_string().contains("`velvia`"));
}

#[test]
fn a_module_of_an_unknown_version_takes_masked_moves_only_and_the_refusal_says_what_to_do() {
    let mut photo = Photo::new();
    for state in [&mut photo.facts.baseline, &mut photo.state] {
        let exposure = state.module_mut("exposure", 0).unwrap();
        (exposure.modversion, exposure.params) = (5, Params::Opaque("00".repeat(20)));
    }
    let error = photo.try_apply("exposure", &[("ev", 0.3)], None).unwrap_err();
    let (said, remedy) = (error.to_string(), error.remedy().unwrap());
    assert!(said.contains("exposure is of version 5"), "{said}");
    assert!(remedy.contains("import the sidecar again") && remedy.contains("change exposure"), "{remedy}");
    let circle = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2}"#;
    assert_eq!(photo.apply("exposure", &[("ev", 0.3)], Some(circle)).instance, 1);
}
