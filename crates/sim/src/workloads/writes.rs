//! Writes to objects of a known kind, fenced by what was seen of them.

use gantry_reconcile::{Meta, Part, View, Write};
use serde_json::{Value, json};

/// Makes an object.
pub(super) fn create<V: View>(body: Value) -> Write {
    Write::Create { resource: V::RESOURCE, body }
}

/// Changes an object, but not its status.
pub(super) fn change<V: View>(meta: &Meta, body: Value) -> Write {
    merge::<V>(meta, Part::Main, body)
}

/// Changes what an object says about itself.
pub(super) fn state<V: View>(meta: &Meta, body: Value) -> Write {
    merge::<V>(meta, Part::Status, body)
}

fn merge<V: View>(meta: &Meta, part: Part, body: Value) -> Write {
    Write::Merge { resource: V::RESOURCE, key: meta.key(), part, fence: meta.fence(), body }
}

/// Asks an object to go.
pub(super) fn delete<V: View>(meta: &Meta) -> Write {
    Write::Delete {
        resource: V::RESOURCE,
        key: meta.key(),
        fence: meta.fence(),
        grace: None,
        propagation: None,
    }
}

/// A count of a status that is left out when it is zero.
pub(super) fn count(number: i64) -> Value {
    if number == 0 { Value::Null } else { json!(number) }
}
