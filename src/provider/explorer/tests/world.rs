//! A small simulated session: moves that push axes in proportion to their strength.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::*;
use crate::conversation::{ToolCall, ToolResult};
use pixels::metrics::axes::Axis;
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::difference::Difference;
use pixels::metrics::vectors::vector_axes;

/// A move: name, module, pushed axes as declared, range and default, and what one unit of its parameter
/// really does in steps; then the mean ΔE of one unit.
pub(super) type Row =
    (&'static str, &'static str, &'static [(Axis, i8)], [f64; 3], &'static [(Axis, f64)], f64);

pub(super) const MOVES: &[Row] = &[
    (
        "contrast",
        "colorbalancergb",
        &[(Axis::Contrast, 1)],
        [-0.8, 0.8, 0.3],
        &[(Axis::Contrast, 9.0), (Axis::Chroma, 2.0)],
        8.0,
    ),
    ("warmth", "temperature", &[(Axis::Warmth, 1)], [-90.0, 90.0, 25.0], &[(Axis::Warmth, 0.1)], 0.1),
    (
        "shadows_lift",
        "toneequal",
        &[(Axis::Shadows, 1)],
        [0.0, 2.0, 0.7],
        &[(Axis::Shadows, 2.5), (Axis::Contrast, -1.0)],
        2.0,
    ),
    (
        "fill_light",
        "shadhi",
        &[(Axis::Shadows, 1)],
        [0.0, 100.0, 50.0],
        &[(Axis::Shadows, 0.05), (Axis::Blacks, 0.05)],
        0.05,
    ),
    (
        "highlights_recover",
        "toneequal",
        &[(Axis::Highlights, -1)],
        [0.0, 2.0, 0.8],
        &[(Axis::Highlights, -2.0)],
        1.5,
    ),
    ("clarity", "bilat", &[(Axis::LocalContrast, 1)], [0.0, 2.0, 0.5], &[(Axis::LocalContrast, 4.0)], 0.8),
    // Clips (see `measure`).
    ("exposure", "exposure", &[(Axis::Brightness, 1)], [-3.0, 3.0, 0.5], &[(Axis::Brightness, 20.0)], 20.0),
    // Declared to push chroma, but this picture is grey.
    ("chroma", "colorbalancergb", &[(Axis::Chroma, 1)], [-1.0, 1.0, 0.25], &[], 0.2),
];

pub(super) struct World {
    pub(super) plan: String,
    pub(super) vectors: BTreeMap<String, (String, String)>,
    pub(super) cap: u64,
    pub(super) seconds: u64,
    pub(super) fail: fn(&str, &Value) -> Option<&'static str>,
    /// Iterations after which the budget is gone in the middle of a reply.
    pub(super) cut: u64,
    pub(super) used: u64,
    pub(super) standing: String,
    pub(super) branches: BTreeMap<String, BTreeMap<String, f64>>,
    /// What was rendered, by the number of its commit.
    pub(super) rendered: Vec<BTreeMap<String, f64>>,
    pub(super) judgments: BTreeMap<String, Value>,
    pub(super) closing: bool,
    pub(super) ended: Option<String>,
    pub(super) called: Vec<String>,
}

impl World {
    pub(super) fn new(cap: u64, vectors: &[(&str, &str)]) -> Self {
        let mut plan = "Session plan for photo `p`. Nothing changes until you confirm it.\n\n\
             Baseline: main (commit abc)\nBranches to make, each from the baseline:\n"
            .to_owned();
        for (name, direction) in vectors {
            plan.push_str(&format!("- branch_b_{name}: vector `{name}`: {direction}\n"));
        }
        let many = vectors.len();
        plan.push_str(&format!("Budget: SECONDS s, {cap} iterations, {many} branches\nCriteria: taste\n"));
        let named = |(name, direction): &(&str, &str)| {
            (format!("branch_b_{name}"), ((*name).to_owned(), (*direction).to_owned()))
        };
        Self {
            plan,
            vectors: vectors.iter().map(named).collect(),
            cap,
            seconds: 1800,
            fail: |_, _| None,
            cut: u64::MAX,
            used: 0,
            standing: String::new(),
            branches: BTreeMap::new(),
            rendered: Vec::new(),
            judgments: BTreeMap::new(),
            closing: false,
            ended: None,
            called: Vec::new(),
        }
    }

