//! Drawn mask forms: darktable's point structs, mask version 6.
//!
//! darktable copies as many points as the sidecar claims without looking at how many bytes there are, so the
//! two are compared here in both directions.

use crate::params::no_negative_zero;
use crate::state::{BrushPoint, GroupMember, MaskForm, PathPoint, Shape};
use base::error::{Coded, ErrorCode};

/// The version of the point structs, from 4.2 on.
pub(crate) const VERSION: u32 = 6;

// Bits of `mask_type`.
const CIRCLE: u32 = 1;
const PATH: u32 = 2;
const GROUP: u32 = 4;
const CLONE: u32 = 8;
const GRADIENT: u32 = 16;
const ELLIPSE: u32 = 32;
const BRUSH: u32 = 64;

/// A form as it goes into a sidecar.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// `mask_type`.
    pub kind: u32,
    /// `mask_version`.
    pub version: u32,
    /// `mask_nb`.
    pub count: u32,
    /// `mask_points`.
    pub points: Vec<u8>,
    /// `mask_src`.
    pub source: [u8; 8],
}

/// The block of a form.
///
/// # Errors
/// [`FormError`] for a form that does not fit into its block.
pub fn encode(form: &MaskForm) -> Result<Block, FormError> {
    if form.id <= 0 {
        return Err(FormError::Id { id: form.id });
    }
    let not_finite = || FormError::NotFinite { id: form.id };
    if form.source.iter().any(|v| !v.is_finite()) {
        return Err(not_finite());
    }
    let [x, y] = form.source.map(f32::to_le_bytes);
    let mut source = [0; 8];
    source[..4].copy_from_slice(&x);
    source[4..].copy_from_slice(&y);
    if let Shape::Opaque { count, kind, points, version } = &form.shape {
        let points = base::ids::unhex(points).ok_or(FormError::Hex { id: form.id })?;
        check_length(form.id, *kind, *version, *count, points.len())?;
        return Ok(Block { kind: *kind, version: *version, count: *count, points, source });
    }
    let (kind, count, points) = points(form.id, &form.shape).ok_or_else(not_finite)?;
    let count =
        u32::try_from(count).map_err(|_| FormError::Length { id: form.id, count: u32::MAX, found: 0 })?;
    Ok(Block { kind, version: VERSION, count, points, source })
}

/// `mask_type`, `mask_nb` and `mask_points` of a modelled shape; `None` when a value is not finite.
fn points(id: i32, shape: &Shape) -> Option<(u32, usize, Vec<u8>)> {
    let mut out = Writer { bytes: Vec::new(), finite: true };
    let (kind, count) = match shape {
        Shape::Brush { points } => {
            for point in points {
                out.floats(&point.corner)
                    .floats(&point.control1)
                    .floats(&point.control2)
                    .floats(&point.border)
                    .floats(&[point.density, point.hardness]);
                out.int(1 + i32::from(point.user));
            }
            (BRUSH, points.len())
        }
        Shape::Circle { border, center, radius } => {
            out.floats(center).floats(&[*radius, *border]);
            (CIRCLE, 1)
        }
        Shape::Ellipse { border, center, proportional, radius, rotation } => {
            out.floats(center).floats(radius).floats(&[*rotation, *border]).int(i32::from(*proportional));
            (ELLIPSE, 1)
        }
        Shape::Gradient { anchor, compression, curvature, rotation, sigmoidal } => {
            let steepness = 0.0;
            out.floats(anchor).floats(&[*rotation, *compression, steepness, *curvature]);
            out.int(1 + i32::from(*sigmoidal));
            (GRADIENT, 1)
        }
        Shape::Path { points } => {
            for point in points {
                out.floats(&point.corner)
                    .floats(&point.control1)
                    .floats(&point.control2)
                    .floats(&point.border);
                out.int(1 + i32::from(point.user));
            }
            (PATH, points.len())
        }
        Shape::Group { members } => {
            for member in members {
                out.int(member.form).int(id).int(member.state.cast_signed()).floats(&[member.opacity]);
            }
            (GROUP, members.len())
        }
        Shape::Opaque { .. } => return None,
    };
    out.finite.then_some((kind, count, out.bytes))
}

