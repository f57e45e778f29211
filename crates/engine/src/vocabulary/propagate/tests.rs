use super::*;
use crate::vocabulary::testing::{Photo, float};
use crate::vocabulary::{Region, RegionsRequest, Spot};

fn selection(moves: &[&str], modules: &[&str], include: &[Extra]) -> Selection {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Selection { moves: owned(moves), modules: owned(modules), include: include.iter().copied().collect() }
}

fn take(source: &Photo, selection: &Selection, target: &mut Photo) -> Result<(), PropagateError> {
    let from = PhotoEdit { state: &source.state, facts: &source.facts };
    let edits = source.vocabulary.edits(from, selection)?;
    let to = PhotoEdit { state: &target.state, facts: &target.facts };
    target.state = source.vocabulary.propagate(&edits, to, &source.layouts)?;
    Ok(())
}

fn everything() -> Selection {
    Selection::default()
}

fn field(photo: &Photo, op: &str, name: &str) -> f32 {
    float(photo.state.module(op, 0).unwrap(), name)
}

/// Another light, another exposure, turned on its side.
fn other() -> Photo {
    let mut photo = Photo::new().upright();
    photo.set_base("temperature", "red", Value::Float(1.5));
    photo.set_base("temperature", "blue", Value::Float(2.5));
    photo.set_base("exposure", "exposure", Value::Float(0.2));
    photo
}

#[test]
fn a_move_that_stands_by_itself_takes_the_place_of_another() {
    let lut = |name: &str, space: u8| {
        format!(
            "[[move]]\nname = \"{name}\"\nmodule = \"lut3d\"\ndescription = \"x\"\naxes = {{}}\ntags = [\"lut\"]\n\
             not_monotonic = \"x\"\nparameters.opacity = {{ unit = \"%\", min = 0, max = 100, default = 80 }}\n\
             opacity = \"opacity\"\nfixed.filepath = \"{name}.cube\"\nfixed.colorspace = {space}\n"
        )
    };
    let photo = || {
        let mut photo = other();
        let text = lut("dusk", 0) + &lut("dawn", 1);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("moves")).unwrap();
        std::fs::write(folder.path().join("moves/mine.toml"), text).unwrap();
        let files = base::assets::Overlay::vocabulary(Some(folder.path().to_owned()));
        photo.vocabulary = Vocabulary::load(&files).unwrap();
        photo
    };
    let (mut source, mut target) = (photo(), photo());
    source.apply("dusk", &[("opacity", 30.0)], None);
    target.apply("dawn", &[], None);
    assert!(take(&source, &selection(&["dawn"], &[], &[]), &mut target).is_err());
    for chosen in [everything(), selection(&["dusk"], &[], &[])] {
        let mut reached = photo();
        reached.state = target.state.clone();
        take(&source, &chosen, &mut reached).unwrap();
        assert_eq!(reached.state, source.state, "{chosen:?}");
    }
}

#[test]
fn white_balance_and_exposure_are_shifts_and_not_numbers() {
    let mut source = Photo::new();
    source.apply("exposure", &[("ev", 0.5)], None);
    source.apply("warmth", &[], None);
    source.apply("saturation", &[("amount", 0.4)], None);
    let mut target = other();
    take(&source, &everything(), &mut target).unwrap();
    assert!((field(&target, "exposure", "exposure") - 0.7).abs() < 1e-6);
    let gain = |photo: &Photo, base: f32, name| field(photo, "temperature", name) / base;
    assert!((gain(&target, 1.5, "red") - gain(&source, 2.0, "red")).abs() < 1e-5);
    assert!((gain(&target, 2.5, "blue") - gain(&source, 1.6, "blue")).abs() < 1e-5);
    // The same as the moves applied there by hand, which is what a photographer means by it.
    let mut by_hand = other();
    by_hand.apply("exposure", &[("ev", 0.5)], None);
    by_hand.apply("warmth", &[], None);
    by_hand.apply("saturation", &[("amount", 0.4)], None);
    assert_eq!(target.state.modules.len(), by_hand.state.modules.len());
    assert_eq!(target.state.module("colorbalancergb", 0), by_hand.state.module("colorbalancergb", 0));
    let once = target.state.hash();
    take(&source, &everything(), &mut target).unwrap();
    assert_eq!(target.state.hash(), once);
}

