//! What an exported file holds besides its pixels.
//!
//! Measured on 4.2.1, 5.0.1 and 5.4.1: whatever its options, darktable-cli writes the whole edit into every file
//! as an XMP packet, and into a TIFF the path that it wrote to (`DocumentName`). Here they are taken out again,
//! and the camera's Exif data too where no metadata is wanted. Pixels and profile are not touched.
//!
//! Sources: JPEG, ITU-T T.81 annex B; PNG, third edition, 5 and 11; TIFF 6.0, section 2.

use std::ops::Range;

use crate::export::Format;
use crate::tiff::{Entry, Tiff};

/// How much metadata a file keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// The camera's Exif data: what, when, where and how it was taken.
    Camera,
    /// The Exif data and darktable's XMP packet with the whole edit.
    All,
    /// Nothing but what is needed to show the picture, its profile included.
    None,
}

/// Takes out of `file` what `keep` does not name; `None` if it is not built as its format should be.
pub fn cut(file: Vec<u8>, format: Format, keep: Metadata) -> Option<Vec<u8>> {
    match format {
        Format::Jpeg(_) => jpeg(&file, keep),
        Format::Png(_) => png(&file, keep),
        Format::Tiff(_) => tiff(file, keep),
    }
}

fn jpeg(file: &[u8], keep: Metadata) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(file.len());
    let mut rest = file.strip_prefix(b"\xff\xd8")?;
    kept.extend_from_slice(b"\xff\xd8");
    loop {
        let [0xff, marker, high, low, ..] = *rest else { return None };
        let length = 2 + usize::from(u16::from_be_bytes([high, low]));
        let (segment, after) = rest.split_at_checked(length)?;
        // The scan and all that follows it.
        if marker == 0xda {
            kept.extend_from_slice(rest);
            return Some(kept);
        }
        let data = segment.get(4..)?;
        let wanted = match marker {
            0xe1 if data.starts_with(b"Exif\0") => keep != Metadata::None,
            // XMP, and its continuation.
            0xe1 => keep == Metadata::All,
            // IPTC, and a comment.
            0xed | 0xfe => keep != Metadata::None,
            _ => true,
        };
        if wanted {
            kept.extend_from_slice(segment);
        }
        rest = after;
    }
}

fn png(file: &[u8], keep: Metadata) -> Option<Vec<u8>> {
    const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
    let mut kept = Vec::with_capacity(file.len());
    let mut rest = file.strip_prefix(SIGNATURE)?;
    kept.extend_from_slice(SIGNATURE);
    while !rest.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?;
        let (chunk, after) = rest.split_at_checked(length.checked_add(12)?)?;
        let data = chunk.get(8..)?;
        let wanted = match chunk.get(4..8)? {
            b"iTXt" | b"tEXt" | b"zTXt" => match keep {
                Metadata::All => true,
                // Where 4.2.1 puts the Exif data.
                Metadata::Camera => data.starts_with(b"Raw profile type exif\0"),
                Metadata::None => false,
            },
            b"eXIf" | b"tIME" => keep != Metadata::None,
            _ => true,
        };
        if wanted {
            kept.extend_from_slice(chunk);
        }
        rest = after;
    }
    Some(kept)
}

/// The tags without which a TIFF cannot be shown as it should be: its picture's form, place, resolution,
/// prediction, sample format, and the profile.
const SHOWING: [u16; 19] =
    [254, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 282, 283, 284, 296, 317, 339, 34_675];
const DOCUMENT_NAME: u16 = 269;
const XMP: u16 = 700;
const EXIF: u16 = 34_665;
const GPS: u16 = 34_853;

