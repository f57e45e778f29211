//! Sidecars: an [`EditState`] to darktable's XMP and back.
//!
//! darktable renders almost any sidecar without an error: it drops what it does not understand, gives an edit
//! whose mask is missing to the whole picture, and fills gaps with the defaults of its own version. So what is
//! written is complete and checked, and what is read is refused where it could not be rendered as it was meant.

mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::darktable::blend::{self, BlendError};
use crate::darktable::forms::{self, FormError};
use crate::darktable::layout::{BlendSpace, LayoutError, Layouts};
use crate::darktable::order;
use crate::darktable::params::{self, ParamError};
use crate::darktable::state::{EditState, MaskForm, Module, Params, PipelineOrder, Shape};
use crate::error::{Coded, ErrorCode};

use self::tree::{MAX_ATTRIBUTES, MAX_BYTES, Node, Space};

/// History items of a sidecar.
pub const MAX_ITEMS: usize = 500;
/// What a compressed block may inflate to.
pub const MAX_INFLATED: usize = 1 << 20;

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

/// Reads a sidecar as darktable would: later items of the same instance replace earlier ones, items from
/// `history_end` on do not count, and of the masks those of the last step that has any.
///
/// What only describes the picture (rating, title, tags) is left out, because it is not part of an edit.
pub fn read(bytes: &[u8], layouts: &Layouts) -> Result<EditState, XmpError> {
    let document = tree::parse(bytes)?;
    let top = Top::find(&document).ok_or(XmpError::NotASidecar)?;
    let schema = top.get("xmp_version").unwrap_or("");
    if !matches!(schema, "4" | "5") {
        return Err(XmpError::Schema { found: schema.to_owned() });
    }
    if top.get("auto_presets_applied") != Some("1") {
        return Err(XmpError::NoBaseline);
    }
    let order = match top.get("iop_order_version").unwrap_or("") {
        // "v5.0" differs from "v3.0" only in where the picture is scaled for a full-quality export.
        "2" | "4" => PipelineOrder::V30,
        "3" | "5" => PipelineOrder::V30Jpeg,
        // A list of its own: the check below tells whether it comes to the same.
        "0" if top.get("iop_order_list").is_some() => PipelineOrder::V30,
        other => return Err(XmpError::Order { found: format!("order version `{other}`") }),
    };

    let items = top.items("history")?;
    let numbers: Vec<usize> =
        (0..).zip(&items).map(|(i, p)| p.number_or("num", i)).collect::<Result<_, _>>()?;
    let end = match top.get("history_end") {
        Some(text) => text.parse().map_err(|_| XmpError::Attribute {
            place: "sidecar".into(),
            name: "history_end",
            value: text.to_owned(),
        })?,
        None => usize::MAX,
    };
    let mut steps: Vec<(usize, &Properties<'_>)> =
        numbers.iter().copied().zip(&items).filter(|(num, _)| *num < end).collect();
    steps.sort_by_key(|(num, _)| *num);

    let mut modules: BTreeMap<(String, u32), Module> = BTreeMap::new();
    for (_, item) in &steps {
        // A step that only carries masks, as sidecars of old have it.
        if item.get("operation") == Some("mask_manager") && item.get("params").is_none_or(str::is_empty) {
            continue;
        }
        let module = read_item(item, layouts)?;
        modules.insert((module.op.clone(), module.instance), module);
    }

    let mut state = EditState {
        extras: top.extras(),
        masks: read_masks(&top, &steps)?,
        modules: modules.into_values().collect(),
        order,
    };
    order::sort(&mut state);
    if let Some(list) = top.get("iop_order_list") {
        check_order(&state, list)?;
    } else if let Some(module) = state.modules.iter().find(|m| m.instance > 0) {
        let found = format!("instance {} of {} without an order list", module.instance, module.op);
        return Err(XmpError::Order { found });
    }
    Ok(state)
}

/// Whether the modules of `state` run in the same order by the sidecar's own list as by the built-in one.
fn check_order(state: &EditState, list: &str) -> Result<(), XmpError> {
    let words: Vec<&str> = list.split(',').map(str::trim).collect();
    let mut place: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    for (index, pair) in words.chunks(2).enumerate() {
        let [op, instance] = pair else {
            return Err(XmpError::Order { found: "a list of odd length".into() });
        };
        let instance =
            instance.parse().map_err(|_| XmpError::Order { found: format!("instance `{instance}`") })?;
        place.insert((op, instance), index);
    }
    let mut before = None;
    for module in &state.modules {
        let here = place.get(&(module.op.as_str(), module.instance)).copied();
        if here.is_none() && module.instance == 0 {
            continue;
        }
        if here.is_none() || here < before {
            let found = format!("instance {} of {} in a place of its own", module.instance, module.op);
            return Err(XmpError::Order { found });
        }
        before = here;
    }
    Ok(())
}

fn read_item(item: &Properties<'_>, layouts: &Layouts) -> Result<Module, XmpError> {
    let op = item.text("operation")?.to_owned();
    let modversion = item.number("modversion")?;
    let instance = item.number_or("multi_priority", 0)?;
    let bytes = unpack(item.text("params")?).ok_or_else(|| item.bad("params"))??;
    let layout = layouts.module(&op)?;
    let params = match layout.as_ref().and_then(|m| m.version(modversion)).map(|l| params::decode(l, &bytes))
    {
        Some(Ok(values)) => Params::Fields(values),
        Some(Err(ParamError::NotFinite { .. } | ParamError::Text { .. })) | None => {
            Params::Opaque(hex(&bytes))
        }
        Some(Err(error)) => return Err(error.into()),
    };
    let blend = match item.get("blendop_params").filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = unpack(text).ok_or_else(|| item.bad("blendop_params"))??;
            blend::decode(item.number("blendop_version")?, &bytes).map_err(|source| XmpError::Blend {
                op: op.clone(),
                instance,
                source,
            })?
        }
        None => None,
    };
    let enabled = match item.text("enabled")? {
        "0" => false,
        "1" => true,
        _ => return Err(item.bad("enabled")),
    };
    let name = item.get("multi_name").unwrap_or("").to_owned();
    Ok(Module { blend, enabled, instance, modversion, name, op, params })
}

