//! Discovers whether the server has the kinds that AppWrappers wrap, and whether the queue may use
//! them.
//!
//! Any kind may be wrapped, so the kinds are not known in advance, and definitions are installed
//! and permissions are granted while the queue runs. [`KindDiscovery`] asks about a kind when the
//! first AppWrapper names it. A kind that can be used stays so while an AppWrapper wraps it. One
//! that cannot is asked about again when an AppWrapper is admitted that needs it: an AppWrapper
//! never fails because of an answer from before it was admitted.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::fact::{FactState, TypedFactChange};
use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, Resource, View as _, World};
use jiff::Timestamp;

use crate::app_wrapper::{AppWrapper, TypeName};
use crate::condition::{self, kind};

/// How long one answer may take, the first list of the objects of the kind included.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The first and the longest delay after a failed attempt.
const DISCOVERY_RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(10));
/// After how long a kind is asked about again though no AppWrapper requires it.
const DISCOVERY_REFRESH_INTERVAL: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How often an admitted AppWrapper is checked for which the answers about its kinds are too old.
const STALE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The answer of the server about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedKind {
    /// The server has it. If it is namespaced, the queue watches its wrapped objects.
    Usable(Resource),
    /// The server has it, and the queue lacks permissions to wrap it.
    MissingRights {
        /// The kind.
        resource: Resource,
        /// The verbs that the queue may not use.
        verbs: Vec<String>,
    },
    /// The server does not have it.
    NotServed,
}

impl Fact for ServedKind {
    type Subject = TypeName;
    const NAME: &'static str = "served-kind";
}

/// Returns what is known of a kind; `None` if it is not known, or was discovered before `since` and
/// may have changed.
#[must_use]
pub fn served_kind(world: &World, name: &TypeName, since: Timestamp) -> Option<ServedKind> {
    if let Some(resource) = always_watched(name) {
        return Some(ServedKind::Usable(resource));
    }
    let state = world.facts::<ServedKind>().get(name);
    valid_kind(state.as_deref(), since).cloned()
}

/// Returns the resource of pods and AppWrappers, which the queue watches whether they are wrapped
/// or not.
#[must_use]
pub fn always_watched(name: &TypeName) -> Option<Resource> {
    let kinds = [Pod::RESOURCE, AppWrapper::RESOURCE].into_iter();
    let mut kinds = kinds.filter(|it| it.kind == *name.kind);
    kinds.find(|it| it.api_version() == *name.api_version)
}

/// Returns the kind, if the answer is newer than this where it may have changed.
fn valid_kind(state: Option<&FactState<ServedKind>>, since: Timestamp) -> Option<&ServedKind> {
    let observed = state?.observed.as_deref()?;
    match &observed.value {
        usable @ ServedKind::Usable(_) => Some(usable),
        unusable => (observed.at >= since).then_some(unusable),
    }
}

/// Returns why the server could not be asked about a kind, while that is so.
#[must_use]
pub fn discovery_failure(world: &World, name: &TypeName) -> Option<String> {
    let state = world.facts::<ServedKind>().get(name)?;
    state.failure.as_ref().map(|it| it.message.clone())
}

/// Returns how new an answer must be to be valid for an AppWrapper: an admitted one does not fail
/// because of what was true before.
#[must_use]
pub fn required_since(wrapper: &AppWrapper) -> Timestamp {
    let admitted = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    admitted.filter(|_| wrapper.status.can_run).unwrap_or(Timestamp::MIN)
}

/// Records that a server has these kinds, for callers that discovered them by other means.
pub fn record_served(world: &World, kinds: impl IntoIterator<Item = Resource>, now: Timestamp) {
    let facts = world.facts::<ServedKind>();
    for resource in kinds {
        // There are no controllers yet that the change could be delivered to.
        let _ = facts.record(TypeName::of(&resource), ServedKind::Usable(resource), now);
    }
}

/// Returns the AppWrappers that can proceed after a change about a kind: those that are admitted
/// and wait for it. It does not matter to pending ones.
pub(crate) fn affected_wrappers(
    world: &World,
    change: &TypedFactChange<'_, ServedKind>,
) -> Vec<Key> {
    let admitted =
        world.store::<AppWrapper>().by_index(&AppWrapper::admitted_kind_tag(change.subject));
    let concerned = admitted.iter().filter(|it| {
        let since = required_since(it);
        valid_kind(change.before, since) != valid_kind(change.after, since)
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

/// Returns the kinds that an AppWrapper wraps, as its items name them.
fn wrapped_types(wrapper: &AppWrapper) -> impl Iterator<Item = &TypeName> {
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
                required_since(before) == required_since(after)
                    && wrapped_types(before).eq(wrapped_types(after))
            }
            (None, _) | (_, None) => false,
        };
        if same { Vec::new() } else { vec![change.key.clone()] }
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<TypeName> {
        let mut wanted = WantedQuestions::default();
        let Some(wrapper) = world.store::<AppWrapper>().get(key) else { return wanted };
        let since = required_since(&wrapper);
        for name in wrapped_types(&wrapper) {
            if always_watched(name).is_some() {
                continue;
            }
            wanted.questions.insert(name.clone());
            if served_kind(world, name, since).is_none() {
                wanted.stale.insert(name.clone());
            }
        }
        // An answer that is in flight may have been requested before the AppWrapper was admitted.
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
            max_retry_delay: longest_retry_delay,
            // The next leader has watched the wrapped objects already.
            leader_only: false,
        }
    }
}

#[cfg(test)]
mod tests;
