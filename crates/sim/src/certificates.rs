//! Certificates for requests that were approved.
//!
//! What may be signed follows from the signer that a request names; the rules are those of the
//! controller manager of Kubernetes. The key is not here: an [`CertificateAuthority`] reads what a
//! request asks for and signs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Part, Plan, Reference, View as _, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::view::CertificateSigningRequest;

/// Reads requests for certificates, and signs them.
pub trait CertificateAuthority: fmt::Debug + Send + Sync {
    /// What a request, in base64, asks for.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, request: &str) -> Result<Wish, String>;

    /// A certificate, in base64, for a request: for these usages, and for so many seconds if that is
    /// not too long or too short.
    ///
    /// # Errors
    /// Why there is none.
    fn sign(
        &self,
        request: &str,
        usages: &[String],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, String>;
}

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The name of the user or node.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
    /// How many DNS names it is to be for.
    pub dns_names: usize,
    /// How many addresses.
    pub addresses: usize,
    /// How many mail addresses.
    pub emails: usize,
    /// How many URIs.
    pub uris: usize,
}

/// Signs approved requests of the signers that Kubernetes itself has.
#[derive(Clone, Debug)]
pub struct CertificateSigner {
    authority: Arc<dyn CertificateAuthority>,
}

impl CertificateSigner {
    /// The account it acts as.
    pub const ACCOUNT: &str = "certificate-controller";

    /// Signs with this authority.
    #[must_use]
    pub fn new(authority: Arc<dyn CertificateAuthority>) -> Self {
        Self { authority }
    }
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The group that may do everything; nobody gets into it by a request.
const ADMINISTRATORS: &str = "system:masters";
/// After what time a request that could not be signed is tried again.
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
        let request = world.shelf::<CertificateSigningRequest>().get(key);
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
    let signers = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING];
    if !request.is_to_be_signed() || !signers.contains(&spec.signer_name.as_str()) {
        return plan;
    }
    let about = Reference::to(&CertificateSigningRequest::RESOURCE, &request.metadata);
    let held = |reason, message| Held {
        about,
        reason: Cow::Borrowed(reason),
        message,
        until: now.checked_add(RETRY_DELAY).ok(),
    };
    let wish = match authority.read(&spec.request) {
        Ok(wish) => wish,
        Err(why) => {
            plan.hold(held("Unreadable", format!("the request cannot be read: {why}")), now);
            return plan;
        }
    };
    if let Err(why) = check(&spec.signer_name, &wish, &spec.usages) {
        plan.write(status(request, &json!({"conditions": failed(request, &why, now)})));
        return plan;
    }
    match authority.sign(&spec.request, &spec.usages, spec.expiration_seconds, now) {
        Ok(certificate) => plan.write(status(request, &json!({"certificate": certificate}))),
        Err(why) => plan.hold(held("NotSigned", format!("cannot sign the request: {why}")), now),
    }
    plan
}

fn status(request: &CertificateSigningRequest, status: &Value) -> Write {
    Write::Merge {
        resource: CertificateSigningRequest::RESOURCE,
        key: request.metadata.key(),
        part: Part::Status,
        fence: request.metadata.fence(),
        body: json!({"status": status}),
    }
}

