//! What a model reads of pictures: a few numbers before and after, and names of eight characters. The whole
//! measurements go with the result as [`figures`](crate::conversation::ToolResult::figures), which no model is sent.

use std::sync::PoisonError;

use serde_json::{Map, Value, json};

use crate::tools::context::ResolvedRef;
use crate::tools::measures::make_room;
use crate::tools::{Answer, ToolContext};
use base::error::Fault;
use base::ids::Hash;
use engine::photo::{AppliedMove, diff};
use pixels::metrics::axes::Axis;
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

/// Characters of a hash that a model reads; a ref may be as short as seven.
const HASH: usize = 8;
/// Moves that are listed with a picture; of more, the last ones.
const MOVES: usize = 2;

/// The field of an answer's data that holds what no model is sent.
pub const FIGURES: &str = "figures";

impl Answer {
    /// Adds a figure to those that there are.
    pub fn add_figure(&mut self, field: &str, value: Value) {
        if let Some(figures) = self.data.get_mut(FIGURES).and_then(Value::as_object_mut) {
            figures.insert(field.to_owned(), value);
        }
    }

    /// Takes the figures out of the data, and shortens the hashes in what is left for the model.
    pub fn take_figures(&mut self) -> Map<String, Value> {
        let found = self.data.as_object_mut().and_then(|data| data.remove(FIGURES));
        shorten(&mut self.data);
        match found {
            Some(Value::Object(figures)) => figures,
            _ => Map::new(),
        }
    }
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            text.truncate(HASH);
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// A hash as a model reads it.
pub fn short(hash: &Hash) -> String {
    hash.as_str().chars().take(HASH).collect()
}

/// The numbers of a picture, with those of another before it if there is one.
pub fn numbers(before: Option<&ImageStats>, now: &ImageStats) -> Value {
    let row = |value: fn(&ImageStats) -> f64| {
        let text = |stats: &ImageStats| format!("{:.1}", value(stats) + 0.0).replace("-0.0", "0.0");
        let now = text(now);
        match before.map(text).filter(|before| *before != now) {
            Some(before) => format!("{before} → {now}"),
            None => now,
        }
    };
    json!({
        "mean_L": row(|stats| stats.lightness.mean),
        "clip_high": row(|stats| stats.clip_high_pct),
        "clip_low": row(|stats| stats.clip_low_pct),
        "contrast": row(|stats| stats.lightness.std),
        "chroma": row(|stats| stats.chroma_mean),
        "warmth": row(|stats| stats.b_mean),
    })
}

/// Whether the direction was met and each asked axis's movement, in steps, in the whole frame or else in the place that
/// changed; warnings.
pub fn add_check(
    data: &mut Map<String, Value>,
    axes: &[(Axis, i8)],
    check: &VectorCheck,
    (before, now): (&ImageStats, &ImageStats),
    whole: bool,
) {
    if check.direction != Verdict::NotApplicable {
        data.insert("direction".into(), json!(check.direction));
        let steps = |(axis, sign): &(Axis, i8)| {
            let steps = f64::from(*sign) * axis.steps(before, now);
            let place = if whole { "" } else { " where it changed" };
            (axis.name().to_owned(), format!("{:+.1}{place}", steps + 0.0).into())
        };
        data.insert("steps".into(), Value::Object(axes.iter().map(steps).collect()));
    }
    if !check.warnings.is_empty() {
        // The values are among the numbers.
        let words = |warning: &String| match warning.split_once(" from ") {
            Some((clipped, _)) if clipped.starts_with("clipped") => clipped.to_owned(),
            _ => warning.clone(),
        };
        data.insert("warnings".into(), check.warnings.iter().map(words).collect());
    }
}

/// The distance of two pictures.
pub fn add_distance(data: &mut Map<String, Value>, difference: &Difference) {
    let rounded = |value: f64| (value * 10.0).round() / 10.0;
    data.insert("delta_e".into(), json!(rounded(difference.mean)));
    data.insert("delta_e_p95".into(), json!(rounded(difference.p95)));
}

/// The moves in effect, as lines; of many, the last.
pub fn changed(moves: &[AppliedMove]) -> Vec<String> {
    let earlier = moves.len().saturating_sub(MOVES);
    let more = (earlier > 0).then(|| format!("{earlier} before (get_state)"));
    more.into_iter().chain(moves.iter().skip(earlier).map(ToString::to_string)).collect()
}

impl ToolContext<'_> {
    /// What is different from `a` to `b`, by the moves in effect: `exposure ev=0.50 EV: added`.
    pub fn changes(&self, a: &ResolvedRef, b: &ResolvedRef) -> Result<Vec<String>, Fault> {
        if !self.descends(&a.commit)? || !self.descends(&b.commit)? {
            return Ok(raw_changes(a, b));
        }
        let (before, after) = (self.moves(&a.commit)?, self.moves(&b.commit)?);
        let same = |x: &AppliedMove, y: &AppliedMove| x.name == y.name && x.mask == y.mask;
        let mut changes = Vec::new();
        for old in &before {
            match after.iter().find(|new| same(old, new)) {
                None => changes.push(format!("{old}: removed")),
                Some(new) if new.values != old.values => changes.push(format!("{old} → {new}")),
                Some(_) => {}
            }
        }
        let new = after.iter().filter(|new| !before.iter().any(|old| same(old, new)));
        changes.extend(new.map(|new| format!("{new}: added")));
        // What no move says, such as spots and an import.
        Ok(if changes.is_empty() { raw_changes(a, b) } else { changes })
    }

