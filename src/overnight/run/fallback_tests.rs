//! Sessions of a batch with a second model.

use std::sync::Arc;

use super::*;
use crate::overnight::plan::{self, Caps};
use crate::overnight::record;
use crate::overnight::report::BatchReport;
use crate::session::rig::{self, Rig};
use base::clock::SystemClock;

struct Unseen;

impl Observer for Unseen {
    fn session(&self, _: usize, _: &str) -> Box<dyn Host + '_> {
        Box::new(crate::session::driver::Unwatched)
    }

    fn recorded(&self, _: &Stamped) {}
}

/// A script at one dollar a million tokens in, or at more, that fails for good, or ends the session.
fn script(rig: &Rig, name: &str, price: Option<f64>, reply: &str) {
    let price =
        price.map(|input| format!("price = {{ input = {input:?}, output = 4.0, as_of = \"2026-11-01\" }}\n"));
    let text = format!("[model]\nfree = false\n{}\n[[reply]]\n{reply}\n", price.unwrap_or_default());
    std::fs::write(rig.library.with_file_name(name), text).unwrap();
}

#[test]
fn another_model_goes_on_in_a_batch_and_the_report_says_who_why_and_for_how_much() {
    let rig = Rig::new();
    let library = Library::new(&rig.library);
    let end = "calls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n\
               usage = { input_fresh = 20000, input_cache_read = 60000, output = 100 }";
    script(
        &rig,
        "first.toml",
        Some(1.0),
        "text = \"x\"\nfault = { class = \"quota\", status = 402, message = \"no credit\", times = 99 }",
    );
    script(&rig, "second.toml", Some(2.0), end);
    script(&rig, "unpriced.toml", None, end);
    let launcher = crate::launch::tests::launcher(Arc::new(rig::Sums::default()));
    let folder = rig.library.parent().unwrap();
    let text = |fallback: &str, budget: &str| {
        format!(
            "[budget]\ntime = \"20h\"\ncost = 9.00\n[[session]]\nphoto = \"cup\"\nprovider = \"script\"\nmodel = \"first.toml\"\n\
             fallback = \"{fallback}\"\nvectors = [\"tone=lift the shadows\"]\npreview_size = 256\nbudget = \"{budget}\"\n"
        )
    };
    let resolved = |fallback: &str, budget: &str| {
        resolve::resolve(&launcher, &library, folder, &plan::read(&text(fallback, budget)))
    };
    let budget = "time=1h,iterations=3,branches=1,cost=2";
    // What is wrong with it is said before anything begins.
    for (fallback, why) in [
        ("script:unpriced.toml", "the price of"),
        ("opnai", "there is no provider `opnai`"),
        ("script:nowhere.toml", "there is no script"),
    ] {
        let mistakes = resolved(fallback, budget).unwrap_err();
        assert!(mistakes.iter().any(|m| m.line == 8 && m.message.contains(why)), "{fallback}: {mistakes:?}");
    }
    let sessions = resolved("script:second.toml", budget).unwrap();
    assert!(!sessions[0].free);
    let plan = (std::path::Path::new("/plan.toml"), "# plan");
    let caps = Caps { cost_micro_usd: Some(9_000_000), ..Caps::default() };
    let mut batch = record::begin(&library, plan, caps, sessions, jiff::Timestamp::UNIX_EPOCH).unwrap();
    let runner = Runner::new().unwrap();
    let stop = Stop::default();
    let run =
        Run { launcher: &launcher, library: &library, runner: &runner, clock: &SystemClock, stop: &stop };
    run.run(&mut batch, 1, &Unseen).unwrap();

    let report = BatchReport::of(&library, &batch);
    let review = report.sessions[0].review.as_ref().unwrap();
    assert_eq!((report.sessions[0].result, report.sessions[0].status), ("completed", 0), "{}", report.text());
    let other = review.went_on.as_ref().unwrap();
    assert!(other.model.ends_with("second.toml") && other.reason.contains("no credit"), "{other:?}");
    // At its own price: 80,000 tokens in at two dollars a million, 100 out at four.
    assert_eq!((other.cost_micro_usd, report.spent.cost_micro_usd), (160_400, 160_400));
    assert!(report.text().contains("Went on with"), "{}", report.text());
    assert_eq!((report.money.fresh.cost_micro_usd, report.money.cached.cost_micro_usd), (40_000, 120_000));
    let line = "Tokens: 20000 fresh (0.0400 USD), 60000 from the cache (0.1200 USD), 100 in replies (0.0004 USD); 75 % of";
    assert!(report.summary().contains(line), "{}", report.summary());
    let page = crate::overnight::page::page(&report, &mut crate::review::page::Gallery::of(1)).unwrap();
    assert!(page.contains("75 % of the input came from the cache") && page.contains("no credit"));
}
