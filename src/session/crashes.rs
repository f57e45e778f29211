//! A session that is killed at any of its writes to the disk, taken up again, ends as if nothing had been.
//!
//! One session runs undisturbed, and every change that it makes to the disk is noted. Doing the first of them again in
//! a copy of the library is the disk that a kill at that moment leaves; there the session is taken up by a process
//! that knows nothing but that disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use crate::budget::{Amounts, Ledger};
use crate::conversation::Message;
use crate::gate;
use crate::session::driver::Session;
use crate::session::replay::copy_folder;
use crate::session::rig::{self, Rig, Sums, begin, folder, photo, request, run};
use crate::session::start::{self, Resume};
use crate::session::{SessionError, fsck};
use crate::transcript::{self, Event, Judgment, Line, Outcome, SessionEnd};
use base::durable::journal::{self, Change, Changes};
use base::ids::{Hash, RefName};
use engine::photo::Head;

const BUDGET: &str = "time=20h,iterations=40,branches=3,renders=60,tokens=900k";

/// A session that does a little of everything: sees, edits, fails, masks, tags, goes back, judges, gives up, proposes.
const SCRIPT: &str = r#"
[[reply]]
calls = [{ name = "read_context" }, { name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open." }, { name = "color", restated = "Warm." }] } }]
usage = { input_fresh = 4000, output = 90 }
[[reply]]
calls = [{ name = "branch", arguments = { name = "branch_b_tone" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.4 } } }]
[[reply]]
calls = [{ name = "render_preview" }]
FAULT
[[reply]]
calls = [{ name = "apply_primitive", arguments = { primitive_name = "no_such_move" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.9 } , label = "again" } }, { name = "compare" }]
[[reply]]
calls = [{ name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.3 }, mask = { shape = "circle", center = [0.5, 0.5], radius = 0.2 } } }, { name = "tag", arguments = { name = "branch_b_tone_kept" } }]
[[reply]]
text = "I think."
[[reply]]
calls = [{ name = "log_vocabulary_gap", arguments = { description = "No move for the rim.", intent_category = "local", satisfaction = -1 } }, { name = "propose_notes_update", arguments = { text = "The rim clips first." } }, { name = "propose_taste_update", arguments = { text = "Likes it open.", category = "appearance" } }]
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Open.", comparable_to_baseline = true, key_moves = ["exposure ev=0.9"] } }]
[[reply]]
calls = [{ name = "branch", arguments = { name = "branch_b_color" } }, { name = "apply_primitive", arguments = { primitive_name = "warmth", parameter_values = { shift = 12 } } }, { name = "image_stats" }, { name = "remove_module", arguments = { module = "temperature" } }]
usage = { input_fresh = 9000, output = 200 }
[[reply]]
calls = [{ name = "reset" }, { name = "apply_primitive", arguments = { primitive_name = "warmth", parameter_values = { shift = 5 } } }]
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_color", judged_score = 2, judged_reasoning = "Yellow.", comparable_to_baseline = true, abandoned = true } }]
[[reply]]
calls = [{ name = "end_mode_b_session", arguments = { session_summary = "Tone it is.", tag_suggestion = "v2" } }]
"#;

/// What fails once, for as long as it has not.
const FAULT: &str = r#"fault = { class = "rate_limit", status = 429, times = 1 }"#;

fn script(lines: &[Line]) -> String {
    let failed = lines.iter().any(|line| matches!(line.event, Event::Attempt { .. }));
    SCRIPT.replace("FAULT", if failed { "" } else { FAULT })
}

/// What a photographer comes home to.
#[derive(Debug, PartialEq)]
struct End {
    outcome: Outcome,
    summary: String,
    head: Head,
    branches: Vec<(RefName, Hash, Hash)>,
    tags: Vec<(RefName, Hash)>,
    judgments: Vec<Judgment>,
    proposals: Vec<String>,
    gaps: Vec<String>,
    /// Every call of the model with what it was answered, in order: name, whether it failed.
    conversation: Vec<Vec<(String, bool)>>,
    previews: BTreeMap<String, Hash>,
}

