//! Bodies in protobuf, as the clients of Kubernetes itself send them.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, SECRETS, at, config_map, with};
use crate::answer::Answer;
use crate::case::{Case, CaseError, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation};

pub(super) const CASES: &[Case] = &[
    case!("protobuf-preferred", [5], preferred),
    case!("protobuf-bodies", [6, 7], stored),
    case!("protobuf-bodies-not-stored", [6], answered),
    case!("protobuf-nonsense", [6], nonsense),
];

/// An object as the encoder of Kubernetes writes it, in base64, and what it says.
struct Twins {
    collection: &'static str,
    wire: &'static str,
    json: fn() -> Value,
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";
const NAMESPACES: &str = "/api/v1/namespaces";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const STORED: [Twins; 4] = [
    Twins {
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
    Twins {
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
    Twins {
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
    Twins {
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
const ANSWERED: [Twins; 2] = [
    Twins {
        collection: NAMESPACES,
        wire: "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEisKIwoEdHdpbhIAGgAiACoAMgA4AEIAWgUKAWESAFoGCgFi\
               EgExEgAaAgoAGgAiAA==",
        json: || json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata() }),
    },
    Twins {
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
fn settled(answer: &Answer) -> Value {
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

/// Creates one of two twins, reads it, and makes room for the other.
async fn by_turns(talk: &mut Conversation, ask: Ask, path: &str) -> Result<Answer, CaseError> {
    talk.ask(ask).await?.expect(201)?;
    let stored = talk.get(path).await?.expect(200)?;
    talk.ask(Ask::delete(path).json(&json!({ "propagationPolicy": "Background" }))).await?;
    Ok(stored)
}

async fn stored(talk: &mut Conversation) -> Outcome {
    for Twins { collection, wire, json } in &STORED {
        let path = at(collection, "twin");
        let post = Ask::new("POST", *collection);
        let read = by_turns(talk, post.clone().protobuf(wire), &path).await?;
        let twin = by_turns(talk, post.json(&json()), &path).await?;
        same(collection, &settled(&twin), &settled(&read))?;
        if *collection == DEPLOYMENTS {
            read.is("/spec/replicas", &json!(0))?;
            read.is("/spec/template/spec/containers/0/env", &json!([{ "name": "E" }]))?;
        }
    }
    Ok(())
}

async fn answered(talk: &mut Conversation) -> Outcome {
    for Twins { collection, wire, json } in &ANSWERED {
        let post = Ask::new("POST", with(collection, "dryRun=All"));
        let read = talk.ask(post.clone().protobuf(wire)).await?.expect(201)?;
        let twin = talk.ask(post.json(&json())).await?.expect(201)?;
        same(collection, &settled(&twin), &settled(&read))?;
    }
    Ok(())
}

/// A server may speak protobuf to those who prefer it, and has to be understood if it does not. Not
/// part of the transcript: either is right.
async fn preferred(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    for path in [at(CONFIG_MAPS, "a"), CONFIG_MAPS.to_owned(), at(CONFIG_MAPS, "none")] {
        let answer = talk.ask_unrecorded(Ask::get(&path).accept(accept)).await?;
        let expected = if path.ends_with("none") { 404 } else { 200 };
        let answer = answer.expect(expected)?;
        match answer.header("content-type").first().map_or("", String::as_str) {
            "application/json" => holds("a kind", answer.at("/kind").is_string())?,
            "application/vnd.kubernetes.protobuf" => {
                holds("the mark of protobuf", answer.text().starts_with("k8s\0"))?;
            }
            other => same("content type", &"one of the two", &other)?,
        }
    }
    Ok(())
}

async fn nonsense(talk: &mut Conversation) -> Outcome {
    let table = [
        "aGVsbG8=",                             // no mark
        "azhzAA==",                             // the mark alone
        "azhzAAoPCgJ2MRI=",                     // half an envelope
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEgNhYmM=", // half a ConfigMap
        "azhzAAoPCgJ2MRIJQ29uc2lnTWFwEgNhYmM=", // half of what nobody knows
        "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEgNhYmM=", // half of something else
    ];
    for wire in table {
        let answer = talk.ask(Ask::new("POST", CONFIG_MAPS).protobuf(wire)).await?;
        answer.refused_with(400, "BadRequest", "")?;
    }
    Ok(())
}
