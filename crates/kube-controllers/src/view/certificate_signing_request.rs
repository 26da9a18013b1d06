//! CertificateSigningRequests.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

/// A CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequest {
    /// Metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: CertificateSigningRequestSpec,
    /// The status.
    pub status: CertificateSigningRequestStatus,
}

impl View for CertificateSigningRequest {
    const RESOURCE: Resource = Resource::namespaced(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
    )
    .cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl CertificateSigningRequest {
    /// Returns whether it was approved, and neither signed nor failed.
    #[must_use]
    pub fn is_to_be_signed(&self) -> bool {
        let is = |kind: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.any(|it| it["type"] == kind && it["status"] == "True")
        };
        // One denial is enough, whatever its status.
        let denied = self.status.conditions.iter().any(|it| it["type"] == "Denied");
        is("Approved")
            && !denied
            && !is("Failed")
            && self.status.certificate.is_empty()
            && !self.metadata.is_terminating()
    }
}

/// The spec of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequestSpec {
    /// The request itself (PKCS#10 in PEM), in base64.
    pub request: String,
    /// The name of the signer.
    pub signer_name: String,
    /// The requested usages.
    pub usages: Vec<String>,
    /// The requested lifetime of the certificate.
    pub expiration_seconds: Option<i64>,
}

/// The status of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequestStatus {
    /// The certificate, in base64.
    pub certificate: String,
    /// The conditions, unparsed: a write must repeat all of them.
    pub conditions: Vec<Value>,
}
