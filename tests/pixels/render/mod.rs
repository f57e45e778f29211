//! Rendering: with the real darktable, and with stubs in its place that fail as it may fail.
#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

mod failure_modes;
mod faults;
mod isolation;
mod real;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::clock::{Deadline, SystemClock};
use base::ids::Hash;
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::render::{Picture, RawFile};
use darktable::state::{EditState, Module, Params, Value};

/// Far more than any render here takes.
fn patient() -> Deadline {
    within(Duration::from_secs(120))
}

fn within(time: Duration) -> Deadline {
    Deadline::after(Arc::new(SystemClock), time)
}

/// Waits for something that comes about sooner or later, however busy the machine is.
fn until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(120), "it never came about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with test photographs, and a renderer that works in it.
struct Studio {
    dir: tempfile::TempDir,
    renderer: OneShot,
    cli: DarktableCli,
}

impl Studio {
    fn new() -> Self {
        Self::with(testkit::kept::darktable())
    }

    fn with(cli: DarktableCli) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let encode: Arc<Encoder> = Arc::new(|state, _| Ok(sidecar(ev(state))));
        let renderer = OneShot::new(cli.clone(), &dir.path().join("base"), encode).unwrap();
        Self { dir, renderer, cli }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A photograph in the format that the extension names.
    fn photo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if name.ends_with(".dng") {
            fs::write(&path, bayer_dng()).unwrap();
        } else {
            scene().save(&path).unwrap();
        }
        path
    }
}

const WIDTH: u32 = 300;
const HEIGHT: u32 = 200;

/// Ramps of red and green and a few hard edges in blue: nothing flat, nothing clipped.
fn scene() -> image::RgbImage {
    image::RgbImage::from_fn(WIDTH, HEIGHT, |x, y| {
        let edge = if (x / 37 + y / 23) % 2 == 0 { 40 } else { 150 };
        image::Rgb([(20 + x * 150 / WIDTH) as u8, (20 + y * 150 / HEIGHT) as u8, edge])
    })
}

/// [`scene`] as a 16-bit RGGB raw: the least that a DNG needs (DNG 1.4, and TIFF 6.0 for the layout).
fn bayer_dng() -> Vec<u8> {
    const BLACK: u32 = 512;
    const STRIP: u32 = 1024;
    let long = |n: u32| n.to_le_bytes().to_vec();
    let short = |n: u16| n.to_le_bytes().to_vec();
    let rationals = |values: &[i32]| -> Vec<u8> {
        values.iter().flat_map(|v| [v.to_le_bytes(), 10_000_i32.to_le_bytes()].concat()).collect()
    };
    let matrix = [7000, -1500, -500, -4000, 12000, 2200, -600, 1600, 6500];
    let tags: Vec<(u16, u16, u32, Vec<u8>)> = vec![
        (254, 4, 1, long(0)),
        (256, 4, 1, long(WIDTH)),
        (257, 4, 1, long(HEIGHT)),
        (258, 3, 1, short(16)),
        (259, 3, 1, short(1)),
        (262, 3, 1, short(32803)),
        (271, 2, 5, b"Test\0".to_vec()),
        (272, 2, 5, b"Test\0".to_vec()),
        (273, 4, 1, long(STRIP)),
        (274, 3, 1, short(1)),
        (277, 3, 1, short(1)),
        (278, 4, 1, long(HEIGHT)),
        (279, 4, 1, long(WIDTH * HEIGHT * 2)),
        (33421, 3, 2, [short(2), short(2)].concat()),
        (33422, 1, 4, vec![0, 1, 1, 2]),
        (50706, 1, 4, vec![1, 4, 0, 0]),
        (50708, 2, 5, b"Test\0".to_vec()),
        (50714, 4, 1, long(BLACK)),
        (50717, 4, 1, long(16383)),
        (50721, 10, 9, rationals(&matrix)),
        (50728, 5, 3, rationals(&[5000, 10000, 6250])),
        (50778, 3, 1, short(21)),
    ];
    let mut head = [b"II".to_vec(), short(42), long(8), short(tags.len() as u16)].concat();
    let mut data = Vec::new();
    let data_at = 8 + 2 + 12 * tags.len() as u32 + 4;
    for (tag, kind, count, mut value) in tags {
        head.extend([short(tag), short(kind), long(count)].concat());
        if value.len() <= 4 {
            value.resize(4, 0);
            head.extend(value);
        } else {
            head.extend(long(data_at + data.len() as u32));
            value.resize(value.len().next_multiple_of(2), 0);
            data.extend(value);
        }
    }
    head.extend(long(0));
    head.extend(data);
    head.resize(STRIP as usize, 0);
    for (x, y, pixel) in scene().enumerate_pixels() {
        let channel = (x % 2 + y % 2) as usize;
        let linear = (f32::from(pixel.0[channel]) / 255.0).powf(2.2);
        let share = [0.5, 1.0, 0.625][channel] * 0.6;
        head.extend(short((BLACK as f32 + linear * share * 15_000.0) as u16));
    }
    head
}

