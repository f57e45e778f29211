//! The parameter layouts of darktable's modules: which fields, where, of which type, between which bounds.
//!
//! One file per module in `vocabulary/modules/`, parsed when it is first needed. The facts come from the
//! introspection data that darktable's plugins carry (4.2.1, 5.0.1 and 5.4.1); where versions that share a
//! layout disagree about a default or a bound, the oldest is kept, because it is the narrowest.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use base::assets::Overlay;
use base::error::{Coded, ErrorCode};

/// The darktable versions that were measured, oldest first.
pub const MEASURED: [&str; 3] = ["4.2.1", "5.0.1", "5.4.1"];

/// No parameter block of any module is larger (rasterfile's paths take 4 kB, the largest is colormapping's 33 kB).
const MAX_SIZE: usize = 1 << 16;

/// All layouts, by module. Cheap to make; share it by reference.
pub struct Layouts {
    files: Overlay,
    parsed: Mutex<HashMap<String, Option<Arc<ModuleLayout>>>>,
}

/// What is known about one module.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleLayout {
    /// darktable's internal name.
    #[serde(rename = "module")]
    pub op: String,
    /// The colour space in which darktable 4.2 blends this module by default.
    pub blend_colorspace: BlendSpace,
    /// Whether the module supports blending and masks.
    pub masks: bool,
    /// The oldest measured darktable that has it.
    pub first_darktable: String,
    /// The newest measured darktable that has it.
    pub last_darktable: String,
    /// Every layout that was met, lowest `modversion` first.
    #[serde(rename = "version")]
    pub versions: Vec<Layout>,
}

/// darktable's blend colour spaces; the discriminants are those of the blend parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum BlendSpace {
    /// The module does not blend.
    None = 0,
    /// Sensor values.
    Raw = 1,
    /// CIE Lab.
    Lab = 2,
    /// Display-referred RGB with HSL channels.
    RgbDisplay = 3,
    /// Scene-referred RGB with JzCzhz channels.
    RgbScene = 4,
}

/// The layout of one version of a module's parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The module it belongs to (filled in on loading, for messages).
    #[serde(skip)]
    pub op: String,
    /// darktable's version number of this layout.
    pub modversion: u32,
    /// Bytes.
    pub size: usize,
    /// The measured darktable versions whose own layout this is.
    pub darktable: Vec<String>,
    /// The fields, by offset. Gaps between them are padding.
    pub fields: Vec<Field>,
}

/// One field: a scalar, a text, or an array of scalars.
///
/// Nested arrays are flattened, and an array of structs is one field per member: element `i` begins at
/// `offset + (i / run) * stride + (i % run) * element size`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// darktable's name, such as `exposure` or `center.x`.
    pub name: String,
    /// The type of the scalar, or of each element.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// How many elements an array has, or bytes a text (with its final NUL); absent for a scalar.
    #[serde(default)]
    pub count: Option<usize>,
    /// How many elements lie next to each other; absent means 1 with a `stride`, and all without.
    #[serde(default)]
    run: Option<usize>,
    /// Bytes from one run to the next; absent means that all elements lie next to each other.
    #[serde(default)]
    stride: Option<usize>,
    /// The least value a new setting may have; absent means that only the type limits it.
    #[serde(default)]
    pub min: Option<f64>,
    /// The greatest value a new setting may have; absent means that only the type limits it.
    #[serde(default)]
    pub max: Option<f64>,
    /// The default of the scalar, or of every element. Some modules choose another one per picture.
    #[serde(default)]
    pub default: f64,
    /// The names of an enumeration's values; empty when they are not known.
    #[serde(default)]
    pub values: BTreeMap<String, i64>,
    /// darktable writes NaN here for "not used"; that is read as 0, and 0 is written as NaN.
    #[serde(default)]
    pub nan_when_zero: bool,
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// 32-bit IEEE.
    Float,
    /// Signed, 32 bits.
    Int,
    /// Unsigned, 32 bits.
    Uint,
    /// Unsigned, 16 bits.
    Ushort,
    /// Signed, 8 bits.
    Int8,
    /// 0 or 1 in 32 bits.
    Bool,
    /// Signed, 32 bits.
    Enum,
    /// NUL-terminated bytes, UTF-8.
    Text,
}

