//! Random agents behind random providers, folded as a real session is: whatever they do, no cap is passed beyond
//! what is said of it, every call has one result, and every transcript folds to the same state.
//!
//! What the driver does with files, wires and darktable is thrown dice for here; what decides is the real thing:
//! [`State`], the ledger, the gate's fold and the prices. `CHEMIGRAM_TEST_AGENTS` says how many agents.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::budget::{Amounts, Budget, Ledger, Reserve, Stage};
use crate::conversation::{Finish, Message, ToolCall, ToolResult, Usage};
use crate::gate;
use crate::provider::{FaultClass, ModelInfo, ModelReply, Price, ProviderFault};
use crate::session::next::{Effect, StopRequest};
use crate::session::pricing;
use crate::session::state::State;
use crate::tools;
use crate::transcript::{
    Event, HeadState, Line, Mode, ModelIntent, Outcome, RenderIntent, SessionEnd, SessionStart, ToolIntent,
};
use base::error::ErrorCode;
use base::ids::{Hash, RefName, SessionId};
use darktable::render::Quality;

const AGENTS: u64 = 5_000;
const SYSTEM: &str = "You edit a photograph.";
const TOOLS: &[&str] = &[
    "confirm_session",
    "branch",
    "apply_primitive",
    "render_preview",
    "compare",
    "read_context",
    "mode_b_status",
    "record_judgment",
    "end_mode_b_session",
    "ask_clarification",
    "no_such_tool",
];

/// SplitMix64.
pub(super) struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A session under dice.
struct Agent {
    dice: Dice,
    lines: Vec<Line>,
    state: State,
    ledger: Ledger,
    info: ModelInfo,
    clock_ms: u64,
    ids: u64,
    halt: StopRequest,
    /// By how much a call was settled above its reservation at most: tokens, cost.
    excess: (u64, u64),
}

fn model(dice: &mut Dice) -> ModelInfo {
    let free = dice.chance(25);
    let priced = !free && dice.chance(85);
    let price = |dice: &mut Dice| priced.then(|| 1 + dice.below(20_000_000));
    ModelInfo {
        provider: "p".into(),
        model: "m".into(),
        vision: true,
        context: None,
        free,
        price: Price {
            input: price(dice),
            output: price(dice),
            cache_read: None,
            cache_write: if dice.chance(30) { price(dice) } else { None },
        },
        image_tokens: 1600,
        facts: BTreeMap::new(),
    }
}

fn budget(dice: &mut Dice) -> Budget {
    let optional = |dice: &mut Dice, amount: u64| dice.chance(50).then_some(1 + amount);
    let (tokens, cost, renders) = (dice.below(120_000), dice.below(2_000_000), dice.below(12));
    Budget {
        time_seconds: 5 + dice.below(1800),
        max_iterations: 1 + dice.below(30),
        max_branches: 1 + dice.below(4),
        max_tokens: optional(dice, tokens),
        max_cost_micro_usd: optional(dice, cost),
        max_renders: optional(dice, renders),
        max_model_calls: if dice.chance(10) { Some(1 + dice.below(20)) } else { None },
    }
}

fn payable(dice: &mut Dice, budget: &Budget) -> ModelInfo {
    // As at a start and at every resume.
    loop {
        let info = model(dice);
        if pricing::payable(&info, budget).is_ok() {
            return info;
        }
    }
}

/// The first line of a session.
pub(super) fn header(seed: u64, budget: &Budget) -> Line {
    let hash = Hash::of(b"");
    let start = SessionStart {
        session: SessionId::mint(),
        mode: Mode::ModeB,
        photo: "p".parse().unwrap(),
        raw_sha256: hash.clone(),
        baseline: hash.clone(),
        baseline_ref: "main".into(),
        brief: String::new(),
        named_criteria: BTreeMap::new(),
        criteria: String::new(),
        branches: Vec::new(),
        budget: budget.clone(),
        reserve: Reserve::default(),
        provider: "p".into(),
        model: "m".into(),
        prompt: "p@1".into(),
        template_sha256: hash.clone(),
        system: hash.clone(),
        tools: hash.clone(),
        preview_edge: 1024,
        proxy: None,
        unattended: true,
        seed,
        darktable: "4.2.1".into(),
        chemigram: "0".into(),
        protocol: None,
        referee: None,
        fallback: None,
        hands_back: Vec::new(),
    };
    line(0, 0, Event::SessionStart(Box::new(start)))
}

