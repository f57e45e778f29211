//! What to do next: read the context, confirm, read the vocabulary, explore branch after branch, end.

use serde_json::{Map, Value, json};

use crate::conversation::{Message, ToolCall, ToolSpec};
use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::lot;
use crate::provider::explorer::memory::{Branch, Memory, Settings, unkey};
use crate::provider::explorer::search::{self, Edit, Step};
use crate::provider::explorer::second::{telling, wishing};
use crate::provider::explorer::stage::Stage;
use crate::provider::explorer::{Habit, words};

/// How often the end is asked for before silence has to do.
const ENDS: u32 = 3;

/// The share of the usual strength that the timid one dares.
const TIMID: f64 = 0.25;

/// The next reply.
pub(super) fn next(
    messages: &[Message],
    (brief, tools): (&str, &[ToolSpec]),
    seed: u64,
    habit: Habit,
) -> Message {
    let mut memory = Memory::of(messages, brief, seed, habit);
    memory.offered = tools.iter().map(|tool| tool.name.clone()).collect();
    let mut reply = Reply { number: memory.replies + 1, text: String::new(), calls: Vec::new() };
    decide(&memory, &mut reply);
    Message::Assistant { text: reply.text, calls: reply.calls, opaque: Vec::new() }
}

/// A reply in the making.
struct Reply {
    number: usize,
    text: String,
    calls: Vec<ToolCall>,
}

impl Reply {
    fn say(&mut self, text: impl Into<String>) {
        self.text = text.into();
    }

    fn call(&mut self, name: &str, arguments: &Value) {
        let id = format!("call_{}_{}", self.number, self.calls.len() + 1);
        let arguments = arguments.to_string();
        self.calls.push(ToolCall { id, name: name.into(), arguments, extra: serde_json::Map::new() });
    }
}

fn decide(memory: &Memory, reply: &mut Reply) {
    if memory.ended {
        return reply.say("The session has ended.");
    }
    if let Some(stage) = &memory.stage {
        return steered(memory, stage, reply);
    }
    if memory.closing {
        return conclude(memory, reply);
    }
    if !memory.called("confirm_session") {
        if !memory.called("read_context") && memory.affords_context() {
            reply.say(
                "I read the context first. I work from numbers alone, so prose reaches me only as axes.",
            );
            return reply.call("read_context", &json!({}));
        }
        return confirm(memory, reply);
    }
    if memory.outcomes("confirm_session").0 == 0 {
        return conclude(memory, reply);
    }
    if !memory.called("list_vocabulary") {
        reply.say("Which moves push the axes that were asked for?");
        return reply.call("list_vocabulary", &json!({ "details": true }));
    }
    if wants_baseline(memory) {
        reply.say("The baseline's own figures, to hold every try against.");
        return reply.call("render_preview", &json!({ "ref": "baseline" }));
    }
    if let Some(branch) = memory.branches.iter().rev().find(|branch| branch.is_open()) {
        return work(memory, branch, reply);
    }
    match memory.next_branch().and_then(|(place, share, _)| Some((memory.plan.get(place)?, share))) {
        Some((planned, share)) if !memory.moves.is_empty() => {
            reply.say(format!("{}: at most {share} iterations.", planned.name));
            reply.call("branch", &json!({ "name": planned.name }));
        }
        _ => conclude(memory, reply),
    }
}

/// Whether explorer-2 has still to look at the baseline.
fn wants_baseline(memory: &Memory) -> bool {
    let looked = memory.baseline.is_some() || memory.outcomes("render_preview").1 > 0;
    memory.habit == Habit::Wishing && !looked && memory.affords(4)
}

