//! A protocol that the model writes from a goal, within the session's budget and before the session begins.
//!
//! Writing is model calls, so it goes through a gate with a ledger and a transcript of its own, in the photo's
//! `sessions/generate/`: an intent before each call, a reply or a failed attempt after it. What it spent is taken
//! off what the session may spend. What comes back is brought down to what the session allows
//! ([`crate::protocol::written`]), loaded as the session will load it, and told what is wrong with it, twice at
//! most.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::budget::{Amounts, Budget, Reserve};
use crate::conversation::{Finish, Message};
use crate::gate::{self, Gate};
use crate::protocol::checks::NAMED;
use crate::protocol::finding::Severity;
use crate::protocol::model::Protocol;
use crate::protocol::template::fenced;
use crate::protocol::variables::Values;
use crate::protocol::written::{Limits, tidy};
use crate::provider::classify::backoff;
use crate::provider::{ModelReply, ModelRequest};
use crate::session::model_call::{attempt, sleep_until};
use crate::session::protocols::{self, ProtocolSource};
use crate::session::start::{self, Request, Setup};
use crate::session::{SessionError, pricing};
use crate::tools::{self, BlobStore, TOOLS};
use crate::transcript::{
    self, EffectClass, Event, Line, Mode, ModelIntent, Outcome, SessionEnd, SessionStart, Transcript,
};
use base::error::{Coded, ErrorCode, Fault};
use base::ids::Hash;
use engine::lease::Lessor;

/// The prompt by which protocols are written.
pub const PROMPT: &str = "protocol/write";
/// Calls of the model in all: the first, and two repairs.
pub const MAX_CALLS: u64 = 3;
/// The exit status of a model that wrote nothing that can run.
pub const UNUSABLE_STATUS: u8 = 27;
/// The longest reply, in tokens: a protocol is a page or two.
const MAX_OUTPUT_TOKENS: u32 = 8_192;
/// The longest goal, in characters.
const MAX_GOAL: usize = 4_000;

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub struct GenerateRequest {
    /// What the photographer wants, in their words.
    pub goal: String,
    /// Values for variables, as they will be given to the session.
    pub values: Values,
    /// The tools that the protocol may use at all; every one that a session offers when left out.
    pub allowed: Option<BTreeSet<String>>,
    /// The folder of the photographer's own protocols, where it is kept.
    pub folder: PathBuf,
}

/// What a model is sent before it writes.
#[derive(Clone, Debug)]
pub struct FirstPrompt {
    /// The system prompt.
    pub system: String,
    /// The first message.
    pub message: String,
    /// The prompt's name and version.
    pub prompt: String,
    template_sha256: Hash,
}

/// A protocol that was written and kept.
#[derive(Clone, Debug)]
pub struct Written {
    /// The name by which it is found again.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The protocol, to be planned.
    pub source: ProtocolSource,
    /// The same, loaded.
    pub protocol: Protocol,
    /// What was dropped and clamped, and what a person should look at, each in a sentence.
    pub remarks: Vec<String>,
    /// What writing it spent.
    pub spent: Amounts,
    /// What is left for the session.
    pub left: Budget,
    /// The transcript of the writing.
    pub transcript: PathBuf,
}

/// Why there is no protocol.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Nothing that the model wrote can run.
    #[error("the model wrote no valid protocol in {calls} calls; errors in the last one: {}", problems.join("; "))]
    Unusable {
        /// Calls made.
        calls: u64,
        /// What is wrong with the last one.
        problems: Vec<String>,
        /// Where all of them are.
        transcript: PathBuf,
    },
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The photo, the transcript, the plan.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Coded for GenerateError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unusable { .. } => ErrorCode::ProviderError,
            Self::Fault(fault) => fault.code,
            Self::Session(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unusable { transcript, .. } => Some(format!(
                "describe the goal in fewer steps, or use a stronger model; everything it wrote is in {}",
                transcript.display()
            )),
            Self::Fault(fault) => fault.remedy(),
            Self::Session(error) => error.remedy(),
        }
    }
}

