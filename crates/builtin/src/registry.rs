//! Lists the built-in resources with their names and verbs.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data;
use crate::types::{TypeId, kind_type};

/// One API group with its versions, the preferred one first.
#[derive(Debug)]
pub struct Group {
    /// Its name; empty for the core group.
    pub name: &'static str,
    /// Its versions in the order of preference.
    pub versions: Vec<Version>,
}

/// One version of a group.
#[derive(Debug)]
pub struct Version {
    /// Its name, as in `v1`.
    pub name: &'static str,
    /// What it serves, in the order of discovery.
    pub resources: Vec<Resource>,
}

/// A resource: a collection of objects and its names in the API.
#[derive(Debug)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name in paths.
    pub plural: String,
    /// The name of one.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of its lists; empty if it is never listed.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories it belongs to.
    pub categories: Vec<String>,
    /// The verbs, in the order of discovery.
    pub verbs: Vec<String>,
    /// The subresources of its objects, in the order of discovery.
    pub subresources: Vec<Subresource>,
    /// The hash by which clients notice that objects are stored in another version.
    pub storage_version_hash: Option<String>,
    /// The type of its objects.
    pub type_id: TypeId,
    /// The group and version of the resource of the same name in which its objects are stored. Only
    /// events and autoscalers are served in two groups or versions, see
    /// [`convert`](crate::convert).
    pub stored_as: (&'static str, &'static str),
}

/// A subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Its name, as in `status`.
    pub name: String,
    /// The group of its kind; empty, as the version, when it is the group of the resource.
    pub group: String,
    /// The version of its kind.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// The verbs, in the order of discovery.
    pub verbs: Vec<String>,
    /// The type of its kind. Kinds that are never sent as a body may have none.
    pub type_id: Option<TypeId>,
}

/// The groups that are Kubernetes' own, the core group first, in the order of discovery.
#[must_use]
pub fn groups() -> &'static [Group] {
    &REGISTRY.groups
}

/// The resource with that group, version and plural name.
#[must_use]
pub fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let places = REGISTRY.places.get(plural)?;
    let mut found = places.iter().map(|(group, version, resource)| {
        &REGISTRY.groups[*group].versions[*version].resources[*resource]
    });
    found.find(|resource| resource.group == group && resource.version == version)
}

struct Registry {
    groups: Vec<Group>,
    places: HashMap<&'static str, Vec<(usize, usize, usize)>>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let groups = load(&FILE);
    let mut places: HashMap<_, Vec<_>> = HashMap::new();
    for (g, group) in FILE.groups().enumerate() {
        for (v, version) in group.versions.iter().enumerate() {
            for (r, resource) in version.resources.iter().enumerate() {
                places.entry(resource.resource.as_str()).or_default().push((g, v, r));
            }
        }
    }
    Registry { groups, places }
});

static FILE: LazyLock<File> = LazyLock::new(|| data::parse(data::DISCOVERY));

#[derive(Deserialize)]
struct File {
    #[serde(rename = "/api")]
    core: FileList,
    #[serde(rename = "/apis")]
    named: FileList,
    hashes: HashMap<String, String>,
}

#[derive(Deserialize)]
struct FileList {
    items: Vec<FileGroup>,
}

#[derive(Deserialize)]
struct FileGroup {
    metadata: FileMeta,
    versions: Vec<FileVersion>,
}

