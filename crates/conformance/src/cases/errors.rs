//! The words of refusals.

use serde_json::json;

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, at, config_map, deployment, with};
use crate::case::{Case, Outcome, case, same};
use crate::conversation::{Ask, Conversation};

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

async fn invalid_timeouts(talk: &mut Conversation) -> Outcome {
    let message =
        "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
    let paths =
        [CONFIG_MAPS, "/version", "/api", "/apis/apps", "/openapi/v3", "/healthz", "/nothing"];
    for path in paths {
        let answer = talk.get(&with(path, "timeout=invalid")).await?;
        answer.refused(400, "BadRequest", message)?;
    }
    // It is looked at before anybody is asked who they are.
    let stranger = Ask::get(with(CONFIG_MAPS, "timeout=invalid")).by_stranger();
    talk.ask(stranger).await?.refused(400, "BadRequest", message)?;
    talk.get(&with("/version", "timeout=10s")).await?.expect(200)?;
    Ok(())
}

async fn empty_segments(talk: &mut Conversation) -> Outcome {
    let message = "the server could not find the requested resource";
    for path in ["/api//v1", "/api/v1//configmaps", "/apis/apps/v1//deployments"] {
        let answer = talk.get(path).await?.refused(404, "NotFound", message)?;
        answer.is("/details", &json!({}))?;
        talk.delete(path).await?.refused(404, "NotFound", message)?;
    }
    for path in ["//api/v1/configmaps", "/apis//v1"] {
        let answer = talk.get(path).await?.expect(404)?;
        same(path, &"404 page not found\n", &answer.text())?;
    }
    Ok(())
}

async fn not_found(talk: &mut Conversation) -> Outcome {
    let answer = talk.get(&at(CONFIG_MAPS, "nope")).await?;
    let answer = answer.refused(404, "NotFound", "configmaps \"nope\" not found")?;
    answer.is("/details", &json!({ "name": "nope", "kind": "configmaps" }))?;
    let answer = talk.get(&at(DEPLOYMENTS, "nope")).await?;
    let answer = answer.refused(404, "NotFound", "deployments.apps \"nope\" not found")?;
    answer.is("/details", &json!({ "name": "nope", "group": "apps", "kind": "deployments" }))?;
    talk.delete(&at(CONFIG_MAPS, "nope")).await?.expect(404)?;
    talk.put(&at(CONFIG_MAPS, "nope"), &config_map("nope", "x")).await?.expect(404)?;
    Ok(())
}

async fn unknown_paths(talk: &mut Conversation) -> Outcome {
    let message = "the server could not find the requested resource";
    let known = [
        "/api/v1/namespaces/{ns}/nothings",
        "/apis/apps/v1/namespaces/{ns}/nothings",
        "/apis/apps/v9/namespaces/{ns}/deployments",
        "/api/v1/namespaces/{ns}/configmaps/a/nothing",
    ];
    for path in known {
        let answer = talk.get(path).await?.refused(404, "NotFound", message)?;
        answer.is("/details", &json!({}))?;
    }
    for path in ["/apis/none.test/v1/things", "/nothing"] {
        let answer = talk.get(path).await?.expect(404)?;
        same(path, &"404 page not found\n", &answer.text())?;
    }
    Ok(())
}

async fn methods(talk: &mut Conversation) -> Outcome {
    let message = "the server does not allow this method on the requested resource";
    let table = [
        Ask::new("OPTIONS", CONFIG_MAPS),
        Ask::put(CONFIG_MAPS, &config_map("a", "x")),
        Ask::delete("/api/v1/namespaces"),
        Ask::get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ];
    for ask in table {
        let answer = talk.ask(ask).await?.refused(405, "MethodNotAllowed", message)?;
        answer.is("/details", &json!({}))?;
    }
    talk.ask(Ask::new("HEAD", CONFIG_MAPS)).await?.expect(405)?;
    Ok(())
}

async fn already_exists(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("a", "y")).await?;
    let answer = answer.refused(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    answer.is("/details", &json!({ "name": "a", "kind": "configmaps" }))?;
    let place = json!({ "metadata": { "name": "default" } });
    let answer = talk.post("/api/v1/namespaces", &place).await?;
    answer.refused(409, "AlreadyExists", "namespaces \"default\" already exists")?;
    Ok(())
}

async fn unreadable_bodies(talk: &mut Conversation) -> Outcome {
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
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is \
             registered for version \"v2\" in scheme",
        ),
    ];
    for (body, message) in table {
        let ask = Ask::new("POST", CONFIG_MAPS).text("application/json", body);
        talk.ask(ask).await?.refused_with(400, "BadRequest", message)?;
    }
    Ok(())
}

