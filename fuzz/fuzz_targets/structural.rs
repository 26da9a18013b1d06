//! Schemas of custom kinds, and objects read by them.
#![no_main]

use arbitrary::{Result, Unstructured};
use gantry_fuzz::tree;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fn schema(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    if u.ratio(1, 40)? {
        return tree::free(u);
    }
    let mut schema = Map::new();
    if u.ratio(9, 10)? {
        let least = if depth == 0 { 2 } else { 0 };
        let word = TYPES[u.int_in_range(least..=if depth == 0 { 6 } else { 3 })?];
        schema.insert("type".to_owned(), word.into());
    }
    for _ in 0..u.int_in_range(0..=4)? {
        let inner = |u: &mut Unstructured<'_>| {
            if depth == 0 { Ok(json!({ "type": "string" })) } else { schema_below(u, depth) }
        };
        let (name, value) = match u.int_in_range(0..=24)? {
            0..=4 => {
                let mut properties = Map::new();
                for _ in 0..u.int_in_range(0..=4)? {
                    properties.insert(tree::text(u)?, inner(u)?);
                }
                ("properties", properties.into())
            }
            5 | 6 => ("items", inner(u)?),
            7 => ("additionalProperties", inner(u)?),
            8 => ("required", json!([tree::text(u)?, tree::text(u)?])),
            9 => ("enum", json!([tree::free(u)?, tree::free(u)?])),
            10 => ("default", tree::free(u)?),
            11 => ("nullable", json!(true)),
            12 => ("pattern", tree::text(u)?.into()),
            13 => {
                let formats = ["date-time", "int32", "byte", "ipv4", "uuid", "cidr", "quantity"];
                ("format", json!(*u.choose(&formats)?))
            }
            14 => ("maximum", tree::number(u)?),
            15 => ("maxLength", tree::number(u)?),
            16 => ("multipleOf", tree::number(u)?),
            17 => ("x-kubernetes-preserve-unknown-fields", json!(true)),
            18 => ("x-kubernetes-int-or-string", json!(true)),
            19 => ("x-kubernetes-embedded-resource", json!(true)),
            20 => {
                let types = ["map", "set", "atomic", "other"];
                ("x-kubernetes-list-type", json!(*u.choose(&types)?))
            }
            21 => ("x-kubernetes-list-map-keys", json!([tree::text(u)?])),
            22 => ("allOf", json!([inner(u)?])),
            23 => ("not", inner(u)?),
            _ => {
                let rule = json!([{ "rule": tree::text(u)?, "message": tree::text(u)? }]);
                ("x-kubernetes-validations", rule)
            }
        };
        schema.insert(name.to_owned(), value);
    }
    Ok(schema.into())
}

fn schema_below(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    schema(u, depth - 1)
}

fn definition(u: &mut Unstructured<'_>, schema: &Value) -> Result<Value> {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    for _ in 0..u.int_in_range(0..=2)? {
        let places = [
            "/metadata/name", "/spec/group", "/spec/scope", "/spec/names", "/spec/names/kind",
            "/spec/versions", "/spec/versions/0", "/spec/versions/0/name",
            "/spec/versions/0/schema",
        ];
        if let Some(place) = definition.pointer_mut(u.choose(&places)?) {
            *place = tree::free(u)?;
        }
    }
    Ok(definition)
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let written = schema(u, 4)?;
    let errors = gantry_schema::structural(&written, "openAPIV3Schema");
    let type_id =
        gantry_builtin::kind_type("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let type_id = type_id.expect("definitions are a kind");
    if let Ok(read) = gantry_builtin::read(type_id, definition(u, &written)?) {
        let mut new = read.value;
        gantry_schema::default_definition(&mut new);
        gantry_schema::prepare_definition(&mut new, None);
        let _ = gantry_schema::validate_definition(&new, None);
        let _ = gantry_schema::definition_warnings(&new, None);
        let _ = gantry_schema::validate_definition(&new, Some(&new));
    }
    let Ok(compiled) = gantry_schema::compile(&written) else { return Ok(()) };
    let mut object = tree::shaped(u, &compiled)?;
    gantry_schema::prune(&compiled, &mut object);
    let mut again = object.clone();
    let dropped = gantry_schema::prune(&compiled, &mut again);
    assert_eq!((&again, dropped.as_slice()), (&object, &[][..]), "{written}");
    gantry_schema::default(&compiled, &mut object);
    if errors.is_empty() {
        again.clone_from(&object);
        gantry_schema::default(&compiled, &mut again);
        assert_eq!(again, object, "{written}");
    }
    let old = tree::shaped(u, &compiled)?;
    for old in [None, Some(&old), Some(&object)] {
        let _ = gantry_schema::validate(&compiled, &object, old);
        let _ = gantry_schema::validate_status(&compiled, &object, old);
        let _ = gantry_schema::validate_lists(&compiled, &object, old);
        for site in gantry_schema::rule_sites(&compiled, &object, old) {
            let _ = site.is_unchanged(&compiled);
        }
    }
    let _ = gantry_schema::validate_embedded(&compiled, &object);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});
