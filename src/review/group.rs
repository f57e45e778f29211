//! One photo on a page: the picture before and its branches, as templates show them.

use serde::Serialize;

use crate::budget::usd;
use crate::review::model::{BranchReview, NextStep, PendingProposal, ReviewModel};
use crate::review::page::Gallery;
use crate::review::{count, flag_words, line};
use crate::transcript::{Flag, JudgmentSource, Outcome};
use pixels::metrics::check::Verdict;

/// Words with a tone: `good`, `doubt`, `bad`, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What is said.
    pub text: String,
    /// The tone.
    pub tone: &'static str,
}

impl Remark {
    /// Without a tone.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: "" }
    }
}

/// A measured number, and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Number {
    /// Its name.
    pub label: &'static str,
    /// With its unit.
    pub value: String,
    /// In a sentence.
    pub meaning: &'static str,
}

/// One picture with what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shot {
    /// Session, branch and commit, divided by blanks: the name of a pick.
    pub key: String,
    /// What it is called.
    pub name: String,
    /// Whether it is the picture that the others are held against.
    pub before: bool,
    /// Whether a person can pick it.
    pub branch: bool,
    /// The picture's address; absent where there is none.
    pub src: Option<String>,
    /// Why there is none.
    pub why: String,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// What it shows, in words.
    pub alt: String,
    /// How far it is from the picture before, as a map.
    pub heat: Option<String>,
    /// What was asked for.
    pub asked: String,
    /// Its score in words.
    pub score: String,
    /// Remarks.
    pub remarks: Vec<Remark>,
    /// What it can be filtered by, divided by commas.
    pub tags: String,
    /// The model's reasons.
    pub reasoning: String,
    /// The moves that make it.
    pub moves: Vec<String>,
    /// Moves that were given up.
    pub tried: Vec<String>,
    /// What was measured.
    pub numbers: Vec<Number>,
    /// The second opinion.
    pub referee: String,
}

/// One photo with its pictures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// Its place in the page.
    pub id: String,
    /// The photo.
    pub photo: String,
    /// The session's id.
    pub session: String,
    /// The baseline's commit.
    pub baseline: String,
    /// What it can be filtered by, divided by commas.
    pub tags: String,
    /// Its best score; 0 without one.
    pub best: u8,
    /// One line about it.
    pub facts: Vec<Remark>,
    /// Why it did not end well.
    pub problem: String,
    /// The brief.
    pub brief: String,
    /// The model's summary.
    pub summary: String,
    /// The question on which the session waits.
    pub question: Option<String>,
    /// The pictures, the one before first.
    pub shots: Vec<Shot>,
    /// Branches of the plan that were not made.
    pub not_made: String,
    /// Missing moves.
    pub gaps: Vec<String>,
    /// Proposals that wait.
    pub proposals: Vec<PendingProposal>,
    /// Commands to go on with.
    pub next: Vec<NextStep>,
}

impl Group {
    /// Of a session's review. Difference maps are made if `maps`.
    pub fn of(review: &ReviewModel, gallery: &mut Gallery, maps: bool) -> Self {
        let best = review.best();
        let mut shots = vec![before(review, gallery)];
        shots.extend(review.branches.iter().map(|branch| {
            shot(review, branch, best.is_some_and(|best| best.branch == branch.branch), gallery, maps)
        }));
        let kept = if best.is_some() { "kept" } else { "" };
        let not_made: Vec<&str> = review.not_made.iter().map(|name| name.as_str()).collect();
        Self {
            photo: review.photo.clone(),
            session: review.session.clone(),
            baseline: review.baseline.to_string(),
            tags: format!("{kept},{}", review.condition.word()),
            best: best.and_then(|best| best.judged_score).unwrap_or(0),
            facts: facts(review),
            brief: review.brief.trim().to_owned(),
            summary: review.summary.clone(),
            question: review.question.clone(),
            shots,
            not_made: not_made.join(", "),
            gaps: review.gaps.clone(),
            proposals: review.proposals.clone(),
            next: review.next.clone(),
            ..Self::default()
        }
    }
}

