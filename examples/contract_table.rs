//! The whole vocabulary on several darktables.
//!
//! `contract_table measure` judges every move with the installed darktable and leaves verdicts and pictures in
//! `target/contract/VERSION`; the oldest supported version comes first, because the edit that all pictures start
//! from is its. `contract_table page` makes `docs/darktable-versions.md` of what is there.
//! `scripts/darktable-versions.sh` does all of it.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a tool for developers, who want the backtrace"
)]
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use darktable::layout::MEASURED;
use darktable::render::Picture;
use darktable::state::EditState;
use engine::vocabulary::table::title;
use pixels::metrics::difference::Difference;
use serde::{Deserialize, Serialize};
use testkit::contract::{Verdict, contract};
use testkit::demo::{self, Demo};

/// One move on one darktable.
#[derive(Serialize, Deserialize)]
struct Row {
    group: String,
    name: String,
    /// `green`, `not offered` or `red`.
    verdict: String,
    /// Why it is not green.
    reasons: Vec<String>,
}

/// The untouched photo among the pictures; no move has such a name.
const START: &str = "untouched photo";

fn folder(version: &str) -> PathBuf {
    Path::new("target/contract").join(version)
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("measure") => measure(),
        Some("page") => fs::write("docs/darktable-versions.md", page()).unwrap(),
        _ => panic!("usage: contract_table measure|page"),
    }
}

