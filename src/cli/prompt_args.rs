//! Arguments of `prompts`.

use std::path::PathBuf;

use clap::Subcommand;

/// `prompts`.
#[derive(Debug, Subcommand)]
pub enum PromptVerb {
    /// List them
    List {
        /// A folder of prompts of your own
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Print a template
    Show {
        /// Its name, with @VERSION or without
        name: String,
        /// A folder of prompts of your own
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Fill in a template
    Render {
        /// Its name, with @VERSION or without
        name: String,
        /// A value; JSON where it is JSON, else text
        #[arg(long = "var", value_name = "KEY=VALUE")]
        vars: Vec<String>,
        /// A JSON file with the values
        #[arg(long, value_name = "FILE")]
        context: Option<PathBuf>,
        /// A folder of prompts of your own
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Begin the next version of a prompt in a folder of your own
    New {
        /// Its name, with @VERSION or without: what to begin from
        name: String,
        /// The folder [default: the one in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Show what one version changes of another
    Diff {
        /// The prompt
        name: String,
        /// The older version
        from: String,
        /// The newer one
        to: String,
        /// A folder of prompts of your own
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Freeze a version of your own: its hash goes into the manifest, and its text never changes again
    Publish {
        /// The prompt and the version, NAME@VERSION
        name: String,
        /// Use it from now on where no version is named
        #[arg(long)]
        activate: bool,
        /// The folder [default: the one in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Prove that no published text was changed, and list drafts
    Verify {
        /// A folder of prompts of your own
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
}