/// Who watches the writing.
pub trait Watcher: Sync {
    /// Something takes a while.
    fn busy(&self, _what: &str) {}
    /// Something that a person should know of.
    fn remark(&self, _text: &str) {}
}

/// What the model would be sent.
pub fn first_prompt(
    setup: &Setup,
    request: &Request,
    wanted: &GenerateRequest,
) -> Result<FirstPrompt, GenerateError> {
    let goal = wanted.goal.trim();
    if goal.is_empty() || goal.chars().count() > MAX_GOAL {
        let message = format!("a goal must have 1 to {MAX_GOAL} characters");
        return Err(Fault::new(ErrorCode::InvalidInput, message)
            .with("remedy", "describe what the picture should become: --generate \"Open the shadows, twice, each time bolder\"")
            .into());
    }
    let offered = offered(wanted);
    let tools: Vec<_> = TOOLS
        .iter()
        .filter(|tool| offered.contains(tool.name))
        .map(|tool| {
            let what = tool.description.split_once(". ").map_or(tool.description, |(first, _)| first);
            json!({ "name": tool.name, "what": what, "edits": tool.class == EffectClass::Mutate })
        })
        .collect();
    let checks: Vec<_> = NAMED.iter().map(|(name, what)| json!({ "name": name, "what": what })).collect();
    let budget = &request.budget;
    let context = json!({
        "tools": tools,
        "checks": checks,
        "vectors": !request.vectors.is_empty(),
        "budget": {
            "time_seconds": budget.time_seconds,
            "max_iterations": budget.max_iterations,
            "max_branches": budget.max_branches,
        },
    });
    let rendered = setup.prompts.render(PROMPT, &context).map_err(|e| Fault::from(&e))?;
    let mut message = format!("The photographer's goal:\n{}\n", fenced("goal", goal));
    let brief = protocols::brief(setup, request)?;
    if !brief.trim().is_empty() {
        message.push_str(&format!("\nThe brief of the photo:\n{}\n", fenced("brief", brief.trim())));
    }
    for vector in &request.vectors {
        let direction = fenced("direction", &vector.direction);
        message.push_str(&format!("\nThe vector `{}`: {direction}\n", vector.name));
    }
    message.push_str("\nWrite the protocol for it: one JSON object, and nothing else.");
    let prompt = format!("{}@{}", rendered.name, rendered.version);
    Ok(FirstPrompt { system: rendered.text, message, prompt, template_sha256: rendered.template_sha256 })
}

/// Has the model write a protocol, and keeps it. The photo is locked meanwhile, so that what an earlier writing
/// left open can be told from one that goes on.
pub async fn generate(
    setup: &Setup,
    request: &Request,
    wanted: &GenerateRequest,
    watcher: &dyn Watcher,
) -> Result<Written, GenerateError> {
    if setup.provider.info().provider == "explorer" {
        let fault = Fault::new(ErrorCode::InvalidInput, "the explorer cannot write protocols");
        return Err(fault.with("remedy", "choose a model: --provider NAME --model NAME").into());
    }
    let prompt = first_prompt(setup, request, wanted)?;
    // Whatever can be wrong without a protocol is found before anything is spent.
    let planned = start::plan(setup, request)?.start;
    let id = planned.session.clone();
    let _lock = start::lock(&setup.workspace, &id, Lessor::default().lease())?;
    let root = setup.workspace.folder().join("sessions").join("generate");
    for remark in settle_cut(setup, &root)? {
        watcher.remark(&remark);
    }
    let folder = root.join(id.as_str());
    base::durable::make_folder(&folder).map_err(SessionError::Blob)?;
    let blobs = BlobStore::new(folder.join("blobs"), setup.redactor.clone());
    let system = blobs.put(prompt.system.as_bytes()).map_err(SessionError::Blob)?;
    let start = SessionStart {
        mode: Mode::Generate,
        prompt: prompt.prompt.clone(),
        template_sha256: prompt.template_sha256.clone(),
        system,
        tools: blobs.put(b"[]").map_err(SessionError::Blob)?,
        reserve: Reserve::default(),
        ..planned
    };
    let path = folder.join("transcript.jsonl");
    let transcript =
        Transcript::create(&path, setup.clock.clone(), setup.redactor.clone()).map_err(SessionError::from)?;
    let ledger = pricing::ledger(&start, &[], None, setup.provider.info(), None)?;
    let gate = Gate::new(ledger, transcript, Lessor::default(), setup.stop.clone());
    let mut writing = Writing { setup, request, wanted, gate, blobs, path, model_ms: 0 };
    writing.record(Event::SessionStart(Box::new(start)))?;
    writing.record(Event::Plan { text: prompt.message.clone() })?;
    let result = writing.write(&prompt, id.as_str(), watcher).await;
    let (outcome, said) = match &result {
        Ok(written) => (Outcome::Completed, written.name.clone()),
        Err(error) => (ended(error), error.to_string()),
    };
    writing.end(outcome, said)?;
    result
}

