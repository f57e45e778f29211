//! `import-sidecar`, and what `ingest --import-sidecar` does.

use std::path::Path;

use serde::Serialize;

use super::failure::Failure;
use super::import_args::ImportArgs;
use super::setup::{App, patience};
use crate::darktable::xmp;
use crate::error::ErrorCode;
use crate::ids::{Hash, RefName};
use crate::photo::{Authority, IMPORTED, ImportedEdit, Judge, Workspace, read_sidecar, sidecar_beside};

/// An edit that was taken over.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// The branch that has it.
    pub branch: RefName,
    /// Its commit.
    pub commit: Hash,
    /// Its state.
    pub state: Hash,
    /// SHA-256 of the sidecar.
    pub sidecar: Hash,
    /// Module instances.
    pub modules: usize,
    /// Mask forms.
    pub masks: usize,
    /// Whether darktable had to complete the sidecar.
    pub completed: bool,
    /// The branch had this very edit already.
    pub unchanged: bool,
}

/// Takes a sidecar's edit over into a photo.
pub fn import_sidecar(app: &App, args: &ImportArgs) -> Result<(), Failure> {
    let workspace = app.photo(&args.photo)?;
    let edit = read(app, &workspace.raw().path, &args.file)?;
    let imported = record(&workspace, &args.branch, &edit, &args.label, false)?;
    app.output.result(&imported, || {
        let Imported { branch, commit, modules, masks, .. } = &imported;
        match imported.unchanged {
            true => format!("{branch}  {}  unchanged: it has this edit already\n", commit.short()),
            false => format!("{branch}  {}  {modules} modules, {masks} mask shapes\n", commit.short()),
        }
    })
}

/// Reads the sidecar for a raw that is about to be taken in: `file`, or the one beside the raw.
pub fn read_for(app: &App, raw: &Path, file: Option<&Path>) -> Result<ImportedEdit, Failure> {
    let beside = || {
        sidecar_beside(raw).ok_or_else(|| {
            let message = format!("no sidecar lies beside {}", raw.display());
            Failure::new(ErrorCode::NotFound, message).remedy("name it: --import-sidecar=FILE")
        })
    };
    read(app, raw, &file.map_or_else(beside, |file| Ok(file.to_owned()))?)
}

/// Records an edit in a photo that was just taken in, and stands on it.
pub fn record_first(app: &App, workspace: &Workspace, edit: &ImportedEdit) -> Result<Imported, Failure> {
    let branch = IMPORTED.parse().map_err(|e: crate::ids::InvalidName| Failure::input(e.to_string()))?;
    app.output.remark("the edit was taken over; `main` keeps darktable's own");
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
        unchanged: info.unchanged,
    })
}

fn read(app: &App, raw: &Path, file: &Path) -> Result<ImportedEdit, Failure> {
    let about = std::fs::metadata(file).map_err(|e| Failure::file("read", file, &e))?;
    if about.len() > xmp::MAX_BYTES as u64 {
        let message = format!("{} is larger than {} MiB", file.display(), xmp::MAX_BYTES >> 20);
        return Err(Failure::input(message).remedy("compress the history in darktable and save again"));
    }
    let sidecar = std::fs::read(file).map_err(|e| Failure::file("read", file, &e))?;
    app.output.remark(&format!("rendering {} twice, to see that nothing is lost", file.display()));
    let (cli, layouts, base, deadline) =
        (app.darktable()?, app.layouts(), app.folders.darktable(), patience());
    let judge = Judge { cli: &cli, base: &base, layouts: &layouts, deadline: &deadline };
    Ok(read_sidecar(&sidecar, raw, &judge)?)
}
