//! Letting darktable finish an edit that leans on its defaults, or that an older darktable wrote.

use std::fs;
use std::path::Path;

use crate::blend;
use crate::checks;
use crate::forms;
use crate::layout::Layouts;
use crate::probe::DarktableCli;
use crate::render::{Quality, RenderError};
use crate::scratch::{Base, History, PICTURE, RenderJob, Scratch, at};
use crate::state::{EditState, MaskForm, Module, Params, Shape};
use crate::xmp::{self, Foreign};
use base::clock::Deadline;
use base::files;

/// Nobody looks at this picture.
const LONG_EDGE: u32 = 128;
/// Where a PNG file keeps an XMP packet.
const KEYWORD: &[u8] = b"XML:com.adobe.xmp\0";

/// Has darktable read `sidecar` beside a link to `raw`, add what it adds by itself, and write the whole edit
/// down. `base` is as for [`crate::baseline::ask`]. Nothing is written beside the raw.
///
/// darktable rewrites the sidecar where it added defaults. What it only translated (an edit of darktable 2) it
/// leaves as it was; 4.2.1 and 5.0.1 then have the translation in the picture that they write, 5.4.1 has not.
///
/// # Errors
/// [`RenderError`], if darktable cannot be run, or refuses the raw or the sidecar.
pub fn complete(
    cli: &DarktableCli,
    raw: &Path,
    sidecar: &[u8],
    base: &Path,
    deadline: &Deadline,
) -> Result<Vec<u8>, RenderError> {
    let base = Base::new(base)?;
    let scratch = Scratch::writable(&base, raw)?;
    let mut beside = scratch.input().as_os_str().to_owned();
    beside.push(".xmp");
    let beside = Path::new(&beside);
    fs::write(beside, sidecar).map_err(at(beside))?;
    let order = RenderJob {
        sidecar: None,
        long_edge: LONG_EDGE,
        quality: Quality::Preview,
        history: History::Beside,
        export: None,
        script: None,
    };
    let ended = scratch.run(cli, &base, &order, deadline)?;
    checks::ending(&ended, raw, &scratch.output())?;
    checks::decoded(&scratch.output(), PICTURE, LONG_EDGE)?;
    let written = files::read(beside, xmp::MAX_BYTES as u64)
        .map_err(|e| RenderError::Untrusted(format!("the sidecar that darktable wrote: {e}")))?;
    if written != sidecar {
        return Ok(written);
    }
    let picture = scratch.output().join(PICTURE);
    let picture = files::read(&picture, files::LARGEST_LIST).map_err(at(&picture))?;
    Ok(packet(&picture).map_or(written, <[u8]>::to_vec))
}

/// Whether a module's parameters are of a version that `darktable` upgrades from, and that no layout is known of.
pub fn is_old(module: &Module, layouts: &Layouts, darktable: &str) -> bool {
    let known = layouts.module(&module.op).ok().flatten();
    let own = known.and_then(|known| known.own_version(darktable));
    matches!(module.params, Params::Opaque(_)) && own.is_some_and(|own| module.modversion < own)
}

/// `state` with what an older darktable wrote (parameters, blending, mask forms) as the installed one has it after
/// its own upgrade; `None` where nothing is old, or where darktable does not say. Whether that renders alike is for
/// the caller to see. `raw` and `base` are as for [`complete`].
///
/// # Errors
/// Those of [`complete`], and [`RenderError::Encode`] for a state that cannot be written.
pub fn upgrade(
    cli: &DarktableCli,
    layouts: &Layouts,
    raw: &Path,
    state: &EditState,
    base: &Path,
    deadline: &Deadline,
) -> Result<Option<EditState>, RenderError> {
    let old_blend = |module: &Module| {
        module.blend.as_ref().and_then(|b| b.opaque.as_ref()).is_some_and(|b| b.version < blend::VERSION)
    };
    let old_form =
        |form: &MaskForm| matches!(form.shape, Shape::Opaque { version, .. } if version < forms::VERSION);
    let old = |module: &Module| is_old(module, layouts, cli.version()) || old_blend(module);
    if !state.modules.iter().any(old) && !state.masks.iter().any(old_form) {
        return Ok(None);
    }
    let name = raw.file_name().unwrap_or_default().to_string_lossy();
    let text = xmp::write(state, layouts, &name).map_err(|e| RenderError::Encode(e.to_string()))?;
    // darktable writes a whole edit only when it adds its defaults, which here come under what is there.
    let text = text.replacen(r#"auto_presets_applied="1""#, r#"auto_presets_applied="0""#, 1);
    let written = complete(cli, raw, text.as_bytes(), base, deadline)?;
    let Ok(Foreign::Complete(theirs)) = xmp::foreign(&written, layouts, cli.version()) else {
        return Ok(None);
    };
    let mut new = state.clone();
    for module in new.modules.iter_mut().filter(|module| old(module)) {
        if let Some(theirs) = theirs.module(&module.op, module.instance) {
            *module = theirs.clone();
        }
    }
    for form in new.masks.iter_mut().filter(|form| old_form(form)) {
        if let Some(theirs) = theirs.masks.iter().find(|theirs| theirs.id == form.id) {
            *form = theirs.clone();
        }
    }
    Ok((new != *state).then_some(new))
}

/// The XMP packet in a PNG file, if there is one with an edit of darktable's in it.
fn packet(png: &[u8]) -> Option<&[u8]> {
    let mut rest = png.get(8..)?;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        // Behind the keyword: not compressed, the method of compression, two empty names of languages.
        let text = data.strip_prefix(KEYWORD).and_then(|data| data.strip_prefix(&[0, 0, 0, 0]));
        if let Some(text) = text.filter(|_| kind == b"iTXt") {
            let history = b"darktable:history";
            return text.windows(history.len()).any(|part| part == history).then_some(text);
        }
        rest = after.get(4..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(data.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(kind);
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    #[test]
    fn the_packet_of_a_picture_is_found_and_damage_is_none() {
        let text = b"<x darktable:history/>";
        let data = [KEYWORD, &[0; 4], text].concat();
        let png = [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &[1; 13]), chunk(b"iTXt", &data)].concat();
        assert_eq!(packet(&png), Some(&text[..]));
        for cut in 0..png.len() - 4 {
            assert_eq!(packet(&png[..cut]), None, "{cut}");
        }
        let other = [KEYWORD, &[0; 4], b"<x/>"].concat();
        assert_eq!(packet(&[&png[..8], &chunk(b"iTXt", &other)].concat()), None);
    }
}
