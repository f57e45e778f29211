//! What the explorer knows: a fold of the conversation, made anew for every reply.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::conversation::{Message, ToolCall, ToolResult};
use crate::provider::explorer::Habit;
use crate::provider::explorer::aim::Aim;
pub(super) use crate::provider::explorer::branch::{Branch, Figures, Settings, Trial, key, unkey};
use crate::provider::explorer::branch::{LEAST_SHARE, edit};
use crate::provider::explorer::candidate::{ListedMove, candidates};
use crate::provider::explorer::search;
use crate::provider::explorer::second::part;
use crate::provider::explorer::second::reading::{Reading, reading};
use crate::provider::explorer::stage::Stage;
use pixels::metrics::stats::ImageStats;

/// How the message begins that closes the exploration.
const WRAP_UP: &str = "Exploration is over";
/// Tools that cost no iteration.
const FREE: [&str; 7] = [
    "ask_clarification",
    "confirm_session",
    "end_mode_b_session",
    "mode_b_status",
    "propose_notes_update",
    "propose_taste_update",
    "record_judgment",
];
/// Iterations assumed when the plan does not say.
const UNSAID_ITERATIONS: u64 = 20;

/// A vector, as the photographer put it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Goal {
    pub name: String,
    pub direction: String,
    #[serde(default)]
    pub intensity: Option<String>,
}

/// A branch that the plan asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    pub name: String,
    /// `None` for an open-ended branch.
    pub goal: Option<Goal>,
    /// Whether it was asked for already, with or without success.
    pub tried: bool,
}

/// Everything known.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub seed: u64,
    pub habit: Habit,
    /// The photographer's brief, as the system prompt quotes it.
    pub brief: String,
    /// The figures of the baseline, once they were told.
    pub baseline: Option<ImageStats>,
    /// The branches of the plan, in order.
    pub plan: Vec<Planned>,
    /// The tools of the session; empty where nobody said.
    pub offered: Vec<String>,
    /// The names of the criteria.
    pub criteria: Vec<String>,
    max_iterations: u64,
    max_branches: u64,
    max_renders: Option<u64>,
    /// Replies given so far.
    pub replies: usize,
    iterations: u64,
    renders: u64,
    /// Tools that were called, with the answers they got: how many good, how many not.
    outcomes: BTreeMap<String, (u32, u32)>,
    /// The vocabulary, once it was listed.
    pub moves: Vec<ListedMove>,
    /// Branches made, in order.
    pub branches: Vec<Branch>,
    standing: Option<usize>,
    /// The state of the protocol, where one steers.
    pub stage: Option<Stage>,
    /// Whether only judging and ending are left.
    pub closing: bool,
    /// Whether the session has ended.
    pub ended: bool,
}

/// What a tool answered.
pub(super) enum Answer {
    Good(Value),
    Bad { code: String, details: Value },
}

impl Answer {
    /// The answer to a call. Only the first JSON value counts: what follows it is the budget.
    pub(super) fn to(call: &ToolCall, results: &[ToolResult]) -> Self {
        let found = results.iter().find(|result| result.call_id == call.id);
        let mut read = found
            .and_then(|r| serde_json::Deserializer::from_str(&r.text).into_iter::<Value>().next()?.ok())
            .unwrap_or_default();
        let mut take = |at: &str| read.pointer_mut(at).map(Value::take).unwrap_or_default();
        if take("/ok") == true {
            let mut data = take("/data");
            // What was measured in full is no part of what a model reads.
            if let (Some(data), Some(result)) = (data.as_object_mut(), found) {
                data.extend(result.figures.clone());
            }
            return Self::Good(data);
        }
        let code = take("/error/code").as_str().unwrap_or("unreadable").to_owned();
        Self::Bad { code, details: take("/error/details") }
    }
}

/// What one reply set out to do on the branch where it stands.
struct Turn {
    goal: Settings,
    edits: bool,
    /// Whether it looked, and what it saw.
    look: Option<Option<Value>>,
}

