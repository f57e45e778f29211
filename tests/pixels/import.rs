//! What was made in darktable comes over to the pixel: sidecars that darktable itself wrote, and styles.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod bench;

use std::collections::BTreeMap;
use std::process::{Command, Output};

use base::clock::Deadline;
use base::ids::Hash;
use darktable::checks;
use darktable::render::{Picture, Quality, RawFile};
use darktable::state::{EditState, Params, PipelineOrder, Shape, Value};
use darktable::{dng, dtstyle, order};
use engine::photo::{Judge, read_sidecar};
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts};

use bench::{BENCH, EDGE, difference};
use testkit::demo::two_at_a_time;
use testkit::kept;

/// The history items of a sidecar, as text.
fn items(sidecar: &str) -> Vec<&str> {
    let start = sidecar.find("<darktable:history>").unwrap();
    let parts = sidecar[start..].split_inclusive("/>\n");
    parts.filter_map(|part| Some(&part[part.find("     <rdf:li")?..])).collect()
}

/// The item of a module in a sidecar.
fn item<'a>(sidecar: &'a str, op: &str) -> &'a str {
    items(sidecar).into_iter().find(|item| item.contains(&format!("operation=\"{op}\""))).unwrap()
}

/// The sidecar with one more item at the end.
fn with_item(sidecar: &str, item: &str) -> String {
    let count = items(sidecar).len();
    let end = sidecar.find("    </rdf:Seq>\n   </darktable:history>").unwrap();
    let item = item.trim_start_matches(|c| c != '<');
    let number = item.split("darktable:num=\"").nth(1).unwrap().split('"').next().unwrap();
    let item = item.replacen(&format!("num=\"{number}\""), &format!("num=\"{count}\""), 1);
    let text = format!("{}{item}\n{}", &sidecar[..end], &sidecar[end..]);
    text.replace(&format!("history_end=\"{count}\""), &format!("history_end=\"{}\"", count + 1))
}

fn attribute(text: &str, name: &str) -> String {
    let value = text.split_once(&format!("darktable:{name}=\"")).unwrap().1;
    value.split('"').next().unwrap().to_owned()
}

fn without(text: &str, name: &str) -> String {
    text.replacen(&format!("darktable:{name}=\"{}\"", attribute(text, name)), "", 1)
}

/// The exposure block with another value, in hexadecimal.
fn exposure(sidecar: &str, ev: f32) -> String {
    let item = item(sidecar, "exposure");
    let params = attribute(item, "params");
    let digits: String = ev.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    item.replace(&params, &format!("{}{digits}{}", &params[..16], &params[24..]))
}