fn facts(review: &ReviewModel) -> Vec<Remark> {
    let spent = &review.spent;
    let mut cost = format!("{} in {}", count(spent.iterations, "iteration"), time(review.elapsed_ms));
    if spent.cost_micro_usd > 0 {
        cost.push_str(&format!(", {} USD", usd(spent.cost_micro_usd)));
    }
    let kept = review.branches.iter().filter(|branch| branch.is_candidate()).count();
    let (tone, mut outcome) = match review.condition.outcome() {
        Some(Outcome::Completed) if kept > 0 => ("good", "completed".to_owned()),
        Some(Outcome::Completed) => ("doubt", "completed, no branch kept".to_owned()),
        None | Some(Outcome::BudgetExhausted | Outcome::NeedsClarification | Outcome::Cancelled) => {
            ("doubt", review.condition.word().replace('_', " "))
        }
        Some(_) => ("bad", review.condition.word().replace('_', " ")),
    };
    if let Some(cap) = &review.cap {
        outcome.push_str(&format!(" ({cap})"));
    }
    let by = match &review.referee {
        Some(referee) => format!("{} {}, referee {}", review.provider, review.model, referee.provider),
        None => format!("{} {}", review.provider, review.model),
    };
    let mut facts = vec![
        Remark { text: outcome, tone },
        Remark::plain(format!("{} of {} kept", kept, count(review.branches.len() as u64, "branch"))),
        Remark::plain(cost),
        Remark::plain(by),
    ];
    if let Some(other) = &review.went_on {
        let text = format!("went on with {} {}: {}", other.provider, other.model, other.reason);
        facts.push(Remark { text, tone: "doubt" });
    }
    facts.extend(review.money.words().map(|words| Remark::plain(format!("tokens: {words}"))));
    facts
}

/// Milliseconds as `4:05` minutes.
fn time(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02} min", seconds / 60, seconds % 60) }
}

fn before(review: &ReviewModel, gallery: &mut Gallery) -> Shot {
    let alt = format!("{} before the session", review.photo);
    let picture = review.baseline_preview.as_deref().and_then(|path| gallery.picture(path, &alt));
    let named = line(&review.baseline_ref);
    let shot = Shot {
        key: format!("{} before {}", review.session, review.baseline),
        name: "before".into(),
        before: true,
        asked: format!("from {named} ({})", review.baseline.short()),
        ..Shot::default()
    };
    shot.with(picture)
}

impl Shot {
    /// With its picture, if there is one.
    pub(crate) fn with(self, picture: Option<super::page::Embedded>) -> Self {
        match picture {
            Some(one) => {
                Self { src: Some(one.src), width: one.width, height: one.height, alt: one.alt, ..self }
            }
            None => self,
        }
    }
}

