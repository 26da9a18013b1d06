//! The certificate authority of a server, its certificates, and the directory with both.
//!
//! Each certificate is stored in one file with its key, because two files can be inconsistent after
//! a crash and one cannot. Everything is P-256: fast to generate, and every client supports it.
//!
//! Lost or expired certificates are recreated, except where that would be harmful: an authority or
//! a signing key that exists and cannot be used is an error, since a new one would lock out every
//! client that holds a certificate or token signed by the old one.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use x509_cert::der;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::files::{self, Directory, FileError};
use crate::peer::{self, ParsedCertificate};
use crate::tls::{self, ClientAuthority, TlsError};

mod authority;
mod error;
mod requests;
mod signing_pair;
mod standalone;
mod user_certificates;

use authority::{CertificateAuthority, CertificateProfile};
pub use error::PkiError;
pub use requests::{CertificateRequest, RequestError, RequestSigner};
pub use standalone::StandaloneCertificate;
pub use user_certificates::{IssuedCertificate, UserCertificates};

/// The common name of the authority.
const CA_COMMON_NAME: &str = "gantry-ca";
/// The user of the kubeconfig that is written for the administrator.
pub const ADMIN: &str = "gantry-admin";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

const AUTHORITY_FILE: &str = "ca.pem";
const SERVER_FILE: &str = "server.pem";
const ADMIN_FILE: &str = "admin.pem";
const SIGNING_FILE: &str = "service-account.pem";

const DAY: u64 = 24 * 60 * 60;
/// Ten years: longer than clusters of this kind are kept, and it is renewed on the way.
const CA_LIFETIME: Duration = Duration::from_secs(3650 * DAY);
/// A year, as kubeadm.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * DAY);
/// Certificates are valid from a little before they are created: clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Names under which a server is reached from inside a cluster, and from this machine.
const DNS_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// The last is the first address of the service network.
const SERVER_ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)),
];

/// A certificate and its private key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and the authority.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Identity {
    /// Shows that it exists, never the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(…)")
    }
}

/// The keys and certificates of one server.
pub struct Pki {
    authority: Arc<CertificateAuthority>,
    server: Identity,
    admin: Identity,
    signing_key: String,
    renew_at: Timestamp,
}

impl Pki {
    /// Opens the directory and creates missing certificates. Each is recreated at two thirds of its
    /// life, the authority's with the same key, so that certificates it has signed stay valid.
    ///
    /// The server's certificate is for `names` (DNS names or addresses, the host's own among them)
    /// and for the names every server has. Another process that opens the directory waits until
    /// this one is done, and then uses what was created. This function blocks, which is fine while
    /// a process starts; later, call it on a blocking thread.
    ///
    /// # Errors
    /// Other users can access the directory or a file in it, or an existing key cannot be used.
    pub fn open_or_create(dir: &Path, names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let names = server_names(names)?;
        let directory = Directory::open_or_create(dir)?;
        let (authority, authority_facts) = open_or_create_ca(&directory, now)?;
        let server = CertificateProfile::Server { names: &names };
        let (server, server_facts) = open_leaf(&directory, SERVER_FILE, &authority, &server, now)?;
        let admin = CertificateProfile::Client { common_name: ADMIN, organizations: &[MASTERS] };
        let (admin, admin_facts) = open_leaf(&directory, ADMIN_FILE, &authority, &admin, now)?;
        let signing_key = open_signing_key(&directory)?;
        let renew_at =
            [&authority_facts, &server_facts, &admin_facts].map(renewal_time).into_iter().min();
        let renew_at = renew_at.unwrap_or(now);
        let authority = Arc::new(authority);
        Ok(Self { authority, server, admin, signing_key, renew_at })
    }

    /// Returns the certificate of the authority, as PEM.
    #[must_use]
    pub fn ca_certificate(&self) -> &str {
        &self.authority.identity.certificate
    }

    /// Returns the server's certificate and key.
    #[must_use]
    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// Returns the administrator's client certificate and key.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// Returns the key that signs service account tokens, as PEM (P-256, PKCS#8).
    #[must_use]
    pub fn signing_key(&self) -> &str {
        &self.signing_key
    }

    /// Returns a signer for certificate signing requests that uses the key of the authority.
    #[must_use]
    pub fn request_signer(&self) -> RequestSigner {
        RequestSigner(Arc::clone(&self.authority))
    }

    /// Returns when to open the directory again, because a renewal is due.
    #[must_use]
    pub fn renew_at(&self) -> Timestamp {
        self.renew_at
    }

