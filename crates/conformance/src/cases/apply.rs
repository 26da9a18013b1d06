//! Server-side apply: ownership and conflicts.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, WIDGETS, config_map, define, deployment, object_path, widget,
    widget_definition, with_query, with_version_field,
};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("apply-creates", [44], creates),
    case!("apply-conflict-with-apply", [44], conflict_with_apply),
    case!("apply-conflict-with-update", [44], conflict_with_update),
    case!("apply-conflict-with-status", [44, 47], conflict_with_status),
    case!("apply-several-conflicts", [44], several_conflicts),
    case!("apply-force", [44], force),
    case!("apply-shared-ownership", [44], shared),
    case!("apply-release", [44], release),
    case!("apply-before-first-apply", [46], before_first_apply),
    case!("managed-fields-reset", [46], reset),
    case!("managed-fields-of-many", [46], many_managers),
    case!("managed-fields-of-writes", [46], managers_of_writes),
    case!("apply-to-status", [47], status),
    case!("apply-to-scale", [47], scale),
    case!("apply-without-manager", [48], without_manager),
    case!("apply-refusals", [48], refusals),
    case!("apply-names-that-do-not-match", [48], mismatches),
    case!("apply-to-a-revision", [48], revisions),
];

/// Applies an object as a manager.
pub(super) async fn apply(
    talk: &mut Session,
    path: &str,
    manager: &str,
    object: &Value,
) -> Result<Response, CaseError> {
    talk.patch(&with_query(path, &format!("fieldManager={manager}")), PatchType::Apply, object)
        .await
}

/// The fields a manager owns.
pub(super) fn owned(answer: &Response, manager: &str) -> Value {
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let own = entries.into_iter().find(|entry| entry["manager"] == manager);
    own.map_or(Value::Null, |mut entry| entry["fieldsV1"].take())
}

/// A Deployment that says nothing but its replicas and its identity.
fn replicas(count: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "d" },
        "spec": { "replicas": count },
    })
}

async fn creates(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let made = apply(talk, &path, "m", &config_map("a", "x")).await?.expect(201)?;
    expect_equal("owned", &json!({ "f:data": { "f:a": {} } }), &owned(&made, "m"))?;
    made.has_values(&[
        ("/metadata/managedFields/0/operation", json!("Apply")),
        ("/metadata/managedFields/0/apiVersion", json!("v1")),
        ("/metadata/managedFields/0/fieldsType", json!("FieldsV1")),
    ])?;
    let again = apply(talk, &path, "m", &config_map("a", "x")).await?.expect(200)?;
    expect_equal("applied again", made.json(), again.json())?;
    let yaml = |a: &str| {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: {a}\n");
        RequestSpec::new("PATCH", with_query(&path, "fieldManager=m"))
            .text(PatchType::Apply.media_type(), text)
    };
    talk.send(yaml("text")).await?.expect(200)?.has_value("/data", &json!({ "a": "text" }))?;
    // YAML 1.1: a bare y is true.
    let message = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: \
                   expected string, got &value.valueUnstructured{Value:true}";
    talk.send(yaml("y")).await?.expect(500)?.has_value("/message", &json!(message))
}

async fn conflict_with_apply(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    apply(talk, &path, "m1", &deployment("d")).await?.expect(201)?;
    let answer = apply(talk, &path, "m2", &replicas(5)).await?;
    let message = "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas";
    let answer = answer.expect_error(409, "Conflict", message)?;
    let cause = ("FieldManagerConflict", "conflict with \"m1\"");
    answer.has_causes(&[(".spec.replicas", cause.0, cause.1)])?;
    answer.has_no_value("/details/name")
}