async fn mismatches(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut elsewhere = config_map("b", "x");
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let message = "the namespace of the provided object does not match the namespace sent on the \
                   request";
    talk.post(CONFIG_MAPS, &elsewhere).await?.refused(400, "BadRequest", message)?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    let answer = talk.put(&at(CONFIG_MAPS, "a"), &config_map("b", "x")).await?;
    answer.refused(400, "BadRequest", message)?;
    let nameless = json!({ "metadata": {}, "data": {} });
    let message =
        "the name of the object (a based on URL) was undeterminable: name must be provided";
    talk.put(&at(CONFIG_MAPS, "a"), &nameless).await?.refused(400, "BadRequest", message)?;
    talk.post(CONFIG_MAPS, &nameless).await?.refused(
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    )?;
    Ok(())
}

async fn invalid_options(talk: &mut Conversation) -> Outcome {
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \
                   \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    let path = format!("{CONFIG_MAPS}?fieldValidation=Foo");
    let answer = talk.post(&path, &config_map("a", "x")).await?;
    answer.refused(422, "Invalid", message)?.caused_by(&[(
        "fieldValidation",
        "FieldValueNotSupported",
        "Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
    )])?;
    let path = format!("{CONFIG_MAPS}?dryRun=Some");
    talk.post(&path, &config_map("a", "x")).await?.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
         supported values: \"All\"",
    )?;
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let both = json!({ "orphanDependents": true, "propagationPolicy": "Background" });
    let answer = talk.ask(Ask::delete(at(CONFIG_MAPS, "a")).json(&both)).await?;
    answer.refused_with(422, "Invalid", "DeleteOptions.meta.k8s.io \"\" is invalid: ")?;
    let policy = json!({ "propagationPolicy": "Sideways" });
    let answer = talk.ask(Ask::delete(at(CONFIG_MAPS, "a")).json(&policy)).await?;
    answer.refused_with(422, "Invalid", "propagationPolicy: Unsupported value: \"Sideways\"")?;
    Ok(())
}

async fn invalid_objects(talk: &mut Conversation) -> Outcome {
    let mut object = config_map("Not_A_Name", "x");
    let answer = talk.post(CONFIG_MAPS, &object).await?;
    let answer = answer.refused_with(422, "Invalid", "ConfigMap \"Not_A_Name\" is invalid: ")?;
    answer.is("/details/kind", &json!("ConfigMap"))?;
    answer.is("/details/causes/0/field", &json!("metadata.name"))?;
    object["metadata"] = json!({ "name": "a", "labels": { "l": "no spaces allowed" } });
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(422)?;
    answer.is("/details/causes/0/field", &json!("metadata.labels"))?;
    let mut empty = deployment("d");
    empty["spec"] = json!({});
    let answer = talk.post(DEPLOYMENTS, &empty).await?.expect(422)?;
    answer.is("/details/group", &json!("apps"))?;
    answer.caused_by(&[
        ("spec.selector", "FieldValueRequired", "Required value"),
        (
            "spec.template.metadata.labels",
            "FieldValueInvalid",
            "Invalid value: null: `selector` does not match template `labels`",
        ),
        ("spec.template.spec.containers", "FieldValueRequired", "Required value"),
    ])
}

async fn too_large(talk: &mut Conversation) -> Outcome {
    let object = config_map("a", &"x".repeat(3 << 20));
    // The body is not worth keeping, the answer is.
    let answer = talk.ask_unrecorded(Ask::post(CONFIG_MAPS, &object)).await?;
    let message = "Request entity too large: limit is 3145728";
    answer.refused(413, "RequestEntityTooLarge", message)?;
    let object = config_map("a", &"x".repeat(2 << 20));
    let answer = talk.ask_unrecorded(Ask::post(CONFIG_MAPS, &object)).await?.expect(422)?;
    answer.caused_by(&[("[]", "FieldValueTooLong", "Too long: may not be more than 1048576 bytes")])
}

async fn unparseable_parameters(talk: &mut Conversation) -> Outcome {
    for query in ["limit=many", "timeoutSeconds=soon", "timeout=abc"] {
        talk.get(&format!("{CONFIG_MAPS}?{query}")).await?.expect(400)?;
    }
    let answer = talk.get(&format!("{CONFIG_MAPS}?timeout=abc")).await?;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
    answer.refused_with(400, "BadRequest", message)?;
    talk.get(&format!("{CONFIG_MAPS}?unknown=1")).await?.expect(200)?;
    Ok(())
}

async fn unauthenticated(talk: &mut Conversation) -> Outcome {
    let ask = Ask::get(CONFIG_MAPS).header("authorization", "Bearer no-such-token").by_stranger();
    let answer = talk.ask(ask).await?.refused(401, "Unauthorized", "Unauthorized")?;
    answer.lacks("/details")?;
    let answer = talk.ask(Ask::get(CONFIG_MAPS).by_stranger()).await?;
    let message = talk.fill(
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in \
         API group \"\" in the namespace \"{ns}\"",
    );
    answer.refused(403, "Forbidden", &message)?;
    talk.ask(Ask::get("/version").by_stranger()).await?.expect(200)?;
    talk.ask(Ask::get("/readyz").by_stranger()).await?.expect(200)?;
    Ok(())
}
