//! The only place that writes to standard output and standard error.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::args::{Color, Globals};
use super::failure::Failure;
use super::schema::SCHEMA_VERSION;
use crate::review::{Style, plain};

/// The narrowest and the widest text that reads well.
const WIDTH: std::ops::RangeInclusive<usize> = 40..=110;

/// How results, remarks and errors leave the program.
#[derive(Clone, Debug)]
pub struct Output {
    pub json: bool,
    /// Results and errors only.
    pub quiet: bool,
    /// More than what a person usually wants to read.
    pub verbose: bool,
    color: bool,
    out: Arc<Mutex<Stdout>>,
}

/// The state of standard output. After the first failure nothing is written to it.
#[derive(Debug, Default)]
enum Stdout {
    #[default]
    Open,
    /// Its reader went away, which is no error: `chemigram log | head` is done when `head` is.
    Closed,
    Failed(io::Error),
}

/// Whether standard output is a terminal on which colours are wanted.
pub fn wants_color() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !unwanted && !dumb && io::stdout().is_terminal()
}

impl Output {
    /// As the arguments and the terminal say.
    pub fn new(globals: &Globals) -> Self {
        let color = match globals.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => wants_color(),
        };
        Self {
            json: globals.json,
            quiet: globals.quiet,
            verbose: globals.verbose > 0,
            color,
            out: Arc::default(),
        }
    }

    /// For errors in the arguments themselves, which leave nothing to go by but `--json`.
    pub fn for_json() -> Self {
        Self { json: true, quiet: true, verbose: false, color: false, out: Arc::default() }
    }

    /// For errors in the arguments themselves, and for help, as text.
    pub fn for_errors() -> Self {
        Self { json: false, ..Self::for_json() }
    }

    /// How a text is to be laid out.
    pub fn style(&self) -> Style {
        Style { color: self.color, width: width() }
    }

    /// Columns and rows of the terminal that results go to; `None` where there is none, or no colours are wanted.
    pub fn screen(&self) -> Option<(usize, usize)> {
        let shown = self.color && !self.json && io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|_| shown)?;
        Some((width(), usize::from(size.ws_row).max(1)))
    }

    /// Whether progress may be shown: a person sees standard error, and nothing else is written there.
    pub fn shows_progress(&self) -> bool {
        !self.json && !self.quiet && io::stderr().is_terminal()
    }

    /// Whether a person can be asked.
    pub fn can_ask(&self) -> bool {
        !self.json && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The result of a command: `value` with `--json`, else the text, of which nothing moves the cursor or changes
    /// colours, whatever names are in it.
    pub fn result<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.styled(value, || plain(&text()))
    }

    /// [`Self::result`] of a text with colours of our own, and of others' words only what is [`plain`].
    pub fn styled<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.json {
            let json = serde_json::to_string_pretty(value).map_err(|e| Failure::input(e.to_string()))?;
            self.line(&versioned(json, "\n  ", " "));
        } else {
            let text = text();
            if !text.is_empty() {
                self.line(text.trim_end_matches('\n'));
            }
        }
        Ok(())
    }

    /// One line (or several) of a result for people.
    pub fn text(&self, text: &str) {
        self.line(&plain(text));
    }

    /// One line (or several) of a result for programs.
    pub fn line(&self, text: &str) {
        self.raw(format!("{text}\n").as_bytes());
    }

    /// One object for programs, on a line.
    pub fn object<T: Serialize>(&self, value: &T) {
        if let Ok(json) = serde_json::to_string(value) {
            self.line(&versioned(json, "", ""));
        }
    }

    /// Bytes of a result.
    pub fn raw(&self, bytes: &[u8]) {
        let mut state = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, Stdout::Open) {
            return;
        }
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => *state = Stdout::Closed,
            Err(error) => *state = Stdout::Failed(error),
        }
    }

    /// The exit status of a command that ended with `status`: a result that could not be written is a failure.
    pub fn ended(&self, status: u8) -> u8 {
        let state = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let Stdout::Failed(error) = &*state else { return status };
        let failure = unwritten(error);
        self.error_text(&format!("error: {}", failure.message()));
        if status == 0 { failure.exit_status() } else { status }
    }

    /// A remark for a person, on standard error; silent with `--json` and `--quiet`.
    pub fn remark(&self, text: &str) {
        if !self.json && !self.quiet {
            self.error_text(text);
        }
    }

    /// Asks a person for one line; `None` at the end of input.
    pub fn ask(&self, question: &str) -> Option<String> {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{} ", plain(question));
        let _ = err.flush();
        drop(err);
        let mut answer = String::new();
        match io::stdin().read_line(&mut answer) {
            Ok(n) if n > 0 => Some(answer.trim().to_owned()),
            _ => None,
        }
    }

    /// An error, as text on standard error or as JSON on standard output.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            self.object(&failure.to_output());
            return;
        }
        self.error_text(&format!("error: {}", failure.message()));
        if let Some(help) = failure.help() {
            self.error_text(&format!("help: {help}"));
        }
    }

    /// Prints a text to standard error, even with `--quiet` or `--json`.
    pub fn say(&self, text: &str) {
        self.error_text(text);
    }

    fn error_text(&self, text: &str) {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr().lock(), "{}", plain(text));
    }
}

/// An object with the version of its schema in front; anything else as it is. `indent` stands before a key and `space`
/// behind its colon.
fn versioned(json: String, indent: &str, space: &str) -> String {
    match json.strip_prefix('{') {
        Some("}") => format!("{{{indent}\"schema_version\":{space}{SCHEMA_VERSION}{}}}", indent.trim_end()),
        Some(rest) => format!("{{{indent}\"schema_version\":{space}{SCHEMA_VERSION},{rest}"),
        None => json,
    }
}

/// Standard output took no more.
fn unwritten(error: &io::Error) -> Failure {
    Failure::file("write", Path::new("standard output"), error)
}

/// Columns of the terminal: `COLUMNS`, else what the system says, else 80.
fn width() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|v| v.parse().ok()).filter(|&n: &usize| n > 0);
    let asked = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let width = named.or_else(asked).filter(|&n| n > 0).unwrap_or(80);
    width.clamp(*WIDTH.start(), *WIDTH.end())
}
