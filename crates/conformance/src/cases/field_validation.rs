//! Unknown and duplicate fields.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, WIDGETS, config_map, define_widgets, object_path, widget, with_query,
};
use crate::case::{Case, CaseError, Outcome, case};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("unknown-fields-refused", [38], strict),
    case!("unknown-fields-warned-of", [38], warn),
    case!("unknown-fields-ignored", [38], ignore),
    case!("unknown-fields-in-yaml", [38], yaml),
    case!("duplicate-keys-in-yaml", [38], duplicate_keys),
    case!("duplicate-keys-in-applied-yaml", [38], applied_duplicate_keys),
    case!("unknown-fields-in-patches", [38], patches),
    case!("unknown-fields-of-custom-objects", [38], custom),
    case!("unknown-fields-of-custom-patches", [38], custom_patches),
];

/// Two unknown fields and a duplicate one.
const TEXT: &str = r#"{"kind":"ConfigMap","apiVersion":"v1",
    "metadata":{"name":"a","foo":1},"bar":2,"data":{"a":"x","a":"y"}}"#;

/// Creates a ConfigMap from a text.
async fn post(talk: &mut Session, query: &str, text: &str) -> Result<Response, CaseError> {
    talk.send(
        RequestSpec::new("POST", with_query(CONFIG_MAPS, query)).text("application/json", text),
    )
    .await
}

async fn strict(talk: &mut Session) -> Outcome {
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding \
                   error: unknown field \"metadata.foo\", unknown field \"bar\", duplicate field \
                   \"data.a\"";
    let answer = post(talk, "fieldValidation=Strict", TEXT).await?;
    answer.expect_error(400, "BadRequest", message)?;
    let plain = config_map("a", "x").to_string();
    post(talk, "fieldValidation=Strict", &plain).await?.expect(201)?.has_warnings(&[])
}

async fn warn(talk: &mut Session) -> Outcome {
    let texts =
        ["unknown field \"metadata.foo\"", "unknown field \"bar\"", "duplicate field \"data.a\""];
    let made = post(talk, "", TEXT).await?.expect(201)?;
    made.has_warnings(&texts)?;
    made.has_value("/data", &json!({ "a": "y" }))?;
    made.has_no_value("/bar")?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    post(talk, "fieldValidation=Warn", TEXT).await?.expect(201)?.has_warnings(&texts)
}

async fn ignore(talk: &mut Session) -> Outcome {
    post(talk, "fieldValidation=Ignore", TEXT).await?.expect(201)?.has_warnings(&[])
}

async fn yaml(talk: &mut Session) -> Outcome {
    let text = "metadata:\n  name: a\n  foo: 1\ndata:\n  a: x\n";
    let path = with_query(CONFIG_MAPS, "fieldValidation=Strict");
    let answer = talk.send(RequestSpec::new("POST", path).text("application/yaml", text)).await?;
    answer.expect_error_containing(
        400,
        "BadRequest",
        "strict decoding error: unknown field \"metadata.foo\"",
    )?;
    let answer =
        talk.send(RequestSpec::new("POST", CONFIG_MAPS).text("application/yaml", text)).await?;
    answer.expect(201)?.has_warnings(&["unknown field \"metadata.foo\""])
}

/// YAML says by their lines which keys are there twice; inner ones come first.
const DUPLICATE_KEYS_YAML: &str = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\nbar: \
                                   1\ndata:\n  a: x\n  b: x\n  a: w\ndata:\n  a: z\n";
const DUPLICATE_KEY_WARNINGS: [&str; 2] =
    ["line 9: key \"a\" already set in map", "line 11: key \"data\" already set in map"];

async fn duplicate_keys(talk: &mut Session) -> Outcome {
    let send = |query: &str, text: &str| {
        RequestSpec::new("POST", with_query(CONFIG_MAPS, query)).text("application/yaml", text)
    };
    let [inner, outer] = DUPLICATE_KEY_WARNINGS;
    let message = format!(
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         yaml: unmarshal errors:\n  {inner}\n  {outer}, unknown field \"bar\""
    );
    let answer = talk.send(send("fieldValidation=Strict", DUPLICATE_KEYS_YAML)).await?;
    answer.expect_error(400, "BadRequest", &message)?;
    for query in ["", "fieldValidation=Warn"] {
        let made = talk.send(send(query, DUPLICATE_KEYS_YAML)).await?.expect(201)?;
        made.has_warnings(&[inner, outer, "unknown field \"bar\""])?;
        made.has_value("/data", &json!({ "a": "z" }))?;
        talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    }
    let made = talk.send(send("fieldValidation=Ignore", DUPLICATE_KEYS_YAML)).await?.expect(201)?;
    made.has_warnings(&[])?;
    made.has_value("/data", &json!({ "a": "z" }))?;
    // JSON is YAML, too.
    let flow = "{\"metadata\": {\"name\": \"b\"},\n \"data\": {\"a\": \"x\", \"a\": \"y\"}}";
    let made = talk.send(send("", flow)).await?.expect(201)?;
    made.has_warnings(&["line 2: key \"a\" already set in map"])?;
    made.has_value("/data", &json!({ "a": "y" }))
}

