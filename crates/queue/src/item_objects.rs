//! Builds the objects for the items of an AppWrapper.

use gantry_pods::view::Pod;
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Key, Resource, Scope, View as _, World, Write};
use serde_json::{Map, Value, json};

use crate::app_wrapper::{AppWrapper, Item, TypeName};
use crate::kind_discovery::{self, ServedKind};
use crate::pod_sets;

/// The label that names the AppWrapper of an object and its pods.
pub const APP_WRAPPER_LABEL: &str = Pod::APP_WRAPPER_LABEL;
/// The label that names the item of an object and its pods.
pub const ITEM_LABEL: &str = "resourceName";

/// The maximum length of a label value.
const MAX_NAME_LENGTH: usize = 63;

/// A desired object.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemObject {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: Key,
    /// The object.
    pub body: Value,
}

impl ItemObject {
    /// Returns the write that creates it.
    #[must_use]
    pub fn create(self) -> Write {
        Write::Create { resource: self.resource, body: self.body }
    }
}

/// Why no object can be built for an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The item has no template.
    #[error("item {item} has no generictemplate")]
    NoTemplate {
        /// Which item, counted from 0.
        item: usize,
    },
    /// The template has no name.
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
    /// Whether the server has the kind is not known yet.
    #[error(
        "whether there is a kind \"{kind}\" in version \"{version}\" is being discovered{failure}"
    )]
    KindUnresolved {
        /// The kind.
        kind: String,
        /// Group and version.
        version: String,
        /// Why discovery fails, after a colon.
        failure: String,
    },
    /// The queue lacks permissions.
    #[error(
        "the operator may not {verbs} {resource}: a ClusterRole with the label \
         gantry.dev/aggregate-to-wrapped-kinds adds to its rights"
    )]
    MissingRights {
        /// The kind.
        resource: String,
        /// The missing verbs.
        verbs: String,
    },
    /// It would be in another namespace.
    #[error(
        "{kind} \"{name}\" is in namespace \"{namespace}\": items must be in the namespace of \
         their AppWrapper"
    )]
    OtherNamespace {
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
        /// The namespace it names.
        namespace: String,
    },
    /// It is cluster-scoped.
    #[error(
        "{kind} \"{name}\" is cluster-scoped: items must be in the namespace of their AppWrapper"
    )]
    ClusterScoped {
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// It is an AppWrapper itself.
    #[error("AppWrapper \"{name}\" cannot be an item of another one")]
    Nested {
        /// Its name.
        name: String,
    },
    /// The name is taken by another object.
    #[error("{resource} \"{name}\" already exists and does not belong to this AppWrapper")]
    AlreadyExists {
        /// The kind.
        resource: String,
        /// The name.
        name: String,
    },
}

/// Builds the object for one item.
///
/// # Errors
/// [`ItemError`]: it cannot be built.
pub fn build_item(
    world: &World,
    wrapper: &AppWrapper,
    at: usize,
    item: &Item,
) -> Result<ItemObject, ItemError> {
    let mut body = item.object().ok_or(ItemError::NoTemplate { item: at })?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&body["kind"]), text(&body["apiVersion"]));
    let name: String = text(&body["metadata"]["name"]).chars().take(MAX_NAME_LENGTH).collect();
    if name.is_empty() {
        return Err(ItemError::NoName { item: at });
    }
    let type_name = TypeName::of_object(&body);
    let resource = match kind_discovery::served_kind(
        world,
        &type_name,
        kind_discovery::required_since(wrapper),
    ) {
        Some(ServedKind::Usable(resource)) => resource,
        Some(ServedKind::MissingRights { resource, verbs }) => {
            let (resource, verbs) = (resource.to_string(), verbs.join(", "));
            return Err(ItemError::MissingRights { resource, verbs });
        }
        Some(ServedKind::NotServed) => return Err(ItemError::UnknownKind { kind, version }),
        None => {
            let failure = kind_discovery::discovery_failure(world, &type_name);
            let failure = failure.map(|it| format!(": {it}")).unwrap_or_default();
            return Err(ItemError::KindUnresolved { kind, version, failure });
        }
    };
    if resource == AppWrapper::RESOURCE {
        return Err(ItemError::Nested { name });
    }
    if resource.scope == Scope::Cluster {
        return Err(ItemError::ClusterScoped { kind, name });
    }
    let home = wrapper.metadata.namespace.as_str();
    let namespace = text(&body["metadata"]["namespace"]);
    if !namespace.is_empty() && namespace != home {
        return Err(ItemError::OtherNamespace { kind, name, namespace });
    }
    let key = Key::new(home, &name);
    let metadata = &mut body["metadata"];
    metadata["namespace"] = json!(home);
    metadata["name"] = json!(name);
    let labels = fields(&mut metadata["labels"]);
    labels.insert(APP_WRAPPER_LABEL.to_owned(), json!(wrapper.metadata.name));
    labels.insert(ITEM_LABEL.to_owned(), json!(name));
    let labels = labels.clone();
    let owner = controller_reference(&AppWrapper::RESOURCE, &wrapper.metadata);
    match metadata["ownerReferences"].as_array_mut() {
        Some(owners) => owners.push(owner),
        None => metadata["ownerReferences"] = json!([owner]),
    }
    for set in pod_sets::find(&body).iter().filter(|it| !it.path.is_empty()) {
        if let Some(template) = body.pointer_mut(&set.path).filter(|it| it.is_object()) {
            // Where both have a label, that of the object wins: its pods are counted by it.
            fields(&mut template["metadata"]["labels"]).extend(labels.clone());
        }
    }
    Ok(ItemObject { resource, key, body })
}

/// Returns the fields of an object; of an empty one where there is none.
fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object above")
}

#[cfg(test)]
mod tests;
