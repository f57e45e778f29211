//! What changed between two edits is said in words, and in those of a photographer.

use super::*;
use darktable::state::Shape;

fn module(op: &str, instance: u32, fields: &[(&str, Value)]) -> Module {
    Module {
        blend: None,
        enabled: true,
        instance,
        modversion: 6,
        name: String::new(),
        op: op.into(),
        params: Params::Fields(fields.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()),
    }
}

fn state(modules: Vec<Module>) -> EditState {
    EditState { modules, ..EditState::default() }
}

fn words_of(a: &EditState, b: &EditState) -> Vec<String> {
    diff(a, b).iter().map(ToString::to_string).collect()
}

fn blend(mask_id: Option<i32>, opacity: f32) -> Blend {
    Blend {
        brightness: 0.0,
        colorspace: 4,
        combine: 0,
        contrast: 0.0,
        details: 0.0,
        feathering_guide: 5,
        feathering_radius: 0.0,
        fulcrum: 0.0,
        mask_id,
        mask_blur: 0.0,
        mode: 0x18,
        opacity,
        ranges: BTreeMap::new(),
        opaque: None,
    }
}

#[test]
fn parameters_change_in_a_photographers_words() {
    let a = state(vec![
        module("exposure", 0, &[("black", Value::Float(0.0)), ("exposure", Value::Float(0.5))]),
        module("sharpen", 0, &[("mode", Value::Int(1))]),
    ]);
    let mut b = state(vec![
        module("exposure", 0, &[("black", Value::Float(0.00001)), ("exposure", Value::Float(0.8))]),
        module("exposure", 1, &[("exposure", Value::Float(-1.0))]),
    ]);
    b.modules[1].name = "burn sky".into();
    b.modules[1].enabled = false;
    assert_eq!(
        words_of(&a, &b),
        [
            "sharpen: removed",
            "exposure: black +0 → +0.00001",
            "exposure: exposure +0.50 → +0.80",
            "exposure #1 (burn sky): added",
            "exposure #1 (burn sky): disabled",
        ]
    );
    assert!(diff(&a, &a).is_empty());
    let json = serde_json::to_value(diff(&a, &b)).unwrap();
    assert_eq!(json[2]["before"], "+0.50");
}

#[test]
fn enabling_masks_opacity_and_order_are_seen() {
    let a = state(vec![module("exposure", 0, &[]), module("velvia", 0, &[])]);
    let form = MaskForm::new("sky", Shape::Circle { border: 0.1, center: [0.5, 0.5], radius: 0.2 });
    let mut b = a.clone();
    b.modules[1].enabled = false;
    b.modules[0].blend = Some(blend(Some(form.id), 60.0));
    b.masks = vec![form];
    assert_eq!(
        words_of(&a, &b),
        [
            "exposure: mask none → `sky`",
            "exposure: opacity 100 % → 60 %",
            "velvia: disabled",
            "mask `sky`: added"
        ]
    );
    let mut c = b.clone();
    c.modules.swap(0, 1);
    if let Some(blend) = &mut c.modules[1].blend {
        blend.mask_blur = 3.0;
    }
    assert_eq!(words_of(&b, &c), ["exposure: blending changed", "pipeline: module order changed"]);
}

#[test]
fn h8_the_regions_of_a_batch_are_one_line_and_know_each_other_by_their_masks() {
    let region = |instance: u32, ev: f32, at: f32| {
        let shape = Shape::Circle { border: 0.1, center: [at, 0.5], radius: 0.2 };
        let form = MaskForm::new("circle", shape);
        let members = vec![darktable::state::GroupMember { form: form.id, opacity: 1.0, state: 3 }];
        let group = MaskForm::new("circle group", Shape::Group { members });
        let mut module =
            module("exposure", instance, &[("black", Value::Float(0.0)), ("exposure", Value::Float(ev))]);
        module.name = "exposure".into();
        module.blend = Some(blend(Some(group.id), 100.0));
        (module, [form, group])
    };
    let with = |regions: &[(Module, [MaskForm; 2])]| {
        let mut state = state(vec![module("exposure", 0, &[("exposure", Value::Float(0.7))])]);
        for (module, forms) in regions {
            state.modules.push(module.clone());
            state.masks.extend(forms.clone());
        }
        state
    };
    let none = with(&[]);
    let three = with(&[region(1, 0.3, 0.1), region(2, -0.4, 0.2), region(3, 0.2, 0.3)]);
    assert_eq!(
        words_of(&none, &three),
        ["3 regions of exposure: added: #1 +0.30 circle; #2 -0.40 circle; #3 +0.20 circle"]
    );
    assert_eq!(
        words_of(&three, &none),
        ["3 regions of exposure: removed: #1 +0.30 circle; #2 -0.40 circle; #3 +0.20 circle"]
    );
    // The first is gone, so that the others have other numbers; one of them is stronger.
    let two = with(&[region(1, -0.4, 0.2), region(2, 0.5, 0.3)]);
    assert_eq!(words_of(&three, &two), ["exposure#1: removed", "exposure#2: exposure +0.20 → +0.50"]);
    let many: Vec<_> =
        (1_u8..=32).map(|i| region(i.into(), f32::from(i) / 10.0, f32::from(i) / 40.0)).collect();
    let change = diff(&none, &with(&many)).remove(0);
    let line = change.to_string();
    assert!(line.ends_with("more") && line.chars().count() < 170, "{line}");
    let whole = change.after.unwrap();
    assert!((1..=32).all(|number| whole.contains(&format!("#{number} "))), "{whole}");
}

#[test]
fn h8_a_range_is_called_by_what_it_measures() {
    let named = |space, channel| channel_words(space as i32, channel);
    assert_eq!(named(BlendSpace::RgbScene, 0), "luminance");
    assert_eq!(named(BlendSpace::RgbScene, 9), "chroma");
    assert_eq!(named(BlendSpace::RgbScene, 14), "hue of the result");
    assert_eq!(named(BlendSpace::Lab, 9), "hue");
    assert_eq!(named(BlendSpace::Lab, 4), "luminance of the result");
    assert_eq!(named(BlendSpace::Lab, 3), "channel 3");
}

#[test]
fn no_two_states_differ_without_a_word() {
    let a = state(vec![module("tonecurve", 0, &[("curve", Value::Floats(vec![0.0; 40]))])]);
    let mut b = a.clone();
    b.modules[0].params = Params::Opaque("00".into());
    let mut c = a.clone();
    c.modules[0].params = Params::Fields(BTreeMap::from([("curve".into(), Value::Floats(vec![1.0; 40]))]));
    let mut d = a.clone();
    d.extras.insert("xmp:Rating".into(), "3".into());
    assert_eq!(words_of(&a, &b), ["tonecurve: parameters changed"]);
    assert_eq!(words_of(&a, &c), ["tonecurve: curve changed"]);
    assert_eq!(words_of(&a, &d), ["sidecar: xmp:Rating none → 3"]);
}
