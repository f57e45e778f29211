//! LUTs of a person's own, from their file to the pixels of the installed darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use base::error::{Coded, ErrorCode};
use darktable::export::{Depth, Format, Profile, Settings};
use darktable::metadata::Metadata;
use darktable::render::{Picture, RawFile, Renderer};
use darktable::state::EditState;
use darktable::xmp;
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, Selector};
use image::RgbImage;
use pixels::srgb::LINEAR;
use serde_json::Value;
use testkit::frames::{Home, OWN, patience};

const WIDTH: u32 = 240;
const HEIGHT: u32 = 160;

/// A finished picture in which the three channels go their own ways.
fn picture() -> RgbImage {
    let share = |at: u32, all: u32| (at * 255 / all) as u8;
    RgbImage::from_fn(WIDTH, HEIGHT, |x, y| {
        image::Rgb([share(x, WIDTH), share(y, HEIGHT), ((x + y) % 64 * 4) as u8])
    })
}

/// A cube of `n` colours a side.
fn cube(n: u32, colour: impl Fn([f32; 3]) -> [f32; 3]) -> String {
    let step = |at: u32| at as f32 / (n - 1) as f32;
    let mut text = format!("LUT_3D_SIZE {n}\n");
    for at in 0..n.pow(3) {
        let [r, g, b] = colour([step(at % n), step(at / n % n), step(at / n / n)]);
        text.push_str(&format!("{r} {g} {b}\n"));
    }
    text
}

/// The same exchange of red and blue as a Hald picture of level 4.
fn hald() -> RgbImage {
    let step = |at: u32| (at * 255 / 15) as u8;
    RgbImage::from_fn(64, 64, |x, y| {
        let at = y * 64 + x;
        image::Rgb([step(at / 256), step(at / 16 % 16), step(at % 16)])
    })
}

struct Bench {
    home: Home,
    raw: RawFile,
    state: EditState,
    facts: PhotoFacts,
    untouched: RgbImage,
}