async fn conflict_with_update(talk: &mut Session) -> Outcome {
    talk.create(&with_query(DEPLOYMENTS, "fieldManager=u"), &deployment("d")).await?;
    let answer = apply(talk, &object_path(DEPLOYMENTS, "d"), "m", &replicas(5)).await?;
    let message = "Apply failed with 1 conflict: conflict with \"u\" using apps/v1: .spec.replicas";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn conflict_with_status(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let path = object_path(DEPLOYMENTS, "d");
    let status = object_path(&path, "status");
    let change = json!({ "status": { "observedGeneration": 1 } });
    let by_controller = with_query(&status, "fieldManager=controller");
    talk.patch(&by_controller, PatchType::Merge, &change).await?.expect(200)?;
    let mine = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "status": { "observedGeneration": 7 },
    });
    let answer = apply(talk, &status, "m", &mine).await?;
    let message = "Apply failed with 1 conflict: conflict with \"controller\" with subresource \
                   \"status\" using apps/v1: .status.observedGeneration";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn several_conflicts(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    apply(talk, &path, "m1", &deployment("d")).await?.expect(201)?;
    let labels = json!({ "metadata": { "labels": { "l": "1" } } });
    talk.patch(&with_query(&path, "fieldManager=u"), PatchType::Merge, &labels)
        .await?
        .expect(200)?;
    let mut mine = deployment("d");
    mine["metadata"]["labels"] = json!({ "l": "2" });
    mine["spec"]["replicas"] = json!(5);
    mine["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.test/c:2");
    let message = "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .spec.replicas\n- \
                   .spec.template.spec.containers[name=\"c\"].image\nconflicts with \"u\" using \
                   apps/v1:\n- .metadata.labels.l";
    apply(talk, &path, "m2", &mine).await?.expect_error(409, "Conflict", message)?.has_causes(&[
        (".spec.replicas", "FieldManagerConflict", "conflict with \"m1\""),
        (
            ".spec.template.spec.containers[name=\"c\"].image",
            "FieldManagerConflict",
            "conflict with \"m1\"",
        ),
        (".metadata.labels.l", "FieldManagerConflict", "conflict with \"u\" using apps/v1"),
    ])
}

async fn force(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    apply(talk, &path, "m1", &deployment("d")).await?.expect(201)?;
    let forced = with_query(&path, "fieldManager=m2&force=true");
    let answer = talk.patch(&forced, PatchType::Apply, &replicas(5)).await?.expect(200)?;
    answer.has_value("/spec/replicas", &json!(5))?;
    expect_equal(
        "the new owner",
        &json!({ "f:spec": { "f:replicas": {} } }),
        &owned(&answer, "m2"),
    )?;
    expect_equal("the old owner", &Value::Null, &owned(&answer, "m1")["f:spec"]["f:replicas"])?;
    let merge = with_query(&path, "fieldManager=m2&force=true");
    let answer = talk.patch(&merge, PatchType::Merge, &json!({})).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("force"))
}

async fn shared(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    apply(talk, &path, "m1", &config_map("a", "x")).await?.expect(201)?;
    let both = apply(talk, &path, "m2", &config_map("a", "x")).await?.expect(200)?;
    let field = json!({ "f:data": { "f:a": {} } });
    expect_equal("the first owner", &field, &owned(&both, "m1"))?;
    expect_equal("the second owner", &field, &owned(&both, "m2"))?;
    let answer = apply(talk, &path, "m1", &config_map("a", "y")).await?;
    let message = "Apply failed with 1 conflict: conflict with \"m2\": .data.a";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn release(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let mut object = config_map("a", "x");
    object["data"] = json!({ "mine": "1", "ours": "2" });
    apply(talk, &path, "m1", &object).await?.expect(201)?;
    object["data"] = json!({ "ours": "2" });
    apply(talk, &path, "m2", &object).await?.expect(200)?;
    object["data"] = json!({});
    let answer = apply(talk, &path, "m1", &object).await?.expect(200)?;
    answer.has_value("/data", &json!({ "ours": "2" }))?;
    object["data"] = Value::Null;
    let answer = apply(talk, &path, "m2", &object).await?.expect(200)?;
    answer.has_no_value("/data")
}

async fn before_first_apply(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let cleared = json!({ "metadata": { "managedFields": [] } });
    talk.patch(&path, PatchType::Merge, &cleared)
        .await?
        .expect(200)?
        .has_no_value("/metadata/managedFields")?;
    let change = json!({ "data": { "b": "y" } });
    let untracked = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    untracked.has_no_value("/metadata/managedFields")?;
    let answer = apply(talk, &path, "m", &config_map("a", "x")).await?.expect(200)?;
    let before = json!({ "f:data": { ".": {}, "f:a": {}, "f:b": {} } });
    expect_equal("what was there", &before, &owned(&answer, "before-first-apply"))?;
    let answer = apply(talk, &path, "m", &config_map("a", "z")).await?;
    let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: \
                   .data.a";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn reset(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let mut object = made.json().clone();
    object["metadata"]["managedFields"] = json!([{}]);
    talk.put(&path, &object).await?.expect(200)?.has_no_value("/metadata/managedFields")?;
    let mine = json!({ "metadata": { "managedFields": [{
        "manager": "chosen", "operation": "Update", "apiVersion": "v1",
        "time": "1999-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:a": {} } },
    }] } });
    let answer = talk.patch(&path, PatchType::Merge, &mine).await?.expect(200)?;
    expect_equal(
        "an entry of one's own",
        &json!({ "f:data": { "f:a": {} } }),
        &owned(&answer, "chosen"),
    )?;
    let wrong = json!({ "metadata": { "managedFields": [{
        "manager": "m", "operation": "Other", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {},
    }] } });
    // What cannot be read is as if it had not been sent.
    let kept = talk.patch(&path, PatchType::Merge, &wrong).await?.expect(200)?;
    expect_equal("the object", answer.json(), kept.json())
}

