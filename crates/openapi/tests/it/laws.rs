use std::collections::BTreeSet;

use gantry_openapi::{CustomKind, OpenApiVersion, custom_document};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::walk;

/// A definition's schema with every construct that is published in another form than it has.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "string", "title": "" })),
        Just(json!({ "x-kubernetes-int-or-string": true })),
        Just(json!({ "x-kubernetes-preserve-unknown-fields": true, "example": 1 })),
        any::<f64>().prop_map(|maximum| json!({ "type": "number", "maximum": maximum })),
        any::<i64>().prop_map(|default| json!({ "type": "integer", "default": default })),
    ];
    let node = leaf.prop_recursive(4, 24, 4, |inner| {
        let properties = prop::collection::btree_map("[a-z$/]{1,8}", inner.clone(), 0..4);
        prop_oneof![
            (properties, any::<bool>()).prop_map(|(properties, embedded)| json!({
                "type": "object",
                "properties": properties,
                "x-kubernetes-embedded-resource": embedded,
                "anyOf": [{ "required": ["a"] }, { "not": { "required": [] } }],
            })),
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            inner.prop_map(|values| json!({ "type": "object", "additionalProperties": values })),
        ]
    });
    prop::collection::btree_map("[a-z]{1,8}", node, 0..4)
        .prop_map(|properties| json!({ "type": "object", "properties": properties }))
}

fn kind<'a>(name: &'a str, flags: u8, schema: &'a Value) -> CustomKind<'a> {
    CustomKind {
        plural: name,
        kind: name,
        list_kind: if name == "One" { "OneList" } else { "TwoList" },
        namespaced: flags & 1 != 0,
        has_status: flags & 2 != 0,
        has_scale: flags & 4 != 0,
        schema,
        selectable_fields: if flags & 8 != 0 { vec![".spec.a"] } else { vec![] },
    }
}

/// The same value with the fields of all its objects in the opposite order.
fn reverse_field_order(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let turned =
                fields.iter().rev().map(|(name, it)| (name.clone(), reverse_field_order(it)));
            Value::Object(turned.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(reverse_field_order).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used(
        one in any_schema(), two in any_schema(), flags in any::<(u8, u8)>(),
    ) {
        let kinds = [kind("One", flags.0, &one), kind("Two", flags.1, &two)];
        let document = custom_document(OpenApiVersion::V3, "a.example.com", "v1", &kinds);
        let mut targets = BTreeSet::new();
        walk(&document, "", &mut |place, value| {
            if let (true, Some(target)) = (place.ends_with("/$ref"), value.as_str()) {
                targets.insert(target.trim_start_matches("#/components/schemas/").to_owned());
            }
        });
        let schemas: BTreeSet<_> =
            document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
        prop_assert_eq!(targets, schemas);
    }

    #[test]
    fn operations_have_ids_of_their_own(flags in any::<(u8, u8)>()) {
        let schema = json!({ "type": "object" });
        let kinds = [kind("One", flags.0, &schema), kind("Two", flags.1, &schema)];
        let document = custom_document(OpenApiVersion::V3, "a.example.com", "v1", &kinds);
        let (mut seen, mut count) = (BTreeSet::new(), 0);
        walk(&document["paths"], "", &mut |place, value| {
            if place.ends_with("/operationId") {
                seen.insert(value.to_string());
                count += 1;
            }
        });
        prop_assert_eq!(seen.len(), count);
        let of_kind = |flags: u8| {
            7 + usize::from(flags & 1) + usize::from(flags & 2 != 0) * 3
                + usize::from(flags & 4 != 0) * 3
        };
        prop_assert_eq!(count, of_kind(flags.0) + of_kind(flags.1));
    }

    #[test]
    fn the_order_of_the_definition_makes_no_difference(
        one in any_schema(), two in any_schema(), flags in any::<(u8, u8)>(),
    ) {
        let kinds = [kind("One", flags.0, &one), kind("Two", flags.1, &two)];
        let (one, two) = (reverse_field_order(&one), reverse_field_order(&two));
        let swapped = [kind("Two", flags.1, &two), kind("One", flags.0, &one)];
        let document = custom_document(OpenApiVersion::V3, "a.example.com", "v1", &kinds).to_string();
        prop_assert_eq!(document, custom_document(OpenApiVersion::V3, "a.example.com", "v1", &swapped).to_string());
    }
}
