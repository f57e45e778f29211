//! Taking over an edit that was made in darktable.
//!
//! What is read is not believed: the sidecar and the state that was made of it are both rendered, and only if
//! no pixel differs is the edit taken over.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::photo::error::PhotoError;
use crate::photo::op::Operation;
use crate::photo::writer::{CommitInfo, Writer};
use base::clock::Deadline;
use base::error::{Coded as _, ErrorCode};
use base::ids::{Hash, RefName};
use darktable::baseline;
use darktable::complete::{complete, is_old, upgrade};
use darktable::layout::Layouts;
use darktable::luts;
use darktable::oneshot::OneShot;
use darktable::order;
use darktable::probe::DarktableCli;
use darktable::render::{ByHand, Picture, Quality, RenderError};
use darktable::state::{EditState, Module, Params, Value};
use darktable::xmp::{self, Foreign, XmpError};

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
    /// The folder of the LUTs that an edit may name.
    pub luts: &'a Path,
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
    /// Modules that moves cannot go on from: of an older version that darktable could not upgrade to the pixel.
    pub old: Vec<OldModule>,
}

/// A module instance whose parameters are of an older version, and kept as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OldModule {
    /// darktable's name.
    pub module: String,
    /// The instance.
    pub instance: u32,
    /// The version of its parameters.
    pub version: u32,
}

/// Reads a sidecar for `raw` and proves that it renders to the same pixels. Changes nothing.
///
/// # Errors
/// [`PhotoError::Sidecar`] names what cannot be taken over; [`PhotoError::NotTheSame`] where the pixels differ.
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
    // darktable's own upgrade first, so that moves can go on from it; where the pixels differ, what was there.
    let upgraded = match upgrade(judge.cli, judge.layouts, raw, &state, judge.base, judge.deadline) {
        Err(error) if error.code() == ErrorCode::Interrupted => return Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "darktable does not upgrade the edit");
            None
        }
        Ok(upgraded) => upgraded,
    };
    let mut states: Vec<EditState> = upgraded.into_iter().chain([state]).collect();
    if states.iter().all(|state| state.module(HIGHLIGHTS, 0).is_none()) {
        states = with_highlights(states, xmp::is_altered(sidecar)?, raw, judge)?;
    }
    let name = raw.file_name().unwrap_or_default().to_string_lossy();
    let theirs = std::str::from_utf8(sidecar).map_err(|e| XmpError::Syntax(e.to_string()))?;
    let encode = |_: &EditState, _: &str| Err("it is rendered from sidecars only".to_owned());
    let renderer =
        OneShot::new(judge.cli.clone(), judge.base, std::sync::Arc::new(encode))?.with_luts(judge.luts);
    for state in &states {
        luts::check(state, Some(judge.luts)).map_err(RenderError::from)?;
    }
    let render =
        |text: &str| renderer.render_sidecar(raw, text, LONG_EDGE, Quality::Preview, judge.deadline, &ByHand);
    // Theirs first: what darktable says of it is said of the file that the person has.
    let theirs = render(theirs)?.picture;
    let mut reasons = Vec::new();
    for state in states {
        match render(&xmp::write(&state, judge.layouts, &name)?) {
            Ok(ours) => match unlike(&theirs, &ours.picture) {
                None => {
                    let old = old_modules(&state, judge);
                    return Ok(ImportedEdit { state, sidecar: Hash::of(sidecar), completed, old });
                }
                Some(reason) => reasons.push(reason),
            },
            Err(RenderError::Dropped { line }) => {
                reasons.push(format!("darktable rejects the imported edit: {line}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Of several the likeliest.
    Err(PhotoError::NotTheSame { reason: reasons.into_iter().next().unwrap_or_default() })
}

/// What darktable upgrades in every render, and the state holds as it was.
fn old_modules(state: &EditState, judge: &Judge<'_>) -> Vec<OldModule> {
    let old = state.modules.iter().filter(|module| is_old(module, judge.layouts, judge.cli.version()));
    old.map(|module| OldModule {
        module: module.op.clone(),
        instance: module.instance,
        version: module.modversion,
    })
    .collect()
}

/// darktable's highlight reconstruction, and its method that clips.
const HIGHLIGHTS: &str = "highlights";
const CLIP: i64 = 0;

/// Each edit of a raw without highlight reconstruction, with each that darktable may add to it: as it does by default to a
/// photo that nobody has touched, and by clipping. By which signs it chooses differs between 4.2.1 and 5.0.1, so the
/// likelier one comes first and the pixels decide. No other module depends on that, and a state knows nothing of it.
fn with_highlights(
    states: Vec<EditState>,
    altered: bool,
    raw: &Path,
    judge: &Judge<'_>,
) -> Result<Vec<EditState>, PhotoError> {
    let baseline = baseline::ask(judge.cli, judge.layouts, raw, judge.base, judge.deadline)?.state;
    let Some(default) = baseline.module(HIGHLIGHTS, 0).filter(|module| module.enabled) else {
        return Ok(states);
    };
    let mut clipping = default.clone();
    if let Params::Fields(fields) = &mut clipping.params {
        fields.insert("mode".to_owned(), Value::Int(CLIP));
    }
    let modules = if altered { [&clipping, default] } else { [default, &clipping] };
    let with = |state: &EditState, module: &Module| {
        let mut state = state.clone();
        state.modules.push(module.clone());
        order::sort(&mut state);
        state
    };
    Ok(states.iter().flat_map(|state| modules.map(|module| with(state, module))).collect())
}

/// How the second picture differs from the first one, if it does.
fn unlike(theirs: &Picture, ours: &Picture) -> Option<String> {
    let size = |picture: &Picture| format!("{} by {} pixels", picture.width, picture.height);
    if (theirs.width, theirs.height) != (ours.width, ours.height) {
        return Some(format!("it has {} instead of {}", size(ours), size(theirs)));
    }
    let off: Vec<u8> =
        theirs.rgb.iter().zip(&ours.rgb).map(|(a, b)| a.abs_diff(*b)).filter(|off| *off > 0).collect();
    let most = off.iter().max()?;
    let share = 100.0 * off.len() as f64 / theirs.rgb.len() as f64;
    Some(format!("{share:.2} % of the colour values differ, by {most} of 255 at most"))
}

/// The sidecar beside a raw: `NAME.EXT.xmp`, or `NAME.xmp`.
pub fn sidecar_beside(raw: &Path) -> Option<PathBuf> {
    let mut full = raw.as_os_str().to_owned();
    full.push(".xmp");
    [PathBuf::from(full), raw.with_extension("xmp")].into_iter().find(|path| path.is_file())
}

impl Writer {
    /// Records an imported edit as a commit on `branch`, which is made at the baseline if it is not there.
    ///
    /// # Errors
    /// As [`Writer::record_edit`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_how_the_pictures_differ() {
        let picture = |rgb: [u8; 6]| Picture { width: 2, height: 1, rgb: rgb.to_vec() };
        let (a, b) = (picture([9, 9, 9, 9, 9, 9]), picture([9, 9, 4, 9, 9, 12]));
        assert_eq!(unlike(&a, &a), None);
        let reason = unlike(&a, &b).unwrap();
        assert!(reason.contains("33.33 %") && reason.contains("by 5 of 255"), "{reason}");
        let tall = Picture { width: 1, height: 2, ..a.clone() };
        assert_eq!(unlike(&a, &tall).unwrap(), "it has 1 by 2 pixels instead of 2 by 1 pixels");
    }
}
