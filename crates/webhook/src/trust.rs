//! Whose certificates are believed.

use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::fault::CallError;

/// TLS for an endpoint that must show a certificate of `authority`, or of one the machine believes
/// in when it is empty.
pub(crate) fn config(authority: &[u8]) -> Result<ClientConfig, CallError> {
    let roots = if authority.is_empty() { machine_roots() } else { own_roots(authority)? };
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| CallError::Authority(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn own_roots(pem: &[u8]) -> Result<Arc<RootCertStore>, CallError> {
    let mut roots = RootCertStore::empty();
    // What is no certificate is passed over; only a bundle without any is refused.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    if roots.is_empty() {
        let words = "unable to load root certificates: unable to parse bytes as PEM block";
        return Err(CallError::Authority(words.to_owned()));
    }
    Ok(Arc::new(roots))
}

/// The roots of the machine, read once: they change with its packages, not while a server runs.
fn machine_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        // A machine without roots believes nobody; each call then says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}
