//! Who programs are to the API server: the service accounts of their pods.

use std::fmt;

use bytes::Bytes;
use gantry_reconcile::{Key, Uid};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{Request, Response};
use jiff::Timestamp;

use super::network::Later;

/// A pod, as tokens of its account name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// The pod.
    pub pod: Key,
    /// Its identity.
    pub uid: Uid,
    /// The account it acts as, in its namespace.
    pub account: String,
    /// Its node.
    pub node: String,
}

/// A token of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub text: String,
    /// Until when it is good.
    pub expires: Timestamp,
}

impl fmt::Debug for Token {
    /// Without the token.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Token(until {})", self.expires)
    }
}

/// The body of an answer. It may be read while it is sent: watches do not end.
pub type ApiBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The API server in the name of the service account of one pod.
pub trait PodApi: Send + Sync {
    /// Sends a request; its URI is a path. What the account may not do is refused by the server.
    fn send(&self, request: Request<Bytes>) -> Later<'static, Result<Response<ApiBody>, String>>;
}

/// Speaks to the API server in the names of pods' accounts.
pub trait Accounts: Send + Sync {
    /// The API server in the name of a pod's account.
    fn api(&self, pod: &PodIdentity) -> Box<dyn PodApi>;

    /// A token that is bound to the pod, for an audience or the API server itself.
    fn token(
        &self,
        pod: &PodIdentity,
        audience: &str,
        expiration_seconds: i64,
    ) -> Later<'static, Result<Token, String>>;
}
