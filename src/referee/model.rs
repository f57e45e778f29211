//! The referee that is a language model: what it is shown, and how its answer is read.
//!
//! Both halves are pure. [`ModelReferee::request`] says what would be sent, so that the session can reserve
//! for it; the session makes the attempt under its permit; [`ModelReferee::read`] reads the reply strictly:
//! an answer that cannot be read is no answer, because a guess here would decide over a branch.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Answer, Kind, Opinion, Preference, Question, Shown};
use crate::conversation::{Finish, ImageRef, Message, ToolSpec};
use crate::prompts::{PromptError, Rendered, Store};
use crate::protocol::checks::Numbers;
use crate::protocol::rules::Ruling;
use crate::protocol::template::fenced;
use crate::provider::{Blobs, ModelReply, ModelRequest, Provider};
use base::error::{Coded, ErrorCode};
use base::ids::Hash;

/// Upper bound of an answer in tokens: a verdict takes a tenth of it, some models think before.
const MAX_OUTPUT_TOKENS: u32 = 1_024;
/// Longest reason or feedback that is kept, in characters.
const WORDS: usize = 600;

/// The tools, one for each kind of question.
const VERDICT: &str = "give_verdict";
const RULING: &str = "give_ruling";

/// The numbers that are shown, each with its unit: a photographer's, and few enough for a small model.
const TABLE: [(&str, &str); 15] = [
    ("deepest blacks (1st percentile of L*, 0 to 100)", "lightness.p1"),
    ("shadows (10th percentile of L*)", "lightness.p10"),
    ("midtones (median L*)", "lightness.p50"),
    ("highlights (90th percentile of L*)", "lightness.p90"),
    ("brightest whites (99th percentile of L*)", "lightness.p99"),
    ("contrast (standard deviation of L*)", "lightness.std"),
    ("clipped highlights (% of the picture)", "clip_high_pct"),
    ("clipped shadows (% of the picture)", "clip_low_pct"),
    ("saturation (mean C*)", "chroma_mean"),
    ("tint (mean a*, + magenta, - green)", "a_mean"),
    ("warmth (mean b*, + yellow, - blue)", "b_mean"),
    ("local contrast (L*)", "local_contrast"),
    ("sharpness (L*)", "sharpness"),
    ("noise in flat places (L*)", "noise_sigma"),
    ("edges against the centre (L*)", "edge_brightness"),
];

/// Why there is no such referee, or no such question.
#[derive(Debug, thiserror::Error)]
pub enum RefereeError {
    /// It cannot see.
    #[error("`{model}` of `{provider}` cannot see pictures, which a referee needs")]
    Blind {
        /// The provider.
        provider: String,
        /// The model.
        model: String,
    },
    /// Its prompt is not usable.
    #[error(transparent)]
    Prompt(#[from] PromptError),
}

impl Coded for RefereeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Blind { .. } => ErrorCode::InvalidInput,
            Self::Prompt(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Blind { .. } => {
                Some("choose a model that sees pictures, or `offline` (measurements only)".to_owned())
            }
            Self::Prompt(error) => error.remedy(),
        }
    }
}

/// Why a reply is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It said nothing that could be one.
    #[error("the referee did not call `{tool}`")]
    NoCall {
        /// What it was to call.
        tool: &'static str,
    },
    /// It answered more than once.
    #[error("the referee answered {count} times, and one answer was asked for")]
    Several {
        /// How often.
        count: usize,
    },
    /// The answer is not what was asked for.
    #[error("the referee's answer cannot be read: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
    /// It was cut.
    #[error("the referee's answer ran into its limit of {MAX_OUTPUT_TOKENS} tokens")]
    Cut,
    /// It refused.
    #[error("the referee refused to answer")]
    Refused,
}

impl Coded for Unreadable {
    fn code(&self) -> ErrorCode {
        ErrorCode::ProviderError
    }
}

/// A prompt by name, version and content, as a transcript's header names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptId {
    /// `NAME@VERSION`.
    pub name: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
}

impl From<&Rendered> for PromptId {
    fn from(rendered: &Rendered) -> Self {
        let Rendered { name, version, template_sha256, .. } = rendered;
        Self { name: format!("{name}@{version}"), template_sha256: template_sha256.clone() }
    }
}

/// A request, all but what the session adds to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompted {
    /// The standing orders: the same text for every question of a kind.
    pub system: String,
    /// One tool: the answer.
    pub tools: Vec<ToolSpec>,
    /// One message: the question, with its pictures.
    pub messages: Vec<Message>,
    /// Upper bound of the answer in tokens.
    pub max_output_tokens: u32,
    /// The prompts that made it: the standing orders, then the question.
    pub prompts: [PromptId; 2],
}

