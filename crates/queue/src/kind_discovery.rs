//! Whether the server has the kinds that AppWrappers wrap, and whether the queue may use them.
//!
//! Anything may be wrapped, so nobody can say in advance which kinds matter, and definitions are installed and
//! rights are granted while the queue runs. [`KindDiscovery`] asks about a kind when the first AppWrapper names
//! it. A kind that can be used stays so while an AppWrapper wraps it. One that cannot is asked about again when
//! an AppWrapper is admitted that needs it: an AppWrapper never fails because of an answer from before it was
//! admitted.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::fact::{Changed, FactState};
use gantry_reconcile::inquiry::{InquiryPolicy, Wanted};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, Resource, View as _, World};
use jiff::Timestamp;

use crate::app_wrapper::{AppWrapper, TypeName};
use crate::condition::{self, kind};

/// How long one answer may take, the first list of the objects of the kind included.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The first and the longest pause after an attempt that failed.
const DISCOVERY_RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(10));
/// After how long a kind is asked about again though no AppWrapper needs that.
const DISCOVERY_REFRESH_INTERVAL: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How often an admitted AppWrapper is checked whose kinds are not known as it needs them.
const STALE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the server says about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedKind {
    /// The server has it. If its objects are in namespaces, the queue follows those that are wrapped.
    Usable(Resource),
    /// The server has it, and does not let the queue do what it takes to wrap it.
    MissingRights {
        /// The kind.
        resource: Resource,
        /// What the queue may not do.
        verbs: Vec<String>,
    },
    /// The server does not have it.
    NotServed,
}

impl Fact for ServedKind {
    type Subject = TypeName;
    const NAME: &'static str = "served-kind";
}

/// What is known of a kind; nothing if that is not known, or was found out before `since` and may have changed.
#[must_use]
pub fn look(world: &World, name: &TypeName, since: Timestamp) -> Option<ServedKind> {
    if let Some(resource) = followed_anyway(name) {
        return Some(ServedKind::Usable(resource));
    }
    let state = world.facts::<ServedKind>().get(name);
    settled(state.as_deref(), since).cloned()
}

/// Pods and AppWrappers, which the queue follows whether they are wrapped or not.
#[must_use]
pub fn followed_anyway(name: &TypeName) -> Option<Resource> {
    let kinds = [Pod::RESOURCE, AppWrapper::RESOURCE].into_iter();
    let mut kinds = kinds.filter(|it| it.kind == *name.kind);
    kinds.find(|it| it.api_version() == *name.api_version)
}

/// The kind, if what is known of it counts for those that need it to be newer than this.
fn settled(state: Option<&FactState<ServedKind>>, since: Timestamp) -> Option<&ServedKind> {
    let observed = state?.observed.as_deref()?;
    match &observed.value {
        usable @ ServedKind::Usable(_) => Some(usable),
        unusable => (observed.at >= since).then_some(unusable),
    }
}

/// Why the server could not be asked about a kind, while that is so.
#[must_use]
pub fn failure(world: &World, name: &TypeName) -> Option<String> {
    let state = world.facts::<ServedKind>().get(name)?;
    state.failure.as_ref().map(|it| it.message.clone())
}

/// How new an answer must be to count for an AppWrapper: one that was admitted does not fail because of what was
/// true before.
#[must_use]
pub fn since(wrapper: &AppWrapper) -> Timestamp {
    let admitted = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    admitted.filter(|_| wrapper.status.can_run).unwrap_or(Timestamp::MIN)
}

/// Records that a server has these kinds, for those who have asked it by other means.
pub fn record(world: &World, kinds: impl IntoIterator<Item = Resource>, now: Timestamp) {
    let facts = world.facts::<ServedKind>();
    for resource in kinds {
        // There are no controllers yet that the change could be shown to.
        let _ = facts.record(TypeName::of(&resource), ServedKind::Usable(resource), now);
    }
}

/// The AppWrappers that a change of what is known about a kind lets go on: those that were admitted and wait for
/// it. It does not matter to pending ones.
pub(crate) fn concerned_by(world: &World, change: &Changed<'_, ServedKind>) -> Vec<Key> {
    let admitted = world.shelf::<AppWrapper>().tagged(&AppWrapper::admitted_with(change.subject));
    let concerned = admitted.iter().filter(|it| {
        let since = since(it);
        settled(change.before, since) != settled(change.after, since)
    });
    concerned.map(|it| it.metadata.key()).collect()
}

/// Asks about the kinds that AppWrappers wrap.
#[derive(Clone, Copy, Debug, Default)]
pub struct KindDiscovery;

impl KindDiscovery {
    /// The name of the inquiry.
    pub const NAME: &str = "queue-kind-discovery";
}

/// The kinds that an AppWrapper wraps, as its items name them.
fn names(wrapper: &AppWrapper) -> impl Iterator<Item = &TypeName> {
    wrapper.items().iter().filter_map(|it| it.name.as_ref())
}

impl Inquiry for KindDiscovery {
    type Fact = ServedKind;

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let same = match (change.before::<AppWrapper>(), change.after::<AppWrapper>()) {
            // Most changes are of counts and messages.
            (Some(before), Some(after)) => {
                since(before) == since(after) && names(before).eq(names(after))
            }
            (None, _) | (_, None) => false,
        };
        if same { Vec::new() } else { vec![change.key.clone()] }
    }

    fn wanted(&self, world: &World, key: &Key, now: Timestamp) -> Wanted<TypeName> {
        let mut wanted = Wanted::default();
        let Some(wrapper) = world.shelf::<AppWrapper>().get(key) else { return wanted };
        let since = since(&wrapper);
        for name in names(&wrapper) {
            if followed_anyway(name).is_some() {
                continue;
            }
            wanted.questions.insert(name.clone());
            if look(world, name, since).is_none() {
                wanted.stale.insert(name.clone());
            }
        }
        // An answer that is under way may have been asked for before the AppWrapper was admitted.
        let checks = wrapper.status.can_run && !wanted.stale.is_empty();
        wanted.requeue_at = checks.then(|| now.checked_add(STALE_CHECK_INTERVAL).ok()).flatten();
        wanted
    }

    fn policy(&self, _: &TypeName) -> InquiryPolicy {
        let (first_retry_delay, longest_retry_delay) = DISCOVERY_RETRY_DELAYS;
        InquiryPolicy {
            refresh_interval: DISCOVERY_REFRESH_INTERVAL,
            timeout: DISCOVERY_TIMEOUT,
            first_retry_delay,
            longest_retry_delay,
            // Whoever leads next has followed the wrapped objects already.
            leader_only: false,
        }
    }
}

#[cfg(test)]
mod tests;
