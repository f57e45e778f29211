//! How long pictures take, and how much of that a session waits for: `cargo bench --bench rendering`.
//!
//! With a word behind `--`, only that part: `previews`, `separately`, `measuring`, `thinking`, `looks`, `strengths`,
//! `kept`, `kills`, `together`, `renderers`. Every ratio is of medians or sums taken in one run, the things compared
//! taking turns. `separately` and `looks` are for comparing two builds.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::clock::Deadline;
use base::ids::Hash;
use base::redact::Redactor;
use chemigram::provider::script::Script;
use chemigram::session::driver::Session;
use chemigram::session::start;
use chemigram::tools::BlobStore;
use chemigram::transcript::{Event, Line, Outcome};
use darktable::cache::{Cache, Cached};
use darktable::dng::{DngOptions, demo_photo, write_dng};
use darktable::probe::DarktableCli;
use darktable::render::{ByHand, Picture, Quality, RenderRequest, Rendered, Renderer};
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::{preload, xmp};
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;
use pixels::outline::Outline;
use pixels::segment::segment;
use support::{Studio, confirm, reply, request};
use testkit::demo::Demo;

/// Megapixels, by width and height.
const SIZES: [(&str, u32, u32); 3] = [("0.24", 600, 400), ("6", 3000, 2000), ("24", 6000, 4000)];
/// Rounds at each size. The machine is not always as fast; a big raw takes too long for as many.
const ROUNDS: [usize; SIZES.len()] = [15, 15, 7];

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let parts: [(&str, fn()); 10] = [
        ("previews", previews),
        ("separately", separately),
        ("measuring", measuring),
        ("thinking", thinking),
        ("looks", looks),
        ("strengths", strengths),
        ("kept", kept),
        ("kills", kills),
        ("together", together),
        ("renderers", renderers),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.iter().any(|word| word == name) {
            println!("\n## {name}\n");
            part();
        }
    }
}

