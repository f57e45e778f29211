//! The report of a batch: one model, folded from its ledger and its transcripts, shown as text and as one HTML page.

use std::fmt::Write as _;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use crate::budget::{Amounts, Budget, usd};
use crate::overnight::plan::Caps;
use crate::overnight::record::{Batch, PlannedSession, SessionStatus, Track};
use crate::overnight::run::failed;
use crate::overnight::share::{clock, words};
use crate::overnight::spent::Spent;
use crate::overnight::{BatchError, page};
use crate::review::page::Gallery;
use crate::review::{BranchReview, NextStep, ReviewModel, Style, line, text};
use crate::session::bill::Money;
use crate::session::listing;
use crate::transcript::{NOTHING_USEFUL, Outcome};
use base::durable;
use base::error::{Coded as _, ErrorCode};
use base::ids::SessionId;
use engine::photo::Library;

/// The width of the text, in columns.
const WIDTH: usize = 96;
/// The widest a photo's name is in the table.
const NAME: usize = 32;

/// What became of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct BatchReport {
    /// Its name.
    #[serde(rename = "night")]
    pub name: String,
    /// Its folder, where the report is.
    pub folder: PathBuf,
    /// The plan's file.
    pub plan: PathBuf,
    /// When it was begun.
    #[serde(with = "base::stamp")]
    pub begun: Timestamp,
    /// Whether nothing is left to do.
    pub over: bool,
    /// What it may use.
    pub caps: Caps,
    /// What it used.
    pub spent: Amounts,
    /// Tokens and money by kind, of the sessions below.
    pub money: Money,
    /// Time during which sessions ran, in seconds.
    pub seconds: u64,
    /// The sessions in the plan's order.
    pub sessions: Vec<Row>,
}

/// One session of the batch.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The photo: its id, or as the plan names it while it has none.
    pub photo: String,
    /// What became of it, in a word or two: an outcome, `failed`, `not begun`, `waiting`.
    pub result: &'static str,
    /// Why, where it did not end well.
    pub why: String,
    /// What to do about it.
    pub remedy: Option<String>,
    /// The exit status: 0 when it ended well.
    pub status: u8,
    /// Whether it runs when the batch is resumed. One that the budget kept from starting does not: that takes more
    /// budget.
    pub open: bool,
    /// Its id, once it was started.
    pub session: Option<SessionId>,
    /// The budget that the batch gave it, where that is less than planned.
    pub cut_to: Option<Budget>,
    /// Everything else, once it has a transcript.
    pub review: Option<ReviewModel>,
}

impl Row {
    /// The branch to look at first.
    pub(super) fn best(&self) -> Option<&BranchReview> {
        self.review.as_ref()?.best()
    }

    /// The commands to look closer and to continue from here.
    pub(super) fn next(&self) -> Vec<NextStep> {
        let Some(session) = &self.session else { return Vec::new() };
        let show = NextStep {
            command: format!("chemigram review {}", session.short()),
            why: "open the page of this session".into(),
        };
        let steps = self.review.iter().flat_map(|review| review.next.iter().cloned());
        [show].into_iter().chain(steps).collect()
    }
}

impl BatchReport {
    /// The report of a batch as it is on disk.
    pub fn of(library: &Library, batch: &Batch) -> Self {
        let spent = Spent::of(library, batch);
        let rows = batch.record.sessions.iter().zip(batch.tracks());
        let sessions: Vec<Row> = rows.map(|(planned, track)| row(library, planned, &track)).collect();
        let reviews = sessions.iter().filter_map(|row| row.review.as_ref());
        Self {
            money: reviews.fold(Money::default(), |sum, review| sum.plus(review.money)),
            name: batch.record.name.clone(),
            folder: batch.folder.clone(),
            plan: batch.record.plan.clone(),
            begun: batch.record.begun,
            over: batch.is_over(),
            caps: batch.record.caps.clone(),
            spent: spent.amounts,
            seconds: spent.time.as_secs(),
            sessions,
        }
    }

    /// The exit status: 25 when the batch was stopped or killed, else 1 when a session failed, else 10 when the
    /// budget kept one from starting, else 28 when no session has a branch worth looking at, else 0.
    pub fn status(&self) -> u8 {
        let interrupted = ErrorCode::Interrupted.exit_status();
        let has = |what: &dyn Fn(&Row) -> bool| self.sessions.iter().any(what);
        if !self.over {
            interrupted
        } else if has(&|row| row.status != 0 && row.result != NOT_BEGUN) {
            1
        } else if has(&|row| row.status != 0) {
            ErrorCode::BudgetExhausted.exit_status()
        } else if !has(&|row| row.best().is_some()) {
            NOTHING_USEFUL
        } else {
            0
        }
    }

