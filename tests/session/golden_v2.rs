//! The second golden set: photographs, made into raws when they are needed.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{darktable, shared};
use base::assets::Overlay;
use base::clock::Deadline;
use base::ids::Hash;
use chemigram::eval::golden::Golden;
use chemigram::eval::metrics::pixels::{Gaze, Yardstick};
use chemigram::eval::metrics::{EDGE, MeasureContext};
use chemigram::eval::scenario::Scenario;
use darktable::frame::{Orientation, StoredSize};
use darktable::layout::Layouts;
use darktable::oneshot::Encoder;
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::vocabulary::{PhotoFacts, Shot, Vocabulary};
use testkit::kept::{self, ALIVE, Kept};

/// The least mean ΔE2000 from the baseline to a hidden edit, all over; where it acts it is several times as much.
const VISIBLE: f64 = 1.5;
/// The least in the region that it is made for.
const VISIBLE_IN_PLACE: f64 = 3.0;

fn set() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/golden_v2")
}

fn golden() -> Golden {
    Golden::load(&set()).unwrap_or_else(|e| panic!("{e}"))
}

/// Where raws are made, once for all tests.
fn raws() -> PathBuf {
    shared().join("golden_raws")
}

fn tagged(scenario: &Scenario, tag: &str) -> bool {
    scenario.metadata.tags.iter().any(|one| one == tag)
}

#[test]
fn the_set_is_what_it_says() {
    let golden = golden();
    assert_eq!(golden.manifest.primary, "recovery");
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let scenarios = &golden.scenarios;
    let count = |holds: &dyn Fn(&Scenario) -> bool| scenarios.iter().filter(|one| holds(one)).count();
    let upright = |one: &Scenario| {
        let [width, height] = one.image.recipe.as_ref().unwrap().size;
        assert_eq!(tagged(one, "portrait format"), height > width, "{}", one.id);
        height > width
    };
    assert_eq!(
        (scenarios.len(), count(&|one| !one.hidden.is_empty())),
        (24, 22),
        "as README.md of the set says"
    );
    assert!(4 * count(&upright) >= scenarios.len(), "{} are upright", count(&upright));
    assert_eq!(count(&|one| one.expected.unchanged && tagged(one, "no change")), 2);
    assert!(count(&|one| tagged(one, "several wishes")) >= 10);
    assert!(count(&|one| one.hidden.iter().any(|hidden| hidden.mask.is_some())) >= 12);
    let forbids =
        |one: &Scenario| one.brief.constraints.iter().any(|line| line.to_lowercase().contains("without"));
    assert!(count(&forbids) >= 10, "{} say what must not happen", count(&forbids));
    for scenario in scenarios {
        let id = &scenario.id;
        assert_eq!(scenario.unknown_moves(&vocabulary), Vec::<String>::new(), "{id}");
        assert!(!scenario.brief.constraints.is_empty(), "{id}");
        let told = format!("{} {:?}", scenario.brief_text(), scenario.vectors).to_lowercase();
        assert!(!told.contains(|c: char| c.is_ascii_digit()), "{id}: a number: {told}");
        for hidden in scenario.hidden.iter().filter(|hidden| hidden.name.contains('_')) {
            assert!(!told.contains(&hidden.name), "{id} names {}", hidden.name);
        }
        assert!(!scenario.image.path.extension().unwrap().eq_ignore_ascii_case("jpg"));
    }
}

