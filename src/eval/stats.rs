//! What paired differences show, and what so few cannot show.
//!
//! The unit is the scenario: each gives one difference, however often it was repeated. Pooled sessions and the
//! percentile bootstrap call equals different in 10 to 20 of 100 comparisons of this size, so neither is here. The
//! interval is Student's t, the p is that of all sign flips, and a claim needs both. Every figure is held
//! against scipy and statsmodels by a test (`scripts/statistics-cases.py`).

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, Normal, StudentsT};
use statrs::distribution::{ContinuousCDF as _, DiscreteCDF as _};
use statrs::function::gamma::ln_gamma;

/// The share of false claims that is put up with.
pub const ALPHA: f64 = 0.05;
/// The share of true effects of the size [`Paired::detectable`] that are found.
pub const POWER: f64 = 0.8;
/// Fewer scenarios cannot reach [`ALPHA`]: the smallest sign-flip p of five is 2/32.
pub const FEWEST: usize = 6;
/// Up to so many differences other than zero, every sign flip is counted.
const ENUMERATED: usize = 40;
/// Beyond that, so many are drawn.
const DRAWS: u32 = 100_000;
/// The seed of those draws.
const SEED: u64 = 1;
/// Sums that differ by less than this share of all that was summed are equal.
const EQUAL: f64 = 1e-12;
/// A difference smaller than this is a tie: only rounding made it.
const TIE: f64 = 1e-9;

/// What the differences between two versions show, one difference a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Scenarios.
    pub n: usize,
    /// The mean difference.
    pub mean: f64,
    /// The standard deviation of the differences; absent for one scenario.
    pub sd: Option<f64>,
    /// The 95 % t interval of the mean; absent for one scenario.
    pub interval: Option<[f64; 2]>,
    /// The two-sided p of the sign-flip test.
    pub p: f64,
    /// Whether every sign flip was counted, or only drawn (more than 40 differences).
    pub exact: bool,
    /// Differences above zero.
    pub wins: usize,
    /// Differences of zero.
    pub ties: usize,
    /// Differences below zero.
    pub losses: usize,
    /// The true mean difference that a comparison of this size and spread finds four times of five; absent
    /// where it finds none, because there are fewer than six scenarios.
    pub detectable: Option<f64>,
}

/// The conclusion about two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The interval is above zero, and p is at most [`ALPHA`].
    Improved,
    /// The interval is below zero, and p is at most [`ALPHA`].
    Regressed,
    /// The interval lies within the margin: a difference is too small to matter.
    Equivalent,
    /// None of these.
    Inconclusive,
}

impl Conclusion {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Improved => "improved",
            Self::Regressed => "regressed",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl Paired {
    /// From differences, where more is better; `None` if there are none or one is no number.
    pub fn of(differences: &[f64]) -> Option<Self> {
        let n = differences.len();
        if n == 0 || differences.iter().any(|d| !d.is_finite()) {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / n as f64;
        let sd = (n > 1).then(|| {
            let squares = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>();
            (squares / (n - 1) as f64).sqrt()
        });
        let t = (n > 1).then(|| critical(n - 1)).flatten();
        let half = sd.zip(t).map(|(sd, t)| t * sd / (n as f64).sqrt());
        let (p, exact) = sign_flip(differences);
        let wins = differences.iter().filter(|d| **d > TIE).count();
        let losses = differences.iter().filter(|d| **d < -TIE).count();
        Some(Self {
            n,
            mean,
            sd,
            interval: half.map(|half| [mean - half, mean + half]),
            p,
            exact,
            wins,
            ties: n - wins - losses,
            losses,
            detectable: sd.filter(|_| n >= FEWEST).and_then(|sd| Some(sd * detectable(n)?)),
        })
    }

    /// The verdict by the test's own p. `margin` is the difference that does not matter, in the metric's unit.
    pub fn verdict(&self, margin: f64) -> Conclusion {
        self.verdict_at(self.p, margin)
    }

    /// The verdict by a p that was adjusted for other comparisons ([`holm`]).
    pub fn verdict_at(&self, p: f64, margin: f64) -> Conclusion {
        let Some([low, high]) = self.interval.filter(|_| self.n >= FEWEST) else {
            return Conclusion::Inconclusive;
        };
        // What lies within the margin is no gain, however sure it is.
        if -margin <= low && high <= margin {
            return Conclusion::Equivalent;
        }
        match p <= ALPHA {
            true if low > 0.0 => Conclusion::Improved,
            true if high < 0.0 => Conclusion::Regressed,
            _ => Conclusion::Inconclusive,
        }
    }
}

/// The quantile of Student's t that bounds the interval.
fn critical(freedom: usize) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom as f64).ok()?.inverse_cdf(1.0 - ALPHA / 2.0))
}

