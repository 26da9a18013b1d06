//! Reads what configures devices, for the claims that wait for it.
//!
//! The objects may be of any kind, so no cache has them. They are read for as long as a claim waits,
//! and again every few seconds: a claim gets what they say when it gets its devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{DeviceClaim, DeviceClass, DeviceDriver, DevicePrivilegedClaim};
use gantry_controller::Handle;
use gantry_placement::{Configs, Reference, Seen, concerns, referred};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Controller, Key, Kind, Meta, Plan, Shelf, View as _, World};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::Notify;

/// How long what was read counts as new.
const FRESH: Duration = Duration::from_secs(2);

/// Reads configs.
#[derive(Debug)]
pub struct Reader(Arc<Watcher>);

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// One that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Watcher::default()))
    }

    /// Who tells it of claims.
    #[must_use]
    pub fn watcher(&self) -> Arc<dyn Controller> {
        Arc::<Watcher>::clone(&self.0)
    }

    /// Reads for as long as the tasks run.
    pub fn spawn(self, tasks: &mut Tasks, handle: Handle, client: Client) {
        let clock = tasks.clock().clone();
        tasks.spawn("configs of devices", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: what was read is told at once.
                () = stop.cancelled() => {}
                () = self.read(&handle, &client, &clock) => {}
            }
            Ok(())
        });
    }

    async fn read(&self, handle: &Handle, client: &Client, clock: &Clock) {
        handle.filled().await;
        loop {
            let news = self.0.news.notified();
            let waiting = referred(handle.world());
            forget(handle, &waiting);
            let mut plurals = BTreeMap::new();
            for (claim, references) in &waiting {
                let mut found = BTreeMap::new();
                for reference in references.iter().filter(|it| it.is_allowed()) {
                    match get(client, reference, &mut plurals).await {
                        Ok(Some(object)) => drop(found.insert(reference.word(), object)),
                        Ok(None) => {}
                        Err(error) => {
                            let config = reference.word();
                            tracing::warn!(%error, config, "could not read what configures devices");
                        }
                    }
                }
                tell(handle, claim, found);
            }
            match waiting.is_empty() {
                true => news.await,
                false => clock.sleep(FRESH).await,
            }
        }
    }
}

/// Hears of claims and classes as controllers do, and writes nothing.
#[derive(Debug, Default)]
struct Watcher {
    news: Notify,
}

impl Controller for Watcher {
    fn name(&self) -> &'static str {
        "device-configs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClass>>(),
            Kind::of::<Seen<DeviceDriver>>(),
            Kind::of::<Configs>(),
        ]
    }

    fn wakes(&self, world: &World, change: &Change) -> Vec<Key> {
        if concerns(world, change) {
            self.news.notify_one();
        }
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

fn shelf<R>(handle: &Handle, act: impl FnOnce(&Shelf<Configs>) -> (Vec<Change>, R)) -> Option<R> {
    let made = handle.make(&Configs::RESOURCE, |shelf| {
        match shelf.as_any().downcast_ref::<Shelf<Configs>>() {
            Some(shelf) => {
                let (changes, result) = act(shelf);
                (changes, Some(result))
            }
            None => (Vec::new(), None),
        }
    });
    made.flatten()
}

/// Says what was found for a claim, when that is news.
fn tell(handle: &Handle, claim: &Meta, found: BTreeMap<String, Value>) {
    let key = Configs::key(claim);
    let (name, namespace) = (key.name().to_owned(), key.namespace().to_owned());
    let configs = Configs { metadata: Meta { name, namespace, ..Meta::default() }, found };
    shelf(handle, |shelf| {
        let known = shelf.get(&key);
        let changes = match known.is_some_and(|it| *it == configs) {
            true => Vec::new(),
            false => vec![shelf.set(configs)],
        };
        (changes, ())
    });
}

/// Forgets what was read for claims that no longer wait.
fn forget(handle: &Handle, waiting: &[(Meta, Vec<Reference>)]) {
    shelf(handle, |shelf| {
        let keys = shelf.all().into_iter().map(|it| it.metadata.key());
        let gone = keys.filter(|key| waiting.iter().all(|(it, _)| Configs::key(it) != *key));
        (gone.collect::<Vec<_>>().iter().filter_map(|key| shelf.unset(key)).collect(), ())
    });
}

/// What an object says; nothing when it, or its kind, is not there.
async fn get(
    client: &Client,
    reference: &Reference,
    plurals: &mut BTreeMap<(String, String), Option<String>>,
) -> Result<Option<Value>, kube::Error> {
    let root = match reference.api_version.contains('/') {
        true => format!("/apis/{}", reference.api_version),
        false => format!("/api/{}", reference.api_version),
    };
    let kind = (reference.api_version.clone(), reference.kind.clone());
    let plural = match plurals.get(&kind) {
        Some(known) => known.clone(),
        None => {
            let list = ask(client, &root).await?.unwrap_or_default();
            let all = list["resources"].as_array().into_iter().flatten();
            let names = all.filter(|it| it["kind"] == *reference.kind);
            let mut names = names.filter_map(|it| it["name"].as_str());
            let plural = names.find(|it| !it.contains('/')).map(str::to_owned);
            plurals.insert(kind, plural.clone());
            plural
        }
    };
    let Some(plural) = plural else { return Ok(None) };
    let (namespace, name) = (&reference.namespace, &reference.name);
    ask(client, &format!("{root}/namespaces/{namespace}/{plural}/{name}")).await
}

async fn ask(client: &Client, path: &str) -> Result<Option<Value>, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
