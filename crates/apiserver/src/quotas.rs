//! Quotas and limit ranges: how much may be asked for in a namespace.
//!
//! What is used stands in the status of each quota, and a write that uses more first raises it there
//! by compare and swap, so that any number of writes at once cannot use more than there is. A write
//! that then fails, and every removal, has the status counted anew. Writes that have raised it and
//! are not stored yet are held here, and counted with what is stored. Nobody counts in a namespace
//! while a write of it raises: a count neither loses a write nor has it twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_admission::limits;
use gantry_admission::quota::{Charge, Counted, charge, total};
use gantry_admission::resources::{Amounts, amounts};
use gantry_store::Snapshot;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, RwLock};
use tokio_util::sync::CancellationToken;

use crate::admission::{Operation, Review};
use crate::api::Api;
use crate::parts::resource;
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::{Known, Metadata};
use crate::write::{Changed, Write, meta};

const QUOTAS: &str = "resourcequotas";
const RANGES: &str = "limitranges";
/// Namespaces share this many turns.
const TURNS: usize = 64;

/// Writes that count and are not stored yet, and namespaces to be counted anew.
#[derive(Debug)]
pub(crate) struct Quotas {
    state: Mutex<State>,
    wake: Notify,
    /// Shared by writes that raise what is used, and of one who counts it. They wait in line, so that
    /// neither keeps the other away for ever.
    turns: [RwLock<()>; TURNS],
    hasher: RandomState,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            wake: Notify::new(),
            turns: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::new(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: HashMap<u64, Hold>,
    stale: BTreeSet<String>,
}

/// What one write adds, by the name of the quota.
#[derive(Clone, Debug)]
struct Hold {
    namespace: String,
    added: BTreeMap<String, Amounts>,
    /// Where the object is stored.
    space: String,
    key: String,
    /// The revision that is changed; nothing for a new object.
    changes: Option<u64>,
}

impl Hold {
    /// Whether the write is not part of what is stored.
    fn is_pending(&self, stored: &Snapshot<Known>) -> bool {
        let space = stored.space(&self.space);
        space.get(self.key.as_bytes()).map(|entry| entry.revision.get()) == self.changes
    }
}

/// A write that counts. Whoever has it says when the write is stored; else all is counted anew.
#[derive(Debug)]
pub(crate) struct Reservation {
    quotas: Arc<Quotas>,
    id: u64,
    stored: AtomicBool,
}

impl Reservation {
    /// The write is stored: what it used is used.
    pub(crate) fn keep(&self) {
        self.stored.store(true, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.quotas.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hold) = state.held.remove(&self.id) else { return };
        if !*self.stored.get_mut() {
            state.stale.insert(hold.namespace);
            drop(state);
            self.quotas.wake.notify_one();
        }
    }
}

impl Quotas {
    fn hold(self: &Arc<Self>, hold: Hold) -> Reservation {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next += 1;
        let id = state.next;
        state.held.insert(id, hold);
        Reservation { quotas: Arc::clone(self), id, stored: AtomicBool::new(false) }
    }

    /// Whose turn it is in a namespace.
    fn turn(&self, namespace: &str) -> &RwLock<()> {
        let nth = self.hasher.hash_one(namespace) % TURNS as u64;
        &self.turns[usize::try_from(nth).unwrap_or_default()]
    }

    fn held(&self, namespace: &str) -> Vec<Hold> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.held.values().filter(|hold| hold.namespace == namespace).cloned().collect()
    }

    /// Has the quotas of a namespace counted anew.
    fn recount(&self, namespace: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stale.insert(namespace.to_owned());
        drop(state);
        self.wake.notify_one();
    }

    fn take(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stale.pop_first()
    }
}

impl Api {
    /// The objects of a core resource in a namespace.
    fn inside(&self, plural: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = resource(self, "", "v1", plural) else { return Vec::new() };
        trees_in(&self.0.store.snapshot(), &resource, namespace)
    }
    /// Gives containers what they do not say, where a limit range has it.
    pub(crate) fn fill_limits(&self, review: &Review<'_>, object: &mut Value) {
        if is_limited(review) && review.resource.plural == "pods" {
            for range in self.inside(RANGES, review.namespace) {
                limits::fill_pod(&range, object);
            }
        }
    }

