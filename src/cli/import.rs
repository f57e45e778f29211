//! `import-sidecar`, `vocab import`, and what `ingest --import-sidecar` does.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::{App, interactive_deadline};
use crate::review::line;
use base::error::ErrorCode;
use base::files;
use base::ids::{Hash, PhotoId, RefName};
use darktable::{dtstyle, xmp};
use engine::photo::{
    Authority, IMPORTED, ImportedEdit, Judge, OldModule, Workspace, read_sidecar, sidecar_beside,
};
use engine::vocabulary::styles::{self as saved, SavedStyle, StyleAbout};

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram import-sidecar iguana DSC_0042.NEF.xmp --label \"as printed in May\"\n\n\
                  The sidecar and the imported edit are both rendered; the import succeeds only if they match pixel for pixel."
)]
pub struct ImportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// darktable's sidecar (.xmp)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The branch for the edit; created at the baseline if it does not exist
    #[arg(long, value_name = "NAME", default_value = IMPORTED)]
    pub branch: RefName,
    /// Message for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

/// An edit that was taken over.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// The branch that has it.
    pub branch: RefName,
    pub commit: Hash,
    pub state: Hash,
    pub sidecar: Hash,
    pub modules: usize,
    pub masks: usize,
    /// Whether darktable had to complete the sidecar.
    pub completed: bool,
    /// Modules of an older version that moves cannot go on from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub old: Vec<OldModule>,
    /// The branch had this very edit already.
    pub unchanged: bool,
}

/// Imports a sidecar's edit into a photo.
pub fn import_sidecar(app: &App, args: &ImportArgs) -> Result<(), Failure> {
    let workspace = app.photo(&args.photo)?;
    workspace.refuse_another_raw()?;
    let edit = read(app, &workspace.raw().path, &args.file)?;
    let imported = record(&workspace, &args.branch, &edit, &args.label, false)?;
    app.output.result(&imported, || {
        let Imported { branch, commit, modules, masks, .. } = &imported;
        match imported.unchanged {
            true => format!("{branch}  {}  unchanged: already has this edit\n", commit.short()),
            false => format!("{branch}  {}  {modules} modules, {masks} mask shapes\n", commit.short()),
        }
    })
}

/// Reads the sidecar for a raw that is about to be added: `file`, or the one beside the raw.
pub fn read_for(app: &App, raw: &Path, file: Option<&Path>) -> Result<ImportedEdit, Failure> {
    let beside = || {
        sidecar_beside(raw).ok_or_else(|| {
            let message = format!("there is no sidecar next to {}", raw.display());
            Failure::new(ErrorCode::NotFound, message).remedy("give the file: --import-sidecar=FILE")
        })
    };
    read(app, raw, &file.map_or_else(beside, |file| Ok(file.to_owned()))?)
}

/// Records an edit in a photo that was just added, and checks it out.
pub fn record_first(app: &App, workspace: &Workspace, edit: &ImportedEdit) -> Result<Imported, Failure> {
    let branch = IMPORTED.parse().map_err(|e: base::ids::InvalidName| Failure::input(e.to_string()))?;
    app.output.remark("the sidecar's edit was imported; `main` keeps darktable's default edit");
    record(workspace, &branch, edit, "", true)
}

fn record(
    workspace: &Workspace,
    branch: &RefName,
    edit: &ImportedEdit,
    label: &str,
    checkout: bool,
) -> Result<Imported, Failure> {
    let mut writer = workspace.lock(Authority::Person, "import a sidecar")?;
    let info = writer.import_edit(branch, edit, label)?;
    if checkout {
        writer.checkout(branch.as_str())?;
    }
    Ok(Imported {
        branch: branch.clone(),
        commit: info.commit,
        state: info.state,
        sidecar: edit.sidecar.clone(),
        modules: edit.state.modules.len(),
        masks: edit.state.masks.len(),
        completed: edit.completed,
        old: edit.old.clone(),
        unchanged: info.unchanged,
    })
}

fn read(app: &App, raw: &Path, file: &Path) -> Result<ImportedEdit, Failure> {
    let sidecar = bytes(file)?;
    app.output.remark(&format!("rendering {} twice to check the import", file.display()));
    let (cli, layouts, base, deadline) =
        (app.darktable()?, app.layouts(), app.folders.darktable(), interactive_deadline());
    let luts = app.folders.luts();
    let judge = Judge { cli: &cli, base: &base, luts: &luts, layouts: &layouts, deadline: &deadline };
    let edit = read_sidecar(&sidecar, raw, &judge)?;
    for OldModule { module, version, .. } in &edit.old {
        app.output.remark(&format!(
            "`{module}` stays at version {version}, because darktable's upgrade would change the picture; moves cannot \
             change it. To use moves on it, edit it in darktable, save, and import again"
        ));
    }
    Ok(edit)
}

/// A sidecar or a style, if it is of reasonable size.
fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let (read, too_large) = limited(file, xmp::MAX_BYTES as u64);
    read.map_err(|failure| match too_large {
        true => failure.remedy("compress the history in darktable and save again"),
        false => failure,
    })
}

/// A file of at most so many bytes.
pub fn bounded(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    limited(file, most).0
}

/// The bytes of a file, and whether there are too many of them.
fn limited(file: &Path, most: u64) -> (Result<Vec<u8>, Failure>, bool) {
    let read = files::read(file, most);
    let too_large = read.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::InvalidData);
    (read.map_err(|e| Failure::file("read", file, &e)), too_large)
}

/// Imports a style into the person's own vocabulary.
pub fn import_style(app: &App, file: &Path, name: Option<&str>) -> Result<(), Failure> {
    let bytes = bytes(file)?;
    let style = dtstyle::read(&bytes, &app.layouts(), app.darktable()?.version())?;
    let name = name.map_or_else(|| saved::name_of(&style.name), str::to_owned);
    saved::check_name(&name).map_err(|e| Failure::input(e).remedy("choose another name with --name"))?;
    let vocabulary = app.vocabulary()?;
    let other = vocabulary.get(&name).map(|entry| &entry.file).ok();
    let taken = match vocabulary.style(&name) {
        Some(known) => Some(&known.file).filter(|_| *known.bytes != *bytes),
        None => other.or(vocabulary.look(&name).map(|look| &look.file)),
    };
    if let Some(file) = taken {
        let message = format!("the name `{name}` is already used in {file}");
        return Err(Failure::new(ErrorCode::StateError, message).remedy("choose another name with --name"));
    }
    let folder = app.folders.vocabulary();
    if vocabulary.style(&name).is_none() {
        let about = StyleAbout { title: style.name, description: style.description, tags: Vec::new() };
        saved::save(&folder, &name, &about, &bytes).map_err(|e| Failure::file("write into", &folder, &e))?;
    }
    let modules: Vec<&str> = style.modules.iter().map(|m| m.op.as_str()).collect();
    let result = json!({ "style": name, "modules": modules, "folder": folder });
    app.output.result(&result, || {
        format!("{name}  {}\nApply it with `chemigram apply PHOTO {name}`.\n", modules.join(", "))
    })
}

pub fn styles(app: &App) -> Result<(), Failure> {
    let vocabulary = app.vocabulary()?;
    let row = |s: &SavedStyle| json!({ "name": s.name, "about": s.about, "file": s.file });
    let rows: Vec<Value> = vocabulary.styles().map(row).collect();
    let text =
        |s: &SavedStyle| format!("{}  {}  {}\n", s.name, line(&s.about.title), line(&s.about.description));
    app.output.result(&rows, || vocabulary.styles().map(text).collect())
}
