//! `doctor`: whether everything that a session needs is there, and what to do where it is not.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use serde_json::json;

use super::batch;
use super::failure::Failure;
use super::setup::{App, interactive_deadline};
use crate::batch::nats::checkup::checkup;
use crate::batch::nats::{Address, Store};
use crate::overnight::many::{Requirements, list};
use crate::review::line;
use base::error::{Coded as _, ErrorCode, Fault};
use base::ids::Hash;
use darktable::dng::{DngOptions, write_dng};
use darktable::probe::{self, Doctor};
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderRequest};
use darktable::sandbox::Isolation;

/// One thing that was checked.
#[derive(Serialize)]
struct Check {
    what: String,
    ok: bool,
    /// Whether a session cannot run without it.
    needed: bool,
    found: String,
    remedy: Option<String>,
}

/// Looks at everything; the status is 6 when something needed is missing here, else that of what is wrong with the
/// store.
pub fn doctor(app: &App, store: Option<&Address>) -> Result<u8, Failure> {
    let darktable = probe::doctor(app.isolation, &interactive_deadline());
    let mut checks = vec![of_darktable(&darktable)];
    checks.extend(of_sandbox(&darktable, app.isolation == Isolation::Required));
    let mut requirements = None;
    if darktable.supported {
        let (check, picture) = test_render(app);
        checks.push(check);
        let version = darktable.version.clone();
        requirements = picture.zip(version).map(|(picture, version)| batch::required(version, &picture));
    }
    for (what, folder) in app.folders.written() {
        checks.push(writable(what, folder));
    }
    checks.push(writable("library", app.library.root()));
    checks.push(moves(app));
    checks.extend(providers(app));
    let mut status = 0;
    if !checks.iter().all(|check| check.ok || !check.needed) {
        status = ErrorCode::DarktableError.exit_status();
    }
    if let Some(address) = store {
        let (found, wrong) = of_store(address, requirements.as_ref());
        checks.extend(found);
        status = if status == 0 { wrong.map_or(0, ErrorCode::exit_status) } else { status };
    }
    let well = status == 0;
    let result = json!({ "well": well, "checks": checks, "darktable": darktable });
    app.output.result(&result, || {
        let mut text = String::new();
        for check in &checks {
            let mark = match (check.ok, check.needed) {
                (true, _) => "✓",
                (false, true) => "✗",
                (false, false) => "–",
            };
            text.push_str(&format!("{mark} {:22}  {}\n", check.what, line(&check.found)));
            if let Some(remedy) = check.remedy.as_ref().filter(|_| !check.ok) {
                text.push_str(&format!("  {:22}  → {}\n", "", line(remedy)));
            }
        }
        text.push_str(match (well, store) {
            (true, None) => "\nEverything needed is installed.\n",
            (true, Some(_)) => "\nEverything needed is installed, and the store can be used.\n",
            (false, None) => "\nSomething needed is missing.\n",
            (false, Some(_)) => "\nSomething needed is missing, or the store cannot be used.\n",
        });
        text
    })?;
    Ok(status)
}

/// Tries the store, and says what its batches ask of this machine; the code of what makes it unusable.
fn of_store(address: &Address, here: Option<&Requirements>) -> (Vec<Check>, Option<ErrorCode>) {
    let (steps, store) = checkup(address);
    let wrong = steps.iter().find(|step| !step.bearable).and_then(|step| step.wrong);
    let each = steps.into_iter().map(|step| Check {
        what: format!("store {}", step.what),
        ok: step.wrong.is_none(),
        needed: !step.bearable,
        found: step.found,
        remedy: step.remedy,
    });
    let mut checks: Vec<Check> = each.collect();
    checks.extend(store.map(|store| of_batches(&store, here)));
    (checks, wrong)
}

fn of_batches(store: &Store, here: Option<&Requirements>) -> Check {
    let (ok, found, remedy) = match asked(store, here) {
        Ok((all, open, declined)) if declined.is_empty() => {
            (true, format!("{all}, {open} of them open"), None)
        }
        Ok((all, open, declined)) => {
            let found = format!("{all}, {open} of them open; a worker here declines {}", declined.join("; "));
            (false, found, Some("use the versions that they were submitted with".to_owned()))
        }
        Err(fault) => (false, fault.message.clone(), fault.remedy()),
    };
    Check { what: "store batches".into(), ok, needed: false, found, remedy }
}

/// How many batches there are, how many are open, and what of these cannot be worked on here.
fn asked(store: &Store, here: Option<&Requirements>) -> Result<(usize, usize, Vec<String>), Fault> {
    let (all, mut open, mut declined) = (list::list(store)?, 0, Vec::new());
    for line in all.iter().filter(|line| line.state == "open") {
        open += 1;
        let asks = list::show(store, &line.name)?.requires;
        let differences = here.map_or_else(String::new, |here| asks.differences(here));
        if !differences.is_empty() {
            declined.push(format!("{}: {differences}", line.name));
        }
    }
    Ok((all.len(), open, declined))
}