fn end_of(library: &Path, session: &Session, end: &SessionEnd) -> End {
    let workspace = photo(library);
    let state = |commit: &Hash| workspace.commit(commit).unwrap().state;
    let branches = workspace.branches().unwrap();
    let said = session.state.messages.iter().map(|message| match message {
        Message::Results { results } => results.iter().map(|r| (r.name.clone(), r.is_error)).collect(),
        Message::User { text, .. } => vec![(text.clone(), false)],
        Message::Assistant { calls, .. } => calls.iter().map(|call| (call.id.clone(), false)).collect(),
    });
    let previews = std::fs::read_dir(workspace.folder().join("previews")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, Hash::of(std::fs::read(path).unwrap()))
    });
    End {
        outcome: end.outcome,
        summary: end.summary.clone(),
        head: workspace.head().unwrap(),
        branches: branches.into_iter().map(|(name, at)| (name, at.clone(), state(&at))).collect(),
        tags: workspace.tags().unwrap(),
        judgments: session.state.branches.iter().filter_map(|branch| branch.judgment.clone()).collect(),
        proposals: workspace
            .proposals()
            .unwrap()
            .into_iter()
            .map(|proposal| proposal.proposed.text)
            .collect(),
        gaps: workspace.gaps(99).unwrap().into_iter().map(|gap| gap.report.description).collect(),
        conversation: said.collect(),
        previews: previews.filter(|(name, _)| !name.starts_with(".tmp-")).collect(),
    }
}

/// The first line in which two ends differ.
fn difference(found: &End, expected: &End) -> String {
    let [found, expected] = [found, expected].map(|end| format!("{end:#?}"));
    let mut pairs = found.lines().zip(expected.lines());
    let (found, expected) = pairs.find(|(found, expected)| found != expected).unwrap_or_default();
    format!("it ends with {} and not with {}", found.trim(), expected.trim())
}

/// Nothing of the photo is damaged, and no session of it.
fn whole(library: &Path) -> Result<(), String> {
    let workspace = photo(library);
    let report = fsck::fsck(&workspace).unwrap();
    if report.is_whole() { Ok(()) } else { Err(format!("{:?}", report.damages)) }
}

fn ledger(lines: &[Line]) -> Ledger {
    let Event::SessionStart(start) = &lines[0].event else { panic!("no header") };
    gate::ledger(start, lines)
}

/// The lines of the session in a library, if it has begun.
fn lines(library: &Path) -> Vec<Line> {
    let Some(id) = rig::sessions(library).pop() else { return Vec::new() };
    transcript::read(&photo(library).session_folder(&id).join("transcript.jsonl")).unwrap().lines
}

/// Takes up whatever is there, or begins where nothing has begun.
fn take_up(library: &Path, before: &[Line]) -> Result<Session, SessionError> {
    let setup = rig::setup(library, &script(before), Arc::new(Sums::knowing(before)));
    match rig::sessions(library).pop() {
        Some(id) => start::resume(setup, &id, Resume::default()),
        None => begin(setup, &request(BUDGET, &["tone", "color"])),
    }
}

/// One session that nothing disturbed, with every change that it made to the disk.
struct Calm {
    /// The library as it was before.
    origin: tempfile::TempDir,
    rig: Rig,
    changes: Changes,
    lines: Vec<Line>,
    end: End,
    spent: Amounts,
}

impl Calm {
    fn new() -> Self {
        let (rig, origin) = (Rig::new(), folder());
        copy_folder(&rig.library, origin.path(), &|_| true).unwrap();
        let setup = rig.setup(&script(&[]));
        let ((session, end), changes) = journal::of(&rig.library, || {
            let mut session = begin(setup, &request(BUDGET, &["tone", "color"])).unwrap();
            let end = run(&mut session).unwrap();
            (session, end)
        });
        let closed = end_of(&rig.library, &session, &end);
        let lines = lines(&rig.library);
        assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
        drop(session);
        Self { origin, changes, lines, end: closed, spent: end.spent, rig }
    }

    /// Where a path of the undisturbed library lies in another one.
    fn within(&self, library: &Path, path: &Path) -> PathBuf {
        library.join(path.strip_prefix(&self.rig.library).unwrap())
    }

