use super::*;

#[test]
fn a_schema_says_what_the_second_version_can() {
    let table = [
        (
            "a default is left out",
            json!({ "type": "integer", "default": 3, "format": "int32" }),
            json!({ "type": "integer", "format": "int32" }),
        ),
        (
            "a reference points elsewhere",
            json!({ "$ref": "#/components/schemas/io.k8s.api.core.v1.Pod" }),
            json!({ "$ref": "#/definitions/io.k8s.api.core.v1.Pod" }),
        ),
        (
            "a reference may have something beside it",
            json!({ "description": "d", "default": {}, "allOf": [{ "$ref": "#/components/schemas/a" }] }),
            json!({ "description": "d", "$ref": "#/definitions/a" }),
        ),
        (
            "several types are text",
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
            json!({ "format": "int-or-string", "type": "string" }),
        ),
        (
            "everything below is treated alike, and a field may be called as it likes",
            json!({
                "properties": { "default": { "type": "string", "default": "x" } },
                "items": { "default": {}, "allOf": [{ "$ref": "#/components/schemas/a" }] },
                "additionalProperties": { "type": "string", "default": "" },
            }),
            json!({
                "properties": { "default": { "type": "string" } },
                "items": { "$ref": "#/definitions/a" },
                "additionalProperties": { "type": "string" },
            }),
        ),
    ];
    for (why, third, second) in table {
        assert_eq!(schema(third), second, "{why}");
    }
}

#[test]
fn parameters_are_shared_unless_they_say_something_of_their_own() {
    let mut shared = Map::new();
    // The names are those that Kubernetes v1.34 has for these very parameters.
    let pretty = json!({
        "name": "pretty", "in": "query", "type": "string", "uniqueItems": true,
        "description": "If 'true', then the output is pretty printed. Defaults to 'false' unless \
            the user-agent indicates a browser or command-line HTTP tool (curl and wget).",
    });
    let options = json!({
        "name": "body", "in": "body",
        "schema": { "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions" },
    });
    for (parameter, name) in [(pretty, "pretty-tJGM1-ng"), (options, "body-2Y1dVQaQ")] {
        let reference = json!({ "$ref": format!("#/parameters/{name}") });
        assert_eq!(share(parameter.clone(), &mut shared), reference);
        assert_eq!(share(parameter.clone(), &mut shared), reference, "the same again");
        assert_eq!(shared[name], parameter);
    }
    assert_eq!(shared.len(), 2);
    let own = [
        json!({ "name": "name", "in": "path" }),
        json!({ "name": "fieldValidation", "in": "query" }),
        json!({ "name": "dryRun", "in": "query" }),
        json!({ "name": "body", "in": "body", "schema": { "$ref": "#/definitions/io.k8s.api.core.v1.Pod" } }),
    ];
    for parameter in own {
        assert_eq!(share(parameter.clone(), &mut shared), parameter);
    }
    assert_eq!(shared.len(), 2);
}

#[test]
fn an_operation_has_its_media_types_once() {
    let schema = json!({ "schema": { "$ref": "#/components/schemas/a" } });
    let third = json!({
        "parameters": [],
        "patch": {
            "requestBody": {
                "required": true,
                "content": {
                    "application/apply-patch+yaml": schema, "application/json-patch+json": schema,
                },
            },
            "responses": {
                "200": {
                    "description": "OK",
                    "content": { "application/json": schema, "application/yaml": schema },
                },
                "401": { "description": "Unauthorized" },
            },
            "x-kubernetes-action": "patch",
        },
    });
    let second = json!({
        "parameters": [],
        "patch": {
            "responses": {
                "200": { "description": "OK", "schema": { "$ref": "#/definitions/a" } },
                "401": { "description": "Unauthorized" },
            },
            "x-kubernetes-action": "patch",
            "parameters": [{
                "name": "body", "in": "body", "schema": { "$ref": "#/definitions/a" },
                "required": true,
            }],
            "consumes": ["application/json-patch+json", "application/apply-patch+yaml"],
            "produces": ["application/json", "application/yaml"],
            "schemes": ["https"],
        },
    });
    assert_eq!(path(third, &mut Map::new()), second);
}

#[test]
fn what_an_operation_without_a_body_takes() {
    let produces = [Value::from("application/json")];
    let any = [Value::from("*/*")];
    let table = [
        ("a built-in kind takes anything", json!({ "x-kubernetes-action": "get" }), &any[..]),
        ("discovery takes what it gives", json!({ "tags": ["apps"] }), &produces[..]),
        ("keys of tokens say nothing", json!({ "tags": ["openid"] }), &[]),
        ("nor where they are", json!({ "tags": ["WellKnown"] }), &[]),
    ];
    for (why, operation, expected) in table {
        let operation = operation.as_object().unwrap();
        assert_eq!(consumes_without_body(operation, &produces), expected, "{why}");
    }
    let custom = CUSTOM_MEDIA_TYPES.map(Value::from);
    let operation = json!({ "x-kubernetes-action": "get" });
    let taken = consumes_without_body(operation.as_object().unwrap(), &custom);
    assert_eq!(taken, custom, "a custom kind takes what it gives");
}