fn of_darktable(doctor: &Doctor) -> Check {
    let found = match (&doctor.path, &doctor.version, &doctor.problem) {
        (Some(path), Some(version), None) => format!("{version} at {}", path.display()),
        (_, _, Some(problem)) => problem.clone(),
        _ => "not found".into(),
    };
    let by_hand = format!("install darktable {} or newer, with darktable-cli on PATH", doctor.oldest);
    Check {
        what: "darktable".into(),
        ok: doctor.supported,
        needed: true,
        found,
        // One that was not started for want of a sandbox needs what the next check names.
        remedy: doctor.unconfined.is_none().then(|| doctor.install.map_or(by_hand, str::to_owned)),
    }
}

/// What confines darktable; `None` if it does not run anyway.
fn of_sandbox(doctor: &Doctor, needed: bool) -> Option<Check> {
    let by_hand = "use Linux 5.13 or newer with Landlock enabled, or install bubblewrap; without either, open only photos \
                   that you trust";
    let found = match (&doctor.sandbox, &doctor.unconfined) {
        (Some(sandbox), _) => format!("{sandbox}: no network, no files but its own"),
        (None, Some(reason)) => format!("none: {reason}"),
        (None, None) => return None,
    };
    Some(Check {
        what: "sandbox".into(),
        ok: doctor.sandbox.is_some(),
        needed,
        found,
        remedy: Some(doctor.install_sandbox.unwrap_or(by_hand).to_owned()),
    })
}

/// Develops a tiny raw, around the cache; with the picture, if there is one.
fn test_render(app: &App) -> (Check, Option<Picture>) {
    let started = Instant::now();
    let outcome = render_tiny(app);
    let (ok, found, remedy) = match &outcome {
        Ok(picture) => {
            let seconds = started.elapsed().as_secs_f64();
            (
                true,
                format!(
                    "{}×{} pixels in {seconds:.1} s, including the baseline",
                    picture.width, picture.height
                ),
                None,
            )
        }
        Err(failure) => (false, failure.message().to_owned(), failure.help()),
    };
    (Check { what: "test render".into(), ok, needed: true, found, remedy }, outcome.ok())
}

/// A tiny raw, as darktable develops it here.
pub(super) fn render_tiny(app: &App) -> Result<Picture, Failure> {
    let (width, height) = (96u32, 64u32);
    let level = |i: u32| u8::try_from(40 + (i % width) * 2 % 160).unwrap_or(0);
    let rgb = (0..width * height).flat_map(|i| [level(i), level(i / 2), level(i / 3)]).collect();
    let bytes = write_dng(&Picture { width, height, rgb }, &DngOptions::default())?;
    let dir =
        tempfile::tempdir().map_err(|e| Failure::file("make a folder in", &std::env::temp_dir(), &e))?;
    let path = dir.path().join("doctor.dng");
    std::fs::write(&path, &bytes).map_err(|e| Failure::file("write", &path, &e))?;
    let state = app.ask()?(&path)?.state;
    let raw = RawFile { path, sha256: Hash::of(&bytes) };
    let request = RenderRequest { raw: &raw, state: &state, long_edge: 64, quality: Quality::Preview };
    let rendered = app.uncached_renderer()?.render(&request, &interactive_deadline(), &ByHand)?;
    Ok((*rendered.picture).clone())
}

fn writable(what: &str, folder: &Path) -> Check {
    let tried = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    let (ok, found) = match tried {
        Ok(_) => (true, folder.display().to_string()),
        Err(error) => (false, format!("{}: {error}", folder.display())),
    };
    let remedy = Some("make it writable, or choose another folder (see `chemigram --help`)");
    Check { what: format!("{what} folder"), ok, needed: true, found, remedy: remedy.map(str::to_owned) }
}

fn moves(app: &App) -> Check {
    let (ok, found, remedy) = match app.vocabulary() {
        Ok(vocabulary) => (true, format!("{} moves", vocabulary.moves().count()), None),
        Err(failure) => (false, failure.message().to_owned(), failure.help()),
    };
    Check { what: "vocabulary".into(), ok, needed: true, found, remedy }
}

/// A missing key is no fault: the explorer needs none.
fn providers(app: &App) -> Vec<Check> {
    let registry = app.registry();
    let check = |(name, _, profile): (
        &str,
        _,
        Result<&crate::provider::profile::Profile, &crate::provider::profile::SetupError>,
    )| {
        let (ok, found, remedy) = match profile {
            Ok(profile) if registry.has_key(profile) => (true, profile.summary.clone(), None),
            Ok(profile) => {
                let env = profile.key_env.clone().unwrap_or_default();
                (false, "no key".to_owned(), Some(format!("to use it: export {env}=…")))
            }
            Err(error) => (false, error.to_string(), error.remedy()),
        };
        Check { what: format!("provider {name}"), ok, needed: false, found, remedy }
    };
    registry.list().map(check).collect()
}
