//! Signs certificates for the controllers of a cluster with the key of its server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_kube_controllers::certificates::{CertificateAuthority, RequestedCertificate};
use gantry_serve::pki::{CertificateRequest, RequestSigner};
use jiff::Timestamp;

/// The certificate authority of the server in the same process.
#[derive(Clone, Debug)]
pub(super) struct EmbeddedAuthority(RequestSigner);

impl EmbeddedAuthority {
    pub(super) fn new(signer: RequestSigner) -> Self {
        Self(signer)
    }
}

fn parse(request: &str) -> Result<CertificateRequest, String> {
    let pem = STANDARD.decode(request).map_err(|error| error.to_string())?;
    CertificateRequest::parse(&pem).map_err(|error| error.to_string())
}

impl CertificateAuthority for EmbeddedAuthority {
    fn parse_request(&self, request: &str) -> Result<RequestedCertificate, String> {
        let request = parse(request)?;
        request.check_signature().map_err(|error| error.to_string())?;
        Ok(RequestedCertificate {
            dns_names: request.dns_names.len(),
            addresses: request.addresses.len(),
            emails: request.emails.len(),
            uris: request.uris.len(),
            common_name: request.common_name,
            organizations: request.organizations,
        })
    }

    fn sign(
        &self,
        request: &str,
        usages: &[String],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, String> {
        let usages: Vec<&str> = usages.iter().map(String::as_str).collect();
        let signed = self.0.sign(&parse(request)?, &usages, seconds, now);
        signed.map(|pem| STANDARD.encode(pem)).map_err(|error| error.to_string())
    }
}
