//! Warps: places of the picture that are pushed, grown or shrunk.
//!
//! All warps of a photo are in one instance of darktable's `liquify`, each a separate point in the module's table.
//! A move's fields name what is said of one on the displayed picture: `point` its centre, `radius` its radius as a share
//! of the shorter side, `strength` how far it acts as a share of the radius and, for a push, which way (degrees, 0 is
//! up, 90 right). darktable keeps three places in pixels of the raw frame instead: the centre, a place on the edge, and
//! the tip of an arrow. A warp is known by its centre and its kind, so that the same move there replaces it. darktable adds
//! all of them up, so that their order has no meaning.

use std::collections::BTreeMap;

use crate::vocabulary::form::Target;
use crate::vocabulary::mask::Frame;
use crate::vocabulary::moves::Move;
use darktable::state::Value;

type Fields = BTreeMap<String, Value>;

/// How many points the module holds.
const MOST: usize = 100;

/// The columns of its table: each field that begins so has a place, or a pair of places, for every point.
const TABLE: &str = "nodes.";
const KIND: &str = "nodes.header.type";
const PREVIOUS: &str = "nodes.header.prev";
const INDEX: &str = "nodes.header.idx";
const NEXT: &str = "nodes.header.next";
const POINT: &str = "nodes.warp.point";
const EFFECT: &str = "nodes.warp.type";

/// darktable's number of a point that is alone or begins a path.
const ALONE: i64 = 1;

/// darktable's numbers of what a point does.
const PUSH: i64 = 0;
const GROW: i64 = 1;
const SHRINK: i64 = 2;

/// How a warp fades from its middle to its edge: the inner two of four points of a curve, as darktable begins one.
const FADE: [f32; 2] = [0.5, 0.75];

/// A point of the table.
#[derive(Clone, Debug, PartialEq)]
struct Node(Fields);

impl Node {
    fn whole(&self, name: &str) -> i64 {
        match self.0.get(name) {
            Some(Value::Ints(cell)) => cell.first().copied().unwrap_or(0),
            _ => 0,
        }
    }

    fn set(&mut self, name: &str, whole: i64) {
        self.0.insert(name.to_owned(), Value::Ints(vec![whole]));
    }

    /// Whether it belongs to no path.
    fn is_alone(&self) -> bool {
        self.whole(KIND) == ALONE && self.whole(PREVIOUS) < 0 && self.whole(NEXT) < 0
    }

    /// Whether a move made it, or one of the kind.
    fn is_of(&self, entry: &Move) -> bool {
        self.is_alone() && (self.whole(EFFECT) == PUSH) == pushes(entry)
    }

    fn order(&self) -> (Vec<u32>, i64) {
        let point = match self.0.get(POINT) {
            Some(Value::Floats(cell)) => cell.iter().map(|x| x.to_bits()).collect(),
            _ => Vec::new(),
        };
        (point, self.whole(EFFECT))
    }
}

/// How long the arrow is that pushes what lies in the middle so far, both in radii. Every place of the result shows what lay
/// behind it by half the arrow, less towards the edge: a Bézier curve of distance and effect from (0, 1) to (1, 0).
fn arrow(far: f64) -> f64 {
    let [inner, outer] = FADE.map(f64::from);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let t: f64 = (low + high) / 2.0;
        let distance = 3.0 * t * (1.0 - t) * ((1.0 - t) * inner + t * outer) + t.powi(3);
        if distance < far { low = t } else { high = t }
    }
    let effect = (1.0 - low).powi(2) * (1.0 + 2.0 * low);
    2.0 * far / effect
}

fn pushes(entry: &Move) -> bool {
    entry.set.contains_key(&Target { field: "nodes.warp.strength".into(), index: Some(1) })
}

