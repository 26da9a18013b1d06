//! Served resources: built-in and custom kinds in one description.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::resource::custom::CustomResource;
use crate::resource::strategy::Strategy;
use crate::response::status::qualified;

pub(crate) mod conversion_errors;
pub mod convert;
pub mod custom;
pub(crate) mod definitions;
pub(crate) mod names;
pub(crate) mod rules;
pub mod stored;
pub(crate) mod strategy;

/// One version of one resource.
#[derive(Debug)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in paths.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories it belongs to.
    pub categories: Vec<String>,
    /// The supported verbs, in the order of discovery.
    pub verbs: Vec<String>,
    /// Its subresources.
    pub subresources: Vec<Subresource>,
    /// The storage version hash of discovery; empty for what is not stored.
    pub storage_version_hash: String,
    /// The space in which its objects are stored. Two versions of the same objects share it.
    pub space: String,
    /// What the server does differently for it.
    pub(crate) strategy: &'static Strategy,
    /// Where its rules come from.
    pub source: KindSource,
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// Its name in paths.
    pub name: String,
    /// The group of its kind, if it differs from the resource's.
    pub group: String,
    /// The version of its kind, if it differs from the resource's.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// The supported verbs.
    pub verbs: Vec<String>,
}

/// A built-in kind of Kubernetes.
#[derive(Debug)]
pub struct Builtin {
    /// Its type.
    pub type_id: gantry_builtin::TypeId,
    /// Its special behaviour.
    pub behaviour: &'static gantry_kinds::Behaviour,
    /// An object of the kind in which nothing is set.
    pub empty: serde_json::Value,
    /// The version its objects are stored in, if it differs.
    pub stored_as: Option<(&'static str, &'static str)>,
}

/// Where the rules of a kind come from.
#[derive(Debug)]
pub enum KindSource {
    /// A built-in kind.
    Builtin(Builtin),
    /// A stored definition.
    Custom(Arc<CustomResource>),
}

impl Resource {
    /// `apps/v1`, or `v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `deployments.apps`, or `pods`.
    #[must_use]
    pub fn qualified(&self) -> String {
        qualified(&self.group, &self.plural)
    }

    /// Returns the name of its kind in error messages: custom kinds are called by their resource.
    #[must_use]
    pub fn kind_in_errors(&self) -> &str {
        &self.kind
    }

    /// Returns the custom kind's definition, if it is one.
    #[must_use]
    pub fn custom(&self) -> Option<&Arc<CustomResource>> {
        match &self.source {
            KindSource::Builtin(_) => None,
            KindSource::Custom(custom) => Some(custom),
        }
    }

    /// Returns the deprecation warning of the resource, if it has one.
    pub(crate) fn deprecation(&self) -> Option<String> {
        if let Some(custom) = self.custom() {
            return custom.deprecation.clone();
        }
        let since = match (self.group.as_str(), self.kind.as_str()) {
            ("", "ComponentStatus") => "v1.19+",
            ("", "Endpoints") => "v1.33+; use discovery.k8s.io/v1 EndpointSlice",
            _ => return None,
        };
        Some(format!("{} {} is deprecated in {since}", self.version, self.kind))
    }

    /// Returns the subresource called `name`.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|part| part.name == name)
    }

    /// Whether its objects can be rendered as a table. Resources that can only be created, such as
    /// reviews, cannot.
    pub(crate) fn has_table(&self) -> bool {
        self.has_verb("get") || self.has_verb("list")
    }

    /// Whether it supports `verb`.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Returns the key of an object in its space.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// `group/version`, or `version` in the core group.
#[must_use]
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Everything that is served at one time.
#[derive(Debug)]
pub struct Registry {
    /// Groups in the order of discovery; the core group is the first.
    pub groups: Vec<Group>,
    index: HashMap<(String, String, String), Arc<Resource>>,
    /// The server's own views of custom kinds whose versions need a converter, by space.
    storage_views: BTreeMap<String, Arc<Resource>>,
    documents: Documents,
}

/// Discovery documents, made on first use.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    pub(crate) core: OnceLock<(Bytes, String)>,
    pub(crate) groups: OnceLock<(Bytes, String)>,
}

/// A group and its versions, the preferred one first.
#[derive(Debug)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: String,
    /// The versions.
    pub versions: Vec<Version>,
}

/// A version of a group.
#[derive(Debug)]
pub struct Version {
    /// The name.
    pub name: String,
    /// The resources in the order of discovery.
    pub resources: Vec<Arc<Resource>>,
}

