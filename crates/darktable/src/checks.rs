//! Whether what darktable left behind may be believed.
//!
//! darktable ends with status 0 on nearly every sidecar it cannot read in full, and says so only in passing.
//! The lines below were measured on 4.2.1 (and the last four `Dropped` ones also occur on 5.4.1).

use std::fs;
use std::io::{self, Cursor};
use std::path::Path;

use image::{DynamicImage, ImageFormat, ImageReader};

use crate::process::Ended;
use crate::render::{Picture, RenderError};
use crate::scratch::LARGEST_EDGE;
use base::error::{Coded as _, ErrorCode};
use base::files;

/// Lines that mean: part of the edit was dropped or misread.
const DROPPED: [&str; 8] = [
    "version mismatch",
    "is not installed",
    "history module not used but enabled",
    "parsed with errors",
    "cannot get iop-order",
    "can't find history entry",
    "[lut3d] invalid",
    "[lut3d] error",
];
/// Lines that mean: the photograph itself is damaged, or of a kind that darktable cannot read. The first
/// two come with status 0 and half a picture.
const DAMAGED: [&str; 9] = [
    "Premature end of JPEG file",
    "Corrupt JPEG data",
    "[rawspeed]",
    "[tiff_open] error",
    "[png_open]",
    "[jpeg_open]",
    "libpng error: Read Error",
    "can't open file",
    "no images to export",
];
/// How many of [`DAMAGED`], from the front, count after a success too.
const DAMAGED_ANYWAY: usize = 2;
/// Lines that mean: the sidecar cannot be read at all.
const REFUSED_SIDECAR: [&str; 1] = ["can't open XMP file"];
/// Lines that mean: the picture could not be written.
const UNWRITTEN: [&str; 2] = ["could not export to file", "libpng error: Write Error"];
/// A file system with less than this is full.
const FULL: u64 = 1 << 20;
/// The most memory that decoding a picture may take.
const DECODE_BYTES: u64 = 1 << 30;
/// A picture whose brightest sample is not above this is black.
const BLACK: u8 = 2;

/// Whether a line that darktable prints reports a fault.
pub fn is_telling(line: &str) -> bool {
    [&DROPPED[..], &DAMAGED, &REFUSED_SIDECAR, &UNWRITTEN].iter().any(|list| any(line, list))
}

fn any(line: &str, list: &[&str]) -> bool {
    list.iter().any(|words| line.contains(words))
}

/// Judges a run by its ending alone. `raw` is the photograph as the user knows it, `output` the folder that
/// was written to.
///
/// # Errors
/// [`RenderError`], by the exit status and what darktable printed.
pub fn ending(ended: &Ended, raw: &Path, output: &Path) -> Result<(), RenderError> {
    if ended.status.success() {
        return complaints(&ended.watched, raw);
    }
    let first = |list: &[&str]| first(&ended.watched, list);
    let damaged = |list| first(list).map(|reason| RenderError::Raw { path: raw.to_owned(), reason });
    if let Some(line) = first(&REFUSED_SIDECAR) {
        return Err(RenderError::Encode(line));
    }
    if first(&UNWRITTEN).is_some() && free_bytes(output).is_some_and(|free| free < FULL) {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        return Err(RenderError::Io { path: output.to_owned(), source });
    }
    if let Some(error) = damaged(&DAMAGED) {
        return Err(error);
    }
    Err(RenderError::Failed { status: ended.status.to_string(), stderr: last_words(ended) })
}

/// Judges a render that ended well by the telling lines that darktable printed meanwhile.
pub(crate) fn complaints(watched: &[String], raw: &Path) -> Result<(), RenderError> {
    if let Some(reason) = first(watched, &DAMAGED[..DAMAGED_ANYWAY]) {
        return Err(RenderError::Raw { path: raw.to_owned(), reason });
    }
    first(watched, &DROPPED).map_or(Ok(()), |line| Err(RenderError::Dropped { line }))
}

fn first(watched: &[String], list: &[&str]) -> Option<String> {
    watched.iter().find(|line| any(line, list)).map(|line| plain(line))
}

