//! Sidecars: an [`EditState`] to darktable's XMP and back.
//!
//! darktable renders almost any sidecar without an error: it drops what it does not understand, gives an edit
//! whose mask is missing to the whole picture, and fills gaps with the defaults of its own version. So what is
//! written is complete and checked, and what is read is refused where it could not be rendered as it was meant.

mod read;
pub(super) mod tree;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::blend::{self, BlendError};
use crate::forms::{self, FormError};
use crate::layout::{BlendSpace, LayoutError, Layouts};
use crate::order;
use crate::params::{self, ParamError};
use crate::state::{EditState, MaskForm, Module, Params, Shape};
use base::error::{Coded, ErrorCode};
use base::ids::{hex, unhex};

use self::tree::MAX_ATTRIBUTES;
pub use self::tree::MAX_BYTES;

pub use self::read::{Foreign, foreign, is_altered, read};
pub(super) use self::read::{Item, check_known, unpack};

/// History items of a sidecar.
pub(crate) const MAX_ITEMS: usize = 500;
/// What a compressed block may inflate to.
pub(crate) const MAX_INFLATED: usize = 1 << 20;

/// Attributes of one history item, of one mask form, and of everything else, as written.
const ITEM_ATTRIBUTES: usize = 9;
const MASK_ATTRIBUTES: usize = 8;
const OTHER_ATTRIBUTES: usize = 16;

/// Top-level properties that are written from the state, or that say when and not what (time stamps, and the
/// hashes by which darktable's own database notices changes).
const NOT_EXTRA: [&str; 15] = [
    "auto_presets_applied",
    "change_timestamp",
    "colorlabels",
    "export_timestamp",
    "history",
    "history_auto_hash",
    "history_basic_hash",
    "history_current_hash",
    "history_end",
    "import_timestamp",
    "iop_order_list",
    "iop_order_version",
    "masks_history",
    "print_timestamp",
    "xmp_version",
];

/// Writes the sidecar of a state. `derived_from` is the file name of the raw.
///
/// The text depends on nothing else, and reading and writing it again gives the same text.
///
/// # Errors
/// [`XmpError`] names the module, field or form that cannot be written.
pub fn write(state: &EditState, layouts: &Layouts, derived_from: &str) -> Result<String, XmpError> {
    check(state)?;
    let last = state.modules.len() - 1;
    let mut text = String::with_capacity(4096 + 1200 * state.modules.len());
    text.push_str(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\" x:xmptk=\"XMP Core 4.4.0-Exiv2\">\n",
        " <rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n",
        "  <rdf:Description rdf:about=\"\"\n",
        "    xmlns:xmpMM=\"http://ns.adobe.com/xap/1.0/mm/\"\n",
        "    xmlns:darktable=\"http://darktable.sf.net/\"",
    ));
    text.push_str("\n   xmpMM:DerivedFrom=\"");
    escape(&mut text, derived_from)?;
    text.push('"');
    attribute(&mut text, 3, "xmp_version", "5")?;
    if !state.extras.contains_key("darktable:raw_params") {
        attribute(&mut text, 3, "raw_params", "0")?;
    }
    attribute(&mut text, 3, "auto_presets_applied", "1")?;
    attribute(&mut text, 3, "history_end", &state.modules.len().to_string())?;
    attribute(&mut text, 3, "iop_order_version", &order::version(state.order).to_string())?;
    if let Some(list) = order::list(state) {
        attribute(&mut text, 3, "iop_order_list", &list)?;
    }
    for (name, value) in &state.extras {
        attribute(&mut text, 3, extra_name(name)?, value)?;
    }
    text.push_str(">\n   <darktable:masks_history>\n    <rdf:Seq>\n");
    for form in &state.masks {
        write_form(&mut text, form, last)?;
    }
    text.push_str("    </rdf:Seq>\n   </darktable:masks_history>\n   <darktable:history>\n    <rdf:Seq>\n");
    for (num, module) in state.modules.iter().enumerate() {
        write_item(&mut text, num, module, layouts)?;
    }
    text.push_str(concat!(
        "    </rdf:Seq>\n   </darktable:history>\n",
        "  </rdf:Description>\n </rdf:RDF>\n</x:xmpmeta>\n"
    ));
    if text.len() > MAX_BYTES {
        return Err(XmpError::TooMuch { what: "bytes", limit: MAX_BYTES });
    }
    Ok(text)
}

