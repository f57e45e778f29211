//! A raw file from a picture: a valid, uncompressed, 16-bit RGGB Bayer DNG, for the demo and for tests.
//!
//! The picture is converted back to a scene (sRGB decoded, highlights expanded so that a tone mapper has
//! something to compress), seen by a made-up camera (matrix, white balance, shot and read noise), mosaicked
//! and quantised to 14 bits. All of it is integer arithmetic or `+ - * / sqrt`, which IEEE 754 defines to the
//! last bit: the same picture and options are the same bytes on every machine.
//!
//! Container: TIFF 6.0, tags of DNG 1.4 and Exif 2.3; one IFD with the mosaic and an Exif IFD.

use std::sync::OnceLock;

use image::ImageError;

use crate::render::Picture;
use base::assets::Overlay;
use base::error::{Coded, ErrorCode};
use pixels::srgb;

/// `Make` in the Exif data.
pub(crate) const MAKE: &str = "Chemigram";
/// `Model` in the Exif data, and the DNG's unique camera model.
pub(crate) const MODEL: &str = "Chemigram Synth-1";

const TAKEN: &str = "2026:01:02 03:04:05";

/// Sensor codes of black and of saturation.
const BLACK: f64 = 512.0;
const WHITE: f64 = 16_383.0;

/// The scene value 1.0 lands at this share of saturation, which leaves room above for highlights.
const GAIN: f64 = 0.42;

/// Photoelectrons at saturation, and the read noise in electrons.
const FULL_WELL: f64 = 20_000.0;
const READ_NOISE: f64 = 4.0;

/// The camera's answer to a white object (`AsShotNeutral`).
const NEUTRAL: [f64; 3] = [0.5, 1.0, 0.625];

/// Linear sRGB to the white-balanced camera; rows sum to 1.
const MIX: [[f64; 3]; 3] = [[0.76, 0.21, 0.03], [0.12, 0.80, 0.08], [0.03, 0.19, 0.78]];

/// XYZ (D65) to linear sRGB, IEC 61966-2-1.
const SRGB_FROM_XYZ: [[f64; 3]; 3] = [
    [3.240_454_2, -1.537_138_5, -0.498_531_4],
    [-0.969_266_0, 1.876_010_8, 0.041_556_0],
    [0.055_643_4, -0.204_025_9, 1.057_225_2],
];

/// What the Exif data say of camera and lens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// `Make`.
    pub make: &'static str,
    /// `Model`.
    pub model: &'static str,
    /// `LensModel`.
    pub lens: &'static str,
    /// Focal length in mm.
    pub focal: u32,
    /// Ten times the f-number.
    pub aperture: u32,
}

impl Default for Camera {
    fn default() -> Self {
        Self { make: MAKE, model: MODEL, lens: "Synth 50mm f/4", focal: 50, aperture: 40 }
    }
}

/// How the made-up camera takes the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DngOptions {
    /// Strength of shot and read noise; 0 is none, 1 that of a small sensor at base sensitivity.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Exposure in EV relative to the picture; kept to 1/65536 of the gain.
    pub exposure_ev: f64,
    /// The Exif orientation, 1 (upright) to 8. The mosaic itself is not turned.
    pub orientation: u16,
    /// How much purer the light is than sRGB can say: at 0 not at all, at 1 red light reaches the red pixels alone.
    pub purity: f64,
    /// ISO sensitivity, in the Exif data only.
    pub iso: u16,
    /// Camera and lens, in the Exif data only.
    pub camera: Camera,
}

impl Default for DngOptions {
    fn default() -> Self {
        Self {
            noise: 1.0,
            seed: 1,
            exposure_ev: 0.0,
            orientation: 1,
            purity: 0.0,
            iso: 200,
            camera: Camera::default(),
        }
    }
}

