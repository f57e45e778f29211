//! Styles as darktable exports them: a name, and the modules that it sets.

use crate::layout::Layouts;
use crate::order;
use crate::state::{EditState, Module};
use crate::xmp::tree::{self, Node};
use crate::xmp::{Item, MAX_ITEMS, XmpError, check_known, unpack};
use base::error::{Coded, ErrorCode};

/// A style.
#[derive(Clone, Debug, PartialEq)]
pub struct Style {
    /// Its name in darktable, which may hold anything.
    pub name: String,
    /// What its maker says about it.
    pub description: String,
    /// What it sets, by module and instance.
    pub modules: Vec<Module>,
    /// The order of modules that it brings along; empty for the picture's own.
    pub sequence: Vec<(String, u32)>,
}

/// Reads a `.dtstyle` file, to be rendered by `darktable` (such as `4.2.1`), and refuses what that version
/// would drop or misread without a word.
///
/// # Errors
/// [`StyleError`] names the module, if it is one.
pub fn read(bytes: &[u8], layouts: &Layouts, darktable: &str) -> Result<Style, StyleError> {
    let document = tree::parse(bytes)?;
    let root = child(&document, "darktable_style").ok_or(StyleError::NotAStyle)?;
    let info = child(root, "info").ok_or(StyleError::NotAStyle)?;
    let said = |name: &str| child(info, name).map_or("", |node| node.text.trim());
    let plugins: Vec<&Node> =
        child(root, "style").into_iter().flat_map(|s| &s.children).filter(|c| c.name == "plugin").collect();
    if plugins.is_empty() {
        return Err(StyleError::Empty);
    }
    if plugins.len() > MAX_ITEMS {
        return Err(XmpError::TooMuch { what: "plugins", limit: MAX_ITEMS }.into());
    }
    let mut modules: Vec<Module> = Vec::with_capacity(plugins.len());
    for plugin in plugins {
        let item = item(plugin)?;
        check_known(&item, layouts, darktable)?;
        let module = item.module(layouts)?;
        if module.blend.as_ref().is_some_and(|blend| blend.mask_id.is_some()) {
            return Err(StyleError::DrawnMask { op: module.op });
        }
        if modules.iter().any(|m| m.op == module.op && m.instance == module.instance) {
            let what = format!("{} instance {}", module.op, module.instance);
            return Err(XmpError::Twice { what }.into());
        }
        modules.push(module);
    }
    modules.sort_by(|a, b| (&a.op, a.instance).cmp(&(&b.op, b.instance)));
    let sequence = match said("iop_list") {
        "" => Vec::new(),
        list => order::parse(list).map_err(|found| XmpError::Order { found })?,
    };
    Ok(Style { name: said("name").into(), description: said("description").into(), modules, sequence })
}

impl Style {
    /// The state with the style on top, as darktable applies one: each of its modules replaces the instance of
    /// the same name, replaces a module that is not in use, or becomes a further instance right after the
    /// last one of its kind. An order that it brings along becomes the picture's.
    pub fn apply(&self, state: &EditState) -> EditState {
        let mut new = state.clone();
        let mut used: Vec<(String, u32)> = Vec::new();
        for module in &self.modules {
            let free = |m: &&Module| m.op == module.op && !used.contains(&(m.op.clone(), m.instance));
            let same_name = new.modules.iter().filter(free).find(|m| m.name == module.name);
            let highest = new.modules.iter().filter(|m| m.op == module.op).map(|m| m.instance).max();
            let instance = match (same_name, highest) {
                (Some(found), _) => found.instance,
                (None, None) => 0,
                // The base instance has no name of its own and is there even when no edit uses it.
                (None, Some(_)) if module.name.is_empty() && new.module(&module.op, 0).is_none() => 0,
                (None, Some(highest)) => highest + 1,
            };
            used.push((module.op.clone(), instance));
            new.modules.retain(|m| m.op != module.op || m.instance != instance);
            new.modules.push(Module { instance, ..module.clone() });
        }
        if !self.sequence.is_empty() {
            order::follow(&mut new, self.sequence.clone());
        }
        order::sort(&mut new);
        new
    }
}

fn item(plugin: &Node) -> Result<Item, StyleError> {
    let text = |name: &'static str| child(plugin, name).map(|node| node.text.trim());
    let bad = |name: &'static str| StyleError::Plugin {
        op: text("operation").unwrap_or("?").chars().take(40).collect(),
        name,
    };
    let number = |name: &'static str| text(name).and_then(|t| t.parse().ok()).ok_or_else(|| bad(name));
    let bytes =
        |name: &'static str| text(name).and_then(unpack).ok_or_else(|| bad(name))?.map_err(StyleError::File);
    let blend = match text("blendop_params") {
        None | Some("") => None,
        Some(_) => Some((number("blendop_version")?, bytes("blendop_params")?)),
    };
    Ok(Item {
        op: text("operation").filter(|op| order::is_module(op)).ok_or_else(|| bad("operation"))?.to_owned(),
        instance: number("multi_priority")?,
        modversion: number("module")?,
        enabled: match text("enabled") {
            Some("0") => false,
            Some("1") => true,
            _ => return Err(bad("enabled")),
        },
        name: text("multi_name").unwrap_or("").to_owned(),
        params: bytes("op_params")?,
        blend,
    })
}

/// The first child element of that name; styles know no namespaces.
fn child<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.children.iter().find(|c| c.name == name)
}

/// Why a style cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StyleError {
    /// As with a sidecar: not XML, too large, of a later darktable…
    #[error(transparent)]
    File(#[from] XmpError),
    /// XML, but no style of darktable's.
    #[error("the file is not a darktable style")]
    NotAStyle,
    /// A style that sets nothing.
    #[error("the style contains no settings")]
    Empty,
    /// A property of a plugin is missing or unusable.
    #[error("`{name}` of the style's module `{op}` cannot be used")]
    Plugin {
        /// The module.
        op: String,
        /// Which property.
        name: &'static str,
    },
    /// A drawn mask, whose shapes no style holds; darktable would edit the whole picture.
    #[error("the style's `{op}` uses a drawn mask, and a style does not hold its shapes")]
    DrawnMask {
        /// The module.
        op: String,
    },
}

impl Coded for StyleError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::DrawnMask { .. } => ErrorCode::MaskingError,
            _ => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::File(error) => return error.remedy(),
            Self::NotAStyle => "use a .dtstyle file that darktable's lighttable exported",
            Self::Empty => "choose at least one module when you create the style",
            Self::Plugin { .. } => "the file is damaged: export the style from darktable again",
            Self::DrawnMask { .. } => {
                "leave that module out of the style; import the picture's sidecar to keep its masks"
            }
        };
        Some(text.into())
    }
}

#[cfg(test)]
mod tests;
