//! What a conversation shows as it goes: the words of the model as they come, and what it edits.

use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use rustyline::error::ReadlineError;

use super::input::{Doing, Input, Signals};

use crate::budget::Ledger;
use crate::cli::output::Output;
use crate::cli::progress::Watch;
use crate::conversation::Message;
use crate::review::{plain, wrap};
use crate::session::driver::Host;
use crate::session::state::State;
use crate::transcript::{Event, Line};

/// Shows a conversation as it goes.
pub struct Shown<'a> {
    pub watch: Watch<'a>,
    bar: ProgressBar,
    output: Output,
    /// Whether somebody sees words come; else a reply is printed when it is whole.
    live: bool,
    reply: Mutex<Reply>,
    /// Who answers questions.
    asked: Option<(&'a Mutex<Input>, &'a Signals)>,
}

/// The reply that is coming.
#[derive(Default)]
struct Reply {
    /// Its words that were printed.
    printed: String,
    /// Letters in the present row.
    column: usize,
}

impl Reply {
    /// The next words, with line breaks where rows are full.
    fn flow(&mut self, words: &str, width: usize) -> String {
        self.printed.push_str(words);
        let mut out = String::new();
        for (at, row) in plain(words).split('\n').enumerate() {
            if at > 0 {
                out.push('\n');
                self.column = 0;
            }
            for word in row.split_whitespace() {
                let long = word.chars().count();
                if self.column > 0 && self.column + 1 + long > width {
                    out.push('\n');
                    self.column = 0;
                } else if self.column > 0 {
                    out.push(' ');
                    self.column += 1;
                }
                out.push_str(word);
                self.column += long;
            }
        }
        out
    }
}

impl<'a> Shown<'a> {
    pub fn new(watch: Watch<'a>, output: &Output, asked: Option<(&'a Mutex<Input>, &'a Signals)>) -> Self {
        let live = output.can_ask() && std::io::stdout().is_terminal();
        Self { bar: watch.bar(), watch, output: output.clone(), live, reply: Mutex::default(), asked }
    }

    /// Puts a question; `None` where nobody answers. Ctrl-C stops what it is asked for.
    pub fn ask(&self, question: &str) -> Option<String> {
        let (input, signals) = self.asked?;
        let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
        let read = self.bar.suspend(|| {
            self.output.say(question);
            signals.during(Doing::Waiting, || input.line())
        });
        match read {
            Ok(answer) => Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty()),
            Err(ReadlineError::Interrupted) => {
                signals.interrupt();
                None
            }
            Err(_) => None,
        }
    }

    pub fn print(&self, text: &str) {
        if !self.output.json {
            self.bar.suspend(|| self.output.text(text));
        }
    }

    /// A text of the model or for the person, wrapped.
    pub fn words(&self, text: &str) {
        let width = self.output.style().width;
        let rows: Vec<String> = plain(text).lines().flat_map(|row| wrap(row, width)).collect();
        self.print(&rows.join("\n"));
    }

    fn reply(&self) -> MutexGuard<'_, Reply> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the words that came, but for the last, of which more may come: a secret in it is not known yet.
    fn come(&self, text: &str) {
        let mut reply = self.reply();
        let text = text.trim_start();
        let whole = text.rfind(char::is_whitespace).and_then(|end| text.get(..end));
        let Some(more) = whole.and_then(|whole| whole.strip_prefix(reply.printed.as_str())) else { return };
        if more.trim().is_empty() {
            return;
        }
        if reply.printed.is_empty() {
            // The row of what is going on would be drawn over it.
            self.watch.finish();
        }
        let width = self.output.style().width;
        let out = reply.flow(more, width);
        self.output.raw(out.as_bytes());
    }

    /// Ends what was printed of a reply: with its last words where `text` is the whole of it.
    fn came(&self, text: Option<&str>) {
        let mut reply = std::mem::take(&mut *self.reply());
        if reply.printed.is_empty() {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                self.words(text);
            }
            return;
        }
        let rest = text.and_then(|text| text.strip_prefix(reply.printed.as_str()));
        let width = self.output.style().width;
        let out = reply.flow(rest.unwrap_or_default(), width);
        self.output.raw(format!("{out}\n").as_bytes());
        if let (None, Some(text)) = (rest, text.filter(|text| !text.is_empty())) {
            // It is another than what came, such as one without the calls that were written as text.
            self.words(text);
        }
        self.watch.start();
    }
}

impl Host for Shown<'_> {
    fn line(&self, event: &Line, state: &State, ledger: &Ledger) {
        match &event.event {
            Event::ModelReply { message: Message::Assistant { text, .. }, .. } => {
                self.came(Some(text.trim()))
            }
            Event::Attempt { .. } => self.came(None),
            _ => {}
        }
        self.watch.line(event, state, ledger);
    }

    fn busy(&self, what: &str) {
        self.watch.busy(what);
    }

    fn streaming(&self, amount: usize, text: &str) {
        if self.live {
            self.come(text);
        }
        if self.reply().printed.is_empty() {
            self.watch.streaming(amount, text);
        }
    }

    fn answer(&self, question: &str) -> Option<String> {
        self.ask(&format!("the model asks: {}", plain(question)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_come_in_pieces_are_wrapped_as_one_text() {
        let text = "The shadows are open now,\nand the cup\x1b[2J stays as white as it was before.";
        for step in 1..12 {
            let mut reply = Reply::default();
            let mut out = String::new();
            let mut from = 0;
            for at in text.match_indices(' ').map(|(at, _)| at).step_by(step) {
                out.push_str(&reply.flow(&text[from..at], 20));
                from = at;
            }
            out.push_str(&reply.flow(&text[from..], 20));
            let rows: Vec<String> = plain(text).lines().flat_map(|row| wrap(row, 20)).collect();
            assert_eq!(out, rows.join("\n"), "{step}");
            assert_eq!(reply.printed, text);
        }
    }
}