/// Why there is no DNG.
#[derive(Debug, thiserror::Error)]
pub enum DngError {
    /// The picture is too small, too large, or not as large as it says.
    #[error("a picture of {width}x{height} pixels with {bytes} bytes cannot become a raw")]
    Picture {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes that are there.
        bytes: usize,
    },
    /// An option is out of its range.
    #[error("{option} is {given}, it must be {expected}")]
    Option {
        /// Which one.
        option: &'static str,
        /// As given.
        given: String,
        /// The range.
        expected: &'static str,
    },
    /// The demo's photograph is not in the binary.
    #[error("the demo photograph is missing from this build")]
    NoPhoto,
    /// The demo's photograph cannot be decoded.
    #[error("the demo photograph cannot be decoded")]
    Decode(#[source] ImageError),
}

impl Coded for DngError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoPhoto => ErrorCode::NotFound,
            _ => ErrorCode::InvalidInput,
        }
    }
}

/// The demo's photograph as a raw file, at twice its size: its finest detail is as fine as its pixels, which
/// a mosaic of the same size would turn into false colour.
///
/// # Errors
/// [`DngError`], if the picture in this binary is damaged.
pub fn demo_raw() -> Result<Vec<u8>, DngError> {
    // Without optimization it takes a second to make, and a process full of tests wants it hundreds of times.
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let made = write_dng(&doubled(&demo_photo()?), &DngOptions::default())?;
    Ok(MADE.get_or_init(|| made).clone())
}

/// The demo's photograph as it is carried in the binary.
///
/// # Errors
/// [`DngError`], if the picture in this binary is damaged.
pub fn demo_photo() -> Result<Picture, DngError> {
    let file = Overlay::demo().read("photo.png").ok_or(DngError::NoPhoto)?;
    let image = image::load_from_memory(&file).map_err(DngError::Decode)?.into_rgb8();
    Ok(Picture { width: image.width(), height: image.height(), rgb: image.into_raw() })
}

/// Twice the size, by bilinear interpolation in integers.
fn doubled(picture: &Picture) -> Picture {
    let (width, height) = (picture.width as usize, picture.height as usize);
    let sample = |x: usize, y: usize, channel: usize| {
        let at = 3 * (y.min(height - 1) * width + x.min(width - 1)) + channel;
        picture.rgb.get(at).copied().map_or(0, u16::from)
    };
    // A new pixel lies a quarter of an old one off its nearest neighbour, towards the second nearest.
    let neighbours = |new: usize| {
        if new.is_multiple_of(2) { (new / 2, (new / 2).saturating_sub(1)) } else { (new / 2, new / 2 + 1) }
    };
    let mut rgb = Vec::with_capacity(picture.rgb.len() * 4);
    for y in 0..2 * height {
        let (near_y, far_y) = neighbours(y);
        for x in 0..2 * width {
            let (near_x, far_x) = neighbours(x);
            for channel in 0..3 {
                let near = 3 * sample(near_x, near_y, channel) + sample(far_x, near_y, channel);
                let far = 3 * sample(near_x, far_y, channel) + sample(far_x, far_y, channel);
                rgb.push(((3 * near + far + 8) / 16) as u8);
            }
        }
    }
    Picture { width: 2 * picture.width, height: 2 * picture.height, rgb }
}

/// Makes the bytes of a DNG. An odd last column or row is left out, since the mosaic has whole cells only.
///
/// # Errors
/// [`DngError`] for a picture that is too small, or not as large as it says.
pub fn write_dng(picture: &Picture, options: &DngOptions) -> Result<Vec<u8>, DngError> {
    let (width, height) = (picture.width & !1, picture.height & !1);
    let pixels = u64::from(picture.width) * u64::from(picture.height);
    if width == 0 || height == 0 || pixels > 1 << 28 || picture.rgb.len() as u64 != pixels * 3 {
        return Err(DngError::Picture {
            width: picture.width,
            height: picture.height,
            bytes: picture.rgb.len(),
        });
    }
    check_range("noise", options.noise, 0.0..=100.0, "0 to 100")?;
    check_range("exposure_ev", options.exposure_ev, -8.0..=8.0, "-8 to 8")?;
    check_range("purity", options.purity, 0.0..=1.0, "0 to 1")?;
    check_range("orientation", options.orientation.into(), 1.0..=8.0, "1 to 8")?;

    let exif_at = 8 + even(main_ifd(width, height, options, 0, 0).bytes(8).len());
    let exif = exif_ifd(options).bytes(exif_at);
    let strip_at = (exif_at + exif.len()).next_multiple_of(16);

    let mut file = Vec::with_capacity(strip_at + 2 * (width as usize) * (height as usize));
    file.extend_from_slice(b"II*\0\x08\0\0\0");
    file.extend(main_ifd(width, height, options, exif_at as u32, strip_at as u32).bytes(8));
    file.resize(exif_at, 0);
    file.extend(exif);
    file.resize(strip_at, 0);
    append_mosaic(&mut file, picture, width, height, options);
    Ok(file)
}

