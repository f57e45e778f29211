//! `ingest`, `demo-raw`, `photos`, `status`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::import;
use super::setup::{App, optional_text};
use crate::review::{count, line};
use base::error::{Coded as _, ErrorCode};
use base::ids::PhotoId;
use darktable::baseline::FileFacts;
use darktable::checks::Blank;
use darktable::dng;
use engine::photo::{Head, IngestOptions, Status};

/// Takes a raw in.
pub fn ingest(
    app: &App,
    raw: &Path,
    id: Option<PhotoId>,
    brief: Option<&String>,
    sidecar: Option<&Option<PathBuf>>,
) -> Result<(), Failure> {
    let brief = optional_text(brief)?;
    if raw.is_file() {
        app.output.remark(&format!("asking darktable for the default edit of {}", raw.display()));
    }
    // Read before the photo is added: a sidecar that cannot be imported leaves nothing behind.
    let edit = sidecar.map(|file| import::read_for(app, raw, file.as_deref())).transpose()?;
    let ingested = app.ingest(raw, IngestOptions { id, brief })?;
    let imported = edit.map(|edit| import::record_first(app, &ingested.workspace, &edit)).transpose()?;
    let workspace = &ingested.workspace;
    let photo = workspace.photo();
    let result = json!({
        "photo": photo.id,
        "folder": workspace.folder(),
        "baseline": photo.baseline,
        "facts": photo.facts,
        "remarks": ingested.remarks,
        "darktable": photo.darktable,
        "foreign_sidecar": ingested.foreign_sidecar,
        "imported": imported,
    });
    app.output.result(&result, || {
        let mut text = format!(
            "photo     {}\ncamera    {}\nfolder    {}\nbaseline  {}\n",
            photo.id,
            camera(&photo.facts),
            workspace.folder().display(),
            photo.baseline.short()
        );
        for remark in &ingested.remarks {
            text.push_str(&format!("note      {}\n", line(remark)));
        }
        match (&imported, &ingested.foreign_sidecar) {
            (Some(imported), _) => text.push_str(&format!(
                "imported  {} at {}, checked out\n",
                imported.branch,
                imported.commit.short()
            )),
            (None, Some(sidecar)) => text.push_str(&format!(
                "note      {} was not imported; to import it: `chemigram import-sidecar {} FILE`\n",
                line(&sidecar.display().to_string()),
                photo.id
            )),
            (None, None) => {}
        }
        text
    })
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

#[derive(Serialize)]
struct Row {
    photo: PhotoId,
    #[serde(flatten)]
    status: Option<Status>,
    camera: String,
    problem: Option<String>,
}

/// Lists the library. A photo that cannot be read is a line, not the end.
pub fn photos(app: &App) -> Result<(), Failure> {
    let row = |photo: PhotoId| match app.library.open(&photo).and_then(|w| w.status().map(|s| (w, s))) {
        Ok((workspace, status)) => {
            Row { photo, camera: camera(&workspace.photo().facts), status: Some(status), problem: None }
        }
        Err(e) => {
            Row { photo, status: None, camera: String::new(), problem: Some(format!("{e} ({:?})", e.code())) }
        }
    };
    let rows: Vec<Row> = app.library.photos()?.into_iter().map(row).collect();
    if rows.is_empty() {
        app.output.remark(&format!(
            "no photos in {}; add one with `chemigram ingest RAW`",
            app.library.root().display()
        ));
    }
    let wide = rows.iter().map(|r| r.photo.as_str().len()).max().unwrap_or(0);
    app.output.result(&rows, || {
        rows.iter()
            .map(|row| match (&row.status, &row.problem) {
                (Some(status), _) => format!(
                    "{:wide$}  {:12}  {:>11}  {:>11}  {}\n",
                    row.photo,
                    head(&status.head),
                    count(status.commits as u64, "commit"),
                    count(status.branches.len() as u64, "branch"),
                    row.camera
                ),
                (None, problem) => {
                    format!(
                        "{:wide$}  damaged: {}\n",
                        row.photo,
                        line(problem.as_deref().unwrap_or_default())
                    )
                }
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
