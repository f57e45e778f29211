//! Whatever wrote the file: what works on the demo's raw works on raws as cameras lay them out, on raws without
//! colours, and on finished pictures, and the facts that the program keeps of them are those of the file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use darktable::dng::DngOptions;
use darktable::render::Picture;
use serde_json::{Value, json};
use testkit::frames::{
    Home, LONG, SHORT, Seen, Taken, both, broken, difference, marred, photo_json, scene, stored, table,
};
use testkit::photo_files::{LENS, MAKE, MODEL, camera_dng, jpeg, monochrome_dng, png, tiff, webp};

/// A kind of file: its name, how the camera was held, and its bytes.
type Kind = (&'static str, u16, fn(&Picture, u16) -> Vec<u8>);

fn options(orientation: u16) -> DngOptions {
    DngOptions { noise: 0.0, orientation, ..DngOptions::default() }
}

/// All are stored lying; those of the orientations 5 to 8 are shown upright.
const KINDS: [Kind; 7] = [
    ("camera.dng", 6, |picture, orientation| camera_dng(picture, &options(orientation))),
    ("camera-lying.dng", 1, |picture, orientation| camera_dng(picture, &options(orientation))),
    ("monochrome.dng", 8, |picture, orientation| monochrome_dng(picture, &options(orientation))),
    ("web.webp", 6, webp),
    ("net.png", 8, png),
    ("tiff.tif", 6, tiff),
    // A camera that was set to JPEG under the name of its raws.
    ("named.nef", 6, jpeg),
];

struct Photos {
    home: Home,
    taken: Vec<Taken>,
    table: Vec<Seen>,
}

static PHOTOS: LazyLock<Photos> = LazyLock::new(|| {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let taken = both(&KINDS, |(name, orientation, write)| {
        let sides = if *orientation > 4 { [SHORT, LONG] } else { [LONG, SHORT] };
        let scene = scene(sides[0], sides[1]);
        let file = |picture: &Picture| write(&stored(picture, *orientation), *orientation);
        Taken::new(&home, name, &file(&marred(&scene)), &file(&scene))
    });
    // As it is, straightened, and everything at once; `tests/pixels/orientations.rs` has the rest.
    let table = table(&home, &taken, &[0, 2, 6]);
    Photos { home, taken, table }
});

fn none(broken: Vec<String>) {
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), PHOTOS.table.len(), broken.join("\n"));
}

#[test]
fn shapes_and_shown_masks_lie_where_they_are_drawn_on_every_kind_of_photo() {
    none(broken::refused(&PHOTOS.table));
    none(broken::shapes(&PHOTOS.table));
    none(broken::shown(&PHOTOS.table));
}

#[test]
fn every_kind_of_photo_is_straightened_without_empty_corners_and_healed() {
    none(broken::corners(&PHOTOS.table));
    none(broken::spots(&PHOTOS.table));
}

#[test]
fn every_kind_of_photo_is_shown_as_the_camera_was_held() {
    let plain = |photo: &str| {
        let of = |seen: &&Seen| seen.photo == photo && seen.edit == "plain";
        PHOTOS.table.iter().find(of).unwrap().clean.clone()
    };
    for (name, orientation, _) in &KINDS {
        let shown = plain(name.split_once('.').unwrap().0);
        let upright = shown.height > shown.width;
        assert_eq!(upright, *orientation > 4, "{name}");
        // Brighter to the right, and on pictures with colours redder downwards.
        let mean = |from: [f64; 2], to: [f64; 2]| {
            let (w, h) = (f64::from(shown.width), f64::from(shown.height));
            let inside = |at: usize| {
                let [x, y] = [(at % shown.width as usize) as f64 / w, (at / shown.width as usize) as f64 / h];
                (from[0]..to[0]).contains(&x) && (from[1]..to[1]).contains(&y)
            };
            let chosen = shown.rgb.chunks_exact(3).enumerate().filter(|(at, _)| inside(*at));
            let (count, sums) = chosen.fold((0.0, [0.0; 3]), |(count, sums), (_, pixel)| {
                (count + 1.0, [0, 1, 2].map(|c: usize| sums[c] + f64::from(pixel[c])))
            });
            sums.map(|sum| sum / count)
        };
        let [left, right] = [mean([0.0, 0.0], [0.2, 1.0]), mean([0.8, 0.0], [1.0, 1.0])];
        assert!(right[1] > left[1] + 15.0, "{name}: {left:?} {right:?}");
        let [above, below] = [mean([0.0, 0.0], [1.0, 0.2]), mean([0.0, 0.8], [1.0, 1.0])];
        if *name != "monochrome.dng" {
            assert!(below[0] > above[0] + 15.0, "{name}: {above:?} {below:?}");
        }
    }
}

