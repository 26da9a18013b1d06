//! Compares with files that the kernel's `sign-file`, `openssl`, `modinfo`, `gzip`, `xz` and `zstd`
//! made. Nothing of that needs to be installed: `fixtures/README.md` says how they were made.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod foreign_signatures;
mod properties;
mod same_bytes;
mod sign_again;

use std::path::PathBuf;

use gantry_kmod::{Certificate, PrivateKey, Signer, SignerOptions};

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn certificate(name: &str) -> Certificate {
    Certificate::parse(&fixture(&format!("certificates/{name}.pem"))).unwrap()
}

fn key(name: &str) -> PrivateKey {
    PrivateKey::parse(&fixture(&format!("keys/{name}.pkcs8.pem")), None).unwrap()
}

fn signer(name: &str) -> Signer {
    signer_with(name, SignerOptions::default())
}

fn signer_with(name: &str, options: SignerOptions) -> Signer {
    Signer::new(key(name), certificate(name), options).unwrap()
}