/// What no single item shows: that there is a history at all, that nothing is there twice, that every mask
/// that is used exists.
fn check(state: &EditState) -> Result<(), XmpError> {
    if state.modules.is_empty() {
        return Err(XmpError::NoHistory);
    }
    if state.modules.len() > MAX_ITEMS {
        return Err(XmpError::TooMuch { what: "history items", limit: MAX_ITEMS });
    }
    let attributes = ITEM_ATTRIBUTES * state.modules.len()
        + MASK_ATTRIBUTES * state.masks.len()
        + OTHER_ATTRIBUTES
        + state.extras.len();
    if attributes > MAX_ATTRIBUTES {
        return Err(XmpError::TooMuch { what: "attributes", limit: MAX_ATTRIBUTES });
    }
    let mut seen = BTreeSet::new();
    for module in &state.modules {
        if !seen.insert((module.op.as_str(), module.instance)) {
            return Err(XmpError::Twice { what: format!("{} instance {}", module.op, module.instance) });
        }
    }
    let mut forms = BTreeSet::new();
    for form in &state.masks {
        if !forms.insert(form.id) {
            return Err(XmpError::Twice { what: format!("mask {}", form.id) });
        }
    }
    let missing = |id: i32, used_by: String| match id == 0 || forms.contains(&id) {
        true => Ok(()),
        false => Err(XmpError::MissingMask { id, used_by }),
    };
    for module in &state.modules {
        if let Some(id) = module.blend.as_ref().and_then(|b| b.mask_id) {
            missing(id, format!("{} instance {}", module.op, module.instance))?;
        }
    }
    for form in &state.masks {
        if let Shape::Group { members } = &form.shape {
            members.iter().try_for_each(|m| missing(m.form, format!("the group {}", form.id)))?;
        }
    }
    Ok(())
}

fn write_form(text: &mut String, form: &MaskForm, num: usize) -> Result<(), XmpError> {
    let block = forms::encode(form)?;
    text.push_str("     <rdf:li");
    attribute(text, 6, "mask_num", &num.to_string())?;
    attribute(text, 6, "mask_id", &form.id.to_string())?;
    attribute(text, 6, "mask_type", &block.kind.to_string())?;
    attribute(text, 6, "mask_name", &form.name)?;
    attribute(text, 6, "mask_version", &block.version.to_string())?;
    attribute(text, 6, "mask_points", &hex(&block.points))?;
    attribute(text, 6, "mask_nb", &block.count.to_string())?;
    attribute(text, 6, "mask_src", &hex(&block.source))?;
    text.push_str("/>\n");
    Ok(())
}

fn write_item(text: &mut String, num: usize, module: &Module, layouts: &Layouts) -> Result<(), XmpError> {
    let known = layouts.module(&module.op)?;
    let encoded;
    let params = match &module.params {
        Params::Opaque(digits) => digits,
        Params::Fields(values) => {
            let layout = known.as_ref().and_then(|m| m.version(module.modversion));
            let layout = layout
                .ok_or_else(|| XmpError::NoLayout { op: module.op.clone(), modversion: module.modversion })?;
            encoded = hex(&params::encode(layout, values)?);
            &encoded
        }
    };
    let space = known.map_or(BlendSpace::None, |m| m.blend_colorspace);
    let blend = blend::encode(module.blend.as_ref(), space).map_err(|source| XmpError::Blend {
        op: module.op.clone(),
        instance: module.instance,
        source,
    })?;
    text.push_str("     <rdf:li");
    attribute(text, 6, "num", &num.to_string())?;
    attribute(text, 6, "operation", &module.op)?;
    attribute(text, 6, "enabled", if module.enabled { "1" } else { "0" })?;
    attribute(text, 6, "modversion", &module.modversion.to_string())?;
    attribute(text, 6, "params", params)?;
    attribute(text, 6, "multi_name", &module.name)?;
    attribute(text, 6, "multi_priority", &module.instance.to_string())?;
    attribute(text, 6, "blendop_version", &blend.version.to_string())?;
    attribute(text, 6, "blendop_params", &hex(&blend.bytes))?;
    text.push_str("/>\n");
    Ok(())
}