impl Prompted {
    /// What is sent. `session` should be the referee's own, as a cache key.
    pub fn request<'a>(
        &'a self,
        model: &'a str,
        session: &'a str,
        seed: Option<u64>,
        blobs: &'a dyn Blobs,
        on_progress: &'a (dyn Fn(usize, &str) + Send + Sync),
    ) -> ModelRequest<'a> {
        ModelRequest {
            model,
            system: &self.system,
            tools: &self.tools,
            messages: &self.messages,
            earlier: 0,
            max_output_tokens: self.max_output_tokens,
            session,
            seed,
            blobs,
            time_left: None,
            on_progress,
        }
    }
}

/// A language model as a referee.
#[derive(Clone)]
pub struct ModelReferee {
    provider: Arc<dyn Provider>,
    prompts: Store,
}

impl ModelReferee {
    /// Takes a model that sees pictures. The prompts are those of the store that are active.
    pub fn new(provider: Arc<dyn Provider>, prompts: &Store) -> Result<Self, RefereeError> {
        let info = provider.info();
        if !info.vision {
            return Err(RefereeError::Blind { provider: info.provider.clone(), model: info.model.clone() });
        }
        Ok(Self { provider, prompts: prompts.clone() })
    }

    /// The model. Attempts are the session's to make.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// What a question is on the wire.
    pub fn request(&self, question: &Question<'_>) -> Result<Prompted, RefereeError> {
        let (orders, tool, images) = match question.kind {
            Kind::Pair { a, b, .. } => {
                ("referee/pair", verdict_tool(), vec![named("Picture A", a), named("Picture B", b)])
            }
            Kind::Criteria { legal, now, start, .. } => {
                let mut images = vec![named("The picture as it is now", now)];
                images.extend(start.map(|start| named("The picture as it was at the start", start)));
                ("referee/criteria", ruling_tool(legal), images)
            }
        };
        let orders = self.prompts.render(orders, &json!({}))?;
        let text = self.prompts.render("referee/question", &context(question))?;
        Ok(Prompted {
            prompts: [(&orders).into(), (&text).into()],
            system: orders.text,
            tools: vec![tool],
            messages: vec![Message::User { text: text.text, images }],
            max_output_tokens: MAX_OUTPUT_TOKENS,
        })
    }

    /// What a reply says.
    pub fn read(&self, question: &Question<'_>, reply: &ModelReply) -> Result<Answer, Unreadable> {
        match question.kind {
            Kind::Pair { .. } => {
                let SaidOfPair { difference, better, not_as_asked } = arguments(VERDICT, reply)?;
                Ok(Answer::Pair(Opinion {
                    better,
                    a_off_brief: matches!(not_as_asked, Off::A | Off::Both),
                    b_off_brief: matches!(not_as_asked, Off::B | Off::Both),
                    why: short(&difference),
                }))
            }
            Kind::Criteria { legal, .. } => {
                let SaidOfCriteria { found, passed, feedback, next_state } = arguments(RULING, reply)?;
                Ok(Answer::Criteria(match (passed, next_state) {
                    (true, None) if !legal.is_empty() => {
                        // Left out would mean the end of the run, and that is to be said.
                        return Err(Unreadable::Malformed { cause: "`next_state` is missing".to_owned() });
                    }
                    (true, next) => Ruling::Passed { next: next.flatten() },
                    (false, _) => {
                        let feedback = short(&feedback);
                        Ruling::Failed {
                            feedback: if feedback.is_empty() { short(&found) } else { feedback },
                        }
                    }
                }))
            }
        }
    }
}

/// The answer on a pair.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidOfPair {
    difference: String,
    better: Preference,
    not_as_asked: Off,
}

/// Who does something else than was asked.
#[derive(Clone, Copy, Deserialize)]
enum Off {
    #[serde(rename = "neither")]
    Neither,
    A,
    B,
    #[serde(rename = "both")]
    Both,
}

/// The answer on criteria.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidOfCriteria {
    found: String,
    passed: bool,
    feedback: String,
    /// Left out, null, or a name.
    #[serde(default, deserialize_with = "said")]
    next_state: Option<Option<String>>,
}

/// Tells null from nothing.
fn said<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

fn verdict_tool() -> ToolSpec {
    ToolSpec {
        name: VERDICT.to_owned(),
        description: "Says which picture serves the request better.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "difference": {"type": "string", "description": "What differs, and what it does for the request. One or two sentences."},
                "better": {"type": "string", "enum": ["A", "B", "same", "unsure"], "description": "The better picture."},
                "not_as_asked": {"type": "string", "enum": ["neither", "A", "B", "both"], "description": "A picture that does something else altogether."},
            },
            "required": ["difference", "better", "not_as_asked"],
            "additionalProperties": false,
        }),
    }
}

