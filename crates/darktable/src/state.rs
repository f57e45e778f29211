//! The typed edit state: what a photograph's edit *is*, independent of any sidecar that spells it.
//!
//! Its canonical form is compact JSON with sorted keys and shortest round-trip numbers; the SHA-256 of that
//! names it. Struct fields are declared in alphabetical order and maps are `BTreeMap`s, so that plain
//! serialisation *is* the canonical form (a test holds this).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use base::ids::Hash;

/// A complete edit: module instances in pipeline order, and the mask forms they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditState {
    /// Top-level sidecar attributes that we do not model, kept whole (`name -> value`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, String>,
    /// Drawn mask forms, ordered by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<MaskForm>,
    /// Module instances, ordered by (pipeline position, instance): see [`crate::order`].
    pub modules: Vec<Module>,
    /// Which built-in module order the pipeline follows.
    pub order: PipelineOrder,
    /// The order in which module instances run (module, instance), where an imported edit has its own;
    /// empty where [`Self::order`] says it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequence: Vec<(String, u32)>,
}

/// darktable's built-in module orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineOrder {
    /// The order of darktable before 3.0 (`iop_order_version` 1).
    Legacy,
    /// "v3.0 RAW" (`iop_order_version` 2): every raw, on every supported darktable.
    #[default]
    V30,
    /// "v3.0 JPEG" (`iop_order_version` 3): pictures that are not raw.
    V30Jpeg,
    /// "v5.0 RAW" (`iop_order_version` 4). darktable 4 does not know it and runs v3.0, which differs only in
    /// where a full-quality export is scaled.
    V50,
    /// "v5.0 JPEG" (`iop_order_version` 5).
    V50Jpeg,
    /// A person's own (`iop_order_version` 0): [`EditState::sequence`] holds it.
    Custom,
}

/// One instance of a darktable module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// How the result is blended; `None` is darktable's "off": full effect everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blend: Option<Blend>,
    /// Whether the module runs.
    pub enabled: bool,
    /// `multi_priority`: 0 for the base instance.
    pub instance: u32,
    /// The version of the parameter layout.
    pub modversion: u32,
    /// `multi_name`: empty, or the name of the move that made a masked instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// darktable's internal name (`exposure`, `colorbalancergb`…).
    pub op: String,
    /// The parameters.
    pub params: Params,
}

/// A module's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Params {
    /// Every field of the layout, by name.
    Fields(BTreeMap<String, Value>),
    /// The raw bytes in lower-case hex, for a module or version without a layout.
    Opaque(String),
}

/// The value of one parameter field. `Float` is always finite and never `-0.0`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// int, uint, enum, bool, short, char: a whole number.
    Int(i64),
    /// float.
    Float(f32),
    /// An array of whole numbers (after [`Value::Floats`] in doubt: an empty array is one of floats).
    Ints(Vec<i64>),
    /// An array of floats, nested arrays flattened.
    Floats(Vec<f32>),
    /// A NUL-terminated character array.
    Text(String),
}

/// Blend parameters as of version 11 (the layout of darktable 4.2, accepted by every later one).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blend {
    /// −1…1, refines the mask's brightness.
    pub brightness: f32,
    /// Blend colour space: 0 none, 1 raw, 2 Lab, 3 RGB display, 4 RGB scene.
    pub colorspace: i32,
    /// Bits: 1 invert, 2 inclusive, 4 `masks_pos`.
    pub combine: u32,
    /// −1…1.
    pub contrast: f32,
    /// −1…1, details threshold.
    pub details: f32,
    /// 1 in before blur, 2 out before, 5 in after, 6 out after.
    pub feathering_guide: u32,
    /// Pixels.
    pub feathering_radius: f32,
    /// EV by which some modes brighten the layer before they use it (`blend_parameter`).
    #[serde(default, skip_serializing_if = "no_fulcrum")]
    pub fulcrum: f32,
    /// The form (normally a group) that this instance uses; `None` for no drawn mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_id: Option<i32>,
    /// Mask blur in pixels.
    pub mask_blur: f32,
    /// 0x18 is "normal".
    pub mode: u32,
    /// 0…100.
    pub opacity: f32,
    /// The active parametric channels: channel index → trapezoid. Empty for none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranges: BTreeMap<u8, ChannelRange>,
    /// The whole blob in hex (with its version), when it holds something that the fields above do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueBlend>,
}

/// A blend blob of a version or with features that are not modelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaqueBlend {
    /// Lower-case hex.
    pub hex: String,
    /// `blendop_version`.
    pub version: u32,
}

/// One channel of a parametric mask: full effect between `full_from` and `full_to`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelRange {
    /// How far the channel reaches, as the power of 2 by which 0…1 is multiplied; `None` for darktable's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<f32>,
    /// Where the effect starts to rise.
    pub from: f32,
    /// Where it reaches full.
    pub full_from: f32,
    /// Where it begins to fall.
    pub full_to: f32,
    /// Invert this channel's selection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inverted: bool,
    /// Where it has fallen to nothing.
    pub to: f32,
}

/// A drawn mask form in darktable's own terms: coordinates 0…1 of the *raw frame*, radii and borders in
/// units of its shorter side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskForm {
    /// 1…2³¹−1, derived from the content by [`MaskForm::new`].
    pub id: i32,
    /// A short name, shown by darktable's mask manager.
    pub name: String,
    /// The geometry.
    pub shape: Shape,
    /// `mask_src`: the source point of a clone; `[0, 0]` otherwise.
    pub source: [f32; 2],
}