impl Bench {
    /// With these LUTs, by name.
    fn new() -> Self {
        let mut home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
        picture().save(home.path("colours.png")).unwrap();
        for (name, colour) in [
            ("same", (|c| c) as fn([f32; 3]) -> [f32; 3]),
            ("Red and Blue", |[r, g, b]| [b, g, r]),
            ("green", |[_, g, _]| [g; 3]),
        ] {
            std::fs::write(home.path(name).with_extension("cube"), cube(2, colour)).unwrap();
        }
        hald().save(home.path("hald.png")).unwrap();
        std::fs::write(home.path("short.cube"), "LUT_3D_SIZE 2\n0 0 0\n").unwrap();
        let workspace = home.ingest("colours.png", "colours");
        let files =
            ["vocab", "import", "same.cube", "short.cube", "Red and Blue.cube", "green.cube", "hald.png"];
        let output = home.run(&[&files[..], &["--json"]].concat());
        // The broken one is told, and keeps none back.
        assert_eq!(output.status.code(), Some(i32::from(ErrorCode::InvalidInput.exit_status())));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["move"]["name"].as_str()).collect();
        assert_eq!(names, [Some("same"), None, Some("red_and_blue"), Some("green"), Some("hald")]);
        assert!(rows[1]["error"].as_str().unwrap().contains("1 colours"), "{rows}");
        home.reload();
        let (state, facts) = home.facts(&workspace);
        let raw = workspace.raw();
        let untouched = image(&home.render(&raw, &state));
        Self { home, raw, state, facts, untouched }
    }

    fn apply(&self, state: &EditState, name: &str, opacity: f64, mask: Option<&str>) -> EditState {
        let values = BTreeMap::from([("opacity".to_owned(), opacity)]);
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        let Home { vocabulary, layouts, .. } = &self.home;
        vocabulary.apply(&request, state, &self.facts, layouts, self.home.version()).unwrap().state
    }

    fn see(&self, state: &EditState) -> RgbImage {
        image(&self.home.render(&self.raw, state))
    }

    /// The files in the LUT folder.
    fn luts(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path(OWN).join("luts")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn image(picture: &Picture) -> RgbImage {
    RgbImage::from_raw(picture.width, picture.height, picture.rgb.clone()).unwrap()
}

/// The greatest difference of a value.
fn off(a: &RgbImage, b: &RgbImage) -> u8 {
    assert_eq!(a.dimensions(), b.dimensions());
    a.iter().zip(b.iter()).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

fn exchanged(image: &RgbImage) -> RgbImage {
    let mut image = image.clone();
    image.pixels_mut().for_each(|pixel| pixel.0.reverse());
    image
}

/// Half of each picture's light.
fn between(a: &RgbImage, b: &RgbImage) -> RgbImage {
    let linear = |v: u8| LINEAR[usize::from(v)];
    let encoded = |v: f64| {
        let v = if v <= 0.003_130_8 { v * 12.92 } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 };
        (v * 255.0).round() as u8
    };
    let mut image = a.clone();
    image.iter_mut().zip(b.iter()).for_each(|(a, b)| *a = encoded((linear(*a) + linear(*b)) / 2.0));
    image
}

#[test]
fn a_lut_does_what_its_file_says_as_strongly_as_asked() {
    let bench = Bench::new();
    let [plain, swapped] = [bench.untouched.clone(), exchanged(&bench.untouched)];
    assert!(off(&plain, &swapped) > 200);
    let with = |name, opacity| bench.apply(&bench.state, name, opacity, None);
    assert_eq!(off(&bench.see(&with("same", 100.0)), &plain), 0);
    for name in ["red_and_blue", "hald"] {
        assert!(off(&bench.see(&with(name, 100.0)), &swapped) <= 1, "{name}");
        assert!(off(&bench.see(&with(name, 50.0)), &between(&plain, &swapped)) <= 1, "{name}");
        assert_eq!(with(name, 0.0), bench.state, "{name}");
    }

    // There is one at a time: another takes its place, at rest another leaves it alone, and removed it is gone.
    let swap = with("red_and_blue", 60.0);
    let green = bench.apply(&swap, "green", 100.0, None);
    assert_eq!(green, with("green", 100.0));
    let grey = bench.see(&green);
    assert!(grey.pixels().zip(plain.pixels()).all(|(a, b)| a.0.iter().all(|v| v.abs_diff(b[1]) <= 1)));
    assert_eq!(bench.apply(&green, "red_and_blue", 0.0, None), green);
    let remove = |state, name: &str| {
        bench.home.vocabulary.remove_module(state, &Selector::Move(name.into()), &bench.facts)
    };
    assert!(remove(&green, "red_and_blue").is_err());
    assert_eq!(remove(&green, "green").unwrap(), bench.state);

    // Under a mask it acts there, by the opacity of both; beside it stands another one.
    let left = r#"{"shape":"rectangle","from":[0,0],"to":[0.4,1],"feather":0,"opacity":1}"#;
    let right = r#"{"shape":"rectangle","from":[0.6,0],"to":[1,1],"feather":0,"opacity":0.5}"#;
    let both =
        bench.apply(&bench.apply(&bench.state, "green", 100.0, Some(left)), "hald", 100.0, Some(right));
    let seen = bench.see(&both);
    let part = |image: &RgbImage, from: f64, to: f64| {
        let at = |share: f64| (share * f64::from(WIDTH)) as u32;
        image::imageops::crop_imm(image, at(from), 0, at(to) - at(from), HEIGHT).to_image()
    };
    for (from, to, expected) in
        [(0.0, 0.38, &grey), (0.42, 0.58, &plain), (0.62, 1.0, &between(&plain, &swapped))]
    {
        let found = off(&part(&seen, from, to), &part(expected, from, to));
        assert!(found <= 1, "{from} to {to}: {found}");
    }
}

#[test]
fn without_its_lut_an_edit_is_refused_and_with_it_the_pixels_are_the_same_again() {
    let bench = Bench::new();
    let home = &bench.home;
    home.ok(&["apply", "colours", "red_and_blue", "opacity=70"]);
    home.ok(&["render", "colours", "-o", "first.png"]);
    let state = bench.apply(&bench.state, "red_and_blue", 70.0, None);
    let before = [home.worker() as &dyn Renderer, &home.oneshot]
        .map(|renderer| home.try_render(renderer, &bench.raw, &state).unwrap().pixel_hash());
    assert_eq!(before[0], before[1]);

    // darktable itself shows the same, given the folder.
    let sidecar = home.path("edit.xmp");
    std::fs::write(&sidecar, xmp::write(&state, &home.layouts, "colours.png").unwrap()).unwrap();
    let cli = testkit::kept::darktable();
    let output = Command::new(cli.path())
        .args([&bench.raw.path, &sidecar, &home.path("own.png")])
        .args(["--apply-custom-presets", "false", "--icc-type", "SRGB", "--core", "--configdir"])
        .arg(home.path("own-config"))
        .args(["--library", ":memory:", "--disable-opencl", "--conf", "write_sidecar_files=never"])
        .args(["--conf", "plugins/imageio/format/png/bpp=8", "--conf"])
        .arg(format!("plugins/darkroom/lut3d/def_path={}", home.path(OWN).join("luts").display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let own = image::open(home.path("own.png")).unwrap().into_rgb8();
    assert!(off(&own, &bench.see(&state)) <= 1);

    // A LUT of other content, none at all, and one that nobody imported.
    let files = bench.luts();
    assert_eq!(files.len(), 4);
    let settings = Settings {
        format: Format::Png(Depth::Eight),
        profile: Profile::Srgb,
        metadata: Metadata::None,
        long_edge: None,
    };
    let refused = |code: ErrorCode, word: &str| {
        for renderer in [home.worker() as &dyn Renderer, &home.oneshot] {
            let error = home.try_render(renderer, &bench.raw, &state).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(error.code(), code);
            assert!(error.remedy().unwrap().contains("vocab import"));
        }
        let error = home.oneshot.export(&bench.raw, &state, &settings, &patience()).unwrap_err();
        assert_eq!(error.code(), code);
        let output = home.run(&["export", "colours", "-o", "out.png"]);
        assert_eq!(output.status.code(), Some(i32::from(code.exit_status())));
        assert!(!home.path("out.png").exists());
    };
    for file in &files {
        std::fs::write(file, cube(2, |c| c)).unwrap();
    }
    refused(ErrorCode::StateError, "damaged");
    for file in &files {
        std::fs::remove_file(file).unwrap();
    }
    refused(ErrorCode::NotFound, "not in the LUT folder");

    let again = home.ok(&["vocab", "import", "Red and Blue.cube"]);
    assert!(again.contains("already"), "{again}");
    assert_eq!(home.try_render(home.worker(), &bench.raw, &state).unwrap().pixel_hash(), before[0]);
    home.ok(&["cache", "clear"]);
    home.ok(&["render", "colours", "-o", "again.png"]);
    let [first, second] =
        ["first.png", "again.png"].map(|name| image::open(home.path(name)).unwrap().into_rgb8());
    assert_eq!(off(&first, &second), 0);
    // What another LUT has by name is not taken from it.
    std::fs::copy(home.path("same.cube"), home.path("green.cube")).unwrap();
    let taken = home.run(&["vocab", "import", "green.cube"]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("`green` is defined twice"), "{taken:?}");
}
