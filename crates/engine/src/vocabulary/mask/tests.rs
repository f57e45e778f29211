use super::*;
use crate::vocabulary::mask::spec::{End, RangeKind};
use base::assets::Overlay;
use darktable::frame::{Orientation, StoredSize};
use darktable::state::Shape;

fn named() -> NamedMasks {
    NamedMasks::load(&Overlay::vocabulary(None)).unwrap()
}

fn facts() -> PhotoFacts {
    PhotoFacts {
        baseline: EditState::default(),
        size: StoredSize { width: 300, height: 200 },
        orientation: Orientation::default(),
        shot: crate::vocabulary::Shot::default(),
    }
}

fn encode(text: &str) -> Result<Encoded, String> {
    let spec: MaskSpec = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let target = ("colorbalancergb", BlendSpace::RgbScene);
    spec.encode(&named(), target, &EditState::default(), &facts()).map_err(|e| e.to_string())
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_field_its_range_and_an_example() {
    for (text, expected) in [
        (
            r#"{"shape":"circle","center":[0.5,0.5],"radius":99}"#,
            r#"`radius` cannot be 99: it goes from 0.005 to 1.5, as in {"shape":"circle""#,
        ),
        (r#"{"shape":"circle","center":[0.5,7],"radius":0.2}"#, "`center`"),
        (r#"{"shape":"circle","center":[0.5,0.5],"radius":[0.2,0.2]}"#, "one number"),
        (r#"{"shape":"ellipse","center":[0.5,0.5],"radius":0.2}"#, "two numbers"),
        (
            r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2,"softness":1}"#,
            "a circle has no `softness`; it has",
        ),
        (r#"{"shape":"circle","radius":0.2}"#, "a circle needs `center`, as in {"),
        (r#"{"shape":"star","center":[0.5,0.5]}"#, "star"),
        (r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2,"opacity":2}"#, "`opacity`"),
        (r#"{"shape":"path","points":[[0,0],[1,1]]}"#, "3 to 256"),
        (r#"{"shape":"rectangle","from":[0.2,0.2],"to":[0.2,0.9]}"#, "enclose nothing"),
        (r#"{"shape":"rectangle","from":1,"to":2}"#, "a corner [x, y]"),
        (r#"{"shape":"gradient","anchor":[0.5,0.5],"width":0}"#, "`width`"),
        (r#"{"shape":"brush","strokes":[[[0,0]]],"width":0.1}"#, "2 to 64"),
        (r#"{"shape":"brush","strokes":[],"width":0.1}"#, "1 to 32"),
        (r#"{"range":"luminance","from":60,"to":30}"#, "`from` must be below `to`"),
        (r#"{"range":"luminance","from":0,"to":130}"#, "`to` cannot be 130: it goes from 0 to 100"),
        (r#"{"range":"hue","from":0,"to":360}"#, "no part of the hue"),
        (
            r#"{"range":"hue","from":20,"to":340,"softness":30}"#,
            "`softness` cannot be 30: it goes from 0 to 20",
        ),
        (r#"{"range":"hue","from":[0,1],"to":20}"#, "is a number"),
        (r#"{"range":"chroma","to":20}"#, "a chroma needs `from`"),
        (r#"{"range":"chroma","from":0,"to":20,"shape":"rectangle"}"#, r#"write {"intersection":["#),
        (r#"{"named":"skyy"}"#, "no named mask `skyy`; did you mean `sky`?"),
        (r#"{"named":"elephants"}"#, "there are blues, "),
        (r#"{"named":"sky","radius":1}"#, "`radius` goes with nothing"),
        (r#"{"difference":[{"named":"sky"}]}"#, "needs its masks"),
        (r#"{"union":[]}"#, "needs its masks"),
        (r#"{"union":[{"named":"sky","blur":0.01},{"named":"greens"}]}"#, "outside of the lists"),
        (r#"{"named":"sky","blur":0.5}"#, "`blur` cannot be 0.5: it goes from 0 to 0.05"),
        (r#"{}"#, "it says nothing"),
    ] {
        let error = encode(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let nan = MaskSpec {
        range: Some(RangeKind::Chroma),
        from: Some(End::Value(f64::NAN)),
        to: Some(End::Value(20.0)),
        ..MaskSpec::default()
    };
    assert!(nan.check(&named()).is_err());
    let deep = format!("{}{}{}", r#"{"union":["#.repeat(9), r#"{"named":"sky"}"#, "]}".repeat(9));
    assert!(encode(&deep).unwrap_err().contains("nest deeper"));
    let many = format!(
        r#"{{"union":[{}]}}"#,
        vec![r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2}"#; 65].join(",")
    );
    assert!(encode(&many).unwrap_err().contains("more than 64"));
}

#[test]
fn what_one_instance_cannot_do_is_refused_with_what_it_can() {
    for text in [
        r#"{"union":[{"range":"luminance","from":0,"to":20},{"range":"luminance","from":80,"to":100}]}"#,
        r#"{"union":[{"named":"skin_tones"},{"named":"center"}]}"#,
        r#"{"difference":[{"named":"center"},{"named":"skin_tones"}]}"#,
        r#"{"intersection":[{"union":[{"named":"shadows"},{"named":"center"}]},{"named":"blues"}]}"#,
        r#"{"intersection":[{"named":"shadows","opacity":0.5},{"named":"center"}]}"#,
    ] {
        let error = encode(text).unwrap_err();
        assert!(
            error.contains("One move can act on") || error.contains("give the whole mask"),
            "{text}: {error}"
        );
    }
    let spec: MaskSpec = serde_json::from_str(r#"{"named":"shadows"}"#).unwrap();
    let raw = spec.encode(&named(), ("highlights", BlendSpace::Raw), &EditState::default(), &facts());
    assert!(raw.unwrap_err().to_string().contains("sensor values"));
}

#[test]
fn softening_is_in_pixels_of_the_photo_up_to_what_darktable_has() {
    let blend = encode(r#"{"named":"sky","refine":0.05,"blur":0.02}"#).unwrap().blend;
    assert_eq!((blend.feathering_radius, blend.mask_blur), (10.0, 4.0));
    let large = PhotoFacts { size: StoredSize { width: 9000, height: 6000 }, ..facts() };
    let spec: MaskSpec = serde_json::from_str(r#"{"named":"sky","blur":0.03}"#).unwrap();
    let target = ("exposure", BlendSpace::RgbScene);
    let error = spec.encode(&named(), target, &EditState::default(), &large).unwrap_err().to_string();
    assert!(error.contains("`blur` 0.03 is 180 pixels of this photo; darktable goes up to 100"), "{error}");
}

#[test]
fn equal_masks_have_equal_ids_and_the_group_names_the_shape() {
    let text = r#"{"shape":"rectangle","from":[0.1,0.1],"to":[0.4,0.4],"invert":true,"opacity":0.5}"#;
    let Encoded { forms, blend } = encode(text).unwrap();
    assert_eq!(encode(text).unwrap().forms, forms);
    let [shape, group] = forms.as_slice() else { panic!("{forms:?}") };
    let Shape::Group { members } = &group.shape else { panic!("a group") };
    // The inversion is the member's: newer darktables turn the instance's own into something else.
    assert_eq!((members[0].form, members[0].state, members[0].opacity), (shape.id, 3 | 4, 1.0));
    assert_eq!((blend.mask_id, blend.combine, blend.opacity), (Some(group.id), 0, 50.0));
}

#[test]
fn lists_of_shapes_become_groups_within_groups() {
    let circle = |x: f64| format!(r#"{{"shape":"circle","center":[{x},0.5],"radius":0.2}}"#);
    let text = format!(
        r#"{{"difference":[{{"union":[{},{}],"invert":true}},{}]}}"#,
        circle(0.2),
        circle(0.6),
        circle(0.2)
    );
    let Encoded { forms, blend } = encode(&text).unwrap();
    // A circle that is there twice is stored once.
    assert_eq!(forms.len(), 4);
    let find = |id: i32| forms.iter().find(|form| form.id == id).unwrap();
    let members = |id: i32| match &find(id).shape {
        Shape::Group { members } => members.clone(),
        _ => panic!("a group"),
    };
    let outer = members(blend.mask_id.unwrap());
    assert_eq!([outer[0].state, outer[1].state], [3 | 4, 3 | 32]);
    let inner = members(outer[0].form);
    assert_eq!([inner[0].state, inner[1].state], [3, 3 | 8]);
    assert_eq!(outer[1].form, inner[0].form);
    // A whole that is inverted gets a group around.
    let Encoded { forms, blend } =
        encode(&format!(r#"{{"union":[{},{}],"invert":true}}"#, circle(0.2), circle(0.6))).unwrap();
    let Shape::Group { members } = &forms.iter().find(|f| Some(f.id) == blend.mask_id).unwrap().shape else {
        panic!()
    };
    assert_eq!((members.len(), members[0].state), (1, 3 | 4));
}

#[test]
fn ranges_confine_or_add_and_greys_stay_out_of_hues() {
    let channels = |text: &str| {
        let blend = encode(text).unwrap().blend;
        let inverted: Vec<(u8, bool)> = blend.ranges.iter().map(|(n, r)| (*n, r.inverted)).collect();
        (blend.mask_id.is_some(), blend.combine, inverted)
    };
    assert_eq!(channels(r#"{"named":"shadows"}"#), (false, 0, vec![(0, false)]));
    assert_eq!(channels(r#"{"named":"shadows","invert":true}"#), (false, 0, vec![(0, true)]));
    assert_eq!(channels(r#"{"named":"blues"}"#), (false, 0, vec![(9, false), (10, false)]));
    // All but the blues: what is of another hue, or grey.
    assert_eq!(channels(r#"{"named":"blues","invert":true}"#), (false, 2, vec![(9, true), (10, true)]));
    assert_eq!(channels(r#"{"named":"sky"}"#), (true, 0, vec![(9, false), (10, false)]));
    assert_eq!(channels(r#"{"named":"sky","invert":true}"#), (true, 2, vec![(9, true), (10, true)]));
    // A range can be taken out of a shape, or added to it; the hue's guard against greys then gives way.
    let without = channels(r#"{"difference":[{"named":"center"},{"range":"hue","from":200,"to":250}]}"#);
    assert_eq!(without, (true, 0, vec![(10, true)]));
    let added = channels(r#"{"union":[{"named":"center"},{"range":"luminance","from":80,"to":100}]}"#);
    assert_eq!(added, (true, 2, vec![(0, false)]));
}

#[test]
fn every_named_mask_is_a_sentence_and_fits_every_blend_space() {
    let named = named();
    assert!(named.iter().count() >= 12);
    for mask in named.iter() {
        assert!(mask.description.len() < 90, "{}", mask.name);
        for (op, space) in [("exposure", BlendSpace::RgbScene), ("bilat", BlendSpace::Lab)] {
            mask.spec.encode(&named, (op, space), &EditState::default(), &facts()).unwrap();
        }
    }
}

#[test]
fn the_page_shows_masks_that_work_and_every_name() {
    let page = include_str!("../../../../../docs/masks.md");
    let blocks = page.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
    let shown: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(shown.len() >= 14);
    for text in shown {
        // What is found in a picture is tested with one, in `object`.
        let mask: MaskSpec = serde_json::from_str(text).unwrap();
        if mask.is_sought() {
            mask.check_sought().unwrap_or_else(|error| panic!("{text}: {error}"));
            continue;
        }
        encode(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let named = named();
    for mask in named.iter() {
        let row = format!("| `{}` | {} |", mask.name, mask.description);
        assert!(page.contains(&row), "docs/masks.md has no row {row}");
    }
    assert_eq!(page.matches("\n| `").count(), named.iter().count() + 15, "a row too many, or a key");
    let own = page.split("```toml\n").nth(1).and_then(|block| block.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("masks")).unwrap();
    std::fs::write(folder.path().join("masks/mine.toml"), own).unwrap();
    let mine = NamedMasks::load(&Overlay::vocabulary(Some(folder.path().into()))).unwrap();
    assert!(mine.get("my_dark_greens").unwrap().file.ends_with("mine.toml"));
    // A name that is there already, and a mask within a named one, are errors that say where.
    std::fs::write(folder.path().join("masks/mine.toml"), own.replace("my_dark_greens", "sky")).unwrap();
    let error = NamedMasks::load(&Overlay::vocabulary(Some(folder.path().into()))).unwrap_err().to_string();
    assert!(error.contains("mask `sky`") && error.contains("is also used in"), "{error}");
    let nested = "[[mask]]\nname = \"x\"\ndescription = \"X.\"\nis = { named = \"sky\" }";
    std::fs::write(folder.path().join("masks/mine.toml"), nested).unwrap();
    let error = NamedMasks::load(&Overlay::vocabulary(Some(folder.path().into()))).unwrap_err().to_string();
    assert!(error.contains("no named mask `sky`"), "{error}");
}