    /// `9 done, 2 failed, 1 not begun`.
    pub fn tally(&self) -> String {
        let count = |what: &dyn Fn(&Row) -> bool| self.sessions.iter().filter(|row| what(row)).count();
        let open = |row: &Row| [NOT_BEGUN, WAITING, Outcome::Interrupted.as_str()].contains(&row.result);
        let parts = [
            (count(&|row| row.status == 0), "done"),
            (count(&|row| row.status != 0 && !open(row)), "did not end well"),
            (count(&|row| row.result == Outcome::Interrupted.as_str()), "interrupted"),
            (count(&|row| row.result == NOT_BEGUN), "not begun"),
            (count(&|row| row.result == WAITING), "waiting"),
        ];
        let parts = parts.iter().filter(|(n, what)| *n > 0 || *what == "done");
        parts.map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// What it used, each with its cap where it has one.
    pub fn took(&self) -> String {
        let of = |used: String, cap: Option<String>, unit: &str| match cap {
            Some(cap) => format!("{used} of {cap}{unit}"),
            None => format!("{used}{unit}"),
        };
        let (spent, caps) = (&self.spent, &self.caps);
        let count = |cap: Option<u64>| cap.map(|n| n.to_string());
        let mut parts = vec![of(clock(self.seconds), caps.time_seconds.map(clock), "")];
        parts.push(of(usd(spent.cost_micro_usd), caps.cost_micro_usd.map(usd), " USD"));
        parts.push(of(spent.iterations.to_string(), count(caps.iterations), " iterations"));
        parts.push(of(spent.branches.to_string(), count(caps.branches), " branches"));
        parts.push(of(spent.renders.to_string(), count(caps.renders), " renders"));
        if spent.tokens > 0 || caps.tokens.is_some() {
            parts.push(of(spent.tokens.to_string(), count(caps.tokens), " tokens"));
        }
        parts.join(", ")
    }

    /// The command that resumes the batch, where there is something left to do.
    pub fn resume_command(&self) -> Option<String> {
        self.sessions
            .iter()
            .any(|row| row.open)
            .then(|| format!("chemigram overnight --resume {}", self.name))
    }

    /// The whole report as text.
    pub fn text(&self) -> String {
        let mut page = format!("{}\n\n", self.summary());
        for (number, row) in self.sessions.iter().enumerate() {
            let _ = writeln!(page, "{}\n{}. {}\n", "─".repeat(WIDTH), number + 1, line(&row.photo));
            page.push_str(&row_text(row));
        }
        page
    }

    /// A table and a few lines: what is printed when the batch ends.
    pub fn summary(&self) -> String {
        let mut page = format!("Batch {}: {}\n", self.name, self.tally());
        let _ = writeln!(page, "Plan: {}", line(&self.plan.display().to_string()));
        let _ = writeln!(page, "Took: {}", self.took());
        if let Some(words) = self.money.words() {
            let _ = writeln!(page, "Tokens: {words}");
        }
        page.push('\n');
        let name = |row: &Row| line(&row.photo).chars().take(NAME).collect::<String>();
        let wide = self.sessions.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).max(5);
        let _ = writeln!(
            page,
            "{:wide$}  {:18}  {:>8}  {:>4}  {:>9}  {:>10}",
            "photo", "result", "branches", "best", "USD", "time"
        );
        for row in &self.sessions {
            let [branches, best, cost, time] = figures(row);
            let name = name(row);
            let _ = writeln!(
                page,
                "{name:wide$}  {:18}  {branches:>8}  {best:>4}  {cost:>9}  {time:>10}",
                row.result
            );
        }
        let bad: Vec<&Row> = self.sessions.iter().filter(|row| row.status != 0).collect();
        if !bad.is_empty() {
            page.push('\n');
        }
        for row in bad {
            let _ = writeln!(page, "{}: {}", line(&row.photo), problem(row));
        }
        if let Some(command) = self.resume_command() {
            let _ = writeln!(page, "\nTo run what was interrupted, failed or is waiting: `{command}`");
        }
        page.trim_end().to_owned()
    }

