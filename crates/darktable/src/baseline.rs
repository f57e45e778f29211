//! What darktable itself says of a photograph that nobody has edited: its default edit, and the facts of the file.
//!
//! All of it comes from the darktable that renders, in one start. Its Lua image object has size, camera, lens and
//! exposure. It does not have the orientation, and the default history says "as the file says" ([`flip` -1]), so the
//! orientation is seen: the same start renders the file once more, black but for a bright spot whose place in the
//! stored frame is known.
//!
//! [`flip` -1]: crate::frame::Orientation::from_bits

use std::fs;
use std::path::Path;

use image::ImageFormat;
use serde::{Deserialize, Serialize};

use crate::checks;
use crate::frame::{Orientation, StoredSize};
use crate::layout::Layouts;
use crate::probe::DarktableCli;
use crate::render::{Picture, Quality, RenderError};
use crate::scratch::{Base, CARRIER, History, PICTURE, RenderJob, Scratch, at};
use crate::state::{EditState, GroupMember, MaskForm, Module, Params, Shape, Value};
use crate::{blend, params, xmp};
use base::clock::Deadline;
use base::files;

/// Nobody looks at this picture, but a photograph that cannot be rendered must not become a project.
const LONG_EDGE: u32 = 128;
/// The default history is a few kilobytes.
const LARGEST: u64 = 4 << 20;

const SCRIPT: &str = include_str!("baseline.lua");
const SCRIPT_NAME: &str = "baseline.lua";

/// Where the bright spot is in the stored frame, 0…1: at eight different places of the eight orientations.
const SPOT: [f32; 2] = [0.3, 0.15];
/// Its radius, of the shorter side.
const RADIUS: f32 = 0.1;
/// How far from its place, in 0…1 of the picture, the spot may be seen.
const FAR: f64 = 0.1;

/// What darktable says of an untouched photograph.
#[derive(Clone, Debug, PartialEq)]
pub struct Untouched {
    /// darktable's default edit.
    pub state: EditState,
    /// The same as darktable wrote it: a sidecar.
    pub sidecar: Vec<u8>,
    /// What it says of the file.
    pub facts: FileFacts,
    /// The version of the darktable that was asked.
    pub darktable: String,
}

/// What darktable says of a picture file. A fact that it does not know is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Columns and rows as stored.
    #[serde(flatten)]
    pub size: StoredSize,
    /// How the file is turned for display: the values 1 to 8 of the Exif tag.
    pub orientation: u16,
    /// Manufacturer of the camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// Camera model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Lens.
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
    /// The as-shot white balance: what `temperature` multiplies red, green and blue by. Absent in pictures that are
    /// not raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_shot: Option<[f64; 3]>,
}

/// Asks darktable for its default edit of `raw` (a raw, JPEG, PNG, TIFF or WebP file) and for the facts of the file.
/// `base` is the private folder that [`crate::oneshot::OneShot::new`] takes too. A sidecar beside the raw
/// has no influence, and nothing is written there.
///
/// 4.2.1 and 5.4.1 write the sidecar on import. 5.0.1 does not, but puts its text into a JPEG, which takes a
/// second run; 5.4.1 does not do that.
///
/// # Errors
/// [`RenderError::Raw`] for a file that darktable cannot open or decode, [`RenderError::Untold`] for one whose size or
/// orientation it does not report, [`RenderError::Untrusted`] where it answers something else than its default edit.
pub fn ask(
    cli: &DarktableCli,
    layouts: &Layouts,
    raw: &Path,
    base: &Path,
    deadline: &Deadline,
) -> Result<Untouched, RenderError> {
    let base = Base::new(base)?;
    let scratch = Scratch::writable(&base, raw)?;
    let probe = Probe::lay(&scratch, layouts)?;
    let run = |history, script| {
        let order = RenderJob {
            sidecar: None,
            long_edge: LONG_EDGE,
            quality: Quality::Preview,
            history,
            export: None,
            script,
        };
        checks::ending(&scratch.run(cli, &base, &order, deadline)?, raw, &scratch.output())
    };
    run(History::Beside, Some(SCRIPT_NAME))?;
    // A photograph of a white wall or with the cap on is a photograph: blank is fine here.
    checks::decoded(&scratch.output(), PICTURE, LONG_EDGE)?;
    let told = probe.facts(raw)?;
    let mut sidecar = scratch.input().as_os_str().to_owned();
    sidecar.push(".xmp");
    let sidecar = match read(Path::new(&sidecar))? {
        Some(sidecar) => sidecar,
        None => {
            run(History::Inside, None)?;
            let picture = read(&scratch.output().join(CARRIER))?.unwrap_or_default();
            let packet = packet(&picture).map(<[u8]>::to_vec);
            packet
                .ok_or_else(|| RenderError::Untrusted("darktable wrote no sidecar for its defaults".into()))?
        }
    };
    let state = xmp::read(&sidecar, layouts)
        .map_err(|e| RenderError::Untrusted(format!("its default edit cannot be read: {e}")))?;
    let facts = FileFacts { as_shot: as_shot(&state), ..told };
    Ok(Untouched { state, sidecar, facts, darktable: cli.version().to_owned() })
}

