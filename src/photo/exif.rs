//! What the camera wrote into the file.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use exif::{In, Tag, Value};
use serde::{Deserialize, Serialize};

/// Camera and exposure data; whatever the file does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exif {
    /// Manufacturer of the camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub make: Option<String>,
    /// Camera model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Lens model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lens: Option<String>,
    /// Sensitivity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iso: Option<u32>,
    /// Exposure time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure_seconds: Option<f64>,
    /// f-number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aperture: Option<f64>,
    /// Focal length in mm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focal_mm: Option<f64>,
    /// When it was taken, in the camera's local time: `2026-05-14T18:03:22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<String>,
    /// Columns as stored, before any rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Rows as stored, before any rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// EXIF orientation, 1 to 8; 1 if the file does not say.
    #[serde(default = "upright")]
    pub orientation: u16,
}

fn upright() -> u16 {
    1
}

impl Exif {
    /// Reads what `path` says; a file without EXIF, or with damaged EXIF, says nothing.
    pub(super) fn of(path: &Path) -> Self {
        let mut found = Self { orientation: 1, ..Self::default() };
        if let Some(exif) = container(path) {
            found.fill(&exif);
        }
        if let (None, Ok((width, height))) = (found.width, image::image_dimensions(path)) {
            (found.width, found.height) = (Some(width), Some(height));
        }
        found
    }

    fn fill(&mut self, exif: &exif::Exif) {
        let number = |tag| {
            let value = &exif.get_field(tag, In::PRIMARY)?.value;
            let number = match value {
                Value::Rational(v) => v.first()?.to_f64(),
                Value::SRational(v) => v.first()?.to_f64(),
                other => f64::from(other.get_uint(0)?),
            };
            number.is_finite().then_some(number)
        };
        let whole = |tag| exif.get_field(tag, In::PRIMARY)?.value.get_uint(0);
        self.make = text(exif, Tag::Make);
        self.model = text(exif, Tag::Model);
        self.lens = text(exif, Tag::LensModel);
        self.iso = whole(Tag::PhotographicSensitivity).filter(|iso| *iso > 0);
        self.exposure_seconds = number(Tag::ExposureTime).filter(|s| *s > 0.0);
        self.aperture = number(Tag::FNumber).filter(|n| *n > 0.0);
        self.focal_mm = number(Tag::FocalLength).filter(|mm| *mm > 0.0);
        self.captured = text(exif, Tag::DateTimeOriginal).and_then(|t| iso_date(&t));
        self.orientation = whole(Tag::Orientation)
            .and_then(|o| u16::try_from(o).ok())
            .filter(|o| (1..=8).contains(o))
            .unwrap_or(1);
        // A raw's first directory may describe a thumbnail (bit 0 of NewSubfileType), so the sizes that can
        // only be the picture's are asked first.
        let thumbnail = whole(Tag(exif::Context::Tiff, 0xfe)).is_some_and(|kind| kind & 1 == 1);
        let mut sizes = vec![(Tag::PixelXDimension, Tag::PixelYDimension)];
        if !thumbnail {
            sizes.push((Tag::ImageWidth, Tag::ImageLength));
        }
        let size = sizes.into_iter().find_map(|(w, h)| Some((whole(w)?, whole(h)?)));
        if let Some((width, height)) = size.filter(|(w, h)| *w > 0 && *h > 0) {
            (self.width, self.height) = (Some(width), Some(height));
        }
    }
}

/// The EXIF block of a TIFF-like raw or of a picture; of a Fujifilm RAF, that of the JPEG in it, whose place
/// the file's header gives (offset and length, big-endian, at bytes 84 and 88).
fn container(path: &Path) -> Option<exif::Exif> {
    let mut file = BufReader::new(File::open(path).ok()?);
    let mut header = [0; 92];
    let is_raf = file.read_exact(&mut header).is_ok() && header.starts_with(b"FUJIFILMCCD-RAW");
    if !is_raf {
        file.rewind().ok()?;
        return exif::Reader::new().read_from_container(&mut file).ok();
    }
    let number = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let (offset, length) = (number(84)?, number(88)?);
    file.seek(SeekFrom::Start(offset.into())).ok()?;
    let mut jpeg = Vec::new();
    file.take(length.into()).read_to_end(&mut jpeg).ok()?;
    exif::Reader::new().read_from_container(&mut Cursor::new(jpeg)).ok()
}