/// The demo's photograph at another size.
fn photo(width: u32, height: u32) -> Picture {
    let photo = demo_photo().unwrap();
    let image = image::RgbImage::from_raw(photo.width, photo.height, photo.rgb).unwrap();
    let image = image::imageops::resize(&image, width, height, image::imageops::FilterType::CatmullRom);
    Picture { width, height, rgb: image.into_raw() }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A few edits of the kinds that a session makes, none the same.
fn edits(demo: &Demo, count: usize) -> Vec<EditState> {
    let of = |at: usize| {
        let amount = 0.2 + at as f64 / 20.0;
        let lit = demo.apply(&demo.facts.baseline, "exposure", &[("ev", amount)], None).state;
        demo.apply(&lit, ["contrast", "saturation", "shadows_lift"][at % 3], &[], None).state
    };
    (0..count).map(of).collect()
}

/// Runs darktable-cli itself and returns its wall time and, of `-d perf`, its pixel pipe's.
fn by_hand(demo: &Demo, state: &EditState, args: &[&str], home: &Path) -> (Duration, Option<Duration>) {
    let sidecar = home.join("edit.xmp");
    std::fs::write(&sidecar, xmp::write(state, &demo.layouts, "demo.dng").unwrap()).unwrap();
    let output = home.join("out");
    let _ = std::fs::remove_dir_all(&output);
    std::fs::create_dir_all(&output).unwrap();
    let mut command = Command::new(demo.cli().path());
    command.arg(&demo.raw.path).arg(&sidecar).arg(output.join("out.jpg")).args(args);
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME").stderr(Stdio::piped()).stdout(Stdio::piped());
    if args.contains(&"perf") {
        // As this program runs it.
        command.envs(preload::repeatable(demo.cli(), home).unwrap()).current_dir(home);
    }
    let started = Instant::now();
    let ended = command.output().unwrap();
    let took = started.elapsed();
    assert!(ended.status.success() && output.join("out.jpg").exists());
    let words = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (took, words.lines().find_map(pipe_of))
}

/// One preview: `darktable-cli` as its manual suggests, as this program starts it, and kept alive.
fn previews() {
    println!(
        "| raw | picture | darktable-cli by the manual | one-shot | kept alive | ratio | ratio | pipe alone | above the pipe |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((name, width, height), rounds) in SIZES.into_iter().zip(ROUNDS) {
        let demo = Demo::with(&photo(width, height), &DngOptions::default());
        let worker = demo.worker();
        let home = tempfile::tempdir().unwrap();
        for edge in [512, 1024] {
            let (mut manual, mut oneshot, mut kept, mut pipe) = (vec![], vec![], vec![], vec![]);
            for (round, state) in edits(&demo, rounds + 1).iter().enumerate() {
                let ask = RenderRequest { raw: &demo.raw, state, long_edge: edge, quality: Quality::Preview };
                let edge = edge.to_string();
                let plain = by_hand(&demo, state, &["--width", &edge, "--height", &edge], home.path()).0;
                let told = ["--width", &edge, "--height", &edge, "--hq", "false", "--core", "-d", "perf"];
                let inside = by_hand(&demo, state, &told, home.path()).1.unwrap();
                let once = demo.renderer.render(&ask, &Deadline::never(), &ByHand).unwrap();
                let alive = worker.render(&ask, &Deadline::never(), &ByHand).unwrap();
                assert_eq!(once.pixel_hash, alive.pixel_hash);
                // The first round warms configuration and page cache.
                if round > 0 {
                    manual.push(plain);
                    oneshot.push(once.elapsed);
                    kept.push(alive.elapsed);
                    pipe.push(inside);
                }
            }
            let [manual, oneshot, kept, pipe] = [manual, oneshot, kept, pipe].map(median);
            let ratio = |slow: Duration| slow.as_secs_f64() / kept.as_secs_f64();
            println!(
                "| {name} MP | {edge} px | {manual:.2?} | {oneshot:.2?} | {kept:.2?} | {:.1} | {:.1} | {pipe:.2?} | {:.2?} |",
                ratio(manual),
                ratio(oneshot),
                kept.saturating_sub(pipe)
            );
        }
        assert_eq!(worker.troubles(), 0);
    }
}

/// The same previews, first all that a darktable of their own renders, then all of one that is kept alive: it holds
/// large buffers, and the host that has to find memory for others makes them slower, by chance.
fn separately() {
    println!("| raw | picture | one-shot | kept alive |\n|---|---|---|---|");
    for ((name, width, height), rounds) in SIZES.into_iter().zip(ROUNDS) {
        let demo = Demo::with(&photo(width, height), &DngOptions::default());
        let states = edits(&demo, rounds + 1);
        let all = |renderer: &dyn Renderer, long_edge: u32| {
            let of = |state| {
                let ask = RenderRequest { raw: &demo.raw, state, long_edge, quality: Quality::Preview };
                renderer.render(&ask, &Deadline::never(), &ByHand).unwrap()
            };
            let pictures: Vec<Rendered> = states.iter().map(of).collect();
            let took = median(pictures[1..].iter().map(|picture| picture.elapsed).collect());
            (took, pictures.into_iter().map(|picture| picture.pixel_hash).collect::<Vec<_>>())
        };
        let oneshot = [512, 1024].map(|edge| all(&demo.renderer, edge));
        let worker = demo.worker();
        let kept = [512, 1024].map(|edge| all(&worker, edge));
        assert_eq!(worker.troubles(), 0);
        for ((once, alive), edge) in oneshot.iter().zip(&kept).zip([512, 1024]) {
            assert_eq!(once.1, alive.1);
            println!("| {name} MP | {edge} px | {:.2?} | {:.2?} |", once.0, alive.0);
        }
    }
}

fn worker(studio: &Studio) -> Arc<Worker> {
    worker_of(studio, support::darktable(), &support::shared().join("darktable"))
}

fn worker_of(studio: &Studio, cli: DarktableCli, base: &Path) -> Arc<Worker> {
    let layouts = studio.layouts.clone();
    let encode = move |state: &_, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    Arc::new(Worker::new(cli, base, Arc::new(encode)).unwrap())
}

fn eyes(studio: &Studio, worker: Arc<Worker>) -> Arc<dyn Renderer> {
    Arc::new(Cached::new(worker, Cache::new(studio.dir.path().join("renders"), 4 << 30)))
}

fn studio(raw: &[u8]) -> Studio {
    Studio::with(tempfile::tempdir().unwrap(), raw)
}

fn begin(studio: &Studio, eyes: Arc<dyn Renderer>, renderers: usize, script: &str, edge: u32) -> Session {
    let mut setup = studio.setup(Arc::new(Script::parse("bench", script).unwrap()));
    setup.renderer = eyes;
    setup.renderers = renderers;
    let mut request = request("time=30m,iterations=400,branches=1", &[("tone", "lift the shadows")]);
    request.preview_edge = edge;
    let plan = start::plan(&setup, &request).unwrap();
    start::start(setup, plan).unwrap()
}

/// Runs a session to its end; its lines, and the time from its first model call to its last reply.
fn run(studio: &Studio, mut session: Session) -> (Vec<Line>, Duration) {
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let lines = studio.lines(&session.state.start.session);
    let at = |line: &Line| Duration::from_millis(line.mono_ms);
    let first = lines.iter().find(|line| matches!(line.event, Event::ModelIntent(_))).map(at);
    let last = lines.iter().rfind(|line| matches!(line.event, Event::ModelReply { .. })).map(at);
    let took = last.unwrap() - first.unwrap();
    (lines, took)
}

const THINKING: u64 = 1_500;
const REPLIES: usize = 40;

fn lift(amount: f64) -> String {
    format!(r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {amount:.3}}}}}"#)
}

