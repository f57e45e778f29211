//! Back into darktable: edits of every kind, written as duplicates beside the raw, and found there by plain
//! darktable-cli, which has never heard of this program.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure in a helper is the failure of its test"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base::ids::Hash;
use darktable::state::EditState;
use darktable::{duplicates, preload, xmp};
use engine::vocabulary::Spot;
use pixels::Picture;
use testkit::demo::{Demo, LONG_EDGE};
use testkit::folder::kept_folder;

/// How many moves and looks of the vocabulary are taken, one every few.
const SAMPLES: usize = 40;

/// One mask of every kind.
const MASKS: [&str; 8] = [
    r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2,"feather":0.1}"#,
    r#"{"shape":"ellipse","center":[0.5,0.4],"radius":[0.3,0.2],"rotation":20}"#,
    r#"{"shape":"gradient","anchor":[0.5,0.4],"angle":20,"width":0.3}"#,
    r#"{"shape":"path","points":[[0.2,0.2],[0.8,0.3],[0.6,0.9]]}"#,
    r#"{"shape":"brush","strokes":[[[0.1,0.2],[0.3,0.3],[0.5,0.2]]],"width":0.1}"#,
    r#"{"named":"left_half"}"#,
    r#"{"range":"luminance","from":0,"to":40,"softness":10}"#,
    r#"{"intersection":[{"range":"chroma","from":10,"to":100},{"named":"left_half"}]}"#,
];

const SPOTS: [&str; 3] = [
    r#"{"action":"heal","x":0.3,"y":0.4,"radius":0.04,"source":[0.5,0.4]}"#,
    r#"{"action":"clone","x":0.7,"y":0.6,"radius":0.05,"source":[0.6,0.3]}"#,
    r#"{"action":"blur","path":[[0.4,0.7],[0.6,0.7],[0.5,0.9]],"blur_radius":0.02}"#,
];

/// Edits of every kind, with their names.
fn edits(demo: &Demo) -> Vec<(String, EditState)> {
    let baseline = &demo.facts.baseline;
    let none = BTreeMap::new();
    let moves = demo.vocabulary.moves().filter(|entry| entry.shown_on.is_none()).map(|entry| &entry.name);
    let looks: Vec<&String> = demo.vocabulary.looks().map(|look| &look.name).collect();
    let possible = |name: &&String| demo.try_state(baseline, name, &none, None).is_ok();
    let moves: Vec<&String> = moves.filter(possible).collect();
    let step = moves.len() / (SAMPLES - looks.len().min(SAMPLES / 2));
    let sampled = moves.iter().step_by(step.max(1)).copied().chain(looks.iter().copied().filter(possible));
    let mut all: Vec<(String, EditState)> = vec![("baseline".into(), baseline.clone())];
    for name in sampled.take(SAMPLES) {
        all.push((name.clone(), demo.try_state(baseline, name, &none, None).unwrap()));
    }
    for (at, mask) in MASKS.iter().enumerate() {
        all.push((format!("mask {at}"), demo.apply(baseline, "exposure", &[("ev", 0.7)], Some(mask)).state));
    }
    let masked = demo.try_state(baseline, "bleach_bypass", &none, Some(MASKS[0])).unwrap();
    all.push(("masked look".into(), masked));
    for (at, spot) in SPOTS.iter().enumerate() {
        let spot: Spot = serde_json::from_str(spot).unwrap();
        let (facts, layouts) = (&demo.facts, &demo.layouts);
        let spots = demo.vocabulary.place_spots(&[spot], baseline, facts, layouts, demo.version()).unwrap();
        let applied = demo.vocabulary.apply_spots(&spots, baseline, facts, layouts, demo.version()).unwrap();
        all.push((format!("spot {at}"), applied.state));
    }
    all
}

/// Every version of the pictures in `folder`, as one darktable-cli exports them that finds the sidecars by itself.
fn by_darktable(demo: &Demo, folder: &Path) -> BTreeMap<usize, Picture> {
    let work = tempfile::tempdir().unwrap();
    let edge = LONG_EDGE.to_string();
    let mut command = Command::new(demo.cli().path());
    command.arg(folder).arg(work.path().join("out/$(VERSION).png"));
    command.args(["--width", &edge, "--height", &edge, "--hq", "false", "--icc-type", "SRGB"]);
    command.args(["--apply-custom-presets", "false", "--core", "--library", ":memory:", "--disable-opencl"]);
    command.args(["--conf", "write_sidecar_files=never", "--conf", "plugins/imageio/format/png/bpp=8"]);
    command.arg("--configdir").arg(work.path().join("config"));
    // Without it darktable gives now one picture and now another: see docs/adr/0010.
    command.envs(preload::repeatable(demo.cli(), work.path()).unwrap()).current_dir(work.path());
    let output = command.output().unwrap();
    let files = std::fs::read_dir(work.path().join("out"))
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let read = |path: &Path| {
        let image = image::open(path).unwrap().into_rgb8();
        Picture { width: image.width(), height: image.height(), rgb: image.into_raw() }
    };
    files
        .map(|file| file.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), read(&path)))
        .collect()
}

#[test]
fn darktable_finds_every_edit_beside_the_raw_and_gives_the_branchs_pixels() {
    let demo = Demo::open();
    let edits = edits(&demo);
    assert!(edits.len() >= SAMPLES + MASKS.len() + SPOTS.len() + 2, "{}", edits.len());
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&demo.raw.path, folder.path().join("demo.dng")).unwrap();
    let mut sidecars = String::new();
    for (at, (name, state)) in edits.iter().enumerate() {
        let text = xmp::write(&duplicates::named(state, name), &demo.layouts, "demo.dng").unwrap();
        let made = duplicates::write(folder.path(), "demo.dng", &text).unwrap();
        assert_eq!(made.file, duplicates::place(folder.path(), "demo.dng", at as u32 + 1), "{name}");
        sidecars.push_str(&text);
    }
    let states: Vec<EditState> = edits.iter().map(|(_, state)| state.clone()).collect();
    let ours = demo.render_all(&states);
    let hashes = ours.iter().map(|picture| picture.pixel_hash().to_string()).collect::<String>();

    // The last word on these very sidecars and pictures is kept, as the pictures themselves are.
    let proved = kept_folder("duplicates").join("proved");
    let key = Hash::of(format!("{} {}\n{sidecars}\n{hashes}", demo.version(), demo.raw.sha256)).to_string();
    if std::fs::read_to_string(&proved).is_ok_and(|known| known == key) {
        return;
    }
    let theirs = by_darktable(&demo, folder.path());
    // The raw has no sidecar of its own, so that there is no version 0.
    assert_eq!(theirs.keys().copied().collect::<Vec<_>>(), (1..=edits.len()).collect::<Vec<_>>());
    for (at, (name, _)) in edits.iter().enumerate() {
        assert!(theirs[&(at + 1)] == *ours[at], "{name}: other pixels");
    }
    let changed = ours.iter().filter(|picture| ***picture != *ours[0]).count();
    assert!(changed > edits.len() * 3 / 4, "{changed} of {} edits can be seen", edits.len());
    std::fs::write(&proved, key).unwrap();
}
