//! `chat`: a conversation about one photo.

mod commands;
mod ending;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::ProgressBar;
use rustyline::error::ReadlineError;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::output::Output;
use super::progress::Watch;
use super::run::{self, ChoiceArgs};
use super::setup::{App, optional_text};
use crate::budget::{Budget, Ledger};
use crate::conversation::Message;
use crate::launch::{DEFAULT_SEED, Overrides, Runner, SessionSpec};
use crate::review::{plain, wrap};
use crate::session::driver::{Host, Session, Turn};
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::start::Request;
use crate::session::state::State;
use crate::session::{SessionError, talk};
use crate::transcript::{Event, Line, Mode, SessionEnd, Vector};
use base::clock::Stop;
use base::error::{ErrorCode, Fault};
use base::ids::{PhotoId, SessionId};
use darktable::proxy;
use engine::photo::Workspace;

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
}

/// What a person types.
enum Typed {
    Words(String),
    /// A command with its words.
    Command(String, Vec<String>),
    /// Nothing, or an interrupted line.
    Nothing,
    /// The end of the input.
    Leave,
}

/// Where lines come from: a terminal with editing and a history, or a pipe.
enum Input {
    Terminal(Box<rustyline::DefaultEditor>),
    Pipe,
}

impl Input {
    fn new() -> Self {
        if std::io::stdin().is_terminal()
            && let Ok(editor) = rustyline::DefaultEditor::new()
        {
            return Self::Terminal(Box::new(editor));
        }
        Self::Pipe
    }

    fn read(&mut self) -> Typed {
        let read = match self {
            Self::Terminal(editor) => match editor.readline("> ") {
                Ok(read) => {
                    let _ = editor.add_history_entry(read.trim());
                    read
                }
                Err(ReadlineError::Interrupted) => return Typed::Nothing,
                Err(_) => return Typed::Leave,
            },
            Self::Pipe => {
                let mut read = String::new();
                match std::io::stdin().read_line(&mut read) {
                    Ok(bytes) if bytes > 0 => read,
                    _ => return Typed::Leave,
                }
            }
        };
        let read = read.trim();
        match read.strip_prefix('/') {
            Some(command) => match shlex::split(command) {
                Some(words) if !words.is_empty() => {
                    let mut words = words.into_iter();
                    Typed::Command(words.next().unwrap_or_default(), words.collect())
                }
                _ => Typed::Words(read.to_owned()),
            },
            None if read.is_empty() => Typed::Nothing,
            None => Typed::Words(read.to_owned()),
        }
    }
}

/// Shows a conversation as it goes: what the model says and edits.
struct Shown<'a> {
    watch: Watch<'a>,
    bar: ProgressBar,
    output: Output,
}

impl Shown<'_> {
    fn print(&self, text: &str) {
        if !self.output.json {
            self.bar.suspend(|| self.output.text(text));
        }
    }

    /// A text of the model or for the person, wrapped.
    fn words(&self, text: &str) {
        let width = self.output.style().width;
        let rows: Vec<String> = plain(text).lines().flat_map(|row| wrap(row, width)).collect();
        self.print(&rows.join("\n"));
    }
}

impl Host for Shown<'_> {
    fn line(&self, event: &Line, state: &State, ledger: &Ledger) {
        if let Event::ModelReply { message: Message::Assistant { text, .. }, .. } = &event.event
            && !text.trim().is_empty()
        {
            self.words(text.trim());
        }
        self.watch.line(event, state, ledger);
    }

    fn busy(&self, what: &str) {
        self.watch.busy(what);
    }

    fn streaming(&self, amount: usize) {
        self.watch.streaming(amount);
    }

    fn answer(&self, question: &str) -> Option<String> {
        self.watch.answer(question)
    }
}

/// Ctrl-C stops a reply; a closed terminal or a request to end leaves the conversation, which can be resumed.
fn listen(stop: Stop, replying: std::sync::Arc<AtomicBool>) -> Result<(), Failure> {
    let handler = |kind| {
        signal(kind).map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot handle signals: {e}")))
    };
    let mut interrupt = handler(SignalKind::interrupt())?;
    let mut terminate = handler(SignalKind::terminate())?;
    let mut hangup = handler(SignalKind::hangup())?;
    let settings = rustix::termios::tcgetattr(std::io::stdin()).ok();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {
                    if replying.load(Ordering::SeqCst) {
                        stop.soft.cancel();
                        continue;
                    }
                }
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            // Everything that happened is on the disk. A line that is being typed has the terminal in raw mode.
            if let Some(settings) = &settings {
                let _ = rustix::termios::tcsetattr(
                    std::io::stdin(),
                    rustix::termios::OptionalActions::Now,
                    settings,
                );
            }
            std::process::exit(ErrorCode::Interrupted.exit_status().into());
        }
    });
    Ok(())
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
    let mut input = Input::new();
    let mut resume = args.resume.clone();
    let mut news = None;
    loop {
        let (session, ended) =
            one_run(app, args, resume.as_deref(), news.take(), message.as_deref(), &mut input)?;
        let (workspace, id) = app.session(session.as_str())?;
        match ended {
            Ended::Explore(vectors, from) => {
                let told = commands::explore(app, args, workspace.id(), vectors, &from);
                news = Some(told.unwrap_or_else(|failure| {
                    app.output.remark(&format!("the exploration failed: {}", failure.message()));
                    "An exploration that the photographer began failed.".into()
                }));
                resume = Some(id.to_string());
            }
            Ended::Left => {
                app.output.remark(&format!("left; go on with `chemigram chat --resume {}`", id.short()));
                return Ok(0);
            }
            Ended::Over(end) => {
                ending::look_back(app, &id, &mut input)?;
                ending::closing(app, &id, &end)?;
                return Ok(end.outcome.exit_status(true));
            }
        }
    }
}

