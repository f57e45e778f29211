//! The arguments that every command has, and the commands. Those of a larger group are in the file of its verbs.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::balance::{self, GreyCardArgs};
use super::batch::{BATCH_EXAMPLES, BatchVerb, StoreArg, WORKER_EXAMPLES, WorkerArgs};
use super::chat::{self, ChatArgs};
use super::complete;
use super::eval::EvalVerb;
use super::export::ExportArgs;
use super::import::ImportArgs;
use super::layers::BindArgs;
use super::learn::{GapVerb, ProposalVerb};
use super::made::{LensArgs, MarkArgs, VocabImportArgs};
use super::masks;
use super::measure::{self, MeasureArgs};
use super::mode_b::SessionVerb;
use super::overnight::{OVERNIGHT_EXAMPLES, OvernightArgs};
use super::places::{self, RegionsArgs, RemoveArgs, ReplaceMaskArgs, SpotArgs};
use super::promote::{self, PromoteArgs};
use super::propagate::{self, PropagateArgs};
use super::protocol::ProtocolVerb;
use super::prune::PruneArgs;
use super::review::{COMPARE_EXAMPLES, CompareArgs, PICKS_EXAMPLES, PicksVerb, REVIEW_EXAMPLES, ReviewArgs};
use super::run::{RUN_EXAMPLES, RUN_PROTOCOL_EXAMPLES, RunArgs, RunProtocolArgs};
use super::stores::{CacheVerb, ProviderVerb};
use super::taste::{TASTE_EXAMPLES, TasteVerb};
use super::try_moves::{self, TryArgs};
use base::ids::{PhotoId, RefName};
use darktable::proxy::Choice;
use pixels::metrics::axes::Axis;
use pixels::overlay::Part;

const ENVIRONMENT: &str = "\
Environment:
  CHEMIGRAM_LIBRARY          the library, like --library
  CHEMIGRAM_PROVIDER         the provider of sessions, like --provider
  CHEMIGRAM_MODEL            its model, like --model
  CHEMIGRAM_BASE_URL         another address for the provider
  CHEMIGRAM_STORE            the store that many machines share, like --store
  CHEMIGRAM_DARKTABLE_CLI    the darktable-cli to use [default: first on PATH]
  CHEMIGRAM_LENSFUN          the folder of lensfun's lens profiles
  CHEMIGRAM_REQUIRE_SANDBOX  set to 1: like --require-sandbox
  CHEMIGRAM_GOLDEN_RAWS_DIR  raw files of golden sets, like --raws of eval
  OPENAI_API_KEY, …          API keys; `chemigram providers list` names them all
  XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, NO_COLOR, COLUMNS

Exit status (from 20 on, of a session):
  0   success                             11  session not confirmed
  1   eval, overnight: something failed   12  provider failed
  2   invalid usage or input              20  budget used up, no branch scored
  3   not found                           21  the model asks a question
  4   conflicts with the current state    22  cancelled
  5   damaged or missing object or ref    23  the provider failed
  6   darktable failed                    24  the engine failed
  7   invalid mask                        25  interrupted
  8   a move cannot be encoded            26  the protocol failed
  9   not allowed                         27  no valid protocol was written
  10  budget exhausted                    28  nothing useful came
A session that used up its budget after scoring a branch ends with 0.

New here? Start with `chemigram demo`: it needs darktable, but no raw file and no key.";

const START: &str = "\
New here? Start with `chemigram demo`: it needs darktable, but no raw file and no key.
`chemigram --help` also lists environment variables and exit status codes.";

/// Unattended photo editing within a budget: a model drives darktable, and every edit is a commit.
#[derive(Debug, Parser)]
#[command(name = "chemigram", version, after_help = START, after_long_help = ENVIRONMENT)]
#[command(propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub verb: Verb,
}