/// The two-sided p of the sign-flip test on the mean, and whether it is exact.
///
/// If neither version were better, each difference might as well have the other sign. The p is the share of all
/// such flips whose sum is as far from zero as the one that was seen.
fn sign_flip(differences: &[f64]) -> (f64, bool) {
    let seen: f64 = differences.iter().sum::<f64>().abs();
    let sizes: Vec<f64> = differences.iter().map(|d| d.abs()).filter(|d| *d > 0.0).collect();
    let least = seen - EQUAL * sizes.iter().sum::<f64>();
    if least <= 0.0 {
        return (1.0, true);
    }
    if sizes.len() <= ENUMERATED { (enumerated(&sizes, least), true) } else { (drawn(&sizes, least), false) }
}

/// The share of all sign flips whose sum is at least `least` from zero, which is above zero. The sums of each
/// half are listed and sorted, and one walk over both lists counts the pairs: 2²⁰ sums where there are 2⁴⁰ flips.
fn enumerated(sizes: &[f64], least: f64) -> f64 {
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let (first, second) = (sums(first), sums(second));
    // Both lists are symmetrical around zero, so the sums below are as many as those above.
    let mut short = second.len();
    let mut above = 0u64;
    for sum in &first {
        while short > 0 && second.get(short - 1).is_some_and(|other| sum + other >= least) {
            short -= 1;
        }
        above += (second.len() - short) as u64;
    }
    2.0 * above as f64 / (first.len() as f64 * second.len() as f64)
}

/// The sums of all sign flips, sorted.
fn sums(sizes: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for size in sizes {
        sums = sums.iter().flat_map(|sum| [sum - size, sum + size]).collect();
    }
    sums.sort_by(f64::total_cmp);
    sums
}

/// The share of drawn sign flips whose sum is at least `least` from zero; the one that was seen is among them, so
/// that the p is never zero.
fn drawn(sizes: &[f64], least: f64) -> f64 {
    let mut random = SplitMix(SEED);
    let far = (0..DRAWS).filter(|_| {
        let flip = |size: &f64| if random.next() >> 63 == 0 { *size } else { -size };
        sizes.iter().map(flip).sum::<f64>().abs() >= least
    });
    (far.count() + 1) as f64 / f64::from(DRAWS + 1)
}

/// The generator SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number, of 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "an iterator's `next` is no plain number")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The effect, in standard deviations, that a two-sided paired t test of `n` finds with [`POWER`].
fn detectable(n: usize) -> Option<f64> {
    let critical = critical(n - 1)?;
    let normal = Normal::new(0.0, 1.0).ok()?;
    let found = |effect: f64| power(&normal, n, critical, effect) >= POWER;
    let (mut low, mut high) = (0.0, 1.0);
    while !found(high) {
        low = high;
        high *= 2.0;
        if high > 1e6 {
            return None;
        }
    }
    for _ in 0..52 {
        let middle = f64::midpoint(low, high);
        *if found(middle) { &mut high } else { &mut low } = middle;
    }
    Some(high)
}

/// The power of the two-sided t test: one less the noncentral t between the critical values, which is an
/// integral over the estimate s of the standard deviation,
///
/// ```text
/// ∫ f(s) [Φ(c s − δ) − Φ(−c s − δ)] ds,    ln f(s) = const + (ν − 1) ln s − ν s² / 2,    δ = effect · √n
/// ```
///
/// taken by the trapezoid rule in ln s, where the integrand dies away on both sides and the rule converges faster
/// than any power of the step.
fn power(normal: &Normal, n: usize, critical: f64, effect: f64) -> f64 {
    let freedom = (n - 1) as f64;
    let shift = effect * (n as f64).sqrt();
    let spread = 1.0 / (2.0 * freedom).sqrt();
    let (from, to) = (-(40.0 / freedom).max(12.0 * spread), (12.0 * spread).min(2.5));
    // The integrand is as narrow as the density, or as the step of the normal at s = δ / c.
    let steps = ((to - from) / (0.4 * spread.min(1.0 / shift.max(1.0)))).ceil().min(1e5) as u32;
    let step = (to - from) / f64::from(steps);
    let constant = 2f64.ln() + freedom / 2.0 * (freedom / 2.0).ln() - ln_gamma(freedom / 2.0);
    let between: f64 = (0..=steps)
        .map(|k| {
            let ln = from + f64::from(k) * step;
            let s = ln.exp();
            let density = (constant + freedom * ln - freedom * s * s / 2.0).exp();
            density * (normal.cdf(critical * s - shift) - normal.cdf(-critical * s - shift))
        })
        .sum();
    1.0 - between * step
}

