//! Reads private keys, passphrases and certificates.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::{Certificate, Digest, PrivateKey, Signer, SignerOptions, WeakDigests};
use zeroize::Zeroizing;

use super::{ExitReason, Failure};
use crate::output::Output;

/// The largest file that is read; keys and certificates have a few kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a key and its certificate, and prints what users should know about them.
pub(super) fn signer(
    key: &Path,
    certificate: &Path,
    passphrase: Option<&[u8]>,
    options: SignerOptions,
    output: &mut Output,
) -> Result<Signer, Failure> {
    let refused = |error: anyhow::Error| ExitReason::KeyOrCertificate.because(error);
    let key = &in_secret(key, &["key", "tls.key"]).map_err(refused)?;
    let file = read(key).map_err(refused)?;
    let key = PrivateKey::parse(&file, passphrase)
        .with_context(|| format!("cannot use the key {}", key.display()))
        .map_err(refused)?;
    let certificate = self::certificate(certificate)?;
    let signer = Signer::new(key, certificate, options).map_err(|error| refused(error.into()))?;
    for warning in signer.warnings(gantry_process::clock::Clock::system().now()) {
        output.warning(warning);
    }
    Ok(signer)
}

/// Reads a certificate.
pub(super) fn certificate(path: &Path) -> Result<Certificate, Failure> {
    let read = in_secret(path, &["cert", "tls.crt"]).and_then(|path| {
        let file = read(&path)?;
        Certificate::parse(&file)
            .with_context(|| format!("cannot use the certificate {}", path.display()))
    });
    read.map_err(|error| ExitReason::KeyOrCertificate.because(error))
}

/// Reads the passphrase of a key; the line break at its end is not part of it.
///
/// Without a file of its own it is the key `pin` of the Secret that is mounted with the key.
pub(super) fn passphrase(
    path: Option<&Path>,
    key: &Path,
) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let beside = Some(key.join("pin")).filter(|it| it.is_file());
    let Some(path) = path.or(beside.as_deref()) else { return Ok(None) };
    let mut text = read(path).map_err(|it| ExitReason::KeyOrCertificate.because(it))?;
    while text.last().is_some_and(|it| matches!(it, b'\n' | b'\r')) {
        text.pop();
    }
    Ok(Some(text))
}

/// Returns how a signer signs.
pub(super) fn options(digest: Digest, weak: bool, identify_by: IdentifyBy) -> SignerOptions {
    let weak_digests = if weak { WeakDigests::Allow } else { WeakDigests::Refuse };
    SignerOptions { digest, weak_digests, identify_by }
}

/// Returns a file itself, or of a directory, which is a mounted Secret, the file with the first of
/// these names that there is.
pub(super) fn in_secret(path: &Path, names: &[&str]) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut files = names.iter().map(|name| path.join(name));
    files.find(|file| file.is_file()).with_context(|| {
        format!("{} has none of the keys {}; add one", path.display(), names.join(", "))
    })
}

fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let named = || format!("could not read {}", path.display());
    let file = std::fs::File::open(path).with_context(named)?;
    // All of it at once: a buffer that grows leaves copies of what it had behind.
    let capacity = usize::try_from(MAX_FILE_BYTES + 1)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(named)?;
    anyhow::ensure!(
        bytes.len() as u64 <= MAX_FILE_BYTES,
        "{} has more than {MAX_FILE_BYTES} bytes: that is no key, passphrase or certificate",
        path.display()
    );
    Ok(bytes)
}