    /// Writes both reports into the batch's folder, the page with the pictures of `gallery`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, gallery: &mut Gallery) -> Result<(), BatchError> {
        let path = self.folder.join("report.html");
        let html = page::page(self, gallery).map_err(BatchError::io("write", &path))?;
        for (name, content) in [("report.txt", self.text()), ("report.html", html)] {
            let path = self.folder.join(name);
            durable::write(&path, content.as_bytes()).map_err(BatchError::io("write", &path))?;
        }
        Ok(())
    }
}

/// The word for a session that the budget of the batch kept from starting.
const NOT_BEGUN: &str = "not begun";
const WAITING: &str = "waiting";

/// Branches, best score, cost and time of a session, as the table shows them.
pub(super) fn figures(row: &Row) -> [String; 4] {
    let none = || String::from("–");
    let Some(review) = &row.review else { return [none(), none(), none(), none()] };
    let best = row.best().and_then(|best| best.judged_score).map_or_else(none, |score| format!("{score}/5"));
    [
        review.branches.len().to_string(),
        best,
        usd(review.spent.cost_micro_usd),
        clock(review.elapsed_ms.div_ceil(1000)),
    ]
}

/// Why a session did not end well, and what to do about it, on one line.
pub(super) fn problem(row: &Row) -> String {
    let why = if row.why.is_empty() { row.result } else { &row.why };
    match &row.remedy {
        Some(remedy) => format!("{} ({})", line(why), line(remedy)),
        None => line(why),
    }
}

fn row_text(row: &Row) -> String {
    let mut text_of = String::new();
    if row.status != 0 {
        let _ = writeln!(text_of, "{}: {}\n", row.result, problem(row));
    }
    if let Some(cut_to) = &row.cut_to {
        let _ = writeln!(text_of, "Budget reduced to what the batch had left: {}\n", words(cut_to));
    }
    if let Some(review) = &row.review {
        text_of.push_str(&text(review, Style { color: false, width: WIDTH }));
        if let Some(session) = &row.session {
            let _ = writeln!(text_of, "  chemigram mode-b show {}", session.short());
        }
        text_of.push('\n');
    }
    text_of
}

fn row(library: &Library, planned: &PlannedSession, track: &Track) -> Row {
    let known = track.session.as_ref();
    let read = known.and_then(|(photo, id, _)| {
        let workspace = library.open(photo).ok()?;
        let session = listing::read(&workspace, id).ok()?;
        Some((ReviewModel::of(&workspace, &session).ok()?, session))
    });
    let (review, session) = read.unzip();
    let end = session.as_ref().and_then(|session| session.state.end.clone());
    let interrupted = Outcome::Interrupted;
    let (result, status, why, remedy) = match &track.status {
        SessionStatus::Waiting => {
            (WAITING, interrupted.exit_status(false), "it has not started yet".into(), None)
        }
        SessionStatus::Started => match review.as_ref().map(|review: &ReviewModel| review.condition.word()) {
            Some("running") => ("running", interrupted.exit_status(false), "it is running".into(), None),
            _ => {
                let why = "it was interrupted; it resumes with the batch".into();
                (interrupted.as_str(), interrupted.exit_status(false), why, None)
            }
        },
        SessionStatus::Ended { outcome, status, cut } => {
            let why = match (cut, &end) {
                (true, _) => "the batch was stopped; it resumes with the batch".to_owned(),
                (false, Some(end)) if *status != 0 => end.reason.clone(),
                (false, _) => String::new(),
            };
            (outcome.as_str(), *status, why, None)
        }
        SessionStatus::Failed(fault) => {
            ("failed", fault.code.exit_status().max(1), fault.message.clone(), fault.remedy())
        }
        // It was started in an earlier run, and the batch had nothing left for it.
        SessionStatus::NotBegun(why) if known.is_some() => {
            (interrupted.as_str(), interrupted.exit_status(false), why.clone(), None)
        }
        SessionStatus::NotBegun(why) => {
            (NOT_BEGUN, ErrorCode::BudgetExhausted.exit_status(), why.clone(), None)
        }
    };
    let open = match &track.status {
        SessionStatus::Waiting | SessionStatus::Started | SessionStatus::Failed(_) => true,
        SessionStatus::Ended { outcome, cut, .. } => *cut || failed(*outcome),
        SessionStatus::NotBegun(_) => false,
    };
    Row {
        open,
        photo: known.map_or_else(|| planned.photo.clone(), |(photo, ..)| photo.to_string()),
        result,
        why,
        remedy,
        status,
        session: known.map(|(_, id, _)| id.clone()),
        cut_to: known.map(|(_, _, budget)| budget.clone()).filter(|given| *given != planned.budget),
        review,
    }
}
