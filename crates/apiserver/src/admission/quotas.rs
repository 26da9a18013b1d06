//! ResourceQuotas and LimitRanges: how much may be used in a namespace.
//!
//! Usage is in the status of each quota, and a write that uses more first raises it there by
//! compare-and-swap, so that any number of concurrent writes cannot exceed the limit. After a write
//! that then fails, and after every deletion, the status is recalculated. Writes that have raised
//! it and are not stored yet are held here, and counted with what is stored. A namespace is not
//! recalculated while a write of it raises the usage: a recalculation neither loses a write nor
//! counts it twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_admission::limit_ranger;
use gantry_admission::quota::{QuotaCharge, QuotaResource, charge, total_usage};
use gantry_admission::resources::{ResourceList, resource_list};
use gantry_store::Snapshot;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, RwLock};
use tokio_util::sync::CancellationToken;

use crate::admission::{Operation, Review};
use crate::api::Api;
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::{EntryCache, Metadata};
use crate::resource::strategy::{AdmissionRules, QuotaEffect};
use crate::response::status::StatusError;
use crate::verbs::subresources::resource;
use crate::verbs::write::{ModifiedObject, Write, meta};

const QUOTAS: &str = "resourcequotas";
const LIMIT_RANGES: &str = "limitranges";
/// The number of locks that namespaces share.
const LOCK_STRIPES: usize = 64;

/// Writes that are counted and not stored yet, and namespaces to be recalculated.
#[derive(Debug)]
pub(crate) struct Quotas {
    state: Mutex<State>,
    wake: Notify,
    /// Shared by writes that raise the usage, and exclusive for a recalculation. The lock is fair,
    /// so that neither starves the other.
    locks: [RwLock<()>; LOCK_STRIPES],
    hasher: RandomState,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            wake: Notify::new(),
            locks: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::new(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    pending: HashMap<u64, PendingUsage>,
    stale: BTreeSet<String>,
}

/// The usage of one write, by the name of the quota.
#[derive(Clone, Debug)]
struct PendingUsage {
    namespace: String,
    added: BTreeMap<String, ResourceList>,
    /// Where the object is stored.
    space: String,
    key: String,
    /// The revision that is changed; `None` for a new object.
    changes: Option<u64>,
}

impl PendingUsage {
    /// Whether the write is not part of what is stored.
    fn is_pending(&self, stored: &Snapshot<EntryCache>) -> bool {
        let space = stored.space(&self.space);
        space.get(self.key.as_bytes()).map(|entry| entry.revision.get()) == self.changes
    }
}

/// A counted write. Its holder reports when the write is stored; otherwise usage is recalculated.
#[derive(Debug)]
pub(crate) struct Reservation {
    quotas: Arc<Quotas>,
    id: u64,
    stored: AtomicBool,
}

impl Reservation {
    /// Marks the write as stored: its usage stays counted.
    pub(crate) fn commit(&self) {
        self.stored.store(true, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.quotas.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hold) = state.pending.remove(&self.id) else { return };
        if !*self.stored.get_mut() {
            state.stale.insert(hold.namespace);
            drop(state);
            self.quotas.wake.notify_one();
        }
    }
}

impl Quotas {
    fn reserve(self: &Arc<Self>, hold: PendingUsage) -> Reservation {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next += 1;
        let id = state.next;
        state.pending.insert(id, hold);
        Reservation { quotas: Arc::clone(self), id, stored: AtomicBool::new(false) }
    }

    /// Returns the lock of a namespace.
    fn namespace_lock(&self, namespace: &str) -> &RwLock<()> {
        let nth = self.hasher.hash_one(namespace) % LOCK_STRIPES as u64;
        &self.locks[usize::try_from(nth).unwrap_or_default()]
    }

    fn pending_usage(&self, namespace: &str) -> Vec<PendingUsage> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pending.values().filter(|hold| hold.namespace == namespace).cloned().collect()
    }

    /// Requests a recalculation of the quotas of a namespace.
    fn mark_stale(&self, namespace: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stale.insert(namespace.to_owned());
        drop(state);
        self.wake.notify_one();
    }

    fn pop_stale(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stale.pop_first()
    }
}

impl Api {
    /// Returns the objects of a core resource in a namespace.
    fn stored_in_namespace(&self, plural: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = resource(self, "", "v1", plural) else { return Vec::new() };
        trees_in(&self.0.store.snapshot(), &resource, namespace)
    }
    /// Gives containers the defaults of limit ranges.
    pub(crate) fn apply_limit_defaults(&self, review: &Review<'_>, object: &mut Value) {
        if is_limited(review) && review.resource.strategy.admission == AdmissionRules::Pod {
            for range in self.stored_in_namespace(LIMIT_RANGES, review.namespace) {
                limit_ranger::apply_pod_defaults(&range, object);
            }
        }
    }