struct Writer {
    bytes: Vec<u8>,
    finite: bool,
}

impl Writer {
    fn floats(&mut self, values: &[f32]) -> &mut Self {
        for value in values {
            self.finite &= value.is_finite();
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }
}

/// A shape for a retouch: like `shape`, marked as one to clone or heal from `source`.
///
/// Its id covers the source, so that two spots of one shape with different sources stay two.
///
/// # Errors
/// [`FormError`] for a shape that is no source of a spot.
pub fn clone_shape(name: &str, shape: &Shape, source: [f32; 2]) -> Result<MaskForm, FormError> {
    let [x, y] = source;
    let id = MaskForm::new(format!("{name} from {x} {y}"), shape.clone()).id;
    as_clone(id, name, shape, source)
}

/// The group of a retouch's spots.
///
/// # Errors
/// [`FormError`] for more spots than a group holds.
pub fn clone_group(name: &str, members: Vec<GroupMember>) -> Result<MaskForm, FormError> {
    let plain = MaskForm::new(name, Shape::Group { members });
    as_clone(plain.id, name, &plain.shape, [0.0, 0.0])
}

/// The members of a group, a retouch's too; none of a form that is no group.
pub fn members(form: &MaskForm) -> Vec<GroupMember> {
    match without_clone(form) {
        Some(Shape::Group { members }) => members,
        _ => Vec::new(),
    }
}

/// The geometry of a form, also of one that is marked for cloning; `None` when it is not modelled.
pub fn without_clone(form: &MaskForm) -> Option<Shape> {
    let Shape::Opaque { kind, .. } = &form.shape else { return Some(form.shape.clone()) };
    let block = Block { kind: kind & !CLONE, ..encode(form).ok()? };
    let shape = decode(form.id, &form.name, &block).ok()?.shape;
    (!matches!(shape, Shape::Opaque { .. })).then_some(shape)
}

fn as_clone(id: i32, name: &str, shape: &Shape, source: [f32; 2]) -> Result<MaskForm, FormError> {
    let block = encode(&MaskForm { id, name: name.to_owned(), shape: shape.clone(), source })?;
    let points = base::ids::hex(&block.points);
    let shape =
        Shape::Opaque { count: block.count, kind: block.kind | CLONE, points, version: block.version };
    Ok(MaskForm { id, name: name.to_owned(), shape, source })
}

/// Reads a form. What is not modelled (another version, a clone form, a value that is no number)
/// becomes [`Shape::Opaque`].
///
/// # Errors
/// [`FormError`] for a block of the wrong size.
pub fn decode(id: i32, name: &str, block: &Block) -> Result<MaskForm, FormError> {
    check_length(id, block.kind, block.version, block.count, block.points.len())?;
    let mut source = Reader { bytes: &block.source, finite: true };
    let source_point = source.pair();
    let mut reader = Reader { bytes: &block.points, finite: true };
    let modelled = if block.version == VERSION { shape(id, block, &mut reader) } else { None };
    let shape = modelled.filter(|_| reader.finite).unwrap_or_else(|| Shape::Opaque {
        count: block.count,
        kind: block.kind,
        points: base::ids::hex(&block.points),
        version: block.version,
    });
    let source = if source.finite { source_point } else { [0.0, 0.0] };
    Ok(MaskForm { id, name: name.to_owned(), shape, source })
}

fn shape(id: i32, block: &Block, reader: &mut Reader<'_>) -> Option<Shape> {
    match (block.kind, block.count) {
        (CIRCLE, 1) => {
            let (center, radius, border) = (reader.pair(), reader.float(), reader.float());
            Some(Shape::Circle { border, center, radius })
        }
        (ELLIPSE, 1) => {
            let (center, radius) = (reader.pair(), reader.pair());
            let (rotation, border) = (reader.float(), reader.float());
            let proportional = flag(reader.int(), 0)?;
            Some(Shape::Ellipse { border, center, proportional, radius, rotation })
        }
        (GRADIENT, 1) => {
            let anchor = reader.pair();
            let (rotation, compression) = (reader.float(), reader.float());
            let (steepness, curvature) = (reader.float(), reader.float());
            let sigmoidal = flag(reader.int(), 1)?;
            (steepness == 0.0).then_some(Shape::Gradient {
                anchor,
                compression,
                curvature,
                rotation,
                sigmoidal,
            })
        }
        (BRUSH, count) => {
            let mut points = Vec::new();
            for _ in 0..count {
                let (corner, control1, control2, border) =
                    (reader.pair(), reader.pair(), reader.pair(), reader.pair());
                let (density, hardness) = (reader.float(), reader.float());
                let user = flag(reader.int(), 1)?;
                points.push(BrushPoint { border, control1, control2, corner, density, hardness, user });
            }
            Some(Shape::Brush { points })
        }
        (PATH, count) => {
            let mut points = Vec::new();
            for _ in 0..count {
                let (corner, control1, control2, border) =
                    (reader.pair(), reader.pair(), reader.pair(), reader.pair());
                points.push(PathPoint { border, control1, control2, corner, user: flag(reader.int(), 1)? });
            }
            Some(Shape::Path { points })
        }
        (GROUP, count) => {
            let mut members = Vec::new();
            for _ in 0..count {
                let (form, parent) = (reader.int(), reader.int());
                if parent != id {
                    return None;
                }
                let state = reader.int().cast_unsigned();
                members.push(GroupMember { form, opacity: reader.float(), state });
            }
            Some(Shape::Group { members })
        }
        _ => None,
    }
}

/// A two-valued number: `low` is false, the next one true.
fn flag(value: i32, low: i32) -> Option<bool> {
    match value.checked_sub(low)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    finite: bool,
}

impl Reader<'_> {
    /// The next four bytes; zeros at the end, which [`check_length`] keeps from happening.
    fn word(&mut self) -> [u8; 4] {
        let (word, rest) = self.bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
        self.bytes = rest;
        *word
    }

