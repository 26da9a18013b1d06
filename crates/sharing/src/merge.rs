//! Merges one JSON tree into another, and tells whether that would change it.

use serde_json::{Map, Number, Value};

/// The merged tree: objects are merged field by field, everything else, lists too, is replaced.
#[must_use]
pub fn merged(base: &Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            let mut result: Map<String, Value> = base.clone();
            for (key, value) in over {
                let value = base.get(key).map_or_else(|| value.clone(), |old| merged(old, value));
                result.insert(key.clone(), value);
            }
            Value::Object(result)
        }
        (_, over) => over.clone(),
    }
}

/// Whether two trees are equal. Numbers are compared by value: a server may write 1.0 as 1.
#[must_use]
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|it| same(value, it)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Number(one), Value::Number(other)) => same_number(one, other),
        (one, other) => one == other,
    }
}

fn same_number(one: &Number, other: &Number) -> bool {
    // They may differ in form alone only where one of them is written as a fraction.
    one == other || ((one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
}

/// Whether merging would change the tree.
#[must_use]
pub fn would_change(base: &Value, over: &Value) -> bool {
    !same(&merged(base, over), base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn objects_are_merged_and_lists_replaced() {
        let table = [
            // why                      base                          over   result
            ("a new field", json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            ("a changed one", json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (
                "deep",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 3}}),
                json!({"a": {"b": 3, "c": 2}}),
            ),
            ("a list", json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            ("objects in a list", json!([{"a": 1}]), json!([{"b": 2}]), json!([{"b": 2}])),
            ("another type", json!({"a": {"b": 1}}), json!({"a": 5}), json!({"a": 5})),
        ];
        for (why, base, over, result) in table {
            assert_eq!(merged(&base, &over), result, "{why}");
        }
    }

    #[test]
    fn only_a_difference_is_a_change() {
        let table = [
            // why                       base                             over   change
            ("the same", json!({"a": [1]}), json!({"a": [1]}), false),
            ("a part of it", json!({"a": 1, "defaulted": true}), json!({"a": 1}), false),
            ("in another order", json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), false),
            ("another form of a number", json!({"a": 1}), json!({"a": 1.0}), false),
            ("another number", json!({"a": 1}), json!({"a": 1.5}), true),
            ("a large number", json!({"a": u64::MAX}), json!({"a": u64::MAX - 1}), true),
            (
                "more in a list's object",
                json!({"a": [{"b": 1, "c": 2}]}),
                json!({"a": [{"b": 1}]}),
                true,
            ),
            ("more fields", json!({}), json!({"a": null}), true),
        ];
        for (why, base, over, change) in table {
            assert_eq!(would_change(&base, &over), change, "{why}");
        }
    }

    fn any_tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3..3i64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Merging is idempotent.
        #[test]
        fn merging_settles(base in any_tree(), over in any_tree()) {
            let once = merged(&base, &over);
            prop_assert!(!would_change(&once, &over));
        }
    }
}
