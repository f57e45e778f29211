//! What darktable said of files and of itself, kept beside the rendered pictures: evaluations and workers ask about the
//! same raws again and again, and every command asks for the version, which takes longer than most of them.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::baseline::{FileFacts, Untouched};
use crate::cache::Cache;
use crate::layout::Layouts;
use crate::probe::{self, Answer, DarktableCli};
use crate::raw::{self, FileIdentity};
use crate::render::RenderError;
use crate::sandbox::{Isolation, Sandbox, installation};
use crate::{scratch, xmp};
use base::clock::Deadline;
use base::files;
use base::ids::Hash;

/// Goes up whenever darktable is asked something else.
const FORMAT: u32 = 1;
/// Within the folder of the cache.
const FOLDER: &str = "asked";

/// A file that was put there so lately may not be the one that was asked.
const SETTLED: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct AboutPhoto {
    sidecar: String,
    facts: FileFacts,
}

/// What a confined darktable that takes our library said of itself, and of which files.
#[derive(Serialize, Deserialize)]
struct AboutItself {
    version: String,
    program: FileIdentity,
    library: PathBuf,
    library_file: FileIdentity,
}

impl Cache {
    /// [`DarktableCli::find_as`], which does not ask a darktable again whose program and library are the files that they
    /// were when it was asked.
    ///
    /// # Errors
    /// As [`DarktableCli::find_as`].
    pub fn darktable(&self, isolation: Isolation, deadline: &Deadline) -> Result<DarktableCli, RenderError> {
        DarktableCli::told(&probe::locate()?, isolation, |program, sandbox| {
            // Whether bubblewrap still works, only a run shows.
            if sandbox != Some(&Sandbox::Kernel) {
                return probe::ask(program, sandbox, deadline);
            }
            let key = Hash::of(format!("chemigram darktable {FORMAT}\n{}\n", program.display()));
            let path = self.folder().join(FOLDER).join(format!("{key}.json"));
            if let Some(answer) = kept_answer(&path, program) {
                return Ok(answer);
            }
            let answer = probe::ask(program, sandbox, deadline)?;
            if let Some(said) = to_keep(program, &answer)
                && let Err(error) = keep(&path, &said)
            {
                tracing::debug!(%error, "what darktable said of itself cannot be kept");
            }
            Ok(answer)
        })
    }

