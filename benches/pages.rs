//! How large pages are, how long they take to open, and how smoothly they scroll, in Chromium: `cargo bench --bench pages`.
//!
//! A session of the explorer on a raw of six megapixels makes five branches; its page is opened. Then a batch page of 200
//! photos with four pictures each, which are those of the session in other brightnesses, so that no two are the same. With
//! a folder behind `--`, pictures of both pages go there, as a desktop and as a phone shows them. Ends with status 1 where a
//! page is larger or slower than it may be.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use base::ids::SessionId;
use chemigram::review::page::{Gallery, render};
use chemigram::review::{Group, ReviewModel};
use chemigram::session::listing;
use darktable::dng::{DngOptions, demo_photo, write_dng};
use darktable::render::Picture;
use engine::photo::Library;
use serde_json::{Value, json};
use testkit::home;

use testkit::browser::Browser;

const PHOTOS: usize = 200;
/// How often a page is opened and scrolled.
const TIMES: usize = 5;
const DIRECTIONS: [&str; 5] = [
    "tone=open the shadows",
    "color=warmer and richer",
    "mood=darker, cooler",
    "light=brighter, more contrast",
    "quiet=softer colours",
];

fn run(root: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    home::settle(&mut command, root);
    let output = command.current_dir(root).arg("--library").arg("photos").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The demo's photograph, with the noise of a sensor, as large as a camera's.
fn raw() -> Vec<u8> {
    let photo = demo_photo().unwrap();
    let (width, height) = (3000, 2000);
    let image = image::RgbImage::from_raw(photo.width, photo.height, photo.rgb).unwrap();
    let image = image::imageops::resize(&image, width, height, image::imageops::FilterType::CatmullRom);
    write_dng(&Picture { width, height, rgb: image.into_raw() }, &DngOptions::default()).unwrap()
}

/// A picture in another brightness.
fn varied(from: &Path, to: &Path, number: usize) {
    let mut picture = image::open(from).unwrap().to_rgb8();
    let by = (number % 61) as i16 - 30;
    for value in picture.iter_mut() {
        *value = (i16::from(*value) + by).clamp(0, 255) as u8;
    }
    // So that pictures of the same brightness differ, too.
    picture.put_pixel(number as u32 % picture.width(), 0, image::Rgb([number as u8, 0, 255]));
    let mut jpeg = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 90);
    picture.write_with_encoder(encoder).unwrap();
    std::fs::write(to, jpeg).unwrap();
}

/// The page of a batch of as many photos.
fn batch(root: &Path, review: &ReviewModel) -> PathBuf {
    let mut gallery = Gallery::of(PHOTOS * 4);
    let groups: Vec<Group> = (0..PHOTOS)
        .map(|number| {
            let mut own = review.clone();
            own.branches.truncate(3);
            let before = own.baseline_preview.iter_mut();
            for (place, path) in
                before.chain(own.branches.iter_mut().filter_map(|b| b.preview.as_mut())).enumerate()
            {
                let to = root.join(format!("{number}-{place}.jpg"));
                varied(path, &to, number);
                *path = to;
            }
            own.photo = format!("photo_{number:03}");
            Group { id: format!("s{number}"), ..Group::of(&own, &mut gallery, false) }
        })
        .collect();
    let context =
        json!({ "facts": ["200 done"], "resume": null, "outcomes": ["completed"], "groups": groups });
    let page = root.join("batch.html");
    std::fs::write(&page, render("batch", "bench", "Batch of 200 photos", false, &context).unwrap()).unwrap();
    page
}

/// Milliseconds until a page is loaded and what is on the screen is drawn.
fn opens_once(browser: &Browser, page: &Path) -> f64 {
    browser.open(page);
    let drawn = browser.wait(
        "const seen = [...document.querySelectorAll('.shot img')].filter(i => i.getBoundingClientRect().top < innerHeight);\
         Promise.all(seen.map(i => i.decode())).then(() => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))",
    );
    drawn.as_f64().unwrap()
}

/// [`opens_once`], the median of some times.
fn opens(browser: &Browser, page: &Path) -> f64 {
    let mut times: Vec<f64> = (0..TIMES).map(|_| opens_once(browser, page)).collect();
    times.sort_by(f64::total_cmp);
    times[TIMES / 2]
}

