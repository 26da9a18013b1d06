//! Waits for the events of launchers: over one connection for each, kept from answer to answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_http_client::{Bounds, ResponseBody};
use gantry_process::clock::{Clock, Moment};
use gantry_process::error_chain;
use gantry_reconcile::World;
use http::{HeaderMap, Method, StatusCode};

use super::peer::{PeerClient, PeerRequest, socket_address};
use super::responders::config_name;
use crate::facts::{LauncherEvents, LauncherProcess};
use crate::labels::INSTANCES_PATH;
use crate::view::ActuationPod;

/// How long a connection is used, and how much is read from it. It is then replaced.
const WATCH_BOUNDS: Bounds = Bounds { time: Duration::from_secs(3600), bytes: 64 << 20 };
/// The longest event: the state of an instance, of which the largest part is its options.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// A watch that ends before has failed, and is begun again after a delay.
const MIN_WATCH_TIME: Duration = Duration::from_secs(10);

/// Waits for the next event of a launcher. Clones share connections.
#[derive(Clone, Debug)]
pub struct EventResponder {
    client: PeerClient,
    /// The watches between two answers. While one is waited for, its question owns it: it is closed
    /// when nobody wants it any more.
    kept: Arc<Mutex<BTreeMap<LauncherProcess, OpenWatch>>>,
}

/// A watch that has begun.
#[derive(Debug)]
struct OpenWatch {
    body: ResponseBody,
    opened: Moment,
    /// What was announced so far.
    events: LauncherEvents,
    /// The beginning of an event whose end has not arrived.
    part: Vec<u8>,
}

impl Responder<LauncherEvents> for EventResponder {
    fn answer<'a>(
        &'a self,
        question: &'a LauncherProcess,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<LauncherEvents, String>> {
        Box::pin(self.next(context.handle.world(), &context.clock, question))
    }
}

impl EventResponder {
    /// A responder without connections.
    #[must_use]
    pub fn new(client: PeerClient) -> Self {
        Self { client, kept: Arc::default() }
    }

    /// Waits until a launcher announces something. A watch that ends is continued after the event
    /// that arrived last.
    pub(super) async fn next(
        &self,
        world: &World,
        clock: &Clock,
        process: &LauncherProcess,
    ) -> Result<LauncherEvents, String> {
        let kept = self.kept().remove(process);
        let mut watch = match kept {
            Some(watch) => watch,
            None => self.begin(world, clock, process).await?,
        };
        match watch.read(clock).await {
            Ok(()) => {
                let events = watch.events.clone();
                self.keep(world, process, watch);
                Ok(events)
            }
            Err(_) if clock.moment() >= watch.opened + MIN_WATCH_TIME => {
                // What happens until the next watch is not known: the launcher is asked once.
                Ok(LauncherEvents { arrived: clock.now(), ..watch.events })
            }
            Err(error) => Err(error),
        }
    }

    async fn begin(
        &self,
        world: &World,
        clock: &Clock,
        process: &LauncherProcess,
    ) -> Result<OpenWatch, String> {
        let config = config_name(world, &process.launcher.pod);
        let known = world.facts::<LauncherEvents>().observed(process);
        let since = known.map(|it| it.value.revision).filter(|it| *it > 0);
        let mut events = LauncherEvents::none(clock.now());
        let (mut status, mut body) = self.open(process, &config, since).await?;
        if since.is_some() && status == StatusCode::GONE {
            (status, body) = self.open(process, &config, None).await?;
        } else {
            events.revision = since.unwrap_or(0);
        }
        if !status.is_success() {
            return Err(format!("HTTP status {status} for the events of the launcher"));
        }
        Ok(OpenWatch { body, opened: clock.moment(), events, part: Vec::new() })
    }

    async fn open(
        &self,
        process: &LauncherProcess,
        config: &str,
        since: Option<u64>,
    ) -> Result<(StatusCode, ResponseBody), String> {
        let since = since.map(|it| format!("&since={it}")).unwrap_or_default();
        self.client
            .open(PeerRequest {
                purpose: "watch_instances",
                method: Method::GET,
                pod: &process.launcher.pod,
                address: socket_address(&process.launcher)?,
                path: &format!("{INSTANCES_PATH}/watch?events=all{since}"),
                headers: HeaderMap::new(),
                body: None,
                bounds: WATCH_BOUNDS,
                has_token: true,
                config,
                requester: None,
            })
            .await
    }

    /// Keeps a watch for the next answer, and closes those of launchers that are gone.
    fn keep(&self, world: &World, process: &LauncherProcess, watch: OpenWatch) {
        let pods = world.store::<ActuationPod>();
        let mut kept = self.kept();
        kept.retain(|it, _| {
            pods.get(&it.launcher.pod).is_some_and(|pod| pod.metadata.uid == it.launcher.uid)
        });
        kept.insert(process.clone(), watch);
    }

    // Nothing panics while the lock is held.
    fn kept(&self) -> MutexGuard<'_, BTreeMap<LauncherProcess, OpenWatch>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWatch {
    /// Reads until something is announced.
    async fn read(&mut self, clock: &Clock) -> Result<(), String> {
        loop {
            let chunk = self.body.chunk().await.map_err(|error| error_chain(&error))?;
            let chunk = chunk.ok_or_else(|| "the launcher ended the watch".to_owned())?;
            self.part.extend_from_slice(&chunk);
            let Some(end) = self.part.iter().rposition(|it| *it == b'\n') else {
                if self.part.len() > MAX_EVENT_BYTES {
                    return Err(format!("an event has more than {MAX_EVENT_BYTES} bytes"));
                }
                continue;
            };
            let rest = self.part.split_off(end + 1);
            let lines = std::mem::replace(&mut self.part, rest);
            let lines = lines.split(|it| *it == b'\n').filter(|it| !it.is_empty());
            for line in lines {
                self.events.add(line, clock.now())?;
            }
            return Ok(());
        }
    }
}
