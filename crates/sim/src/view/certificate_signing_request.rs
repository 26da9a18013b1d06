//! Requests for certificates.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

/// A request for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequest {
    /// Metadata.
    pub metadata: Meta,
    /// What is asked for.
    pub spec: CertificateSigningRequestSpec,
    /// What became of it.
    pub status: CertificateSigningRequestStatus,
}

impl View for CertificateSigningRequest {
    const RESOURCE: Resource = Resource::namespaced(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
    )
    .cluster_wide();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl CertificateSigningRequest {
    /// Whether it was approved, and neither signed nor given up.
    #[must_use]
    pub fn is_to_be_signed(&self) -> bool {
        let is = |kind: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.any(|it| it["type"] == kind && it["status"] == "True")
        };
        // One denial is enough, whatever its status says.
        let denied = self.status.conditions.iter().any(|it| it["type"] == "Denied");
        is("Approved")
            && !denied
            && !is("Failed")
            && self.status.certificate.is_empty()
            && !self.metadata.is_going()
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequestSpec {
    /// The request itself (PKCS#10 in PEM), in base64.
    pub request: String,
    /// Who is to sign it.
    pub signer_name: String,
    /// What the certificate is to be used for.
    pub usages: Vec<String>,
    /// How long it is to live.
    pub expiration_seconds: Option<i64>,
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequestStatus {
    /// The certificate, in base64.
    pub certificate: String,
    /// What was decided, as it is written: a write must repeat all of it.
    pub conditions: Vec<Value>,
}
