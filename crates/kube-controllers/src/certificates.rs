//! Signs approved certificate signing requests.
//!
//! What may be signed follows from the signer that a request names; the rules are those of the
//! controller manager of Kubernetes. The key is not here: a [`CertificateAuthority`] parses
//! requests and signs them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, ObjectReference, Plan, Subresource, View as _, World,
    Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::view::CertificateSigningRequest;

/// Parses certificate signing requests, and signs them.
pub trait CertificateAuthority: fmt::Debug + Send + Sync {
    /// Parses a request in base64.
    ///
    /// # Errors
    /// Why it cannot be parsed.
    fn parse_request(&self, request: &str) -> Result<RequestedCertificate, String>;

    /// Signs a certificate, in base64, for a request: for these usages, and for this many seconds
    /// if that is within the authority's limits.
    ///
    /// # Errors
    /// Why it cannot be signed.
    fn sign(
        &self,
        request: &str,
        usages: &[String],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, String>;
}

/// The content of a certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedCertificate {
    /// The common name: the user or node.
    pub common_name: String,
    /// The organizations: the groups.
    pub organizations: Vec<String>,
    /// The number of DNS names.
    pub dns_names: usize,
    /// The number of IP addresses.
    pub addresses: usize,
    /// The number of email addresses.
    pub emails: usize,
    /// The number of URIs.
    pub uris: usize,
}

/// Signs approved requests for the built-in signers of Kubernetes.
#[derive(Clone, Debug)]
pub struct CertificateSigner {
    authority: Arc<dyn CertificateAuthority>,
}

impl CertificateSigner {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "certificate-controller";

    /// Creates a controller that signs with this authority.
    #[must_use]
    pub fn new(authority: Arc<dyn CertificateAuthority>) -> Self {
        Self { authority }
    }
}

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The group with all permissions; no certificate is signed for it.
const SUPERUSER_GROUP: &str = "system:masters";
/// How long after a failure a request is retried.
const RETRY_DELAY: SignedDuration = SignedDuration::from_mins(1);

impl Controller for CertificateSigner {
    fn name(&self) -> &'static str {
        "certificate-signer"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<CertificateSigningRequest>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let request = world.store::<CertificateSigningRequest>().get(key);
        request.map(|it| plan(&it, &*self.authority, now)).unwrap_or_default()
    }
}

fn plan(
    request: &CertificateSigningRequest,
    authority: &dyn CertificateAuthority,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let spec = &request.spec;
    let signers = [CLIENT_SIGNER, KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER];
    if !request.is_to_be_signed() || !signers.contains(&spec.signer_name.as_str()) {
        return plan;
    }
    let about = ObjectReference::to(&CertificateSigningRequest::RESOURCE, &request.metadata);
    let held = |reason, message| Held {
        about,
        reason: Cow::Borrowed(reason),
        message,
        until: now.checked_add(RETRY_DELAY).ok(),
    };
    let requested = match authority.parse_request(&spec.request) {
        Ok(requested) => requested,
        Err(why) => {
            plan.hold(held("Unreadable", format!("cannot parse the request: {why}")), now);
            return plan;
        }
    };
    if let Err(why) = check_request(&spec.signer_name, &requested, &spec.usages) {
        plan.write(status_patch(
            request,
            &json!({"conditions": failed_conditions(request, &why, now)}),
        ));
        return plan;
    }
    match authority.sign(&spec.request, &spec.usages, spec.expiration_seconds, now) {
        Ok(certificate) => plan.write(status_patch(request, &json!({"certificate": certificate}))),
        Err(why) => plan.hold(held("NotSigned", format!("cannot sign the request: {why}")), now),
    }
    plan
}

fn status_patch(request: &CertificateSigningRequest, status: &Value) -> Write {
    Write::Merge {
        resource: CertificateSigningRequest::RESOURCE,
        key: request.metadata.key(),
        subresource: Subresource::Status,
        fence: request.metadata.fence(),
        body: json!({"status": status}),
    }
}

