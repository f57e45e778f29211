//! Lenses that were chosen by hand, and fringes, from the command to the pixels of the installed darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use base::error::ErrorCode;
use darktable::dng::{Camera, DngOptions, demo_photo, write_dng};
use darktable::render::Picture;
use darktable::state::EditState;
use engine::photo::Workspace;
use testkit::frames::{Home, LONG, OWN, SHORT, Step, difference};
use testkit::photos::{aberrated, photo};

const LENS: &str = "Canon EF 20mm f/2.8 USM";
const CAMERA: &str = "Canon EOS 5D Mark II";
const FISHEYE: &str = "Canon EF 8-15mm f/4L Fisheye USM";
/// An adapter: neither camera nor lens tells anything.
const UNKNOWN: Camera = Camera { make: "Acme", model: "Acme 1", lens: "", focal: 0, aperture: 0 };

/// Has the program take in a raw of that picture.
fn ingest(home: &Home, id: &str, picture: &Picture, options: &DngOptions) -> Workspace {
    home.file(&format!("{id}.dng"), &write_dng(picture, options).unwrap());
    home.ingest(&format!("{id}.dng"), id)
}

/// What moves make of a photo.
fn edited(home: &Home, workspace: &Workspace, steps: &[Step]) -> (EditState, std::sync::Arc<Picture>) {
    let (state, facts) = home.facts(workspace);
    let state = home.apply(&state, &facts, steps).unwrap();
    let picture = home.render(&workspace.raw(), &state);
    (state, picture)
}

