//! What a person types, and the whole of what a terminal of 80 by 24 and of 120 by 40 shows then: `tests/terminal/`. Each
//! verb is undone, or refused: the number in brackets is the status. `CHEMIGRAM_UPDATE_SNAPSHOTS=1 cargo test --test program terminals::` writes
//! the files again, to be read before they are committed.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use base::ids::SessionId;
use serde_json::json;

use crate::support::{Studio, confirm, reply, request};
use crate::verbs::{Home, settled};

/// Arguments, and what is typed at the question. `LEFT`, `RIGHT` and `BOTH` are parts of ids.
type Step = (&'static str, &'static str);

/// The verbs on a photo without a session.
const PHOTO: &[Step] = &[
    ("undo iguana", ""),
    ("branch iguana mine", ""),
    ("branch iguana mine", ""),
    ("branch iguana ../mine", ""),
    ("branch iguana mine --rename main", ""),
    ("branch iguana gone --rename mine", ""),
    ("branch iguana gone --delete", ""),
    ("checkout iguana mine", ""),
    ("apply iguana exposure ev=0.5", ""),
    ("apply iguana exposre ev=0.5", ""),
    ("apply iguana exposure ev=50", ""),
    ("diff iguana baseline", ""),
    ("undo iguana --dry-run", ""),
    ("undo iguana", ""),
    ("diff iguana baseline", ""),
    ("apply iguana exposure ev=0.5", ""),
    ("reset iguana", ""),
    ("reset iguana", ""),
    ("undo iguana", ""),
    ("diff iguana baseline", ""),
    ("checkout iguana baseline", ""),
    ("apply iguana exposure ev=0.5", ""),
    ("undo iguana", ""),
    ("tag iguana v4", ""),
    ("tag iguana v4 baseline", ""),
    ("tag iguana gone --delete", ""),
    ("undo iguana", ""),
    ("promote iguana mine", ""),
    ("promote iguana gone --to-main", ""),
    ("promote iguana mine --to-main --dry-run", ""),
    ("promote iguana mine --to-main", ""),
    ("promote --picks picks.json", ""),
    ("log iguana zzzz", ""),
    ("undo iguana", ""),
    ("ingest Iguana.DNG nowhere.NEF empty", ""),
    ("mode-b delete last", ""),
    ("mode-b show last", ""),
    ("review", ""),
    ("prune", ""),
    ("prune --older-than soon", ""),
    ("cache limit 5PB", ""),
    ("cache limit 500MB", ""),
    ("gc iguana", ""),
    ("gc iguana --yes", ""),
    ("fsck iguana", ""),
];

/// The verbs on a photo with two sessions: `LEFT` has a branch that stands, `RIGHT` gave its branch up.
const SESSIONS: &[Step] = &[
    ("mode-b status abc", ""),
    ("mode-b status zzzzzz", ""),
    ("mode-b show BOTH", ""),
    ("mode-b stop last", ""),
    ("promote last branch_b_tone --tag v2", ""),
    ("undo coffee", ""),
    ("promote LEFT branch_b_tone --to-main", ""),
    ("undo coffee", ""),
    ("mode-b delete LEFT", ""),
    ("mode-b delete LEFT --branches --dry-run", ""),
    ("mode-b delete last", "no\n"),
    ("mode-b delete RIGHT", ""),
    ("mode-b delete RIGHT", "yes\n"),
    ("undo coffee", ""),
    ("mode-b delete RIGHT", ""),
    ("prune --all", ""),
    ("prune --all --branches", "no\n"),
    ("prune --all --branches", "yes\n"),
    ("undo coffee", ""),
    ("mode-b list", ""),
    ("fsck coffee", ""),
];

/// What is left on the screen: of a line that was written anew only its last state; and without the numbers that differ
/// from run to run, which stand before a unit of size.
fn last_seen(text: &str) -> String {
    let lines = text.split('\n').map(|line| line.rsplit("\u{1b}[2K").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        if words[at].starts_with("MB") || words[at].starts_with("byte") {
            words[at - 1] = "#";
        }
    }
    words.join(" ")
}

