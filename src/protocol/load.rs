//! From a file to a protocol: read, put values in, decode, build, look at its shape.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::build::{self, Host};
use super::compat::CompatDocument;
use super::finding::{Code, Dialect, Finding, Findings, Severity};
use super::graph::{self, Graph};
use super::model::Protocol;
use super::schema::{Document, Variable};
use super::source::{Format, Source, join};
use super::variables::{Bound, Purpose, Values};
use super::{ProtocolError, prose};
use base::hint::did_you_mean;

/// How a file is to be loaded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its notation; by its name, when left out.
    pub format: Option<Format>,
    /// Whether a file of the original format is held to version 2.
    pub strict: bool,
    /// Values for its variables.
    pub values: Values,
    /// What for.
    pub purpose: Purpose,
    /// What the host allows.
    pub host: Host,
}

/// What came of loading a file.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file's name, without its folder and ending.
    pub name: String,
    /// How it was read.
    pub dialect: Dialect,
    /// What is wrong, in the file's order.
    pub findings: Vec<Finding>,
    draft: Option<Protocol>,
}

impl Loaded {
    /// Whether something is wrong that keeps it from running.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The protocol; an error carries every finding.
    pub fn into_protocol(self) -> Result<Protocol, ProtocolError> {
        match self.draft.filter(|_| !self.findings.iter().any(|f| f.severity == Severity::Error)) {
            Some(protocol) => Ok(protocol),
            None => Err(ProtocolError::Refused { name: self.name, findings: self.findings }),
        }
    }

    /// The protocol as far as it could be built, for a look at it.
    pub fn draft(&self) -> Option<&Protocol> {
        self.draft.as_ref()
    }
}

/// Loads a protocol. `file` is its name as a person knows it.
pub fn load(file: &str, text: &str, options: &Options) -> Loaded {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let name = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem).to_owned();
    let mut findings = Findings::default();
    let format = options.format.unwrap_or_else(|| Format::of(file, text));
    let source = match Source::read(text, format) {
        Ok(source) => source,
        Err((at, message)) => {
            findings.add(Code::P001, "", message);
            for finding in &mut findings.list {
                finding.at = at;
            }
            return Loaded { name, dialect: Dialect::Compat, findings: findings.list, draft: None };
        }
    };
    for path in &source.twice {
        let key = path.rsplit('.').next().unwrap_or(path);
        findings.add(Code::P001, path, format!("`{key}` is given twice"));
    }
    let draft = document(&source.value, &name, options, &mut findings);
    let Findings { dialect, mut list } = findings;
    for finding in &mut list {
        finding.at = source.place(&finding.path);
    }
    // Stable, so that findings of one place stay in the order in which they were found.
    list.sort_by_key(|finding| finding.at);
    Loaded { name, dialect, findings: list, draft }
}

/// Everything after the file was read.
fn document(source: &Value, name: &str, options: &Options, findings: &mut Findings) -> Option<Protocol> {
    findings.dialect = dialect(source, options.strict, findings)?;
    let mut value = source.clone();
    let nothing = || Value::Object(serde_json::Map::new());
    let variables = value.as_object_mut()?.remove("variables").unwrap_or_else(nothing);
    let mut declared: BTreeMap<String, Variable> = BTreeMap::new();
    let mut bound = match findings.dialect {
        Dialect::Strict => {
            declared = decode(variables, "variables", findings)?;
            Bound::declared(&declared, &options.values, options.purpose, findings)
        }
        Dialect::Compat => {
            let defaults = decode(variables, "variables", findings)?;
            Bound::compat(&defaults, &options.values, findings)
        }
    };
    bound.fill_structure(&mut value, "", findings);
    let mut document: Document = match findings.dialect {
        Dialect::Strict => decode(value, "", findings)?,
        Dialect::Compat => decode::<CompatDocument>(value, "", findings)?.into(),
    };
    document.variables = declared;
    Some(assemble(&document, name, &options.host, &mut bound, findings))
}

/// From decoded fields to a protocol, with everything that can be said of it.
pub(super) fn assemble(
    document: &Document,
    name: &str,
    host: &Host,
    bound: &mut Bound,
    findings: &mut Findings,
) -> Protocol {
    let protocol = build::build(document, name, host, bound, findings);
    for variable in bound.slots.keys().filter(|variable| !bound.used.contains(*variable)) {
        let message = format!("nothing uses the variable `{variable}`");
        findings.add(Code::P022, join("variables", variable), message);
    }
    shape(document, &protocol, findings);
    protocol
}

