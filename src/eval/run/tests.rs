use std::sync::Arc;

use super::*;
use crate::budget::Ledger;
use crate::eval::golden::Golden;
use crate::eval::manifest::{Contestant, RunRequest};
use crate::eval::plan::plan;
use crate::session::rig;
use crate::session::state::State;
use crate::transcript::{Event, Line};
use base::assets::Overlay;
use base::ids::Hash;

/// A set of two scenarios, and what a run over it needs; no darktable.
fn context(folder: &Path) -> EvalContext {
    let set = folder.join("golden_test");
    std::fs::create_dir_all(set.join("raws")).unwrap();
    std::fs::write(set.join("raws/cup.dng"), "sensor data").unwrap();
    for id in ["001_cup", "002_cup"] {
        let text = format!(
            "[metadata]\nid = \"{id}\"\ntitle = \"A cup\"\ncreated = \"2026-11-22\"\n\
             [brief]\nsubject = \"A cup.\"\nintent = \"Open.\"\n\
             [image]\npath = \"../raws/cup.dng\"\nsha256 = \"{}\"\n\
             [budget]\ntime = 3600\niterations = 10\nbranches = 1\ncost = 2.0\n\
             [[vectors]]\nname = \"light\"\ndirection = \"open the shadows\"\n\
             [[hidden]]\nmove = \"exposure\"\nvalues = {{ ev = 0.5 }}\n",
            Hash::of("sensor data")
        );
        std::fs::create_dir_all(set.join(id)).unwrap();
        std::fs::write(set.join(id).join("scenario.toml"), text).unwrap();
    }
    let today = "2026-11-22".parse().unwrap();
    let golden = Golden::freeze(&set, "recovery", [].into(), "for a test", today).unwrap();
    let renderer: Arc<dyn darktable::render::Renderer> = Arc::new(rig::Sums::default());
    EvalContext {
        home: folder.join("evaluations"),
        golden,
        raws: None,
        launcher: crate::launch::tests::launcher(renderer.clone()),
        renderer,
        ask: Arc::new(rig::untouched),
        fallback: None,
        protocols: BTreeMap::new(),
        vocabulary_files: Overlay::vocabulary(None),
        defaults: Mutex::default(),
    }
}

/// Panics in the session on one photo once its model was paid.
struct Defect;

impl Host for Defect {
    fn line(&self, line: &Line, state: &State, _: &Ledger) {
        let paid = state.start.photo.as_str() == "001_cup" && matches!(line.event, Event::ModelReply { .. });
        assert!(!paid, "a defect after it was paid");
    }
}

