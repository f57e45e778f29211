//! Arguments of the commands that take over work from darktable.

use std::path::PathBuf;

use clap::Args;

use crate::ids::{PhotoId, RefName};
use crate::photo::IMPORTED;

/// `import-sidecar`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram import-sidecar iguana DSC_0042.NEF.xmp --label \"as printed in May\"\n\n\
                  Both the sidecar and what was read of it are rendered; only if no pixel differs is it taken over."
)]
pub struct ImportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The sidecar (.xmp) that darktable wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The branch that gets the edit; made at the baseline if it is not there
    #[arg(long, value_name = "NAME", default_value = IMPORTED)]
    pub branch: RefName,
    /// Words for the history
    #[arg(long, default_value = "")]
    pub label: String,
}
