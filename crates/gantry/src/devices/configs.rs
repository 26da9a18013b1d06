//! Reads what configures devices, for the claims that wait for it.
//!
//! The objects may be of any kind, so no cache has them. They are read for as long as a claim waits,
//! and again every few seconds: a claim gets what they say when it gets its devices.
//!
//! Users name the objects, so every read is bounded in time and size, several are under way at once, and
//! no namespace has more than its share of them: a slow read delays no other namespace. What cannot be read
//! is recorded with its reason, which the pod that waits shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_api::devices::{DeviceClaim, DeviceClass, DeviceDriver, DevicePrivilegedClaim};
use gantry_controller::Handle;
use gantry_controller::read::{self, Bounds, NoAnswer, ReadError};
use gantry_placement::{CONFIG_LABEL, Configs, Reference, Seen, concerns, referred};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{
    ApiPath, Change, Controller, InvalidPath, Key, Kind, Meta, Plan, Shelf, View as _, World,
};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::Notify;

/// How long what was read counts as new.
const FRESH: Duration = Duration::from_secs(2);
/// How long what is known about a kind is used.
const KIND_FRESH: Duration = Duration::from_secs(10);
/// How many kinds are remembered. Past it all are forgotten: those in use come back at once.
const KINDS_REMEMBERED: usize = 256;
/// How many claims are read for at once, and how many of one namespace.
const CONCURRENT_CLAIMS: usize = 32;
const CONCURRENT_CLAIMS_OF_NAMESPACE: usize = 4;
/// What one read may take. An object of which 10 KiB are copied has at most 256 KiB of annotations, and
/// about as much that says who wrote its fields.
const OBJECT_BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 1 << 20 };
/// The same for what describes a kind: definitions have schemas.
const KIND_BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 4 << 20 };

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
            let server = Server { client, clock, kinds: Mutex::default() };
            tokio::select! {
                // Either may be dropped: what was read is told at once.
                () = stop.cancelled() => {}
                () = self.read(&handle, &server) => {}
            }
            Ok(())
        });
    }

    async fn read(&self, handle: &Handle, server: &Server) {
        handle.filled().await;
        let mut reads = Reads::default();
        let mut under_way = FuturesUnordered::new();
        loop {
            let news = self.0.news.notified();
            let waiting = referred(handle.world());
            forget(handle, &waiting);
            for (claim, references) in reads.due(&waiting, server.clock.moment()) {
                under_way.push(server.read(claim.clone(), references.clone()));
            }
            tokio::select! {
                // Each may be dropped: a notice is kept, and what is under way stays there.
                () = news => {}
                Some(configs) = under_way.next() => {
                    reads.done(configs.metadata.key(), server.clock.moment());
                    tell(handle, configs);
                }
                () = server.clock.sleep(FRESH), if !waiting.is_empty() => {}
            }
        }
    }
}

/// Which claims are read for, and when each was read for last.
#[derive(Debug, Default)]
struct Reads {
    busy: BTreeSet<Key>,
    read: BTreeMap<Key, Moment>,
}

