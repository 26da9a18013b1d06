//! Custom objects: pruning, defaults, columns, scale, fields that select.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, define, define_widgets, object_path, wait_until, widget,
    widget_definition, with_query, with_version_field,
};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("custom-pruning", [51], pruning),
    case!("custom-preserved-fields", [51], preserved),
    case!("custom-defaults", [51], defaults),
    case!("custom-default-added-later", [51], default_added_later),
    case!("custom-nullable", [51], nullable),
    case!("custom-embedded-object", [51], embedded),
    case!("custom-integer-or-string", [51], int_or_string),
    case!("custom-columns", [55], columns),
    case!("custom-columns-by-default", [55], default_columns),
    case!("custom-scale", [55], scale),
    case!("custom-selectable-fields", [55], selectable),
    case!("custom-names-in-discovery", [55], names),
    case!("custom-list-shape", [55], list_shape),
];

async fn pruning(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "string" },
        "list": { "type": "array", "items": {
            "type": "object", "properties": { "k": { "type": "string" } },
        } },
    } });
    define_widgets(talk, &schema).await?;
    let mut object = widget("w", &json!({ "a": "1", "b": 2, "list": [{ "k": "x", "u": 1 }] }));
    object["extra"] = json!(1);
    object["metadata"]["unknown"] = json!(1);
    let made = talk.create(WIDGETS, &object).await?;
    made.has_value("/spec", &json!({ "a": "1", "list": [{ "k": "x" }] }))?;
    made.has_no_value("/extra")?;
    made.has_no_value("/metadata/unknown")
}

async fn preserved(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "free": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "known": {
                "type": "object", "properties": { "a": { "type": "string" } },
            } },
        },
    } });
    define_widgets(talk, &schema).await?;
    let spec = json!({ "free": { "any": [1, { "b": 2 }], "known": { "a": "1", "b": 2 } }, "u": 1 });
    let made = talk.create(WIDGETS, &widget("w", &spec)).await?;
    let expected = json!({ "free": { "any": [1, { "b": 2 }], "known": { "a": "1" } } });
    made.has_value("/spec", &expected)
}

async fn defaults(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "string", "default": "given" },
        "number": { "type": "integer", "default": 3 },
        "inner": {
            "type": "object", "properties": { "b": { "type": "boolean", "default": true } },
        },
        "made": {
            "type": "object", "default": {},
            "properties": { "c": { "type": "string", "default": "deep" } },
        },
        "list": { "type": "array", "items": {
            "type": "object", "properties": { "d": { "type": "string", "default": "each" } },
        } },
    } });
    define_widgets(talk, &schema).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "list": [{}], "number": null }))).await?;
    let expected = json!({
        "a": "given", "number": 3, "made": { "c": "deep" }, "list": [{ "d": "each" }],
    });
    expect_equal("spec", &expected, made.at("/spec"))?;
    let inner = json!({ "spec": { "inner": {}, "a": "mine" } });
    let answer =
        talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &inner).await?.expect(200)?;
    answer.has_values(&[("/spec/inner", json!({ "b": true })), ("/spec/a", json!("mine"))])
}

async fn default_added_later(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    define_widgets(talk, &schema).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    made.has_no_value("/spec/a")?;
    let add = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/default",
        "value": "later",
    }]);
    let path = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    let ask = RequestSpec::patch(path, PatchType::Json, &add);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let path = object_path(WIDGETS, "w");
    wait_until(talk, &path, |answer| answer.at("/spec/a").is_string()).await?;
    let read = talk.get(&path).await?.expect(200)?;
    read.has_value("/spec/a", &json!("later"))?;
    expect_equal("a read is no write", &made.revision(), &read.revision())
}

async fn nullable(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "kept": { "type": "string", "nullable": true, "default": "given" },
        "replaced": { "type": "string", "default": "given" },
        "plain": { "type": "string" },
    } });
    define_widgets(talk, &schema).await?;
    let made =
        talk.create(WIDGETS, &widget("w", &json!({ "kept": null, "replaced": null }))).await?;
    expect_equal("spec", &json!({ "kept": null, "replaced": "given" }), made.at("/spec"))?;
    // Where null is no value and there is no default, nothing is left of it.
    let made = talk.create(WIDGETS, &widget("v", &json!({ "plain": null }))).await?;
    made.has_no_value("/spec/plain")
}

