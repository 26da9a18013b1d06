//! Bodies in protobuf, as the clients of Kubernetes itself send them.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, SECRETS, config_map, object_path, with_query};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("protobuf-preferred", [5], preferred),
    case!("protobuf-bodies", [6, 7], stored),
    case!("protobuf-bodies-not-stored", [6], answered),
    case!("protobuf-nonsense", [6], malformed),
];

/// An object as the encoder of Kubernetes writes it, in base64, and what it says.
struct EncodedObject {
    collection: &'static str,
    wire: &'static str,
    json: fn() -> Value,
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";
const NAMESPACES: &str = "/api/v1/namespaces";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const STORED: [EncodedObject; 4] = [
    EncodedObject {
        collection: DEPLOYMENTS,
        // A pointer to zero is there; empty texts are written and mean nothing.
        wire: "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EsQBCiMKBHR3aW4SABoAIgAqADIAOABCAFoFCgFh\
               EgBaBgoBYhIBMRKOAQgAEg0KCwoDYXBwEgR0d2luGnMKHQoAEgAaACIAKgAyADgAQgBaCwoDYXBw\
               EgR0d2luElISMQoBYxIRcmVnaXN0cnkudGVzdC9jOjEqADoFCgFFEgBCAGoAcgCAAQCIAQCQAQCi\
               AQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAqAEAwgEAIgIKACgAOAAaDAgAEAAYACAAKAA4ABoA\
               IgA=",
        json: || {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(),
                "spec": {
                    "replicas": 0,
                    "selector": { "matchLabels": { "app": "twin" } },
                    "template": {
                        "metadata": { "labels": { "app": "twin" } },
                        "spec": {
                            "containers": [{
                                "name": "c", "image": "registry.test/c:1", "env": [{ "name": "E" }],
                            }],
                            "automountServiceAccountToken": false,
                        },
                    },
                },
            })
        },
    },
    EncodedObject {
        collection: SECRETS,
        wire: "azhzAAoMCgJ2MRIGU2VjcmV0EjoKIwoEdHdpbhIAGgAiACoAMgA4AEIAWgUKAWESAFoGCgFiEgEx\
               EggKAWESAwD/ChIFCgFlEgAaACgAGgAiAA==",
        json: || {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": metadata(),
                "immutable": false, "data": { "a": "AP8K", "e": "" },
            })
        },
    },
    EncodedObject {
        collection: ROLES,
        wire: "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEjoKIwoEdHdpbhIAGgAi\
               ACoAMgA4AEIAWgUKAWESAFoGCgFiEgExEhMKA2dldAoEbGlzdBIAGgRwb2RzGgAiAA==",
        json: || {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": metadata(),
                "rules": [{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] }],
            })
        },
    },
    EncodedObject {
        collection: SCALERS,
        wire: "azhzAAopCg5hdXRvc2NhbGluZy92MhIXSG9yaXpvbnRhbFBvZEF1dG9zY2FsZXISTAojCgR0d2lu\
               EgAaACIAKgAyADgAQgBaBQoBYRIAWgYKAWISATESHwobCgpEZXBsb3ltZW50EgR0d2luGgdhcHBz\
               L3YxGAMaBBgAIAAaACIA",
        json: || {
            json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": metadata(),
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "apps/v1", "kind": "Deployment", "name": "twin",
                    },
                    "maxReplicas": 3,
                },
            })
        },
    },
];

/// A namespace is not stored because its name cannot be this case's own.
const ANSWERED: [EncodedObject; 2] = [
    EncodedObject {
        collection: NAMESPACES,
        wire: "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEisKIwoEdHdpbhIAGgAiACoAMgA4AEIAWgUKAWESAFoGCgFi\
               EgExEgAaAgoAGgAiAA==",
        json: || json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata() }),
    },
    EncodedObject {
        collection: REVIEWS,
        wire: "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcS\
               NQoQCgASABoAIgAqADIAOABCABIXChUKABIDZ2V0GgAiACoEcG9kczIAOgAaCAgAEgAaACAAGgAi\
               AA==",
        json: || {
            json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } },
            })
        },
    },
];