/// The points of a table.
fn nodes(fields: &Fields) -> Vec<Node> {
    let Some(Value::Ints(kinds)) = fields.get(KIND) else { return Vec::new() };
    let node = |at: usize| {
        let cells = fields.iter().filter(|(name, _)| name.starts_with(TABLE)).map(|(name, value)| {
            let cell = match value {
                Value::Ints(list) => Value::Ints(cell(list, at).to_vec()),
                Value::Floats(list) => Value::Floats(cell(list, at).to_vec()),
                other => other.clone(),
            };
            (name.clone(), cell)
        });
        Node(cells.collect())
    };
    // The first free place ends the table.
    (0..kinds.iter().take_while(|kind| **kind != 0).count()).map(node).collect()
}

/// A point's part of a column.
fn cell<T>(list: &[T], at: usize) -> &[T] {
    let width = list.len() / MOST;
    list.get(at * width..(at + 1) * width).unwrap_or_default()
}

/// Writes the table again: paths as they were, then single points.
fn write(fields: &mut Fields, nodes: &[Node]) {
    let (paths, mut points): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| !node.is_alone());
    points.sort_by_cached_key(|node| node.order());
    let sorted: Vec<&Node> = paths.into_iter().chain(points).collect();
    let place = |old: i64| sorted.iter().position(|node| node.whole(INDEX) == old && !node.is_alone());
    let mut nodes: Vec<Node> = sorted.iter().map(|node| (*node).clone()).collect();
    for (at, node) in (0..).zip(&mut nodes) {
        for link in [PREVIOUS, NEXT] {
            if let Some(place) = Some(node.whole(link)).filter(|old| *old >= 0).and_then(place) {
                node.set(link, place as i64);
            }
        }
        node.set(INDEX, at);
    }
    for (name, value) in fields.iter_mut().filter(|(name, _)| name.starts_with(TABLE)) {
        match value {
            Value::Ints(list) => fill(list, &nodes, |node| match node.0.get(name) {
                Some(Value::Ints(cell)) => Some(cell),
                _ => None,
            }),
            Value::Floats(list) => fill(list, &nodes, |node| match node.0.get(name) {
                Some(Value::Floats(cell)) => Some(cell),
                _ => None,
            }),
            _ => {}
        }
    }
}

fn fill<T: Copy + Default>(list: &mut [T], nodes: &[Node], cell: impl Fn(&Node) -> Option<&Vec<T>>) {
    let width = (list.len() / MOST).max(1);
    list.fill(T::default());
    for (place, node) in list.chunks_mut(width).zip(nodes) {
        place.iter_mut().zip(cell(node).into_iter().flatten()).for_each(|(slot, value)| *slot = *value);
    }
}

/// Sets a warp, or takes it back where it does nothing. The error says why it cannot be.
pub(super) fn set(
    fields: &mut Fields,
    entry: &Move,
    values: &BTreeMap<String, f64>,
    frame: &Frame,
) -> Result<(), String> {
    let value = |field: &str, index: usize| {
        let target = Target { field: field.to_owned(), index: Some(index) };
        entry.set.get(&target).map_or(0.0, |form| form.value(values))
    };
    let shown = frame.shown();
    let [x, y] = [value(POINT, 0) * shown.width, value(POINT, 1) * shown.height];
    let radius = value("nodes.warp.radius", 0) * shown.short();
    let strength = value("nodes.warp.strength", 0);
    let (effect, length, angle) = if pushes(entry) {
        (PUSH, arrow(strength), value("nodes.warp.strength", 1).to_radians())
    } else {
        (if strength < 0.0 { SHRINK } else { GROW }, strength.abs(), 0.0)
    };
    let raw = frame.projection();
    let place = |x: f64, y: f64| Value::Floats(raw.point([x, y]).map(|at| at as f32 + 0.0).to_vec());
    let tip = place(x + length * radius * angle.sin(), y - length * radius * angle.cos());
    let (ints, floats) = (|n| Value::Ints(vec![n]), |n| Value::Floats(vec![n]));
    let cells = [
        (KIND, ints(ALONE)),
        (PREVIOUS, ints(-1)),
        (NEXT, ints(-1)),
        (POINT, place(x, y)),
        ("nodes.warp.strength", tip),
        ("nodes.warp.radius", place(x + radius, y)),
        ("nodes.warp.control1", floats(FADE[0])),
        ("nodes.warp.control2", floats(FADE[1])),
        (EFFECT, ints(effect)),
    ];
    let new = Node(cells.into_iter().map(|(name, cell)| (name.to_owned(), cell)).collect());
    let mut standing = nodes(fields);
    let count = standing.len();
    standing.retain(|node| !(node.is_of(entry) && node.order().0 == new.order().0));
    if strength != 0.0 {
        standing.push(new);
    } else if standing.len() == count {
        return Ok(());
    }
    if standing.len() > MOST {
        return Err(format!("a photo has at most {MOST} warps"));
    }
    write(fields, &standing);
    Ok(())
}