fn thoughtful(calls: &[(&str, &str)]) -> String {
    reply(calls).replacen("[[reply]]\n", &format!("[[reply]]\ndelay_ms = {THINKING}\n"), 1)
}

const JUDGE: &str = r#"{"branch": "branch_b_tone", "judged_score": 3, "judged_reasoning": "Brighter.", "comparable_to_baseline": true, "key_moves": ["shadows_lift"]}"#;

fn ending() -> String {
    reply(&[("record_judgment", JUDGE), ("end_mode_b_session", r#"{"session_summary": "Done."}"#)])
}

/// Replies of 1.5 s: changing and looking in turns, or both in every reply.
fn script(both: bool, replies: usize) -> String {
    let mut script = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for at in 0..replies {
        let change = lift(0.05 + at as f64 / 30.0);
        let (change, look) = (("apply_primitive", change.as_str()), ("render_preview", "{}"));
        script += &match (both, at % 2) {
            (true, _) => thoughtful(&[change, look]),
            (false, 0) => thoughtful(&[change]),
            (false, _) => thoughtful(&[look]),
        };
    }
    // The time is taken up to this reply: what the last look needed counts, what a judgment needs does not.
    script + &ending()
}

/// The renders of a session: waited for in milliseconds, and how many were hits.
fn waits(lines: &[Line]) -> (Vec<u64>, usize) {
    let of = |line: &Line| match &line.event {
        Event::Render { intent, ms, pixel_hash: Some(_), .. } => Some((*ms, intent.is_none())),
        _ => None,
    };
    let all: Vec<(u64, bool)> = lines.iter().filter_map(of).collect();
    (all.iter().map(|wait| wait.0).collect(), all.iter().filter(|wait| wait.1).count())
}

/// What each preview of the session's own states was waited for, in milliseconds.
fn looks_of(lines: &[Line]) -> Vec<u64> {
    let of = |line: &Line| match &line.event {
        Event::Render { intent: Some(_), ms, pixel_hash: Some(_), quality, .. }
            if *quality == Quality::Preview =>
        {
            Some(*ms)
        }
        _ => None,
    };
    lines.iter().filter_map(of).skip(1).collect()
}

/// A darktable-cli that keeps what `-d perf` says, a file each process in its home.
fn telling(folder: &Path) -> DarktableCli {
    let stub = folder.join("darktable-cli");
    let real = support::darktable();
    let text = format!("#!/bin/sh\n'{}' \"$@\" -d perf | tee \"$HOME/perf.$$\"\n", real.path().display());
    std::fs::write(&stub, text).unwrap();
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
    DarktableCli::at(&stub, &Deadline::never()).unwrap()
}

/// How long the pixel pipes of the last `count` pictures took, of the process that rendered most of them.
fn pipes(base: &Path, count: usize) -> Duration {
    let logs = std::fs::read_dir(base.join("home")).unwrap().flatten();
    let logs = logs.filter(|entry| entry.file_name().to_string_lossy().starts_with("perf."));
    let times = |text: String| text.lines().filter_map(pipe_of).collect::<Vec<_>>();
    let most =
        logs.map(|entry| times(std::fs::read_to_string(entry.path()).unwrap())).max_by_key(Vec::len).unwrap();
    // Before them the picture that it is started with, and the baseline.
    assert_eq!(most.len(), count + 2, "{most:?}");
    most.iter().rev().take(count).sum()
}

/// What a line of `-d perf` says of a whole pixel pipe.
fn pipe_of(line: &str) -> Option<Duration> {
    let took = line.split_once("pixel pipeline processing took ")?.1;
    took.split_whitespace().next()?.parse().ok().map(Duration::from_secs_f64)
}

fn thinking() {
    let raw = write_dng(&photo(3000, 2000), &DngOptions::default()).unwrap();
    // The two replies before the forty think for no time.
    let thought = Duration::from_millis(THINKING) * u32::try_from(REPLIES).unwrap();
    for both in [false, true] {
        let studio = studio(&raw);
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base");
        let eyes = eyes(&studio, worker_of(&studio, telling(folder.path()), &base));
        let (lines, took) = run(&studio, begin(&studio, eyes.clone(), 1, &script(both, REPLIES), 1024));
        let mut waited = looks_of(&lines);
        waited.sort_unstable();
        let waited = waited[waited.len() / 2];
        println!(
            "{}",
            if both {
                "a change and a look in each of forty replies"
            } else {
                "changing and looking in turns, forty replies"
            }
        );
        println!("thinking                         {thought:.2?}");
        println!("the forty replies                {took:.2?}");
        println!("ratio to thinking                {:.3}", took.as_secs_f64() / thought.as_secs_f64());
        if both {
            let pipes = pipes(&base, REPLIES);
            let bound = thought + pipes;
            println!("darktable's pipes of the forty   {pipes:.2?}");
            println!("ratio to thinking and pipes      {:.3}", took.as_secs_f64() / bound.as_secs_f64());
        }
        println!("waited for a preview             {waited} ms in the middle");
        // Once more, in a library of its own: everything is in the cache, and nobody thinks.
        let quick = script(both, REPLIES).replace(&format!("delay_ms = {THINKING}"), "delay_ms = 0");
        let again = self::studio(&raw);
        let (lines, took) = run(&again, begin(&again, eyes, 1, &quick, 1024));
        let hits = waits(&lines);
        assert_eq!(hits.0.len(), hits.1, "the second run renders nothing");
        let mean = hits.0.iter().sum::<u64>() as f64 / hits.0.len() as f64;
        println!(
            "second run: {} pictures, all hits, {mean:.1} ms each (largest {} ms); {took:.2?} in all\n",
            hits.1,
            hits.0.iter().max().unwrap()
        );
    }
}

/// Ten replies with a change and a look in each: short enough for many rounds, for one darktable's pipes take up to a
/// seventh longer than another's.
fn looks() {
    let studio = studio(&write_dng(&photo(3000, 2000), &DngOptions::default()).unwrap());
    let eyes = eyes(&studio, worker(&studio));
    let (lines, took) = run(&studio, begin(&studio, eyes, 1, &script(true, 10), 1024));
    println!("ten replies              {took:.2?}");
    println!(
        "waited for a preview     {:.2?}",
        median(looks_of(&lines).into_iter().map(Duration::from_millis).collect())
    );
}

/// Four strengths on one sheet, against four changes of which each is looked at, in turns within one session.
fn strengths() {
    const ROUNDS: usize = 6;
    let raw = write_dng(&photo(3000, 2000), &DngOptions::default()).unwrap();
    let mut script =
        confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#), ("render_preview", "{}")]);
    for round in 0..ROUNDS {
        let value = |at: usize| 0.05 + (8 * round + at) as f64 / 50.0;
        let values: Vec<String> = (0..4).map(|at| format!("{:.3}", value(at))).collect();
        let values = values.join(", ");
        let sheet = format!(r#"{{"primitive_name": "shadows_lift", "values": [{values}]}}"#);
        script += &reply(&[("try_strengths", &sheet)]);
        for at in 4..8 {
            script += &reply(&[("apply_primitive", &lift(value(at))), ("render_preview", "{}")]);
        }
    }
    script += &ending();
    for renderers in [1, 2] {
        let studio = studio(&raw);
        let eyes = eyes(&studio, worker(&studio));
        let (lines, _) = run(&studio, begin(&studio, eyes, renderers, &script, 1024));
        let (mut sheets, mut looks, mut begun) = (vec![], vec![], None);
        for line in &lines {
            let at = Duration::from_millis(line.mono_ms);
            match &line.event {
                Event::ToolCall(intent) => match intent.call.name.as_str() {
                    "try_strengths" | "apply_primitive" => begun = Some(at),
                    _ => {}
                },
                Event::ToolResult { result, code, .. } => {
                    assert!(code.is_none(), "{}", result.text);
                    match (result.name.as_str(), begun) {
                        ("try_strengths", Some(begun)) => sheets.push(at - begun),
                        ("render_preview", Some(begun)) => looks.push(at - begun),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        assert_eq!((sheets.len(), looks.len()), (ROUNDS, 4 * ROUNDS));
        // The first round warms darktable up.
        let (sheet, look) = (median(sheets.split_off(1)), median(looks.split_off(4)));
        println!("{renderers} renderer(s): a sheet of four {sheet:.2?}, a change and its preview {look:.2?}");
        println!("ratio to four of them    {:.2}", sheet.as_secs_f64() / (4.0 * look.as_secs_f64()));
    }
}

/// What is done with every picture besides rendering it.
fn measuring() {
    const ROUNDS: u32 = 20;
    let (one, mut two) = (photo(1024, 683), photo(1024, 683));
    two.rgb.iter_mut().for_each(|value| *value = value.saturating_add(9));
    let folder = tempfile::tempdir().unwrap();
    let blobs = BlobStore::new(folder.path().join("blobs"), Redactor::default());
    let time = |name: &str, work: &mut dyn FnMut()| {
        work();
        let started = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        println!("{name:<32} {:.2?}", started.elapsed() / ROUNDS);
    };
    println!("a picture of 1024 x 683 pixels");
    time("statistics", &mut || _ = black_box(ImageStats::of(&two)));
    time("difference in CIEDE2000", &mut || _ = black_box(Difference::between(&one, &two).unwrap()));
    time("its identity", &mut || _ = black_box(two.pixel_hash()));
    let (inside, outside) = ([[0.5, 0.12], [0.5, 0.4], [0.305, 0.26]], [[0.2, 0.45]]);
    time("a thing from four points", &mut || {
        _ = black_box(Outline::of(&segment(&one, &inside, &outside), 0.0, 160, 0.0005));
    });
    time("the JPEG for the model", &mut || _ = black_box(blobs.put_picture(&two, String::new()).unwrap()));
}

/// The resident memory of a process, in MiB.
fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Five hundred renders by one process.
fn kept() {
    const RENDERS: usize = 500;
    let demo = Demo::open();
    let worker = demo.worker();
    let states = edits(&demo, 25);
    let mut after = Vec::new();
    let started = Instant::now();
    for at in 0..RENDERS {
        let ask = RenderRequest {
            raw: &demo.raw,
            state: &states[at * 7 % 25],
            long_edge: 480,
            quality: Quality::Preview,
        };
        worker.render(&ask, &Deadline::never(), &ByHand).unwrap();
        if at % 50 == 49 {
            after.push(memory(worker.pids()[0]));
        }
    }
    assert_eq!((worker.troubles(), worker.children(), worker.take_notes().len()), (0, 1, 0));
    println!("renders      {RENDERS}, none failed, one process, {:.1?}", started.elapsed());
    println!(
        "memory, MiB  {:.0} after 50, {:.0} after 500, largest {:.0}",
        after[0],
        after[9],
        after.iter().fold(0.0, |a: f64, b| a.max(*b))
    );
    println!("growth       {:.1} %", (after[9] / after[0] - 1.0) * 100.0);
}

/// Thirty kills at random moments of a session.
fn kills() {
    let raw = write_dng(&photo(600, 400), &DngOptions::default()).unwrap();
    let studio = studio(&raw);
    let worker = worker(&studio);
    let mut text = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for at in 0..150 {
        text += &reply(&[("apply_primitive", &lift(0.01 + at as f64 / 100.0)), ("render_preview", "{}")]);
    }
    let session = begin(&studio, eyes(&studio, worker.clone()), 1, &(text + &ending()), 320);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let killer = std::thread::spawn({
        let (stop, worker) = (stop.clone(), worker.clone());
        move || {
            let (mut killed, mut seed) = (0_u32, 12_345_u64);
            while killed < 30 && !stop.load(std::sync::atomic::Ordering::SeqCst) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                std::thread::sleep(Duration::from_millis(50 + (seed >> 33) % 900));
                for pid in worker.pids() {
                    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                    killed +=
                        u32::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
                }
            }
            killed
        }
    });
    let (lines, took) = run(&studio, session);
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    let killed = killer.join().unwrap();
    let longest = waits(&lines).0.into_iter().max().unwrap();
    let mut pictures = 0;
    for line in &lines {
        if let Event::Render { state, pixel_hash: Some(pixels), quality, long_edge, .. } = &line.event
            && *quality == Quality::Preview
            && pictures < 40
        {
            let state = studio.workspace.state(state).unwrap();
            let raw = studio.workspace.raw();
            let ask =
                RenderRequest { raw: &raw, state: &state, long_edge: *long_edge, quality: Quality::Preview };
            assert_eq!(
                &studio.renderer.render(&ask, &Deadline::never(), &ByHand).unwrap().pixel_hash,
                pixels
            );
            pictures += 1;
        }
    }
    println!("kills                       {killed}");
    println!("session                     completed in {took:.1?}");
    println!("longest wait for a picture  {longest} ms, restart included");
    println!("pictures checked            {pictures}, all those of a darktable that nobody touched");
}

/// The pictures of a session, by their hashes.
fn pixels(lines: &[Line]) -> Vec<Hash> {
    let of = |line: &Line| match &line.event {
        Event::Render { pixel_hash, .. } => pixel_hash.clone(),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

/// Two sessions at once against in turn.
fn together() {
    let script = script(true, REPLIES).replace(&format!("delay_ms = {THINKING}"), "delay_ms = 0");
    let raws = [1, 2]
        .map(|seed| write_dng(&photo(3000, 2000), &DngOptions { seed, ..DngOptions::default() }).unwrap());
    let prepared = || {
        raws.each_ref().map(|raw| {
            let studio = studio(raw);
            let eyes = eyes(&studio, worker(&studio));
            let session = begin(&studio, eyes, 1, &script, 1024);
            (studio, session)
        })
    };
    let started = Instant::now();
    let alone = prepared().map(|(studio, session)| (run(&studio, session).0, studio));
    let in_turn = started.elapsed();
    let started = Instant::now();
    let both = prepared();
    let both = std::thread::scope(|scope| {
        both.map(|(studio, session)| scope.spawn(move || (run(&studio, session).0, studio)))
            .map(|t| t.join().unwrap())
    });
    let at_once = started.elapsed();
    for (one, other) in alone.iter().zip(&both) {
        assert_eq!(pixels(&one.0), pixels(&other.0));
    }
    println!("two sessions in turn   {in_turn:.2?}");
    println!("two sessions at once   {at_once:.2?}");
    println!("ratio                  {:.2}", in_turn.as_secs_f64() / at_once.as_secs_f64());
}

/// One session with two renderers against one: ten edits, each shown beside a mask. A picture takes up to half as long
/// again at one time as at another, so they take turns.
fn renderers() {
    let raw = write_dng(&photo(3000, 2000), &DngOptions::default()).unwrap();
    // Pairs of pictures that are not begun ahead: at another size than the previews.
    let mut text = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for at in 0..10 {
        let mask =
            format!(r#"{{"show_mask": {{"shape": "circle", "center": [0.5, 0.5], "radius": 0.{at}1}}}}"#);
        text += &reply(&[("apply_primitive", &lift(0.05 + f64::from(at) / 10.0)), ("render_preview", &mask)]);
    }
    text += &ending();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..7 {
        let shown = [1, 2].map(|renderers| {
            let studio = studio(&raw);
            let session = begin(&studio, eyes(&studio, worker(&studio)), renderers, &text, 1024);
            let (lines, took) = run(&studio, session);
            times[renderers - 1].push(took);
            pixels(&lines)
        });
        assert_eq!(shown[0], shown[1]);
    }
    let [one, two] = times.map(median);
    println!("one renderer           {one:.2?}");
    println!("two renderers          {two:.2?}");
    println!("ratio                  {:.2}", one.as_secs_f64() / two.as_secs_f64());
}
