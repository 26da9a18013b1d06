//! The nodes of `metadata`.

use std::collections::BTreeMap;

use crate::tree::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Shape};

/// Adds the nodes of object metadata: what is known of it, and how its lists are keyed.
pub fn object_meta(builder: &mut Builder) -> NodeId {
    let fields = fields(builder);
    structure(builder, fields, false)
}

/// The fields of object metadata.
pub(super) fn fields(builder: &mut Builder) -> BTreeMap<Box<str>, Field> {
    let text = scalar(builder, Scalar::String);
    let number = scalar(builder, Scalar::Integer);
    let flag = scalar(builder, Scalar::Boolean);
    let texts = add(builder, Shape::Map { values: text, atomic: false });
    let any = add(builder, Shape::Any);

    let reference = [
        ("apiVersion", text),
        ("blockOwnerDeletion", flag),
        ("controller", flag),
        ("kind", text),
        ("name", text),
        ("uid", text),
    ];
    let reference = structure(builder, plain(&reference), true);
    let by_uid = ListType::Map(vec!["uid".into()]);
    let references = add(builder, Shape::List { items: reference, list_type: by_uid });

    let manager = [
        ("apiVersion", text),
        ("fieldsType", text),
        ("fieldsV1", any),
        ("manager", text),
        ("operation", text),
        ("subresource", text),
        ("time", text),
    ];
    let manager = structure(builder, plain(&manager), false);
    let managers = add(builder, Shape::List { items: manager, list_type: ListType::Atomic });
    let finalizers = add(builder, Shape::List { items: text, list_type: ListType::Set });

    let mut fields = plain(&[
        ("annotations", texts),
        ("creationTimestamp", text),
        ("deletionGracePeriodSeconds", number),
        ("deletionTimestamp", text),
        ("generateName", text),
        ("generation", number),
        ("labels", texts),
        ("managedFields", managers),
        ("name", text),
        ("namespace", text),
        ("resourceVersion", text),
        ("selfLink", text),
        ("uid", text),
    ]);
    for (name, node, key) in
        [("finalizers", finalizers, None), ("ownerReferences", references, Some("uid"))]
    {
        let merge_key = key.map(Into::into);
        let merge = MergeStrategy { merge: true, merge_key, ..MergeStrategy::default() };
        fields.insert(name.into(), Field { node, merge });
    }
    fields
}

fn plain(nodes: &[(&str, NodeId)]) -> BTreeMap<Box<str>, Field> {
    let field = |node| Field { node, merge: MergeStrategy::default() };
    nodes.iter().map(|(name, node)| ((*name).into(), field(*node))).collect()
}

fn scalar(builder: &mut Builder, scalar: Scalar) -> NodeId {
    add(builder, Shape::Scalar(scalar))
}

fn structure(builder: &mut Builder, fields: BTreeMap<Box<str>, Field>, atomic: bool) -> NodeId {
    add(builder, Shape::Struct { fields, atomic, preserve_unknown: false, embedded: false })
}

fn add(builder: &mut Builder, shape: Shape) -> NodeId {
    builder.add(Node { shape, ..Node::default() })
}
