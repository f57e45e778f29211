//! What darktable itself does to a photograph that nobody has edited.

use std::fs;
use std::path::Path;

use crate::clock::Deadline;
use crate::darktable::checks;
use crate::darktable::probe::DarktableCli;
use crate::darktable::render::{Quality, RenderError};
use crate::darktable::scratch::{Base, Order, Scratch, at};

/// Nobody looks at this picture, but a photograph that cannot be rendered must not become a project.
const LONG_EDGE: u32 = 128;
/// The default history is a few kilobytes.
const LARGEST_SIDECAR: u64 = 4 << 20;

/// Asks darktable for its default history of `raw` (a raw, JPEG, PNG or TIFF file) and returns the sidecar it
/// writes: every module that it switches on by itself, and the as-shot white balance. `base` is the private
/// folder that [`crate::darktable::oneshot::OneShot::new`] takes too. A sidecar beside the raw has no
/// influence, and nothing is written there.
///
/// Fails with [`RenderError::Raw`] for a file that darktable cannot open or decode.
pub fn ask_baseline(
    cli: &DarktableCli,
    raw: &Path,
    base: &Path,
    deadline: &Deadline,
) -> Result<Vec<u8>, RenderError> {
    let base = Base::new(base)?;
    let scratch = Scratch::new(&base, raw)?;
    let order = Order { sidecar: None, long_edge: LONG_EDGE, quality: Quality::Preview, write_sidecar: true };
    let ended = scratch.run(cli, &base, &order, deadline)?;
    checks::ending(&ended, raw, &scratch.output())?;
    // A photograph of a white wall or with the cap on is a photograph: blank is fine here.
    checks::decoded(&scratch.output(), LONG_EDGE)?;
    let mut sidecar = scratch.input().as_os_str().to_owned();
    sidecar.push(".xmp");
    let sidecar = Path::new(&sidecar);
    match fs::metadata(sidecar) {
        Ok(about) if about.len() <= LARGEST_SIDECAR => fs::read(sidecar).map_err(at(sidecar)),
        Ok(about) => Err(RenderError::Untrusted(format!("the default sidecar has {} bytes", about.len()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(RenderError::Untrusted("darktable wrote no sidecar for its defaults".into()))
        }
        Err(source) => Err(RenderError::Io { path: sidecar.to_owned(), source }),
    }
}
