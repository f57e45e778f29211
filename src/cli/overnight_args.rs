//! The arguments of `overnight`.

use std::path::PathBuf;

use clap::Args;

pub const OVERNIGHT_EXAMPLES: &str = "\
Examples:
  chemigram overnight --example > tonight.toml
  chemigram overnight tonight.toml --dry-run
  chemigram overnight tonight.toml --jobs 2
  chemigram overnight --resume last

The plan lists the photos, each with its brief, directions and budget, and the limits of the whole batch. All errors \
in the plan are reported before anything starts. A session that fails does not end the batch. Ctrl-C starts no further \
session and lets the running ones wrap up; a second Ctrl-C stops at once. Run the same plan again, or use --resume, to \
continue an unfinished batch. The report is LIBRARY/overnight/BATCH/report.html (and report.txt).

Exit status:
  0   every session ended well
  1   a session did not
  2   the plan has errors
  10  the budget of the batch kept a session from starting
  25  the batch was stopped";

#[derive(Args, Debug)]
pub struct OvernightArgs {
    /// The plan of the batch
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["resume", "example"])]
    pub plan: Option<PathBuf>,
    /// Resume a batch: its name, the beginning of it, or `last`
    #[arg(long, value_name = "BATCH", conflicts_with_all = ["plan", "dry_run", "example"])]
    pub resume: Option<String>,
    /// Sessions to run at once; each may use one core and 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Show what would run and the most it could use, without starting
    #[arg(long)]
    pub dry_run: bool,
    /// Print an example plan
    #[arg(long, conflicts_with_all = ["plan", "dry_run"])]
    pub example: bool,
}
