use super::*;

#[test]
fn fields_are_published_as_a_structural_schema_has_them() {
    let table = [
        (
            "zero values say nothing",
            json!({
                "type": "string", "title": "", "description": "", "format": "", "pattern": "",
                "nullable": false, "exclusiveMinimum": false, "uniqueItems": false, "required": [],
                "enum": [], "allOf": [], "properties": {}, "x-kubernetes-validations": [],
                "default": null, "maxLength": null,
            }),
            json!({ "type": "string" }),
        ),
        (
            "zero limits are limits",
            json!({ "minLength": 0, "maxItems": 0, "minimum": 0 }),
            json!({ "minLength": 0, "maxItems": 0, "minimum": 0 }),
        ),
        (
            "false and empty defaults are defaults",
            json!({ "properties": { "a": { "default": false }, "b": { "default": "" } } }),
            json!({ "properties": { "a": { "default": false }, "b": { "default": "" } } }),
        ),
        (
            "what structural schemas lack is dropped",
            json!({ "example": 1, "externalDocs": { "url": "u" }, "id": "", "x-own": 1 }),
            json!({}),
        ),
        (
            "whole numbers have no decimal point",
            json!({ "maximum": 10.0, "multipleOf": 0.5, "default": { "a": [2.0, 2.5] } }),
            json!({ "maximum": 10, "multipleOf": 0.5, "default": { "a": [2, 2.5] } }),
        ),
        (
            "bounds are floating-point numbers",
            json!({ "maximum": 9_007_199_254_740_993_i64 }),
            json!({ "maximum": 9_007_199_254_740_992_i64 }),
        ),
        (
            "other integers are exact",
            json!({ "default": 9_007_199_254_740_993_i64 }),
            json!({ "default": 9_007_199_254_740_993_i64 }),
        ),
        (
            "large bounds stay",
            json!({ "maximum": 1e30, "minimum": u64::MAX }),
            json!({ "maximum": 1e30, "minimum": 18_446_744_073_709_551_616.0 }),
        ),
        (
            "null is a value of an enum",
            json!({ "enum": [1.0, null] }),
            json!({ "enum": [1, null] }),
        ),
        (
            "empty parts of rules say nothing",
            json!({ "x-kubernetes-validations": [{ "rule": "true", "message": "", "reason": null }] }),
            json!({ "x-kubernetes-validations": [{ "rule": "true" }] }),
        ),
        (
            "additional properties are part of the structure",
            json!({ "additionalProperties": { "type": "string", "title": "" } }),
            json!({ "additionalProperties": { "type": "string" } }),
        ),
        (
            "conditions have no additional properties",
            json!({ "not": { "additionalProperties": true, "required": ["a"] } }),
            json!({ "not": { "required": ["a"] } }),
        ),
        (
            "conditions are not extended",
            json!({ "anyOf": [{ "x-kubernetes-int-or-string": true }, {}] }),
            json!({ "anyOf": [{ "x-kubernetes-int-or-string": true }, {}] }),
        ),
    ];
    for (why, schema, expected) in table {
        assert_eq!(node(&schema, SchemaContext::Structure(OpenApiVersion::V3)), expected, "{why}");
    }
}

