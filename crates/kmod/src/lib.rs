//! Kernel module files: reads, signs, verifies and compresses them, without I/O.
//!
//! A [`Signer`] is a [`PrivateKey`] with its [`Certificate`]; [`sign_module`] signs a module with
//! it, also inside gzip, xz or zstd, and gives the same bytes as the kernel's `scripts/sign-file`.
//! [`verify_module`] answers as a kernel would that trusts one certificate. [`ModuleInfo`] is what
//! `modinfo` shows, [`SyntheticModule`] writes a module for demonstrations, [`KernelRelease`] takes
//! the output of `uname -r` apart, and [`hint`] explains why a kernel refused a module.
//!
//! Nothing here opens a file or reads a clock. All input is taken to be hostile: every size is
//! bounded ([`MAX_MODULE_SIZE`]) and no input panics.

pub mod certificate;
pub mod cms;
pub mod compression;
mod digest;
mod errno;
pub mod hint;
pub mod key;
pub mod module;
mod pbes2;
mod pem;
pub mod release;
pub mod sign;
pub mod signature;
pub mod signer;
pub mod synthetic;
pub mod verify;

pub use certificate::Certificate;
pub use compression::Compression;
pub use digest::{Digest, WeakDigests};
pub use errno::Errno;
pub use key::PrivateKey;
pub use module::ModuleInfo;
pub use release::KernelRelease;
pub use sign::{ExistingSignatures, SignOutcome, sign_module};
pub use signer::{Signer, SignerOptions};
pub use synthetic::SyntheticModule;
pub use verify::verify_module;

/// How large a module may be, unpacked.
///
/// The largest modules with debug information have about 300 MB. A file that unpacks to more is
/// refused before it fills the memory.
pub const MAX_MODULE_SIZE: usize = 512 << 20;