/// The forms of the last step that has any.
fn read_masks(top: &Top<'_>, steps: &[(usize, &Properties<'_>)]) -> Result<Vec<MaskForm>, XmpError> {
    let items = top.items("masks_history")?;
    let numbers: Vec<usize> = items.iter().map(|p| p.number("mask_num")).collect::<Result<_, _>>()?;
    let exists = |num: &usize| steps.iter().any(|(step, _)| step == num);
    let Some(last) = numbers.iter().copied().filter(exists).max() else { return Ok(Vec::new()) };
    let mut forms = BTreeMap::new();
    for (_, item) in numbers.iter().zip(&items).filter(|(num, _)| **num == last) {
        let id = item.number("mask_id")?;
        let source = match item.get("mask_src") {
            Some(text) => unhex(text).and_then(|b| b.try_into().ok()).ok_or_else(|| item.bad("mask_src"))?,
            None => [0; 8],
        };
        let block = forms::Block {
            kind: item.number("mask_type")?,
            version: item.number("mask_version")?,
            count: item.number("mask_nb")?,
            points: unpack(item.text("mask_points")?).ok_or_else(|| item.bad("mask_points"))??,
            source,
        };
        forms.insert(id, forms::decode(id, item.get("mask_name").unwrap_or(""), &block)?);
    }
    Ok(forms.into_values().collect())
}

/// The `rdf:Description`s of a sidecar, taken together.
struct Top<'a> {
    nodes: Vec<&'a Node>,
    properties: BTreeMap<&'a str, &'a str>,
}

impl<'a> Top<'a> {
    /// Finds them; `None` when the document is not darktable's.
    fn find(document: &'a Node) -> Option<Self> {
        let mut nodes = Vec::new();
        let mut waiting = vec![document];
        while let Some(node) = waiting.pop() {
            if node.space == Space::Rdf && node.name == "RDF" {
                nodes.extend(node.all(Space::Rdf, "Description"));
            } else {
                waiting.extend(&node.children);
            }
        }
        let mut properties = BTreeMap::new();
        for node in &nodes {
            node.properties(&mut |name, value| {
                properties.insert(name, value);
            });
        }
        (!properties.is_empty()).then_some(Self { nodes, properties })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.properties.get(name).copied()
    }

