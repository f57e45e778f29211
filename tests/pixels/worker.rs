//! The renderer that keeps darktable alive, held against the plain one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure in a helper is the failure of its test")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use darktable::preload;
use darktable::probe::DarktableCli;
use darktable::render::{ByHand, Quality, RenderRequest, Renderer};
use darktable::state::EditState;
use testkit::demo::{self, Demo, deadline};

const SPOT: &str = r#"{"shape":"circle","center":[0.7,0.3],"radius":0.25,"feather":0.2}"#;

/// Edits with a name for each: one move of every module, several moves on one another, and masked ones.
fn states(demo: &Demo) -> Vec<(String, EditState)> {
    let baseline = &demo.facts.baseline;
    let listed = demo.vocabulary.list(&Default::default(), &demo.layouts, demo.version()).unwrap();
    let modules = listed.iter().filter(|entry| !entry.module.is_empty());
    let modules: BTreeMap<&str, &str> = modules.map(|entry| (entry.module, entry.name)).collect();
    assert!(modules.len() > 40, "{modules:?}");
    let mut states = vec![("baseline".to_owned(), baseline.clone())];
    for (module, name) in modules {
        states.push((format!("{module}, {name}"), demo.apply(baseline, name, &[], None).state));
    }
    let mut grown = baseline.clone();
    for name in ["exposure", "contrast", "saturation", "grain", "crop_left", "sharpen"] {
        grown = demo.apply(&grown, name, &[], None).state;
        states.push((format!("up to {name}"), grown.clone()));
        let masked = demo.apply(&grown, "exposure", &[("ev", -1.0)], Some(SPOT)).state;
        states.push((format!("masked after {name}"), masked));
    }
    states
}

/// A darktable that stays alive, against one for each edit, and against one that has nothing loaded into it: what is
/// loaded saves darktable tables and curves.
#[test]
fn edits_of_every_module_in_any_order_have_the_pixels_of_one_alone_and_of_one_with_nothing_loaded() {
    let demo = Demo::open();
    let states = states(&demo);
    let worker = demo.worker();
    let see = |renderer: &dyn Renderer, state: &EditState| {
        let request = RenderRequest { state, ..preview(&demo) };
        renderer.render(&request, &deadline(), &ByHand).unwrap().picture
    };
    // Every state once, neighbours far apart: the step and the count have no common divisor.
    let count = states.len();
    let step = if count.is_multiple_of(17) { 19 } else { 17 };
    let order: Vec<usize> = (0..count).map(|at| at * step % count).collect();
    let mut kept = vec![None; count];
    for at in order {
        kept[at] = Some(see(&worker, &states[at].1));
    }
    // No request went to the plain renderer: the children never failed.
    assert_eq!(worker.troubles(), 0);
    assert_eq!(worker.children(), 1, "one caller, one level, one child");
    let pictures: Vec<_> = kept.into_iter().map(Option::unwrap).zip(&states).collect();

    let alone = demo.render_alone(&states.iter().map(|(_, state)| state.clone()).collect::<Vec<_>>());
    for (alone, (kept, (name, _))) in alone.iter().zip(&pictures) {
        assert_eq!(kept.pixel_hash(), alone.pixel_hash(), "{name}");
    }
    let judged =
        RenderRequest { state: &states[9].1, long_edge: 300, quality: Quality::Judge, ..preview(&demo) };
    let both =
        [&worker as &dyn Renderer, &demo.renderer].map(|r| r.render(&judged, &deadline(), &ByHand).unwrap());
    assert_eq!(both[0].pixel_hash, both[1].pixel_hash);
    assert_eq!((worker.children(), worker.troubles()), (2, 0));

    // With two threads, as the other: one adds up otherwise, and straightens otherwise on 5.0.1.
    let folder = tempfile::tempdir().unwrap();
    let line = "unset LD_PRELOAD; export OMP_NUM_THREADS=2 MALLOC_PERTURB_=255";
    let cli = after(line, folder.path(), demo.cli().path());
    let plain = demo.alive_by("one that stays alive, with nothing loaded into it", cli);
    for (kept, (name, state)) in &pictures {
        let plain = see(&plain, state);
        assert_eq!(kept.rgb.len(), plain.rgb.len(), "{name}");
        let differences = kept.rgb.iter().zip(&plain.rgb).map(|(a, b)| a.abs_diff(*b));
        let differences: Vec<u8> = differences.filter(|difference| *difference > 0).collect();
        // Without the library, which thread comes first can be seen at the frame's edge of 4.2.1.
        let alike = differences.len() < 100 && differences.iter().all(|difference| *difference == 1);
        let most = differences.iter().max();
        assert!(alike, "{name}: {} samples differ, by {most:?}", differences.len());
    }
    assert_eq!(plain.renderer().troubles(), 0);
    for pid in plain.renderer().pids() {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("/preload.so"), "the library is loaded");
    }
}

fn preview(demo: &Demo) -> RenderRequest<'_> {
    RenderRequest {
        raw: &demo.raw,
        state: &demo.facts.baseline,
        long_edge: demo::LONG_EDGE,
        quality: Quality::Preview,
    }
}

