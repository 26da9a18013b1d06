//! Custom objects: pruning, defaults, columns, scale, fields that select.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, at, define, define_widgets, wait_until, widget, widget_definition, with,
    with_version_field,
};
use crate::case::{Case, Outcome, case, same};
use crate::conversation::{Ask, Conversation, Patch};

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

async fn pruning(talk: &mut Conversation) -> Outcome {
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
    made.is("/spec", &json!({ "a": "1", "list": [{ "k": "x" }] }))?;
    made.lacks("/extra")?;
    made.lacks("/metadata/unknown")
}

async fn preserved(talk: &mut Conversation) -> Outcome {
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
    made.is("/spec", &expected)
}

async fn defaults(talk: &mut Conversation) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "string", "default": "given" },
        "number": { "type": "integer", "default": 3 },
        "inner": { "type": "object", "properties": { "b": { "type": "boolean", "default": true } } },
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
    same("spec", &expected, made.at("/spec"))?;
    let inner = json!({ "spec": { "inner": {}, "a": "mine" } });
    let answer = talk.patch(&at(WIDGETS, "w"), Patch::Merge, &inner).await?.expect(200)?;
    answer.has(&[("/spec/inner", json!({ "b": true })), ("/spec/a", json!("mine"))])
}

async fn default_added_later(talk: &mut Conversation) -> Outcome {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    define_widgets(talk, &schema).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    made.lacks("/spec/a")?;
    let add = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/default",
        "value": "later",
    }]);
    let path = at(DEFINITIONS, "widgets.{ns}.case.test");
    let ask = Ask::patch(path, Patch::Json, &add);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    let path = at(WIDGETS, "w");
    wait_until(talk, &path, |answer| answer.at("/spec/a").is_string()).await?;
    let read = talk.get(&path).await?.expect(200)?;
    read.is("/spec/a", &json!("later"))?;
    same("a read is no write", &made.revision(), &read.revision())
}

async fn nullable(talk: &mut Conversation) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "kept": { "type": "string", "nullable": true, "default": "given" },
        "replaced": { "type": "string", "default": "given" },
        "plain": { "type": "string" },
    } });
    define_widgets(talk, &schema).await?;
    let made =
        talk.create(WIDGETS, &widget("w", &json!({ "kept": null, "replaced": null }))).await?;
    same("spec", &json!({ "kept": null, "replaced": "given" }), made.at("/spec"))?;
    // Where null is no value and there is no default, nothing is left of it.
    let made = talk.create(WIDGETS, &widget("v", &json!({ "plain": null }))).await?;
    made.lacks("/spec/plain")
}

async fn embedded(talk: &mut Conversation) -> Outcome {
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
    made.is("/spec/object/metadata", &json!({ "name": "p", "labels": { "a": "b" } }))?;
    made.is("/spec/object/spec", &json!({ "any": 1 }))?;
    let answer = talk.post(WIDGETS, &widget("v", &json!({ "object": { "spec": {} } }))).await?;
    answer.expect(422)?.caused_by(&[
        ("spec.object.apiVersion", "FieldValueRequired", "Required value"),
        ("spec.object.kind", "FieldValueRequired", "Required value"),
    ])
}