/// Judges the picture that a run left in `folder` under that name, and decodes it; it may be blank.
///
/// # Errors
/// [`RenderError`] where there is not exactly this file, or it is no whole picture of that size.
pub fn decoded(folder: &Path, name: &str, long_edge: u32) -> Result<Picture, RenderError> {
    let bytes = only_file(folder, name)?;
    let format = ImageFormat::from_path(name).unwrap_or(ImageFormat::Png);
    let picture = decode(&bytes, format).map_err(RenderError::Untrusted)?;
    fits(&picture, long_edge)?;
    Ok(picture)
}

/// The content of the one file that a run was to leave in `folder`.
pub(crate) fn only_file(folder: &Path, name: &str) -> Result<Vec<u8>, RenderError> {
    let at = |source| RenderError::Io { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(at)? {
        names.push(entry.map_err(at)?.file_name());
    }
    if names.is_empty() {
        return Err(RenderError::Untrusted("darktable ended well but wrote no file".into()));
    }
    if names != [name] {
        return Err(RenderError::Untrusted(format!("darktable wrote {names:?} instead of {name}")));
    }
    let path = folder.join(name);
    files::read(&path, files::LARGEST).map_err(|source| RenderError::Io { path, source })
}

/// Decodes an 8-bit RGB picture in full, within limits of size and memory.
///
/// # Errors
/// What is wrong with it, in words.
pub fn decode(bytes: &[u8], format: ImageFormat) -> Result<Picture, String> {
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(LARGEST_EDGE);
    limits.max_image_height = Some(LARGEST_EDGE);
    limits.max_alloc = Some(DECODE_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    match reader.decode().map_err(|e| format!("it does not decode: {e}"))? {
        DynamicImage::ImageRgb8(image) => {
            let (width, height) = image.dimensions();
            Ok(Picture { width, height, rgb: image.into_raw() })
        }
        other => Err(format!("it is {:?}, not 8-bit RGB", other.color())),
    }
}

/// Refuses a picture that is empty or larger than asked.
pub(crate) fn fits(picture: &Picture, long_edge: u32) -> Result<(), RenderError> {
    let (width, height) = (picture.width, picture.height);
    if width == 0 || height == 0 || width.max(height) > long_edge {
        return Err(RenderError::Untrusted(format!(
            "it is {width}x{height}, the long edge was to be {long_edge}"
        )));
    }
    Ok(())
}

/// A picture with nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// Every pixel is black.
    Black,
    /// Every pixel has the same colour.
    Flat,
}

impl std::fmt::Display for Blank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Black => "black throughout",
            Self::Flat => "one flat colour",
        })
    }
}

/// How a picture is blank, if it is.
pub fn blank(picture: &Picture) -> Option<Blank> {
    if picture.rgb.iter().all(|&v| v <= BLACK) {
        return Some(Blank::Black);
    }
    let (pixels, _) = picture.rgb.as_chunks::<3>();
    let first = pixels.first()?;
    pixels.iter().all(|pixel| pixel == first).then_some(Blank::Flat)
}

/// Refuses a blank picture unless the untouched photo looks the same: no edit of any other photo gives one, but a value
/// that is not a number does. `untouched` is called only then.
pub(crate) fn not_blank(
    picture: &Picture,
    untouched: impl FnOnce() -> Result<Picture, RenderError>,
) -> Result<(), RenderError> {
    let Some(found) = blank(picture) else { return Ok(()) };
    let as_ever = match untouched() {
        // A black picture of a grey frame has lost something.
        Ok(picture) if found == Blank::Black => blank(&picture) == Some(Blank::Black),
        Ok(picture) => blank(&picture).is_some(),
        Err(error) if error.code() == ErrorCode::Interrupted => return Err(error),
        Err(_) => false,
    };
    if as_ever { Ok(()) } else { Err(RenderError::Untrusted(format!("it is {found}"))) }
}

/// A line without control characters, which a file's metadata may have put there, and of bounded length.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect::<String>().trim().to_owned()
}

/// The last few lines that a failed run printed, without the remark about running as root.
fn last_words(ended: &Ended) -> String {
    let text = format!("{}\n{}", ended.stdout, ended.stderr);
    let lines: Vec<String> =
        text.lines().map(plain).filter(|l| !l.is_empty() && !l.contains("darktable as root")).collect();
    if lines.is_empty() {
        return "it printed nothing".to_owned();
    }
    lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("; ")
}

