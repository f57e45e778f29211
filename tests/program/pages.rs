//! The pages in Chromium, driven by keys and clicks: what they do, what they never do, and how they are laid out. Here they
//! are of hand-made reviews whose every text is hostile; `made_pages` has those of sessions.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use chemigram::review::page::{Gallery, render};
use chemigram::review::{Group, Remark, Shot};
use testkit::browser::{Browser, ENTER, ESCAPE, RIGHT};

pub const EVIL: &str = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>\"{{7*7}}";
const BOXES: &str = include_str!("../support/boxes.js");
const VIEWER: &str = include_str!("../support/viewer.js");

/// A picture of its own for each branch.
fn drawn(folder: &Path, number: u32) -> PathBuf {
    let path = folder.join(format!("{number}.jpg"));
    let shade = |x: u32, y: u32| image::Rgb([(x / 4) as u8, (y / 3) as u8, (60 * number % 256) as u8]);
    image::RgbImage::from_fn(900, 600, shade).save(&path).unwrap();
    path
}

fn group(folder: &Path, gallery: &mut Gallery, id: &str) -> Group {
    let shots = (0..5).map(|number: u32| {
        let before = number == 0;
        let name = if before { "before".to_owned() } else { format!("branch_b_{number}") };
        let path = drawn(folder, number);
        let picture = gallery.picture(&path, &format!("{name} {EVIL}")).unwrap();
        let text = || if before { String::new() } else { EVIL.to_owned() };
        Shot {
            key: format!("{id} {name} {number}"),
            name,
            before,
            branch: !before,
            src: Some(picture.src),
            width: picture.width,
            height: picture.height,
            alt: picture.alt,
            heat: gallery.difference(&folder.join("0.jpg"), &path).map(|map| map.src).filter(|_| !before),
            asked: text(),
            score: if before { String::new() } else { format!("{number}/5") },
            remarks: vec![Remark { text: text(), tone: "doubt" }],
            tags: if number == 4 { "kept,good".into() } else { String::new() },
            reasoning: text(),
            moves: vec![text()],
            tried: vec![text()],
            referee: text(),
            ..Shot::default()
        }
    });
    Group {
        id: id.into(),
        photo: "cup".into(),
        session: EVIL.into(),
        tags: "kept,completed".into(),
        facts: vec![Remark { text: "completed".into(), tone: "good" }, Remark::plain(EVIL)],
        problem: EVIL.into(),
        brief: EVIL.into(),
        summary: EVIL.into(),
        question: Some(EVIL.into()),
        gaps: vec![EVIL.into()],
        not_made: EVIL.into(),
        shots: shots.collect(),
        ..Group::default()
    }
}

/// A page of each kind.
fn pages(folder: &Path) -> [PathBuf; 3] {
    let mut gallery = Gallery::of(5);
    let one = group(folder, &mut gallery, "s0");
    let turn = json!({
        "at": "0:01", "title": EVIL, "text": EVIL, "spent": EVIL, "notes": [EVIL],
        "calls": [{ "name": EVIL, "arguments": EVIL, "result": EVIL, "failed": true }],
    });
    let other =
        Group { id: "s1".into(), tags: ",failed".into(), best: 5, photo: "jug".into(), ..one.clone() };
    let contexts = [
        (
            "session",
            json!({ "group": one, "caps": [{ "words": EVIL, "used": 1, "limit": 4 }], "turns": [turn] }),
        ),
        (
            "batch",
            json!({ "facts": [EVIL], "resume": EVIL, "outcomes": ["completed", "failed"], "groups": [one, other] }),
        ),
        (
            "evaluation",
            json!({ "intro": EVIL, "columns": ["arm"], "rows": [[EVIL]], "broken": [EVIL], "plots": [], "groups": [one] }),
        ),
    ];
    contexts.map(|(kind, context)| {
        let path = folder.join(format!("{kind}.html"));
        std::fs::write(&path, render(kind, EVIL, EVIL, false, &context).unwrap()).unwrap();
        path
    })
}