/// The result of looking up a path's group, version and resource.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// A resource that is served.
    Found(&'a Arc<Resource>),
    /// The group is served, the version or resource is not.
    NotInGroup,
    /// No such group.
    NoGroup,
}

impl Registry {
    /// Makes a registry of built-in resources in their order, then custom ones by group and
    /// version.
    #[must_use]
    pub fn new(builtin: &[Arc<Resource>], custom: &[Arc<Resource>]) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for resource in builtin {
            insert_resource(&mut groups, resource);
        }
        let fixed = groups.len();
        for resource in custom {
            insert_resource(&mut groups, resource);
        }
        groups[fixed..].sort_by(|left, right| left.name.cmp(&right.name));
        for group in &mut groups[fixed..] {
            group.versions.sort_by(|left, right| compare_versions(&left.name, &right.name));
            for version in &mut group.versions {
                version.resources.sort_by(|left, right| left.plural.cmp(&right.plural));
            }
        }
        let all = builtin.iter().chain(custom);
        let index = all.map(|resource| {
            let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
            (key, Arc::clone(resource))
        });
        let index = index.collect();
        Self { groups, index, storage_views: BTreeMap::new(), documents: Documents::default() }
    }

    /// Adds the views for the server's own controllers.
    #[must_use]
    pub fn with_storage_views(mut self, keepers: impl Iterator<Item = Arc<Resource>>) -> Self {
        self.storage_views = keepers.map(|keeper| (keeper.space.clone(), keeper)).collect();
        self
    }

    /// Looks up a resource by group, version and name.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Lookup<'_> {
        let key = (group.to_owned(), version.to_owned(), plural.to_owned());
        match self.index.get(&key) {
            Some(resource) => Lookup::Found(resource),
            None if self.group(group).is_some() => Lookup::NotInGroup,
            None => Lookup::NoGroup,
        }
    }

    /// Returns the group of that name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the resource whose objects have this version and kind, in the server's own view.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let versions = &self.group(group)?.versions;
        let version = versions.iter().find(|known| known.name == version)?;
        let found = version.resources.iter().find(|resource| resource.kind == kind)?;
        Some(self.storage_views.get(&found.space).unwrap_or(found))
    }

    /// Returns one resource per space of stored objects: its preferred version, or the server's own
    /// view.
    #[must_use]
    pub fn resources_by_space(&self) -> BTreeMap<&str, &Arc<Resource>> {
        let mut spaces = BTreeMap::new();
        for group in &self.groups {
            for version in &group.versions {
                for resource in version.resources.iter().filter(|it| it.has_verb("list")) {
                    let view = self.storage_views.get(&resource.space).unwrap_or(resource);
                    spaces.entry(resource.space.as_str()).or_insert(view);
                }
            }
        }
        spaces
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }
}

fn insert_resource(groups: &mut Vec<Group>, resource: &Arc<Resource>) {
    let group = match groups.iter().position(|group| group.name == resource.group) {
        Some(place) => &mut groups[place],
        None => {
            groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
            let last = groups.len() - 1;
            &mut groups[last]
        }
    };
    let version = match group.versions.iter().position(|it| it.name == resource.version) {
        Some(place) => &mut group.versions[place],
        None => {
            let name = resource.version.clone();
            group.versions.push(Version { name, resources: Vec::new() });
            let last = group.versions.len() - 1;
            &mut group.versions[last]
        }
    };
    version.resources.push(Arc::clone(resource));
}

/// Orders versions as discovery does: stable before beta before alpha, higher numbers first, and
/// names that are not versions last, alphabetically.
#[must_use]
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (version_rank(left), version_rank(right)) {
        (Some(left), Some(right)) => right.cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

/// Parses stability, major and minor number of a version name such as `v2beta1`.
fn version_rank(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    let major = number(&rest[..end])?;
    let rest = &rest[end..];
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    for (word, stability) in [("beta", 1), ("alpha", 0)] {
        if let Some(minor) = rest.strip_prefix(word) {
            return Some((stability, major, number(minor)?));
        }
    }
    None
}

fn number(text: &str) -> Option<u64> {
    if text.starts_with('0') { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_clients_expect() {
        let mut versions =
            ["v12alpha1", "foo10", "v1", "v11beta2", "v2", "v10beta3", "v3beta1", "foo1", "v10"];
        versions.sort_by(|left, right| compare_versions(left, right));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }
}