impl Memory {
    /// Reads a conversation.
    pub fn of(messages: &[Message], brief: &str, seed: u64, habit: Habit) -> Self {
        let mut memory = Self { seed, habit, brief: brief.to_owned(), ..Self::default() };
        let mut rest = messages.iter().peekable();
        while let Some(message) = rest.next() {
            match message {
                Message::User { text, .. } => memory.hear(text),
                Message::Assistant { calls, .. } => {
                    let results = match rest.peek() {
                        Some(Message::Results { results }) => results.as_slice(),
                        _ => &[],
                    };
                    memory.replied(calls, results);
                }
                Message::Results { .. } => {}
            }
        }
        memory
    }

    /// Whether a tool may be called: it is offered, and a protocol says so for each of its states.
    pub fn may(&self, tool: &str) -> bool {
        let offered = self.offered.is_empty() || self.offered.iter().any(|name| name == tool);
        offered && self.stage.as_ref().is_none_or(|stage| stage.may(tool))
    }

    /// How often a tool answered well, and how often not.
    pub fn outcomes(&self, tool: &str) -> (u32, u32) {
        self.outcomes.get(tool).copied().unwrap_or_default()
    }

    /// Whether a tool was called at all.
    pub fn called(&self, tool: &str) -> bool {
        self.outcomes.contains_key(tool)
    }

    /// The session's current branch.
    pub fn standing(&self) -> Option<&Branch> {
        self.standing.and_then(|at| self.branches.get(at))
    }

    /// Whether the budget has room for `calls` more calls.
    pub fn affords(&self, calls: u64) -> bool {
        self.iterations + calls <= self.max_iterations
    }

    /// Whether reading the context leaves enough to make every branch.
    pub fn affords_context(&self) -> bool {
        self.affords(2 + LEAST_SHARE * self.plan.len() as u64 + 1)
    }

    /// The vectors of the plan for which the vocabulary has no move.
    pub fn gaps(&self) -> impl Iterator<Item = &Goal> {
        self.plan.iter().filter_map(|planned| planned.goal.as_ref()).filter(|goal| {
            let aim = Aim::of(Some(goal), 0);
            aim.measurable && candidates(&self.moves, &aim, self.seed).is_empty()
        })
    }

    /// The next branch to make and what it may spend: iterations, and renders for trying. `None` when all
    /// are made, or what is left would not make one.
    pub fn next_branch(&self) -> Option<(usize, u64, u64)> {
        let place = self.plan.iter().position(|planned| !planned.tried)?;
        let made = self.branches.len() as u64;
        let open = self.plan.iter().filter(|planned| !planned.tried).count() as u64;
        let open = open.min(self.max_branches.saturating_sub(made));
        // One call is kept, so that the session ends by itself and not by its cap, and one for each gap.
        let reserve = 1 + self.gaps().count() as u64;
        let left = self.max_iterations.saturating_sub(self.iterations + reserve);
        let share = left.checked_div(open)?.max(LEAST_SHARE.min(left));
        let looks = match self.max_renders {
            None => u64::MAX,
            // The baseline takes two (to look and to judge), each judgment one.
            Some(cap) => (cap.saturating_sub(self.renders + 2) / open).saturating_sub(1),
        };
        (share >= LEAST_SHARE && looks > 0).then_some((place, share, looks))
    }

