//! A mask as an agent writes it: one flat JSON object, kept as it was written.
//!
//! Flat, because its schema goes to the model with every request and because a small model fills a flat object
//! more surely than a tagged union. Which keys belong together is checked when the mask is put to use.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::vocabulary::mask::object::ObjectSpec;

/// A mask: where a move acts. `docs/masks.md` shows every form.
///
/// Points are `[x, y]` in 0…1 of the displayed picture, from its upper left corner; angles are degrees, clockwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskSpec {
    /// A drawn shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<ShapeKind>,
    /// A range of tones or colours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeKind>,
    /// A thing in the picture, by a few points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectSpec>,
    /// Colours like the one at this point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similar_to: Option<[f64; 2]>,
    /// How far a similar colour may be from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// What was found in the picture for `object` and `similar_to`: written by chemigram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Box<MaskSpec>>,
    /// A mask of the vocabulary, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Where any of these is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub union: Option<Vec<MaskSpec>>,
    /// Where all of these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intersection: Option<Vec<MaskSpec>>,
    /// Where the first is and none of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Vec<MaskSpec>>,
    /// Of a circle or an ellipse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Of a circle: a share of the picture's shorter side; of an ellipse: a share of its width, one of its height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<Radius>,
    /// Turns an ellipse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<f64>,
    /// A point on a gradient's line of half effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<[f64; 2]>,
    /// The side of a gradient that gets the effect: 0 top, 90 right, 180 bottom, 270 left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub angle: Option<f64>,
    /// Of a gradient's transition, as a share of the diagonal; of a brush, as a share of the shorter side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<f64>,
    /// One corner of a rectangle, or where a range begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<End>,
    /// The corner across, or where a range ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<End>,
    /// The corners of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<Vec<[f64; 2]>>,
    /// The strokes of a brush, each a list of points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strokes: Option<Vec<Vec<[f64; 2]>>>,
    /// The share of a brush's width that has full effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardness: Option<f64>,
    /// The strength of a brush.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub density: Option<f64>,
    /// How softly a shape ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feather: Option<f64>,
    /// How far a range fades out beyond its ends, in its own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softness: Option<f64>,
    /// Everywhere else instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invert: Option<bool>,
    /// Strength of the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opacity: Option<f64>,
    /// Moves the whole mask's edge to edges of the picture within this share of its shorter side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refine: Option<f64>,
    /// Softens the whole mask by this share of the picture's shorter side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blur: Option<f64>,
}

/// The shapes that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapeKind {
    /// A circle.
    Circle,
    /// An ellipse.
    Ellipse,
    /// A straight gradient, from full effect on one side to none on the other.
    Gradient,
    /// An upright rectangle.
    Rectangle,
    /// A closed polygon.
    Path,
    /// Strokes of a brush.
    Brush,
}

/// What a range can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeKind {
    /// Lightness, 0…100.
    Luminance,
    /// Colourfulness, 0…100.
    Chroma,
    /// The hue, in degrees of the HSV circle.
    Hue,
}

/// A circle's radius, or an ellipse's two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Radius {
    /// Of a circle.
    One(f64),
    /// Across and down.
    Two([f64; 2]),
}

/// The end of a range, or the corner of a rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum End {
    /// Of a range.
    Value(f64),
    /// Of a rectangle.
    Corner([f64; 2]),
}

impl ShapeKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Circle => "circle",
            Self::Ellipse => "ellipse",
            Self::Gradient => "gradient",
            Self::Rectangle => "rectangle",
            Self::Path => "path",
            Self::Brush => "brush",
        }
    }
}

impl RangeKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Luminance => "luminance",
            Self::Chroma => "chroma",
            Self::Hue => "hue",
        }
    }
}

