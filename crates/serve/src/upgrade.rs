//! Upgraded connections: a WebSocket begins as an HTTP request and goes on as a byte stream.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::Response;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

/// The bytes of a connection after its upgrade.
pub type UpgradedStream = TokioIo<Upgraded>;

type UpgradeTask =
    Box<dyn FnOnce(UpgradedStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The work to do on the connection after the response `101 Switching Protocols` is sent.
///
/// Add it to the extensions of that response with [`Upgrade::attach`]. The work then runs as a part
/// of the connection: it counts as one, and it is aborted when the server has stopped and the drain
/// time is over. It must therefore end by itself when the token of the server's tasks is cancelled,
/// if it needs to close the stream cleanly. If the client disconnects before the upgrade, the work
/// is never started.
#[derive(Clone)]
pub struct Upgrade(Arc<Mutex<Option<UpgradeTask>>>);

impl Upgrade {
    /// Makes `work` the continuation of `response`. Only responses to HTTP/1.1 requests that asked
    /// for an upgrade are continued.
    pub fn attach<Body, Run>(
        response: &mut Response<Body>,
        work: impl FnOnce(UpgradedStream) -> Run + Send + 'static,
    ) where
        Run: Future<Output = ()> + Send + 'static,
    {
        let work: UpgradeTask = Box::new(move |bytes| Box::pin(work(bytes)));
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(work)))));
    }

    /// Takes the work out of a response; a second call returns `None`.
    pub(crate) fn detach<Body>(response: &mut Response<Body>) -> Option<UpgradeTask> {
        let Self(work) = response.extensions_mut().remove::<Self>()?;
        work.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Adds a value to the work that lives as long as it.
    pub(crate) fn hold_until_done<Body>(response: &mut Response<Body>, kept: impl Send + 'static) {
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
