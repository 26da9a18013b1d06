//! Who is at the other end of a connection, as far as TLS can tell.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{self, Decode as _};
use x509_cert::ext::pkix::name::DirectoryString;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it speaks from.
    pub address: SocketAddr,
    /// Whom its client certificate names. Only ever a certificate whose key the peer holds, that
    /// leads to the client authority, and that is valid now.
    pub certificate: Option<VerifiedSubject>,
    /// A certificate was shown that is not to be believed: of another authority, or out of date.
    /// Such a request is unauthenticated (401), not anonymous.
    pub presented_unverified: bool,
}

/// The subject of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedSubject {
    /// The common name; the last if there are several, as upstream. Never empty.
    pub common_name: String,
    /// The organisations, in the order of the certificate.
    pub organizations: Vec<String>,
    /// The SHA-256 of the certificate, in lower-case hexadecimal.
    pub sha256_hex: String,
}

pub(crate) const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
pub(crate) const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The peer over the life of a connection: a certificate can run out while it is open, and a
/// watch-holding connection lives for weeks.
#[derive(Clone, Debug)]
pub(crate) struct Acquaintance {
    now: Arc<Peer>,
    /// When the certificate runs out, and what the peer is from then on.
    lapse: Option<(Timestamp, Arc<Peer>)>,
}

impl Acquaintance {
    /// Somebody who showed no certificate.
    pub(crate) fn stranger(address: SocketAddr) -> Self {
        let peer = Peer { address, certificate: None, presented_unverified: false };
        Self { now: Arc::new(peer), lapse: None }
    }

    /// Somebody who showed a certificate that is not believed.
    pub(crate) fn unverified(address: SocketAddr) -> Self {
        let peer = Peer { address, certificate: None, presented_unverified: true };
        Self { now: Arc::new(peer), lapse: None }
    }

    /// Somebody whose chain was verified, the own certificate first.
    ///
    /// A subject without a common name is nobody, and therefore anonymous: that is what upstream
    /// makes of it.
    pub(crate) fn verified(
        address: SocketAddr,
        chain: &[CertificateDer<'_>],
    ) -> Result<Self, der::Error> {
        let mut until = Timestamp::MAX;
        for certificate in chain {
            until = until.min(read(certificate)?.not_after);
        }
        let Some(own) = chain.first() else { return Ok(Self::stranger(address)) };
        let Some(subject) = subject(own)? else { return Ok(Self::stranger(address)) };
        let peer = Peer { address, certificate: Some(subject), presented_unverified: false };
        let lapsed = Peer { address, certificate: None, presented_unverified: true };
        Ok(Self { now: Arc::new(peer), lapse: Some((until, Arc::new(lapsed))) })
    }

    /// Who the peer is at this time.
    pub(crate) fn at(&self, now: Timestamp) -> Arc<Peer> {
        match &self.lapse {
            Some((until, lapsed)) if now > *until => Arc::clone(lapsed),
            Some(_) | None => Arc::clone(&self.now),
        }
    }
}

/// What we read off a certificate.
pub(crate) struct Facts {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) parsed: Certificate,
}

/// Parses a certificate. A date beyond what we can count is the end of time.
pub(crate) fn read(certificate: &CertificateDer<'_>) -> Result<Facts, der::Error> {
    let parsed = Certificate::from_der(certificate)?;
    let validity = parsed.tbs_certificate().validity();
    let moment = |time: x509_cert::time::Time| {
        let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    };
    let (not_before, not_after) = (moment(validity.not_before), moment(validity.not_after));
    Ok(Facts { not_before, not_after, parsed })
}

/// Whom a certificate names; nobody when the common name is empty.
pub(crate) fn subject(
    certificate: &CertificateDer<'_>,
) -> Result<Option<VerifiedSubject>, der::Error> {
    let facts = read(certificate)?;
    let (mut common_name, mut organizations) = (String::new(), Vec::new());
    for attribute in facts.parsed.tbs_certificate().subject().iter() {
        if attribute.oid == COMMON_NAME {
            common_name = DirectoryString::try_from(&attribute.value)?.value().into_owned();
        } else if attribute.oid == ORGANIZATION {
            organizations.push(DirectoryString::try_from(&attribute.value)?.value().into_owned());
        }
    }
    if common_name.is_empty() {
        return Ok(None);
    }
    let sha256_hex = fingerprint(certificate);
    Ok(Some(VerifiedSubject { common_name, organizations, sha256_hex }))
}

fn fingerprint(certificate: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