#[test]
fn the_facts_of_a_photo_are_those_of_its_file() {
    for (taken, (name, orientation, _)) in PHOTOS.taken.iter().zip(&KINDS) {
        let photo = photo_json(&taken.workspace);
        let facts = &photo["facts"];
        let expected = json!({
            "width": LONG, "height": SHORT, "orientation": orientation, "maker": MAKE, "model": MODEL, "lens": LENS,
            "iso": 200, "aperture": 4.0, "focal_mm": 50.0, "captured": "2026-01-02T03:04:05",
        });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&facts[key], value, "{name}: {key} in {facts}");
        }
        let seconds = facts["exposure_seconds"].as_f64().unwrap();
        assert!((seconds - 1.0 / 125.0).abs() < 1e-5, "{name}: {seconds}");
        let raw = name.ends_with(".dng");
        assert_eq!(photo["kind"], Value::from(if raw { "raw" } else { "raster" }), "{name}");
        assert!(photo["facts_from"]["orientation"].is_string(), "{name}: {photo}");
    }
}

#[test]
fn a_jpeg_under_the_name_of_a_raw_is_said_to_be_one() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let picture = scene(60, 40);
    home.file("held.NEF", &jpeg(&picture, 1));
    home.file("plain.jpg", &jpeg(&stored(&picture, 3), 1));
    home.file("raw.dng", &camera_dng(&picture, &options(1)));
    let said = home.ok(&["ingest", "held.NEF"]);
    assert!(said.contains("named .nef, but it is a JPEG") && said.contains("no sensor data"), "{said}");
    let answer = home.run(&["--json", "ingest", "plain.jpg"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert!(!answer.to_string().contains("but it is"), "{answer}");
    assert!(!home.ok(&["ingest", "raw.dng"]).contains("but it is"));
}

/// The program's own commands from the file to the finished picture.
#[test]
fn every_kind_of_photo_goes_through_the_commands_to_an_export() {
    let home = &PHOTOS.home;
    let ellipse = r#"{"shape":"ellipse","center":[0.4,0.6],"radius":[0.1,0.2],"feather":0.02}"#;
    let commands = |(taken, (name, orientation, _)): &(&Taken, &Kind)| {
        let id = taken.workspace.id().as_str();
        let lay = |state: &str| format!("{id}-{state}.png");
        home.ok(&["apply", id, "straighten", "angle=5"]);
        home.ok(&["apply", id, "crop_left", "margin=0.1"]);
        home.ok(&["export", id, "-o", &lay("before")]);
        home.ok(&["apply", id, "exposure", "ev=-2", "--mask", ellipse]);
        home.ok(&["export", id, "-o", &lay("after")]);
        home.ok(&["render", id, "-o", &lay("mask"), "--show-mask", ellipse]);
        let open = |state: &str| image::open(home.path(&lay(state))).unwrap().to_rgb8();
        let [before, after, mask] = ["before", "after", "mask"].map(open);
        assert_eq!(before.dimensions(), after.dimensions(), "{name}");
        let (width, height) = (f64::from(before.width()), f64::from(before.height()));
        let aspect = if *orientation > 4 { 2.0 / 3.0 } else { 1.5 };
        assert!((width / height / (0.9 * aspect) - 1.0).abs() < 0.01, "{name}: {width} x {height}");
        let within = |x: f64, y: f64| ((x - 0.4) / 0.1).hypot((y - 0.6) / 0.2) <= 1.0;
        let overlap = |picture: &image::RgbImage, acts: &dyn Fn(u32, u32) -> bool| {
            let (mut both, mut either) = (0, 0);
            for (x, y, _) in picture.enumerate_pixels() {
                let place = |at: u32, length: u32| (f64::from(at) + 0.5) / f64::from(length);
                let (a, b) = (acts(x, y), within(place(x, picture.width()), place(y, picture.height())));
                both += u32::from(a && b);
                either += u32::from(a || b);
            }
            f64::from(both) / f64::from(either)
        };
        let sum = |pixel: &image::Rgb<u8>| pixel.0.iter().map(|v| i32::from(*v)).sum::<i32>();
        // Two stops are far more than what lies between neighbours.
        let darker =
            overlap(&after, &|x, y| 10 * sum(after.get_pixel(x, y)) < 8 * sum(before.get_pixel(x, y)));
        assert!(darker >= 0.95, "{name}: the export {darker}");
        let red = |x: u32, y: u32| {
            let [r, g, _] = mask.get_pixel(x, y).0;
            i32::from(r) - i32::from(g) > 70
        };
        let red = overlap(&mask, &red);
        assert!(red >= 0.95, "{name}: the shown mask {red}");
    };
    let photos: Vec<(&Taken, &Kind)> = PHOTOS.taken.iter().zip(&KINDS).collect();
    both(&photos, commands);
    // It would be seen.
    let plain = &PHOTOS.table[0].clean;
    assert!(difference(plain, &stored(plain, 3)).unwrap() > 5.0);
}

/// `tests/old_library` is a library as builds before format 2 of `photo.json` left it: a portrait, its sides taken for
/// those of the picture on show. An exposure, the same through an ellipse, and straightening were applied to it.
#[test]
fn a_portrait_of_an_earlier_build_is_corrected_and_its_misplaced_commits_are_listed() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_library");
    let folder = home.path("photos/portrait");
    copy(&old.join("portrait"), &folder);
    std::fs::create_dir(folder.join("raw")).unwrap();
    std::os::unix::fs::symlink(old.join("portrait.dng"), folder.join("raw/portrait.dng")).unwrap();
    let refs =
        || files(&folder.join("refs")).into_iter().chain(files(&folder.join("objects"))).collect::<Vec<_>>();
    let before = refs();

    let said = home.ok(&["status", "portrait"]);
    assert!(said.contains("was added by an older chemigram, which recorded its size wrongly"), "{said}");
    assert!(said.contains("shapes, spots or straightening of 2 edits may be in the wrong place"), "{said}");
    let workspace = home.open("portrait");
    let photo = photo_json(&workspace);
    assert_eq!((&photo["format"], &photo["facts"]["orientation"]), (&json!(2), &json!(6)), "{photo}");
    assert_eq!((&photo["facts"]["width"], &photo["facts"]["height"]), (&json!(96), &json!(64)), "{photo}");
    assert_eq!(photo["facts"]["model"], MODEL);
    assert!(photo["facts_from"]["orientation"].as_str().unwrap().contains("darktable"), "{photo}");
    assert_eq!(photo["corrected"]["placed_by"], json!({"width": 96, "height": 64}), "{photo}");

    // The commits are those of the ellipse and of the straightening, under the names they had; nothing else moved.
    assert!(refs() == before, "refs or objects changed");
    let checked = home.ok(&["fsck", "portrait"]);
    let listed = |commit: &str| checked.contains(commit) && checked.contains("by the wrong picture size");
    assert!(listed("a5e26bb88c07") && listed("8f2d77651afa"), "{checked}");
    assert!(!checked.contains("7863d411954e"), "{checked}");
    // It is said once.
    assert!(!home.ok(&["status", "portrait"]).contains("earlier chemigram"));

    // What is straightened now has no empty corners; what was straightened then still has them.
    let corners = |state: &str, file: &str| {
        home.ok(&["export", "portrait", state, "-o", file]);
        let picture = image::open(home.path(file)).unwrap().to_rgb8();
        let [right, below] = [picture.width() - 1, picture.height() - 1];
        assert!(below > right, "{file} is not upright");
        let corners = [(0, 0), (right, 0), (0, below), (right, below)];
        corners.iter().filter(|(x, y)| picture.get_pixel(*x, *y).0.iter().all(|value| *value < 16)).count()
    };
    assert!(corners("main", "then.png") > 0);
    home.ok(&["checkout", "portrait", "baseline"]);
    home.ok(&["branch", "portrait", "again"]);
    home.ok(&["checkout", "portrait", "again"]);
    home.ok(&["apply", "portrait", "straighten", "angle=5"]);
    assert_eq!(corners("again", "now.png"), 0);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
    all
}
