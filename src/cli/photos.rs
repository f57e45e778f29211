//! `ingest`, `demo-raw`, `photos`, `status`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::import;
use super::progress;
use super::setup::{App, optional_text};
use crate::review::{count, line};
use base::error::{Coded as _, ErrorCode};
use base::ids::{Hash, PhotoId};
use darktable::baseline::FileFacts;
use darktable::checks::Blank;
use darktable::dng;
use engine::photo::{Head, IngestOptions, Status, sidecar_beside};

/// One photo that was added, as `--json` tells it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Added {
    photo: PhotoId,
    folder: PathBuf,
    baseline: Hash,
    #[schemars(with = "serde_json::Value")]
    facts: FileFacts,
    remarks: Vec<String>,
    darktable: String,
    foreign_sidecar: Option<PathBuf>,
    #[schemars(with = "Option<serde_json::Value>")]
    imported: Option<import::Imported>,
}

/// One of several files that were to be added.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tried {
    /// The file.
    file: PathBuf,
    /// `added`, `known` for one that is in the library already, or `failed`.
    result: &'static str,
    /// Its photo.
    photo: Option<PhotoId>,
    /// Why it could not be added.
    error: Option<String>,
}

/// What an ingest is told besides its files.
pub struct Taking<'a> {
    pub id: Option<&'a PhotoId>,
    pub brief: Option<&'a String>,
    pub sidecar: Option<&'a Option<PathBuf>>,
}

/// Takes raws in: one, or all that are named and in the folders that are named.
pub fn ingest(app: &App, raws: &[PathBuf], taking: &Taking<'_>) -> Result<u8, Failure> {
    let brief = optional_text(taking.brief)?;
    if let [raw] = raws
        && !raw.is_dir()
    {
        if raw.is_file() {
            app.output.remark(&format!("asking darktable for the default edit of {}", raw.display()));
        }
        let added = take(app, raw, taking.id.cloned(), brief, taking.sidecar)?;
        app.output.result(&added, || added_text(&added))?;
        return Ok(0);
    }
    let only_one = "leave it out, or add the files one by one";
    if taking.id.is_some() {
        return Err(Failure::input("--id can name one photo only").remedy(only_one));
    }
    if let Some(Some(_)) = taking.sidecar {
        return Err(Failure::input("--import-sidecar=FILE is of one photo only")
            .remedy("with several, --import-sidecar alone takes the sidecar beside each raw"));
    }
    let mut files = Vec::new();
    for raw in raws {
        match raw.is_dir() {
            true => files.extend(in_folder(raw)?),
            false => files.push(raw.clone()),
        }
    }
    if files.is_empty() {
        let names: Vec<String> = raws.iter().map(|raw| raw.display().to_string()).collect();
        let message = format!("there is no raw file in {}", names.join(", "));
        return Err(Failure::new(ErrorCode::NotFound, message)
            .remedy("name the files themselves if their names have unusual endings"));
    }
    several(app, &files, brief.as_ref(), taking.sidecar)
}

/// Takes several raws in. One that cannot be keeps none of the others back; the status is the first failure's.
fn several(
    app: &App,
    files: &[PathBuf],
    brief: Option<&String>,
    sidecar: Option<&Option<PathBuf>>,
) -> Result<u8, Failure> {
    let bar = progress::waiting(&app.output);
    let (mut rows, mut status) = (Vec::new(), 0);
    for (at, file) in files.iter().enumerate() {
        bar.set_message(format!("{} of {}: {}", at + 1, files.len(), line(&file.display().to_string())));
        let known =
            base::files::hash(file).ok().and_then(|(hash, _)| app.library.find_raw(&hash).ok().flatten());
        // A sidecar is imported where there is one.
        let wanted = sidecar.filter(|_| sidecar_beside(file).is_some());
        let (result, photo, error) = match known {
            Some(id) => ("known", Some(id), None),
            None => match take(app, file, None, brief.cloned(), wanted) {
                Ok(added) => ("added", Some(added.photo), None),
                Err(failure) => {
                    status = if status == 0 { failure.exit_status() } else { status };
                    ("failed", None, Some(failure.message().to_owned()))
                }
            },
        };
        rows.push(Tried { file: file.clone(), result, photo, error });
    }
    bar.finish_and_clear();
    app.output.result(&rows, || {
        let all = |result: &str| rows.iter().filter(|row| row.result == result).count() as u64;
        let mut text: String = rows.iter().map(tried_text).collect();
        text.push_str(&format!("{} added", count(all("added"), "photo")));
        for (result, words) in [("known", "in the library already"), ("failed", "could not be added")] {
            if all(result) > 0 {
                text.push_str(&format!(", {} {words}", all(result)));
            }
        }
        text + "\n"
    })?;
    Ok(status)
}