/// Strikes tags out of the one directory and blanks what they pointed to; nothing moves.
fn tiff(mut file: Vec<u8>, keep: Metadata) -> Option<Vec<u8>> {
    let view = Tiff::open(&file)?;
    let directory = view.long(4)?;
    let entries = view.entries(directory)?;
    // The place of the next directory follows the entries.
    let end = directory + 2 + 12 * entries.len();
    let wanted = |entry: &Entry| match keep {
        _ if entry.tag == DOCUMENT_NAME => false,
        Metadata::All => true,
        Metadata::Camera => entry.tag != XMP,
        Metadata::None => SHOWING.contains(&entry.tag),
    };
    let (kept, struck): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(wanted);
    let mut blank: Vec<Range<usize>> = Vec::new();
    for entry in &struck {
        blank.extend(entry.outside.clone());
        if matches!(entry.tag, EXIF | GPS) {
            let below = view.long(entry.at + 8)?;
            let inside = view.entries(below)?;
            blank.extend(inside.iter().filter_map(|entry| entry.outside.clone()));
            blank.push(below..below + 6 + 12 * inside.len());
        }
    }
    let mut table = view.short_bytes(u16::try_from(kept.len()).ok()?).to_vec();
    for entry in &kept {
        table.extend_from_slice(file.get(entry.at..entry.at + 12)?);
    }
    table.extend_from_slice(file.get(end..end + 4)?);
    table.resize(end + 4 - directory, 0);
    for range in blank {
        file.get_mut(range)?.fill(0);
    }
    file.get_mut(directory..end + 4)?.copy_from_slice(&table);
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Depth;

    const TIFF: Format = Format::Tiff(Depth::Sixteen);
    const PNG: Format = Format::Png(Depth::Eight);
    const JPEG: Format = Format::Jpeg(90);

    fn has(file: &[u8], word: &str) -> bool {
        file.windows(word.len()).any(|window| window == word.as_bytes())
    }

    /// Which of these words are left for each of [`Metadata`].
    fn left<const N: usize>(file: &[u8], format: Format, words: [&str; N]) -> [[bool; N]; 3] {
        [Metadata::All, Metadata::Camera, Metadata::None].map(|keep| {
            let kept = cut(file.to_vec(), format, keep).unwrap();
            words.map(|word| has(&kept, word))
        })
    }

    fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker], &length[..], data].concat()
    }

    #[test]
    fn segments_of_a_jpeg_go_and_its_scan_stays() {
        let parts = [
            vec![0xff, 0xd8],
            segment(0xe0, b"JFIF\0"),
            segment(0xe1, b"Exif\0\0camera"),
            segment(0xe1, b"http://ns.adobe.com/xap/1.0/\0edit"),
            segment(0xe2, b"ICC_PROFILE\0colour"),
            segment(0xfe, b"remark"),
            segment(0xda, b"x"),
            b"pixels\xff\xd9".to_vec(),
        ];
        let file = parts.concat();
        let words = ["camera", "edit", "colour", "remark", "pixels", "JFIF"];
        let expected =
            [[true; 6], [true, false, true, true, true, true], [false, false, true, false, true, true]];
        assert_eq!(left(&file, JPEG, words), expected);
        let scan = file.len() - 13;
        assert!((0..scan).all(|end| cut(file[..end].to_vec(), JPEG, Metadata::Camera).is_none()));
    }

    #[test]
    fn chunks_of_a_png_go_and_its_pixels_stay() {
        let chunk = |kind: &[u8; 4], data: &[u8]| {
            [&u32::try_from(data.len()).unwrap().to_be_bytes(), &kind[..], data, b"crc!"].concat()
        };
        let file = [
            b"\x89PNG\r\n\x1a\n".to_vec(),
            chunk(b"iCCP", b"colour"),
            chunk(b"eXIf", b"camera"),
            chunk(b"zTXt", b"Raw profile type exif\0\0zipped"),
            chunk(b"iTXt", b"XML:com.adobe.xmp\0edit"),
            chunk(b"IDAT", b"pixels"),
        ]
        .concat();
        let expected = [[true; 5], [true, true, true, false, true], [true, false, false, false, true]];
        assert_eq!(left(&file, PNG, ["colour", "camera", "zipped", "edit", "pixels"]), expected);
        assert!(cut(file[..file.len() - 1].to_vec(), PNG, Metadata::Camera).is_none());
    }

    #[test]
    fn tags_of_a_tiff_go_with_what_they_point_to_in_either_order_of_bytes() {
        for little in [true, false] {
            let short = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
            let long = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
            let entry = |tag: u16, kind: u16, count: u32, value: u32| {
                [&short(tag)[..], &short(kind), &long(count), &long(value)].concat()
            };
            let head: &[u8] = if little { b"II*\0" } else { b"MM\0*" };
            let file = [
                head.to_vec(),
                long(20).to_vec(),
                b"--pixels----".to_vec(),
                // At 20, five entries to 82 and the next directory to 86.
                short(5).to_vec(),
                entry(256, 4, 1, 600),
                entry(DOCUMENT_NAME, 2, 8, 86),
                entry(XMP, 1, 8, 94),
                entry(EXIF, 4, 1, 110),
                entry(34_675, 7, 8, 102),
                long(0).to_vec(),
                b"scratch\0the-editcolour--".to_vec(),
                // At 110, one entry to 128.
                short(1).to_vec(),
                entry(271, 2, 8, 128),
                long(0).to_vec(),
                b"camera--".to_vec(),
            ]
            .concat();
            let words = ["scratch", "the-edit", "camera", "colour", "pixels"];
            let expected = [
                [false, true, true, true, true],
                [false, false, true, true, true],
                [false, false, false, true, true],
            ];
            assert_eq!(left(&file, TIFF, words), expected);
            let kept = cut(file.clone(), TIFF, Metadata::Camera).unwrap();
            let view = Tiff::open(&kept).unwrap();
            let tags: Vec<u16> = view.entries(20).unwrap().iter().map(|entry| entry.tag).collect();
            assert_eq!((tags, view.long(20 + 2 + 36)), (vec![256, EXIF, 34_675], Some(0)));
            assert!((0..110).all(|end| cut(file[..end].to_vec(), TIFF, Metadata::None).is_none()));
        }
    }
}