#[test]
fn a_child_that_dies_or_is_cut_costs_a_render_and_nothing_else() {
    let demo = Demo::open();
    let worker = Arc::new(demo.worker());
    let request = preview(&demo);
    let expected = demo.render(&demo.facts.baseline).pixel_hash();
    let pids = worker.pids();
    assert!(pids.is_empty());
    assert_eq!(worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash, expected);
    let [pid] = worker.pids()[..] else { panic!("one child") };
    assert!(worker.take_notes().is_empty());
    kill(pid);
    let after = worker.render(&request, &deadline(), &ByHand).unwrap();
    assert_eq!(after.pixel_hash, expected, "a fresh child renders the same");
    assert_eq!((worker.troubles(), worker.children()), (0, 1));
    let notes = worker.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("died and was replaced"), "{notes:?}");
    // A stopped child hangs: the deadline cuts it, at once and for good.
    let [pid] = worker.pids()[..] else { panic!("one child") };
    signal(pid, "-STOP");
    let soon = deadline().at_most(Duration::from_millis(400));
    // It would hang for ever.
    worker.render(&request, &soon, &ByHand).unwrap_err();
    assert_eq!(worker.children(), 0);
    gone(pid);
    // Nothing outlives the renderer.
    worker.render(&request, &deadline(), &ByHand).unwrap();
    let [pid] = worker.pids()[..] else { panic!("one child") };
    drop(worker);
    gone(pid);
}

/// A darktable-cli to which a line of shell is done first, but the real one otherwise.
fn after(line: &str, folder: &std::path::Path, real: &std::path::Path) -> DarktableCli {
    let stub = folder.join("darktable-cli");
    let text = format!("#!/bin/sh\n{line}\nexec '{}' \"$@\"\n", real.display());
    std::fs::write(&stub, text).unwrap();
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
    DarktableCli::at(&stub, &deadline()).unwrap()
}

fn without_scripts(folder: &std::path::Path, real: &std::path::Path) -> DarktableCli {
    after("for word in \"$@\"; do [ \"$word\" = --luacmd ] && exit 7; done", folder, real)
}

/// The same TIFF with EXIF and without it. The one for the user has it: `tests/pixels/export.rs`.
#[test]
fn a_picture_that_is_looked_at_carries_no_exif() {
    let demo = Demo::open();
    let folder = tempfile::tempdir().unwrap();
    let settings = preload::repeatable(demo.cli(), folder.path()).unwrap();
    let write = |name: &str, without: Option<(&str, &str)>| {
        let file = folder.path().join(name);
        let mut command = Command::new(demo.cli().path());
        command.arg(&demo.raw.path).arg(&file).args(["--width", "64"]);
        // As every darktable here; 5.4.1 with custom presets writes no EXIF at all.
        command.args(["--apply-custom-presets", "false", "--core", "--library", ":memory:"]);
        command.arg("--configdir").arg(folder.path().join("config"));
        command.args(["--conf", "plugins/imageio/format/tiff/bpp=8"]);
        command.envs(settings.iter().copied()).envs(without).current_dir(folder.path());
        assert!(command.output().unwrap().status.success());
        std::fs::read(file).unwrap()
    };
    let [with, without] = [("with.tif", None), ("without.tif", Some(preload::WITHOUT_EXIF))]
        .map(|(name, setting)| write(name, setting));
    let camera = |file: &[u8]| file.windows(17).any(|bytes| bytes == b"Chemigram Synth-1");
    assert!(camera(&with), "no EXIF without the setting either");
    assert!(!camera(&without), "EXIF in spite of the setting");
    let pixels = |file: &[u8]| image::load_from_memory(file).unwrap();
    assert_eq!(pixels(&with), pixels(&without));
}

#[test]
fn without_children_every_picture_still_comes_and_it_is_said() {
    let demo = Demo::open();
    let folder = tempfile::tempdir().unwrap();
    let cli = without_scripts(folder.path(), demo.cli().path());
    let worker = demo.worker_of(cli);
    let request = preview(&demo);
    let expected = demo.render(&demo.facts.baseline).pixel_hash();
    assert_eq!(worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash, expected);
    // Soon after trouble no child is tried.
    assert_eq!(worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash, expected);
    assert_eq!((worker.troubles(), worker.children()), (1, 0));
    let notes = worker.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("started anew"), "{notes:?}");
}

/// Two threads of darktable's own, and two renders at a time that hurry each other: without the library that is
/// loaded into darktable, about half of these pictures are others, on every version.
#[test]
fn an_edit_whose_threads_race_has_one_picture() {
    let demo = Demo::open_photo(Some("overexposed"));
    let state = demo.apply(&demo.facts.baseline, "highlight_color", &[], None).state;
    let request = RenderRequest { state: &state, ..preview(&demo) };
    let plain = demo::two_at_a_time(&[(); 6], |()| {
        demo.renderer.render(&request, &deadline(), &ByHand).unwrap().pixel_hash
    });
    let worker = demo.worker();
    let kept: Vec<_> = std::thread::scope(|scope| {
        let render = || -> Vec<_> {
            (0..10).map(|_| worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash).collect()
        };
        let callers = [scope.spawn(render), scope.spawn(render)];
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    assert!(plain.iter().chain(&kept).all(|hash| *hash == plain[0]), "{plain:?} {kept:?}");
    for pid in worker.pids() {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(maps.contains("/preload.so"), "the library is not loaded");
    }
}

fn kill(pid: u32) {
    signal(pid, "-KILL");
    gone(pid);
}

/// Waits for the end of a process that was killed: a busy machine takes its time.
fn gone(pid: u32) {
    let began = Instant::now();
    while alive(pid) {
        assert!(began.elapsed() < Duration::from_secs(60), "{pid} does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: u32, which: &str) {
    assert!(std::process::Command::new("kill").args([which, &pid.to_string()]).status().unwrap().success());
}

/// Whether the process runs: a zombie does not.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}
