//! Signs modules with the kernel's own program, the reference for every other signer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's `sign-file`.
#[derive(Clone, Debug)]
pub struct SignFile {
    program: PathBuf,
}

/// How a signature names the certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifier {
    /// By issuer and serial number.
    #[default]
    IssuerAndSerial,
    /// By the certificate's key identifier (`-k`).
    KeyIdentifier,
}

impl SignFile {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Returns the module with a signature at its end. `digest` is a name such as `sha256`.
    ///
    /// # Errors
    /// The program did not run, or refused the key or the certificate.
    pub fn sign(
        &self,
        module: &[u8],
        key_pem: &str,
        certificate_pem: &str,
        digest: &str,
        identifier: Identifier,
    ) -> Result<Vec<u8>, SignFileError> {
        // Only its owner may read it: there is a private key in it.
        let folder = tempfile::tempdir().map_err(SignFileError::Run)?;
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).map(|()| path).map_err(SignFileError::Run)
        };
        let key = write("key.pem", key_pem.as_bytes())?;
        let certificate = write("certificate.pem", certificate_pem.as_bytes())?;
        let module = write("module.ko", module)?;
        let signed = folder.path().join("signed.ko");
        let mut command = Command::new(&self.program);
        match identifier {
            Identifier::IssuerAndSerial => {}
            Identifier::KeyIdentifier => {
                command.arg("-k");
            }
        }
        let paths: [&Path; 4] = [&key, &certificate, &module, &signed];
        let output = command.arg(digest).args(paths).output().map_err(SignFileError::Run)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(SignFileError::Refused { said });
        }
        fs::read(&signed).map_err(SignFileError::Run)
    }
}

/// Why `sign-file` gave no signed module.
#[derive(Debug, thiserror::Error)]
pub enum SignFileError {
    /// It did not run, or its files could not be written.
    #[error("could not run sign-file")]
    Run(#[source] io::Error),
    /// It did not accept what it was given.
    #[error("sign-file cannot sign: {said}")]
    Refused {
        /// Its error message.
        said: String,
    },
}
