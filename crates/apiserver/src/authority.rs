//! What roles and bindings are stored, kept ready to be asked.
//!
//! Nobody tells the index of a change. Whoever asks it brings it up to the store first, which costs
//! four comparisons of pointers when nothing changed: an answer is never older than the request, and
//! whoever has just written a binding sees what it does.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use gantry_rbac::{Aggregation, Attributes, Decision, Held, Policy, Rule, User};
use gantry_store::{Snapshot, SpaceSnapshot};
use serde_json::Value;

use crate::api::{Entry, Shelf};
use crate::stored::Known;

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Where ClusterRoles are stored.
pub(crate) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// One way to decide about requests; the first that allows one is asked no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By roles and bindings.
    Rbac,
    /// Everyone may do everything.
    AlwaysAllow,
    /// Nobody may do anything, except administrators.
    AlwaysDeny,
}

/// As kube-apiserver's flag names it.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
        })
    }
}

/// Who decides about requests.
#[derive(Debug)]
pub(crate) struct Authority {
    modes: Vec<Mode>,
    known: RwLock<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// What the rest was made from.
    seen: [Option<SpaceSnapshot<Known>>; 4],
    policy: Policy,
    aggregation: Aggregation,
}

/// The spaces that matter.
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

impl Authority {
    pub(crate) fn new(modes: Vec<Mode>) -> Self {
        Self { modes, known: RwLock::default() }
    }

    /// Whether a user may do this, as things are stored now.
    pub(crate) fn decide(&self, store: &Shelf, user: User<'_>, asked: &Attributes) -> Decision {
        if user.is_administrator() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons: Vec<String> = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                Mode::Rbac => self.ask(store, |index| index.policy.decide(user, asked)),
                Mode::AlwaysAllow => Decision { allowed: true, reason: String::new() },
                Mode::AlwaysDeny => {
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

    /// The rules a user holds in a namespace.
    pub(crate) fn held(&self, store: &Shelf, user: User<'_>, namespace: &str) -> Held {
        let all = || vec!["*".to_owned()];
        let mut held = Held::default();
        for mode in &self.modes {
            match mode {
                Mode::Rbac => {
                    let more = self.ask(store, |index| index.policy.held(user, namespace));
                    held.rules.extend(more.rules);
                    held.errors = more.errors;
                }
                Mode::AlwaysAllow => {
                    let (api_groups, resources) = (all(), all());
                    let rule = Rule { verbs: all(), api_groups, resources, ..Rule::default() };
                    held.rules.push(rule);
                    let non_resource_urls = all();
                    held.rules.push(Rule { verbs: all(), non_resource_urls, ..Rule::default() });
                }
                Mode::AlwaysDeny => {}
            }
        }
        held
    }

    /// Asks the roles and bindings that are stored now.
    pub(crate) fn policy<T>(&self, store: &Shelf, ask: impl FnOnce(&Policy) -> T) -> T {
        self.ask(store, |index| ask(&index.policy))
    }

    /// Asks what ClusterRoles that are made of others should hold.
    pub(crate) fn aggregation<T>(&self, store: &Shelf, ask: impl FnOnce(&Aggregation) -> T) -> T {
        self.ask(store, |index| ask(&index.aggregation))
    }

    fn ask<T>(&self, store: &Shelf, ask: impl FnOnce(&Index) -> T) -> T {
        let now = store.snapshot();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_at(&now) {
            return ask(&known);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Taken anew: someone may have gone further while this one waited, and the index never goes
        // back.
        known.go_to(&store.snapshot());
        ask(&known)
    }
}

impl Index {
    /// Whether the index says what is stored.
    fn is_at(&self, now: &Snapshot<Known>) -> bool {
        Space::ALL.iter().zip(&self.seen).all(|(space, seen)| {
            seen.as_ref().is_some_and(|seen| seen.is_same(&now.space(space.name())))
        })
    }

    /// Takes over what changed. Both states are in the order of their keys, so one walk finds it.
    fn go_to(&mut self, now: &Snapshot<Known>) {
        for (place, space) in Space::ALL.into_iter().enumerate() {
            let new = now.space(space.name());
            let old = self.seen.get_mut(place).and_then(|seen| seen.replace(new.clone()));
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
                    (Some(before), None) => self.forget(space, before),
                    (before, Some(after))
                        if before.is_none_or(|it| it.revision != after.revision) =>
                    {
                        self.learn(space, after);
                    }
                    (Some(_) | None, _) => {}
                }
            }
        }
    }

    fn learn(&mut self, space: Space, entry: &Entry) {
        // Only what was an object when it was written is ever stored.
        let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let key = String::from_utf8_lossy(&entry.key);
        let (namespace, name) = place(&key);
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

    fn forget(&mut self, space: Space, entry: &Entry) {
        let key = String::from_utf8_lossy(&entry.key);
        let (namespace, name) = place(&key);
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

/// The namespace and the name in a key. Names of roles hold no slash.
fn place(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
