//! The words of refusals.

use serde_json::json;

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, object_path, with_query};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("not-found", [], not_found),
    case!("unknown-paths", [], unknown_paths),
    case!("methods-not-allowed", [], methods),
    case!("already-exists", [], already_exists),
    case!("unreadable-bodies", [], unreadable_bodies),
    case!("names-that-do-not-match", [], mismatches),
    case!("invalid-options", [], invalid_options),
    case!("invalid-objects", [], invalid_objects),
    case!("body-too-large", [], too_large),
    case!("unparseable-parameters", [], unparseable_parameters),
    case!("unauthenticated", [], unauthenticated),
    case!("invalid-timeouts", [], invalid_timeouts),
    case!("empty-path-segments", [], empty_segments),
];

async fn invalid_timeouts(talk: &mut Session) -> Outcome {
    let message =
        "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
    let paths =
        [CONFIG_MAPS, "/version", "/api", "/apis/apps", "/openapi/v3", "/healthz", "/nothing"];
    for path in paths {
        let answer = talk.get(&with_query(path, "timeout=invalid")).await?;
        answer.expect_error(400, "BadRequest", message)?;
    }
    // It is checked before authentication.
    let stranger = RequestSpec::get(with_query(CONFIG_MAPS, "timeout=invalid")).anonymously();
    talk.send(stranger).await?.expect_error(400, "BadRequest", message)?;
    talk.get(&with_query("/version", "timeout=10s")).await?.expect(200)?;
    Ok(())
}

async fn empty_segments(talk: &mut Session) -> Outcome {
    let message = "the server could not find the requested resource";
    for path in ["/api//v1", "/api/v1//configmaps", "/apis/apps/v1//deployments"] {
        let answer = talk.get(path).await?.expect_error(404, "NotFound", message)?;
        answer.has_value("/details", &json!({}))?;
        talk.delete(path).await?.expect_error(404, "NotFound", message)?;
    }
    for path in ["//api/v1/configmaps", "/apis//v1"] {
        let answer = talk.get(path).await?.expect(404)?;
        expect_equal(path, &"404 page not found\n", &answer.text())?;
    }
    Ok(())
}

async fn not_found(talk: &mut Session) -> Outcome {
    let answer = talk.get(&object_path(CONFIG_MAPS, "nope")).await?;
    let answer = answer.expect_error(404, "NotFound", "configmaps \"nope\" not found")?;
    answer.has_value("/details", &json!({ "name": "nope", "kind": "configmaps" }))?;
    let answer = talk.get(&object_path(DEPLOYMENTS, "nope")).await?;
    let answer = answer.expect_error(404, "NotFound", "deployments.apps \"nope\" not found")?;
    answer.has_value(
        "/details",
        &json!({ "name": "nope", "group": "apps", "kind": "deployments" }),
    )?;
    talk.delete(&object_path(CONFIG_MAPS, "nope")).await?.expect(404)?;
    talk.put(&object_path(CONFIG_MAPS, "nope"), &config_map("nope", "x")).await?.expect(404)?;
    Ok(())
}

async fn unknown_paths(talk: &mut Session) -> Outcome {
    let message = "the server could not find the requested resource";
    let known = [
        "/api/v1/namespaces/{ns}/nothings",
        "/apis/apps/v1/namespaces/{ns}/nothings",
        "/apis/apps/v9/namespaces/{ns}/deployments",
        "/api/v1/namespaces/{ns}/configmaps/a/nothing",
    ];
    for path in known {
        let answer = talk.get(path).await?.expect_error(404, "NotFound", message)?;
        answer.has_value("/details", &json!({}))?;
    }
    for path in ["/apis/none.test/v1/things", "/nothing"] {
        let answer = talk.get(path).await?.expect(404)?;
        expect_equal(path, &"404 page not found\n", &answer.text())?;
    }
    Ok(())
}

async fn methods(talk: &mut Session) -> Outcome {
    let message = "the server does not allow this method on the requested resource";
    let table = [
        RequestSpec::new("OPTIONS", CONFIG_MAPS),
        RequestSpec::put(CONFIG_MAPS, &config_map("a", "x")),
        RequestSpec::delete("/api/v1/namespaces"),
        RequestSpec::get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ];
    for ask in table {
        let answer = talk.send(ask).await?.expect_error(405, "MethodNotAllowed", message)?;
        answer.has_value("/details", &json!({}))?;
    }
    talk.send(RequestSpec::new("HEAD", CONFIG_MAPS)).await?.expect(405)?;
    Ok(())
}

async fn already_exists(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("a", "y")).await?;
    let answer = answer.expect_error(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    answer.has_value("/details", &json!({ "name": "a", "kind": "configmaps" }))?;
    let place = json!({ "metadata": { "name": "default" } });
    let answer = talk.post("/api/v1/namespaces", &place).await?;
    answer.expect_error(409, "AlreadyExists", "namespaces \"default\" already exists")?;
    Ok(())
}

async fn unreadable_bodies(talk: &mut Session) -> Outcome {
    let table = [
        (
            "{",
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get \
             version/kind; json parse error: unexpected end of JSON input ({)",
        ),
        (
            r#"{"metadata":{"name":"a"},"data":{"a":1}}"#,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal \
             number into Go struct field ConfigMap.data of type string",
        ),
        (
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}"#,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to \
             (core.ConfigMap): unknown conversion",
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a"}}"#,
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" \
             is registered for version \"v2\" in scheme",
        ),
    ];
    for (body, message) in table {
        let ask = RequestSpec::new("POST", CONFIG_MAPS).text("application/json", body);
        talk.send(ask).await?.expect_error_containing(400, "BadRequest", message)?;
    }
    Ok(())
}

