//! Combinations, and what of them one module instance of darktable can do.
//!
//! An instance has one group of drawn forms, in which groups nest and combine at will, and one range for each of its
//! channels. The ranges either all confine the drawn mask, or all add to it. Which combinations that can express
//! is decided here, by turning the asked one into that form: an inversion goes inwards, a difference is an
//! intersection with inversions.

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::mask::frame::Frame;
use crate::vocabulary::mask::ranges::Range;
use crate::vocabulary::mask::shapes::Drawn;
use crate::vocabulary::mask::spec::RangeKind;
use darktable::state::{GroupMember, MaskForm, Shape};

/// A mask, or part of one, with every number in place and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mask {
    pub node: Node,
    pub invert: bool,
    /// Of a part: its strength within the whole. The whole's own is the instance's.
    pub opacity: f64,
}

/// What a mask consists of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Drawn(Drawn),
    Range(Range),
    List(Join, Vec<Mask>),
}

/// How the masks of a list are joined: the first, and each further one with what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Union,
    Intersection,
    Difference,
}

/// A mask as one instance does it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compiled {
    /// The drawn part: without ranges in it.
    pub drawn: Option<Mask>,
    /// The ranges, at most one of a kind.
    pub ranges: Vec<Chosen>,
    /// Whether the ranges add to the drawn part and to each other, instead of confining.
    pub inclusive: bool,
}

/// A range in a compiled mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub range: Range,
    pub inverted: bool,
    /// It was added to keep greys out of a range of hues, and may be dropped.
    implied: bool,
}

impl Mask {
    /// The mask in the form that an instance can do.
    pub(crate) fn compile(&self) -> Result<Compiled, VocabularyError> {
        let mut compiled = self.parts(false, true)?;
        // With one part there is nothing to add to.
        compiled.inclusive &= compiled.ranges.len() + usize::from(compiled.drawn.is_some()) > 1;
        Ok(compiled)
    }

    /// The same, of the inverse where `inverse` says so; `whole` is the mask itself and no part.
    fn parts(&self, inverse: bool, whole: bool) -> Result<Compiled, VocabularyError> {
        let inverse = inverse != self.invert;
        if self.is_drawn() {
            let drawn =
                Self { invert: inverse, opacity: if whole { 1.0 } else { self.opacity }, ..self.clone() };
            return Ok(Compiled { drawn: Some(drawn), ranges: Vec::new(), inclusive: false });
        }
        if !whole && self.opacity != 1.0 {
            return Err(refused(
                "`opacity` within a list goes with shapes only: give the whole mask an `opacity`",
            ));
        }
        match &self.node {
            Node::Range(range) => {
                let chosen = Chosen { range: *range, inverted: inverse, implied: false };
                let grey = Chosen { range: range.grey(), inverted: inverse, implied: true };
                let ranges = if range.kind == RangeKind::Hue { vec![chosen, grey] } else { vec![chosen] };
                Ok(Compiled { drawn: None, ranges, inclusive: inverse })
            }
            Node::List(join, masks) => join_all(*join, masks, inverse),
            Node::Drawn(_) => Err(refused("a drawn shape holds a range")),
        }
    }

    fn is_drawn(&self) -> bool {
        match &self.node {
            Node::Drawn(_) => true,
            Node::Range(_) => false,
            Node::List(_, masks) => masks.iter().all(Self::is_drawn),
        }
    }

    /// Adds the forms of a drawn mask, of which the last is the group by which an instance uses it.
    pub(crate) fn forms(&self, frame: &Frame, forms: &mut Vec<MaskForm>) -> i32 {
        let members = match &self.node {
            // A list that is used as it is needs no group around it.
            Node::List(join, masks) if !self.invert && self.opacity == 1.0 => {
                members(*join, masks, frame, forms)
            }
            _ => vec![self.member(None, frame, forms)],
        };
        let name = match &self.node {
            Node::Drawn(drawn) => format!("{} group", drawn.name()),
            Node::Range(_) => "group".into(),
            Node::List(Join::Union, _) => "union group".into(),
            Node::List(Join::Intersection, _) => "intersection group".into(),
            Node::List(Join::Difference, _) => "difference group".into(),
        };
        add(MaskForm::new(name, Shape::Group { members }), forms)
    }

