//! The identity of programs towards the API server: the service accounts of their pods.

use std::fmt;

use bytes::Bytes;
use gantry_reconcile::{Key, Uid};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{Request, Response};
use jiff::Timestamp;

use super::network::BoxFuture;

/// A pod, as the tokens of its service account name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// The pod.
    pub pod: Key,
    /// The UID of the pod.
    pub uid: Uid,
    /// The service account, in the pod's namespace.
    pub account: String,
    /// Its node.
    pub node: String,
}

/// A token of a service account.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub text: String,
    /// When it expires.
    pub expires: Timestamp,
}

impl fmt::Debug for Token {
    /// Formats everything but the token.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Token(until {})", self.expires)
    }
}

/// The body of a response. It may be read while it is sent: watches do not end.
pub type ApiBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Access to the API server as the service account of one pod.
pub trait PodApi: Send + Sync {
    /// Sends a request; its URI is a path. The server rejects what the account may not do.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ApiBody>, String>>;

    /// Returns a token of the account, which is bound to the pod.
    fn token(&self) -> BoxFuture<'static, Result<Token, String>>;
}

/// Access to the API server as the service accounts of pods.
pub trait Accounts: Send + Sync {
    /// Returns access to the API server as a pod's service account.
    fn api(&self, pod: &PodIdentity) -> Box<dyn PodApi>;

    /// Requests a token that is bound to the pod, for an audience or the API server itself.
    fn token(
        &self,
        pod: &PodIdentity,
        audience: &str,
        expiration_seconds: i64,
    ) -> BoxFuture<'static, Result<Token, String>>;
}
