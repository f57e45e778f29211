//! From a written mask to a checked one: which keys belong together, every number within its range, names looked up.

use serde_json::Value;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::mask::combine::{Join, Mask, Node};
use crate::vocabulary::mask::named::NamedMasks;
use crate::vocabulary::mask::ranges::Range;
use crate::vocabulary::mask::shapes::Drawn;
use crate::vocabulary::mask::spec::{End, MaskSpec, Radius, RangeKind, ShapeKind};

/// How deep lists may nest, and how many shapes and ranges a mask may have: more is a slip, not a mask.
const DEPTH: usize = 6;
const PARTS: usize = 64;

/// The greatest softening of a whole mask, as a share of the shorter side.
const SOFTEST: f64 = 0.05;

/// What can be written in one object, with the keys that go with it and an example.
struct Form {
    needed: &'static [&'static str],
    optional: &'static [&'static str],
    example: &'static str,
}

const CIRCLE: Form = Form {
    needed: &["center", "radius"],
    optional: &["feather"],
    example: r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2}"#,
};
const ELLIPSE: Form = Form {
    needed: &["center", "radius"],
    optional: &["rotation", "feather"],
    example: r#"{"shape":"ellipse","center":[0.5,0.4],"radius":[0.3,0.2]}"#,
};
const GRADIENT: Form = Form {
    needed: &["anchor"],
    optional: &["angle", "width"],
    example: r#"{"shape":"gradient","anchor":[0.5,0.4],"angle":0,"width":0.3}"#,
};
const RECTANGLE: Form = Form {
    needed: &["from", "to"],
    optional: &["feather"],
    example: r#"{"shape":"rectangle","from":[0.1,0.2],"to":[0.5,0.6]}"#,
};
const PATH: Form = Form {
    needed: &["points"],
    optional: &["feather"],
    example: r#"{"shape":"path","points":[[0.1,0.2],[0.5,0.2],[0.3,0.6]]}"#,
};
const BRUSH: Form = Form {
    needed: &["strokes", "width"],
    optional: &["hardness", "density"],
    example: r#"{"shape":"brush","strokes":[[[0.1,0.2],[0.3,0.3],[0.5,0.2]]],"width":0.1}"#,
};
const RANGE: Form = Form {
    needed: &["from", "to"],
    optional: &["softness"],
    example: r#"{"range":"luminance","from":0,"to":30}"#,
};

/// A written mask, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checked {
    pub mask: Mask,
    /// Shares of the picture's shorter side; 0 for none.
    pub refine: f64,
    pub blur: f64,
}