#[test]
fn every_picture_is_small_and_its_source_is_listed_by_its_hash() {
    let golden = golden();
    let licences = std::fs::read_to_string(set().join("LICENCES.md")).unwrap();
    let used: BTreeSet<PathBuf> = golden
        .scenarios
        .iter()
        .map(|one| one.folder.join(&one.image.recipe.as_ref().unwrap().picture).canonicalize().unwrap())
        .collect();
    let there: BTreeSet<PathBuf> =
        std::fs::read_dir(set().join("pictures")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(used, there, "every picture is used, and every one that is used is there");
    for picture in &there {
        let bytes = std::fs::read(picture).unwrap();
        assert!(bytes.len() < 600_000, "{}: {} bytes", picture.display(), bytes.len());
        let (name, hash) = (picture.file_name().unwrap().to_str().unwrap(), Hash::of(&bytes));
        let line = licences.lines().find(|line| line.contains(&format!("`{name}`")));
        let line = line.unwrap_or_else(|| panic!("LICENCES.md does not name {name}"));
        assert!(line.contains(hash.as_str()), "{name} is {hash}");
        assert!(["CC0", "public domain", "CC BY 2.0"].iter().any(|one| line.contains(one)), "{line}");
        assert!(!line.contains("-SA"), "{line}");
    }
    let bytes: u64 =
        golden.manifest.files.keys().map(|file| set().join(file).metadata().unwrap().len()).sum();
    assert!(bytes < 8 << 20, "{bytes} bytes are too many for a repository");
}

/// The facts of a scenario's photo: all raws are of one camera, so darktable's default edit is the same.
fn facts(baseline: &EditState, scenario: &Scenario) -> PhotoFacts {
    let [width, height] = scenario.image.recipe.as_ref().unwrap().size.map(|side| side & !1);
    PhotoFacts {
        baseline: baseline.clone(),
        size: StoredSize { width, height },
        orientation: Orientation::default(),
        shot: Shot::default(),
    }
}

#[test]
fn every_raw_is_made_to_its_hash_and_every_hidden_edit_is_visible() {
    let golden = golden();
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
    let base = shared().join("darktable");
    let deadline = Deadline::never();
    // Made anew, whatever earlier tests left.
    let first = &golden.scenarios[0];
    let made = first.image.recipe.as_ref().unwrap().make(&first.folder).unwrap();
    assert_eq!(Hash::of(&made), first.image.sha256);
    let raw = first.raw(Some(&raws())).unwrap();
    let baseline = kept::ask(&layouts, &raw.path, &base).unwrap().state;
    let look = |turn: usize| {
        let encode = layouts.clone();
        let encode: Arc<Encoder> = Arc::new(move |state: &EditState, name: &str| {
            xmp::write(state, &encode, name).map_err(|e| e.to_string())
        });
        let worker = Worker::new(darktable(), &base, Arc::clone(&encode)).unwrap();
        let worker = Kept::new(worker, ALIVE, encode, None);
        let context = MeasureContext {
            vocabulary: &vocabulary,
            layouts: &layouts,
            renderer: &worker,
            deadline: &deadline,
        };
        for scenario in golden.scenarios.iter().skip(turn).step_by(2) {
            let (id, facts) = (&scenario.id, facts(&baseline, scenario));
            let raw = scenario.raw(Some(&raws())).unwrap_or_else(|e| panic!("{id}: {e}"));
            let Some(target) = scenario.target(&context, &facts).unwrap() else { continue };
            let gaze = Gaze::new(&context, raw, facts.clone(), EDGE / 2);
            let (before, after) = (gaze.see(&baseline).unwrap(), gaze.see(&target).unwrap());
            let regions = gaze.regions(&scenario.regions).unwrap();
            let yardstick = Yardstick::new(before.clone(), after.clone(), regions);
            let yardstick = yardstick.unwrap_or_else(|| panic!("{id}: nobody would see it"));
            assert!(yardstick.length() > VISIBLE, "{id}: {}", yardstick.length());
            let seen: BTreeMap<&str, f64> = yardstick.regions();
            for place in &scenario.expected.mask_targets {
                assert!(seen[place.as_str()] > VISIBLE_IN_PLACE, "{id}: {place} {seen:?}");
            }
            let (nothing, everything) = (yardstick.hold(&before), yardstick.hold(&after));
            assert_eq!((nothing.recovery, everything.recovery), (0.0, 1.0), "{id}");
        }
    };
    std::thread::scope(|scope| {
        let look = &look;
        let threads = [0, 1].map(|turn| scope.spawn(move || look(turn)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
