//! The error numbers with which a kernel refuses to load a module.

use std::fmt;

/// An error number of Linux, of those that loading a module can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Errno {
    /// `EPERM`: the caller lacks `CAP_SYS_MODULE`, or the kernel is locked down.
    NotPermitted,
    /// `ENOENT`: a symbol is unknown.
    NoEntry,
    /// `ENOEXEC`: the file is no module, or one for another kernel.
    NoExec,
    /// `EEXIST`: the module is loaded already.
    Exists,
    /// `ENOPKG`: the kernel lacks the digest or the public-key algorithm.
    NoPackage,
    /// `EBADMSG`: the signature cannot be parsed.
    BadMessage,
    /// `ENOKEY`: the certificate is in none of the keyrings that the kernel asks.
    NoKey,
    /// `EKEYREJECTED`: the signature does not match, or signatures are enforced and it has none
    /// that the kernel accepts.
    KeyRejected,
}

impl Errno {
    /// The number on x86, arm64 and most other architectures.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::NotPermitted => 1,
            Self::NoEntry => 2,
            Self::NoExec => 8,
            Self::Exists => 17,
            Self::NoPackage => 65,
            Self::BadMessage => 74,
            Self::NoKey => 126,
            Self::KeyRejected => 129,
        }
    }

    /// The name in the headers of C.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotPermitted => "EPERM",
            Self::NoEntry => "ENOENT",
            Self::NoExec => "ENOEXEC",
            Self::Exists => "EEXIST",
            Self::NoPackage => "ENOPKG",
            Self::BadMessage => "EBADMSG",
            Self::NoKey => "ENOKEY",
            Self::KeyRejected => "EKEYREJECTED",
        }
    }

    /// What `modprobe` prints after `could not insert 'NAME': `.
    #[must_use]
    pub fn modprobe_message(self) -> &'static str {
        match self {
            Self::NoEntry => "Unknown symbol in module, or unknown parameter (see dmesg)",
            Self::Exists => "Module already in kernel",
            Self::NotPermitted
            | Self::NoExec
            | Self::NoPackage
            | Self::BadMessage
            | Self::NoKey
            | Self::KeyRejected => self.c_library_message(),
        }
    }

    /// What `insmod` prints after `could not insert module FILE: `.
    #[must_use]
    pub fn insmod_message(self) -> &'static str {
        match self {
            Self::NoEntry => "Unknown symbol in module",
            Self::NoExec => "Invalid module format",
            Self::NotPermitted
            | Self::Exists
            | Self::NoPackage
            | Self::BadMessage
            | Self::NoKey
            | Self::KeyRejected => self.c_library_message(),
        }
    }

    /// The words of `strerror`.
    fn c_library_message(self) -> &'static str {
        match self {
            Self::NotPermitted => "Operation not permitted",
            Self::NoEntry => "No such file or directory",
            Self::NoExec => "Exec format error",
            Self::Exists => "File exists",
            Self::NoPackage => "Package not installed",
            Self::BadMessage => "Bad message",
            Self::NoKey => "Required key not available",
            Self::KeyRejected => "Key was rejected by service",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