async fn many_managers(talk: &mut Session) -> Outcome {
    talk.create(&with_query(CONFIG_MAPS, "fieldManager=u00"), &config_map("a", "x")).await?;
    for index in 1..=10 {
        let path = with_query(&object_path(CONFIG_MAPS, "a"), &format!("fieldManager=u{index:02}"));
        let change = json!({ "data": { format!("k{index:02}"): "x" } });
        talk.send_unrecorded(RequestSpec::patch(path, PatchType::Merge, &change))
            .await?
            .expect(200)?;
    }
    // Which of them are the oldest depends on the second they wrote in: only the counts are fixed.
    let answer =
        talk.send_unrecorded(RequestSpec::get(object_path(CONFIG_MAPS, "a"))).await?.expect(200)?;
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    expect_equal("entries", &10, &entries.len())?;
    expect_true("old ones are merged", entries.iter().any(|it| it["manager"] == "ancient-changes"))
}

async fn managers_of_writes(talk: &mut Session) -> Outcome {
    let agent = |ask: RequestSpec, agent: &str| ask.header("user-agent", agent);
    let post = RequestSpec::post(CONFIG_MAPS, &config_map("a", "x"));
    let made = talk.send(agent(post, "tool/1.0 (linux)")).await?.expect(201)?;
    let first = json!({ "f:data": { ".": {}, "f:a": {} } });
    expect_equal("the agent's name", &first, &owned(&made, "tool"))?;
    let path = object_path(CONFIG_MAPS, "a");
    let change = json!({ "data": { "b": "y" } });
    let patch =
        RequestSpec::patch(with_query(&path, "fieldManager=other"), PatchType::Merge, &change);
    let answer = talk.send(agent(patch, "tool/1.0")).await?.expect(200)?;
    expect_equal("the parameter", &json!({ "f:data": { "f:b": {} } }), &owned(&answer, "other"))?;
    let change = json!({ "data": { "a": "taken" } });
    let patch =
        RequestSpec::patch(with_query(&path, "fieldManager=other"), PatchType::Merge, &change);
    let answer = talk.send(patch).await?.expect(200)?;
    let both = json!({ "f:data": { "f:a": {}, "f:b": {} } });
    expect_equal("what is written is owned", &both, &owned(&answer, "other"))?;
    expect_equal("and was lost", &json!({ "f:data": {} }), &owned(&answer, "tool"))?;
    let long = with_query(CONFIG_MAPS, &format!("fieldManager={}", "m".repeat(129)));
    let answer = talk.post(&long, &config_map("b", "x")).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("fieldManager"))
}

/// Widgets with status, scale and two integers.
fn scaled_widgets() -> Value {
    let numbers = json!({ "type": "object", "properties": {
        "replicas": { "type": "integer" }, "selector": { "type": "string" },
    } });
    let mut definition = widget_definition(&numbers);
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"] = numbers;
    let subresources = json!({ "status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    } });
    with_version_field(definition, "subresources", subresources)
}

async fn status(talk: &mut Session) -> Outcome {
    define(talk, &scaled_widgets()).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "replicas": 1 }))).await?;
    let mut mine = widget("w", &json!({ "replicas": 9 }));
    mine["status"] = json!({ "replicas": 3 });
    let answer = apply(talk, &object_path(&object_path(WIDGETS, "w"), "status"), "m", &mine)
        .await?
        .expect(200)?;
    answer.has_values(&[("/spec/replicas", json!(1)), ("/status/replicas", json!(3))])?;
    expect_equal("owned", &json!({ "f:status": { "f:replicas": {} } }), &owned(&answer, "m"))?;
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let entry = entries.iter().find(|it| it["manager"] == "m").cloned().unwrap_or_default();
    expect_equal("the subresource", &json!("status"), &entry["subresource"])
}

