use super::*;

const GOOD: &str = r#"
[[move]]
name = "shadows_lift"
module = "toneequal"
description = "Open the shadows."
axes = { shadows = +1 }
tags = ["tone"]
parameters.amount = { unit = "EV", min = 0, max = 2, default = 0.6 }
set.shadows = "amount"
set.blacks = "0.4*amount"
"#;

fn read(text: &str) -> Result<Vocabulary, VocabularyError> {
    let mut vocabulary = Vocabulary::default();
    vocabulary.add("a.toml", text)?;
    vocabulary.collect_rules()?;
    Ok(vocabulary)
}

#[test]
fn what_ships_is_sound_and_large_enough() {
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let modules: BTreeSet<&str> = vocabulary.moves().map(|m| m.module.as_str()).collect();
    assert!(vocabulary.moves().count() >= 90, "{}", vocabulary.moves().count());
    assert!(modules.len() >= 30, "{modules:?}");
    assert!(vocabulary.looks().count() >= 30, "{}", vocabulary.looks().count());
}

#[test]
fn each_contradiction_is_refused_and_named() {
    assert!(read(GOOD).is_ok());
    for (from, to, expected) in [
        ("tags =", "tag =", "unknown field `tag`"),
        ("name = \"shadows_lift\"", "name = \"Shadows\"", "lower-case"),
        ("max = 2", "max = 0", "min < max"),
        ("max = 2", "max = nan", "min < max"),
        ("default = 0.6", "default = 2.1", "min < max"),
        ("default = 0.6", "default = 0.0", "do nothing"),
        ("shadows = +1", "shadows = 2", "sign 2"),
        ("shadows = +1", "shadow = 1", "unknown variant `shadow`"),
        ("\"amount\"", "\"amuont\"", "`amuont`"),
        ("\"0.4*amount\"", "\"0.4\"", "constant"),
        ("set.blacks", "scale.blacks", "must be 1"),
        ("unit = \"EV\", ", "", "unit"),
        ("tags =", "not_monotonic = \" \"\ntags =", "may not be empty"),
        ("[[move]]", "[module.toneequal]\nstart.shadows = 0.1\n[[move]]", "`start`"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("a.toml"), "{from} -> {to}: {error}");
    }
}

#[test]
fn a_name_twice_names_both_files() {
    let mut vocabulary = read(GOOD).unwrap();
    let error = vocabulary.add("b.toml", GOOD).unwrap_err().to_string();
    assert!(
        error.contains("a.toml") && error.contains("b.toml") && error.contains("shadows_lift"),
        "{error}"
    );
}

#[test]
fn moves_on_one_field_must_rest_at_one_value() {
    let other = GOOD.replace("shadows_lift", "other").replace("\"amount\"", "\"amount + 0.1\"");
    let error = read(&format!("{GOOD}{other}")).unwrap_err().to_string();
    assert!(error.contains("rests at another value"), "{error}");
}

#[test]
fn fields_are_held_to_darktables_layouts() {
    let layouts = Layouts::new(Overlay::vocabulary(None));
    for (from, to, expected) in [
        ("set.blacks", "set.blakcs", "has no `blakcs`"),
        ("set.blacks", "set.\"blacks[0]\"", "`blacks[0]` is not a number"),
        ("set.blacks", "set.iterations", "`iterations` takes whole numbers"),
        ("\"toneequal\"", "\"tonequal\"", "no module `tonequal`"),
        (GOOD, LAYER, "module demosaic does not blend"),
    ] {
        let vocabulary = read(&GOOD.replacen(from, to, 1)).unwrap();
        let error = vocabulary.check_fields(&layouts).unwrap_err().to_string();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
}

/// A layer of a module that darktable does not blend.
const LAYER: &str = r#"
[module.demosaic]
layer = "grey_multiplies"
[[move]]
name = "smooth"
module = "demosaic"
description = "Smooth."
axes = { noise = -1 }
tags = ["detail"]
parameters.passes = { unit = "", min = 0, max = 5, default = 2, whole = true }
set.color_smoothing = "passes"
"#;

#[test]
fn a_users_own_file_adds_moves_and_may_not_take_a_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("moves")).unwrap();
    let mine = folder.path().join("moves/mine.toml");
    let load = || Vocabulary::load(&Overlay::vocabulary(Some(folder.path().to_owned())));
    std::fs::write(
        &mine,
        GOOD.replace("shadows_lift", "my_shadows").replace("\nset.blacks = \"0.4*amount\"", ""),
    )
    .unwrap();
    assert!(load().unwrap().get("my_shadows").is_ok());
    std::fs::write(&mine, GOOD.replace("\nset.blacks = \"0.4*amount\"", "")).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("mine.toml") && error.contains("moves/tone.toml"), "{error}");
}

