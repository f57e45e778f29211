//! `eval judge` with a model that looks, and with one that only seems to.
#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::eval::Home;
use crate::home::settle;
use base::assets::Overlay;
use base::clock::{Stop, SystemClock};
use base::ids::Hash;
use base::redact::Redactor;
use chemigram::budget::Budget;
use chemigram::conversation::{Finish, ImageRef, Message, ToolCall, Usage};
use chemigram::eval::judge::{Bench, Judged};
use chemigram::eval::manifest::{self, Manifest};
use chemigram::gate::{ModelCall, Permit};
use chemigram::launch::Runner;
use chemigram::prompts::Store;
use chemigram::protocol::rules::Verdict;
use chemigram::provider::{Attempt, ModelInfo, ModelReply, ModelRequest, Price, Provider};
use chemigram::referee::ModelReferee;
use serde_json::{Value, json};

/// A model that looks: it finds the untouched photo better than what was spoilt, and an edit that was wished for better
/// than the untouched photo. One that answers by order always takes the first.
struct Eye {
    info: ModelInfo,
    by_order: bool,
    good: Mutex<Option<Hash>>,
    asked: AtomicUsize,
}

impl Eye {
    fn new(by_order: bool) -> Arc<Self> {
        let info = ModelInfo {
            provider: "bench".into(),
            model: "explorer-eye".into(),
            vision: true,
            context: None,
            free: true,
            price: Price::default(),
            image_tokens: 0,
            facts: Default::default(),
        };
        Arc::new(Self { info, by_order, good: Mutex::default(), asked: AtomicUsize::default() })
    }

    fn answer(&self, text: &str, images: &[ImageRef]) -> (&'static str, Value) {
        let [first, second] = images else { panic!("a judge is shown two pictures") };
        if !text.contains("Picture A and picture B follow") {
            let ratings = json!({"seen": "The shadows are open.", "intent": 5, "craft": 4, "photograph": 4});
            return ("give_ratings", ratings);
        }
        let good = self.good.lock().unwrap().get_or_insert_with(|| first.sha256.clone()).clone();
        // Only a branch has a wish.
        let untouched = if text.contains("open the shadows") { "worse" } else { "better" };
        let better = match (first.sha256 == good, second.sha256 == good) {
            _ if self.by_order => "A",
            (true, true) => "same",
            (true, _) if untouched == "better" => "A",
            (true, _) => "B",
            _ if untouched == "better" => "B",
            _ => "A",
        };
        ("give_verdict", json!({"difference": "One is open.", "better": better, "not_as_asked": "neither"}))
    }
}

impl Provider for Eye {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, _: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let Some(Message::User { text, images }) = request.messages.first() else { panic!("no question") };
        let (name, arguments) = self.answer(text, images);
        let call = ToolCall {
            id: "answer".into(),
            name: name.into(),
            arguments: arguments.to_string(),
            extra: Default::default(),
        };
        let message = Message::Assistant { text: String::new(), calls: vec![call], opaque: Vec::new() };
        let reply = ModelReply {
            raw: serde_json::to_vec(&message).unwrap(),
            message,
            finish: Finish::ToolCalls,
            usage: Usage::default(),
            cost_micro_usd: Some(0),
            model_served: None,
            first_byte: None,
            notes: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

/// What it says of the newest run.
fn judged(home: &Home, eye: &Arc<Eye>) -> Judged {
    let prompts = Store::new(Overlay::prompts(None)).unwrap();
    let folder = manifest::find(&home.evaluations(), "last").unwrap();
    let bench = Bench {
        judge: ModelReferee::new(eye.clone(), &prompts).unwrap(),
        prompts: &prompts,
        budget: Budget::parse("time=1h,iterations=1000,branches=1").unwrap(),
        clock: Arc::new(SystemClock),
        redactor: Redactor::default(),
        stop: Stop::default(),
        progress: &|_| {},
    };
    let manifest = Manifest::read(&folder).unwrap();
    let kept = home.evaluations();
    let judging = chemigram::eval::judge::judge(&bench, &manifest, &kept, &folder);
    Runner::new().unwrap().block_on(judging).unwrap()
}

#[test]
fn e12_e13_a_judge_qualifies_first_then_rates_and_compares_and_is_asked_nothing_twice() {
    let home = Home::new(2);
    let (status, run) = home.run(&["--provider", "explorer"]);
    assert_eq!(status, 0);
    // E13: what a session could spend, and why it judged as it did.
    let done = run.cells[0].done().unwrap();
    assert_eq!(done.budget.as_ref().unwrap().max_iterations, 10);
    assert!(!done.measured.branches[0].judged_reasoning.is_empty());

    let eye = Eye::new(false);
    let first = judged(&home, &eye);
    assert_eq!(first.stopped, None);
    assert_eq!((first.qualification.right.len(), first.qualification.flip_rate()), (5, 0.0));
    assert_eq!((first.ratings.len(), first.pairs.len()), (2, 2), "{first:?}");
    assert!(first.pairs.iter().all(|pair| pair.verdict == Verdict::Better && !pair.flipped), "{first:?}");
    assert_eq!(first.pairs[0].against, "baseline");
    assert_eq!(first.agreement, (2, 2), "the explorer opened the shadows, as the hidden edits do");
    assert_eq!(first.mean(&first.ratings[0].arm).unwrap(), ([5.0, 4.0, 4.0], 2));
    assert!(first.prompts.contains_key("judge/rubric@v1") && first.prompts.contains_key("referee/pair@v1"));
    assert!(first.cautions[0].contains("of one family"), "explorer-eye is kin of explorer-2: {first:?}");
    // The identical pair is one question in both orders, and the scenarios have one photo and one wish.
    assert_eq!(eye.asked.load(Ordering::SeqCst), 9 + 1 + 2);
    // Whatever was asked is kept.
    let again = judged(&home, &eye);
    assert_eq!((again.ratings, again.pairs), (first.ratings, first.pairs));
    assert_eq!(eye.asked.load(Ordering::SeqCst), 12);
    let folder = manifest::find(&home.evaluations(), "last").unwrap();
    assert_eq!(Judged::read(&folder).unwrap().stopped, None);
    let mut shown = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    settle(shown.args(["eval", "show", "last"]).current_dir(home.0.path()), home.0.path());
    let shown = String::from_utf8(shown.output().unwrap().stdout).unwrap();
    assert!(
        shown.contains("right about 5 of 5 pairs") && shown.contains("against baseline: 2 better"),
        "{shown}"
    );

    // Another model, which answers by order: nothing is asked of it but what nobody disputes.
    let mut blind = Arc::into_inner(Eye::new(true)).unwrap();
    blind.info.model = "by-order".into();
    let blind = Arc::new(blind);
    let refused = judged(&home, &blind);
    assert!(refused.stopped.unwrap().contains("not qualified"));
    assert!(refused.ratings.is_empty() && refused.pairs.is_empty() && refused.cautions.is_empty());
    assert_eq!((refused.qualification.flip_rate(), blind.asked.load(Ordering::SeqCst)), (1.0, 9));

    for (who, says) in [("explorer", "cannot see pictures"), ("offline", "cannot judge what they measured")] {
        let (status, error) = home.eval(&["judge", "last", "--judge", who]);
        assert_eq!(status, 2, "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(says), "{error}");
    }
}
