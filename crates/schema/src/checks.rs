//! The checks of a value beyond its structure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::format::Format;
use crate::pattern::Pattern;
use crate::tree::NodeId;

/// The value rules of one node. Those that do not concern the kind of value at hand are not asked:
/// a pattern says nothing about a number.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The type the value must have; none where anything goes.
    pub kind: Option<Kind>,
    /// Whether `null` is valid for the type.
    pub nullable: bool,
    /// What a text must look like.
    pub format: Option<Format>,
    /// The least number.
    pub minimum: Option<Bound>,
    /// The greatest number.
    pub maximum: Option<Bound>,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The fewest code points of a text.
    pub min_length: Option<i64>,
    /// The most code points of a text.
    pub max_length: Option<i64>,
    /// What a text must match somewhere.
    pub pattern: Option<Pattern>,
    /// The fewest elements of a list.
    pub min_items: Option<i64>,
    /// The most elements of a list.
    pub max_items: Option<i64>,
    /// The fewest entries of an object.
    pub min_properties: Option<i64>,
    /// The most entries of an object.
    pub max_properties: Option<i64>,
    /// The entries an object must have.
    pub required: Vec<Box<str>>,
    /// The values there are; empty where any will do.
    pub enum_values: Vec<Value>,
    /// Whether entries without a declaration are refused (`additionalProperties: false`).
    pub deny_additional: bool,
    /// The node of entries that a struct does not declare and yet keeps.
    pub additional: Option<NodeId>,
    /// Clauses of which all must hold.
    pub all_of: Vec<Clause>,
    /// Clauses of which one must hold.
    pub any_of: Vec<Clause>,
    /// Clauses of which exactly one must hold.
    pub one_of: Vec<Clause>,
    /// A clause that must not hold.
    pub not: Option<Box<Clause>>,
    /// Expressions over the value, in the order they were written.
    pub rules: Vec<Rule>,
    /// Whether this node or one below it has [`rule_sites`](Self::rules).
    pub has_rules: bool,
}

/// Checks under `allOf`, `anyOf`, `oneOf` or `not`, with those of the parts.
#[derive(Clone, Debug, Default)]
pub struct Clause {
    /// About the value itself.
    pub checks: Checks,
    /// About its entries.
    pub fields: BTreeMap<Box<str>, Clause>,
    /// About its elements.
    pub items: Option<Box<Clause>>,
}

/// The types a schema may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`; a number without a fraction is valid.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntegerOrString,
}

impl Kind {
    /// The type named `word`.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Some(match word {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The name in schemas and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntegerOrString => "integer,string",
        }
    }

    /// Whether it is about numbers.
    pub(crate) fn is_numeric(self) -> bool {
        match self {
            Self::Integer | Self::Number | Self::IntegerOrString => true,
            Self::Object | Self::Array | Self::String | Self::Boolean => false,
        }
    }
}

/// An end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The number.
    pub value: f64,
    /// Whether the number itself is outside.
    pub exclusive: bool,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The expression that must be true.
    pub rule: String,
    /// The message if it is not.
    pub message: Option<String>,
    /// An expression for the message.
    pub message_expression: Option<String>,
    /// The sort of fault: `FieldValueInvalid` unless given.
    pub reason: Option<String>,
    /// The field at fault, relative to the node, as in `.replicas`.
    pub field_path: Option<String>,
    /// The same as faults name it, as in `replicas`; none if it leads nowhere.
    pub field: Option<String>,
    /// Whether `oldSelf` is an optional and the rule is asked without an old value too.
    pub optional_old_self: Option<bool>,
}
