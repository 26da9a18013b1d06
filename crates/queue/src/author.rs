//! Who an AppWrapper is made for: whoever last wrote its items.
//!
//! The operator may create more than most who write AppWrappers, so what these may create themselves has
//! to be asked, and for that it must be known who they are. An API server tells it to the webhook that is
//! described here, and to nobody else. It is put down in an annotation, over whatever is written there: an
//! author that users could choose would be of no use.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_reconcile::User;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::Attributes;
use crate::app_wrapper::AUTHOR;

/// The name of the object by which an API server knows that it is to ask.
pub const CONFIGURATION: &str = "gantry-queue";
/// The annotation by which an API server marks the configurations that it made for webhooks of its own process.
pub const SOURCE: &str = "gantry.dev/source";
/// Where it asks.
pub const PATH: &str = "/queue/author";
/// How long it waits for an answer, in seconds. It takes a millisecond.
const PATIENCE: u32 = 5;

/// A user as API servers know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Author {
    /// The name.
    pub username: String,
    /// What tells users of the same name apart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else is known of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Author {
    /// The author that an annotation names; nothing where it names none.
    #[must_use]
    pub fn read(annotation: &str) -> Option<Self> {
        let author: Self = serde_json::from_str(annotation).ok()?;
        (!author.username.is_empty()).then_some(author)
    }

    /// The annotation that names it.
    #[must_use]
    pub fn annotation(&self) -> String {
        json!(self).to_string()
    }

    /// The author as the user in whose name items are created.
    #[must_use]
    pub fn into_user(self) -> User {
        let Self { username: name, uid, groups, extra } = self;
        User { name, uid, groups, extra }
    }

    /// The question whether it may do something in a namespace.
    #[must_use]
    pub fn review(&self, namespace: &str, asked: &Attributes) -> Value {
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
pub fn answer(review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"].as_str().unwrap_or_default()});
    match recorded(request) {
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

/// What must be changed in what is written so that it names its author.
fn recorded(request: &Value) -> Result<Option<Value>, String> {
    let (object, old) = (&request["object"], &request["oldObject"]);
    if !request["subResource"].as_str().unwrap_or_default().is_empty() || object.is_null() {
        return Ok(None);
    }
    let annotation = |object: &Value| object["metadata"]["annotations"][AUTHOR].clone();
    let items = |object: &Value| object["spec"]["resources"].clone();
    let wanted = match request["operation"].as_str() {
        // Who changes anything else, such as labels, makes nothing of it their own; nor does who takes
        // the name of the author away.
        Some("UPDATE") if items(object) == items(old) => annotation(old),
        Some("CREATE" | "UPDATE") => json!(requester(request)?.annotation()),
        Some(_) => return Ok(None),
        None => return Err("this is no AdmissionReview with a request".to_owned()),
    };
    let written = annotation(object);
    if written == wanted {
        return Ok(None);
    }
    let path = format!("/metadata/annotations/{}", AUTHOR.replace('~', "~0").replace('/', "~1"));
    let has_annotations = object["metadata"]["annotations"].is_object();
    Ok(Some(match (wanted.is_null(), has_annotations) {
        (true, _) => json!({"op": "remove", "path": path}),
        (false, true) => json!({"op": "add", "path": path, "value": wanted}),
        (false, false) => {
            json!({"op": "add", "path": "/metadata/annotations", "value": {AUTHOR: wanted}})
        }
    }))
}

/// Who asks the server for a change.
fn requester(request: &Value) -> Result<Author, String> {
    let found: Result<Author, _> = serde_json::from_value(request["userInfo"].clone());
    let found = found.ok().filter(|it| !it.username.is_empty());
    found.ok_or_else(|| {
        "the server does not say who asks, so the author of the AppWrapper cannot be recorded; \
         authenticate"
            .to_owned()
    })
}

/// The object by which an API server knows whom to ask. `client` says how whoever answers is reached at a
/// path: it is a `clientConfig`.
///
/// Nothing a user can choose is left out, and nothing is taken while nobody answers: it might name an author
/// who did not write it.
#[must_use]
pub fn configuration(client: impl Fn(&str) -> Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION, "labels": {"app.kubernetes.io/part-of": "gantry"}},
        "webhooks": [{
            "name": "authors.queue.gantry.dev",
            "clientConfig": client(PATH),
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
            "timeoutSeconds": PATIENCE,
            "admissionReviewVersions": ["v1"],
            // Whoever comes later may have written there.
            "reinvocationPolicy": "IfNeeded",
        }],
    })
}

#[cfg(test)]
mod tests;