/// How a writing ended that brought no protocol.
fn ended(error: &GenerateError) -> Outcome {
    match error {
        GenerateError::Unusable { .. } => Outcome::ProtocolFailed,
        error if error.code() == ErrorCode::BudgetExhausted => Outcome::BudgetExhausted,
        error if error.code() == ErrorCode::Interrupted => Outcome::Cancelled,
        error if error.code() == ErrorCode::ProviderError => Outcome::ProviderFailed,
        _ => Outcome::EngineFailed,
    }
}

/// The tools that the protocol may name: never more than a session offers.
fn offered(wanted: &GenerateRequest) -> BTreeSet<String> {
    let allowed = |name: &str| wanted.allowed.as_ref().is_none_or(|allowed| allowed.contains(name));
    TOOLS.iter().map(|tool| tool.name).filter(|name| allowed(name)).map(str::to_owned).collect()
}

/// One writing, under way.
struct Writing<'a> {
    setup: &'a Setup,
    request: &'a Request,
    wanted: &'a GenerateRequest,
    gate: Gate,
    blobs: BlobStore,
    path: PathBuf,
    model_ms: u64,
}

impl Writing<'_> {
    fn record(&mut self, event: Event) -> Result<(), SessionError> {
        self.gate.record(event)?;
        Ok(())
    }

    /// Asks, reads what comes, and asks again where it cannot run.
    async fn write(
        &mut self,
        prompt: &FirstPrompt,
        session: &str,
        watcher: &dyn Watcher,
    ) -> Result<Written, GenerateError> {
        let user = |text: &str| Message::User { text: text.into(), images: Vec::new() };
        let mut messages = vec![user(&prompt.message)];
        let mut problems = Vec::new();
        for call in 1..=MAX_CALLS {
            watcher.busy("waiting for the model to write a protocol");
            let Some(reply) = self.call(call, prompt, session, &messages).await? else {
                problems = vec!["there was no answer to the last call".to_owned()];
                continue;
            };
            let Message::Assistant { text, .. } = &reply.message else { continue };
            let cut = reply.finish == Finish::Length;
            match self.read(text, cut)? {
                Ok(written) => return Ok(written),
                Err(found) => problems = found,
            }
            if call < MAX_CALLS {
                let text = repair(&problems);
                watcher.remark(&format!(
                    "the protocol has {} errors; asking the model to correct them",
                    problems.len()
                ));
                messages.push(reply.message);
                messages.push(user(&text));
                self.record(Event::Nudge { text })?;
            }
        }
        let transcript = self.path.clone();
        Err(GenerateError::Unusable { calls: MAX_CALLS, problems, transcript })
    }

    /// One call under its permit, between its two lines; nothing, when it failed in a way that another may not.
    async fn call(
        &mut self,
        turn: u64,
        prompt: &FirstPrompt,
        session: &str,
        messages: &[Message],
    ) -> Result<Option<ModelReply>, GenerateError> {
        let info = self.setup.provider.info().clone();
        let input = pricing::tokens(&info, &prompt.system, &[], messages);
        let bound = pricing::bound(&info, self.gate.ledger(), input, MAX_OUTPUT_TOKENS);
        let intent = ModelIntent {
            turn,
            attempt: 1,
            reserved: bound.reserved,
            max_output_tokens: bound.max_output_tokens,
            messages: messages.len() as u64,
            keep: Reserve::default(),
        };
        let permit = match self.gate.admit(intent).map_err(SessionError::from)? {
            Ok(permit) => permit,
            Err(exhausted) => {
                self.record(Event::CapFired { exhausted })?;
                return Err(Fault::from(exhausted).into());
            }
        };
        let seq = permit.seq();
        let request = ModelRequest {
            model: &info.model,
            system: &prompt.system,
            tools: &[],
            messages,
            earlier: 0,
            max_output_tokens: bound.max_output_tokens,
            session,
            seed: Some(self.request.seed),
            blobs: &self.blobs,
            time_left: None,
            on_progress: &|_, _| {},
        };
        let deadline = self.gate.deadline();
        let provider = self.setup.provider.as_ref();
        let (came, charge) =
            attempt(provider, (permit, &bound), &request, &self.gate, &self.blobs, || deadline.expired())
                .await?;
        self.model_ms += charge.ms;
        match came {
            Some(Ok(reply)) => {
                self.record(charge.reply(seq, reply.clone()))?;
                Ok(Some(reply))
            }
            Some(Err(fault)) => {
                self.record(charge.failure(seq, &fault, fault.to_string(), None))?;
                if !fault.class.retryable() || turn >= MAX_CALLS {
                    return Err(Fault::from(&fault).into());
                }
                let attempt = u32::try_from(turn).unwrap_or(u32::MAX);
                let pause = backoff(attempt, fault.retry_after, self.request.seed ^ seq);
                sleep_until(&self.gate.deadline().at_most(pause), || false).await;
                Ok(None)
            }
            None => {
                let stopped = self.setup.stop.soft.is_cancelled();
                let (code, message) = match stopped {
                    true => (ErrorCode::Interrupted, "stopped while the model wrote the protocol"),
                    false => (
                        ErrorCode::BudgetExhausted,
                        "the time limit was reached while the model wrote the protocol",
                    ),
                };
                self.record(charge.timed_out(seq, message.into()))?;
                Err(Fault::new(code, message).into())
            }
        }
    }

    /// What came of a reply: a protocol that is kept, or what is wrong with it.
    fn read(&mut self, reply: &str, cut: bool) -> Result<Result<Written, Vec<String>>, GenerateError> {
        let (request, offered) = (self.request, offered(self.wanted));
        let tidied = tidy(reply, Limits { budget: &request.budget, tools: &offered });
        if !tidied.remarks.is_empty() {
            let mut details = serde_json::Map::new();
            details.insert("changed".into(), json!(tidied.remarks));
            self.record(Event::Note { text: "what the model wrote was brought down".into(), details })?;
        }
        let mut problems: Vec<String> = tidied.findings.iter().map(ToString::to_string).collect();
        if cut {
            problems.insert(0, "the reply was too long and was cut: write a shorter protocol".into());
        }
        if tidied.text.is_empty() {
            return Ok(Err(problems));
        }
        let name = format!("written_{}", Hash::of(&tidied.text).short());
        let file = format!("{name}.json");
        let source = ProtocolSource {
            file: file.clone(),
            text: tidied.text.clone(),
            values: self.wanted.values.clone(),
            allowed: Some(offered),
        };
        let loaded = protocols::loaded(self.setup, request, &source)?;
        // Lines and columns are those of the tidied text, which the model has not seen.
        let found = loaded.findings.iter().cloned().map(|mut finding| {
            finding.at = None;
            finding
        });
        let (errors, warnings): (Vec<_>, Vec<_>) = found.partition(|f| f.severity == Severity::Error);
        problems.extend(errors.iter().map(ToString::to_string));
        if !problems.is_empty() {
            return Ok(Err(problems));
        }
        if let Err(error) = protocols::plan(self.setup, request, &source) {
            return Ok(Err(vec![error.to_string()]));
        }
        let protocol = loaded.into_protocol().map_err(|e| Fault::from(&e))?;
        let path = self.wanted.folder.join(&file);
        base::durable::publish(&path, tidied.text.as_bytes(), true).map_err(SessionError::Blob)?;
        let mut remarks = tidied.remarks;
        remarks.extend(warnings.iter().map(ToString::to_string));
        let spent = self.gate.ledger().settled();
        let left = request.budget.after(&spent, self.gate.elapsed()).map_err(Fault::from)?;
        let transcript = self.path.clone();
        Ok(Ok(Written { name, path, source, protocol, remarks, spent, left, transcript }))
    }

    fn end(&mut self, outcome: Outcome, said: String) -> Result<(), SessionError> {
        let end = closing(&self.gate, outcome, said, self.model_ms);
        self.record(end)
    }
}

