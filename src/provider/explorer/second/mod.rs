//! Explorer-2: reads places, sizes, prohibitions and several wishes from the words ([`reading`]), and makes the moves
//! that `words.toml` names for each, corrected by what is measured ([`wishing`]).

mod lexicon;
pub(super) mod part;
pub(super) mod reading;
pub(super) mod telling;
pub(super) mod wishing;
