//! The table of all tools: schema, class, phases, cost, target, handler, and what a model reads.

use super::{
    ATTEMPT_DONE, CHECKOUT, CONFIRM_SESSION, Cost, END_CONVERSATION, END_SESSION, Phases, ROLLBACK, Target,
    Tool, UNDO, args, balance, edit, judge, learn, lifecycle, look, measure, placed, sought, strengths, talk,
};
use crate::transcript::EffectClass;

const PLAN: Phases = Phases { planned: true, running: false, closing: false };
const LOOK: Phases = Phases { planned: true, running: true, closing: false };
const EXPLORE: Phases = Phases { planned: false, running: true, closing: false };
const JUDGE: Phases = Phases { planned: false, running: true, closing: true };
const ANY: Phases = Phases { planned: true, running: true, closing: true };

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
        "Dodge and burn: moves on 1 to 32 places as one step. One primitive_name for all, or `ops` in each (64 moves together). One bad region refuses all."
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
        "Apply one move to the current branch. Values are set, not added; another mask makes another instance. The reply has its id, `exposure#2`, which as primitive_name changes its values."
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
        "Retouch blemishes (wires and scratches by `path`), or take spots back, as one step."
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
        "Ask one question, only if the plan cannot be followed without the answer. If nobody is there, the session ends."
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
        "Start from a look, or, without arguments, from what the photographer bound to this photo's camera and lens. One step, before the moves. Says what was applied."
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
        "Make a branch and stand on it. Asking for one more than the cap ends exploration."
    ),
    tool!(
        CHECKOUT,
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
        "Two states: both pictures, the six numbers, and how far apart they are."
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
        "Restate each vector in one sentence. Nothing can be edited before."
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
        "The differences between two states, move by move. Without arguments: the baseline against where you stand."
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
        "End the session with an honest summary. Judge every branch first."
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
        "Where you stand: branch, state, and all moves that make it."
    ),
    tool!(
        "grey_card",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::GreyCard,
        balance::grey_card,
        r#"{"center": [0.42, 0.6], "strength": 0.7, "preview": true}"#,
        "White balance by a place that should be neutral grey, on linear light. Replaces warmth and tint; later ones shift from there. Refuses a colour that no light explains."
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
        "All numbers of a state's picture."
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
        "The moves you may use, by group, with units, ranges and defaults. With query, axis, tag or module: the best matches, what they do and whether they may be masked."
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
        "Report a move that was missing."
    ),
    tool!(
        "measure",
        Render,
        LOOK,
        Free,
        Target::Nothing,
        measure::Measure,
        measure::measure,
        r#"{"masks": [{"named": "sky"}], "points": [[0.42, 0.6]]}"#,
        "Colours under masks and at points, baseline→now: mean L*, a*, b*, chroma, hue, percentiles of L*, clipping, mean ΔE (0.00: it did not change). No iteration; a render or two for each new mask."
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
            "What is left, which branches exist, where you stand. Free."
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
        "Propose one note about this photo."
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
        "Propose an observation about the photographer's taste that holds across pictures."
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
        "The photographer's tastes, the notes, recent edits and recent gaps. Read it first."
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
        "What happened in this session so far, a line an event; or what an earlier session of the photo tried, summarized."
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
        "Judge a branch. key_moves are checked against what was done. With abandoned it goes back to the baseline and has no score."
    ),
    tool!(
        "remove_module",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::RemoveModule,
        placed::remove_module,
        r#"{"module": "exposure#2"}"#,
        "Undo one move, look or darktable module on the current branch; by id (`exposure#2`; `exposure#0` has no mask) one placed move. Module retouch: every spot."
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
        "Render where you stand (or another ref) and look: the picture, the moves in it, and six numbers, baseline → now. With show_mask: where a mask acts. With crop, grid, beside or difference: that picture, without the numbers."
    ),
    tool!(
        "replace_mask",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::ReplaceMask,
        placed::replace_mask,
        r#"{"instance": "exposure#2", "mask": {"shape": "circle", "center": [0.4, 0.3], "radius": 0.1}}"#,
        "Change the mask of a placed move, in one step; its values stay."
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
        "Set the current branch back to the baseline. What was tried stays in its history."
    ),
    tool!(
        "save_mask",
        Mutate,
        EXPLORE,
        Iteration,
        Target::Nothing,
        args::SaveMask,
        sought::save_mask,
        r#"{"name": "rim", "mask": {"shape": "circle", "center": [0.4, 0.3], "radius": 0.1}}"#,
        "Give a mask a name on this photo: {\"named\": \"rim\"} then means it, here and in later sessions."
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
    tool!(
        "try_strengths",
        Render,
        LOOK,
        Iteration,
        Target::Nothing,
        strengths::TryStrengths,
        strengths::try_strengths,
        r#"{"primitive_name": "exposure", "values": [-0.5, 0.5, 1.0], "mask": {"named": "sky"}}"#,
        "2 to 6 values of one move or look, or 2 to 6 alternatives at their defaults, as numbered tiles of one picture, with numbers. Changes nothing. One iteration, and a render for each tile."
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

/// Tools of a conversation.
pub static TALK: &[Tool] = &[
    tool!(
        END_CONVERSATION,
        Lifecycle,
        JUDGE,
        Free,
        Target::Nothing,
        args::EndConversation,
        talk::end_conversation,
        r#"{"certain": true}"#,
        "The photographer has said that this is all. If the words may mean something else, leave out `certain`: she is asked."
    ),
    tool!(
        "propose_edit",
        Lifecycle,
        EXPLORE,
        Free,
        Target::Nothing,
        args::ProposeEdit,
        talk::propose_edit,
        r#"{"moves": ["vignette strength=-0.3"], "why": "It would hold the eye on the cup."}"#,
        "Ask the photographer before edits that she has not asked for. Make them only after a yes."
    ),
    tool!(
        UNDO,
        Mutate,
        EXPLORE,
        Iteration,
        Target::Current,
        args::Nothing,
        talk::undo,
        r#"{}"#,
        "Take the last edit back. It stays in the history; another call takes back the one before."
    ),
];