/// What the model is told of what it wrote.
fn repair(problems: &[String]) -> String {
    let list: String = problems.iter().map(|problem| format!("- {problem}\n")).collect();
    format!(
        "This protocol cannot run:\n{list}\nPut all of it right, and write the whole protocol again: one JSON object, and nothing else."
    )
}

/// The closing line of a writing.
fn closing(gate: &Gate, outcome: Outcome, said: String, model_ms: u64) -> Event {
    let completed = outcome == Outcome::Completed;
    Event::SessionEnd(Box::new(SessionEnd {
        outcome,
        cap: None,
        summary: if completed { said.clone() } else { String::new() },
        spent: gate.ledger().settled(),
        assumed: gate.ledger().assumed(),
        wall_ms: tools::millis(gate.elapsed()),
        model_ms,
        render_ms: 0,
        lines: gate.lines(),
        reason: if completed { String::new() } else { said },
    }))
}

/// Closes writings that were killed: a call whose answer nobody read is charged in full. Says what was charged.
fn settle_cut(setup: &Setup, root: &Path) -> Result<Vec<String>, GenerateError> {
    let mut said = Vec::new();
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    for path in folders.map(|entry| entry.path().join("transcript.jsonl")) {
        // One that is damaged, or was cut before its first line, has nothing to be charged.
        let Ok(read) = transcript::read(&path) else { continue };
        let Some(Line { event: Event::SessionStart(start), .. }) = read.lines.first() else { continue };
        if read.lines.iter().any(|line| matches!(line.event, Event::SessionEnd(_))) {
            continue;
        }
        let ledger = gate::ledger(start, &read.lines);
        let session = start.session.clone();
        let transcript = Transcript::resume(&path, &read, setup.clock.clone(), setup.redactor.clone())
            .map_err(SessionError::from)?;
        let mut gate = Gate::new(ledger, transcript, Lessor::default(), setup.stop.clone());
        let record = |gate: &mut Gate, event| gate.record(event).map_err(SessionError::from);
        record(&mut gate, Event::Resumed { assumed_ms: 0, torn: read.torn > 0 })?;
        let end = closing(&gate, Outcome::Interrupted, "it was cut".into(), 0);
        record(&mut gate, end)?;
        let assumed = gate.ledger().assumed();
        said.push(format!(
            "an earlier session was interrupted while the model wrote a protocol ({session}): {} unanswered calls may have cost {} tokens, {} USD",
            assumed.model_calls,
            assumed.tokens,
            crate::budget::usd(assumed.cost_micro_usd)
        ));
    }
    Ok(said)
}