    /// The list items of `darktable:NAME/rdf:Seq`.
    fn items(&self, name: &'static str) -> Result<Vec<Properties<'a>>, XmpError> {
        let mut found = Vec::new();
        for node in &self.nodes {
            for list in node.children.iter().filter(|c| c.space == Space::Darktable && c.name == name) {
                for seq in list.children.iter().filter(|c| c.space == Space::Rdf && c.name == "Seq") {
                    for item in seq.children.iter().filter(|c| c.space == Space::Rdf && c.name == "li") {
                        let mut values = BTreeMap::new();
                        item.properties(&mut |key, value| {
                            values.insert(key, value);
                        });
                        found.push(Properties { place: format!("{name} item {}", found.len()), values });
                    }
                }
            }
        }
        if found.len() > MAX_ITEMS {
            return Err(XmpError::TooMuch { what: "items of a list", limit: MAX_ITEMS });
        }
        Ok(found)
    }

    fn extras(&self) -> BTreeMap<String, String> {
        let kept = |name: &str, value: &str| is_extra_name(name) && !(name == "raw_params" && value == "0");
        let pairs = self.properties.iter().filter(|(name, value)| kept(name, value));
        pairs.map(|(name, value)| (format!("darktable:{name}"), (*value).to_owned())).collect()
    }
}

/// The properties of one list item.
struct Properties<'a> {
    /// Where it is, for messages.
    place: String,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Properties<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).copied()
    }

    fn text(&self, name: &'static str) -> Result<&'a str, XmpError> {
        self.get(name).ok_or_else(|| self.bad(name))
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, XmpError> {
        self.text(name)?.parse().map_err(|_| self.bad(name))
    }

    fn number_or<T: std::str::FromStr>(&self, name: &'static str, default: T) -> Result<T, XmpError> {
        if self.get(name).is_some() { self.number(name) } else { Ok(default) }
    }

    fn bad(&self, name: &'static str) -> XmpError {
        let value: String = self.get(name).unwrap_or("(absent)").chars().take(40).collect();
        XmpError::Attribute { place: self.place.clone(), name, value }
    }
}

/// The bytes of a blob: hexadecimal, or `gz`, two digits, and zlib in base64. `None` when it is neither.
fn unpack(text: &str) -> Option<Result<Vec<u8>, XmpError>> {
    let Some(rest) = text.strip_prefix("gz") else { return unhex(text).map(Ok) };
    let packed = STANDARD.decode(rest.get(2..)?.trim_end()).ok()?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_INFLATED).unwrap_or(u64::MAX) + 1;
    flate2::read::ZlibDecoder::new(packed.as_slice()).take(limit).read_to_end(&mut bytes).ok()?;
    if bytes.len() > MAX_INFLATED {
        return Some(Err(XmpError::TooMuch { what: "inflated bytes", limit: MAX_INFLATED }));
    }
    Some(Ok(bytes))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The bytes of a hexadecimal text of either case; `None` when it is not one.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}

/// Why a sidecar cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum XmpError {
    /// Not well-formed XML.
    #[error("the sidecar is not well-formed: {0}")]
    Syntax(String),
    /// A document type declaration, which no sidecar has.
    #[error("the sidecar declares a document type")]
    DocumentType,
    /// Beyond one of the limits.
    #[error("the sidecar has more than {limit} {what}")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// XML, but nothing of darktable's in it.
    #[error("the file holds no darktable edit")]
    NotASidecar,
    /// Written by a darktable before 3.0, or by one that does not exist yet.
    #[error("the sidecar's schema `{found}` is not 4 or 5")]
    Schema {
        /// `xmp_version`.
        found: String,
    },
    /// The edit leans on whatever defaults the installed darktable has.
    #[error("the sidecar leaves the base of its edit to darktable's own defaults")]
    NoBaseline,
    /// A module order that is not one of the built-in ones.
    #[error("the sidecar's module order is not a built-in one ({found})")]
    Order {
        /// What differs.
        found: String,
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
            Self::MissingMask { .. } => ErrorCode::MaskingError,
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
            Self::Order { .. } => Some("choose a built-in module order in darktable and save again".into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
