//! Records the author of an AppWrapper: the user that last wrote its items.
//!
//! The operator may create more than most authors of AppWrappers, so it has to check what the
//! authors may create themselves, and for that it must know who they are. An API server reports
//! that to the webhook described here, and to no other component. The webhook records it in an
//! annotation, over whatever is written there: an author that users could choose would be of no
//! use.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_reconcile::User;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::ResourceAttributes;
use crate::app_wrapper::AUTHOR_ANNOTATION;

/// The name of the webhook configuration.
pub const CONFIGURATION: &str = "gantry-queue";
/// The annotation by which an API server marks the configurations that it created for webhooks of
/// its own process.
pub const SOURCE_ANNOTATION: &str = "gantry.dev/source";
/// The path of the webhook.
pub const WEBHOOK_PATH: &str = "/queue/author";
/// The timeout of the webhook, in seconds. It takes a millisecond.
const WEBHOOK_TIMEOUT_SECONDS: u32 = 5;

/// A user as API servers identify them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Author {
    /// The user name.
    pub username: String,
    /// The identifier that distinguishes users of the same name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Author {
    /// Reads the author from an annotation; `None` where it names none.
    #[must_use]
    pub fn read(annotation: &str) -> Option<Self> {
        let author: Self = serde_json::from_str(annotation).ok()?;
        (!author.username.is_empty()).then_some(author)
    }

    /// Returns the annotation that names the author.
    #[must_use]
    pub fn annotation(&self) -> String {
        json!(self).to_string()
    }

    /// Returns the author as the user to impersonate when items are created.
    #[must_use]
    pub fn into_user(self) -> User {
        let Self { username: name, uid, groups, extra } = self;
        User { name, uid, groups, extra }
    }

    /// Returns the SubjectAccessReview whether the author may do something in a namespace.
    #[must_use]
    pub fn access_review(&self, namespace: &str, asked: &ResourceAttributes) -> Value {
        let Self { username, uid, groups, extra } = self;
        let mut attributes = json!(asked);
        attributes["namespace"] = json!(namespace);
        let mut spec = json!({
            "user": username, "groups": groups, "extra": extra, "resourceAttributes": attributes,
        });
        if !uid.is_empty() {
            spec["uid"] = json!(uid);
        }
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        })
    }
}

/// Answers an AdmissionReview about an AppWrapper with an AdmissionReview that records its author.
#[must_use]
pub fn answer_review(review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"].as_str().unwrap_or_default()});
    match author_patch(request) {
        Ok(patch) => {
            response["allowed"] = json!(true);
            if let Some(patch) = patch {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(STANDARD.encode(json!([patch]).to_string()));
            }
        }
        Err(message) => {
            response["allowed"] = json!(false);
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Returns the patch that makes an object name its author.
fn author_patch(request: &Value) -> Result<Option<Value>, String> {
    let (object, old) = (&request["object"], &request["oldObject"]);
    if !request["subResource"].as_str().unwrap_or_default().is_empty() || object.is_null() {
        return Ok(None);
    }
    let annotation = |object: &Value| object["metadata"]["annotations"][AUTHOR_ANNOTATION].clone();
    let items = |object: &Value| object["spec"]["resources"].clone();
    let wanted = match request["operation"].as_str() {
        // A user that changes anything else, such as labels, does not become the author; nor does
        // one that removes the annotation.
        Some("UPDATE") if items(object) == items(old) => annotation(old),
        Some("CREATE" | "UPDATE") => json!(requester(request)?.annotation()),
        Some(_) => return Ok(None),
        None => return Err("this is no AdmissionReview with a request".to_owned()),
    };
    let written = annotation(object);
    if written == wanted {
        return Ok(None);
    }
    let path = format!(
        "/metadata/annotations/{}",
        AUTHOR_ANNOTATION.replace('~', "~0").replace('/', "~1")
    );
    let has_annotations = object["metadata"]["annotations"].is_object();
    Ok(Some(match (wanted.is_null(), has_annotations) {
        (true, _) => json!({"op": "remove", "path": path}),
        (false, true) => json!({"op": "add", "path": path, "value": wanted}),
        (false, false) => {
            json!({
                "op": "add", "path": "/metadata/annotations", "value": {AUTHOR_ANNOTATION: wanted},
            })
        }
    }))
}

/// Returns the user that sent a request.
fn requester(request: &Value) -> Result<Author, String> {
    let found: Result<Author, _> = serde_json::from_value(request["userInfo"].clone());
    let found = found.ok().filter(|it| !it.username.is_empty());
    found.ok_or_else(|| {
        "the server does not say who asks, so the author of the AppWrapper cannot be recorded; \
         authenticate"
            .to_owned()
    })
}

/// Returns the webhook configuration. `client` returns the `clientConfig` for a path.
///
/// It covers everything a user can choose, and writes fail while the webhook does not answer:
/// otherwise an AppWrapper might name an author who did not write it.
#[must_use]
pub fn webhook_configuration(client: impl Fn(&str) -> Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION, "labels": {"app.kubernetes.io/part-of": "gantry"}},
        "webhooks": [{
            "name": "authors.queue.gantry.dev",
            "clientConfig": client(WEBHOOK_PATH),
            "rules": [{
                "apiGroups": ["workload.codeflare.dev"], "apiVersions": ["*"],
                "resources": ["appwrappers"], "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": WEBHOOK_TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
            // A later webhook may have changed the annotation.
            "reinvocationPolicy": "IfNeeded",
        }],
    })
}

#[cfg(test)]
mod tests;
