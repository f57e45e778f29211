//! `measure` and `try_strengths`, in sessions and by hand, held against pixels of the real darktable.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use crate::support;
use std::sync::Arc;

use crate::support::{EDGE, Studio, confirm, reply, request, results};
use base::clock::Deadline;
use base::error::ErrorCode;
use chemigram::transcript::{Event, Line};
use darktable::cache::{Cache, Cached};
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use darktable::worker::Worker;
use darktable::xmp;
use pixels::lab::Lab;
use serde_json::Value;

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];
const BRANCH: (&str, &str) = ("branch", r#"{"name": "branch_b_tone"}"#);

/// A studio in which no picture was rendered before.
fn cold() -> Studio {
    let mut studio = Studio::new();
    let layouts = studio.layouts.clone();
    let encode = move |state: &_, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    let base = support::shared().join("darktable");
    let worker = Worker::new(support::darktable(), &base, Arc::new(encode)).unwrap();
    let cache = Cache::new(studio.dir.path().join("renders"), 1 << 30);
    studio.renderer = Arc::new(Cached::new(Arc::new(worker), cache));
    studio
}

/// The data of each successful call of a tool.
fn data(lines: &[Line], tool: &str) -> Vec<Value> {
    let answers = results(lines, tool).into_iter().filter(|(code, _)| code.is_none());
    answers
        .map(|(_, text)| serde_json::from_str::<Value>(text.lines().next().unwrap()).unwrap()["data"].take())
        .collect()
}

/// The renders that each call of a tool was charged.
fn renders(lines: &[Line], tool: &str) -> Vec<u64> {
    let (mut within, mut counts) = (false, Vec::new());
    for line in lines {
        match &line.event {
            Event::ToolCall(intent) => {
                within = intent.call.name == tool;
                counts.extend(within.then_some(0));
            }
            Event::ToolResult { .. } => within = false,
            Event::Render { settled, .. } if within => *counts.last_mut().unwrap() += settled.renders,
            _ => {}
        }
    }
    counts
}

/// The number after `name` in a line; of `before→now`, now.
fn figure(line: &Value, name: &str) -> f64 {
    let line = line.as_str().unwrap();
    let after = line.split_once(&format!("{name} ")).unwrap_or_else(|| panic!("{name}: {line}")).1;
    let word = after.split([' ', ',']).next().unwrap();
    word.rsplit('→').next().unwrap().parse().unwrap_or_else(|_| panic!("{name}: {line}"))
}

/// The mean L* of the pixels whose centre, in 0 to 1, is inside.
fn mean_l(picture: &Picture, inside: impl Fn(f64, f64) -> bool) -> f64 {
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let (mut sum, mut count) = (0.0, 0.0);
    for (pixel, at) in picture.rgb.as_chunks::<3>().0.iter().zip(0_u32..) {
        let (x, y) = (f64::from(at % picture.width) + 0.5, f64::from(at / picture.width) + 0.5);
        if inside(x / width, y / height) {
            sum += f64::from(Lab::from_srgb(*pixel).l);
            count += 1.0;
        }
    }
    sum / count
}

#[test]
fn a_masked_exposure_is_measured_inside_and_proved_absent_outside() {
    let studio = cold();
    let places = r#"{"masks": [{"shape": "rectangle", "from": [0.12, 0.2], "to": [0.3, 0.8], "feather": 0.02}, {"shape": "rectangle", "from": [0.6, 0.1], "to": [0.95, 0.9], "feather": 0.02}], "points": [[0.2, 0.5], [0.8, 0.5]]}"#;
    let script = [
        confirm(&["tone"]),
        reply(&[BRANCH]),
        reply(&[("measure", r#"{"points": [[0.2, 0.5]]}"#)]),
        reply(&[("apply_primitive", r#"{"primitive_name": "exposure", "parameter_values": {"ev": 1.0}, "mask": {"shape": "rectangle", "from": [0.05, 0.1], "to": [0.4, 0.9], "feather": 0.05}}"#)]),
        reply(&[("measure", places)]),
        reply(&[("measure", places)]),
        reply(&[("measure", r#"{"points": [[0.5, 2.0]]}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Measured."}"#)]),
    ]
    .concat();
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=30,branches=1,renders=30", TONE));
    assert_eq!(end.spent.iterations, 2, "branch and apply_primitive");
    let found = data(&lines, "measure");
    let [first, edited, again] = found.as_slice() else { panic!("{:#?}", results(&lines, "measure")) };
    assert_eq!(results(&lines, "measure")[3].0, Some(ErrorCode::InvalidInput));
    assert_eq!(first["compared"], "with nothing: this is the baseline");
    assert_eq!((edited, &edited["compared"]), (again, &Value::from("baseline→now")));
    // The session begins with the baseline's picture. Then the state, two for the first mask, one for the second.
    assert_eq!(renders(&lines, "measure"), [0, 4, 0, 0]);

    let [inside, outside, point_in, point_out] = edited["places"].as_array().unwrap().as_slice() else {
        panic!("{edited:#}")
    };
    for (line, changed) in [(inside, true), (outside, false), (point_in, true), (point_out, false)] {
        assert_eq!(line.as_str().unwrap().contains('→'), changed, "{line}");
        let apart = figure(line, "ΔE");
        assert!(if changed { apart > 3.0 } else { apart == 0.0 }, "{line}");
    }
    // The same from the rendered pictures, by a plain mean.
    let workspace = &studio.workspace;
    let picture = |commit: &str| {
        let state = workspace.state_of(&workspace.resolve(commit).unwrap()).unwrap();
        let (raw, quality) = (workspace.raw(), Quality::Preview);
        let request = RenderRequest { raw: &raw, state: &state, long_edge: EDGE, quality };
        studio.renderer.render(&request, &Deadline::never(), &ByHand).unwrap().picture
    };
    let (before, after) = (picture(workspace.baseline().as_str()), picture("branch_b_tone"));
    let radius = 0.01 * f64::from(after.width.min(after.height));
    let disc = |cx: f64, cy: f64| {
        let (width, height) = (f64::from(after.width), f64::from(after.height));
        move |x: f64, y: f64| ((x - cx) * width).hypot((y - cy) * height) <= radius
    };
    for (line, x) in [(point_in, 0.2), (point_out, 0.8)] {
        let expected = mean_l(&after, disc(x, 0.5));
        assert!((figure(line, "L*") - expected).abs() <= 0.051, "{line}: {expected}");
    }
    assert!((figure(&first["places"][0], "L*") - mean_l(&before, disc(0.2, 0.5))).abs() <= 0.051, "{first}");
    let rectangle = |left, right| move |x: f64, y: f64| (left..right).contains(&x) && (0.1..0.9).contains(&y);
    let expected = mean_l(&after, rectangle(0.6, 0.95));
    assert!((figure(outside, "L*") - expected).abs() < 1.5, "{outside}: {expected}");
    let covered = figure(outside, "0.95, 0.90,");
    assert!((covered - 28.0).abs() < 3.0, "{outside}");
    // A sentence, not a table: a model reads about three letters to a token.
    assert!(
        edited["places"].as_array().unwrap().iter().all(|line| line.as_str().unwrap().len() < 220),
        "{edited:#}"
    );
}

#[test]
fn strengths_are_seen_side_by_side_and_nothing_is_changed() {
    let studio = cold();
    let script = [
        confirm(&["tone"]),
        reply(&[BRANCH, ("render_preview", "{}")]),
        reply(&[("try_strengths", r#"{"primitive_name": "exposure", "values": [1.0, -1.0, 0.5]}"#)]),
        reply(&[("try_strengths", r#"{"primitive_name": "exposure", "values": [1.0, 9.0]}"#)]),
        reply(&[
            ("apply_primitive", r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.5}}"#),
            ("render_preview", "{}"),
        ]),
        reply(&[(
            "try_strengths",
            r#"{"alternatives": ["contrast", "clarity"], "mask": {"named": "left_half"}}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Tried."}"#)]),
    ]
    .concat();
    let (_, lines) = studio.run(&script, &request("time=5m,iterations=30,branches=1,renders=30", TONE));
    let found = data(&lines, "try_strengths");
    let [values, moves] = found.as_slice() else { panic!("{:#?}", results(&lines, "try_strengths")) };
    let refused = &results(&lines, "try_strengths")[1];
    assert!(refused.0.is_some() && refused.1.contains("values[1]"), "{refused:?}");
    // What is chosen is there when it is applied.
    assert_eq!(renders(&lines, "try_strengths"), [3, 0, 2]);
    assert_eq!(renders(&lines, "render_preview"), [0, 0]);
    let tip = studio.tip("branch_b_tone").unwrap();
    assert_eq!(studio.workspace.log(&tip, 10).unwrap().len(), 2, "the baseline and the one edit");

    let tiles = values["tiles"].as_array().unwrap();
    let light: Vec<f64> = tiles.iter().map(|line| figure(line, "L*")).collect();
    assert!(light[1] > light[3] && light[3] > light[0] && light[0] > light[2], "{tiles:#?}");
    assert!(tiles[1].as_str().unwrap().starts_with("1: ev 1:"), "{tiles:#?}");
    assert!(moves["tiles"][0].as_str().unwrap().starts_with("now, where it acts:"), "{moves}");
    assert!(values["left_out"].is_null() && moves["tiles"].as_array().unwrap().len() == 3);
    // The tiles of the sheet, row by row, are as bright as their lines say.
    let sheet = lines.iter().find_map(|line| match &line.event {
        Event::ToolResult { result, .. } if result.name == "try_strengths" => result.images.first(),
        _ => None,
    });
    let Event::SessionStart(start) = &lines[0].event else { panic!() };
    let blob =
        studio.workspace.session_folder(&start.session).join("blobs").join(sheet.unwrap().sha256.as_str());
    let image = image::load_from_memory(&std::fs::read(blob).unwrap()).unwrap().into_rgb8();
    let sheet = Picture { width: image.width(), height: image.height(), rgb: image.into_raw() };
    let quarters = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.5, 0.5)];
    for ((left, top), light) in quarters.into_iter().zip(&light) {
        // Below the label and inside of the gaps.
        let inside =
            |x: f64, y: f64| (left + 0.02..left + 0.48).contains(&x) && (top + 0.12..top + 0.48).contains(&y);
        let seen = mean_l(&sheet, inside);
        assert!((seen - light).abs() < 4.0, "{left} {top}: {seen}, not {light}");
    }
}

#[test]
fn what_the_cap_does_not_pay_for_is_left_out_and_named() {
    let studio = cold();
    let script = [
        confirm(&["tone"]),
        reply(&[BRANCH]),
        reply(&[("try_strengths", r#"{"primitive_name": "exposure", "values": [0.2, 0.4, 0.6, 0.8, 1.0]}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Tried."}"#)]),
    ]
    .concat();
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=30,branches=1,renders=3", TONE));
    let found = data(&lines, "try_strengths");
    let said = found[0]["left_out"].as_str().unwrap();
    assert!(said.starts_with("2 of 5") && said.ends_with("for ev 0.6, ev 0.8, ev 1"), "{said}");
    assert_eq!(found[0]["tiles"].as_array().unwrap().len(), 3, "now, and two");
    assert_eq!((renders(&lines, "try_strengths"), end.spent.renders), (vec![2], 3));
}

#[test]
fn by_hand_places_are_measured_and_strengths_tried() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("chemigram").unwrap();
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).env("HOME", home.path()).current_dir(home.path());
        let output = command.args(arguments).output().unwrap();
        let (out, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        if output.status.success() { Ok(out) } else { Err(error) }
    };
    run(&["demo-raw", "x.dng"]).unwrap();
    run(&["ingest", "x.dng", "--id", "cup"]).unwrap();
    run(&["apply", "cup", "exposure", "ev=0.7", "--mask", r#"{"named":"left_half"}"#]).unwrap();
    let ask = [
        "measure",
        "cup",
        "--mask",
        r#"{"named":"bottom_half"}"#,
        "--point",
        "0.1,0.5",
        "--point",
        "0.9,0.5",
    ];
    let table = run(&ask).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let found: Value = serde_json::from_str(&run(&[ask.as_slice(), &["--json"]].concat()).unwrap()).unwrap();
    let [_, left, right] = found["places"].as_array().unwrap().as_slice() else { panic!("{found:#}") };
    let l = |of: &Value, which: &str| of[which]["l"].as_f64().unwrap();
    assert!(l(left, "difference") > 3.0 && left["delta_e_mean"].as_f64().unwrap() > 2.0, "{left:#}");
    assert!((l(left, "now") - l(left, "baseline") - l(left, "difference")).abs() < 2e-3, "{left:#}");
    assert_eq!((l(right, "difference"), &right["delta_e_mean"]), (0.0, &Value::from(0.0)), "{right:#}");
    assert!(run(&["measure", "cup"]).unwrap_err().contains("--mask"));

    let log = run(&["log", "cup"]).unwrap();
    let tried = ["try", "cup", "exposure", "--values", "-0.5,0.5", "-o", "sheet.jpg", "--json"];
    let tried: Value = serde_json::from_str(&run(&tried).unwrap()).unwrap();
    let light: Vec<f64> = tried["tiles"].as_array().unwrap().iter().map(|line| figure(line, "L*")).collect();
    assert!(light[1] < light[0] && light[0] < light[2], "{tried:#}");
    let sheet = image::open(home.path().join("sheet.jpg")).unwrap();
    assert_eq!(
        (Some(u64::from(sheet.width())), Some(u64::from(sheet.height()))),
        (tried["width"].as_u64(), tried["height"].as_u64())
    );
    assert_eq!(run(&["log", "cup"]).unwrap(), log, "nothing was recorded");
    assert!(
        run(&["try", "cup", "exposure", "--values", "1,99", "-o", "two.jpg"]).unwrap_err().contains("99")
    );
    assert!(
        run(&["try", "cup", "clarity", "no_such_move", "-o", "two.jpg"])
            .unwrap_err()
            .contains("no_such_move")
    );
}