#[test]
fn another_model_goes_on_in_a_cell_and_the_run_says_so() {
    let folder = rig::folder();
    let mut context = context(folder.path());
    let script = |name: &str, price: &str, reply: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("[model]\nfree = false\n{price}\n[[reply]]\n{reply}\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let price =
        |input: f64| format!("price = {{ input = {input:?}, output = 4.0, as_of = \"2026-11-01\" }}\n");
    let fault =
        "text = \"x\"\nfault = { class = \"quota\", status = 402, message = \"no credit\", times = 99 }";
    let end = "calls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n\
               usage = { input_fresh = 20000, output = 100 }";
    let first = script("first.toml", &price(1.0), fault);
    let second = script("second.toml", &price(2.0), end);
    let unpriced = script("unpriced.toml", "", end);
    let request = RunRequest {
        golden: folder.path().join("golden_test"),
        scenarios: Vec::new(),
        prompts: vec!["mode_b/system@v1".into()],
        protocols: Vec::new(),
        referee: None,
        fallback: None,
        prompt_folder: None,
        contestants: vec![Contestant { provider: "script".into(), model: Some(first) }],
        repeats: 1,
        seed: 1,
        cost_micro_usd: Some(10_000_000),
        time_seconds: None,
        cell_cost_micro_usd: None,
    };
    let planned = |context: &EvalContext| {
        let request = RunRequest { fallback: context.fallback.clone(), ..request.clone() };
        plan(context, request, Hash::of(""), None, Timestamp::now())
    };
    let alone = planned(&context).unwrap().manifest.cells[0].key.clone();
    context.fallback = Some(format!("script:{unpriced}"));
    let refused = planned(&context).err().unwrap().to_string();
    assert!(refused.contains("the price of"), "{refused}");
    context.fallback = Some(format!("script:{second}"));
    let mut plan = planned(&context).unwrap();
    assert_ne!(plan.manifest.cells[0].key, alone, "a session with another model to go on is another one");
    let folder = plan.begin(&context.home).unwrap();
    let (runner, stop) = (Runner::new().unwrap(), Stop::default());
    plan.run(&Running {
        context: &context,
        folder: &folder,
        jobs: 1,
        runner: &runner,
        stop: &stop,
        host: &crate::session::driver::Unwatched,
        progress: &|_| {},
    })
    .unwrap();
    let run = Manifest::read(&folder).unwrap();
    assert_eq!(run.tally().done, 2);
    // At its own price: 20,000 tokens in at two dollars a million, 100 out at four.
    assert_eq!(run.spent(), (2 * 40_400, 2 * 20_100));
    let money = run.money(&run.arms()[0]);
    assert_eq!((money.fresh.cost_micro_usd, money.reply.cost_micro_usd), (2 * 40_000, 2 * 400));
    let page = crate::eval::report::page(&run, &context.home, (&[], &[]), &[]).unwrap();
    assert!(page.contains("40000 fresh (0.0800 USD)") && page.contains("2 of 2 sessions went on with"));
    let told = run.went_on();
    let words = format!("2 of 2 sessions went on with script/{second}: ");
    assert!(told.len() == 1 && told[0].starts_with(&words), "{told:?}");
}

#[test]
fn a_panic_in_a_cell_ends_that_cell_alone_and_what_it_had_spent_counts() {
    let folder = rig::folder();
    let context = context(folder.path());
    let script = folder.path().join("script.toml");
    let reply = "[model]\nfree = false\nprice = { input = 1.0, output = 4.0, as_of = \"2026-11-01\" }\n[[reply]]\n\
                 calls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n\
                 usage = { input_fresh = 20000, output = 100 }\n";
    std::fs::write(&script, reply).unwrap();
    let request = RunRequest {
        golden: folder.path().join("golden_test"),
        scenarios: Vec::new(),
        prompts: vec!["mode_b/system@v1".into()],
        protocols: Vec::new(),
        referee: None,
        fallback: None,
        prompt_folder: None,
        contestants: vec![Contestant {
            provider: "script".into(),
            model: Some(script.to_str().unwrap().to_owned()),
        }],
        repeats: 1,
        seed: 1,
        cost_micro_usd: Some(10_000_000),
        time_seconds: None,
        cell_cost_micro_usd: None,
    };
    for jobs in [1, 2] {
        let mut plan = plan(
            &context,
            RunRequest { seed: jobs, ..request.clone() },
            Hash::of(""),
            None,
            Timestamp::now(),
        )
        .unwrap();
        let run = plan.begin(&context.home).unwrap();
        let (runner, stop) = (Runner::new().unwrap(), Stop::default());
        plan.run(&Running {
            context: &context,
            folder: &run,
            jobs: jobs as usize,
            runner: &runner,
            stop: &stop,
            host: &Defect,
            progress: &|_| {},
        })
        .unwrap();
        let cells = Manifest::read(&run).unwrap().cells;
        let CellStatus::Failed { failures } = &cells[0].status else { panic!("{:?}", cells[0]) };
        let last = failures.last().unwrap();
        assert!(last.message.contains("a defect of chemigram: "), "{last:?}");
        assert!(last.message.contains("a defect after it was paid"), "{last:?}");
        assert!(last.spent.cost_micro_usd >= 20_400, "{last:?}");
        assert!(cells[1].done().is_some(), "{:?}", cells[1]);
    }
}