#[test]
fn whole_numbers_and_choices_take_nothing_between() {
    let whole = GOOD.replace("max = 2, default = 0.6", "max = 3, default = 1, whole = true");
    let get = |text: &str| read(text).unwrap().get("shadows_lift").unwrap().clone();
    let ask = |entry: &Move, value: f64| {
        entry.resolve(&BTreeMap::from([("amount".to_owned(), value)])).map_err(|e| e.to_string())
    };
    let steps = get(&whole);
    assert_eq!(ask(&steps, 2.0).unwrap()["amount"], 2.0);
    assert!(ask(&steps, 1.5).unwrap_err().contains("0 to 3 EV, whole"));
    let choice = get(&whole.replace("whole = true", "whole = true, choices = { soft = 1, hard = 3 }"));
    assert_eq!([0.0, 1.0, 3.0].map(|value| ask(&choice, value).is_ok()), [true; 3]);
    assert!(ask(&choice, 2.0).unwrap_err().contains("0 unchanged, 1 soft, 3 hard"));
    for (from, to, expected) in [
        ("default = 1", "default = 1.5", "whole numbers throughout"),
        ("whole = true", "choices = { soft = 1 }", "`whole = true`"),
        ("whole = true", "whole = true, choices = { soft = 2 }", "among its choices"),
    ] {
        let error = read(&whole.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_field_of_whole_numbers_wants_whole_numbers() {
    let layouts = Layouts::new(Overlay::vocabulary(None));
    let text = GOOD.replace("max = 2, default = 0.6", "max = 2, default = 1, whole = true");
    let with = |form: &str| {
        let blacks = format!("set.iterations = \"{form}\"");
        read(&text.replace("set.blacks = \"0.4*amount\"", &blacks)).unwrap().check_fields(&layouts)
    };
    assert!(with("amount").is_ok() && with("1 + 3*amount").is_ok());
    assert!(with("0.5*amount").unwrap_err().to_string().contains("takes whole numbers"));
}

/// A move that fixes fields and blends.
const FIXED: &str = r#"
[[move]]
name = "print"
module = "lut3d"
description = "A print."
axes = {}
tags = ["lut"]
not_monotonic = "its maker's choice"
parameters.amount = { unit = "", min = 0, max = 2, default = 1 }
opacity = "50*amount"
fixed.filepath = "print.cube"
fixed.colorspace = 2
"#;

#[test]
fn what_is_fixed_fits_its_field_and_an_opacity_is_one() {
    let layouts = Layouts::new(Overlay::vocabulary(None));
    let check = |text: &str| read(text).and_then(|vocabulary| vocabulary.check_fields(&layouts));
    check(FIXED).unwrap();
    let long = format!("filepath = \"{}\"", "x".repeat(512));
    for (from, to, expected) in [
        ("50*amount", "51*amount", "from 0 to 100"),
        ("50*amount", "1 + 20*amount", "0 when the move is neutral"),
        (
            "fixed.colorspace",
            "parameters.more = { unit = \"\", min = 0, max = 1, default = 1 }\nset.nb_keypoints = \"more\"\nfixed.colorspace",
            "the only strength",
        ),
        ("filepath = \"print.cube\"", &long, "`fixed.filepath` does not fit"),
        ("filepath = \"print.cube\"", "filepath = 3", "`fixed.filepath` does not fit"),
        ("colorspace = 2", "colorspace = 9", "`fixed.colorspace` does not fit"),
        ("colorspace = 2", "colourspace = 2", "has no `colourspace`"),
        ("[[move]]", "[module.lut3d]\nstart.colorspace = 1\n[[move]]", "fixed here"),
        ("\"lut3d\"", "\"rawprepare\"", "has no `colorspace`"),
    ] {
        assert!(FIXED.contains(from), "{from}");
        let error = check(&FIXED.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
    let unblended = GOOD
        .replace("\"toneequal\"", "\"ashift\"")
        .replace("set.shadows = \"amount\"\nset.blacks", "set.rotation");
    let faded = unblended.replace("[\"tone\"]", "[\"tone\"]\nopacity = \"50*amount\"");
    check(&unblended).unwrap();
    assert!(check(&faded).unwrap_err().to_string().contains("does not blend ashift"));
}

#[test]
fn ranges_are_refused_with_the_legal_range() {
    let vocabulary = read(GOOD).unwrap();
    let lift = vocabulary.get("shadows_lift").unwrap();
    for value in [-0.01, 2.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = lift.resolve(&BTreeMap::from([("amount".to_owned(), value)])).unwrap_err().to_string();
        assert!(error.contains("0 to 2 EV"), "{error}");
    }
    let error = lift.resolve(&BTreeMap::from([("strength".to_owned(), 1.0)])).unwrap_err().to_string();
    assert!(error.contains("`amount` (0 to 2 EV)"), "{error}");
    assert_eq!(lift.resolve(&BTreeMap::new()).unwrap()["amount"], 0.6);
}

#[test]
fn a_misspelled_move_is_answered_with_its_neighbours() {
    let vocabulary = read(GOOD).unwrap();
    for word in ["shadow_lift", "shadowslift", "shadows"] {
        let error = vocabulary.get(word).unwrap_err().to_string();
        assert!(error.contains("did you mean `shadows_lift`?"), "{error}");
    }
    assert!(!vocabulary.get("zebra").unwrap_err().to_string().contains("did you mean"));
}
