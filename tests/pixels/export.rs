//! Exported files, as the real darktable makes them: their pixels, their colours, and what they tell.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure in a helper is the failure of its test"
)]

use std::io::Cursor;
use std::path::Path;
use std::process::Command;
#[allow(dead_code, reason = "the patches are measured elsewhere")]
use testkit::chart;

use darktable::checks::Blank;
use darktable::dng::{DngOptions, demo_photo};
use darktable::export::{Depth, ExportError, Exported, Format, Profile, Settings};
use darktable::metadata::{self, Metadata};
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderRequest, Renderer as _};
use darktable::state::{EditState, Params};
use darktable::{preload, xmp};
use image::DynamicImage;
use pixels::metrics::difference::Difference;
use testkit::demo::{Demo, deadline, two_at_a_time};

const TIFF: Settings = Settings {
    format: Format::Tiff(Depth::Sixteen),
    profile: Profile::Srgb,
    metadata: Metadata::Camera,
    long_edge: None,
};
const JPEG: Settings = Settings { format: Format::Jpeg(95), ..TIFF };
const PNG: Settings = Settings { format: Format::Png(Depth::Eight), ..TIFF };

fn export(demo: &Demo, state: &EditState, settings: &Settings) -> Exported {
    demo.renderer.export(&demo.raw, state, settings, &deadline()).unwrap()
}

fn opened(file: &Exported) -> DynamicImage {
    image::load_from_memory(&file.bytes).unwrap()
}

