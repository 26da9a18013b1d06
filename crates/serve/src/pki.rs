//! The authority of a server, what it has signed, and the directory they are kept in.
//!
//! Each certificate is kept in one file with its key, because two files can be out of step after a
//! crash and one cannot. Everything is P-256: quick to make, and every client knows it.
//!
//! What is lost or out of date is made again, except where that would be a surprise: an authority
//! or a signing key that is there and cannot be used is an error, since a new one would lock out
//! every client that holds what the old one signed.

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
use crate::peer::{self, Facts};
use crate::tls::{self, ClientAuthority, TlsError};

mod authority;
mod register;
mod requests;
mod sealed;

use authority::{Authority, Leaf};
pub use register::{Record, Register};
pub use requests::{CertificateRequest, RequestError, RequestSigner};
pub use sealed::Sealed;

/// What the authority calls itself.
const AUTHORITY: &str = "gantry-ca";
/// The user of the kubeconfig that is written for the owner.
pub const ADMIN: &str = "gantry-admin";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

const AUTHORITY_FILE: &str = "ca.pem";
const SERVER_FILE: &str = "server.pem";
const ADMIN_FILE: &str = "admin.pem";
const SIGNING_FILE: &str = "service-account.pem";

const DAY: u64 = 24 * 60 * 60;
/// Ten years: longer than anybody keeps a cluster of this kind, and renewed on the way.
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * DAY);
/// A year, as kubeadm.
const LIFE: Duration = Duration::from_secs(365 * DAY);
/// Certificates are valid a little before they are made: clocks differ.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// Names under which a server is reached from inside a cluster, and from this machine.
const DNS_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// The last is the first address of the service network.
const ADDRESSES: [IpAddr; 3] = [
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
    /// Says that it is there, never the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(…)")
    }
}

/// The keys and certificates of one server.
pub struct Pki {
    authority: Arc<Authority>,
    server: Identity,
    admin: Identity,
    signing_key: String,
    renew_at: Timestamp,
}

impl Pki {
    /// Opens the directory and makes what is missing or due: at two thirds of its life a certificate
    /// is made anew, the authority's with the same key, so that what it signed stays good.
    ///
    /// The server's certificate is for `names` (DNS names or addresses, the host's own among them)
    /// and for those every server has. Another process that opens the directory waits until this
    /// one is done, and then finds what was made. It reads, writes and waits on the spot, which is
    /// for the start of a process; later, call it on a blocking thread.
    ///
    /// # Errors
    /// The directory or a file in it is open to others, or what cannot be replaced cannot be used.
    pub fn open_or_create(dir: &Path, names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let names = server_names(names)?;
        let directory = Directory::open_or_create(dir)?;
        let (authority, authority_facts) = open_authority(&directory, now)?;
        let server = Leaf::Server { names: &names };
        let (server, server_facts) = open_leaf(&directory, SERVER_FILE, &authority, &server, now)?;
        let admin = Leaf::Client { common_name: ADMIN, organizations: &[MASTERS] };
        let (admin, admin_facts) = open_leaf(&directory, ADMIN_FILE, &authority, &admin, now)?;
        let signing_key = open_signing_key(&directory)?;
        let renew_at = [&authority_facts, &server_facts, &admin_facts].map(due).into_iter().min();
        let renew_at = renew_at.unwrap_or(now);
        let authority = Arc::new(authority);
        Ok(Self { authority, server, admin, signing_key, renew_at })
    }

    /// The certificate of the authority, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority.own.certificate
    }

    /// What the server shows.
    #[must_use]
    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// What the owner shows to be allowed everything.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The key that signs the tokens of service accounts, as PEM (P-256, PKCS#8).
    #[must_use]
    pub fn signing_key(&self) -> &str {
        &self.signing_key
    }

    /// Signs requests for certificates in the name of the authority.
    #[must_use]
    pub fn request_signer(&self) -> RequestSigner {
        RequestSigner(Arc::clone(&self.authority))
    }

    /// When to open the directory again, because something is due.
    #[must_use]
    pub fn renew_at(&self) -> Timestamp {
        self.renew_at
    }

    /// A certificate for another client: a user and their groups.
    ///
    /// # Errors
    /// The name is empty, or the machine gave no randomness.
    pub fn issue(
        &self,
        common_name: &str,
        organizations: &[&str],
        validity: Duration,
        now: Timestamp,
    ) -> Result<Identity, PkiError> {
        self.authority.issue(&Leaf::Client { common_name, organizations }, validity, now)
    }
}