/// The second link to the photograph, with a sidecar that shows how darktable turns it.
struct Probe<'a> {
    scratch: &'a Scratch,
}

impl<'a> Probe<'a> {
    fn lay(scratch: &'a Scratch, layouts: &Layouts) -> Result<Self, RenderError> {
        let input = scratch.input();
        let name = input.file_name().unwrap_or_default().to_string_lossy();
        let folder = scratch.folder().join("probe");
        fs::create_dir(&folder).map_err(at(&folder))?;
        let link = folder.join(&*name);
        fs::hard_link(input, &link).or_else(|_| fs::copy(input, &link).map(drop)).map_err(at(&link))?;
        let state = spot(layouts).map_err(RenderError::Encode)?;
        let text = xmp::write(&state, layouts, &name).map_err(|e| RenderError::Encode(e.to_string()))?;
        for (path, text) in [
            (folder.join(format!("{name}.xmp")), text.as_str()),
            (scratch.folder().join(SCRIPT_NAME), SCRIPT),
        ] {
            fs::write(&path, text).map_err(at(&path))?;
        }
        Ok(Self { scratch })
    }

    /// What the script wrote down, and the orientation that the picture shows.
    fn facts(&self, raw: &Path) -> Result<FileFacts, RenderError> {
        let untold = |what| RenderError::Untold { path: raw.to_owned(), what };
        let text = read(&self.scratch.folder().join("facts"))?.ok_or_else(|| untold("size"))?;
        let text = String::from_utf8_lossy(&text);
        let fact = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))?.trim();
            (!value.is_empty()).then_some(value)
        };
        let number = |name: &str| positive(fact(name)?);
        let whole = |name: &str| number(name).map(|number| number.round() as u32);
        let (Some(width), Some(height)) = (whole("width"), whole("height")) else {
            return Err(untold("size"));
        };
        let picture = self.scratch.folder().join("probe.png");
        let picture = read(&picture)?.ok_or_else(|| untold("orientation"))?;
        let picture = checks::decode(&picture, ImageFormat::Png).map_err(RenderError::Untrusted)?;
        let orientation = seen(&picture).ok_or_else(|| untold("orientation"))?;
        Ok(FileFacts {
            size: StoredSize { width, height },
            orientation: orientation.exif(),
            maker: fact("exif_maker").map(str::to_owned),
            model: fact("exif_model").map(str::to_owned),
            lens: fact("exif_lens").map(str::to_owned),
            iso: whole("exif_iso"),
            exposure_seconds: number("exif_exposure"),
            aperture: number("exif_aperture"),
            focal_mm: number("exif_focal_length"),
            captured: fact("exif_datetime_taken").and_then(iso_date),
            as_shot: None,
        })
    }
}

/// A picture that is black but for a bright spot, whatever the photograph shows: two instances of `exposure`, the
/// first of which leaves no light at all, and the second of which lifts black to half of white.
fn spot(layouts: &Layouts) -> Result<EditState, String> {
    let exposure = layouts.module("exposure").map_err(|e| e.to_string())?;
    let exposure = exposure.ok_or("there is no layout of exposure")?;
    let layout = exposure.lowest().ok_or("there is no layout of exposure")?;
    let circle = Shape::Circle { border: 0.001, center: SPOT, radius: RADIUS };
    let circle = MaskForm::new("spot", circle);
    // Used and shown.
    let members = vec![GroupMember { form: circle.id, opacity: 1.0, state: 3 }];
    let group = MaskForm::new("spot", Shape::Group { members });
    let module = |instance, ev, blend| {
        let mut fields = params::defaults(layout);
        fields.insert("exposure".into(), Value::Float(ev));
        fields.insert("black".into(), Value::Float(-1.0));
        Module {
            blend,
            enabled: true,
            instance,
            modversion: layout.modversion,
            name: String::new(),
            op: "exposure".into(),
            params: Params::Fields(fields),
        }
    };
    let masked = blend::normal(exposure.blend_colorspace);
    let masked = crate::state::Blend { mask_id: Some(group.id), ..masked };
    let modules = vec![module(0, -18.0, None), module(1, 0.0, Some(masked))];
    let mut masks = vec![circle, group];
    masks.sort_by_key(|form| form.id);
    Ok(EditState { modules, masks, ..EditState::default() })
}