    /// Refuses what asks for more or less than a limit range allows.
    pub(crate) fn check_limits(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let Some(object) = object.filter(|_| is_limited(review)) else { return Ok(()) };
        for range in self.inside(RANGES, review.namespace) {
            let faults = match review.resource.plural.as_str() {
                "pods" => limits::check_pod(&range, object),
                _ => limits::check_claim(&range, object),
            };
            match faults.as_slice() {
                [] => {}
                [one] => return Err(review.forbidden(Some(object), one)),
                more => {
                    let why = format!("[{}]", more.join(", "));
                    return Err(review.forbidden(Some(object), &why));
                }
            }
        }
        Ok(())
    }

    /// Takes what a write uses from the quotas of its namespace, or refuses it.
    pub(crate) async fn ask_quotas(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Reservation>, Refusal> {
        let Some(object) = object.filter(|_| review.resource.namespaced) else { return Ok(None) };
        let counted = counted(review.resource);
        if !counted.concerns(review.operation, review.subresource, object, review.old) {
            return Ok(None);
        }
        let quotas = self.inside(QUOTAS, review.namespace);
        let mut added = BTreeMap::new();
        for quota in quotas {
            let quota = self.counted_quota(quota).await?;
            let charge = charge(counted, &quota, object, review.old)
                .map_err(|why| review.forbidden(Some(object), &why))?;
            if let Charge::More { added: more, .. } = charge {
                added.insert(meta(&quota, "name").to_owned(), more);
            }
        }
        if added.is_empty() || review.dry_run {
            return Ok(None);
        }
        let names: Vec<String> = added.keys().cloned().collect();
        let (namespace, name) = (review.namespace.to_owned(), review.name);
        let hold = Hold {
            key: review.resource.key(&namespace, name),
            namespace,
            added,
            space: review.resource.space.clone(),
            changes: review.old.and_then(|old| meta(old, "resourceVersion").parse().ok()),
        };
        // Whoever counts next finds it held and raised, or neither.
        let _turn = self.0.quotas.turn(review.namespace).read().await;
        let reservation = self.0.quotas.hold(hold);
        for name in names {
            self.raise(review, counted, &name, object).await?;
        }
        Ok(Some(reservation))
    }

    /// A quota whose status is about its specification.
    async fn counted_quota(&self, quota: Value) -> Result<Value, Refusal> {
        if amounts(&quota["spec"]["hard"]) == amounts(&quota["status"]["hard"]) {
            return Ok(quota);
        }
        let (namespace, name) = (meta(&quota, "namespace"), meta(&quota, "name"));
        Box::pin(self.settle_quota(namespace, name)).await?;
        Ok(self.look("", "v1", QUOTAS, namespace, name).unwrap_or(quota))
    }

    /// Writes into a quota that more of it is used.
    async fn raise(
        &self,
        review: &Review<'_>,
        counted: Counted<'_>,
        name: &str,
        object: &Value,
    ) -> Result<(), Refusal> {
        let old = review.old;
        let written = self.write_status(review.namespace, name, |_, quota| {
            match charge(counted, quota, object, old) {
                Err(why) => Err(review.forbidden(Some(object), &why)),
                Ok(Charge::Free) => Ok(None),
                Ok(Charge::More { used, .. }) => Ok(Some(used)),
            }
        });
        match written.await {
            // It went meanwhile, and with it its limits.
            Err(refusal) if refusal.reason == "NotFound" && refusal.message.contains(QUOTAS) => {
                Ok(())
            }
            other => other,
        }
    }

    /// Changes what the status of a quota says is used, if `make` says that it changes.
    async fn write_status(
        &self,
        namespace: &str,
        name: &str,
        mut make: impl FnMut(&Api, &Value) -> Result<Option<Amounts>, Refusal> + Send,
    ) -> Result<(), Refusal> {
        let Some(quotas) = resource(self, "", "v1", QUOTAS) else { return Ok(()) };
        let metadata = Metadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            ..Metadata::default()
        };
        let mut write = self.own_write(&quotas, &metadata, Part::Status);
        let written = self.modify(&mut write, |api, write, live| {
            let mut quota = live.clone();
            if let Some(used) = make(api, live)? {
                let hard = live["spec"]["hard"].clone();
                quota["status"] = json!({ "hard": hard, "used": written(&used) });
                write.resource.own(write, Some(live), &mut quota);
            }
            Ok(Changed::to(quota))
        });
        Box::pin(written).await.map(drop)
    }