fn ruling_tool(legal: &[String]) -> ToolSpec {
    let mut properties = json!({
        "found": {"type": "string", "description": "What shows that the criteria are met, or not. One or two sentences."},
        "passed": {"type": "boolean", "description": "Whether every criterion is met."},
        "feedback": {"type": "string", "description": "What is missing and what to try; empty if nothing is missing."},
    });
    let mut required = vec!["found", "passed", "feedback"];
    if !legal.is_empty() {
        let names: Vec<Value> = legal.iter().map(|name| name.as_str().into()).chain([Value::Null]).collect();
        let next = json!({"type": ["string", "null"], "enum": names, "description": "Where to go on; null ends the work."});
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("next_state".into(), next);
        }
        required.push("next_state");
    }
    ToolSpec {
        name: RULING.to_owned(),
        description: "Says whether the work meets its criteria.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
    }
}

/// The picture under another name: its own caption may say where it comes from.
fn named(caption: &str, shown: Shown<'_>) -> ImageRef {
    ImageRef { caption: caption.to_owned(), ..shown.picture.clone() }
}

/// What the question's template is filled in with.
fn context(question: &Question<'_>) -> Value {
    let data = |name: &str, words: &str| match words.trim() {
        "" => String::new(),
        words => fenced(name, words),
    };
    let goal = question.goal.map(|goal| {
        let intensity = goal.intensity.map(|words| format!(" ({words})")).unwrap_or_default();
        fenced("wish", &format!("{}: {}{intensity}", goal.name, goal.direction))
    });
    let axes = question.goal.map(|goal| goal.axes()).unwrap_or_default();
    let axes: Vec<String> =
        axes.iter().map(|(axis, sign)| format!("{axis} {}", if *sign < 0 { "down" } else { "up" })).collect();
    let (criteria, numbers, done, states, start, said) = match question.kind {
        Kind::Pair { criteria, a, b } => {
            (criteria, table(&[("A", a.numbers), ("B", b.numbers)]), "", String::new(), false, "")
        }
        Kind::Criteria { criteria, legal, now, start, done, said } => {
            let mut columns = vec![("now", now.numbers)];
            columns.extend(start.map(|start| ("at the start", start.numbers)));
            (criteria, table(&columns), &*done.join(", "), legal.join(", "), start.is_some(), said)
        }
    };
    json!({
        "brief": data("brief", question.brief),
        "wish": goal,
        "axes": axes.join(", "),
        "criteria": criteria.trim(),
        "done": done,
        "said": data("said", said),
        "numbers": numbers,
        "states": states,
        "pair": matches!(question.kind, Kind::Pair { .. }),
        "start": start,
    })
}

/// The numbers that every column has, one a line.
fn table(columns: &[(&str, &Numbers)]) -> String {
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut text = String::new();
    for (label, metric) in TABLE {
        let row: Option<Vec<String>> = columns
            .iter()
            .map(|(_, numbers)| {
                numbers.get(metric).filter(|n| n.is_finite()).map(|n| format!("{:.2}", n + 0.0))
            })
            .collect();
        if let Some(row) = row {
            text.push_str(&format!("| {label} | {} |\n", row.join(" | ")));
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("| measure | {} |\n|---|{}\n{}", heads.join(" | "), "---|".repeat(heads.len()), text.trim_end())
}

/// The arguments of the one call; or those of a call that was written as the whole text.
pub(crate) fn arguments<T: DeserializeOwned>(
    tool: &'static str,
    reply: &ModelReply,
) -> Result<T, Unreadable> {
    let Message::Assistant { text, calls, .. } = &reply.message else {
        return Err(Unreadable::NoCall { tool });
    };
    let found = match calls.as_slice() {
        [call] if call.name == tool => serde_json::from_str(&call.arguments),
        [] => match object(text) {
            Some(object) => serde_json::from_str(object),
            None if reply.finish == Finish::Refusal => return Err(Unreadable::Refused),
            None if reply.finish == Finish::Length => return Err(Unreadable::Cut),
            None => return Err(Unreadable::NoCall { tool }),
        },
        [_] => return Err(Unreadable::NoCall { tool }),
        several => return Err(Unreadable::Several { count: several.len() }),
    };
    found.map_err(|error| match reply.finish {
        Finish::Length => Unreadable::Cut,
        _ => Unreadable::Malformed { cause: error.to_string() },
    })
}

/// A text that is nothing but a JSON object, fenced or not.
fn object(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner)).trim();
    (text.starts_with('{') && text.ends_with('}')).then_some(text)
}

/// The referee's words on one line, cut to a length.
fn short(words: &str) -> String {
    let line = words.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests;