/// The greatest difference of a pixel.
fn most(a: &Picture, b: &Picture) -> u8 {
    assert_eq!((a.width, a.height), (b.width, b.height));
    a.rgb.iter().zip(&b.rgb).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

#[test]
fn a_lens_that_no_file_names_is_corrected_as_the_file_would_have_it() {
    let mut home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let (picture, wide) = photo(Some("wide_lens"));
    // The only words of its name; an f-number; the camera with and without its maker.
    home.ok(&[
        "vocab",
        "lens",
        "canon 20mm 2.8",
        "--camera",
        CAMERA,
        "--aperture",
        "f/2.8",
        "--name",
        "chosen",
    ]);
    home.ok(&["vocab", "lens", LENS, "--camera", "5D Mark II", "--name", "unlit"]);
    home.ok(&["vocab", "lens", LENS, "--aperture", "2.8", "--name", "sensor"]);
    // An adapter: a camera whose mount takes no such lens, with the same sensor.
    home.ok(&["vocab", "lens", LENS, "--camera", "Nikon D700", "--aperture", "2.8", "--name", "adapted"]);
    home.ok(&["vocab", "lens", FISHEYE, "--camera", CAMERA, "--name", "round"]);
    home.reload();
    let named = ingest(&home, "named", &picture, &wide);
    let unnamed = ingest(&home, "unnamed", &picture, &DngOptions { camera: UNKNOWN, ..wide });
    let of = |steps: &[Step]| [&named, &unnamed].map(|workspace| edited(&home, workspace, steps).1);

    let [plain, plain_too] = of(&[]);
    assert_eq!(most(&plain, &plain_too), 0);
    let [by_file, unknown] = of(&[("lens_correction", &[])]);
    assert_eq!(most(&unknown, &plain), 0, "a lens that nobody knows");
    let much = difference(&by_file, &plain).unwrap();
    assert!(much > 3.0, "{much}");
    for name in ["chosen", "sensor", "adapted"] {
        let [over, instead] = of(&[(name, &[])]);
        let far = most(&over, &by_file).max(most(&instead, &by_file));
        assert!(far <= 2, "{name} is off by {far}");
    }

    // Either half alone, of the lens in the file and of the one that was chosen.
    let mut halves = Vec::new();
    for switches in [
        &[("distortion", 0.0)] as &[(&str, f64)],
        &[("vignetting", 0.0)],
        &[("distortion", 0.0), ("vignetting", 0.0)],
    ] {
        let by_file = edited(&home, &named, &[("lens_correction", switches)]).1;
        let chosen = edited(&home, &unnamed, &[("chosen", &[]), ("lens_correction", switches)]).1;
        assert!(most(&by_file, &chosen) <= 2, "{switches:?}");
        halves.push(chosen);
    }
    let corner =
        |picture: &Picture| f64::from(picture.rgb[..30].iter().map(|v| u32::from(*v)).sum::<u32>()) / 30.0;
    let (dark, light) = (corner(&halves[1]), corner(&by_file));
    assert!(light > dark + 5.0, "corners: {dark} without vignetting corrected, {light} with");
    for (half, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(difference(&halves[half], &halves[other]).unwrap() > 0.5, "{half} and {other}");
    }
    // Without an aperture dark corners stay, until it is told.
    let [from_file, without] = of(&[("unlit", &[])]);
    assert!(most(&from_file, &by_file) <= 2 && most(&without, &halves[1]) <= 2);
    let told = edited(&home, &unnamed, &[("unlit", &[("aperture", 2.8)])]).1;
    assert!(most(&told, &by_file) <= 2);

    // A fisheye's picture stays one, as darktable leaves it, and a zoom is set by hand or as the file says.
    let fisheye = Camera { lens: FISHEYE, focal: 15, aperture: 40, ..wide.camera };
    let named = ingest(&home, "fisheye", &picture, &DngOptions { camera: fisheye, ..wide });
    let by_file = edited(&home, &named, &[("lens_correction", &[])]).1;
    let far = |workspace: &Workspace, steps: &[Step]| {
        difference(&edited(&home, workspace, steps).1, &by_file).unwrap()
    };
    let told: &[Step] = &[("round", &[("focal", 15.0), ("aperture", 4.0)])];
    let (as_told, as_in_file) = (far(&unnamed, told), far(&named, &[("round", &[])]));
    assert!(as_told < 0.1 && as_in_file < 0.1, "a fisheye is off by {as_told}, {as_in_file}");
    assert!(far(&unnamed, &[("round", &[("focal", 8.0), ("aperture", 4.0)])]) > 3.0);

    // Off again, nothing is left.
    let (baseline, _) = home.facts(&unnamed);
    let off: &[Step] = &[("chosen", &[]), ("chosen", &[("on", 0.0)])];
    assert_eq!(edited(&home, &unnamed, off).0, baseline);
    assert_eq!(edited(&home, &unnamed, &[("chosen", &[("on", 0.0)])]).0, baseline);
}

#[test]
fn red_and_blue_are_laid_over_green_for_any_lens() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let scene = demo_photo().unwrap();
    let plain = DngOptions { noise: 0.0, camera: UNKNOWN, ..DngOptions::default() };
    // Without colour, and red drawn larger than green, blue smaller. The sensor sees some green in both, so that of
    // 3 thousandths 2 are left.
    let right: &[Step] = &[("lens_fringes", &[("red", -2.0), ("blue", 2.0)])];
    let wrong: &[Step] = &[("lens_fringes", &[("red", 2.0), ("blue", -2.0)])];
    let after_profile: &[Step] = &[("lens_correction", &[]), right[0]];
    for (id, options) in [("simple", plain), ("wide", photo(Some("wide_lens")).1)] {
        let simple = ingest(&home, id, &aberrated(&scene, 2.0, 0.003), &DngOptions { noise: 0.0, ..options });
        let left = |steps: &[Step]| fringes(&edited(&home, &simple, steps).1).iter().sum::<f64>();
        let (before, after, worse) = (left(&[]), left(right), left(wrong));
        assert!(after < 0.6 * before && worse > 1.3 * before, "{id}: {before}, {after}, {worse}");
        if id == "wide" {
            let (by_profile, by_hand) = (left(&after_profile[..1]), left(after_profile));
            assert!(by_hand < 0.8 * by_profile, "{by_profile} by the profile, {by_hand} by hand");
        }
    }

    // As far as it says: a dark line at so many pixels from the middle.
    let (far, line) = (500.0, |x: u32| if x.abs_diff(1100) < 4 { [40; 3] } else { [200; 3] });
    let picture = image::RgbImage::from_fn(LONG, SHORT, |x, _| image::Rgb(line(x)));
    picture.save(home.path("line.png")).unwrap();
    let workspace = home.ingest("line.png", "line");
    let (red, blue) = (-4.0, 6.0);
    let after = edited(&home, &workspace, &[("lens_fringes", &[("red", -4.0), ("blue", 6.0)])]).1;
    let at = |channel: usize| {
        let row = &after.rgb[(3 * after.width * (after.height / 2)) as usize..];
        let dark =
            (1050..1150).map(|x: usize| (x as f64, 150.0 - f64::from(row[3 * x + channel]).min(150.0)));
        dark.clone().map(|(x, depth)| x * depth).sum::<f64>() / dark.map(|(_, depth)| depth).sum::<f64>()
    };
    for (channel, shift) in [(0, red), (2, blue)] {
        let (moved, asked) = (at(channel) - at(1), shift * far / 1000.0);
        assert!((moved - asked).abs() < 0.2, "channel {channel}: {moved} pixels instead of {asked}");
    }
    // And nothing else: neither the frame nor green.
    assert!((after.width, after.height) == (LONG, SHORT) && (at(1) - 1100.0).abs() < 0.1, "{}", at(1));
    let (baseline, _) = home.facts(&workspace);
    assert_eq!(edited(&home, &workspace, &[("lens_fringes", &[("red", 0.0), ("blue", 0.0)])]).0, baseline);
}

