//! Puts the open cells of a run into a store: once, however often it is done.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{Cell, most};
use crate::batch::changes::{Changed, Holds, Watched};
use crate::batch::nats::{Address, Store, StoreError};
use crate::eval::cells;
use crate::eval::context::EvalContext;
use crate::eval::golden::MANIFEST_FILE;
use crate::eval::manifest::{CellRecord, Contestant, RunRequest};
use crate::eval::metrics::METRICS_VERSION;
use crate::eval::plan::{Plan, Task};
use crate::eval::scenario::SCENARIO_FILE;
use crate::eval::steering::FREE;
use crate::launch;
use crate::overnight::many::submit::{Elsewhere, names, put};
use crate::overnight::many::{FORMAT, Head, Job, Offer, Requirements, Work, head_key, pack, read};
use crate::overnight::plan::Caps;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::Hash;

/// Where the open cells of a run are worked on: as requested, else where they were submitted and not collected yet.
///
/// # Errors
/// They are in another store than the requested one.
pub fn place(folder: &Path, requested: Option<&Address>) -> Result<Option<Address>, Fault> {
    let Some(elsewhere) = Elsewhere::within(folder) else { return Ok(requested.cloned()) };
    match requested {
        Some(address) if address.to_string() == elsewhere.store => Ok(Some(address.clone())),
        Some(_) => {
            let Elsewhere { store, batch } = elsewhere;
            let message = format!("the sessions of this run are in {store}, as the batch {batch}");
            let remedy =
                format!("follow it there, or end it: `chemigram batch cancel {batch} --store {store}`");
            Err(Fault::new(ErrorCode::StateError, message).with("remedy", remedy))
        }
        None => elsewhere.store.parse().map(Some).map_err(|e: String| Fault::new(ErrorCode::InvalidInput, e)),
    }
}