    /// Takes the session up in this library, and holds its end against the undisturbed one.
    fn ends_alike(&self, library: &Path) -> Result<(), String> {
        whole(library).map_err(|what| format!("before: {what}"))?;
        let before = lines(library);
        let mut session = take_up(library, &before).map_err(|e| format!("{e}"))?;
        let end = run(&mut session).map_err(|e| format!("{e}"))?;
        let closed = end_of(library, &session, &end);
        drop(session);
        whole(library)?;
        if closed != self.end {
            return Err(difference(&closed, &self.end));
        }
        let after = lines(library);
        if after.get(..before.len()) != Some(&before[..]) {
            return Err("a line that was whole is gone".into());
        }
        self.paid(&before, &after, &end)
    }

    /// What a kill hid is charged in full, whatever it came to; nothing else is charged twice, and nothing is free.
    fn paid(&self, before: &[Line], after: &[Line], end: &SessionEnd) -> Result<(), String> {
        let hidden = if before.is_empty() {
            Amounts::default()
        } else {
            ledger(before).assumed().plus(ledger(before).reserved())
        };
        let most = self.spent.plus(hidden);
        // A number of another length in a result is a token more or less.
        let within = |spent: Amounts, most: Amounts| {
            let some = most.tokens / 100;
            spent.minus(Amounts { tokens: most.tokens + some, ..most }) == Amounts::default()
        };
        if end.assumed != hidden || !within(end.spent, most) || !within(self.spent, end.spent) {
            return Err(format!("{hidden:?} were hidden, {end:?} after {:?}", self.spent));
        }
        let time = |lines: &[Line]| lines.last().map_or(0, |line| line.mono_ms);
        if time(after) < time(before) {
            return Err("the time was refilled".into());
        }
        Ok(())
    }

    /// Gives every disk that a kill or a loss of power can leave, with what was cut.
    fn every_disk(&self, mut give: impl FnMut(tempfile::TempDir, String)) {
        let disk = copy(self.origin.path());
        // How much of each file a loss of power leaves, where that is less than there is.
        let mut kept: BTreeMap<&Path, u64> = BTreeMap::new();
        for (n, (path, change)) in self.changes.iter().enumerate() {
            let name = format!("{n} {}", path.strip_prefix(&self.rig.library).unwrap().display());
            let all = change.bytes();
            let cuts = match change {
                Change::Append { .. } => BTreeSet::from([1, all.saturating_sub(1)]),
                _ => BTreeSet::from([all / 2]),
            };
            for bytes in cuts.into_iter().filter(|bytes| (1..all).contains(bytes)) {
                let copy = copy(disk.path());
                change.begin(&self.within(copy.path(), path), bytes);
                give(copy, format!("{bytes} of {all} bytes of change {name}"));
            }
            let here = self.within(disk.path(), path);
            change.make(&here);
            if n + 1 == self.changes.len() {
                break;
            }
            give(copy(disk.path()), format!("after change {name}"));
            match change {
                Change::Append { synced: false, bytes } => {
                    let before = std::fs::metadata(&here).unwrap().len() - bytes.len() as u64;
                    kept.entry(path).or_insert(before);
                }
                _ => drop(kept.remove(path.as_path())),
            }
            if !kept.is_empty() {
                let copy = copy(disk.path());
                for (path, length) in &kept {
                    Change::Truncate(*length).make(&self.within(copy.path(), path));
                }
                give(copy, format!("the power lost after change {name}"));
            }
        }
        // What was noted is all that was done: the folder is the same.
        let names_of = |library: &Path| files(library).into_keys().collect::<Vec<_>>();
        assert_eq!(names_of(disk.path()), names_of(&self.rig.library));
        assert_eq!(files(disk.path()), files(&self.rig.library));
    }
}

/// A copy of a library that is thrown away.
fn copy(library: &Path) -> tempfile::TempDir {
    let copy = folder();
    copy_folder(library, copy.path(), &|_| true).unwrap();
    copy
}