fn tried_text(row: &Tried) -> String {
    let file = line(&row.file.display().to_string());
    match (&row.photo, &row.error) {
        (Some(photo), _) if row.result == "known" => format!("{file}  is {photo} already\n"),
        (Some(photo), _) => format!("{file}  {photo}\n"),
        (None, error) => format!("{file}  FAILED: {}\n", line(error.as_deref().unwrap_or_default())),
    }
}

/// The raw files below a folder, by name. Hidden files and links to folders are left out.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e: std::io::Error| Failure::file("list", folder, &e);
    let mut entries = std::fs::read_dir(folder).map_err(unreadable)?.flatten().collect::<Vec<_>>();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(in_folder(&path)?);
        } else if is_raw(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Endings of raw files, of the cameras that darktable knows.
const RAW_ENDINGS: [&str; 34] = [
    "3fr", "ari", "arw", "bay", "cap", "cr2", "cr3", "crw", "dcr", "dcs", "dng", "drf", "eip", "erf", "fff",
    "gpr", "iiq", "k25", "kdc", "mef", "mos", "mrw", "nef", "nrw", "orf", "ori", "pef", "raf", "raw", "rw2",
    "rwl", "sr2", "srf", "srw",
];

fn is_raw(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    RAW_ENDINGS.contains(&ending.as_str()) && path.is_file()
}

/// Takes one raw in.
fn take(
    app: &App,
    raw: &Path,
    id: Option<PhotoId>,
    brief: Option<String>,
    sidecar: Option<&Option<PathBuf>>,
) -> Result<Added, Failure> {
    tracing::info!(raw = %raw.display(), "adding it to the library");
    // Read before the photo is added: a sidecar that cannot be imported leaves nothing behind.
    let edit = sidecar.map(|file| import::read_for(app, raw, file.as_deref())).transpose()?;
    let ingested = app.ingest(raw, IngestOptions { id, brief })?;
    let imported = edit.map(|edit| import::record_first(app, &ingested.workspace, &edit)).transpose()?;
    let workspace = &ingested.workspace;
    let photo = workspace.photo();
    Ok(Added {
        photo: photo.id.clone(),
        folder: workspace.folder().to_owned(),
        baseline: photo.baseline.clone(),
        facts: photo.facts.clone(),
        remarks: ingested.remarks,
        darktable: photo.darktable.clone(),
        foreign_sidecar: ingested.foreign_sidecar,
        imported,
    })
}

fn added_text(added: &Added) -> String {
    let mut text = format!(
        "photo     {}\ncamera    {}\nfolder    {}\nbaseline  {}\n",
        added.photo,
        camera(&added.facts),
        added.folder.display(),
        added.baseline.short()
    );
    for remark in &added.remarks {
        text.push_str(&format!("note      {}\n", line(remark)));
    }
    match (&added.imported, &added.foreign_sidecar) {
        (Some(imported), _) => text.push_str(&format!(
            "imported  {} at {}, checked out\n",
            imported.branch,
            imported.commit.short()
        )),
        (None, Some(sidecar)) => text.push_str(&format!(
            "note      {} was not imported; to import it: `chemigram import-sidecar {} FILE`\n",
            line(&sidecar.display().to_string()),
            added.photo
        )),
        (None, None) => {}
    }
    text
}

pub fn demo_raw(app: &App, file: &Path, force: bool) -> Result<(), Failure> {
    let bytes = dng::demo_raw()?;
    write_new(file, &bytes, force)?;
    let result = json!({ "file": file, "bytes": bytes.len() });
    app.output.result(&result, || format!("{}\n", file.display()))
}

/// Writes a whole file that is not there yet, unless it may be replaced.
pub fn write_new(file: &Path, bytes: &[u8], force: bool) -> Result<(), Failure> {
    refuse_existing(file, force)?;
    let absolute = std::path::absolute(file).map_err(|e| Failure::file("write", file, &e))?;
    // Somebody else may have made it meanwhile.
    base::durable::publish(&absolute, bytes, force).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => there_already(file),
        _ => Failure::file("write", file, &e),
    })
}