impl MaskSpec {
    /// Checks the mask, with named ones looked up; a message names the field, its range and an example.
    pub(crate) fn check(&self, named: &NamedMasks) -> Result<Checked, VocabularyError> {
        let [refine, blur] = [("refine", self.refine), ("blur", self.blur)].map(|(name, value)| {
            within(name, value.unwrap_or(0.0), 0.0, SOFTEST, r#"{"named":"sky","blur":0.01}"#)
        });
        let mut parts = 0;
        let mask = self.part(named, 0, &mut parts)?;
        Ok(Checked { mask, refine: refine?, blur: blur? })
    }

    /// Checks the mask or a part of it; `parts` counts shapes and ranges.
    fn part(&self, named: &NamedMasks, depth: usize, parts: &mut usize) -> Result<Mask, VocabularyError> {
        if depth > DEPTH {
            return Err(wrong(format!("its lists nest deeper than {DEPTH}")));
        }
        self.check_keys(depth)?;
        let whole = |node| Mask { node, invert: false, opacity: 1.0 };
        let mut nodes = Vec::new();
        if let Some(name) = &self.named {
            let mask = named.get(name)?.spec.part(named, depth + 1, parts)?;
            nodes.push(mask);
        }
        if self.object.is_some() || self.similar_to.is_some() {
            let found = self.found.as_deref().ok_or_else(|| {
                wrong("`object` and `similar_to` are found in a photo's picture, and cannot be used here")
            })?;
            nodes.push(found.part(named, depth + 1, parts)?);
        }
        if let Some(kind) = self.range {
            *parts += 1;
            nodes.push(whole(Node::Range(self.range(kind)?)));
        }
        if let Some(kind) = self.shape {
            *parts += 1;
            nodes.push(whole(self.drawn(kind)?));
        }
        let lists = [
            (Join::Union, &self.union),
            (Join::Intersection, &self.intersection),
            (Join::Difference, &self.difference),
        ];
        for (join, list) in lists {
            let Some(list) = list else { continue };
            if list.is_empty() || join == Join::Difference && list.len() == 1 {
                return Err(wrong(
                    r#"a list needs its masks, as in {"difference":[{"named":"sky"},{"range":"chroma","from":0,"to":10}]}"#,
                ));
            }
            let masks =
                list.iter().map(|mask| mask.part(named, depth + 1, parts)).collect::<Result<_, _>>()?;
            nodes.push(whole(Node::List(join, masks)));
        }
        if *parts > PARTS {
            return Err(wrong(format!("it has more than {PARTS} shapes and ranges")));
        }
        let opacity =
            within("opacity", self.opacity.unwrap_or(1.0), 0.0, 1.0, r#"{"named":"sky","opacity":0.5}"#)?;
        let joined = match nodes.len() {
            0 => {
                return Err(wrong(format!(
                    "it says nothing; write it like {} or {}",
                    CIRCLE.example, RANGE.example
                )));
            }
            1 => nodes.pop(),
            _ => Some(whole(Node::List(Join::Intersection, nodes))),
        };
        let mask = joined.ok_or_else(|| wrong("it says nothing"))?;
        let invert = self.invert == Some(true);
        Ok(match (mask.invert, mask.opacity) {
            // A named mask with its own inversion or strength stays a part.
            (true, _) if invert => Mask { node: mask.node, invert: false, opacity: mask.opacity * opacity },
            (_, own) => Mask { node: mask.node, invert: mask.invert || invert, opacity: own * opacity },
        })
    }

    /// Refuses keys that go with nothing that is there, and keys that are missing.
    fn check_keys(&self, depth: usize) -> Result<(), VocabularyError> {
        let shape = self.shape.map(|kind| (kind.name(), form(kind)));
        let range = self.range.map(|kind| (kind.name(), &RANGE));
        if let (Some(ShapeKind::Rectangle), Some(_)) = (self.shape, self.range) {
            return Err(wrong(format!(
                r#"a rectangle and a range both need `from` and `to`: write {{"intersection":[{},{}]}}"#,
                RECTANGLE.example, RANGE.example
            )));
        }
        let Ok(Value::Object(given)) = serde_json::to_value(self) else {
            return Err(wrong("it cannot be read"));
        };
        let forms: Vec<(&str, &Form)> = shape.into_iter().chain(range).collect();
        for (name, form) in &forms {
            if let Some(missing) = form.needed.iter().find(|key| !given.contains_key(**key)) {
                return Err(wrong(format!("a {name} needs `{missing}`, as in {}", form.example)));
            }
        }
        let common: &[&str] = &[
            "shape",
            "range",
            "object",
            "named",
            "union",
            "intersection",
            "difference",
            "invert",
            "opacity",
        ];
        for key in given.keys().map(String::as_str) {
            let known = common.contains(&key)
                || forms.iter().any(|(_, form)| form.needed.contains(&key) || form.optional.contains(&key));
            match (key, forms.as_slice()) {
                _ if known => {}
                ("similar_to" | "tolerance" | "found", _)
                    if self.object.is_some() || self.similar_to.is_some() => {}
                ("refine" | "blur", _) if depth == 0 => {}
                ("refine" | "blur", _) => {
                    return Err(wrong(format!("`{key}` is of the whole mask: put it outside of the lists")));
                }
                (_, [(name, form)]) => {
                    return Err(wrong(format!(
                        "a {name} has no `{key}`; it has {}, as in {}",
                        [form.needed, form.optional].concat().join(", "),
                        form.example
                    )));
                }
                _ => {
                    return Err(wrong(format!(
                        "`{key}` goes with nothing that is there; write a mask like {} or {}",
                        CIRCLE.example, RANGE.example
                    )));
                }
            }
        }
        Ok(())
    }

    fn range(&self, kind: RangeKind) -> Result<Range, VocabularyError> {
        let example = match kind {
            RangeKind::Luminance => RANGE.example,
            RangeKind::Chroma => r#"{"range":"chroma","from":30,"to":100}"#,
            RangeKind::Hue => r#"{"range":"hue","from":200,"to":250}"#,
        };
        let most = if kind == RangeKind::Hue { 360.0 } else { 100.0 };
        let end = |name: &str, end: Option<End>| match end {
            Some(End::Value(value)) => within(name, value, 0.0, most, example),
            _ => Err(wrong(format!("`{name}` of a range is a number, as in {example}"))),
        };
        let (from, to) = (end("from", self.from)?, end("to", self.to)?);
        let whole = match kind {
            RangeKind::Hue => from == to || (to - from).abs() == 360.0,
            _ => from >= to || to - from == 100.0,
        };
        if whole {
            let order = if kind == RangeKind::Hue { "" } else { ", and `from` must be below `to`" };
            return Err(wrong(format!(
                "from {from} to {to} is no part of the {}{order}, as in {example}",
                kind.name()
            )));
        }
        // Soft edges round the circle may meet, not cross.
        let (usual, most) = match kind {
            RangeKind::Hue => (15.0, (0.5 * (360.0 - (to - from).rem_euclid(360.0))).min(90.0)),
            _ => (10.0, 25.0),
        };
        let softness = within("softness", self.softness.unwrap_or(most.min(usual)), 0.0, most, example)?;
        Ok(Range { kind, from, to, softness })
    }

    fn drawn(&self, kind: ShapeKind) -> Result<Node, VocabularyError> {
        let example = form(kind).example;
        let number = |name: &str, value: Option<f64>, missing: f64, min: f64, max: f64| {
            within(name, value.unwrap_or(missing), min, max, example)
        };
        let point = |name: &str, [x, y]: [f64; 2]| {
            Ok::<_, VocabularyError>([
                within(name, x, -0.5, 1.5, example)?,
                within(name, y, -0.5, 1.5, example)?,
            ])
        };
        let points = |name: &str, points: &[[f64; 2]], least: usize, most: usize| {
            if !(least..=most).contains(&points.len()) {
                let count = points.len();
                return Err(wrong(format!(
                    "`{name}` has {count} points; it needs {least} to {most}, as in {example}"
                )));
            }
            points.iter().map(|at| point(name, *at)).collect::<Result<Vec<_>, _>>()
        };
        let center = || point("center", self.center.unwrap_or_default());
        let feather = |missing: f64| number("feather", self.feather, missing, 0.0, 1.0);
        let corner = |name: &str, end: Option<End>| match end {
            Some(End::Corner(corner)) => point(name, corner),
            _ => Err(wrong(format!("`{name}` of a rectangle is a corner [x, y], as in {example}"))),
        };
        let drawn = match (kind, self.radius) {
            (ShapeKind::Circle, Some(Radius::One(radius))) => Drawn::Circle {
                center: center()?,
                radius: number("radius", Some(radius), 0.0, 0.005, 1.5)?,
                feather: feather(0.5)?,
            },
            (ShapeKind::Ellipse, Some(Radius::Two([across, down]))) => Drawn::Ellipse {
                center: center()?,
                radius: [
                    number("radius", Some(across), 0.0, 0.005, 1.5)?,
                    number("radius", Some(down), 0.0, 0.005, 1.5)?,
                ],
                rotation: number("rotation", self.rotation, 0.0, -360.0, 360.0)?,
                feather: feather(0.5)?,
            },
            (ShapeKind::Circle, _) => {
                return Err(wrong(format!("`radius` of a circle is one number, as in {example}")));
            }
            (ShapeKind::Ellipse, _) => {
                return Err(wrong(format!(
                    "`radius` of an ellipse is two numbers [across, down], as in {example}"
                )));
            }
            (ShapeKind::Gradient, _) => Drawn::Gradient {
                anchor: point("anchor", self.anchor.unwrap_or_default())?,
                angle: number("angle", self.angle, 0.0, -360.0, 360.0)?,
                width: number("width", self.width, 0.5, 0.01, 2.0)?,
            },
            (ShapeKind::Rectangle, _) => {
                let ([x0, y0], [x1, y1]) = (corner("from", self.from)?, corner("to", self.to)?);
                if (x0 - x1).abs() < 0.005 || (y0 - y1).abs() < 0.005 {
                    return Err(wrong(format!(
                        "`from` and `to` enclose nothing; write corners across, as in {example}"
                    )));
                }
                Drawn::Polygon {
                    corners: vec![[x0, y0], [x1, y0], [x1, y1], [x0, y1]],
                    feather: feather(0.05)?,
                }
            }
            (ShapeKind::Path, _) => Drawn::Polygon {
                corners: points("points", self.points.as_deref().unwrap_or_default(), 3, 256)?,
                feather: feather(0.05)?,
            },
            (ShapeKind::Brush, _) => return self.brush(points),
        };
        Ok(Node::Drawn(drawn))
    }

    /// One stroke, or the union of several.
    fn brush(
        &self,
        points: impl Fn(&str, &[[f64; 2]], usize, usize) -> Result<Vec<[f64; 2]>, VocabularyError>,
    ) -> Result<Node, VocabularyError> {
        let number = |name: &str, value: Option<f64>, missing: f64, min: f64| {
            within(name, value.unwrap_or(missing), min, 1.0, BRUSH.example)
        };
        let width = number("width", self.width, 0.0, 0.005)?;
        let hardness = number("hardness", self.hardness, 0.5, 0.0)?;
        let density = number("density", self.density, 1.0, 0.0)?;
        let strokes = self.strokes.as_deref().unwrap_or_default();
        if !(1..=32).contains(&strokes.len()) {
            return Err(wrong(format!(
                "`strokes` has {}; it needs 1 to 32, as in {}",
                strokes.len(),
                BRUSH.example
            )));
        }
        let mut nodes = Vec::new();
        for stroke in strokes {
            let points = points("strokes", stroke, 2, 64)?;
            nodes.push(Node::Drawn(Drawn::Stroke { points, width, hardness, density }));
        }
        Ok(match <[Node; 1]>::try_from(nodes) {
            Ok([one]) => one,
            Err(nodes) => Node::List(
                Join::Union,
                nodes.into_iter().map(|node| Mask { node, invert: false, opacity: 1.0 }).collect(),
            ),
        })
    }
}

fn form(kind: ShapeKind) -> &'static Form {
    match kind {
        ShapeKind::Circle => &CIRCLE,
        ShapeKind::Ellipse => &ELLIPSE,
        ShapeKind::Gradient => &GRADIENT,
        ShapeKind::Rectangle => &RECTANGLE,
        ShapeKind::Path => &PATH,
        ShapeKind::Brush => &BRUSH,
    }
}

fn wrong(what: impl Into<String>) -> VocabularyError {
    VocabularyError::Mask(what.into())
}

fn within(name: &str, value: f64, min: f64, max: f64, example: &str) -> Result<f64, VocabularyError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(wrong(format!("`{name}` cannot be {value}: it goes from {min} to {max}, as in {example}")))
    }
}