fn metadata() -> Value {
    json!({ "name": "twin", "labels": { "a": "", "b": "1" } })
}

/// An object without what differs from one creation to the next.
fn without_volatile_fields(answer: &Response) -> Value {
    let mut object = answer.json().clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.shift_remove(name);
        }
        let owners = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            owner["time"] = Value::Null;
        }
    }
    object
}

/// Creates one of two twins, reads it, and deletes it in favour of the other.
async fn create_read_delete(
    talk: &mut Session,
    ask: RequestSpec,
    path: &str,
) -> Result<Response, CaseError> {
    talk.send(ask).await?.expect(201)?;
    let stored = talk.get(path).await?.expect(200)?;
    talk.send(RequestSpec::delete(path).json(&json!({ "propagationPolicy": "Background" })))
        .await?;
    Ok(stored)
}

async fn stored(talk: &mut Session) -> Outcome {
    for EncodedObject { collection, wire, json } in &STORED {
        let path = object_path(collection, "twin");
        let post = RequestSpec::new("POST", *collection);
        let read = create_read_delete(talk, post.clone().protobuf(wire), &path).await?;
        let twin = create_read_delete(talk, post.json(&json()), &path).await?;
        expect_equal(collection, &without_volatile_fields(&twin), &without_volatile_fields(&read))?;
        if *collection == DEPLOYMENTS {
            read.has_value("/spec/replicas", &json!(0))?;
            read.has_value("/spec/template/spec/containers/0/env", &json!([{ "name": "E" }]))?;
        }
    }
    Ok(())
}

async fn answered(talk: &mut Session) -> Outcome {
    for EncodedObject { collection, wire, json } in &ANSWERED {
        let post = RequestSpec::new("POST", with_query(collection, "dryRun=All"));
        let read = talk.send(post.clone().protobuf(wire)).await?.expect(201)?;
        let twin = talk.send(post.json(&json())).await?.expect(201)?;
        expect_equal(collection, &without_volatile_fields(&twin), &without_volatile_fields(&read))?;
    }
    Ok(())
}

/// A server may speak protobuf to those who prefer it, and has to be understood if it does not. Not
/// part of the transcript: either is right.
async fn preferred(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    for path in
        [object_path(CONFIG_MAPS, "a"), CONFIG_MAPS.to_owned(), object_path(CONFIG_MAPS, "none")]
    {
        let answer = talk.send_unrecorded(RequestSpec::get(&path).accept(accept)).await?;
        let expected = if path.ends_with("none") { 404 } else { 200 };
        let answer = answer.expect(expected)?;
        match answer.header("content-type").first().map_or("", String::as_str) {
            "application/json" => expect_true("a kind", answer.at("/kind").is_string())?,
            "application/vnd.kubernetes.protobuf" => {
                expect_true("the mark of protobuf", answer.text().starts_with("k8s\0"))?;
            }
            other => expect_equal("content type", &"one of the two", &other)?,
        }
    }
    Ok(())
}

async fn malformed(talk: &mut Session) -> Outcome {
    let table = [
        "aGVsbG8=",                             // no mark
        "azhzAA==",                             // the mark alone
        "azhzAAoPCgJ2MRI=",                     // half an envelope
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEgNhYmM=", // half a ConfigMap
        "azhzAAoPCgJ2MRIJQ29uc2lnTWFwEgNhYmM=", // half of what nobody knows
        "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEgNhYmM=", // half of something else
    ];
    for wire in table {
        let answer = talk.send(RequestSpec::new("POST", CONFIG_MAPS).protobuf(wire)).await?;
        answer.expect_error_containing(400, "BadRequest", "")?;
    }
    Ok(())
}
