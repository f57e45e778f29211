//! What darktable itself does to a photograph that nobody has edited.

use std::fs;
use std::path::Path;

use crate::clock::Deadline;
use crate::darktable::checks;
use crate::darktable::probe::DarktableCli;
use crate::darktable::render::{Quality, RenderError};
use crate::darktable::scratch::{Base, CARRIER, History, Order, PICTURE, Scratch, at};

/// Nobody looks at this picture, but a photograph that cannot be rendered must not become a project.
const LONG_EDGE: u32 = 128;
/// The default history is a few kilobytes.
const LARGEST: u64 = 4 << 20;

/// Asks darktable for its default history of `raw` (a raw, JPEG, PNG or TIFF file) and returns the sidecar it
/// writes: every module that it switches on by itself, and the as-shot white balance. `base` is the private
/// folder that [`crate::darktable::oneshot::OneShot::new`] takes too. A sidecar beside the raw has no
/// influence, and nothing is written there.
///
/// 4.2.1 and 5.4.1 write the sidecar on import. 5.0.1 does not, but puts its text into a JPEG, which takes a
/// second run; 5.4.1 does not do that.
///
/// Fails with [`RenderError::Raw`] for a file that darktable cannot open or decode.
pub fn ask_baseline(
    cli: &DarktableCli,
    raw: &Path,
    base: &Path,
    deadline: &Deadline,
) -> Result<Vec<u8>, RenderError> {
    let base = Base::new(base)?;
    let scratch = Scratch::writable(&base, raw)?;
    let run = |history| {
        let order =
            Order { sidecar: None, long_edge: LONG_EDGE, quality: Quality::Preview, history, export: None };
        checks::ending(&scratch.run(cli, &base, &order, deadline)?, raw, &scratch.output())
    };
    run(History::Beside)?;
    // A photograph of a white wall or with the cap on is a photograph: blank is fine here.
    checks::decoded(&scratch.output(), PICTURE, LONG_EDGE)?;
    let mut sidecar = scratch.input().as_os_str().to_owned();
    sidecar.push(".xmp");
    if let Some(sidecar) = read(Path::new(&sidecar))? {
        return Ok(sidecar);
    }
    run(History::Inside)?;
    let picture = read(&scratch.output().join(CARRIER))?.unwrap_or_default();
    let packet = packet(&picture).map(<[u8]>::to_vec);
    packet.ok_or_else(|| RenderError::Untrusted("darktable wrote no sidecar for its defaults".into()))
}

/// A file of a reasonable size; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, RenderError> {
    match fs::metadata(path) {
        Ok(about) if about.len() <= LARGEST => fs::read(path).map(Some).map_err(at(path)),
        Ok(about) => Err(RenderError::Untrusted(format!("the default history has {} bytes", about.len()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RenderError::Io { path: path.to_owned(), source }),
    }
}

/// The XMP document in a JPEG, which it stands in as text (XMP specification, part 3, 1.1.3).
fn packet(jpeg: &[u8]) -> Option<&[u8]> {
    let find = |text: &[u8], word: &[u8]| text.windows(word.len()).position(|window| window == word);
    const END: &[u8] = b"</x:xmpmeta>";
    let packet = jpeg.get(find(jpeg, b"<x:xmpmeta")?..)?;
    packet.get(..find(packet, END)? + END.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_is_cut_out_of_the_picture_whole_or_not_at_all() {
        let jpeg = b"\xff\xd8..http://ns.adobe.com/xap/1.0/\0<?xpacket?><x:xmpmeta a=\"1\"> </x:xmpmeta>  <?xpacket end?>";
        assert_eq!(packet(jpeg), Some(&b"<x:xmpmeta a=\"1\"> </x:xmpmeta>"[..]));
        assert_eq!(packet(&jpeg[..60]), None);
        assert_eq!(packet(b"\xff\xd8"), None);
    }
}