impl MaskSpec {
    /// The mask in a few words, such as `ellipse at 0.50, 0.40` or `luminance 0–30 in gradient to the top`.
    pub fn summary(&self) -> String {
        let list = |masks: &[Self], word: &str| {
            let words: Vec<String> = masks
                .iter()
                .map(|mask| if mask.is_compound() { format!("({mask})") } else { mask.summary() })
                .collect();
            words.join(word)
        };
        let lists = [(&self.union, " or "), (&self.intersection, " and "), (&self.difference, " without ")];
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.range.map(|range| self.range_words(range)));
        parts.extend(self.object.as_ref().map(ObjectSpec::words));
        parts.extend(self.similar_to.map(|[x, y]| format!("colours as at {x:.2}, {y:.2}")));
        parts.extend(self.named.clone());
        parts.extend(lists.iter().filter_map(|(masks, word)| Some(list(masks.as_deref()?, word))));
        parts.extend(self.shape.map(|shape| self.shape_words(shape)));
        let mut words = parts.join(" in ");
        if words.is_empty() {
            words = "an empty mask".into();
        }
        if self.invert == Some(true) {
            words = if parts.len() > 1 || self.is_compound() {
                format!("all but ({words})")
            } else {
                format!("all but {words}")
            };
        }
        if let Some(opacity) = self.opacity.filter(|opacity| *opacity != 1.0) {
            words.push_str(&format!(" at {:.0} %", opacity * 100.0));
        }
        words
    }

    fn is_compound(&self) -> bool {
        self.union.is_some() || self.intersection.is_some() || self.difference.is_some()
    }

    fn range_words(&self, range: RangeKind) -> String {
        let end = |end: Option<End>| match end {
            Some(End::Value(value)) => value.to_string(),
            _ => "?".into(),
        };
        let unit = if range == RangeKind::Hue { "°" } else { "" };
        format!("{} {}–{}{unit}", range.name(), end(self.from), end(self.to))
    }

    fn shape_words(&self, shape: ShapeKind) -> String {
        let at = |point: Option<[f64; 2]>| point.map_or("?".into(), |[x, y]| format!("{x:.2}, {y:.2}"));
        let corner = |end: Option<End>| match end {
            Some(End::Corner(corner)) => at(Some(corner)),
            _ => "?".into(),
        };
        let name = shape.name();
        match shape {
            ShapeKind::Circle | ShapeKind::Ellipse => format!("{name} at {}", at(self.center)),
            ShapeKind::Gradient => {
                let angle = self.angle.unwrap_or(0.0);
                match angle.rem_euclid(360.0) {
                    0.0 => format!("{name} to the top"),
                    90.0 => format!("{name} to the right"),
                    180.0 => format!("{name} to the bottom"),
                    270.0 => format!("{name} to the left"),
                    _ => format!("{name} to {angle:.0}°"),
                }
            }
            ShapeKind::Rectangle => format!("{name} {} to {}", corner(self.from), corner(self.to)),
            ShapeKind::Path => format!("{name} of {} points", self.points.as_ref().map_or(0, Vec::len)),
            ShapeKind::Brush => match self.strokes.as_ref().map_or(0, Vec::len) {
                1 => format!("{name} of 1 stroke"),
                count => format!("{name} of {count} strokes"),
            },
        }
    }
}

/// [`MaskSpec::summary`].
impl fmt::Display for MaskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())
    }
}

