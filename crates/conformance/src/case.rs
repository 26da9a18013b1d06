//! A case, and why one does not hold.

use std::fmt;
use std::pin::Pin;

use gantry_testkit::http::SendError;
use gantry_testkit::webhook_server::WebhookServerError;

use crate::session::Session;

/// What a case ends with.
pub type Outcome = Result<(), CaseError>;

/// A case in progress.
pub type CaseFuture<'talk> = Pin<Box<dyn Future<Output = Outcome> + Send + 'talk>>;

/// Something that must hold on every API server, written once.
///
/// A case is given a namespace of its own and touches nothing outside it, apart from cluster-wide
/// objects whose names contain the namespace's. So any number of cases may run at once, and a case
/// may run twice on one server.
#[derive(Clone, Copy)]
pub struct Case {
    /// A short name in lower case with dashes; it becomes part of the namespace's name.
    pub name: &'static str,
    /// The numbers of the scenarios it is part of, see [`crate::scenario::TITLES`].
    pub scenarios: &'static [u8],
    /// Holds the conversation.
    pub run: for<'talk> fn(&'talk mut Session) -> CaseFuture<'talk>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Writes one row of a topic's list: name, scenarios, function.
macro_rules! case {
    ($name:literal, [$($scenario:literal),*], $run:path) => {
        $crate::case::Case {
            name: $name,
            scenarios: &[$($scenario),*],
            run: |talk| Box::pin($run(talk)),
        }
    };
}
pub(crate) use case;

/// Why a case did not hold.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The server could not be talked to; says nothing about its behaviour.
    #[error(transparent)]
    Unreachable(#[from] SendError),
    /// The case needs webhooks, and there are none; says nothing about the server either.
    #[error(transparent)]
    WebhooksUnavailable(#[from] WebhookServerError),
    /// The case asks for something that cannot be sent.
    #[error("cannot send {what}")]
    InvalidRequest {
        /// The header or method, with its value.
        what: String,
    },
    /// The server answered otherwise than the case says.
    #[error("{what}: expected {expected}, found {found}")]
    Unexpected {
        /// What was looked at, with the request line.
        what: String,
        /// What the case says.
        expected: String,
        /// What the server said.
        found: String,
    },
    /// Something that must come did not come before the safety net.
    #[error("gave up waiting: {what}")]
    TimedOut {
        /// What was waited for, and how far it had come.
        what: String,
    },
}

/// Checks a fact that is not about one answer.
///
/// # Errors
/// [`CaseError::Unexpected`] if `expected` and `found` differ.
pub fn expect_equal<T: fmt::Debug + PartialEq>(what: &str, expected: &T, found: &T) -> Outcome {
    if expected == found {
        return Ok(());
    }
    Err(unexpected(what, format!("{expected:?}"), format!("{found:?}")))
}

/// Checks a fact that is a yes or no.
///
/// # Errors
/// [`CaseError::Unexpected`] if it does not hold.
pub fn expect_true(what: &str, fact: bool) -> Outcome {
    if fact { Ok(()) } else { Err(unexpected(what, "yes", "no")) }
}

/// A check that failed.
pub(crate) fn unexpected(
    what: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> CaseError {
    CaseError::Unexpected { what: what.into(), expected: expected.into(), found: found.into() }
}
