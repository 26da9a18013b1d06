//! What admission does to pods that are changed, and what the templates of pods may mount.

use serde_json::{Value, json};

use super::objects::{PODS, object_path, pod, service_account, with_query};
use crate::case::{Case, CaseError, Outcome, case};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("pod-updates-keep-the-priority", [], keeps_priority),
    case!("pod-updates-of-another-priority", [], another_priority),
    case!("pod-updates-keep-default-tolerations", [], keeps_tolerations),
    case!("pod-updates-do-not-restore-the-account", [], account_is_not_restored),
    case!("stateful-sets-mount-their-claims", [], mounted_claims),
    case!("stateful-sets-mount-nothing-else", [], other_mounts),
];

/// Makes the pod `p`.
async fn create_pod(talk: &mut Session) -> Result<Response, CaseError> {
    service_account(talk).await?;
    talk.create(PODS, &pod("p")).await
}

/// The pod with some fields of its spec left out.
fn without(made: &Response, fields: &[&str]) -> Value {
    let mut object = made.at("").clone();
    if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
        for field in fields {
            spec.remove(*field);
        }
    }
    object
}

/// What admission gave the pod when it was made.
fn has_defaults(answer: &Response) -> Outcome {
    let toleration = |key: &str| {
        json!({
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        })
    };
    answer.has_values(&[
        ("/spec/priority", json!(0)),
        ("/spec/preemptionPolicy", json!("PreemptLowerPriority")),
        ("/spec/tolerations/0", toleration("node.kubernetes.io/not-ready")),
        ("/spec/tolerations/1", toleration("node.kubernetes.io/unreachable")),
    ])
}

async fn keeps_priority(talk: &mut Session) -> Outcome {
    let made = create_pod(talk).await?;
    has_defaults(&made)?;
    let path = object_path(PODS, "p");
    let mut object = without(&made, &["priority", "preemptionPolicy"]);
    // Without any change nothing is stored.
    let answer = talk.put(&path, &object).await?.expect(200)?;
    has_defaults(&answer)?;
    object["metadata"]["labels"] = json!({ "a": "b" });
    has_defaults(&talk.put(&path, &object).await?.expect(200)?)?;
    let patch = json!({ "spec": { "priority": null, "preemptionPolicy": null },
        "metadata": { "labels": { "a": "c" } } });
    for form in [PatchType::Merge, PatchType::Strategic] {
        has_defaults(&talk.patch(&path, form, &patch).await?.expect(200)?)?;
    }
    let remove = json!([{ "op": "remove", "path": "/spec/priority" }]);
    has_defaults(&talk.patch(&path, PatchType::Json, &remove).await?.expect(200)?)?;
    let trial = with_query(&path, "dryRun=All");
    let object = without(&talk.get(&path).await?, &["priority"]);
    has_defaults(&talk.put(&trial, &object).await?.expect(200)?)
}

async fn another_priority(talk: &mut Session) -> Outcome {
    let made = create_pod(talk).await?;
    let path = object_path(PODS, "p");
    let table = [("priority", json!(7)), ("preemptionPolicy", json!("Never"))];
    for (field, value) in table {
        let mut object = made.at("").clone();
        object["spec"][field] = value;
        let ask = RequestSpec::put(&path, &object);
        // The message ends with a difference line by line, in words of the server's own.
        talk.send_unrecorded(ask).await?.expect_error_containing(
            422,
            "Invalid",
            "pod updates may not change fields other than",
        )?;
    }
    Ok(())
}

async fn keeps_tolerations(talk: &mut Session) -> Outcome {
    let made = create_pod(talk).await?;
    let path = object_path(PODS, "p");
    let mut object = without(&made, &["tolerations"]);
    has_defaults(&talk.put(&path, &object).await?.expect(200)?)?;
    let own = json!({ "key": "case.test/own", "operator": "Exists" });
    object["spec"]["tolerations"] = json!([own]);
    let answer = talk.put(&path, &object).await?.expect(200)?;
    answer.has_values(&[
        ("/spec/tolerations/0", own),
        ("/spec/tolerations/1/key", json!("node.kubernetes.io/not-ready")),
        ("/spec/tolerations/2/key", json!("node.kubernetes.io/unreachable")),
    ])?;
    // What was not added by default stays: the update may not take it away.
    let none = json!({ "spec": { "tolerations": null } });
    let words = "existing toleration can not be modified except its tolerationSeconds";
    let refused = talk.send_unrecorded(RequestSpec::patch(&path, PatchType::Merge, &none)).await?;
    refused.expect_error_containing(422, "Invalid", words)?;
    Ok(())
}

async fn account_is_not_restored(talk: &mut Session) -> Outcome {
    let made = create_pod(talk).await?;
    let path = object_path(PODS, "p");
    // The older spelling follows the newer one.
    let object = without(&made, &["serviceAccount"]);
    talk.put(&path, &object).await?.expect(200)?;
    let object = without(&made, &["serviceAccount", "serviceAccountName"]);
    let words = "pod updates may not change fields other than";
    talk.send_unrecorded(RequestSpec::put(&path, &object))
        .await?
        .expect_error_containing(422, "Invalid", words)?;
    Ok(())
}

const SETS: &str = "/apis/apps/v1/namespaces/{ns}/statefulsets";

/// A set without pods, whose container mounts `mounts`.
fn stateful_set(name: &str, mounts: &[&str]) -> Value {
    let mount = |it: &&str| json!({ "name": it, "mountPath": format!("/{it}") });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "replicas": 0,
            "serviceName": "s",
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "c", "image": "registry.test/c:1",
                    "volumeMounts": mounts.iter().map(mount).collect::<Vec<_>>(),
                }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }],
        },
    })
}

async fn mounted_claims(talk: &mut Session) -> Outcome {
    talk.create(SETS, &stateful_set("mounted", &["data"])).await?;
    let mut device = stateful_set("device", &[]);
    device["spec"]["template"]["spec"]["containers"][0]["volumeDevices"] =
        json!([{ "name": "data", "devicePath": "/dev/data" }]);
    talk.create(SETS, &device).await?;
    let mut init = stateful_set("init", &[]);
    init["spec"]["template"]["spec"]["initContainers"] = json!([{
        "name": "i", "image": "registry.test/c:1",
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    }]);
    talk.create(SETS, &init).await?;
    // A volume of the template with the same name gives way.
    let mut both = stateful_set("both", &["data", "own"]);
    both["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "emptyDir": {} }, { "name": "own", "emptyDir": {} }]);
    talk.create(SETS, &both).await?;
    talk.post(&with_query(SETS, "dryRun=All"), &stateful_set("trial", &["data"]))
        .await?
        .expect(201)?;
    let image = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "c", "image": "registry.test/c:2" },
    ] } } } });
    talk.patch(&object_path(SETS, "mounted"), PatchType::Strategic, &image).await?.expect(200)?;
    Ok(())
}

async fn other_mounts(talk: &mut Session) -> Outcome {
    let answer = talk.post(SETS, &stateful_set("a", &["data", "other"])).await?;
    let field = "spec.template.spec.containers[0].volumeMounts[1].name";
    let message = format!("StatefulSet.apps \"a\" is invalid: {field}: Not found: \"other\"");
    let answer = answer.expect_error(422, "Invalid", &message)?;
    answer.has_causes(&[(field, "FieldValueNotFound", "Not found: \"other\"")])
}
