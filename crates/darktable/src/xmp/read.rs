//! Reading sidecars: those that are complete, and what other darktables and other programs write.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::blend;
use crate::forms;
use crate::layout::{Layouts, MEASURED};
use crate::order;
use crate::params::{self, ParamError};
use crate::probe::Version;
use crate::state::{Blend, EditState, MaskForm, Module, Params, PipelineOrder, Shape};

use crate::xmp::tree::{self, Node, Space};
use crate::xmp::{MAX_INFLATED, MAX_ITEMS, XmpError, check, hex, is_extra_name, unhex};

/// The newest schema of sidecars that is known.
const NEWEST_SCHEMA: u32 = 5;

/// What there is in a sidecar that somebody else wrote: see [`foreign`].
#[derive(Clone, Debug, PartialEq)]
pub enum Foreign {
    /// The whole edit.
    Complete(EditState),
    /// An edit that darktable completes by its own defaults, or of a darktable before 3.0: it has to be asked.
    Incomplete,
}

/// Reads a sidecar as darktable would: later items of the same instance replace earlier ones, items from
/// `history_end` on do not count, and of the masks those of the last step that has any.
///
/// What only describes the picture (rating, title, tags) is left out, because it is not part of an edit.
///
/// # Errors
/// [`XmpError`] for a file that is no sidecar, is too large, or holds a module that cannot be read.
pub fn read(bytes: &[u8], layouts: &Layouts) -> Result<EditState, XmpError> {
    let document = tree::parse(bytes)?;
    let top = Top::find(&document).ok_or(XmpError::NotASidecar)?;
    if !matches!(top.schema()?, 4 | 5) {
        return Err(XmpError::Schema { found: top.get("xmp_version").unwrap_or("").to_owned() });
    }
    if top.get("auto_presets_applied") != Some("1") {
        return Err(XmpError::NoBaseline);
    }
    state(&top, layouts)
}

/// Reads a sidecar of any darktable, to be rendered by `darktable` (such as `4.2.1`), and refuses what that
/// version would drop or misread without a word.
///
/// # Errors
/// [`XmpError`] as for [`read`], and for what that version would drop or misread.
pub fn foreign(bytes: &[u8], layouts: &Layouts, darktable: &str) -> Result<Foreign, XmpError> {
    let document = tree::parse(bytes)?;
    let top = Top::find(&document).ok_or(XmpError::NotASidecar)?;
    let schema = top.schema()?;
    let items = top.items("history")?;
    if items.is_empty() && !top.has("history_operation") {
        return Err(XmpError::NotASidecar);
    }
    for item in top.steps(&items)?.iter().map(|(_, item)| item) {
        check_known(&item_of(item)?, layouts, darktable)?;
    }
    for form in top.items("masks_history")? {
        let version = form.number("mask_version")?;
        if version > forms::VERSION {
            return Err(XmpError::NewerMask { id: form.number("mask_id")?, version, known: forms::VERSION });
        }
    }
    let ends_early = top.get("history_end").is_some_and(|end| end.trim() == "0");
    if !matches!(schema, 4 | 5) || top.get("auto_presets_applied") != Some("1") || ends_early {
        return Ok(Foreign::Incomplete);
    }
    if top.get("iop_order_version") == Some("5")
        && top.get("iop_order_list").is_none()
        && darktable.starts_with("4.")
    {
        return Err(XmpError::Order { found: "darktable 5's own for JPEG pictures".into() });
    }
    let mut state = state(&top, layouts)?;
    loosen_groups(&mut state);
    check(&state)?;
    Ok(Foreign::Complete(state))
}

/// Modules that every raw has: an edit of these alone is none to darktable, where no hash says otherwise.
const USUAL: [&str; 9] =
    ["flip", "dither", "highlights", "rawprepare", "colorin", "colorout", "gamma", "demosaic", "temperature"];

/// Whether darktable takes a sidecar's edit for more than its own defaults: it then fills a gap otherwise than in an
/// edit that nobody has touched. It goes by the hashes in a sidecar; without any, by the modules that are on.
///
/// # Errors
/// [`XmpError`] for a file that is no sidecar.
pub fn is_altered(bytes: &[u8]) -> Result<bool, XmpError> {
    let document = tree::parse(bytes)?;
    let top = Top::find(&document).ok_or(XmpError::NotASidecar)?;
    let [current, basic, auto] =
        ["history_current_hash", "history_basic_hash", "history_auto_hash"].map(|name| top.get(name));
    if current.or(basic).or(auto).is_some() {
        return Ok(current.is_some() && current != basic && current != auto);
    }
    let items = top.items("history")?;
    let more = |item: &Properties<'_>| {
        item.get("enabled") == Some("1") && item.get("operation").is_some_and(|op| !USUAL.contains(&op))
    };
    Ok(top.steps(&items)?.into_iter().any(|(_, item)| more(item)))
}

