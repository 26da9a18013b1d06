//! Label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A label selector. An empty selector matches everything; where a missing one matches nothing,
/// that is an `Option` without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels and the values they must have.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements, all of which must hold.
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The operator.
    pub operator: Operator,
    /// The values that the operator compares with.
    pub values: Vec<String>,
}

/// The operator of a requirement. Node selectors also compare numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// The label exists, with one of the values.
    In,
    /// The label does not exist, or has another value.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is a number above the one value.
    Gt,
    /// The label is a number below the one value.
    Lt,
    /// An operator of a newer server. Nothing matches it, so no object is selected by mistake.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Selector {
    /// Whether the selector matches these labels.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.matches(labels))
    }

    /// Whether the selector has no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

impl Requirement {
    /// Whether these labels satisfy the requirement.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = labels.get(&self.key);
        let listed = || has.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => has.is_some(),
            Operator::DoesNotExist => has.is_none(),
            Operator::Gt => self.numbers(has).is_some_and(|(has, bound)| has > bound),
            Operator::Lt => self.numbers(has).is_some_and(|(has, bound)| has < bound),
            Operator::Unknown => false,
        }
    }

    fn numbers(&self, has: Option<&String>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else { return None };
        Some((has?.parse().ok()?, bound.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_pick_what_they_describe() {
        let labels = BTreeMap::from([("a", "1"), ("n", "20")].map(|(k, v)| (k.into(), v.into())));
        let one = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let table = [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "c": ""}}), false),
            (one("In", "a", &["0", "1"]), true),
            (one("In", "c", &["1"]), false),
            (one("NotIn", "c", &["1"]), true),
            (one("NotIn", "a", &["1"]), false),
            (one("Exists", "a", &[]), true),
            (one("DoesNotExist", "a", &[]), false),
            (one("Gt", "n", &["9"]), true),
            (one("Lt", "n", &["9"]), false),
            (one("Gt", "a", &["x"]), false),
            (one("Gt", "a", &[]), false),
            (one("Near", "a", &["1"]), false),
        ];
        for (text, expected) in table {
            let selector: Selector = serde_json::from_value(text.clone()).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
        }
    }
}