#[test]
fn an_int_or_string_says_its_types_once() {
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    let table = [
        ("bare", json!({}), json!({ "anyOf": either })),
        ("said", json!({ "anyOf": either }), json!({ "anyOf": either })),
        (
            "said first in allOf",
            json!({ "allOf": [{ "anyOf": either }, { "maxLength": 5 }] }),
            json!({ "allOf": [{ "anyOf": either }, { "maxLength": 5 }] }),
        ),
        (
            "said later in allOf",
            json!({ "allOf": [{ "maxLength": 5 }, { "anyOf": either }] }),
            json!({ "allOf": [{ "maxLength": 5 }, { "anyOf": either }], "anyOf": either }),
        ),
        (
            "anyOf is taken",
            json!({ "anyOf": [{ "minimum": 1 }] }),
            json!({ "anyOf": [{ "minimum": 1 }], "allOf": [{ "anyOf": either }] }),
        ),
        (
            "both are taken",
            json!({ "anyOf": [{ "minimum": 1 }], "allOf": [{ "maxLength": 5 }] }),
            json!({ "anyOf": [{ "minimum": 1 }],
                "allOf": [{ "anyOf": either }, { "maxLength": 5 }] }),
        ),
    ];
    for (why, mut schema, mut expected) in table {
        schema["x-kubernetes-int-or-string"] = true.into();
        expected["x-kubernetes-int-or-string"] = true.into();
        assert_eq!(node(&schema, SchemaContext::Structure(OpenApiVersion::V3)), expected, "{why}");
    }
}

#[test]
fn a_definition_without_a_schema_lists_no_properties() {
    assert_eq!(
        Value::Object(object(OpenApiVersion::V3, &Value::Null)),
        json!({ "type": "object" })
    );
}

#[test]
fn a_schema_cannot_change_what_every_object_has() {
    let own = json!({ "type": "object", "properties": {
        "apiVersion": { "type": "string", "description": "mine" },
        "metadata": { "type": "object", "properties": { "name": { "maxLength": 3 } } },
    } });
    let published = Value::Object(object(OpenApiVersion::V3, &own));
    assert_eq!(published["properties"]["apiVersion"], COMMON.api_version);
    assert_eq!(published["properties"]["kind"], COMMON.kind);
    assert_eq!(published["properties"]["metadata"], metadata());
}

/// What kubectl cannot read is left out of version 2.
#[test]
fn openapi_v2_drops_unsupported_fields() {
    let text = || json!({ "type": "string" });
    let table = [
        ("conditions", json!({ "type": "string", "anyOf": [{}], "not": {} }), text()),
        ("what may be null", json!({ "type": "string", "nullable": true }), json!({})),
        (
            "the fields of what may be null",
            json!({ "type": "object", "nullable": true, "properties": { "a": text() } }),
            json!({}),
        ),
        (
            "the fields of what keeps others",
            json!({ "type": "object", KEEPS_UNKNOWN: true, "properties": { "a": text() } }),
            json!({ KEEPS_UNKNOWN: true }),
        ),
        (
            "a list of anything",
            json!({ "type": "array", KEEPS_UNKNOWN: true, "items": text() }),
            json!({ KEEPS_UNKNOWN: true }),
        ),
        (
            "the types of an int-or-string",
            json!({ "x-kubernetes-int-or-string": true }),
            json!({ "x-kubernetes-int-or-string": true }),
        ),
        (
            "an object inside that keeps others has no fields",
            json!({ "type": "object", "x-kubernetes-embedded-resource": true, KEEPS_UNKNOWN: true }),
            json!({ "x-kubernetes-embedded-resource": true, KEEPS_UNKNOWN: true }),
        ),
        (
            "what must be there and may be null",
            json!({
                "type": "object", "required": ["a", "b"],
                "properties": { "a": text(), "b": { "type": "string", "nullable": true } },
            }),
            json!({ "type": "object", "required": ["a"], "properties": { "a": text(), "b": {} } }),
        ),
        (
            "values of a map that may be null",
            json!({
                "type": "object", "required": ["a"],
                "additionalProperties": { "type": "string", "nullable": true },
            }),
            json!({ "type": "object", "additionalProperties": {} }),
        ),
    ];
    for (why, schema, expected) in table {
        assert_eq!(node(&schema, SchemaContext::Structure(OpenApiVersion::V2)), expected, "{why}");
    }
    let keeps = json!({ "type": "object", KEEPS_UNKNOWN: true, "properties": { "a": text() } });
    let open = json!({ "type": "object" });
    assert_eq!(Value::Object(object(OpenApiVersion::V2, &keeps)), open);
}
