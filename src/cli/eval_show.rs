//! `eval list` and `eval show`: runs as figures, for a program and for a person.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::eval::{HomeArg, duration, home, usd};
use super::eval_judge;
use super::failure::Failure;
use super::setup::App;
use crate::eval::agreement;
use crate::eval::judge::Judged;
use crate::eval::manifest::{self, CellStatus, Manifest};
use crate::review::line as one_line;

/// A run in figures, for a program.
pub(super) fn summary(manifest: &Manifest, folder: &Path) -> serde_json::Value {
    let (cost, tokens) = manifest.spent();
    let arms: Vec<serde_json::Value> = manifest
        .arms()
        .iter()
        .map(|arm| {
            let mean = manifest.mean(arm, &manifest.golden.primary);
            let (mean, scenarios) = (mean.map(|m| m.0), mean.map_or(0, |m| m.1));
            json!({ "arm": arm, "mean": mean, "scenarios": scenarios, "money": manifest.money(arm) })
        })
        .collect();
    json!({
        "run": manifest.run, "folder": folder, "golden": manifest.golden.version,
        "primary": manifest.golden.primary, "cells": manifest.tally(), "arms": arms,
        "broken": manifest.broken(), "went_on": manifest.went_on(), "cost_micro_usd": cost, "tokens": tokens, "seconds": manifest.seconds,
    })
}

/// The same for a person.
pub(super) fn described(manifest: &Manifest, folder: &Path) -> String {
    let tally = manifest.tally();
    let (cost, tokens) = manifest.spent();
    let mut text = format!(
        "{} on {}: {} sessions done, {} failed, {} not run; {}, {} tokens, {}\n",
        manifest.run,
        manifest.golden.version,
        tally.done,
        tally.failed,
        tally.not_run,
        usd(cost),
        tokens,
        duration(manifest.seconds)
    );
    let primary = &manifest.golden.primary;
    for arm in manifest.arms() {
        let _ = match manifest.mean(&arm, primary) {
            Some((mean, n)) => writeln!(text, "  {arm}: {primary} {mean:.3} over {n} scenarios"),
            None => writeln!(text, "  {arm}: no session has a value for {primary}"),
        };
        if let Some(words) = manifest.money(&arm).words() {
            let _ = writeln!(text, "    tokens: {words}");
        }
    }
    for words in manifest.went_on() {
        let _ = writeln!(text, "  {words}");
    }
    for broken in manifest.broken() {
        let _ = writeln!(
            text,
            "  invariant failed: {} on {}: {}",
            broken.metric,
            broken.scenario,
            one_line(&broken.why)
        );
    }
    for cell in &manifest.cells {
        let why = match &cell.status {
            CellStatus::Failed { failures } => {
                failures.last().map(|f| f.message.as_str()).unwrap_or_default()
            }
            CellStatus::NotRun { why, .. } => why,
            CellStatus::Done(_) => continue,
        };
        let _ =
            writeln!(text, "  missing: {} #{} {}: {}", cell.scenario, cell.repeat, cell.arm(), one_line(why));
    }
    let _ = writeln!(text, "{}", folder.join(manifest::MANIFEST_FILE).display());
    let _ = write!(text, "To look at it: chemigram eval report {}", manifest.run);
    text
}

pub(super) fn list(app: &App, arg: &HomeArg) -> Result<(), Failure> {
    let home = home(app, arg);
    let mut runs = Vec::new();
    for name in manifest::runs(&home).into_iter().rev() {
        let folder = home.join("runs").join(&name);
        match Manifest::read(&folder) {
            Ok(manifest) => runs.push((manifest, folder)),
            Err(error) => app.output.remark(&format!("{name}: {error}")),
        }
    }
    let values: Vec<_> = runs.iter().map(|(manifest, folder)| summary(manifest, folder)).collect();
    app.output.result(&values, || {
        if runs.is_empty() {
            return format!("No runs in {}. Plan one with `chemigram eval run --dry-run`.", home.display());
        }
        let mut text = String::new();
        for (manifest, _) in &runs {
            let tally = manifest.tally();
            let arms: Vec<String> = manifest
                .arms()
                .iter()
                .map(|arm| match manifest.mean(arm, &manifest.golden.primary) {
                    Some((mean, _)) => format!("{arm} {mean:.3}"),
                    None => arm.to_string(),
                })
                .collect();
            let (run, golden) = (&manifest.run, &manifest.golden.version);
            let all = manifest.cells.len();
            let _ = writeln!(text, "{run}  {golden}  {}/{all}  {}", tally.done, arms.join(", "));
        }
        text
    })
}

pub(super) fn show(app: &App, name: &str, arg: &HomeArg) -> Result<(), Failure> {
    let folder = manifest::find(&home(app, arg), name)?;
    let manifest = Manifest::read(&folder)?;
    let agreed = agreement::of(&manifest, &home(app, arg), &app.library)?;
    let mut value = serde_json::to_value(&manifest).unwrap_or_default();
    if let Some(fields) = value.as_object_mut().filter(|_| !agreed.is_empty()) {
        fields.insert("agreement".into(), json!(agreed));
    }
    app.output.result(&value, || {
        let mut text = described(&manifest, &folder);
        for one in &agreed {
            let _ = write!(text, "\n{}", one.words(&manifest.arms()));
        }
        let primary = &manifest.golden.primary;
        let _ = write!(text, "\n\n{primary} by scenario, each repeat:\n");
        for arm in manifest.arms() {
            let _ = writeln!(text, "{arm}");
            for scenario in manifest.golden.scenarios.keys() {
                let cells = manifest.of_arm(&arm).filter(|(cell, _)| cell.scenario == *scenario);
                let values: Vec<String> = cells
                    .map(|(_, done)| match done.measured.get(primary) {
                        Some(value) => format!("{value:.3}"),
                        None => "–".into(),
                    })
                    .collect();
                let _ = writeln!(text, "  {scenario:<32} {}", values.join("  "));
            }
        }
        if let Some(judged) = Judged::read(&folder) {
            let _ = write!(text, "\n{}", eval_judge::described(&judged));
        }
        text
    })
}
