//! What goes wrong around a session, with the real program: each case has its message, its remedy and its
//! documented exit status, and loses nothing.

#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cup::*;

#[test]
fn a_raw_that_cannot_be_read_is_refused_under_its_own_name_and_leaves_no_photo() {
    let home = Home::new();
    let raw = std::fs::read(home.path("cup.dng")).unwrap();
    std::fs::create_dir(home.path("folder.dng")).unwrap();
    for (name, bytes) in [("text.dng", &b"no raw"[..]), ("empty.dng", b""), ("cut.dng", &raw[..20_000])] {
        std::fs::write(home.path(name), bytes).unwrap();
    }
    for (status, name, words) in [
        (3, "missing.dng", "No such file"),
        (2, "folder.dng", "it is a folder"),
        (2, "text.dng", "darktable cannot decode it"),
        (2, "empty.dng", "it is empty"),
        (2, "cut.dng", "may be truncated"),
    ] {
        let run: &[&str] = &["run-mode-b", name, "--yes", "--budget", "lite"];
        for arguments in [&["ingest", name][..], run] {
            let told = match (arguments, name) {
                // A folder is taken for what is in it.
                (["ingest", ..], "folder.dng") => home.fails(3, arguments, &[name, "no raw file", "help: "]),
                _ => home.fails(status, arguments, &[name, words, "help: "]),
            };
            assert!(!told.contains(".ingest-"), "a folder of the program's own: {told}");
        }
    }
    assert_eq!(home.ok(&["photos", "-q"]).lines().count(), 1);
    home.whole();
}

