//! Discovery: which resources are served, in one document per group or all groups in one.

pub mod aggregation;
pub(crate) mod non_resource;
pub(crate) mod non_resource_pages;
pub(crate) mod openapi;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::resource::{Group, Registry, Resource, Subresource, Version, group_version};

/// `/api`.
#[must_use]
pub fn core_versions(server: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": server }],
    })
}

/// `/apis`.
#[must_use]
pub fn groups(registry: &Registry) -> Value {
    let groups = registry.groups.iter().filter(|group| !group.name.is_empty());
    let groups: Vec<Value> = groups.map(group_entry).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/{group}`.
#[must_use]
pub fn group(group: &Group) -> Value {
    let mut document = Map::new();
    document.insert("kind".to_owned(), json!("APIGroup"));
    document.insert("apiVersion".to_owned(), json!("v1"));
    if let Value::Object(entry) = group_entry(group) {
        document.extend(entry);
    }
    Value::Object(document)
}

fn group_entry(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            json!({
                "groupVersion": group_version(&group.name, &version.name),
                "version": version.name,
            })
        })
        .collect();
    json!({ "name": group.name, "preferredVersion": versions.first(), "versions": versions })
}

/// `/api/v1`, `/apis/{group}/{version}`.
#[must_use]
pub fn resources(group: &str, version: &Version) -> Value {
    let mut entries = Vec::new();
    for resource in &version.resources {
        entries.push(resource_entry(resource));
        for part in &resource.subresources {
            entries.push(subresource_entry(resource, part));
        }
    }
    // Built-in groups list by name; custom resources are each followed by their subresources.
    let custom = version.resources.iter().any(|resource| resource.custom().is_some());
    if !custom {
        entries.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
    }
    let mut document = Map::new();
    document.insert("kind".to_owned(), json!("APIResourceList"));
    // The core group is older than the version of this document.
    if !group.is_empty() {
        document.insert("apiVersion".to_owned(), json!("v1"));
    }
    document.insert("groupVersion".to_owned(), json!(group_version(group, &version.name)));
    document.insert("resources".to_owned(), Value::Array(entries));
    Value::Object(document)
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(resource.plural));
    entry.insert("singularName".to_owned(), json!(resource.singular));
    entry.insert("namespaced".to_owned(), json!(resource.namespaced));
    entry.insert("kind".to_owned(), json!(resource.kind));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(resource.categories));
    }
    if !resource.storage_version_hash.is_empty() {
        entry.insert("storageVersionHash".to_owned(), json!(resource.storage_version_hash));
    }
    Value::Object(entry)
}

fn subresource_entry(resource: &Resource, part: &Subresource) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(format!("{}/{}", resource.plural, part.name)));
    entry.insert("singularName".to_owned(), json!(""));
    entry.insert("namespaced".to_owned(), json!(resource.namespaced));
    for (name, value) in [("group", &part.group), ("version", &part.version)] {
        if !value.is_empty() {
            entry.insert(name.to_owned(), json!(value));
        }
    }
    entry.insert("kind".to_owned(), json!(part.kind));
    entry.insert("verbs".to_owned(), json!(part.verbs));
    Value::Object(entry)
}

/// Returns all groups in one document, and its entity tag. `core` chooses between `/api` and
/// `/apis`.
pub fn aggregated(registry: &Registry, core: bool, format: &str) -> (Bytes, String) {
    let documents = registry.documents();
    let cell = if core { &documents.core } else { &documents.groups };
    if format == "v2" {
        return cell.get_or_init(|| tagged(&aggregate(registry, core, format))).clone();
    }
    tagged(&aggregate(registry, core, format))
}

/// Returns all groups but the core group, and additional entries, in one document, and its entity
/// tag.
pub(crate) fn aggregated_with(
    registry: &Registry,
    more: Vec<Value>,
    format: &str,
) -> (Bytes, String) {
    let mut document = aggregate(registry, false, format);
    if let Some(items) = document["items"].as_array_mut() {
        items.extend(more);
    }
    tagged(&document)
}

fn tagged(document: &Value) -> (Bytes, String) {
    let bytes = Bytes::from(document.to_string());
    let tag = format!("\"{}\"", hex(digest::digest(&digest::SHA512, &bytes).as_ref()));
    (bytes, tag)
}

fn aggregate(registry: &Registry, core: bool, format: &str) -> Value {
    let groups = registry.groups.iter().filter(|group| group.name.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|group| {
            let mut metadata = Map::new();
            if !core {
                metadata.insert("name".to_owned(), json!(group.name));
            }
            let versions: Vec<Value> = group.versions.iter().map(aggregated_version).collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{format}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(version: &Version) -> Value {
    let resources: Vec<Value> = version.resources.iter().map(|it| aggregated_entry(it)).collect();
    json!({ "version": version.name, "resources": resources, "freshness": "Current" })
}

fn aggregated_entry(resource: &Resource) -> Value {
    let mut entry = Map::new();
    // Custom kinds have their group and version in full, built-in ones leave it to the position.
    let (group, version) = match resource.custom() {
        Some(_) => (resource.group.as_str(), resource.version.as_str()),
        None => ("", ""),
    };
    let kind = |group: &str, version: &str, kind: &str| {
        json!({
            "group": group, "version": version, "kind": kind,
        })
    };
    entry.insert("resource".to_owned(), json!(resource.plural));
    entry.insert("responseKind".to_owned(), kind(group, version, &resource.kind));
    let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
    entry.insert("scope".to_owned(), json!(scope));
    entry.insert("singularResource".to_owned(), json!(resource.singular));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(resource.categories));
    }
    if !resource.subresources.is_empty() {
        let parts: Vec<Value> = resource
            .subresources
            .iter()
            .map(|part| {
                let (group, version) = match (part.group.as_str(), part.version.as_str()) {
                    ("", "") => (group, version),
                    own => own,
                };
                json!({
                    "subresource": part.name,
                    "responseKind": kind(group, version, &part.kind),
                    "verbs": part.verbs,
                })
            })
            .collect();
        entry.insert("subresources".to_owned(), json!(parts));
    }
    Value::Object(entry)
}

/// Returns the storage version hash for discovery.
#[must_use]
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let text = format!("{group}/{version}/{kind}");
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    STANDARD.encode(&digest.as_ref()[..8])
}

/// Formats bytes in upper-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_pods_is_the_known_one() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    }
}
