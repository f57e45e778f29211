//! `chat`: a conversation about one photo.

mod commands;
mod ending;
mod input;
mod shown;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde_json::json;

use super::choice::ChoiceArgs;
use super::failure::Failure;
use super::progress::Watch;
use super::run;
use super::setup::{App, optional_text};
use crate::budget::{Budget, Cap, Exhausted};
use crate::launch::{DEFAULT_SEED, Overrides, Runner, SessionSpec};
use crate::review::plain;
use crate::session::driver::{Session, Turn};
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::start::Request;
use crate::session::{SessionError, talk};
use crate::transcript::{Mode, SessionEnd, Vector};
use base::clock::Stop;
use base::error::{ErrorCode, Fault};
use base::ids::{PhotoId, SessionId};
use darktable::proxy;
use engine::photo::Workspace;

use input::{Doing, Input, Signals, Typed};
use shown::Shown;

pub const EXAMPLES: &str = "\
Examples:
  chemigram chat iguana
  chemigram chat iguana --provider openai
  chemigram chat iguana -m \"a little warmer, but keep the blue\"
  chemigram chat --resume last

Edits land on a branch of the conversation, talk_1, talk_2 and so on; `chemigram promote` makes one your main edit. \
/help lists what you can type besides words. Ctrl-C stops a reply, Ctrl-D leaves: the conversation can be resumed.";

/// What a conversation may spend, unless it is said.
const BUDGET: &str = "time=2h,iterations=200,branches=4";
/// What it may cost where a price is known, US dollars.
const COST: &str = ",cost=2.00";

#[derive(Args, Debug)]
pub struct ChatArgs {
    /// The photo's id
    #[arg(value_name = "PHOTO", required_unless_present = "resume")]
    photo: Option<PhotoId>,
    /// Say this and end after the reply: text, or @FILE
    #[arg(short, long, value_name = "TEXT|@FILE")]
    message: Option<String>,
    /// Go on with a conversation: at least four characters of its id, or `last`
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["photo", "from", "budget"])]
    resume: Option<String>,
    /// Begin at this branch, tag or commit
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    from: String,
    /// Limits [default: time=2h,iterations=200,branches=4, and cost=2.00 where a price is known]
    #[arg(long, value_name = "SPEC")]
    budget: Option<String>,
    /// The system prompt [default: mode_a/system]
    #[arg(long, value_name = "NAME[@VERSION]")]
    prompt: Option<String>,
    /// Your own folder of prompts
    #[arg(long, value_name = "DIR")]
    prompts: Option<PathBuf>,
    /// Longest side of previews in pixels
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=4096))]
    preview_size: u32,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// The model that goes on if the first one fails for good, within the same budget
    #[arg(long, value_name = "PROVIDER[:MODEL]")]
    fallback: Option<String>,
}

/// How a conversation was left.
enum Ended {
    Left,
    Over(Box<SessionEnd>),
    /// Left for an exploration in these directions, from the tip of the branch.
    Explore(Vec<Vector>, String),
}

pub fn chat(app: &App, args: &ChatArgs) -> Result<u8, Failure> {
    let message = optional_text(args.message.as_ref())?;
    let (input, signals) = (Mutex::new(Input::new()), Signals::listen()?);
    let mut resume = match args.resume.as_deref() {
        Some("last") => Some(last(app)?.1.to_string()),
        named => named.map(str::to_owned),
    };
    let mut news = None;
    if let Some(part) = &resume {
        let (workspace, id) = app.session(part)?;
        let session = listing::read(&workspace, &id)?;
        if let Some(end) = session.state.end.as_ref().filter(|_| session.state.talks())
            && message.is_none()
            && ending::waits(&workspace, &id)?
        {
            // It was cut off at its last questions.
            return finish(app, &id, end, &input);
        }
        news = commands::explored_before(app, &workspace, &session)?;
    }
    loop {
        let talk = Talk { app, args, input: &input, signals: &signals };
        let (session, ended) = talk.run(resume.as_deref(), news.take(), message.as_deref())?;
        let (workspace, id) = app.session(session.as_str())?;
        match ended {
            Ended::Explore(vectors, from) => {
                let explore = || commands::explore(app, args, workspace.id(), vectors, &from);
                let told = signals.during(Doing::Exploring, explore);
                news = Some(told.unwrap_or_else(|failure| {
                    app.output.remark(&format!("the exploration failed: {}", failure.message()));
                    "An exploration that the photographer began failed.".into()
                }));
                resume = Some(id.to_string());
                if !signals.over() {
                    continue;
                }
                app.output.remark(&format!("left; go on with `chemigram chat --resume {}`", id.short()));
                return Ok(ErrorCode::Interrupted.exit_status());
            }
            Ended::Left => {
                app.output.remark(&format!("left; go on with `chemigram chat --resume {}`", id.short()));
                return Ok(0);
            }
            Ended::Over(end) => return finish(app, &id, &end, &input),
        }
    }
}