#[test]
fn a_session_killed_at_any_write_or_within_it_ends_as_the_undisturbed_one() {
    let calm = Calm::new();
    assert!(calm.lines.len() > 60, "{} lines", calm.lines.len());
    let (disks, left) = mpsc::sync_channel::<(tempfile::TempDir, String)>(4);
    let left = Arc::new(Mutex::new(left));
    let end_all = |left: Arc<Mutex<mpsc::Receiver<_>>>| {
        let next = || left.lock().unwrap().recv().ok();
        let ended = std::iter::from_fn(next).map(|(disk, what): (tempfile::TempDir, String)| {
            calm.ends_alike(disk.path()).err().map(|why| format!("{what}: {why}"))
        });
        ended.collect::<Vec<_>>()
    };
    let ended = std::thread::scope(|scope| {
        // The channel is theirs alone: when both have panicked, the next disk is refused.
        let threads = [Arc::clone(&left), left].map(|left| scope.spawn(|| end_all(left)));
        calm.every_disk(|disk, what| disks.send((disk, what)).unwrap());
        drop(disks);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(ended.len() > 400, "{}", ended.len());
    let failed: Vec<&String> = ended.iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {}:\n{failed:#?}", failed.len(), ended.len());
}

/// The files below a folder with their content, but for the names of those who held it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = files(&entry.path()).into_iter();
            found.extend(below.map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        } else if name != "lock" {
            found.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn a_session_killed_again_while_it_is_taken_up_ends_as_the_undisturbed_one() {
    let calm = Calm::new();
    let disk = copy(calm.origin.path());
    let mut failed = Vec::new();
    for (n, (path, change)) in calm.changes.iter().enumerate() {
        change.make(&calm.within(disk.path(), path));
        if n % 6 != 0 || n + 1 == calm.changes.len() {
            continue;
        }
        // The second process, with what it changes, and the disk on which it found the first one's work.
        let (second, found) = (copy(disk.path()), copy(disk.path()));
        let ((), changes) = journal::of(second.path(), || {
            let before = lines(second.path());
            drop(run(&mut take_up(second.path(), &before).unwrap()).unwrap());
        });
        let cut = (n * 31 + 7) % changes.len();
        for (path, change) in &changes[..=cut] {
            change.make(&found.path().join(path.strip_prefix(second.path()).unwrap()));
        }
        if cut + 1 < changes.len()
            && let Err(why) = calm.ends_alike(found.path())
        {
            failed.push(format!("at change {n}, then at {cut} of {}: {why}", changes.len()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Every byte of the first lines, and of all others those around their ends; of the rest one in so many.
/// `CHEMIGRAM_TEST_CUT_STEP=1` cuts at every byte of all of them.
#[test]
fn a_transcript_cut_at_any_byte_is_read_to_its_last_whole_line_and_folds() {
    const ALL: usize = 10_000;
    let step = std::env::var("CHEMIGRAM_TEST_CUT_STEP").ok().and_then(|n| n.parse().ok()).unwrap_or(41);
    let calm = Calm::new();
    let workspace = photo(&calm.rig.library);
    let path = workspace.session_folder(&rig::sessions(&calm.rig.library)[0]).join("transcript.jsonl");
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').map(|at| at + 1).collect();
    let near = |cut: usize| ends.iter().any(|end| end.abs_diff(cut) < 3);
    let mut cuts = 0;
    for cut in (0..bytes.len()).rev().filter(|cut| *cut < ALL || cut % step == 0 || near(*cut)) {
        file.set_len(cut as u64).unwrap();
        let whole = ends.partition_point(|end| *end <= cut);
        let torn = cut - whole.checked_sub(1).map_or(0, |last| ends[last]);
        let read = transcript::read(&path).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
        assert_eq!((read.lines.len(), read.torn), (whole, torn), "cut at {cut}");
        assert_eq!(read.lines, calm.lines[..whole], "cut at {cut}");
        if whole > 0 && torn == 0 {
            let state = start::fold(&workspace, &read.lines).unwrap();
            assert_eq!(state.end.is_some(), whole == ends.len());
        }
        cuts += 1;
    }
    assert!(cuts > 10_000, "{cuts} cuts of {} bytes", bytes.len());
}
