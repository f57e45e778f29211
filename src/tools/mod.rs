//! What the model may call. A tool is its schema, its effect class and its handler, in one table.
//!
//! The schema comes from the Rust type of the arguments; the class decides gate, lease and retry safety; the columns
//! of a row say when it may be called, what it counts and which branch it writes to.
//! Handlers run under a permit that the session got for them; a handler that needs a picture asks the gate
//! for a permit of its own.

mod args;
mod blobs;
mod context;
mod edit;
mod judge;
mod learn;
mod lifecycle;
mod look;
mod measures;
mod pictures;
mod sought;

use serde_json::Value;

pub use blobs::BlobStore;
pub use context::{Answer, BranchView, Engine, Phase, RenderKey, ToolContext, View, millis};
pub use judge::{Measured, baseline_preview, default_judgment, moves_of, verify_claim};
pub use measures::Measures;
pub use pictures::NoPicture;

use crate::budget::Amounts;
use crate::conversation::{ToolCall, ToolSpec};
use crate::gate::{Permit, ToolRun};
use crate::transcript::EffectClass;
use base::error::{ErrorCode, Fault};

type Handler = fn(&mut ToolContext<'_>, &Value) -> Result<Answer, Fault>;

/// One tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it is for, as the model reads it.
    pub description: &'static str,
    /// What it does to the world.
    pub class: EffectClass,
    /// When it may be called.
    pub phases: Phases,
    /// What a call counts.
    pub cost: Cost,
    /// The branch that it writes to.
    pub target: Target,
    /// Whether the same call on the same state may have another answer; of every other tool, who repeats a call is
    /// told so.
    pub repeatable: bool,
    /// Legal arguments, shown with every argument error.
    pub example: &'static str,
    schema: fn() -> Value,
    check: fn(&Value) -> Result<(), Fault>,
    run: Handler,
}

/// The phases of a session in which a tool may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// While the plan waits for its confirmation.
    pub planned: bool,
    /// While the session explores.
    pub running: bool,
    /// In the wrap-up.
    pub closing: bool,
}

const PLAN: Phases = Phases { planned: true, running: false, closing: false };
const LOOK: Phases = Phases { planned: true, running: true, closing: false };
const EXPLORE: Phases = Phases { planned: false, running: true, closing: false };
const JUDGE: Phases = Phases { planned: false, running: true, closing: true };
const ANY: Phases = Phases { planned: true, running: true, closing: true };

/// What a call counts besides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing.
    Free,
    /// An iteration.
    Iteration,
    /// An iteration and a branch.
    Branch,
}