/// The conditions of a request, and that it cannot be signed.
fn failed(request: &CertificateSigningRequest, why: &str, now: Timestamp) -> Vec<Value> {
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

/// Whether a signer signs such a request, in the words of the original if not.
fn check(signer: &str, wish: &Wish, usages: &[String]) -> Result<(), String> {
    match signer {
        CLIENT => {
            if wish.organizations.iter().any(|it| it == ADMINISTRATORS) {
                // Admission refuses it too, unless that is switched off.
                return Err(format!(
                    "use of {CLIENT} signer with {ADMINISTRATORS} group is not allowed"
                ));
            }
            check_client_usages(usages)
        }
        KUBELET_CLIENT => {
            check_node_organization(wish)?;
            let names = [
                (wish.dns_names, "DNS"),
                (wish.emails, "Email"),
                (wish.addresses, "IP"),
                (wish.uris, "URI"),
            ];
            check_names(&names)?;
            check_node_name(wish)?;
            check_node_usages(usages, "client auth")
        }
        _ => {
            check_node_organization(wish)?;
            if wish.dns_names == 0 && wish.addresses == 0 {
                return Err("DNS or IP subjectAltName is required".to_owned());
            }
            check_names(&[(wish.emails, "Email"), (wish.uris, "URI")])?;
            check_node_usages(usages, "server auth")?;
            check_node_name(wish)
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

fn check_node_organization(wish: &Wish) -> Result<(), String> {
    match wish.organizations[..] == ["system:nodes"] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_owned()),
    }
}

fn check_node_name(wish: &Wish) -> Result<(), String> {
    match wish.common_name.starts_with("system:node:") {
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

/// Keys that are no RSA keys encipher none.
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
    use gantry_harness::{Action, Faults, Scenario, Server};
    use gantry_reconcile::{Resource, View};

    use super::*;
    use crate::stand::{bad, is_bad, proven};

    /// Reads a request as the words it is written with.
    #[derive(Debug)]
    struct Pretended;

    impl CertificateAuthority for Pretended {
        fn read(&self, request: &str) -> Result<Wish, String> {
            let (organization, common_name) = request.split_once(' ').ok_or("no words")?;
            Ok(Wish {
                common_name: common_name.to_owned(),
                organizations: vec![organization.to_owned()],
                ..Wish::default()
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
                "request": text, "signerName": CLIENT, "usages": ["client auth"],
                "expirationSeconds": 600,
            },
            "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
        });
        (CertificateSigningRequest::RESOURCE, object)
    }

    #[test]
    fn signers_sign_what_is_theirs() {
        let node = Wish {
            common_name: "system:node:a".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..Wish::default()
        };
        let serving = Wish { addresses: 1, ..node.clone() };
        let user = Wish { common_name: "u".to_owned(), ..Wish::default() };
        let master =
            Wish { organizations: vec!["a".into(), ADMINISTRATORS.into()], ..user.clone() };
        let stranger = Wish { organizations: vec!["x".to_owned()], ..node.clone() };
        let misnamed = Wish { common_name: "a".to_owned(), ..serving.clone() };
        let client = ["client auth", "digital signature"];
        let server = ["server auth", "digital signature", "key encipherment"];
        let table: [(&str, &Wish, &[&str], &str); 15] = [
            (CLIENT, &user, &client, ""),
            (CLIENT, &user, &["client auth"], ""),
            (CLIENT, &user, &server, "invalid usage for client certificate: server auth"),
            (
                CLIENT,
                &user,
                &["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
            (
                CLIENT,
                &master,
                &client,
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not \
                 allowed",
            ),
            (KUBELET_CLIENT, &node, &client, ""),
            (KUBELET_CLIENT, &stranger, &client, "subject organization is not system:nodes"),
            (KUBELET_CLIENT, &serving, &client, "IP subjectAltNames are not allowed"),
            (
                KUBELET_CLIENT,
                &node,
                &["client auth"],
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (KUBELET_SERVING, &serving, &server, ""),
            (KUBELET_SERVING, &serving, &server[..2], ""),
            (KUBELET_SERVING, &node, &server, "DNS or IP subjectAltName is required"),
            (
                KUBELET_SERVING,
                &serving,
                &client,
                "usages did not match [digital signature key encipherment server auth]",
            ),
            (
                KUBELET_SERVING,
                &misnamed,
                &server,
                "subject common name does not begin with system:node:",
            ),
            (
                KUBELET_SERVING,
                &Wish { uris: 1, ..serving.clone() },
                &server,
                "URI subjectAltNames are not allowed",
            ),
        ];
        for (signer, wish, usages, expected) in table {
            let usages: Vec<String> = usages.iter().map(|it| (*it).to_owned()).collect();
            let said = check(signer, wish, &usages).err().unwrap_or_default();
            assert_eq!(said, expected, "{signer} {wish:?}");
        }
    }

    #[test]
    fn only_approved_requests_of_known_signers_are_signed() {
        let of = |conditions: &[&str], change: &dyn Fn(&mut Value)| -> Plan {
            let (_, mut object) = request("r", "group user", conditions);
            change(&mut object);
            let request: CertificateSigningRequest = serde_json::from_value(object).unwrap();
            plan(&request, &Pretended, Timestamp::UNIX_EPOCH)
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
            assert!(plan.is_quiet() && plan.held.is_empty(), "{plan:?}");
        }
        let signed = of(&["Approved"], &nothing);
        let Write::Merge { body, part: Part::Status, .. } = &signed.steps[0].write else {
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
    fn requests_are_signed_in_the_same_way() {
        let signer = CertificateSigner::new(Arc::new(Pretended));
        let controllers: [&dyn Controller; 1] = [&signer];
        let approve: Action = Box::new(|server: &mut Server| {
            server.edit(&CertificateSigningRequest::RESOURCE, &Key::cluster("b"), |it| {
                it["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
            });
        });
        let scenario = Scenario {
            controllers: &controllers,
            // A server takes no status from whoever makes an object: it is decided about later.
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
            let all = all.filter(|it| !is_bad(&it["metadata"]["name"]));
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
        proven(scenario.prove(0..4, shape));
        let odd = |name: &str| request(name, "group x", &["Approved"]);
        let bad = bad("r", "/spec/expirationSeconds", odd);
        proven(scenario.prove_apart(&bad, 0..2, shape));
        assert_eq!(CertificateSigningRequest::RESOURCE.plural, "certificatesigningrequests");
    }
}