impl fmt::Debug for Pki {
    /// Never a key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renew_at = format_args!("{}", self.renew_at);
        formatter.debug_struct("Pki").field("renew_at", &renew_at).finish_non_exhaustive()
    }
}

fn open_authority(directory: &Directory, now: Timestamp) -> Result<(Authority, Facts), PkiError> {
    let path = directory.file(AUTHORITY_FILE);
    let Some(bytes) = files::read_private(&path)? else {
        tracing::info!(file = %path.display(), "making a certificate authority");
        return save_authority(&path, Authority::create(None, now)?);
    };
    let broken = |why: &str| PkiError::Authority { path: path.clone(), why: why.to_owned() };
    let own = parse(&bytes).ok_or_else(|| broken("it does not hold a certificate and a key"))?;
    let facts = authority_facts(&own).map_err(broken)?;
    if now < facts.not_before {
        return Err(PkiError::Clock { path, now, not_before: facts.not_before });
    }
    let key = key_pair(&own.key).ok_or_else(|| broken("its key is not a P-256 key"))?;
    if now < due(&facts) {
        return Ok((Authority::new(key, own), facts));
    }
    tracing::info!(file = %path.display(), "renewing the certificate authority with its old key");
    save_authority(&path, Authority::create(Some(key), now)?)
}

fn save_authority(path: &Path, made: Authority) -> Result<(Authority, Facts), PkiError> {
    files::write_private(path, together(&made.own).as_bytes())?;
    let facts = authority_facts(&made.own)
        .map_err(|why| PkiError::Authority { path: path.to_owned(), why: why.to_owned() })?;
    Ok((made, facts))
}

/// Reads the authority's certificate and checks that it is one of ours, with its own key.
fn authority_facts(own: &Identity) -> Result<Facts, &'static str> {
    let key = tls::certified_key(own).map_err(|_| "certificate and key do not belong together")?;
    let certificate = key.cert.first().ok_or("there is no certificate")?;
    let subject = peer::subject(certificate).map_err(|_| "the certificate cannot be read")?;
    if subject.is_none_or(|subject| subject.common_name != AUTHORITY) {
        return Err("it was made by something else");
    }
    peer::read(certificate).map_err(|_| "the certificate cannot be read")
}

fn open_leaf(
    directory: &Directory,
    name: &str,
    authority: &Authority,
    wanted: &Leaf<'_>,
    now: Timestamp,
) -> Result<(Identity, Facts), PkiError> {
    let path = directory.file(name);
    let why = match files::read_private(&path)? {
        None => "there is none",
        Some(bytes) => match parse(&bytes) {
            None => "the file is broken",
            Some(identity) => match check(&identity, authority, wanted, now) {
                Ok(facts) => return Ok((identity, facts)),
                Err(why) => why,
            },
        },
    };
    tracing::info!(file = %path.display(), why, "making a certificate");
    let identity = authority.issue(wanted, LIFE, now)?;
    let facts = check(&identity, authority, wanted, now)
        .map_err(|why| PkiError::Unfit { what: name.to_owned(), why })?;
    files::write_private(&path, together(&identity).as_bytes())?;
    Ok((identity, facts))
}

/// Whether a certificate is what is wanted, and for some time yet; if not, why.
fn check(
    identity: &Identity,
    authority: &Authority,
    wanted: &Leaf<'_>,
    now: Timestamp,
) -> Result<Facts, &'static str> {
    check_against(&authority.own.certificate, identity, wanted, now)
}

/// The same by the certificate of an authority alone.
fn check_against(
    trusted: &str,
    identity: &Identity,
    wanted: &Leaf<'_>,
    now: Timestamp,
) -> Result<Facts, &'static str> {
    const BROKEN: &str = "the file is broken";
    const FOREIGN: &str = "it is not of this authority, or not valid now";
    let key = tls::certified_key(identity).map_err(|_| BROKEN)?;
    let certificate = key.cert.first().ok_or(BROKEN)?;
    let facts = peer::read(certificate).map_err(|_| BROKEN)?;
    match wanted {
        Leaf::Server { names } => {
            if !is_server_of(trusted, certificate, now) {
                return Err(FOREIGN);
            }
            if names_of(&facts).as_ref() != Ok(*names) {
                return Err("it is for other names");
            }
        }
        Leaf::Client { common_name, organizations } => {
            let clients = ClientAuthority::new(trusted).map_err(|_| BROKEN)?;
            if !clients.believes(&key.cert, now) {
                return Err(FOREIGN);
            }
            let subject = peer::subject(certificate).map_err(|_| BROKEN)?.ok_or(BROKEN)?;
            if subject.common_name != *common_name || subject.organizations != *organizations {
                return Err("it is for somebody else");
            }
        }
    }
    if now >= due(&facts) { Err("it is due for renewal") } else { Ok(facts) }
}

