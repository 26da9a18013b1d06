//! Attributes: properties of a device that constraints and match groups read.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Findings;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

/// A named property of a device. Exactly one of the values is set.
///
/// Two attributes are equal if name, kind of value and value are; quantities compare by amount, so
/// `1Gi` equals `1024Mi`, and versions by their text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attribute {
    /// Name by which constraints and match lists refer to the attribute, such as `model`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The value.
    #[serde(flatten)]
    #[schemars(with = "ValueFields")]
    pub value: AttributeValue,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AttributeValue {
    /// A text.
    #[serde(rename = "stringValue")]
    String(String),
    /// A whole number.
    #[serde(rename = "intValue")]
    Int(i64),
    /// An amount.
    #[serde(rename = "quantityValue")]
    Quantity(Quantity),
    /// A semantic version.
    #[serde(rename = "semVerValue")]
    SemVer(String),
    /// A truth.
    #[serde(rename = "boolValue")]
    Bool(bool),
}

impl AttributeValue {
    /// The fields that hold a value of each kind.
    pub(super) const FIELDS: [&str; 5] =
        ["stringValue", "intValue", "quantityValue", "semVerValue", "boolValue"];
}

/// How [`AttributeValue`] looks in a schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct ValueFields {
    /// The value, if it is a text. It is compared letter by letter.
    #[schemars(length(max = 4096))]
    string_value: Option<String>,
    /// The value, if it is a whole number.
    int_value: Option<i64>,
    /// The value, if it is an amount such as `10G` or `64Gi`. Amounts compare by size.
    quantity_value: Option<Quantity>,
    /// The value, if it is a semantic version such as `1.8.2`.
    #[schemars(length(max = 256))]
    sem_ver_value: Option<String>,
    /// The value, if it is true or false.
    bool_value: Option<bool>,
}

pub(super) fn check_attributes(attributes: &[Attribute], path: &Path, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, attribute) in attributes.iter().enumerate() {
        if !seen.insert(&attribute.name) {
            let text = format!("Duplicate value: \"{}\"", attribute.name);
            findings.error(&path.index(index).key("name"), text);
        }
    }
}