    /// Issues a client certificate for a user and their groups.
    ///
    /// # Errors
    /// The name is empty, or the system has no random numbers.
    pub fn issue(
        &self,
        common_name: &str,
        organizations: &[&str],
        validity: Duration,
        now: Timestamp,
    ) -> Result<Identity, PkiError> {
        self.authority.issue(
            &CertificateProfile::Client { common_name, organizations },
            validity,
            now,
        )
    }
}

impl fmt::Debug for Pki {
    /// Never shows a key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renew_at = format_args!("{}", self.renew_at);
        formatter.debug_struct("Pki").field("renew_at", &renew_at).finish_non_exhaustive()
    }
}

fn open_or_create_ca(
    directory: &Directory,
    now: Timestamp,
) -> Result<(CertificateAuthority, ParsedCertificate), PkiError> {
    let path = directory.file(AUTHORITY_FILE);
    let Some(bytes) = files::read_private(&path)? else {
        tracing::info!(file = %path.display(), "creating a certificate authority");
        return save_ca(&path, CertificateAuthority::create(None, now)?);
    };
    let broken = |why: &str| PkiError::Authority { path: path.clone(), why: why.to_owned() };
    let own =
        parse_identity(&bytes).ok_or_else(|| broken("it does not hold a certificate and a key"))?;
    let facts = parse_ca_certificate(&own).map_err(broken)?;
    if now < facts.not_before {
        return Err(PkiError::NotYetValid { path, now, not_before: facts.not_before });
    }
    let key = key_pair(&own.key).ok_or_else(|| broken("its key is not a P-256 key"))?;
    if now < renewal_time(&facts) {
        return Ok((CertificateAuthority::new(key, own), facts));
    }
    tracing::info!(file = %path.display(), "renewing the certificate authority with its old key");
    save_ca(&path, CertificateAuthority::create(Some(key), now)?)
}

fn save_ca(
    path: &Path,
    made: CertificateAuthority,
) -> Result<(CertificateAuthority, ParsedCertificate), PkiError> {
    files::write_private(path, to_pem(&made.identity).as_bytes())?;
    let facts = parse_ca_certificate(&made.identity)
        .map_err(|why| PkiError::Authority { path: path.to_owned(), why: why.to_owned() })?;
    Ok((made, facts))
}

/// Reads the authority's certificate and checks its common name and that it matches its key.
fn parse_ca_certificate(own: &Identity) -> Result<ParsedCertificate, &'static str> {
    let key = tls::certified_key(own).map_err(|_| "certificate and key do not belong together")?;
    let certificate = key.cert.first().ok_or("there is no certificate")?;
    let subject =
        peer::verified_subject(certificate).map_err(|_| "the certificate cannot be read")?;
    if subject.is_none_or(|subject| subject.common_name != CA_COMMON_NAME) {
        return Err("it was created by another program");
    }
    peer::parse_certificate(certificate).map_err(|_| "the certificate cannot be read")
}

fn open_leaf(
    directory: &Directory,
    name: &str,
    authority: &CertificateAuthority,
    wanted: &CertificateProfile<'_>,
    now: Timestamp,
) -> Result<(Identity, ParsedCertificate), PkiError> {
    let path = directory.file(name);
    let why = match files::read_private(&path)? {
        None => "there is none",
        Some(bytes) => match parse_identity(&bytes) {
            None => "the file is broken",
            Some(identity) => match check_certificate(&identity, authority, wanted, now) {
                Ok(facts) => return Ok((identity, facts)),
                Err(why) => why,
            },
        },
    };
    tracing::info!(file = %path.display(), why, "creating a certificate");
    let identity = authority.issue(wanted, LEAF_LIFETIME, now)?;
    let facts = check_certificate(&identity, authority, wanted, now)
        .map_err(|why| PkiError::InvalidCertificate { what: name.to_owned(), why })?;
    files::write_private(&path, to_pem(&identity).as_bytes())?;
    Ok((identity, facts))
}

/// Checks that a certificate is as wanted and not due for renewal; otherwise returns why.
fn check_certificate(
    identity: &Identity,
    authority: &CertificateAuthority,
    wanted: &CertificateProfile<'_>,
    now: Timestamp,
) -> Result<ParsedCertificate, &'static str> {
    check_against(&authority.identity.certificate, identity, wanted, now)
}