fn is_server_of(authority: &str, certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
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
    tracing::info!(file = %path.display(), "making a key for service-account tokens");
    let key = authority::new_key()?.serialize_pem();
    files::write_private(&path, key.as_bytes())?;
    Ok(key)
}

/// Two thirds of the life of a certificate.
fn due(facts: &Facts) -> Timestamp {
    let life = facts.not_after.duration_since(facts.not_before);
    facts.not_before.checked_add(life / 3 * 2).unwrap_or(facts.not_after)
}

/// A moment so much before or after another; the end of time when there is none.
fn shifted(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

fn together(identity: &Identity) -> String {
    format!("{}{}", identity.certificate, identity.key)
}

fn parse(bytes: &[u8]) -> Option<Identity> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (certificate, key) = text.split_at(text.find(KEY_BEGINS)?);
    Some(Identity { certificate: certificate.to_owned(), key: key.to_owned() })
}

fn key_pair(pem: &str) -> Option<KeyPair> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    KeyPair::from_pkcs8_der_and_sign_algo(&key, algorithm).ok()
}

/// A name in a certificate: what it says, in the one way it is written here.
fn server_names(more: &[String]) -> Result<BTreeSet<String>, PkiError> {
    let mut names: BTreeSet<String> = DNS_NAMES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(ADDRESSES.iter().map(IpAddr::to_string));
    named(names, more)
}

/// These names and more of them.
fn named(mut names: BTreeSet<String>, more: &[String]) -> Result<BTreeSet<String>, PkiError> {
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

/// The names a certificate is for, written in the same way.
fn names_of(facts: &Facts) -> Result<BTreeSet<String>, der::Error> {
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

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The directory or a file in it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authority is there and cannot be used.
    #[error(
        "cannot use the certificate authority in {}: {why}; restore the file, or delete it to make \
         a new one, after which every kubeconfig made before stops working", path.display()
    )]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The key for tokens is there and cannot be used.
    #[error(
        "cannot use the service-account key in {}: it is not a P-256 key in PEM; restore the file, \
         or delete it to make a new one, after which every token made before stops working",
        path.display()
    )]
    SigningKey {
        /// The file.
        path: PathBuf,
    },
    /// No server has made keys here.
    #[error(
        "cannot find a certificate authority in {}: start the server with this data directory once, \
         or name the directory it uses with --data-dir", path.display()
    )]
    NoAuthority {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The list of users is there and cannot be read.
    #[error(
        "cannot read the list of users in {}: restore the file, or delete it; certificates are \
         believed whether they are listed or not", path.display()
    )]
    Register {
        /// The file.
        path: PathBuf,
    },
    /// The authority is younger than now.
    #[error(
        "cannot use the certificate authority in {}: it is not valid before {not_before} and the \
         clock says {now}; set the clock", path.display()
    )]
    Clock {
        /// The file.
        path: PathBuf,
        /// What the clock says.
        now: Timestamp,
        /// From when on it is valid.
        not_before: Timestamp,
    },
    /// It is neither a DNS name nor an address.
    #[error("cannot put {name:?} in a certificate: write a DNS name or an IP address")]
    Name {
        /// What was asked for.
        name: String,
    },
    /// A request asks for a certificate that nobody here signs.
    #[error("cannot sign a certificate for the usage {usage:?}")]
    Usage {
        /// What it is to be used for.
        usage: String,
    },
    /// A user must be called something.
    #[error("cannot issue a client certificate without a common name")]
    NoName,
    /// What we have just made is not what it should be.
    #[error("cannot use the new certificate for {what}: {why}")]
    Unfit {
        /// Which.
        what: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The machine gave no randomness, or a date cannot be written.
    #[error("could not make a certificate")]
    Make(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<rcgen::Error> for PkiError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(Box::new(error))
    }
}

impl From<der::Error> for PkiError {
    fn from(error: der::Error) -> Self {
        Self::Make(Box::new(error))
    }
}

impl From<TlsError> for PkiError {
    fn from(error: TlsError) -> Self {
        Self::Make(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
