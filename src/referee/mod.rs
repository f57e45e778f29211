//! The second opinion: somebody who did not do the work looks at what came of it.
//!
//! There are two referees. The [`model::ModelReferee`] is another language model, asked blind: it sees two
//! pictures as A and B, what was wished for and measured numbers, and never a word of whoever made the
//! pictures. The [`offline`] referee knows numbers alone, by a published formula, and needs no network.
//!
//! Nothing here decides, pays or writes down anything: a referee turns a [`Question`] into an [`Answer`], and
//! the session asks, in which order, how often and what follows. [`qualify`] says whether one is to be trusted.

pub mod model;
pub mod offline;
pub mod qualify;

use serde::{Deserialize, Serialize};

pub use model::{ModelReferee, Prompted, RefereeError, Unreadable};

use crate::conversation::ImageRef;
use crate::protocol::checks::Numbers;
use crate::protocol::rules::{Ruling, Verdict};
use crate::transcript::Vector;
use pixels::metrics::axes::Axis;
use pixels::metrics::vectors::vector_axes;

/// What a branch was meant to do, in the photographer's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal<'a> {
    /// The vector's name: it may be the object of the direction (`shadows`: `lift them`).
    pub name: &'a str,
    /// Where to push.
    pub direction: &'a str,
    /// How far.
    pub intensity: Option<&'a str>,
}

impl Goal<'_> {
    /// The axes that it asks to move, each with +1 or −1; empty when it asks for nothing measurable.
    pub fn axes(&self) -> Vec<(Axis, i8)> {
        vector_axes(self.name, self.direction)
    }
}

impl<'a> From<&'a Vector> for Goal<'a> {
    fn from(vector: &'a Vector) -> Self {
        let Vector { name, direction, intensity } = vector;
        Self { name: name.as_str(), direction, intensity: intensity.as_deref() }
    }
}

/// A picture as a referee sees it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The picture. Its caption is not shown: it may name a branch.
    pub picture: &'a ImageRef,
    /// Its numbers, by metric.
    pub numbers: &'a Numbers,
}

/// What is put before a referee. Never the words of whoever made the pictures.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The photographer's brief.
    pub brief: &'a str,
    /// What the branch at hand is meant to do.
    pub goal: Option<Goal<'a>>,
    /// What is asked.
    pub kind: Kind<'a>,
}

/// What is asked of a referee.
///
/// Criteria are taken as they stand, with the data marks that a protocol has set; a text that comes from
/// elsewhere goes through [`crate::protocol::template::fenced`] first.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// Which of two pictures serves the request better. Which of them is new stays with the caller.
    Pair {
        /// What to go by.
        criteria: &'a str,
        /// The picture shown first.
        a: Shown<'a>,
        /// The picture shown second.
        b: Shown<'a>,
    },
    /// Whether an attempt meets its criteria.
    Criteria {
        /// The criteria.
        criteria: &'a str,
        /// The states that may be named as the next one; empty where none is asked for.
        legal: &'a [String],
        /// The picture as it is.
        now: Shown<'a>,
        /// As it was at the start.
        start: Option<Shown<'a>>,
        /// Names of the tools that the engine ran in the attempt, in their order. Names alone: arguments
        /// would carry the model's words.
        done: &'a [String],
        /// What was written in the attempt, where a text may be its result; else empty.
        said: &'a str,
    },
}

/// A place on the table: who was shown first, and who second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// First.
    A,
    /// Second.
    B,
}

/// Which of two pictures is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Preference {
    /// The first.
    A,
    /// The second.
    B,
    /// No difference that counts.
    #[serde(rename = "same")]
    Same,
    /// It cannot say.
    #[serde(rename = "unsure")]
    Unsure,
}

/// What a referee says of a pair as it was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opinion {
    /// The better picture.
    pub better: Preference,
    /// Whether A does something else than was asked.
    #[serde(default)]
    pub a_off_brief: bool,
    /// Whether B does.
    #[serde(default)]
    pub b_off_brief: bool,
    /// Why, in a sentence or two.
    #[serde(default)]
    pub why: String,
}

impl Opinion {
    /// The verdict on the picture that lay at `candidate`. Both orders of a pair are asked with the candidate
    /// once at each side, and taken together by [`Verdict::of_orders`].
    pub fn verdict(&self, candidate: Side) -> Verdict {
        let off_brief = match candidate {
            Side::A => self.a_off_brief,
            Side::B => self.b_off_brief,
        };
        match (self.better, candidate) {
            _ if off_brief => Verdict::OffBrief,
            (Preference::A, Side::A) | (Preference::B, Side::B) => Verdict::Better,
            (Preference::A, Side::B) | (Preference::B, Side::A) => Verdict::Worse,
            (Preference::Same, _) => Verdict::Same,
            (Preference::Unsure, _) => Verdict::Unsure,
        }
    }
}

/// What a referee says.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Of a pair.
    Pair(Opinion),
    /// Of criteria.
    Criteria(Ruling),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_told_of_the_candidate_wherever_it_lay() {
        let opinion =
            |better, a_off_brief| Opinion { better, a_off_brief, b_off_brief: false, why: String::new() };
        for (opinion, on_a, on_b) in [
            (opinion(Preference::A, false), Verdict::Better, Verdict::Worse),
            (opinion(Preference::B, false), Verdict::Worse, Verdict::Better),
            (opinion(Preference::Same, false), Verdict::Same, Verdict::Same),
            (opinion(Preference::Unsure, false), Verdict::Unsure, Verdict::Unsure),
            (opinion(Preference::B, true), Verdict::OffBrief, Verdict::Better),
        ] {
            assert_eq!((opinion.verdict(Side::A), opinion.verdict(Side::B)), (on_a, on_b), "{opinion:?}");
        }
    }
}