#[test]
fn sidecars_render_to_the_pixels_that_darktable_makes_of_them() {
    let bench = &*BENCH;
    let plain = bench.sidecar(&bench.facts.baseline);
    let brighter = exposure(&plain, 1.5);
    let longer = with_item(&plain, &brighter);
    let count = items(&plain).len();
    let ends = |count: usize| format!("history_end=\"{count}\"");
    let only = items(&plain).iter().fold(plain.clone(), |text, item| text.replace(item, ""));
    let only = with_item(&only.replace(&ends(count), &ends(0)), &brighter);
    let old = {
        // The versions of 4.2.1 (6) and of 5.4.1 (7) each added one switch of four bytes at the end.
        let (params, version) = (attribute(&brighter, "params"), attribute(&brighter, "modversion"));
        let before = version.parse::<u32>().unwrap() - 1;
        let text = brighter.replacen(&params, &params[..params.len() - 8], 1);
        text.replace(&format!("modversion=\"{version}\""), &format!("modversion=\"{before}\""))
    };
    let own = format!("order_version=\"{}\"", attribute(&plain, "iop_order_version"));
    let ordered = |version: u32| longer.replace(&own, &format!("order_version=\"{version}\""));
    let several = {
        // As an edit that was begun before 3.0 has it: its own order, with the second instance behind the first.
        let slot = |op: &str| match op {
            "exposure" => "exposure,0,exposure,1".to_owned(),
            op => format!("{op},0"),
        };
        let later = ["rasterfile", "enlargecanvas", "overlay", "primaries", "colorequal", "agx"];
        let slots = order::modules(PipelineOrder::Legacy).filter(|op| !later.contains(op)).map(slot);
        let list = slots.collect::<Vec<_>>().join(",");
        let second = brighter.replace("multi_priority=\"0\"", "multi_priority=\"1\"");
        let number = "order_version=\"1\"";
        with_item(&plain, &second).replace(&own, &format!("{number} darktable:iop_order_list=\"{list}\""))
    };
    let cases: Vec<(&str, String)> = vec![
        ("several instances in the order of 2.6", several),
        ("masked", bench.written("masked")),
        ("retouched", bench.written("retouched")),
        ("reordered", bench.written("reordered")),
        ("the last item counts", longer.clone()),
        ("history_end", longer.replace(&ends(count + 1), &ends(count))),
        ("switched off", with_item(&plain, &brighter.replace("enabled=\"1\"", "enabled=\"0\""))),
        ("old module", with_item(&plain, &old)),
        ("the order of 2.6", ordered(1)),
        ("the order of 5.0", ordered(4)),
        ("no order", without(&longer, "iop_order_version")),
        ("no defaults yet", only.replace("presets_applied=\"1\"", "presets_applied=\"0\"")),
        (
            "written by 2.6",
            without(&longer.replace("xmp_version=\"5\"", "xmp_version=\"2\""), "iop_order_version"),
        ),
    ];
    let states: Vec<EditState> = cases.iter().map(|(name, text)| bench.read(name, text)).collect();
    let ours: Vec<String> = states.iter().map(|state| bench.sidecar(state)).collect();
    let texts: Vec<&str> =
        cases.iter().map(|(_, text)| text.as_str()).chain(ours.iter().map(String::as_str)).collect();
    let pictures = two_at_a_time(&texts, |text| bench.render(text));
    let (theirs, ours) = pictures.split_at(cases.len());
    let untouched = &theirs[5];
    for ((name, _), (theirs, ours)) in cases.iter().zip(theirs.iter().zip(ours)) {
        assert_eq!(difference(theirs, ours), 0, "{name}");
        if *name != "history_end" {
            assert!(difference(untouched, theirs) > 4, "{name} shows nothing");
        }
    }
    // What is no part of a sidecar's own list is no reason to keep one, and a person's own is kept.
    let [masked, retouched, reordered] = [&states[1], &states[2], &states[3]];
    if bench.makes_styles() {
        assert_eq!((masked.order, masked.sequence.len()), (PipelineOrder::V30, 0));
        assert_eq!(masked, &bench.masked(), "darktable's own writing changes no value");
    }
    assert!(retouched.masks.iter().all(|form| matches!(form.shape, Shape::Opaque { .. })));
    assert_eq!((reordered.order, reordered.sequence.is_empty()), (PipelineOrder::Custom, false));
}