/// As above, given only the certificate of the authority.
fn check_against(
    trusted: &str,
    identity: &Identity,
    wanted: &CertificateProfile<'_>,
    now: Timestamp,
) -> Result<ParsedCertificate, &'static str> {
    const BROKEN_FILE: &str = "the file is broken";
    const NOT_TRUSTED: &str = "it is not of this authority, or not valid now";
    let key = tls::certified_key(identity).map_err(|_| BROKEN_FILE)?;
    let certificate = key.cert.first().ok_or(BROKEN_FILE)?;
    let facts = peer::parse_certificate(certificate).map_err(|_| BROKEN_FILE)?;
    match wanted {
        CertificateProfile::Server { names } => {
            if !is_server_certificate_of(trusted, certificate, now) {
                return Err(NOT_TRUSTED);
            }
            if subject_alt_names(&facts).as_ref() != Ok(*names) {
                return Err("it is for other names");
            }
        }
        CertificateProfile::Client { common_name, organizations } => {
            let clients = ClientAuthority::new(trusted).map_err(|_| BROKEN_FILE)?;
            if !clients.verifies(&key.cert, now) {
                return Err(NOT_TRUSTED);
            }
            let subject =
                peer::verified_subject(certificate).map_err(|_| BROKEN_FILE)?.ok_or(BROKEN_FILE)?;
            if subject.common_name != *common_name || subject.organizations != *organizations {
                return Err("its subject is another one");
            }
        }
    }
    if now >= renewal_time(&facts) { Err("it is due for renewal") } else { Ok(facts) }
}

fn is_server_certificate_of(
    authority: &str,
    certificate: &CertificateDer<'_>,
    now: Timestamp,
) -> bool {
    let Ok(roots) = tls::roots(authority) else { return false };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), tls::provider());
    let (Ok(verifier), Ok(name), Some(now)) =
        (verifier.build(), ServerName::try_from("localhost"), tls::unix_time(now))
    else {
        return false;
    };
    use rustls::client::danger::ServerCertVerifier as _;
    verifier.verify_server_cert(certificate, &[], &name, &[], now).is_ok()
}

fn open_signing_key(directory: &Directory) -> Result<String, PkiError> {
    let path = directory.file(SIGNING_FILE);
    if let Some(bytes) = files::read_private(&path)? {
        let text = String::from_utf8(bytes).ok().filter(|text| key_pair(text).is_some());
        return text.ok_or(PkiError::SigningKey { path });
    }
    tracing::info!(file = %path.display(), "creating a key for service-account tokens");
    let key = authority::new_key()?.serialize_pem();
    files::write_private(&path, key.as_bytes())?;
    Ok(key)
}

/// Returns when two thirds of the life of a certificate are over.
fn renewal_time(facts: &ParsedCertificate) -> Timestamp {
    let life = facts.not_after.duration_since(facts.not_before);
    facts.not_before.checked_add(life / 3 * 2).unwrap_or(facts.not_after)
}

/// Returns the time so much before or after another; the end of time when it is out of range.
fn offset_time(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

fn to_pem(identity: &Identity) -> String {
    format!("{}{}", identity.certificate, identity.key)
}

fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (certificate, key) = text.split_at(text.find(KEY_BEGINS)?);
    Some(Identity { certificate: certificate.to_owned(), key: key.to_owned() })
}

fn key_pair(pem: &str) -> Option<KeyPair> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    KeyPair::from_pkcs8_der_and_sign_algo(&key, algorithm).ok()
}

/// A name in a certificate in its canonical form.
fn server_names(more: &[String]) -> Result<BTreeSet<String>, PkiError> {
    let mut names: BTreeSet<String> = DNS_NAMES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(SERVER_ADDRESSES.iter().map(IpAddr::to_string));
    with_names(names, more)
}

/// Returns these names and the additional ones.
fn with_names(mut names: BTreeSet<String>, more: &[String]) -> Result<BTreeSet<String>, PkiError> {
    for name in more {
        let refused = || PkiError::Name { name: name.clone() };
        let parsed = ServerName::try_from(name.as_str()).map_err(|_| refused())?;
        names.insert(match parsed {
            ServerName::DnsName(name) => name.as_ref().to_ascii_lowercase(),
            ServerName::IpAddress(address) => IpAddr::from(address).to_string(),
            _ => return Err(refused()),
        });
    }
    Ok(names)
}

/// Returns the names a certificate is for, in canonical form.
fn subject_alt_names(facts: &ParsedCertificate) -> Result<BTreeSet<String>, der::Error> {
    let found = facts.parsed.tbs_certificate().get_extension::<SubjectAltName>();
    let found = found.map_err(|_| der::ErrorKind::Failed)?;
    let found = found.map(|(_, names)| names.0).unwrap_or_default();
    let names = found.into_iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests;
