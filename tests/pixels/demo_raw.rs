//! The demo raw is a raw: real darktable develops it, and what comes out is the photograph.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use darktable::dng::{self, DngOptions};
use darktable::render::Picture;
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

/// Develops a raw with darktable's defaults; the picture, and what darktable said.
fn develop(raw: &[u8]) -> (Picture, String) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.dng"), folder.path().join("out.png"));
    std::fs::write(&input, raw).unwrap();
    let cli = testkit::kept::darktable();
    let result = Command::new(cli.path())
        .args([&input, &output])
        .args(["--width", "1024", "--height", "1024", "--hq", "false", "--apply-custom-presets", "false"])
        .args(["--core", "--library", ":memory:", "--disable-opencl", "-d", "perf"])
        .arg("--configdir")
        .arg(folder.path().join("config"))
        .arg("--cachedir")
        .arg(folder.path().join("cache"))
        .output()
        .unwrap();
    let said =
        [result.stdout, result.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(result.status.success(), "{said}");
    let image = image::open(&output).unwrap_or_else(|e| panic!("{e}: {said}")).into_rgb8();
    (Picture { width: image.width(), height: image.height(), rgb: image.into_raw() }, said)
}

#[test]
fn darktable_develops_the_demo_raw_into_the_photograph() {
    let (developed, said) = develop(&dng::demo_raw().unwrap());
    // Modules go by their titles, or from 5.x on by their names.
    for (title, name) in [
        ("raw black/white point", "`rawprepare'"),
        ("white balance", "`temperature'"),
        ("demosaic", "`demosaic'"),
    ] {
        let ran = said.contains(title) || said.contains(name);
        assert!(ran, "the raw pipeline did not run: no `{title}` in {said}");
    }
    // 682.67 rows: 4.2.1 rounds up, 5.0.1 down.
    assert_eq!(developed.width, 1024);
    assert!([682, 683].contains(&developed.height), "{} rows", developed.height);

    // The default development is another rendering of the same scene: near, in place and in colour.
    let photo = dng::demo_photo().unwrap();
    let difference = Difference::between(&photo, &developed).unwrap();
    assert!(difference.mean < 10.0, "{difference:?}");
    let mirrored = Picture {
        rgb: developed.rgb.chunks_exact(3).rev().flatten().copied().collect(),
        ..developed.clone()
    };
    let wrong = Difference::between(&photo, &mirrored).unwrap();
    assert!(wrong.mean > 2.0 * difference.mean, "{wrong:?} is no worse than {difference:?}");

    let (before, after) = (ImageStats::of(&photo), ImageStats::of(&developed));
    assert!((before.a_mean - after.a_mean).abs() < 6.0, "{before:?} {after:?}");
    assert!((before.b_mean - after.b_mean).abs() < 6.0, "{before:?} {after:?}");
    // Room to work in: hardly anything is clipped.
    assert!(after.clip_high_pct < 1.0 && after.clip_low_pct < 2.0, "{after:?}");
}

#[test]
fn orientation_and_exposure_reach_the_picture() {
    let photo = dng::demo_photo().unwrap();
    let (upright, _) = develop(&dng::write_dng(&photo, &DngOptions::default()).unwrap());
    let options = DngOptions { orientation: 6, exposure_ev: 1.0, ..DngOptions::default() };
    let (turned, _) = develop(&dng::write_dng(&photo, &options).unwrap());
    assert_eq!((upright.width, upright.height), (turned.height, turned.width));
    let (before, after) = (ImageStats::of(&upright), ImageStats::of(&turned));
    assert!(after.lightness.mean > before.lightness.mean + 8.0, "{before:?} {after:?}");
}
