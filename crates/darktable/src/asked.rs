//! What darktable said of files, kept beside the rendered pictures: evaluations and workers ask about the same raws
//! again and again.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::baseline::{FileFacts, Untouched};
use crate::cache::Cache;
use crate::layout::Layouts;
use crate::raw;
use crate::render::RenderError;
use crate::{scratch, xmp};
use base::files;
use base::ids::Hash;

/// Goes up whenever darktable is asked something else.
const FORMAT: u32 = 1;
/// Within the folder of the cache.
const FOLDER: &str = "asked";

#[derive(Serialize, Deserialize)]
struct Answer {
    sidecar: String,
    facts: FileFacts,
}

impl Cache {
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
        if let Some(Answer { sidecar, facts }) = kept.and_then(|kept| serde_json::from_slice(&kept).ok())
            && let Ok(state) = xmp::read(sidecar.as_bytes(), layouts)
        {
            return Ok(Untouched { state, sidecar: sidecar.into(), facts, darktable: version.to_owned() });
        }
        let told = ask()?;
        // It may have been exchanged meanwhile.
        if raw::hash_now(raw).is_ok_and(|now| now == bytes)
            && let Err(error) = keep(&path, &told)
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

fn keep(path: &Path, told: &Untouched) -> io::Result<()> {
    // No sync: what a power cut leaves of it cannot be read, and darktable is asked again.
    let sidecar = String::from_utf8(told.sidecar.clone()).map_err(io::Error::other)?;
    let answer = serde_json::to_vec(&Answer { sidecar, facts: told.facts.clone() })?;
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
}