    fn int(&mut self) -> i32 {
        i32::from_le_bytes(self.word())
    }

    fn float(&mut self) -> f32 {
        let value = f32::from_le_bytes(self.word());
        self.finite &= value.is_finite();
        no_negative_zero(value)
    }

    fn pair(&mut self) -> [f32; 2] {
        [self.float(), self.float()]
    }
}

/// Compares the claimed number of points with the bytes that are there.
fn check_length(id: i32, kind: u32, version: u32, count: u32, found: usize) -> Result<(), FormError> {
    let size = match kind & (CIRCLE | PATH | GROUP | GRADIENT | ELLIPSE | BRUSH) {
        CIRCLE | GROUP => 16,
        PATH => 36,
        GRADIENT | ELLIPSE => 28,
        BRUSH => 44,
        // Of an unknown kind darktable reads no points.
        _ => return Ok(()),
    };
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size);
    if found < wanted || version == VERSION && found != wanted {
        return Err(FormError::Length { id, count, found });
    }
    Ok(())
}

/// Why a mask form cannot be written or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormError {
    /// Ids that are not positive are not accepted by every darktable.
    #[error("the mask id {id} is not in 1 to 2147483647")]
    Id {
        /// The id.
        id: i32,
    },
    /// The number of points and the number of bytes contradict each other.
    #[error("the mask {id} claims {count} points, but has {found} bytes for them")]
    Length {
        /// The form.
        id: i32,
        /// Points claimed.
        count: u32,
        /// Bytes there.
        found: usize,
    },
    /// NaN or an infinity.
    #[error("the mask {id} holds a value that is not a finite number")]
    NotFinite {
        /// The form.
        id: i32,
    },
    /// Kept points are not hexadecimal.
    #[error("the kept points of the mask {id} are not hexadecimal")]
    Hex {
        /// The form.
        id: i32,
    },
}

