//! Random sessions with servers that count, cache and bill as the vendors document it, and report what they bill: no
//! call costs more than its bound, and most of a session is read from the cache.
//!
//! What is sent is real: the prompt, the tools and the results of a session, in tokens of a real tokenizer. Models and
//! prices are those of the profiles. `CHEMIGRAM_TEST_SESSIONS` says how many sessions.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::conversation::{Finish, ImageRef, Message, ToolCall, ToolResult, ToolSpec, Usage};
use crate::gate;
use crate::provider::profile::Dialect;
use crate::provider::{Choice, ModelInfo, ModelReply, Registry};
use crate::session::agents::{Dice, header, line};
use crate::session::rig::{self, Rig, begin, request};
use crate::session::state::State;
use crate::session::{chapter, pricing};
use crate::transcript::{self, Event, HeadState, Line, ModelIntent};
use base::assets::Overlay;
use base::ids::Hash;

const SESSIONS: u64 = 300;
/// Turns of the sessions whose cache is judged, and the first that counts.
const TURNS: [usize; 2] = [20, 5];

/// One session of every kind of call, whose words stand in for all.
const SCRIPT: &str = r#"
[[reply]]
text = "I look at the photo and at what I may use before I say how I understand the direction."
calls = [{ name = "read_context" }, { name = "list_vocabulary" }]
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open the shadows without washing out the blacks." }] } }]
[[reply]]
calls = [{ name = "branch", arguments = { name = "branch_b_tone" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.3 } } }]
[[reply]]
calls = [{ name = "render_preview" }, { name = "get_state" }]
[[reply]]
text = "The shadows are still heavy, so I go a little further and keep the highlights where they are."
calls = [{ name = "apply_primitive", arguments = { primitive_name = "contrast", parameter_values = { amount = 0.15 } } }]
[[reply]]
calls = [{ name = "compare" }, { name = "mode_b_status" }]
[[reply]]
calls = [{ name = "apply_primitive", arguments = { primitive_name = "no_such_move" } }]
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 4, judged_reasoning = "The shadows are open, and the porcelain stays white.", comparable_to_baseline = true } }]
[[reply]]
calls = [{ name = "end_mode_b_session", arguments = { session_summary = "One branch, the shadows opened." } }]
"#;

/// What is said in a session, each with its tokens.
struct Words {
    system: String,
    tools: Vec<ToolSpec>,
    before: u64,
    plan: String,
    replies: Vec<Message>,
    results: Vec<(String, u32)>,
    tokens: HashMap<String, u64>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let rig = Rig::new();
    let mut session =
        begin(rig.setup(SCRIPT), &request("time=20h,iterations=60,branches=1", &["tone"])).unwrap();
    rig::run(&mut session).unwrap();
    let id = session.state.start.session.clone();
    let path = rig::photo(&rig.library).session_folder(&id).join("transcript.jsonl");
    let lines = transcript::read(&path).unwrap().lines;
    let tokenizer = tiktoken_rs::o200k_base().unwrap();
    let count = |text: &str| tokenizer.encode_ordinary(text).len() as u64;
    let (mut tokens, mut plan) = (HashMap::new(), String::new());
    let (mut replies, mut results) = (Vec::new(), Vec::new());
    for line in lines {
        match line.event {
            Event::Plan { text } => plan = text,
            Event::ModelReply { message, .. } => replies.push(message),
            Event::ToolResult { result, .. } => results.push((result.text, result.images.len() as u32)),
            _ => {}
        }
    }
    assert!(results.iter().any(|(_, pictures)| *pictures > 0) && results.len() > 10, "{results:?}");
    for message in &replies {
        let Message::Assistant { text, calls, .. } = message else { panic!("{message:?}") };
        for part in calls.iter().flat_map(|call| [&call.name, &call.arguments]).chain([text]) {
            tokens.insert(part.clone(), count(part));
        }
    }
    for text in results.iter().map(|(text, _)| text).chain([&plan]) {
        tokens.insert(text.clone(), count(text));
    }
    let before = count(&session.system) + count(&serde_json::to_string(&session.tools).unwrap());
    let (system, tools) = (session.system.clone(), session.tools.clone());
    Words { system, tools, before, plan, replies, results, tokens }
});