#[test]
fn a_session_that_cannot_begin_says_what_to_give_and_leaves_nothing() {
    let home = Home::new();
    let vectors: &[&str] = &["--vector", "a=x", "--vector", "b=y", "--vector", "c=z"];
    let run = ["run-mode-b", "cup", "--yes"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    home.fails(2, &run, &["lacks time, iterations, branches", "--budget time=30m"]);
    home.fails(2, &with(&["--budget", "time=5m"]), &["lacks iterations, branches", "help: "]);
    home.fails(2, &with(&["--budget", "lite,price=3"]), &["`price` is not a limit", "cost"]);
    home.fails(2, &with(&["--budget", "lite", "--vector", "tone:dramatic"]), &["write it like tone="]);
    let few = [&with(&["--budget", "lite,branches=2"])[..], vectors].concat();
    home.fails(2, &few, &["3 directions need", "allows 2", "branches=3"]);
    let scripted = with(&["--budget", "lite", "--provider", "script"]);
    home.fails(2, &scripted, &["needs a model", "help: "]);
    let script = [&scripted[..], &["--model", "gone.toml"]].concat();
    home.fails(3, &script, &["there is no script gone.toml", "help: "]);

    let free = "[model]\nfree = false\n";
    home.session_ends(2, free, "lite,cost=1.00", &["the price of", "is unknown", "price = {", "tokens="]);
    assert!(home.ok(&["mode-b", "list", "-q"]).is_empty(), "none of these is a session");
    home.whole();
}

#[test]
fn a_move_that_cannot_be_made_changes_nothing() {
    let home = Home::new();
    for (status, arguments, words) in [
        (3, &["exposre"][..], "exposure"),
        (2, &["exposure", "ev=12"], "-3 to 3"),
        (2, &["exposure", "ev=NaN"], "ev"),
        (2, &["exposure", "ev=inf"], "ev"),
        (2, &["exposure", "ev"], "ev=0.5"),
    ] {
        home.fails(status, &[&["apply", "cup"], arguments].concat(), &[words]);
    }
    assert_eq!(home.ok(&["log", "cup"]).lines().count(), 1);
    // Options may stand before, among and after the values.
    home.ok(&["apply", "cup", "exposure", "ev=-0.5", "--label", "last"]);
    home.ok(&["apply", "cup", "exposure", "--label", "among", "ev=0.5"]);
    home.ok(&["apply", "cup", "--label", "first", "exposure", "ev=0.7"]);
    let log = home.ok(&["log", "cup"]);
    assert!(["last", "among", "first", "ev=-0.50"].iter().all(|word| log.contains(word)), "{log}");
    home.whole();
}

#[test]
fn a_second_session_is_refused_and_the_first_is_stopped_from_outside() {
    let home = Home::new();
    // An agent that never ends by itself, at two replies a second.
    let busy = "[[reply]]\ndelay_ms = 500\nrepeat = \"forever\"\ncalls = [{ name = \"mode_b_status\" }]\n";
    let script = format!("{CONFIRM}{EDIT}{busy}");
    let (mut first, rest) = start_until(&home, &script, BUDGET, "\"turn\":3");
    let id = home.newest().0;
    let script = home.session(&script);
    let second: Vec<&str> = script.iter().map(String::as_str).collect();
    home.fails(4, &second, &["in use", &id, "mode-b stop"]);
    home.fails(4, &["run-mode-b", "--resume", &id, "--yes"], &[&id]);
    assert_eq!(home.newest().0, id, "the second left nothing");
    home.ok(&["mode-b", "stop", &id]);
    assert_eq!(ends_within(&mut first, Duration::from_secs(60)), Some(22));
    assert!(rest.join().unwrap().last().unwrap().contains("\"outcome\":\"cancelled\""));
    assert!(home.ok(&["branch", "cup"]).contains("branch_b_tone"));
    home.whole();

    // It goes on as it is; and not on another photo.
    let other = home.ok(&["mode-b", "show", &id]);
    assert!(other.contains("--resume") && !other.contains("--raise"), "{other}");
    home.fails(2, &["run-mode-b", "cap", "--resume", &id, "--yes"], &["not on `cap` but on `cup`"]);
    let told = format!("{CONFIRM}{EDIT}{}", CLOSE.replace("[[reply]]", "[[reply]]\nrepeat = \"forever\""));
    std::fs::write(home.path("script.toml"), told).unwrap();
    home.fails(0, &["run-mode-b", "cup", "--resume", &id, "--yes"], &["completed", "Score: 4/5"]);
    home.whole();
}

#[test]
fn a_model_that_hangs_is_left_when_a_person_stops_the_session() {
    let home = Home::new();
    let hanging = "[[reply]]\ndelay_ms = 600000\nrepeat = \"forever\"\n";
    let script = format!("{CONFIRM}{EDIT}{hanging}");
    let (mut child, rest) = start_until(&home, &script, BUDGET, "\"turn\":3");
    let id = home.newest().0;
    assert!(home.ok(&["mode-b", "stop", &id]).contains("to wrap up"));
    let wrapping = Instant::now();
    while !kinds(&home.lines()).contains(&"wrap_up") {
        assert!(wrapping.elapsed() < Duration::from_secs(60), "it does not wrap up");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(home.ok(&["mode-b", "stop", &id]).contains("to stop at once"));
    assert_eq!(ends_within(&mut child, Duration::from_secs(60)), Some(22));
    let lines = rest.join().unwrap();
    assert!(lines.last().unwrap().contains("\"outcome\":\"cancelled\""));
    let cut: Vec<&String> = lines.iter().filter(|l| l.contains("\"kind\":\"attempt\"")).collect();
    assert!(cut[0].contains("cut: the photographer asked to stop"), "{cut:?}");
    assert!(cut.last().unwrap().contains("cut: stopped at once by the photographer"), "{cut:?}");
    home.whole();

    // Who asks once waits no longer than a wrap-up may take: a twentieth of the time, two seconds here.
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);
    let short = "time=40s,iterations=20,branches=1";
    let (mut child, rest) = start_until(&home, &script, short, "\"turn\":3");
    home.ok(&["mode-b", "stop", &home.newest().0]);
    assert_eq!(ends_within(&mut child, Duration::from_secs(60)), Some(22));
    assert!(rest.join().unwrap().last().unwrap().contains("\"outcome\":\"cancelled\""));
    let lines = home.lines();
    let at =
        |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap()["mono_ms"].as_u64().unwrap();
    let wrapped = at("session_end") - at("wrap_up");
    assert!(wrapped < 12_000, "{wrapped} ms, of more than thirty seconds that were left");
}

#[test]
fn a_provider_that_fails_ends_the_session_as_documented_and_a_plain_resume_goes_on() {
    let home = Home::new();
    let faulty = |class: &str| {
        format!(
            "{CONFIRM}{EDIT}[[reply]]\nfault = {{ class = \"{class}\", message = \"no.\", retry_after_ms = 20, times = 99 }}\n"
        )
    };
    let whole = format!("{CONFIRM}{EDIT}{CLOSE}");
    // No key is needed to be told that one is missing, and no photo is touched.
    let keyless = ["run-mode-b", "cup", "--yes", "--budget", "lite", "--provider", "openai"];
    home.fails(12, &keyless, &["OPENAI_API_KEY", "help: set OPENAI_API_KEY"]);
    let unknown = ["run-mode-b", "cup", "--yes", "--budget", "lite", "--provider", "opnai"];
    home.fails(3, &unknown, &["did you mean `openai`"]);
    assert!(home.ok(&["mode-b", "list", "-q"]).is_empty());

    home.session_ends(23, &faulty("refused"), BUDGET, &["provider_failed", "no.", "--resume"]);
    home.whole();
    home.resume(0, &whole, &[], &["completed", "Score: 4/5"]);
    let lines = home.lines();
    assert_eq!(kinds(&lines).iter().filter(|k| **k == "session_end").count(), 2);
    home.resume(4, &whole, &[], &["has ended", "--raise"]);
    home.resume(4, &whole, &["--answer", "x"], &["has asked no question"]);
    home.resume(2, &whole, &["--raise", "lite"], &["raises none of this session's limits"]);
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);

    // Garbage with pauses in between: four attempts at one turn.
    home.session_ends(23, &faulty("garbage"), BUDGET, &["provider_failed", "no."]);
    assert_eq!(kinds(&home.lines()).iter().filter(|k| **k == "attempt").count(), 4);
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);

    // It talks and calls nothing: said so once, then ended; the counters begin anew with a resume.
    let talks = "[[reply]]\ntext = \"I would rather talk.\"\nrepeat = \"forever\"\n";
    home.session_ends(23, talks, BUDGET, &["provider_failed", "stopped calling tools"]);
    let calls = format!("[[reply]]\nrepeat = 2\ntext = \"I talked.\"\n{CONFIRM}{EDIT}{CLOSE}");
    home.resume(0, &calls, &[], &["completed", "Score: 4/5"]);
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);

    // It hangs, and the time is up: nothing was judged by it.
    let hangs = format!("{CONFIRM}{EDIT}[[reply]]\ndelay_ms = 600000\n");
    let started = Instant::now();
    let hung =
        home.session_ends(20, &hangs, "time=5s,iterations=20,branches=1", &["budget_exhausted", "--raise"]);
    assert!(started.elapsed() < Duration::from_secs(120), "{hung}");
    home.whole();
}