/// The branch that a call writes to. Where a crash cuts the call, the branch is put back before the call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// None.
    Nothing,
    /// The one where the session is.
    Current,
    /// The one that this argument names.
    Named(&'static str),
    /// The one that this argument names, or else where the session is.
    NamedOrCurrent(&'static str),
}

/// Builds the table rows: the schema and the check follow from the argument type.
macro_rules! tool {
    ($name:expr, $class:ident, $phases:expr, $cost:ident, $target:expr, $args:ty, $run:path, $example:literal, $description:literal) => {
        Tool {
            name: $name,
            description: $description,
            class: EffectClass::$class,
            phases: $phases,
            cost: Cost::$cost,
            target: $target,
            repeatable: false,
            example: $example,
            schema: args::schema::<$args>,
            check: |value| args::parse::<$args>($name, value).map(|_| ()),
            run: |context, value| $run(context, args::parse($name, value)?),
        }
    };
}

/// All tools, sorted by name: the order in which every model sees them.
pub static TOOLS: &[Tool] = &[
    tool!(
        "apply_per_region",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::ApplyPerRegion,
        edit::apply_per_region,
        r#"{"primitive_name": "exposure", "regions": [{"mask": {"shape": "ellipse", "center": [0.4, 0.3], "radius": [0.1, 0.06]}, "parameter_values": {"ev": 0.3}}, {"mask": {"shape": "circle", "center": [0.7, 0.6], "radius": 0.1}, "parameter_values": {"ev": -0.3}}]}"#,
        "Dodge and burn, or any move on 1 to 32 places at once, as one step and one snapshot. Either one primitive_name for all regions, or `ops` in each region (64 moves together). One bad region refuses the whole batch and is named, counted from 0. The same region at its neutral value takes it back."
    ),
    tool!(
        "apply_primitive",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::ApplyPrimitive,
        edit::apply_primitive,
        r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.6}}"#,
        "Apply one move of the vocabulary to the current branch. Values are set, not added: the same move with the same value changes nothing. Makes a snapshot. Look at the result with render_preview afterwards."
    ),
    tool!(
        "apply_spot",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::ApplySpot,
        edit::apply_spot,
        r#"{"spots": [{"action": "heal", "x": 0.31, "y": 0.22, "radius": 0.015}]}"#,
        "Retouch: heal or clone away blemishes (dust, litter; wires and scratches by `path`), fill or blur a place, or take such spots back. Many spots in one call are one step; the same spot again changes nothing."
    ),
    tool!(
        "ask_clarification",
        Lifecycle,
        PLAN,
        Free,
        Target::Nothing,
        args::AskClarification,
        lifecycle::ask_clarification,
        r#"{"question": "Should the sky stay untouched?"}"#,
        "Ask the photographer one question before you confirm, only if the plan cannot be followed without the answer. If nobody is there, the session ends and waits."
    ),
    tool!(
        "bind_layers",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::BindLayers,
        edit::bind_layers,
        r#"{"look": "quiet_evening", "strength": 0.6}"#,
        "Start from a look, or, without arguments, from what the photographer bound to this photo's camera and lens. One step, before the moves. Says which camera and lens it is and what was applied; doing it again changes nothing."
    ),
    tool!(
        "branch",
        Mutate,
        EXPLORE,
        Branch,
        Target::Named("name"),
        args::Branch,
        edit::branch,
        r#"{"name": "branch_b_tone"}"#,
        "Make a branch (its name starts with branch_b_) from the baseline or from another commit of this session, and stand on it. Each branch counts against the branch cap; asking for one more than the cap ends exploration."
    ),
    tool!(
        "checkout",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::Checkout,
        edit::checkout,
        r#"{"ref": "branch_b_tone"}"#,
        "Stand on another branch of this session, or look at the baseline. Changes no picture and makes no branch."
    ),
    tool!(
        "compare",
        Render,
        LOOK,
        Iteration,
        Target::Nothing,
        args::Compare,
        look::compare,
        r#"{"a": "baseline", "b": "branch_b_tone"}"#,
        "Render two states and get both pictures and the measured difference between them. Without arguments: the baseline against where you stand."
    ),
    tool!(
        CONFIRM_SESSION,
        Lifecycle,
        PLAN,
        Free,
        Target::Nothing,
        args::ConfirmSession,
        lifecycle::confirm_session,
        r#"{"vectors": [{"name": "tone", "restated": "Deepen contrast while the shadows stay open."}]}"#,
        "Confirm the plan by restating each vector in one sentence. Nothing can be edited before this."
    ),
    tool!(
        "diff",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::Compare,
        look::diff,
        r#"{"a": "baseline", "b": "branch_b_tone"}"#,
        "The differences between two states, parameter by parameter. Without arguments: the baseline against where you stand."
    ),
    tool!(
        END_SESSION,
        Lifecycle,
        ANY,
        Free,
        Target::Nothing,
        args::EndSession,
        lifecycle::end_session,
        r#"{"session_summary": "Tone was the strongest axis; the colour attempts all cast yellow and were abandoned."}"#,
        "End the session with an honest summary across branches. Judge every branch first."
    ),
    tool!(
        "get_state",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::At,
        look::get_state,
        r#"{"ref": "branch_b_tone"}"#,
        "Where you stand: branch, commit, the moves that make it, and its difference from the baseline in words."
    ),
    tool!(
        "grey_card",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::GreyCard,
        edit::balance_grey,
        r#"{"center": [0.42, 0.6]}"#,
        "White balance by a place that should be neutral grey: measures it on linear light (three small renders) and sets the gains. Replaces warmth and tint."
    ),
    tool!(
        "image_stats",
        Render,
        LOOK,
        Iteration,
        Target::Nothing,
        args::At,
        look::image_stats,
        r#"{"ref": "baseline"}"#,
        "Measured numbers of a state's picture without the picture itself."
    ),
    tool!(
        "list_vocabulary",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::ListVocabulary,
        look::list_vocabulary,
        r#"{"axis": "shadows"}"#,
        "The moves you may use, with their parameters, units, ranges and the axes that they push. Filter by tag, axis or module."
    ),
    tool!(
        "log",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::Log,
        look::log,
        r#"{"ref": "branch_b_tone", "limit": 10}"#,
        "The commits behind a state, newest first."
    ),
    tool!(
        "log_vocabulary_gap",
        Lifecycle,
        JUDGE,
        Iteration,
        Target::Nothing,
        args::Gap,
        learn::log_vocabulary_gap,
        r#"{"description": "No move darkens only the sky's blues.", "intent_category": "color", "satisfaction": -1}"#,
        "Report a move that was missing, and how well you could work around it."
    ),
    Tool {
        repeatable: true,
        ..tool!(
            "mode_b_status",
            Read,
            ANY,
            Free,
            Target::Nothing,
            args::Nothing,
            lifecycle::status,
            r#"{}"#,
            "What is left of the budget, which branches exist, where you stand. Costs nothing."
        )
    },
    tool!(
        "propose_notes_update",
        Lifecycle,
        JUDGE,
        Free,
        Target::Nothing,
        args::ProposeNotes,
        learn::propose_notes,
        r#"{"text": "The white cup clips first: keep whites below +0.3 EV."}"#,
        "Propose one note about this photo. The photographer decides later."
    ),
    tool!(
        "propose_taste_update",
        Lifecycle,
        JUDGE,
        Free,
        Target::Nothing,
        args::ProposeTaste,
        learn::propose_taste,
        r#"{"text": "Prefers open shadows over punchy contrast.", "category": "appearance"}"#,
        "Propose an observation about the photographer's taste that holds across pictures. The photographer decides later."
    ),
    tool!(
        "read_context",
        Read,
        LOOK,
        Iteration,
        Target::Nothing,
        args::ReadContext,
        look::read_context,
        r#"{}"#,
        "The photographer's tastes, the brief, the notes, recent edits and recent gaps. Read it first."
    ),
    tool!(
        "read_session_transcript",
        Read,
        ANY,
        Iteration,
        Target::Nothing,
        args::ReadTranscript,
        look::read_transcript,
        r#"{"last": 20}"#,
        "What happened in this session so far, a line an event."
    ),
    tool!(
        "record_judgment",
        Lifecycle,
        JUDGE,
        Free,
        Target::Named("branch"),
        args::RecordJudgment,
        judge::record_judgment,
        r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Shadows opened without flattening the cup.", "comparable_to_baseline": true, "key_moves": ["shadows_lift amount=0.6"], "abandoned": false}"#,
        "Judge a branch: 1 worse than the baseline, 2 weak, 3 neither better nor worse, 4 better, 5 clearly better and in the photographer's voice. The engine adds what it measures and checks key_moves against what was really done. Set abandoned to true when nothing beat the baseline: the branch goes back to it and the attempts stay on record."
    ),
    tool!(
        "remove_module",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::RemoveModule,
        edit::remove_module,
        r#"{"module": "grain"}"#,
        "Undo what was done with one darktable module (or one move) on the current branch: back to how the baseline has it. `instance` (see diff) takes back one masked place only; module retouch takes back every spot."
    ),
    tool!(
        "render_preview",
        Render,
        LOOK,
        Iteration,
        Target::Nothing,
        args::RenderPreview,
        look::render_preview,
        r#"{"size": 1024}"#,
        "Render where you stand (or another ref) and look: the picture, its numbers, and what changed against the baseline and the step before. With show_mask: where a mask acts, before you use it, and how much of the picture it covers."
    ),
    tool!(
        "reset",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::Nothing,
        edit::reset,
        r#"{}"#,
        "Set the current branch back to the baseline's state, as a new snapshot. What was tried stays in its history."
    ),
    tool!(
        "snapshot",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::Snapshot,
        edit::snapshot,
        r#"{"label": "before the colour moves"}"#,
        "Mark where you stand with a label in the session's record. Every move is a snapshot already; this only names one."
    ),
    tool!(
        "tag",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Nothing,
        args::Tag,
        edit::tag,
        r#"{"name": "branch_b_tone_pick"}"#,
        "Tag a commit of this session; the name starts with branch_b_."
    ),
];

