//! Which files beside it a transcript names.

use crate::transcript::Event;
use base::ids::Hash;

impl Event {
    /// The blobs that the line names, in no order.
    pub fn blobs(&self) -> Vec<&Hash> {
        match self {
            Self::SessionStart(start) => {
                let source = start.protocol.as_ref().map(|protocol| &protocol.source);
                [&start.system, &start.tools].into_iter().chain(source).collect()
            }
            Self::Attempt { raw, .. } => raw.iter().collect(),
            Self::ModelReply { raw, .. } => vec![raw],
            Self::ToolResult { result, .. } => result.images.iter().map(|image| &image.sha256).collect(),
            Self::RefereeIntent(intent) => intent.request.iter().collect(),
            Self::Referee(reply) => reply.raw.iter().collect(),
            _ => Vec::new(),
        }
    }
}
