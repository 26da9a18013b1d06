//! Writes to objects of a known kind, fenced by their observed revision.

use gantry_reconcile::{Meta, Subresource, View, Write};
use serde_json::{Value, json};

/// Creates an object.
pub(super) fn create<V: View>(body: Value) -> Write {
    Write::Create { resource: V::RESOURCE, body }
}

/// Patches an object, except its status.
pub(super) fn patch<V: View>(meta: &Meta, body: Value) -> Write {
    merge::<V>(meta, Subresource::Main, body)
}

/// Patches the status of an object.
pub(super) fn patch_status<V: View>(meta: &Meta, body: Value) -> Write {
    merge::<V>(meta, Subresource::Status, body)
}

fn merge<V: View>(meta: &Meta, part: Subresource, body: Value) -> Write {
    Write::Merge {
        resource: V::RESOURCE,
        key: meta.key(),
        subresource: part,
        fence: meta.fence(),
        body,
    }
}

/// Deletes an object.
pub(super) fn delete<V: View>(meta: &Meta) -> Write {
    Write::Delete {
        resource: V::RESOURCE,
        key: meta.key(),
        fence: meta.fence(),
        grace: None,
        propagation: None,
    }
}

/// Returns a count of a status, which is left out when it is zero.
pub(super) fn nonzero_count(number: i64) -> Value {
    if number == 0 { Value::Null } else { json!(number) }
}
