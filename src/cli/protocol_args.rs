//! The arguments of `protocol`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const CHECK_EXAMPLES: &str = "\
Examples:
  chemigram protocol check mine.toml
  chemigram protocol check mine.toml --mermaid > mine.mmd
  chemigram protocol check old.json --var repo=core --json

Exit status: 0 if it can run (with or without warnings), 2 if it has errors.";

#[derive(Debug, Subcommand)]
pub enum ProtocolVerb {
    /// List the protocols, built in and your own
    List,
    /// Show a protocol: its states, transitions and variables
    #[command(after_help = "Example:\n  chemigram protocol show mode_b_explore")]
    Show {
        /// The protocol
        name: String,
        /// Print the file itself
        #[arg(long)]
        source: bool,
    },
    /// Check a protocol file: report each error, where it is and how to correct it
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The protocol file, TOML or JSON
    pub file: PathBuf,
    /// Print a Mermaid state diagram instead
    #[arg(long)]
    pub mermaid: bool,
    /// Set a variable; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Check a file in the original format by the rules of version 2
    #[arg(long)]
    pub strict: bool,
}

/// `NAME=VALUE`.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".into()),
    }
}
