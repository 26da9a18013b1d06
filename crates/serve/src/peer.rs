//! The peer of a connection, as far as TLS identifies it.

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

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The remote address.
    pub address: SocketAddr,
    /// The subject of its client certificate. It is only set for a certificate whose key the peer
    /// holds, that was signed by the client authority, and that is valid now.
    pub certificate: Option<VerifiedSubject>,
    /// The peer presented a certificate that is not trusted: of another authority, or expired. Such
    /// a request is unauthenticated (401), not anonymous.
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

/// The peer over the life of a connection: a certificate can expire while it is open, and the
/// connection of a watch lives for weeks.
#[derive(Clone, Debug)]
pub(crate) struct PeerIdentity {
    current: Arc<Peer>,
    /// When the certificate expires, and what the peer is from then on.
    after_expiry: Option<(Timestamp, Arc<Peer>)>,
}

impl PeerIdentity {
    /// Makes a peer without a certificate.
    pub(crate) fn without_certificate(address: SocketAddr) -> Self {
        let peer = Peer { address, certificate: None, presented_unverified: false };
        Self { current: Arc::new(peer), after_expiry: None }
    }

    /// Makes a peer with a certificate that is not trusted.
    pub(crate) fn unverified(address: SocketAddr) -> Self {
        let peer = Peer { address, certificate: None, presented_unverified: true };
        Self { current: Arc::new(peer), after_expiry: None }
    }

    /// Makes a peer whose certificate chain was verified, its own certificate first.
    ///
    /// A subject without a common name is anonymous, as upstream.
    pub(crate) fn verified(
        address: SocketAddr,
        chain: &[CertificateDer<'_>],
    ) -> Result<Self, der::Error> {
        let mut until = Timestamp::MAX;
        for certificate in chain {
            until = until.min(parse_certificate(certificate)?.not_after);
        }
        let Some(own) = chain.first() else { return Ok(Self::without_certificate(address)) };
        let Some(subject) = verified_subject(own)? else {
            return Ok(Self::without_certificate(address));
        };
        let peer = Peer { address, certificate: Some(subject), presented_unverified: false };
        let lapsed = Peer { address, certificate: None, presented_unverified: true };
        Ok(Self { current: Arc::new(peer), after_expiry: Some((until, Arc::new(lapsed))) })
    }

    /// Returns the peer at this time.
    pub(crate) fn at(&self, now: Timestamp) -> Arc<Peer> {
        match &self.after_expiry {
            Some((until, lapsed)) if now > *until => Arc::clone(lapsed),
            Some(_) | None => Arc::clone(&self.current),
        }
    }
}

/// The parsed parts of a certificate.
pub(crate) struct ParsedCertificate {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) parsed: Certificate,
}

/// Parses a certificate. A date out of range counts as the end of time.
pub(crate) fn parse_certificate(
    certificate: &CertificateDer<'_>,
) -> Result<ParsedCertificate, der::Error> {
    let parsed = Certificate::from_der(certificate)?;
    let validity = parsed.tbs_certificate().validity();
    let moment = |time: x509_cert::time::Time| {
        let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    };
    let (not_before, not_after) = (moment(validity.not_before), moment(validity.not_after));
    Ok(ParsedCertificate { not_before, not_after, parsed })
}

/// Returns the subject of a certificate; `None` when the common name is empty.
pub(crate) fn verified_subject(
    certificate: &CertificateDer<'_>,
) -> Result<Option<VerifiedSubject>, der::Error> {
    let facts = parse_certificate(certificate)?;
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
