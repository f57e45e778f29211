//! What goes wrong on the disk: one that is full or cannot be written, a bit that flips, a line that is torn. Each
//! case has its message, its remedy and its documented exit status, and loses nothing.

#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::path::PathBuf;
use std::process::Command;

use chemigram::session::listing;
use engine::photo::Library;
use serde_json::Value;

use crate::cup::*;

/// A session whose third reply is too long for the space that is left.
fn wordy() -> String {
    let edit =
        EDIT.replacen("[[reply]]", &format!("[[reply]]\ntext = \"{}\"", "so bright ".repeat(20_000)), 1);
    format!("{CONFIRM}{edit}{CLOSE}")
}

#[test]
fn a_session_that_runs_out_of_space_says_so_and_goes_on_when_there_is_some() {
    let home = Home::new();
    home.session_ends(0, &format!("{CONFIRM}{EDIT}{CLOSE}"), BUDGET, &["completed"]);
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);
    let limited = |blocks: u32, arguments: &[String]| home.limited(blocks, arguments);
    // Not even the prompt can be stored: there is no session then.
    let before = home.newest().0;
    let told = said(&limited(2, &home.session(&wordy())), 4, &["File too large", "free some space"]);
    assert!(!told.contains("--resume"), "{told}");
    assert_eq!(home.newest().0, before);
    // In the middle of it.
    said(&limited(100, &home.session(&wordy())), 4, &["File too large", "free some space", "--resume"]);
    assert_ne!(home.newest().0, before);
    home.whole();
    assert!(home.ok(&["mode-b", "list"]).contains("interrupted"));
    home.resume(0, &wordy(), &[], &["completed", "Score: 4/5"]);
    home.whole();
}

#[test]
fn a_disk_that_fills_up_under_a_tool_ends_the_session_and_the_call_is_made_again() {
    let home = Home::new();
    let look = "[[reply]]\ncalls = [{ name = \"render_preview\", arguments = {} }]\n";
    let script = format!("{CONFIRM}{EDIT}{look}{CLOSE}");
    let mut arguments = home.session(&script);
    // Pictures are the largest files then, and all of them are in the cache after the first run.
    let at = arguments.iter().position(|argument| argument == "256").unwrap();
    arguments[at] = "1024".into();
    let made = || {
        let branches: Value = serde_json::from_str(&home.ok(&["branch", "cup", "--json"])).unwrap();
        branches["branches"]["branch_b_tone"].as_str().unwrap().to_owned()
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    home.ok(&words);
    let undisturbed = made();
    let picture = kinds_of_results(&home.lines());
    let mut cut_at = std::collections::BTreeSet::new();
    for blocks in [60, 80, 100, 130, 170, 1000] {
        home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);
        let output = home.limited(blocks, &arguments);
        if !output.status.success() {
            let told = said(&output, 4, &["File too large", "free some space on the disk", "--resume"]);
            assert!(told.contains(home.library.to_str().unwrap()), "the file is not named: {told}");
            let lines = home.lines();
            assert!(lines.iter().all(|line| line["code"].is_null()), "the model was told of it");
            cut_at.insert(lines.last().unwrap()["kind"].as_str().unwrap().to_owned());
            home.resume(0, &script, &[], &["completed", "Score: 4/5"]);
        }
        assert_eq!(made(), undisturbed, "at {blocks} KiB");
        assert_eq!(kinds_of_results(&home.lines()), picture, "at {blocks} KiB");
        home.whole();
    }
    assert!(cut_at.contains("render") || cut_at.contains("tool_call"), "no tool was cut: {cut_at:?}");
}