/// Tools of a session that a protocol steers: the model's word that an attempt is done, and the engine's own
/// way to take one back, which no model is offered.
pub static STEERED: &[Tool] = &[
    tool!(
        ATTEMPT_DONE,
        Lifecycle,
        JUDGE,
        Free,
        Target::Nothing,
        args::AttemptDone,
        lifecycle::attempt_done,
        r#"{"summary": "Shadows lifted by 0.6 EV, looked at twice."}"#,
        "Say that you are done with what the present state asks for. It is checked then; if it fails, you are told why and may try again."
    ),
    tool!(
        ROLLBACK,
        Mutate,
        JUDGE,
        Free,
        Target::NamedOrCurrent("branch"),
        args::Rollback,
        edit::rollback,
        r#"{"commit": "0123abcd"}"#,
        "Take an attempt back."
    ),
];

/// The model's word that it has understood the plan.
pub const CONFIRM_SESSION: &str = "confirm_session";
/// The model's word that the session is over.
pub const END_SESSION: &str = "end_mode_b_session";
/// The model's word that an attempt is done.
pub const ATTEMPT_DONE: &str = "attempt_done";
/// The engine's way to take an attempt back.
pub const ROLLBACK: &str = "rollback";

impl Tool {
    /// What a call of it may spend, before it is known.
    pub fn wants(&self) -> Amounts {
        Amounts {
            iterations: u64::from(self.cost != Cost::Free),
            branches: u64::from(self.cost == Cost::Branch),
            ..Amounts::default()
        }
    }