    /// Counts what is used of a quota.
    async fn settle_quota(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        let _turn = self.0.quotas.turn(namespace).write().await;
        self.write_status(namespace, name, |api, live| {
            let hard = amounts(&live["spec"]["hard"]);
            // Those under way first: one that is stored meanwhile is then among what is stored.
            let held = api.0.quotas.held(namespace);
            let stored = api.0.store.snapshot();
            let pending = held.iter().filter(|hold| hold.is_pending(&stored));
            let mut usages: Vec<Amounts> =
                pending.filter_map(|hold| hold.added.get(name).cloned()).collect();
            for resource in api.countable(&hard) {
                let counted = counted(&resource);
                let objects = trees_in(&stored, &resource, namespace);
                let mine = objects.iter().filter(|object| counted.in_scope(live, object));
                usages.extend(mine.map(|object| counted.usage(object)));
            }
            let used = total(&hard, &usages);
            let status = &live["status"];
            let same = amounts(&status["hard"]) == hard && amounts(&status["used"]) == used;
            Ok((!same).then_some(used))
        })
        .await
    }

    /// The resources whose objects use what is limited.
    fn countable(&self, hard: &Amounts) -> Vec<Arc<Resource>> {
        let registry = self.registry();
        let spaces = registry.spaces();
        let namespaced = spaces.values().filter(|it| it.namespaced);
        let meant = namespaced.filter(|it| hard.keys().any(|name| counted(it).owns(name)));
        meant.map(|it| Arc::clone(it)).collect()
    }

    /// Counts anew where somebody stopped using something, until told to stop.
    pub(crate) async fn keep_quotas(self, stop: CancellationToken) {
        for entry in self.0.store.space(QUOTAS).iter() {
            let metadata = entry.extra.metadata(&entry.value);
            self.0.quotas.recount(&metadata.namespace);
        }
        loop {
            while let Some(namespace) = self.0.quotas.take() {
                for quota in self.inside(QUOTAS, &namespace) {
                    if stop.is_cancelled() {
                        return;
                    }
                    let settled = self.settle_quota(&namespace, meta(&quota, "name")).await;
                    if let Err(refusal) = settled
                        && refusal.reason != "NotFound"
                    {
                        // The next change in the namespace has it counted again.
                        tracing::warn!(
                            namespace,
                            refusal = refusal.message,
                            "a quota could not be counted"
                        );
                    }
                }
            }
            // Both may be dropped: a wake-up that is missed here is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.quotas.wake.notified() => {}
            }
        }
    }

    /// Takes note of a stored change that may free something, or change what is limited.
    pub(crate) fn quota_note(&self, write: &Write, live: Option<&Value>, new: &Value) {
        let freed = match (write.resource.space.as_str(), live) {
            (QUOTAS, None) => true,
            // What others say is used is not believed: it would lift the limits.
            (QUOTAS, Some(live)) if !write.by_server && live["status"] != new["status"] => true,
            ("pods", Some(live)) => {
                let ends = |pod: &Value| {
                    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
                };
                !ends(live) && ends(new) || live["spec"] != new["spec"]
            }
            (QUOTAS | "services" | "persistentvolumeclaims", Some(live)) => {
                live["spec"] != new["spec"]
            }
            _ => false,
        };
        if freed {
            self.recount_inside(meta(new, "namespace"));
        }
    }

    /// Takes note that something went from a namespace.
    pub(crate) fn recount_inside(&self, namespace: &str) {
        let prefix = format!("{namespace}/");
        let space = self.0.store.space(QUOTAS);
        let from = std::ops::Bound::Included(prefix.as_bytes());
        let limited = space.range(from).next();
        if limited.is_some_and(|entry| entry.key.starts_with(prefix.as_bytes())) {
            self.0.quotas.recount(namespace);
        }
    }
}

/// The objects of a resource in a namespace.
fn trees_in(stored: &Snapshot<Known>, resource: &Resource, namespace: &str) -> Vec<Value> {
    let prefix = format!("{namespace}/");
    let space = stored.space(&resource.space);
    let from = std::ops::Bound::Included(prefix.as_bytes());
    let below = space.range(from).take_while(|it| it.key.starts_with(prefix.as_bytes()));
    below.map(|entry| resource.tree(entry)).collect()
}

fn counted(resource: &Resource) -> Counted<'_> {
    Counted { group: &resource.group, resource: &resource.plural }
}

fn written(amounts: &Amounts) -> Value {
    let entries = amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Whether limit ranges have a say: about new pods and claims, claims that change, and pods that
/// are resized.
fn is_limited(review: &Review<'_>) -> bool {
    let Resource { group, plural, .. } = &**review.resource;
    let leaving = review.old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_string());
    let meant = matches!(
        (plural.as_str(), review.operation, review.subresource),
        ("pods" | "persistentvolumeclaims", Operation::Create, "")
            | ("persistentvolumeclaims", Operation::Update, "")
            | ("pods", Operation::Update, "resize")
    );
    group.is_empty() && meant && !leaving
}
