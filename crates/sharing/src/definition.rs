//! The state of a CustomResourceDefinition in a cluster.

use serde::Serialize;
use serde_json::Value;

/// The facts about a definition that decisions and reports are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Its versions, in the order of the definition.
    pub versions: Vec<Version>,
    /// Versions in which objects may still be stored, whether or not they are stored in it now.
    pub stored: Vec<String>,
    /// Whether the server serves it.
    pub established: bool,
    /// Why it does not, in the server's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complaint: Option<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The field managers and their fields.
    pub managers: Vec<Manager>,
    /// The revision at which it was read.
    pub resource_version: String,
}

/// One version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
}

/// A field manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// The fields, two levels deep.
    pub fields: Vec<String>,
}

impl Definition {
    /// Reads the facts from the object.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let conditions = list(object, "/status/conditions");
        let condition = |name: &str| conditions.iter().find(|it| it["type"] == name);
        let holds = |name: &str| condition(name).is_some_and(|it| it["status"] == "True");
        let refused = ["NamesAccepted", "Established"].into_iter().filter_map(condition);
        let complaint = refused.filter(|it| it["status"] == "False").find_map(|it| {
            let message = text(it, "/message");
            (!message.is_empty()).then(|| message.to_owned())
        });
        let established = holds("Established");
        Self {
            name: text(object, "/metadata/name").to_owned(),
            versions: list(object, "/spec/versions").iter().map(version).collect(),
            stored: strings(object, "/status/storedVersions"),
            established,
            complaint: complaint.filter(|_| !established),
            terminating: object.pointer("/metadata/deletionTimestamp").is_some(),
            managers: managers(object),
            resource_version: text(object, "/metadata/resourceVersion").to_owned(),
        }
    }

    /// Whether it has this version.
    #[must_use]
    pub fn has(&self, version: &str) -> bool {
        self.versions.iter().any(|it| it.name == version)
    }

    /// A version that is served.
    #[must_use]
    pub fn served(&self) -> Option<&str> {
        self.versions.iter().find(|it| it.served).map(|it| it.name.as_str())
    }
}

/// The field managers of an object, by its `managedFields`.
#[must_use]
pub fn managers(object: &Value) -> Vec<Manager> {
    let mut managers: Vec<Manager> = Vec::new();
    for entry in list(object, "/metadata/managedFields") {
        let name = text(entry, "/manager");
        let mut fields = Vec::new();
        for (outer, inner) in fields_of(&entry["fieldsV1"]) {
            let below: Vec<_> =
                fields_of(inner).map(|(name, _)| format!("{outer}.{name}")).collect();
            match below.is_empty() {
                true => fields.push(outer.to_owned()),
                false => fields.extend(below),
            }
        }
        match managers.iter_mut().find(|it| it.name == name) {
            Some(known) => known.fields.extend(fields),
            None => managers.push(Manager { name: name.to_owned(), fields }),
        }
    }
    for manager in &mut managers {
        manager.fields.sort_unstable();
        manager.fields.dedup();
    }
    managers
}

/// The fields below a node of the ownership tree, whose keys carry `f:`.
fn fields_of(node: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = node.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.strip_prefix("f:")?, value)))
}

fn version(version: &Value) -> Version {
    let is = |field: &str| version[field].as_bool().unwrap_or_default();
    Version {
        name: text(version, "/name").to_owned(),
        served: is("served"),
        storage: is("storage"),
    }
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn strings(object: &Value, pointer: &str) -> Vec<String> {
    list(object, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_facts_are_read() {
        let object = json!({
            "metadata": {
                "name": "a.b", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [
                    {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:versions": {}, "f:names": {}}}},
                    {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}}},
                    {"manager": "server", "fieldsV1": {"f:status": {}}},
                ],
            },
            "spec": {"versions": [
                {"name": "v1", "served": false, "storage": false},
                {"name": "v2", "served": true, "storage": true},
            ]},
            "status": {
                "storedVersions": ["v1", "v2"],
                "conditions": [
                    {"type": "NamesAccepted", "status": "False", "message": "taken"},
                    {"type": "Established", "status": "False", "message": "waiting"},
                ],
            },
        });
        let read = Definition::read(&object);
        assert!(read.has("v1") && read.has("v2") && !read.has("v3"));
        assert_eq!(read.served(), Some("v2"));
        assert_eq!(read.stored, ["v1", "v2"]);
        assert!(!read.established && read.terminating);
        assert_eq!(read.complaint.as_deref(), Some("taken"));
        assert_eq!(read.resource_version, "7");
        let said: Vec<_> =
            read.managers.iter().map(|it| (it.name.as_str(), it.fields.join(" "))).collect();
        assert_eq!(
            said,
            [
                ("kubectl", "metadata.labels spec.names spec.versions".to_owned()),
                ("server", "status".to_owned()),
            ]
        );
    }

    #[test]
    fn an_established_definition_has_no_complaint() {
        let object = json!({"status": {"conditions": [
            {"type": "NamesAccepted", "status": "False", "message": "taken"},
            {"type": "Established", "status": "True", "message": "the initial names have been accepted"},
        ]}});
        let read = Definition::read(&object);
        assert!(read.established && read.complaint.is_none());
        assert_eq!(Definition::read(&json!({})), Definition::default());
    }
}