/// A sidecar for a picture that is not raw: the modules it always has, and exposure.
fn sidecar(ev: f32) -> String {
    let exposure: Vec<u8> = [0_f32.to_le_bytes(), 0_f32.to_le_bytes(), ev.to_le_bytes()]
        .into_iter()
        .chain([50_f32.to_le_bytes(), (-4_f32).to_le_bytes(), 1_i32.to_le_bytes()])
        .flatten()
        .collect();
    sidecar_of(&[item("exposure", 6, 0, &base::ids::hex(&exposure))])
}

fn item(op: &str, version: u32, instance: u32, params: &str) -> String {
    format!(
        r#"darktable:operation="{op}" darktable:enabled="1" darktable:modversion="{version}"
        darktable:params="{params}" darktable:multi_name="" darktable:multi_priority="{instance}""#
    )
}

fn sidecar_of(items: &[String]) -> String {
    let mut all = vec![item("gamma", 1, 0, "0000000000000000"), item("flip", 2, 0, "ffffffff")];
    all.extend_from_slice(items);
    let count = all.len();
    let list: String =
        all.iter().enumerate().map(|(n, item)| format!("<rdf:li darktable:num=\"{n}\" {item}/>\n")).collect();
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:xmpMM="http://ns.adobe.com/xap/1.0/mm/" xmlns:darktable="http://darktable.sf.net/"
 xmpMM:DerivedFrom="photo.png" darktable:xmp_version="5" darktable:raw_params="0"
 darktable:auto_presets_applied="1" darktable:history_end="{count}" darktable:iop_order_version="2">
<darktable:masks_history><rdf:Seq/></darktable:masks_history>
<darktable:history><rdf:Seq>
{list}</rdf:Seq></darktable:history>
</rdf:Description></rdf:RDF></x:xmpmeta>
"#
    )
}

/// A state that holds one exposure.
fn state(ev: f32) -> EditState {
    let module = Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion: 6,
        name: String::new(),
        op: "exposure".into(),
        params: Params::Fields(BTreeMap::from([("exposure".into(), Value::Float(ev))])),
    };
    EditState { modules: vec![module], ..EditState::default() }
}

fn ev(state: &EditState) -> f32 {
    match state.module("exposure", 0).map(|m| &m.params) {
        Some(Params::Fields(fields)) => match fields.get("exposure") {
            Some(Value::Float(ev)) => *ev,
            _ => 0.0,
        },
        _ => 0.0,
    }
}

fn raw(path: &Path) -> RawFile {
    RawFile { path: path.to_owned(), sha256: Hash::of(fs::read(path).unwrap()) }
}

fn mean(picture: &Picture) -> f64 {
    picture.rgb.iter().map(|&v| f64::from(v)).sum::<f64>() / picture.rgb.len() as f64
}
