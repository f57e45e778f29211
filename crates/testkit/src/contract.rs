//! What every move promises, held against pixels of the installed darktable: one table of cases, one verdict each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use darktable::render::Picture;
use darktable::state::{EditState, Module};
use engine::vocabulary::table::{Entry, LEAST_STEPS, Measured};
use engine::vocabulary::{Selector, VocabularyError};
use pixels::metrics::axes::Axis;
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

use crate::demo::{Demo, two_at_a_time, wanted};

/// How much of itself a move is when it is all but neutral.
const A_TOUCH: f64 = 1e-3;

/// Where masked moves are held to stay: a soft circle that reaches into a corner, where vignettes act too.
const MASK: &str = r#"{"shape":"circle","center":[0.85,0.2],"radius":0.25,"feather":0.2}"#;
/// Its centre, as shares of the sides, and in shares of the short side the radius within which all of the effect is,
/// and the one beyond which none is.
const CENTRE: [f64; 2] = [0.85, 0.2];
const RADII: [f64; 2] = [0.2, 0.325];

/// What became of a move.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It keeps every promise.
    Green,
    /// This darktable lacks what it needs: why.
    NotOffered(String),
    /// It breaks these promises.
    Red(Vec<String>),
}

/// One move, judged.
pub struct Outcome<'a> {
    pub entry: Entry<'a>,
    pub verdict: Verdict,
    /// Unless it is not offered or cannot be rendered.
    pub measured: Option<Measured>,
    /// The state at the default values, and what it looks like there and at the strongest.
    pub default: Option<(EditState, Arc<Picture>)>,
    pub strongest: Option<Arc<Picture>>,
}

/// How long each kind of check took, and how many pictures it needed.
pub type Timing = Vec<(&'static str, usize, Duration)>;

/// A move with every state that its promises are about.
struct Case<'a> {
    entry: Entry<'a>,
    /// From the least strength to the greatest.
    rungs: Vec<EditState>,
    neutral: usize,
    default: usize,
    /// [`A_TOUCH`] of it, where it brings another tone mapper along: what it does itself, it does from there.
    touch: Option<EditState>,
    /// At its strongest under [`MASK`], where it takes a mask.
    masked: Option<EditState>,
    /// Beside another move of the same module: that one alone, and both.
    beside: Option<[EditState; 2]>,
    /// Promises that are broken already, before any pixel.
    broken: Vec<String>,
}

/// Judges every move that is wanted and that this photo shows.
pub fn contract(demo: &Demo) -> (Vec<Outcome<'_>>, Timing) {
    let mut timing = Timing::new();
    let started = Instant::now();
    let entries: Vec<Entry<'_>> = demo.vocabulary.entries();
    let chosen: Vec<&Entry<'_>> =
        entries.iter().filter(|e| wanted(e.name) && e.shown_on == demo.kind.as_deref()).collect();
    let cases = two_at_a_time(&chosen, |entry| Case::new(demo, entry, &entries));
    timing.push(("repetition, undo, order", 0, started.elapsed()));

    let sound = || cases.iter().filter_map(|case| case.as_ref().ok());
    let baseline = std::slice::from_ref(&demo.facts.baseline);
    let mut see = |what, states: Vec<EditState>| {
        let (started, before) = (Instant::now(), demo.renders());
        demo.see(&states);
        timing.push((what, demo.renders() - before, started.elapsed()));
    };
    let rungs = baseline.iter().chain(sound().flat_map(|case| case.rungs.iter().chain(&case.touch)));
    see("neutrality, direction, monotony", rungs.cloned().collect());
    see("locality", sound().filter_map(|case| case.masked.clone()).collect());
    see("accumulation", sound().filter_map(|case| case.beside.clone()).flatten().collect());

    let started = Instant::now();
    let untouched = demo.see(baseline).remove(0).unwrap_or_else(|e| panic!("the untouched photo: {e}"));
    let before = ImageStats::of(&untouched);
    let pairs: Vec<_> = chosen.into_iter().zip(&cases).collect();
    let outcomes = two_at_a_time(&pairs, |(entry, case)| {
        let unseen = |verdict| Outcome {
            entry: (*entry).clone(),
            verdict,
            measured: None,
            default: None,
            strongest: None,
        };
        match case {
            Ok(case) => {
                case.judge(demo, &untouched, &before).unwrap_or_else(|e| unseen(Verdict::Red(vec![e])))
            }
            Err(verdict) => unseen(verdict.clone()),
        }
    });
    timing.push(("measuring", 0, started.elapsed()));
    (outcomes, timing)
}