/// darktable adds highlight reconstruction to a raw's edit that has none: by clipping where hashes say that the edit is
/// a person's, else as by default.
#[test]
fn an_edit_without_highlight_reconstruction_keeps_the_one_that_darktable_adds() {
    let bench = &*BENCH;
    let folder = tempfile::tempdir().unwrap();
    let bright = dng::DngOptions { exposure_ev: 2.0, ..dng::DngOptions::default() };
    let bytes = dng::write_dng(&dng::demo_photo().unwrap(), &bright).unwrap();
    let raw = RawFile { path: folder.path().join("bright.dng"), sha256: Hash::of(&bytes) };
    std::fs::write(&raw.path, bytes).unwrap();
    let mut state = kept::ask(&bench.layouts, &raw.path, &bench.base).unwrap().state;
    state.modules.retain(|module| module.op != "highlights");
    let plain = bench.sidecar(&state);
    let hashed =
        |hashes: &str| plain.replacen("darktable:xmp_version", &format!("{hashes} darktable:xmp_version"), 1);
    let current = r#"darktable:history_current_hash="0123456789abcdef0123456789abcdef""#;
    let automatic = current.replace("current", "auto");
    let usual = ["flip", "rawprepare", "colorin", "colorout", "gamma", "demosaic", "temperature"];
    let bare = EditState {
        modules: state.modules.iter().filter(|module| usual.contains(&module.op.as_str())).cloned().collect(),
        ..state.clone()
    };
    let cases =
        [hashed(current), hashed(&format!("{current} {automatic}")), plain.clone(), bench.sidecar(&bare)];
    let judge = Judge {
        cli: &bench.cli,
        base: &bench.base,
        luts: &bench.made,
        layouts: &bench.layouts,
        deadline: &Deadline::never(),
    };
    let render = |text: &str| {
        bench
            .renderer
            .render_sidecar(&raw, text, EDGE, Quality::Judge)
            .unwrap_or_else(|e| panic!("{e}"))
            .picture
    };
    let pictures: Vec<_> = cases
        .iter()
        .map(|text| {
            let edit = read_sidecar(text.as_bytes(), &raw.path, &judge).unwrap();
            let (theirs, ours) = (render(text), render(&bench.sidecar(&edit.state)));
            assert_eq!(difference(&theirs, &ours), 0);
            theirs
        })
        .collect();
    // The signs differ from version to version; that some tell can be seen on each.
    let all = pictures.iter().map(|picture| difference(&pictures[0], picture));
    assert!(all.max() > Some(4), "no sign shows anything");
}

#[test]
fn moves_stand_on_an_imported_edit() {
    let bench = &*BENCH;
    let imported = bench.read("reordered", &bench.written("reordered"));
    let facts = PhotoFacts { baseline: imported.clone(), ..bench.facts.clone() };
    let apply = |state: &EditState, ev: f64, mask: Option<&str>| {
        let values = BTreeMap::from([("ev".to_owned(), ev)]);
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: "exposure", values: &values, mask: mask.as_ref() };
        bench.vocabulary.apply(&request, state, &facts, &bench.layouts, bench.cli.version()).unwrap().state
    };
    let ev = |state: &EditState, instance| match &state.module("exposure", instance).unwrap().params {
        Params::Fields(fields) => fields["exposure"].clone(),
        Params::Opaque(_) => panic!("exposure has a layout"),
    };
    let brighter = apply(&imported, 0.5, None);
    let (Value::Float(before), Value::Float(after)) = (ev(&imported, 0), ev(&brighter, 0)) else {
        panic!("exposure is a float")
    };
    assert!((after - before - 0.5).abs() < 1e-6);
    assert_eq!(apply(&brighter, 0.0, None), imported, "at rest it is the imported edit again");
    // A masked move takes its place after the last instance, and the imported order stays.
    let spot = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2}"#;
    let masked = apply(&brighter, 1.0, Some(spot));
    assert_eq!(ev(&masked, 1), ev(&imported, 1));
    let list = order::list(&masked).unwrap();
    assert!(list.contains(",filmicrgb,0,exposure,1,exposure,2,"), "{list}");
    let pictures =
        two_at_a_time(&[&imported, &brighter, &masked], |state| bench.render(&bench.sidecar(state)));
    assert!(difference(&pictures[0], &pictures[1]) > 4 && difference(&pictures[1], &pictures[2]) > 4);
}

/// As a darktable of before 3.8 writes it: exposure without its last switches, blending of a former version.
fn aged(sidecar: &str) -> String {
    let mut text = sidecar.to_owned();
    for item in items(sidecar).into_iter().filter(|item| item.contains("operation=\"exposure\"")) {
        let (params, version) = (attribute(item, "params"), attribute(item, "modversion"));
        let old = item.replacen(&params, &params[..40], 1);
        let old = old.replace(&format!("modversion=\"{version}\""), "modversion=\"5\"");
        text = text.replacen(item, &old.replace("blendop_version=\"11\"", "blendop_version=\"10\""), 1);
    }
    text
}

