//! Arguments as they are typed. What they come to (files read, names looked up) is said in [`super::resolve`].

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::edit_args::{self, PropagateArgs, RegionsArgs, RemoveArgs, SpotArgs};
use super::eval_args::EvalVerb;
use super::export_args::ExportArgs;
use super::import_args::{BindArgs, ImportArgs, LensArgs, MarkArgs, VocabImportArgs};
use super::overnight_args::{OVERNIGHT_EXAMPLES, OvernightArgs};
use super::protocol_args::ProtocolVerb;
use super::run_args::{RUN_EXAMPLES, RUN_PROTOCOL_EXAMPLES, RunArgs, RunProtocolArgs};
use base::ids::{PhotoId, RefName};
use darktable::proxy::Choice;
use engine::vocabulary::grey_card::RADIUS;
use pixels::metrics::axes::Axis;

const ENVIRONMENT: &str = "\
Environment:
  CHEMIGRAM_LIBRARY          the library, as --library
  CHEMIGRAM_PROVIDER         the provider of run-mode-b, as --provider
  CHEMIGRAM_MODEL            its model, as --model
  CHEMIGRAM_BASE_URL         another address for the provider that --provider names
  CHEMIGRAM_DARKTABLE_CLI    another darktable-cli than the first on PATH
  CHEMIGRAM_LENSFUN          the folder of lensfun's lens profiles, where it is an unusual one
  CHEMIGRAM_REQUIRE_SANDBOX  1 stands for --require-sandbox
  CHEMIGRAM_GOLDEN_RAWS_DIR  where raws of golden sets are, as --raws of eval
  OPENAI_API_KEY, …          keys; `chemigram providers list` names each provider's
  XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, NO_COLOR, COLUMNS

Exit status:
  0   done; for a session also a spent budget that brought at least one judged branch
  1   eval: what must hold did not, or a gate was not passed; overnight: a session did not end well
  2   wrong usage or bad input        3   not found               4   does not fit the present state
  5   refs or objects                 6   darktable               7   mask
  8   a move cannot be encoded        9   not allowed            10   budget
  11  session not confirmed          12   provider
  20  budget spent, nothing judged   21   the agent asks         22   cancelled
  23  the provider gave up           24   the engine gave up     25   interrupted
  26  the protocol came to no good end            27  no protocol that can run was written

Start with `chemigram demo`: it needs darktable, and neither a raw nor a key.";