/// Takes back the warps of a move's kind but those of the baseline.
pub(super) fn take_off(fields: &mut Fields, entry: &Move, base: Option<&Fields>) {
    let base = base.map(nodes).unwrap_or_default();
    let place = |node: &Node| base.iter().any(|known| known.order() == node.order());
    let mut standing = nodes(fields);
    standing.retain(|node| !node.is_of(entry) || place(node));
    write(fields, &standing);
}

/// Whether the warps are the baseline's.
pub(super) fn at_rest(fields: &Fields, base: Option<&Fields>) -> bool {
    let sorted = |fields: &Fields| {
        let mut sorted = fields.clone();
        write(&mut sorted, &nodes(fields));
        nodes(&sorted)
    };
    sorted(fields) == base.map(sorted).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::testing::{Photo, module};
    use darktable::state::Params;
    use darktable::{order, params};

    /// Point `at` of a table that has none so far: its kind, and the points before and after it on its path.
    fn point(fields: &mut Fields, at: usize, cells: [i64; 3], x: f32) {
        for (name, cell) in [KIND, PREVIOUS, NEXT, INDEX].into_iter().zip([&cells[..], &[at as i64]].concat())
        {
            let Some(Value::Ints(list)) = fields.get_mut(name) else { panic!("{name}") };
            list[at] = cell;
        }
        let Some(Value::Floats(list)) = fields.get_mut(POINT) else { panic!("points") };
        list[2 * at..2 * at + 2].copy_from_slice(&[x, x]);
    }

    #[test]
    fn paths_out_of_darktable_stay_whole_beside_warps() {
        let mut photo = Photo::new();
        let mut own = module(&photo.layouts, OP, 1, &[]);
        let Params::Fields(fields) = &mut own.params else { panic!("fields") };
        // A point alone, and a path of two points behind it.
        point(fields, 0, [ALONE, -1, -1], 200.0);
        point(fields, 1, [ALONE, -1, 2], 50.0);
        point(fields, 2, [2, 1, -1], 60.0);
        photo.facts.baseline.modules.push(own);
        order::sort(&mut photo.facts.baseline);
        photo.state = photo.facts.baseline.clone();
        photo.apply("warp_push", &[("x", 0.25), ("amount", 0.0)], None);
        assert_eq!(photo.state.hash(), photo.facts.baseline.hash(), "nothing is nothing");
        photo.apply("warp_push", &[("x", 0.25)], None);
        let Params::Fields(fields) = &photo.state.module(OP, 0).unwrap().params else { panic!("fields") };
        let nodes = nodes(fields);
        let column = |name: &str| nodes.iter().map(|node| node.whole(name)).collect::<Vec<_>>();
        assert_eq!(column(KIND), [1, 2, 1, 1]);
        assert_eq!(column(PREVIOUS), [-1, 0, -1, -1]);
        assert_eq!(column(NEXT), [1, -1, -1, -1]);
        assert_eq!(column(INDEX), [0, 1, 2, 3]);
        let x = |node: &Node| f32::from_bits(node.order().0[0]);
        assert_eq!(nodes.iter().map(x).collect::<Vec<_>>(), [50.0, 60.0, 75.0, 200.0]);
        let layout = photo.layouts.module(OP).unwrap().unwrap();
        assert!(params::encode(layout.lowest().unwrap(), fields).is_ok());
        photo.apply("warp_push", &[("x", 0.25), ("amount", 0.0)], None);
        assert_eq!(photo.state.hash(), photo.facts.baseline.hash());
    }

    const OP: &str = "liquify";
}
