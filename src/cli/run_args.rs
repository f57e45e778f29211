//! The arguments of `run-mode-b` and `run-protocol`.

use std::path::PathBuf;

use clap::Args;

use super::protocol_args::assignment;
use crate::transcript::Vector;
use darktable::proxy::Choice;

pub const RUN_EXAMPLES: &str = "\
Examples:
  chemigram run-mode-b iguana --budget standard --yes
  chemigram run-mode-b DSC_0042.NEF --brief @brief.md \\
      --direction tone=\"more dramatic, open shadows\" \\
      --direction color=\"warmer\":subtle \\
      --budget time=30m,iterations=50,branches=2 --provider openai --yes
  chemigram run-mode-b --resume 4f2a9c --raise time=10m --yes

Budget: time, iterations and branches are required; tokens=400k, cost=2.00 and renders=80 can be added. The first \
limit reached ends the exploration. Presets:
  lite       time=5m,iterations=20,branches=1
  standard   time=30m,iterations=50,branches=3
  overnight  time=30m,iterations=200,branches=5 (a size; not the command)

Ctrl-C wraps up and keeps everything; a second Ctrl-C stops at once. The session works on branches of its own, \
branch_b_*, and never changes main: `promote` the one you like.";

pub const RUN_PROTOCOL_EXAMPLES: &str = "\
Examples:
  chemigram run-protocol tactical_one_move --photo iguana \\
      --var move=\"heavy clarity on the rock\" --yes
  chemigram run-protocol mode_b_explore --photo iguana --referee offline \\
      --direction tone=\"open shadows\" --direction color=warmer --yes
  chemigram run-protocol mine.toml --photo DSC_0042.NEF \\
      --budget time=10m,iterations=30,branches=1 --yes
  chemigram run-protocol --photo iguana --provider openai \\
      --generate \"open the shadows, then the same in black and white\"

The default budget is `standard`; stricter limits in the protocol apply as well. `chemigram protocol show NAME` lists \
the variables of a protocol, `chemigram protocol check FILE` its errors. Resume the session with \
`run-mode-b --resume SESSION`.";

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The photo's id, or a raw file, which is added to the library first
    #[arg(value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    /// Follow this protocol: a name, or a file
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

#[derive(Args, Debug)]
pub struct RunProtocolArgs {
    /// The protocol: a name, or a file
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["resume", "generate"], conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    /// The photo's id, or a raw file, which is added to the library first
    #[arg(long, value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

/// What every session is asked for.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// What the picture should become: text, or @FILE [default: the photo's brief.md]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub brief: Option<String>,
    /// A direction to explore, one branch each, such as tone="open the shadows":subtle; repeatable [default: the model chooses]
    #[arg(long = "vector", visible_alias = "direction", value_name = "NAME=DIRECTION[:INTENSITY]")]
    pub vectors: Vec<Vector>,
    /// Limits of a new session: a preset, or such as time=30m,iterations=50,branches=3 [required without a protocol]
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// Start from this branch, tag or commit, which becomes the session's baseline
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub from: String,
    /// Scoring criteria: text, or @FILE [default: the taste files and the brief]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub criteria: Option<String>,
    /// The system prompt [default: mode_b/system, or mode_b/protocol with a protocol]
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub prompt: Option<String>,
    /// Your own folder of prompts
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Start without asking (for scripts)
    #[arg(long, short)]
    pub yes: bool,
    /// Resume a session: at least four characters of its id
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["brief", "vectors", "budget", "criteria", "dry_run"])]
    pub resume: Option<String>,
    /// With --resume: the answer to the model's question: text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", requires = "resume")]
    pub answer: Option<String>,
    /// With --resume: add to the budget, such as time=10m,iterations=20
    #[arg(long, value_name = "SPEC", requires = "resume")]
    pub raise: Option<String>,
    /// Print the plan, the prompt and the tools without starting
    #[arg(long)]
    pub dry_run: bool,
    /// Random seed, for the explorer and for models that accept one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Longest side of previews in pixels
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=4096))]
    pub preview_size: u32,
    /// Render previews from a copy of the raw that is N times smaller: faster, slightly less accurate [default: off]
    #[arg(long, value_name = "auto|off|N", conflicts_with = "resume")]
    pub proxy: Option<Choice>,
    /// Pictures to render at once; each takes one core and 0.2 to 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub renderers: u8,
    /// Let the model write a protocol for this goal (text, or @FILE), then run it after you confirm
    #[arg(long, value_name = "GOAL|@FILE", conflicts_with = "resume")]
    pub generate: Option<String>,
    /// Set a variable of the protocol; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Who gives the second opinion: `offline` (measurements only), or a provider with a model that sees pictures
    #[arg(long, value_name = "offline|PROVIDER[:MODEL]")]
    pub referee: Option<String>,
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// Which provider and model.
#[derive(Args, Clone, Debug)]
pub struct ChoiceArgs {
    /// The provider of the model; `explorer` needs no key [default: explorer]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The provider's model; for `script`, a file
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}
