//! Decides which shared objects may be removed from a cluster, and which stay.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::definition::Definition;
use crate::manifest::Manifest;

/// The objects of a group, as far as the caller may list them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The number of objects in each namespace; cluster-scoped ones are under the empty name.
    pub namespaces: BTreeMap<String, usize>,
    /// Kinds whose objects the caller may not list in all namespaces.
    pub unseen: Vec<String>,
}

impl Usage {
    /// Adds the objects of one kind.
    pub fn add(&mut self, objects: &[Value]) {
        for object in objects {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            *self.namespaces.entry(namespace.to_owned()).or_default() += 1;
        }
    }

    /// The namespaces that would lose objects, except the caller's own.
    #[must_use]
    pub fn other_namespaces(&self, own: &str) -> BTreeMap<String, usize> {
        let others = self.namespaces.iter().filter(|(name, _)| name.is_empty() || *name != own);
        others.map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// Whether reasons to keep an object are overridden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalForce {
    /// They are respected.
    No,
    /// They are overridden: the user takes the responsibility.
    Yes,
}

/// What to do about an object that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalDecision {
    /// It does not exist.
    NotFound,
    /// It is already terminating.
    Terminating,
    /// It is deleted, if it still has the revision at which it was read.
    Delete {
        /// The revision at which it was read.
        resource_version: String,
    },
    /// It is kept.
    Keep(Vec<RetainReason>),
}

/// A reason to keep an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum RetainReason {
    /// Other namespaces have objects of the group, which would be deleted or lose their protection.
    InUse {
        /// The number of objects in each namespace.
        namespaces: BTreeMap<String, usize>,
    },
    /// It has versions that this commit does not know.
    ForeignVersions {
        /// Those versions.
        versions: Vec<String>,
    },
    /// The caller may not list the objects of all namespaces.
    Unseen {
        /// The kinds.
        kinds: Vec<String>,
    },
}

impl RetainReason {
    /// Whether the caller lacks a permission, rather than others using the object.
    #[must_use]
    pub fn is_missing_permission(&self) -> bool {
        match self {
            Self::Unseen { .. } => true,
            Self::InUse { .. } | Self::ForeignVersions { .. } => false,
        }
    }
}

impl std::fmt::Display for RetainReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse { namespaces } => {
                let place = |(name, count): (&String, &usize)| match name.as_str() {
                    "" => format!("{count} cluster-scoped"),
                    name => format!("{count} in {name}"),
                };
                let places: Vec<_> = namespaces.iter().map(place).collect();
                write!(f, "others have objects of the group: {}", places.join(", "))
            }
            Self::ForeignVersions { versions } => {
                write!(f, "it has versions of others: {}", versions.join(", "))
            }
            Self::Unseen { kinds } => write!(
                f,
                "whether others have objects cannot be seen: no right to list {} in all \
                 namespaces, which ClusterRole gantry-viewer gives",
                kinds.join(", ")
            ),
        }
    }
}

/// Decides about a definition that is to be removed.
#[must_use]
pub fn definition(
    wanted: &Manifest,
    found: Option<&Value>,
    usage: &Usage,
    own: &str,
    force: RemovalForce,
) -> RemovalDecision {
    let Some(found) = found else { return RemovalDecision::NotFound };
    let present = Definition::read(found);
    if present.terminating {
        return RemovalDecision::Terminating;
    }
    let mut kept = in_use(usage, own);
    let versions = present.versions.iter().map(|it| &it.name).chain(&present.stored);
    let mut versions: Vec<String> = versions.filter(|it| !wanted.has(it)).cloned().collect();
    versions.sort_unstable();
    versions.dedup();
    if !versions.is_empty() {
        kept.insert(0, RetainReason::ForeignVersions { versions });
    }
    decide(kept, &present.resource_version, force)
}

/// Decides about a policy or a policy binding that is to be removed.
#[must_use]
pub fn policy(
    found: Option<&Value>,
    usage: &Usage,
    own: &str,
    force: RemovalForce,
) -> RemovalDecision {
    let Some(found) = found else { return RemovalDecision::NotFound };
    let revision = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    decide(in_use(usage, own), revision, force)
}

fn in_use(usage: &Usage, own: &str) -> Vec<RetainReason> {
    let mut kept = Vec::new();
    let others = usage.other_namespaces(own);
    if !others.is_empty() {
        kept.push(RetainReason::InUse { namespaces: others });
    }
    if !usage.unseen.is_empty() {
        kept.push(RetainReason::Unseen { kinds: usage.unseen.clone() });
    }
    kept
}

