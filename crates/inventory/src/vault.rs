//! Encrypted texts of inventories: format 1.1 and 1.2 of `ansible-vault`.
//!
//! A header line, then hexadecimal digits of three lines, each in hexadecimal digits again: salt,
//! HMAC-SHA-256 of the ciphertext, ciphertext. AES-256-CTR; its keys are made of the password by
//! PBKDF2. The password is checked before anything is decrypted.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{hmac, pbkdf2};
use zeroize::{Zeroize, Zeroizing};

/// A password of vaults, with the label it was given.
pub struct VaultPassword {
    /// The label, or nothing; it only decides which password is tried first.
    pub label: Option<String>,
    /// The password.
    pub password: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for VaultPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VaultPassword").field("label", &self.label).finish_non_exhaustive()
    }
}

/// Why a vault could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VaultError {
    /// The text is not a vault, or one of another version.
    Header,
    /// The text is cut off or was changed.
    Damaged,
    /// No password was given.
    NoPassword,
    /// None of the passwords opens it, or it was changed.
    WrongPassword,
    /// The content is not UTF-8.
    NotText,
}

impl VaultError {
    /// The message and what to do.
    pub(crate) fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::Header => (
                "not a vault that is understood",
                "expected `$ANSIBLE_VAULT;1.1;AES256` or `$ANSIBLE_VAULT;1.2;AES256;LABEL`",
            ),
            Self::Damaged => ("the vault is damaged", "encrypt the value again"),
            Self::NoPassword => ("encrypted, and no password was given", PASSWORD_REMEDY),
            Self::WrongPassword => {
                ("no password opens this vault, or it is damaged", PASSWORD_REMEDY)
            }
            Self::NotText => {
                ("the content of the vault is not UTF-8", "encrypt text, not a binary file")
            }
        }
    }
}

const PASSWORD_REMEDY: &str = "use --vault-password-file with the password it was encrypted with";

/// Whether a text begins as vaults do.
pub(crate) fn is_vault(text: &str) -> bool {
    text.trim_start().starts_with("$ANSIBLE_VAULT;")
}

/// Decrypts a vault with the first password that opens it.
pub(crate) fn open(
    text: &str,
    passwords: &[VaultPassword],
) -> Result<Zeroizing<String>, VaultError> {
    let envelope = Envelope::parse(text)?;
    if passwords.is_empty() {
        return Err(VaultError::NoPassword);
    }
    // The label only saves attempts: PBKDF2 takes milliseconds on purpose.
    let matches = |it: &&VaultPassword| it.label == envelope.label && it.label.is_some();
    let first = passwords.iter().filter(matches);
    let others = passwords.iter().filter(|it| !matches(it));
    for password in first.chain(others) {
        if let Some(content) = envelope.decrypt(&password.password)? {
            let text = String::from_utf8(content).map_err(|error| {
                error.into_bytes().zeroize();
                VaultError::NotText
            })?;
            return Ok(Zeroizing::new(text));
        }
    }
    Err(VaultError::WrongPassword)
}

struct Envelope {
    label: Option<String>,
    salt: Vec<u8>,
    mac: Vec<u8>,
    ciphertext: Vec<u8>,
}

const ITERATIONS: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");
const BLOCK_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

impl Envelope {
    fn parse(text: &str) -> Result<Self, VaultError> {
        let mut lines = text.trim().lines().map(str::trim);
        let mut header = lines.next().unwrap_or_default().split(';').map(str::trim);
        let (mark, version) = (header.next(), header.next());
        let (cipher, label) = (header.next(), header.next());
        let is_known = mark == Some("$ANSIBLE_VAULT") && cipher == Some("AES256");
        let label = match (version, label) {
            (Some("1.1"), None) => None,
            (Some("1.2"), Some(label)) => Some(label.to_owned()),
            _ => return Err(VaultError::Header),
        };
        if !is_known {
            return Err(VaultError::Header);
        }
        let body = unhex(&lines.collect::<String>()).ok_or(VaultError::Damaged)?;
        let body = String::from_utf8(body).map_err(|_| VaultError::Damaged)?;
        let parts: Option<Vec<Vec<u8>>> = body.splitn(3, '\n').map(unhex).collect();
        let parts = parts.and_then(|parts| <[Vec<u8>; 3]>::try_from(parts).ok());
        let [salt, mac, ciphertext] = parts.ok_or(VaultError::Damaged)?;
        Ok(Self { label, salt, mac, ciphertext })
    }