/// The remark about a blank picture.
pub fn as_untouched(file: &Path, blank: Blank) -> String {
    format!("{} is {blank}, like the unedited photo", line(&file.display().to_string()))
}

/// Fails if the file exists.
pub fn refuse_existing(file: &Path, force: bool) -> Result<(), Failure> {
    if !force && file.exists() {
        return Err(there_already(file));
    }
    Ok(())
}

fn there_already(file: &Path) -> Failure {
    let message = format!("{} already exists", file.display());
    Failure::new(ErrorCode::StateError, message).remedy("use --force to overwrite it")
}

/// One photo of the library, as `--json` tells it.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Row {
    /// One that can be read.
    Whole {
        #[serde(flatten)]
        status: Box<Status>,
        camera: String,
    },
    /// One that cannot.
    Damaged { photo: PhotoId, problem: String },
}

impl Row {
    fn photo(&self) -> &PhotoId {
        match self {
            Self::Whole { status, .. } => &status.photo,
            Self::Damaged { photo, .. } => photo,
        }
    }
}

/// Lists the library. A photo that cannot be read is a line, not the end.
pub fn photos(app: &App) -> Result<(), Failure> {
    let row = |photo: PhotoId| match app.library.open(&photo).and_then(|w| w.status().map(|s| (w, s))) {
        Ok((workspace, status)) => {
            Row::Whole { status: Box::new(status), camera: camera(&workspace.photo().facts) }
        }
        Err(e) => Row::Damaged { photo, problem: format!("{e} ({:?})", e.code()) },
    };
    let rows: Vec<Row> = app.library.photos()?.into_iter().map(row).collect();
    if rows.is_empty() {
        app.output.remark(&format!(
            "no photos in {}; add one with `chemigram ingest RAW`",
            app.library.root().display()
        ));
    }
    let wide = rows.iter().map(|r| r.photo().as_str().len()).max().unwrap_or(0);
    app.output.result(&rows, || {
        rows.iter()
            .map(|row| match row {
                Row::Whole { status, camera } => format!(
                    "{:wide$}  {:12}  {:>11}  {:>11}  {camera}\n",
                    status.photo,
                    head(&status.head),
                    count(status.commits as u64, "commit"),
                    count(status.branches.len() as u64, "branch"),
                ),
                Row::Damaged { photo, problem } => format!("{photo:wide$}  damaged: {}\n", line(problem)),
            })
            .collect()
    })
}

/// Shows the state of a photo.
pub fn status(app: &App, photo: &PhotoId) -> Result<(), Failure> {
    let workspace = app.photo(photo)?;
    let status = workspace.status()?;
    app.output.result(&status, || {
        let mut text = format!(
            "photo      {}\nhead       {} at {}{}\nhistory    {}, {}, {} enabled\n",
            status.photo,
            head(&status.head),
            status.commit.short(),
            if status.is_baseline { ", the baseline's edit" } else { "" },
            count(status.commits as u64, "commit"),
            count(status.modules as u64, "module"),
            status.enabled,
        );
        for (what, refs) in [("branches", &status.branches), ("tags", &status.tags)] {
            let names: Vec<String> = refs.iter().map(|(name, at)| format!("{name} {}", at.short())).collect();
            text.push_str(&format!("{what:10} {}\n", names.join(", ")));
        }
        if status.proposals > 0 {
            text.push_str(&format!(
                "proposals  {} open: `chemigram proposals list {}`\n",
                status.proposals, status.photo
            ));
        }
        if let Some(holder) = &status.held_by {
            text.push_str(&format!("locked     {}\n", line(&holder.to_string())));
        }
        text.push_str(&format!("folder     {}\n", workspace.folder().display()));
        text
    })
}

fn head(head: &Head) -> String {
    match head {
        Head::Branch(branch) => branch.to_string(),
        Head::Detached(commit) => commit.short().to_owned(),
    }
}

/// Camera and exposure, on one line.
fn camera(file: &FileFacts) -> String {
    let mut parts: Vec<String> = [&file.maker, &file.model].into_iter().flatten().map(|s| line(s)).collect();
    parts.dedup();
    if let Some(seconds) = file.exposure_seconds.filter(|s| *s > 0.0) {
        parts.push(if seconds < 0.5 { format!("1/{:.0} s", 1.0 / seconds) } else { format!("{seconds} s") });
    }
    parts.extend(file.aperture.map(|f| format!("f/{f}")));
    parts.extend(file.iso.map(|iso| format!("ISO {iso}")));
    parts.join(" ")
}
