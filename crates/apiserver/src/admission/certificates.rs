//! Requests for certificates: what is checked of them, and who may approve and sign them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_rbac::Attributes;
use gantry_schema::Invalid;
use gantry_serve::pki::{CertificateRequest, MASTERS, RequestError};
use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::api::Api;
use crate::plugins::Plugin;
use crate::rules::REQUESTS;
use crate::status::Refusal;

const GROUP: &str = "certificates.k8s.io";
/// The signer of certificates by which clients are known.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// What is wrong with what is asked for: it must be a request that whoever holds the key has made.
pub(crate) fn request_fault(object: &Value) -> Option<Invalid> {
    let fault = parse(object).and_then(|request| request.check_signature()).err()?;
    Some(Invalid::value("spec.request", &object["spec"]["request"], &fault.to_string()))
}

fn parse(object: &Value) -> Result<CertificateRequest, RequestError> {
    let text = object["spec"]["request"].as_str().unwrap_or_default();
    CertificateRequest::parse(&STANDARD.decode(text).map_err(|_| RequestError::Pem)?)
}

impl Api {
    /// CertificateApproval, CertificateSigning and CertificateSubjectRestriction: nobody approves or
    /// signs for a signer without the right to it, and nobody becomes an administrator by a request.
    pub(crate) fn check_certificates(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        if review.resource.space != REQUESTS {
            return Ok(());
        }
        let plugins = &self.0.settings.plugins;
        match (review.operation, review.subresource, review.old, object) {
            (Operation::Create, "", _, Some(new))
                if plugins.has(Plugin::CertificateSubjectRestriction) =>
            {
                check_subject(review, new)
            }
            (Operation::Update, "approval", Some(old), _)
                if plugins.has(Plugin::CertificateApproval) =>
            {
                self.check_signer(review, object, old, "approve")
            }
            (Operation::Update, "status", Some(old), Some(new))
                if plugins.has(Plugin::CertificateSigning) && is_decided_otherwise(old, new) =>
            {
                self.check_signer(review, object, old, "sign")
            }
            _ => Ok(()),
        }
    }

    /// Whether the caller has a right on the signer of a stored request, or on all of its domain.
    fn check_signer(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: &Value,
        verb: &str,
    ) -> Result<(), Refusal> {
        let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let asked = Attributes::resource(verb, GROUP, "signers");
        let names = [signer.to_owned(), format!("{domain}/*")];
        let allowed =
            |name: &String| self.authorize(review.caller, &asked.clone().named(name)).allowed;
        if names.iter().any(allowed) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(review.forbidden(object, &why))
    }
}

/// Whether a status write changes what a signer says.
fn is_decided_otherwise(old: &Value, new: &Value) -> bool {
    let list = |it: &Value| it["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let certificate = |it: &Value| it["status"]["certificate"].as_str().unwrap_or("").to_owned();
    list(old) != list(new) || certificate(old) != certificate(new)
}

fn check_subject(review: &Review<'_>, object: &Value) -> Result<(), Refusal> {
    if object["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    let request = parse(object).map_err(|fault| {
        review.forbidden(Some(object), &format!("failed to parse CSR: {fault}"))
    })?;
    if request.organizations.iter().any(|group| group == MASTERS) {
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(review.forbidden(Some(object), &why));
    }
    Ok(())
}