impl Coded for FormError {
    fn code(&self) -> ErrorCode {
        ErrorCode::MaskingError
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> impl Strategy<Value = [f32; 2]> {
        prop::array::uniform2(0.001f32..1.0)
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let point = (pair(), pair(), pair(), pair(), any::<bool>()).prop_map(
            |(border, control1, control2, corner, user)| PathPoint {
                border,
                control1,
                control2,
                corner,
                user,
            },
        );
        let dab = (pair(), pair(), pair(), pair(), pair(), any::<bool>()).prop_map(
            |(border, control1, control2, corner, [density, hardness], user)| BrushPoint {
                border,
                control1,
                control2,
                corner,
                density,
                hardness,
                user,
            },
        );
        let member = (any::<i32>(), 0f32..1.0, any::<u32>()).prop_map(|(form, opacity, state)| GroupMember {
            form,
            opacity,
            state,
        });
        prop_oneof![
            (0.001f32..1.0, pair(), 0.001f32..1.0).prop_map(|(border, center, radius)| Shape::Circle {
                border,
                center,
                radius
            }),
            (0.001f32..1.0, pair(), any::<bool>(), pair(), 0.5f32..360.0).prop_map(
                |(border, center, proportional, radius, rotation)| Shape::Ellipse {
                    border,
                    center,
                    proportional,
                    radius,
                    rotation
                }
            ),
            (pair(), 0.1f32..1.0, 0f32..2.0, 1f32..180.0, any::<bool>()).prop_map(
                |(anchor, compression, curvature, rotation, sigmoidal)| Shape::Gradient {
                    anchor,
                    compression,
                    curvature,
                    rotation,
                    sigmoidal
                }
            ),
            prop::collection::vec(point, 0..6).prop_map(|points| Shape::Path { points }),
            prop::collection::vec(dab, 0..6).prop_map(|points| Shape::Brush { points }),
            prop::collection::vec(member, 0..6).prop_map(|members| Shape::Group { members }),
        ]
    }

    fn circle() -> Shape {
        Shape::Circle { border: 0.1, center: [0.5, 0.25], radius: 0.2 }
    }

    #[test]
    fn the_struct_of_a_circle_is_center_radius_border() {
        let block = encode(&MaskForm::new("c", circle())).unwrap();
        assert_eq!((block.kind, block.count, block.version), (1, 1, 6));
        let floats: Vec<f32> =
            block.points.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(floats, [0.5, 0.25, 0.2, 0.1]);
        assert_eq!(block.source, [0; 8]);
    }

    #[test]
    fn a_point_of_a_brush_has_44_bytes() {
        let point = BrushPoint {
            border: [0.1, 0.2],
            control1: [0.3, 0.4],
            control2: [0.5, 0.6],
            corner: [0.7, 0.8],
            density: 0.9,
            hardness: 1.0,
            user: false,
        };
        let block = encode(&MaskForm::new("b", Shape::Brush { points: vec![point; 2] })).unwrap();
        assert_eq!((block.kind, block.count, block.points.len()), (64, 2, 88));
        let words: Vec<[u8; 4]> = block.points.chunks(4).map(|c| c.try_into().unwrap()).collect();
        let floats: Vec<f32> = words[..10].iter().map(|w| f32::from_le_bytes(*w)).collect();
        assert_eq!(floats, [0.7, 0.8, 0.3, 0.4, 0.5, 0.6, 0.1, 0.2, 0.9, 1.0]);
        assert_eq!(words[10], [1, 0, 0, 0]);
    }

    #[test]
    fn a_count_that_the_bytes_do_not_bear_out_is_refused() {
        let mut block = encode(&MaskForm::new("c", circle())).unwrap();
        block.count = 2;
        assert!(matches!(decode(1, "c", &block), Err(FormError::Length { .. })));
        block.count = u32::MAX;
        assert!(matches!(decode(1, "c", &block), Err(FormError::Length { .. })));
        block.version = 3;
        assert!(matches!(decode(1, "c", &block), Err(FormError::Length { .. })));
        block = Block { count: 1, ..block };
        assert!(matches!(decode(1, "c", &block).unwrap().shape, Shape::Opaque { version: 3, .. }));
    }

    #[test]
    fn ids_and_values_are_checked() {
        let zero = MaskForm { id: 0, ..MaskForm::new("c", circle()) };
        assert_eq!(encode(&zero), Err(FormError::Id { id: 0 }));
        let nan = MaskForm::new("c", Shape::Circle { border: f32::NAN, center: [0.5; 2], radius: 0.2 });
        assert!(matches!(encode(&nan), Err(FormError::NotFinite { .. })));
        // The same out of a file is kept, because it is darktable's own.
        let mut block = encode(&MaskForm::new("c", circle())).unwrap();
        block.points[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(matches!(decode(1, "c", &block).unwrap().shape, Shape::Opaque { .. }));
    }

    #[test]
    fn unmodelled_variants_are_kept() {
        let gradient = Shape::Gradient {
            anchor: [0.5; 2],
            compression: 0.5,
            curvature: 0.0,
            rotation: 0.0,
            sigmoidal: false,
        };
        let mut block = encode(&MaskForm::new("g", gradient)).unwrap();
        block.points[16..20].copy_from_slice(&1.0_f32.to_le_bytes());
        assert!(matches!(decode(1, "g", &block).unwrap().shape, Shape::Opaque { .. }), "steepness");
        let group = Shape::Group { members: vec![GroupMember { form: 4, opacity: 1.0, state: 3 }] };
        let form = MaskForm::new("g", group);
        let block = encode(&form).unwrap();
        assert!(
            matches!(decode(form.id ^ 1, "g", &block).unwrap().shape, Shape::Opaque { .. }),
            "foreign parent"
        );
        assert_eq!(decode(form.id, "g", &block).unwrap(), form);
    }

    #[test]
    fn clone_forms_carry_the_flag_and_differ_by_their_source() {
        let a = clone_shape("spot", &circle(), [0.1, 0.2]).unwrap();
        let b = clone_shape("spot", &circle(), [0.3, 0.2]).unwrap();
        assert_ne!(a.id, b.id);
        let block = encode(&a).unwrap();
        assert_eq!((block.kind, &block.source[..4]), (9, &0.1_f32.to_le_bytes()[..]));
        assert_eq!(decode(a.id, "spot", &block).unwrap(), a);
        let group = clone_group("spots", vec![GroupMember { form: a.id, opacity: 1.0, state: 3 }]).unwrap();
        let block = encode(&group).unwrap();
        assert_eq!((block.kind, &block.points[4..8]), (12, &group.id.to_le_bytes()[..]));
        assert_eq!(without_clone(&a), Some(circle()));
        assert_eq!(members(&group), [GroupMember { form: a.id, opacity: 1.0, state: 3 }]);
        assert!(members(&a).is_empty());
    }

    proptest! {
        #[test]
        fn every_shape_reads_back(shape in shapes()) {
            let form = MaskForm::new("m", shape);
            let block = encode(&form).unwrap();
            prop_assert_eq!(decode(form.id, "m", &block).unwrap(), form);
        }

        #[test]
        fn any_bytes_read_to_something_that_writes_back(
            kind in 0u32..256, version in 1u32..8, points in prop::collection::vec(any::<u8>(), 0..120), size in 1usize..45
        ) {
            let count = (points.len() / size) as u32;
            let block = Block { kind, version, count, points, source: [0; 8] };
            if let Ok(form) = decode(77, "m", &block) {
                let again = encode(&form).unwrap();
                prop_assert_eq!(decode(77, "m", &again).unwrap(), form);
            }
        }
    }
}
