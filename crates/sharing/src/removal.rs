//! What may be taken away from a cluster that others use, and what stays.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::definition::Definition;
use crate::manifest::Manifest;

/// The objects of a group, as far as somebody may see them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// How many there are in each namespace; those in none are under the empty name.
    pub namespaces: BTreeMap<String, usize>,
    /// Kinds whose objects the caller may not list in all namespaces.
    pub unseen: Vec<String>,
}

impl Usage {
    /// Adds what there is of one kind.
    pub fn add(&mut self, objects: &[Value]) {
        for object in objects {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            *self.namespaces.entry(namespace.to_owned()).or_default() += 1;
        }
    }

    /// Who would lose something beside the caller, whose namespace is given.
    #[must_use]
    pub fn others(&self, own: &str) -> BTreeMap<String, usize> {
        let others = self.namespaces.iter().filter(|(name, _)| name.is_empty() || *name != own);
        others.map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// Whether reasons to stay are listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// They are.
    No,
    /// They are not: somebody takes the responsibility.
    Yes,
}

/// What is to be done about an object that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is not there.
    Absent,
    /// It is going already.
    Going,
    /// It is deleted, if it still is as it was read.
    Delete {
        /// The revision it was read at.
        resource_version: String,
    },
    /// It stays.
    Keep(Vec<Kept>),
}

/// A reason to stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Kept {
    /// Others have objects of the group, which would be deleted or lose their protection.
    InUse {
        /// How many in which namespace.
        namespaces: BTreeMap<String, usize>,
    },
    /// It has versions of others.
    ForeignVersions {
        /// Those versions.
        versions: Vec<String>,
    },
    /// Whether others have objects cannot be seen.
    Unseen {
        /// The kinds.
        kinds: Vec<String>,
    },
}

impl Kept {
    /// Whether the caller lacks a right, rather than somebody else having a need.
    #[must_use]
    pub fn is_blindness(&self) -> bool {
        match self {
            Self::Unseen { .. } => true,
            Self::InUse { .. } | Self::ForeignVersions { .. } => false,
        }
    }
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse { namespaces } => {
                let place = |(name, count): (&String, &usize)| match name.as_str() {
                    "" => format!("{count} in no namespace"),
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

/// Decides about a definition that is to go.
#[must_use]
pub fn definition(
    wanted: &Manifest,
    found: Option<&Value>,
    usage: &Usage,
    own: &str,
    force: Force,
) -> Decision {
    let Some(found) = found else { return Decision::Absent };
    let present = Definition::read(found);
    if present.terminating {
        return Decision::Going;
    }
    let mut kept = in_use(usage, own);
    let versions = present.versions.iter().map(|it| &it.name).chain(&present.stored);
    let mut versions: Vec<String> = versions.filter(|it| !wanted.has(it)).cloned().collect();
    versions.sort_unstable();
    versions.dedup();
    if !versions.is_empty() {
        kept.insert(0, Kept::ForeignVersions { versions });
    }
    settle(kept, &present.resource_version, force)
}

/// Decides about a policy or a binding of one that is to go.
#[must_use]
pub fn policy(found: Option<&Value>, usage: &Usage, own: &str, force: Force) -> Decision {
    let Some(found) = found else { return Decision::Absent };
    let revision = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    settle(in_use(usage, own), revision, force)
}

fn in_use(usage: &Usage, own: &str) -> Vec<Kept> {
    let mut kept = Vec::new();
    let others = usage.others(own);
    if !others.is_empty() {
        kept.push(Kept::InUse { namespaces: others });
    }
    if !usage.unseen.is_empty() {
        kept.push(Kept::Unseen { kinds: usage.unseen.clone() });
    }
    kept
}

fn settle(kept: Vec<Kept>, revision: &str, force: Force) -> Decision {
    match force {
        Force::No if !kept.is_empty() => Decision::Keep(kept),
        Force::No | Force::Yes => Decision::Delete { resource_version: revision.to_owned() },
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
    fn what_others_use_stays_unless_forced() {
        let ours = Manifest::built_in(&[FMA_GROUP.to_owned()]).remove(0);
        let plain = found(&["v1alpha1"], &["v1alpha1"]);
        let foreign = found(&["v1alpha1", "v9"], &["v1alpha1"]);
        let once_stored = found(&["v1alpha1"], &["v1alpha1", "v0"]);
        let (none, own) = (usage(&[], &[]), usage(&[("mine", 3)], &[]));
        let others = usage(&[("mine", 3), ("theirs", 2)], &[]);
        let table: [(&str, Option<&Value>, &Usage, &str); 8] = [
            ("nothing there", None, &others, "absent"),
            ("nobody uses it", Some(&plain), &none, "delete"),
            ("only the caller does", Some(&plain), &own, "delete"),
            ("others do", Some(&plain), &others, "objects of the group: 2 in theirs"),
            ("in no namespace", Some(&plain), &usage(&[("", 1)], &[]), "1 in no namespace"),
            ("who knows", Some(&plain), &usage(&[], &["launcherconfigs"]), "cannot be seen"),
            ("a version of others", Some(&foreign), &none, "versions of others: v9"),
            ("a stored one", Some(&once_stored), &none, "versions of others: v0"),
        ];
        for (why, found, usage, words) in table {
            let decision = definition(&ours, found, usage, "mine", Force::No);
            let said = match &decision {
                Decision::Absent => "absent".to_owned(),
                Decision::Going => "going".to_owned(),
                Decision::Delete { resource_version } => {
                    assert_eq!(resource_version, "7");
                    "delete".to_owned()
                }
                Decision::Keep(kept) => kept.iter().map(ToString::to_string).collect(),
            };
            assert!(said.contains(words), "{why}: {said}");
            let forced = definition(&ours, found, usage, "mine", Force::Yes);
            assert!(!matches!(forced, Decision::Keep(_)), "{why}");
        }
        let mut going = plain.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let decision = definition(&ours, Some(&going), &others, "mine", Force::Yes);
        assert_eq!(decision, Decision::Going);
    }

    #[test]
    fn policies_stay_while_others_have_something_to_protect() {
        let object = json!({"metadata": {"resourceVersion": "9"}});
        let delete = Decision::Delete { resource_version: "9".to_owned() };
        let others = usage(&[("theirs", 1)], &[]);
        assert_eq!(policy(None, &others, "mine", Force::No), Decision::Absent);
        assert_eq!(policy(Some(&object), &usage(&[("mine", 1)], &[]), "mine", Force::No), delete);
        assert!(matches!(policy(Some(&object), &others, "mine", Force::No), Decision::Keep(_)));
        assert_eq!(policy(Some(&object), &others, "mine", Force::Yes), delete);
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
        // What is in no namespace is nobody's alone.
        assert_eq!(usage.others(""), usage.namespaces);
    }
}
