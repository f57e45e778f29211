//! The arguments of `run-mode-b` and `run-protocol`.

use std::path::PathBuf;

use clap::Args;

use super::protocol_args::assignment;
use crate::transcript::Vector;
use darktable::proxy::Choice;

pub const RUN_EXAMPLES: &str = "\
Examples:
  chemigram run-mode-b iguana --budget standard --yes
  chemigram run-mode-b DSC_0042.NEF --brief @brief.md --budget time=30m,iterations=50,branches=2 \\
      --vector tone=\"more dramatic, open shadows\" --vector color=\"warmer\":subtle --provider openai --yes
  chemigram run-mode-b --resume 4f2a9c --raise time=10m --yes

Budget: time, iterations and branches are required; tokens=400k, cost=2.00 and renders=80 may be added.
Presets: lite (5m, 20, 1), standard (30m, 50, 3), overnight (30m, 200, 5). The cap that fires first ends it.

Ctrl-C once wraps up and keeps everything; twice stops at once. The agent's branches are branch_b_*; it cannot
touch main, and nothing of it counts until you `promote` it.";

pub const RUN_PROTOCOL_EXAMPLES: &str = "\
Examples:
  chemigram run-protocol tactical_one_move --photo iguana --var move=\"heavy clarity on the rock\" --yes
  chemigram run-protocol mode_b_explore --photo iguana --vector tone=\"open shadows\" --vector color=warmer \\
      --referee offline --yes
  chemigram run-protocol mine.toml --photo DSC_0042.NEF --budget time=10m,iterations=30,branches=1 --yes
  chemigram run-protocol --generate \"open the shadows, then the same in black and white\" \\
      --photo iguana --provider openai

Without --budget it is `standard`; where the protocol is stricter, the protocol's counts. `chemigram protocol
show NAME` says what it wants to know, and `chemigram protocol check FILE` what is wrong with it. It goes on with
`run-mode-b --resume SESSION`, as every session does.";

/// `run-mode-b`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The photo's id, or a raw file, which is taken into the library first
    #[arg(value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    /// Steer it by a protocol: a file, or the name of one
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    /// Everything else.
    #[command(flatten)]
    pub options: RunOptions,
}

/// `run-protocol`.
#[derive(Args, Debug)]
pub struct RunProtocolArgs {
    /// The protocol: a file, or the name of one
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["resume", "generate"], conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    /// The photo's id, or a raw file, which is taken into the library first
    #[arg(long, value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    /// Everything else.
    #[command(flatten)]
    pub options: RunOptions,
}

/// What every session is asked for.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// What the picture should become, or @FILE [default: the photo's brief.md]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub brief: Option<String>,
    /// An axis to explore, as NAME="DIRECTION"[:INTENSITY]; repeatable; none means: go deeper
    #[arg(long = "vector", value_name = "NAME=DIRECTION[:INTENSITY]")]
    pub vectors: Vec<Vector>,
    /// What a new session may spend (required without a protocol), such as time=30m,iterations=50,branches=3, or a preset
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// The state to fork from: the baseline of the session
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub from: String,
    /// What to judge by, or @FILE [default: the taste files and the brief]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub criteria: Option<String>,
    /// The prompt, with @VERSION or without [default: mode_b/system; with a protocol mode_b/protocol]
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub prompt: Option<String>,
    /// A folder of prompts of your own
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Nobody is at the keyboard: do not ask, begin
    #[arg(long, short)]
    pub yes: bool,
    /// Go on with a session: part of its id
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["brief", "vectors", "budget", "criteria", "dry_run"])]
    pub resume: Option<String>,
    /// The answer to the question on which it ended
    #[arg(long, value_name = "TEXT|@FILE", requires = "resume")]
    pub answer: Option<String>,
    /// More budget for it, such as time=10m,iterations=20
    #[arg(long, value_name = "SPEC", requires = "resume")]
    pub raise: Option<String>,
    /// Print the plan, the prompt and the tools, and spend nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The seed of the explorer, and of a model that takes one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Longest side of the previews in pixels
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=4096))]
    pub preview_size: u32,
    /// Preview from a copy of the raw that is N times smaller: quicker, and a little off [default: off]
    #[arg(long, value_name = "auto|off|N", conflicts_with = "resume")]
    pub proxy: Option<Choice>,
    /// How many pictures darktable may render at once; each takes a core and 0.2 to 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub renderers: u8,
    /// Have the model write the protocol from this goal; it is kept, shown, and run once you say yes (or --yes)
    #[arg(long, value_name = "GOAL|@FILE", conflicts_with = "resume")]
    pub generate: Option<String>,
    /// A value for a variable of the protocol; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Who gives a second opinion: `offline` for numbers alone, or a provider whose model sees pictures
    #[arg(long, value_name = "offline|PROVIDER[:MODEL]")]
    pub referee: Option<String>,
    /// Who does it.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// Which provider and model.
#[derive(Args, Clone, Debug)]
pub struct ChoiceArgs {
    /// The provider; `explorer` needs no key [default: explorer]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Its model; for `script` a file
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}
