//! An index of the stored roles and bindings.
//!
//! The index is not notified of changes. Every query first brings it up to date with the store,
//! which costs four pointer comparisons when nothing changed: a decision is never older than the
//! request, and a binding is in effect as soon as its write returns.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use gantry_rbac::{Aggregation, Attributes, Decision, EffectiveRules, Policy, Rule, User};
use gantry_store::{Snapshot, SpaceSnapshot};
use serde_json::Value;

use crate::api::{Entry, ObjectStore};
use crate::resource::stored::EntryCache;

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// The space in which ClusterRoles are stored.
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// An authorization mode. Modes are tried in order until one allows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// RBAC: by roles and bindings.
    Rbac,
    /// Allows everything.
    AlwaysAllow,
    /// Denies everything, except to administrators.
    AlwaysDeny,
}

/// Returns the name of the mode in kube-apiserver's flag.
impl fmt::Display for AuthorizationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
        })
    }
}

/// Authorizes requests.
#[derive(Debug)]
pub(crate) struct Authorizer {
    modes: Vec<AuthorizationMode>,
    index: RwLock<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// The store snapshot that the index was built from.
    snapshots: [Option<SpaceSnapshot<EntryCache>>; 4],
    policy: Policy,
    aggregation: Aggregation,
}

/// The spaces that are indexed.
#[derive(Clone, Copy, Debug)]
enum Space {
    ClusterRoles,
    Roles,
    ClusterBindings,
    Bindings,
}

impl Space {
    const ALL: [Self; 4] = [Self::ClusterRoles, Self::Roles, Self::ClusterBindings, Self::Bindings];

    fn name(self) -> &'static str {
        match self {
            Self::ClusterRoles => CLUSTER_ROLES,
            Self::Roles => "roles.rbac.authorization.k8s.io",
            Self::ClusterBindings => "clusterrolebindings.rbac.authorization.k8s.io",
            Self::Bindings => "rolebindings.rbac.authorization.k8s.io",
        }
    }
}

impl Authorizer {
    pub(crate) fn new(modes: Vec<AuthorizationMode>) -> Self {
        Self { modes, index: RwLock::default() }
    }

    /// Decides whether a user may do this, by what is stored now.
    pub(crate) fn decide(
        &self,
        store: &ObjectStore,
        user: User<'_>,
        asked: &Attributes,
    ) -> Decision {
        if user.is_administrator() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons: Vec<String> = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                AuthorizationMode::Rbac => {
                    self.with_index(store, |index| index.policy.decide(user, asked))
                }
                AuthorizationMode::AlwaysAllow => Decision { allowed: true, reason: String::new() },
                AuthorizationMode::AlwaysDeny => {
                    Decision { allowed: false, reason: "Everything is forbidden.".to_owned() }
                }
            };
            if decision.allowed {
                return decision;
            }
            reasons.extend(Some(decision.reason).filter(|reason| !reason.is_empty()));
        }
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// Returns the rules a user holds in a namespace.
    pub(crate) fn effective_rules(
        &self,
        store: &ObjectStore,
        user: User<'_>,
        namespace: &str,
    ) -> EffectiveRules {
        let all = || vec!["*".to_owned()];
        let mut held = EffectiveRules::default();
        for mode in &self.modes {
            match mode {
                AuthorizationMode::Rbac => {
                    let more = self
                        .with_index(store, |index| index.policy.effective_rules(user, namespace));
                    held.rules.extend(more.rules);
                    held.errors = more.errors;
                }
                AuthorizationMode::AlwaysAllow => {
                    let (api_groups, resources) = (all(), all());
                    let rule = Rule { verbs: all(), api_groups, resources, ..Rule::default() };
                    held.rules.push(rule);
                    let non_resource_urls = all();
                    held.rules.push(Rule { verbs: all(), non_resource_urls, ..Rule::default() });
                }
                AuthorizationMode::AlwaysDeny => {}
            }
        }
        held
    }

    /// Queries the roles and bindings that are stored now.
    pub(crate) fn with_policy<T>(&self, store: &ObjectStore, ask: impl FnOnce(&Policy) -> T) -> T {
        self.with_index(store, |index| ask(&index.policy))
    }

    /// Computes the rules that aggregated ClusterRoles should have.
    pub(crate) fn with_aggregation<T>(
        &self,
        store: &ObjectStore,
        ask: impl FnOnce(&Aggregation) -> T,
    ) -> T {
        self.with_index(store, |index| ask(&index.aggregation))
    }

    fn with_index<T>(&self, store: &ObjectStore, ask: impl FnOnce(&Index) -> T) -> T {
        let now = store.snapshot();
        let known = self.index.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_current(&now) {
            return ask(&known);
        }
        drop(known);
        let mut known = self.index.write().unwrap_or_else(PoisonError::into_inner);
        // The snapshot is taken again: another thread may have updated the index further while this
        // one waited, and the index never goes back.
        known.catch_up(&store.snapshot());
        ask(&known)
    }
}