impl Agent {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let budget = budget(&mut dice);
        let info = payable(&mut dice, &budget);
        let hash = Hash::of(b"");
        let header = header(seed, &budget);
        let state = State::begin(&header, hash, None).unwrap();
        let ledger = Ledger::new(budget, Reserve::default());
        let mut agent = Self {
            dice,
            lines: vec![header],
            state,
            ledger,
            info,
            clock_ms: 0,
            ids: 0,
            halt: StopRequest::None,
            excess: (0, 0),
        };
        agent.record(Event::Plan { text: "Push tone.".into() });
        agent
    }

    fn record(&mut self, event: Event) -> u64 {
        let line = line(self.lines.len() as u64, self.clock_ms, event);
        gate::fold(&mut self.ledger, &line);
        self.state.fold(&line);
        self.lines.push(line);
        self.lines.len() as u64 - 1
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.clock_ms)
    }

    /// Time passes, to the stage's end at most; whether it was cut there.
    fn pass(&mut self, most_ms: u64) -> bool {
        let end = u64::try_from(self.ledger.stage_end().as_millis()).unwrap();
        let until = self.clock_ms + self.dice.below(most_ms + 1);
        let cut = until >= end;
        self.clock_ms = until.min(end).max(self.clock_ms);
        cut
    }

    /// Runs to the end; the number of steps is bounded by the caps themselves.
    fn run(&mut self) {
        for _ in 0..3_000 {
            self.check();
            if self.dice.chance(1) {
                self.halt = if self.dice.chance(50) { StopRequest::WrapUp } else { StopRequest::Now };
            }
            match self.state.next(&self.ledger, self.elapsed(), self.halt) {
                Effect::Model { turn, attempt, pause } => self.call(turn, attempt, pause),
                Effect::Tool(call) => self.tool(&call),
                Effect::Skip(call, _) => {
                    self.result(None, &call, Some(ErrorCode::SkippedAfterError), Amounts::default())
                }
                Effect::Redo { seq, intent } => {
                    self.result(Some(seq), &intent.call, None, Amounts::default())
                }
                Effect::Nudge(text) => {
                    self.record(Event::Nudge { text });
                }
                Effect::Flag(branch, flag) => {
                    self.record(Event::Flagged { branch, flag });
                }
                Effect::WrapUp { cap, reason } => {
                    if let Some(exhausted) = cap.filter(|_| self.state.cap.is_none()) {
                        self.record(Event::CapFired { exhausted });
                    }
                    self.record(Event::WrapUp { reason, text: "Close.".into() });
                }
                Effect::Finish { outcome, reason } => self.finish(outcome, reason),
                Effect::Done if self.dice.chance(25) => self.take_up(),
                Effect::Done => return,
                other => panic!("nothing steers here: {other:?}"),
            }
        }
        panic!("it never ends: {:?}", self.lines.last());
    }

    fn call(&mut self, turn: u64, attempt: u32, pause: Duration) {
        self.pass(u64::try_from(pause.as_millis()).unwrap());
        let info = self.info.clone();
        let sent = pricing::conversation(&info, &self.state, SYSTEM, &[]);
        let keep = pricing::closing(&info, sent, self.ledger.budget());
        let ledger = self.ledger.clone().keeping(keep);
        let bound = pricing::bound(&info, &ledger, sent, pricing::MAX_OUTPUT_TOKENS);
        if let Err(exhausted) = ledger.admit(&bound.reserved, self.elapsed()) {
            self.record(Event::CapFired { exhausted });
            if self.ledger.stage() == Stage::WrapUp {
                self.finish(Outcome::BudgetExhausted, exhausted.to_string());
            }
            return;
        }
        let intent = self.record(Event::ModelIntent(ModelIntent {
            turn,
            attempt,
            reserved: bound.reserved,
            max_output_tokens: bound.max_output_tokens,
            messages: self.state.messages.len() as u64,
            keep,
        }));
        if self.dice.chance(3) {
            return self.crash();
        }
        let ms = 30_000;
        let failed = |class, pause_ms, settled| Event::Attempt {
            intent,
            class,
            status: None,
            message: "m".into(),
            pause_ms,
            settled,
            ms: 1,
            raw: None,
        };
        if self.pass(ms) {
            self.record(failed(FaultClass::Deadline, None, bound.reserved));
            return;
        }
        if self.dice.chance(20) {
            let fault = ProviderFault {
                provider: "p".into(),
                class: FaultClass::Transport,
                status: None,
                message: "m".into(),
                remedy: None,
                retry_after: None,
                sent: self.dice.chance(60),
                usage: if self.dice.chance(70) { Usage::default() } else { self.usage(bound.input.most) },
                raw: Vec::new(),
            };
            let settled = pricing::settle(&info, &bound, Some(&Err(fault))).amounts;
            let again = (attempt < 4 && self.dice.chance(70)).then_some(500);
            self.exceeds(&bound.reserved, &settled);
            self.record(failed(FaultClass::Transport, again, settled));
            return;
        }
        let calls: Vec<ToolCall> = (0..self.dice.below(4)).map(|_| self.some_call()).collect();
        let text = "x".repeat(usize::try_from(self.dice.below(400)).unwrap());
        let message = Message::Assistant { text, calls, opaque: Vec::new() };
        let usage = self.usage(bound.input.most);
        let cost_micro_usd = self.dice.chance(20).then(|| self.dice.below(20_000));
        let reply = ModelReply {
            message,
            finish: Finish::Stop,
            usage,
            cost_micro_usd,
            model_served: None,
            raw: Vec::new(),
            first_byte: None,
            notes: Vec::new(),
        };
        let came = Ok(reply.clone());
        let settled = pricing::settle(&info, &bound, Some(&came));
        self.exceeds(&bound.reserved, &settled.amounts);
        self.record(Event::ModelReply {
            intent,
            message: reply.message,
            finish: reply.finish,
            usage,
            settled: settled.amounts,
            cost_source: settled.source,
            cost_by_kind: settled.by_kind,
            model_served: None,
            raw: Hash::of(b""),
            ms: 1,
            notes: settled.notes,
        });
    }

    fn exceeds(&mut self, reserved: &Amounts, settled: &Amounts) {
        let above = settled.minus(*reserved);
        self.excess = (self.excess.0.max(above.tokens), self.excess.1.max(above.cost_micro_usd));
    }

    /// Honest mostly; else nothing, half of it, a lie, or more than the bound.
    fn usage(&mut self, most: u64) -> Usage {
        let honest = Usage {
            input_fresh: Some(most / 2 + self.dice.below(most / 2 + 1)),
            output: Some(self.dice.below(500)),
            ..Usage::default()
        };
        match self.dice.below(10) {
            0 => Usage::default(),
            1 => Usage { input_fresh: None, ..honest },
            2 => Usage { output: None, ..honest },
            3 => Usage { input_fresh: Some(1), output: Some(1), ..honest },
            4 => Usage { input_fresh: Some(most * 3), input_cache_read: Some(most), ..honest },
            _ => honest,
        }
    }

    fn some_call(&mut self) -> ToolCall {
        self.ids += 1;
        let name = TOOLS[usize::try_from(self.dice.below(TOOLS.len() as u64)).unwrap()].to_owned();
        let arguments = format!("{{\"n\": {}}}", self.dice.below(6));
        ToolCall { id: format!("c{}", self.ids), name, arguments, extra: serde_json::Map::new() }
    }

    fn tool(&mut self, call: &ToolCall) {
        let planned = self.state.restated.is_empty();
        let Some(tool) = tools::find(&call.name) else {
            return self.result(None, call, Some(ErrorCode::NotFound), Amounts::default());
        };
        let closing = self.ledger.stage() == Stage::WrapUp || self.state.cap.is_some();
        if closing && !tool.phases.closing {
            return self.result(None, call, Some(ErrorCode::BudgetExhausted), Amounts::default());
        }
        if planned && !tool.phases.planned {
            return self.result(None, call, Some(ErrorCode::SessionNotConfirmed), Amounts::default());
        }
        let mut reserved = tool.wants();
        if self.ledger.stage() == Stage::WrapUp {
            reserved.iterations = 0;
        }
        if let Err(exhausted) = self.ledger.admit(&reserved, self.elapsed()) {
            if self.state.cap.is_none() {
                self.record(Event::CapFired { exhausted });
            }
            return self.result(None, call, Some(ErrorCode::BudgetExhausted), Amounts::default());
        }
        let seq = self.record(Event::ToolCall(Box::new(ToolIntent {
            call: call.clone(),
            class: tool.class,
            reserved,
            before: self.state.head.clone(),
            target: None,
            engine: false,
        })));
        for _ in 0..self.dice.below(3) {
            if !self.render() {
                return self.result(Some(seq), call, Some(ErrorCode::BudgetExhausted), reserved);
            }
        }
        if self.dice.chance(3) {
            return self.crash();
        }
        self.pass(3_000);
        match call.name.as_str() {
            "confirm_session" => {
                let restated = [("tone".to_owned(), "Open.".to_owned())].into();
                self.record(Event::Confirmed { by: crate::transcript::Party::Agent, restated });
            }
            "branch" | "apply_primitive" => {
                let (name, commit) = (self.dice.below(3), Hash::of(self.lines.len().to_le_bytes()));
                let name = format!("refs/heads/branch_b_{name}");
                self.record(Event::SnapshotCreated {
                    name,
                    commit: commit.clone(),
                    state: commit,
                    op: String::new(),
                });
            }
            "end_mode_b_session" => {
                self.record(Event::EndRequested { summary: "Done.".into(), tag_suggestion: None });
            }
            _ => {}
        }
        self.result(Some(seq), call, None, reserved);
    }

    /// A render under a permit; false where there is no room for one.
    fn render(&mut self) -> bool {
        let reserved = Amounts { renders: 1, ..Amounts::default() };
        if self.ledger.admit(&reserved, self.elapsed()).is_err() {
            return false;
        }
        let state = Hash::of(b"");
        let intent = self.record(Event::RenderIntent(RenderIntent {
            state: state.clone(),
            long_edge: 1024,
            quality: Quality::Preview,
            reserved,
            ahead: false,
            joins: None,
            estimate_ms: None,
        }));
        self.pass(2_000);
        let settled = if self.dice.chance(90) { reserved } else { Amounts::default() };
        self.record(Event::Render {
            intent: Some(intent),
            state,
            long_edge: 1024,
            quality: Quality::Preview,
            pixel_hash: None,
            settled,
            error: None,
            ms: 1,
        });
        true
    }

    fn result(&mut self, intent: Option<u64>, call: &ToolCall, code: Option<ErrorCode>, settled: Amounts) {
        let settled = if code.is_none() { settled } else { Amounts { branches: 0, ..settled } };
        let result = ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "{}".repeat(usize::try_from(self.dice.below(200)).unwrap()),
            images: Vec::new(),
            is_error: code.is_some(),
            figures: serde_json::Map::new(),
        };
        let branch: Option<RefName> = None;
        let head = HeadState { branch, commit: Hash::of(self.ids.to_le_bytes()), state: Hash::of(b"") };
        self.record(Event::ToolResult { intent, result, code, settled, head, ms: 1 });
    }

    fn finish(&mut self, outcome: Outcome, reason: String) {
        for call in self.state.pending().cloned().collect::<Vec<_>>() {
            let intent = self.state.open_call(&call.id);
            self.result(intent, &call, Some(ErrorCode::Interrupted), Amounts::default());
        }
        let end = SessionEnd {
            outcome,
            cap: self.state.cap,
            summary: String::new(),
            spent: self.ledger.settled(),
            assumed: self.ledger.assumed(),
            wall_ms: self.clock_ms,
            model_ms: 0,
            render_ms: 0,
            lines: self.lines.len() as u64,
            reason,
        };
        self.record(Event::SessionEnd(Box::new(end)));
    }

    /// The process dies; another one takes the session up, with any model that it may.
    fn crash(&mut self) {
        self.info = payable(&mut self.dice, &self.ledger.budget().clone());
        let hidden = self.dice.below(2_000);
        self.clock_ms += hidden;
        self.halt = StopRequest::None;
        self.record(Event::Resumed { assumed_ms: hidden, torn: false });
    }

    /// The session is over, and goes on with more budget.
    fn take_up(&mut self) {
        let mut budget = self.ledger.budget().clone();
        budget.time_seconds += 1 + self.dice.below(600);
        budget.max_iterations += self.dice.below(10);
        budget.max_tokens = budget.max_tokens.map(|tokens| tokens + self.dice.below(50_000));
        self.crash();
        self.record(Event::Raised { budget });
    }

    fn check(&self) {
        let (budget, spent) = (self.ledger.budget(), self.ledger.settled().plus(self.ledger.reserved()));
        assert!(spent.iterations <= budget.max_iterations, "{spent:?} of {budget:?}");
        assert!(spent.branches <= budget.max_branches, "{spent:?} of {budget:?}");
        assert!(spent.renders <= budget.max_renders.unwrap_or(u64::MAX), "{spent:?} of {budget:?}");
        assert!(spent.model_calls <= budget.max_model_calls(), "{spent:?} of {budget:?}");
        let (tokens, cost) = self.excess;
        let most = |cap: Option<u64>, excess| cap.map_or(u64::MAX, |cap| cap.saturating_add(excess));
        assert!(
            spent.tokens <= most(budget.max_tokens, tokens),
            "{spent:?} of {budget:?}, {tokens} in excess"
        );
        let most_cost = most(budget.max_cost_micro_usd, cost);
        assert!(spent.cost_micro_usd <= most_cost, "{spent:?} of {budget:?}, {cost} in excess");
    }

    fn folds(&self) {
        let mut state = State::begin(&self.lines[0], Hash::of(b""), None).unwrap();
        let Event::SessionStart(start) = &self.lines[0].event else { panic!("no header") };
        let mut ledger = Ledger::new(start.budget.clone(), start.reserve);
        for line in &self.lines[1..] {
            state.fold(line);
            gate::fold(&mut ledger, line);
        }
        assert_eq!(ledger, self.ledger);
        assert_eq!(format!("{state:?}"), format!("{:?}", self.state));
    }
}

