//! Photos as cameras and programs write them: the raw in a directory of its own behind a thumbnail, raws without
//! colours, and finished pictures with Exif data in WebP, PNG, TIFF and JPEG. The same picture is the same bytes.

use darktable::dng::{DngOptions, write_dng};
use darktable::render::Picture;
use image::ImageEncoder;

/// The camera in all files here.
pub const MAKE: &str = "Chemigram";
pub const MODEL: &str = "Chemigram Synth-1";
pub const LENS: &str = "Synth 50mm f/4";
const TAKEN: &str = "2026:01:02 03:04:05";

/// A TIFF field: tag, type, number of values, and these in little-endian bytes.
#[derive(Clone)]
struct Field {
    tag: u16,
    kind: u16,
    count: u32,
    bytes: Vec<u8>,
}

fn ascii(tag: u16, text: &str) -> Field {
    Field { tag, kind: 2, count: text.len() as u32 + 1, bytes: [text.as_bytes(), b"\0"].concat() }
}

fn shorts(tag: u16, values: &[u16]) -> Field {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Field { tag, kind: 3, count: values.len() as u32, bytes }
}

fn long(tag: u16, value: usize) -> Field {
    Field { tag, kind: 4, count: 1, bytes: (value as u32).to_le_bytes().to_vec() }
}

fn rational(tag: u16, numerator: u32, denominator: u32) -> Field {
    let bytes = [numerator, denominator].into_iter().flat_map(u32::to_le_bytes).collect();
    Field { tag, kind: 5, count: 1, bytes }
}

/// A directory for file offset `at`: its entries by tag, no next directory, then the values that do not fit into
/// an entry.
fn directory(fields: &[Field], at: usize) -> Vec<u8> {
    let mut fields = fields.to_vec();
    fields.sort_by_key(|field| field.tag);
    let data_at = at + 2 + 12 * fields.len() + 4;
    let mut entries = (fields.len() as u16).to_le_bytes().to_vec();
    let mut data: Vec<u8> = Vec::new();
    for field in fields {
        entries.extend(field.tag.to_le_bytes());
        entries.extend(field.kind.to_le_bytes());
        entries.extend(field.count.to_le_bytes());
        let mut bytes = field.bytes;
        if bytes.len() > 4 {
            entries.extend(((data_at + data.len()) as u32).to_le_bytes());
            bytes.resize(bytes.len().next_multiple_of(2), 0);
            data.extend(bytes);
        } else {
            bytes.resize(4, 0);
            entries.extend(bytes);
        }
    }
    entries.extend([0; 4]);
    entries.extend(data);
    entries
}

/// The fields of the directory at that offset of a little-endian TIFF.
fn fields(file: &[u8], at: usize) -> Vec<Field> {
    let short = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let field = |entry: usize| {
        let (tag, kind, count) = (short(entry), short(entry + 2), word(entry + 4));
        let size = match kind {
            1 | 2 | 7 => 1,
            3 => 2,
            5 | 10 => 8,
            _ => 4,
        };
        let length = size * count as usize;
        let start = if length > 4 { word(entry + 8) as usize } else { entry + 8 };
        Field { tag, kind, count, bytes: file[start..start + length].to_vec() }
    };
    (0..usize::from(short(at))).map(|n| field(at + 2 + 12 * n)).collect()
}

fn number(fields: &[Field], tag: u16) -> usize {
    let field = fields.iter().find(|field| field.tag == tag).unwrap();
    let mut bytes = field.bytes.clone();
    bytes.resize(4, 0);
    u32::from_le_bytes(bytes.try_into().unwrap()) as usize
}

/// The fields that say how the samples of a picture are stored, at `strip`.
fn samples(
    kind: usize,
    [width, height]: [u32; 2],
    bits: &[u16],
    photometric: u16,
    strip: usize,
) -> Vec<Field> {
    let bytes =
        width as usize * height as usize * bits.iter().map(|bits| usize::from(*bits)).sum::<usize>() / 8;
    vec![
        long(254, kind),
        long(256, width as usize),
        long(257, height as usize),
        shorts(258, bits),
        shorts(259, &[1]),
        shorts(262, &[photometric]),
        long(273, strip),
        shorts(277, &[bits.len() as u16]),
        long(278, height as usize),
        long(279, bytes),
        shorts(284, &[1]),
    ]
}

/// The thumbnail: every tenth pixel.
fn thumbnail(picture: &Picture) -> Picture {
    let (width, height) = (picture.width / 10, picture.height / 10);
    let places =
        (0..height).flat_map(|y| (0..width).map(move |x| 3 * (y * 10 * picture.width + x * 10) as usize));
    Picture { width, height, rgb: places.flat_map(|at| picture.rgb[at..at + 3].to_vec()).collect() }
}