    /// The mask as a member of a group.
    fn member(&self, join: Option<Join>, frame: &Frame, forms: &mut Vec<MaskForm>) -> GroupMember {
        let form = match &self.node {
            Node::Drawn(drawn) => add(MaskForm::new(drawn.name(), drawn.shape(frame)), forms),
            _ => Self { invert: false, opacity: 1.0, ..self.clone() }.forms(frame, forms),
        };
        let (used, shown, inverse) = (1, 2, 4);
        let how = match join {
            None => 0,
            Some(Join::Union) => 8,
            Some(Join::Intersection) => 16,
            Some(Join::Difference) => 32,
        };
        let state = used | shown | how | if self.invert { inverse } else { 0 };
        GroupMember { form, opacity: self.opacity as f32, state }
    }
}

fn members(join: Join, masks: &[Mask], frame: &Frame, forms: &mut Vec<MaskForm>) -> Vec<GroupMember> {
    let first = std::iter::once(None).chain(std::iter::repeat(Some(join)));
    masks.iter().zip(first).map(|(mask, join)| mask.member(join, frame, forms)).collect()
}

/// Adds a form unless there is its equal; returns its id.
fn add(form: MaskForm, forms: &mut Vec<MaskForm>) -> i32 {
    let id = form.id;
    if !forms.iter().any(|known| known.id == id) {
        forms.push(form);
    }
    id
}

/// Joins masks of which some hold ranges.
fn join_all(join: Join, masks: &[Mask], inverse: bool) -> Result<Compiled, VocabularyError> {
    // The inverse of a union is the intersection of the inverses, and the other way round.
    let inclusive = (join == Join::Union) != inverse;
    let mut drawn = Vec::new();
    let mut ranges: Vec<Chosen> = Vec::new();
    for (at, mask) in masks.iter().enumerate() {
        let removed = join == Join::Difference && at > 0;
        let mut part = mask.parts(inverse != removed, false)?;
        if part.inclusive != inclusive {
            part.ranges.retain(|chosen| !chosen.implied);
            if part.ranges.len() + usize::from(part.drawn.is_some()) > 1 {
                return Err(refused(if inclusive {
                    "a union cannot hold an intersection of ranges, or of a shape and a range"
                } else {
                    "an intersection cannot hold a union of ranges, or of a shape and a range"
                }));
            }
        }
        drawn.extend(part.drawn);
        ranges.extend(part.ranges);
    }
    let asked: Vec<RangeKind> = ranges.iter().filter(|c| !c.implied).map(|c| c.range.kind).collect();
    for (at, kind) in asked.iter().enumerate() {
        if asked.iter().take(at).any(|earlier| earlier == kind) {
            return Err(refused(&format!("it has two ranges of {}", kind.name())));
        }
    }
    let mut kinds = asked;
    ranges.retain(|chosen| {
        let keep = !chosen.implied || !kinds.contains(&chosen.range.kind);
        kinds.push(chosen.range.kind);
        keep
    });
    let whole = |node| Mask { node, invert: false, opacity: 1.0 };
    let list = |masks| whole(Node::List(if inclusive { Join::Union } else { Join::Intersection }, masks));
    let drawn = if drawn.len() > 1 { Some(list(drawn)) } else { drawn.pop() };
    Ok(Compiled { drawn, ranges, inclusive })
}

/// What an instance cannot do, and what it can.
fn refused(what: &str) -> VocabularyError {
    VocabularyError::Mask(format!(
        "{what}. One move can act on: shapes joined in any way; one range each of luminance, chroma and hue; and \
         all of these where every one holds (intersection, difference) or where any one holds (union). Use two \
         moves for more"
    ))
}