impl FieldType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Float | Self::Int | Self::Uint | Self::Bool | Self::Enum => 4,
            Self::Ushort => 2,
            Self::Int8 | Self::Text => 1,
        }
    }

    /// What a person would call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Ushort => "ushort",
            Self::Int8 => "int8",
            Self::Bool => "bool",
            Self::Enum => "enum",
            Self::Text => "text",
        }
    }

    /// The least and the greatest whole number that fits; `None` for float and text.
    pub(crate) fn whole_range(self) -> Option<(i64, i64)> {
        match self {
            Self::Int | Self::Bool | Self::Enum => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
            Self::Uint => Some((0, i64::from(u32::MAX))),
            Self::Ushort => Some((0, i64::from(u16::MAX))),
            Self::Int8 => Some((i64::from(i8::MIN), i64::from(i8::MAX))),
            Self::Float | Self::Text => None,
        }
    }
}

impl Field {
    /// How many elements there are: 1 for a scalar, the buffer's bytes for a text.
    pub fn len(&self) -> usize {
        self.count.unwrap_or(1)
    }

    /// Never true; a field has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where element `index` begins.
    pub(crate) fn at(&self, index: usize) -> usize {
        let run = self.run.unwrap_or(if self.stride.is_some() { 1 } else { self.len() }).max(1);
        self.offset + (index / run) * self.stride.unwrap_or(0) + (index % run) * self.kind.size()
    }

    /// Where the field ends.
    fn end(&self) -> usize {
        self.at(self.len().saturating_sub(1)) + self.kind.size()
    }
}

impl Layout {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

impl ModuleLayout {
    /// The layout of this `modversion`.
    pub fn version(&self, modversion: u32) -> Option<&Layout> {
        self.versions.iter().find(|v| v.modversion == modversion)
    }

    /// The lowest known layout: the one that the most darktables accept.
    pub fn lowest(&self) -> Option<&Layout> {
        self.versions.first()
    }

    /// The lowest layout that has all of these fields.
    pub fn lowest_with<'a>(&self, fields: impl IntoIterator<Item = &'a str> + Clone) -> Option<&Layout> {
        self.versions.iter().find(|v| fields.clone().into_iter().all(|name| v.field(name).is_some()))
    }

    /// The module's own `modversion` in that darktable (such as `4.2.1`), or `None` if it does not have it.
    /// A version that was not measured is taken for the newest measured one before it.
    pub fn own_version(&self, darktable: &str) -> Option<u32> {
        let wanted = version_key(darktable);
        let known = MEASURED.iter().rev().find(|v| version_key(v) <= wanted)?;
        self.versions.iter().find(|v| v.darktable.iter().any(|d| d == known)).map(|v| v.modversion)
    }

    /// Whether that darktable has the module and reads this `modversion`: it upgrades what is older than its
    /// own and drops what is newer.
    pub fn accepts(&self, darktable: &str, modversion: u32) -> bool {
        self.own_version(darktable).is_some_and(|own| modversion <= own)
    }
}

