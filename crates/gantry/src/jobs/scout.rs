//! Finds out about the kinds that AppWrappers wrap.
//!
//! A kind is looked for when the first AppWrapper names it, and from then on its wrapped objects are
//! followed. One that is not there, or that may not be used, is looked for again when an AppWrapper
//! passes that needs it: definitions are installed late, and so are rights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_controller::read::{self, Bounds, ReadError};
use gantry_controller::{Filter, Handle};
use gantry_process::clock::Clock;
use gantry_queue::app_wrapper::{AppWrapper, TypeName};
use gantry_queue::catalog::Entry;
use gantry_queue::dispatch::LABEL;
use gantry_queue::wrapped::Wrapped;
use gantry_queue::{Catalog, Progress};
use gantry_reconcile::{ApiPath, Change, Controller, Key, Kind, Plan, Resource, Scope, World};
use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// How long a server may take to answer about one kind, its first list included.
const PATIENCE: Duration = Duration::from_secs(30);
/// What one question about a kind may take: the largest groups are described in some hundred KiB.
const DISCOVERY_BOUNDS: Bounds = Bounds { time: PATIENCE, bytes: 8 << 20 };
/// How long nothing is asked about a kind after that was in vain.
const AGAIN: Duration = Duration::from_secs(1);
/// How many kinds are asked about at once.
const SIDE_BY_SIDE: usize = 16;
/// How often everybody who passed is looked at again. A catalog may have forgotten what it knew.
const ROUND: Duration = Duration::from_secs(60);
/// What must be allowed to look after an item.
const VERBS: [&str; 4] = ["list", "watch", "create", "delete"];

/// Whether rights are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything is allowed.
    All,
    /// The server says what is.
    Asked,
}

/// Hears of AppWrappers as controllers do, and asks the server about the kinds they wrap.
#[derive(Debug)]
pub(super) struct Scout {
    catalog: Catalog,
    /// Who waits for which kind to be found out about.
    wanted: Mutex<BTreeMap<TypeName, BTreeSet<Key>>>,
    news: Notify,
}