fn check_range(
    option: &'static str,
    given: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), DngError> {
    if range.contains(&given) {
        return Ok(());
    }
    Err(DngError::Option { option, given: given.to_string(), expected })
}

/// Appends the sensor codes, row by row, RGGB from the top left, little-endian.
fn append_mosaic(file: &mut Vec<u8>, picture: &Picture, width: u32, height: u32, options: &DngOptions) {
    // `exp2` may differ between machines in its last bits; in steps of 1/65536 it does not.
    let gain = GAIN * (options.exposure_ev.exp2() * 65_536.0).round() / 65_536.0;
    // White becomes 2.6: the tone curve that the picture went through is bent back.
    let scene = srgb::LINEAR.map(|linear| linear * (1.0 + 1.6 * linear * linear) * gain);
    let scene = |code: u8| scene.get(usize::from(code)).copied().unwrap_or(0.0);
    let [red, green, blue] = camera_from_srgb(options.purity);
    let read = (READ_NOISE / FULL_WELL) * (READ_NOISE / FULL_WELL);
    let mut random = Random(options.seed);
    let line = 3 * picture.width as usize;
    for (y, pixels) in picture.rgb.chunks_exact(line).take(height as usize).enumerate() {
        let filters = if y % 2 == 0 { [red, green] } else { [green, blue] };
        let filters = filters.into_iter().cycle();
        for (rgb, filter) in pixels.chunks_exact(3).take(width as usize).zip(filters) {
            let &[r, g, b] = rgb else { continue };
            let light = dot(filter, [r, g, b].map(scene));
            let deviation = options.noise * (light / FULL_WELL + read).sqrt();
            let seen = light + deviation * random.normal();
            let code = (BLACK + seen * (WHITE - BLACK)).round().clamp(0.0, WHITE) as u16;
            file.extend_from_slice(&code.to_le_bytes());
        }
    }
}

/// Linear sRGB to the camera before white balance, of light so pure ([`DngOptions::purity`]).
fn camera_from_srgb(purity: f64) -> [[f64; 3]; 3] {
    let [[rr, rg, rb], [gr, gg, gb], [br, bg, bb]] = MIX.map(|row| row.map(|m| m * (1.0 - purity)));
    let [r, g, b] = [[rr + purity, rg, rb], [gr, gg + purity, gb], [br, bg, bb + purity]];
    let [wr, wg, wb] = NEUTRAL;
    [r.map(|m| m * wr), g.map(|m| m * wg), b.map(|m| m * wb)]
}

