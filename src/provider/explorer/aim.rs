//! What a vector asks for, in axes and steps.

use crate::provider::explorer::memory::Goal;
use pixels::metrics::axes::Axis;
use pixels::metrics::intensity::Intensity;
use pixels::metrics::vectors::vector_axes;

/// What is explored where the words name no axis, in turn over the branches of a plan.
const OPEN: [(Axis, i8); 5] = [
    (Axis::Contrast, 1),
    (Axis::Chroma, 1),
    (Axis::LocalContrast, 1),
    (Axis::Shadows, 1),
    (Axis::Highlights, -1),
];

/// The goal of one branch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Aim {
    /// The axes to push, the most important first, each with +1 or −1.
    pub axes: Vec<(Axis, i8)>,
    /// Whether the axes come from the words, so that the engine measures them too.
    pub measurable: bool,
    /// How far to go.
    pub intensity: Intensity,
    /// The photographer's words; empty for an open-ended branch.
    pub direction: String,
}

impl Aim {
    /// The goal of the branch at `place` in the plan.
    pub fn of(goal: Option<&Goal>, place: usize) -> Self {
        let axes = goal.map(|w| vector_axes(&w.name, &w.direction)).unwrap_or_default();
        let measurable = !axes.is_empty();
        let axes = if measurable { axes } else { OPEN.into_iter().cycle().skip(place).take(1).collect() };
        let said = goal.map(|goal| Intensity::of(&goal.direction, goal.intensity.as_deref()));
        // Where nothing measurable is asked, there is nothing to be strong on.
        let intensity =
            said.filter(|said| measurable || *said == Intensity::Whole).unwrap_or(Intensity::Plain);
        Self { axes, measurable, intensity, direction: goal.map(|w| w.direction.clone()).unwrap_or_default() }
    }

    /// How far to go: just-noticeable steps on the asked axes, or mean ΔE2000 where nothing measurable was
    /// asked.
    pub fn wanted(&self) -> f64 {
        if self.measurable { self.intensity.steps() } else { 3.0 }
    }

    /// Whether the move is to be taken to its end.
    pub fn whole(&self) -> bool {
        self.intensity == Intensity::Whole
    }

    /// The strength to begin with, in units of a move's default.
    pub fn start(&self) -> f64 {
        match self.intensity {
            Intensity::Gentle => 0.5,
            Intensity::Plain => 1.0,
            Intensity::Strong => 1.6,
            Intensity::Whole => f64::INFINITY,
        }
    }

    /// Whether an axis is asked for.
    pub fn asks(&self, axis: Axis) -> bool {
        self.axes.iter().any(|&(asked, _)| asked == axis)
    }

    /// The axes in words: `shadows +, highlights −`.
    pub fn axes_in_words(&self) -> String {
        let word = |&(axis, sign): &(Axis, i8)| format!("{axis} {}", if sign < 0 { "−" } else { "+" });
        self.axes.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str, direction: &str, intensity: Option<&str>) -> Goal {
        Goal { name: name.into(), direction: direction.into(), intensity: intensity.map(Into::into) }
    }

    #[test]
    fn words_become_axes_and_a_size() {
        let aim = Aim::of(Some(&goal("tone", "open the shadows", Some("subtle"))), 0);
        assert_eq!((aim.axes, aim.intensity), (vec![(Axis::Shadows, 1)], Intensity::Gentle));
        let aim = Aim::of(Some(&goal("tone", "more dramatic shadow lift", None)), 0);
        assert_eq!((aim.measurable, aim.intensity), (true, Intensity::Strong));
        let aim = Aim::of(Some(&goal("tone", "lower the highlights", None)), 0);
        assert_eq!(aim.intensity, Intensity::Plain, "neither `low` nor `high` is said");
    }

    #[test]
    fn words_that_say_nothing_become_a_plain_overall_change() {
        let aim = Aim::of(Some(&goal("zz", "qqq", Some("strong"))), 1);
        assert_eq!((aim.measurable, aim.intensity), (false, Intensity::Plain));
        assert_eq!(aim.axes, [(Axis::Chroma, 1)]);
        assert_eq!(Aim::of(None, 5).axes, Aim::of(None, 0).axes, "the open axes come in turn");
    }
}
