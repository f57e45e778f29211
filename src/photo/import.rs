//! Taking over an edit that was made in darktable.
//!
//! What is read is not believed: the sidecar and the state that was made of it are both rendered, and only if
//! no pixel differs is the edit taken over.

use std::path::{Path, PathBuf};

use crate::clock::Deadline;
use crate::darktable::complete::complete;
use crate::darktable::layout::Layouts;
use crate::darktable::oneshot::OneShot;
use crate::darktable::probe::DarktableCli;
use crate::darktable::render::{Quality, RenderError};
use crate::darktable::state::EditState;
use crate::darktable::xmp::{self, Foreign, XmpError};
use crate::ids::{Hash, RefName};
use crate::photo::error::PhotoError;
use crate::photo::op::Operation;
use crate::photo::writer::{CommitInfo, Writer};

/// The branch that an imported edit goes to unless another is named.
pub const IMPORTED: &str = "imported";

/// The long edge at which the two renders are compared.
const LONG_EDGE: u32 = 1024;

/// The darktable that an imported edit is held against.
pub struct Judge<'a> {
    /// The program.
    pub cli: &'a DarktableCli,
    /// Its private folder, as for [`OneShot::new`].
    pub base: &'a Path,
    /// The layouts of its modules.
    pub layouts: &'a Layouts,
    /// Until when.
    pub deadline: &'a Deadline,
}

/// An edit out of a sidecar that renders as the sidecar does.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedEdit {
    /// The edit.
    pub state: EditState,
    /// SHA-256 of the whole sidecar.
    pub sidecar: Hash,
    /// Whether darktable had to complete it, by its defaults or because it is older than 3.0.
    pub completed: bool,
}

/// Reads a sidecar for `raw` and proves that it renders to the same pixels. Changes nothing.
pub fn read_sidecar(sidecar: &[u8], raw: &Path, judge: &Judge<'_>) -> Result<ImportedEdit, PhotoError> {
    let version = judge.cli.version();
    let (state, completed) = match xmp::foreign(sidecar, judge.layouts, version)? {
        Foreign::Complete(state) => (state, false),
        Foreign::Incomplete => {
            let whole = complete(judge.cli, raw, sidecar, judge.base, judge.deadline)?;
            match xmp::foreign(&whole, judge.layouts, version)? {
                Foreign::Complete(state) => (state, true),
                Foreign::Incomplete => return Err(XmpError::NoBaseline.into()),
            }
        }
    };
    let name = raw.file_name().unwrap_or_default().to_string_lossy();
    let ours = xmp::write(&state, judge.layouts, &name)?;
    let theirs = std::str::from_utf8(sidecar).map_err(|e| XmpError::Syntax(e.to_string()))?;
    let encode = |_: &EditState, _: &str| Err("it is rendered from sidecars only".to_owned());
    let renderer = OneShot::new(judge.cli.clone(), judge.base, std::sync::Arc::new(encode))?;
    let render = |text: &str| renderer.render_sidecar(raw, text, LONG_EDGE, Quality::Preview, judge.deadline);
    // Theirs first: what darktable says of it is said of the file that the person has.
    let theirs = render(theirs)?;
    let ours = render(&ours)?;
    if theirs.pixel_hash != ours.pixel_hash {
        return Err(RenderError::Untrusted(
            "read and written again, the sidecar does not render to the same pixels; nothing was taken over"
                .into(),
        )
        .into());
    }
    Ok(ImportedEdit { state, sidecar: Hash::of(sidecar), completed })
}

/// The sidecar that lies beside a raw: `NAME.EXT.xmp`, or `NAME.xmp`.
pub fn sidecar_beside(raw: &Path) -> Option<PathBuf> {
    let mut full = raw.as_os_str().to_owned();
    full.push(".xmp");
    [PathBuf::from(full), raw.with_extension("xmp")].into_iter().find(|path| path.is_file())
}

impl Writer {
    /// Records an imported edit as a commit on `branch`, which is made at the baseline if it is not there.
    pub fn import_edit(
        &mut self,
        branch: &RefName,
        edit: &ImportedEdit,
        label: &str,
    ) -> Result<CommitInfo, PhotoError> {
        let tip = match self.workspace().branch(branch)? {
            Some(tip) => tip,
            None => {
                let baseline = self.workspace().baseline().clone();
                self.create_branch(branch, &baseline)?;
                baseline
            }
        };
        let op = Operation::ImportSidecar { sidecar: edit.sidecar.clone() };
        self.record_edit(branch, &tip, &edit.state, op, label)
    }
}