/// A DNG as cameras lay it out: the first directory is the thumbnail's and says what camera it is and how it was held,
/// the raw stands in a directory below, and the Exif data do not tell its size.
fn behind_thumbnail(
    picture: &Picture,
    first: &[Field],
    raw: &[Field],
    exif: &[Field],
    data: &[u8],
) -> Vec<u8> {
    let small = thumbnail(picture);
    let lay = |exif_at: usize, raw_at: usize, small_at: usize, data_at: usize| {
        let mut first = first.to_vec();
        first.extend(samples(1, [small.width, small.height], &[8; 3], 2, small_at));
        first.extend([long(330, raw_at), long(34_665, exif_at)]);
        let mut raw = raw.to_vec();
        raw.retain(|field| field.tag != 273);
        raw.push(long(273, data_at));
        [directory(&first, 8), directory(exif, exif_at), directory(&raw, raw_at)]
    };
    let [a, b, c] = lay(0, 0, 0, 0).map(|directory| directory.len());
    let (exif_at, raw_at, small_at) = (8 + a, 8 + a + b, 8 + a + b + c);
    let data_at = (small_at + small.rgb.len()).next_multiple_of(16);
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend(lay(exif_at, raw_at, small_at, data_at).concat());
    file.extend(&small.rgb);
    file.resize(data_at, 0);
    file.extend(data);
    file
}

/// What belongs to the samples themselves, and not to the camera.
const OF_THE_SAMPLES: [u16; 15] =
    [254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 33_421, 33_422, 50_714, 50_717];

/// [`write_dng`]'s mosaic, laid out as by a camera.
pub fn camera_dng(picture: &Picture, options: &DngOptions) -> Vec<u8> {
    let plain = write_dng(picture, options).unwrap();
    let (raw, first): (Vec<Field>, Vec<Field>) =
        fields(&plain, 8).into_iter().partition(|field| OF_THE_SAMPLES.contains(&field.tag));
    let exif = fields(&plain, number(&first, 34_665));
    let first: Vec<Field> = first.into_iter().filter(|field| field.tag != 34_665).collect();
    behind_thumbnail(picture, &first, &raw, &exif, &plain[number(&raw, 273)..])
}

/// A raw of a camera that sees no colours: one sample a pixel, not a mosaic.
pub fn monochrome_dng(picture: &Picture, options: &DngOptions) -> Vec<u8> {
    let plain = write_dng(picture, options).unwrap();
    let of_colour = [50_721, 50_728, 50_778];
    let main = fields(&plain, 8);
    let kept = |field: &Field| ![&OF_THE_SAMPLES[..], &of_colour, &[34_665]].concat().contains(&field.tag);
    let first: Vec<Field> = main.iter().filter(|field| kept(field)).cloned().collect();
    let mut raw = samples(0, [picture.width, picture.height], &[16], 34_892, 0);
    raw.extend([long(50_714, 0), long(50_717, 65_535)]);
    // Light is about the square of what is shown.
    let light = |pixel: &[u8]| {
        let sum: u32 = pixel.iter().map(|value| u32::from(*value)).sum();
        ((sum * sum / 18) as u16).to_le_bytes()
    };
    let data: Vec<u8> = picture.rgb.chunks_exact(3).flat_map(light).collect();
    behind_thumbnail(picture, &first, &raw, &fields(&plain, number(&main, 34_665)), &data)
}

/// Who took a picture and how, and how the camera was held.
fn camera(orientation: u16) -> Vec<Field> {
    vec![ascii(271, MAKE), ascii(272, MODEL), shorts(274, &[orientation]), ascii(306, TAKEN)]
}

fn exposure() -> Vec<Field> {
    vec![
        rational(33_434, 1, 125),
        rational(33_437, 40, 10),
        shorts(34_855, &[200]),
        Field { tag: 36_864, kind: 7, count: 4, bytes: b"0230".to_vec() },
        ascii(36_867, TAKEN),
        rational(37_386, 50, 1),
        ascii(42_036, LENS),
    ]
}

/// A TIFF of fields and, behind them, data; `first` is told where the data are.
fn tiff_of(first: impl Fn(usize) -> Vec<Field>, data: &[u8]) -> Vec<u8> {
    let lay = |exif_at: usize, data_at: usize| {
        let mut first = first(data_at);
        first.push(long(34_665, exif_at));
        [directory(&first, 8), directory(&exposure(), exif_at)]
    };
    let [a, b] = lay(0, 0).map(|directory| directory.len());
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend(lay(8 + a, 8 + a + b).concat());
    file.extend(data);
    file
}

/// The Exif data alone, as other formats carry them.
fn exif(orientation: u16) -> Vec<u8> {
    tiff_of(|_| camera(orientation), &[])
}

pub fn tiff(picture: &Picture, orientation: u16) -> Vec<u8> {
    let first = |strip| {
        let mut first = samples(0, [picture.width, picture.height], &[8; 3], 2, strip);
        first.extend(camera(orientation));
        first
    };
    tiff_of(first, &picture.rgb)
}

/// A picture by an encoder of the library, its Exif data with it.
fn encoded(mut encoder: impl ImageEncoder, picture: &Picture, orientation: u16) {
    encoder.set_exif_metadata(exif(orientation)).unwrap();
    encoder.write_image(&picture.rgb, picture.width, picture.height, image::ExtendedColorType::Rgb8).unwrap();
}

pub fn png(picture: &Picture, orientation: u16) -> Vec<u8> {
    let mut file = Vec::new();
    encoded(image::codecs::png::PngEncoder::new(&mut file), picture, orientation);
    file
}

pub fn jpeg(picture: &Picture, orientation: u16) -> Vec<u8> {
    let mut file = Vec::new();
    encoded(image::codecs::jpeg::JpegEncoder::new_with_quality(&mut file, 98), picture, orientation);
    file
}

/// Without loss.
pub fn webp(picture: &Picture, orientation: u16) -> Vec<u8> {
    let mut file = Vec::new();
    encoded(image::codecs::webp::WebPEncoder::new_lossless(&mut file), picture, orientation);
    file
}
