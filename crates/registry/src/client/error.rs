//! Errors of requests to registries, by what the caller can do.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gantry_http_client::ClientError;
use gantry_oci::{Repository, VerifyError};

use crate::credentials::CredentialError;

/// Why a request to a registry failed. Never shows a credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry says that there is no such content.
    #[error("could not {at}: the registry does not have it; check the name, or push it first")]
    NotFound {
        /// What was asked for.
        at: Box<RequestSubject>,
    },
    /// The registry accepts none of the credentials.
    #[error(
        "cannot {at}: the registry does not accept {tried}{said}; check the credentials for this \
         registry, or add some"
    )]
    Unauthorized {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// What was tried.
        tried: &'static str,
        /// What the registry said, with a separator before it.
        said: String,
    },
    /// The registry knows the user and refuses the operation.
    #[error(
        "cannot {at}: the registry denies it with {tried}{said}; give this user the permission, or \
         use other credentials"
    )]
    Denied {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// What was tried.
        tried: &'static str,
        /// What the registry said, with a separator before it.
        said: String,
    },
    /// The registry wants fewer requests.
    #[error(
        "could not {at}: the registry allows no more requests for now; try again after {} seconds",
        retry_after.as_secs()
    )]
    RateLimited {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// How long to wait, as far as the registry says.
        retry_after: Duration,
    },
    /// Something is larger than allowed.
    #[error("cannot {at}: it is larger than {limit} bytes")]
    TooLarge {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// The limit.
        limit: u64,
    },
    /// The content is not what its digest says.
    #[error(
        "could not {at}: the content is damaged or was replaced; try again, and if that fails \
             push it again"
    )]
    DigestMismatch {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// What differs.
        source: VerifyError,
    },
    /// There was no response, or only that the registry is not able to respond.
    #[error("could not {at}: {why}; check that the registry runs and can be reached from here")]
    Unreachable {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// What happened.
        why: String,
        /// The error of the connection.
        source: Option<ClientError>,
    },
    /// The response is not one of a registry.
    #[error("cannot {at}: {why}; check that this is the address of a registry")]
    Protocol {
        /// What was asked for.
        at: Box<RequestSubject>,
        /// What is wrong with it.
        why: String,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials {
        /// What is wrong with them.
        source: CredentialError,
    },
    /// A mirror is configured that no repository can be at.
    #[error("cannot use a mirror: {0}")]
    InvalidMirror(String),
    /// The content to push could not be read.
    #[error("could not {at}: the content cannot be read")]
    Source {
        /// What was to be pushed.
        at: Box<RequestSubject>,
        /// What the operating system reported.
        source: Arc<io::Error>,
    },
}

impl RegistryError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Unreachable { .. } | Self::DigestMismatch { .. } => {
                true
            }
            Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::Denied { .. }
            | Self::TooLarge { .. }
            | Self::Protocol { .. }
            | Self::Credentials { .. }
            | Self::InvalidMirror(_)
            | Self::Source { .. } => false,
        }
    }
}

/// What a request is about, for messages: "pull manifest v1 of quay.io/team/driver".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSubject {
    /// The repository, with its registry.
    pub repository: Repository,
    /// What is done.
    pub operation: Operation,
    /// The tag or digest; empty where there is none.
    pub item: String,
}

impl RequestSubject {
    pub(super) fn new(repository: &Repository, operation: Operation, item: &str) -> Self {
        Self { repository: repository.clone(), operation, item: item.to_owned() }
    }
}

/// What is done with a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asking whether it is there.
    Ping,
    /// Asking whether a manifest exists.
    CheckManifest,
    /// Reading a manifest.
    PullManifest,
    /// Writing a manifest.
    PushManifest,
    /// Removing a manifest or a tag.
    DeleteManifest,
    /// Reading a blob.
    PullBlob,
    /// Writing a blob.
    PushBlob,
    /// Removing a blob.
    DeleteBlob,
    /// Listing tags.
    ListTags,
    /// Asking whether pushing is allowed.
    CheckPush,
}

impl fmt::Display for RequestSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repository, operation, item } = self;
        match operation {
            Operation::Ping => write!(f, "use the registry {}", repository.registry()),
            Operation::CheckManifest => write!(f, "find manifest {item} of {repository}"),
            Operation::PullManifest => write!(f, "pull manifest {item} of {repository}"),
            Operation::PushManifest => write!(f, "push manifest {item} to {repository}"),
            Operation::DeleteManifest => write!(f, "delete manifest {item} of {repository}"),
            Operation::PullBlob => write!(f, "pull blob {item} of {repository}"),
            Operation::PushBlob => write!(f, "push blob {item} to {repository}"),
            Operation::DeleteBlob => write!(f, "delete blob {item} of {repository}"),
            Operation::ListTags => write!(f, "list the tags of {repository}"),
            Operation::CheckPush => write!(f, "check whether {repository} can be pushed to"),
        }
    }
}
