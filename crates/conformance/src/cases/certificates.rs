//! Requests for certificates: who may ask for, approve and sign what.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::objects::{condition, object_path, wait_until};
use super::roles::{allow_everywhere, as_user, wait_until_allowed};
use crate::case::{Case, CaseError, Outcome, case, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("certificate-requests-of-administrators", [], administrators),
    case!("certificate-requests-that-are-wrong", [], invalid_requests),
    case!("certificate-approval-needs-a-right", [], approval),
    case!("certificate-status-needs-a-right", [], signing),
    case!("certificate-requests-are-decided-once", [], decided_once),
];

/// What a whole cluster does with them.
pub(super) const CLUSTER_CASES: &[Case] = &[
    case!("approved-certificates-are-signed", [], signed),
    case!("certificates-against-the-rules-of-a-signer", [], refused),
];

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A user in a group.
const USER: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIYU1JR0FBZ0VBTUI0eERUQUxCZ05WQkFvTUJIUmxZ",
    "VzB4RFRBTEJnTlZCQU1NQkhWelpYSXdXVEFUQmdjcQpoa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVFGZXJVdGI3Nytq",
    "ZGVlY0hqdnRDV0w0M0tFUitTZVJrbXZUbCtKCkN6TDN4QnI3MTBsb3l4T0YrU0QvU1lhVXJwNDV6TGtxY2poZFZTcDFM",
    "Q3liTzN3Nm9BQXdDZ1lJS29aSXpqMEUKQXdJRFNRQXdSZ0loQUxEL1dTYStLNkxhQVl5NFBXaFphRmpXU3FjblM5Q2Fl",
    "SEd1NEp5ZGF3Q05BaUVBbUlWMgpUdUJOZFZxWGk5cERxZEIvTmQ5dWJKQ0VYTkRDT08vRXFkczAvclU9Ci0tLS0tRU5E",
    "IENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=",
);
/// A user who wants to be an administrator.
const ADMINISTRATOR: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIa01JR0tBZ0VBTUNneEZ6QVZCZ05WQkFvTURuTjVj",
    "M1JsYlRwdFlYTjBaWEp6TVEwd0N3WURWUVFEREFSMQpjMlZ5TUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RR",
    "Z0FFUjdXcWIvWnpHMlJFN2orNllGSWp5dzJyCmMwVGRFVUZKbzJJZitCdzh1cndGM3IvS01pd3Z1U0E0QUU4SjVSaDd6",
    "eWhlK21WREhKUkdyTVliSWg3VzE2QUEKTUFvR0NDcUdTTTQ5QkFNQ0Ewa0FNRVlDSVFEWktBSTRYd3RtMWQwVXpwUnBQ",
    "QnNmYTFGZ0FpdnVLSjFsZnpOKwpJWjRBckFJaEFKVlViOEtjbFhJa2wzb2JkYnZETkhsUGJ0bHVFNkF4ZGxhZExVVUFQ",
    "M0dGCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=",
);
/// A node as a client.
const NODE: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIcE1JR1JBZ0VBTUM4eEZUQVRCZ05WQkFvTURITjVj",
    "M1JsYlRwdWIyUmxjekVXTUJRR0ExVUVBd3dOYzNsegpkR1Z0T201dlpHVTZZVEJaTUJNR0J5cUdTTTQ5QWdFR0NDcUdT",
    "TTQ5QXdFSEEwSUFCQU5zWGkzcEUycmJZb3FUClhOcExaZS9qa0VuMWJmdVhLdElPSnFyTkV6blljWHR1ZUhnNUxEK280",
    "Si83MTRZVWR5d2dhYUFzT0hhTEs1TUgKOXRpTHJKaWdBREFLQmdncWhrak9QUVFEQWdOSEFEQkVBaUFuUy8vd3dkcmN2",
    "dnk4cEZDUGZtd3JXdGhGM1lUbApCS25xOHNML0FYWWhpZ0lnSzU5RlVlQWt2VmJXaC9iRVMxYnk1dXpQMjRnU2dwWlZQ",
    "bzN0Q2diaFF0Yz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==",
);
/// A node as a server, with a name and an address.
const SERVING: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkZEQ0J1d0lCQURBdk1SVXdFd1lEVlFRS0RBeHpl",
    "WE4wWlcwNmJtOWtaWE14RmpBVUJnTlZCQU1NRFhONQpjM1JsYlRwdWIyUmxPbUV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Fo",
    "a2pPUFFNQkJ3TkNBQVFEYkY0dDZSTnEyMktLCmsxemFTMlh2NDVCSjlXMzdseXJTRGlhcXpSTTUySEY3Ym5oNE9Tdy9x",
    "T0NmKzllR0ZIY3NJR21nTERoMml5dVQKQi9iWWk2eVlvQ293S0FZSktvWklodmNOQVFrT01Sc3dHVEFYQmdOVkhSRUVF",
    "REFPZ2daaExuUmxjM1NIQkFvQQpBQUV3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUloQU5hQTlpenpGZmIrV01UVG9kaWlF",
    "SjV6aGNKT0Y1ZS94T0FuCkUwamlRQjNNQWlBZytFZG9FWkJKV0UxNmFyM3VRZHI5bVBoODBsWVpobnBJWkdxQlVobmsv",
    "QT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=",
);

