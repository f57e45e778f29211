//! Reading the files of moves and looks: strict, with every contradiction named before the first move is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::vocabulary::bindings::{self, Binding};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::{Form, Target, is_name};
use crate::vocabulary::geometry::WorkedOut;
use crate::vocabulary::looks::{Look, LookEntry};
use crate::vocabulary::mask::NamedMasks;
use crate::vocabulary::moves::{Constant, Fixed, ModuleRules, Move, Parameter};
use crate::vocabulary::search::Words;
use crate::vocabulary::styles::{self, SavedStyle};
use base::assets::{Origin, Overlay};
use darktable::blend::Layer;
use darktable::layout::{FieldType, Layouts};
use pixels::metrics::axes::Axis;

/// The folders of the files, within the vocabulary. A file in either may hold moves and looks.
const FOLDERS: [&str; 2] = ["moves", "looks"];

/// Every move and look there is, and the rules of the modules that they act on.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    pub(super) moves: BTreeMap<String, Move>,
    pub(super) looks: BTreeMap<String, Look>,
    modules: BTreeMap<String, ModuleRules>,
    masks: NamedMasks,
    pub(super) styles: BTreeMap<String, SavedStyle>,
    pub(super) bindings: Vec<Binding>,
    pub(super) words: Words,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveFile {
    #[serde(default)]
    module: BTreeMap<String, ModuleEntry>,
    #[serde(default, rename = "move")]
    moves: Vec<MoveEntry>,
    #[serde(default, rename = "look")]
    looks: Vec<LookEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleEntry {
    #[serde(default)]
    exclusive: Option<String>,
    #[serde(default)]
    start: BTreeMap<String, Constant>,
    #[serde(default)]
    worked_out: Option<WorkedOut>,
    #[serde(default)]
    whole_frame: Option<String>,
    #[serde(default)]
    layer: Option<Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveEntry {
    name: String,
    module: String,
    description: String,
    axes: BTreeMap<Axis, i8>,
    tags: Vec<String>,
    parameters: BTreeMap<String, Parameter>,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    scale: BTreeMap<String, String>,
    #[serde(default)]
    opacity: Option<String>,
    #[serde(default)]
    fixed: BTreeMap<String, Fixed>,
    #[serde(default)]
    not_monotonic: Option<String>,
    #[serde(default)]
    shown_on: Option<String>,
}

impl Vocabulary {
    /// Reads every file. What is wrong in one is an error, never a move that is quietly missing.
    ///
    /// # Errors
    /// [`VocabularyError`] names the file and what in it is wrong.
    pub fn load(assets: &Overlay) -> Result<Self, VocabularyError> {
        Self::read(assets, None)
    }

    /// [`Self::load`], with one more file that is not installed yet; it takes the place of one of its name.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(assets: &Overlay, file: &Path, text: &str) -> Result<Self, VocabularyError> {
        Self::read(assets, Some((file, text)))
    }

    fn read(assets: &Overlay, extra: Option<(&Path, &str)>) -> Result<Self, VocabularyError> {
        let mut vocabulary = Self { masks: NamedMasks::load(assets)?, ..Self::default() };
        let replaced = extra.and_then(|(file, _)| file.file_name()?.to_str());
        for folder in FOLDERS {
            // An extra file belongs where its like are.
            let here = extra.is_some_and(|(_, text)| text.contains("[[look]]") == (folder == "looks"));
            for (name, origin) in assets.list(folder, ".toml") {
                if here && replaced == Some(name.as_str()) {
                    continue;
                }
                let path = format!("{folder}/{name}");
                let shown = match origin {
                    Origin::Embedded => path.clone(),
                    Origin::User(path) => path.display().to_string(),
                };
                let text = assets.text(&path).ok_or_else(|| VocabularyError::File {
                    file: shown.clone(),
                    reason: "not readable as UTF-8 text".into(),
                })?;
                vocabulary.add(&shown, &text)?;
            }
        }
        if let Some((file, text)) = extra {
            vocabulary.add(&file.display().to_string(), text)?;
        }
        vocabulary.styles = styles::load(assets)?;
        vocabulary.bindings = bindings::load(assets)?;
        vocabulary.words = Words::load(assets)?;
        for style in vocabulary.styles.values() {
            let entry = vocabulary.moves.get(&style.name).map(|entry| &entry.file);
            let look = vocabulary.looks.get(&style.name).map(|look| &look.file);
            if let Some(first) = entry.or(look) {
                let (name, first, second) = (style.name.clone(), first.clone(), style.file.clone());
                return Err(VocabularyError::Duplicate { name, first, second });
            }
        }
        vocabulary.collect_rules()?;
        vocabulary.check_fields(&Layouts::new(assets.clone()))?;
        vocabulary.check_looks()?;
        Ok(vocabulary)
    }

    /// Every move, by name.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.values()
    }

    /// The move of this name.
    ///
    /// # Errors
    /// [`VocabularyError::UnknownMove`] with the names that are spelled like it.
    pub fn get(&self, name: &str) -> Result<&Move, VocabularyError> {
        self.moves.get(name).ok_or_else(|| VocabularyError::UnknownMove {
            name: name.to_owned(),
            near: nearest(name, self.moves.keys().chain(self.looks.keys()).map(String::as_str)),
        })
    }

    /// The named masks.
    pub fn masks(&self) -> &NamedMasks {
        &self.masks
    }

    /// Fails unless a mask can be used: its parts, its ranges, and the names in it.
    ///
    /// # Errors
    /// [`VocabularyError::Mask`], with the field at fault and an example.
    pub fn check_mask(&self, mask: &crate::vocabulary::MaskSpec) -> Result<(), VocabularyError> {
        mask.check(&self.masks).map(|_| ())
    }

    /// The rules of a module; those without any entry have the empty ones.
    pub(crate) fn rules(&self, op: &str) -> &ModuleRules {
        static NONE: LazyLock<ModuleRules> = LazyLock::new(ModuleRules::default);
        self.modules.get(op).unwrap_or(&NONE)
    }

    /// The other modules of the group of which `op` is one.
    pub(crate) fn rivals(&self, op: &str) -> Vec<&str> {
        let Some(mine) = self.rules(op).exclusive.as_deref() else { return Vec::new() };
        self.modules
            .iter()
            .filter(|(other, rules)| other.as_str() != op && rules.exclusive.as_deref() == Some(mine))
            .map(|(other, _)| other.as_str())
            .collect()
    }

    pub(super) fn add(&mut self, file: &str, text: &str) -> Result<(), VocabularyError> {
        let bad = |reason: String| VocabularyError::File { file: file.to_owned(), reason };
        let parsed: MoveFile =
            toml::from_str(text).map_err(|error| bad(error.to_string().trim().to_owned()))?;
        for (op, entry) in parsed.module {
            if self.modules.contains_key(&op) {
                return Err(bad(format!("the rules of module {op} are already in another file")));
            }
            let mut start = BTreeMap::new();
            for (field, constant) in entry.start {
                start.insert(field.parse().map_err(bad)?, constant);
            }
            let ModuleEntry { exclusive, worked_out, whole_frame, layer, .. } = entry;
            let rules =
                ModuleRules { start, exclusive, worked_out, whole_frame, layer, ..ModuleRules::default() };
            self.modules.insert(op, rules);
        }
        for entry in parsed.moves {
            let name = entry.name.clone();
            let checked = entry.check(file).map_err(|reason| VocabularyError::Move {
                file: file.to_owned(),
                name: name.clone(),
                reason,
            })?;
            self.check_name(&name, file)?;
            self.moves.insert(name, checked);
        }
        for entry in parsed.looks {
            self.check_name(&entry.name, file)?;
            self.looks.insert(entry.name.clone(), Look::new(entry, file));
        }
        Ok(())
    }

    /// A name is that of one move or one look.
    fn check_name(&self, name: &str, file: &str) -> Result<(), VocabularyError> {
        let of_move = self.moves.get(name).map(|entry| &entry.file);
        match of_move.or_else(|| self.looks.get(name).map(|look| &look.file)) {
            None => Ok(()),
            Some(first) => Err(VocabularyError::Duplicate {
                name: name.to_owned(),
                first: first.clone(),
                second: file.to_owned(),
            }),
        }
    }

    /// Collects what moves drive in each module, and compares moves on one module: a field must
    /// rest at one value, or the way back to the untouched photo would depend on who asks.
    fn collect_rules(&mut self) -> Result<(), VocabularyError> {
        for entry in self.moves.values() {
            let bad = |reason: String| VocabularyError::Move {
                file: entry.file.clone(),
                name: entry.name.clone(),
                reason,
            };
            let neutral = entry.neutral();
            let rules = self.modules.entry(entry.module.clone()).or_default();
            rules.fades |= entry.opacity.is_some();
            rules.fixed.extend(entry.fixed.keys().cloned());
            let set = entry.set.iter().map(|(target, form)| (target, Some(form.value(&neutral))));
            let scale = entry.scale.keys().map(|target| (target, None));
            for (target, rest) in set.chain(scale) {
                if rules.start.contains_key(target) {
                    return Err(bad(format!("field {target} is fixed by the module's `start`")));
                }
                if *rules.driven.entry(target.clone()).or_insert(rest) != rest {
                    return Err(bad(format!("field {target} rests at another value in another move")));
                }
            }
        }
        for (op, rules) in &self.modules {
            let twice =
                rules.fixed.iter().find(|t| rules.start.contains_key(t) || rules.driven.contains_key(t));
            if let Some(target) = twice {
                let named = |entry: &&Move| entry.module == *op && entry.fixed.contains_key(target);
                let entry = self.moves.values().find(named);
                return Err(VocabularyError::Move {
                    file: entry.map(|entry| entry.file.clone()).unwrap_or_default(),
                    name: entry.map(|entry| entry.name.clone()).unwrap_or_default(),
                    reason: format!(
                        "field {target} is fixed here, and set by another move or the module's `start`"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Holds every field that a move drives or a module starts with to darktable's layouts: one version must have
    /// them all, and what moves drive must be numbers.
    fn check_fields(&self, layouts: &Layouts) -> Result<(), VocabularyError> {
        for entry in self.moves.values() {
            let bad = |reason: String| VocabularyError::Move {
                file: entry.file.clone(),
                name: entry.name.clone(),
                reason,
            };
            let module = layouts
                .module(&entry.module)
                .map_err(|error| bad(error.to_string()))?
                .ok_or_else(|| bad(format!("darktable has no module `{}`", entry.module)))?;
            let rules = self.rules(&entry.module);
            if rules.layer.is_some() && !module.masks {
                return Err(bad(format!("module {} does not blend", entry.module)));
            }
            let targets = || rules.targets();
            let layout = module.lowest_with(targets().map(|t| t.field.as_str()).collect::<Vec<_>>());
            let Some(layout) = layout else {
                let known = |t: &&Target| module.versions.iter().any(|v| v.field(&t.field).is_some());
                let stranger =
                    targets().find(|t| !known(t)).map_or("such set of fields".to_owned(), Target::to_string);
                return Err(bad(format!("module {} has no `{stranger}`", entry.module)));
            };
            if entry.opacity.is_some() && !module.masks {
                return Err(bad(format!("darktable does not blend {}: it has no `opacity`", entry.module)));
            }
            for (target, fixed) in &entry.fixed {
                if fixed.value(layout, target).is_none() {
                    return Err(bad(format!(
                        "`fixed.{target}` does not fit into that field of {}",
                        entry.module
                    )));
                }
            }
            for (target, form) in entry.set.iter().chain(&entry.scale) {
                let field = layout.field(&target.field).filter(|field| match (field.count, target.index) {
                    (None, None) => field.kind != FieldType::Text,
                    (Some(count), Some(index)) => index < count && field.kind != FieldType::Text,
                    _ => false,
                });
                let Some(field) = field else {
                    return Err(bad(format!(
                        "`{target}` is not a number, or element of an array, of {}",
                        entry.module
                    )));
                };
                let whole = |name| entry.parameters.get(name).is_some_and(|p| p.whole);
                let steps =
                    form.is_whole() && form.parameters().all(whole) && !entry.scale.contains_key(target);
                if field.kind != FieldType::Float && !steps {
                    return Err(bad(format!(
                        "`{target}` takes whole numbers: use whole factors, and parameters with `whole = true`"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl MoveEntry {
    fn check(self, file: &str) -> Result<Move, String> {
        if !is_name(&self.name) {
            return Err("the name may have lower-case letters, digits and underscores".into());
        }
        if self.description.trim().is_empty() || self.tags.is_empty() {
            return Err("description and tags may not be empty".into());
        }
        if self.axes.is_empty() && self.not_monotonic.is_none() {
            return Err("axes may be empty only with the reason in `not_monotonic`".into());
        }
        if let Some((axis, sign)) = self.axes.iter().find(|(_, sign)| sign.abs() != 1) {
            return Err(format!("axis {} has sign {sign}; write +1 or -1", axis.name()));
        }
        for (name, p) in &self.parameters {
            if !is_name(name) {
                return Err(format!("`{name}` may have lower-case letters, digits and underscores"));
            }
            if let Some(fault) = p.fault() {
                return Err(format!("parameter `{name}` needs {fault}"));
            }
        }
        if self.parameters.values().all(|p| p.direction || p.default == p.neutral) {
            return Err("its default values do nothing".into());
        }
        if self.not_monotonic.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
            return Err("`not_monotonic` is the reason, and may not be empty".into());
        }
        let checked = Move {
            set: forms(&self.set)?,
            scale: forms(&self.scale)?,
            opacity: self.opacity.as_deref().map(str::parse).transpose()?,
            fixed: self
                .fixed
                .into_iter()
                .map(|(f, value)| Ok((f.parse()?, value)))
                .collect::<Result<_, String>>()?,
            name: self.name,
            module: self.module,
            description: self.description,
            axes: self.axes,
            tags: self.tags,
            parameters: self.parameters,
            not_monotonic: self.not_monotonic,
            shown_on: self.shown_on,
            file: file.to_owned(),
        };
        let all = || checked.set.values().chain(checked.scale.values()).chain(&checked.opacity);
        let used: BTreeSet<&str> = all().flat_map(Form::parameters).collect();
        if let Some(name) = used.iter().find(|name| !checked.parameters.contains_key(**name)) {
            return Err(format!("`{name}` is not one of its parameters"));
        }
        if let Some(name) = checked.parameters.keys().find(|name| !used.contains(name.as_str())) {
            return Err(format!("its parameter `{name}` does nothing"));
        }
        if let Some(form) = all().position(|form| form.parameters().next().is_none()) {
            return Err(format!(
                "field number {form} is constant; a constant belongs in the module's `start`"
            ));
        }
        let neutral = checked.neutral();
        if let Some((target, _)) = checked.scale.iter().find(|(_, form)| form.value(&neutral) != 1.0) {
            return Err(format!("the factor for {target} must be 1 when the move is neutral"));
        }
        let ends = || {
            checked.strength().map(|(name, p)| [p.min, p.max].map(|x| BTreeMap::from([(name.to_owned(), x)])))
        };
        if let Some(form) = &checked.opacity
            && (form.value(&neutral) != 0.0
                || !ends().is_some_and(|ends| ends.iter().all(|at| (0.0..=100.0).contains(&form.value(at)))))
        {
            return Err(
                "`opacity` is 0 when the move is neutral, goes from 0 to 100, and takes the only strength"
                    .into(),
            );
        }
        Ok(checked)
    }
}

fn forms(entries: &BTreeMap<String, String>) -> Result<BTreeMap<Target, Form>, String> {
    entries.iter().map(|(field, form)| Ok((field.parse()?, form.parse()?))).collect()
}

/// Up to three names within a third of the length in edits, or that contain the word, nearest first.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = 1 + word.chars().count() / 3;
    let mut close: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let within = word.len() > 2 && (name.contains(word) || word.contains(name));
            let distance = strsim::levenshtein(word, name);
            (within || distance <= limit).then_some((distance, name))
        })
        .collect();
    close.sort_unstable();
    close.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