/// One branch as a picture.
pub(crate) fn shot(
    review: &ReviewModel,
    branch: &BranchReview,
    best: bool,
    gallery: &mut Gallery,
    maps: bool,
) -> Shot {
    let asked = branch.vector.as_ref().map_or_else(String::new, |vector| {
        let intensity = vector.intensity.as_ref().map(|i| format!(" ({i})")).unwrap_or_default();
        format!("{}{intensity}", vector.direction)
    });
    let same = branch.flags.contains(&Flag::IdenticalToBaseline);
    let given_up = branch.flags.contains(&Flag::Abandoned);
    let alt = match (asked.is_empty(), same) {
        (_, true) => format!("{}: {}, the same picture as before", review.photo, branch.branch),
        (true, _) => format!("{}: {}", review.photo, branch.branch),
        (false, _) => format!("{}: {}, asked for: {}", review.photo, branch.branch, line(&asked)),
    };
    let picture = branch.preview.as_deref().and_then(|path| gallery.picture(path, &alt));
    let heat = match (&review.baseline_preview, &branch.preview) {
        (Some(before), Some(after)) if maps && !same => gallery.difference(before, after),
        _ => None,
    };
    let kept = branch.is_candidate();
    let good = kept && branch.judged_score >= Some(4);
    let tags = [(kept, "kept"), (good, "good"), (given_up, "abandoned")];
    let tags: Vec<&str> = tags.into_iter().filter(|(is, _)| *is).map(|(_, tag)| tag).collect();
    let name = branch.branch.to_string();
    let shot = Shot {
        key: format!("{} {name} {}", review.session, branch.commit),
        name,
        branch: true,
        why: if branch.measured.is_none() { "the branch was not measured".into() } else { String::new() },
        heat: heat.map(|map| map.src),
        asked,
        // What was given up has no score worth reading.
        score: match branch.judged_score {
            Some(_) if given_up || same => String::new(),
            Some(score) => format!("{score}/5"),
            None => String::new(),
        },
        remarks: remarks(branch, best),
        tags: tags.join(","),
        reasoning: branch.judged_reasoning.clone(),
        moves: if branch.key_moves.is_empty() { branch.moves.clone() } else { branch.key_moves.clone() },
        tried: branch.tried.clone(),
        numbers: numbers(branch),
        referee: branch.second_opinion.as_ref().map_or_else(String::new, |opinion| {
            if opinion.reason.is_empty() {
                opinion.verdict.clone()
            } else {
                format!("{}: {}", opinion.verdict, opinion.reason)
            }
        }),
        ..Shot::default()
    };
    shot.with(picture)
}

fn remarks(branch: &BranchReview, best: bool) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut say = |tone, text: &str| remarks.push(Remark { text: text.to_owned(), tone });
    if best {
        say("good", "best by its score");
    }
    match branch.source {
        Some(JudgmentSource::EngineDefault) => say("doubt", "not scored by the model"),
        Some(JudgmentSource::Protocol) => say("doubt", "abandoned by the protocol"),
        Some(JudgmentSource::Agent) => {}
        None => say("doubt", "not scored"),
    }
    for flag in &branch.flags {
        let tone = match flag {
            Flag::Strong => "good",
            Flag::Weak | Flag::ClaimsNotSupported | Flag::Disputed => "bad",
            Flag::IdenticalToBaseline | Flag::Abandoned | Flag::Unmeasured | Flag::Unrefereed => "doubt",
        };
        say(tone, flag_words(*flag));
    }
    if !branch.comparable_to_baseline {
        say("doubt", "not comparable to the baseline");
    }
    if !branch.stands {
        say("doubt", "since moved or deleted");
    }
    for warning in branch.measured.iter().flat_map(|measured| &measured.vector.warnings) {
        say("doubt", &super::text::warning_words(warning));
    }
    remarks
}

fn numbers(branch: &BranchReview) -> Vec<Number> {
    let Some(measured) = &branch.measured else { return Vec::new() };
    let vector = &measured.vector;
    let direction = match vector.direction {
        Verdict::NotApplicable => "not measurable".to_owned(),
        Verdict::Met | Verdict::Missed => format!("{:+.1} steps", vector.moved),
    };
    let clipping =
        format!("{:+.1} % white, {:+.1} % black", measured.clip_high_change, measured.clip_low_change);
    let mut numbers = vec![
        Number {
            label: "Change",
            value: format!("ΔE {:.1}", measured.delta_e_mean),
            meaning: "Mean difference from before (CIEDE2000). 1 is just visible side by side.",
        },
        Number {
            label: "In the direction asked for",
            value: direction,
            meaning: "A step is a just-noticeable difference; + is as asked.",
        },
    ];
    numbers.extend(vector.leakage.map(|leakage| Number {
        label: "Side effects",
        value: format!("{leakage:.1}"),
        meaning: "Unwanted steps for each step asked for. 0 is best.",
    }));
    numbers.push(Number {
        label: "Clipping",
        value: clipping,
        meaning: "More of the picture without detail, in percentage points.",
    });
    numbers
}
