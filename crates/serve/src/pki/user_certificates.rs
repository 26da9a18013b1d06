//! Client certificates for users, and the list of those that were issued.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::authority::{CertificateAuthority, CertificateProfile};
use super::{AUTHORITY_FILE, Identity, PkiError, offset_time, open_or_create_ca};
use crate::files::{self, Directory};
use crate::{peer, tls};

const USERS_FILE: &str = "users.json";

/// The authority of a server, opened to issue certificates for users.
///
/// It may be opened while the server runs, which reads nothing of this; meanwhile no other process
/// can lock the directory.
pub struct UserCertificates {
    directory: Directory,
    authority: CertificateAuthority,
    users: Vec<IssuedCertificate>,
}

/// A certificate that was issued for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The user.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
    /// The SHA-256 of the certificate, which identifies requests made with it.
    pub sha256_hex: String,
}

impl std::fmt::Debug for UserCertificates {
    /// Shows the users, never a key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Register").field("users", &self.users).finish_non_exhaustive()
    }
}

impl UserCertificates {
    /// Opens the directory in which a server keeps its keys.
    ///
    /// # Errors
    /// There is no authority in it, or the directory or a file in it cannot be used.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        // Another directory than the server's would get an authority that no server trusts.
        if !dir.join(AUTHORITY_FILE).exists() {
            return Err(PkiError::NoAuthority { path: dir.to_owned() });
        }
        let directory = Directory::open_or_create(dir)?;
        let (authority, _) = open_or_create_ca(&directory, now)?;
        let path = directory.file(USERS_FILE);
        let users = match files::read_private(&path)? {
            None => Vec::new(),
            Some(bytes) => decode_users(&bytes).ok_or(PkiError::UserList { path })?,
        };
        Ok(Self { directory, authority, users })
    }

    /// Returns the certificate of the authority, as PEM.
    #[must_use]
    pub fn ca_certificate(&self) -> &str {
        &self.authority.identity.certificate
    }

    /// Returns the issued certificates, oldest first. Expired ones are still listed.
    #[must_use]
    pub fn users(&self) -> &[IssuedCertificate] {
        &self.users
    }

    /// Issues a certificate for a user. It is listed before it is returned, so that none is
    /// unlisted.
    ///
    /// # Errors
    /// The name is empty, or the list cannot be written.
    pub fn issue(
        &mut self,
        name: &str,
        groups: &[&str],
        validity: Duration,
        now: Timestamp,
    ) -> Result<(Identity, IssuedCertificate), PkiError> {
        let wanted = CertificateProfile::Client { common_name: name, organizations: groups };
        let identity = self.authority.issue(&wanted, validity, now)?;
        let unfit = |why| PkiError::InvalidCertificate { what: name.to_owned(), why };
        let certificates = tls::certificates(&identity.certificate)?;
        let certificate = certificates.first().ok_or_else(|| unfit("there is none"))?;
        let subject =
            peer::verified_subject(certificate)?.ok_or_else(|| unfit("it has no common name"))?;
        let life = SignedDuration::try_from(validity).unwrap_or(SignedDuration::MAX);
        let record = IssuedCertificate {
            name: subject.common_name,
            groups: subject.organizations,
            issued: now,
            expires: peer::parse_certificate(certificate)?.not_after.min(offset_time(now, life)),
            sha256_hex: subject.sha256_hex,
        };
        self.users.push(record.clone());
        let bytes = encode_users(&self.users);
        files::write_private(&self.directory.file(USERS_FILE), bytes.as_bytes())?;
        Ok((identity, record))
    }
}

fn encode_users(users: &[IssuedCertificate]) -> String {
    let users =
        users.iter().map(|IssuedCertificate { name, groups, issued, expires, sha256_hex }| {
            json!({
                "name": name, "groups": groups, "issued": issued.to_string(),
                "expires": expires.to_string(), "sha256": sha256_hex,
            })
        });
    format!("{:#}\n", json!({ "users": users.collect::<Vec<_>>() }))
}

fn decode_users(bytes: &[u8]) -> Option<Vec<IssuedCertificate>> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let text = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    let users = document["users"].as_array()?.iter().map(|user| {
        let groups = user["groups"].as_array()?.iter();
        Some(IssuedCertificate {
            name: text(user, "name")?,
            groups: groups.map(|it| it.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            issued: text(user, "issued")?.parse().ok()?,
            expires: text(user, "expires")?.parse().ok()?,
            sha256_hex: text(user, "sha256")?,
        })
    });
    users.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::private_folder;
    use crate::pki::Pki;
    use crate::tls::ClientAuthority;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn issued_certificates_are_listed_and_verify() {
        let folder = private_folder();
        let dir = folder.path().join("pki");
        let start = at("2026-11-15T12:00:00Z");
        let pki = Pki::open_or_create(&dir, &[], start).unwrap();
        let mut register = UserCertificates::open(&dir, start).unwrap();
        assert_eq!(register.users(), []);
        let (identity, bob) = register.issue("bob", &["devs", "ops"], DAY, start).unwrap();
        let (_, kim) = register.issue("kim", &[], DAY * 2, start).unwrap();
        assert_eq!(
            (bob.name.as_str(), bob.groups.as_slice()),
            ("bob", &["devs".into(), "ops".into()][..])
        );
        assert_eq!(bob.expires, at("2026-11-16T12:00:00Z"));
        drop(register);
        let register = UserCertificates::open(&dir, at("2027-01-01T00:00:00Z")).unwrap();
        assert_eq!(register.users(), [bob, kim]);
        assert_eq!(register.ca_certificate(), pki.ca_certificate());
        let clients = ClientAuthority::new(pki.ca_certificate()).unwrap();
        let chain = tls::certificates(&identity.certificate).unwrap();
        assert!(clients.verifies(&chain, at("2026-11-16T11:59:00Z")));
        assert!(!clients.verifies(&chain, at("2026-11-16T12:01:00Z")));
        drop(register);
        let again = Pki::open_or_create(&dir, &[], start).unwrap();
        assert_eq!(again.server(), pki.server(), "the server's own certificates are left alone");
    }

    #[test]
    fn opening_a_directory_without_a_ca_fails() {
        let folder = private_folder();
        let dir = folder.path().join("pki");
        let start = at("2026-11-15T12:00:00Z");
        let error = UserCertificates::open(&dir, start).unwrap_err().to_string();
        assert!(error.starts_with("cannot find a certificate authority in "), "{error}");
        assert!(!dir.exists());
        Pki::open_or_create(&dir, &[], start).unwrap();
        files::write_private(&dir.join(USERS_FILE), b"{}").unwrap();
        let error = UserCertificates::open(&dir, start).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the list of users in "), "{error}");
        std::fs::remove_file(dir.join(USERS_FILE)).unwrap();
        let mut register = UserCertificates::open(&dir, start).unwrap();
        assert!(matches!(register.issue("", &[], DAY, start), Err(PkiError::NoName)));
        assert_eq!(register.users(), []);
    }
}