/// An ASCII field without padding; `None` if nothing remains.
fn text(exif: &exif::Exif, tag: Tag) -> Option<String> {
    let Value::Ascii(parts) = &exif.get_field(tag, In::PRIMARY)?.value else { return None };
    let text = String::from_utf8_lossy(parts.first()?).trim_matches(['\0', ' ']).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// `2026:05:14 18:03:22` as `2026-05-14T18:03:22`.
fn iso_date(exif: &str) -> Option<String> {
    let (date, time) = exif.split_once(' ')?;
    let iso = format!("{}T{time}", date.replace(':', "-"));
    iso.parse::<jiff::civil::DateTime>().ok().map(|t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_iso_or_nothing() {
        assert_eq!(iso_date("2026:05:14 18:03:22").as_deref(), Some("2026-05-14T18:03:22"));
        assert_eq!(iso_date("0000:00:00 00:00:00"), None);
        assert_eq!(iso_date("    :  :     :  :  "), None);
    }

    #[test]
    fn camera_data_is_read_and_its_absence_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tif");
        let field = |tag, value| exif::Field { tag, ifd_num: In::PRIMARY, value };
        let fields = [
            field(Tag::Make, Value::Ascii(vec![b"Fujifilm \0".to_vec()])),
            field(Tag::PhotographicSensitivity, Value::Short(vec![400])),
            field(Tag::ExposureTime, Value::Rational(vec![(1, 250).into()])),
            field(Tag::FNumber, Value::Rational(vec![(28, 10).into()])),
            field(Tag::FocalLength, Value::Rational(vec![(0, 0).into()])),
            field(Tag::Orientation, Value::Short(vec![6])),
            field(Tag::DateTimeOriginal, Value::Ascii(vec![b"2026:05:14 18:03:22".to_vec()])),
            field(Tag::PixelXDimension, Value::Long(vec![6000])),
            field(Tag::PixelYDimension, Value::Long(vec![4000])),
        ];
        let mut writer = exif::experimental::Writer::new();
        fields.iter().for_each(|f| writer.push_field(f));
        let mut out = std::io::Cursor::new(Vec::new());
        writer.write(&mut out, false).unwrap();
        std::fs::write(&path, out.into_inner()).unwrap();
        let expected = Exif {
            make: Some("Fujifilm".into()),
            iso: Some(400),
            exposure_seconds: Some(0.004),
            aperture: Some(2.8),
            captured: Some("2026-05-14T18:03:22".into()),
            width: Some(6000),
            height: Some(4000),
            orientation: 6,
            ..Exif::default()
        };
        assert_eq!(Exif::of(&path), expected);

        // The same in a RAF: a header, then a JPEG that holds the block.
        let tiff = std::fs::read(&path).unwrap();
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe1];
        jpeg.extend(u16::try_from(tiff.len() + 8).unwrap().to_be_bytes());
        jpeg.extend(b"Exif\0\0");
        jpeg.extend(&tiff);
        jpeg.extend([0xff, 0xd9]);
        let mut raf = b"FUJIFILMCCD-RAW ".to_vec();
        raf.resize(84, 0);
        raf.extend(100_u32.to_be_bytes());
        raf.extend(u32::try_from(jpeg.len()).unwrap().to_be_bytes());
        raf.resize(100, 0);
        raf.extend(jpeg);
        let raf_path = dir.path().join("a.raf");
        std::fs::write(&raf_path, raf).unwrap();
        assert_eq!(Exif::of(&raf_path), expected);

        std::fs::write(&path, "no picture").unwrap();
        assert_eq!(Exif::of(&path), Exif { orientation: 1, ..Exif::default() });
        assert_eq!(Exif::of(Path::new("/nowhere")).orientation, 1);
    }
}