/// The orientation that brings [`SPOT`] to where the picture is bright.
fn seen(picture: &Picture) -> Option<Orientation> {
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let across = usize::try_from(picture.width).ok()?;
    let (mut sum, mut count) = ([0.0, 0.0], 0.0);
    for (at, pixel) in picture.rgb.chunks_exact(3).enumerate() {
        if pixel.iter().all(|value| *value > 90) {
            sum = [sum[0] + (at % across) as f64 + 0.5, sum[1] + (at / across) as f64 + 0.5];
            count += 1.0;
        }
    }
    let at = [sum[0] / count / width, sum[1] / count / height];
    let distance = |orientation: &Orientation| {
        let [x, y] = orientation.back(at, [1.0, 1.0]);
        (x - f64::from(SPOT[0])).hypot(y - f64::from(SPOT[1]))
    };
    // Without a bright pixel the place is not a number, and nothing is near it.
    Orientation::all().find(|orientation| distance(orientation) < FAR)
}

/// What `temperature` multiplies by, of a raw.
fn as_shot(state: &EditState) -> Option<[f64; 3]> {
    let Params::Fields(fields) = &state.module("temperature", 0)?.params else { return None };
    let [red, green, blue] = ["red", "green", "blue"].map(|name| match fields.get(name) {
        Some(Value::Float(value)) => shortest(*value),
        _ => None,
    });
    Some([red?, green?, blue?])
}

/// A number above 0, as darktable keeps it: of single precision.
fn positive(text: &str) -> Option<f64> {
    let number = text.parse::<f32>().ok()?;
    (number.is_finite() && number > 0.0).then(|| shortest(number))?
}

/// The shortest decimal number that is this one in single precision: 0.008 rather than 0.00800000037997961.
fn shortest(number: f32) -> Option<f64> {
    number.to_string().parse().ok()
}

/// `2026:05:14 18:03:22` as `2026-05-14T18:03:22`.
fn iso_date(told: &str) -> Option<String> {
    let (date, time) = told.split_once(' ')?;
    let iso = format!("{}T{time}", date.replace(':', "-"));
    let captured = iso.parse::<jiff::civil::DateTime>().ok()?;
    // darktable's own word for a time that the file does not say.
    (captured.year() > 1).then(|| captured.to_string())
}

/// A file of a reasonable size; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, RenderError> {
    match files::read(path, LARGEST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            Err(RenderError::Untrusted(format!("the default history: {e}")))
        }
        Err(source) => Err(RenderError::Io { path: path.to_owned(), source }),
    }
}

/// The XMP document in a JPEG, which it is in as text (XMP specification, part 3, 1.1.3).
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

    #[test]
    fn dates_become_iso_or_nothing() {
        assert_eq!(iso_date("2026:05:14 18:03:22").as_deref(), Some("2026-05-14T18:03:22"));
        for none in ["0001:01:01 00:00:00", "0000:00:00 00:00:00", "    :  :     :  :  ", ""] {
            assert_eq!(iso_date(none), None, "{none}");
        }
    }

    #[test]
    fn numbers_are_as_short_as_darktable_keeps_them() {
        assert_eq!(positive("0.0080000003799796"), Some(0.008));
        assert_eq!(["0.0", "-1", "nan", "inf", ""].map(positive), [None; 5]);
    }

    #[test]
    fn the_spot_tells_the_orientation_and_its_absence_tells_nothing() {
        let bits: Vec<u8> = Orientation::all()
            .map(|orientation| {
                let stored = [60.0, 40.0];
                let [width, height] = orientation.turned(stored).map(|side| side as u32);
                let mut picture = Picture { width, height, rgb: Vec::new() };
                for at in 0..width * height {
                    let place = [f64::from(at % width) + 0.5, f64::from(at / width) + 0.5];
                    let [x, y] = orientation.back(place, stored);
                    let far = (x - 60.0 * f64::from(SPOT[0])).hypot(y - 40.0 * f64::from(SPOT[1]));
                    picture.rgb.extend([if far < 4.0 { 188 } else { 0 }; 3]);
                }
                seen(&picture).unwrap().bits()
            })
            .collect();
        assert_eq!(bits, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(seen(&Picture { width: 2, height: 2, rgb: vec![0; 12] }), None);
    }
}