/// What a state of a protocol asks for, as far as its tools say.
fn steered(memory: &Memory, stage: &Stage, reply: &mut Reply) {
    let list = |reply: &mut Reply| {
        reply.say("Which moves push the axes that were asked for?");
        reply.call("list_vocabulary", &json!({ "details": true }));
    };
    let unread = |tool: &str| stage.may(tool) && !memory.called(tool);
    let confirmed = memory.outcomes("confirm_session");
    if stage.may("confirm_session") && confirmed.0 == 0 && confirmed.1 < 2 {
        if unread("read_context") && memory.affords_context() {
            return reply.call("read_context", &json!({}));
        }
        if unread("list_vocabulary") {
            return list(reply);
        }
        return confirm(memory, reply);
    }
    let here = memory.standing().filter(|branch| stage.branch.as_ref() == Some(&branch.name));
    if stage.may("apply_primitive")
        && let Some(branch) = here
    {
        if unread("list_vocabulary") {
            return list(reply);
        }
        if stage.may("render_preview") && wants_baseline(memory) {
            return reply.call("render_preview", &json!({ "ref": "baseline" }));
        }
        if explore(memory, branch, reply) {
            return;
        }
    } else if stage.may("end_mode_b_session") {
        return conclude(memory, reply);
    } else if stage.may("record_judgment")
        && let Some(branch) = here.filter(|branch| branch.refusals < 2)
    {
        return judge(memory, branch, reply);
    }
    reply.say("This state has what it asked for.");
    reply.call("attempt_done", &json!({}));
}

fn confirm(memory: &Memory, reply: &mut Reply) {
    let wishes =
        memory.plan.iter().enumerate().filter_map(|(at, planned)| Some((at, planned.goal.as_ref()?)));
    let vectors: Vec<Value> = wishes
        .map(|(at, goal)| {
            let restated = match memory.habit {
                Habit::Wishing => telling::restated(goal, &memory.reading(Some(goal), at)),
                _ => words::restated(&Aim::of(Some(goal), at)),
            };
            json!({"name": goal.name, "restated": restated})
        })
        .collect();
    reply.say("This is how I read the plan.");
    reply.call("confirm_session", &json!({ "vectors": vectors }));
}

fn work(memory: &Memory, branch: &Branch, reply: &mut Reply) {
    if memory.standing().is_none_or(|standing| standing.name != branch.name) {
        if memory.outcomes("checkout").1 == 0 && memory.affords(1) {
            return reply.call("checkout", &json!({ "ref": branch.name }));
        }
        return judge(memory, branch, reply);
    }
    if !explore(memory, branch, reply) {
        judge(memory, branch, reply);
    }
}

/// The next try on a branch, or the way back to the best of them; `false` when the branch is as it should be.
fn explore(memory: &Memory, branch: &Branch, reply: &mut Reply) -> bool {
    let step = match memory.habit {
        Habit::Random if branch.trials.is_empty() => {
            Step::Try(lot::drawn(&memory.moves, branch, memory.seed))
        }
        Habit::Random => return false,
        Habit::FirstTry => search::first(branch, 1.0),
        Habit::Timid => search::first(branch, TIMID),
        Habit::Searching | Habit::Forgetful => search::next(branch),
        Habit::Wishing => wishing::next(branch, memory.baseline.as_ref(), &memory.moves),
    };
    if !branch.settled
        && let Step::Try(goal) = step
    {
        let number = branch.trials.len() + 1;
        reply.say(format!("{}, try {number}: {}", branch.name, words::setting(&goal)));
        edit(branch, &goal, &format!("{}: try {number}", branch.name), reply);
        reply.call("render_preview", &json!({}));
        return true;
    }
    match words::kept(memory, branch) {
        Some(best) if best.goal != branch.settings && !branch.settled => {
            reply.say(format!("{}: back to the best setting, {}", branch.name, words::setting(&best.goal)));
            edit(branch, &best.goal, &format!("{}: the best of {}", branch.name, branch.trials.len()), reply);
            true
        }
        _ => false,
    }
}

