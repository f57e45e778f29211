//! Whether a referee is to be trusted: pairs whose answer nobody disputes.
//!
//! A referee that prefers a black frame, or one of two identical pictures, says nothing of others. The cases
//! are made from one good photo and are asked like any other pair, in both orders; a manifest keeps the
//! [`Tally`] beside what the referee then decided.

use serde::{Deserialize, Serialize};

use crate::protocol::rules::Verdict;
use darktable::render::Picture;

/// A picture that is held against the good one.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What was done to it.
    pub name: &'static str,
    /// The picture, of the good one's size.
    pub candidate: Picture,
    /// Whether it is the good picture itself, so that only `same` is right; else only `worse` and `off_brief`
    /// are.
    pub identical: bool,
}

impl Case {
    /// Whether this verdict on the candidate, both orders taken together, is right.
    pub fn accepts(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Same => self.identical,
            Verdict::Worse | Verdict::OffBrief => !self.identical,
            Verdict::Better | Verdict::Unsure => false,
        }
    }
}

/// The cases: the photo itself, a black frame, three stops too much light, colours exchanged, and another
/// photo.
pub fn cases(good: &Picture, other: &Picture) -> Vec<Case> {
    let spoilt = |change: fn([u8; 3]) -> [u8; 3]| {
        let pixel = |p: &[u8]| match *p {
            [r, g, b] => change([r, g, b]),
            _ => [0; 3],
        };
        Picture { rgb: good.rgb.chunks_exact(3).flat_map(pixel).collect(), ..good.clone() }
    };
    let case = |name, candidate| Case { name, candidate, identical: false };
    vec![
        Case { name: "identical", candidate: good.clone(), identical: true },
        case("black_frame", spoilt(|_| [0; 3])),
        // Eight times the light; sRGB is near enough to a power of 2.2.
        case("three_stops_over", spoilt(|pixel| pixel.map(|v| (f64::from(v) * 8_f64.powf(1.0 / 2.2)) as u8))),
        case("colours_exchanged", spoilt(|[r, g, b]| [b, r, g])),
        case("another_photo", other.clone()),
    ]
}

/// How a referee did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Names of the cases that it got right.
    pub right: Vec<String>,
    /// Names of those that it got wrong.
    pub wrong: Vec<String>,
    /// Names of those where its answer went with the order.
    pub flipped: Vec<String>,
}

impl Tally {
    /// Counts a case: the verdicts on its candidate, shown first and shown second.
    pub fn count(&mut self, case: &Case, shown_first: Verdict, shown_second: Verdict) {
        let right = case.accepts(Verdict::of_orders(shown_first, shown_second));
        let list = if right { &mut self.right } else { &mut self.wrong };
        list.push(case.name.to_owned());
        if shown_first != shown_second {
            self.flipped.push(case.name.to_owned());
        }
    }

    /// Whether it may referee: everything asked and nothing wrong.
    pub fn qualified(&self) -> bool {
        !self.right.is_empty() && self.wrong.is_empty()
    }

    /// The share of pairs that were answered by their order, 0 to 1.
    pub fn flip_rate(&self) -> f64 {
        self.flipped.len() as f64 / (self.right.len() + self.wrong.len()).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    fn tally(answer: impl Fn(&Case) -> (Verdict, Verdict)) -> Tally {
        let photo = |shift| Picture { width: 2, height: 1, rgb: (0..6_u8).map(|v| 30 * v + shift).collect() };
        let mut tally = Tally::default();
        for case in cases(&photo(1), &photo(9)) {
            let (first, second) = answer(&case);
            tally.count(&case, first, second);
        }
        tally
    }

    #[test]
    fn who_sees_qualifies() {
        let seeing = tally(|case| if case.identical { (Same, Same) } else { (Worse, Worse) });
        assert!(seeing.qualified() && seeing.flip_rate() == 0.0, "{seeing:?}");
        assert_eq!(seeing.right.len(), 5);
    }

    #[test]
    fn who_answers_by_order_by_habit_or_not_at_all_does_not() {
        let by_order = tally(|_| (Better, Worse));
        assert_eq!((by_order.flip_rate(), by_order.right.as_slice()), (1.0, &["identical".to_owned()][..]));
        for habit in [Better, Same, Worse, OffBrief, Unsure] {
            assert!(!tally(|_| (habit, habit)).qualified(), "{habit:?}");
        }
        assert!(!Tally::default().qualified(), "nothing was asked");
    }

    #[test]
    fn every_case_but_the_identical_one_is_another_picture() {
        let good = Picture { width: 1, height: 1, rgb: vec![10, 90, 200] };
        let other = Picture { width: 1, height: 1, rgb: vec![9, 9, 9] };
        for case in cases(&good, &other) {
            assert_eq!(case.candidate == good, case.identical, "{}", case.name);
            assert_eq!(case.candidate.rgb.len(), good.rgb.len());
        }
    }
}
