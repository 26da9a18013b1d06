//! Admission of CertificateSigningRequests: their validation, and who may approve and sign them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_rbac::Attributes;
use gantry_schema::FieldError;
use gantry_serve::pki::{CertificateRequest, MASTERS, RequestError};
use serde_json::Value;

use crate::admission::admission_plugins::AdmissionPlugin;
use crate::admission::{Operation, Review};
use crate::api::Api;
use crate::resource::strategy::AdmissionRules;
use crate::response::status::StatusError;

const GROUP: &str = "certificates.k8s.io";
/// The signer of client certificates.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Returns what is wrong with the request in the specification: it must be signed with its own key.
pub(crate) fn request_error(object: &Value) -> Option<FieldError> {
    let fault = parse(object).and_then(|request| request.check_signature()).err()?;
    Some(FieldError::invalid("spec.request", &object["spec"]["request"], &fault.to_string()))
}

fn parse(object: &Value) -> Result<CertificateRequest, RequestError> {
    let text = object["spec"]["request"].as_str().unwrap_or_default();
    CertificateRequest::parse(&STANDARD.decode(text).map_err(|_| RequestError::Pem)?)
}

impl Api {
    /// Implements CertificateApproval, CertificateSigning and CertificateSubjectRestriction: users
    /// need the permission to approve or sign for a signer, and cannot request membership in the
    /// administrators' group.
    pub(crate) fn check_certificates(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        if review.resource.strategy.admission != AdmissionRules::CertificateSigningRequest {
            return Ok(());
        }
        let plugins = &self.0.settings.plugins;
        match (review.operation, review.subresource, review.old, object) {
            (Operation::Create, "", _, Some(new))
                if plugins.is_enabled(AdmissionPlugin::CertificateSubjectRestriction) =>
            {
                check_subject(review, new)
            }
            (Operation::Update, "approval", Some(old), _)
                if plugins.is_enabled(AdmissionPlugin::CertificateApproval) =>
            {
                self.check_signer(review, object, old, "approve")
            }
            (Operation::Update, "status", Some(old), Some(new))
                if plugins.is_enabled(AdmissionPlugin::CertificateSigning)
                    && changes_certificate(old, new) =>
            {
                self.check_signer(review, object, old, "sign")
            }
            _ => Ok(()),
        }
    }

    /// Whether the caller has a permission on the signer of a stored request, or on all signers of
    /// its domain.
    fn check_signer(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: &Value,
        verb: &str,
    ) -> Result<(), StatusError> {
        let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let asked = Attributes::resource(verb, GROUP, "signers");
        let names = [signer.to_owned(), format!("{domain}/*")];
        let allowed =
            |name: &String| self.authorize(review.caller, &asked.clone().with_name(name)).allowed;
        if names.iter().any(allowed) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(review.forbidden(object, &why))
    }
}

/// Whether a status write changes what only a signer may set.
fn changes_certificate(old: &Value, new: &Value) -> bool {
    let list = |it: &Value| it["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let certificate = |it: &Value| it["status"]["certificate"].as_str().unwrap_or("").to_owned();
    list(old) != list(new) || certificate(old) != certificate(new)
}

fn check_subject(review: &Review<'_>, object: &Value) -> Result<(), StatusError> {
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
