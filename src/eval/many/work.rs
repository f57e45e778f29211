//! A cell on the machine of a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Cell;
use crate::budget::Amounts;
use crate::eval::cells;
use crate::eval::context::EvalContext;
use crate::eval::golden::Golden;
use crate::eval::manifest::CellStatus;
use crate::eval::metrics::METRICS_VERSION;
use crate::eval::plan;
use crate::eval::steering::FREE;
use crate::launch::Runner;
use crate::session::driver::Unwatched;
use crate::session::protocols::ProtocolSource;
use crate::transcript::Mirror;
use base::clock::Cancel;
use base::error::{ErrorCode, Fault};
use base::ids::Hash;

/// Makes what the cells of a run share, with a folder of evaluations, a set, and a folder of prompts.
pub type MakeContext<'a> = dyn Fn(&Path, Golden, Option<&PathBuf>) -> Result<EvalContext, Fault> + Sync + 'a;

/// What a worker makes cells with.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    /// Makes what they share.
    pub context: &'a MakeContext<'a>,
    /// The hash of the running executable.
    pub binary: &'a (dyn Fn() -> Result<Hash, Fault> + Sync),
}

/// What a worker gives a cell.
pub(crate) struct With<'a> {
    /// Publishes what changes in the cell's folder.
    pub mirror: Arc<dyn Mirror>,
    /// Whether the batch has room for another attempt, after one that failed and spent this.
    pub retry: &'a dyn Fn(Amounts) -> bool,
    /// Where its session runs.
    pub runner: &'a Runner,
    /// Leaves the session where it is.
    pub cut: &'a Cancel,
}

impl Evaluator<'_> {
    /// Runs what has not been run of a cell. `home` holds its folder, in `cells/`, what its set consists of, and its raw
    /// in `raws/`.
    ///
    /// # Errors
    /// This machine would run another session, or lacks something for it.
    pub(crate) fn run(&self, cell: &Cell, home: &Path, with: With<'_>) -> Result<CellStatus, Fault> {
        let mut request = cell.request.clone();
        request.golden = home.join(&cell.request.golden);
        request.prompt_folder = request.prompt_folder.map(|folder| home.join(folder));
        let golden = Golden::part(&request.golden, cell.scenario()).map_err(|e| Fault::from(&e))?;
        let mut context = (self.context)(home, golden, request.prompt_folder.as_ref())?;
        context.fallback.clone_from(&request.fallback);
        context.launcher.mirror = Some(with.mirror);
        let sources = cell.protocol.iter().zip(&request.protocols).map(|((file, text), named)| {
            let source =
                ProtocolSource { file: file.clone(), text: text.clone(), ..ProtocolSource::default() };
            (named.clone(), source)
        });
        context.protocols = sources.filter(|(named, _)| named != FREE).collect::<BTreeMap<_, _>>();
        let mut plan = plan::plan(&context, request, (self.binary)()?, None, jiff::Timestamp::now())
            .map_err(|e| Fault::from(&e))?;
        plan.manifest.run.clone_from(&cell.run);
        let (Some(task), Some(record)) = (plan.tasks.first(), plan.manifest.cells.first()) else {
            return Err(Fault::new(ErrorCode::NotFound, format!("there is no cell on {}", cell.scenario())));
        };
        let mut differing = task.inputs.differing(&cell.inputs);
        if cell.metrics != METRICS_VERSION {
            differing.push("metrics".into());
        }
        if !differing.is_empty() {
            let message =
                format!("this machine would run another session: it differs in {}", differing.join(", "));
            return Err(Fault::new(ErrorCode::StateError, message).with(
                "remedy",
                "give all workers the vocabulary and the profiles of providers of whoever submitted it",
            ));
        }
        let scenario = context.golden.scenarios.get(task.scenario);
        let job = cells::Job {
            context: &context,
            run: &plan.manifest.run,
            binary: &plan.manifest.made_with.binary,
            cell: record,
            scenario: scenario.ok_or_else(|| Fault::new(ErrorCode::NotFound, "the scenario is gone"))?,
            who: &task.who,
            protocol: plan.variants.get(task.variant).and_then(|variant| variant.protocol.as_ref()),
            budget: &task.budget,
            retry: with.retry,
            runner: with.runner,
            cut: with.cut,
            host: &Unwatched,
        };
        Ok(job.run(&task.inputs))
    }
}