/// Returns the conditions of a request with the failure added.
fn failed_conditions(request: &CertificateSigningRequest, why: &str, now: Timestamp) -> Vec<Value> {
    let mut conditions = request.status.conditions.clone();
    conditions.push(json!({
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": why,
        "lastUpdateTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }));
    conditions
}

/// Checks whether a signer accepts a request; the error has the text of Kubernetes.
fn check_request(
    signer: &str,
    requested: &RequestedCertificate,
    usages: &[String],
) -> Result<(), String> {
    match signer {
        CLIENT_SIGNER => {
            if requested.organizations.iter().any(|it| it == SUPERUSER_GROUP) {
                // Admission rejects it too, unless that plugin is disabled.
                return Err(format!(
                    "use of {CLIENT_SIGNER} signer with {SUPERUSER_GROUP} group is not allowed"
                ));
            }
            check_client_usages(usages)
        }
        KUBELET_CLIENT_SIGNER => {
            check_node_organization(requested)?;
            let names = [
                (requested.dns_names, "DNS"),
                (requested.emails, "Email"),
                (requested.addresses, "IP"),
                (requested.uris, "URI"),
            ];
            check_names(&names)?;
            check_node_name(requested)?;
            check_node_usages(usages, "client auth")
        }
        _ => {
            check_node_organization(requested)?;
            if requested.dns_names == 0 && requested.addresses == 0 {
                return Err("DNS or IP subjectAltName is required".to_owned());
            }
            check_names(&[(requested.emails, "Email"), (requested.uris, "URI")])?;
            check_node_usages(usages, "server auth")?;
            check_node_name(requested)
        }
    }
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    let allowed = ["client auth", "digital signature", "key encipherment"];
    match usages.iter().find(|it| !allowed.contains(&it.as_str())) {
        Some(usage) => Err(format!("invalid usage for client certificate: {usage}")),
        None if usages.iter().any(|it| it == "client auth") => Ok(()),
        None => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

fn check_node_organization(requested: &RequestedCertificate) -> Result<(), String> {
    match requested.organizations[..] == ["system:nodes"] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_owned()),
    }
}

fn check_node_name(requested: &RequestedCertificate) -> Result<(), String> {
    match requested.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

fn check_names(names: &[(usize, &str)]) -> Result<(), String> {
    match names.iter().find(|(count, _)| *count > 0) {
        None => Ok(()),
        Some((_, kind)) => Err(format!("{kind} subjectAltNames are not allowed")),
    }
}

/// Checks the usages of a node's certificate: only RSA keys have `key encipherment`.
fn check_node_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let short = BTreeSet::from(["digital signature", purpose]);
    let mut whole = short.clone();
    whole.insert("key encipherment");
    match given == short || given == whole {
        true => Ok(()),
        false => {
            let whole: Vec<&str> = whole.into_iter().collect();
            Err(format!("usages did not match [{}]", whole.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_harness::{Faults, Scenario, Server, UserAction};
    use gantry_reconcile::{Resource, View};

    use super::*;
    use crate::test_world::{assert_proof, faulty_objects, is_faulty};

    /// Parses a request from its plain text.
    #[derive(Debug)]
    struct FakeAuthority;

    impl CertificateAuthority for FakeAuthority {
        fn parse_request(&self, request: &str) -> Result<RequestedCertificate, String> {
            let (organization, common_name) = request.split_once(' ').ok_or("no words")?;
            Ok(RequestedCertificate {
                common_name: common_name.to_owned(),
                organizations: vec![organization.to_owned()],
                ..RequestedCertificate::default()
            })
        }

        fn sign(
            &self,
            request: &str,
            _: &[String],
            seconds: Option<i64>,
            _: Timestamp,
        ) -> Result<String, String> {
            Ok(format!("{request} for {seconds:?}"))
        }
    }

    fn request(name: &str, text: &str, conditions: &[&str]) -> (Resource, Value) {
        let condition = |kind: &&str| json!({"type": kind, "status": "True"});
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "request": text, "signerName": CLIENT_SIGNER, "usages": ["client auth"],
                "expirationSeconds": 600,
            },
            "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
        });
        (CertificateSigningRequest::RESOURCE, object)
    }

    #[test]
    fn signers_check_their_requests() {
        let node = RequestedCertificate {
            common_name: "system:node:a".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..RequestedCertificate::default()
        };
        let serving = RequestedCertificate { addresses: 1, ..node.clone() };
        let user =
            RequestedCertificate { common_name: "u".to_owned(), ..RequestedCertificate::default() };
        let master = RequestedCertificate {
            organizations: vec!["a".into(), SUPERUSER_GROUP.into()],
            ..user.clone()
        };
        let stranger = RequestedCertificate { organizations: vec!["x".to_owned()], ..node.clone() };
        let misnamed = RequestedCertificate { common_name: "a".to_owned(), ..serving.clone() };
        let client = ["client auth", "digital signature"];
        let server = ["server auth", "digital signature", "key encipherment"];
        let table: [(&str, &RequestedCertificate, &[&str], &str); 15] = [
            (CLIENT_SIGNER, &user, &client, ""),
            (CLIENT_SIGNER, &user, &["client auth"], ""),
            (CLIENT_SIGNER, &user, &server, "invalid usage for client certificate: server auth"),
            (
                CLIENT_SIGNER,
                &user,
                &["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
            (
                CLIENT_SIGNER,
                &master,
                &client,
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not \
                 allowed",
            ),
            (KUBELET_CLIENT_SIGNER, &node, &client, ""),
            (KUBELET_CLIENT_SIGNER, &stranger, &client, "subject organization is not system:nodes"),
            (KUBELET_CLIENT_SIGNER, &serving, &client, "IP subjectAltNames are not allowed"),
            (
                KUBELET_CLIENT_SIGNER,
                &node,
                &["client auth"],
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (KUBELET_SERVING_SIGNER, &serving, &server, ""),
            (KUBELET_SERVING_SIGNER, &serving, &server[..2], ""),
            (KUBELET_SERVING_SIGNER, &node, &server, "DNS or IP subjectAltName is required"),
            (
                KUBELET_SERVING_SIGNER,
                &serving,
                &client,
                "usages did not match [digital signature key encipherment server auth]",
            ),
            (
                KUBELET_SERVING_SIGNER,
                &misnamed,
                &server,
                "subject common name does not begin with system:node:",
            ),
            (
                KUBELET_SERVING_SIGNER,
                &RequestedCertificate { uris: 1, ..serving.clone() },
                &server,
                "URI subjectAltNames are not allowed",
            ),
        ];
        for (signer, content, usages, expected) in table {
            let usages: Vec<String> = usages.iter().map(|it| (*it).to_owned()).collect();
            let said = check_request(signer, content, &usages).err().unwrap_or_default();
            assert_eq!(said, expected, "{signer} {content:?}");
        }
    }

    #[test]
    fn only_approved_requests_of_known_signers_are_signed() {
        let of = |conditions: &[&str], change: &dyn Fn(&mut Value)| -> Plan {
            let (_, mut object) = request("r", "group user", conditions);
            change(&mut object);
            let request: CertificateSigningRequest = serde_json::from_value(object).unwrap();
            plan(&request, &FakeAuthority, Timestamp::UNIX_EPOCH)
        };
        let nothing = |_: &mut Value| {};
        let quiet = [
            of(&[], &nothing),
            of(&["Denied"], &nothing),
            of(&["Approved", "Denied"], &nothing),
            of(&["Approved", "Failed"], &nothing),
            of(&["Approved"], &|it| it["spec"]["signerName"] = json!("example.com/x")),
            of(&["Approved"], &|it| {
                it["spec"]["signerName"] = json!("kubernetes.io/legacy-unknown");
            }),
            of(&["Approved"], &|it| it["status"]["certificate"] = json!("eA==")),
            of(&["Approved"], &|it| {
                it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
        ];
        for plan in quiet {
            assert!(plan.is_noop() && plan.held.is_empty(), "{plan:?}");
        }
        let signed = of(&["Approved"], &nothing);
        let Write::Merge { body, subresource: Subresource::Status, .. } = &signed.steps[0].write
        else {
            panic!("{signed:?}")
        };
        let expected = json!({"status": {"certificate": "group user for Some(600)"}});
        assert_eq!(*body, expected);
        let refused = of(&["Approved"], &|it| it["spec"]["usages"] = json!(["server auth"]));
        let Write::Merge { body, .. } = &refused.steps[0].write else { panic!("{refused:?}") };
        let conditions = body["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["type"], "Approved");
        let expected = json!({
            "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
            "message": "invalid usage for client certificate: server auth",
            "lastUpdateTime": "1970-01-01T00:00:00Z",
        });
        assert_eq!(conditions[1], expected);
        let unreadable = of(&["Approved"], &|it| it["spec"]["request"] = json!("x"));
        assert_eq!(unreadable.held.len(), 1);
    }

    #[test]
    fn signing_converges() {
        let signer = CertificateSigner::new(Arc::new(FakeAuthority));
        let controllers: [&dyn Controller; 1] = [&signer];
        let approve: UserAction = Box::new(|server: &mut Server| {
            server.edit(&CertificateSigningRequest::RESOURCE, &Key::cluster("b"), |it| {
                it["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
            });
        });
        let scenario = Scenario {
            controllers: &controllers,
            // An API server drops the status of a created object, so the test sets it later.
            defaults: |_, object| {
                let text = object["spec"]["request"].as_str().unwrap_or_default();
                let decision = match text {
                    "group b" => return,
                    "group c" => "Denied",
                    _ => "Approved",
                };
                if object["status"].is_null() {
                    object["status"]["conditions"] = json!([{"type": decision, "status": "True"}]);
                }
            },
            objects: vec![
                request("a", "group a", &["Approved"]),
                request("b", "group b", &[]),
                request("c", "group c", &["Denied"]),
                request("d", "system:masters d", &["Approved"]),
            ],
            script: vec![approve],
            replicas: 2,
            horizon: std::time::Duration::from_secs(60),
            ..Scenario::default()
        };
        let shape = |server: &Server| {
            let all = server.list(&CertificateSigningRequest::RESOURCE).into_iter();
            let all = all.filter(|it| !is_faulty(&it["metadata"]["name"]));
            let kinds = |it: &Value| -> Vec<Value> {
                let conditions = it["status"]["conditions"].as_array().cloned();
                conditions.unwrap_or_default().iter().map(|it| it["type"].clone()).collect()
            };
            all.map(|it| json!([it["status"]["certificate"], kinds(it)])).collect()
        };
        let calm: Value = shape(&scenario.run(0, Faults::none()).unwrap().server);
        let expected = json!([
            ["group a for Some(600)", ["Approved"]],
            ["group b for Some(600)", ["Approved"]],
            [null, ["Denied"]],
            [null, ["Approved", "Failed"]],
        ]);
        assert_eq!(calm, expected);
        assert_proof(scenario.prove(0..4, shape));
        let odd = |name: &str| request(name, "group x", &["Approved"]);
        let bad = faulty_objects("r", "/spec/expirationSeconds", odd);
        assert_proof(scenario.prove_isolation(&bad, 0..2, shape));
        assert_eq!(CertificateSigningRequest::RESOURCE.plural, "certificatesigningrequests");
    }
}