/// Unattended, budgeted photo-editing sessions: a model drives darktable, and every edit is a snapshot.
#[derive(Debug, Parser)]
#[command(name = "chemigram", version, after_help = ENVIRONMENT, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What holds for every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// The folder with one folder a photo [default: the user's data folder, chemigram/photos]
    #[arg(long, global = true, value_name = "DIR", env = "CHEMIGRAM_LIBRARY", hide_env = true)]
    pub library: Option<PathBuf>,
    /// Print JSON on standard output, errors included
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error (-v what is done, -vv everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print results and errors only: no progress, no remarks
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Write the log to a file instead of standard error
    #[arg(long, global = true, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Start darktable only where it can be kept from the network and from other files; `doctor` says whether
    #[arg(long, global = true, env = "CHEMIGRAM_REQUIRE_SANDBOX", hide_env = true, value_parser = FalseyValueParser::new())]
    pub require_sandbox: bool,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How much care a render gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Care {
    /// Scaled first and developed then: quick, as an agent sees it while it chooses.
    Preview,
    /// Developed at full size, then scaled: as it is judged.
    Judge,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the whole thing on a made-up raw, without a key
    #[command(after_help = "Example:\n  chemigram demo --dir /tmp/demo")]
    Demo(DemoArgs),
    /// Write the demo's raw file
    DemoRaw {
        /// Where to
        #[arg(value_name = "FILE", default_value = "chemigram-demo.dng")]
        file: PathBuf,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Take a raw file into the library
    #[command(
        after_help = "Examples:\n  chemigram ingest DSC_0042.NEF\n  chemigram ingest DSC_0042.NEF --id iguana --brief @brief.md"
    )]
    Ingest {
        /// The raw file; it is linked, never copied or changed
        #[arg(value_name = "RAW")]
        raw: PathBuf,
        /// The photo's id [default: from the file's name]
        #[arg(long)]
        id: Option<PhotoId>,
        /// What the picture should become, or @FILE
        #[arg(long, value_name = "TEXT|@FILE")]
        brief: Option<String>,
        /// Take over the edit of the sidecar beside the raw, or of FILE, as the branch `imported`
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
        import_sidecar: Option<Option<PathBuf>>,
    },
    /// Take over an edit that was made in darktable
    ImportSidecar(ImportArgs),
    /// List the photos of the library
    Photos,
    /// Say where a photo stands
    Status(PhotoArg),
    /// Show the commits behind a ref, newest first
    Log {
        /// The photo's id
        photo: PhotoId,
        /// A branch, a tag, HEAD or a commit's hash
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
        /// At most so many
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show what differs between two states, value by value
    #[command(after_help = "Example:\n  chemigram diff iguana baseline branch_b_tone")]
    Diff {
        /// The photo's id
        photo: PhotoId,
        /// From this ref
        #[arg(value_name = "A")]
        a: String,
        /// To this ref
        #[arg(value_name = "B", default_value = "HEAD")]
        b: String,
    },
    /// List branches, make one, or delete one
    Branch {
        /// The photo's id
        photo: PhotoId,
        /// The branch to make
        name: Option<RefName>,
        /// Where it starts
        #[arg(default_value = "HEAD")]
        from: String,
        /// Delete the branch; its commits stay until `gc`
        #[arg(long, short, requires = "name")]
        delete: bool,
    },
    /// List tags, or make one; a tag never moves
    Tag {
        /// The photo's id
        photo: PhotoId,
        /// The tag to make
        name: Option<RefName>,
        /// What it names
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
    },
    /// Go to a branch, a tag or a commit
    Checkout {
        /// The photo's id
        photo: PhotoId,
        /// Where to
        #[arg(value_name = "REF")]
        at: String,
    },
    /// Set the current branch back to the baseline, as a new commit: nothing is lost
    Reset(PhotoArg),
    /// Prove a photo's folder whole
    Fsck {
        /// The photo's id
        #[arg(required_unless_present = "all")]
        photo: Option<PhotoId>,
        /// Every photo of the library
        #[arg(long, conflicts_with = "photo")]
        all: bool,
    },
    /// Show what no ref leads to; with --yes, throw it away
    Gc {
        /// The photo's id
        photo: PhotoId,
        /// Really remove it
        #[arg(long, short)]
        yes: bool,
    },
    /// Render a state into a picture file
    #[command(
        after_help = "Examples:\n  chemigram render iguana branch_b_tone -o tone.jpg --size 2048\n  chemigram render iguana -o sky.jpg --show-mask '{\"named\":\"sky\"}'"
    )]
    Render {
        /// The photo's id
        photo: PhotoId,
        /// What to render
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
        /// Where to: .jpg, .png or .tif
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Longest side in pixels; a smaller picture is not enlarged
        #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(16..=32_768))]
        size: u32,
        /// How much care is taken
        #[arg(long, value_enum, default_value_t = Care::Judge)]
        quality: Care,
        /// With --quality preview: from a copy of the raw that is N times smaller [default: off]
        #[arg(long, value_name = "auto|off|N")]
        proxy: Option<Choice>,
        /// Draw a mask over it, in red: as JSON or @FILE
        #[arg(long, value_name = "JSON|@FILE")]
        show_mask: Option<String>,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Export states as files to give away, at full size: JPEG, TIFF or PNG
    Export(Box<ExportArgs>),
    /// Apply one move or look of the vocabulary to the current branch
    #[command(
        after_help = "Examples:\n  chemigram apply iguana exposure ev=0.5\n  chemigram apply iguana shadows_lift amount=0.6 --mask '{\"shape\":\"circle\",\"center\":[0.5,0.4],\"radius\":0.2}'"
    )]
    Apply {
        /// The photo's id
        photo: PhotoId,
        /// The move or look; `chemigram vocab list` shows them
        #[arg(value_name = "MOVE")]
        name: String,
        /// Its values; those not given take their defaults
        #[arg(value_name = "NAME=VALUE", value_parser = setting)]
        values: Vec<(String, f64)>,
        /// Where it acts, as JSON or @FILE; everywhere without
        #[arg(long, value_name = "JSON|@FILE")]
        mask: Option<String>,
        /// Words for the history
        #[arg(long)]
        label: Option<String>,
    },
    /// Apply one move, or several, on several places as one step
    #[command(after_help = edit_args::REGIONS_EXAMPLES)]
    ApplyRegions(RegionsArgs),
    /// Heal, clone, fill or blur places, or take such spots back
    #[command(after_help = edit_args::SPOT_EXAMPLES)]
    Spot(SpotArgs),
    /// Take a move, a module or one masked place back to what the baseline has
    #[command(after_help = edit_args::REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Set edits of one photo on others
    #[command(after_help = edit_args::PROPAGATE_EXAMPLES)]
    Propagate(PropagateArgs),
    /// Apply what is bound to the photo's camera and lens, and a look, as one step
    BindLayers(BindArgs),
    /// Set the white balance by a place that should be neutral grey
    #[command(after_help = "Example:\n  chemigram grey-card iguana 0.42,0.6")]
    GreyCard {
        /// The photo's id
        photo: PhotoId,
        /// The place, in 0 to 1 of the displayed picture
        #[arg(value_name = "X,Y", value_parser = point)]
        center: [f64; 2],
        /// Its radius, as a share of the picture's shorter side
        #[arg(long, value_name = "SHARE", default_value_t = RADIUS)]
        radius: f64,
    },
    /// Explore a photo unattended: one branch a vector, within a budget
    #[command(after_help = RUN_EXAMPLES)]
    RunModeB(Box<RunArgs>),
    /// Run a protocol on a photo: declared states with tools, checks and a second opinion
    #[command(after_help = RUN_PROTOCOL_EXAMPLES)]
    RunProtocol(Box<RunProtocolArgs>),
    /// Run many sessions under one budget, and report in the morning
    #[command(after_help = OVERNIGHT_EXAMPLES)]
    Overnight(OvernightArgs),
    /// Look at sessions, or stop one
    ModeB {
        /// What to do
        #[command(subcommand)]
        verb: SessionVerb,
    },
    /// Take a branch over: tag it, and with --to-main make it the main edit
    #[command(after_help = "Example:\n  chemigram promote iguana branch_b_tone --tag v2 --to-main")]
    Promote {
        /// The photo's id, or part of a session's id
        #[arg(value_name = "PHOTO|SESSION")]
        subject: String,
        /// The branch
        branch: RefName,
        /// The tag to make
        #[arg(long, value_name = "NAME")]
        tag: RefName,
        /// Move `main` there too
        #[arg(long)]
        to_main: bool,
    },
    /// Answer what sessions propose to remember
    Proposals {
        /// What to do
        #[command(subcommand)]
        verb: ProposalVerb,
    },
    /// Read which moves were missing
    Gaps {
        /// What to do
        #[command(subcommand)]
        verb: GapVerb,
    },
    /// Look at the moves
    Vocab {
        /// What to do
        #[command(subcommand)]
        verb: VocabVerb,
    },
    /// Look at language-model providers
    Providers {
        /// What to do
        #[command(subcommand)]
        verb: ProviderVerb,
    },
    /// Look at the prompts
    Prompts {
        /// What to do
        #[command(subcommand)]
        verb: super::prompt_args::PromptVerb,
    },
    /// Look at the protocols that can steer a session, or check one of your own
    Protocol {
        /// What to do
        #[command(subcommand)]
        verb: ProtocolVerb,
    },
    /// Find out whether a prompt or a model is better: sessions over a frozen set of scenarios
    Eval {
        /// What to do
        #[command(subcommand)]
        verb: EvalVerb,
    },
    /// Look at the cache of rendered pictures, or empty it
    Cache {
        /// What to do
        #[command(subcommand)]
        verb: CacheVerb,
    },
    /// Check that everything a session needs is there
    Doctor,
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  chemigram completions bash > ~/.local/share/bash-completion/completions/chemigram"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page a command into a folder
    Man {
        /// The folder
        dir: Option<PathBuf>,
    },
}