impl Controller for Scout {
    fn name(&self) -> &'static str {
        "queue-kinds"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if let Some(wrapper) = change.after() {
            self.hear(wrapper);
        }
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Why nothing was found out about a kind.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("could not ask the server")]
    Asked(#[source] Box<ReadError>),
    #[error(transparent)]
    Ended(#[from] gantry_controller::Ended),
    #[error(transparent)]
    Late(#[from] gantry_process::clock::TimedOut),
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::Asked(Box::new(error))
    }
}

impl Scout {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self { catalog, wanted: Mutex::default(), news: Notify::new() }
    }

    /// Where it puts down what it found out.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Puts down what an AppWrapper needs to know.
    fn hear(&self, wrapper: &AppWrapper) {
        let open = self.catalog.unsettled(wrapper);
        if !open.is_empty() {
            let mut wanted = self.wanted();
            for name in open {
                wanted.entry(name).or_default().insert(wrapper.metadata.key());
            }
            self.news.notify_one();
        }
    }

    /// Finds out about every kind that is asked for, side by side: one that nobody answers for keeps no
    /// other waiting.
    pub(super) async fn run(
        &self,
        handle: &Handle,
        client: &Client,
        clock: &Clock,
        rights: Rights,
    ) {
        handle.filled().await;
        let mut busy = BTreeSet::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            let open: Vec<TypeName> = self.wanted().keys().cloned().collect();
            for name in open {
                if busy.len() < SIDE_BY_SIDE && busy.insert(name.clone()) {
                    under_way.push(self.settle(name, handle, client, clock, rights));
                }
            }
            tokio::select! {
                // Each may be dropped: a notice is kept, and what is under way stays there.
                () = self.news.notified() => {}
                Some(name) = under_way.next() => {
                    busy.remove(&name);
                }
                () = clock.sleep(ROUND) => {
                    let all = handle.world().shelf::<AppWrapper>().all();
                    all.iter().filter(|it| it.status.can_run).for_each(|it| self.hear(it));
                }
            }
        }
    }

    /// Finds out about one kind, and lets those go on who wait for it.
    async fn settle(
        &self,
        name: TypeName,
        handle: &Handle,
        client: &Client,
        clock: &Clock,
        rights: Rights,
    ) -> TypeName {
        let asked = clock.now();
        let found = clock.timeout(PATIENCE, find(&name, handle, client, clock, rights)).await;
        let found = found.map_err(Fault::from).and_then(|it| it);
        let TypeName { api_version, kind } = &name;
        match found {
            Ok(entry) => {
                match &entry {
                    Entry::Usable(_) => {
                        tracing::info!(%api_version, %kind, "items may be of this kind");
                    }
                    Entry::Barred { verbs, .. } => {
                        let verbs = verbs.join(", ");
                        tracing::warn!(%api_version, %kind, verbs, "items cannot be of this kind: rights are missing");
                    }
                    Entry::Absent => {
                        tracing::info!(%api_version, %kind, "the server does not have this kind");
                    }
                }
                self.catalog.put(name.clone(), entry, asked);
                if !self.release(&name, handle) {
                    // Some have passed since it was asked.
                    clock.sleep(AGAIN).await;
                }
            }
            Err(fault) => {
                let error = anyhow::Error::from(fault);
                tracing::warn!(error = format!("{error:#}"), %api_version, %kind, "could not find out about a kind, trying again");
                clock.sleep(AGAIN).await;
            }
        }
        name
    }

    /// Wakes those who wait for a kind and need not any longer. Returns whether those are all.
    fn release(&self, name: &TypeName, handle: &Handle) -> bool {
        let shelf = handle.world().shelf::<AppWrapper>();
        let mut wanted = self.wanted();
        let keys = wanted.remove(name).unwrap_or_default();
        let waits = |key: &Key| {
            let wrapper = shelf.get(key);
            wrapper.is_some_and(|it| self.catalog.unsettled(&it).contains(name))
        };
        let (left, free): (BTreeSet<Key>, BTreeSet<Key>) = keys.into_iter().partition(waits);
        let all = left.is_empty();
        if !all {
            wanted.insert(name.clone(), left);
        }
        drop(wanted);
        free.into_iter().for_each(|key| handle.wake(Progress::NAME, key));
        all
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn wanted(&self) -> MutexGuard<'_, BTreeMap<TypeName, BTreeSet<Key>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the server about a kind; where it can be used, returns when all wrapped objects of it were seen.
async fn find(
    name: &TypeName,
    handle: &Handle,
    client: &Client,
    clock: &Clock,
    rights: Rights,
) -> Result<Entry, Fault> {
    // Users write it: what is no group and version is served by nobody.
    let Ok(path) = ApiPath::version(&name.api_version) else { return Ok(Entry::Absent) };
    let list = match read::get(client, clock, &path, DISCOVERY_BOUNDS).await {
        Ok(list) => list,
        Err(error) if error.is_not_found() => return Ok(Entry::Absent),
        Err(error) => return Err(error.into()),
    };
    let Some((resource, served)) = described(name, &list) else { return Ok(Entry::Absent) };
    if resource.scope == Scope::Cluster {
        return Ok(Entry::Usable(resource));
    }
    let mut missing: Vec<String> = Vec::new();
    for verb in VERBS {
        let allowed = served.contains(verb)
            && match rights {
                Rights::All => true,
                Rights::Asked => may(client, clock, verb, &resource).await?,
            };
        if !allowed {
            missing.push(verb.to_owned());
        }
    }
    if !missing.is_empty() {
        return Ok(Entry::Barred { resource, verbs: missing });
    }
    let filter = Filter { labels: LABEL.to_owned(), ..Filter::default() };
    handle.follow(Progress::NAME, &Kind::at::<Wrapped>(resource.clone()), filter).await?;
    Ok(Entry::Usable(resource))
}

pub(super) fn get(path: &ApiPath) -> kube::Result<Request<Vec<u8>>> {
    Request::get(path.as_str()).body(Vec::new()).map_err(kube::Error::HttpError)
}

/// How a kind is addressed and what the server can do with it, by the description of its group.
fn described(name: &TypeName, list: &Value) -> Option<(Resource, BTreeSet<String>)> {
    let all = list["resources"].as_array().into_iter().flatten();
    let mut own = all.filter(|it| it["kind"].as_str() == Some(&*name.kind));
    let found = own.find(|it| it["name"].as_str().is_some_and(|it| !it.contains('/')))?;
    let (group, version) = name.api_version.split_once('/').unwrap_or(("", &name.api_version));
    let resource = Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: found["name"].as_str()?.to_owned().into(),
        kind: name.kind.to_string().into(),
        scope: match found["namespaced"].as_bool() {
            Some(true) => Scope::Namespaced,
            Some(false) | None => Scope::Cluster,
        },
        status: false,
    };
    let verbs = found["verbs"].as_array().into_iter().flatten();
    Some((resource, verbs.filter_map(Value::as_str).map(str::to_owned).collect()))
}

/// Whether we may do this with all objects of a kind.
async fn may(
    client: &Client,
    clock: &Clock,
    verb: &str,
    resource: &Resource,
) -> Result<bool, ReadError> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "verb": verb, "group": resource.group, "version": resource.version,
            "resource": resource.plural,
        } },
    });
    let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let body = ("application/json", Some(&body));
    let answer = read::send(client, clock, Method::POST, &path, body, DISCOVERY_BOUNDS).await?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_in_the_description_of_its_group() {
        let list = json!({"resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true, "verbs": ["get"]},
            {"name": "jobs", "kind": "Job", "namespaced": true, "verbs": ["create", "list"]},
            {"name": "queues", "kind": "Queue", "namespaced": false, "verbs": []},
        ]});
        let name = |kind: &str| TypeName { api_version: "batch/v1".into(), kind: kind.into() };
        let (jobs, verbs) = described(&name("Job"), &list).unwrap();
        assert_eq!((jobs.to_string().as_str(), jobs.scope), ("jobs.batch", Scope::Namespaced));
        assert_eq!(verbs.into_iter().collect::<Vec<_>>(), ["create", "list"]);
        assert_eq!(described(&name("Queue"), &list).unwrap().0.scope, Scope::Cluster);
        assert_eq!(described(&name("CronJob"), &list), None);
    }
}
