//! Builds the discovery of the built-in resources, in both forms that clients request.

use serde_json::{Map, Value, json};

use crate::registry::{Group, Resource, Subresource, Version, groups};

/// Returns one group in the aggregated form, an element of `items` in an `APIGroupDiscoveryList`;
/// the core group is the only one of `/api`, the others are the first ones of `/apis`.
#[must_use]
pub fn aggregated(group: &Group) -> Value {
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    let versions = group.versions.iter().map(|version| {
        let resources: Vec<Value> = version.resources.iter().map(aggregated_resource).collect();
        json!({"version": version.name, "resources": resources, "freshness": "Current"})
    });
    json!({"metadata": metadata, "versions": versions.collect::<Vec<Value>>()})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    put("resource", json!(resource.plural));
    put("responseKind", json!({"group": "", "version": "", "kind": resource.kind}));
    put("scope", json!(if resource.namespaced { "Namespaced" } else { "Cluster" }));
    put("singularResource", json!(resource.singular));
    put("verbs", json!(resource.verbs));
    if !resource.short_names.is_empty() {
        put("shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        put("categories", json!(resource.categories));
    }
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|sub| {
            let kind = json!({"group": sub.group, "version": sub.version, "kind": sub.kind});
            json!({"subresource": sub.name, "responseKind": kind, "verbs": sub.verbs})
        });
        put("subresources", subresources.collect());
    }
    Value::Object(entry)
}

/// Returns one group in the older form, an element of `groups` in an `APIGroupList`.
/// `/apis/{group}` is the same with kind and version in front, see [`group`].
#[must_use]
pub fn group_entry(group: &Group) -> Value {
    let named = |version: &Version| {
        let group_version = group_version(group.name, version.name);
        json!({"groupVersion": group_version, "version": version.name})
    };
    let versions: Vec<Value> = group.versions.iter().map(named).collect();
    let preferred = versions.first().cloned();
    json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
}

/// The `APIGroup` of a group that is Kubernetes' own.
#[must_use]
pub fn group(name: &str) -> Option<Value> {
    let found = groups().iter().find(|group| !name.is_empty() && group.name == name)?;
    let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
    if let (Value::Object(document), Value::Object(entry)) = (&mut document, group_entry(found)) {
        document.extend(entry);
    }
    Some(document)
}

/// The `APIResourceList` of a version of a group that is Kubernetes' own.
#[must_use]
pub fn resources(group: &str, version: &str) -> Option<Value> {
    let group = groups().iter().find(|known| known.name == group)?;
    let version = group.versions.iter().find(|known| known.name == version)?;
    let mut entries = Vec::new();
    for resource in &version.resources {
        entries.push(resource_entry(resource));
        entries.extend(resource.subresources.iter().map(|sub| subresource_entry(resource, sub)));
    }
    let mut document = json!({"kind": "APIResourceList"});
    if let Value::Object(document) = &mut document {
        // The core list has no version of its own, for historical reasons.
        if !group.name.is_empty() {
            document.insert("apiVersion".to_owned(), json!("v1"));
        }
        document.insert("groupVersion".to_owned(), json!(group_version(group.name, version.name)));
        document.insert("resources".to_owned(), Value::Array(entries));
    }
    Some(document)
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    put("name", json!(resource.plural));
    put("singularName", json!(resource.singular));
    put("namespaced", json!(resource.namespaced));
    put("kind", json!(resource.kind));
    put("verbs", json!(resource.verbs));
    if !resource.short_names.is_empty() {
        put("shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        put("categories", json!(resource.categories));
    }
    if let Some(hash) = &resource.storage_version_hash {
        put("storageVersionHash", json!(hash));
    }
    Value::Object(entry)
}

fn subresource_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    put("name", json!(format!("{}/{}", resource.plural, sub.name)));
    put("singularName", json!(""));
    put("namespaced", json!(resource.namespaced));
    if !sub.group.is_empty() {
        put("group", json!(sub.group));
    }
    if !sub.version.is_empty() {
        put("version", json!(sub.version));
    }
    put("kind", json!(sub.kind));
    put("verbs", json!(sub.verbs));
    Value::Object(entry)
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