impl<'a> Case<'a> {
    /// Makes the states, and holds the promises that are about states alone.
    fn new(demo: &Demo, entry: &Entry<'a>, entries: &[Entry<'_>]) -> Result<Self, Verdict> {
        let name = entry.name;
        let baseline = &demo.facts.baseline;
        let mut broken = Vec::new();
        let mut promise = |holds: bool, what: &str| {
            if !holds {
                broken.push(what.to_owned());
            }
        };
        let apply = |state: &EditState, values: &BTreeMap<String, f64>| {
            demo.try_state(state, name, values, None).map_err(|e| refusal(&e))
        };
        let (neutral, defaults) = (entry.values(|p| p.neutral), entry.values(|p| p.default));
        let ladder = ladder(entry);
        let rungs = ladder.iter().map(|values| apply(baseline, values)).collect::<Result<Vec<_>, _>>()?;
        let [at_neutral, at_default] =
            [&neutral, &defaults].map(|v| ladder.iter().position(|x| x == v).unwrap());
        let default = &rungs[at_default];

        promise(rungs[at_neutral] == *baseline, "neutral is another state than untouched");
        promise(apply(default, &neutral)? == *baseline, "back to neutral is another state than untouched");
        promise(apply(default, &defaults)?.hash() == default.hash(), "twice is another state than once");
        let remove = |state: &EditState, selector: &Selector| {
            demo.vocabulary.remove_module(state, selector, &demo.facts).ok()
        };
        let itself = demo.vocabulary.selector(name, None);
        promise(remove(default, &itself).as_ref() == Some(baseline), "removed, it leaves something behind");
        let all_off = entry.modules.iter().try_fold(default.clone(), |state, op| {
            remove(&state, &Selector::Module { op: (*op).to_owned(), instance: None })
        });
        promise(all_off.as_ref() == Some(baseline), "its module removed, something is left behind");

        let is_off = |m: &&Module| default.module(&m.op, m.instance).is_none_or(|m| !m.enabled);
        let touch = match baseline.modules.iter().filter(|m| m.enabled).find(is_off) {
            None => None,
            Some(_) => Some(apply(
                baseline,
                &entry.values(|p| match p.direction || p.whole {
                    true => p.default,
                    false => p.neutral + A_TOUCH * (p.default - p.neutral),
                }),
            )?),
        };

        let masked = match demo.try_state(baseline, name, &strongest(entry), Some(MASK)) {
            Ok(masked) => {
                let undone = remove(&masked, &itself);
                promise(undone.as_ref() == Some(baseline), "removed, its mask leaves something behind");
                Some(masked)
            }
            Err(VocabularyError::NotMaskable { .. }) => None,
            Err(error) => return Err(refusal(&error)),
        };

        let beside = match companion(demo, entry, entries) {
            None => None,
            Some(other) => {
                let values = other.values(|p| p.default);
                let with = |state: &EditState| {
                    demo.try_state(state, other.name, &values, None).map_err(|e| refusal(&e))
                };
                let (alone, both) = (with(baseline)?, with(default)?);
                let what = format!("after {} it is another state than before it", other.name);
                promise(apply(&alone, &defaults)?.hash() == both.hash(), &what);
                let what = format!("removed, it takes {} along", other.name);
                promise(remove(&both, &itself).as_ref() == Some(&alone), &what);
                Some([alone, both])
            }
        };
        Ok(Self {
            entry: entry.clone(),
            rungs,
            neutral: at_neutral,
            default: at_default,
            touch,
            masked,
            beside,
            broken,
        })
    }

    /// Holds the promises that are about pixels. The error is one of a render.
    fn judge(&self, demo: &Demo, untouched: &Picture, before: &ImageStats) -> Result<Outcome<'a>, String> {
        let entry = &self.entry;
        let mut broken = self.broken.clone();
        let mut promise = |holds: bool, what: String| {
            if !holds {
                broken.push(what);
            }
        };
        let pictures = demo.see(&self.rungs).into_iter().collect::<Result<Vec<_>, _>>()?;
        let (default, greatest) = (&pictures[self.default], pictures.last().unwrap());
        let mut stats: Vec<ImageStats> = pictures.iter().map(|picture| ImageStats::of(picture)).collect();
        let mut start = before.clone();
        if let Some(touch) = &self.touch {
            let seen = demo.see(std::slice::from_ref(touch)).remove(0)?;
            start = ImageStats::of(&seen);
            stats[self.neutral] = start.clone();
        }
        let before = &start;
        let along = |axis: &Axis| (*axis, stats.iter().map(|after| axis.steps(before, after)).collect());
        let difference = Difference::between(untouched, default).unwrap();
        let measured = Measured {
            name: entry.name.to_owned(),
            steps: entry.axes.keys().map(along).collect(),
            default: self.default,
            delta_e: (!difference.resized).then_some(difference.mean),
            neutral: pictures[self.neutral].pixel_hash() == untouched.pixel_hash(),
        };
        promise(measured.neutral, "neutral is another picture than untouched".into());
        promise(default.pixel_hash() != untouched.pixel_hash(), "default is the untouched picture".into());
        let more_to_come = entry.strength().is_some_and(|(_, p)| p.max != p.default);
        promise(
            !more_to_come || greatest.pixel_hash() != default.pixel_hash(),
            "no stronger at its greatest than at its default".into(),
        );
        for (axis, rungs) in &measured.steps {
            let steps = rungs[measured.default] * f64::from(entry.axes[axis]);
            promise(steps >= LEAST_STEPS, format!("{} moves {steps:.2} steps its way", axis.name()));
        }
        let monotonic = measured.monotonic(entry) == Some(true);
        let what = format!("monotonic: {monotonic}, {:.2?}", measured.steps);
        // A choice pushes no axis, and has nothing to be monotonic in.
        promise(entry.axes.is_empty() || monotonic == entry.not_monotonic.is_none(), what);

        if let Some(masked) = &self.masked {
            let after = demo.see(std::slice::from_ref(masked)).remove(0)?;
            let [width, height] = [untouched.width, untouched.height].map(f64::from);
            let from =
                |x: f64, y: f64| (x - CENTRE[0] * width).hypot(y - CENTRE[1] * height) / width.min(height);
            let within = change(untouched, &after, 1, |x, y| from(x, y) < RADII[0]);
            let without = change(untouched, &after, 3, |x, y| from(x, y) > RADII[1]);
            // Some moves find little to do in there, masked or not.
            let least = change(untouched, greatest, 1, |x, y| from(x, y) < RADII[0]).min(0.2) / 2.0;
            // A soft module may reach some pixels across the edge of its mask.
            let what = format!("masked, it changes {within:.3} inside and {without:.3} outside");
            promise(within >= least.max(0.01) && without <= 0.02, what);
        }
        if let Some(beside) = &self.beside {
            let [alone, both] = <[_; 2]>::try_from(demo.see(beside)).unwrap();
            let (alone, both) = (alone?.pixel_hash(), both?.pixel_hash());
            let what = "beside another move of its module, one of them has no effect".into();
            promise(both != alone && both != default.pixel_hash(), what);
        }
        let verdict = if broken.is_empty() { Verdict::Green } else { Verdict::Red(broken) };
        Ok(Outcome {
            entry: entry.clone(),
            verdict,
            measured: Some(measured),
            default: Some((self.rungs[self.default].clone(), Arc::clone(default))),
            strongest: Some(Arc::clone(greatest)),
        })
    }
}