/// A version text as numbers, for comparing: `5.4.1~bpo` gives `[5, 4, 1]`.
fn version_key(text: &str) -> Vec<u32> {
    text.split('.')
        .map_while(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

impl Layouts {
    /// Layouts from the embedded vocabulary, or from the user's files of the same names.
    pub fn new(vocabulary: Overlay) -> Self {
        Self { files: vocabulary, parsed: Mutex::new(HashMap::new()) }
    }

    /// The layouts of module `op`; `None` for a module that nothing is known about.
    ///
    /// # Errors
    /// [`LayoutError`] for a file of layouts that cannot be read.
    pub fn module(&self, op: &str) -> Result<Option<Arc<ModuleLayout>>, LayoutError> {
        // The name may come from a foreign sidecar and becomes part of a path.
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if op.is_empty() || op.len() > 32 || !op.bytes().all(plain) {
            return Ok(None);
        }
        if let Some(found) = self.parsed.lock().unwrap_or_else(PoisonError::into_inner).get(op) {
            return Ok(found.clone());
        }
        let module = match self.files.text(&format!("modules/{op}.toml")) {
            Some(Cow::Borrowed(text)) => Some(built_in(op, text)?),
            Some(Cow::Owned(text)) => Some(Arc::new(parse(op, &text)?)),
            None => None,
        };
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner).insert(op.to_owned(), module.clone());
        Ok(module)
    }

    /// The names of all modules that have a layout, sorted.
    pub fn names(&self) -> Vec<String> {
        let files = self.files.list("modules", ".toml");
        files.into_keys().filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect()
    }
}

/// [`parse`] for a file inside the binary: once for all [`Layouts`], of which a process makes several.
fn built_in(op: &str, text: &'static str) -> Result<Arc<ModuleLayout>, LayoutError> {
    static PARSED: Mutex<BTreeMap<String, Arc<ModuleLayout>>> = Mutex::new(BTreeMap::new());
    if let Some(module) = PARSED.lock().unwrap_or_else(PoisonError::into_inner).get(op) {
        return Ok(module.clone());
    }
    let module = Arc::new(parse(op, text)?);
    PARSED.lock().unwrap_or_else(PoisonError::into_inner).insert(op.to_owned(), module.clone());
    Ok(module)
}

/// Reads one file and checks that its offsets make sense, so that nothing later has to.
fn parse(op: &str, text: &str) -> Result<ModuleLayout, LayoutError> {
    let invalid = |reason: String| LayoutError::Invalid { module: op.to_owned(), reason };
    let mut module: ModuleLayout = toml::from_str(text).map_err(|e| LayoutError::Syntax {
        module: op.to_owned(),
        reason: e.to_string().trim_end().to_owned(),
    })?;
    if module.op != op {
        return Err(invalid(format!("the file describes `{}`", module.op)));
    }
    module.versions.sort_by_key(|v| v.modversion);
    for version in &mut module.versions {
        version.op = op.to_owned();
        if version.size > MAX_SIZE {
            return Err(invalid(format!("version {} has {} bytes", version.modversion, version.size)));
        }
        for field in &version.fields {
            let sane = field.len() <= MAX_SIZE
                && field.stride.unwrap_or(0) <= MAX_SIZE
                && field.offset <= MAX_SIZE
                && !field.is_empty()
                && field.len().is_multiple_of(field.run.unwrap_or(1).max(1))
                && (field.kind != FieldType::Text || field.count.is_some() && field.stride.is_none())
                && field.end() <= version.size;
            if !sane {
                return Err(invalid(format!(
                    "version {}: `{}` does not fit",
                    version.modversion, field.name
                )));
            }
        }
    }
    Ok(module)
}

/// Why a module's layouts cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Not TOML, or not of the expected shape.
    #[error("the layout file of module `{module}` cannot be read: {reason}")]
    Syntax {
        /// The module.
        module: String,
        /// What the parser said.
        reason: String,
    },
    /// Well-formed but contradictory.
    #[error("the layout file of module `{module}` is wrong: {reason}")]
    Invalid {
        /// The module.
        module: String,
        /// What is wrong.
        reason: String,
    },
}

impl Coded for LayoutError {
    fn code(&self) -> ErrorCode {
        ErrorCode::InvalidInput
    }

