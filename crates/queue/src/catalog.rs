//! The kinds a server has, by how objects name them.
//!
//! Anything may be wrapped, so nobody can say before which kinds matter, and definitions come and go
//! while the queue runs. Whoever asks the server puts down here what it said, and when: a kind that was
//! not there once is asked for again before an AppWrapper fails for it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use gantry_pods::app_wrapper::TypeName;
use gantry_pods::view::Pod;
use gantry_reconcile::{Kind, Resource, Scope, View as _};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::wrapped::Wrapped;

/// The kinds that may be wrapped: by `apiVersion` and `kind`, what is known of each. Clones see the same.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<RwLock<Known>>);

/// How many kinds that cannot be used are remembered: users may write what they like. The one that was
/// asked for first is forgotten first, and asked for again when it is needed.
const UNUSABLE: usize = 1000;

impl Default for Catalog {
    fn default() -> Self {
        Self::open()
    }
}

#[derive(Debug, Default)]
struct Known {
    entries: BTreeMap<TypeName, (Entry, Timestamp)>,
    /// The kinds whose objects are seen.
    watched: Arc<[Resource]>,
    /// Whether nobody will ever know more.
    is_whole: bool,
}

impl Known {
    /// Forgets what cannot be used beyond [`UNUSABLE`].
    fn forget(&mut self) {
        let usable = |entry: &Entry| matches!(entry, Entry::Usable(_));
        let others = self.entries.iter().filter(|(_, (entry, _))| !usable(entry));
        if others.clone().count() > UNUSABLE {
            let oldest = others.min_by_key(|(_, (_, at))| *at).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.entries.remove(&oldest);
            }
        }
    }
}

/// What the server said about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It has it, and what is in namespaces is seen.
    Usable(Resource),
    /// It has it, and does not let us do this with it.
    Barred {
        /// The kind.
        resource: Resource,
        /// What is missing.
        verbs: Vec<String>,
    },
    /// It does not have it.
    Absent,
}

impl Catalog {
    /// These kinds and no others, for ever. Pods need not be among them.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Resource>) -> Self {
        let catalog = Self::open();
        for resource in kinds {
            let name = TypeName::of(&resource);
            catalog.put(name, Entry::Usable(resource), Timestamp::MIN);
        }
        catalog.write(|known| known.is_whole = true);
        catalog
    }

    /// Pods and AppWrappers, which are seen anyway; the others are found out.
    #[must_use]
    pub fn open() -> Self {
        let catalog = Self(Arc::default());
        for resource in [Pod::RESOURCE, AppWrapper::RESOURCE] {
            let name = TypeName::of(&resource);
            catalog.put(name, Entry::Usable(resource), Timestamp::MIN);
        }
        catalog
    }

    /// Puts down what the server said at some time.
    pub fn put(&self, name: TypeName, entry: Entry, at: Timestamp) {
        self.write(|known| {
            known.entries.insert(name, (entry, at));
            known.forget();
            let seen = [Pod::RESOURCE, AppWrapper::RESOURCE];
            let usable = known.entries.values().filter_map(|(entry, _)| match entry {
                Entry::Usable(resource) => Some(resource),
                Entry::Barred { .. } | Entry::Absent => None,
            });
            let usable = usable.filter(|it| it.scope == Scope::Namespaced && !seen.contains(it));
            known.watched = usable.cloned().collect();
        });
    }

    /// What is known of a kind; nothing where that is older than it may be. A kind that can be used
    /// stays so.
    #[must_use]
    pub fn look(&self, name: &TypeName, since: Timestamp) -> Option<Entry> {
        let known = self.read();
        match known.entries.get(name) {
            Some((entry @ Entry::Usable(_), _)) => Some(entry.clone()),
            Some((entry, at)) if *at >= since => Some(entry.clone()),
            Some(_) | None => known.is_whole.then_some(Entry::Absent),
        }
    }

    /// The kinds whose objects must be seen to know what became of items; pods and AppWrappers are
    /// seen anyway.
    #[must_use]
    pub fn watched(&self) -> Arc<[Resource]> {
        Arc::clone(&self.read().watched)
    }

    /// Shelves for [`watched`](Catalog::watched).
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        self.watched().iter().map(|it| Kind::at::<Wrapped>(it.clone())).collect()
    }

    /// The kinds of items that the server must be asked about before an AppWrapper can go on.
    #[must_use]
    pub fn unsettled(&self, wrapper: &AppWrapper) -> Vec<TypeName> {
        let since = since(wrapper);
        let names = wrapper.items().iter().filter_map(|it| it.name.as_ref());
        names.filter(|it| self.look(it, since).is_none()).cloned().collect()
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// How old what is known of the kinds of an AppWrapper may be: one that passed is not failed by what
/// was true before.
#[must_use]
pub fn since(wrapper: &AppWrapper) -> Timestamp {
    let passed = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    passed.filter(|_| wrapper.status.can_run).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_was_absent_is_asked_for_again_and_what_is_there_is_not() {
        let catalog = Catalog::open();
        let name = TypeName::of(&JOBS);
        assert_eq!(catalog.look(&name, Timestamp::MIN), None, "nobody has asked");
        catalog.put(name.clone(), Entry::Absent, at(5));
        assert_eq!(catalog.look(&name, at(5)), Some(Entry::Absent));
        assert_eq!(catalog.look(&name, at(6)), None, "it may have come since");
        catalog.put(name.clone(), Entry::Usable(JOBS), at(7));
        assert_eq!(catalog.look(&name, at(9)), Some(Entry::Usable(JOBS)));
        assert_eq!(catalog.watched().as_ref(), [JOBS]);
        let whole = Catalog::new([]);
        assert_eq!(whole.look(&name, at(9)), Some(Entry::Absent), "there is nobody to ask");
    }

    #[test]
    fn what_users_make_up_does_not_fill_the_memory() {
        let catalog = Catalog::open();
        catalog.put(TypeName::of(&JOBS), Entry::Usable(JOBS), at(0));
        let name = |n: i64| TypeName { api_version: "x/v1".into(), kind: n.to_string().into() };
        for n in 0..1010 {
            catalog.put(name(n), Entry::Absent, at(n));
        }
        assert_eq!(catalog.look(&name(9), Timestamp::MIN), None, "the oldest are forgotten");
        assert_eq!(catalog.look(&name(10), Timestamp::MIN), Some(Entry::Absent));
        assert_eq!(catalog.look(&TypeName::of(&JOBS), at(99)), Some(Entry::Usable(JOBS)));
    }

    #[test]
    fn who_passed_asks_for_news() {
        let wrapper = |can_run: bool| -> AppWrapper {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n"},
                "spec": {"resources": {"GenericItems": [
                    {"generictemplate": {"apiVersion": "batch/v1", "kind": "Job"}},
                    {"generictemplate": {"apiVersion": "v1", "kind": "Pod"}},
                    {},
                ]}},
                "status": {"canrun": can_run, "conditions": [{"type": "HeadOfLine", "status": "True",
                    "lastTransitionMicroTime": "1970-01-01T00:00:06.000000Z"}]},
            }))
            .unwrap()
        };
        let catalog = Catalog::open();
        let jobs = TypeName::of(&JOBS);
        assert_eq!(catalog.unsettled(&wrapper(false)), std::slice::from_ref(&jobs));
        catalog.put(jobs.clone(), Entry::Absent, at(5));
        assert_eq!(catalog.unsettled(&wrapper(false)), [], "nothing is done about it yet");
        assert_eq!(catalog.unsettled(&wrapper(true)), [jobs]);
    }
}
