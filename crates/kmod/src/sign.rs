//! Signs module files, also compressed ones.

use std::borrow::Cow;
use std::fmt;

use crate::MAX_MODULE_SIZE;
use crate::compression::{Compression, DecompressError};
use crate::key::KeySignError;
use crate::module::{self, ModuleInfo};
use crate::signature::{self, TRAILER_SIZE};
use crate::signer::Signer;
use crate::verify::{unpack, verify_unpacked};

/// What to do with signatures that a module has already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExistingSignatures {
    /// Keep them; the new one becomes the outermost, which alone counts.
    #[default]
    Append,
    /// Remove all of them first.
    Replace,
    /// Leave a file alone that has any.
    Skip,
}

/// What was done with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignOutcome {
    /// The file was signed.
    Signed {
        /// The signed file, compressed as it was.
        file: Vec<u8>,
        /// What is odd about the module.
        warnings: Vec<ModuleWarning>,
    },
    /// The file's outermost signature is valid and ours: it stays as it is.
    AlreadySigned,
    /// The file has a signature, and such files are skipped.
    Skipped,
}

/// What is odd about a file that was signed as a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleWarning {
    /// It is an ELF file of another type, such as a program.
    NotRelocatable,
    /// It has no section `.modinfo`.
    NoModinfo,
    /// Its ELF structure cannot be read.
    Unreadable(String),
}

impl fmt::Display for ModuleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRelocatable => {
                f.write_str("the file is no relocatable ELF file, so no kernel loads it")
            }
            Self::NoModinfo => f.write_str("the file has no .modinfo, so no kernel loads it"),
            Self::Unreadable(error) => write!(f, "the file is ELF, but {error}"),
        }
    }
}

/// Why a file was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The file is no module.
    #[error(transparent)]
    NotElf(#[from] module::ModuleError),
    /// The file is too large.
    #[error("the module has {size} bytes, more than {MAX_MODULE_SIZE}")]
    TooLarge {
        /// How large it is.
        size: usize,
    },
    /// The file could not be unpacked.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The signed module could not be packed again.
    #[error("could not compress the signed module with {compression}")]
    Compress {
        /// How the file was compressed.
        compression: Compression,
        /// The encoder's own words.
        source: std::io::Error,
    },
    /// The key does not sign.
    #[error(transparent)]
    Key(#[from] KeySignError),
    /// The message could not be written.
    #[error("cannot encode the signature: {0}")]
    Encode(String),
    /// What was produced does not verify; nothing of it is returned.
    #[error(
        "the produced file does not verify with the certificate: {0}; this is a defect, report it"
    )]
    SelfVerification(String),
}

/// Signs a module file, uncompressed or compressed with gzip, xz or zstd.
///
/// The result was verified with the signer's certificate. Signing again leaves the file as it is.
///
/// # Errors
/// Returns an error for files that are no ELF files and for streams that cannot be unpacked.
pub fn sign_module(
    file: &[u8],
    signer: &Signer,
    existing: ExistingSignatures,
) -> Result<SignOutcome, SignError> {
    if file.len() > MAX_MODULE_SIZE {
        return Err(SignError::TooLarge { size: file.len() });
    }
    let compression = Compression::detect(file);
    let module = unpack(file, compression)?;
    if !module::is_elf(&module) {
        return Err(module::ModuleError::NotElf.into());
    }
    let ours = std::slice::from_ref(signer.certificate());
    if verify_unpacked(&module, ours, signer.options().weak_digests).is_ok() {
        return Ok(SignOutcome::AlreadySigned);
    }
    let payload_length = match existing {
        ExistingSignatures::Replace => signature::strip(&module).len(),
        ExistingSignatures::Skip if signature::stack(&module).next().is_some() => {
            return Ok(SignOutcome::Skipped);
        }
        ExistingSignatures::Append | ExistingSignatures::Skip => module.len(),
    };
    let warnings = warnings(&module[..payload_length]);
    let message = signer.sign(&module[..payload_length])?;
    let mut signed = match module {
        // The one copy of an uncompressed module, allocated once with its final size.
        Cow::Borrowed(module) => {
            let mut copy = Vec::with_capacity(payload_length + message.len() + TRAILER_SIZE);
            copy.extend_from_slice(&module[..payload_length]);
            copy
        }
        Cow::Owned(mut module) => {
            module.truncate(payload_length);
            module
        }
    };
    signature::append(&mut signed, &message)
        .map_err(|_| SignError::Encode(format!("it has {} bytes", message.len())))?;
    verify_unpacked(&signed, ours, signer.options().weak_digests)
        .map_err(|error| SignError::SelfVerification(error.to_string()))?;
    let file = match compression {
        Compression::None => signed,
        Compression::Gzip | Compression::Xz | Compression::Zstd => pack(&signed, compression)?,
    };
    Ok(SignOutcome::Signed { file, warnings })
}

/// Compresses a signed module, and checks that it can be unpacked again.
fn pack(signed: &[u8], compression: Compression) -> Result<Vec<u8>, SignError> {
    let packed = compression
        .compress(signed)
        .map_err(|source| SignError::Compress { compression, source })?;
    match compression.unpacks_to(&packed, signed) {
        Ok(true) => Ok(packed),
        Ok(false) => Err(SignError::SelfVerification("it unpacks to something else".to_owned())),
        Err(error) => Err(SignError::SelfVerification(error.to_string())),
    }
}

fn warnings(module: &[u8]) -> Vec<ModuleWarning> {
    match ModuleInfo::parse(module) {
        Err(error) => vec![ModuleWarning::Unreadable(error.to_string())],
        Ok(info) => {
            let kind = (!info.is_relocatable()).then_some(ModuleWarning::NotRelocatable);
            let modinfo = (!info.has_modinfo()).then_some(ModuleWarning::NoModinfo);
            kind.into_iter().chain(modinfo).collect()
        }
    }
}
