//! The golden set that comes along is as it was shipped, and each of its hidden edits can be found again.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{darktable, shared};
use assert_cmd::Command;
use base::assets::Overlay;
use base::clock::Deadline;
use chemigram::eval::golden::{Finding, Golden, Problem};
use chemigram::eval::metrics::pixels::{Gaze, Yardstick};
use chemigram::eval::metrics::{self, EDGE, MeasureContext};
use chemigram::eval::scenario::Scenario;
use darktable::frame::{Orientation, StoredSize};
use darktable::layout::Layouts;
use darktable::oneshot::Encoder;
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::vocabulary::{PhotoFacts, Vocabulary};
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;
use pixels::metrics::vectors::vector_axes;
use testkit::kept::{self, ALIVE, Kept};

fn set() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/golden_v1")
}

/// A copy of the set that may be spoilt.
fn copy(to: &Path) -> (PathBuf, Vec<String>) {
    let copy = to.join("golden_v1");
    let golden = Golden::load(&set()).unwrap();
    let files: Vec<String> = golden.manifest.files.keys().cloned().collect();
    for file in files.iter().map(String::as_str).chain(["manifest.json"]) {
        std::fs::create_dir_all(copy.join(file).parent().unwrap()).unwrap();
        std::fs::copy(set().join(file), copy.join(file)).unwrap();
    }
    (copy, files)
}

#[test]
fn the_set_is_as_it_was_shipped_and_is_what_it_says() {
    let golden = Golden::load(&set()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(golden.manifest.primary, "recovery");
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let raws: BTreeSet<&str> = golden.scenarios.iter().map(|s| s.image.sha256.as_str()).collect();
    let hidden: Vec<&Scenario> = golden.scenarios.iter().filter(|s| !s.hidden.is_empty()).collect();
    let told = (golden.scenarios.len(), raws.len(), hidden.len());
    assert_eq!(told, (28, 16, 24), "as README.md of the set says");
    for scenario in &golden.scenarios {
        assert_eq!(scenario.unknown_moves(&vocabulary), Vec::<String>::new(), "{}", scenario.id);
        assert_eq!(scenario.raw(None).unwrap().sha256, scenario.image.sha256);
        let brief = scenario.brief_text();
        for hidden in &scenario.hidden {
            let figures = hidden.values.values().any(|value| brief.contains(&value.to_string()));
            let named = hidden.name.contains('_') && brief.contains(&hidden.name);
            assert!(!named && !figures, "{}: the brief gives {} away", scenario.id, hidden.name);
        }
    }
    let bytes: u64 = golden.manifest.files.keys().map(|f| set().join(f).metadata().unwrap().len()).sum();
    assert!(bytes < 15 << 20, "{bytes} bytes are too many for a repository");
}

#[test]
fn the_page_of_metrics_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page == metrics::page(), "`cargo run --example metrics_page > docs/metrics.md` writes it anew");
}

#[test]
fn the_scenario_that_the_documentation_shows_is_one() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scenarios.md")).unwrap();
    let text = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("021_window_figure");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("scenario.toml"), text).unwrap();
    let shown = Scenario::load(&folder).unwrap_or_else(|e| panic!("{e}"));
    let shipped = Scenario::load(&set().join("021_window_figure")).unwrap();
    assert_eq!(shown.image, shipped.image);
}

#[test]
fn one_byte_changed_in_any_file_is_found_and_the_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (copy, files) = copy(dir.path());
    assert_eq!(Golden::verify(&copy).unwrap(), []);
    for file in &files {
        let mut bytes = std::fs::read(copy.join(file)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(copy.join(file), bytes).unwrap();
    }
    let changed = |file: &String| Finding { file: file.clone(), problem: Problem::Changed };
    assert_eq!(Golden::verify(&copy).unwrap(), files.iter().map(changed).collect::<Vec<_>>());
    let refused = Golden::load(&copy).unwrap_err().to_string();
    assert!(refused.contains(&format!("{} was changed", files[0])), "{refused}");
}

#[test]
fn a_manifest_that_was_changed_with_its_files_is_found_too() {
    let dir = tempfile::tempdir().unwrap();
    let (copy, _) = copy(dir.path());
    let manifest = copy.join("manifest.json");
    std::fs::remove_file(copy.join("001_dim_portrait/reference.md")).unwrap();
    std::fs::write(copy.join("raws/more.dng"), "x").unwrap();
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"primary\": \"recovery\"", "\"primary\": \"cost\"")).unwrap();
    let found: Vec<(String, Problem)> =
        Golden::verify(&copy).unwrap().into_iter().map(|f| (f.file, f.problem)).collect();
    let expected = [
        ("manifest.json", Problem::Changed),
        ("001_dim_portrait/reference.md", Problem::Missing),
        ("raws/more.dng", Problem::Added),
    ];
    assert_eq!(found, expected.map(|(file, problem)| (file.to_owned(), problem)));
}

