//! The mechanical opinion on an edit: did it go where it was asked to go, and what else did it move.

use serde::{Deserialize, Serialize};

use crate::metrics::axes::Axis;
use crate::metrics::difference::Difference;
use crate::metrics::stats::ImageStats;

/// The axes that leakage is summed over: about independent, and what a person would notice.
const MAIN: [Axis; 8] = [
    Axis::Shadows,
    Axis::Midtones,
    Axis::Highlights,
    Axis::Contrast,
    Axis::LocalContrast,
    Axis::Warmth,
    Axis::Tint,
    Axis::Chroma,
];

/// A picture of less mean chroma is black and white: that it is far from one in colour is no news.
const GREY: f64 = 1.0;
/// Movement below this many steps is none.
const STILL: f64 = 0.5;

/// Whether a vector's asked direction moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// By at least one just-noticeable step.
    Met,
    /// By less, or the other way; or one of several axes went the other way by a step or more.
    Missed,
    /// Nothing measurable was asked.
    NotApplicable,
}

/// The measured part of a judgment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VectorCheck {
    /// Whether the asked direction moved.
    pub direction: Verdict,
    /// Mean movement on the asked axes in just-noticeable steps; + is as asked.
    pub moved: f64,
    /// Mean movement on the other main axes, whichever way, for one step on the asked ones: 0 is a clean
    /// edit, above 1 more happened beside the point than to it. Null when the asked axes stood still.
    pub leakage: Option<f64>,
    /// What a person should know, in short sentences.
    pub warnings: Vec<String>,
}

impl VectorCheck {
    /// Judges the way from `base` to `now`, whose distance is `diff`, by the requested axes, each with +1
    /// or −1 (see [`crate::metrics::vectors::vector_axes`]).
    pub fn of(axes: &[(Axis, i8)], base: &ImageStats, now: &ImageStats, diff: &Difference) -> Self {
        let steps = |axis: Axis| axis.steps(base, now);
        let asked = axes.iter().map(|&(axis, sign)| f64::from(sign) * steps(axis));
        let moved = mean(asked);
        let direction = match axes {
            [] => Verdict::NotApplicable,
            _ if moved >= 1.0 && against(axes, base, now).is_none() => Verdict::Met,
            _ => Verdict::Missed,
        };
        let leakage = (moved.abs() >= STILL).then(|| aside(axes, base, now) / moved.abs());
        Self {
            direction,
            moved: hundredth(moved),
            leakage: leakage.map(hundredth),
            warnings: warnings(base, now, diff),
        }
    }
}