/// The calls that lead from what is in effect to a setting. The label says why in the history, and keeps
/// the same edit on two branches from looking like a call repeated by mistake.
fn edit(branch: &Branch, goal: &Settings, label: &str, reply: &mut Reply) {
    let masked = branch.settings.keys().chain(goal.keys()).any(|key| unkey(key).1.is_some());
    let way = if masked { wishing::way } else { search::way };
    for edit in way(&branch.settings, goal) {
        match edit {
            Edit::Reset => reply.call("reset", &json!({})),
            Edit::Remove(name) => reply.call("remove_module", &json!({ "module": name })),
            Edit::Apply(name) => {
                let values = goal.get(&name);
                let (name, mask) = unkey(&name);
                let mut arguments =
                    json!({"primitive_name": name, "parameter_values": values, "label": label});
                if let (Some(mask), Some(fields)) = (mask, arguments.as_object_mut()) {
                    fields.insert("mask".into(), mask);
                }
                reply.call("apply_primitive", &arguments);
            }
        }
    }
}

/// Judges a branch by the best that was seen of it. A judgment that was refused is made once more, with the
/// moves that the engine named.
fn judge(memory: &Memory, branch: &Branch, reply: &mut Reply) {
    let again = branch.refusals > 0;
    let mut arguments = Map::new();
    let mut set = |field: &str, value: Value| arguments.insert(field.to_owned(), value);
    set("branch", branch.name.as_str().into());
    let told = (memory.habit == Habit::Wishing).then(|| telling::judged(memory, branch));
    let (reasoning, score) = match told {
        Some((reasoning, score)) => (reasoning, Some(score)),
        None => (words::reasoning(branch), None),
    };
    set("judged_reasoning", reasoning.into());
    if !memory.criteria.is_empty() {
        let unanswered = "Measurements do not tell: look at the picture.";
        let answers = memory.criteria.iter().map(|name| (name.clone(), Value::from(unanswered)));
        set("criteria", Value::Object(answers.collect()));
    }
    match words::kept(memory, branch).and_then(|best| Some((best, best.figures.as_ref()?))) {
        Some((best, figures)) => {
            let moves = if again { &branch.real_moves } else { &figures.ops };
            let comparable = !figures.difference.resized && figures.difference.mean <= 12.0;
            set(
                "judged_score",
                score.unwrap_or_else(|| search::score(search::merit(&branch.aim, figures))).into(),
            );
            set("comparable_to_baseline", comparable.into());
            set("key_moves", moves.as_slice().into());
            // When the best could not be restored, its own commit is judged.
            if best.goal != branch.settings {
                set("hash", figures.commit.clone().into());
            }
        }
        None => {
            set("judged_score", search::ABANDONED.into());
            set("abandoned", (!again).into());
        }
    }
    reply.say(format!("{}: judged by its numbers.", branch.name));
    reply.call("record_judgment", &arguments.into());
}

/// Judges what is not judged; then leaves what was learned, and ends.
fn conclude(memory: &Memory, reply: &mut Reply) {
    let told = |branch: &&Branch| match &memory.stage {
        Some(stage) => stage.unjudged.contains(&branch.name),
        None => true,
    };
    let open: Vec<&Branch> = memory.branches.iter().filter(|b| b.is_open()).filter(told).collect();
    if !open.is_empty() {
        open.into_iter().for_each(|branch| judge(memory, branch, reply));
        return;
    }
    if memory.outcomes("end_mode_b_session").1 >= ENDS {
        return reply.say("The session does not let itself be ended; nothing is left to do.");
    }
    if let Some(note) = words::note(memory)
        .filter(|_| memory.may("propose_notes_update") && !memory.called("propose_notes_update"))
    {
        reply.call("propose_notes_update", &json!({ "text": note }));
    }
    let gaps = memory.may("log_vocabulary_gap") && !memory.called("log_vocabulary_gap");
    if !memory.moves.is_empty() && gaps {
        // The last iteration stays: a session that uses it up is ended by its cap.
        for (goal, _) in memory.gaps().zip(2..).take_while(|(_, calls)| memory.affords(*calls)) {
            reply.call("log_vocabulary_gap", &words::gap(goal));
        }
    }
    reply.say("Nothing is left to explore.");
    reply.call("end_mode_b_session", &json!({ "session_summary": words::summary(memory) }));
}