#[test]
fn a_raw_that_went_away_ends_the_session_before_a_model_is_asked() {
    let home = Home::new();
    let script = format!("{CONFIRM}{EDIT}{CLOSE}");
    let arguments = home.session(&script);
    // Nothing was rendered in this cache: darktable has to read the raw.
    let cold = |arguments: &[String]| {
        let mut command = home.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("XDG_CACHE_HOME", home.path("cold")).output().unwrap()
    };
    std::fs::rename(home.path("cup.dng"), home.path("away.dng")).unwrap();
    said(&cold(&arguments), 24, &["engine_failed", "cannot read the raw", "still where", "--resume"]);
    assert!(!kinds(&home.lines()).contains(&"model_intent"));
    let id = home.newest().0;
    let resume: Vec<String> = ["run-mode-b", "--yes", "--resume", &id].map(str::to_owned).into();
    said(&cold(&resume), 24, &["engine_failed"]);
    assert!(!kinds(&home.lines()).contains(&"model_intent"));
    std::fs::rename(home.path("away.dng"), home.path("cup.dng")).unwrap();
    said(&cold(&resume), 0, &["completed", "Score: 4/5"]);
    home.whole();

    let mut without = home.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let output = without.env("CHEMIGRAM_DARKTABLE_CLI", "/nowhere/darktable-cli").output().unwrap();
    said(&output, 6, &["darktable-cli", "chemigram doctor"]);
    assert_eq!(home.newest().0, id, "no session was begun");
}

