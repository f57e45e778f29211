//! One photograph as a project: a folder that a person can read, versioned like a git repository.
//!
//! Edits are immutable, content-addressed states; commits give them ancestry; refs give commits names.
//! Reading needs nothing but the folder ([`Workspace`]). Changing needs the exclusive lock and an
//! [`Authority`], both held by a [`Writer`]; every mutation checks the authority first, then writes content,
//! and then the op-log line, by which it is in effect, so that a kill at any moment leaves a whole workspace.
//! The files of refs and HEAD follow the op-log.
//!
//! Rejected: a git repository underneath (its commits carry time and author, so equal edits would have
//! unequal hashes) and a database (a person could not read it).

mod context;
mod diff;
mod error;
mod facts;
mod fsck;
mod gaps;
mod gc;
mod history;
mod import;
mod ingest;
mod jsonl;
mod layers;
mod lock;
mod masks;
mod objects;
mod op;
mod oplog;
mod positions;
mod proposals;
mod refs;
mod standing;
mod tastes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod undo;
mod workspace;
mod writer;

pub use context::{Context, Notes, read_context};
pub use diff::{Change, ChangeKind, diff};
pub use error::PhotoError;
pub use facts::Correction;
pub use fsck::{BACKUP, Finding, FsckReport, is_temporary};
pub use gaps::{Gap, GapReport, RankedGap, rank};
pub use gc::GcReport;
pub use history::{LogEntry, Status};
pub use import::{IMPORTED, ImportedEdit, Judge, OldModule, read_sidecar, sidecar_beside};
pub use ingest::{AskDefaults, IngestOptions, Ingested, ingest};
pub use layers::{BoundLayers, LayerContext, LayerReport, Layers, bind_layers};
pub use lock::Holder;
pub use masks::SavedMask;
pub use objects::Commit;
pub use op::{AppliedMove, Operation, RegionRecord, Setting};
pub use oplog::OpLine;
pub use proposals::{Proposal, ProposalKind, ProposalStatus, ProposedText, TasteCategory};
pub use refs::{Head, RefKind};
pub use standing::{MoveId, PlacedMove, Standing};
pub use tastes::{Contradiction, Point, TasteFile, Tastes};
pub use undo::{Undone, UndoneRef};
pub use workspace::{Library, Photo, PhotoKind, RawRecord, Workspace};
pub use writer::{Authority, CommitInfo, Writer};