async fn embedded(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": { "object": {
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    } } });
    define_widgets(talk, &schema).await?;
    let inner = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "unknown": 1, "labels": { "a": "b" } },
        "spec": { "any": 1 },
    });
    let made = talk.create(WIDGETS, &widget("w", &json!({ "object": inner }))).await?;
    made.has_value("/spec/object/metadata", &json!({ "name": "p", "labels": { "a": "b" } }))?;
    made.has_value("/spec/object/spec", &json!({ "any": 1 }))?;
    let answer = talk.post(WIDGETS, &widget("v", &json!({ "object": { "spec": {} } }))).await?;
    answer.expect(422)?.has_causes(&[
        ("spec.object.apiVersion", "FieldValueRequired", "Required value"),
        ("spec.object.kind", "FieldValueRequired", "Required value"),
    ])
}

async fn int_or_string(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "port": { "x-kubernetes-int-or-string": true },
    } });
    define_widgets(talk, &schema).await?;
    for (name, port) in [("number", json!(80)), ("text", json!("http"))] {
        let made = talk.create(WIDGETS, &widget(name, &json!({ "port": port }))).await?;
        made.has_value("/spec/port", &port)?;
    }
    let answer = talk.post(WIDGETS, &widget("wrong", &json!({ "port": 1.5 }))).await?;
    answer.expect(422)?.has_causes(&[(
        "spec.port",
        "FieldValueTypeInvalid",
        "Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\"",
    )])
}

/// Widgets of which `spec` is free, with something more in their version.
fn free_widgets(key: &str, field: Value) -> Value {
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    with_version_field(widget_definition(&free), key, field)
}

async fn columns(talk: &mut Session) -> Outcome {
    let columns = json!([
        { "name": "Text", "type": "string", "jsonPath": ".spec.text" },
        { "name": "Number", "type": "integer", "jsonPath": ".spec.number", "priority": 1 },
        { "name": "Absent", "type": "string", "jsonPath": ".spec.absent" },
        { "name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
        { "name": "First", "type": "string", "jsonPath": ".spec.list[*].name" },
        { "name": "Object", "type": "string", "jsonPath": ".spec.object" },
        { "name": "Ready", "type": "string", "jsonPath": ".spec.list[?(@.name==\"b\")].value" },
    ]);
    define(talk, &free_widgets("additionalPrinterColumns", columns)).await?;
    let spec = json!({
        "text": "hello", "number": 7, "object": { "a": 1 },
        "list": [{ "name": "a" }, { "name": "b", "value": "yes" }],
    });
    talk.create(WIDGETS, &widget("w", &spec)).await?;
    let answer =
        talk.send(RequestSpec::get(WIDGETS).table()).await?.expect(200)?.expect_kind("Table")?;
    let cells = answer.at("/rows/0/cells").as_array().cloned().unwrap_or_default();
    expect_equal("cells", &8, &cells.len())?;
    expect_equal("the first cells", &json!(["w", "hello", 7, null]), &json!(cells[..4]))?;
    expect_equal("the last cells", &json!(["a", "{\"a\":1}", "yes"]), &json!(cells[5..]))?;
    let definitions = answer.at("/columnDefinitions").as_array().cloned().unwrap_or_default();
    let names: Vec<_> = definitions.iter().filter_map(|it| it["name"].as_str()).collect();
    let expected = ["Name", "Text", "Number", "Absent", "Since", "First", "Object", "Ready"];
    expect_equal("columns", &&expected[..], &names.as_slice())?;
    expect_equal("priority", &json!(1), &definitions[2]["priority"])
}

async fn default_columns(talk: &mut Session) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let answer = talk.send(RequestSpec::get(WIDGETS).table()).await?.expect(200)?;
    answer.has_values(&[
        ("/columnDefinitions/0/name", json!("Name")),
        ("/columnDefinitions/1/name", json!("Age")),
        ("/columnDefinitions/2", Value::Null),
    ])
}