    /// What darktable of that version says of `raw`: the answer that is kept for a file of the same bytes and name, or
    /// else the one that `ask` gets, which is then kept.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn asked(
        &self,
        raw: &Path,
        version: &str,
        layouts: &Layouts,
        ask: impl FnOnce() -> Result<Untouched, RenderError>,
    ) -> Result<Untouched, RenderError> {
        // Of a file that cannot be read, darktable's own answer is the better one.
        let Ok(bytes) = raw::hash_now(raw) else { return ask() };
        let name = scratch::name_of(raw);
        let key =
            Hash::of(format!("chemigram asked {FORMAT}\nraw {bytes}\nname {name}\ndarktable {version}\n"));
        let path = self.folder().join(FOLDER).join(format!("{key}.json"));
        let kept = files::read(&path, files::LARGEST_TEXT).ok();
        if let Some(AboutPhoto { sidecar, facts }) = kept.and_then(|kept| serde_json::from_slice(&kept).ok())
            && let Ok(state) = xmp::read(sidecar.as_bytes(), layouts)
        {
            return Ok(Untouched { state, sidecar: sidecar.into(), facts, darktable: version.to_owned() });
        }
        let told = ask()?;
        // It may have been exchanged meanwhile.
        if raw::hash_now(raw).is_ok_and(|now| now == bytes)
            && let Ok(sidecar) = String::from_utf8(told.sidecar.clone())
            && let Err(error) = keep(&path, &AboutPhoto { sidecar, facts: told.facts.clone() })
        {
            tracing::warn!(%error, "what darktable said of a file cannot be kept");
        }
        Ok(told)
    }

    /// Removes all answers.
    pub(super) fn forget_answers(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.folder().join(FOLDER)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// What is kept at `path` of this program, if its files are still the same.
fn kept_answer(path: &Path, program: &Path) -> Option<Answer> {
    let kept = files::read(path, files::LARGEST_TEXT).ok()?;
    let AboutItself { version, program: was, library, library_file } = serde_json::from_slice(&kept).ok()?;
    let same = FileIdentity::of(program).ok()? == was && FileIdentity::of(&library).ok()? == library_file;
    same.then_some(Answer { version: version.parse().ok()?, takes_preload: true, library: Some(library) })
}

/// What may be kept of an answer: that of a program, not of a script that may start another one, with a library that is
/// installed beside it, not in a snap or an image that is gone again.
fn to_keep(program: &Path, answer: &Answer) -> Option<AboutItself> {
    let mut first = [0; 4];
    files::open(program).ok()?.read_exact(&mut first).ok()?;
    let library = answer.library.as_deref().and_then(|library| library.canonicalize().ok())?;
    let beside = installation(program).iter().any(|folder| library.starts_with(folder));
    let old = |path: &Path| {
        let changed = UNIX_EPOCH + Duration::from_secs(path.metadata().ok()?.ctime().try_into().ok()?);
        (changed.elapsed().ok()? > SETTLED).then_some(())
    };
    old(program)?;
    old(&library)?;
    (first == *b"\x7fELF" && beside && answer.takes_preload).then_some(AboutItself {
        version: answer.version.to_string(),
        program: FileIdentity::of(program).ok()?,
        library_file: FileIdentity::of(&library).ok()?,
        library,
    })
}

fn keep(path: &Path, answer: &impl Serialize) -> io::Result<()> {
    // No sync: what a power cut leaves of it cannot be read, and darktable is asked again.
    let answer = serde_json::to_vec(answer)?;
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let part = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(part.path(), answer)?;
    part.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base::assets::Overlay;

    use super::*;
    use crate::params;
    use crate::state::{EditState, Module, Params};

    #[test]
    fn darktable_is_asked_once_about_a_file_of_these_bytes_and_this_name() {
        let dir = tempfile::tempdir().unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let cache = Cache::new(dir.path().join("renders"), 1 << 20);
        let (raw, other) = (dir.path().join("a.dng"), dir.path().join("b.dng"));
        let asked = Cell::new(0);
        let told = |name: &str| {
            let exposure = layouts.module("exposure").unwrap().unwrap();
            let layout = exposure.lowest().unwrap();
            let module = Module {
                blend: None,
                enabled: true,
                instance: 0,
                modversion: layout.modversion,
                name: String::new(),
                op: "exposure".into(),
                params: Params::Fields(params::defaults(layout)),
            };
            let state = EditState { modules: vec![module], ..EditState::default() };
            let facts = FileFacts {
                orientation: 6,
                exposure_seconds: Some(1.0 / 60.0),
                captured: Some("2026-05-14T18:03:22".into()),
                ..FileFacts::default()
            };
            let sidecar = xmp::write(&state, &layouts, name).unwrap().into_bytes();
            let state = xmp::read(&sidecar, &layouts).unwrap();
            Untouched { state, sidecar, facts, darktable: "5.4.1".into() }
        };
        let ask = |raw: &Path, version: &str| {
            cache.asked(raw, version, &layouts, || {
                asked.set(asked.get() + 1);
                Ok(told("a.dng"))
            })
        };
        fs::write(&raw, "coffee").unwrap();
        fs::write(&other, "coffee").unwrap();
        let first = ask(&raw, "5.4.1").unwrap();
        assert_eq!(first, told("a.dng"));
        assert_eq!(ask(&raw, "5.4.1").unwrap(), first);
        assert_eq!(asked.get(), 1);
        // Another version, another name, other bytes.
        ask(&raw, "4.2.1").unwrap();
        ask(&other, "5.4.1").unwrap();
        fs::write(&raw, "kitten").unwrap();
        ask(&raw, "5.4.1").unwrap();
        assert_eq!(asked.get(), 4);
        // A damaged answer, and none at all.
        let kept = || fs::read_dir(dir.path().join("renders/asked")).unwrap().map(|e| e.unwrap().path());
        assert_eq!(kept().count(), 4);
        kept().for_each(|path| fs::write(path, "{\"sidecar\": \"<x").unwrap());
        ask(&raw, "5.4.1").unwrap();
        assert_eq!(asked.get(), 5);
        cache.clear().unwrap();
        ask(&raw, "5.4.1").unwrap();
        assert_eq!(asked.get(), 6);
        // Nothing is kept of a file that is exchanged while darktable looks at it, and no failure.
        let exchanged = cache.asked(&other, "5.0.1", &layouts, || {
            fs::write(&other, "tea").unwrap();
            Ok(told("b.dng"))
        });
        exchanged.unwrap();
        fs::write(&other, "coffee").unwrap();
        ask(&other, "5.0.1").unwrap();
        assert_eq!(asked.get(), 7);
        let failed = || Err(RenderError::Encode("no".into()));
        cache.asked(&raw, "5.0.1", &layouts, failed).unwrap_err();
        ask(&raw, "5.0.1").unwrap();
        assert_eq!(asked.get(), 8);
    }

    #[test]
    fn only_a_program_that_has_its_library_beside_it_and_for_a_while_is_not_asked_again() {
        let said = |library: &Path| Answer {
            version: "5.4.1".parse().unwrap(),
            takes_preload: true,
            library: Some(library.to_owned()),
        };
        let dir = tempfile::tempdir().unwrap();
        let shell = Path::new("/bin/sh");
        // A program of long ago; its library, for want of another, itself.
        let real = shell.canonicalize().unwrap();
        assert!(to_keep(shell, &said(&real)).is_some_and(|it| it.version == "5.4.1" && it.library == real));
        // One that told nothing, one that takes nothing from us, a library elsewhere, one that is gone.
        assert!(to_keep(shell, &Answer { library: None, ..said(shell) }).is_none());
        assert!(to_keep(shell, &Answer { takes_preload: false, ..said(shell) }).is_none());
        assert!(to_keep(shell, &said(Path::new("/etc/passwd"))).is_none());
        assert!(to_keep(shell, &said(&real.with_file_name("gone.so"))).is_none());
        // A script, and what has just been installed.
        let script = dir.path().join("darktable-cli");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(to_keep(&script, &said(&script)).is_none());
        let new = dir.path().join("new");
        fs::copy(shell, &new).unwrap();
        assert!(to_keep(&new, &said(&new)).is_none());
    }
}
