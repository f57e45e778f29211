//! What a person types in a conversation, and the signals that come meanwhile.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustyline::error::ReadlineError;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::failure::Failure;
use crate::launch::Runner;
use base::clock::Stop;
use base::error::ErrorCode;

/// What a person types.
pub enum Typed {
    Words(String),
    /// A command with its words.
    Command(String, Vec<String>),
    /// Nothing, or an interrupted line.
    Nothing,
    /// The end of the input.
    Leave,
}

/// Where lines come from: a terminal with editing and a history, or a pipe.
pub enum Input {
    Terminal(Box<rustyline::DefaultEditor>),
    Pipe,
}

impl Input {
    pub fn new() -> Self {
        if std::io::stdin().is_terminal()
            && let Ok(editor) = rustyline::DefaultEditor::new()
        {
            return Self::Terminal(Box::new(editor));
        }
        Self::Pipe
    }

    pub fn read(&mut self) -> Typed {
        let read = match self.line() {
            Ok(read) => read,
            Err(ReadlineError::Interrupted) => return Typed::Nothing,
            Err(_) => return Typed::Leave,
        };
        if let Self::Terminal(editor) = self {
            let _ = editor.add_history_entry(read.trim());
        }
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

    /// A line as it is typed.
    pub fn line(&mut self) -> Result<String, ReadlineError> {
        match self {
            Self::Terminal(editor) => editor.readline("> "),
            Self::Pipe => {
                let mut read = String::new();
                match std::io::stdin().read_line(&mut read) {
                    Ok(bytes) if bytes > 0 => Ok(read),
                    _ => Err(ReadlineError::Eof),
                }
            }
        }
    }
}

/// What a conversation is doing when a signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// A person types, or nothing has begun: Ctrl-C leaves, unless a line editor takes it for the line that is typed.
    Waiting,
    /// Something is carried out, which Ctrl-C stops.
    Working,
    /// An unattended session has the signals.
    Exploring,
}

/// The signals of a whole conversation. Handlers stay once they are set, so somebody has to listen to its end.
pub struct Signals {
    doing: Arc<AtomicU8>,
    stop: Arc<Mutex<Stop>>,
    /// Whether a line editor has Ctrl-C while a person types.
    edited: Arc<AtomicBool>,
    /// Somebody wants it to end, or the terminal was closed, while it explored.
    over: Arc<AtomicBool>,
    _runner: Runner,
}

impl Signals {
    /// Ctrl-C stops what is being done; a closed terminal or a request to end leaves the conversation, which can be
    /// resumed.
    pub fn listen() -> Result<Self, Failure> {
        let runner = Runner::new()?;
        let doing = Arc::new(AtomicU8::new(Doing::Waiting as u8));
        let stop = Arc::<Mutex<Stop>>::default();
        let (edited, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let handler = |kind| {
            signal(kind)
                .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot handle signals: {e}")))
        };
        let settings = rustix::termios::tcgetattr(std::io::stdin()).ok();
        let (now, stopping, editor, ends) = (doing.clone(), stop.clone(), edited.clone(), over.clone());
        runner.block_on(async move {
            let mut interrupt = handler(SignalKind::interrupt())?;
            let mut terminate = handler(SignalKind::terminate())?;
            let mut hangup = handler(SignalKind::hangup())?;
            tokio::spawn(async move {
                loop {
                    let asks = tokio::select! {
                        _ = interrupt.recv() => false,
                        _ = terminate.recv() => true,
                        _ = hangup.recv() => true,
                    };
                    let doing = now.load(Ordering::SeqCst);
                    if doing == Doing::Exploring as u8 {
                        ends.fetch_or(asks, Ordering::SeqCst);
                    } else if doing == Doing::Working as u8 && !asks {
                        stopping.lock().unwrap_or_else(PoisonError::into_inner).soft.cancel();
                    } else if !asks && editor.load(Ordering::SeqCst) {
                        // The line editor gets Ctrl-C as a key. A signal came late: what it was meant for has ended.
                    } else {
                        // Everything that happened is on the disk. A line that is being typed has the terminal in raw
                        // mode.
                        if let Some(settings) = &settings {
                            let _ = rustix::termios::tcsetattr(
                                std::io::stdin(),
                                rustix::termios::OptionalActions::Now,
                                settings,
                            );
                        }
                        std::process::exit(ErrorCode::Interrupted.exit_status().into());
                    }
                }
            });
            Ok::<_, Failure>(())
        })?;
        Ok(Self { doing, stop, edited, over, _runner: runner })
    }

    /// To be called once the conversation has begun whose lines come from `input`.
    pub fn begun(&self, input: &Input) {
        self.edited.store(matches!(input, Input::Terminal(_)), Ordering::SeqCst);
    }

    /// What Ctrl-C stops from here on.
    pub fn stops(&self, stop: &Stop) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
    }

    /// Does something, and goes on with what was being done.
    pub fn during<T>(&self, doing: Doing, work: impl FnOnce() -> T) -> T {
        let before = self.doing.swap(doing as u8, Ordering::SeqCst);
        let done = work();
        self.doing.store(before, Ordering::SeqCst);
        done
    }

    /// Stops what is being done, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).soft.cancel();
    }

    /// Whether it has to be left after an exploration.
    pub fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}
