//! Requests: the capacity that a term needs from its devices.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::AccessMode;
use super::capacity::check_amount;
use crate::finding::Findings;
use crate::quantity::Quantity;
use crate::schema::{self, Schema};
use gantry_yaml::node::Path;

/// The request that stands for the number of devices and not for a resource of theirs.
pub(super) const COUNT: &str = "count";

/// What a term asks for, in one of two forms.
///
/// Amounts are minima over all devices of the term together; typed requests must be met by each
/// device alone. In both, `count` is the number of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Requests {
    /// Amount per resource name.
    Amounts(BTreeMap<String, Quantity>),
    /// One entry per resource, with the kind of capacity it wants.
    Typed(Vec<TypedRequest>),
}

/// A request for one kind of capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedRequest {
    /// Name of the resource.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How much of it.
    #[serde(flatten)]
    #[schemars(with = "DrawFields")]
    pub draw: RequestedCapacity,
}

/// How much is drawn from a capacity, and of which kind it must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestedCapacity {
    /// A whole number, from a counter.
    Counter {
        /// How many.
        request: i64,
    },
    /// An amount, from a quantity or in blocks.
    Quantity {
        /// How much.
        request: Quantity,
    },
    /// Access to the device.
    AccessMode {
        /// Which.
        request: AccessMode,
    },
}

impl RequestedCapacity {
    /// The fields that hold a draw of each kind.
    pub(super) const FIELDS: [&str; 3] = ["counter", "quantity", "accessMode"];
}

/// How [`RequestedCapacity`] looks in a schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct DrawFields {
    /// A whole number, drawn from a counter.
    counter: Option<CounterDraw>,
    /// An amount, drawn from a quantity or in blocks.
    quantity: Option<QuantityDraw>,
    /// Access to the device itself.
    access_mode: Option<AccessDraw>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CounterDraw {
    /// How many.
    #[schemars(range(min = 0))]
    request: i64,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct QuantityDraw {
    /// How much.
    request: Quantity,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct AccessDraw {
    /// The mode of access.
    request: AccessMode,
}

impl Requests {
    /// Returns the number of requested devices, if it is set.
    #[must_use]
    pub fn count(&self) -> Option<Quantity> {
        match self {
            Self::Amounts(amounts) => amounts.get(COUNT).copied(),
            Self::Typed(list) => {
                list.iter().find(|entry| entry.name == COUNT).and_then(|entry| match entry.draw {
                    RequestedCapacity::Counter { request } => {
                        Quantity::parse(&request.to_string()).ok()
                    }
                    RequestedCapacity::Quantity { request } => Some(request),
                    RequestedCapacity::AccessMode { .. } => None,
                })
            }
        }
    }

    /// Returns whether anything besides the number of devices is requested.
    #[must_use]
    pub fn names_resources(&self) -> bool {
        match self {
            Self::Amounts(amounts) => amounts.keys().any(|name| name != COUNT),
            Self::Typed(list) => list.iter().any(|entry| entry.name != COUNT),
        }
    }

    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        match self {
            Self::Amounts(amounts) => check_amounts(amounts, path, findings),
            Self::Typed(list) => {
                for (index, entry) in list.iter().enumerate() {
                    check_typed(entry, &path.index(index), findings);
                }
            }
        }
    }
}

pub(super) fn check_amounts(
    amounts: &BTreeMap<String, Quantity>,
    path: &Path,
    findings: &mut Findings,
) {
    for (name, amount) in amounts {
        let path = path.key(name);
        if name.is_empty() {
            findings.error(&path, "Required value: a resource has a name");
        } else if name == COUNT {
            check_count(*amount, &path, findings);
        } else {
            check_amount(*amount, &path, findings);
        }
    }
}

fn check_typed(entry: &TypedRequest, path: &Path, findings: &mut Findings) {
    match &entry.draw {
        RequestedCapacity::Counter { request } if entry.name == COUNT && *request < 1 => {
            let text = format!("Invalid value: {request}: at least one device");
            findings.error(&path.join("counter.request"), text);
        }
        RequestedCapacity::Quantity { .. } | RequestedCapacity::AccessMode { .. }
            if entry.name == COUNT =>
        {
            findings.error(path, "the number of devices is a `counter`");
        }
        RequestedCapacity::Quantity { request } => {
            check_amount(*request, &path.join("quantity.request"), findings);
        }
        RequestedCapacity::Counter { .. } | RequestedCapacity::AccessMode { .. } => {}
    }
}

fn check_count(count: Quantity, path: &Path, findings: &mut Findings) {
    if count.to_int().is_none_or(|count| count < 1) {
        let text = format!("Invalid value: \"{count}\": must be a whole number of at least 1");
        findings.error(path, text);
    }
}

/// Returns the schema of a list of typed requests. The field itself may be a list or a map, which
/// no structural schema can express.
pub(super) fn typed_schema() -> &'static Schema {
    static COMPILED: OnceLock<Schema> = OnceLock::new();
    COMPILED.get_or_init(|| {
        Schema::compile(&schema::of::<Vec<TypedRequest>>()).expect("a test compiles this schema")
    })
}

/// The schema of a map of amounts.
pub(super) fn amounts_schema() -> &'static Schema {
    static COMPILED: OnceLock<Schema> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let schema =
            json!({"type": "object", "additionalProperties": crate::kubernetes::quantity()});
        Schema::compile(&schema).expect("a test compiles this schema")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_a_schema() {
        let list = json!([{"name": "a", "counter": {"request": 1}}]);
        assert_eq!(typed_schema().check(&list), []);
        assert_eq!(amounts_schema().check(&json!({"a": "1Gi", "b": 2})), []);
    }

    #[test]
    fn the_count_is_found_in_both_forms() {
        let read = |value| serde_json::from_value::<Requests>(value).unwrap();
        let map = read(json!({"count": "4"}));
        let list = read(json!([{"name": "count", "counter": {"request": 4}}]));
        for requests in [map, list] {
            assert_eq!(requests.count(), Some(Quantity::from(4)));
            assert!(!requests.names_resources());
        }
    }
}
