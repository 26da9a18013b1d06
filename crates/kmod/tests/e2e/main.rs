//! Live comparison with the kernel's `sign-file`, `openssl`, `modinfo`, `gzip`, `xz` and `zstd`.
//!
//! Every run makes new keys. A test whose tools are missing prints `skipped:` and why; on Debian
//! the packages are linux-kbuild-*, openssl, kmod, xz-utils and zstd.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod compressed;
mod signatures;
mod tools;
