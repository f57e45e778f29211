//! What can go wrong between a move's name and an edit state.

use base::error::{Coded, ErrorCode};
use darktable::dtstyle::StyleError;

/// Why a vocabulary cannot be loaded, or a move cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// A vocabulary file is not what it should be.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong in it.
        reason: String,
    },
    /// A move or a look in a vocabulary file contradicts itself, its module or another one.
    #[error("{file}: `{name}`: {reason}")]
    Move {
        /// The file.
        file: String,
        /// The move.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two moves or looks have one name.
    #[error("`{name}` is defined twice: in {first} and in {second}")]
    Duplicate {
        /// The name.
        name: String,
        /// The file read first.
        first: String,
        /// The other file.
        second: String,
    },
    /// There is no such move or look.
    #[error("there is no move or look `{name}`{}", did_you_mean(.near))]
    UnknownMove {
        /// The name as given.
        name: String,
        /// Names that are close to it, nearest first.
        near: Vec<String>,
    },
    /// The move or look has no such parameter.
    #[error("`{name}` has no parameter `{parameter}`; it has {legal}")]
    UnknownParameter {
        /// The move.
        name: String,
        /// What was given.
        parameter: String,
        /// Its parameters with units and ranges.
        legal: String,
    },
    /// A value is outside its range, or not a finite number.
    #[error("`{parameter}` of `{name}` cannot be {value}: it goes from {min} to {max} {unit}")]
    OutOfRange {
        /// The move.
        name: String,
        /// The parameter.
        parameter: String,
        /// The value as given.
        value: f64,
        /// The least legal value.
        min: f64,
        /// The greatest legal value.
        max: f64,
        /// The unit.
        unit: String,
    },
    /// A value between those that a parameter takes.
    #[error("`{parameter}` of move `{name}` cannot be {value}: it takes {legal}")]
    NotAChoice {
        /// The move.
        name: String,
        /// The parameter.
        parameter: String,
        /// The value as given.
        value: f64,
        /// What it takes, in words.
        legal: String,
    },
    /// The photo's baseline plus the asked value leaves the range of darktable's field.
    #[error(
        "move `{name}` would set `{field}` to {value}, together with the photo's own baseline; darktable allows {legal}"
    )]
    FieldRange {
        /// The move.
        name: String,
        /// darktable's module and field.
        field: String,
        /// What it would become.
        value: f64,
        /// The field's bounds, in words.
        legal: String,
    },
    /// The module cannot be masked.
    #[error("`{name}` cannot be masked: {reason}")]
    NotMaskable {
        /// The move.
        name: String,
        /// Why its module works on the whole frame only.
        reason: String,
    },
    /// The mask itself is not usable.
    #[error("the mask is not usable: {0}")]
    Mask(String),
    /// The place cannot serve as a grey card.
    #[error("the grey card is not usable: {0}")]
    GreyCard(&'static str),
    /// The place's colour is none that a light gives a grey card.
    #[error(
        "no light explains its colour as that of a grey card: correlated colour temperature {kelvin:.0} K (lights have 1667 to 25000), Duv {duv:+.3} (at most 0.05 either way)"
    )]
    NoSuchLight {
        /// Its correlated colour temperature, taking what the camera balanced for as 6504 K.
        kelvin: f64,
        /// Its distance from the black bodies.
        duv: f64,
    },
    /// The installed darktable does not have the module.
    #[error("move `{name}` needs darktable's module {module}, which darktable {version} does not have")]
    Unavailable {
        /// The move.
        name: String,
        /// darktable's module.
        module: String,
        /// The installed version.
        version: String,
    },
    /// The module's parameters in this edit cannot be read or written.
    #[error("move `{name}` cannot be encoded: {reason}")]
    Unencodable {
        /// The move (or module) at hand.
        name: String,
        /// What is in the way.
        reason: String,
    },
    /// An imported module's parameters are of a version that moves cannot change.
    #[error(
        "`{name}` cannot go on from the imported edit: its module {module} is of version {version}, whose parameters are not known"
    )]
    OldModule {
        /// The move.
        name: String,
        /// darktable's module.
        module: String,
        /// The version of its parameters.
        version: u32,
    },
    /// A style cannot be applied.
    #[error("style `{name}`: {source}")]
    Style {
        /// Its name.
        name: String,
        /// Why not.
        source: Box<StyleError>,
    },
    /// A style has neither strength nor values, and takes no mask.
    #[error("`{name}` is a style: it takes neither values nor a mask")]
    NotAdjustable {
        /// Its name.
        name: String,
    },
    /// There is no placed move of that id.
    #[error("no placed move is `{id}` here; there is: {present}")]
    NothingPlaced {
        /// What was given.
        id: String,
        /// The placed moves.
        present: String,
    },
    /// A placed move was given a mask together with values.
    #[error("`{id}` keeps the mask that it has: leave `mask` out")]
    KeepsItsMask {
        /// The placed move.
        id: String,
    },
    /// There is nothing to remove.
    #[error("the edit has no {selector} to remove; it has {present}")]
    NothingToRemove {
        /// What was to be removed.
        selector: String,
        /// What could be.
        present: String,
    },
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        names => format!(
            "; did you mean {}?",
            names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" or ")
        ),
    }
}

impl Coded for VocabularyError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownMove { .. } | Self::NothingToRemove { .. } | Self::NothingPlaced { .. } => {
                ErrorCode::NotFound
            }
            Self::Style { source, .. } => source.code(),
            Self::NotMaskable { .. } | Self::Mask(_) => ErrorCode::MaskingError,
            Self::Unavailable { .. } | Self::Unencodable { .. } | Self::OldModule { .. } => {
                ErrorCode::SynthesizerError
            }
            _ => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Duplicate { .. } => Some("rename one of the two".into()),
            Self::Style { source, .. } => source.remedy(),
            Self::NotAdjustable { .. } => Some("apply it as it is, and adjust the picture with moves".into()),
            Self::NoSuchLight { .. } => {
                Some("choose a place that is really grey, or force it (`force`, `--force`)".into())
            }
            Self::KeepsItsMask { .. } => Some("replace its mask by itself, then set its values".into()),
            Self::UnknownMove { .. } => Some("list the vocabulary to see every move".into()),
            Self::NotMaskable { .. } => Some("apply the move without a mask, or use another move".into()),
            Self::Unavailable { .. } => {
                Some("choose a move from the list, or install a newer darktable".into())
            }
            Self::OldModule { module, .. } => Some(format!(
                "give the move a mask, for an instance of its own; or import the sidecar again, which lets darktable \
                 upgrade it; or change {module} in darktable, save, and import that"
            )),
            _ => None,
        }
    }
}