/// What darktable-cli itself makes of a file and a sidecar, without any limit of size.
fn by_darktable(demo: &Demo, raw: &Path, state: &EditState) -> DynamicImage {
    let folder = tempfile::tempdir().unwrap();
    let (sidecar, file) = (folder.path().join("edit.xmp"), folder.path().join("out.tif"));
    std::fs::write(&sidecar, xmp::write(state, &demo.layouts, "a.dng").unwrap()).unwrap();
    let mut command = Command::new(demo.cli().path());
    command.arg(raw).arg(&sidecar).arg(&file).args(["--icc-type", "SRGB", "--apply-custom-presets", "false"]);
    command.args(["--core", "--library", ":memory:", "--disable-opencl", "--configdir"]);
    command.arg(folder.path().join("config")).args(["--conf", "plugins/imageio/format/tiff/bpp=16"]);
    command.envs(preload::repeatable(demo.cli(), folder.path()).unwrap()).current_dir(folder.path());
    let output = command.output().unwrap();
    image::open(&file).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn an_export_at_full_size_is_darktables_own_grain_and_all() {
    let demo = Demo::open_photo(Some("overexposed"));
    let baseline = &demo.facts.baseline;
    let straight = demo.apply(baseline, "straighten", &[("angle", 3.0)], None).state;
    let grainy = demo.apply(baseline, "grain", &[], None).state;
    for (name, state) in [("clipped", baseline), ("straightened", &straight), ("grainy", &grainy)] {
        let same = opened(&export(&demo, state, &TIFF)) == by_darktable(&demo, &demo.raw.path, state);
        assert!(same, "{name}");
    }
    // The same bytes under another name, as the next photo of a series: other grain, in every renderer.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("-other one (2).DNG");
    std::fs::copy(&demo.raw.path, &path).unwrap();
    let other = RawFile { path, sha256: demo.raw.sha256.clone() };
    let exported = demo.renderer.export(&other, &grainy, &TIFF, &deadline()).unwrap();
    assert!(opened(&exported) == by_darktable(&demo, &other.path, &grainy), "under another name");
    assert!(opened(&exported) != opened(&export(&demo, &grainy, &TIFF)), "one grain for both");
    let worker = demo.worker();
    for raw in [&demo.raw, &other, &demo.raw] {
        let request = RenderRequest { raw, state: &grainy, long_edge: 600, quality: Quality::Preview };
        let plain = demo.renderer.render(&request, &deadline(), &ByHand).unwrap();
        assert_eq!(worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash, plain.pixel_hash);
    }
    assert_eq!(worker.troubles(), 0);
}

#[test]
fn a_blank_photo_can_be_exported_and_a_photo_that_an_edit_blanks_cannot() {
    let grey = Picture { width: 60, height: 40, rgb: vec![128; 60 * 40 * 3] };
    // Without noise, as no camera takes it, every value is the same one.
    let demo = Demo::with(&grey, &DngOptions { noise: 0.0, ..DngOptions::default() });
    let seen = Demo::open();
    // An exposure that is not a number.
    let mut lost = seen.facts.baseline.clone();
    let exposure = lost.module_mut("exposure", 0).unwrap();
    let end = if exposure.modversion > 6 { "0000000001000000" } else { "00000000" };
    exposure.params = Params::Opaque(format!("00000000000000000000c07f00004842000080c0{end}"));
    let exported = export(&demo, &demo.facts.baseline, &PNG);
    assert_eq!(exported.blank, Some(Blank::Flat));
    let refused = seen.renderer.export(&seen.raw, &lost, &PNG, &deadline()).unwrap_err();
    assert!(refused.to_string().contains("black"), "{refused}");
}

fn picture(image: &DynamicImage) -> Picture {
    let image = image.to_rgb8();
    Picture { width: image.width(), height: image.height(), rgb: image.into_raw() }
}

#[test]
fn an_export_is_the_picture_that_was_judged() {
    let demo = Demo::open();
    let state = demo.apply(&demo.facts.baseline, "exposure", &[("ev", 0.4)], None).state;
    let state = demo.apply(&state, "vibrance", &[], Some(r#"{"named":"left_half"}"#)).state;
    let judged = |long_edge| {
        let request = RenderRequest { raw: &demo.raw, state: &state, long_edge, quality: Quality::Judge };
        demo.renderer.render(&request, &deadline(), &ByHand).unwrap().picture
    };
    let small = Some(300);
    let rough = Settings { format: Format::Jpeg(40), ..JPEG };
    let files = two_at_a_time(
        &[TIFF, Settings { long_edge: small, ..TIFF }, Settings { long_edge: small, ..PNG }, JPEG, rough],
        |settings| export(&demo, &state, settings),
    );
    let [full, deep, shallow, jpeg, rough] = files.try_into().unwrap();
    let (large, little) = (judged(600), judged(300));

    // The same pixels in 8 bits; in 16 the same to a rounding, and with more between the steps.
    assert_eq!((shallow.width, shallow.height), (300, 200));
    assert_eq!(picture(&opened(&shallow)), *little);
    let sixteen = opened(&deep).into_rgb16();
    let off = sixteen
        .as_raw()
        .iter()
        .zip(&little.rgb)
        .map(|(deep, code)| (f64::from(*deep) / 257.0 - f64::from(*code)).abs());
    assert!(off.fold(0.0, f64::max) < 0.51, "16 bits round to the 8");
    let between = sixteen.as_raw().iter().filter(|value| *value % 257 != 0).count();
    assert!(between > sixteen.as_raw().len() / 2, "the 16 bits are no spread 8");

    // Full size by default, and the same picture when scaled down by somebody else.
    assert_eq!((full.width, full.height), (600, 400));
    let whole = opened(&full);
    assert_eq!(Difference::between(&picture(&whole), &large).unwrap().max, 0.0);
    let scaled = Difference::between(&halved(&whole), &little).unwrap().mean;
    assert!(scaled < 1.5, "ΔE {scaled}");

    // A JPEG is near it, and its quality is worth its bytes.
    let near = Difference::between(&picture(&opened(&jpeg)), &large).unwrap().mean;
    let far = Difference::between(&picture(&opened(&rough)), &large).unwrap().mean;
    assert!(near < 1.5 && 2.0 * near < far, "ΔE {near} and {far}");
    assert!(jpeg.bytes.len() > 2 * rough.bytes.len(), "{} {}", jpeg.bytes.len(), rough.bytes.len());
}

/// Half the size, each pixel a weighted mean of three by three. It is centred where darktable (4.2.1, 5.0.1 and
/// 5.4.1) centres it, on the upper left one of the four that it stands for.
fn halved(image: &DynamicImage) -> Picture {
    let image = image.to_rgb16();
    let (width, height) = (image.width() / 2, image.height() / 2);
    let around = |at: u32, size: u32| [(at.saturating_sub(1), 1), (at, 2), ((at + 1).min(size - 1), 1)];
    let mut rgb = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let mut sum = [0_u32; 3];
        for (row, down) in around(2 * y, image.height()) {
            for (column, across) in around(2 * x, image.width()) {
                for (sum, value) in sum.iter_mut().zip(image.get_pixel(column, row).0) {
                    *sum += u32::from(value) * down * across;
                }
            }
        }
        rgb.extend(sum.map(|sum| ((sum / 16 + 128) / 257) as u8));
    }
    Picture { width, height, rgb }
}

/// XYZ of the primaries of a space with the white of D65 (columns), IEC 61966-2-1 and Adobe RGB (1998), by
/// ITU-R BT.2020 the last.
const FROM_SRGB: [[f64; 3]; 3] =
    [[0.412_46, 0.357_58, 0.180_44], [0.212_67, 0.715_15, 0.072_17], [0.019_33, 0.119_19, 0.950_30]];
const FROM_ADOBE: [[f64; 3]; 3] =
    [[0.576_67, 0.185_56, 0.188_23], [0.297_34, 0.627_36, 0.075_29], [0.027_03, 0.070_69, 0.991_34]];
const FROM_2020: [[f64; 3]; 3] =
    [[0.636_96, 0.144_62, 0.168_88], [0.262_70, 0.678_00, 0.059_30], [0.0, 0.028_07, 1.060_99]];

#[test]
fn every_profile_is_attached_and_the_numbers_are_its_own() {
    let demo = Demo::of(&chart::picture());
    let state = &demo.facts.baseline;
    let linear = |value: f64| value;
    let adobe = |value: f64| value.powf(563.0 / 256.0);
    let srgb =
        |value: f64| if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) };
    let rec709 =
        |value: f64| if value < 0.081 { value / 4.5 } else { ((value + 0.099) / 1.099).powf(1.0 / 0.45) };
    type Curve<'a> = &'a (dyn Fn(f64) -> f64 + Sync);
    let spaces: [(Profile, &[[f64; 3]; 3], Curve); 5] = [
        (Profile::Srgb, &FROM_SRGB, &srgb),
        (Profile::AdobeRgb, &FROM_ADOBE, &adobe),
        (Profile::Rec709, &FROM_SRGB, &rec709),
        (Profile::LinearRec709, &FROM_SRGB, &linear),
        (Profile::LinearRec2020, &FROM_2020, &linear),
    ];
    let seen = two_at_a_time(&spaces, |(profile, matrix, curve)| {
        let settings = Settings { profile: *profile, ..TIFF };
        let codes = patches(&opened(&export(&demo, state, &settings)));
        (codes, codes.map(|rgb| dot(matrix, rgb.map(curve))))
    });
    let (codes, truth) = seen[0];
    for ((profile, ..), (other_codes, xyz)) in spaces.iter().zip(&seen).skip(1) {
        let moved = codes.as_flattened().iter().zip(other_codes.as_flattened()).map(|(a, b)| (a - b).abs());
        assert!(moved.fold(0.0, f64::max) > 0.03, "{profile} has the numbers of sRGB");
        // Patches at the edge of sRGB are clipped there and not in a larger space.
        let inside = codes
            .iter()
            .zip(&truth)
            .zip(xyz)
            .filter(|((rgb, _), _)| rgb.iter().all(|v| (0.02..0.98).contains(v)));
        let mut compared = 0;
        for ((_, a), b) in inside {
            compared += 1;
            let off = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 0.004, "{profile}: {a:?} in sRGB is {b:?}");
        }
        assert!(compared >= 15, "{compared} patches lie inside sRGB");
    }
    // A red that sRGB cannot hold has room in ProPhoto: its number is lower.
    let wide =
        patches(&opened(&export(&demo, state, &Settings { profile: Profile::LinearProphoto, ..TIFF })));
    assert!(wide[14][0] < 0.8 * srgb(codes[14][0]), "{:?} {:?}", wide[14], codes[14]);

    let p3 = Settings { profile: Profile::DisplayP3, ..JPEG };
    match demo.renderer.export(&demo.raw, state, &p3, &deadline()) {
        Err(ExportError::TooOld { version, .. }) => assert!(version.starts_with("4."), "{version}"),
        exported => assert!(!demo.version().starts_with("4.") && exported.is_ok()),
    }
}