#[test]
fn moves_go_on_from_an_edit_of_an_older_darktable() {
    let bench = &*BENCH;
    let judge = Judge {
        cli: &bench.cli,
        base: &bench.base,
        luts: &bench.made,
        layouts: &bench.layouts,
        deadline: &Deadline::never(),
    };
    // One exposure for the whole picture, and two under masks.
    let old = aged(&bench.sidecar(&bench.masked()));
    assert_eq!(old.matches("blendop_version=\"10\"").count(), 3);
    let edit = read_sidecar(old.as_bytes(), &bench.raw.path, &judge).unwrap();
    assert_eq!(edit.old, []);
    for instance in 0..3 {
        let module = edit.state.module("exposure", instance).unwrap();
        assert!(matches!(module.params, Params::Fields(_)), "{instance}");
        assert!(module.blend.as_ref().is_none_or(|blend| blend.opaque.is_none()), "{instance}");
    }
    let facts = PhotoFacts { baseline: edit.state.clone(), ..bench.facts.clone() };
    let values = BTreeMap::from([("ev".to_owned(), 0.3)]);
    let request = ApplyRequest { move_name: "exposure", values: &values, mask: None };
    let brighter =
        bench.vocabulary.apply(&request, &edit.state, &facts, &bench.layouts, bench.cli.version()).unwrap();
    let texts = [old, bench.sidecar(&edit.state), bench.sidecar(&brighter.state)];
    let pictures = two_at_a_time(&texts, |text| bench.render(text));
    assert_eq!(difference(&pictures[0], &pictures[1]), 0);
    let mean = |picture: &Picture| {
        picture.rgb.iter().map(|value| f64::from(*value)).sum::<f64>() / picture.rgb.len() as f64
    };
    // Bright colours lose colour as they gain light, and so some of one channel.
    let light = |picture: &Picture| -> Vec<u32> {
        let of = |rgb: &[u8]| 2 * u32::from(rgb[0]) + 7 * u32::from(rgb[1]) + u32::from(rgb[2]);
        picture.rgb.chunks_exact(3).map(of).collect()
    };
    let [before, after] = [1, 2].map(|at: usize| light(&pictures[at]));
    assert!(before.iter().zip(&after).all(|(before, after)| after >= before));
    assert!(mean(&pictures[2]) > mean(&pictures[1]) + 4.0);
}

#[test]
fn a_style_looks_as_darktable_applies_it() {
    let bench = &*BENCH;
    if !bench.makes_styles() {
        return;
    }
    let file = bench.made.join("Dusk & dawn.dtstyle");
    let style = dtstyle::read(&std::fs::read(file).unwrap(), &bench.layouts, bench.cli.version()).unwrap();
    assert_eq!((style.name.as_str(), style.description.as_str()), ("Dusk & dawn", "of a test"));
    let states = [style.apply(&bench.facts.baseline), style.apply(&bench.edited())];
    let ours = two_at_a_time(&states, |state| bench.render(&bench.sidecar(state)));
    for (name, ours) in ["plain", "edited"].into_iter().zip(ours) {
        let theirs = checks::decode(
            &std::fs::read(bench.made.join(format!("{name}.png"))).unwrap(),
            image::ImageFormat::Png,
        )
        .unwrap();
        assert_eq!(difference(&theirs, &ours), 0, "{name}");
    }
}

/// A user with a home of her own and the photo in it.
struct Home(tempfile::TempDir);