fn state(top: &Top<'_>, layouts: &Layouts) -> Result<EditState, XmpError> {
    let items = top.items("history")?;
    let steps = top.steps(&items)?;
    let mut modules: BTreeMap<(String, u32), Module> = BTreeMap::new();
    for (_, item) in &steps {
        if only_masks(item) {
            continue;
        }
        let module = item_of(item)?.module(layouts)?;
        modules.insert((module.op.clone(), module.instance), module);
    }
    let mut state = EditState {
        extras: top.extras(),
        masks: read_masks(top, &steps)?,
        modules: modules.into_values().collect(),
        order: top.order()?,
        sequence: Vec::new(),
    };
    take_order(&mut state, top.get("iop_order_list"))?;
    order::sort(&mut state);
    Ok(state)
}

/// Keeps the sidecar's own list of modules, unless it comes to the same as the built-in order.
fn take_order(state: &mut EditState, list: Option<&str>) -> Result<(), XmpError> {
    let Some(list) = list else {
        if let Some(module) = state.modules.iter().find(|m| m.instance > 0) {
            let found = format!("instance {} of {} without an order list", module.instance, module.op);
            return Err(XmpError::Order { found });
        }
        return match state.order {
            PipelineOrder::Custom => Err(XmpError::Order { found: "one of its own without a list".into() }),
            _ => Ok(()),
        };
    };
    let slots = order::parse(list).map_err(|found| XmpError::Order { found })?;
    let listed: BTreeSet<&(String, u32)> = slots.iter().collect();
    for module in state.modules.iter().filter(|m| m.instance > 0) {
        if !listed.contains(&(module.op.clone(), module.instance)) {
            let found = format!("instance {} of {} is not in its list", module.instance, module.op);
            return Err(XmpError::Order { found });
        }
    }
    order::follow(state, slots);
    Ok(())
}

/// Keeps a group whole that names a shape which is not there, as darktable leaves some behind: it ignores them,
/// and an edit of this program's own never has one.
fn loosen_groups(state: &mut EditState) {
    let ids: BTreeSet<i32> = state.masks.iter().map(|form| form.id).collect();
    for form in &mut state.masks {
        let Shape::Group { members } = &form.shape else { continue };
        if members.iter().all(|m| ids.contains(&m.form)) {
            continue;
        }
        if let Ok(block) = forms::encode(form) {
            let points = hex(&block.points);
            form.shape =
                Shape::Opaque { count: block.count, kind: block.kind, points, version: block.version };
        }
    }
}

/// One instance of a module as a file spells it: a history item, or a plugin of a style.
pub(crate) struct Item {
    pub op: String,
    pub instance: u32,
    pub modversion: u32,
    pub enabled: bool,
    pub name: String,
    pub params: Vec<u8>,
    /// `blendop_version` and `blendop_params`.
    pub blend: Option<(u32, Vec<u8>)>,
}

