//! Work that goes on when the request that asked for it is given up.
//!
//! A client that disconnects drops its request at whatever it waits for. What changes an engine
//! must not end there: half a change is one that nobody knows of.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gantry_process::tasks::{OnLoss, Tasks};
use tokio::sync::{mpsc, oneshot};

/// Pieces of work that wait to be started; further ones wait with their requests.
const MAX_WAITING: usize = 16;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts work whose owner are tasks, and not a request.
#[derive(Clone)]
pub(crate) struct Detached(mpsc::Sender<Work>);

impl Detached {
    /// Work that goes on for this long at most after the tasks stop.
    pub(crate) fn new(tasks: &mut Tasks, grace: Duration) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Work>(MAX_WAITING);
        let mut running = tasks.child();
        tasks.spawn("detached work", OnLoss::EndOwner, move |stop| async move {
            loop {
                let work = tokio::select! {
                    biased;
                    // Each may be dropped: work that was not received is not lost.
                    () = stop.cancelled() => break,
                    _ = running.join(), if !running.is_empty() => continue,
                    work = receiver.recv() => work,
                };
                let Some(work) = work else { break };
                running.spawn("detached request", OnLoss::CarryOn, |_| async move {
                    work.await;
                    Ok(())
                });
            }
            let clock = running.clock().clone();
            let ended = async { while running.join().await.is_err() {} };
            // What takes longer is dropped.
            let _ = clock.timeout(grace, ended).await;
            Ok(())
        });
        Self(sender)
    }

    /// Does work and returns its result; `None` if the tasks stop. When this is dropped, the work
    /// goes on.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (reply, result) = oneshot::channel();
        let work = async move {
            // The request may have been given up.
            let _ = reply.send(work.await);
        };
        self.0.send(Box::pin(work)).await.ok()?;
        result.await.ok()
    }
}