fn dot([a, b, c]: [f64; 3], [x, y, z]: [f64; 3]) -> f64 {
    a * x + b * y + c * z
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// About a standard normal variate: the sum of eight 16-bit uniform numbers, less its mean, over its
    /// deviation. No logarithm, no cosine.
    fn normal(&mut self) -> f64 {
        let quarters =
            |bits: u64| (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        let sum = quarters(self.next()) + quarters(self.next());
        (sum as f64 - 4.0 * 65_535.0) / (65_536.0 * (8.0_f64 / 12.0).sqrt())
    }
}

fn main_ifd(width: u32, height: u32, options: &DngOptions, exif_at: u32, strip_at: u32) -> Ifd {
    // XYZ to camera: rows of the camera's matrix times the columns of sRGB's.
    let [[rx, ry, rz], [gx, gy, gz], [bx, by, bz]] = SRGB_FROM_XYZ;
    let columns = [[rx, gx, bx], [ry, gy, by], [rz, gz, bz]];
    let matrix = camera_from_srgb(0.0).into_iter().flat_map(|row| columns.map(|column| dot(row, column)));
    let matrix = matrix.map(|value| ((value * 10_000.0).round() as i32, 10_000)).collect();
    Ifd(vec![
        (254, Value::Long(vec![0])), // NewSubfileType: the main image
        (256, Value::Long(vec![width])),
        (257, Value::Long(vec![height])),
        (258, Value::Short(vec![16])),     // BitsPerSample
        (259, Value::Short(vec![1])),      // Compression: none
        (262, Value::Short(vec![32_803])), // PhotometricInterpretation: colour filter array
        (271, Value::Ascii(options.camera.make)),
        (272, Value::Ascii(options.camera.model)),
        (273, Value::Long(vec![strip_at])),
        (274, Value::Short(vec![options.orientation])),
        (277, Value::Short(vec![1])),                 // SamplesPerPixel
        (278, Value::Long(vec![height])),             // RowsPerStrip
        (279, Value::Long(vec![width * height * 2])), // StripByteCounts
        (284, Value::Short(vec![1])),                 // PlanarConfiguration
        (305, Value::Ascii("chemigram")),             // Software
        (306, Value::Ascii(TAKEN)),                   // DateTime
        (33_421, Value::Short(vec![2, 2])),           // CFARepeatPatternDim
        (33_422, Value::Bytes(vec![0, 1, 1, 2])),     // CFAPattern: RGGB
        (34_665, Value::Long(vec![exif_at])),         // Exif IFD
        (50_706, Value::Bytes(vec![1, 4, 0, 0])),     // DNGVersion
        (50_707, Value::Bytes(vec![1, 1, 0, 0])),     // DNGBackwardVersion
        (50_708, Value::Ascii(options.camera.model)), // UniqueCameraModel
        (50_714, Value::Long(vec![BLACK as u32])),    // BlackLevel
        (50_717, Value::Long(vec![WHITE as u32])),    // WhiteLevel
        (50_721, Value::SRational(matrix)),           // ColorMatrix1
        (50_728, Value::Rational(NEUTRAL.map(|n| ((n * 1000.0) as u32, 1000)).to_vec())), // AsShotNeutral
        (50_730, Value::SRational(vec![(0, 100)])),   // BaselineExposure
        (50_778, Value::Short(vec![21])),             // CalibrationIlluminant1: D65
    ])
}

fn exif_ifd(options: &DngOptions) -> Ifd {
    Ifd(vec![
        (33_434, Value::Rational(vec![(1, 125)])), // ExposureTime, s
        (33_437, Value::Rational(vec![(options.camera.aperture, 10)])), // FNumber
        (34_855, Value::Short(vec![options.iso])), // PhotographicSensitivity
        (36_864, Value::Undefined(*b"0230")),      // ExifVersion
        (36_867, Value::Ascii(TAKEN)),             // DateTimeOriginal
        (37_386, Value::Rational(vec![(options.camera.focal, 1)])), // FocalLength, mm
        (42_036, Value::Ascii(options.camera.lens)), // LensModel
    ])
}

/// The value of a TIFF field.
enum Value {
    Bytes(Vec<u8>),
    Ascii(&'static str),
    Short(Vec<u16>),
    Long(Vec<u32>),
    Rational(Vec<(u32, u32)>),
    Undefined([u8; 4]),
    SRational(Vec<(i32, i32)>),
}

impl Value {
    /// The TIFF type, the number of values, and the little-endian bytes.
    fn encode(&self) -> (u16, usize, Vec<u8>) {
        match self {
            Self::Bytes(values) => (1, values.len(), values.clone()),
            Self::Ascii(text) => (2, text.len() + 1, [text.as_bytes(), b"\0"].concat()),
            Self::Short(values) => (3, values.len(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Self::Long(values) => (4, values.len(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Self::Rational(values) => {
                let halves = values.iter().flat_map(|&(n, d)| [n, d]);
                (5, values.len(), halves.flat_map(u32::to_le_bytes).collect())
            }
            Self::Undefined(bytes) => (7, bytes.len(), bytes.to_vec()),
            Self::SRational(values) => {
                let halves = values.iter().flat_map(|&(n, d)| [n, d]);
                (10, values.len(), halves.flat_map(i32::to_le_bytes).collect())
            }
        }
    }
}

/// One image file directory: tags in ascending order, as TIFF demands.
struct Ifd(Vec<(u16, Value)>);

impl Ifd {
    /// The directory for file offset `at`: entries, no next directory, then the values that do not fit into
    /// the four bytes of an entry, each at an even offset.
    fn bytes(&self, at: usize) -> Vec<u8> {
        let data_at = at + 2 + 12 * self.0.len() + 4;
        let mut entries = (self.0.len() as u16).to_le_bytes().to_vec();
        let mut data = Vec::new();
        for (tag, value) in &self.0 {
            let (kind, count, mut bytes) = value.encode();
            entries.extend(tag.to_le_bytes());
            entries.extend(kind.to_le_bytes());
            entries.extend((count as u32).to_le_bytes());
            if bytes.len() <= 4 {
                bytes.resize(4, 0);
                entries.extend(bytes);
            } else {
                data.resize(even(data_at + data.len()) - data_at, 0);
                entries.extend(((data_at + data.len()) as u32).to_le_bytes());
                data.extend(bytes);
            }
        }
        entries.extend([0; 4]);
        entries.extend(data);
        entries
    }
}

fn even(length: usize) -> usize {
    length.next_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ids::Hash;

    fn small() -> Picture {
        let rgb =
            (0..24_u32 * 16).flat_map(|i| [(i * 5) as u8, (i * 3) as u8, (255 - i % 256) as u8]).collect();
        Picture { width: 24, height: 16, rgb }
    }

    fn code(file: &[u8], picture: &Picture, x: u32, y: u32) -> u16 {
        let strip = file.len() - 2 * (picture.width * picture.height) as usize;
        let at = strip + 2 * (y * picture.width + x) as usize;
        u16::from_le_bytes([file[at], file[at + 1]])
    }

    #[test]
    fn the_same_options_are_the_same_bytes_on_every_machine() {
        let options = DngOptions { exposure_ev: 0.3, orientation: 6, ..DngOptions::default() };
        let file = write_dng(&small(), &options).unwrap();
        assert_eq!(
            Hash::of(&file).as_str(),
            "ada5481781b385ad28a38d2cd4be59024a8e460e2e292300841ce2ffa0984ad3"
        );
        let other = write_dng(&small(), &DngOptions { seed: 2, ..options }).unwrap();
        assert_ne!(file, other);
    }

    #[test]
    fn the_exif_data_reads_back() {
        let options = DngOptions { orientation: 8, iso: 1600, ..DngOptions::default() };
        let file = write_dng(&small(), &options).unwrap();
        let exif = exif::Reader::new().read_from_container(&mut std::io::Cursor::new(&file)).unwrap();
        let text = |tag| exif.get_field(tag, exif::In::PRIMARY).unwrap().display_value().to_string();
        assert_eq!(text(exif::Tag::Make), "\"Chemigram\"");
        assert_eq!(text(exif::Tag::Model), "\"Chemigram Synth-1\"");
        assert_eq!(text(exif::Tag::LensModel), "\"Synth 50mm f/4\"");
        assert_eq!(text(exif::Tag::PhotographicSensitivity), "1600");
        assert_eq!(text(exif::Tag::ExposureTime), "1/125");
        assert_eq!(text(exif::Tag::FNumber), "4");
        assert_eq!(text(exif::Tag::FocalLength), "50");
        assert_eq!(text(exif::Tag::DateTimeOriginal), "2026-01-02 03:04:05");
        let turned = exif.get_field(exif::Tag::Orientation, exif::In::PRIMARY).unwrap();
        assert_eq!(turned.value.get_uint(0), Some(8));
    }

    #[test]
    fn grey_is_seen_through_the_white_balance_and_exposure_doubles_it() {
        let grey = Picture { width: 4, height: 4, rgb: vec![128; 48] };
        let quiet = DngOptions { noise: 0.0, ..DngOptions::default() };
        let file = write_dng(&grey, &quiet).unwrap();
        let level = |x, y| f64::from(code(&file, &grey, x, y)) - BLACK;
        let (red, green, blue) = (level(0, 0), level(1, 0), level(1, 1));
        assert_eq!(green, level(0, 1));
        assert!((red / green - 0.5).abs() < 1e-3 && (blue / green - 0.625).abs() < 1e-3);
        let brighter = write_dng(&grey, &DngOptions { exposure_ev: 1.0, ..quiet }).unwrap();
        assert!((f64::from(code(&brighter, &grey, 1, 0)) - BLACK - 2.0 * green).abs() <= 1.0);
    }

    #[test]
    fn pure_light_reaches_the_pixels_of_its_colour_alone() {
        let red = Picture { width: 2, height: 2, rgb: [200, 0, 0].repeat(4) };
        let levels = |purity| {
            let file = write_dng(&red, &DngOptions { noise: 0.0, purity, ..DngOptions::default() }).unwrap();
            [(0, 0), (1, 0), (1, 1)].map(|(x, y)| f64::from(code(&file, &red, x, y)) - BLACK)
        };
        let (mixed, half, pure) = (levels(0.0), levels(0.5), levels(1.0));
        assert!(mixed[1] > 0.0 && mixed[2] > 0.0 && pure[0] > mixed[0], "{mixed:?} {pure:?}");
        assert_eq!(pure[1..], [0.0; 2]);
        assert!((half[1] - mixed[1] / 2.0).abs() <= 0.5, "{half:?}");
    }

    #[test]
    fn noise_has_the_deviation_that_was_asked_for() {
        let mut random = Random(7);
        let values: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn the_demo_is_in_the_binary_with_its_brief_and_licence() {
        let photo = demo_photo().unwrap();
        assert_eq!((photo.width, photo.height), (600, 400));
        assert!(Overlay::demo().text("brief.md").unwrap().starts_with("# "));
        assert!(Overlay::demo().text("LICENSE.md").unwrap().contains("CC0 1.0"));
    }

    #[test]
    fn doubling_keeps_flat_areas_and_steps_in_quarters() {
        let step = Picture { width: 2, height: 1, rgb: vec![0, 0, 0, 80, 80, 80] };
        let twice = doubled(&step);
        assert_eq!((twice.width, twice.height), (4, 2));
        let red: Vec<u8> = twice.rgb.iter().step_by(3).copied().collect();
        assert_eq!(red, [0, 20, 60, 80, 0, 20, 60, 80]);
    }

    #[test]
    fn odd_sizes_lose_a_line_and_nonsense_is_refused() {
        let odd = Picture { width: 5, height: 3, rgb: vec![90; 45] };
        let even = Picture { width: 4, height: 2, rgb: vec![90; 24] };
        let options = DngOptions::default();
        assert_eq!(write_dng(&odd, &options).unwrap(), write_dng(&even, &options).unwrap());
        let broken = Picture { width: 4, height: 4, rgb: vec![0; 5] };
        assert!(matches!(write_dng(&broken, &options), Err(DngError::Picture { bytes: 5, .. })));
        for bad in [
            DngOptions { orientation: 0, ..options },
            DngOptions { exposure_ev: f64::NAN, ..options },
            DngOptions { noise: -1.0, ..options },
            DngOptions { purity: 1.5, ..options },
        ] {
            assert!(matches!(write_dng(&even, &bad), Err(DngError::Option { .. })), "{bad:?}");
        }
    }
}