/// Bytes left on the file system of `folder`, if the system says.
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn ended(code: i32, stderr: &str) -> Ended {
        let watched = stderr.lines().filter(|l| is_telling(l)).map(str::to_owned).collect();
        let status = ExitStatus::from_raw(code << 8);
        Ended { status, stdout: String::new(), stderr: stderr.to_owned(), watched }
    }

    fn judge(code: i32, stderr: &str) -> Result<(), RenderError> {
        ending(&ended(code, stderr), Path::new("photo.dng"), Path::new("/"))
    }

    #[test]
    fn a_quiet_success_passes() {
        let usual =
            "WARNING: either your user id or the effective user id are 0. are you running darktable as root?";
        assert!(judge(0, usual).is_ok());
        assert!(judge(0, "[export_job] exported to `/tmp/picture.png'").is_ok());
    }

    #[test]
    fn every_measured_line_of_a_dropped_edit_is_seen() {
        for line in [
            "[dev_read_history] module `exposure' version mismatch: history is 99, darktable is 6.",
            "[dev_read_history] the module `nosuchop' requested by image `i.dng' is not installed on this computer!",
            "cannot get iop-order for exposure instance 1",
            "[dt_ioppr_check_iop_order] history module not used but enabled!! exposure (2147483647) image 1",
            "[_dev_read_masks_history] can't find history entry 42 while adding mask x(5)",
            "XML '/tmp/edit.xmp' parsed with errors",
            "[lut3d] invalid cube file: /luts/a.cube",
            "[lut3d] error - cube LUT lines number 7 is not correct, should be 8",
        ] {
            let error = judge(0, line).unwrap_err();
            assert!(matches!(&error, RenderError::Dropped { line: l } if l == line), "{error}");
        }
    }

    #[test]
    fn a_damaged_photograph_is_told_from_a_failing_darktable() {
        assert!(matches!(judge(0, "Premature end of JPEG file"), Err(RenderError::Raw { .. })));
        assert!(matches!(
            judge(1, "[rawspeed] (a.dng) line 46: File too small"),
            Err(RenderError::Raw { .. })
        ));
        // rawspeed also remarks on photographs that it goes on to read.
        assert!(judge(0, "[rawspeed] Unable to find camera in database").is_ok());
        assert!(matches!(judge(1, "error: can't open XMP file x.xmp"), Err(RenderError::Encode(_))));
        let error = judge(134, "free(): \u{1b}[31minvalid next size").unwrap_err();
        assert_eq!(error.to_string(), "darktable failed (exit status: 134): free():  [31minvalid next size");
    }

    #[test]
    fn a_full_disk_is_told_from_another_failure_to_write() {
        let line = "[imageio_storage_disk] could not export to file: `/x/picture.png'!";
        let at = |folder: &Path| ending(&ended(1, line), Path::new("p.dng"), folder).unwrap_err();
        assert!(
            matches!(at(Path::new("/")), RenderError::Failed { .. }),
            "or the disk of this machine is full"
        );
        // The process file system has no space at all.
        #[cfg(target_os = "linux")]
        assert!(
            matches!(at(Path::new("/proc")), RenderError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
    }

    #[test]
    fn blank_pictures_are_refused_and_dark_ones_are_not() {
        let picture = |rgb: Vec<u8>| Picture { width: 2, height: 1, rgb };
        let [black, flat, dark] =
            [vec![0, 1, 2, 2, 1, 0], vec![90, 80, 70, 90, 80, 70], vec![0, 0, 0, 0, 0, 3]].map(picture);
        let judged =
            |edited: &Picture, untouched: &Picture| not_blank(edited, || Ok(untouched.clone())).is_ok();
        assert!(!judged(&black, &dark) && !judged(&flat, &dark) && !judged(&black, &flat));
        assert!(judged(&black, &black) && judged(&flat, &flat) && judged(&flat, &black));
        let lost = || Err(RenderError::Missing("x".into()));
        assert!(not_blank(&dark, lost).is_ok() && not_blank(&flat, lost).is_err());
        assert!(fits(&picture(vec![0; 6]), 2).is_ok());
        assert!(fits(&picture(vec![0; 6]), 1).is_err());
    }
}