fn measure() {
    let mut demos = Demo::open_all(&[]);
    let version = demos[0].version().to_owned();
    let folder = folder(&version);
    // Where CHEMIGRAM_ONLY names some, what was found about the others stays.
    let known = match demo::only() {
        Some(_) => verdicts(&version),
        None => Vec::new(),
    };
    if known.is_empty() {
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder).unwrap();
    let entries = demos[0].vocabulary.entries();
    let stays = |row: &Row| !demo::wanted(&row.name) && entries.iter().any(|entry| entry.name == row.name);
    let mut rows: Vec<Row> = known.into_iter().filter(stays).collect();
    drop(entries);
    for demo in &mut demos {
        let values = judge(demo, &mut rows);
        photograph(demo, &values, &folder);
    }
    rows.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    fs::write(folder.join("verdicts.json"), serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
}

/// Adds the verdicts on what a photo shows to the rows; the default values of these moves.
fn judge(demo: &Demo, rows: &mut Vec<Row>) -> BTreeMap<String, BTreeMap<String, f64>> {
    let (outcomes, timing) = contract(demo);
    println!("on the photo `{}`:", demo.kind.as_deref().unwrap_or("demo"));
    for (what, pictures, took) in timing {
        println!("{what}: {pictures} pictures, {:.1} s", took.as_secs_f64());
    }
    let mut values = BTreeMap::new();
    rows.extend(outcomes.into_iter().map(|outcome| {
        let entry = outcome.entry;
        values.insert(entry.name.to_owned(), entry.values(|p| p.default));
        let (verdict, reasons) = match outcome.verdict {
            Verdict::Green => ("green", Vec::new()),
            Verdict::NotOffered(why) => ("not offered", vec![why]),
            Verdict::Red(broken) => ("red", broken),
        };
        if !reasons.is_empty() {
            println!("{}: {verdict}: {reasons:?}", entry.name);
        }
        Row { group: title(entry.file), name: entry.name.to_owned(), verdict: verdict.to_owned(), reasons }
    }));
    values
}

/// Leaves a picture of each of these moves on the same edit for every darktable, so that what differs is the module and
/// not the defaults.
fn photograph(demo: &mut Demo, values: &BTreeMap<String, BTreeMap<String, f64>>, folder: &Path) {
    let kind = demo.kind.clone();
    let start = PathBuf::from(format!("target/contract/start-{}.json", kind.as_deref().unwrap_or("demo")));
    if demo.version() == MEASURED[0] {
        fs::write(&start, demo.facts.baseline.canonical()).unwrap();
    }
    let start = fs::read(start).unwrap_or_else(|_| panic!("measure with darktable {} first", MEASURED[0]));
    demo.facts.baseline = serde_json::from_slice(&start).unwrap();
    let baseline = demo.facts.baseline.clone();
    let mut states: Vec<(&str, EditState)> = Vec::new();
    if kind.is_none() {
        states.push((START, baseline.clone()));
    }
    for (name, values) in values {
        if let Ok(state) = demo.try_state(&baseline, name, values, None) {
            states.push((name, state));
        }
    }
    let (names, states): (Vec<&str>, Vec<EditState>) = states.into_iter().unzip();
    for (name, picture) in names.iter().zip(demo.see(&states)) {
        if let Ok(picture) = picture {
            let file = folder.join(format!("{name}.png"));
            image::save_buffer(file, &picture.rgb, picture.width, picture.height, image::ColorType::Rgb8)
                .unwrap();
        }
    }
}

fn verdicts(version: &str) -> Vec<Row> {
    let file = folder(version).join("verdicts.json");
    let text = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_slice(&text).unwrap()
}

fn page() -> String {
    let all: Vec<(&str, Vec<Row>)> = MEASURED.iter().map(|version| (*version, verdicts(version))).collect();
    let (oldest, later) = (MEASURED[0], &MEASURED[1..]);
    let mut page = format!(
        "# darktable versions\n\n\
         What each move does on each darktable. Generated by `scripts/darktable-versions.sh`; \
         `tests/pixels/vocabulary.rs` holds the installed one to it.\n\n\
         *Green*: on the photo as that darktable opens it, the move keeps every promise: neutral is nothing, its axes go the declared way and not back, under a mask it stays inside, it stands beside other \
         moves of its module, twice is once, and removed it leaves nothing behind. *Not offered*: that darktable lacks \
         what the move needs.\n\n\
         *ΔE* is the mean CIEDE2000 between the pictures of two darktables, at the move's default values and from \
         one and the same edit: the one with which {oldest} opens the photo. What the untouched photo differs by is \
         in every figure.\n"
    );
    let heads: String = MEASURED.iter().map(|version| format!(" {version} |")).collect();
    let deltas: String = later.iter().map(|version| format!(" ΔE {version} to {oldest} |")).collect();
    let rules = "---|".repeat(MEASURED.len()) + &"---:|".repeat(later.len());
    let table = |page: &mut String| {
        let _ = write!(page, "\n|  |{heads}{deltas}\n|---|{rules}\n");
    };
    table(&mut page);
    let blanks = " |".repeat(MEASURED.len());
    let _ = writeln!(page, "| {START} |{blanks}{}", differences(START));
    let mut group = "";
    for row in &all[0].1 {
        if row.group != group {
            group = &row.group;
            let _ = write!(page, "\n## {group}\n");
            table(&mut page);
        }
        let found = |rows: &[Row]| rows.iter().find(|r| r.name == row.name).map(|r| r.verdict.clone());
        let verdicts: String = all
            .iter()
            .map(|(_, rows)| format!(" {} |", found(rows).unwrap_or("not measured".into())))
            .collect();
        let _ = writeln!(page, "| `{}` |{verdicts}{}", row.name, differences(&row.name));
    }
    let mut reasons = String::new();
    for (version, rows) in &all {
        for row in rows.iter().filter(|row| !row.reasons.is_empty()) {
            let _ = writeln!(reasons, "- {version}, `{}`: {}", row.name, row.reasons.join("; "));
        }
    }
    if !reasons.is_empty() {
        let _ = write!(page, "\n## Not green\n\n{reasons}");
    }
    page
}

/// How far the pictures of the later darktables are from that of the oldest.
fn differences(name: &str) -> String {
    let picture = |version: &str| {
        let image = image::open(folder(version).join(format!("{name}.png"))).ok()?.into_rgb8();
        Some(Picture { width: image.width(), height: image.height(), rgb: image.into_raw() })
    };
    let oldest = picture(MEASURED[0]);
    let one = |version: &&str| match (&oldest, picture(version)) {
        (Some(one), Some(other)) => match Difference::between(one, &other).unwrap() {
            difference if difference.resized => " another frame |".to_owned(),
            difference => format!(" {:.2} |", difference.mean),
        },
        _ => " |".to_owned(),
    };
    MEASURED[1..].iter().map(one).collect()
}