    /// Whether a commit is the session's baseline or was made from it.
    fn descends(&self, commit: &Hash) -> Result<bool, Fault> {
        let mut known = self.engine.descent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = Some(commit.clone());
        let descends = loop {
            match at {
                None => break false,
                Some(hash) if hash == self.view.start.baseline => break true,
                Some(hash) => match known.get(&hash) {
                    Some(found) => break *found,
                    None => at = self.commit(&hash)?.parents.first().cloned(),
                },
            }
        };
        make_room(&mut known);
        known.insert(commit.clone(), descends);
        Ok(descends)
    }
}

/// The differences of two edits by module. The ends of a mask's range are in darktable's numbers, and left out.
fn raw_changes(a: &ResolvedRef, b: &ResolvedRef) -> Vec<String> {
    let words = |change: engine::photo::Change| match change.field.as_deref() {
        Some("mask") => format!("{}: mask changed", change.subject),
        _ => change.to_string(),
    };
    diff(&a.state, &b.state).into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pixels::Picture;

    fn flat(level: u8) -> Picture {
        Picture { width: 32, height: 32, rgb: vec![level; 32 * 32 * 3] }
    }

    fn checked(axes: &[(Axis, i8)], before: &Picture, now: &Picture) -> Map<String, Value> {
        let [base, stats] = [before, now].map(ImageStats::of);
        let difference = Difference::between(before, now).unwrap();
        let mut data = Map::new();
        add_check(&mut data, axes, &VectorCheck::of(axes, &base, &stats, &difference), (&base, &stats), true);
        data
    }

    #[test]
    fn numbers_are_before_and_after_and_once_where_nothing_moved() {
        let [dark, light] = [flat(60), flat(90)].map(|picture| ImageStats::of(&picture));
        let found = numbers(Some(&dark), &light);
        let mean = found["mean_L"].as_str().unwrap();
        let [before, after] = mean.split(" → ").map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("{mean}")
        };
        assert!(before < after && (before - dark.lightness.mean).abs() < 0.06, "{mean}");
        assert_eq!((&found["clip_high"], &found["warmth"]), (&json!("0.0"), &json!("0.0")));
        assert_eq!(found.as_object().unwrap().len(), 6);
        assert_eq!(numbers(None, &dark)["mean_L"], before.to_string());
    }

    #[test]
    fn the_direction_comes_with_its_axes_in_steps_as_asked() {
        let darker = checked(&[(Axis::Brightness, -1), (Axis::Warmth, 1)], &flat(90), &flat(60));
        assert_eq!(darker["direction"], "met");
        let steps = |axis: &str| darker["steps"][axis].as_str().unwrap().parse::<f64>().unwrap();
        assert!(steps("brightness") > 5.0 && steps("warmth") == 0.0, "{darker:?}");
        assert!(!checked(&[], &flat(90), &flat(60)).contains_key("direction"));
    }
}