/// The 95 % interval of a share, by Wilson; `None` of nothing.
pub fn wilson(successes: u64, of: u64) -> Option<[f64; 2]> {
    if of == 0 || successes > of {
        return None;
    }
    let z = Normal::new(0.0, 1.0).ok()?.inverse_cdf(1.0 - ALPHA / 2.0);
    let (n, share) = (of as f64, successes as f64 / of as f64);
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    Some([(middle - half).max(0.0), (middle + half).min(1.0)])
}

/// McNemar's exact two-sided p, from the pairs in which only one of the two succeeded.
pub fn mcnemar(only_a: u64, only_b: u64) -> f64 {
    match Binomial::new(0.5, only_a + only_b) {
        Ok(binomial) => (2.0 * binomial.cdf(only_a.min(only_b))).min(1.0),
        Err(_) => 1.0,
    }
}

/// The p values of several comparisons, each adjusted by Holm for all of them, in their order.
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = ps.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![1.0; ps.len()];
    let mut least: f64 = 0.0;
    for (rank, (place, p)) in order.into_iter().enumerate() {
        least = least.max((ps.len() - rank) as f64 * p).min(1.0);
        if let Some(slot) = adjusted.get_mut(place) {
            *slot = least;
        }
    }
    adjusted
}

/// Spearman's rank correlation, −1 to 1; `None` for fewer than three pairs or where one side is all the same.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let x = ranks(&pairs.iter().map(|p| p.0).collect::<Vec<_>>());
    let y = ranks(&pairs.iter().map(|p| p.1).collect::<Vec<_>>());
    let middle = (pairs.len() + 1) as f64 / 2.0;
    let product =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum() };
    let scale = (product(&x, &x) * product(&y, &y)).sqrt();
    (scale > 0.0).then(|| product(&x, &y) / scale)
}