impl Home {
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_chemigram"))
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.0.path())
            .envs(std::env::vars_os().filter(|(name, _)| name == "CHEMIGRAM_DARKTABLE_CLI"))
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(&[arguments, &["--json", "-q"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn a_person_takes_an_edit_a_style_and_bindings_over() {
    let bench = &*BENCH;
    let home = Home(tempfile::tempdir().unwrap());
    let path = |name: &str| home.0.path().join(name);
    std::fs::copy(&bench.raw.path, path("cup.dng")).unwrap();

    // A sidecar that cannot be followed leaves nothing behind.
    let plain = bench.sidecar(&bench.facts.baseline);
    let exposed = item(&plain, "exposure");
    let known = attribute(exposed, "modversion").parse::<u32>().unwrap();
    let [known, newer] = [known, known + 1].map(|version| format!("version=\"{version}\""));
    std::fs::write(path("cup.dng.xmp"), plain.replace(exposed, &exposed.replace(&known, &newer))).unwrap();
    let refused = home.run(&["ingest", "cup.dng", "--import-sidecar"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    for word in ["exposure", &newer.replace("=\"", " ").replace('"', ","), bench.cli.version()] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(home.json(&["photos"]).as_array().unwrap().is_empty());

    std::fs::write(path("cup.dng.xmp"), bench.written("masked")).unwrap();
    let ingested = home.json(&["ingest", "cup.dng", "--import-sidecar"]);
    assert_eq!(
        (&ingested["imported"]["branch"], &ingested["imported"]["masks"]),
        (&"imported".into(), &6.into())
    );
    assert_eq!(home.json(&["status", "cup"])["head"]["branch"], "imported");
    std::fs::write(path("other.xmp"), bench.written("reordered")).unwrap();
    let other = home.json(&["import-sidecar", "cup", "other.xmp", "--branch", "v2", "--label", "for print"]);
    assert_eq!((&other["branch"], &other["unchanged"]), (&"v2".into(), &false.into()));
    assert_eq!(home.json(&["import-sidecar", "cup", "other.xmp", "--branch", "v2"])["unchanged"], true);

    // Neutral is the imported edit: nothing to record.
    assert_eq!(home.json(&["apply", "cup", "exposure", "ev=0"])["unchanged"], true);
    if bench.makes_styles() {
        std::fs::copy(bench.made.join("Dusk & dawn.dtstyle"), path("style.dtstyle")).unwrap();
        assert_eq!(home.json(&["vocab", "import", "style.dtstyle"])["style"], "dusk_dawn");
        assert_eq!(home.json(&["apply", "cup", "dusk_dawn"])["unchanged"], false);
        assert_eq!(home.json(&["apply", "cup", "dusk_dawn"])["unchanged"], true);
        let masked = home.run(&["apply", "cup", "dusk_dawn", "strength=0.5"]);
        assert_eq!(masked.status.code(), Some(2));
    }

    // An edit of an older darktable is one to go on from.
    std::fs::write(path("old.xmp"), aged(&plain)).unwrap();
    let old = home.json(&["import-sidecar", "cup", "old.xmp", "--branch", "old"]);
    assert!(old["old"].is_null(), "{old}");
    home.json(&["checkout", "cup", "old"]);
    assert_eq!(home.json(&["apply", "cup", "exposure", "ev=0.3"])["unchanged"], false);
    home.json(&["checkout", "cup", "imported"]);

    // Layers: the words of the file are told, bound, and found again.
    let nothing = home.json(&["bind-layers", "cup"]);
    let camera = nothing["layers"]["camera"].as_str().unwrap().to_owned();
    assert_eq!(nothing["layers"]["nothing_for"].as_array().unwrap().len(), 2);
    let folder = path(".local/share/chemigram/vocabulary/bindings");
    std::fs::create_dir_all(&folder).unwrap();
    let binding = format!(
        "[[binding]]\ncamera = {camera:?}\nlayer = 1\napply = [{{ move = \"chroma\", values = {{ amount = 0.1 }} }}]\n"
    );
    std::fs::write(folder.join("mine.toml"), binding).unwrap();
    assert_eq!(home.json(&["bind-layers", "cup", "--dry-run"])["commit"], serde_json::Value::Null);
    let bound = home.json(&["bind-layers", "cup"]);
    assert_eq!(bound["layers"]["applied"][0], "chroma amount=0.10");
    assert_eq!(
        (&bound["unchanged"], &home.json(&["bind-layers", "cup"])["unchanged"]),
        (&false.into(), &true.into())
    );
    assert!(home.json(&["fsck", "cup"])["findings"].as_array().is_none_or(Vec::is_empty));
}
