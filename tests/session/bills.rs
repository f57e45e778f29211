//! What a session cost is told by kind of token, and the kinds add up to what was charged.

use std::sync::Arc;

use base::assets::Overlay;
use chemigram::provider::{Choice, Provider, Registry, connect};
use chemigram::review::{ReviewModel, Style, text};
use chemigram::session::bill::{Money, Part};
use chemigram::session::listing;
use chemigram::session::start::{self, Setup};
use chemigram::transcript::Outcome;

use crate::dialect_sessions::{BUDGET, DIALECTS, Skipping, twelve};
use crate::support::{self, Studio, request};
use testkit::chat_stub::{ChatStub, StubReply};

/// A model with a price of its own for each kind of token: 2, 0.2, 2.5 and 8 dollars a million.
fn priced(dialect: &str, stub: &ChatStub) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\ncontext = 400000\n\
         price = {{ input = 2.0, cache_read = 0.2, cache_write = 2.5, output = 8.0, as_of = \"2026-11-01\" }}\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let registry = Registry::with_env(&Overlay::providers(Some(dir.path().to_owned())), |_| None);
    let choice = Choice { provider: "mine".into(), base_url: Some(stub.url()), ..Choice::default() };
    connect(&registry, &choice).unwrap()
}

fn reviewed(dialect: &str, replies: Vec<StubReply>) -> ReviewModel {
    let studio = Studio::new();
    let stub = ChatStub::start(replies);
    let setup = Setup { clock: Arc::new(Skipping::default()), ..studio.setup(priced(dialect, &stub)) };
    let plan = start::plan(&setup, &request(BUDGET, &[("tone", "lift the shadows")])).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
    let id = session.state.start.session.clone();
    drop(session);
    ReviewModel::of(&studio.workspace, &listing::read(&studio.workspace, &id).unwrap()).unwrap()
}

#[test]
fn each_kind_of_token_has_its_money_in_each_dialect() {
    // Twelve replies: 20,000 + 1,000 n in, of them 19,000 from the cache and 800 written to it; 500 + n out.
    let part = |tokens: u64, cost_micro_usd: u64| Part { tokens, cost_micro_usd };
    let expected = Money {
        fresh: part(68_400, 136_800),
        cached: part(228_000, 45_600),
        written: part(9_600, 24_000),
        reply: part(6_066, 48_528),
        ..Money::default()
    };
    for (name, _) in DIALECTS {
        let review = reviewed(name, twelve());
        assert_eq!(review.money, expected, "{name}");
        let (total, spent) = (review.money.total(), review.spent);
        assert_eq!((total.tokens, total.cost_micro_usd), (spent.tokens, spent.cost_micro_usd), "{name}");
        let told = text(&review, Style { color: false, width: 400 });
        let line = "Tokens: 68400 fresh (0.1368 USD), 228000 from the cache (0.0456 USD), 9600 written to the cache \
                    (0.0240 USD), 6066 in replies (0.0485 USD); 74 % of the input came from the cache\n";
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn what_was_charged_without_a_report_is_told_apart() {
    // A stream that breaks off before anything was reported costs its reservation.
    let mut replies = twelve();
    replies.insert(
        3,
        StubReply::events("data: {\"type\": \"response.output_text.delta\", \"delta\": \"I\"}\n\n"),
    );
    let review = reviewed("responses", replies);
    let money = review.money;
    assert_eq!(money.cached.tokens, 12 * 19_000);
    assert!(money.other.tokens > 4_096 && money.other.cost_micro_usd > 8 * 4_096, "{money:?}");
    let (total, spent) = (money.total(), review.spent);
    assert_eq!((total.tokens, total.cost_micro_usd), (spent.tokens, spent.cost_micro_usd));
    assert!(money.words().unwrap().contains(" of no known kind ("), "{:?}", money.words());
}