impl Item {
    /// The instance as a state holds it.
    pub fn module(self, layouts: &Layouts) -> Result<Module, XmpError> {
        let Self { op, instance, modversion, enabled, name, params: bytes, blend } = self;
        let layout = layouts.module(&op)?;
        let decoded =
            layout.as_ref().and_then(|m| m.version(modversion)).map(|layout| params::decode(layout, &bytes));
        let params = match decoded {
            Some(Ok(values)) => Params::Fields(values),
            Some(Err(ParamError::NotFinite { .. } | ParamError::Text { .. })) | None => {
                Params::Opaque(hex(&bytes))
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let blend = match blend {
            Some((version, bytes)) => decode_blend(&op, instance, version, &bytes)?,
            None => None,
        };
        Ok(Module { blend, enabled, instance, modversion, name, op, params })
    }
}

fn decode_blend(op: &str, instance: u32, version: u32, bytes: &[u8]) -> Result<Option<Blend>, XmpError> {
    let old = OLD_BLENDS.iter().find(|(old, _, _)| *old == version);
    // darktable takes a block of zeros of any size for "off".
    if bytes.iter().all(|b| *b == 0) {
        return Ok(None);
    }
    if let Some((_, size, _)) = old
        && bytes.len() != *size
    {
        let (op, found) = (op.to_owned(), bytes.len());
        return Err(XmpError::OldBlend { op, instance, version, expected: *size, found });
    }
    let decoded = blend::decode(version, bytes);
    let mut blend = decoded.map_err(|source| XmpError::Blend { op: op.to_owned(), instance, source })?;
    // The block stays whole; which form it uses has to be known all the same.
    if let (Some(blend), Some((_, _, Some(at)))) = (&mut blend, old)
        && word(bytes, 0) & DRAWN != 0
    {
        blend.mask_id = Some(word(bytes, *at).cast_signed());
    }
    Ok(blend)
}

/// The bit of `mask_mode` for a drawn mask.
const DRAWN: u32 = 2;

/// Blend blocks before version 11: version, bytes, and where the mask's id is in those that can have one.
const OLD_BLENDS: [(u32, usize, Option<usize>); 10] = [
    (1, 12, None),
    (2, 144, None),
    (3, 272, None),
    (4, 276, None),
    (5, 300, Some(16)),
    (6, 300, Some(16)),
    (7, 300, Some(16)),
    (8, 316, Some(16)),
    (9, 348, Some(16)),
    (10, 420, Some(24)),
];

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The newest blend block that a darktable reads; what is newer it replaces by "off", without a word.
fn newest_blend(darktable: &str) -> u32 {
    let version = darktable.parse::<Version>().map_or((u32::MAX, 0), |v| (v.major, v.minor));
    match version {
        (..5, _) => 11,
        (5, ..4) => 13,
        _ => 14,
    }
}

/// Refuses an item that `darktable` does not have the module for, or knows in an older version only.
pub(crate) fn check_known(item: &Item, layouts: &Layouts, darktable: &str) -> Result<(), XmpError> {
    let op = || item.op.clone();
    let missing = || XmpError::NoModule { op: op(), darktable: darktable.to_owned() };
    let layout = layouts.module(&item.op)?;
    // What a later darktable may have besides is its own to judge, when the sidecar is rendered.
    if layout.is_none()
        && MEASURED.contains(&darktable)
        && order::position(PipelineOrder::V30, &item.op).is_none()
    {
        return Err(missing());
    }
    if let Some(layout) = layout {
        match layout.own_version(darktable) {
            None => return Err(missing()),
            Some(known) if item.modversion > known => {
                return Err(XmpError::NewerModule {
                    op: op(),
                    instance: item.instance,
                    found: item.modversion,
                    known,
                    darktable: darktable.to_owned(),
                });
            }
            Some(_) => {}
        }
    }
    let known = newest_blend(darktable);
    match &item.blend {
        Some((version, bytes)) if *version > known && !matches!(blend::decode(*version, bytes), Ok(None)) => {
            Err(XmpError::NewerBlend {
                op: op(),
                instance: item.instance,
                found: *version,
                known,
                darktable: darktable.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Whether a step only carries masks, as old sidecars have it.
fn only_masks(item: &Properties<'_>) -> bool {
    item.get("operation") == Some("mask_manager") && item.get("params").is_none_or(str::is_empty)
}

fn item_of(item: &Properties<'_>) -> Result<Item, XmpError> {
    let params = match only_masks(item) {
        true => Vec::new(),
        false => unpack(item.text("params")?).ok_or_else(|| item.bad("params"))??,
    };
    let blend = match item.get("blendop_params").filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = unpack(text).ok_or_else(|| item.bad("blendop_params"))??;
            Some((item.number_or("blendop_version", 1)?, bytes))
        }
        None => None,
    };
    let enabled = match item.text("enabled")? {
        "0" => false,
        "1" => true,
        _ => return Err(item.bad("enabled")),
    };
    let op = item.text("operation")?;
    if !order::is_module(op) {
        return Err(item.bad("operation"));
    }
    Ok(Item {
        op: op.to_owned(),
        instance: item.number_or("multi_priority", 0)?,
        modversion: item.number("modversion")?,
        enabled,
        name: item.get("multi_name").unwrap_or("").to_owned(),
        params,
        blend,
    })
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

    /// Whether there is an element of this name.
    fn has(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.all(Space::Darktable, name).next().is_some())
    }

    /// The version of the schema; 0 for a file that does not say, as those of the first darktables.
    fn schema(&self) -> Result<u32, XmpError> {
        let Some(text) = self.get("xmp_version") else { return Ok(0) };
        let schema = text.trim().parse().ok().filter(|schema| *schema <= NEWEST_SCHEMA);
        schema.ok_or_else(|| XmpError::Schema { found: text.chars().take(40).collect() })
    }

    /// Which module order it follows. Without a word darktable takes its oldest.
    fn order(&self) -> Result<PipelineOrder, XmpError> {
        let Some(text) = self.get("iop_order_version") else { return Ok(PipelineOrder::Legacy) };
        let order = text.trim().parse().ok().and_then(order::of_version);
        order.ok_or_else(|| XmpError::Order { found: format!("order version `{text}`") })
    }

    /// The history items that count, in their order.
    fn steps<'i>(&self, items: &'i [Properties<'a>]) -> Result<Vec<(usize, &'i Properties<'a>)>, XmpError> {
        let end = match self.get("history_end") {
            Some(text) => text.parse().map_err(|_| XmpError::Attribute {
                place: "sidecar".into(),
                name: "history_end",
                value: text.chars().take(40).collect(),
            })?,
            None => usize::MAX,
        };
        let mut steps = Vec::new();
        for (place, item) in items.iter().enumerate() {
            let num = item.number_or("num", place)?;
            if num < end {
                steps.push((num, item));
            }
        }
        steps.sort_by_key(|(num, _)| *num);
        Ok(steps)
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
pub(crate) fn unpack(text: &str) -> Option<Result<Vec<u8>, XmpError>> {
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