// What holds for every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Library folder, with one subfolder per photo [default: chemigram/photos in your data folder]
    #[arg(long, global = true, value_name = "DIR", env = "CHEMIGRAM_LIBRARY", hide_env = true)]
    pub library: Option<PathBuf>,
    /// Print results and errors as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error (-v: actions, -vv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print only results and errors, no progress or remarks
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Append the log to a file instead of standard error; actions are in it without -v
    #[arg(long, global = true, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Refuse to run darktable without a sandbox (no network, no other files); `doctor` shows whether there is one
    #[arg(long, global = true, env = "CHEMIGRAM_REQUIRE_SANDBOX", hide_env = true, value_parser = FalseyValueParser::new())]
    pub require_sandbox: bool,
}

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
    /// Scale, then develop: fast; what the model sees while it works.
    Preview,
    /// Develop at full size, then scale: what is scored.
    Judge,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Try a whole session on a generated raw file, without a key
    #[command(after_help = "Example:\n  chemigram demo --dir /tmp/demo")]
    Demo(DemoArgs),
    /// Write the demo's raw file
    DemoRaw {
        /// Output file
        #[arg(value_name = "FILE", default_value = "chemigram-demo.dng")]
        file: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Add raw files, or whole folders of them, to the library
    #[command(
        after_help = "Examples:\n  chemigram ingest DSC_0042.NEF\n  chemigram ingest DSC_0042.NEF --id iguana --brief @brief.md\n  chemigram ingest 2026-11-24/ more/*.NEF\n\nFrom a folder every file is taken that has the ending of a raw file, with those of the folders in it. Files that are in the library already are skipped; one that cannot be added does not keep the others back."
    )]
    Ingest {
        /// Raw files or folders; they are linked, not copied, and never changed
        #[arg(value_name = "RAW|FOLDER", required = true)]
        raws: Vec<PathBuf>,
        /// The photo's id [default: derived from the file name]
        #[arg(long)]
        id: Option<PhotoId>,
        /// What the picture should become: text, or @FILE
        #[arg(long, value_name = "TEXT|@FILE")]
        brief: Option<String>,
        /// Import the edit in the sidecar next to the raw, or in FILE, as the branch `imported`
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
        import_sidecar: Option<Option<PathBuf>>,
    },
    /// Import an edit made in darktable
    ImportSidecar(ImportArgs),
    /// List the photos in the library
    Photos,
    /// Show a photo's branches, tags and sessions
    Status(PhotoArg),
    /// Show the history of a branch, tag or commit, newest first
    Log {
        /// The photo's id
        photo: PhotoId,
        /// A branch, a tag, HEAD or a commit's hash
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
        /// Show at most N
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show the differences between two edits, value by value
    #[command(after_help = "Example:\n  chemigram diff iguana baseline branch_b_tone")]
    Diff {
        /// The photo's id
        photo: PhotoId,
        /// Compare this ref
        #[arg(value_name = "A")]
        a: String,
        /// With this ref
        #[arg(value_name = "B", default_value = "HEAD")]
        b: String,
    },
    /// List branches, or create, rename or delete one
    Branch {
        /// The photo's id
        photo: PhotoId,
        /// The branch
        #[arg(add = complete::refs())]
        name: Option<RefName>,
        /// Where it starts
        #[arg(default_value = "HEAD")]
        from: String,
        /// Delete the branch; its commits are kept until `gc`
        #[arg(long, short, requires = "name")]
        delete: bool,
        /// Rename the branch
        #[arg(long, short = 'm', value_name = "NEW", requires = "name", conflicts_with = "delete")]
        rename: Option<RefName>,
    },
    /// List tags, or create or delete one; a tag never moves
    Tag {
        /// The photo's id
        photo: PhotoId,
        /// The tag to create
        #[arg(add = complete::refs())]
        name: Option<RefName>,
        /// What to tag
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
        /// Delete the tag; what it names is kept until `gc`
        #[arg(long, short, requires = "name")]
        delete: bool,
    },
    /// Take back your last edit, promotion, checkout, or change of a branch or tag
    #[command(
        after_help = "Example:\n  chemigram undo iguana\n\nAgain, it takes back the step before. What a session did stays: delete its branches, or `mode-b delete` the session. Commits are kept until `gc`."
    )]
    Undo {
        /// The photo's id
        photo: PhotoId,
        /// Only say what would be taken back
        #[arg(long)]
        dry_run: bool,
    },
    /// Switch to a branch, tag or commit
    Checkout {
        /// The photo's id
        photo: PhotoId,
        /// A branch, tag or commit
        #[arg(value_name = "REF")]
        at: String,
    },
    /// Return the current branch to the baseline with a new commit; the history is kept
    Reset(PhotoArg),
    /// Check a photo's folder for damage
    Fsck {
        /// The photo's id
        #[arg(required_unless_present = "all")]
        photo: Option<PhotoId>,
        /// Check every photo in the library
        #[arg(long, conflicts_with = "photo")]
        all: bool,
    },
    /// List unreachable commits; --yes deletes them
    Gc {
        /// The photo's id
        photo: PhotoId,
        /// Delete them
        #[arg(long, short)]
        yes: bool,
    },
    /// Render an edit to an image file
    #[command(
        after_help = "Examples:\n  chemigram render iguana branch_b_tone -o tone.jpg --size 2048\n  chemigram render iguana -o eye.jpg --crop 0.4,0.3,0.6,0.5 --grid\n  chemigram render iguana branch_b_tone -o both.jpg --beside baseline\n  chemigram render iguana branch_b_tone -o changed.png --difference\n  chemigram render iguana -o sky.jpg --show-mask '{\"named\":\"sky\"}'\n\nA part is cut from the whole frame, rendered so large that the part has --size pixels, or the photo's own if they are fewer: the edit looks as it does in the whole picture."
    )]
    Render {
        /// The photo's id
        photo: PhotoId,
        /// What to render
        #[arg(value_name = "REF", default_value = "HEAD")]
        at: String,
        /// Output file: .jpg, .png or .tif
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Longest side in pixels; smaller pictures are not enlarged
        #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(16..=32_768))]
        size: u32,
        /// Speed or accuracy
        #[arg(long, value_enum, default_value_t = Care::Judge)]
        quality: Care,
        /// With --quality preview, use a copy of the raw that is N times smaller [default: off]
        #[arg(long, value_name = "auto|off|N")]
        proxy: Option<Choice>,
        /// Draw a mask over the picture, in red: JSON, @FILE, or the id of a placed move
        #[arg(long, value_name = "JSON|@FILE|ID")]
        show_mask: Option<String>,
        /// With --show-mask, the move that the mask is meant for [default: exposure]
        #[arg(long, value_name = "MOVE", requires = "show_mask")]
        mask_for: Option<String>,
        /// Only this part, in 0..1 of the picture
        #[arg(long, value_name = "LEFT,TOP,RIGHT,BOTTOM", value_parser = part)]
        crop: Option<Part>,
        /// Draw lines with their coordinates, every 0.1; closer in a small crop
        #[arg(long)]
        grid: bool,
        /// Put another edit into the same picture
        #[arg(long, value_name = "REF", conflicts_with = "show_mask")]
        beside: Option<String>,
        /// Write a heat map of how far it is (CIEDE2000) from --beside, or from the baseline
        #[arg(long, conflicts_with = "show_mask")]
        difference: bool,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Export finished pictures at full size: JPEG, TIFF or PNG
    Export(Box<ExportArgs>),
    /// Apply a move or look to the current branch
    #[command(
        after_help = "Examples:\n  chemigram apply iguana exposure ev=0.5\n  chemigram apply iguana shadows_lift amount=0.6 --mask '{\"shape\":\"circle\",\"center\":[0.5,0.4],\"radius\":0.2}'\n  chemigram apply iguana shadows_lift#1 amount=0.4\n\nThe same move with another mask makes another instance. Each has an id, shadows_lift#1, which `apply` prints and `chemigram diff PHOTO baseline` lists; by its id it gets other values and keeps its mask."
    )]
    Apply {
        /// The photo's id
        photo: PhotoId,
        /// The move or look (`chemigram vocab list` lists them), or the id of a placed move
        #[arg(value_name = "MOVE")]
        name: String,
        /// Parameters; the rest keep their defaults
        #[arg(value_name = "NAME=VALUE", value_parser = setting)]
        values: Vec<(String, f64)>,
        /// Mask: JSON, or @FILE [default: the whole picture]
        #[arg(long, value_name = "JSON|@FILE")]
        mask: Option<String>,
        /// Message for the history
        #[arg(long)]
        label: Option<String>,
    },
    /// Measure colours under masks and at points
    #[command(after_help = measure::MEASURE_EXAMPLES)]
    Measure(MeasureArgs),
    /// Compare strengths of a move, or moves, on one sheet
    #[command(after_help = try_moves::TRY_EXAMPLES)]
    Try(TryArgs),
    /// Apply moves to several regions as one commit
    #[command(after_help = places::REGIONS_EXAMPLES)]
    ApplyRegions(RegionsArgs),
    /// Heal, clone, fill or blur spots, or remove them again
    #[command(after_help = places::SPOT_EXAMPLES)]
    Spot(SpotArgs),
    /// Change the mask of a placed move; its values stay
    #[command(after_help = places::REPLACE_MASK_EXAMPLES)]
    ReplaceMask(ReplaceMaskArgs),
    /// Masks with names of one photo
    #[command(after_help = masks::MASK_EXAMPLES)]
    Mask {
        #[command(subcommand)]
        verb: masks::MaskVerb,
    },
    /// Undo a move, a module or one placed move: back to the baseline's values
    #[command(after_help = places::REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Copy edits to other photos
    #[command(after_help = propagate::PROPAGATE_EXAMPLES)]
    Propagate(PropagateArgs),
    /// Apply the layers bound to the photo's camera and lens, and a look, as one commit
    BindLayers(BindArgs),
    /// Set the white balance from a spot that should be neutral grey
    #[command(after_help = balance::GREY_CARD_EXAMPLES)]
    GreyCard(GreyCardArgs),
    /// Edit a photo in a conversation
    #[command(after_help = chat::EXAMPLES)]
    Chat(ChatArgs),
    /// Explore a photo unattended: one branch per direction, within a budget
    #[command(after_help = RUN_EXAMPLES)]
    RunModeB(Box<RunArgs>),
    /// Run a session that follows a protocol: states with their own tools, checks and a second opinion
    #[command(after_help = RUN_PROTOCOL_EXAMPLES)]
    RunProtocol(Box<RunProtocolArgs>),
    /// Run a batch of sessions under one budget and write a report
    #[command(after_help = OVERNIGHT_EXAMPLES)]
    Overnight(OvernightArgs),
    /// List, show, watch, cancel and report batches, here or on many machines
    #[command(after_help = BATCH_EXAMPLES)]
    Batch {
        #[command(subcommand)]
        verb: BatchVerb,
    },
    /// Work on the batches of a store that many machines share
    #[command(after_help = WORKER_EXAMPLES)]
    Worker(WorkerArgs),
    /// List, show, watch, replay, stop or delete sessions
    ModeB {
        #[command(subcommand)]
        verb: SessionVerb,
    },
    /// Look at what a session made: write its page and open it
    #[command(after_help = REVIEW_EXAMPLES)]
    Review(ReviewArgs),
    /// Compare edits of a photo side by side, on a page or in one picture
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Import and list the picks that you made on a review page
    #[command(after_help = PICKS_EXAMPLES)]
    Picks {
        #[command(subcommand)]
        verb: PicksVerb,
    },
    /// Promote a branch, or your picks: make it the main edit, or tag it
    #[command(after_help = promote::EXAMPLES)]
    Promote(PromoteArgs),
    /// List, accept or decline what sessions propose to remember
    Proposals {
        #[command(subcommand)]
        verb: ProposalVerb,
    },
    /// Show, change or extend what is remembered about your taste
    #[command(after_help = TASTE_EXAMPLES)]
    Taste {
        #[command(subcommand)]
        verb: TasteVerb,
    },
    /// Show a photo's notes, or add to them
    Notes {
        /// The photo
        photo: PhotoId,
        /// Open them in your editor ($VISUAL or $EDITOR)
        #[arg(long, conflicts_with = "add")]
        edit: bool,
        /// Add a line: text, or @FILE
        #[arg(long, value_name = "TEXT|@FILE")]
        add: Option<String>,
    },
    /// List the moves that sessions missed
    Gaps {
        #[command(subcommand)]
        verb: GapVerb,
    },
    /// List and check the vocabulary of moves, or add to it
    Vocab {
        #[command(subcommand)]
        verb: VocabVerb,
    },
    /// List language-model providers, or test one
    Providers {
        #[command(subcommand)]
        verb: ProviderVerb,
    },
    /// List prompts, or write and publish new versions
    Prompts {
        #[command(subcommand)]
        verb: super::prompts::PromptVerb,
    },
    /// List the protocols that can steer a session, or check one of your own
    Protocol {
        #[command(subcommand)]
        verb: ProtocolVerb,
    },
    /// Compare prompts and models by running sessions over a fixed set of scenarios
    Eval {
        #[command(subcommand)]
        verb: EvalVerb,
    },
    /// Delete sessions and batches that are over and not needed any more
    #[command(after_help = super::prune::EXAMPLES)]
    Prune(PruneArgs),
    /// Show, limit or empty the cache of rendered pictures
    Cache {
        #[command(subcommand)]
        verb: CacheVerb,
    },
    /// Check that everything a session needs is installed; with a store, that batches can use it
    Doctor(StoreArg),
    /// Print the JSON Schema of what commands print with --json
    #[command(
        after_help = "Example:\n  chemigram schema review > review.schema.json\n\nWithout a name it lists them."
    )]
    Schema {
        /// One of the outputs
        name: Option<String>,
    },
    /// Print a completion script for a shell; it completes photos, branches and sessions too
    #[command(
        after_help = "Example:\n  chemigram completions bash > ~/.local/share/bash-completion/completions/chemigram"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page per command into a folder
    Man {
        /// Output folder
        dir: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct PhotoArg {
    /// The photo's id
    pub photo: PhotoId,
}

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The demo's folder, replaced on each run [default: target/demo in a checkout, else the cache folder]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Seed of the explorer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum VocabVerb {
    /// List the moves and looks
    List {
        /// Find by words, best match first: "cooler in the lamp light", wb
        #[arg(long)]
        query: Option<String>,
        /// Only moves with this tag
        #[arg(long)]
        tag: Option<String>,
        /// Only moves that affect this axis, those made for it first
        #[arg(long)]
        axis: Option<Axis>,
        /// Only moves of this darktable module
        #[arg(long)]
        module: Option<String>,
    },
    /// Show one move or look with its parameters
    Show {
        /// The move or look
        #[arg(value_name = "MOVE")]
        name: String,
    },
    /// Check your own file of moves or looks
    Check {
        /// The TOML file
        file: PathBuf,
    },
    /// Import a darktable style (.dtstyle) or LUTs (.cube, Hald .png)
    Import(VocabImportArgs),
    /// Create a move that writes your name or other text into a corner of the picture
    Mark(MarkArgs),
    /// Create a move that corrects a lens which the raw file does not name correctly
    Lens(LensArgs),
    /// List the imported styles
    Styles,
}

pub(super) fn point(text: &str) -> Result<[f64; 2], String> {
    let example = "write it like 0.42,0.6";
    let (x, y) = text.split_once(',').ok_or_else(|| example.to_owned())?;
    let number =
        |part: &str| part.trim().parse::<f64>().map_err(|_| format!("`{part}` is not a number: {example}"));
    Ok([number(x)?, number(y)?])
}

fn part(text: &str) -> Result<Part, String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|part| part.trim().parse::<f64>()).collect();
    match numbers.as_deref() {
        Ok([left, top, right, bottom]) => Part::new([*left, *top, *right, *bottom]),
        _ => Err("write it like 0.3,0.2,0.6,0.5".into()),
    }
}

/// `name=value` with a number.
pub(super) fn setting(text: &str) -> Result<(String, f64), String> {
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