    /// Whether the arguments of a call are well-formed; the fault has the field path and a legal example.
    pub fn check(&self, call: &ToolCall) -> Result<Value, Fault> {
        let value = args::object(self.name, &call.arguments).and_then(|v| (self.check)(&v).map(|()| v));
        value.map_err(|fault| fault.with("example", self.example))
    }

    /// Runs a call. The permit is used up by it.
    pub fn run(
        &self,
        context: &mut ToolContext<'_>,
        arguments: &Value,
        permit: Permit<ToolRun>,
    ) -> Result<Answer, Fault> {
        let answer = (self.run)(context, arguments);
        drop(permit);
        answer.map_err(|fault| match fault.code {
            ErrorCode::InvalidInput if !fault.details.contains_key("example") => {
                fault.with("example", self.example)
            }
            _ => fault,
        })
    }

    /// The tool as a model sees it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.into(), description: self.description.into(), parameters: (self.schema)() }
    }
}

/// The tool of that name.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().chain(STEERED).find(|t| t.name == name)
}

/// The specs of all tools that the model has in a session that a protocol steers, in order.
pub fn steered_specs() -> Vec<ToolSpec> {
    let mut specs = specs();
    specs.extend(find(ATTEMPT_DONE).map(Tool::spec));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

/// The specs of all tools, in order.
pub fn specs() -> Vec<ToolSpec> {
    TOOLS.iter().map(Tool::spec).collect()
}