/// A photo.
#[derive(Args, Debug)]
pub struct PhotoArg {
    /// The photo's id
    pub photo: PhotoId,
}

/// `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// A folder for the demo, made anew each time [default: target/demo in a checkout, else the cache folder]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The explorer's seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `mode-b`.
#[derive(Debug, Subcommand)]
pub enum SessionVerb {
    /// List the sessions, newest first
    List {
        /// Of this photo only
        photo: Option<PhotoId>,
    },
    /// Say where a session stands, in a few lines
    Status {
        /// Part of its id, four characters or more
        session: String,
    },
    /// Show what a session brought: branches, judgments, measurements, what to do next
    Show {
        /// Part of its id, four characters or more
        session: String,
    },
    /// Make a session again from its transcript, in a scratch copy, and prove every snapshot and every pixel
    Replay {
        /// Part of its id, four characters or more
        session: String,
    },
    /// Ask a running session to wrap up; asked again, to stop at once
    Stop {
        /// Part of its id, four characters or more
        session: String,
    },
}

/// `proposals`.
#[derive(Debug, Subcommand)]
pub enum ProposalVerb {
    /// List those that wait
    List {
        /// Of this photo only
        photo: Option<PhotoId>,
        /// The answered ones too
        #[arg(long)]
        all: bool,
    },
    /// Accept one: its text goes to the taste file or to the photo's notes
    Accept {
        /// Its id
        id: String,
        /// Another text in its place, or @FILE
        #[arg(long, value_name = "TEXT|@FILE")]
        edit: Option<String>,
    },
    /// Decline one
    Decline {
        /// Its id
        id: String,
        /// Why
        #[arg(long, default_value = "")]
        reason: String,
    },
}

