//! How many workers in a row were lost with a job where it stands. One that takes them down is given up; one that got
//! further each time is not to blame.

use serde::Deserialize;

use crate::batch::changes::Change;
use crate::batch::nats::journal::{Stored, What};
use base::error::Fault;

/// The most workers that may be lost in a row at the same step of a job.
pub(super) const MOST: u32 = 3;

/// How many were, if the last worker was lost, and how often the job has failed. `bytes` are those of a change.
pub(super) fn losses(
    history: &[Stored],
    bytes: impl Fn(&Change) -> Result<Option<Vec<u8>>, Fault>,
) -> Result<(u32, u32), Fault> {
    let mut further = false;
    for stored in history.iter().rev() {
        match &stored.message.what {
            What::Changed { changes } => {
                for change in changes.iter().filter(|change| change.path.ends_with("/transcript.jsonl")) {
                    further = further || ends_a_call(&bytes(change)?.unwrap_or_default());
                }
            }
            What::Claimed { lost, failures, .. } => {
                return Ok((if further { 1 } else { lost + 1 }, *failures));
            }
            _ => {}
        }
    }
    Ok((0, 0))
}

/// Whether lines of a transcript say that a call of the model or of a tool came to its end.
fn ends_a_call(lines: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Line {
        kind: String,
    }
    let lines = lines.split(|byte| *byte == b'\n');
    let mut lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    lines.any(|line| ["model_reply", "tool_result"].contains(&line.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::changes::Content;
    use crate::batch::nats::journal::Message;
    use crate::budget::Budget;

    fn stored(what: What) -> Stored {
        let message = Message { epoch: 1, worker: "one".into(), what };
        Stored { message, sequence: 0, at_ms: 0 }
    }

    fn claimed(lost: u32) -> Stored {
        let budget = Budget::parse("lite").unwrap();
        stored(What::Claimed { lost, failures: 0, budget })
    }

    fn wrote(kinds: &[&str]) -> Stored {
        let lines = kinds.iter().map(|kind| format!("{{\"seq\":1,\"kind\":\"{kind}\"}}\n")).collect();
        let path = "sessions/mode_b/x/transcript.jsonl".to_owned();
        stored(What::Changed {
            changes: vec![Change { path, at: Some(0), content: Some(Content::Text(lines)) }],
        })
    }

    fn lost(history: &[Stored]) -> u32 {
        let bytes = |change: &Change| match &change.content {
            Some(Content::Text(text)) => Ok(Some(text.clone().into_bytes())),
            _ => Ok(None),
        };
        losses(history, bytes).unwrap().0
    }

    #[test]
    fn a_job_is_given_up_where_its_workers_are_lost_at_the_same_step() {
        let mut history = vec![stored(What::Queued), claimed(0)];
        assert_eq!(lost(&history), 1);
        // What was asked and not answered is no step.
        history.extend([claimed(1), wrote(&["resumed", "model_intent"])]);
        assert_eq!(lost(&history), 2);
        history.extend([claimed(2), wrote(&["resumed", "model_intent"])]);
        assert_eq!(lost(&history), MOST);
    }

    #[test]
    fn a_job_that_got_further_with_each_worker_is_not_given_up() {
        let mut history = vec![stored(What::Queued), claimed(0), wrote(&["session_start", "model_intent"])];
        for step in ["model_reply", "tool_result", "model_reply", "tool_result"] {
            history.extend([claimed(lost(&history)), wrote(&["resumed"]), wrote(&[step, "model_intent"])]);
            assert_eq!(lost(&history), 1);
        }
    }
}