async fn scale(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    apply(talk, &path, "m", &deployment("d")).await?.expect(201)?;
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": { "name": "d", "namespace": "{ns}" }, "spec": { "replicas": 4 },
    });
    let scaled = object_path(&path, "scale");
    let answer = apply(talk, &scaled, "scaler", &scale).await?;
    let message = "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas";
    answer.expect_error(409, "Conflict", message)?;
    let forced = with_query(&scaled, "fieldManager=scaler&force=true");
    let answer =
        talk.patch(&forced, PatchType::Apply, &scale).await?.expect(200)?.expect_kind("Scale")?;
    answer.has_value("/spec/replicas", &json!(4))?;
    let parent = talk.get(&path).await?.expect(200)?;
    expect_equal("owned", &json!({ "f:spec": { "f:replicas": {} } }), &owned(&parent, "scaler"))?;
    parent.has_value("/spec/replicas", &json!(4))
}

async fn without_manager(talk: &mut Session) -> Outcome {
    let answer =
        talk.patch(&object_path(CONFIG_MAPS, "a"), PatchType::Apply, &config_map("a", "x")).await?;
    answer.expect_error(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
         apply patch",
    )?;
    Ok(())
}

async fn refusals(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    let start = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): ";
    let mut unknown = deployment("d");
    unknown["spec"]["nothing"] = json!(1);
    let mut wrong = deployment("d");
    wrong["spec"]["replicas"] = json!("three");
    let mut twice = deployment("d");
    let container = json!({ "name": "c", "image": "registry.test/c:1" });
    twice["spec"]["template"]["spec"]["containers"] = json!([container, container]);
    let table = [
        (unknown, ".spec.nothing: field not declared in schema"),
        (wrong, ".spec.replicas: expected numeric (int or float), got string"),
        (twice, ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]"),
    ];
    for (object, problem) in table {
        let answer = apply(talk, &path, "m", &object).await?.expect(500)?;
        answer.has_value("/message", &json!(format!("{start}{problem}")))?;
    }
    let mut managed = config_map("a", "x");
    managed["metadata"]["managedFields"] = json!([{}]);
    let answer = apply(talk, &object_path(CONFIG_MAPS, "a"), "m", &managed).await?;
    answer.expect_error(400, "BadRequest", "metadata.managedFields must be nil")?;
    Ok(())
}

async fn mismatches(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let answer = apply(talk, &path, "m", &config_map("b", "x")).await?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_error(400, "BadRequest", message)?;
    let bare = json!({ "metadata": { "name": "a" } });
    let answer = apply(talk, &path, "m", &bare).await?;
    answer.expect_error_containing(400, "BadRequest", "invalid object type: /, Kind=")?;
    let mut other = config_map("a", "x");
    other["kind"] = json!("Secret");
    apply(talk, &path, "m", &other).await?.expect(400)?;
    let ask = RequestSpec::new("PATCH", with_query(&path, "fieldManager=m"))
        .text(PatchType::Apply.media_type(), "a: [");
    talk.send(ask).await?.expect_error_containing(400, "BadRequest", "error decoding YAML: ")?;
    Ok(())
}

async fn revisions(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let mut object = config_map("a", "x");
    object["metadata"]["resourceVersion"] = json!("1");
    let created = apply(talk, &path, "m", &object).await?;
    expect_equal("a revision on creation", &201, &created.status)?;
    object["data"]["a"] = json!("y");
    apply(talk, &path, "m", &object).await?.expect_error_containing(
        409,
        "Conflict",
        "has been modified",
    )?;
    object["metadata"]["resourceVersion"] = created.at("/metadata/resourceVersion").clone();
    apply(talk, &path, "m", &object).await?.expect(200)?;
    object["metadata"] = json!({ "name": "a", "uid": "00000000-0000-4000-8000-000000000000" });
    object["data"]["a"] = json!("z");
    let answer = apply(talk, &path, "m", &object).await?;
    answer.expect_error_containing(422, "Invalid", "metadata.uid: Invalid value: ")?;
    Ok(())
}
