//! The arguments of `overnight`.

use std::path::PathBuf;

use clap::Args;

pub const OVERNIGHT_EXAMPLES: &str = "\
Examples:
  chemigram overnight --example > tonight.toml
  chemigram overnight tonight.toml --dry-run
  chemigram overnight tonight.toml --jobs 2
  chemigram overnight --resume last

The plan names the photos, each with its brief, vectors and budget, and what the whole night may take. What is
wrong in it is told before anything begins. A session that fails does not end the night. Ctrl-C once lets the
sessions under way wrap up and begins no further one; twice stops at once. The same plan again, or --resume, goes
on with a night that is not over. The report is in LIBRARY/overnight/NIGHT/report.html and report.txt.

Exit status: 0 when every session ended well, 1 when one did not, 10 when the night's budget kept one from
beginning, 25 when the night was stopped, 2 when the plan has mistakes.";

/// `overnight`.
#[derive(Args, Debug)]
pub struct OvernightArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["resume", "example"])]
    pub plan: Option<PathBuf>,
    /// Go on with a night: its name, the beginning of it, or `last`
    #[arg(long, value_name = "NIGHT", conflicts_with_all = ["plan", "dry_run", "example"])]
    pub resume: Option<String>,
    /// Sessions at once; each may keep a core and 1 GB busy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Print what would be run and what it may take at most, and spend nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print a plan to begin from
    #[arg(long, conflicts_with_all = ["plan", "dry_run"])]
    pub example: bool,
}