impl Index {
    /// Whether the index is up to date.
    fn is_current(&self, now: &Snapshot<EntryCache>) -> bool {
        Space::ALL.iter().zip(&self.snapshots).all(|(space, snapshot)| {
            snapshot.as_ref().is_some_and(|snapshot| snapshot.is_same(&now.space(space.name())))
        })
    }

    /// Applies what changed. Both snapshots are in key order, so one pass over both finds it.
    fn catch_up(&mut self, now: &Snapshot<EntryCache>) {
        for (place, space) in Space::ALL.into_iter().enumerate() {
            let new = now.space(space.name());
            let old =
                self.snapshots.get_mut(place).and_then(|snapshot| snapshot.replace(new.clone()));
            if old.as_ref().is_some_and(|old| old.is_same(&new)) {
                continue;
            }
            let mut old = old.iter().flat_map(SpaceSnapshot::iter).peekable();
            let mut new = new.iter().peekable();
            loop {
                let order = match (old.peek(), new.peek()) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(old), Some(new)) => old.key.cmp(&new.key),
                };
                let (before, after) = match order {
                    Ordering::Less => (old.next(), None),
                    Ordering::Greater => (None, new.next()),
                    Ordering::Equal => (old.next(), new.next()),
                };
                match (before, after) {
                    (Some(before), None) => self.remove(space, before),
                    (before, Some(after))
                        if before.is_none_or(|it| it.revision != after.revision) =>
                    {
                        self.add(space, after);
                    }
                    (Some(_) | None, _) => {}
                }
            }
        }
    }

    fn add(&mut self, space: Space, entry: &Entry) {
        // Only objects are ever stored, so this never fails.
        let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let key = String::from_utf8_lossy(&entry.key);
        let (namespace, name) = namespace_and_name(&key);
        match space {
            Space::ClusterRoles => {
                self.policy.set_cluster_role(name, &object);
                self.aggregation.add(&object);
            }
            Space::Roles => self.policy.set_role(namespace, name, &object),
            Space::ClusterBindings => self.policy.set_cluster_binding(name, &object),
            Space::Bindings => self.policy.set_binding(namespace, name, &object),
        }
    }

    fn remove(&mut self, space: Space, entry: &Entry) {
        let key = String::from_utf8_lossy(&entry.key);
        let (namespace, name) = namespace_and_name(&key);
        match space {
            Space::ClusterRoles => {
                self.policy.remove_cluster_role(name);
                self.aggregation.remove(name);
            }
            Space::Roles => self.policy.remove_role(namespace, name),
            Space::ClusterBindings => self.policy.remove_cluster_binding(name),
            Space::Bindings => self.policy.remove_binding(namespace, name),
        }
    }
}

/// Splits a key into namespace and name. Names of roles contain no slash.
fn namespace_and_name(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
