//! Label selectors: which objects are meant.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What an object's labels must be like. An empty selector picks everything; where a missing one
/// picks nothing, that is an `Option` without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels and the values they must have.
    pub match_labels: BTreeMap<String, String>,
    /// What else must be true.
    pub match_expressions: Vec<Requirement>,
}

/// What one label must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What is asked of it.
    pub operator: Operator,
    /// The values that are meant.
    pub values: Vec<String>,
}

/// What may be asked of a label. Nodes can also be asked for numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or has another value.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// It is a number above the one value.
    Gt,
    /// It is a number below the one value.
    Lt,
    /// A word of a newer server. Nothing fulfils it, so nobody is picked by mistake.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Selector {
    /// Whether an object with these labels is meant.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.holds(labels))
    }

    /// Whether it asks for nothing in particular.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

impl Requirement {
    /// Whether these labels are so.
    #[must_use]
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
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