/// The rank of each value from 1; equals share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal + 1) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Reference {
        tables: Vec<Table>,
        shares: Vec<Share>,
        discordant: Vec<Discordant>,
        families: Vec<Family>,
        pairs: Vec<Pairs>,
    }

    #[derive(Deserialize)]
    struct Table {
        differences: Vec<f64>,
        mean: f64,
        interval: [f64; 2],
        sign_flip: f64,
        detectable: f64,
    }

    #[derive(Deserialize)]
    struct Share {
        successes: u64,
        of: u64,
        interval: [f64; 2],
    }

    #[derive(Deserialize)]
    struct Discordant {
        only_a: u64,
        only_b: u64,
        p: f64,
    }

    #[derive(Deserialize)]
    struct Family {
        ps: Vec<f64>,
        holm: Vec<f64>,
    }

    #[derive(Deserialize)]
    struct Pairs {
        x: Vec<f64>,
        y: Vec<f64>,
        rho: f64,
    }

    fn reference() -> Reference {
        serde_json::from_str(include_str!("../../tests/eval/statistics.json")).unwrap()
    }

    /// Equal to 1e-9, relative to `scale`.
    fn near(ours: f64, theirs: f64, scale: f64) -> bool {
        (ours - theirs).abs() <= 1e-9 * scale.abs().max(theirs.abs())
    }

    #[test]
    fn two_hundred_tables_agree_with_scipy_and_statsmodels() {
        let tables = reference().tables;
        assert_eq!(tables.len(), 200);
        for (row, table) in tables.iter().enumerate() {
            let ours = Paired::of(&table.differences).unwrap();
            let sd = ours.sd.unwrap();
            let n = table.differences.len();
            assert!(near(ours.mean, table.mean, sd), "table {row}: mean {} {}", ours.mean, table.mean);
            for (ours, theirs) in ours.interval.unwrap().iter().zip(&table.interval) {
                assert!(near(*ours, *theirs, sd), "table {row}: interval {ours} {theirs}");
            }
            assert!(ours.exact && near(ours.p, table.sign_flip, 0.0), "table {row}: p {}", ours.p);
            let effect = sd * detectable(n).unwrap();
            assert!(near(effect, table.detectable, 0.0), "table {row}, n {n}: {effect} {}", table.detectable);
            assert_eq!(ours.detectable.is_some(), n >= FEWEST, "table {row}");
        }
    }

    #[test]
    fn shares_pairs_and_families_agree_with_scipy_and_statsmodels() {
        let reference = reference();
        for Share { successes, of, interval } in reference.shares {
            let ours = wilson(successes, of).unwrap();
            assert!(
                ours.iter().zip(&interval).all(|(a, b)| (a - b).abs() < 1e-9),
                "{successes} of {of}: {ours:?}"
            );
        }
        for Discordant { only_a, only_b, p } in reference.discordant {
            assert!(near(mcnemar(only_a, only_b), p, 0.0), "{only_a} and {only_b}");
        }
        for Family { ps, holm: theirs } in reference.families {
            let ours = holm(&ps);
            assert!(
                ours.iter().zip(&theirs).all(|(a, b)| near(*a, *b, 0.0)) && ours.len() == theirs.len(),
                "{ps:?}"
            );
        }
        for Pairs { x, y, rho } in reference.pairs {
            let pairs: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
            assert!(near(spearman(&pairs).unwrap(), rho, 1.0), "{pairs:?}");
        }
    }

    #[test]
    fn drawn_flips_come_near_the_counted_ones() {
        let mut random = SplitMix(7);
        for shift in [0.05, 0.1, 0.2] {
            let differences: Vec<f64> = (0..30).map(|_| random.unit() - 0.5 + shift).collect();
            let sizes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
            let seen = differences.iter().sum::<f64>().abs();
            let (counted, drawn) = (enumerated(&sizes, seen * (1.0 - EQUAL)), drawn(&sizes, seen));
            assert!((counted - drawn).abs() < 0.006, "{counted} {drawn}");
        }
    }

    #[test]
    fn the_verdict_needs_interval_and_p_and_six_scenarios() {
        let verdict = |differences: &[f64], margin| Paired::of(differences).unwrap().verdict(margin);
        let gain = [0.3, 0.4, 0.35, 0.5, 0.28, 0.41];
        assert_eq!(verdict(&gain, 0.02), Conclusion::Improved);
        assert_eq!(verdict(&gain.map(|d| -d), 0.02), Conclusion::Regressed);
        // The same gain on five cannot be told from luck, whatever the interval says.
        let five = Paired::of(&gain[..5]).unwrap();
        assert!(five.interval.unwrap()[0] > 0.0 && five.p == 0.0625);
        assert_eq!((five.verdict(0.02), five.detectable), (Conclusion::Inconclusive, None));
        // Sure, and too small to matter.
        assert_eq!(verdict(&gain.map(|d| d / 100.0), 0.02), Conclusion::Equivalent);
        assert_eq!(verdict(&[0.0; 8], 0.0), Conclusion::Equivalent);
        assert_eq!(verdict(&[0.5, -0.4, 0.3, -0.2, 0.1, -0.35], 0.02), Conclusion::Inconclusive);
        // One scenario in eight has changed: that is no proof.
        let one = Paired::of(&[0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
        assert_eq!((one.p, one.wins, one.ties, one.losses), (1.0, 1, 7, 0));
        assert_eq!(one.verdict(0.02), Conclusion::Inconclusive);
        // An adjusted p takes the claim back.
        assert_eq!(Paired::of(&gain).unwrap().verdict_at(0.2, 0.02), Conclusion::Inconclusive);
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        assert_eq!(Paired::of(&[]), None);
        assert_eq!(Paired::of(&[0.1, f64::NAN]), None);
        let one = Paired::of(&[0.4]).unwrap();
        assert_eq!((one.interval, one.p, one.verdict(0.1)), (None, 1.0, Conclusion::Inconclusive));
        assert_eq!((wilson(0, 0), wilson(3, 2), mcnemar(0, 0)), (None, None, 1.0));
        assert_eq!(spearman(&[(1.0, 2.0), (2.0, 3.0)]), None);
        assert_eq!(spearman(&[(1.0, 2.0), (1.0, 3.0), (1.0, 4.0)]), None);
    }
}