/// The models that have a price and eyes, each with the dialect that it is called in.
fn models() -> Vec<(Dialect, ModelInfo)> {
    let registry = Registry::with_env(&Overlay::providers(None), |_| None);
    let mut found = Vec::new();
    for (name, _, profile) in registry.list() {
        let Ok(profile) = profile else { continue };
        for model in &profile.models {
            let (provider, model) = (name.to_owned(), Some(model.id.clone()));
            let info = registry.model_info(&Choice { provider, model, base_url: None, seed: 0 }).unwrap();
            if info.vision && !info.free && info.price.input.is_some() && info.price.output.is_some() {
                found.push((profile.dialect, info));
            }
        }
    }
    found
}

/// A vendor's server: what it counts, and what it still has of the request before.
struct Vendor {
    dialect: Dialect,
    /// Its tokens for 100 of the tokenizer's: the vendors' own are not public, and newer ones count more.
    density: u64,
    kept: Vec<u64>,
    kept_at: u64,
}

impl Vendor {
    /// Tokens of each message, the system prompt and the tools before them.
    fn counts(&self, info: &ModelInfo, state: &State) -> Vec<u64> {
        let scaled = |tokens: u64| (tokens * self.density).div_ceil(100);
        let text = |text: &str| WORDS.tokens.get(text).copied().unwrap_or(text.len() as u64 / 3);
        let counts = state.messages.iter().map(|message| {
            let said = match message {
                Message::User { text: said, .. } => text(said) + 4,
                Message::Assistant { text: said, calls, .. } => {
                    let calls = calls.iter().map(|call| text(&call.name) + text(&call.arguments) + 10);
                    text(said) + 4 + calls.sum::<u64>()
                }
                Message::Results { results } => results.iter().map(|result| text(&result.text) + 8).sum(),
            };
            scaled(said) + message.pictures().map(|picture| self.picture(info, picture)).sum::<u64>()
        });
        std::iter::once(scaled(WORDS.before)).chain(counts).collect()
    }

    /// Patches of 28 pixels at Anthropic, of 32 with a fifth on top at OpenAI, one price at Gemini; see the profiles.
    fn picture(&self, info: &ModelInfo, picture: &ImageRef) -> u64 {
        let patches =
            |edge: u32| u64::from(picture.width.div_ceil(edge)) * u64::from(picture.height.div_ceil(edge));
        let counted = match (self.dialect, info.provider.as_str()) {
            (Dialect::Messages, _) => patches(28),
            (_, "gemini") => 1_120,
            _ => (patches(32) * 6).div_ceil(5),
        };
        // Older models count fewer.
        counted.min(info.image_tokens)
    }

    /// What a call is billed: nothing of a cache that is older than five minutes or shorter than 1,024 tokens.
    fn bill(&mut self, info: &ModelInfo, counts: Vec<u64>, output: u64, now: u64) -> Usage {
        let all: u64 = counts.iter().sum();
        let same = self.kept.iter().zip(&counts).take_while(|(a, b)| a == b).map(|(a, _)| *a).sum::<u64>();
        let fresh_enough = now.saturating_sub(self.kept_at) < 300_000;
        let step = if self.dialect == Dialect::Messages { 1 } else { 128 };
        let read = if fresh_enough && same >= 1_024 { same / step * step } else { 0 };
        let read = if info.price.cache_read.is_some() { read } else { 0 };
        let writes = info.price.cache_write.is_some() && all >= 1_024;
        let written = if writes { (all / step * step).saturating_sub(read) } else { 0 };
        (self.kept, self.kept_at) = (counts, now);
        Usage {
            input_fresh: Some(all - read - written),
            input_cache_read: Some(read),
            input_cache_write: Some(written),
            output: Some(output),
            reasoning: None,
        }
    }
}

/// In micro-dollars, every part by its own price.
fn price(info: &ModelInfo, usage: &Usage) -> f64 {
    let p = info.price;
    let rows = [
        (usage.input_fresh, p.input),
        (usage.input_cache_read, p.cache_read.or(p.input)),
        (usage.input_cache_write, p.cache_write.or(p.input)),
        (usage.output, p.output),
    ];
    rows.iter().map(|(tokens, price)| tokens.unwrap_or(0) as f64 * price.unwrap_or(0) as f64 / 1e6).sum()
}

/// What became of a session.
#[derive(Default)]
struct Outcome {
    calls: usize,
    chapters: u64,
    /// Input tokens: the bounds of all calls, and what was billed.
    input: [f64; 2],
    /// Tokens, those of replies too: the bounds of all calls, and what was billed.
    tokens: [f64; 2],
    /// Money: the bounds of all calls, and the bill.
    money: [f64; 2],
    /// The bill of all calls, had each reply been as long as it may: no bound can be lower that does not know how long
    /// the reply will be.
    longest: f64,
    /// The most that the ledger held at once, settled and reserved, in micro-dollars.
    peak: f64,
    /// From the fifth turn on: tokens read from the cache, and all.
    cached: [f64; 2],
    /// Whether no turn took longer than a cache is kept.
    brisk: bool,
}