    fn remedy(&self) -> Option<String> {
        Some(
            "correct or remove your own file of that name in `modules/`; the built-in one is then used"
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Layouts {
        Layouts::new(Overlay::vocabulary(None))
    }

    fn module(op: &str) -> Arc<ModuleLayout> {
        layouts().module(op).unwrap().unwrap()
    }

    #[test]
    fn every_embedded_file_reads_and_no_two_fields_overlap() {
        let layouts = layouts();
        let names = layouts.names();
        assert_eq!(names.len(), 89);
        for name in names {
            let module = layouts.module(&name).unwrap().unwrap();
            assert_eq!(module.masks, module.blend_colorspace != BlendSpace::None, "{name}");
            assert!(module.versions.windows(2).all(|w| w[0].modversion < w[1].modversion), "{name}");
            for version in &module.versions {
                let mut taken = vec![false; version.size];
                for field in &version.fields {
                    for index in 0..field.len() {
                        for byte in &mut taken[field.at(index)..field.at(index) + field.kind.size()] {
                            assert!(!std::mem::replace(byte, true), "{name} {}", field.name);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn versions_are_chosen_by_fields_and_by_darktable() {
        let exposure = module("exposure");
        assert_eq!(exposure.lowest().unwrap().modversion, 6);
        assert_eq!(exposure.lowest_with(["exposure"]).unwrap().modversion, 6);
        assert_eq!(exposure.lowest_with(["exposure", "compensate_hilite_pres"]).unwrap().modversion, 7);
        assert!(exposure.lowest_with(["nonsense"]).is_none());
        assert!(exposure.accepts("4.2.1", 6) && !exposure.accepts("4.2.1", 7));
        assert!(exposure.accepts("5.4.1", 7) && exposure.accepts("5.4.1", 6));
        // Between and beyond the measured ones.
        assert_eq!(exposure.own_version("5.2.0"), Some(6));
        assert_eq!(exposure.own_version("5.6.0+12"), Some(7));
        assert_eq!(exposure.own_version("3.8.1"), None);
        assert_eq!(module("colorequal").own_version("4.2.1"), None);
        assert_eq!(module("colorequal").own_version("5.0.1"), Some(4));
    }

    #[test]
    fn blending_facts_are_those_of_darktable_4_2() {
        for (op, space) in [
            ("exposure", BlendSpace::RgbScene),
            ("highlights", BlendSpace::Raw),
            ("bilat", BlendSpace::Lab),
            ("colorreconstruct", BlendSpace::Lab),
            ("temperature", BlendSpace::None),
        ] {
            assert_eq!(module(op).blend_colorspace, space, "{op}");
        }
    }

    #[test]
    fn arrays_of_structs_are_strided() {
        let retouch = module("retouch");
        let color = retouch.lowest().unwrap().field("rt_forms.fill_color").unwrap();
        assert_eq!((color.len(), color.at(0), color.at(2), color.at(3)), (900, 24, 32, 68));
        let y = module("tonecurve");
        assert_eq!(y.lowest().unwrap().field("tonecurve.y").unwrap().at(20), 164);
    }

    #[test]
    fn names_that_are_no_module_names_never_become_paths() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("modules")).unwrap();
        std::fs::write(dir.path().join("secret.toml"), "x").unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(Some(dir.path().to_owned())));
        assert!(layouts.module("../secret").unwrap().is_none());
        assert!(layouts.module("").unwrap().is_none());
        assert!(layouts.module("nosuchop").unwrap().is_none());
    }

    #[test]
    fn a_users_file_with_a_field_beyond_the_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("modules")).unwrap();
        let text = "module = \"flip\"\nblend_colorspace = \"none\"\nmasks = false\nfirst_darktable = \"4.2.1\"\n\
                    last_darktable = \"4.2.1\"\n[[version]]\nmodversion = 2\nsize = 4\ndarktable = []\n\
                    fields = [{ name = \"a\", type = \"int\", offset = 2 }]\n";
        std::fs::write(dir.path().join("modules/flip.toml"), text).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(Some(dir.path().to_owned())));
        assert!(matches!(layouts.module("flip"), Err(LayoutError::Invalid { .. })));
        std::fs::write(dir.path().join("modules/gamma.toml"), "module = 3").unwrap();
        assert!(matches!(layouts.module("gamma"), Err(LayoutError::Syntax { .. })));
    }
}
