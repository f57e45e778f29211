//! What the explorer knows of one branch: what is in effect there, what was tried, and what each try measured.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::candidate::{Candidate, ListedMove};
use crate::provider::explorer::second::part::Part;
use crate::provider::explorer::second::reading::Reading;
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

/// The least that makes a branch: to make it, one move, one look.
pub(super) const LEAST_SHARE: u64 = 3;

/// The moves in effect on a branch: values by parameter, by move and mask ([`key`]).
pub(super) type Settings = BTreeMap<String, BTreeMap<String, f64>>;

/// A move, with its mask if it has one: `exposure`, `exposure {"named":"sky"}`.
pub(super) fn key(name: &str, mask: Option<&Value>) -> String {
    match mask {
        Some(mask) => format!("{name} {mask}"),
        None => name.to_owned(),
    }
}

/// The move and the mask of a key.
pub(super) fn unkey(key: &str) -> (&str, Option<Value>) {
    match key.split_once(' ') {
        Some((name, mask)) => (name, serde_json::from_str(mask).ok()),
        None => (key, None),
    }
}

/// What a render said of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// Whether the direction was met, how far, what leaked, and warnings.
    pub check: VectorCheck,
    /// The distance from the baseline.
    pub difference: Difference,
    /// The picture's own figures, where they were told.
    pub stats: Option<ImageStats>,
    /// The commit.
    pub commit: Option<String>,
    /// The moves in effect, as the engine writes them.
    pub ops: Vec<String>,
}

/// One setting that was tried on a branch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    /// What was to be rendered.
    pub goal: Settings,
    /// What was seen; `None` when a call failed on the way.
    pub figures: Option<Figures>,
}

/// A branch of this session.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub name: String,
    pub aim: Aim,
    pub candidates: Vec<Candidate>,
    /// What explorer-2 read for it, and the moves for that.
    pub reading: Reading,
    pub parts: Vec<Part>,
    /// What is in effect now, and how the engine writes each move.
    pub settings: Settings,
    pub(super) ops: BTreeMap<String, String>,
    pub trials: Vec<Trial>,
    /// What was in effect when the present attempt began.
    pub(super) entry: (Settings, BTreeMap<String, String>),
    /// Settings that were turned down, by the checks or by a referee.
    pub rejected: Vec<Settings>,
    /// Whether the best setting was asked for at the end.
    pub settled: bool,
    /// Whether it is made to be argued about: a protocol's words ask for it, and no plan.
    pub argued: bool,
    /// Iterations that may be spent on it, and those spent.
    pub share: u64,
    pub spent: u64,
    /// Renders that may be made for it.
    pub looks: u64,
    /// Score and abandonment, once recorded.
    pub judged: Option<(u64, bool)>,
    /// Judgments that were refused, and the moves that the engine named then.
    pub refusals: u32,
    pub real_moves: Vec<String>,
}

impl Branch {
    /// A branch that was just made, with nothing to try on it.
    pub fn fresh(name: &str, aim: Aim) -> Self {
        Self {
            name: name.to_owned(),
            candidates: Vec::new(),
            reading: Reading::default(),
            parts: Vec::new(),
            aim,
            settings: Settings::new(),
            ops: BTreeMap::new(),
            trials: Vec::new(),
            entry: Default::default(),
            rejected: Vec::new(),
            settled: false,
            argued: false,
            share: LEAST_SHARE,
            spent: 1,
            looks: 1,
            judged: None,
            refusals: 0,
            real_moves: Vec::new(),
        }
    }
}

impl Branch {
    /// Whether it still wants a judgment that the engine may take.
    pub fn is_open(&self) -> bool {
        self.judged.is_none() && self.refusals < 2
    }
}

impl Figures {
    pub(super) fn read(data: &Value, ops: Vec<String>) -> Option<Self> {
        let versus = &data["versus_baseline"];
        Some(Self {
            check: VectorCheck::deserialize(&versus["vector"]).ok()?,
            difference: Difference::deserialize(&versus["difference"]).ok()?,
            stats: ImageStats::deserialize(&data["stats"]).ok(),
            commit: data["commit"].as_str().map(str::to_owned),
            ops,
        })
    }

    /// Whether the direction was met, or there was none that could be.
    pub fn went_there(&self) -> bool {
        self.check.direction != Verdict::Missed
    }
}

/// What an edit does to the moves in effect.
pub(super) fn edit(tool: &str, arguments: &Value, settings: &mut Settings, moves: &[ListedMove]) {
    match tool {
        "apply_primitive" => {
            let Some(name) = arguments["primitive_name"].as_str() else { return };
            let values = BTreeMap::deserialize(&arguments["parameter_values"]).unwrap_or_default();
            settings.insert(key(name, arguments.get("mask")), values);
        }
        "remove_module" => {
            let gone = arguments["module"].as_str().unwrap_or_default();
            let module = |name: &String| moves.iter().find(|m| &m.name == name).map(|m| m.module.as_str());
            settings.retain(|name, _| name != gone && module(name) != Some(gone));
        }
        _ => settings.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_set_and_taken_back_by_move_or_module() {
        let moves: Vec<ListedMove> = serde_json::from_value(serde_json::json!([
            {"name": "a", "module": "m", "axes": {}, "parameters": {}, "tags": []},
            {"name": "b", "module": "m", "axes": {}, "parameters": {}, "tags": []},
        ]))
        .unwrap();
        let mut settings = Settings::new();
        let apply = |name: &str, value: f64| {
            let values = serde_json::json!({ "x": value });
            serde_json::json!({"primitive_name": name, "parameter_values": values})
        };
        edit("apply_primitive", &apply("a", 1.0), &mut settings, &moves);
        edit("apply_primitive", &apply("a", 2.0), &mut settings, &moves);
        edit("apply_primitive", &apply("b", 1.0), &mut settings, &moves);
        assert_eq!(settings["a"]["x"], 2.0);
        let both = settings.clone();
        edit("remove_module", &serde_json::json!({"module": "a"}), &mut settings, &moves);
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["b"]);
        settings = both;
        edit("remove_module", &serde_json::json!({"module": "m"}), &mut settings, &moves);
        assert!(settings.is_empty());
    }
}