/// Every call of a reply has one result, and no result is without its call.
pub(super) fn answered_once(lines: &[Line]) {
    let mut results: BTreeMap<&str, u32> = BTreeMap::new();
    for line in lines {
        match &line.event {
            Event::ModelReply { message: Message::Assistant { calls, .. }, .. } => {
                results.extend(calls.iter().map(|call| (call.id.as_str(), 0)));
            }
            Event::ToolResult { result, .. } => *results.get_mut(result.call_id.as_str()).unwrap() += 1,
            _ => {}
        }
    }
    assert!(results.values().all(|count| *count == 1), "{results:?}");
}

pub(super) fn line(seq: u64, mono_ms: u64, event: Event) -> Line {
    Line { seq, t: jiff::Timestamp::UNIX_EPOCH, mono_ms, prev: Hash::of(b""), event }
}

#[test]
fn no_agent_and_no_provider_passes_a_cap() {
    let agents = std::env::var("CHEMIGRAM_TEST_AGENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(AGENTS);
    let (mut calls, mut capped) = (0, 0);
    for seed in 0..agents {
        let mut agent = Agent::new(seed);
        agent.run();
        answered_once(&agent.lines);
        if seed % 50 == 0 {
            agent.folds();
        }
        calls += agent.ledger.settled().model_calls;
        capped += u64::from(agent.lines.iter().any(|line| matches!(line.event, Event::CapFired { .. })));
    }
    // The dice are worth something only while caps fire and much is done.
    assert!(calls > agents * 3 && capped * 5 > agents, "{calls} calls, {capped} of {agents} met a cap");
}
