//! The arguments of `eval`.

use clap::Subcommand;

use super::eval_golden::GoldenVerb;

/// `eval …`.
#[derive(Debug, Subcommand)]
pub enum EvalVerb {
    /// Golden sets.
    #[command(flatten)]
    Golden(GoldenVerb),
}