/// Talks until the person leaves, ends it or explores.
fn one_run(
    app: &App,
    args: &ChatArgs,
    resume: Option<&str>,
    news: Option<String>,
    message: Option<&str>,
    input: &mut Input,
) -> Result<(SessionId, Ended), Failure> {
    let runner = Runner::new()?;
    let (stop, replying) = (Stop::default(), std::sync::Arc::new(AtomicBool::new(false)));
    let watch = Watch::new(&app.output, message.is_none());
    let first = resume.is_none();
    runner.block_on(async { listen(stop.clone(), replying.clone()) })?;
    let mut session = begin(app, args, resume, stop)?;
    let id = session.state.start.session.clone();
    let bar = watch.bar();
    let shown = Shown { watch, bar, output: app.output.clone() };
    if let Some(news) = news {
        session.tell(&news, &shown)?;
    } else if message.is_none() {
        opening(&session, &shown, first);
    }
    let advance = |session: &mut Session| {
        shown.watch.start();
        replying.store(true, Ordering::SeqCst);
        let turn = runner.block_on(session.advance(&shown));
        replying.store(false, Ordering::SeqCst);
        shown.watch.finish();
        turn
    };
    let cut_short = |error: SessionError| {
        let remedy = format!("go on with `chemigram chat --resume {}`", id.short());
        Failure::from(Fault::from(&error)).remedy(remedy)
    };
    let mut once = message.map(str::to_owned);
    let said_once = once.is_some();
    let mut looked = None;
    loop {
        match advance(&mut session).map_err(cut_short)? {
            Turn::Over(end) => return Ok((id.clone(), Ended::Over(end))),
            Turn::Person => {}
        }
        let failed = session.state.given_up().map(str::to_owned);
        if once.is_none() && looked.as_ref() != Some(&session.state.head.commit) {
            looked = Some(session.state.head.commit.clone());
            commands::look(app, &mut session, &json!({}), &shown, false)
                .unwrap_or_else(|failure| shown.print(failure.message()));
        }
        if let Some(once) = once.take() {
            session.say(&once, &shown).map_err(cut_short)?;
            continue;
        }
        if said_once {
            if let Some(why) = failed {
                return Err(Failure::new(ErrorCode::ProviderError, why)
                    .remedy(format!("go on with `chemigram chat --resume {}`", id.short())));
            }
            return Ok((id.clone(), Ended::Left));
        }
        if let Some(why) = failed {
            shown.print(&format!("no reply: {}. Say something to try again.", plain(&why)));
        }
        if let Some(cap) = session.state.cap {
            shown.print(&format!("{}. /budget SPEC adds to it, /done ends the conversation.", cap.words()));
        }
        match input.read() {
            Typed::Nothing => {}
            Typed::Leave => return Ok((id.clone(), Ended::Left)),
            Typed::Words(words) => session.say(&words, &shown).map_err(cut_short)?,
            Typed::Command(command, words) => {
                match commands::perform(app, &mut session, &command, &words, &shown) {
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

/// The session: a new one, or one that goes on.
fn begin(app: &App, args: &ChatArgs, resume: Option<&str>, stop: Stop) -> Result<Session, Failure> {
    let launcher = args.choice.launcher(app, args.prompts.as_ref())?;
    if let Some(part) = resume {
        let (workspace, id) = if part == "last" { last(app)? } else { app.session(part)? };
        let session = listing::read(&workspace, &id)?;
        if session.state.start.mode != Mode::ModeA {
            return Err(Failure::input(format!("session {} is no conversation", id.short()))
                .remedy(format!("resume it with `chemigram run-mode-b --resume {}`", id.short())));
        }
        let provider = args.choice.connect(&launcher, &run::resumed(app, &args.choice, &session, None))?;
        let overrides = Overrides { provider: Some(provider), ..Overrides::default() };
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
        fallback: None,
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
