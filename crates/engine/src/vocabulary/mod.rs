//! The vocabulary: what an agent may do to a photograph, by name and in photographers' units.
//!
//! A *move* drives named fields of one darktable module. Its file says which; nothing here holds a blob. Four
//! rules make moves safe to combine:
//!
//! 1. **Set, not add.** A move sets its fields; the same move twice is the same state. Fields that it does not
//!    name keep their values, so moves on one module accumulate.
//! 2. **Relative to the photo.** Where the photo's baseline already uses the module, a field becomes the baseline's
//!    value plus what the move asks (white balance: times); elsewhere the module starts from rest.
//! 3. **Rest is nothing.** When every field that moves drive is back at its neutral value, the module goes back to
//!    what the baseline has, which is mostly: gone. Neutral is therefore not nearly the same picture, but the same state.
//! 4. **A mask makes an instance.** A masked move works on a separate instance, named after the move, that
//!    starts from rest; the global one is left alone.
//!
//! A move may also *fix* fields (a LUT's file, the words of a mark): then it is one of a kind, and the module carries
//! one of these at a time. Its strength may be the `opacity` with which the module's result is laid over the picture beneath.
//!
//! A *look* is several moves under one name: each as far from its neutral value as the look's one strength says.
//!
//! Tone mappers (`filmicrgb`, `sigmoid`) exclude each other: a move on one switches the other off, and at rest
//! the baseline's mapper comes back.

mod apply;
pub mod bindings;
mod error;
mod form;
mod frames;
mod geometry;
pub mod grey_card;
mod illuminant;
mod lens;
mod list;
mod load;
mod looks;
pub mod made;
mod mask;
mod moves;
mod propagate;
mod regions;
mod search;
mod spots;
pub mod styles;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod warps;
mod white_balance;

pub use apply::{Applied, ApplyRequest, PhotoFacts, PlacedInstance, Selector};
pub use error::VocabularyError;
pub use form::{Form, Target};
pub use frames::same_frame;
pub use geometry::WorkedOut;
pub use lens::Shot;
pub use list::{Filter, ListedMove, ListedParameter};
pub use load::Vocabulary;
pub use looks::{AppliedLook, Look, STRENGTH};
pub use mask::{
    ListedMask, MaskProbe, MaskSpec, NamedMask, NamedMasks, OBJECT_EDGE, ObjectSpec, ShownMask, sought_in,
};
pub use moves::{Fixed, ModuleRules, Move, Parameter};
pub use propagate::{Edits, Extra, PhotoEdit, PropagateError, Selection};
pub use regions::{
    AppliedRegions, BadRegion, Region, RegionMove, RegionOp, RegionsError, RegionsRequest, same_place,
};
pub use spots::{AppliedSpots, Spot, SpotAction, SpotError, fill};