async fn scale(talk: &mut Session) -> Outcome {
    let subresources = json!({ "status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    } });
    let mut definition = free_widgets("subresources", subresources);
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    define(talk, &definition).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "replicas": 2 }))).await?;
    let path = object_path(WIDGETS, "w");
    let status = json!({ "status": { "replicas": 1, "selector": "app=w" } });
    talk.patch(&object_path(&path, "status"), PatchType::Merge, &status).await?.expect(200)?;
    let scale = talk.get(&object_path(&path, "scale")).await?.expect(200)?;
    scale.has_values(&[
        ("/kind", json!("Scale")),
        ("/apiVersion", json!("autoscaling/v1")),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/spec", json!({ "replicas": 2 })),
        ("/status", json!({ "replicas": 1, "selector": "app=w" })),
    ])?;
    let mut change = scale.json().clone();
    change["spec"]["replicas"] = json!(5);
    talk.put(&object_path(&path, "scale"), &change).await?.expect(200)?;
    let parent = talk.get(&path).await?.expect(200)?;
    parent.has_values(&[("/spec/replicas", json!(5)), ("/metadata/generation", json!(2))])?;
    talk.put(&object_path(&path, "scale"), &change).await?.expect(409)?;
    Ok(())
}

async fn selectable(talk: &mut Session) -> Outcome {
    let text = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": {
        "color": text, "size": { "type": "integer" }, "hidden": text,
    } });
    let fields = json!([{ "jsonPath": ".spec.color" }, { "jsonPath": ".spec.size" }]);
    define(talk, &with_version_field(widget_definition(&schema), "selectableFields", fields))
        .await?;
    for (name, color, size) in [("a", "red", 1), ("b", "blue", 1), ("c", "red", 2)] {
        talk.create(WIDGETS, &widget(name, &json!({ "color": color, "size": size }))).await?;
    }
    let table: [(&str, &[&str]); 4] = [
        ("spec.color%3Dred", &["a", "c"]),
        ("spec.color%21%3Dred", &["b"]),
        ("spec.size%3D1", &["a", "b"]),
        ("spec.color%3Dred%2Cspec.size%3D2", &["c"]),
    ];
    for (selector, names) in table {
        let path = with_query(WIDGETS, &format!("fieldSelector={selector}"));
        talk.get(&path).await?.expect(200)?.has_names(names)?;
    }
    let answer = talk.get(&with_query(WIDGETS, "fieldSelector=spec.hidden%3D1")).await?;
    answer.expect_error_containing(400, "BadRequest", "field label not supported: spec.hidden")?;
    Ok(())
}

async fn names(talk: &mut Session) -> Outcome {
    let mut definition = widget_definition(&json!({ "type": "object" }));
    definition["spec"]["names"] = json!({
        "plural": "widgets", "singular": "widgety", "kind": "Widget", "shortNames": ["wd", "wi"],
        "categories": ["all", "toys"],
    });
    define(talk, &definition).await?;
    let list = talk.get("/apis/{ns}.case.test/v1").await?.expect(200)?;
    list.has_values(&[
        ("/resources/0/name", json!("widgets")),
        ("/resources/0/singularName", json!("widgety")),
        ("/resources/0/shortNames", json!(["wd", "wi"])),
        ("/resources/0/categories", json!(["all", "toys"])),
    ])
}

async fn list_shape(talk: &mut Session) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    for name in ["a", "b"] {
        talk.create(WIDGETS, &widget(name, &json!({}))).await?;
    }
    let list = talk.get(&with_query(WIDGETS, "limit=1")).await?.expect(200)?;
    list.has_values(&[
        ("/kind", json!("WidgetList")),
        ("/items/0/kind", json!("Widget")),
        ("/items/0/apiVersion", json!(talk.with_namespace("{ns}.case.test/v1"))),
        ("/metadata/remainingItemCount", json!(1)),
    ])?;
    let all = talk.get(WIDGETS).await?.expect(200)?;
    all.has_value("/metadata/continue", &json!(""))
}