/// The requested axis that went furthest the other way, by so many steps, if that is a step or more: cooler shadows
/// that became warmer are not made good by warmer light.
pub fn against(axes: &[(Axis, i8)], base: &ImageStats, now: &ImageStats) -> Option<(Axis, f64)> {
    let ways = axes.iter().map(|&(axis, sign)| (axis, -f64::from(sign) * axis.steps(base, now)));
    ways.filter(|(_, steps)| *steps >= 1.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The mean movement on the main axes that were not requested, whichever way, in just-noticeable steps.
pub fn aside(axes: &[(Axis, i8)], base: &ImageStats, now: &ImageStats) -> f64 {
    let others = MAIN.into_iter().filter(|&main| !axes.iter().any(|&(axis, _)| carries(axis, main)));
    mean(others.map(|axis| axis.steps(base, now).abs()))
}

/// Whether a movement on `asked` is expected to show on `main`, and so is no leakage there.
fn carries(asked: Axis, main: Axis) -> bool {
    let expected: &[Axis] = match asked {
        Axis::Brightness => &[Axis::Shadows, Axis::Midtones, Axis::Highlights],
        Axis::Blacks => &[Axis::Shadows],
        Axis::Whites => &[Axis::Highlights],
        Axis::Contrast => &[Axis::Shadows, Axis::Highlights],
        Axis::Sharpness | Axis::Noise => &[Axis::LocalContrast],
        Axis::ShadowWarmth | Axis::HighlightWarmth => &[Axis::Warmth],
        Axis::ShadowTint | Axis::HighlightTint => &[Axis::Tint],
        Axis::Colourfulness
        | Axis::Reds
        | Axis::Yellows
        | Axis::Greens
        | Axis::Cyans
        | Axis::Blues
        | Axis::Magentas => &[Axis::Chroma],
        _ => &[],
    };
    asked == main || expected.contains(&main)
}

fn warnings(base: &ImageStats, now: &ImageStats, diff: &Difference) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut clipping = |what: &str, before: f64, after: f64| {
        if after - before > 0.5 {
            warnings.push(format!("clipped {what} grew from {before:.1} % to {after:.1} % of the picture"));
        }
    };
    clipping("highlights", base.clip_high_pct, now.clip_high_pct);
    clipping("shadows", base.clip_low_pct, now.clip_low_pct);
    if diff.resized {
        warnings.push("the pictures differ in size, so that the distance between them tells little".into());
    } else if diff.mean < 0.3 {
        warnings.push(format!("nobody will see this edit: mean ΔE is {:.2}", diff.mean));
    } else if diff.mean > 12.0 && now.chroma_mean >= GREY {
        warnings.push(format!("a very large edit: mean ΔE is {:.1}", diff.mean));
    }
    // Below half a step of the axis, a ratio would compare rounding errors.
    if now.noise_sigma > 1.5 * base.noise_sigma && now.noise_sigma - base.noise_sigma > 0.1 {
        let (before, after) = (base.noise_sigma, now.noise_sigma);
        warnings.push(format!("noise in flat places grew from {before:.2} to {after:.2} L*"));
    }
    warnings
}

/// The mean; 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// Rounds to two decimals, without a negative zero.
fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Picture;
    use crate::metrics::synthetic::{map, picture, scene};

    #[test]
    fn an_axis_that_went_the_other_way_is_not_made_good_by_another() {
        let warmer = channels(1.05, 1.0, 0.8);
        let asked = [(Axis::ShadowWarmth, -1), (Axis::Warmth, 1), (Axis::HighlightWarmth, 1)];
        let found = check(&asked, &scene(), &warmer);
        assert!(found.moved > 1.0, "{found:?}");
        assert_eq!(found.direction, Verdict::Missed);
        let (base, now) = (ImageStats::of(&scene()), ImageStats::of(&warmer));
        assert_eq!(against(&asked, &base, &now).unwrap().0, Axis::ShadowWarmth);
        assert_eq!(against(&asked[1..], &base, &now), None);
        assert_eq!(check(&asked[1..], &scene(), &warmer).direction, Verdict::Met);
    }

    fn check(axes: &[(Axis, i8)], base: &Picture, now: &Picture) -> VectorCheck {
        let diff = Difference::between(base, now).unwrap();
        VectorCheck::of(axes, &ImageStats::of(base), &ImageStats::of(now), &diff)
    }

    fn curve(change: impl Fn(f64) -> f64) -> Picture {
        map(&scene(), |rgb| rgb.map(|c| 255.0 * change(f64::from(c) / 255.0)))
    }

    fn saturated(by: f64) -> Picture {
        map(&scene(), |rgb| {
            let grey = rgb.iter().map(|&c| f64::from(c)).sum::<f64>() / 3.0;
            rgb.map(|c| grey + by * (f64::from(c) - grey))
        })
    }

    fn channels(r: f64, g: f64, b: f64) -> Picture {
        map(&scene(), |[x, y, z]| [r * f64::from(x), g * f64::from(y), b * f64::from(z)])
    }

    fn vignetted() -> Picture {
        let scene = scene();
        picture(scene.width, scene.height, |x, y| {
            let (u, v) = (f64::from(x) / 120.0 - 1.0, f64::from(y) / 80.0 - 1.0);
            let at = (y * scene.width + x) as usize * 3;
            [0, 1, 2].map(|c| (f64::from(scene.rgb[at + c]) * (1.0 - 0.3 * (u * u + v * v))) as u8)
        })
    }

    fn blurred() -> Picture {
        let scene = scene();
        picture(scene.width, scene.height, |x, y| {
            [0, 1, 2].map(|c| {
                let across = x.saturating_sub(2)..(x + 3).min(scene.width);
                let around: Vec<u32> = across
                    .flat_map(|x| (y.saturating_sub(2)..(y + 3).min(scene.height)).map(move |y| (x, y)))
                    .map(|(x, y)| u32::from(scene.rgb[(y * scene.width + x) as usize * 3 + c]))
                    .collect();
                (around.iter().sum::<u32>() / around.len() as u32) as u8
            })
        })
    }

    #[test]
    fn every_manipulation_moves_its_axis_and_the_reverse_is_missed() {
        let lift = |x: f64| x + 0.25 * x * (1.0 - x).powi(4);
        let pull = |x: f64| x - 0.25 * x.powi(4) * (1.0 - x);
        let steep = |x: f64| x + 0.12 * (std::f64::consts::TAU * (x - 0.5)).sin();
        let cases = [
            (Axis::Brightness, 1, curve(|x| x.powf(0.8))),
            (Axis::Brightness, -1, curve(|x| x.powf(1.3))),
            (Axis::Midtones, 1, curve(|x| x.powf(0.8))),
            (Axis::Shadows, 1, curve(lift)),
            (Axis::Blacks, 1, curve(|x| 0.05 + 0.95 * x)),
            (Axis::Highlights, -1, curve(pull)),
            (Axis::Whites, -1, curve(|x| x * 0.9)),
            (Axis::Contrast, 1, curve(steep)),
            (Axis::LocalContrast, 1, curve(steep)),
            (Axis::LocalContrast, -1, blurred()),
            (Axis::Sharpness, -1, blurred()),
            (Axis::Noise, -1, blurred()),
            (Axis::Warmth, 1, channels(1.05, 1.0, 0.85)),
            (Axis::Warmth, -1, channels(0.95, 1.0, 1.1)),
            (Axis::ShadowWarmth, 1, channels(1.05, 1.0, 0.8)),
            (Axis::HighlightWarmth, 1, channels(1.05, 1.0, 0.85)),
            (Axis::Tint, 1, channels(1.0, 0.93, 1.0)),
            (Axis::ShadowTint, 1, channels(1.0, 0.85, 1.0)),
            (Axis::HighlightTint, -1, channels(1.0, 1.07, 1.0)),
            (Axis::Chroma, 1, saturated(1.4)),
            (Axis::Chroma, -1, saturated(0.0)),
            (Axis::Colourfulness, 1, saturated(1.4)),
            (Axis::Reds, 1, saturated(1.4)),
            (Axis::Yellows, -1, saturated(0.0)),
            (Axis::Greens, 1, saturated(1.4)),
            (Axis::Cyans, 1, saturated(1.4)),
            (Axis::Blues, 1, saturated(1.4)),
            (Axis::Magentas, 1, saturated(1.4)),
            (Axis::EdgeBrightness, -1, vignetted()),
            (Axis::FrameArea, -1, picture(200, 160, |_, _| [90; 3])),
        ];
        for axis in Axis::ALL {
            assert!(cases.iter().any(|case| case.0 == axis), "{axis} has no case");
        }
        let base = scene();
        let before = ImageStats::of(&base);
        for (axis, sign, now) in cases {
            let after = ImageStats::of(&now);
            let diff = Difference::between(&base, &now).unwrap();
            let asked = VectorCheck::of(&[(axis, sign)], &before, &after, &diff);
            assert_eq!(asked.direction, Verdict::Met, "{axis} {sign}: {asked:?}");
            let reverse = VectorCheck::of(&[(axis, -sign)], &before, &after, &diff);
            assert_eq!((reverse.direction, reverse.moved), (Verdict::Missed, -asked.moved), "{axis} {sign}");
        }
    }

    #[test]
    fn leakage_tells_a_clean_shadow_lift_from_more_exposure() {
        let clean = check(&[(Axis::Shadows, 1)], &scene(), &curve(|x| x + 0.4 * x * (1.0 - x).powi(8)));
        let blunt = check(&[(Axis::Shadows, 1)], &scene(), &curve(|x| x * 1.3));
        let (clean, blunt) = (clean.leakage.unwrap(), blunt.leakage.unwrap());
        assert!(clean < 0.7 * blunt, "{clean} {blunt}");
    }

    #[test]
    fn no_edit_is_missed_has_no_leakage_and_is_said() {
        let still = check(&[(Axis::Warmth, 1)], &scene(), &scene());
        assert_eq!((still.direction, still.moved, still.leakage), (Verdict::Missed, 0.0, None));
        assert_eq!(still.warnings, ["nobody will see this edit: mean ΔE is 0.00"]);
    }

    #[test]
    fn unknown_words_are_not_judged() {
        let found = check(&[], &scene(), &curve(|x| x * 1.1));
        assert_eq!((found.direction, found.moved, found.leakage), (Verdict::NotApplicable, 0.0, None));
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["direction"], "not_applicable");
        assert!(json["leakage"].is_null());
    }

    #[test]
    fn clipping_violence_and_noise_are_warned_of() {
        let blown = check(&[], &scene(), &curve(|x| x * 2.5)).warnings.join("; ");
        assert!(blown.contains("clipped highlights") && blown.contains("very large"), "{blown}");
        let crushed = check(&[], &scene(), &curve(|x| x - 0.3)).warnings.join("; ");
        assert!(crushed.contains("clipped shadows"), "{crushed}");
        let reddened = map(&scene(), |[r, g, b]| [f64::from(r), 0.2 * f64::from(g), 0.1 * f64::from(b)]);
        let grey = check(&[], &reddened, &saturated(0.0));
        assert!(!grey.warnings.iter().any(|warning| warning.contains("very large")), "{grey:?}");
        let noisy = check(&[], &blurred(), &scene()).warnings.join("; ");
        assert!(noisy.contains("noise"), "{noisy}");
    }
}
