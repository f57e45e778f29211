//! What a referee's opinion counts for: it may only tighten what the checks decided.

use serde::{Deserialize, Serialize};

use super::schema::Outcome;

/// What a referee says of the new picture, seen beside the old one without knowing which is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The new picture serves the brief better.
    Better,
    /// No difference that counts.
    Same,
    /// The old picture serves it better.
    Worse,
    /// The new picture is not what was asked for.
    OffBrief,
    /// It cannot say.
    Unsure,
}

impl Verdict {
    /// Two opinions on one pair, shown in both orders, both told of the new picture: who contradicts himself
    /// sees no difference.
    pub fn of_orders(first: Self, second: Self) -> Self {
        if first == second { first } else { Self::Same }
    }

    /// The verdict, given what the checks said: after a failed check nothing is better, and nothing is as good.
    pub fn tightened(self, checks_passed: bool) -> Self {
        match self {
            Self::Better | Self::Same | Self::Unsure if !checks_passed => Self::Worse,
            verdict => verdict,
        }
    }

    /// The outcome of a state of kind `referee`.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Better => Outcome::Better,
            Self::Same => Outcome::Same,
            Self::Worse => Outcome::Worse,
            Self::OffBrief => Outcome::OffBrief,
            Self::Unsure => Outcome::Unsure,
        }
    }
}

/// What a referee says of an attempt that is held against criteria.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ruling", rename_all = "snake_case")]
pub enum Ruling {
    /// The criteria are met.
    Passed {
        /// The state to go to; `None` ends the run. Only the original format asks for it.
        #[serde(default)]
        next: Option<String>,
    },
    /// They are not.
    Failed {
        /// What to do better.
        feedback: String,
    },
    /// There is no referee, or nothing left to pay it with.
    Unavailable,
}

/// Whether an attempt passes: the checks decide, and a referee may only turn a pass into a failure.
pub fn tighten(checks_passed: bool, opinion: Option<bool>) -> bool {
    checks_passed && opinion.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    const ALL: [Verdict; 5] = [Better, Same, Worse, OffBrief, Unsure];

    #[test]
    fn a_referee_never_turns_a_failure_into_a_pass() {
        for opinion in [None, Some(false), Some(true)] {
            assert!(!tighten(false, opinion), "{opinion:?}");
        }
        assert!(tighten(true, None) && tighten(true, Some(true)) && !tighten(true, Some(false)));
        for verdict in ALL {
            assert_eq!(verdict.tightened(true), verdict);
            assert!(matches!(verdict.tightened(false), Worse | OffBrief), "{verdict:?}");
        }
    }

    #[test]
    fn who_contradicts_himself_sees_no_difference() {
        for first in ALL {
            for second in ALL {
                let expected = if first == second { first } else { Same };
                assert_eq!(Verdict::of_orders(first, second), expected);
            }
        }
    }
}