    /// Lets an explorer work to its end; the conversation.
    pub(super) fn run(&mut self, explorer: &Explorer) -> Vec<Message> {
        let plan = self.plan.replace("SECONDS", &self.seconds.to_string());
        let mut messages = vec![Message::User { text: plan, images: Vec::new() }];
        for _ in 0..200 {
            let reply = explorer.reply("", &[], &messages).message;
            let Message::Assistant { calls, .. } = &reply else { panic!("{reply:?}") };
            let calls = calls.clone();
            messages.push(reply);
            if self.ended.is_some() {
                assert_eq!(calls, []);
                return messages;
            }
            assert!(!calls.is_empty(), "a reply without a call before the end");
            let results = calls.iter().map(|call| self.answer(call)).collect();
            messages.push(Message::Results { results });
            if (self.used >= self.cap.min(self.cut)) && !self.closing && self.ended.is_none() {
                self.closing = true;
                let text = "Exploration is over: the iterations are spent. Nothing can be edited.".into();
                messages.push(Message::User { text, images: Vec::new() });
            }
        }
        panic!("it never ended: {:?}", self.called);
    }

    pub(super) fn answer(&mut self, call: &ToolCall) -> ToolResult {
        self.called.push(call.name.clone());
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let free = [
            "confirm_session",
            "record_judgment",
            "end_mode_b_session",
            "propose_notes_update",
            "mode_b_status",
        ]
        .contains(&call.name.as_str());
        let gone = !free && (self.closing || self.used >= self.cap.min(self.cut));
        let outcome = match (self.fail)(&call.name, &arguments) {
            _ if gone => Err(("BUDGET_EXHAUSTED", json!({}))),
            failed => {
                self.used += u64::from(!free);
                match failed {
                    Some(code) => Err((code, json!({}))),
                    None => self.run_tool(&call.name, &arguments),
                }
            }
        };
        let is_error = outcome.is_err();
        let body = match outcome {
            Ok(data) => json!({"ok": true, "data": data}),
            Err((code, details)) => {
                let error = json!({"code": code, "message": "no", "details": details, "recoverable": true});
                json!({"ok": false, "error": error})
            }
        };
        self.seconds = self.seconds.saturating_sub(7);
        let text = format!("{body}\n[budget: {} s, {} iterations left]", self.seconds, self.cap - self.used);
        ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text,
            images: Vec::new(),
            is_error,
            figures: serde_json::Map::new(),
        }
    }

    pub(super) fn run_tool(&mut self, name: &str, arguments: &Value) -> Result<Value, (&'static str, Value)> {
        match name {
            "read_context" => Ok(json!({})),
            "confirm_session" => {
                assert_eq!(arguments["vectors"].as_array().unwrap().len(), self.vectors.len());
                let rows: Vec<Value> =
                    self.vectors.iter().map(|(b, v)| json!({"branch": b, "vector": v.0})).collect();
                Ok(json!({"confirmed": true, "branches_to_make": rows}))
            }
            "list_vocabulary" => Ok(json!({"count": MOVES.len(), "moves": listed()})),
            "branch" => {
                self.standing = arguments["name"].as_str().unwrap().to_owned();
                let (vector, direction) = self.vectors[&self.standing].clone();
                assert!(self.branches.insert(self.standing.clone(), BTreeMap::new()).is_none());
                let vector = json!({"name": vector, "direction": direction, "intensity": null});
                Ok(json!({"branch": self.standing, "vector": vector}))
            }
            "apply_primitive" => {
                let name = arguments["primitive_name"].as_str().unwrap();
                let value = arguments["parameter_values"]["amount"].as_f64().unwrap();
                let range = MOVES.iter().find(|row| row.0 == name).unwrap().3;
                assert!((range[0]..=range[1]).contains(&value), "{name} {value}");
                self.branches.get_mut(&self.standing).unwrap().insert(name.to_owned(), value);
                Ok(json!({"branch": self.standing, "op": op(name, value), "unchanged": false}))
            }
            "remove_module" => {
                let gone = arguments["module"].as_str().unwrap();
                assert!(self.branches.get_mut(&self.standing).unwrap().remove(gone).is_some());
                Ok(json!({"op": "remove"}))
            }
            "reset" => {
                self.branches.get_mut(&self.standing).unwrap().clear();
                Ok(json!({"op": "reset"}))
            }
            "render_preview" => {
                let (difference, vector) = self.measure(&self.standing);
                self.rendered.push(self.branches[&self.standing].clone());
                let commit = (self.rendered.len() - 1).to_string();
                Ok(json!({"commit": commit, "versus_baseline": {"difference": difference, "vector": vector}}))
            }
            "record_judgment" => {
                let branch = arguments["branch"].as_str().unwrap();
                let tip = self.branches.get_mut(branch).unwrap();
                let judged = match arguments["hash"].as_str() {
                    Some(commit) => &self.rendered[commit.parse::<usize>().unwrap()],
                    None => &*tip,
                };
                let real: Vec<String> = judged.iter().map(|(name, value)| op(name, *value)).collect();
                for claim in arguments["key_moves"].as_array().into_iter().flatten() {
                    if !real.iter().any(|made| claim == made) {
                        return Err(("INVALID_INPUT", json!({"real_moves": real})));
                    }
                }
                if arguments["abandoned"] == true {
                    tip.clear();
                }
                self.judgments.insert(branch.to_owned(), arguments.clone());
                Ok(json!({"recorded": branch}))
            }
            "propose_notes_update" | "log_vocabulary_gap" => Ok(json!({})),
            "end_mode_b_session" => {
                if !self.closing && self.judgments.len() < self.branches.len() {
                    return Err(("STATE_ERROR", json!({})));
                }
                self.ended = arguments["session_summary"].as_str().map(str::to_owned);
                Ok(json!({"ending": true}))
            }
            other => panic!("{other} was not expected"),
        }
    }

    pub(super) fn measure(&self, branch: &str) -> (Difference, VectorCheck) {
        let (vector, direction) = &self.vectors[branch];
        let axes = vector_axes(vector, direction);
        let mut steps: BTreeMap<Axis, f64> = BTreeMap::new();
        let mut mean = 0.0;
        for (name, value) in &self.branches[branch] {
            let row = MOVES.iter().find(|row| row.0 == name).unwrap();
            row.4.iter().for_each(|(axis, push)| *steps.entry(*axis).or_default() += push * value);
            mean += row.5 * value.abs();
        }
        let asked = axes.iter().map(|(axis, sign)| f64::from(*sign) * steps.get(axis).unwrap_or(&0.0));
        let moved = asked.sum::<f64>() / (axes.len().max(1)) as f64;
        let beside: f64 =
            steps.iter().filter(|(a, _)| axes.iter().all(|(b, _)| *a != b)).map(|(_, s)| s.abs()).sum();
        let direction = match moved {
            _ if axes.is_empty() => Verdict::NotApplicable,
            moved if moved >= 1.0 => Verdict::Met,
            _ => Verdict::Missed,
        };
        let mut warnings = Vec::new();
        if mean < 0.3 {
            warnings.push(format!("nobody will see this edit: mean ΔE is {mean:.2}"));
        }
        if mean > 12.0 {
            warnings.push(format!("a very large edit: mean ΔE is {mean:.1}"));
        }
        if self.branches[branch].get("exposure").is_some_and(|ev| *ev > 0.15) {
            warnings.push("clipped highlights grew from 0.0 % to 4.0 % of the picture".to_owned());
        }
        let leakage = (moved.abs() >= 0.5).then(|| beside / 8.0 / moved.abs());
        let difference = Difference {
            mean,
            p95: mean * 2.0,
            max: mean * 4.0,
            changed_pct: 50.0,
            max_channel: 40,
            resized: false,
            hue_shift: 0.0,
        };
        (difference, VectorCheck { direction, moved, leakage, warnings })
    }
}

pub(super) fn op(name: &str, value: f64) -> String {
    format!("{name} amount={value:.2}")
}

pub(super) fn listed() -> Value {
    let row = |(name, module, axes, [min, max, default], ..): &Row| {
        let axes: BTreeMap<&str, i8> = axes.iter().map(|(axis, sign)| (axis.name(), *sign)).collect();
        json!({
            "name": name, "description": "", "module": module, "maskable": true, "tags": [], "axes": axes,
            "parameters": {"amount": {"min": min, "max": max, "default": default, "neutral": 0.0}},
        })
    };
    MOVES.iter().map(row).collect()
}