async fn applied_duplicate_keys(talk: &mut Session) -> Outcome {
    let text = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  a: x\n  a: w\n";
    let send = |query: &str| {
        let path = with_query(&object_path(CONFIG_MAPS, "a"), &format!("fieldManager=m{query}"));
        RequestSpec::new("PATCH", path).text("application/apply-patch+yaml", text)
    };
    let line = "line 7: key \"a\" already set in map";
    let message = format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
         {line}"
    );
    let answer = talk.send(send("&fieldValidation=Strict")).await?;
    answer.expect_error(400, "BadRequest", &message)?;
    let made = talk.send(send("")).await?.expect(201)?;
    made.has_warnings(&[line])?;
    made.has_value("/data", &json!({ "a": "w" }))?;
    talk.send(send("&fieldValidation=Warn")).await?.expect(200)?.has_warnings(&[line])?;
    talk.send(send("&fieldValidation=Ignore")).await?.expect(200)?.has_warnings(&[])
}

async fn patches(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let change = json!({ "metadata": { "foo": 1 }, "bar": 2 });
    for form in [PatchType::Merge, PatchType::Strategic] {
        let strict = with_query(&path, "fieldValidation=Strict");
        let answer = talk.patch(&strict, form, &change).await?.expect(422)?;
        answer.expect_error_containing(
            422,
            "Invalid",
            "strict decoding error: unknown field \"",
        )?;
    }
    let answer = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    // By key, not as written: the patched object is what is read.
    answer.has_warnings(&["unknown field \"bar\"", "unknown field \"metadata.foo\""])?;
    let add = json!([{ "op": "add", "path": "/bar", "value": 2 }]);
    let answer = talk.patch(&path, PatchType::Json, &add).await?.expect(200)?;
    answer.has_warnings(&["unknown field \"bar\""])?;
    let ignored = with_query(&path, "fieldValidation=Ignore");
    talk.patch(&ignored, PatchType::Merge, &change).await?.expect(200)?.has_warnings(&[])
}

/// `m` is a list of objects, `free` may hold anything.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "m": { "type": "array", "items": {
                "type": "object",
                "properties": { "k": { "type": "string" } },
            } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    })
}

async fn custom(talk: &mut Session) -> Outcome {
    define_widgets(talk, &schema()).await?;
    let spec = json!({ "m": [{ "k": "a", "u": 1 }], "free": { "any": 1 }, "zzz": 1, "aaa": 2 });
    let object = widget("w", &spec);
    let path = with_query(WIDGETS, "fieldValidation=Strict");
    let message = talk.with_namespace(
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown \
         field \"spec.aaa\", unknown field \"spec.m[0].u\", unknown field \"spec.zzz\"",
    );
    talk.post(&path, &object).await?.expect_error(400, "BadRequest", &message)?;
    let made = talk.create(WIDGETS, &object).await?;
    made.has_warnings(&[
        "unknown field \"spec.aaa\"",
        "unknown field \"spec.m[0].u\"",
        "unknown field \"spec.zzz\"",
    ])?;
    made.has_value("/spec", &json!({ "m": [{ "k": "a" }], "free": { "any": 1 } }))
}

async fn custom_patches(talk: &mut Session) -> Outcome {
    define_widgets(talk, &schema()).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "free": {} }))).await?;
    let path = object_path(WIDGETS, "w");
    let change = json!({ "spec": { "u": 1 } });
    let strict = with_query(&path, "fieldValidation=Strict");
    let answer = talk.patch(&strict, PatchType::Merge, &change).await?;
    let problem = "strict decoding error: unknown field \"spec.u\"";
    answer.expect_error_containing(422, "Invalid", problem)?;
    let answer = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    answer.has_warnings(&["unknown field \"spec.u\""])
}