async fn int_or_string(talk: &mut Conversation) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "port": { "x-kubernetes-int-or-string": true },
    } });
    define_widgets(talk, &schema).await?;
    for (name, port) in [("number", json!(80)), ("text", json!("http"))] {
        let made = talk.create(WIDGETS, &widget(name, &json!({ "port": port }))).await?;
        made.is("/spec/port", &port)?;
    }
    let answer = talk.post(WIDGETS, &widget("wrong", &json!({ "port": 1.5 }))).await?;
    answer.expect(422)?.caused_by(&[(
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

async fn columns(talk: &mut Conversation) -> Outcome {
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
    let answer = talk.ask(Ask::get(WIDGETS).table()).await?.expect(200)?.kind("Table")?;
    let cells = answer.at("/rows/0/cells").as_array().cloned().unwrap_or_default();
    same("cells", &8, &cells.len())?;
    same("the first cells", &json!(["w", "hello", 7, null]), &json!(cells[..4]))?;
    same("the last cells", &json!(["a", "{\"a\":1}", "yes"]), &json!(cells[5..]))?;
    let definitions = answer.at("/columnDefinitions").as_array().cloned().unwrap_or_default();
    let names: Vec<_> = definitions.iter().filter_map(|it| it["name"].as_str()).collect();
    let expected = ["Name", "Text", "Number", "Absent", "Since", "First", "Object", "Ready"];
    same("columns", &&expected[..], &names.as_slice())?;
    same("priority", &json!(1), &definitions[2]["priority"])
}

async fn default_columns(talk: &mut Conversation) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let answer = talk.ask(Ask::get(WIDGETS).table()).await?.expect(200)?;
    answer.has(&[
        ("/columnDefinitions/0/name", json!("Name")),
        ("/columnDefinitions/1/name", json!("Age")),
        ("/columnDefinitions/2", Value::Null),
    ])
}

async fn scale(talk: &mut Conversation) -> Outcome {
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
    let path = at(WIDGETS, "w");
    let status = json!({ "status": { "replicas": 1, "selector": "app=w" } });
    talk.patch(&at(&path, "status"), Patch::Merge, &status).await?.expect(200)?;
    let scale = talk.get(&at(&path, "scale")).await?.expect(200)?;
    scale.has(&[
        ("/kind", json!("Scale")),
        ("/apiVersion", json!("autoscaling/v1")),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/spec", json!({ "replicas": 2 })),
        ("/status", json!({ "replicas": 1, "selector": "app=w" })),
    ])?;
    let mut change = scale.json().clone();
    change["spec"]["replicas"] = json!(5);
    talk.put(&at(&path, "scale"), &change).await?.expect(200)?;
    let parent = talk.get(&path).await?.expect(200)?;
    parent.has(&[("/spec/replicas", json!(5)), ("/metadata/generation", json!(2))])?;
    talk.put(&at(&path, "scale"), &change).await?.expect(409)?;
    Ok(())
}

async fn selectable(talk: &mut Conversation) -> Outcome {
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
        let path = with(WIDGETS, &format!("fieldSelector={selector}"));
        talk.get(&path).await?.expect(200)?.lists(names)?;
    }
    let answer = talk.get(&with(WIDGETS, "fieldSelector=spec.hidden%3D1")).await?;
    answer.refused_with(400, "BadRequest", "field label not supported: spec.hidden")?;
    Ok(())
}

async fn names(talk: &mut Conversation) -> Outcome {
    let mut definition = widget_definition(&json!({ "type": "object" }));
    definition["spec"]["names"] = json!({
        "plural": "widgets", "singular": "widgety", "kind": "Widget", "shortNames": ["wd", "wi"],
        "categories": ["all", "toys"],
    });
    define(talk, &definition).await?;
    let list = talk.get("/apis/{ns}.case.test/v1").await?.expect(200)?;
    list.has(&[
        ("/resources/0/name", json!("widgets")),
        ("/resources/0/singularName", json!("widgety")),
        ("/resources/0/shortNames", json!(["wd", "wi"])),
        ("/resources/0/categories", json!(["all", "toys"])),
    ])
}

async fn list_shape(talk: &mut Conversation) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    for name in ["a", "b"] {
        talk.create(WIDGETS, &widget(name, &json!({}))).await?;
    }
    let list = talk.get(&with(WIDGETS, "limit=1")).await?.expect(200)?;
    list.has(&[
        ("/kind", json!("WidgetList")),
        ("/items/0/kind", json!("Widget")),
        ("/items/0/apiVersion", json!(talk.fill("{ns}.case.test/v1"))),
        ("/metadata/remainingItemCount", json!(1)),
    ])?;
    let all = talk.get(WIDGETS).await?.expect(200)?;
    all.is("/metadata/continue", &json!(""))
}
