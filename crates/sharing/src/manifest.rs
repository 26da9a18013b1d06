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

/// Why an object is no such manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    /// It is another kind of object.
    #[error("is a {kind}, not a CustomResourceDefinition of apiextensions.k8s.io/v1")]
    Kind {
        /// What it is.
        kind: String,
    },
    /// Others have rules of their own.
    #[error("defines a kind of group {group}, which is none of Gantry's: {}", groups().join(", "))]
    Group {
        /// Its group.
        group: String,
    },
    /// The name does not follow from the kind.
    #[error("is called {name}, and must be called {forced}")]
    Name {
        /// What it is called.
        name: String,
        /// What a server would accept.
        forced: String,
    },
    /// It does not say which version is wanted.
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
    /// It is not one that Gantry can decide about.
    pub fn read(mut object: Value) -> Result<Self, BadManifest> {
        let what = (text(&object, "/apiVersion"), text(&object, "/kind"));
        if what != ("apiextensions.k8s.io/v1", "CustomResourceDefinition") {
            return Err(BadManifest::Kind { kind: format!("{} {}", what.0, what.1) });
        }
        let group = text(&object, "/spec/group");
        if !groups().contains(&group) {
            return Err(BadManifest::Group { group: group.to_owned() });
        }
        let forced = format!("{}.{group}", text(&object, "/spec/names/plural"));
        let name = text(&object, "/metadata/name");
        if name != forced {
            return Err(BadManifest::Name { name: name.to_owned(), forced });
        }
        let stored = list(&object, "/spec/versions").iter().filter(|it| it["storage"] == true);
        let stored: Vec<&str> = stored.map(|it| text(it, "/name")).collect();
        let [version] = stored[..] else {
            return Err(BadManifest::Storage { count: stored.len() });
        };
        let version = version.to_owned();
        // What a server says about an object is no wish.
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

    /// The name in URLs.
    #[must_use]
    pub fn plural(&self) -> &str {
        text(&self.object, "/spec/names/plural")
    }

    /// The one version that the commit uses: the one it wants objects to be stored in.
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
        assert_eq!(read(server).as_ref(), Ok(&good), "what the server says is left out");
        type Change = fn(&mut Value);
        let table: [(Change, &str); 5] = [
            (|it| it["kind"] = json!("Pod"), "is a apiextensions.k8s.io/v1 Pod, not a"),
            (|it| it["spec"]["group"] = json!("x.test"), "group x.test, which is none of Gantry's"),
            (|it| it["metadata"]["name"] = json!("x"), "is called x, and must be called"),
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