/// A request for a certificate.
fn request(name: &str, signer: &str, text: &str, usages: &[&str]) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": { "request": text, "signerName": signer, "usages": usages },
    })
}

/// Makes a request and has it deleted when the case is over. Not part of the transcript: who asks
/// is called otherwise on each server.
async fn create_request(talk: &mut Session, object: &Value) -> Result<Response, CaseError> {
    let made = talk.send_unrecorded(RequestSpec::post(REQUESTS, object)).await?.expect(201)?;
    talk.delete_at_end(&object_path(REQUESTS, &made.string("/metadata/name")));
    Ok(made)
}

/// The request with this decision about it.
fn with_decision(made: &Response, decision: &str) -> Value {
    let mut object = made.at("").clone();
    let condition = json!({ "type": decision, "status": "True", "reason": "Case" });
    object["status"]["conditions"] = json!([condition]);
    object
}

/// Writes a decision through `/approval`.
fn update_approval(made: &Response, decision: &str) -> RequestSpec {
    let path = object_path(REQUESTS, &format!("{}/approval", made.string("/metadata/name")));
    RequestSpec::put(path, &with_decision(made, decision))
}

const USAGES: [&str; 2] = ["digital signature", "client auth"];

async fn administrators(talk: &mut Session) -> Outcome {
    let object = request("{ns}-a", CLIENT, ADMINISTRATOR, &USAGES);
    let message = talk.with_namespace(
        "certificatesigningrequests.certificates.k8s.io \"{ns}-a\" is forbidden: use of \
         kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    );
    talk.post(REQUESTS, &object).await?.expect_error(403, "Forbidden", &message)?;
    // Other signers may sign what they like.
    create_request(talk, &request("{ns}-b", "case.test/signer", ADMINISTRATOR, &USAGES)).await?;
    Ok(())
}

async fn invalid_requests(talk: &mut Session) -> Outcome {
    // The block says what it is, and is not.
    let other = STANDARD.encode("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n");
    let mut legacy = request("{ns}-a", "kubernetes.io/legacy-unknown", USER, &USAGES);
    let long = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    let table = [
        (
            request("{ns}-a", CLIENT, USER, &[]),
            "spec.usages",
            "FieldValueRequired",
            "Required value".to_owned(),
        ),
        (
            request("{ns}-a", CLIENT, USER, &["signing", "signing"]),
            "spec.usages[1]",
            "FieldValueDuplicate",
            "Duplicate value: \"signing\"".to_owned(),
        ),
        (
            request("{ns}-a", "a", USER, &USAGES),
            "spec.signerName",
            "FieldValueInvalid",
            format!("Invalid value: \"a\": {long}"),
        ),
        (
            request("{ns}-a", "case.test/s", &other, &USAGES),
            "spec.request",
            "FieldValueInvalid",
            format!("Invalid value: \"{other}\": PEM block type must be CERTIFICATE REQUEST"),
        ),
        (
            legacy.clone(),
            "spec.signerName",
            "FieldValueInvalid",
            "Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed \
             via this API version"
                .to_owned(),
        ),
    ];
    for (object, field, reason, message) in table {
        let answer =
            talk.send_unrecorded(RequestSpec::post(REQUESTS, &object)).await?.expect(422)?;
        answer.has_causes(&[(field, reason, &message)])?;
    }
    legacy["spec"]["signerName"] = json!(CLIENT);
    legacy["spec"]["expirationSeconds"] = json!(599);
    let answer = talk.send_unrecorded(RequestSpec::post(REQUESTS, &legacy)).await?.expect(422)?;
    let message =
        "Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)";
    answer.has_causes(&[("spec.expirationSeconds", "FieldValueInvalid", message)])
}

/// What a user who approves or signs is asked for.
fn signer_rule(verb: &str, name: &str) -> Value {
    json!({ "verb": verb, "group": "certificates.k8s.io", "resource": "signers", "name": name })
}

async fn approval(talk: &mut Session) -> Outcome {
    let briefs = ["certificates.k8s.io certificatesigningrequests/approval update"];
    let user = talk.with_namespace("{ns}-user");
    allow_everywhere(talk, &user, &briefs).await?;
    let attributes = json!({
        "verb": "update", "group": "certificates.k8s.io",
        "resource": "certificatesigningrequests", "subresource": "approval",
    });
    wait_until_allowed(talk, &user, &attributes).await?;
    let made = create_request(talk, &request("{ns}-a", "case.test/signer", USER, &USAGES)).await?;
    let message = talk.with_namespace(
        "certificatesigningrequests.certificates.k8s.io \"{ns}-a\" is forbidden: user not \
         permitted to approve requests with signerName \"case.test/signer\"",
    );
    let answer = talk.send(as_user(&user, update_approval(&made, "Approved"))).await?;
    answer.expect_error(403, "Forbidden", &message)?;
    // The right to all signers of the domain is as good as that to the one.
    let signers = ["certificates.k8s.io signers approve case.test/*"];
    let rules = json!({ "rules": super::roles::rules(&[briefs[0], signers[0]]) });
    let role = object_path(super::roles::CLUSTER_ROLES, &user);
    talk.send_unrecorded(RequestSpec::patch(role, PatchType::Merge, &rules)).await?.expect(200)?;
    wait_until_allowed(talk, &user, &signer_rule("approve", "case.test/*")).await?;
    let answer = talk
        .send_unrecorded(as_user(&user, update_approval(&made, "Approved")))
        .await?
        .expect(200)?;
    answer.has_value("/status/conditions/0/type", &json!("Approved"))?;
    expect_true("a time", answer.at("/status/conditions/0/lastTransitionTime").is_string())
}

async fn signing(talk: &mut Session) -> Outcome {
    let briefs = ["certificates.k8s.io certificatesigningrequests/status patch"];
    let user = talk.with_namespace("{ns}-user");
    allow_everywhere(talk, &user, &briefs).await?;
    let attributes = json!({
        "verb": "patch", "group": "certificates.k8s.io",
        "resource": "certificatesigningrequests", "subresource": "status",
    });
    wait_until_allowed(talk, &user, &attributes).await?;
    create_request(talk, &request("{ns}-a", "case.test/signer", USER, &USAGES)).await?;
    let path = object_path(REQUESTS, "{ns}-a/status");
    let pem = STANDARD.encode("x");
    let message = talk.with_namespace(
        "certificatesigningrequests.certificates.k8s.io \"{ns}-a\" is forbidden: user not \
         permitted to sign requests with signerName \"case.test/signer\"",
    );
    let failed = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True" }] } });
    let answer =
        talk.send(as_user(&user, RequestSpec::patch(&path, PatchType::Merge, &failed))).await?;
    answer.expect_error(403, "Forbidden", &message)?;
    // No user may write what is not a certificate.
    let patch = json!({ "status": { "certificate": pem } });
    let answer = talk
        .send_unrecorded(RequestSpec::patch(&path, PatchType::Merge, &patch))
        .await?
        .expect(422)?;
    answer.has_causes(&[(
        "status.certificate",
        "FieldValueInvalid",
        "Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
    )])
}

async fn decided_once(talk: &mut Session) -> Outcome {
    let made = create_request(talk, &request("{ns}-a", "case.test/signer", USER, &USAGES)).await?;
    // Not by the status.
    let conditions = json!([{ "type": "Approved", "status": "True" }]);
    let patch = json!({ "status": { "conditions": conditions } });
    let path = object_path(REQUESTS, "{ns}-a/status");
    let answer = talk
        .send_unrecorded(RequestSpec::patch(path, PatchType::Merge, &patch))
        .await?
        .expect(422)?;
    let field = "status.conditions";
    let message = "Forbidden: updates may not add a condition of type \"Approved\"";
    answer.has_causes(&[(field, "FieldValueForbidden", message)])?;
    let approved = talk.send_unrecorded(update_approval(&made, "Approved")).await?.expect(200)?;
    let answer = talk.send_unrecorded(update_approval(&approved, "Denied")).await?.expect(422)?;
    let message = "Forbidden: updates may not remove a condition of type \"Approved\"";
    answer.has_causes(&[(field, "FieldValueForbidden", message)])
}

async fn signed(talk: &mut Session) -> Outcome {
    let serving = ["digital signature", "server auth"];
    let table = [
        ("{ns}-client", CLIENT, USER, USAGES),
        ("{ns}-kubelet", KUBELET_CLIENT, NODE, USAGES),
        ("{ns}-serving", KUBELET_SERVING, SERVING, serving),
    ];
    for (name, signer, text, usages) in table {
        let made = create_request(talk, &request(name, signer, text, &usages)).await?;
        made.has_no_value("/status/certificate")?;
        let approved = talk.send_unrecorded(update_approval(&made, "Approved")).await?;
        // A controller may approve what a node asks for by itself, and be faster.
        if approved.status != 409 || signer != KUBELET_CLIENT {
            approved.expect(200)?.has_no_value("/status/certificate")?;
        }
        let has = |answer: &Response| answer.at("/status/certificate").is_string();
        let ask = RequestSpec::get(object_path(REQUESTS, name));
        let signed = talk.send_until_unrecorded(ask, has).await?;
        let pem = STANDARD.decode(signed.string("/status/certificate")).unwrap_or_default();
        expect_true("a certificate", pem.starts_with(b"-----BEGIN CERTIFICATE-----\n"))?;
        expect_true("that it is not failed", condition(&signed, "Failed").is_none())?;
    }
    Ok(())
}

async fn refused(talk: &mut Session) -> Outcome {
    let table = [
        (
            "{ns}-usage",
            CLIENT,
            USER,
            "server auth",
            "invalid usage for client certificate: server auth",
        ),
        (
            "{ns}-nobody",
            KUBELET_CLIENT,
            USER,
            "client auth",
            "subject organization is not system:nodes",
        ),
        (
            "{ns}-names",
            KUBELET_CLIENT,
            SERVING,
            "client auth",
            "DNS subjectAltNames are not allowed",
        ),
        (
            "{ns}-nameless",
            KUBELET_SERVING,
            NODE,
            "server auth",
            "DNS or IP subjectAltName is required",
        ),
        (
            "{ns}-usages",
            KUBELET_SERVING,
            SERVING,
            "client auth",
            "usages did not match [digital signature key encipherment server auth]",
        ),
    ];
    for (name, signer, text, usage, message) in table {
        let usages = ["digital signature", usage];
        let made = create_request(talk, &request(name, signer, text, &usages)).await?;
        talk.send_unrecorded(update_approval(&made, "Approved")).await?.expect(200)?;
        let says = |answer: &Response| {
            condition(answer, "Failed").is_some_and(|it| {
                it["status"] == "True"
                    && it["reason"] == "SignerValidationFailure"
                    && it["message"] == message
            })
        };
        wait_until(talk, &object_path(REQUESTS, name), says).await?;
    }
    Ok(())
}