/// Does on a session's page what a person does there, by keys and clicks, and returns the picks that it saved: the second
/// branch picked with four stars, the third one rejected.
pub fn drive(browser: &Browser, page: &Path, branches: &[&str]) -> Value {
    browser.width(1280);
    browser.open(page);
    assert_eq!(browser.run("return window.ran === undefined"), true);
    let label = || browser.run("return document.querySelector('#right .label').textContent");
    let mode = || browser.run("return document.querySelector('.stage').dataset.mode");

    // Enlarged by a click, and by a key.
    browser.click(".shot:nth-child(2) .open");
    assert_eq!(label(), branches[0]);
    browser.press(&[ESCAPE, ENTER]);
    assert_eq!(
        (browser.run("return document.querySelector('#viewer').open"), label()),
        (true.into(), branches[0].into())
    );
    let sources = || browser.run("return document.querySelector('#right img').src");
    let after = sources();
    browser.press(&[" "]);
    assert_eq!(label(), "before");
    assert_ne!(sources(), after);
    browser.press(&[" ", RIGHT]);
    assert_eq!(label(), branches[1]);
    // Both pictures are zoomed and moved alike, and go back.
    browser.press(&["c", "z"]);
    let moved =
        || browser.run("return [...document.querySelectorAll('.pane img')].map(i => i.style.transform)");
    assert_eq!(mode(), "side");
    let zoomed = moved();
    assert!(
        zoomed[0] == zoomed[1] && !zoomed[0].as_str().unwrap().ends_with("scale(1)"),
        "one pixel of the picture on one of the screen: {zoomed}"
    );
    browser.drag((900, 400), (860, 370));
    let dragged = moved();
    assert!(dragged[0] == dragged[1] && dragged != zoomed, "{zoomed} {dragged}");
    browser.scroll((300, 300), -300);
    let larger = moved();
    assert!(larger[0] == larger[1] && larger != dragged, "{dragged} {larger}");
    browser.press(&["z"]);
    assert!(moved()[0].as_str().unwrap().ends_with("scale(1)"));
    let clip = || browser.run("return document.querySelector('#right').style.clipPath");
    browser.press(&["s"]);
    assert!(clip().as_str().unwrap().contains("50%"));
    browser.run("document.querySelector('#split').focus()");
    browser.press(&[RIGHT, RIGHT]);
    assert!(clip().as_str().unwrap().contains("52%"));
    browser.run("document.activeElement.blur()");
    browser.press(&["d"]);
    assert_eq!(label(), format!("{}: difference from before", branches[1]));

    // Picked, kept, and saved as a file.
    browser.press(&["p", "4", RIGHT, "x", ESCAPE]);
    browser.run("URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return 'data:,'; }");
    browser.click("#save");
    let saved =
        browser.wait("const look = () => window.saved ? done(window.saved) : setTimeout(look, 10); look()");
    let saved: Value = serde_json::from_str(saved.as_str().unwrap()).unwrap();
    let picks = &saved["photos"][0]["picks"];
    assert_eq!(
        (&picks[0]["branch"], &picks[0]["verdict"], &picks[0]["stars"]),
        (&branches[1].into(), &"pick".into(), &4.into())
    );
    assert_eq!(
        (&picks[1]["branch"], &picks[1]["verdict"], picks.as_array().unwrap().len()),
        (&branches[2].into(), &"reject".into(), 2)
    );
    // The browser hands on what a page has stored in its own time.
    let kept = (0..20).any(|_| {
        browser.open(page);
        browser.run("return document.querySelectorAll('.picked,.rejected').length") == 2
    });
    assert!(kept, "a pick was forgotten");

    // Blind: no name and no score is left to read, also not for a screen reader.
    browser.press(&["b"]);
    let read = browser.run(
        "return [...document.querySelectorAll('.shot:not(.before)')].map(s => s.innerText + [...s.querySelectorAll('img')].map(i => i.alt)).join()",
    );
    assert!(!read.as_str().unwrap().contains("branch_b") && !read.as_str().unwrap().contains("/5"), "{read}");
    browser.press(&["b"]);
    let names = browser.run("return [...document.querySelectorAll('.name')].map(n => n.textContent)");
    assert_eq!(names, json!([&["before"], branches].concat()));

    // The turns of the model.
    browser.click(".turn summary");
    assert_eq!(
        browser.run("return document.querySelector('.turn[open] .text,.turn[open] pre').checkVisibility()"),
        true
    );
    saved
}

