use gantry_admission::Operation;

use super::*;

fn view() -> ResourceView {
    ResourceView {
        group: String::new(),
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        kind_group: String::new(),
        kind_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
    }
}

/// Owns what a request borrows.
struct RequestParts {
    view: ResourceView,
    user: Value,
    options: Value,
    object: Option<Value>,
}

impl RequestParts {
    fn new(object: Option<Value>) -> Self {
        let options = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" });
        Self { view: view(), user: json!({ "username": "u", "groups": ["g"] }), options, object }
    }

    fn request(&self) -> Request<'_> {
        Request {
            operation: Operation::Create,
            view: &self.view,
            subresource: "",
            name: "c",
            namespace: "n",
            user: &self.user,
            dry_run: true,
            options: &self.options,
            object: self.object.as_ref(),
            old: None,
        }
    }
}

#[test]
fn an_admission_review_has_every_field() {
    let parts = RequestParts::new(Some(json!({ "data": { "a": "1" } })));
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    let expected = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "1", "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": "c", "namespace": "n", "operation": "CREATE",
            "userInfo": parts.user, "object": { "data": { "a": "1" } }, "oldObject": null,
            "dryRun": true, "options": parts.options,
        },
    });
    let found = admission_review(ReviewVersion::V1, "1", &parts.request(), &parts.view);
    assert_eq!(found.to_string(), expected.to_string(), "also in this order");
}

fn document(response: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    })
}

#[test]
fn responses_are_verified() {
    use WebhookType::{Mutating, Validating};
    let yes = |patch: Option<Value>| {
        Ok(WebhookResponse { verdict: AdmissionVerdict::Allowed, warnings: Vec::new(), patch })
    };
    let no = |why: &str| Err(why.to_owned());
    let kind = json!({ "type": "JSONPatch", "text": "W10=" });
    let table = [
        (Validating, json!({ "uid": "1", "allowed": true }), yes(None)),
        (
            Validating,
            json!({ "uid": "2", "allowed": true }),
            no("expected response.uid=\"1\", got \"2\""),
        ),
        (Validating, Value::Null, no("webhook response was absent")),
        (
            Validating,
            json!({ "uid": "1", "patch": "W10=" }),
            no("validating webhook may not return response.patch"),
        ),
        (
            Validating,
            json!({ "uid": "1", "patchType": "JSONPatch" }),
            no("validating webhook may not return response.patchType"),
        ),
        (
            Mutating,
            json!({ "uid": "1", "patch": "W10=" }),
            no("webhook returned response.patch but not response.patchType"),
        ),
        (
            Mutating,
            json!({ "uid": "1", "patchType": "JSONPatch" }),
            no("webhook returned response.patchType but not response.patch"),
        ),
        (
            Mutating,
            json!({ "uid": "1", "patchType": "", "patch": "W10=" }),
            no("webhook returned invalid response.patchType of \"\""),
        ),
        (
            Mutating,
            json!({ "uid": "1", "allowed": true, "patchType": "JSONPatch", "patch": "W10=" }),
            yes(Some(kind)),
        ),
    ];
    for (side, response, expected) in table {
        let found = verify_response(ReviewVersion::V1, side, "1", document(&response));
        assert_eq!(found, expected, "{side:?} {response}");
    }
    let odd = json!({ "uid": "1", "allowed": false, "warnings": ["a", "", "b\nc", 1, "d"] });
    let found = verify_response(ReviewVersion::V1, Validating, "1", document(&odd)).unwrap();
    assert_eq!(found.warnings, ["a", "d"]);
    assert_eq!(found.verdict, AdmissionVerdict::Denied(Value::Null));
}

#[test]
fn a_denial_keeps_the_status_of_the_webhook() {
    let said = "admission webhook \"w\" denied the request";
    let table = [
        // status, code, message, reason, status of the response
        (Value::Null, 400, format!("{said} without explanation"), Value::Null, "Failure"),
        (json!({ "message": "no" }), 400, format!("{said}: no"), Value::Null, "Failure"),
        (json!({ "reason": "Odd" }), 400, format!("{said}: Odd"), json!("Odd"), "Failure"),
        (
            json!({ "code": 403, "message": "no", "reason": "Forbidden" }),
            403,
            format!("{said}: no"),
            json!("Forbidden"),
            "Failure",
        ),
        (
            json!({ "code": 201, "status": "Success" }),
            400,
            format!("{said} without explanation"),
            Value::Null,
            "Failure",
        ),
        (
            json!({ "code": 500, "status": "Other" }),
            500,
            format!("{said} without explanation"),
            Value::Null,
            "Other",
        ),
    ];
    for (status, code, message, reason, word) in table {
        let refusal = denial_error("w", AdmissionVerdict::Denied(status.clone())).unwrap();
        let found = refusal.document();
        assert_eq!(refusal.code.as_u16(), code, "{status}");
        assert_eq!(found["message"], json!(message), "{status}");
        assert_eq!(found["reason"], reason, "{status}");
        assert_eq!(found["status"], json!(word), "{status}");
    }
    assert_eq!(denial_error("w", AdmissionVerdict::Allowed), None);
    let later = json!({ "details": { "retryAfterSeconds": 3 } });
    assert_eq!(denial_error("w", AdmissionVerdict::Denied(later)).unwrap().retry_after(), Some(3));
}

#[test]
fn a_patch_changes_the_object_or_returns_an_error() {
    let parts = RequestParts::new(Some(json!({ "data": { "a": "1" } })));
    let patch = |text: &str| json!({ "type": "JSONPatch", "text": STANDARD.encode(text) });
    let done = |patch: &Value, parts: &RequestParts| {
        apply_patch("w", &parts.request(), patch).map_err(|failure| format!("{failure:?}"))
    };
    let add = patch(r#"[{"op":"add","path":"/data/b","value":"2"}]"#);
    let changed = json!({ "data": { "a": "1", "b": "2" } });
    assert_eq!(done(&add, &parts), Ok(Some(changed)));
    assert_eq!(done(&patch("[]"), &parts), Ok(parts.object.clone()));
    let nothing = RequestParts::new(None);
    assert_eq!(done(&patch("[]"), &nothing), Ok(None));
    assert!(done(&add, &nothing).unwrap_err().contains("attempted to modify the object"));
    let table = [
        (patch("no"), "received undecodable patch"),
        (patch("{}"), "cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (patch(r#"[{"op":"test","path":"/data/a","value":"2"}]"#), "test failed"),
    ];
    for (patch, expected) in table {
        let found = done(&patch, &parts).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    let mut other = add;
    other["type"] = json!("MergePatch");
    assert!(done(&other, &parts).unwrap_err().contains("unsupported patch type"));
}

#[test]
fn a_response_of_wrong_types_is_not_read() {
    let table = [
        (
            json!({ "allowed": "yes" }),
            "string into Go struct field AdmissionResponse.response.allowed of type bool",
        ),
        (
            json!({ "uid": 1 }),
            "number into Go struct field AdmissionResponse.response.uid of type types.UID",
        ),
        (json!({ "patch": "???" }), "illegal base64 data at input byte 0"),
    ];
    for (response, expected) in table {
        let text = document(&response).to_string();
        let found = read_response(ReviewVersion::V1, text.as_bytes()).unwrap_err();
        assert!(found.ends_with(expected), "{found}");
    }
}