impl Plan {
    /// Puts the open cells of a run into a store, or finds them there; the name of their batch.
    ///
    /// # Errors
    /// The store, a raw that is missing, a photo that cannot be staged, a file that the system refuses.
    pub fn submit(
        &self,
        store: &Store,
        context: &EvalContext,
        folder: &Path,
        requires: &Requirements,
    ) -> Result<String, Fault> {
        let told = |e: StoreError| Fault::from(&e);
        let known = Elsewhere::within(folder).map(|elsewhere| elsewhere.batch);
        let open = match &known {
            Some(name) => store.get::<Head>(&head_key(name)).map_err(told)?,
            None => None,
        };
        let (name, caps) = match (known, open.filter(|head| !head.value.over)) {
            // Its submitter may have died in the middle: what is missing is put there below.
            (Some(name), Some(head)) => (name, read::<Offer>(store, &head.value.offer)?.caps),
            _ => {
                // By the time, so that the newest is the last: a run may be submitted again.
                let now = Timestamp::now();
                let own = Hash::of(format!("{} {} {now}", folder.display(), std::process::id())).to_string();
                let short: String = own.chars().take(6).collect();
                (format!("{}-{short}", now.strftime("%Y-%m-%dT%H-%M-%SZ")), self.caps())
            }
        };
        Elsewhere { store: store.address().to_string(), batch: name.clone() }.write(folder)?;
        let set = pack(store, self.set(context)?)?;
        let (mut jobs, mut called, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (record, task) in self.manifest.cells.iter().zip(&self.tasks) {
            // Two cells that are alike are one session.
            if record.done().is_some() || !seen.insert(record.key.clone()) {
                continue;
            }
            let cell = self.cell(store, context, record, task, set.clone())?;
            called.push(format!("{} {}", cell.called(), record.arm()));
            let (batch, place) = (name.clone(), jobs.len());
            let job = Job { format: FORMAT, batch, place, work: Work::Cell(Box::new(cell)) };
            // Who collects reads it here: it leaves the queue when it is over.
            store.put(&serde_json::to_vec(&job).unwrap_or_default()).map_err(told)?;
            jobs.push(job);
        }
        let offer = Offer {
            format: FORMAT,
            plan: Hash::of(&name),
            begun: self.manifest.begun,
            caps,
            requires: requires.clone(),
            sessions: Vec::new(),
            cells: called,
            jobs: names(&jobs),
        };
        put(store, &name, &offer, Some(self.manifest.run.clone()), &jobs)?;
        Ok(name)
    }

    /// What is left of the caps of the run.
    fn caps(&self) -> Caps {
        let request = &self.manifest.request;
        Caps {
            time_seconds: request.time_seconds.map(|cap| cap.saturating_sub(self.manifest.seconds)),
            cost_micro_usd: request.cost_micro_usd.map(|cap| cap.saturating_sub(self.manifest.spent().0)),
            ..Caps::default()
        }
    }

    /// The files of the set and of its prompts that the cells need.
    fn set(&self, context: &EvalContext) -> Result<Vec<Changed>, Fault> {
        let version = &context.golden.manifest.version;
        let scenarios = self.manifest.golden.scenarios.keys();
        let names = scenarios.map(|id| format!("{id}/{SCENARIO_FILE}")).chain([MANIFEST_FILE.to_owned()]);
        let mut found = Vec::new();
        for name in names {
            let file = context.golden.folder.join(&name);
            let bytes = files::read(&file, files::LARGEST_LIST);
            let bytes = bytes.map_err(|e| launch::refused("read", &file, &e))?;
            found.push(Changed { path: format!("{version}/{name}"), at: None, bytes: Some(bytes) });
        }
        if let Some(own) = &self.manifest.request.prompt_folder {
            let files = Watched::new(own, Holds::Photo).look();
            let files = files.map_err(|e| launch::refused("read", own, &e))?;
            found.extend(
                files.into_iter().map(|file| Changed { path: format!("prompts/{}", file.path), ..file }),
            );
        }
        Ok(found)
    }

    /// A cell, its photo staged, with everything that it needs in the store.
    fn cell(
        &self,
        store: &Store,
        context: &EvalContext,
        record: &CellRecord,
        task: &Task,
        set: Hash,
    ) -> Result<Cell, Fault> {
        portable(&task.who)?;
        let missing =
            || Fault::new(ErrorCode::NotFound, format!("the set has no scenario {}", record.scenario));
        let scenario = context.golden.scenarios.get(task.scenario).ok_or_else(missing)?;
        let raw = scenario.raw(context.raws.as_deref()).map_err(|e| Fault::from(&e))?;
        store.put_file(&raw.sha256, &raw.path).map_err(|e| Fault::from(&e))?;
        let folder = cells::folder(&context.home, &record.key);
        cells::stage(context, scenario, &record.key)?;
        let files = Watched::new(&folder, Holds::Cell).look();
        let files = files.map_err(|e| launch::refused("read", &folder, &e))?;
        let steering = self.variants.get(task.variant).and_then(|variant| variant.protocol.as_ref());
        let request = &self.manifest.request;
        Ok(Cell {
            run: self.manifest.run.clone(),
            request: RunRequest {
                golden: PathBuf::from(&context.golden.manifest.version),
                scenarios: vec![record.scenario.clone()],
                prompts: vec![record.prompt.clone()],
                protocols: vec![steering.map_or(FREE, |own| own.source.file.as_str()).to_owned()],
                referee: steering.and(request.referee.clone()),
                prompt_folder: request.prompt_folder.as_ref().map(|_| PathBuf::from("prompts")),
                contestants: vec![task.who.clone()],
                repeats: 1,
                seed: record.seed,
                cost_micro_usd: None,
                time_seconds: None,
                ..request.clone()
            },
            inputs: task.inputs.clone(),
            metrics: METRICS_VERSION,
            repeat: record.repeat,
            most: most(task),
            paid: match cells::finished(&context.home, &record.key) {
                // Only to be measured again.
                Some(_) => cells::spent(&folder, &record.scenario),
                None => cells::spent_before(&folder, &record.scenario),
            },
            set,
            protocol: steering.map(|own| (own.source.file.clone(), own.source.text.clone())),
            raw: (raw.path.file_name().unwrap_or_default().to_string_lossy().into_owned(), raw.sha256),
            folder: pack(store, files)?,
        })
    }
}

/// Whether other machines can reach a contestant.
fn portable(who: &Contestant) -> Result<(), Fault> {
    let here = who.model.as_deref().is_none_or(|model| !Path::new(model).is_absolute());
    if here && matches!(who.provider.as_str(), "manual" | "script" | "cassette") {
        let message = format!("provider `{}` works with files of this machine", who.provider);
        return Err(Fault::new(ErrorCode::InvalidInput, message)
            .with("remedy", "name its folder or file by a path that all workers have"));
    }
    Ok(())
}
