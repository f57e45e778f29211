//! `eval run --store` and `eval resume` of a run whose cells are in a store.

use std::path::Path;
use std::sync::OnceLock;

use super::batch::requirements;
use super::eval;
use super::failure::Failure;
use super::progress;
use super::setup::App;
use super::signals;
use crate::batch::nats::Store;
use crate::eval::context::EvalContext;
use crate::eval::golden::Golden;
use crate::eval::many::Evaluator;
use crate::eval::many::collect::Following;
use crate::eval::plan::Plan;
use crate::eval::run::Progress;
use crate::launch::Runner;
use crate::overnight::many::submit::Elsewhere;
use base::clock::Stop;
use base::error::Fault;
use base::ids::Hash;

/// Submits the open cells of a run, or finds them in the store, follows and collects them, and sums the run up.
pub fn run(
    app: &App,
    context: &EvalContext,
    plan: &mut Plan,
    folder: &Path,
    store: &Store,
) -> Result<u8, Failure> {
    let done = plan.manifest.cells.iter().all(|cell| cell.done().is_some());
    // A batch that is there is closed, though nothing of it is open.
    if done && Elsewhere::within(folder).is_none() {
        return eval::run_plan(app, context, plan, folder, 1);
    }
    let batch = plan.submit(store, context, folder, &requirements(app)?)?;
    let (address, run) = (store.address(), plan.manifest.run.clone());
    app.output.remark(&format!(
        "batch {batch} in {address}; any number of `chemigram worker --store …` work on it. Ctrl-C stops watching, not the \
         batch: `chemigram batch cancel {batch}` does that"
    ));
    let (runner, stop, bar) = (Runner::new()?, Stop::default(), progress::waiting(&app.output));
    runner.block_on(async { signals::listen(stop.clone(), |_| {}) })?;
    let progress = |progress: &Progress| {
        bar.set_message(eval::doing(progress));
        if let Some(cell) = &progress.ended {
            let text = eval::ended(progress, cell);
            bar.suspend(|| app.output.remark(&text));
        }
    };
    let say = |text: &str| bar.suspend(|| app.output.remark(text));
    let following =
        Following { context, folder, store, batch: &batch, stop: &stop, progress: &progress, say: &say };
    let followed = plan.follow(&following);
    bar.finish_and_clear();
    if !followed? {
        app.output.remark(&format!("the batch goes on: `chemigram eval resume {run}` follows it again"));
    }
    eval::summed_up(app, plan, folder, stop.soft.is_cancelled())
}

/// Calls `with` with what a worker makes cells of evaluations with.
pub fn evaluator<T>(app: &App, with: impl FnOnce(Evaluator<'_>) -> T) -> T {
    let hash = OnceLock::<Hash>::new();
    let binary = || match hash.get() {
        Some(known) => Ok(known.clone()),
        None => eval::binary().map(|found| hash.get_or_init(|| found).clone()).map_err(Fault::from),
    };
    let context = |home: &Path, golden: Golden, prompts: Option<&_>| {
        eval::shared(app, home.to_owned(), golden, Some(home.join("raws")), prompts).map_err(Fault::from)
    };
    with(Evaluator { context: &context, binary: &binary })
}
