//! The page of one session: its pictures, its budget over time, and every turn of the model.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::budget::usd;
use crate::conversation::{Message, ToolResult};
use crate::review::group::Group;
use crate::review::model::{CapUse, ReviewModel};
use crate::review::page::{self, Embedded, Gallery};
use crate::session::listing::Session;
use crate::transcript::Event;
use engine::photo::Workspace;

/// Longest side of a thumbnail beside a turn, in pixels.
const THUMB: u32 = 192;
/// Turns that get one; further ones would make the page heavy.
const THUMBS: usize = 120;
/// The most characters of one result; the transcript has the rest.
const LONGEST: usize = 6_000;

/// A turn of the model, and what followed until the next.
#[derive(Debug, Default, Serialize)]
struct Turn {
    at: String,
    title: String,
    text: String,
    spent: String,
    calls: Vec<Call>,
    notes: Vec<String>,
    thumb: Option<Embedded>,
}

#[derive(Debug, Serialize)]
struct Call {
    #[serde(skip)]
    id: String,
    name: String,
    arguments: String,
    result: String,
    failed: bool,
}

/// The share of a cap that was left, as the points of a line.
#[derive(Debug, Serialize)]
struct Burn {
    name: String,
    points: String,
}

#[derive(Debug, Serialize)]
struct Context {
    group: Group,
    caps: Vec<CapUse>,
    burn: Vec<Burn>,
    turns: Vec<Turn>,
}

/// The page of a session. `blind` hides names and scores until they are revealed.
///
/// # Errors
/// A template that cannot be filled in, which is a fault of the program.
pub fn session_page(
    workspace: &Workspace,
    session: &Session,
    review: &ReviewModel,
    blind: bool,
) -> io::Result<String> {
    // A session's page is to stay small enough to send: as if it had more pictures than it has.
    let mut gallery = Gallery::of((review.branches.len() + 1) * 8);
    let blobs = workspace.session_folder(&session.id).join("blobs");
    let turns = turns(session, &mut |hash, alt| gallery.small(&blobs.join(hash), THUMB, alt));
    written(review, &mut gallery, burn(session), turns, blind)
}

fn written(
    review: &ReviewModel,
    gallery: &mut Gallery,
    burn: Vec<Burn>,
    turns: Vec<Turn>,
    blind: bool,
) -> io::Result<String> {
    let group = Group::of(review, gallery, true);
    let caps = review.budget.clone();
    page::render("session", &review.session, &review.photo, blind, &Context { group, caps, burn, turns })
}

/// The page of a review alone, without its transcript.
///
/// # Errors
/// As [`session_page`].
pub fn review_page(review: &ReviewModel, blind: bool) -> io::Result<String> {
    written(review, &mut Gallery::of((review.branches.len() + 1) * 8), Vec::new(), Vec::new(), blind)
}

fn clock(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(LONGEST).collect();
    if cut.len() < text.len() {
        cut.push_str("\n… (the transcript has the rest)");
    }
    cut
}