/// Types the steps, and returns the whole of what was shown.
fn walk(home: &Home, size: (u16, u16), before: &[&str], steps: &[Step], ids: &[(&str, &str)]) -> String {
    let mut all = String::new();
    for (typed, answer) in steps {
        let line = ids.iter().fold((*typed).to_owned(), |line, (name, part)| line.replace(name, part));
        let words: Vec<&str> = before.iter().copied().chain(line.split(' ')).collect();
        let (shown, status) = home.terminal(size, answer, &words);
        let shown = ids.iter().fold(shown, |shown, (name, part)| shown.replace(part, name));
        all.push_str(&format!(
            "$ chemigram {typed}\n{}[{status}]\n\n",
            last_seen(&settled(&shown, home.path()))
        ));
    }
    all
}

/// A session that brightens one branch, and keeps it or gives it up.
fn session(studio: &Studio, branch: &str, kept: bool) -> SessionId {
    let vector = branch.trim_start_matches("branch_b_");
    let score = if kept { 4 } else { 2 };
    let judgment =
        json!({ "branch": branch, "judged_score": score, "judged_reasoning": "So.", "abandoned": !kept });
    let script = confirm(&[vector])
        + &reply(&[
            ("branch", &json!({ "name": branch }).to_string()),
            ("apply_primitive", r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.4}}"#),
        ])
        + &reply(&[("record_judgment", &judgment.to_string())])
        + &reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)]);
    let asked = request("time=20h,iterations=20,branches=1", &[(vector, "brighter")]);
    let mut session = studio.scripted(&script, &asked);
    crate::support::run(&mut session);
    session.state.start.session.clone()
}

#[test]
fn every_verb_shows_what_was_read_and_committed_in_terminals_of_two_sizes() {
    let studio = Studio::new();
    let (left, right) = (session(&studio, "branch_b_tone", true), session(&studio, "branch_b_light", false));
    let library = studio.workspace.folder().parent().unwrap();
    for size in [(80, 24), (120, 40)] {
        let home = Home::new();
        crate::home::cold(home.path());
        std::fs::create_dir(home.path().join("empty")).unwrap();
        let photo = walk(&home, size, &[], PHOTO, &[]);
        // A library for each size: what is deleted in one is there in the other.
        let copy = home.path().join("library");
        copied(library, &copy);
        let both: String = left
            .as_str()
            .chars()
            .zip(right.as_str().chars())
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a)
            .collect();
        let ids = [
            ("LEFT-ID", left.as_str()),
            ("RIGHT-ID", right.as_str()),
            ("LEFT", left.short()),
            ("RIGHT", right.short()),
            ("BOTH", both.as_str()),
        ];
        let copy = copy.display().to_string();
        let sessions = walk(&home, size, &["--library", &copy], SESSIONS, &ids);
        let name = format!("tests/terminal/{}x{}.txt", size.0, size.1);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        let found = photo + &sessions;
        assert!([&left, &right].iter().all(|id: &&SessionId| !found.contains(id.as_str())), "{found}");
        if std::env::var_os("CHEMIGRAM_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &found).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let differs = found.lines().zip(kept.lines()).find(|(found, kept)| found != kept);
        assert!(found == kept, "{name} is out of date: {differs:?}");
    }
}

/// Copies a folder with all that is in it.
fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copied(&path, &to)
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