#[test]
fn a_file_without_an_end_is_refused_and_not_read() {
    let home = Home::new();
    let sparse = home.path("sparse.toml");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    let set = home.path("golden_x");
    std::fs::create_dir_all(set.join("raws")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", set.join("raws/zero.dng")).unwrap();
    let manifest =
        r#"{"version":"golden_x","shipped":"2026-01-01","primary":"recovery","weights":{},"files":{}}"#;
    std::fs::write(set.join("manifest.json"), manifest).unwrap();
    let (sparse, set) = (sparse.to_str().unwrap(), set.to_str().unwrap());
    let session = |more: &[&str]| {
        let words = ["run-mode-b", "cup", "--yes", "--budget", "lite"];
        words.iter().chain(more).map(|w| (*w).to_owned()).collect::<Vec<_>>()
    };
    for (arguments, words) in [
        (session(&["--brief", "@/dev/zero"]), "not a regular file"),
        (session(&["--brief", "@pipe"]), "not a regular file"),
        (session(&["--brief", &format!("@{sparse}")]), "larger than 1 MiB"),
        (session(&["--provider", "script", "--model", sparse]), "larger than 64 MiB"),
        (session(&["--provider", "script", "--model", "/dev/zero"]), "not a regular file"),
        (["eval", "verify", set].map(str::to_owned).into(), "leads out of the set"),
    ] {
        let mut command = Command::new("bash");
        home.dress(&mut command);
        command.args(["-c", "ulimit -v 4000000; exec \"$@\"", "-", env!("CARGO_BIN_EXE_chemigram")]);
        let started = Instant::now();
        said(&command.args(&arguments).output().unwrap(), 2, &[words]);
        assert!(started.elapsed() < Duration::from_secs(60), "{arguments:?}");
    }
    let manifest = Path::new(set).join("manifest.json");
    std::fs::File::create(manifest).unwrap().set_len(1 << 40).unwrap();
    home.fails(2, &["eval", "verify", set], &["larger than 64 MiB"]);
}

#[test]
fn another_file_in_the_raws_place_is_refused_by_whatever_needs_the_raw() {
    let home = Home::new();
    std::fs::copy(home.path("cup.dng"), home.path("mug.dng")).unwrap();
    flip(&home.path("mug.dng"));
    home.ok(&["ingest", "mug.dng"]);
    home.ok(&["apply", "cup", "exposure", "ev=0.5"]);
    home.ok(&["apply", "mug", "clarity"]);
    home.ok(&["render", "cup", "-o", "a.png", "--size", "128"]);
    let right = std::fs::read(home.path("cup.dng")).unwrap();
    std::fs::copy(home.path("mug.dng"), home.path("cup.dng")).unwrap();
    let hashes = [&right, &std::fs::read(home.path("mug.dng")).unwrap()].map(base::ids::Hash::of);
    let words = [hashes[0].as_str(), hashes[1].as_str()];
    let session = home.session(CONFIRM);
    let session: Vec<&str> = session.iter().map(String::as_str).collect();
    let refused: [&[&str]; 7] = [
        // From the cache, and not.
        &["render", "cup", "-o", "b.png", "--size", "128"],
        &["render", "cup", "-o", "b.png", "--size", "130"],
        &["render", "cup", "baseline", "-o", "b.png", "--size", "128"],
        &["export", "cup", "-o", "b.jpg"],
        &["propagate", "cup", "mug"],
        &["propagate", "mug", "cup"],
        &session,
    ];
    for command in refused {
        let told = home.fails(5, command, &words);
        assert!(told.contains("put the original back") || command == ["propagate", "mug", "cup"], "{told}");
        assert!(!home.path("b.png").exists() && !home.path("b.jpg").exists());
    }
    assert!(!home.photo("sessions/mode_b").read_dir().unwrap().any(|_| true), "a session was begun");
    home.fails(5, &["fsck", "cup"], &["not those that were ingested"]);
    std::fs::write(home.path("cup.dng"), right).unwrap();
    home.whole();
    home.ok(&["render", "cup", "-o", "b.png", "--size", "128"]);
    assert_eq!(std::fs::read(home.path("a.png")).unwrap(), std::fs::read(home.path("b.png")).unwrap());
}

#[test]
fn the_cost_cap_ends_a_session_and_is_never_passed() {
    let home = Home::new();
    let price = "[model]\nfree = false\nprice = { input = 2.0, output = 10.0, as_of = \"2026-11-01\" }\n";
    let used = "[[reply]]\nusage = { input_fresh = 20000, output = 400 }\n";
    let mut script = format!("{price}{CONFIRM}{EDIT}");
    for n in 0..30 {
        let ev = 0.01 * f64::from(n);
        script += &format!(
            "[[reply]]\ncalls = [{{ name = \"apply_primitive\", arguments = {{ primitive_name = \"exposure\", parameter_values = {{ ev = {ev} }} }} }}]\n"
        );
    }
    let script = script.replace("[[reply]]\n", used);
    home.session_ends(20, &script, "time=2m,iterations=200,branches=1,cost=0.60", &["cost limit reached"]);
    let lines = home.lines();
    let fired: Vec<&Value> = lines.iter().filter(|l| l["kind"] == "cap_fired").collect();
    assert_eq!(fired[0]["exhausted"]["cap"], "cost");
    let spent = lines.last().unwrap()["spent"]["cost_micro_usd"].as_u64().unwrap();
    // A call costs 44 000: ten were made before the reserve for the wrap-up was all that was left.
    assert!((300_000..=600_000).contains(&spent), "{spent}");
    let mut total = 0;
    for line in &lines {
        let of = |field: &str| line[field]["cost_micro_usd"].as_u64().unwrap_or(0);
        assert!(total + of("reserved") <= 600_000, "line {}: {total} + {}", line["seq"], of("reserved"));
        total += of("settled");
    }
    assert_eq!(total, spent);
    home.whole();
}

#[test]
fn a_question_is_answered_and_a_spent_budget_raised_by_a_resume() {
    let home = Home::new();
    let asks =
        "[[reply]]\ncalls = [{ name = \"ask_clarification\", arguments = { question = \"How bright?\" } }]\n";
    home.session_ends(21, asks, BUDGET, &["needs_clarification", "How bright?", "--answer"]);
    assert_eq!(home.ok(&["branch", "cup"]).lines().count(), 1, "nothing changed");
    home.resume(4, asks, &[], &["waits for an answer", "--answer"]);
    let script = format!("{asks}{CONFIRM}{EDIT}{CLOSE}");
    home.resume(0, &script, &["--answer", "A third of a stop."], &["completed", "Score: 4/5"]);
    let lines = home.lines();
    let answered = lines.iter().rfind(|l| l["kind"] == "clarification").unwrap();
    assert_eq!(answered["answer"], "A third of a stop.");
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);

    let looks = "[[reply]]\ncalls = [{ name = \"get_state\" }]\n";
    let script = format!("{CONFIRM}{EDIT}{looks}{looks}{looks}");
    home.session_ends(
        20,
        &script,
        "time=90s,iterations=3,branches=1",
        &["iterations limit reached", "--raise"],
    );
    home.resume(4, &script, &[], &["has ended", "--raise"]);
    // The model goes on with a judgment, whatever the number of replies so far.
    let closing = || {
        let replies = kinds(&home.lines()).iter().filter(|k| **k == "model_reply").count();
        format!("{}{CLOSE}", looks.replace("calls", &format!("repeat = {replies}\ncalls")))
    };
    home.resume(0, &closing(), &["--raise", "time=60s,iterations=10"], &["completed", "Score: 4/5"]);
    let lines = home.lines();
    let raised = lines.iter().find(|l| l["kind"] == "raised").unwrap();
    assert_eq!(
        (&raised["budget"]["time_seconds"], &raised["budget"]["max_iterations"]),
        (&150.into(), &13.into())
    );
    // What the agent has ended itself goes on too, if a person pays for it.
    home.resume(0, &closing(), &["--raise", "iterations=5"], &["completed", "Score: 4/5"]);
    assert_eq!(kinds(&home.lines()).iter().filter(|k| **k == "session_end").count(), 3);
    home.whole();
}

