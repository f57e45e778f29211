//! `eval judge`: what a model that sees pictures says of a run.

use std::fmt::Write as _;

use clap::Args;

use super::eval::{HomeArg, home};
use super::failure::Failure;
use super::progress;
use super::setup::App;
use super::signals;
use crate::budget::{Budget, usd};
use crate::eval::judge::{self, Bench, Judged};
use crate::eval::manifest::{self, Manifest};
use crate::launch::Runner;
use crate::review::{count, line};
use crate::session::opinion::Referee;
use base::clock::{Stop, SystemClock};

/// What a judge may spend, but for what `--budget` says: time is no limit, and calls are bounded by the questions.
const UNLIMITED: &str = "time=24h,iterations=1000000,branches=1";
/// The status where the judge did not qualify, or something was left unasked.
const INCOMPLETE: u8 = 1;

pub const JUDGE_EXAMPLES: &str = "\
Examples:
  chemigram eval judge last --judge ollama:qwen3-vl
  chemigram eval judge last --judge openai:gpt-5-mini --budget cost=2

The judge is first asked about pairs that nobody disputes; one that fails there is asked nothing else. Then it rates each \
branch, and compares each with the baseline, or with the same branch of the first arm. Answers are kept: the same question \
is not paid for twice.

Exit status:
  0   everything was asked
  1   the judge did not qualify, or not everything was asked: the output says why";

#[derive(Args, Debug)]
pub struct JudgeArgs {
    /// The run: its name, the beginning of it, or `last`
    pub run: String,
    /// A model that sees pictures, and that made none of them
    #[arg(long, value_name = "PROVIDER[:MODEL]")]
    pub judge: String,
    /// Limits of the judging, such as cost=2,tokens=1M; required for a model that costs money
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// Your own folder of prompts
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub home: HomeArg,
}

pub fn judge(app: &App, args: &JudgeArgs) -> Result<u8, Failure> {
    let home = home(app, &args.home);
    let folder = manifest::find(&home, &args.run)?;
    let manifest = Manifest::read(&folder)?;
    let launcher = app.launcher(args.prompts.as_ref())?;
    let Referee::Model(model) = launcher.referee(Some(&args.judge), 1)? else {
        return Err(Failure::input("measurements cannot judge what they measured")
            .remedy("choose a model that sees pictures: --judge PROVIDER[:MODEL]"));
    };
    let budget = args.budget.as_ref().map(|spec| format!("{UNLIMITED},{spec}"));
    let budget = Budget::parse(budget.as_deref().unwrap_or(UNLIMITED))?;
    let capped = budget.max_cost_micro_usd.is_some() || budget.max_tokens.is_some();
    if !model.provider().info().free && !capped {
        return Err(Failure::input("a judge that costs money needs a limit").remedy("add --budget cost=2"));
    }
    let runner = Runner::new()?;
    let (stop, bar) = (Stop::default(), progress::waiting(&app.output));
    let (output, above) = (app.output.clone(), bar.clone());
    let bench = Bench {
        judge: model,
        prompts: &launcher.prompts,
        budget,
        clock: std::sync::Arc::new(SystemClock),
        redactor: launcher.redactor.clone(),
        stop: stop.clone(),
        progress: &|asked| bar.set_message(format!("waiting for the judge, {asked} answers so far")),
    };
    let judged = runner.block_on(async {
        signals::listen(stop, move |text| above.suspend(|| output.remark(text)))?;
        judge::judge(&bench, &manifest, &home, &folder).await.map_err(Failure::from)
    })?;
    bar.finish_and_clear();
    for caution in &judged.cautions {
        app.output.remark(&format!("Warning: {}", line(caution)));
    }
    app.output.result(&judged, || described(&judged))?;
    Ok(if judged.stopped.is_some() { INCOMPLETE } else { 0 })
}

/// What a judge said, for a person.
pub fn described(judged: &Judged) -> String {
    let tally = &judged.qualification;
    let all = tally.right.len() + tally.wrong.len();
    let mut text = format!(
        "judge {}/{}: right about {} of {} pairs that nobody disputes, {:.0} % answered by their order\n",
        line(&judged.provider),
        line(&judged.model),
        tally.right.len(),
        all,
        100.0 * tally.flip_rate()
    );
    let mut arms: Vec<&str> = judged.ratings.iter().map(|rating| rating.arm.as_str()).collect();
    arms.dedup();
    for arm in arms {
        let Some(([intent, craft, photograph], n)) = judged.mean(arm) else { continue };
        let _ = writeln!(
            text,
            "  {}: intent {intent:.1}, craft {craft:.1}, photograph {photograph:.1} over {}",
            line(arm),
            count(n as u64, "branch")
        );
        let against = judged.pairs.iter().find(|pair| pair.arm == arm).map(|pair| pair.against.as_str());
        if let Some(against) = against {
            let verdicts = judged.verdicts(arm).into_iter().map(|(verdict, n)| format!("{n} {verdict}"));
            let verdicts: Vec<String> = verdicts.collect();
            let _ = writeln!(text, "    against {}: {}", line(against), verdicts.join(", "));
        }
    }
    let (agrees, told) = judged.agreement;
    if told > 0 {
        let _ = writeln!(text, "  agrees with the hidden edit on {agrees} of {told} pairs");
    }
    if let Some(why) = &judged.stopped {
        let _ = writeln!(text, "  not complete: {}", line(why));
    }
    let _ = write!(
        text,
        "{} USD; no metric, and never what decides a comparison",
        usd(judged.spent.cost_micro_usd)
    );
    text
}