/// A move that this darktable does not have is no fault; any other refusal is.
fn refusal(error: &VocabularyError) -> Verdict {
    match error {
        VocabularyError::Unavailable { .. } => Verdict::NotOffered(error.to_string()),
        other => Verdict::Red(vec![other.to_string()]),
    }
}

/// The values at which a move is measured: see [`Measured::steps`].
fn ladder(entry: &Entry<'_>) -> Vec<BTreeMap<String, f64>> {
    let (neutral, defaults) = (entry.values(|p| p.neutral), entry.values(|p| p.default));
    let Some((name, strength)) = entry.strength() else { return vec![neutral, defaults] };
    let mut rungs = [strength.min, strength.neutral, strength.default, strength.max];
    rungs.sort_by(f64::total_cmp);
    let at = |value: f64| {
        if value == strength.neutral {
            return neutral.clone();
        }
        let mut values = defaults.clone();
        values.insert(name.to_owned(), value);
        values
    };
    let mut ladder: Vec<_> = rungs.into_iter().map(at).collect();
    ladder.dedup();
    ladder
}

/// As far as it goes, in its default direction.
fn strongest(entry: &Entry<'_>) -> BTreeMap<String, f64> {
    entry.values(|p| if p.direction { p.default } else { p.max })
}

/// The next move of the same module that sets other fields; none for a look, whose moves have been held to it.
fn companion<'e>(demo: &Demo, entry: &Entry<'_>, entries: &'e [Entry<'_>]) -> Option<&'e Entry<'e>> {
    let fields = |entry: &Entry<'_>| -> Option<BTreeSet<String>> {
        let found = demo.vocabulary.get(entry.name).ok()?;
        Some(found.set.keys().chain(found.scale.keys()).map(ToString::to_string).collect())
    };
    let mine = fields(entry)?;
    let at = entries.iter().position(|other| other.name == entry.name).unwrap();
    let (before, after) = entries.split_at(at);
    let fits = |other: &&Entry<'_>| {
        entry.modules == other.modules && fields(other).is_some_and(|others| others.is_disjoint(&mine))
    };
    after.iter().skip(1).chain(before).find(fits)
}

/// The share of the pixels in a place of which a channel changed by at least so many of 255.
pub fn change(before: &Picture, after: &Picture, least: u8, place: impl Fn(f64, f64) -> bool) -> f64 {
    assert_eq!((before.width, before.height), (after.width, after.height));
    let (mut all, mut changed) = (0_u32, 0_u32);
    let pixels = before.rgb.chunks_exact(3).zip(after.rgb.chunks_exact(3));
    for ((a, b), at) in pixels.zip(0_u32..) {
        if place(f64::from(at % before.width) + 0.5, f64::from(at / before.width) + 0.5) {
            all += 1;
            changed += u32::from(a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) >= least));
        }
    }
    f64::from(changed) / f64::from(all.max(1))
}
