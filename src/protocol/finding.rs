//! What can be wrong with a protocol: the codes, and one finding.

use std::fmt;

use serde::{Serialize, Serializer};

/// How a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// The original format: instructions and criteria in prose, and the referee names the next state.
    #[default]
    Compat,
    /// Version 2: transitions, tools, checks and budgets are declared, and what is doubtful is refused.
    Strict,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The protocol runs; a person should look.
    Warning,
    /// The protocol is refused.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A lint code. Numbers are never given to another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table below says what each means")]
pub enum Code {
    P001,
    P002,
    P003,
    P004,
    P005,
    P006,
    P010,
    P011,
    P012,
    P013,
    P014,
    P015,
    P016,
    P017,
    P018,
    P019,
    P020,
    P021,
    P022,
    P030,
    P031,
    P032,
    P033,
    P040,
    P041,
    P050,
}

use Code::*;
use Severity::{Error, Warning};

/// Every code: its meaning, and its severity in a strict file and in one of the original format (`None`: it
/// cannot occur there).
pub const CODES: &[(Code, &str, Option<Severity>, Option<Severity>)] = &[
    (P001, "cannot be read: syntax, a missing field, a wrong type or value", Some(Error), Some(Error)),
    (P002, "the initial state is not declared", Some(Error), Some(Error)),
    (P003, "two states of one name", Some(Error), Some(Error)),
    (P004, "two names that differ only in case", Some(Warning), Some(Warning)),
    (P005, "a field that does not fit the state's kind, or is missing for it", Some(Error), None),
    (P006, "a state without instructions, or with nothing to be judged by", Some(Warning), Some(Warning)),
    (P010, "a transition to a state that is not declared", Some(Error), Some(Warning)),
    (P011, "a state that cannot be reached", Some(Warning), Some(Warning)),
    (P012, "no end can be reached from the initial state", Some(Error), Some(Warning)),
    (P013, "a state from which no end can be reached", Some(Error), Some(Warning)),
    (P014, "a cycle that nothing bounds", Some(Error), None),
    (P015, "an outcome that leads nowhere", Some(Error), None),
    (P016, "a transition that can never be taken", Some(Error), None),
    (P017, "a loop over a list that does not work", Some(Error), None),
    (P018, "a transition on an outcome that the state cannot have", Some(Error), None),
    (P019, "a condition on something that does not exist", Some(Error), None),
    (P020, "a placeholder without a value", Some(Error), Some(Error)),
    (P021, "a value of the wrong type, or in a place where it may not stand", Some(Error), Some(Error)),
    (P022, "a variable that nothing uses", Some(Warning), Some(Warning)),
    (P030, "an unknown tool, or arguments that it does not take", Some(Error), None),
    (P031, "an unknown check or metric", Some(Error), None),
    (P032, "the referee is the model that it referees", Some(Warning), None),
    (P033, "a state that judges may also edit", Some(Warning), None),
    (P040, "budgets that do not add up", Some(Error), None),
    (P041, "a wrap-up that leads back into the work", Some(Error), None),
    (P050, "an unknown field, or two that contradict each other", Some(Error), Some(Warning)),
];

impl Code {
    fn row(self) -> (&'static str, Option<Severity>, Option<Severity>) {
        CODES
            .iter()
            .find(|(code, ..)| *code == self)
            .map_or(("", Some(Error), Some(Error)), |&(_, title, strict, compat)| (title, strict, compat))
    }

    /// What it means, in a few words.
    pub fn title(self) -> &'static str {
        self.row().0
    }

    /// How bad it is in a file of that dialect; `None` when it cannot occur there.
    pub fn severity(self, dialect: Dialect) -> Option<Severity> {
        let (_, strict, compat) = self.row();
        match dialect {
            Dialect::Strict => strict,
            Dialect::Compat => compat,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Line and column of a place in a file, from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// The place of the byte `offset` in `text`.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        Self { line, column }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// Where, as a path such as `states[2].transitions[0].to`; empty for the file as a whole.
    pub path: String,
    /// The same as line and column, where the file has that place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.severity, self.code)?;
        if let Some(at) = self.at {
            write!(f, " line {}, column {}", at.line, at.column)?;
        }
        if !self.path.is_empty() {
            write!(f, " `{}`", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The findings of one file, gathered.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub dialect: Dialect,
    pub list: Vec<Finding>,
}

impl Findings {
    /// Adds one; a code that cannot occur in the dialect is left out.
    pub fn add(&mut self, code: Code, path: impl Into<String>, message: impl Into<String>) {
        if let Some(severity) = code.severity(self.dialect) {
            let (path, message) = (path.into(), message.into());
            self.list.push(Finding { code, severity, path, at: None, message });
        }
    }

    pub fn has(&self, code: Code) -> bool {
        self.list.iter().any(|finding| finding.code == code)
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Error)
    }
}