#[derive(Deserialize)]
struct FileMeta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct FileVersion {
    version: String,
    resources: Vec<FileResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileResource {
    resource: String,
    response_kind: FileKind,
    scope: String,
    singular_resource: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<FileSubresource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileSubresource {
    subresource: String,
    response_kind: FileKind,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct FileKind {
    group: String,
    version: String,
    kind: String,
}

impl File {
    fn groups(&self) -> impl Iterator<Item = &FileGroup> {
        self.core.items.iter().chain(&self.named.items)
    }
}

fn load(file: &'static File) -> Vec<Group> {
    let versions = |group: &'static FileGroup| {
        group.versions.iter().map(|version| {
            let resources = version.resources.iter();
            let resources = resources.map(|resource| {
                load_resource(file, &group.metadata.name, &version.version, resource)
            });
            Version { name: &version.version, resources: resources.collect() }
        })
    };
    file.groups()
        .map(|group| Group { name: &group.metadata.name, versions: versions(group).collect() })
        .collect()
}

fn load_resource(
    file: &'static File,
    group: &'static str,
    version: &'static str,
    resource: &'static FileResource,
) -> Resource {
    let kind = resource.response_kind.kind.clone();
    let path = if group.is_empty() {
        format!("api/{version}/{}", resource.resource)
    } else {
        format!("apis/{group}/{version}/{}", resource.resource)
    };
    let list_kind = format!("{kind}List");
    let is_listed = kind_type(group, version, &list_kind).is_some();
    let subresources = resource.subresources.iter().map(|sub| {
        let FileKind { group: of_group, version: of_version, kind } = &sub.response_kind;
        // Both are empty when they are those of the resource itself.
        let (in_group, in_version) =
            if of_version.is_empty() { (group, version) } else { (&**of_group, &**of_version) };
        Subresource {
            name: sub.subresource.clone(),
            group: of_group.clone(),
            version: of_version.clone(),
            kind: kind.clone(),
            verbs: sub.verbs.clone(),
            type_id: kind_type(in_group, in_version, kind),
        }
    });
    Resource {
        group,
        version,
        plural: resource.resource.clone(),
        singular: resource.singular_resource.clone(),
        list_kind: if is_listed { list_kind } else { String::new() },
        namespaced: resource.scope == "Namespaced",
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        verbs: resource.verbs.clone(),
        subresources: subresources.collect(),
        storage_version_hash: file.hashes.get(&path).cloned(),
        type_id: kind_type(group, version, &kind)
            .expect("the generator writes the types of all resources it writes"),
        stored_as: match (group, resource.resource.as_str()) {
            ("events.k8s.io", "events") => ("", "v1"),
            ("autoscaling", "horizontalpodautoscalers") => ("autoscaling", "v2"),
            _ => (group, version),
        },
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_found_by_group_version_and_name() {
        let deployments = resource("apps", "v1", "deployments").unwrap();
        assert_eq!(deployments.kind, "Deployment");
        assert_eq!(deployments.list_kind, "DeploymentList");
        assert_eq!(deployments.type_id.name(), "io.k8s.api.apps.v1.Deployment");
        assert_eq!(deployments.short_names, ["deploy"]);
        assert!(deployments.namespaced);
        let scale = deployments.subresources.iter().find(|sub| sub.name == "scale").unwrap();
        assert_eq!(scale.type_id.map(TypeId::name), Some("io.k8s.api.autoscaling.v1.Scale"));
        assert!(resource("apps", "v2", "deployments").is_none());
        assert!(resource("", "v1", "deployments").is_none());
        assert_eq!(
            resource("", "v1", "pods").unwrap().storage_version_hash.as_deref(),
            Some("xPOwRZ+Yhw8=")
        );
    }

    #[test]
    fn listable_resources_have_a_list_kind() {
        let versions = groups().iter().flat_map(|group| &group.versions);
        for resource in versions.flat_map(|version| &version.resources) {
            let is_listed = resource.verbs.iter().any(|verb| verb == "list");
            assert_eq!(is_listed, !resource.list_kind.is_empty(), "{}", resource.plural);
            for sub in &resource.subresources {
                assert!(sub.type_id.is_some(), "{}/{}", resource.plural, sub.name);
            }
        }
    }

    #[test]
    fn two_versions_share_one_storage_kind() {
        let table = [
            ("events.k8s.io", "v1", "events", ("", "v1")),
            ("", "v1", "events", ("", "v1")),
            ("autoscaling", "v1", "horizontalpodautoscalers", ("autoscaling", "v2")),
            ("autoscaling", "v2", "horizontalpodautoscalers", ("autoscaling", "v2")),
            ("", "v1", "pods", ("", "v1")),
        ];
        for (group, version, plural, expected) in table {
            assert_eq!(resource(group, version, plural).unwrap().stored_as, expected, "{plural}");
        }
    }

    #[test]
    fn groups_come_in_the_order_of_discovery() {
        let names: Vec<&str> = groups().iter().map(|group| group.name).collect();
        assert_eq!(
            &names[..6],
            [
                "",
                "apiregistration.k8s.io",
                "apps",
                "events.k8s.io",
                "authentication.k8s.io",
                "authorization.k8s.io"
            ]
        );
        assert_eq!(names.len(), 21);
        let autoscaling = groups().iter().find(|group| group.name == "autoscaling").unwrap();
        let versions: Vec<&str> = autoscaling.versions.iter().map(|version| version.name).collect();
        assert_eq!(versions, ["v2", "v1"]);
    }
}