fn decide(kept: Vec<RetainReason>, revision: &str, force: RemovalForce) -> RemovalDecision {
    match force {
        RemovalForce::No if !kept.is_empty() => RemovalDecision::Keep(kept),
        RemovalForce::No | RemovalForce::Yes => {
            RemovalDecision::Delete { resource_version: revision.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::FMA_GROUP;
    use serde_json::json;

    fn usage(places: &[(&str, usize)], unseen: &[&str]) -> Usage {
        Usage {
            namespaces: places.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            unseen: unseen.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    fn found(versions: &[&str], stored: &[&str]) -> Value {
        let versions: Vec<_> = versions.iter().map(|it| json!({"name": it})).collect();
        json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"versions": versions}, "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn objects_in_use_are_kept_unless_forced() {
        let ours = Manifest::built_in(&[FMA_GROUP.to_owned()]).remove(0);
        let plain = found(&["v1alpha1"], &["v1alpha1"]);
        let foreign = found(&["v1alpha1", "v9"], &["v1alpha1"]);
        let once_stored = found(&["v1alpha1"], &["v1alpha1", "v0"]);
        let (none, own) = (usage(&[], &[]), usage(&[("mine", 3)], &[]));
        let others = usage(&[("mine", 3), ("theirs", 2)], &[]);
        let table: [(&str, Option<&Value>, &Usage, &str); 8] = [
            ("nothing there", None, &others, "absent"),
            ("it is not used", Some(&plain), &none, "delete"),
            ("only the caller does", Some(&plain), &own, "delete"),
            ("others do", Some(&plain), &others, "objects of the group: 2 in theirs"),
            ("cluster-scoped", Some(&plain), &usage(&[("", 1)], &[]), "1 cluster-scoped"),
            ("it is unknown", Some(&plain), &usage(&[], &["launcherconfigs"]), "cannot be seen"),
            ("a version of others", Some(&foreign), &none, "versions of others: v9"),
            ("a stored one", Some(&once_stored), &none, "versions of others: v0"),
        ];
        for (why, found, usage, words) in table {
            let decision = definition(&ours, found, usage, "mine", RemovalForce::No);
            let said = match &decision {
                RemovalDecision::NotFound => "absent".to_owned(),
                RemovalDecision::Terminating => "going".to_owned(),
                RemovalDecision::Delete { resource_version } => {
                    assert_eq!(resource_version, "7");
                    "delete".to_owned()
                }
                RemovalDecision::Keep(kept) => kept.iter().map(ToString::to_string).collect(),
            };
            assert!(said.contains(words), "{why}: {said}");
            let forced = definition(&ours, found, usage, "mine", RemovalForce::Yes);
            assert!(!matches!(forced, RemovalDecision::Keep(_)), "{why}");
        }
        let mut going = plain.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let decision = definition(&ours, Some(&going), &others, "mine", RemovalForce::Yes);
        assert_eq!(decision, RemovalDecision::Terminating);
    }

    #[test]
    fn policies_are_kept_while_others_use_them() {
        let object = json!({"metadata": {"resourceVersion": "9"}});
        let delete = RemovalDecision::Delete { resource_version: "9".to_owned() };
        let others = usage(&[("theirs", 1)], &[]);
        assert_eq!(policy(None, &others, "mine", RemovalForce::No), RemovalDecision::NotFound);
        assert_eq!(
            policy(Some(&object), &usage(&[("mine", 1)], &[]), "mine", RemovalForce::No),
            delete
        );
        assert!(matches!(
            policy(Some(&object), &others, "mine", RemovalForce::No),
            RemovalDecision::Keep(_)
        ));
        assert_eq!(policy(Some(&object), &others, "mine", RemovalForce::Yes), delete);
    }

    #[test]
    fn objects_are_counted_where_they_are() {
        let mut usage = Usage::default();
        usage.add(&[
            json!({"metadata": {"namespace": "a"}}),
            json!({"metadata": {"namespace": "a"}}),
            json!({"metadata": {"name": "x"}}),
        ]);
        assert_eq!(usage.namespaces, BTreeMap::from([("a".to_owned(), 2), (String::new(), 1)]));
        // Cluster-scoped objects do not belong to one namespace.
        assert_eq!(usage.other_namespaces(""), usage.namespaces);
    }
}
