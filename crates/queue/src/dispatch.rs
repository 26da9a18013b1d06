//! The objects that are made for the items of an AppWrapper.

use gantry_pods::view::Pod;
use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Key, Resource, Scope, View as _, World, Write};
use serde_json::{Map, Value, json};

use crate::app_wrapper::{AppWrapper, Item, TypeName};
use crate::kind_discovery::{self, ServedKind};
use crate::pod_sets;

/// The label that says which AppWrapper an object and its pods belong to.
pub const LABEL: &str = Pod::APP_WRAPPER;
/// The label that says which item they are.
pub const ITEM_LABEL: &str = "resourceName";

/// How long names may be.
const LONGEST: usize = 63;

/// An object that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Its kind.
    pub resource: Resource,
    /// Where it is.
    pub key: Key,
    /// The object.
    pub body: Value,
}

impl Made {
    /// Makes it.
    #[must_use]
    pub fn create(self) -> Write {
        Write::Create { resource: self.resource, body: self.body }
    }
}

/// Why no object can be made of an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is nothing to make.
    #[error("item {item} has no generictemplate")]
    NoTemplate {
        /// Which item, counted from 0.
        item: usize,
    },
    /// It does not say what it is called.
    #[error("item {item} has no metadata.name")]
    NoName {
        /// Which item.
        item: usize,
    },
    /// The server does not have the kind.
    #[error("no matches for kind \"{kind}\" in version \"{version}\"")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Group and version.
        version: String,
    },
    /// Whether the server has the kind was not found out yet.
    #[error(
        "whether there is a kind \"{kind}\" in version \"{version}\" is being found out{failure}"
    )]
    Unsettled {
        /// The kind.
        kind: String,
        /// Group and version.
        version: String,
        /// Why that fails, after a colon.
        failure: String,
    },
    /// We may not do what it takes.
    #[error(
        "the operator may not {verbs} {resource}: a ClusterRole with the label gantry.dev/aggregate-to-wrapped-kinds adds to its rights"
    )]
    MissingRights {
        /// The kind.
        resource: String,
        /// What we may not do.
        verbs: String,
    },
    /// It would be in another namespace.
    #[error(
        "{kind} \"{name}\" is in namespace \"{namespace}\": items must be in the namespace of their AppWrapper"
    )]
    Elsewhere {
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
        /// Where it would be.
        namespace: String,
    },
    /// It would be in no namespace.
    #[error(
        "{kind} \"{name}\" is cluster-scoped: items must be in the namespace of their AppWrapper"
    )]
    ClusterScoped {
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// It wraps in turn.
    #[error("AppWrapper \"{name}\" cannot be an item of another one")]
    Nested {
        /// Its name.
        name: String,
    },
    /// Somebody else has the name.
    #[error("{resource} \"{name}\" already exists and does not belong to this AppWrapper")]
    Taken {
        /// The kind.
        resource: String,
        /// The name.
        name: String,
    },
}

/// The object for one item.
///
/// # Errors
/// [`Fault`]: it cannot be made, whatever happens.
pub fn make(world: &World, wrapper: &AppWrapper, at: usize, item: &Item) -> Result<Made, Fault> {
    let mut body = item.object().ok_or(Fault::NoTemplate { item: at })?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&body["kind"]), text(&body["apiVersion"]));
    let name: String = text(&body["metadata"]["name"]).chars().take(LONGEST).collect();
    if name.is_empty() {
        return Err(Fault::NoName { item: at });
    }
    let type_name = TypeName::of_object(&body);
    let resource = match kind_discovery::look(world, &type_name, kind_discovery::since(wrapper)) {
        Some(ServedKind::Usable(resource)) => resource,
        Some(ServedKind::MissingRights { resource, verbs }) => {
            let (resource, verbs) = (resource.to_string(), verbs.join(", "));
            return Err(Fault::MissingRights { resource, verbs });
        }
        Some(ServedKind::NotServed) => return Err(Fault::UnknownKind { kind, version }),
        None => {
            let failure = kind_discovery::failure(world, &type_name);
            let failure = failure.map(|it| format!(": {it}")).unwrap_or_default();
            return Err(Fault::Unsettled { kind, version, failure });
        }
    };
    if resource == AppWrapper::RESOURCE {
        return Err(Fault::Nested { name });
    }
    if resource.scope == Scope::Cluster {
        return Err(Fault::ClusterScoped { kind, name });
    }
    let home = wrapper.metadata.namespace.as_str();
    let namespace = text(&body["metadata"]["namespace"]);
    if !namespace.is_empty() && namespace != home {
        return Err(Fault::Elsewhere { kind, name, namespace });
    }
    let key = Key::new(home, &name);
    let metadata = &mut body["metadata"];
    metadata["namespace"] = json!(home);
    metadata["name"] = json!(name);
    let labels = fields(&mut metadata["labels"]);
    labels.insert(LABEL.to_owned(), json!(wrapper.metadata.name));
    labels.insert(ITEM_LABEL.to_owned(), json!(name));
    let labels = labels.clone();
    let owner = controlled_by(&AppWrapper::RESOURCE, &wrapper.metadata);
    match metadata["ownerReferences"].as_array_mut() {
        Some(owners) => owners.push(owner),
        None => metadata["ownerReferences"] = json!([owner]),
    }
    for set in pod_sets::find(&body).iter().filter(|it| !it.place.is_empty()) {
        if let Some(template) = body.pointer_mut(&set.place).filter(|it| it.is_object()) {
            // Where both have a label, that of the object wins: its pods are counted by it.
            fields(&mut template["metadata"]["labels"]).extend(labels.clone());
        }
    }
    Ok(Made { resource, key, body })
}

/// The fields of an object; of an empty one where there is none.
fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object above")
}

#[cfg(test)]
mod tests;
