//! One photo's whole way, from a raw to a promoted branch, by hand and by a session, with the real darktable.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::cli::{Home, text};
use serde_json::Value;

/// Replies of a model that makes one branch, judges it and ends.
const SCRIPT: &str = r#"
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Brighter." }] } }]
[[reply]]
calls = [
  { name = "branch", arguments = { name = "branch_b_tone" } },
  { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.3 } } },
  { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.6 } } },
]
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Brighter, \u001b[2J\u202eand still itself.", comparable_to_baseline = true, key_moves = ["exposure ev=0.6"] } }]
[[reply]]
calls = [
  { name = "log_vocabulary_gap", arguments = { description = "No move for the rim alone.", intent_category = "local", satisfaction = -1 } },
  { name = "propose_notes_update", arguments = { text = "The rim clips first." } },
  { name = "end_mode_b_session", arguments = { session_summary = "Brighter is better.", tag_suggestion = "v2" } },
]
"#;

#[test]
fn a_photo_goes_all_the_way() {
    let home = Home::new();
    home.ok(&["demo-raw", "x.dng"]);
    assert!(home.fails(4, &["demo-raw", "x.dng"]).contains("--force"));
    let photo = home.json(&["ingest", "x.dng", "--id", "cup", "--brief", "Quiet."]);
    assert_eq!(photo["photo"], "cup");
    // A log goes whole where it was sent, or says that it did not; a reader that has enough is no error.
    let log_to = |out: Stdio, json: &[&str]| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("chemigram"));
        command.args(["log", "cup"]).args(json).current_dir(home.0.path()).env("HOME", home.0.path());
        let mut child = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for json in [&[][..], &["--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (status, said) = log_to(full.into(), json);
        assert!(status == Some(4) && said.contains("No space left"), "{json:?}: {status:?} {said}");
        assert_eq!(log_to(Stdio::piped(), json), (Some(0), String::new()), "{json:?}");
    }
    let again = home.fails(4, &["ingest", "x.dng"]);
    assert!(again.contains("`cup`"), "{again}");
    assert_eq!(home.json(&["status", "cup"])["is_baseline"], true);

    by_hand(&home);
    places(&home);
    session(&home);
    signals(&home);

    assert!(home.ok(&["fsck", "--all"]).starts_with("cup: no damage"));
    assert!(home.ok(&["gc", "cup"]).contains("nothing to delete"));
    let doctor = home.json(&["doctor"]);
    assert_eq!(doctor["well"], true, "{doctor}");
}

fn by_hand(home: &Home) {
    for (status, arguments, words) in [
        (3, &["apply", "cup", "exposre", "ev=0.5"][..], "did you mean"),
        (2, &["apply", "cup", "exposure", "ev=NaN"], "ev"),
        (2, &["apply", "cup", "exposure", "ev=99"], "-3 to 3"),
        (2, &["apply", "cup", "exposure", "stops=1"], "ev"),
        (7, &["apply", "cup", "exposure", "ev=0.5", "--mask", "{}"], "mask"),
        (5, &["log", "cup", "nowhere"], "nowhere"),
        (5, &["render", "cup", "nowhere", "-o", "n.jpg"], "nowhere"),
        (5, &["tag", "cup", "baseline"], "baseline"),
        (2, &["render", "cup", "-o", "n.png", "--proxy", "2"], "--quality preview"),
        (2, &["render", "cup", "-o", "n.png", "--quality", "preview", "--proxy", "2"], "--proxy auto"),
    ] {
        let error = home.fails(status, arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    assert_eq!(home.json(&["log", "cup"]).as_array().unwrap().len(), 1, "nothing was changed by bad input");
    assert!(home.ok(&["apply", "cup", "exposure", "ev=0.5", "--label", "lift"]).contains("ev=0.50 EV"));
    assert_eq!(home.json(&["apply", "cup", "exposure", "ev=0.5"])["unchanged"], true);
    let log = home.ok(&["log", "cup"]);
    assert!(log.contains("(main)") && log.contains("lift") && log.contains("(baseline)"), "{log}");
    assert!(home.ok(&["diff", "cup", "baseline"]).contains("exposure"));

    // The edit is in the pixels: brighter, and of the size asked for.
    let mean = |at: &str, file: &str| {
        home.ok(&["render", "cup", at, "-o", file, "--size", "200"]);
        let picture = image::open(home.path(file)).unwrap().into_rgb8();
        assert_eq!(picture.width().max(picture.height()), 200);
        picture.pixels().map(|p| u64::from(p.0[1])).sum::<u64>()
            / u64::from(picture.width() * picture.height())
    };
    let (before, after) = (mean("baseline", "a.png"), mean("main", "b.jpg"));
    assert!(after > before + 5, "{before} {after}");
    assert!(home.fails(4, &["render", "cup", "-o", "b.jpg"]).contains("--force"));
    let hash = |care: &str| {
        home.json(&["render", "cup", "-o", "c.png", "--size", "200", "--quality", care, "--force"])["pixel_hash"].clone()
    };
    assert_ne!(hash("preview"), hash("judge"));
    let quick = ["render", "cup", "-o", "quick.png", "--size", "200", "--quality", "preview", "--proxy"];
    let quick = |proxy| home.json(&[&quick[..], &[proxy, "--force"]].concat());
    let [none, four] = [quick("off"), quick("4")];
    assert_eq!((&none["proxy"], &four["proxy"]), (&Value::Null, &Value::from(4)));
    assert!(none["pixel_hash"] == hash("preview") && four["pixel_hash"] != none["pixel_hash"]);
    let half = r#"{"named":"left_half"}"#;
    let shown = home.json(&["render", "cup", "-o", "mask.jpg", "--size", "200", "--show-mask", half]);
    assert_eq!(shown["mask"]["summary"], "left_half");
    assert!((shown["mask"]["covered_percent"].as_f64().unwrap() - 50.0).abs() < 2.0, "{shown}");
    let wrong = home.fails(7, &["render", "cup", "-o", "n.jpg", "--show-mask", r#"{"named":"lefthalf"}"#]);
    assert!(wrong.contains("did you mean `left_half`?"), "{wrong}");

    home.ok(&["tag", "cup", "v1"]);
    home.ok(&["branch", "cup", "other", "baseline"]);
    assert!(home.ok(&["branch", "cup"]).contains("* main"));
    home.ok(&["checkout", "cup", "other"]);
    home.ok(&["branch", "cup", "spare"]);
    home.ok(&["branch", "cup", "spare", "--delete"]);
    home.ok(&["checkout", "cup", "main"]);
    assert!(home.ok(&["tag", "cup"]).contains("v1"));
}

/// Edits on places, and the same edits on another photo.
fn places(home: &Home) {
    home.ok(&["branch", "cup", "places", "baseline"]);
    home.ok(&["checkout", "cup", "places"]);
    let mask = |x: f64| format!(r#"{{"shape":"circle","center":[{x},0.5],"radius":0.1}}"#);
    let region = |x: f64, ev: f64| format!(r#"{{"mask":{},"parameter_values":{{"ev":{ev}}}}}"#, mask(x));
    let two = format!("[{},{}]", region(0.3, 0.4), region(0.7, -0.4));
    std::fs::write(home.path("two.json"), &two).unwrap();
    let bad = two.replace("-0.4", "9");
    for (status, arguments, words) in [
        (2, &["apply-regions", "cup", "exposure", "--regions", &bad][..], "regions[1]: `ev`"),
        (2, &["apply-regions", "cup", "exposure", "--regions", "[{}]"], "regions[0]"),
        (2, &["apply-regions", "cup", "--regions", "[]"], "empty"),
        (2, &["spot", "cup", "--heal", "0.3"], "write it like"),
        (2, &["spot", "cup", "--remove", "0.3,0.3"], "no spot stands"),
        (2, &["spot", "cup"], "--heal"),
        (3, &["remove", "cup", "grain"], "no move `grain`"),
        (3, &["propagate", "cup", "pot"], "no edits to copy"),
    ] {
        let error = home.fails(status, arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    let done = home.ok(&["apply-regions", "cup", "exposure", "--regions", "@two.json", "--label", "sculpt"]);
    assert!(done.contains("2 regions of exposure: +0.40 EV circle at 0.30, 0.50; -0.40 EV"), "{done}");
    let again = home.json(&["apply-regions", "cup", "exposure", "--regions", "@two.json"]);
    assert_eq!(again["unchanged"], true);
    assert!(
        home.ok(&["spot", "cup", "--heal", "0.2,0.2", "--clone", "0.8,0.2,0.02:0.7,0.2"]).contains("2 spots")
    );
    assert!(home.ok(&["spot", "cup", "--remove", "0.8,0.2"]).contains("1 spot: remove at 0.80, 0.20"));
    assert_eq!(home.json(&["log", "cup"]).as_array().unwrap().len(), 4, "one commit a command");
    let diff = home.ok(&["diff", "cup", "baseline"]);
    assert_eq!(diff.lines().count(), 3, "{diff}");
    assert!(diff.starts_with("2 regions of exposure: added: ") && diff.contains("spots none → 1"), "{diff}");
    // By its id, also where the module's instances are those of other moves.
    home.ok(&["apply", "cup", "warmth"]);
    for (move_, at) in [("highlights_warmth", 0.3), ("shadows_warmth", 0.7)] {
        home.ok(&["apply", "cup", move_, "--mask", &mask(at)]);
    }
    let file = ["--size", "300", "--force", "-o", "placed.png"];
    let shown = home.json(&[&["render", "cup", "--show-mask", "shadows_warmth#1"][..], &file].concat());
    assert_eq!(shown["mask"]["summary"], "shadows_warmth#1");
    let drawn = image::open(home.path("placed.png")).unwrap().to_rgb8();
    let red = |x: f64| {
        let [r, g, _] = drawn.get_pixel((x * 300.0) as u32, drawn.height() / 2).0;
        r > g.saturating_add(40)
    };
    assert!(red(0.7) && !red(0.3));
    let none = home.fails(3, &["render", "cup", "-o", "n.jpg", "--show-mask", "shadows_warmth#9"]);
    assert!(none.contains("shadows_warmth#1"), "{none}");
    home.ok(&["remove", "cup", "highlights_warmth"]);
    home.ok(&["remove", "cup", "shadows_warmth"]);
    home.ok(&["remove", "cup", "exposure", "--instance", "1"]);
    home.ok(&["remove", "cup", "retouch"]);
    let diff = home.ok(&["diff", "cup", "baseline"]);
    assert!(diff.contains("exposure#2") && !diff.contains("exposure#1"), "{diff}");

    // Another raw of the same picture: bytes after the end of a file change nothing but its name.
    let mut raw = std::fs::read(home.path("x.dng")).unwrap();
    raw.push(0);
    std::fs::write(home.path("y.dng"), raw).unwrap();
    home.ok(&["ingest", "y.dng", "--id", "pot", "--brief", "Quiet."]);
    let planned = home.json(&["propagate", "cup@places", "pot", "--dry-run"]);
    assert_eq!(planned["edits"].as_array().unwrap().len(), 2, "{planned}");
    assert_eq!(home.json(&["status", "pot"])["is_baseline"], true, "a dry run changes nothing");
    let output = home.run(&["propagate", "cup@places", "pot", "nobody", "--branch", "side"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{table}");
    assert!(table.contains("pot     side") && table.contains("nobody  FAILED: there is no photo"), "{table}");
    let commit = |photo: &str, at: &str| home.json(&["log", photo, at])[0].clone();
    assert_eq!(commit("pot", "side")["state"], commit("cup", "places")["state"]);
    assert_eq!(commit("pot", "main")["label"], "baseline", "main stays where it is");
    assert_eq!(commit("pot", "side")["label"], "from cup@places");
    assert!(home.ok(&["propagate", "cup", "pot", "--moves", "warmth"]).contains("pot  main"));
    home.ok(&["checkout", "pot", "side"]);
    home.fails(2, &["propagate", "cup", "pot", "pot"]);
    let output = home.run(&["propagate", "cup", "pot", "--branch", "main"]);
    assert_eq!(output.status.code(), Some(9), "only who stands on main moves it");
    assert!(home.ok(&["propagate", "cup", "pot"]).contains("unchanged"));
    assert!(home.ok(&["fsck", "pot"]).starts_with("pot: no damage"));
    home.ok(&["checkout", "cup", "main"]);
}

fn session(home: &Home) {
    std::fs::write(home.path("script.toml"), SCRIPT).unwrap();
    let budget = "time=2m,iterations=10,branches=1";
    let run = [
        "run-mode-b",
        "cup",
        "--provider",
        "script",
        "--model",
        "script.toml",
        "--preview-size",
        "256",
        "--proxy",
        "auto",
    ];
    let with =
        |more: &[&'static str]| [&run[..], &["--vector", "tone=brighter", "--budget", budget], more].concat();

    let plan = home.json(&with(&["--dry-run"]));
    assert_eq!(plan["plan"]["branches"][0]["branch"], "branch_b_tone");
    assert!(plan["system"].as_str().is_some_and(|s| s.len() > 500));
    assert!(home.json(&["mode-b", "list"]).as_array().unwrap().is_empty(), "a dry run leaves no session");

    let lines = home.ok(&with(&["--yes", "--json"]));
    let mut events: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    // The transcript, and what it came to.
    let result = events.pop().unwrap();
    assert_eq!((&result["kind"], &result["status"]), (&"result".into(), &0.into()), "{result}");
    assert_eq!((&result["best"], &result["useful"]), (&"branch_b_tone".into(), &true.into()), "{result}");
    assert_eq!(events[0]["kind"], "session_start");
    assert_eq!(events[0]["proxy"], 3, "of 1200 pixels the copy keeps half as many again as the previews");
    assert_eq!(events.last().unwrap()["outcome"], "completed", "{lines}");
    assert!(events.iter().enumerate().all(|(i, e)| e["seq"] == i as u64));
    let id = events[0]["session"].as_str().unwrap();
    let part = &id[id.len() - 6..];

    let shown = home.ok(&["mode-b", "show", part]);
    for words in [
        "— cup —",
        "completed",
        "branch_b_tone",
        "4/5",
        "and still itself",
        "exposure ev=0.6",
        "ΔE",
        "direction ✓",
        "Tried: exposure ev=0.30 EV",
        "No move for the rim alone",
        "The rim clips first",
        "of 10 iterations",
        "chemigram promote cup branch_b_tone --tag v2",
    ] {
        assert!(shown.contains(words), "`{words}` is missing in:\n{shown}");
    }
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "a model's text is made harmless");
    let review = home.json(&["mode-b", "show", part]);
    let mut last = home.json(&["mode-b", "show", "last"]);
    assert_eq!(last, review);
    last.as_object_mut().unwrap().remove("schema_version");
    assert_eq!(result["review"], last);
    let refused = home.fails(4, &["mode-b", "delete", "last", "--branches", "--yes"]);
    assert!(refused.contains("a proposal of it waits for an answer"), "{refused}");
    let preview = review["branches"][0]["preview"].as_str().unwrap();
    assert!(Path::new(preview).is_absolute() && image::open(preview).is_ok());
    assert_eq!(review["condition"], "ended");
    assert!(home.ok(&["mode-b", "list", "cup"]).contains("completed"));
    assert!(home.fails(4, &["mode-b", "stop", part]).contains("is not running"));
    assert!(home.fails(4, &["run-mode-b", "--resume", part, "--yes"]).contains("has ended"));

    // What is left for the person.
    assert!(home.ok(&["gaps", "rank"]).contains("rim"));
    let proposal = home.json(&["proposals", "list"])[0]["id"].as_str().unwrap().to_owned();
    home.ok(&["proposals", "accept", &proposal]);
    let notes = home.path(".local/share/chemigram/photos/cup/notes.md");
    assert!(std::fs::read_to_string(notes).unwrap().contains("The rim clips first"));
    assert!(home.fails(4, &["proposals", "decline", &proposal]).contains(&proposal));

    home.ok(&["promote", part, "branch_b_tone", "--tag", "v2", "--to-main"]);
    let status = home.json(&["status", "cup"]);
    assert_eq!(status["commit"], review["branches"][0]["commit"]);
    assert!(home.fails(5, &["promote", "cup", "other", "--tag", "v2"]).contains("v2"));

    exports(home, part);

    // A transcript without its closing line was interrupted; a damaged one is named with its line.
    let file = home.path(&format!(".local/share/chemigram/photos/cup/sessions/mode_b/{id}/transcript.jsonl"));
    let whole = std::fs::read_to_string(&file).unwrap();
    let cut: String =
        whole.split_inclusive('\n').take_while(|line| !line.contains("\"session_end\"")).collect();
    std::fs::write(&file, cut).unwrap();
    let shown = home.ok(&["mode-b", "show", part]);
    assert!(shown.contains("interrupted") && shown.contains("--resume"), "{shown}");
    std::fs::write(&file, whole.replacen("Brighter", "Darker", 1)).unwrap();
    let listed = home.ok(&["mode-b", "list"]);
    assert!(listed.contains("damaged") && listed.contains("line "), "{listed}");
    assert!(home.fails(5, &["mode-b", "show", part]).contains("damaged at line"));
    let found = home.run(&["fsck", "cup"]);
    assert!(!found.status.success() && text(&found.stdout).contains("transcript.jsonl line "), "{found:?}");
    std::fs::write(&file, whole).unwrap();
}

/// Files to give away: whole, of what was asked for, or none at all.
fn exports(home: &Home, session: &str) {
    for (status, arguments, words) in [
        (2, &["-o", "n.gif"][..], ".tif"),
        (2, &["-o", "n"], "/ for a folder"),
        (2, &["-o", "n.jpg", "--format", "tiff"], "--format"),
        (2, &["-o", "n.jpg", "--bits", "16"], "8 bits"),
        (2, &["-o", "n.png", "--jpeg-quality", "90"], "JPEG"),
        (2, &["-o", "n.jpg", "--jpeg-quality", "0"], "1..=100"),
        (2, &["-o", "n.tif", "--profile", "cmyk"], "adobe-rgb"),
        (2, &["-o", "n.jpg", "--profile", "linear-rec2020"], "16-bit"),
        (3, &["-o", "n.jpg", "--session", "abcdef"], "no session"),
        (5, &["nowhere", "-o", "n.jpg"], "nowhere"),
    ] {
        let error = home.fails(status, &[&["export", "cup"], arguments].concat());
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    let files =
        home.json(&["export", "cup", "--session", session, "-o", "out", "--size", "200", "--format", "tiff"]);
    assert_eq!(files[0]["file"], "out/cup-branch_b_tone.tif");
    assert_eq!(files[0]["bits"], 16);
    let picture = image::open(home.path("out/cup-branch_b_tone.tif")).unwrap();
    assert_eq!((picture.color(), picture.width()), (image::ColorType::Rgb16, 200));
    let two = ["export", "cup", "HEAD", "branch_b_tone", "-o", "out/", "--size", "200"];
    assert_eq!(home.ok(&two).lines().count(), 2);
    let whole = std::fs::read(home.path("out/cup-main.jpg")).unwrap();
    assert!(home.fails(4, &two).contains("--force"));
    assert_eq!(std::fs::read(home.path("out/cup-main.jpg")).unwrap(), whole);
    let mut names: Vec<_> =
        std::fs::read_dir(home.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["cup-branch_b_tone.jpg", "cup-branch_b_tone.tif", "cup-main.jpg"]);

    // Ctrl-C while darktable works: no file, and nothing of the work is left.
    let scratch = home.path(".cache/chemigram/darktable/scratch");
    let working = || std::fs::read_dir(&scratch).unwrap().count();
    assert_eq!(working(), 0);
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("chemigram"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home.0.path());
    command.args(["export", "cup", "-o"]).arg(home.path("cut.tif"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while working() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(25), "{}", text(&output.stderr));
    assert!(!home.path("cut.tif").exists() && working() == 0);
}

/// A model that confirms, and then thinks for longer than anybody waits.
const SLOW: &str = r#"
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Brighter." }] } }]
[[reply]]
delay_ms = 60000
repeat = "forever"
"#;

fn signals(home: &Home) {
    std::fs::write(home.path("slow.toml"), SLOW).unwrap();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        twice(home, signal);
    }
}

/// The first signal asks a session to wrap up, the second stops it at once.
fn twice(home: &Home, signal: rustix::process::Signal) {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("chemigram"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home.0.path());
    command.args(["run-mode-b", "cup", "--vector", "tone=brighter", "--budget", "lite", "--yes", "--json"]);
    command.args(["--provider", "script", "--preview-size", "256", "--model"]).arg(home.path("slow.toml"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let send = || rustix::process::kill_process(pid, signal).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |kind: &str, mark: &str| {
        let line = lines.find(|l| l.contains(&format!("\"kind\":\"{kind}\"")) && l.contains(mark));
        line.unwrap_or_else(|| panic!("the session ended before {kind}"))
    };
    until("model_intent", "\"turn\":2");
    let list = home.ok(&["mode-b", "list"]);
    assert!(list.lines().next().is_some_and(|l| l.contains("running")), "{list}");
    assert!(home.fails(4, &["apply", "cup", "exposure", "ev=0.1"]).contains("(session "));
    send();
    assert!(until("wrap_up", "").contains("asked to stop"), "{signal:?} wraps up");
    send();
    let stopped = std::time::Instant::now();
    assert!(until("session_end", "").contains("cancelled"), "the second stops at once");
    assert_eq!(child.wait().unwrap().code(), Some(22));
    // The model thinks for a minute.
    assert!(stopped.elapsed() < std::time::Duration::from_secs(30), "{:?}", stopped.elapsed());
}
