//! What happened to a job: its messages on one subject, each written by whoever held the job then.

use base::error::ErrorCode;
use base::ids::{Hash, SessionId};
use serde::{Deserialize, Serialize};

use super::{LastRawMessageErrorKind, Store, StoreError, futures, milliseconds, wait, words};
use crate::batch::changes::Change;
use crate::budget::{Amounts, Budget};
use crate::transcript::Outcome;
use futures_util::StreamExt as _;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// How often the job was claimed until then, this claim included.
    pub epoch: u64,
    /// Who wrote it.
    pub worker: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// It was queued.
    Queued,
    /// A worker began, or went on.
    Claimed {
        /// How many workers in a row were lost with it before.
        lost: u32,
        /// How often it has failed.
        failures: u32,
        /// What the session may spend.
        budget: Budget,
    },
    /// The folder of the photo changed: before the effect that the last line of the transcript announces.
    Changed {
        /// How.
        changes: Vec<Change>,
    },
    /// The worker gave it back.
    Released {
        /// Why.
        why: String,
        /// How often it has failed.
        failures: u32,
    },
    /// Its session has its closing line.
    Ended {
        /// Its session.
        session: SessionId,
        /// How it ended.
        outcome: Outcome,
        /// The exit status that it would have had by itself.
        status: u8,
        /// Whether it ended because the batch was cancelled.
        cut: bool,
        /// What it spent, by its transcript.
        spent: Amounts,
    },
    /// It could not start, or stopped without a closing line.
    Failed {
        /// The code.
        code: ErrorCode,
        /// Why.
        message: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
        /// What it spent, by its transcript.
        spent: Amounts,
    },
    /// It was not started.
    NotBegun {
        /// Why.
        why: String,
    },
}

impl What {
    /// Whether nothing comes after it.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Failed { .. } | Self::NotBegun { .. })
    }

    /// What a job that is over has spent.
    pub fn spent(&self) -> Amounts {
        match self {
            Self::Ended { spent, .. } | Self::Failed { spent, .. } => *spent,
            _ => Amounts::default(),
        }
    }
}

/// A message as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub message: Message,
    /// Its sequence, which whoever writes next expects.
    pub sequence: u64,
    /// When the server took it, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Store {
    fn subject(&self, job: &Hash) -> String {
        format!("{}.journal.{job}", self.address.prefix)
    }

    /// Writes a message behind the one with the sequence `after`, 0 being none.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if somebody else has written meanwhile.
    pub(crate) fn write(&self, job: &Hash, message: &Message, after: u64) -> Result<u64, StoreError> {
        let payload = super::bytes(message);
        // Its own message again, if the server's answer was lost, is no other's.
        let name = Hash::of([payload.as_slice(), after.to_string().as_bytes()].concat());
        self.publish(self.subject(job), payload, &format!("{job}-{name}"), Some(after))
    }

    /// The last message about a job.
    pub(crate) fn last(&self, job: &Hash) -> Result<Option<Stored>, StoreError> {
        Ok(self.lasts(std::slice::from_ref(job))?.pop().flatten())
    }

    /// The last message about each job.
    pub(crate) fn lasts(&self, jobs: &[Hash]) -> Result<Vec<Option<Stored>>, StoreError> {
        let subjects: Vec<String> = jobs.iter().map(|job| self.subject(job)).collect();
        let read = self.retried(
            "stream.get",
            |_: &String| true,
            || {
                let (journal, subjects) = (self.journal.clone(), subjects.clone());
                async move {
                    let each = subjects.into_iter().map(|subject| {
                        let journal = journal.clone();
                        async move {
                            match journal.get_last_raw_message_by_subject(&subject).await {
                                Ok(message) => Ok(Some(message)),
                                Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => {
                                    Ok(None)
                                }
                                Err(e) => Err(words(&e)),
                            }
                        }
                    });
                    let all: Vec<_> = futures::iter(each).buffered(super::AT_ONCE).collect().await;
                    all.into_iter().collect::<Result<Vec<_>, String>>()
                }
            },
        );
        let read = read.map_err(|e| self.other("read the journal", e))?;
        read.into_iter().map(|message| message.map(|message| self.stored(&message)).transpose()).collect()
    }

    fn stored(&self, message: &async_nats::jetstream::message::StreamMessage) -> Result<Stored, StoreError> {
        Ok(Stored {
            message: serde_json::from_slice(&message.payload)
                .map_err(|e| self.damaged(format!("the message {}", message.sequence), e))?,
            sequence: message.sequence,
            at_ms: milliseconds(message.time),
        })
    }

    /// All messages about a job, oldest first.
    pub(crate) fn history(&self, job: &Hash) -> Result<Vec<Stored>, StoreError> {
        let (subject, mut found, mut next) = (self.subject(job), Vec::new(), 1);
        while let Some(message) = self.first_from(&self.journal, &subject, next)? {
            next = message.sequence + 1;
            found.push(self.stored(&message)?);
        }
        Ok(found)
    }

    /// Deletes all messages about a job.
    pub(crate) fn forget(&self, job: &Hash) -> Result<(), StoreError> {
        let (journal, subject) = (self.journal.clone(), self.subject(job));
        let purged = wait(&self.runtime, async move { journal.purge().filter(subject).await });
        purged.map(drop).map_err(|e| self.other("delete a journal", e))
    }
}
