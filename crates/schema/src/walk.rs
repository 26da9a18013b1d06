//! Finds the values of an object that have rules.

use serde_json::{Map, Value};

use crate::checks::Rule;
use crate::correlate::{self, OldItems};
use crate::path::Path;
use crate::tree::{NodeId, Schema, Shape};

/// A value with rules.
#[derive(Clone, Debug)]
pub struct RuleSite<'object> {
    /// The field, as faults name it; `<nil>` for the object itself. A rule's own `fieldPath` is
    /// relative to it.
    pub field: String,
    /// The node with the rules.
    pub node: NodeId,
    /// The rules, in order.
    pub rules: &'object [Rule],
    /// Whether the value is a whole object: its rules see `apiVersion`, `kind` and the names in
    /// `metadata`.
    pub is_object: bool,
    /// What `self` is. Never null: of absent values nothing is asked.
    pub value: &'object Value,
    /// What `oldSelf` is. A rule that mentions it is asked only if there is one, or if the rule has
    /// `optionalOldSelf`.
    pub old: Option<&'object Value>,
    /// The nearest value around this one that can be correlated with its old one.
    nearest: Option<ValuePair<'object>>,
}

#[derive(Clone, Copy, Debug)]
struct ValuePair<'object> {
    node: NodeId,
    new: &'object Value,
    old: &'object Value,
}

impl RuleSite<'_> {
    /// Whether the value has not changed, so that a failed rule is not held against it. This does
    /// not go for rules that mention `oldSelf`.
    #[must_use]
    pub fn is_unchanged(&self, schema: &Schema) -> bool {
        self.nearest
            .is_some_and(|pair| correlate::is_unchanged(schema, pair.node, pair.new, pair.old))
    }
}

/// Whether a schema has rules anywhere.
#[must_use]
pub fn has_rules(schema: &Schema) -> bool {
    schema.checks(schema.root()).is_some_and(|checks| checks.has_rules)
}

/// The values of an object that have rules, from the outside in and by name.
#[must_use]
pub fn rule_sites<'object>(
    schema: &'object Schema,
    object: &'object Value,
    old: Option<&'object Value>,
) -> Vec<RuleSite<'object>> {
    let root = schema.root();
    let pair = old.map(|old| ValuePair { node: root, new: object, old });
    sites(schema, object, old, pair, "")
}

/// The same for a value in the field `above`, changed or not: every rule is held against it.
pub(crate) fn rule_sites_of_part<'object>(
    schema: &'object Schema,
    value: &'object Value,
    old: Option<&'object Value>,
    above: &'object str,
) -> Vec<RuleSite<'object>> {
    sites(schema, value, old, None, above)
}

fn sites<'object>(
    schema: &'object Schema,
    value: &'object Value,
    old: Option<&'object Value>,
    pair: Option<ValuePair<'object>>,
    above: &'object str,
) -> Vec<RuleSite<'object>> {
    let mut walk = Walk { schema, above, sites: Vec::new() };
    let ratchet = Ratchet { current: pair, nearest: pair };
    walk.node(schema.root(), value, old, ratchet, &Path::ROOT);
    walk.sites
}

struct Walk<'object> {
    schema: &'object Schema,
    /// The field the value stands in; empty if it is an object by itself.
    above: &'object str,
    sites: Vec<RuleSite<'object>>,
}

/// What is known of the change around a value.
#[derive(Clone, Copy)]
struct Ratchet<'object> {
    /// The value itself and its old one.
    current: Option<ValuePair<'object>>,
    /// The same, or the nearest around it for which there is one.
    nearest: Option<ValuePair<'object>>,
}

impl<'object> Ratchet<'object> {
    /// The step to a part whose old value is known or not. Once it is not, it is not further in.
    fn part(self, part: Option<ValuePair<'object>>) -> Self {
        match (self.current, part) {
            (Some(_), Some(part)) => Self { current: Some(part), nearest: Some(part) },
            (Some(_) | None, _) => Self { current: None, ..self },
        }
    }
}

impl<'object> Walk<'object> {
    fn node(
        &mut self,
        id: NodeId,
        value: &'object Value,
        old: Option<&'object Value>,
        ratchet: Ratchet<'object>,
        path: &Path<'_>,
    ) {
        let schema = self.schema;
        let Some(checks) = schema.checks(id).filter(|checks| checks.has_rules) else { return };
        if value.is_null() {
            return;
        }
        let shape = &schema.node(id).shape;
        if !checks.rules.is_empty() {
            self.sites.push(RuleSite {
                field: match self.above {
                    "" => path.in_cause(),
                    above => path.in_cause_under(above),
                },
                node: id,
                rules: &checks.rules,
                is_object: path.is_root() || matches!(shape, Shape::Struct { embedded: true, .. }),
                value,
                old: old.filter(|old| !old.is_null()),
                nearest: ratchet.nearest,
            });
        }
        match (shape, value) {
            (Shape::List { items, .. }, Value::Array(list)) => {
                let olds = OldItems::new(schema, id, old);
                for (index, item) in list.iter().enumerate() {
                    let old = olds.get(item);
                    let pair = old.map(|old| ValuePair { node: *items, new: item, old });
                    self.node(*items, item, old, ratchet.part(pair), &path.index(index));
                }
            }
            (Shape::Map { values, .. }, Value::Object(map)) => {
                for (key, value) in by_name(map) {
                    let (old, ratchet) = self.step(id, *values, key, value, old, ratchet);
                    self.node(*values, value, old, ratchet, &path.entry(key));
                }
            }
            (Shape::Struct { fields, .. }, Value::Object(map)) => {
                for (name, field) in fields {
                    let Some(value) = map.get(&**name) else { continue };
                    let (old, mut ratchet) = self.step(id, field.node, name, value, old, ratchet);
                    if path.is_root() && matches!(&**name, "apiVersion" | "kind") {
                        ratchet = Ratchet { current: None, nearest: None };
                    }
                    self.node(field.node, value, old, ratchet, &path.field(name));
                }
            }
            (
                Shape::List { .. }
                | Shape::Map { .. }
                | Shape::Struct { .. }
                | Shape::Scalar(_)
                | Shape::Any,
                _,
            ) => {}
        }
    }

    fn step(
        &self,
        id: NodeId,
        part: NodeId,
        key: &str,
        value: &'object Value,
        old: Option<&'object Value>,
        ratchet: Ratchet<'object>,
    ) -> (Option<&'object Value>, Ratchet<'object>) {
        let old = correlate::entry(self.schema, id, key, old);
        let pair = old.map(|old| ValuePair { node: part, new: value, old });
        (old, ratchet.part(pair))
    }
}

fn by_name(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

#[cfg(test)]
mod tests;