/// The last questions of a conversation that is over, and what came of it.
fn finish(app: &App, id: &SessionId, end: &SessionEnd, input: &Mutex<Input>) -> Result<u8, Failure> {
    ending::look_back(app, id, &mut input.lock().unwrap_or_else(PoisonError::into_inner))?;
    ending::closing(app, id, end)?;
    Ok(end.outcome.exit_status(true))
}

/// A conversation at the terminal.
struct Talk<'a> {
    app: &'a App,
    args: &'a ChatArgs,
    input: &'a Mutex<Input>,
    signals: &'a Signals,
}

impl Talk<'_> {
    /// Talks until the person leaves, ends it or explores.
    fn run(
        &self,
        resume: Option<&str>,
        news: Option<String>,
        message: Option<&str>,
    ) -> Result<(SessionId, Ended), Failure> {
        let (app, signals) = (self.app, self.signals);
        let (runner, stop) = (Runner::new()?, Stop::default());
        let watch = Watch::new(&app.output, false);
        signals.stops(&stop);
        let mut session = begin(app, self.args, resume, stop)?;
        let id = session.state.start.session.clone();
        if message.is_none() {
            signals.begun(&self.input.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let shown = Shown::new(watch, &app.output, message.is_none().then_some((self.input, signals)));
        let work = |work: &mut dyn FnMut()| signals.during(Doing::Working, work);
        if let Some(news) = news {
            session.tell(&news, &shown)?;
        } else if message.is_none() {
            opening(&session, &shown, resume.is_none());
        }
        let cut_short = |error: SessionError| {
            let remedy = format!("go on with `chemigram chat --resume {}`", id.short());
            Failure::from(Fault::from(&error)).remedy(remedy)
        };
        let mut once = message.map(str::to_owned);
        let said_once = once.is_some();
        let (mut looked, mut told) = (None, None);
        loop {
            shown.watch.start();
            let turn = signals.during(Doing::Working, || runner.block_on(session.advance(&shown)));
            shown.watch.finish();
            match turn.map_err(cut_short)? {
                Turn::Over(end) => return Ok((id.clone(), Ended::Over(end))),
                Turn::Person => {}
            }
            let failed = session.state.given_up().map(str::to_owned);
            // The look takes the request to stop back.
            let stopped = session.stop.soft.is_cancelled();
            if once.is_none() && looked.as_ref() != Some(&session.state.head.commit) {
                looked = Some(session.state.head.commit.clone());
                let mut look = || {
                    commands::look(app, &mut session, &json!({}), &shown, false)
                        .unwrap_or_else(|failure| shown.print(failure.message()));
                };
                work(&mut look);
            }
            if let Some(once) = once.take() {
                session.say(&once, &shown).map_err(cut_short)?;
                continue;
            }
            if said_once {
                let left = || format!("go on with `chemigram chat --resume {}`", id.short());
                if let Some(why) = failed {
                    return Err(Failure::new(ErrorCode::ProviderError, why).remedy(left()));
                }
                if stopped || session.stop.soft.is_cancelled() {
                    return Err(Failure::new(ErrorCode::Interrupted, "the reply was stopped").remedy(left()));
                }
                return Ok((id.clone(), Ended::Left));
            }
            if let Some(why) = failed {
                shown.print(&format!("no reply: {}. Say something to try again.", plain(&why)));
            }
            // The next message lifts a guard rail, so that it is told once; a limit of the budget stays.
            let lifted = |cap: &Exhausted| matches!(cap.cap, Cap::BadCalls | Cap::Loop);
            let cap = session.state.cap.filter(|cap| !lifted(cap) || told != Some(*cap));
            if let Some(cap) = cap {
                let next = if lifted(&cap) { "Say something to go on" } else { "/budget SPEC adds to it" };
                shown.print(&format!("{}. {next}, /done ends the conversation.", cap.words()));
            }
            told = session.state.cap;
            let typed = self.input.lock().unwrap_or_else(PoisonError::into_inner).read();
            match typed {
                Typed::Nothing => {}
                Typed::Leave => return Ok((id.clone(), Ended::Left)),
                Typed::Words(words) => {
                    told = None;
                    session.say(&words, &shown).map_err(cut_short)?;
                }
                Typed::Command(command, words) => {
                    let mut done = Ok(None);
                    let mut perform =
                        || done = commands::perform(app, &mut session, &command, &words, &shown);
                    work(&mut perform);
                    match done {
                        Ok(None) => {}
                        Ok(Some(ended)) => return Ok((id.clone(), ended)),
                        // What cannot be done is said; what cannot be written down ends it.
                        Err(failure) => {
                            shown.print(&format!("{}: {}", command, failure.message()));
                            if let Some(help) = failure.help() {
                                shown.print(&format!("  {help}"));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The session: a new one, or one that goes on.
fn begin(app: &App, args: &ChatArgs, resume: Option<&str>, stop: Stop) -> Result<Session, Failure> {
    let launcher = args.choice.launcher(app, args.prompts.as_ref())?;
    if let Some(part) = resume {
        let (workspace, id) = app.session(part)?;
        let session = listing::read(&workspace, &id)?;
        if session.state.start.mode != Mode::ModeA {
            return Err(Failure::input(format!("session {} is no conversation", id.short()))
                .remedy(format!("resume it with `chemigram run-mode-b --resume {}`", id.short())));
        }
        let provider = args.choice.connect(&launcher, &run::resumed(app, &args.choice, &session, None))?;
        let fallback = launcher.fallback(args.fallback.as_deref(), session.state.start.seed)?;
        let overrides = Overrides { provider: Some(provider), fallback, ..Overrides::default() };
        return Ok(launcher.resume(workspace, &session, overrides, stop)?);
    }
    let photo = args.photo.as_ref().ok_or_else(|| Failure::input("no photo is named"))?;
    let provider = args.choice.connect(&launcher, &args.choice.choice(DEFAULT_SEED))?;
    let info = provider.info();
    let priced = !info.free && info.price.input.is_some() && info.price.output.is_some();
    let usual = format!("{BUDGET}{}", if priced { COST } else { "" });
    let request = Request {
        brief: None,
        vectors: Vec::new(),
        budget: Budget::parse(args.budget.as_deref().unwrap_or(&usual))?,
        from: args.from.clone(),
        criteria: None,
        prompt: args.prompt.clone().unwrap_or_else(|| talk::PROMPT.into()),
        preview_edge: args.preview_size,
        unattended: false,
        proposes: true,
        seed: DEFAULT_SEED,
    };
    let spec = SessionSpec {
        request,
        protocol: None,
        provider,
        fallback: launcher.fallback(args.fallback.as_deref(), DEFAULT_SEED)?,
        referee: Referee::Nobody,
        proxy: proxy::Choice::Off,
        renderers: 1,
        tastes: None,
    };
    let prepared = launcher.prepare(app.photo(photo)?, spec, stop)?;
    Ok(prepared.talk()?.start()?)
}

/// The newest conversation of the library.
fn last(app: &App) -> Result<(Workspace, SessionId), Failure> {
    let mut sessions = Vec::new();
    for photo in app.library.photos()? {
        let workspace = app.photo(&photo)?;
        sessions.extend(listing::of_photo(&workspace)?.into_iter().map(|id| (id, workspace.clone())));
    }
    // An id begins with its time.
    sessions.sort_by(|(a, _), (b, _)| b.cmp(a));
    let talks = |(id, workspace): &(SessionId, Workspace)| {
        listing::read(workspace, id).is_ok_and(|session| session.state.talks())
    };
    let found = sessions.into_iter().find(talks).map(|(id, workspace)| (workspace, id));
    found.ok_or_else(|| {
        Failure::new(ErrorCode::NotFound, "there is no conversation to go on with")
            .remedy("begin one with `chemigram chat PHOTO`")
    })
}

fn opening(session: &Session, shown: &Shown<'_>, first: bool) {
    let start = &session.state.start;
    let branch = start.branches.first().map(|planned| planned.branch.as_str()).unwrap_or_default();
    let ledger = session.gate.ledger();
    shown.words(&format!(
        "{} about `{}` with {}/{}, on branch {branch} from {}. {} /help lists commands, /done ends it.",
        if first { "A conversation" } else { "The conversation goes on" },
        start.photo,
        start.provider,
        start.model,
        start.baseline_ref,
        ledger.line(session.gate.elapsed()),
    ));
}