/// The tools that answered, in order.
fn kinds_of_results(lines: &[Value]) -> Vec<String> {
    let results = lines.iter().filter(|line| line["kind"] == "tool_result");
    results.map(|line| line["result"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a4_one_flipped_bit_in_any_file_of_a_photos_folder_is_found() {
    let home = Home::new();
    let learn = r#"
[[reply]]
calls = [
  { name = "log_vocabulary_gap", arguments = { description = "No move for the rim.", intent_category = "local", satisfaction = -1 } },
  { name = "propose_notes_update", arguments = { text = "The rim clips first." } },
  { name = "render_preview", arguments = {} },
]
"#;
    home.session_ends(0, &format!("{CONFIRM}{EDIT}{learn}{CLOSE}"), BUDGET, &["completed"]);
    home.ok(&["promote", "cup", "branch_b_tone", "--tag", "v2"]);
    let workspace = Library::new(&home.library).open(&"cup".parse().unwrap()).unwrap();
    let is_whole = || {
        let Ok(workspace) = Library::new(&home.library).open(workspace.id()) else { return false };
        let report = chemigram::session::fsck::fsck(&workspace).unwrap();
        report.is_whole()
    };
    assert!(is_whole());
    let session = listing::of_photo(&workspace).unwrap().remove(0);
    // What `mode-b show` reads, and what `mode-b list` says.
    let is_shown = || listing::read(&workspace, &session).is_ok();
    let is_listed = || listing::summary(&workspace, &session).condition.word() != "damaged";
    assert!(is_shown() && is_listed());
    // The photographer's own texts may be anything, and previews are made again when they are missed.
    let free = ["brief.md", "notes.md", "lock", "previews"].map(|name| workspace.folder().join(name));
    let (mut folders, mut seen) = (vec![workspace.folder().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                _ if free.contains(&path) => {}
                true => folders.push(path),
                false => seen.push(path),
            }
        }
    }
    for path in &seen {
        let good = std::fs::read(path).unwrap();
        let many = if good.len() < 400 { good.len() } else { 40 };
        for n in 0..many {
            let mut bytes = good.clone();
            // From the first byte to the last, and every bit in turn.
            bytes[n * (good.len() - 1) / (many - 1).max(1)] ^= 1 << (n % 8);
            std::fs::write(path, bytes).unwrap();
            assert!(!is_whole(), "{} at {n} of {many}", path.display());
            if path.ends_with("transcript.jsonl") {
                assert!(!is_shown() && !is_listed(), "{} at {n} of {many}", path.display());
            }
        }
        std::fs::write(path, good).unwrap();
    }
    assert!(is_whole());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: Vec<String> = seen.iter().map(name).collect();
    for one in
        ["photo.json", "HEAD", "log.jsonl", "main", "v2", "transcript.jsonl", "proposals.jsonl", "cup.dng"]
    {
        assert!(names.iter().any(|name| name == one), "{one} is not among {names:?}");
    }
    // And a file that is gone, if the photo needs it.
    let blobs = home.newest().1.with_file_name("blobs");
    for blob in std::fs::read_dir(blobs).unwrap() {
        let (path, away) = (blob.unwrap().path(), home.path("away"));
        std::fs::rename(&path, &away).unwrap();
        assert!(!is_whole(), "{} is not missed", path.display());
        std::fs::rename(&away, &path).unwrap();
    }
}

/// A small file system, taken away at the end.
struct Disk(PathBuf);

impl Disk {
    /// `None` where one may not be mounted.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }

    fn read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_or_read_only_loses_nothing() {
    let mut home = Home::new();
    // Everybody may try this one.
    home.fails(9, &["--library", "/sys/photos", "ingest", "cup.dng"], &["/sys/photos", "permission"]);
    let Some(disk) = Disk::mount(home.path("disk")) else { return };
    home.library = home.path("disk/photos");
    home.ok(&["ingest", "cup.dng"]);
    home.session_ends(0, &format!("{CONFIRM}{EDIT}{CLOSE}"), BUDGET, &["completed"]);
    home.ok(&["branch", "cup", "branch_b_tone", "--delete"]);

    let fill = |but: u64| {
        let free = rustix::fs::statvfs(&disk.0).unwrap();
        let filler = usize::try_from((free.f_bavail * free.f_frsize).saturating_sub(but)).unwrap();
        std::fs::write(home.path("disk/filler"), vec![1; filler]).unwrap();
    };
    // Whatever it is that finds no room: an object, a ref, a picture or the transcript.
    for left in [112, 128, 144, 176, 208] {
        fill(left << 10);
        let arguments = home.session(&format!("{CONFIRM}{EDIT}{CLOSE}"));
        let output = home.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        std::fs::remove_file(home.path("disk/filler")).unwrap();
        if !output.status.success() {
            let told = said(&output, 4, &["No space left on device", "free some space on the disk at"]);
            assert!(told.contains(disk.0.to_str().unwrap()), "{told}");
            if told.contains("--resume") {
                assert!(home.lines().iter().all(|line| line["code"].is_null()), "{left}: the model was told");
                home.resume(0, &format!("{CONFIRM}{EDIT}{CLOSE}"), &[], &["completed", "Score: 4/5"]);
            }
        }
        home.whole();
        let _ = home.run(&["branch", "cup", "branch_b_tone", "--delete"]);
        std::fs::remove_dir_all(home.photo("sessions/mode_b")).unwrap();
        std::fs::create_dir(home.photo("sessions/mode_b")).unwrap();
        home.ok(&["gc", "cup", "--yes"]);
    }
    fill(160 << 10);
    home.session_ends(4, &wordy(), BUDGET, &["No space left on device", "free some space", "--resume"]);
    home.whole();
    let kept = home.lines().len();
    std::fs::remove_file(home.path("disk/filler")).unwrap();
    home.resume(0, &wordy(), &[], &["completed", "Score: 4/5"]);
    assert!(home.lines().len() > kept);
    home.whole();

    disk.read_only();
    home.ok(&["status", "cup"]);
    home.ok(&["log", "cup"]);
    home.fails(9, &["apply", "cup", "exposure", "ev=0.5"], &["Read-only file system", "read-only"]);
    home.session_ends(9, CONFIRM, BUDGET, &["Read-only file system"]);
    home.whole();
}

#[test]
fn a_damaged_object_is_named_with_the_way_to_find_out_more() {
    let home = Home::new();
    home.ok(&["apply", "cup", "exposure", "ev=0.5"]);
    let status: Value = serde_json::from_str(&home.ok(&["status", "cup", "--json"])).unwrap();
    let commit = status["commit"].as_str().unwrap();
    let file = |kind: &str, hash: &str| home.photo(&format!("objects/{kind}/{}/{}", &hash[..2], &hash[2..]));
    let content: Value = serde_json::from_slice(&std::fs::read(file("commits", commit)).unwrap()).unwrap();
    let state = content["state"].as_str().unwrap();
    for (kind, hash) in [("states", state), ("commits", commit)] {
        let good = std::fs::read(file(kind, hash)).unwrap();
        flip(&file(kind, hash));
        let short = &hash[..12];
        let session = ["run-mode-b", "cup", "--yes", "--budget", "lite"];
        home.fails(5, &["status", "cup"], &[short, "damaged", "chemigram fsck"]);
        home.fails(5, &session, &[short, "damaged", "chemigram fsck"]);
        if kind == "commits" {
            home.fails(5, &["log", "cup"], &[short, "damaged", "chemigram fsck"]);
        }
        home.fails(5, &["fsck", "cup"], &[hash]);
        assert!(home.ok(&["mode-b", "list", "-q"]).is_empty());
        std::fs::write(file(kind, hash), good).unwrap();
        home.whole();
    }
}

#[test]
fn a_damaged_transcript_is_named_with_its_line_and_a_torn_one_goes_on() {
    let home = Home::new();
    let script = format!("{CONFIRM}{EDIT}{CLOSE}");
    home.session_ends(0, &script, BUDGET, &["completed"]);
    let (id, path) = home.newest();
    let good = std::fs::read_to_string(&path).unwrap();
    let open = good.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";

    std::fs::write(&path, &open).unwrap();
    flip(&path);
    let at = open[..open.len() / 2].lines().count();
    let listed = home.ok(&["mode-b", "list"]);
    let named = |text: &str| (at..=at + 1).any(|n| text.contains(&format!("line {n}:")));
    assert!(listed.contains("damaged") && named(&listed), "{at}: {listed}");
    let refused = home.fails(5, &["run-mode-b", "--resume", &id, "--yes"], &["damaged at line", "fsck"]);
    assert!(named(&refused), "{at}: {refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().len(), open.len(), "it is left as it was found");
    let checked = home.fails(5, &["fsck", "cup"], &["transcript.jsonl line"]);
    assert!((at..=at + 1).any(|n| checked.contains(&format!("line {n}:"))), "{at}: {checked}");

    // Torn in the last line: cut, and gone on with.
    std::fs::write(&path, &open[..open.len() - 9]).unwrap();
    assert!(home.ok(&["mode-b", "list"]).contains("interrupted"));
    home.resume(0, &script, &[], &["completed", "Score: 4/5"]);
    let lines = home.lines();
    let resumed = lines.iter().find(|l| l["kind"] == "resumed").unwrap();
    assert_eq!(resumed["torn"], true);
    home.whole();
}