/// `gaps`.
#[derive(Debug, Subcommand)]
pub enum GapVerb {
    /// List them, newest first
    List {
        /// Of this photo only
        photo: Option<PhotoId>,
        /// At most so many a photo
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// What is missed most, over all photos
    Rank,
}

/// `vocab`.
#[derive(Debug, Subcommand)]
pub enum VocabVerb {
    /// List the moves and looks
    List {
        /// With this tag only
        #[arg(long)]
        tag: Option<String>,
        /// Which push this axis only
        #[arg(long)]
        axis: Option<Axis>,
        /// Of this darktable module only
        #[arg(long)]
        module: Option<String>,
    },
    /// Show one move or look with its parameters
    Show {
        /// Its name
        #[arg(value_name = "MOVE")]
        name: String,
    },
    /// Check a file of moves or looks of your own
    Check {
        /// The TOML file
        file: PathBuf,
    },
    /// Take over a style that darktable exported (.dtstyle), or LUTs (.cube, Hald .png)
    Import(VocabImportArgs),
    /// Make a move that writes your name, or other words, into a corner of the picture
    Mark(MarkArgs),
    /// Make a move that corrects a lens which the file does not name, or not rightly
    Lens(LensArgs),
    /// List the styles that were taken over
    Styles,
}

/// `providers`.
#[derive(Debug, Subcommand)]
pub enum ProviderVerb {
    /// List them, and whether their key is at hand
    List,
    /// Show one with its models and prices
    Show {
        /// Its name
        name: String,
    },
    /// Make one tiny real call, which costs what it costs
    Check {
        /// Its name
        name: String,
        /// Its model; for `script` a file
        #[arg(long)]
        model: Option<String>,
    },
}

/// `cache`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum CacheVerb {
    /// Say where it is and how large
    Info,
    /// Remove every picture from it; they are rendered again when needed
    Clear,
}

/// `name=value` with a number.
fn point(text: &str) -> Result<[f64; 2], String> {
    let example = "write it like 0.42,0.6";
    let (x, y) = text.split_once(',').ok_or_else(|| example.to_owned())?;
    let number =
        |part: &str| part.trim().parse::<f64>().map_err(|_| format!("`{part}` is not a number: {example}"));
    Ok([number(x)?, number(y)?])
}

fn setting(text: &str) -> Result<(String, f64), String> {
    let example = "write it like ev=0.5";
    let (name, value) = text.split_once('=').ok_or_else(|| example.to_owned())?;
    let value = value.trim().parse().map_err(|_| format!("`{value}` is not a number: {example}"))?;
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