    /// Returns nothing if the password is another one.
    fn decrypt(&self, password: &[u8]) -> Result<Option<Vec<u8>>, VaultError> {
        let mut keys = Zeroizing::new([0; 2 * KEY_BYTES + BLOCK_BYTES]);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            ITERATIONS,
            &self.salt,
            password,
            keys.as_mut_slice(),
        );
        let (cipher_key, rest) = keys.split_at(KEY_BYTES);
        let (mac_key, iv) = rest.split_at(KEY_BYTES);
        let mac_key = hmac::Key::new(hmac::HMAC_SHA256, mac_key);
        if hmac::verify(&mac_key, &self.ciphertext, &self.mac).is_err() {
            return Ok(None);
        }
        let iv = <[u8; BLOCK_BYTES]>::try_from(iv).map_err(|_| VaultError::Damaged)?;
        let mut content = self.ciphertext.clone();
        let key = UnboundCipherKey::new(&AES_256, cipher_key).and_then(DecryptingKey::ctr);
        let context = DecryptionContext::Iv128(FixedLength::from(iv));
        let decrypted = key.and_then(|key| key.decrypt(&mut content, context).map(drop));
        decrypted.map_err(|_| VaultError::Damaged)?;
        let padding = content.last().copied().unwrap_or_default() as usize;
        let is_padded = (1..=BLOCK_BYTES).contains(&padding)
            && content.len() >= padding
            && content[content.len() - padding..].iter().all(|byte| *byte as usize == padding);
        if !is_padded {
            content.zeroize();
            return Err(VaultError::Damaged);
        }
        content.truncate(content.len() - padding);
        Ok(Some(content))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn password(text: &str, label: Option<&str>) -> VaultPassword {
        VaultPassword {
            label: label.map(str::to_owned),
            password: Zeroizing::new(text.as_bytes().to_vec()),
        }
    }

    /// Made by ansible-vault of ansible-core 2.19.14: `s3cret` with password `open sesame`.
    const OLD: &str = include_str!("../tests/data/vault-1.1.txt");
    /// The same with `--vault-id prod@FILE`.
    const LABELED: &str = include_str!("../tests/data/vault-1.2.txt");

    #[test]
    fn pvs_8_vaults_of_both_formats_open() {
        for text in [OLD, LABELED] {
            let right = password("open sesame", None);
            assert_eq!(open(text, &[right]).unwrap().as_str(), "s3cret");
            let several = [password("x", Some("dev")), password("open sesame", Some("prod"))];
            assert_eq!(open(text, &several).unwrap().as_str(), "s3cret");
            assert_eq!(open(text, &[]).unwrap_err(), VaultError::NoPassword);
            assert_eq!(open(text, &[password("x", None)]).unwrap_err(), VaultError::WrongPassword);
        }
        let debug = format!("{:?}", password("open sesame", None));
        assert!(!debug.contains("sesame"), "{debug}");
    }

    #[test]
    fn damaged_vaults_are_refused() {
        let passwords = [password("open sesame", None)];
        let lines: Vec<&str> = OLD.lines().collect();
        let table = [
            ("another header", OLD.replace("1.1", "1.0"), VaultError::Header),
            ("another cipher", OLD.replace("AES256", "AES"), VaultError::Header),
            ("no body", lines[0].to_owned(), VaultError::Damaged),
            ("cut off", lines[..2].join("\n"), VaultError::Damaged),
            ("no digits", format!("{}\nzz", lines[0]), VaultError::Damaged),
        ];
        for (why, text, expected) in table {
            assert_eq!(open(&text, &passwords).unwrap_err(), expected, "{why}");
        }
        // The last digits belong to the ciphertext.
        let end = OLD.trim_end().len();
        let last = if OLD.as_bytes()[end - 1] == b'1' { '2' } else { '1' };
        let changed = format!("{}{last}", &OLD[..end - 1]);
        assert_eq!(open(&changed, &passwords).unwrap_err(), VaultError::WrongPassword);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(body in "[0-9a-f\n;]{0,80}") {
            let _ = open(&format!("$ANSIBLE_VAULT;1.1;AES256\n{body}"), &[]);
            let _ = open(&body, &[]);
        }
    }
}