/// Written by hand: a derived schema allows `null` everywhere and is three times as long.
impl JsonSchema for MaskSpec {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Mask".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let point = json!({ "type": "array", "items": { "type": "number" } });
        let points = json!({ "type": "array", "items": point });
        let place = |description: &str| json!({ "type": "array", "items": { "type": "number" }, "description": description });
        // The fields beside `shape` and `range`: a field's own message replaces that of the whole.
        json_schema!({
            "type": "object",
            "additionalProperties": false,
            "description": "Several keys in one: where all hold",
            "properties": {
                "shape": {
                    "enum": ["circle", "ellipse", "gradient", "rectangle", "path", "brush"],
                    "description": "With its keys: circle (center, radius, feather), ellipse (center, radius, rotation, feather), gradient (anchor, angle, width), rectangle (from, to, feather), path (points, feather), brush (strokes, width, hardness, density)"
                },
                "range": {
                    "enum": ["luminance", "chroma", "hue"],
                    "description": "With from, to, softness: luminance is L*, 0..100; chroma 0 grey..100 vivid; hue in degrees, 0 red, 120 green, 240 blue, may wrap"
                },
                "object": {
                    "type": "object",
                    "description": "A thing: {\"inside\":[[x,y]…] on each part of it, \"outside\":[[x,y]…] beside it, \"grow\": share of the shorter side, \"feather\"}"
                },
                "similar_to": place("Colours as at this point"),
                "tolerance": { "type": "number", "description": "Of similar_to: 1..40" },
                "named": { "type": "string", "description": "A named mask of list_vocabulary" },
                "union": { "type": "array", "items": { "type": "object" }, "description": "Masks like this one: where any is" },
                "intersection": { "type": "array", "items": { "type": "object" }, "description": "Where all are" },
                "difference": { "type": "array", "items": { "type": "object" }, "description": "The first without the others" },
                "center": place("[x, y], shares of width and height from the upper left; so are all points"),
                "radius": {
                    "type": ["number", "array"],
                    "items": { "type": "number" },
                    "description": "circle: share of the shorter side; ellipse: [share of width, share of height]"
                },
                "rotation": { "type": "number", "description": "Degrees clockwise" },
                "anchor": place("Point of half effect"),
                "angle": { "type": "number", "description": "Side with the effect: 0 top, 90 right, 180 bottom, 270 left" },
                "width": {
                    "type": "number",
                    "description": "gradient: from full effect to none, share of the diagonal; brush: share of the shorter side"
                },
                "from": {
                    "type": ["number", "array"],
                    "items": { "type": "number" },
                    "description": "range: a number; rectangle: a corner"
                },
                "to": { "type": ["number", "array"], "items": { "type": "number" } },
                "points": points,
                "strokes": { "type": "array", "items": points },
                "hardness": { "type": "number", "description": "0..1" },
                "density": { "type": "number", "description": "0..1" },
                "feather": { "type": "number", "description": "The soft edge, which grows outward: circle, ellipse: share of the radius; rectangle, path: of the shorter side. 0..1" },
                "softness": { "type": "number", "description": "Fading beyond both ends, in the range's unit" },
                "invert": { "type": "boolean", "description": "Everywhere else" },
                "opacity": { "type": "number", "description": "0..1" },
                "refine": {
                    "type": "number",
                    "description": "The whole mask follows edges within this share, such as 0.01"
                },
                "blur": { "type": "number", "description": "Softens the whole mask; share of the shorter side, to 0.05" }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> MaskSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_mask_is_kept_as_it_was_written() {
        for text in [
            r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2}"#,
            r#"{"shape":"ellipse","center":[0.5,0.4],"radius":[0.2,0.1],"feather":0.5,"invert":false,"opacity":1.0}"#,
            r#"{"range":"hue","from":340.0,"to":20.0,"softness":10.0}"#,
            r#"{"difference":[{"named":"sky"},{"shape":"rectangle","from":[0.1,0.1],"to":[0.4,0.4]}]}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text)).unwrap(), text);
        }
        assert!(serde_json::from_str::<MaskSpec>(r#"{"shape":"star"}"#).is_err());
        assert!(serde_json::from_str::<MaskSpec>(r#"{"union":[{"shap":"circle"}]}"#).is_err());
    }

    #[test]
    fn the_schema_has_every_key_and_no_other() {
        let schema = MaskSpec::json_schema(&mut SchemaGenerator::default()).to_value();
        let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        // An unknown key makes serde list those that it knows.
        let error = serde_json::from_str::<MaskSpec>(r#"{"":0}"#).unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        // `found` is for chemigram to write.
        assert_eq!(known.len(), keys.len() + 1, "{error}");
        assert!(keys.iter().all(|key| known.contains(&key.as_str())), "{keys:?}");
    }

    #[test]
    fn the_schema_is_short_since_it_goes_with_every_request() {
        let length = MaskSpec::json_schema(&mut SchemaGenerator::default()).to_value().to_string().len();
        assert!(length < 3650, "{length}");
    }

    #[test]
    fn a_summary_is_what_one_would_say() {
        for (text, expected) in [
            (r#"{"shape":"ellipse","center":[0.5,0.4],"radius":[0.2,0.1]}"#, "ellipse at 0.50, 0.40"),
            (
                r#"{"shape":"gradient","anchor":[0.5,0.4],"range":"luminance","from":0,"to":30}"#,
                "luminance 0–30 in gradient to the top",
            ),
            (r#"{"range":"hue","from":340,"to":20,"invert":true}"#, "all but hue 340–20°"),
            (r#"{"named":"sky","opacity":0.5}"#, "sky at 50 %"),
            (
                r#"{"difference":[{"union":[{"named":"sky"},{"named":"greens"}]},{"range":"chroma","from":0,"to":12.5}]}"#,
                "(sky or greens) without chroma 0–12.5",
            ),
            (r#"{"shape":"brush","strokes":[[[0,0],[1,1]]],"width":0.1}"#, "brush of 1 stroke"),
            (r#"{"invert":true,"intersection":[{"named":"a"},{"named":"b"}]}"#, "all but (a and b)"),
        ] {
            assert_eq!(read(text).summary(), expected);
        }
    }
}
