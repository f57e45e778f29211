//! Why a store cannot be used.

use base::error::{Coded, ErrorCode};

/// Why a store cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nobody answers there.
    #[error("the store at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The store.
        address: String,
        /// What was tried, and the answer.
        reason: String,
    },
    /// The connection cannot be encrypted.
    #[error("no encrypted connection to the store {address}: {reason}")]
    Encryption {
        /// The store.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server does not know these credentials.
    #[error("the server of the store {address} refuses these credentials: {reason}")]
    Refused {
        /// The store.
        address: String,
        /// Its answer.
        reason: String,
    },
    /// A file of credentials or certificates cannot be read.
    #[error("the credentials for the store {address} cannot be used: {reason}")]
    Credentials {
        /// The store.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server runs without JetStream.
    #[error("the server of the store {address} runs without JetStream: {reason}")]
    NoJetStream {
        /// The store.
        address: String,
        /// Its answer.
        reason: String,
    },
    /// Nothing more fits.
    #[error("the store {address} is full: {reason}")]
    Full {
        /// The store.
        address: String,
        /// The server's answer.
        reason: String,
    },
    /// Somebody else has taken the job.
    #[error("another worker has taken over this job")]
    Fenced,
    /// What is stored there is not what was written.
    #[error("{what} in the store {address} cannot be used: {reason}")]
    Damaged {
        /// The store.
        address: String,
        /// Which.
        what: String,
        /// Why.
        reason: String,
    },
    /// Anything else that the server refused.
    #[error("cannot {doing} in the store {address}: {reason}")]
    Other {
        /// The store.
        address: String,
        /// What was tried.
        doing: String,
        /// Its answer.
        reason: String,
    },
}

impl Coded for StoreError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Encryption { .. } | Self::Refused { .. } | Self::Credentials { .. } => {
                ErrorCode::PermissionDenied
            }
            Self::Damaged { .. } => ErrorCode::VersioningError,
            _ => ErrorCode::StateError,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { .. } => {
                "start the server (`nats-server -js -sd FOLDER`), or correct the address".into()
            }
            Self::Encryption { .. } => {
                "name the authority that signed the server's certificate (`ca=FILE`), and the host as the certificate \
                 does; a server that encrypts nothing is named without `tls`"
                    .into()
            }
            Self::Refused { .. } => {
                "name the right file: `--store nats://host:4222/prefix?creds=FILE`, or `nkey=FILE`".into()
            }
            Self::Credentials { .. } => "name a file that exists and that you may read".into(),
            Self::NoJetStream { .. } => {
                "start it with `-js -sd FOLDER`, or allow JetStream for this account".into()
            }
            Self::Full { .. } => {
                "give JetStream more room (`max_file_store`); `chemigram batch remove` frees what was written of old \
                 batches, but not their raws and pictures"
                    .into()
            }
            Self::Fenced => return None,
            Self::Damaged { .. } => "use a chemigram of the same version on all machines".into(),
            Self::Other { .. } => return None,
        })
    }

    fn halts(&self) -> bool {
        true
    }
}