#[test]
fn what_the_target_has_besides_stays_and_moves_can_be_chosen() {
    let mut source = Photo::new();
    source.apply("saturation", &[("amount", 0.4)], None);
    source.apply("black_point", &[], None);
    source.apply("exposure", &[("ev", 1.0)], None);
    let mut target = Photo::new();
    target.apply("vibrance", &[("amount", 0.3)], None);
    let before = target.state.clone();
    take(&source, &selection(&["saturation"], &[], &[]), &mut target).unwrap();
    let mut by_hand = Photo { state: before, ..Photo::new() };
    by_hand.apply("saturation", &[("amount", 0.4)], None);
    assert_eq!(target.state.hash(), by_hand.state.hash());
    // Of one module, one move.
    take(&source, &selection(&["exposure"], &[], &[]), &mut target).unwrap();
    by_hand.apply("exposure", &[("ev", 1.0)], None);
    assert_eq!(target.state.hash(), by_hand.state.hash());
    take(&source, &selection(&[], &["exposure"], &[]), &mut target).unwrap();
    by_hand.apply("black_point", &[], None);
    assert_eq!(target.state.hash(), by_hand.state.hash());
}

#[test]
fn a_tone_mapper_takes_the_place_of_the_other() {
    let mut source = Photo::new();
    let mapper = source.vocabulary.moves().find(|entry| entry.module == "sigmoid").unwrap().name.clone();
    source.apply(&mapper, &[], None);
    let mut target = other();
    take(&source, &everything(), &mut target).unwrap();
    let mut by_hand = other();
    by_hand.apply(&mapper, &[], None);
    assert_eq!(target.state.hash(), by_hand.state.hash());
    assert!(!target.state.module("filmicrgb", 0).unwrap().enabled);
}

