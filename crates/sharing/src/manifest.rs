//! The definitions that a commit wants a cluster to have.

use gantry_api::object::{KINDS, groups};
use serde_json::Value;

use crate::definition::{list, text};

/// A CustomResourceDefinition of one of Gantry's groups, as a commit has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    object: Value,
    version: String,
}

/// Why an object is not such a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifest {
    /// It has another kind.
    #[error("is a {kind}, not a CustomResourceDefinition of apiextensions.k8s.io/v1")]
    Kind {
        /// Its kind.
        kind: String,
    },
    /// It belongs to another project, which has rules of its own.
    #[error("defines a kind of group {group}, not one of Gantry's: {}", groups().join(", "))]
    Group {
        /// Its group.
        group: String,
    },
    /// The name does not follow from the kind.
    #[error("is named {name}, and must be named {forced}")]
    Name {
        /// Its name.
        name: String,
        /// The name that a server accepts.
        forced: String,
    },
    /// It does not have exactly one storage version.
    #[error("must have one version with storage: true, which is the one it wants; it has {count}")]
    Storage {
        /// How many it has.
        count: usize,
    },
}

impl Manifest {
    /// The manifests of this build, for these groups; for all if none is named.
    #[must_use]
    pub fn built_in(of: &[String]) -> Vec<Self> {
        let wanted = |group: &str| of.is_empty() || of.iter().any(|it| it == group);
        let kinds = KINDS.iter().filter(|kind| wanted(kind.group));
        kinds.map(|kind| Self { object: kind.crd(), version: kind.version.to_owned() }).collect()
    }

    /// Checks an object that was read from a file.
    ///
    /// # Errors
    /// It is not a manifest that Gantry can decide about.
    pub fn read(mut object: Value) -> Result<Self, InvalidManifest> {
        let what = (text(&object, "/apiVersion"), text(&object, "/kind"));
        if what != ("apiextensions.k8s.io/v1", "CustomResourceDefinition") {
            return Err(InvalidManifest::Kind { kind: format!("{} {}", what.0, what.1) });
        }
        let group = text(&object, "/spec/group");
        if !groups().contains(&group) {
            return Err(InvalidManifest::Group { group: group.to_owned() });
        }
        let forced = format!("{}.{group}", text(&object, "/spec/names/plural"));
        let name = text(&object, "/metadata/name");
        if name != forced {
            return Err(InvalidManifest::Name { name: name.to_owned(), forced });
        }
        let stored = list(&object, "/spec/versions").iter().filter(|it| it["storage"] == true);
        let stored: Vec<&str> = stored.map(|it| text(it, "/name")).collect();
        let [version] = stored[..] else {
            return Err(InvalidManifest::Storage { count: stored.len() });
        };
        let version = version.to_owned();
        // Fields that the server sets are not part of what is wanted.
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("status");
        }
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"]
        {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.shift_remove(field);
            }
        }
        Ok(Self { object, version })
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// The name of the CustomResourceDefinition.
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.object, "/metadata/name")
    }

    /// The API group.
    #[must_use]
    pub fn group(&self) -> &str {
        text(&self.object, "/spec/group")
    }

    /// The plural name in URLs.
    #[must_use]
    pub fn plural(&self) -> &str {
        text(&self.object, "/spec/names/plural")
    }

    /// The one version that the commit uses: its storage version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the manifest has this version.
    #[must_use]
    pub fn has(&self, version: &str) -> bool {
        self.versions().iter().any(|it| text(it, "/name") == version)
    }

    pub(crate) fn versions(&self) -> &[Value] {
        list(&self.object, "/spec/versions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::FMA_GROUP;
    use serde_json::json;

    #[test]
    fn cs_16_and_cs_17_one_version_of_each_group_is_used() {
        for group in groups() {
            let manifests = Manifest::built_in(&[group.to_owned()]);
            assert!(!manifests.is_empty(), "{group}");
            for manifest in &manifests {
                assert_eq!(manifest.group(), group);
                assert_eq!(manifest.version(), manifests[0].version(), "{}", manifest.name());
                assert_eq!(manifest.versions().len(), 1, "{}", manifest.name());
            }
        }
        assert_eq!(Manifest::built_in(&[]).len(), KINDS.len());
    }

    #[test]
    fn cs_22_the_names_are_published() {
        let manifests = Manifest::built_in(&[FMA_GROUP.to_owned()]);
        let names: Vec<_> = manifests.iter().map(Manifest::name).collect();
        assert_eq!(
            names,
            [
                "inferenceserverconfigs.fma.llm-d.ai",
                "launcherconfigs.fma.llm-d.ai",
                "launcherpopulationpolicies.fma.llm-d.ai",
            ]
        );
    }

    #[test]
    fn a_file_is_read_with_care() {
        let good = Manifest::built_in(&[FMA_GROUP.to_owned()]).remove(0);
        let read = |change: fn(&mut Value)| {
            let mut object = good.object().clone();
            change(&mut object);
            Manifest::read(object)
        };
        assert_eq!(read(|_| ()).as_ref(), Ok(&good));
        let server = |it: &mut Value| {
            it["status"] = json!({});
            it["metadata"]["uid"] = json!("u");
            it["metadata"]["resourceVersion"] = json!("7");
        };
        assert_eq!(read(server).as_ref(), Ok(&good), "fields of the server are left out");
        type Change = fn(&mut Value);
        let table: [(Change, &str); 5] = [
            (|it| it["kind"] = json!("Pod"), "is a apiextensions.k8s.io/v1 Pod, not a"),
            (|it| it["spec"]["group"] = json!("x.test"), "group x.test, not one of Gantry's"),
            (|it| it["metadata"]["name"] = json!("x"), "is named x, and must be named"),
            (|it| it["spec"]["versions"][0]["storage"] = json!(false), "it has 0"),
            (
                |it| {
                    let version = it["spec"]["versions"][0].clone();
                    it["spec"]["versions"].as_array_mut().unwrap().push(version);
                },
                "it has 2",
            ),
        ];
        for (change, words) in table {
            let said = read(change).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