fn session(seed: u64, models: &[(Dialect, ModelInfo)]) -> Outcome {
    let mut dice = Dice(seed);
    let pick = |dice: &mut Dice, of: usize| usize::try_from(dice.below(of as u64)).unwrap();
    let (dialect, info) = models[pick(&mut dice, models.len())].clone();
    let budget = format!(
        "time=20h,iterations=900,branches=3,tokens={},cost={}",
        2_000_000 + dice.below(6_000_000),
        5 + dice.below(60)
    );
    let budget = Budget::parse(&budget).unwrap();
    let mut lines: Vec<Line> = vec![header(seed, &budget)];
    let mut state = State::begin(&lines[0], Hash::of(b""), None).unwrap();
    let mut ledger = Ledger::new(budget, Reserve::default());
    let mut now = 0;
    let mut record = |state: &mut State, ledger: &mut Ledger, now: u64, event: Event| {
        let line = line(lines.len() as u64, now, event);
        gate::fold(ledger, &line);
        state.fold(&line);
        lines.push(line);
        lines.len() as u64 - 1
    };
    record(&mut state, &mut ledger, now, Event::Plan { text: WORDS.plan.clone() });
    let mut vendor = Vendor { dialect, density: 100 + dice.below(36), kept: Vec::new(), kept_at: 0 };
    let turns = if dice.chance(60) { TURNS[0] } else { 2 + pick(&mut dice, 58) };
    let long = dice.chance(40);
    let mut outcome = Outcome { brisk: true, ..Outcome::default() };
    for turn in 1..=turns {
        let sent = pricing::conversation(&info, &state, &WORDS.system, &WORDS.tools);
        if let Some(cause) = chapter::due(&info, &state, sent) {
            let (messages, text) = (state.messages.len() as u64, WORDS.plan.clone());
            record(
                &mut state,
                &mut ledger,
                now,
                Event::Chapter { cause, messages, text, images: Vec::new() },
            );
            outcome.chapters += 1;
            continue;
        }
        let (keep, bound) = pricing::bounded(&info, &ledger, sent);
        if ledger.admit(&bound.reserved, std::time::Duration::from_millis(now)).is_err() {
            break;
        }
        let intent = record(
            &mut state,
            &mut ledger,
            now,
            Event::ModelIntent(ModelIntent {
                turn: turn as u64,
                attempt: 1,
                reserved: bound.reserved,
                max_output_tokens: bound.max_output_tokens,
                messages: 0,
                keep,
            }),
        );
        let held = ledger.settled().plus(ledger.reserved());
        outcome.peak = outcome.peak.max(held.cost_micro_usd as f64);
        // A reply of the session, and sometimes thoughts before it, to the limit of the reply.
        let mut message = WORDS.replies[pick(&mut dice, WORDS.replies.len())].clone();
        let said = message.text_bytes() as u64;
        let Message::Assistant { calls, .. } = &mut message else { panic!("no reply") };
        for (n, call) in calls.iter_mut().enumerate() {
            call.id = format!("c{turn}_{n}");
        }
        let calls: Vec<ToolCall> = calls.clone();
        let thought = if dice.chance(30) { dice.below(4_096) } else { 0 };
        let output = (said * vendor.density / 300 + 20 + thought).min(bound.max_output_tokens.into());
        let usage = vendor.bill(&info, vendor.counts(&info, &state), output, now);
        let (bill, read) = (price(&info, &usage), usage.input_cache_read.unwrap());
        let input = usage.total().unwrap() - output;
        let told = || format!("seed {seed}, turn {turn}, {}: {bound:?} and {usage:?}", info.model);
        assert!(bound.input.most >= input && bound.reserved.tokens >= input + output, "{}", told());
        assert!(bound.reserved.cost_micro_usd as f64 >= bill, "{}: {bill}", told());
        let reply = ModelReply {
            message: message.clone(),
            finish: Finish::ToolCalls,
            usage,
            cost_micro_usd: None,
            model_served: None,
            raw: Vec::new(),
            first_byte: None,
            notes: Vec::new(),
        };
        let settled = pricing::settle(&info, &bound, Some(&Ok(reply)));
        assert!(settled.notes.is_empty(), "{}: {:?}", told(), settled.notes);
        let charged = settled.amounts.cost_micro_usd as f64;
        assert!(charged >= bill && charged < bill + 4.0, "{}: {charged} charged, {bill} billed", told());
        outcome.calls += 1;
        outcome.input = [outcome.input[0] + bound.input.most as f64, outcome.input[1] + input as f64];
        outcome.tokens =
            [outcome.tokens[0] + bound.reserved.tokens as f64, outcome.tokens[1] + (input + output) as f64];
        outcome.money = [outcome.money[0] + bound.reserved.cost_micro_usd as f64, outcome.money[1] + bill];
        let longest = Usage { output: Some(bound.max_output_tokens.into()), ..usage };
        outcome.longest += price(&info, &longest);
        if turn >= TURNS[1] {
            outcome.cached = [outcome.cached[0] + read as f64, outcome.cached[1] + input as f64];
        }
        let event = Event::ModelReply {
            intent,
            message,
            finish: Finish::ToolCalls,
            usage,
            settled: settled.amounts,
            cost_by_kind: settled.by_kind,
            cost_source: settled.source,
            model_served: None,
            raw: Hash::of(b""),
            ms: 1,
            notes: Vec::new(),
        };
        now += 1 + dice.below(40_000);
        if long && dice.chance(5) {
            now += 300_000 + dice.below(600_000);
            outcome.brisk = false;
        }
        record(&mut state, &mut ledger, now, event);
        for call in &calls {
            let (text, pictures) = &WORDS.results[pick(&mut dice, WORDS.results.len())];
            let images = (0..*pictures).map(|_| ImageRef {
                sha256: Hash::of(b""),
                media_type: "image/jpeg".into(),
                width: 1_024,
                height: 512 + u32::try_from(dice.below(512)).unwrap(),
                bytes: 90_000,
                caption: "a preview".into(),
            });
            let result = ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                text: text.clone(),
                images: images.collect(),
                is_error: false,
                figures: serde_json::Map::new(),
            };
            let head = HeadState { branch: None, commit: Hash::of(b""), state: Hash::of(b"") };
            let settled = Amounts::default();
            let event = Event::ToolResult { intent: None, result, code: None, settled, head, ms: 1 };
            record(&mut state, &mut ledger, now, event);
        }
    }
    outcome
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
fn simulated_bills_stay_below_their_bounds_and_most_is_read_from_the_cache() {
    let sessions =
        std::env::var("CHEMIGRAM_TEST_SESSIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(SESSIONS);
    let models = models();
    assert!(models.len() > 8, "{}", models.len());
    let outcomes: Vec<Outcome> =
        (0..sessions).map(|seed| session(seed, &models)).filter(|o| o.calls > 0).collect();
    let ratio = |pair: [f64; 2]| pair[0] / pair[1];
    let input = median(outcomes.iter().map(|o| ratio(o.input)));
    let tokens = median(outcomes.iter().map(|o| ratio(o.tokens)));
    let money = median(outcomes.iter().map(|o| ratio(o.money)));
    let longest = median(outcomes.iter().map(|o| o.longest / o.money[1]));
    let peak = median(outcomes.iter().map(|o| o.peak / o.money[1]));
    let long = median(outcomes.iter().filter(|o| o.calls >= TURNS[0]).map(|o| o.peak / o.money[1]));
    let judged =
        || outcomes.iter().filter(|o| o.brisk && o.calls >= TURNS[0] && o.chapters == 0 && o.cached[0] > 0.0);
    let mut hits: Vec<f64> = judged().map(|o| ratio(o.cached)).collect();
    hits.sort_by(f64::total_cmp);
    let calls: usize = outcomes.iter().map(|o| o.calls).sum();
    let chapters: u64 = outcomes.iter().map(|o| o.chapters).sum();
    println!(
        "{} sessions of {} models, {calls} calls, {chapters} chapters; medians: bound of the input {input:.2} times \
         what was read, of all tokens {tokens:.2} times; bound of the money of all calls {money:.2} times the bill (that of one that knows all but the length \
         of the replies {longest:.2}), most that was ever held for a session {peak:.2} times its bill ({long:.2} from {} turns on); hit ratio {:.3}, at worst {:.3} ({} sessions)",
        outcomes.len(),
        models.len(),
        TURNS[0],
        hits[hits.len() / 2],
        hits[0],
        hits.len(),
    );
    assert!(input < 1.5 && tokens < 1.5 && peak < 1.5 && hits[0] >= 0.9 && hits.len() as u64 * 10 > sessions);
}