#[test]
fn the_frame_and_the_spots_go_over_when_they_are_asked_for() {
    let mut source = Photo::new();
    source.apply("crop_left", &[("margin", 0.2)], None);
    let mut target = other();
    let refusal = take(&source, &everything(), &mut target).unwrap_err();
    assert!(refusal.to_string().contains("crop") && refusal.remedy().is_some(), "{refusal}");
    let spots: Vec<Spot> = serde_json::from_str(r#"[{"x":0.5,"y":0.25,"radius":0.05}]"#).unwrap();
    let layouts = &source.layouts;
    source.state =
        source.vocabulary.apply_spots(&spots, &source.state, &source.facts, layouts, "4.2.1").unwrap().state;
    source.apply("exposure", &[("ev", 0.3)], None);
    take(&source, &everything(), &mut target).unwrap();
    assert!(target.state.module("crop", 0).is_none() && target.state.masks.is_empty());
    take(&source, &selection(&[], &[], &[Extra::Crop, Extra::Spots]), &mut target).unwrap();
    assert_eq!(field(&target, "crop", "cx"), 0.2);
    // A spot in the picture's upper half is in the upper half of the turned one.
    let place = PhotoEdit { state: &target.state, facts: &target.facts };
    let frame = Frame::of(place.state, place.facts);
    let circle = target.state.masks.iter().find_map(|form| match forms::without_clone(form) {
        Some(Shape::Circle { center, radius, .. }) => Some((center, radius, form)),
        _ => None,
    });
    let (center, radius, form) = circle.unwrap();
    let at = crate::vocabulary::frames::seen(&frame, center);
    assert!((at[0] - 0.5).abs() < 1e-4 && (at[1] - 0.25).abs() < 1e-4, "{at:?}");
    // 5 % of the shorter side: 160 pixels of what is shown, 200 of the raw.
    assert!((radius - 0.05 * 160.0 / 200.0).abs() < 1e-5, "{radius}");
    let Params::Fields(fields) = &target.state.module("retouch", 0).unwrap().params else { panic!("fields") };
    let Value::Ints(ids) = &fields["rt_forms.formid"] else { panic!("a list") };
    assert_eq!(ids[0], i64::from(form.id));
    assert!(darktable::xmp::write(&target.state, &source.layouts, "x.dng").is_ok());
}

#[test]
fn masks_keep_their_place_on_the_picture() {
    let masks = [
        r#"{"shape":"circle","center":[0.2,0.3],"radius":0.1}"#,
        r#"{"shape":"ellipse","center":[0.7,0.3],"radius":[0.2,0.1]}"#,
        r#"{"shape":"gradient","anchor":[0.4,0.5],"angle":30,"width":0.3}"#,
        r#"{"shape":"rectangle","from":[0.1,0.6],"to":[0.4,0.9],"invert":true}"#,
    ];
    let regions = masks.map(|mask| format!(r#"{{"mask":{mask},"parameter_values":{{"ev":0.5}}}}"#)).join(",");
    let regions: Vec<Region> = serde_json::from_str(&format!("[{regions}]")).unwrap();
    let request = RegionsRequest { move_name: Some("exposure"), regions: &regions };
    let draw = |photo: &Photo| {
        photo
            .vocabulary
            .apply_regions(&request, &photo.state, &photo.facts, &photo.layouts, "4.2.1")
            .unwrap()
            .state
    };
    let mut source = Photo::new();
    source.state = draw(&source);
    // On a photo that lies alike the forms are the very same.
    let mut twin = Photo::new();
    take(&source, &everything(), &mut twin).unwrap();
    assert_eq!(twin.state.hash(), source.state.hash());

    let mut target = other();
    target.apply("crop_top", &[("margin", 0.25)], None);
    let expected = draw(&target);
    take(&source, &everything(), &mut target).unwrap();
    let numbers = |state: &EditState| {
        let mut shapes: Vec<String> = state.masks.iter().map(|form| rounded(&form.shape)).collect();
        shapes.sort();
        shapes
    };
    assert_eq!(numbers(&target.state), numbers(&expected));
    // Drawn with round numbers, they are the very forms that would be drawn here.
    assert_eq!(target.state.hash(), expected.hash());
    let once = target.state.hash();
    take(&source, &everything(), &mut target).unwrap();
    assert_eq!(target.state.hash(), once);
}

/// A shape in words, with its numbers rounded to what a pixel is; a group by its name alone.
fn rounded(shape: &Shape) -> String {
    let json = serde_json::to_value(shape).unwrap();
    fn walk(value: &serde_json::Value) -> String {
        match value {
            serde_json::Value::Number(n) => format!("{:.4}", n.as_f64().unwrap() + 0.0),
            serde_json::Value::Array(list) => list.iter().map(walk).collect::<Vec<_>>().join(","),
            serde_json::Value::Object(map) => map
                .iter()
                .filter(|(key, _)| *key != "form")
                .map(|(k, v)| format!("{k}:{}", walk(v)))
                .collect::<Vec<_>>()
                .join(" "),
            other => other.to_string(),
        }
    }
    walk(&json)
}

#[test]
fn a_choice_that_is_not_there_is_named() {
    let mut source = Photo::new();
    let mut target = other();
    assert!(
        matches!(take(&source, &everything(), &mut target), Err(PropagateError::Nothing(left)) if left.is_empty())
    );
    source.apply("saturation", &[], None);
    for (moves, modules, words) in [
        (&["vibrance"][..], &[][..], "no edit of `vibrance`"),
        (&["saturatoin"], &[], "did you mean `saturation`"),
        (&[], &["colorbalancergp"], "did you mean `colorbalancergb`"),
        (&[], &["flip"], "belongs to the photo itself"),
    ] {
        let error = take(&source, &selection(moves, modules, &[]), &mut target).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(target.state.hash(), other().state.hash());
}

#[test]
fn what_does_not_fit_the_target_is_refused() {
    let mut source = Photo::new();
    source.apply("exposure", &[("ev", 3.0)], None);
    let mut target = Photo::new();
    target.set_base("exposure", "exposure", Value::Float(17.0));
    let error = take(&source, &everything(), &mut target).unwrap_err();
    assert!(
        error.to_string().contains("exposure cannot be copied") && error.to_string().contains("20"),
        "{error}"
    );
}

#[test]
fn straightening_goes_over_to_a_photo_that_lies_alike() {
    let mut source = Photo::new();
    let straightened = Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion: 99,
        name: String::new(),
        op: "ashift".into(),
        params: Params::Opaque("00".into()),
    };
    source.state.modules.push(straightened);
    order::sort(&mut source.state);
    let wanted = selection(&[], &[], &[Extra::Perspective]);
    let mut twin = Photo::new();
    take(&source, &wanted, &mut twin).unwrap();
    assert_eq!(twin.state.hash(), source.state.hash());
    let error = take(&source, &wanted, &mut other()).unwrap_err().to_string();
    assert!(error.contains("turned another way"), "{error}");
}