/// Chooses in the filter, and says how many pictures of branches are left.
pub fn choose(browser: &Browser, value: &str) -> Value {
    browser.run(&format!(
        "const f = document.querySelector('#filter'); f.value = '{value}'; f.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    ));
    browser.run(
        "return [...document.querySelectorAll('.shot:not(.before)')].filter(s => s.checkVisibility()).length",
    )
}

/// Fails where the console said anything, or a page asked for anything but itself and what is in it.
pub fn silent(browser: &Browser) {
    assert_eq!(browser.console(), Vec::<Value>::new());
    for address in browser.requests() {
        assert!(
            address.starts_with("data:image/") || address == "data:," || address.starts_with("file:///"),
            "{address}"
        );
        assert!(!address.ends_with("/x"), "a picture of the text was asked for");
    }
}

/// Fails where text of the pages does not fit, or axe finds something serious, in light and dark, on screens of four
/// widths.
pub fn fit(pages: &[PathBuf]) {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser/axe-4.14.1.min.js");
    let axe = std::fs::read_to_string(axe).expect("axe-core: run scripts/install-browser.sh");
    for dark in [false, true] {
        let browser = Browser::start(dark);
        for page in pages {
            browser.open(page);
            for width in [360, 768, 1280, 2560] {
                browser.width(width);
                assert_eq!(browser.run(BOXES), json!([]), "{} at {width}", page.display());
                assert_eq!(browser.run(VIEWER), json!([]), "enlarged, {} at {width}", page.display());
            }
            browser.run(&axe);
            let found = browser.wait(
                "axe.run(document).then(r => done(r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes[0].html)))",
            );
            assert_eq!(found, json!([]), "{}", page.display());
        }
    }
}

#[test]
fn a4_c5_e5_pages_are_driven_by_keys_and_ask_nothing_of_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let [session, batch, _] = pages(folder.path());
    let browser = Browser::start(false);
    drive(&browser, &session, &["branch_b_1", "branch_b_2", "branch_b_3", "branch_b_4"]);

    let choose = |value: &str| choose(&browser, value);
    assert_eq!([choose("good"), choose("picked"), choose("")], [1, 1, 4].map(Value::from));

    browser.open(&batch);
    assert_eq!(choose("failed"), 4);
    choose("");
    browser.run("const o = document.querySelector('#order'); o.value = 'best'; o.dispatchEvent(new Event('input', { bubbles: true }))");
    assert_eq!(browser.run("return document.querySelector('.group').dataset.photo"), "jug");
    browser.press(&["j"]);
    assert_eq!(browser.run("return document.activeElement.closest('.group').dataset.photo"), "jug");
    silent(&browser);
}

#[test]
fn what_gets_through_the_escaping_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let [session, ..] = pages(folder.path());
    let torn = std::fs::read_to_string(&session).unwrap().replacen("<main>", &format!("<main>{EVIL}"), 1);
    std::fs::write(&session, torn).unwrap();
    let browser = Browser::start(false);
    browser.open(&session);
    assert_eq!(browser.run("return window.ran === undefined"), true);
    assert!(
        browser
            .console()
            .iter()
            .any(|line| line["message"].as_str().unwrap().contains("Content Security Policy"))
    );
    assert!(!browser.requests().iter().any(|address| address.starts_with("http")));
}

#[test]
fn pages_fit_every_screen_and_everyone() {
    let folder = tempfile::tempdir().unwrap();
    fit(&pages(folder.path()));
}