#[test]
fn eval_verify_says_so_by_its_status_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let verify = |set: &Path| {
        let mut command = Command::cargo_bin("chemigram").unwrap();
        let command = command.env("HOME", &home).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
        let output = command.args(["eval", "verify"]).arg(set).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (copy, _) = copy(dir.path());
    let (status, text) = verify(&copy);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("28 scenarios (24 with a hidden edit)"), "{text}");
    let spoilt = copy.join("017_meadow_sky/scenario.toml");
    let brief = std::fs::read_to_string(&spoilt).unwrap();
    std::fs::write(&spoilt, brief.replacen("pale", "Pale", 1)).unwrap();
    let (status, text) = verify(&copy);
    assert_eq!(status, Some(5), "{text}");
    assert!(text.contains("017_meadow_sky/scenario.toml was changed"), "{text}");
}

/// The photo of a scenario as darktable develops it: all raws are of one camera, so the edit is the same.
fn facts(baseline: &EditState, scenario: &Scenario) -> PhotoFacts {
    // Width and height of the mosaic, from the DNG's first directory.
    let raw = std::fs::read(scenario.raw(None).unwrap().path).unwrap();
    let entry = |tag: u16| {
        let at = (10..).step_by(12).find(|at| raw[*at..at + 2] == tag.to_le_bytes()).unwrap();
        u32::from_le_bytes(raw[at + 8..at + 12].try_into().unwrap())
    };
    PhotoFacts {
        baseline: baseline.clone(),
        size: StoredSize { width: entry(256), height: entry(257) },
        orientation: Orientation::default(),
        shot: engine::vocabulary::Shot::default(),
    }
}

#[test]
fn doing_nothing_recovers_nothing_and_the_hidden_edit_everything() {
    let golden = Golden::load(&set()).unwrap();
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
    let base = shared().join("darktable");
    let deadline = Deadline::never();
    let first = golden.scenarios[0].raw(None).unwrap();
    let baseline = kept::ask(&layouts, &first.path, &base).unwrap().state;
    let hidden: Vec<&Scenario> = golden.scenarios.iter().filter(|s| !s.hidden.is_empty()).collect();
    // Two darktables, each with every other scenario.
    let look = |turn: usize| {
        let encode = layouts.clone();
        let encode: Arc<Encoder> = Arc::new(move |state: &EditState, name: &str| {
            xmp::write(state, &encode, name).map_err(|e| e.to_string())
        });
        let worker = Worker::new(darktable(), &base, Arc::clone(&encode)).unwrap();
        let worker = Kept::new(worker, ALIVE, encode, None);
        let eyes = MeasureContext {
            vocabulary: &vocabulary,
            layouts: &layouts,
            renderer: &worker,
            deadline: &deadline,
        };
        for scenario in hidden.iter().skip(turn).step_by(2) {
            let (id, facts) = (&scenario.id, facts(&baseline, scenario));
            // Half the size at which sessions are measured: a quarter of the arithmetic.
            let gaze = Gaze::new(&eyes, scenario.raw(None).unwrap(), facts.clone(), EDGE / 2);
            let before = gaze.see(&baseline).unwrap();
            let after = gaze.see(&scenario.target(&eyes, &facts).unwrap().unwrap()).unwrap();
            let regions = gaze.regions(&scenario.regions).unwrap();
            let yardstick = Yardstick::new(before.clone(), after.clone(), regions);
            let yardstick = yardstick.unwrap_or_else(|| panic!("{id}: nobody would see it"));
            assert!(yardstick.length() > 1.5, "{id}: {}", yardstick.length());
            let (nothing, everything) = (yardstick.hold(&before), yardstick.hold(&after));
            assert_eq!((nothing.recovery, everything.recovery), (0.0, 1.0), "{id}");
            assert!(nothing.regions.values().all(|share| *share == 0.0), "{id}: {nothing:?}");
            assert!(everything.regions.values().all(|share| *share == 1.0), "{id}: {everything:?}");
            assert_eq!((nothing.over_edit, everything.over_edit), (0.0, 0.0), "{id}");
            // The scenario's own words and bounds hold for its own answer.
            let (was, is) = (ImageStats::of(&before), ImageStats::of(&after));
            let difference = Difference::between(&before, &after).unwrap();
            for vector in &scenario.vectors {
                let axes = vector_axes(vector.name.as_str(), &vector.direction);
                let check = VectorCheck::of(&axes, &was, &is, &difference);
                assert_eq!(check.direction, Verdict::Met, "{id}: {axes:?} {check:?}");
            }
            for direction in &scenario.expected.directions {
                let steps = direction.axis.steps(&was, &is);
                let bounds = direction.min..=direction.max;
                assert!(bounds.contains(&steps), "{id}: {} {steps} {bounds:?}", direction.axis);
            }
            let local = !scenario.expected.mask_targets.is_empty();
            assert!(!local || !everything.regions.is_empty(), "{id}: its regions do not see its edit");
        }
    };
    std::thread::scope(|scope| {
        let look = &look;
        let threads = [0, 1].map(|turn| scope.spawn(move || look(turn)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
