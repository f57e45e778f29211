//! A newcomer's walk: the commands of the README in their order, in a fresh home, to a picture in a browser.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use testkit::browser::Browser;

#[test]
fn the_commands_of_the_readme_lead_to_a_picture_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    // Each command ends with 0, and prints what the README shows: the script sees to that.
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check-readme.sh"))
        .args([env!("CARGO_BIN_EXE_chemigram"), "README.md"])
        .env("WALK_END", format!("chemigram review --no-open --output {}", page.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("chemigram review --no-open"), "the walk ended before its end: {said}");

    let browser = Browser::start(false);
    browser.width(1280);
    browser.open(&page);
    let drawn = browser.wait(
        "const all = [...document.querySelectorAll('.shot img')]; Promise.all(all.map(i => i.decode())).then(() => done(all.length))",
    );
    assert_eq!(drawn, json!(2), "before, and the branch");
    browser.click(".shot:not(.before) .open");
    let shown = image::load_from_memory(&browser.screenshot()).unwrap().to_rgb8();
    let colours: BTreeSet<[u8; 3]> = shown.pixels().map(|pixel| pixel.0).collect();
    assert!(colours.len() > 5_000, "{} colours are no photograph", colours.len());
    assert!(browser.console().is_empty());
}
