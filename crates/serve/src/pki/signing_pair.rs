//! A key with a certificate that it signs itself.

use jiff::Timestamp;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyUsagePurpose};

use super::authority::{distinguished_name, new_key, serial, validity};
use super::{CA_LIFETIME, Identity, PkiError};

impl Identity {
    /// Creates a key that signs code, such as kernel modules, and the certificate that verifies it.
    ///
    /// No authority signs it: what trusts it has to have this certificate itself.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn for_code_signing(common_name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        validity(&mut params, CA_LIFETIME, now);
        params.distinguished_name = distinguished_name(common_name);
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem() })
    }
}