fn attribute(text: &mut String, indent: usize, name: &str, value: &str) -> Result<(), XmpError> {
    let _ = write!(text, "\n{:indent$}darktable:{name}=\"", "");
    escape(text, value)?;
    text.push('"');
    Ok(())
}

/// Appends `value` as the inside of a double-quoted attribute.
fn escape(text: &mut String, value: &str) -> Result<(), XmpError> {
    // Nearly everything in a sidecar is hexadecimal.
    if value.bytes().all(|b| b.is_ascii_alphanumeric()) {
        text.push_str(value);
        return Ok(());
    }
    for char in value.chars() {
        match char {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(text, "&#{};", u32::from(char));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => return Err(XmpError::Character { char }),
            _ => text.push(char),
        }
    }
    Ok(())
}

/// The name of an extra without its prefix.
fn extra_name(name: &str) -> Result<&str, XmpError> {
    name.strip_prefix("darktable:")
        .filter(|local| is_extra_name(local))
        .ok_or_else(|| XmpError::Extra { name: name.to_owned() })
}

fn is_extra_name(local: &str) -> bool {
    local.starts_with(|c: char| c.is_ascii_alphabetic())
        && local.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !NOT_EXTRA.contains(&local)
}

/// Why a sidecar cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum XmpError {
    /// Not well-formed XML.
    #[error("the file is not well-formed: {0}")]
    Syntax(String),
    /// A document type declaration, which no sidecar has.
    #[error("the file declares a document type")]
    DocumentType,
    /// Beyond one of the limits.
    #[error("the file has more than {limit} {what}")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// XML, but nothing of darktable's in it.
    #[error("the file holds no darktable edit")]
    NotASidecar,
    /// Written by a darktable before 3.0, where only a later one will do, or by one that does not exist yet.
    #[error("the sidecar's schema `{found}` is not one that can be read here")]
    Schema {
        /// `xmp_version`.
        found: String,
    },
    /// The edit leans on whatever defaults the installed darktable has.
    #[error("the sidecar leaves the base of its edit to darktable's own defaults")]
    NoBaseline,
    /// A module order that cannot be followed.
    #[error("the sidecar's module order cannot be followed: {found}")]
    Order {
        /// What differs.
        found: String,
    },
    /// The installed darktable does not have a module.
    #[error("darktable {darktable} does not have the module `{op}`, which the sidecar uses")]
    NoModule {
        /// The module.
        op: String,
        /// The installed version.
        darktable: String,
    },
    /// A module is of a later version than the installed darktable's.
    #[error(
        "`{op}` instance {instance} is of version {found}, and darktable {darktable} knows it up to version {known}"
    )]
    NewerModule {
        /// The module.
        op: String,
        /// The instance.
        instance: u32,
        /// The sidecar's version.
        found: u32,
        /// The installed one.
        known: u32,
        /// The installed darktable.
        darktable: String,
    },
    /// The blending of a module is of a later version than the installed darktable's.
    #[error(
        "the blending of `{op}` instance {instance} is of version {found}, and darktable {darktable} knows it up to version {known}"
    )]
    NewerBlend {
        /// The module.
        op: String,
        /// The instance.
        instance: u32,
        /// The sidecar's version.
        found: u32,
        /// The installed one.
        known: u32,
        /// The installed darktable.
        darktable: String,
    },
    /// A mask form is of a later version than any darktable that is known.
    #[error("the mask {id} is of version {version}, and {known} is the latest that is known")]
    NewerMask {
        /// Its id.
        id: i32,
        /// Its version.
        version: u32,
        /// The latest known one.
        known: u32,
    },
    /// A blend block of a former version is not as long as that version demands.
    #[error(
        "the blending of `{op}` instance {instance} has {found} bytes, where version {version} has {expected}"
    )]
    OldBlend {
        /// The module.
        op: String,
        /// The instance.
        instance: u32,
        /// `blendop_version`.
        version: u32,
        /// Bytes that it has.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// A property is missing or unusable.
    #[error("`{name}` of the {place} cannot be used: {value}")]
    Attribute {
        /// Which item.
        place: String,
        /// Which property.
        name: &'static str,
        /// Its value, shortened.
        value: String,
    },
    /// A state without modules: darktable would render it with its own defaults.
    #[error("an edit without modules cannot be written")]
    NoHistory,
    /// A module instance or a mask occurs twice.
    #[error("{what} occurs twice")]
    Twice {
        /// Which.
        what: String,
    },
    /// A mask that is used is not there; darktable would edit the whole picture.
    #[error("the mask {id}, used by {used_by}, does not exist")]
    MissingMask {
        /// The id.
        id: i32,
        /// Who uses it.
        used_by: String,
    },
    /// Named fields for a version whose layout is not known.
    #[error("there is no layout for version {modversion} of module `{op}`")]
    NoLayout {
        /// The module.
        op: String,
        /// The version.
        modversion: u32,
    },
    /// A character that XML cannot hold.
    #[error("the character {char:?} cannot be written")]
    Character {
        /// The character.
        char: char,
    },
    /// An extra attribute that is not a plain one of darktable's.
    #[error("the extra attribute `{name}` cannot be written")]
    Extra {
        /// Its name.
        name: String,
    },
    /// Parameters do not fit their layout.
    #[error("module parameters do not fit")]
    Params(#[from] ParamError),
    /// Blend parameters do not fit.
    #[error("the blending of {op} instance {instance} does not fit")]
    Blend {
        /// The module.
        op: String,
        /// The instance.
        instance: u32,
        /// Why.
        source: BlendError,
    },
    /// A mask form does not fit.
    #[error("a mask form does not fit")]
    Form(#[from] FormError),
    /// A layout file is damaged.
    #[error("a module's layout cannot be read")]
    Layout(#[from] LayoutError),
}

impl Coded for XmpError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Params(error) => error.code(),
            Self::Blend { source, .. } => source.code(),
            Self::Form(error) => error.code(),
            Self::Layout(error) => error.code(),
            Self::MissingMask { .. } | Self::NewerMask { .. } => ErrorCode::MaskingError,
            Self::NoModule { .. } | Self::NewerModule { .. } | Self::NewerBlend { .. } => {
                ErrorCode::DarktableError
            }
            Self::NoHistory | Self::Twice { .. } | Self::NoLayout { .. } | Self::Extra { .. } => {
                ErrorCode::SynthesizerError
            }
            _ => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Params(error) => error.remedy(),
            Self::Layout(error) => error.remedy(),
            Self::Schema { .. } | Self::NoBaseline => Some(
                "open the picture once in a current darktable, so that it writes a complete sidecar".into(),
            ),
            Self::Order { .. } => {
                Some("choose a built-in module order in the darktable that wrote it, and save again".into())
            }
            Self::NoModule { .. }
            | Self::NewerModule { .. }
            | Self::NewerBlend { .. }
            | Self::NewerMask { .. } => Some(
                "install the darktable that wrote the sidecar (or a later one), or take that module out there and save again"
                    .into(),
            ),
            Self::MissingMask { .. } => Some(
                "darktable would edit the whole picture: open it there, draw the mask again or switch it off, and save"
                    .into(),
            ),
            Self::NotASidecar => Some("give the .xmp file that darktable writes beside the raw".into()),
            Self::Syntax(_) | Self::Attribute { .. } | Self::OldBlend { .. } | Self::Blend { .. } | Self::Form(_) => {
                Some("the file is damaged: let darktable write it again".into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