async fn mismatches(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut elsewhere = config_map("b", "x");
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let message = "the namespace of the provided object does not match the namespace sent on the \
                   request";
    talk.post(CONFIG_MAPS, &elsewhere).await?.expect_error(400, "BadRequest", message)?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    let answer = talk.put(&object_path(CONFIG_MAPS, "a"), &config_map("b", "x")).await?;
    answer.expect_error(400, "BadRequest", message)?;
    let nameless = json!({ "metadata": {}, "data": {} });
    let message =
        "the name of the object (a based on URL) was undeterminable: name must be provided";
    talk.put(&object_path(CONFIG_MAPS, "a"), &nameless).await?.expect_error(
        400,
        "BadRequest",
        message,
    )?;
    talk.post(CONFIG_MAPS, &nameless).await?.expect_error(
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is \
         required",
    )?;
    Ok(())
}

async fn invalid_options(talk: &mut Session) -> Outcome {
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \
                   \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    let path = format!("{CONFIG_MAPS}?fieldValidation=Foo");
    let answer = talk.post(&path, &config_map("a", "x")).await?;
    answer.expect_error(422, "Invalid", message)?.has_causes(&[(
        "fieldValidation",
        "FieldValueNotSupported",
        "Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
    )])?;
    let path = format!("{CONFIG_MAPS}?dryRun=Some");
    talk.post(&path, &config_map("a", "x")).await?.expect_error(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
         supported values: \"All\"",
    )?;
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let both = json!({ "orphanDependents": true, "propagationPolicy": "Background" });
    let answer = talk.send(RequestSpec::delete(object_path(CONFIG_MAPS, "a")).json(&both)).await?;
    answer.expect_error_containing(
        422,
        "Invalid",
        "DeleteOptions.meta.k8s.io \"\" is invalid: ",
    )?;
    let policy = json!({ "propagationPolicy": "Sideways" });
    let answer =
        talk.send(RequestSpec::delete(object_path(CONFIG_MAPS, "a")).json(&policy)).await?;
    answer.expect_error_containing(
        422,
        "Invalid",
        "propagationPolicy: Unsupported value: \"Sideways\"",
    )?;
    Ok(())
}

async fn invalid_objects(talk: &mut Session) -> Outcome {
    let mut object = config_map("Not_A_Name", "x");
    let answer = talk.post(CONFIG_MAPS, &object).await?;
    let answer =
        answer.expect_error_containing(422, "Invalid", "ConfigMap \"Not_A_Name\" is invalid: ")?;
    answer.has_value("/details/kind", &json!("ConfigMap"))?;
    answer.has_value("/details/causes/0/field", &json!("metadata.name"))?;
    object["metadata"] = json!({ "name": "a", "labels": { "l": "no spaces allowed" } });
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("metadata.labels"))?;
    let mut empty = deployment("d");
    empty["spec"] = json!({});
    let answer = talk.post(DEPLOYMENTS, &empty).await?.expect(422)?;
    answer.has_value("/details/group", &json!("apps"))?;
    answer.has_causes(&[
        ("spec.selector", "FieldValueRequired", "Required value"),
        (
            "spec.template.metadata.labels",
            "FieldValueInvalid",
            "Invalid value: null: `selector` does not match template `labels`",
        ),
        ("spec.template.spec.containers", "FieldValueRequired", "Required value"),
    ])
}

async fn too_large(talk: &mut Session) -> Outcome {
    let object = config_map("a", &"x".repeat(3 << 20));
    // The body is not worth keeping, the answer is.
    let answer = talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &object)).await?;
    let message = "Request entity too large: limit is 3145728";
    answer.expect_error(413, "RequestEntityTooLarge", message)?;
    let object = config_map("a", &"x".repeat(2 << 20));
    let answer =
        talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &object)).await?.expect(422)?;
    answer.has_causes(&[(
        "[]",
        "FieldValueTooLong",
        "Too long: may not be more than 1048576 bytes",
    )])
}

async fn unparseable_parameters(talk: &mut Session) -> Outcome {
    for query in ["limit=many", "timeoutSeconds=soon", "timeout=abc"] {
        talk.get(&format!("{CONFIG_MAPS}?{query}")).await?.expect(400)?;
    }
    let answer = talk.get(&format!("{CONFIG_MAPS}?timeout=abc")).await?;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
    answer.expect_error_containing(400, "BadRequest", message)?;
    talk.get(&format!("{CONFIG_MAPS}?unknown=1")).await?.expect(200)?;
    Ok(())
}

async fn unauthenticated(talk: &mut Session) -> Outcome {
    let ask =
        RequestSpec::get(CONFIG_MAPS).header("authorization", "Bearer no-such-token").anonymously();
    let answer = talk.send(ask).await?.expect_error(401, "Unauthorized", "Unauthorized")?;
    answer.has_no_value("/details")?;
    let answer = talk.send(RequestSpec::get(CONFIG_MAPS).anonymously()).await?;
    let message = talk.with_namespace(
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in \
         API group \"\" in the namespace \"{ns}\"",
    );
    answer.expect_error(403, "Forbidden", &message)?;
    talk.send(RequestSpec::get("/version").anonymously()).await?.expect(200)?;
    talk.send(RequestSpec::get("/readyz").anonymously()).await?.expect(200)?;
    Ok(())
}