/// The geometry of a mask form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A stroke of a brush.
    Brush {
        /// The points that it runs through, two at least.
        points: Vec<BrushPoint>,
    },
    /// A circle.
    Circle {
        /// Width of the soft border.
        border: f32,
        /// x, y.
        center: [f32; 2],
        /// Radius.
        radius: f32,
    },
    /// An ellipse.
    Ellipse {
        /// Width of the soft border.
        border: f32,
        /// x, y.
        center: [f32; 2],
        /// Whether the border is a share of the radius (else of the shorter side).
        proportional: bool,
        /// Half axes a, b.
        radius: [f32; 2],
        /// Degrees.
        rotation: f32,
    },
    /// A linear gradient: rotation 0 acts on the top half, 180 on the bottom half.
    Gradient {
        /// The point of half effect.
        anchor: [f32; 2],
        /// 0.1 steep … 1 shallow.
        compression: f32,
        /// Bend of the line.
        curvature: f32,
        /// Degrees.
        rotation: f32,
        /// Sigmoidal transition instead of linear.
        sigmoidal: bool,
    },
    /// A closed path; control points on the corners make a polygon.
    Path {
        /// The corners.
        points: Vec<PathPoint>,
    },
    /// A group of other forms.
    Group {
        /// The members in order.
        members: Vec<GroupMember>,
    },
    /// A form that is not modelled (clone forms of a retouch, other versions…): `mask_type` and its points in hex.
    Opaque {
        /// `mask_nb`.
        count: u32,
        /// `mask_type`.
        kind: u32,
        /// Lower-case hex.
        points: String,
        /// `mask_version`.
        version: u32,
    },
}

/// A point of a [`Shape::Brush`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrushPoint {
    /// Half the stroke's width, before and after the point.
    pub border: [f32; 2],
    /// Control point before it.
    pub control1: [f32; 2],
    /// Control point after it.
    pub control2: [f32; 2],
    /// The point.
    pub corner: [f32; 2],
    /// The strength, 0…1.
    pub density: f32,
    /// The share of the width that has the full strength, 0…1.
    pub hardness: f32,
    /// Whether the control points were set by a person.
    pub user: bool,
}

/// A corner of a [`Shape::Path`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathPoint {
    /// Border widths on both sides.
    pub border: [f32; 2],
    /// First control point.
    pub control1: [f32; 2],
    /// Second control point.
    pub control2: [f32; 2],
    /// The corner.
    pub corner: [f32; 2],
    /// Whether the control points were set by a person.
    pub user: bool,
}

/// A member of a [`Shape::Group`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupMember {
    /// The member's form id.
    pub form: i32,
    /// 0…1.
    pub opacity: f32,
    /// Bits: 1 use, 2 show, 4 inverse, 8 union, 16 intersection, 32 difference, 64 exclusion.
    pub state: u32,
}

impl EditState {
    /// The canonical form.
    pub fn canonical(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The name of this state: SHA-256 of [`Self::canonical`].
    pub fn hash(&self) -> Hash {
        Hash::of(self.canonical())
    }

    /// The instance of `op` with this `multi_priority`.
    pub fn module(&self, op: &str, instance: u32) -> Option<&Module> {
        self.modules.iter().find(|m| m.op == op && m.instance == instance)
    }

    /// [`Self::module`], to change it.
    pub fn module_mut(&mut self, op: &str, instance: u32) -> Option<&mut Module> {
        self.modules.iter_mut().find(|m| m.op == op && m.instance == instance)
    }
}

impl MaskForm {
    /// Makes a form whose id is derived from its content, so that equal shapes have equal ids everywhere.
    pub fn new(name: impl Into<String>, shape: Shape) -> Self {
        let name = name.into();
        let content = serde_json::to_vec(&(&name, &shape)).unwrap_or_default();
        Self { id: content_id(&content), name, shape, source: [0.0, 0.0] }
    }
}

fn no_fulcrum(fulcrum: &f32) -> bool {
    *fulcrum == 0.0
}

/// A mask id in 1…2³¹−1 from a digest: negative and zero ids are not accepted by every darktable.
fn content_id(bytes: &[u8]) -> i32 {
    let digest = Hash::of(bytes);
    let number = digest.as_str().get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let number = number.unwrap_or(1) & 0x7fff_ffff;
    i32::try_from(number.max(1)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposure(ev: f32) -> Module {
        Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion: 6,
            name: String::new(),
            op: "exposure".into(),
            params: Params::Fields(BTreeMap::from([
                ("exposure".into(), Value::Float(ev)),
                ("mode".into(), Value::Int(0)),
                ("curve".into(), Value::Floats(vec![0.0, 0.1])),
            ])),
        }
    }

    #[test]
    fn the_canonical_form_has_sorted_keys_and_shortest_numbers_and_reads_back() {
        let state = EditState {
            masks: vec![MaskForm::new("e", Shape::Circle { border: 0.1, center: [0.5, 0.5], radius: 0.2 })],
            modules: vec![exposure(0.1)],
            ..EditState::default()
        };
        let text = String::from_utf8(state.canonical()).unwrap();
        assert!(text.contains(r#""exposure":0.1,"#), "{text}");
        // serde_json's own map is sorted: going through it must change nothing but number widths.
        let keys = |t: &str| t.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let sorted: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(keys(&text), keys(&sorted.to_string()));
        let back: EditState = serde_json::from_str(&text).unwrap();
        assert_eq!(back, state);
        assert_eq!(back.hash(), state.hash());
        assert_ne!(state.hash(), EditState::default().hash());
    }
}