impl Reads {
    /// The claims that are to be read for now, those first that waited longest. They count as busy.
    fn due<'a>(
        &mut self,
        waiting: &'a [(Meta, Vec<Reference>)],
        now: Moment,
    ) -> Vec<&'a (Meta, Vec<Reference>)> {
        let keys: BTreeSet<Key> = waiting.iter().map(|(it, _)| Configs::key(it)).collect();
        self.read.retain(|key, _| keys.contains(key));
        let stale = |key: &Key| self.read.get(key).is_none_or(|at| now - *at >= FRESH);
        let mut due: Vec<_> = waiting.iter().map(|it| (Configs::key(&it.0), it)).collect();
        due.retain(|(key, _)| !self.busy.contains(key) && stale(key));
        due.sort_by_cached_key(|(key, _)| (self.read.get(key).copied(), key.clone()));
        let mut begun = Vec::new();
        for (key, claim) in due {
            let of_namespace = |it: &&Key| it.namespace() == key.namespace();
            let share = self.busy.iter().filter(of_namespace).count();
            if self.busy.len() < CONCURRENT_CLAIMS && share < CONCURRENT_CLAIMS_OF_NAMESPACE {
                self.busy.insert(key);
                begun.push(claim);
            }
        }
        begun
    }

    fn done(&mut self, key: Key, now: Moment) {
        self.busy.remove(&key);
        self.read.insert(key, now);
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

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
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
fn tell(handle: &Handle, configs: Configs) {
    let key = configs.metadata.key();
    shelf(handle, |shelf| {
        let known = shelf.get(&key);
        if known.is_some_and(|it| *it == configs) {
            return (Vec::new(), ());
        }
        for (config, problem) in &configs.problems {
            tracing::warn!(config, problem, "could not read what configures devices");
        }
        (vec![shelf.set(configs)], ())
    });
}

/// Forgets what was read for claims that no longer wait.
fn forget(handle: &Handle, waiting: &[(Meta, Vec<Reference>)]) {
    let waiting: BTreeSet<Key> = waiting.iter().map(|(it, _)| Configs::key(it)).collect();
    shelf(handle, |shelf| {
        let keys = shelf.all().into_iter().map(|it| it.metadata.key());
        let gone: Vec<Key> = keys.filter(|key| !waiting.contains(key)).collect();
        (gone.iter().filter_map(|key| shelf.unset(key)).collect(), ())
    });
}

/// Where objects are read.
struct Server {
    client: Client,
    clock: Clock,
    kinds: Mutex<BTreeMap<KindName, Known>>,
}

/// Group and version, kind, and whether its definition has to carry the label.
type KindName = (String, String, bool);

/// What is known about a kind: the path of a namespace's objects needs its plural name.
#[derive(Clone, Debug)]
struct Known {
    since: Moment,
    plural: String,
}

/// Why an object is not copied: it is not there, or it cannot be.
#[derive(Debug)]
enum Unread {
    NotFound,
    Problem(String),
}

impl From<InvalidPath> for Unread {
    fn from(invalid: InvalidPath) -> Self {
        Self::Problem(format!("cannot be addressed: {invalid}"))
    }
}

impl Server {
    /// Reads everything that a claim refers to.
    async fn read(&self, claim: Meta, references: Vec<Reference>) -> Configs {
        let key = Configs::key(&claim);
        let (name, namespace) = (key.name().to_owned(), key.namespace().to_owned());
        let metadata = Meta { name, namespace, ..Meta::default() };
        let mut configs = Configs { metadata, ..Configs::default() };
        for reference in references.iter().filter(|it| it.is_allowed()) {
            let word = reference.word();
            match self.get(reference).await {
                Ok(object) => drop(configs.found.insert(word, object)),
                Err(Unread::NotFound) => {}
                Err(Unread::Problem(problem)) => {
                    configs.problems.insert(word, problem);
                }
            }
        }
        configs
    }

    /// What an object says.
    async fn get(&self, reference: &Reference) -> Result<Value, Unread> {
        let Reference { api_version, kind, namespace, name, .. } = reference;
        let plural = match (api_version.as_str(), kind.as_str()) {
            ("v1", "ConfigMap") => "configmaps".to_owned(),
            _ => self.plural(reference).await?,
        };
        let path = ApiPath::object(api_version, namespace, &plural, name)?;
        let object = read::get(&self.client, &self.clock, &path, OBJECT_BOUNDS).await;
        object.map_err(|error| unread(&error, OBJECT_BOUNDS))
    }

    /// The plural name of the kind of an object that may be copied.
    async fn plural(&self, reference: &Reference) -> Result<String, Unread> {
        let Reference { api_version, kind, .. } = reference;
        let name = (api_version.clone(), kind.clone(), reference.needs_label());
        let now = self.clock.moment();
        if let Some(known) = self.kinds().get(&name).filter(|it| now - it.since < KIND_FRESH) {
            return Ok(known.plural.clone());
        }
        let plural = self.find(reference).await?;
        let mut kinds = self.kinds();
        if kinds.len() >= KINDS_REMEMBERED {
            kinds.clear();
        }
        kinds.insert(name, Known { since: now, plural: plural.clone() });
        Ok(plural)
    }

    async fn find(&self, reference: &Reference) -> Result<String, Unread> {
        let Reference { api_version, kind, .. } = reference;
        let path = ApiPath::version(api_version)?;
        let list = read::get(&self.client, &self.clock, &path, KIND_BOUNDS).await;
        let list = list.map_err(|error| unread(&error, KIND_BOUNDS))?;
        let all = list["resources"].as_array().into_iter().flatten();
        let all = all.filter(|it| it["kind"] == **kind && it["namespaced"] == true);
        let mut names = all.filter_map(|it| it["name"].as_str());
        let plural = names.find(|it| !it.contains('/')).ok_or(Unread::NotFound)?.to_owned();
        if reference.needs_label() {
            self.check_label(api_version, &plural).await?;
        }
        Ok(plural)
    }

    /// Whether objects of a kind may be copied into claims of users.
    async fn check_label(&self, api_version: &str, plural: &str) -> Result<(), Unread> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let definition = format!("{plural}.{group}");
        let refused = || {
            Unread::Problem(format!(
                "may not be copied into the claim: CustomResourceDefinition {definition} does not \
                 have the label {CONFIG_LABEL}: \"true\"; ask an administrator to set it, or use a \
                 ConfigMap"
            ))
        };
        let all = ApiPath::from_static("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let path = all.item(&definition)?;
        let found = match read::get(&self.client, &self.clock, &path, KIND_BOUNDS).await {
            // The kind of an aggregated server has no definition that could say so.
            Err(error) if error.is_not_found() => return Err(refused()),
            found => found.map_err(|error| unread(&error, KIND_BOUNDS))?,
        };
        match found["metadata"]["labels"][CONFIG_LABEL] == "true" {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<KindName, Known>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a read failed, for the user whose claim waits.
fn unread(error: &ReadError, bounds: Bounds) -> Unread {
    let Bounds { time, bytes } = bounds;
    Unread::Problem(match error {
        ReadError::Refused { .. } if error.is_not_found() => return Unread::NotFound,
        ReadError::Refused { message, .. } if error.is_forbidden() => format!(
            "may not be read by the allocator; ask an administrator to grant it the verb get, or use \
             a ConfigMap: {message}"
        ),
        ReadError::Refused { message, .. } => format!("could not be read: {message}"),
        ReadError::NoAnswer(NoAnswer::TooLarge(_)) => {
            format!("is too large: more than {bytes} bytes were sent; use a smaller object")
        }
        ReadError::NoAnswer(NoAnswer::Late(_)) => {
            format!("could not be read within {} seconds; it is tried again", time.as_secs())
        }
        ReadError::NoAnswer(error) => format!("could not be read; it is tried again: {error}"),
        ReadError::Garbled(error) => format!("could not be read: the answer is no JSON: {error}"),
    })
}

#[cfg(test)]
mod tests;
