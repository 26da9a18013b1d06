//! A certificate with an authority of its own that signs nothing else.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::authority::{CertificateAuthority, CertificateProfile};
use super::{Identity, LEAF_LIFETIME, PkiError, check_against, renewal_time, with_names};

/// The certificate of a server whose clients trust this one certificate only, such as a webhook.
///
/// The key of the authority is dropped when it has signed: a thief of the stored key can
/// impersonate this server, and no other. The certificate lives a year, and is recreated with its
/// authority after two thirds of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandaloneCertificate {
    /// The certificate of the authority, as PEM.
    pub authority: String,
    /// The server's certificate and key.
    pub identity: Identity,
    /// When to create the next one.
    pub renew_at: Timestamp,
}

impl StandaloneCertificate {
    /// Creates a certificate for these names and addresses, and for this machine under its own
    /// names.
    ///
    /// # Errors
    /// A name is invalid, or the system has no random numbers.
    pub fn create(names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let names = all_names(names)?;
        let authority = CertificateAuthority::create(None, now)?;
        let identity =
            authority.issue(&CertificateProfile::Server { names: &names }, LEAF_LIFETIME, now)?;
        let authority = authority.identity.certificate;
        let facts = check_against(
            &authority,
            &identity,
            &CertificateProfile::Server { names: &names },
            now,
        )
        .map_err(|why| PkiError::InvalidCertificate { what: "the certificate".to_owned(), why })?;
        Ok(Self { authority, identity, renew_at: renewal_time(&facts) })
    }

    /// Opens a certificate that was created before, if it is valid for these names and not due for
    /// renewal.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(
        authority: &str,
        identity: Identity,
        names: &[String],
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let names = all_names(names).map_err(|_| "a name is none")?;
        let facts = check_against(
            authority,
            &identity,
            &CertificateProfile::Server { names: &names },
            now,
        )?;
        Ok(Self { authority: authority.to_owned(), identity, renew_at: renewal_time(&facts) })
    }
}

fn all_names(names: &[String]) -> Result<BTreeSet<String>, PkiError> {
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    with_names(BTreeSet::from(own), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_certificate_is_reused_until_its_renewal() {
        let names = ["gantry-webhook.gantry-system.svc".to_owned()];
        let now = at("2026-01-01T00:00:00Z");
        let made = StandaloneCertificate::create(&names, now).unwrap();
        let open = |names: &[String], now: &str| {
            StandaloneCertificate::open(&made.authority, made.identity.clone(), names, at(now))
        };
        assert_eq!(open(&names, "2026-01-02T00:00:00Z"), Ok(made.clone()));
        assert_eq!(open(&names, "2026-10-01T00:00:00Z"), Err("it is due for renewal"));
        let foreign = Err("it is not of this authority, or not valid now");
        assert_eq!(open(&names, "2027-02-01T00:00:00Z"), foreign);
        let others = ["other.svc".to_owned()];
        assert_eq!(open(&others, "2026-01-02T00:00:00Z"), Err("it is for other names"));
        let another = StandaloneCertificate::create(&names, now).unwrap();
        let mixed =
            StandaloneCertificate::open(&another.authority, made.identity.clone(), &names, now);
        assert_eq!(mixed, foreign);
        assert!(StandaloneCertificate::create(&["not a name".to_owned()], now).is_err());
    }
}
