//! Verifies module files as kernels do, and tells how a kernel refuses one.

use std::borrow::Cow;

use crate::MAX_MODULE_SIZE;
use crate::certificate::{Certificate, common_name};
use crate::cms::{CmsError, ModuleSignature, SignerIdentity};
use crate::compression::{Compression, DecompressError};
use crate::digest::{Digest, WeakDigests};
use crate::errno::Errno;
use crate::module::colon_hex;
use crate::signature::{self, TrailerError};

/// Why a module's signature is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The file could not be unpacked.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The module has no signature.
    #[error("the module is not signed")]
    Unsigned,
    /// The trailer is not one that the kernel accepts.
    #[error(transparent)]
    Trailer(#[from] TrailerError),
    /// The message is not one that the kernel accepts.
    #[error(transparent)]
    Cms(#[from] CmsError),
    /// The message has signed attributes.
    #[error("the module's signature has signed attributes, which kernels refuse; sign it again")]
    Attributes,
    /// None of the trusted certificates is the one that the signature names.
    #[error(
        "the module is signed by {signer}, whose certificate is not trusted: \
         enroll that certificate, or sign the module with another key"
    )]
    UnknownSigner {
        /// The signer, as the signature names it.
        signer: String,
    },
    /// The digest is too weak.
    #[error("the module's signature uses {0}, which is too weak; sign it again with sha256")]
    WeakDigest(Digest),
    /// The library cannot verify the combination of key and digest.
    #[error("cannot verify {0} signatures of this kind of key")]
    Unsupported(Digest),
    /// The module was changed after it was signed, or the signature is not by that key.
    #[error("the module's signature does not match its content; build or sign it again")]
    Mismatch,
}

impl VerifyError {
    /// How a kernel refuses the module; `None` if it loads it all the same.
    ///
    /// A signature that is missing, by an unknown key, or of an unknown algorithm matters only
    /// where signatures are enforced. One that is damaged is refused by every kernel.
    #[must_use]
    pub fn kernel_refusal(&self, enforcement: Enforcement) -> Option<Refusal> {
        let fatal = |errno, log| Some(Refusal { errno, log });
        let lenient = |log| match enforcement {
            Enforcement::Off => None,
            Enforcement::Lockdown => Some(Refusal {
                errno: Errno::NotPermitted,
                log: Some("Lockdown: modprobe: unsigned module loading is restricted"),
            }),
            Enforcement::Enforce => Some(Refusal { errno: Errno::KeyRejected, log: Some(log) }),
        };
        let unsupported = "Loading of module with unsupported crypto is rejected";
        match self {
            Self::Unsigned => lenient("Loading of unsigned module is rejected"),
            Self::UnknownSigner { .. } => {
                lenient("Loading of module with unavailable key is rejected")
            }
            Self::Unsupported(_) => lenient(unsupported),
            Self::Trailer(error) => match error.errno() {
                Errno::NoPackage => lenient(unsupported),
                errno => fatal(errno, trailer_log(error)),
            },
            Self::Cms(error) => match error.errno() {
                Errno::NoPackage => lenient(unsupported),
                errno => fatal(errno, None),
            },
            Self::Attributes => {
                fatal(Errno::KeyRejected, Some("PKCS7: Invalid module sig (has authattrs)"))
            }
            // Weak digests are our policy; a kernel loads the module.
            Self::WeakDigest(_) => None,
            Self::Mismatch => fatal(Errno::KeyRejected, None),
            Self::Decompress(_) => fatal(Errno::NoExec, None),
        }
    }
}

/// What the kernel logs about a trailer that it cannot read.
fn trailer_log(error: &TrailerError) -> Option<&'static str> {
    match error {
        TrailerError::Reserved => Some("PKCS#7 signature info has unexpected non-zero params"),
        TrailerError::Length { .. } => None,
        TrailerError::IdType(_) => Some("not signed with expected PKCS#7 message"),
    }
}

/// How strict a kernel is about signatures of modules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// Modules without a trusted signature are loaded, and taint the kernel.
    #[default]
    Off,
    /// The kernel is locked down (`lockdown=integrity`), without enforcement of its own.
    Lockdown,
    /// `module.sig_enforce=1`, or Secure Boot.
    Enforce,
}

/// How a kernel refuses a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The error number that `modprobe` gets.
    pub errno: Errno,
    /// What the kernel logs. For a damaged module it logs nothing.
    pub log: Option<&'static str>,
}

/// Verifies the outermost signature of a module file as a kernel does that trusts these
/// certificates, and returns the one that signed it.
///
/// An issued certificate must itself be among the trusted: for modules, kernels follow no chains.
/// Kernels also accept weak digests: to answer as one, allow them.
///
/// # Errors
/// Returns an error that says why a kernel would refuse the module, or why our policy does.
pub fn verify_module<'a>(
    file: &[u8],
    trusted: &'a [Certificate],
    weak_digests: WeakDigests,
) -> Result<&'a Certificate, VerifyError> {
    if file.len() > MAX_MODULE_SIZE {
        return Err(DecompressError::TooLarge { limit: MAX_MODULE_SIZE }.into());
    }
    verify_unpacked(&unpack(file, Compression::detect(file))?, trusted, weak_digests)
}

/// The module of a file: a borrowed one, or the unpacked bytes.
pub(crate) fn unpack(
    file: &[u8],
    compression: Compression,
) -> Result<Cow<'_, [u8]>, DecompressError> {
    match compression {
        Compression::None => Ok(Cow::Borrowed(file)),
        Compression::Gzip | Compression::Xz | Compression::Zstd => {
            compression.decompress(file, MAX_MODULE_SIZE).map(Cow::Owned)
        }
    }
}

pub(crate) fn verify_unpacked<'a>(
    module: &[u8],
    trusted: &'a [Certificate],
    weak_digests: WeakDigests,
) -> Result<&'a Certificate, VerifyError> {
    let signed = signature::split(module)?.ok_or(VerifyError::Unsigned)?;
    let message = ModuleSignature::parse(signed.cms)?;
    if message.has_attributes() {
        return Err(VerifyError::Attributes);
    }
    let named = trusted.iter().find(|certificate| message.names(certificate));
    let Some(certificate) = named else {
        return Err(VerifyError::UnknownSigner { signer: describe(&message) });
    };
    if !weak_digests.allow(message.digest()) {
        return Err(VerifyError::WeakDigest(message.digest()));
    }
    match message.verify(signed.payload, certificate) {
        Some(true) => Ok(certificate),
        Some(false) => Err(VerifyError::Mismatch),
        None => Err(VerifyError::Unsupported(message.digest())),
    }
}

/// The signer in words.
fn describe(message: &ModuleSignature) -> String {
    match message.signer() {
        SignerIdentity::IssuerAndSerial { issuer, serial } => {
            let name = common_name(issuer);
            let name = name.unwrap_or_else(|| "an issuer without a common name".to_owned());
            format!("{name:?} (serial {})", colon_hex(serial))
        }
        SignerIdentity::KeyIdentifier(key) => {
            format!("the key with identifier {}", colon_hex(key))
        }
    }
}