/// The longest frame in milliseconds while a page that was just loaded is scrolled to its end: of each of some times, the
/// shortest first. Each time in a browser of its own, since a page that was left is cleared away while the next one scrolls.
fn scrolled(page: &Path) -> Vec<f64> {
    let mut longest: Vec<f64> = (0..TIMES)
        .map(|_| {
            let browser = Browser::start(false);
            browser.width(1280);
            opens_once(&browser, page);
            scrolled_once(&browser)
        })
        .collect();
    longest.sort_by(f64::total_cmp);
    longest
}

fn scrolled_once(browser: &Browser) -> f64 {
    let frames = browser.wait(
        "const frames = []; let last = performance.now(); const step = () => { const now = performance.now(); frames.push(now - last); last = now;\
         scrollBy(0, 240); if (scrollY + innerHeight >= document.documentElement.scrollHeight - 2) done(frames.slice(1)); else requestAnimationFrame(step); };\
         scrollTo(0, 0); requestAnimationFrame(step)",
    );
    let frames = frames.as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap());
    frames.fold(0.0, f64::max)
}

/// Keeps what the window shows as a JPEG, small enough for a document.
fn keep(browser: &Browser, folder: &Path, name: &str) {
    let shown = image::load_from_memory(&browser.screenshot()).unwrap();
    let wide = shown.width().min(960);
    let picture = shown.resize(wide, shown.height(), image::imageops::FilterType::CatmullRom).to_rgb8();
    let mut jpeg = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 76);
    picture.write_with_encoder(encoder).unwrap();
    std::fs::write(folder.join(name), jpeg).unwrap();
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("cup.dng"), raw()).unwrap();
    run(root, &["ingest", "cup.dng", "--brief", "A quiet bar after hours. The porcelain stays white."]);
    let mut arguments = vec!["run-mode-b", "cup", "--budget", "time=30m,iterations=200,branches=5", "--yes"];
    DIRECTIONS.iter().for_each(|direction| arguments.extend(["--vector", direction]));
    run(root, &arguments);
    let written = run(root, &["review", "--no-open", "--output", "session.html", "--json"]);
    let session = root.join("session.html");
    let workspace = Library::new(root.join("photos")).open(&"cup".parse().unwrap()).unwrap();
    let id: SessionId = listing::of_photo(&workspace).unwrap().remove(0);
    let review = ReviewModel::of(&workspace, &listing::read(&workspace, &id).unwrap()).unwrap();
    assert_eq!(review.branches.len(), 5, "the explorer made other branches");
    let batch = batch(root, &review);

    let browser = Browser::start(false);
    browser.width(1280);
    let mut slow = false;
    let mut row = |what: &str, value: f64, most: f64, unit: &str| {
        slow |= value > most;
        println!("{what:44} {value:8.2} {unit}, at most {most}");
    };
    let megabytes = |page: &Path| std::fs::metadata(page).unwrap().len() as f64 / 1e6;
    assert_eq!(written["bytes"].as_u64().unwrap() as f64 / 1e6, megabytes(&session));
    row("a session of five branches, size", megabytes(&session), 6.0, "MB");
    row("a session of five branches, opens in", opens(&browser, &session) / 1e3, 1.0, "s");
    row("a batch of 200 photos, size", megabytes(&batch), 40.0, "MB");
    println!("{:44} {:8.2} s", "a batch of 200 photos, opens in", opens(&browser, &batch) / 1e3);
    let longest = scrolled(&batch);
    row("a batch of 200 photos, longest frame", longest[TIMES - 1], 50.0, "ms");
    println!("{:44} {longest:.1?} ms", "  each time");

    if let Some(pictures) = std::env::args().skip(1).find(|word| !word.starts_with('-')) {
        let pictures = Path::new(&pictures);
        browser.open(&session);
        keep(&browser, pictures, "page-desktop.jpg");
        browser.click(".shot:nth-child(3) .open");
        browser.press(&["c"]);
        keep(&browser, pictures, "page-compare.jpg");
        browser.width(390);
        browser.open(&session);
        keep(&browser, pictures, "page-phone.jpg");
    }
    if slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