    fn hear(&mut self, text: &str) {
        if text.starts_with(WRAP_UP) {
            self.closing = true;
        }
        if let Some(stage) = Stage::read(text) {
            self.entered(stage);
        }
        // The first message is the plan; what comes later has no budget in it.
        if self.max_iterations == 0 {
            self.plan = text.lines().filter_map(planned).collect();
            let budget = text.lines().find_map(|line| line.strip_prefix("Budget: ")).unwrap_or_default();
            let cap = |what: &str| {
                budget.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok())
            };
            self.max_iterations = cap("iterations").unwrap_or(UNSAID_ITERATIONS);
            self.max_branches = cap("branches").unwrap_or(u64::MAX);
            self.max_renders = cap("renders");
        }
    }

    fn replied(&mut self, calls: &[ToolCall], results: &[ToolResult]) {
        self.replies += 1;
        let mut turn = self.turn();
        for call in calls {
            let answer = Answer::to(call, results);
            let arguments = serde_json::from_str::<Value>(&call.arguments).unwrap_or_default();
            let refused = matches!(&answer, Answer::Bad { code, .. } if code == "BUDGET_EXHAUSTED");
            self.closing |= refused;
            // A branch's share is what was left before it was asked for.
            let share = (call.name == "branch").then(|| self.next_branch()).flatten();
            if !refused && !FREE.contains(&call.name.as_str()) {
                self.iterations += 1;
                if let Some(branch) = self.standing.and_then(|at| self.branches.get_mut(at)) {
                    branch.spent += 1;
                }
            }
            let counts = self.outcomes.entry(call.name.clone()).or_default();
            match &answer {
                Answer::Good(_) => counts.0 += 1,
                Answer::Bad { .. } => counts.1 += 1,
            }
            match call.name.as_str() {
                "branch" | "checkout" => {
                    self.moved(call, &arguments, &answer, share);
                    turn = self.turn();
                }
                "apply_primitive" | "remove_module" | "reset" => {
                    turn.edits = true;
                    edit(&call.name, &arguments, &mut turn.goal, &self.moves);
                    if let Answer::Good(data) = &answer {
                        self.edited(&call.name, &arguments, data);
                    }
                }
                "render_preview" if arguments.get("ref").is_some_and(|at| at == "baseline") => {
                    self.renders += 1;
                    if let Answer::Good(data) = &answer {
                        self.baseline = ImageStats::deserialize(&data["stats"]).ok();
                    }
                }
                "render_preview" if arguments.get("ref").is_none_or(Value::is_null) => {
                    self.renders += 1;
                    turn.look = Some(match answer {
                        Answer::Good(data) => Some(data),
                        Answer::Bad { .. } => None,
                    });
                }
                _ => self.noted(&call.name, &arguments, answer),
            }
        }
        self.close(turn);
    }

    fn turn(&self) -> Turn {
        let goal = self.standing().map(|branch| branch.settings.clone()).unwrap_or_default();
        Turn { goal, edits: false, look: None }
    }

    /// Keeps what a reply tried. A look counts for what was meant only if every edit before it worked.
    fn close(&mut self, turn: Turn) {
        let Some(branch) = self.standing.and_then(|at| self.branches.get_mut(at)) else { return };
        match turn.look {
            Some(seen) => {
                let figures = seen
                    .filter(|_| branch.settings == turn.goal)
                    .and_then(|data| Figures::read(&data, branch.ops.values().cloned().collect()));
                branch.trials.push(Trial { goal: turn.goal, figures });
            }
            None => branch.settled |= turn.edits,
        }
    }

    fn moved(
        &mut self,
        call: &ToolCall,
        arguments: &Value,
        answer: &Answer,
        share: Option<(usize, u64, u64)>,
    ) {
        let key = if call.name == "branch" { "name" } else { "ref" };
        let asked = arguments[key].as_str().unwrap_or_default();
        let place = self.plan.iter().position(|planned| planned.name == asked);
        if call.name == "branch"
            && let Some(planned) = place.and_then(|place| self.plan.get_mut(place))
        {
            planned.tried = true;
        }
        let Answer::Good(data) = answer else { return };
        if call.name == "branch" {
            // The engine's own words for the vector are better than those of the plan's prose.
            let told = Goal::deserialize(&data["vector"]).ok();
            let goal = told.or_else(|| self.plan.get(place?)?.goal.clone());
            self.made(asked, goal.as_ref(), place.unwrap_or_default(), share);
        }
        self.standing = self.branches.iter().rposition(|branch| branch.name == asked);
    }

    /// Takes in a branch that was made.
    fn made(&mut self, asked: &str, goal: Option<&Goal>, place: usize, share: Option<(usize, u64, u64)>) {
        let aim = Aim::of(goal, place);
        let (_, share, looks) = share.unwrap_or((0, LEAST_SHARE, 1));
        let reading = match self.habit {
            Habit::Wishing => self.reading(goal, place),
            _ => Reading::default(),
        };
        self.branches.push(Branch {
            candidates: candidates(&self.moves, &aim, self.seed),
            parts: part::parts(&reading, &aim, &self.moves),
            reading,
            share,
            looks,
            ..Branch::fresh(asked, aim)
        });
    }

    /// What is read for a branch.
    pub fn reading(&self, goal: Option<&Goal>, place: usize) -> Reading {
        let open = self.plan.iter().filter(|planned| planned.goal.is_none()).count();
        let read = reading(&self.brief, goal, self.plan.len() <= 1);
        if goal.is_none() && open > 1 { read.variant(place) } else { read }
    }

    /// An attempt of a protocol begins.
    fn entered(&mut self, stage: Stage) {
        if let Some(name) = stage.branch.clone() {
            if self.branches.iter().all(|branch| branch.name != name) {
                // The engine made it, which cost an iteration as a call of one's own does; so will its tag.
                let place = self.plan.iter().position(|planned| planned.name == name);
                let share = self.next_branch().map(|(_, share, looks)| (0, share, looks));
                let share = share.or_else(|| self.unplanned_share());
                let goal = place.and_then(|place| self.plan.get(place)?.goal.clone());
                // A protocol's own variables, where no plan names a direction.
                let told =
                    || Some(Goal { name: "move".into(), direction: stage.direction()?, intensity: None });
                let argued = goal.is_none() && self.habit == Habit::Wishing && stage.direction().is_some();
                let goal = goal.or_else(|| told().filter(|_| argued));
                if let Some(planned) = place.and_then(|place| self.plan.get_mut(place)) {
                    planned.tried = true;
                }
                self.iterations += 2;
                self.made(&name, goal.as_ref(), place.unwrap_or(self.branches.len()), share);
                self.branches.iter_mut().filter(|branch| branch.name == name).for_each(|b| b.argued = argued);
            }
            self.standing = self.branches.iter().rposition(|branch| branch.name == name);
        }
        if let Some(branch) = self.standing.and_then(|at| self.branches.get_mut(at))
            && stage.may("apply_primitive")
        {
            let again = stage.attempt > 1 || stage.visit > 1;
            if again && !branch.settings.is_empty() && !branch.rejected.contains(&branch.settings) {
                branch.rejected.push(branch.settings.clone());
            }
            if stage.taken_back {
                (branch.settings, branch.ops) = branch.entry.clone();
            }
            branch.entry = (branch.settings.clone(), branch.ops.clone());
            branch.settled = false;
            (branch.judged, branch.refusals) = (None, 0);
        }
        for branch in self.branches.iter_mut().filter(|branch| stage.given_up.contains(&branch.name)) {
            branch.judged = Some((u64::from(search::ABANDONED), true));
        }
        self.stage = Some(stage);
    }

    /// What a branch may spend that no plan names.
    fn unplanned_share(&self) -> Option<(usize, u64, u64)> {
        let open = self.max_branches.saturating_sub(self.branches.len() as u64).clamp(1, 8);
        let left = self.max_iterations.saturating_sub(self.iterations + 1);
        let looks = self.max_renders.map_or(u64::MAX, |cap| cap.saturating_sub(self.renders + 2) / open);
        Some((0, left / open, looks))
    }

    /// Follows an edit that worked.
    fn edited(&mut self, tool: &str, arguments: &Value, data: &Value) {
        let Some(branch) = self.standing.and_then(|at| self.branches.get_mut(at)) else { return };
        edit(tool, arguments, &mut branch.settings, &self.moves);
        if let (Some(name), Some(op)) = (arguments["primitive_name"].as_str(), data["op"].as_str()) {
            branch.ops.insert(key(name, arguments.get("mask")), op.to_owned());
        }
        let settings = &branch.settings;
        branch.ops.retain(|name, _| settings.contains_key(name));
    }

    fn noted(&mut self, tool: &str, arguments: &Value, answer: Answer) {
        match (tool, answer) {
            ("list_vocabulary", Answer::Good(data)) => {
                let listed = data.get("moves").and_then(Value::as_array).into_iter().flatten();
                self.moves = listed.filter_map(|row| ListedMove::deserialize(row).ok()).collect();
                for branch in self.branches.iter_mut().filter(|branch| branch.candidates.is_empty()) {
                    branch.candidates = candidates(&self.moves, &branch.aim, self.seed);
                    branch.parts = part::parts(&branch.reading, &branch.aim, &self.moves);
                }
            }
            ("confirm_session", Answer::Good(data)) => {
                let names = data.get("criteria").and_then(Value::as_array).into_iter().flatten();
                self.criteria = names.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
                // Branches that the prose of the plan did not give away.
                let rows = data.get("branches_to_make").and_then(Value::as_array);
                for row in rows.into_iter().flatten() {
                    let Some(name) = row["branch"].as_str() else { continue };
                    if self.plan.iter().all(|planned| planned.name != name) {
                        let vector = row["vector"].as_str().map(str::to_owned);
                        let goal = vector.map(|name| Goal { name, ..Goal::default() });
                        self.plan.push(Planned { name: name.to_owned(), goal, tried: false });
                    }
                }
            }
            ("end_mode_b_session", Answer::Good(_)) => self.ended = true,
            ("record_judgment", answer) => {
                let name = arguments["branch"].as_str().unwrap_or_default();
                let Some(branch) = self.branches.iter_mut().find(|branch| branch.name == name) else {
                    return;
                };
                match answer {
                    Answer::Good(_) => {
                        let score = arguments["judged_score"].as_u64().unwrap_or(3);
                        branch.judged = Some((score, arguments["abandoned"] == true));
                    }
                    Answer::Bad { details, .. } => {
                        branch.refusals += 1;
                        branch.real_moves = details.get("real_moves").map(texts).unwrap_or_default();
                    }
                }
            }
            _ => {}
        }
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Reads a line of the plan: ``- branch_b_tone: vector `tone`: open the shadows (intensity: gentle)``.
fn planned(line: &str) -> Option<Planned> {
    let (name, rest) = line.strip_prefix("- ")?.split_once(": ")?;
    if !name.starts_with("branch_b_") {
        return None;
    }
    let goal = rest.strip_prefix("vector `").and_then(|rest| rest.split_once("`:")).map(|(vector, words)| {
        let words = words.trim();
        let (direction, intensity) =
            match words.strip_suffix(')').and_then(|words| words.rsplit_once("(intensity: ")) {
                Some((direction, intensity)) => (direction.trim(), Some(intensity.to_owned())),
                None => (words, None),
            };
        Goal { name: vector.to_owned(), direction: direction.to_owned(), intensity }
    });
    Some(Planned { name: name.to_owned(), goal, tried: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_plan_are_read() {
        let line = "- branch_b_tone_2: vector `tone`: deeper: no (really) haze (intensity: very strong)";
        let goal = planned(line).unwrap().goal.unwrap();
        assert_eq!((goal.name.as_str(), goal.direction.as_str()), ("tone", "deeper: no (really) haze"));
        assert_eq!(goal.intensity.as_deref(), Some("very strong"));
        let open = planned("- branch_b_depth_1: open-ended: go deeper").unwrap();
        assert_eq!((open.name.as_str(), open.goal), ("branch_b_depth_1", None));
        assert_eq!(planned("- not a branch: at all"), None);
    }
}
