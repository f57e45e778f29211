//! The arguments of `protocol`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const CHECK_EXAMPLES: &str = "\
Examples:
  chemigram protocol check mine.toml
  chemigram protocol check mine.toml --mermaid > mine.mmd
  chemigram protocol check old.json --var repo=core --json

Exit status: 0 when it can run (there may be warnings), 2 when it has errors.";

/// `protocol …`.
#[derive(Debug, Subcommand)]
pub enum ProtocolVerb {
    /// List the protocols, those that come along and your own
    List,
    /// Show a protocol: its states, where they go, and what it wants to know
    #[command(after_help = "Example:\n  chemigram protocol show mode_b_explore")]
    Show {
        /// Its name
        name: String,
        /// Print the file itself
        #[arg(long)]
        source: bool,
    },
    /// Check a protocol: say what is wrong, where, and what would be right
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

/// `protocol check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The file, TOML or JSON
    pub file: PathBuf,
    /// Draw it instead: a Mermaid state diagram
    #[arg(long)]
    pub mermaid: bool,
    /// A value for a variable; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Hold a file of the original format to version 2
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
