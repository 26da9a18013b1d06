//! The metadata every object has.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gantry_schema::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Schema, Shape};
use serde_json::json;

use super::types::{Type, TypeForm};

/// The schema of the metadata of any object, for definitions that leave it open.
pub(super) fn object_metadata() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(build);
    &SCHEMA
}

/// Whether a declared type is the metadata of an object and not just a restriction of it.
pub(super) fn is_object_metadata(declared: Type<'_>) -> bool {
    match declared.form(None) {
        TypeForm::Map(map) => {
            map.field("labels").is_some()
                && map.field("managedFields").is_some()
                && map.field("ownerReferences").is_some()
        }
        TypeForm::Scalar(_) | TypeForm::List(_) => false,
    }
}

fn build() -> Schema {
    let mut builder = Builder::new();
    let text = builder.add(scalar(Scalar::String));
    let number = builder.add(scalar(Scalar::Integer));
    let truth = builder.add(scalar(Scalar::Boolean));
    let time = builder.add(scalar(Scalar::Untyped));
    let anything = builder.reserve();
    let texts = builder.add(node(Shape::Map { values: text, atomic: false }));
    // An owner without uid is still identified: by its empty uid.
    let uid = builder.add(Node { default: Some(json!("")), ..scalar(Scalar::String) });
    let owner = builder.add(record(
        true,
        &[
            ("apiVersion", text),
            ("blockOwnerDeletion", truth),
            ("controller", truth),
            ("kind", text),
            ("name", text),
            ("uid", uid),
        ],
    ));
    let owners = builder
        .add(node(Shape::List { items: owner, list_type: ListType::Map(vec!["uid".into()]) }));
    let finalizers = builder.add(node(Shape::List { items: text, list_type: ListType::Set }));
    let entry = builder.add(record(
        false,
        &[
            ("apiVersion", text),
            ("fieldsType", text),
            ("fieldsV1", anything),
            ("manager", text),
            ("operation", text),
            ("subresource", text),
            ("time", time),
        ],
    ));
    let entries = builder.add(node(Shape::List { items: entry, list_type: ListType::Atomic }));
    let root = builder.add(record(
        false,
        &[
            ("annotations", texts),
            ("creationTimestamp", time),
            ("deletionGracePeriodSeconds", number),
            ("deletionTimestamp", time),
            ("finalizers", finalizers),
            ("generateName", text),
            ("generation", number),
            ("labels", texts),
            ("managedFields", entries),
            ("name", text),
            ("namespace", text),
            ("ownerReferences", owners),
            ("resourceVersion", text),
            ("selfLink", text),
            ("uid", text),
        ],
    ));
    builder.build(root)
}

fn node(shape: Shape) -> Node {
    Node { shape, ..Node::default() }
}

fn scalar(scalar: Scalar) -> Node {
    node(Shape::Scalar(scalar))
}

fn record(atomic: bool, fields: &[(&str, NodeId)]) -> Node {
    let fields: BTreeMap<_, _> = fields
        .iter()
        .map(|(name, node)| {
            ((*name).into(), Field { node: *node, merge: MergeStrategy::default() })
        })
        .collect();
    node(Shape::Struct { fields, atomic, preserve_unknown: false, embedded: false })
}