fn turns(session: &Session, picture: &mut dyn FnMut(&str, &str) -> Option<Embedded>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = vec![Turn { at: clock(0), title: "Plan".into(), ..Turn::default() }];
    let mut owners: HashMap<String, usize> = HashMap::new();
    let mut thumbs = 0;
    for line in &session.lines {
        let note = match &line.event {
            Event::ModelReply {
                message: Message::Assistant { text, calls, .. }, usage, settled, ms, ..
            } => {
                let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
                let mut spent = format!("{:.1} s", *ms as f64 / 1000.0);
                if let Some(tokens) = usage.total() {
                    spent.push_str(&format!(" · {tokens} tokens"));
                }
                if settled.cost_micro_usd > 0 {
                    spent.push_str(&format!(" · {} USD", usd(settled.cost_micro_usd)));
                }
                let place = turns.len();
                owners.extend(calls.iter().map(|call| (call.id.clone(), place)));
                let title = if names.is_empty() { "Text only".into() } else { names.join(", ") };
                let call = |call: &crate::conversation::ToolCall| Call {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: cut(&call.arguments),
                    result: String::new(),
                    failed: false,
                };
                turns.push(Turn {
                    at: clock(line.mono_ms),
                    title,
                    text: text.clone(),
                    spent,
                    calls: calls.iter().map(call).collect(),
                    ..Turn::default()
                });
                continue;
            }
            Event::ToolResult { result, .. } => {
                let place = owners.get(&result.call_id).copied().unwrap_or(turns.len().saturating_sub(1));
                if let Some(turn) = turns.get_mut(place) {
                    answer(turn, result);
                    let shown = result.images.last().filter(|_| thumbs < THUMBS);
                    if let Some(one) = shown.and_then(|i| picture(i.sha256.as_str(), &i.caption)) {
                        thumbs += 1;
                        turn.thumb = Some(one);
                    }
                }
                continue;
            }
            Event::Plan { text } | Event::Nudge { text } | Event::Brief { text, .. } => cut(text),
            Event::Message { text } => format!("The photographer: {}", cut(text)),
            Event::Clarification { question, answer: None } => format!("It asks: {question}"),
            Event::Clarification { answer: Some(answer), .. } => format!("Answered: {answer}"),
            Event::Attempt { message, .. } => format!("The call failed: {message}"),
            Event::Fallback { to, .. } => format!("{} {} goes on.", to.provider, to.model),
            Event::WrapUp { reason, .. } => format!("Finishing: {}", reason.as_str()),
            Event::Chapter { text, .. } => format!("The conversation began anew: {}", cut(text)),
            Event::Protocol { text, .. } if !text.is_empty() => text.clone(),
            Event::Note { text, .. } => text.clone(),
            Event::Referee(reply) => match (&reply.opinion, &reply.error) {
                (Some(opinion), _) => format!("Second opinion: {opinion}"),
                (None, Some(error)) => format!("No second opinion: {error}"),
                (None, None) => continue,
            },
            Event::Resumed { .. } => "Resumed after an interruption.".into(),
            _ => continue,
        };
        if let Some(turn) = turns.last_mut() {
            turn.notes.push(note);
        }
    }
    turns
}

fn answer(turn: &mut Turn, result: &ToolResult) {
    // Ids are unique in a conversation, except where an engine's own call has none.
    match turn.calls.iter_mut().find(|call| call.id == result.call_id) {
        Some(call) => {
            call.result = cut(&result.text);
            call.failed = result.is_error;
        }
        None => turn.calls.push(Call {
            id: result.call_id.clone(),
            name: result.name.clone(),
            arguments: "(by the protocol)".into(),
            result: cut(&result.text),
            failed: result.is_error,
        }),
    }
}

/// What was left of each cap over the session's time: an area of 600 by 100 with its upper edge at 4.
fn burn(session: &Session) -> Vec<Burn> {
    let budget = session.ledger.budget();
    let end = session.lines.last().map_or(0, |line| line.mono_ms).max(1);
    let caps: [(&str, Option<u64>); 4] = [
        ("time", Some(budget.time_seconds.saturating_mul(1000))),
        ("iterations", Some(budget.max_iterations)),
        ("tokens", budget.max_tokens),
        ("cost", budget.max_cost_micro_usd),
    ];
    let mut lines = Vec::new();
    for (name, limit) in caps {
        let Some(limit) = limit.filter(|limit| *limit > 0) else { continue };
        let (mut used, mut points) = (0_u64, String::new());
        for line in &session.lines {
            let settled = match &line.event {
                Event::ModelReply { settled, .. }
                | Event::ToolResult { settled, .. }
                | Event::Attempt { settled, .. } => *settled,
                Event::Referee(reply) => reply.settled,
                _ => continue,
            };
            used = match name {
                "time" => line.mono_ms,
                "iterations" => used + settled.iterations,
                "tokens" => used + settled.tokens,
                _ => used + settled.cost_micro_usd,
            };
            let x = 600.0 * line.mono_ms as f64 / end as f64;
            let y = 4.0 + 100.0 * (used as f64 / limit as f64).min(1.0);
            points.push_str(&format!("{x:.1},{y:.1} "));
        }
        lines.push(Burn { name: name.into(), points });
    }
    lines
}