#[test]
fn promote_does_the_rest_when_a_kill_came_after_the_tag() {
    let home = Home::new();
    home.session_ends(0, &format!("{CONFIRM}{EDIT}{CLOSE}"), BUDGET, &["completed"]);
    let promote = ["promote", "cup", "branch_b_tone", "--tag", "v2", "--to-main"];
    home.ok(&["tag", "cup", "v2", "branch_b_tone"]);
    home.ok(&promote);
    let log = std::fs::read_to_string(home.photo("log.jsonl")).unwrap();
    home.ok(&promote);
    assert_eq!(std::fs::read_to_string(home.photo("log.jsonl")).unwrap(), log);
    home.fails(5, &["tag", "cup", "v2", "branch_b_tone"], &["stands already"]);
    home.fails(5, &["promote", "cup", "main", "--tag", "baseline"], &["stands already"]);
    home.whole();
}

#[test]
fn what_the_program_writes_for_itself_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    home.ok(&["apply", "cup", "exposure", "ev=0.5", "--log-file", "log"]);
    for path in [home.path("log"), home.photo("log.jsonl"), home.photo("lock"), home.photo("photo.json")] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
}

/// State and parent of a process, by its number.
#[cfg(target_os = "linux")]
fn process(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

#[test]
#[cfg(target_os = "linux")]
fn darktable_ends_with_the_program_that_was_killed() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    // A darktable that says its version and then works for ten minutes.
    let real = testkit::kept::darktable();
    let (slow, real) = (home.path("darktable-cli"), real.path().display().to_string());
    let script =
        format!("#!/bin/sh\ncase \"$*\" in *--version*) exec '{real}' \"$@\";; esac\nexec sleep 600\n");
    std::fs::write(&slow, script).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.command(&["export", "cup", "-o", "a.tif"]);
    command.env("CHEMIGRAM_DARKTABLE_CLI", &slow).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = command.spawn().unwrap();
    let sleeps = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words == b"sleep\x00600\0" && process(*pid).is_some_and(|(_, parent)| parent == program.id())
    };
    let started = Instant::now();
    let darktable = loop {
        let all = std::fs::read_dir("/proc").unwrap();
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        if let Some(pid) = numbers.into_iter().find(sleeps) {
            break pid;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "darktable was not started");
        std::thread::sleep(Duration::from_millis(5));
    };
    // It lives on while nobody is killed, whichever thread started it.
    std::thread::sleep(Duration::from_millis(300));
    assert!(process(darktable).is_some_and(|(state, _)| state != 'Z'), "it was ended too soon");
    program.kill().unwrap();
    program.wait().unwrap();
    let gone = || process(darktable).is_none_or(|(state, _)| state == 'Z');
    let killed = Instant::now();
    while !gone() && killed.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if !gone() {
        Command::new("kill").args(["-KILL", &darktable.to_string()]).status().unwrap();
        panic!("darktable outlived the program");
    }
}
