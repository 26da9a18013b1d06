//! Client certificates for users, and the list of those that were made.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::authority::{Authority, Leaf};
use super::{AUTHORITY_FILE, Identity, PkiError, open_authority, shifted};
use crate::files::{self, Directory};
use crate::{peer, tls};

const REGISTER_FILE: &str = "users.json";

/// The authority of a server, opened to make certificates for users.
///
/// It may be open beside the server, which reads nothing of this; while it is, no other process
/// has the directory.
pub struct Register {
    directory: Directory,
    authority: Authority,
    users: Vec<Record>,
}

/// A certificate that was made for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The user.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when it is believed.
    pub expires: Timestamp,
    /// The SHA-256 of the certificate, by which requests made with it are known.
    pub sha256_hex: String,
}

impl std::fmt::Debug for Register {
    /// Whom certificates were made for, never a key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Register").field("users", &self.users).finish_non_exhaustive()
    }
}

impl Register {
    /// Opens the directory in which a server keeps its keys.
    ///
    /// # Errors
    /// There is no authority in it, or the directory or a file in it cannot be used.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        // Another directory than the server's would get an authority that nobody believes.
        if !dir.join(AUTHORITY_FILE).exists() {
            return Err(PkiError::NoAuthority { path: dir.to_owned() });
        }
        let directory = Directory::open_or_create(dir)?;
        let (authority, _) = open_authority(&directory, now)?;
        let path = directory.file(REGISTER_FILE);
        let users = match files::read_private(&path)? {
            None => Vec::new(),
            Some(bytes) => read(&bytes).ok_or(PkiError::Register { path })?,
        };
        Ok(Self { directory, authority, users })
    }

    /// The certificate of the authority, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority.own.certificate
    }

    /// The certificates that were made, the oldest first. Those that have ended are still listed.
    #[must_use]
    pub fn users(&self) -> &[Record] {
        &self.users
    }

    /// Makes a certificate for a user and writes it down first: there is none that is not listed.
    ///
    /// # Errors
    /// The name is empty, or the list cannot be written.
    pub fn issue(
        &mut self,
        name: &str,
        groups: &[&str],
        validity: Duration,
        now: Timestamp,
    ) -> Result<(Identity, Record), PkiError> {
        let wanted = Leaf::Client { common_name: name, organizations: groups };
        let identity = self.authority.issue(&wanted, validity, now)?;
        let unfit = |why| PkiError::Unfit { what: name.to_owned(), why };
        let certificates = tls::certificates(&identity.certificate)?;
        let certificate = certificates.first().ok_or_else(|| unfit("there is none"))?;
        let subject = peer::subject(certificate)?.ok_or_else(|| unfit("it names nobody"))?;
        let life = SignedDuration::try_from(validity).unwrap_or(SignedDuration::MAX);
        let record = Record {
            name: subject.common_name,
            groups: subject.organizations,
            issued: now,
            expires: peer::read(certificate)?.not_after.min(shifted(now, life)),
            sha256_hex: subject.sha256_hex,
        };
        self.users.push(record.clone());
        let bytes = write(&self.users);
        files::write_private(&self.directory.file(REGISTER_FILE), bytes.as_bytes())?;
        Ok((identity, record))
    }
}

fn write(users: &[Record]) -> String {
    let users = users.iter().map(|Record { name, groups, issued, expires, sha256_hex }| {
        json!({
            "name": name, "groups": groups, "issued": issued.to_string(),
            "expires": expires.to_string(), "sha256": sha256_hex,
        })
    });
    format!("{:#}\n", json!({ "users": users.collect::<Vec<_>>() }))
}

fn read(bytes: &[u8]) -> Option<Vec<Record>> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let text = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    let users = document["users"].as_array()?.iter().map(|user| {
        let groups = user["groups"].as_array()?.iter();
        Some(Record {
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
    fn what_is_made_is_listed_and_believed() {
        let folder = private_folder();
        let dir = folder.path().join("pki");
        let start = at("2026-11-15T12:00:00Z");
        let pki = Pki::open_or_create(&dir, &[], start).unwrap();
        let mut register = Register::open(&dir, start).unwrap();
        assert_eq!(register.users(), []);
        let (identity, bob) = register.issue("bob", &["devs", "ops"], DAY, start).unwrap();
        let (_, kim) = register.issue("kim", &[], DAY * 2, start).unwrap();
        assert_eq!(
            (bob.name.as_str(), bob.groups.as_slice()),
            ("bob", &["devs".into(), "ops".into()][..])
        );
        assert_eq!(bob.expires, at("2026-11-16T12:00:00Z"));
        drop(register);
        let register = Register::open(&dir, at("2027-01-01T00:00:00Z")).unwrap();
        assert_eq!(register.users(), [bob, kim]);
        assert_eq!(register.authority(), pki.authority());
        let clients = ClientAuthority::new(pki.authority()).unwrap();
        let chain = tls::certificates(&identity.certificate).unwrap();
        assert!(clients.believes(&chain, at("2026-11-16T11:59:00Z")));
        assert!(!clients.believes(&chain, at("2026-11-16T12:01:00Z")));
        drop(register);
        let again = Pki::open_or_create(&dir, &[], start).unwrap();
        assert_eq!(again.server(), pki.server(), "the server's own certificates are left alone");
    }

    #[test]
    fn nothing_is_made_where_no_server_was() {
        let folder = private_folder();
        let dir = folder.path().join("pki");
        let start = at("2026-11-15T12:00:00Z");
        let error = Register::open(&dir, start).unwrap_err().to_string();
        assert!(error.starts_with("cannot find a certificate authority in "), "{error}");
        assert!(!dir.exists());
        Pki::open_or_create(&dir, &[], start).unwrap();
        files::write_private(&dir.join(REGISTER_FILE), b"{}").unwrap();
        let error = Register::open(&dir, start).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the list of users in "), "{error}");
        std::fs::remove_file(dir.join(REGISTER_FILE)).unwrap();
        let mut register = Register::open(&dir, start).unwrap();
        assert!(matches!(register.issue("", &[], DAY, start), Err(PkiError::NoName)));
        assert_eq!(register.users(), []);
    }
}
