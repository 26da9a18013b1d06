//! Aggregated ClusterRoles: roles whose rules are collected from other roles by label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::rule::{Rule, rules};

/// All ClusterRoles; computes which rules the aggregated ones should have.
#[derive(Clone, Debug, Default)]
pub struct Aggregation(BTreeMap<String, Role>);

#[derive(Clone, Debug, Default)]
struct Role {
    labels: BTreeMap<String, String>,
    rules: Vec<Rule>,
    /// The selectors of an aggregated role; `None` if the role has rules of its own.
    selectors: Option<Vec<Selector>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Aggregation {
    /// Whether a ClusterRole is aggregated.
    #[must_use]
    pub fn is_aggregated(role: &Value) -> bool {
        role["aggregationRule"].is_object()
    }

    /// Removes a ClusterRole.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Adds a ClusterRole, or replaces it.
    pub fn add(&mut self, role: &Value) {
        let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let labels = BTreeMap::deserialize(&role["metadata"]["labels"]).unwrap_or_default();
        let of = Self::is_aggregated(role).then(|| {
            let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
            let selectors = selectors.into_iter().flatten();
            // A selector that cannot be read selects nothing; validation never stores one.
            selectors.filter_map(|it| Selector::deserialize(it).ok()).collect()
        });
        self.0.insert(name, Role { labels, rules: rules(role), selectors: of });
    }

    /// Returns the rules of aggregated ClusterRoles whose stored rules are out of date, by role
    /// name.
    ///
    /// Aggregated roles can select other aggregated roles, so this repeats until nothing changes. A
    /// cycle could repeat for ever; there are at most as many rounds as roles, which is enough for
    /// any chain.
    #[must_use]
    pub fn outdated_rules(&self) -> BTreeMap<String, Vec<Rule>> {
        let made: Vec<(&String, &[Selector])> = self
            .0
            .iter()
            .filter_map(|(name, role)| role.selectors.as_deref().map(|of| (name, of)))
            .collect();
        let mut changed: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
        for _ in 0..=made.len() {
            let mut settled = true;
            for &(name, of) in &made {
                let wanted = self.aggregated_rules(name, of, &changed);
                if self.rules(name, &changed) != wanted {
                    changed.insert(name.clone(), wanted);
                    settled = false;
                }
            }
            if settled {
                break;
            }
        }
        changed.retain(|name, rules| self.0.get(name).is_some_and(|role| role.rules != *rules));
        changed
    }

    /// Returns the rules of a role, given those that have changed already.
    fn rules<'a>(&'a self, name: &str, changed: &'a BTreeMap<String, Vec<Rule>>) -> &'a [Rule] {
        let stored = || self.0.get(name).map(|role| &role.rules);
        changed.get(name).or_else(stored).map(Vec::as_slice).unwrap_or_default()
    }

    /// Computes the rules of an aggregated role: the rules of the selected roles in name order,
    /// each rule once.
    fn aggregated_rules(
        &self,
        name: &str,
        of: &[Selector],
        changed: &BTreeMap<String, Vec<Rule>>,
    ) -> Vec<Rule> {
        let mut wanted: Vec<Rule> = Vec::new();
        for selector in of {
            for (other, role) in &self.0 {
                if other == name || !selector.matches(&role.labels) {
                    continue;
                }
                for rule in self.rules(other, changed) {
                    if !wanted.contains(rule) {
                        wanted.push(rule.clone());
                    }
                }
            }
        }
        wanted
    }
}

impl Selector {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| {
                let value = labels.get(&expression.key);
                let listed = value.is_some_and(|it| expression.values.contains(it));
                match expression.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, labels: &Value, verb: &str) -> Value {
        json!({
            "metadata": { "name": name, "labels": labels },
            "rules": [{ "verbs": [verb], "apiGroups": [""], "resources": ["pods"] }],
        })
    }

    fn made(name: &str, labels: &Value, selectors: &Value) -> Value {
        json!({
            "metadata": { "name": name, "labels": labels },
            "aggregationRule": { "clusterRoleSelectors": selectors },
        })
    }

    fn verbs(rules: &[Rule]) -> Vec<&str> {
        rules.iter().flat_map(|rule| &rule.verbs).map(String::as_str).collect()
    }

    #[test]
    fn chained_aggregations_are_resolved_in_name_order() {
        let mut all = Aggregation::default();
        let to = |label: &str| json!([{ "matchLabels": { label: "true" } }]);
        all.add(&made("admin", &json!({}), &to("to-admin")));
        all.add(&made("edit", &json!({ "to-admin": "true" }), &to("to-edit")));
        all.add(&made("view", &json!({ "to-edit": "true" }), &to("to-view")));
        all.add(&role("c", &json!({ "to-view": "true" }), "get"));
        all.add(&role("b", &json!({ "to-view": "true", "to-edit": "true" }), "list"));
        all.add(&role("a", &json!({ "to-admin": "true" }), "bind"));
        let settled = all.outdated_rules();
        assert_eq!(verbs(&settled["view"]), ["list", "get"]);
        assert_eq!(verbs(&settled["edit"]), ["list", "get"]);
        assert_eq!(verbs(&settled["admin"]), ["bind", "list", "get"]);
        for (name, rules) in &settled {
            all.0.get_mut(name).unwrap().rules.clone_from(rules);
        }
        assert!(all.outdated_rules().is_empty(), "what is settled stays so");
    }

    #[test]
    fn selectors_select_by_labels() {
        let expression = |operator: &str, values: &Value| {
            let it = json!({ "key": "a", "operator": operator, "values": values });
            json!([{ "matchExpressions": [it] }])
        };
        let table = [
            (json!([]), vec![]),
            (json!([{}]), vec!["none", "one", "two"]),
            (expression("In", &json!(["1"])), vec!["one"]),
            (expression("NotIn", &json!(["1"])), vec!["none", "two"]),
            (expression("Exists", &json!([])), vec!["one", "two"]),
            (expression("DoesNotExist", &json!([])), vec!["none"]),
            (json!([{ "matchLabels": { "a": "2" } }, {}]), vec!["two", "none", "one"]),
        ];
        for (selectors, expected) in table {
            let mut all = Aggregation::default();
            all.add(&role("none", &Value::Null, "none"));
            all.add(&role("one", &json!({ "a": "1" }), "one"));
            all.add(&role("two", &json!({ "a": "2" }), "two"));
            all.add(&made("made", &json!({}), &selectors));
            let settled = all.outdated_rules();
            let found = settled.get("made").map(|rules| verbs(rules)).unwrap_or_default();
            assert_eq!(found, expected, "{selectors}");
        }
    }

    #[test]
    fn cyclic_aggregations_terminate() {
        let mut all = Aggregation::default();
        let to = |label: &str| json!([{ "matchLabels": { label: "true" } }]);
        all.add(&made("a", &json!({ "b": "true" }), &to("a")));
        all.add(&made("b", &json!({ "a": "true" }), &to("b")));
        all.add(&role("c", &json!({ "a": "true" }), "get"));
        let settled = all.outdated_rules();
        assert_eq!((verbs(&settled["a"]), verbs(&settled["b"])), (vec!["get"], vec!["get"]));
    }
}
