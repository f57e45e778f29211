//! The demo raw is a raw: real darktable develops it, and what comes out is the photograph.

use std::path::Path;
use std::process::Command;

use chemigram::darktable::dng::{self, DngOptions};
use chemigram::darktable::render::Picture;
use chemigram::metrics::difference::Difference;
use chemigram::metrics::stats::ImageStats;

/// Develops a raw with darktable's defaults; the picture, and what darktable said.
fn develop(raw: &[u8], folder: &Path) -> (Picture, String) {
    let (input, output) = (folder.join("in.dng"), folder.join("out.png"));
    std::fs::write(&input, raw).unwrap();
    let _ = std::fs::remove_file(&output);
    let result = Command::new("darktable-cli")
        .args([&input, &output])
        .args(["--width", "1024", "--height", "1024", "--hq", "false", "--apply-custom-presets", "false"])
        .args(["--core", "--library", ":memory:", "--disable-opencl", "-d", "perf", "--configdir"])
        .arg(folder.join("config"))
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
    let folder = tempfile::tempdir().unwrap();
    let (developed, said) = develop(&dng::demo_raw().unwrap(), folder.path());
    std::fs::copy(folder.path().join("out.png"), "/tmp/demo_out.png").unwrap();
    println!("{said}");
    let photo = dng::demo_photo().unwrap();
    println!("{:?}", Difference::between(&photo, &developed).unwrap());
    println!("{:#?} {:#?} {photo:?} {developed:?}", ImageStats::of(&photo), ImageStats::of(&developed));
    let _ = DngOptions::default();
}