/// How the file wants to be read.
fn dialect(source: &Value, strict: bool, findings: &mut Findings) -> Option<Dialect> {
    let Value::Object(fields) = source else {
        findings.add(Code::P001, "", "a protocol is an object with `initialState` and `states`");
        return None;
    };
    let states = fields.get("states").and_then(Value::as_array);
    let declares = states.into_iter().flatten().any(|state| state.get("transitions").is_some());
    match fields.get("protocolVersion").map(Value::as_u64) {
        Some(Some(2)) => Some(Dialect::Strict),
        None | Some(Some(1)) if strict || declares => Some(Dialect::Strict),
        None | Some(Some(1)) => Some(Dialect::Compat),
        Some(_) => {
            findings.add(Code::P001, "protocolVersion", "there are versions 1 (the original format) and 2");
            None
        }
    }
}

/// Decodes a value. Unknown fields are said, each, and passed over; what else is wrong is said once.
fn decode<T: DeserializeOwned>(mut value: Value, within: &str, findings: &mut Findings) -> Option<T> {
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(decoded) => return Some(decoded),
            Err(error) => error,
        };
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let message = error.inner().to_string();
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let whole = |path: &str| match (within, path) {
            ("", path) => path.to_owned(),
            (within, "") => within.to_owned(),
            (within, path) if path.starts_with('[') => format!("{within}{path}"),
            (within, path) => join(within, path),
        };
        let Some((field, rest)) = unknown else {
            let variant = message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once('`'));
            let hint = variant.map(|(name, rest)| did_you_mean(name, rest.split('`').skip(1).step_by(2)));
            let message = format!("{}{}", message.replace('\n', " "), hint.unwrap_or_default());
            findings.add(Code::P001, whole(&path), message);
            return None;
        };
        // The path may name the object or the field in it.
        let holder = path.strip_suffix(field).map_or(path.as_str(), |p| p.strip_suffix('.').unwrap_or(p));
        let removed = [holder, path.as_str()].iter().find_map(|p| {
            let object = at_path(&mut value, p)?.as_object_mut()?;
            object.remove(field).map(|_| (*p).to_owned())
        });
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let hint = did_you_mean(field, known.iter().copied());
        let message = format!("there is no field `{field}`{hint}");
        match removed {
            Some(holder) => findings.add(Code::P050, whole(&join(&holder, field)), message),
            None => {
                findings.add(Code::P001, whole(&path), message);
                return None;
            }
        }
    }
}

/// The value at a path such as `states[2].budget`.
fn at_path<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut value = value;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (key, indices) = part.split_once('[').unwrap_or((part, ""));
        if !key.is_empty() {
            value = value.get_mut(key)?;
        }
        for index in indices.split('[').filter_map(|i| i.strip_suffix(']')) {
            value = value.get_mut(index.parse::<usize>().ok()?)?;
        }
    }
    Some(value)
}

/// What the protocol's shape says.
fn shape(document: &Document, protocol: &Protocol, findings: &mut Findings) {
    use Code::{P001, P002, P003, P015};
    let broken = [P001, P002, P003, P015].iter().any(|code| findings.has(*code));
    if broken {
        return;
    }
    let names = protocol.names();
    match findings.dialect {
        Dialect::Compat => {
            let (graph, mined) = prose::graph(protocol);
            for (index, mined) in mined.iter().enumerate() {
                for unknown in &mined.unknown {
                    let hint = did_you_mean(unknown, names.iter().copied());
                    let message = format!("the criteria lead to `{unknown}`, which is not declared{hint}");
                    findings.add(Code::P010, format!("states[{index}].validationCriteria"), message);
                }
            }
            graph.lint(protocol.initial, &names, findings);
        }
        Dialect::Strict if !findings.has(Code::P010) => {
            Graph::of(protocol).lint(protocol.initial, &names, findings);
            let bounded = document.max_iterations.is_some()
                || document.budget.is_some_and(|b| {
                    b.time_seconds.or(b.max_iterations).or(b.max_model_calls).or(b.max_tokens).is_some()
                });
            if !bounded {
                graph::unbounded(protocol, findings);
            }
            // A protocol that does not end has no wrap-up to speak of.
            if !findings.has(Code::P012) && !findings.has(Code::P013) {
                graph::wrap_up(protocol, findings);
            }
        }
        Dialect::Strict => {}
    }
}
