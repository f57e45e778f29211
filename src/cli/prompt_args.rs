//! Arguments of `prompts`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum PromptVerb {
    /// List the prompts and their versions
    List {
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Print a prompt's template
    Show {
        /// The prompt: NAME or NAME@VERSION
        name: String,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Render a prompt with values filled in
    Render {
        /// The prompt: NAME or NAME@VERSION
        name: String,
        /// A value: JSON if it parses as JSON, otherwise text; repeatable
        #[arg(long = "var", value_name = "KEY=VALUE")]
        vars: Vec<String>,
        /// A JSON file with the values
        #[arg(long, value_name = "FILE")]
        context: Option<PathBuf>,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Start the next version of a prompt in your own folder
    New {
        /// The prompt to start from: NAME or NAME@VERSION
        name: String,
        /// Your own folder of prompts [default: prompts in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Show the differences between two versions of a prompt
    Diff {
        /// The prompt
        name: String,
        /// The older version
        from: String,
        /// The newer version
        to: String,
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Publish a version of your own: its hash goes into the manifest, and its text can no longer change
    Publish {
        /// The prompt and version: NAME@VERSION
        name: String,
        /// Make it the default version
        #[arg(long)]
        activate: bool,
        /// Your own folder of prompts [default: prompts in the configuration folder]
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
    /// Check that no published prompt was changed, and list drafts
    Verify {
        /// Your own folder of prompts
        #[arg(long, value_name = "DIR")]
        prompts: Option<PathBuf>,
    },
}