/// The colours of the half blocks in a text: pictures of rows of pixels.
fn pictures(text: &str) -> Vec<Vec<Vec<[f64; 3]>>> {
    let mut pictures = vec![Vec::new()];
    for line in text.lines() {
        let blocks: Vec<[f64; 6]> = line
            .split("\u{1b}[38;2;")
            .skip(1)
            .map(|block| {
                let numbers: Vec<f64> = block
                    .split('m')
                    .next()
                    .unwrap()
                    .replace("48;2;", "")
                    .split(';')
                    .map(|number| number.parse().unwrap())
                    .collect();
                numbers.try_into().unwrap()
            })
            .collect();
        let row =
            |from: usize| blocks.iter().map(|b| [b[from], b[from + 1], b[from + 2]]).collect::<Vec<_>>();
        match blocks.is_empty() {
            true => pictures.push(Vec::new()),
            false => pictures.last_mut().unwrap().extend([row(0), row(3)]),
        }
    }
    pictures.retain(|picture| !picture.is_empty());
    pictures
}

#[test]
fn pictures_are_shown_in_a_terminal_that_can_and_nowhere_else() {
    let (studio, home) = (Studio::new(), Home::new());
    session(&studio, "branch_b_tone", true);
    let library = studio.workspace.folder().parent().unwrap().display().to_string();
    let show = ["--library", &library, "mode-b", "show", "last", "--images"];
    let shown = |kind: &[(&str, &str)]| {
        let (text, status) = home.terminal_of(kind, (80, 24), "", &show);
        assert_eq!(status, 0, "{text}");
        text
    };
    let (term, colours) = (("TERM", "xterm-256color"), ("COLORTERM", "truecolor"));
    let text = shown(&[term, colours]);
    let drawn = pictures(&text);
    for name in ["before", "branch_b_tone 4/5"] {
        assert!(text.contains(&format!("\n{name}\n")), "{name} is not above its picture");
    }
    let review = studio.workspace.folder().join("previews");
    let files = std::fs::read_dir(review).unwrap().map(|entry| entry.unwrap().path());
    let (branch, before): (Vec<_>, Vec<_>) =
        files.partition(|path| path.to_str().unwrap().contains("branch_b_tone"));
    assert_eq!(drawn.len(), 2);
    let mut light = Vec::new();
    for (picture, file) in drawn.iter().zip([&before[0], &branch[0]]) {
        let (columns, rows) = (picture[0].len(), picture.len());
        assert!(columns <= 80 && rows <= 44 && picture.iter().all(|row| row.len() == columns));
        let real = image::open(file).unwrap().to_rgb8();
        let real = image::imageops::thumbnail(&real, columns as u32, rows as u32);
        let mut apart = 0.0;
        let mut sum = 0.0;
        for (x, y, pixel) in real.enumerate_pixels() {
            for (channel, value) in pixel.0.iter().enumerate() {
                let drawn = picture[y as usize][x as usize][channel];
                apart += (drawn - f64::from(*value)).abs();
                sum += drawn;
            }
        }
        let count = (columns * rows * 3) as f64;
        assert!(apart / count < 6.0, "{} is drawn {:.1} off", file.display(), apart / count);
        light.push(sum / count);
    }
    assert!(light[1] > light[0] + 5.0, "the branch is brighter: {light:?}");

    let kitty = shown(&[("TERM", "xterm-kitty"), ("KITTY_WINDOW_ID", "1")]);
    assert_eq!(kitty.matches("\u{1b}_Ga=T,f=100").count(), 2);
    let iterm = shown(&[term, ("TERM_PROGRAM", "iTerm.app")]);
    assert_eq!(iterm.matches("\u{1b}]1337;File=inline=1").count(), 2);
    let refusing: [&[(&str, &str)]; 3] =
        [&[("TERM", "dumb"), colours], &[term, colours, ("NO_COLOR", "1")], &[("TERM", "xterm")]];
    for kind in refusing {
        let text = shown(kind);
        assert!(
            pictures(&text).is_empty() && text.contains("pictures are shown only in a terminal"),
            "{text}"
        );
    }
    // A pipe gets the text alone, and `--json` the object.
    let piped = String::from_utf8(home.run(&show).stdout).unwrap();
    assert!(piped.contains("branch_b_tone") && !piped.contains('\u{1b}'), "{piped}");
}
