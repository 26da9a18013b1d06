//! Conversations that leave HTTP: a WebSocket begins as a request and goes on as bytes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::Response;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

/// The bytes of a connection after its upgrade.
pub type Bytestream = TokioIo<Upgraded>;

type Work = Box<dyn FnOnce(Bytestream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// What to do with the connection once the answer `101 Switching Protocols` is out.
///
/// Put it into the extensions of that answer with [`Upgrade::attach`]. The work is then run as a
/// part of the connection: it counts as one, and it is aborted when the server has stopped and the
/// time to drain is over. It must therefore end by itself when the token of the server's tasks is
/// cancelled, if it wants to say goodbye. If the client leaves before the upgrade, the work is
/// never begun.
#[derive(Clone)]
pub struct Upgrade(Arc<Mutex<Option<Work>>>);

impl Upgrade {
    /// Makes `work` the continuation of `response`. Only answers to HTTP/1.1 requests that asked
    /// for an upgrade are continued.
    pub fn attach<Body, Run>(
        response: &mut Response<Body>,
        work: impl FnOnce(Bytestream) -> Run + Send + 'static,
    ) where
        Run: Future<Output = ()> + Send + 'static,
    {
        let work: Work = Box::new(move |bytes| Box::pin(work(bytes)));
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(work)))));
    }

    /// Takes the work out of a response; a second time there is none.
    pub(crate) fn detach<Body>(response: &mut Response<Body>) -> Option<Work> {
        let Self(work) = response.extensions_mut().remove::<Self>()?;
        work.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts something into the work that lives as long as it.
    pub(crate) fn keep_alive<Body>(response: &mut Response<Body>, kept: impl Send + 'static) {
        if let Some(work) = Self::detach(response) {
            Self::attach(response, move |bytes| async move {
                work(bytes).await;
                drop(kept);
            });
        }
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Upgrade(…)")
    }
}