/// How far red and blue are from green, in codes: all colour of a scene without any is the lens's.
fn fringes(picture: &Picture) -> [f64; 2] {
    let pixels = f64::from(picture.width * picture.height);
    [0, 2].map(|c| {
        let apart = picture.rgb.chunks_exact(3).map(|pixel| u64::from(pixel[c].abs_diff(pixel[1])));
        apart.sum::<u64>() as f64 / pixels
    })
}

#[test]
fn names_that_lensfun_does_not_know_are_refused_with_those_that_it_does() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let refused = |arguments: &[&str]| {
        let output = home.run(&[&["vocab", "lens"], arguments].concat());
        assert_eq!(
            output.status.code(),
            Some(i32::from(ErrorCode::InvalidInput.exit_status())),
            "{arguments:?}"
        );
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["Cannon EF 20m f/2.8 USM"]).contains(LENS));
    assert!(refused(&["EF 20mm f/2.8 USM", "--camera", "EOS 5E Mark II"]).contains(CAMERA));
    let several = refused(&["Canon EF 50mm"]);
    assert!(
        several.contains("Canon EF 50mm f/1.8 STM") && several.contains("Canon EF 50mm f/1.4 USM"),
        "{several}"
    );
    // Made for a smaller sensor.
    assert!(refused(&["Canon EF-S 10-18mm", "--camera", CAMERA]).contains("crop factor"));
    for bad in
        [&[LENS, "--focal", "0"] as &[&str], &[LENS, "--aperture", "-1"], &[LENS, "--name", "No name!"]]
    {
        refused(bad);
    }
    assert!(!home.path(OWN).join("moves").exists(), "nothing is kept of what is refused");
    // Once kept, the same again is no fault, and another of that name is.
    let keep = ["vocab", "lens", LENS, "--name", "mine", "--aperture"];
    home.ok(&[&keep as &[&str], &["4"]].concat());
    home.ok(&[&keep as &[&str], &["4"]].concat());
    assert!(!home.run(&[&keep as &[&str], &["8"]].concat()).status.success());
}

#[test]
fn profiles_that_are_not_there_or_damaged_are_told_and_ones_own_are_used() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let folder = home.path("profiles");
    std::fs::create_dir(&folder).unwrap();
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_chemigram"))
            .args(["vocab", "lens", LENS])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path(""))
            .env("CHEMIGRAM_LENSFUN", &folder)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let nothing = Some(i32::from(ErrorCode::NotFound.exit_status()));
    let (status, said) = run();
    assert!(status == nothing && said.contains("profiles") && said.contains("liblensfun-data"), "{said}");
    std::fs::write(folder.join("slr.xml"), "<lensdatabase><lens><maker>").unwrap();
    let (status, said) = run();
    assert!(status == nothing && said.contains("damaged") && said.contains("slr.xml"), "{said}");

    // A profile of one's own is known, and darktable corrects by it.
    let own = home.path(".local/share/lensfun");
    std::fs::create_dir_all(&own).unwrap();
    let profile = r#"<lensdatabase version="1"><lens><maker>Acme</maker><model>Acme Bender 40mm</model>
        <mount>M42</mount><cropfactor>1</cropfactor><calibration>
        <distortion model="poly3" focal="40" k1="-0.1"/></calibration></lens></lensdatabase>"#;
    std::fs::write(own.join("mine.xml"), profile).unwrap();
    home.ok(&["vocab", "lens", "bender", "--name", "bender"]);
    let scene = demo_photo().unwrap();
    ingest(&home, "photo", &scene, &DngOptions { camera: UNKNOWN, ..DngOptions::default() });
    let see = |name: &str| {
        home.ok(&["render", "photo", "-o", name, "--size", "600"]);
        let picture = image::open(home.path(name)).unwrap().to_rgb8();
        Picture { width: picture.width(), height: picture.height(), rgb: picture.into_raw() }
    };
    let before = see("before.png");
    home.ok(&["apply", "photo", "bender"]);
    let after = difference(&before, &see("after.png")).unwrap();
    assert!(after > 3.0, "{after}");
}