    /// Refuses objects that exceed or fall below a limit range.
    pub(crate) fn check_limits(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        let Some(object) = object.filter(|_| is_limited(review)) else { return Ok(()) };
        for range in self.stored_in_namespace(LIMIT_RANGES, review.namespace) {
            let faults = match review.resource.strategy.admission {
                AdmissionRules::Pod => limit_ranger::check_pod(&range, object),
                AdmissionRules::PersistentVolumeClaim => limit_ranger::check_claim(&range, object),
                AdmissionRules::None
                | AdmissionRules::Node
                | AdmissionRules::PersistentVolume
                | AdmissionRules::PriorityClass
                | AdmissionRules::CertificateSigningRequest => Vec::new(),
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

    /// Reserves the usage of a write in the quotas of its namespace, or refuses it.
    pub(crate) async fn charge_quotas(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Reservation>, StatusError> {
        let Some(object) = object.filter(|_| review.resource.namespaced) else { return Ok(None) };
        let counted = counted(review.resource);
        if !counted.affects_usage(review.operation, review.subresource, object, review.old) {
            return Ok(None);
        }
        let quotas = self.stored_in_namespace(QUOTAS, review.namespace);
        let mut added = BTreeMap::new();
        for quota in quotas {
            let quota = self.up_to_date_quota(quota).await?;
            let charge = charge(counted, &quota, object, review.old)
                .map_err(|why| review.forbidden(Some(object), &why))?;
            if let QuotaCharge::Increase { added: more, .. } = charge {
                added.insert(meta(&quota, "name").to_owned(), more);
            }
        }
        if added.is_empty() || review.dry_run {
            return Ok(None);
        }
        let names: Vec<String> = added.keys().cloned().collect();
        let (namespace, name) = (review.namespace.to_owned(), review.name);
        let hold = PendingUsage {
            key: review.resource.key(&namespace, name),
            namespace,
            added,
            space: review.resource.space.clone(),
            changes: review.old.and_then(|old| meta(old, "resourceVersion").parse().ok()),
        };
        // A later recalculation finds the usage both held and raised, or neither.
        let _turn = self.0.quotas.namespace_lock(review.namespace).read().await;
        let reservation = self.0.quotas.reserve(hold);
        for name in names {
            self.increase_used(review, counted, &name, object).await?;
        }
        Ok(Some(reservation))
    }

    /// Whether the status of a quota is about its current specification.
    async fn up_to_date_quota(&self, quota: Value) -> Result<Value, StatusError> {
        if resource_list(&quota["spec"]["hard"]) == resource_list(&quota["status"]["hard"]) {
            return Ok(quota);
        }
        let (namespace, name) = (meta(&quota, "namespace"), meta(&quota, "name"));
        Box::pin(self.recalculate_quota(namespace, name)).await?;
        Ok(self.stored_value("", "v1", QUOTAS, namespace, name).unwrap_or(quota))
    }

    /// Raises the usage in the status of a quota.
    async fn increase_used(
        &self,
        review: &Review<'_>,
        counted: QuotaResource<'_>,
        name: &str,
        object: &Value,
    ) -> Result<(), StatusError> {
        let old = review.old;
        let written = self.write_status(review.namespace, name, |_, quota| {
            match charge(counted, quota, object, old) {
                Err(why) => Err(review.forbidden(Some(object), &why)),
                Ok(QuotaCharge::Unchanged) => Ok(None),
                Ok(QuotaCharge::Increase { used, .. }) => Ok(Some(used)),
            }
        });
        match written.await {
            // The quota was deleted meanwhile, and with it its limits.
            Err(refusal) if refusal.reason == "NotFound" && refusal.message.contains(QUOTAS) => {
                Ok(())
            }
            other => other,
        }
    }

    /// Changes the usage in the status of a quota, if `make` returns a change.
    async fn write_status(
        &self,
        namespace: &str,
        name: &str,
        mut make: impl FnMut(&Api, &Value) -> Result<Option<ResourceList>, StatusError> + Send,
    ) -> Result<(), StatusError> {
        let Some(quotas) = resource(self, "", "v1", QUOTAS) else { return Ok(()) };
        let metadata = Metadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            ..Metadata::default()
        };
        let mut write = self.server_write(&quotas, &metadata, WrittenSubresource::Status);
        let written = self.modify(&mut write, |api, write, live| {
            let mut quota = live.clone();
            if let Some(used) = make(api, live)? {
                let hard = live["spec"]["hard"].clone();
                quota["status"] = json!({ "hard": hard, "used": amounts_value(&used) });
                write.resource.update_managed_fields(write, Some(live), &mut quota);
            }
            Ok(ModifiedObject::new(quota))
        });
        Box::pin(written).await.map(drop)
    }

    /// Recalculates the usage of a quota.
    async fn recalculate_quota(&self, namespace: &str, name: &str) -> Result<(), StatusError> {
        let _turn = self.0.quotas.namespace_lock(namespace).write().await;
        self.write_status(namespace, name, |api, live| {
            let hard = resource_list(&live["spec"]["hard"]);
            // Pending writes first: one that is stored meanwhile is then among the stored objects.
            let held = api.0.quotas.pending_usage(namespace);
            let stored = api.0.store.snapshot();
            let pending = held.iter().filter(|hold| hold.is_pending(&stored));
            let mut usages: Vec<ResourceList> =
                pending.filter_map(|hold| hold.added.get(name).cloned()).collect();
            for resource in api.counted_resources(&hard) {
                let counted = counted(&resource);
                let objects = trees_in(&stored, &resource, namespace);
                let mine = objects.iter().filter(|object| counted.in_scope(live, object));
                usages.extend(mine.map(|object| counted.usage(object)));
            }
            let used = total_usage(&hard, &usages);
            let status = &live["status"];
            let same =
                resource_list(&status["hard"]) == hard && resource_list(&status["used"]) == used;
            Ok((!same).then_some(used))
        })
        .await
    }

    /// Returns the resources whose objects use what is limited.
    fn counted_resources(&self, hard: &ResourceList) -> Vec<Arc<Resource>> {
        let registry = self.registry();
        let spaces = registry.resources_by_space();
        let namespaced = spaces.values().filter(|it| it.namespaced);
        let meant = namespaced.filter(|it| hard.keys().any(|name| counted(it).covers(name)));
        meant.map(|it| Arc::clone(it)).collect()
    }

    /// Recalculates usage where objects were deleted or changed, until it is stopped.
    pub(crate) async fn run_quota_controller(self, stop: CancellationToken) {
        for entry in self.0.store.space(QUOTAS).iter() {
            let metadata = entry.extra.metadata(&entry.value);
            self.0.quotas.mark_stale(&metadata.namespace);
        }
        loop {
            while let Some(namespace) = self.0.quotas.pop_stale() {
                for quota in self.stored_in_namespace(QUOTAS, &namespace) {
                    if stop.is_cancelled() {
                        return;
                    }
                    let settled = self.recalculate_quota(&namespace, meta(&quota, "name")).await;
                    if let Err(refusal) = settled
                        && refusal.reason != "NotFound"
                    {
                        // The next change in the namespace requests it again.
                        tracing::warn!(
                            namespace,
                            refusal = refusal.message,
                            "could not recalculate resource quotas"
                        );
                    }
                }
            }
            // Cancel-safe: a missed wake-up is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.quotas.wake.notified() => {}
            }
        }
    }

    /// Observes a stored change that may free something, or change what is limited.
    pub(crate) fn note_quota_change(&self, write: &Write, live: Option<&Value>, new: &Value) {
        let freed = match (write.resource.strategy.quota, live) {
            (QuotaEffect::ResourceQuota, None) => true,
            // Usage that other clients write is not trusted: it would lift the limits.
            (QuotaEffect::ResourceQuota, Some(live))
                if !write.by_server && live["status"] != new["status"] =>
            {
                true
            }
            (QuotaEffect::Pod, Some(live)) => {
                let ends = |pod: &Value| {
                    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
                };
                !ends(live) && ends(new) || live["spec"] != new["spec"]
            }
            (QuotaEffect::ResourceQuota | QuotaEffect::Spec, Some(live)) => {
                live["spec"] != new["spec"]
            }
            (QuotaEffect::None, _) | (QuotaEffect::Pod | QuotaEffect::Spec, None) => false,
        };
        if freed {
            self.recount_namespace(meta(new, "namespace"));
        }
    }

    /// Observes a deletion in a namespace.
    pub(crate) fn recount_namespace(&self, namespace: &str) {
        let prefix = format!("{namespace}/");
        let space = self.0.store.space(QUOTAS);
        let from = std::ops::Bound::Included(prefix.as_bytes());
        let limited = space.range(from).next();
        if limited.is_some_and(|entry| entry.key.starts_with(prefix.as_bytes())) {
            self.0.quotas.mark_stale(namespace);
        }
    }
}

/// Returns the objects of a resource in a namespace.
fn trees_in(stored: &Snapshot<EntryCache>, resource: &Resource, namespace: &str) -> Vec<Value> {
    let prefix = format!("{namespace}/");
    let space = stored.space(&resource.space);
    let from = std::ops::Bound::Included(prefix.as_bytes());
    let below = space.range(from).take_while(|it| it.key.starts_with(prefix.as_bytes()));
    below.map(|entry| resource.tree(entry)).collect()
}

fn counted(resource: &Resource) -> QuotaResource<'_> {
    QuotaResource { group: &resource.group, resource: &resource.plural }
}

fn amounts_value(amounts: &ResourceList) -> Value {
    let entries = amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Whether limit ranges apply: to new pods and claims, claims that change, and pods that are
/// resized.
fn is_limited(review: &Review<'_>) -> bool {
    let rules = review.resource.strategy.admission;
    let leaving = review.old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_string());
    let meant = matches!(
        (rules, review.operation, review.subresource),
        (AdmissionRules::Pod | AdmissionRules::PersistentVolumeClaim, Operation::Create, "")
            | (AdmissionRules::PersistentVolumeClaim, Operation::Update, "")
            | (AdmissionRules::Pod, Operation::Update, "resize")
    );
    meant && !leaving
}
