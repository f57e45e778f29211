//! The pages of sessions that were really made, through the real darktable, by a model that writes markup wherever it can
//! write: a session's, a batch's and an evaluation's, each written by its command and driven in Chromium.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::home::settle;
use crate::pages::{EVIL, choose, drive, fit, silent};
use base::ids::Hash;
use chemigram::eval::golden::Golden;
use darktable::dng;
use testkit::browser::Browser;
use testkit::folder::kept_folder;

/// The directions, and a move for each.
const BRANCHES: [(&str, &str, &str); 3] = [
    ("tone", "shadows_lift", r#"{"amount": 1.2}"#),
    ("color", "warmth", r#"{"shift": 60}"#),
    ("light", "exposure", r#"{"ev": -0.5}"#),
];

/// One turn of the model: what it says, and what it calls.
fn turn(calls: &[(&str, Value)]) -> String {
    // What JSON quotes, TOML reads.
    let quoted = |text: &str| Value::from(text).to_string();
    let calls: Vec<String> = calls
        .iter()
        .map(|(name, arguments)| {
            let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
            format!("{{ name = {}, arguments = {} }}", quoted(name), quoted(&arguments))
        })
        .collect();
    format!("[[reply]]\ntext = {}\ncalls = [{}]\n\n", quoted(EVIL), calls.join(", "))
}

/// A session of the model on these directions.
fn script(directions: &[&str]) -> String {
    let restated: Vec<Value> =
        directions.iter().map(|name| json!({ "name": name, "restated": EVIL })).collect();
    let mut script = turn(&[("confirm_session", json!({ "vectors": restated }))]);
    // What is refused is in the page, too.
    script += &turn(&[
        (EVIL, json!({ EVIL: EVIL })),
        ("log", Value::from(EVIL)),
        ("branch", json!({ "name": EVIL })),
    ]);
    for (place, name) in directions.iter().enumerate() {
        let (_, wish, values) = BRANCHES[place];
        let branch = format!("branch_b_{name}");
        let values: Value = serde_json::from_str(values).unwrap();
        script += &turn(&[("branch", json!({ "name": branch }))]);
        script += &turn(&[(
            "apply_primitive",
            json!({ "primitive_name": wish, "parameter_values": values, "label": EVIL }),
        )]);
        let judgment = |moves: &[&str]| {
            let moves = [moves, &[wish]].concat();
            json!({ "branch": branch, "judged_score": 5 - place, "judged_reasoning": EVIL, "key_moves": moves })
        };
        script += &turn(&[("record_judgment", judgment(&[EVIL]))]);
        script += &turn(&[("record_judgment", judgment(&[]))]);
    }
    script += &turn(&[
        (
            "log_vocabulary_gap",
            json!({ "description": EVIL, "workaround": EVIL, "missing_capability": EVIL }),
        ),
        ("propose_notes_update", json!({ "text": EVIL })),
        ("propose_taste_update", json!({ "text": EVIL })),
    ]);
    script += &turn(&[("end_mode_b_session", json!({ "session_summary": EVIL, "tag_suggestion": EVIL }))]);
    script + &turn(&[("end_mode_b_session", json!({ "session_summary": EVIL }))])
}

struct Home(tempfile::TempDir);

impl Home {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("--library").arg(self.path("photos")).args(arguments);
        settle(&mut command, self.0.path());
        command.env("XDG_CACHE_HOME", kept_folder("nights"));
        command.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{said}");
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// A batch of two photos by that model, with the pages of its last session and of itself.
fn batch(home: &Home) -> [PathBuf; 2] {
    home.write("one.dng", dng::demo_raw().unwrap());
    home.write("two.dng", [dng::demo_raw().unwrap(), vec![0]].concat());
    home.write("script.toml", script(&BRANCHES.map(|(name, ..)| name)));
    home.write("brief.md", EVIL);
    let vectors: Vec<String> = BRANCHES.iter().map(|(name, ..)| format!("{name}={EVIL}")).collect();
    let plan = format!(
        "[defaults]\nprovider = \"script\"\nmodel = \"script.toml\"\npreview_size = 512\nbrief = \"@brief.md\"\n\
         budget = \"time=20h,iterations=40,branches=3\"\nvectors = {}\n\n\
         [budget]\nbranches = 6\n\n[[session]]\nphoto = \"one.dng\"\n\n[[session]]\nphoto = \"two.dng\"\n",
        json!(vectors)
    );
    home.write("plan.toml", plan);
    let output = home.run(&["overnight", "plan.toml"]);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    home.ok(&["review", "last", "--output", "session.html"]);
    home.ok(&["review", "--batch", "last", "--output", "batch.html"]);
    ["session.html", "batch.html"].map(|name| home.path(name))
}

/// An evaluation of that model on one scenario, with its page.
fn evaluation(home: &Home) -> PathBuf {
    let set = home.path("golden_test");
    let raw = dng::demo_raw().unwrap();
    std::fs::create_dir_all(set.join("raws")).unwrap();
    std::fs::create_dir_all(set.join("001_cup")).unwrap();
    std::fs::write(set.join("raws/demo.dng"), &raw).unwrap();
    let sha256 = Hash::of(&raw);
    let scenario = format!(
        "[metadata]\nid = \"001_cup\"\ntitle = {evil}\ncreated = \"2026-11-22\"\n\n\
         [brief]\nsubject = {evil}\nintent = {evil}\n\n[image]\npath = \"../raws/demo.dng\"\nsha256 = \"{sha256}\"\n\n\
         [budget]\ntime = 7200\niterations = 40\nbranches = 1\n\n[[vectors]]\nname = \"tone\"\ndirection = {evil}\n\n\
         [[hidden]]\nmove = \"shadows_lift\"\nvalues = {{ amount = 1.0 }}\n",
        evil = Value::from(EVIL)
    );
    std::fs::write(set.join("001_cup/scenario.toml"), scenario).unwrap();
    Golden::freeze(&set, "recovery", [].into(), "for a test", "2026-11-22".parse().unwrap()).unwrap();
    home.write("eval.toml", script(&["tone"]));
    home.ok(&["eval", "run", "--golden", "golden_test", "--provider", "script/eval.toml"]);
    home.ok(&["eval", "report", "last"]);
    home.path("evaluation.html")
}

#[test]
fn the_pages_of_a_model_that_writes_markup_are_driven_ask_nothing_and_fit() {
    let home = Home(tempfile::tempdir().unwrap());
    let [session, batch] = batch(&home);
    let evaluation = evaluation(&home);
    let browser = Browser::start(false);
    let saved = drive(&browser, &session, &["branch_b_tone", "branch_b_color", "branch_b_light"]);
    let choose = |value: &str| choose(&browser, value);
    assert_eq!([choose("good"), choose("picked"), choose("")], [2, 1, 3].map(Value::from));

    // All that the model wrote is there to be read, and ran nowhere.
    let written = || {
        browser.run(
            "return [window.ran === undefined, document.body.textContent.split('<script>window.ran=1').length - 1, document.querySelectorAll('main img').length]",
        )
    };
    let count = |value: &Value| value.as_u64().unwrap();
    let seen = written();
    assert!(seen[0] == true && count(&seen[1]) >= 30 && count(&seen[2]) >= 4, "{seen}");
    // Pictures of the session, all of one size, each another.
    let pictures = browser.wait(
        "const all = [...document.querySelectorAll('.shot img')]; Promise.all(all.map(i => i.decode())).then(() => done(all.map(i => { \
         const c = document.createElement('canvas'); c.width = i.naturalWidth; c.height = i.naturalHeight; const x = c.getContext('2d'); x.drawImage(i, 0, 0); \
         const p = x.getImageData(0, 0, c.width, c.height).data; let sum = [0, 0, 0]; for (let n = 0; n < p.length; n++) if (n % 4 < 3) sum[n % 4] += p[n]; \
         return [c.width, c.height, ...sum.map(s => Math.round(s / c.width / c.height))]; })))",
    );
    let [before, tone, color, light] =
        [0, 1, 2, 3].map(|at| [0, 1, 2, 3, 4].map(|field| pictures[at][field].as_i64().unwrap()));
    assert!(before[0] == 512 && [tone, color, light].iter().all(|one| one[..2] == before[..2]), "{pictures}");
    let light_of = |one: [i64; 5]| one[2] + one[3] + one[4];
    assert!(light_of(tone) > light_of(before) + 4, "lifted shadows are lighter: {pictures}");
    assert!(color[2] - color[4] > before[2] - before[4] + 4, "warmer is redder and less blue: {pictures}");
    assert!(light_of(light) < light_of(before) - 10, "half a stop less is darker: {pictures}");

    browser.open(&batch);
    assert_eq!(
        [choose("completed"), choose("kept"), choose("picked"), choose("")],
        [6, 6, 0, 6].map(Value::from)
    );
    let seen = written();
    assert!(seen[0] == true && count(&seen[1]) >= 20 && count(&seen[2]) == 8, "{seen}");
    browser.press(&["j", "j"]);
    assert_eq!(browser.run("return document.activeElement.closest('.group').dataset.photo"), "two");
    browser.open(&evaluation);
    let seen = written();
    assert!(seen[0] == true && count(&seen[1]) >= 2 && count(&seen[2]) >= 2, "{seen}");
    silent(&browser);
    drop(browser);

    // What was picked on the page is promoted from the file that it saved.
    home.write("picks.json", saved.to_string());
    let done = home.ok(&["promote", "--picks", "picks.json", "--to-main"]);
    assert_eq!((&done["promoted"][0]["branch"], &done["new_picks"]), (&"branch_b_color".into(), &2.into()));
    let status = home.ok(&["status", "two"]);
    assert_eq!(status["branches"]["main"], status["branches"]["branch_b_color"]);
    fit(&[session, batch, evaluation]);
}