/// The mean of each patch's middle, 0 to 1, as encoded.
fn patches(image: &DynamicImage) -> [[f64; 3]; 24] {
    let image = image.to_rgb16();
    assert_eq!(image.dimensions(), (600, 400));
    std::array::from_fn(|patch| {
        let (left, top) = (patch as u32 % chart::COLUMNS * 100, patch as u32 / chart::COLUMNS * 100);
        let mut sum = [0.0; 3];
        for (x, y) in (40..60).flat_map(|y| (40..60).map(move |x| (left + x, top + y))) {
            for (sum, value) in sum.iter_mut().zip(image.get_pixel(x, y).0) {
                *sum += f64::from(value) / (65_535.0 * 400.0);
            }
        }
        sum
    })
}

fn dot(matrix: &[[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(m, v)| m * v).sum())
}

#[test]
fn a_file_tells_of_the_camera_and_not_of_the_edit_or_of_this_machine() {
    let options = DngOptions { orientation: 6, ..DngOptions::default() };
    let demo = Demo::with(&demo_photo().unwrap(), &options);
    let state = &demo.facts.baseline;
    let small = |settings: Settings| Settings { long_edge: Some(120), ..settings };
    let exported = two_at_a_time(&[JPEG, PNG, TIFF].map(small), |settings| {
        (*settings, export(&demo, state, &Settings { metadata: Metadata::All, ..*settings }))
    });
    for (settings, all) in exported {
        // What is cut out of one file is cut out of the other.
        let [camera, none] = [Metadata::Camera, Metadata::None].map(|keep| Exported {
            bytes: metadata::cut(all.bytes.clone(), settings.format, keep).unwrap(),
            ..all
        });
        let what = format!("{:?}", settings.format);
        for file in [&camera, &all, &none] {
            // Turned upright, and not told to be turned again.
            assert_eq!((file.width, file.height), (80, 120), "{what}");
            assert!(opened(file).width() == 80 && opened(file).height() == 120, "{what}");
            assert!(!holds(file, b"render-"), "{what}: the path that darktable wrote to");
            assert_eq!(opened(file), opened(&camera), "{what}: the pixels stay");
        }
        for file in [&camera, &all] {
            let exif = exif(file);
            let text = |tag| exif.get_field(tag, exif::In::PRIMARY).unwrap().display_value().to_string();
            assert_eq!(text(exif::Tag::Model), "\"Chemigram Synth-1\"", "{what}");
            assert_eq!(text(exif::Tag::LensModel), "\"Synth 50mm f/4\"", "{what}");
            let turned = exif.get_field(exif::Tag::Orientation, exif::In::PRIMARY);
            assert_eq!(turned.and_then(|field| field.value.get_uint(0)), Some(1), "{what}");
        }
        assert!(holds(&all, b"darktable:history") && !holds(&camera, b"darktable:history"), "{what}");
        for word in [&b"darktable:"[..], b"xmpmeta", b"Synth", b"2026"] {
            assert!(!holds(&none, word), "{what}: {}", String::from_utf8_lossy(word));
        }
        assert!(none.bytes.len() <= camera.bytes.len(), "{what}");
    }
}

fn holds(file: &Exported, word: &[u8]) -> bool {
    // A profile's name is compressed in a PNG; everything that is looked for here is plain, or zipped Exif.
    file.bytes.windows(word.len()).any(|window| window == word)
}

/// The Exif data, also where 4.2.1 puts it in a PNG: zipped, as hexadecimal digits.
fn exif(file: &Exported) -> exif::Exif {
    let reader = exif::Reader::new();
    if let Ok(exif) = reader.read_from_container(&mut Cursor::new(&file.bytes)) {
        return exif;
    }
    let mark = b"Raw profile type exif\0\0";
    let at = file.bytes.windows(mark.len()).position(|window| window == mark).unwrap() + mark.len();
    let mut text = String::new();
    let mut zipped = flate2::read::ZlibDecoder::new(&file.bytes[at..]);
    std::io::Read::read_to_string(&mut zipped, &mut text).unwrap();
    let digits: String = text.lines().skip(3).collect();
    let bytes: Vec<u8> =
        (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
    let tiff = bytes.strip_prefix(b"Exif\0\0").unwrap_or(&bytes);
    reader.read_raw(tiff.to_vec()).unwrap()
}
