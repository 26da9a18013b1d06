//! Explains why a kernel refused a module: the words of kernel and `modprobe`, and what to do next.

/// What went wrong when a module was loaded or removed.
///
/// The name is the reason that conditions and events use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoadFailure {
    /// The module has no signature.
    ModuleUnsigned,
    /// The signature names a certificate that the kernel does not have.
    KeyNotEnrolled,
    /// The kernel lacks the digest or ECDSA.
    UnsupportedCrypto,
    /// The signature has signed attributes.
    SignatureHasAttributes,
    /// The signature is there, and its trailer or message cannot be read.
    SignatureUnreadable,
    /// The kernel enforces signatures and rejected this one; it may have logged why.
    SignatureRejected,
    /// The kernel is locked down.
    LockedDown,
    /// The process lacks `CAP_SYS_MODULE`, or the kernel is locked down.
    NotPermitted,
    /// The module was loaded without a trusted signature.
    KernelTainted,
    /// The module was built for another kernel.
    WrongKernel,
    /// The module needs a symbol that no loaded module exports.
    UnknownSymbol,
    /// The module was built against other versions of symbols.
    SymbolVersions,
    /// The file is no module for this kernel.
    InvalidFormat,
    /// The kernel's decompressor does not read the file.
    CompressionNotSupported,
    /// The file's directory has no such module.
    ModuleNotFound,
    /// The module or one that it conflicts with is loaded already.
    AlreadyLoaded,
    /// The module is used by others.
    InUse,
    /// The node allows only modules of its root file system.
    LoadPinned,
}

impl LoadFailure {
    /// The reason in CamelCase.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.texts().0
    }

    /// What it means.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.texts().1
    }

    /// What to do next.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        self.texts().2
    }

    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ModuleUnsigned => (
                "ModuleUnsigned",
                "the node enforces module signatures and the module has none",
                "configure `sign` in the Module, and enroll its certificate on the node",
            ),
            Self::KeyNotEnrolled => (
                "KeyNotEnrolled",
                "the module is signed, and the node does not have the signer's certificate; \
                 only the outermost signature counts, and a certificate's authority is not asked",
                "enroll the signing certificate itself on the node (UEFI db or MOK), \
                 then restart it; `modinfo` shows signer and serial",
            ),
            Self::UnsupportedCrypto => (
                "UnsupportedCrypto",
                "the kernel lacks the digest or the key algorithm of the signature; \
                 kernels before 6.7 often lack SHA-384, SHA-512 and ECDSA",
                "sign with sha256 and an RSA key",
            ),
            Self::SignatureHasAttributes => (
                "SignatureHasAttributes",
                "the signature has signed attributes, which kernels refuse for modules",
                "sign the module again with `existing: replace`",
            ),
            Self::SignatureUnreadable => (
                "SignatureUnreadable",
                "the end of the file looks like a signature and cannot be read",
                "build and sign the module again; do not append to signed files",
            ),
            Self::SignatureRejected => (
                "SignatureRejected",
                "the node enforces module signatures and rejected the module: it is unsigned, its \
                 certificate is not enrolled, or the file changed after it was signed, \
                 for which the kernel logs nothing",
                "see the node's kernel log; run `gantry modules verify` on the image; \
                 sign the module and enroll its certificate",
            ),
            Self::LockedDown => (
                "LockedDown",
                "the node's kernel is locked down (Secure Boot) and loads only signed modules \
                 whose certificate it has",
                "sign the module and enroll its certificate on the node",
            ),
            Self::NotPermitted => (
                "NotPermitted",
                "the container may not load modules, or the node's kernel is locked down and the \
                 module has no signature that it trusts",
                "add the capability SYS_MODULE to the container; where \
                 /sys/kernel/security/lockdown is not [none], sign the module and enroll its \
                 certificate",
            ),
            Self::KernelTainted => (
                "KernelTainted",
                "the module was loaded without a signature that the kernel trusts",
                "nothing, or sign the module and enroll its certificate",
            ),
            Self::WrongKernel => (
                "WrongKernel",
                "the module was built for another kernel than the node runs",
                "check the kernelMapping: the image must be built for the release that \
                 `uname -r` prints on the node",
            ),
            Self::UnknownSymbol => (
                "UnknownSymbol",
                "the module needs a symbol of a module that is not loaded, or got a parameter that \
                 it does not have",
                "see the kernel log for the symbol; run depmod in the image with the node's \
                 in-tree modules present, or load the dependency first (modulesLoadingOrder)",
            ),
            Self::SymbolVersions => (
                "SymbolVersions",
                "the module was built against another build of this kernel, or of a module that it \
                 depends on",
                "build it with the headers of exactly the node's kernel",
            ),
            Self::InvalidFormat => (
                "InvalidFormat",
                "the file is no module that this kernel can load: built for another kernel or \
                 processor, damaged, or a synthetic module",
                "compare `modinfo -F vermagic` with `uname -r` of the node; build the image again",
            ),
            Self::CompressionNotSupported => (
                "CompressionNotSupported",
                "the kernel unpacks modules itself and does not read this file: it has another \
                 compression, or xz with settings that the kernel does not know",
                "sign the file with Gantry, which compresses as kernels read it, \
                 or use uncompressed modules",
            ),
            Self::ModuleNotFound => (
                "ModuleNotFound",
                "the image has no such module for the kernel that the node runs",
                "check modprobe.moduleName and dirName, that the file is below \
                 /opt/lib/modules/<kernel>, and that depmod ran in the image",
            ),
            Self::AlreadyLoaded => (
                "AlreadyLoaded",
                "a module of this name is loaded already, for instance the in-tree one",
                "name the in-tree module in inTreeModulesToRemove",
            ),
            Self::InUse => (
                "InUse",
                "the module cannot be removed while programs, devices or modules use it",
                "see `lsmod` and /sys/module/<module>/holders on the node; stop the pods that use \
                 its devices",
            ),
            Self::LoadPinned => (
                "LoadPinned",
                "the node allows only modules from its own root file system (LoadPin, as on \
                 Container-Optimized OS)",
                "start the node with the kernel option loadpin.exclude=kernel-module, \
                 or use nodes without LoadPin",
            ),
        }
    }
}

/// Phrases of kernel, `modprobe` and `insmod` in lower case, the most telling first.
///
/// The words of the kernel come before those of user space, which give only the error number.
pub const PHRASES: [(&str, LoadFailure); 34] = [
    ("loading of unsigned module is rejected", LoadFailure::ModuleUnsigned),
    ("loading of module with unavailable key", LoadFailure::KeyNotEnrolled),
    ("loading of module with unsupported crypto", LoadFailure::UnsupportedCrypto),
    ("invalid module sig (has authattrs)", LoadFailure::SignatureHasAttributes),
    ("signature info has unexpected non-zero params", LoadFailure::SignatureUnreadable),
    ("not signed with expected pkcs#7 message", LoadFailure::SignatureUnreadable),
    ("pkcs#7 signature not signed with a trusted key", LoadFailure::KeyNotEnrolled),
    ("unsigned module loading is restricted", LoadFailure::LockedDown),
    ("kernel module loading is restricted", LoadFailure::LockedDown),
    ("loadpin: kernel-module", LoadFailure::LoadPinned),
    ("module verification failed: signature and/or", LoadFailure::KernelTainted),
    ("version magic '", LoadFailure::WrongKernel),
    ("disagrees about version of symbol", LoadFailure::SymbolVersions),
    ("no symbol version for", LoadFailure::SymbolVersions),
    ("module has wrong symbol version", LoadFailure::SymbolVersions),
    ("unknown symbol", LoadFailure::UnknownSymbol),
    ("no module found in object", LoadFailure::InvalidFormat),
    ("decompression failed with status", LoadFailure::CompressionNotSupported),
    ("not an xz compressed module", LoadFailure::CompressionNotSupported),
    ("not a gzip compressed module", LoadFailure::CompressionNotSupported),
    ("not a zstd compressed module", LoadFailure::CompressionNotSupported),
    ("required key not available", LoadFailure::KeyNotEnrolled),
    ("key was rejected by service", LoadFailure::SignatureRejected),
    ("package not installed", LoadFailure::UnsupportedCrypto),
    ("bad message", LoadFailure::SignatureUnreadable),
    ("operation not permitted", LoadFailure::NotPermitted),
    ("invalid module format", LoadFailure::InvalidFormat),
    ("exec format error", LoadFailure::InvalidFormat),
    ("not found in directory", LoadFailure::ModuleNotFound),
    ("module already in kernel", LoadFailure::AlreadyLoaded),
    ("file exists", LoadFailure::AlreadyLoaded),
    ("is in use", LoadFailure::InUse),
    ("resource temporarily unavailable", LoadFailure::InUse),
    ("device or resource busy", LoadFailure::InUse),
];

/// How much of a log is searched; the end counts.
const MAX_TEXT: usize = 64 << 10;

/// Explains the output of `modprobe` or a kernel log, by its most telling phrase.
///
/// A damaged module has no words of its own in a kernel log: then only
/// [`LoadFailure::SignatureRejected`] is left, which says so.
#[must_use]
pub fn explain(text: &str) -> Option<LoadFailure> {
    let mut start = text.len().saturating_sub(MAX_TEXT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let text = text[start..].to_ascii_lowercase();
    PHRASES.iter().find(|(phrase, _)| text.contains(phrase)).map(|(_, failure)| *failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn secure_boot_failures_are_explained() {
        let table = [
            // the words, as they were measured or are in the sources                     reason
            (
                "modprobe: ERROR: could not insert 'hello': Key was rejected by service",
                LoadFailure::SignatureRejected,
            ),
            (
                "[ 4.1] Loading of unsigned module is rejected\n\
                 modprobe: ERROR: could not insert 'hello': Key was rejected by service",
                LoadFailure::ModuleUnsigned,
            ),
            ("Loading of module with unavailable key is rejected", LoadFailure::KeyNotEnrolled),
            (
                "insmod: can't insert 'a.ko': Required key not available",
                LoadFailure::KeyNotEnrolled,
            ),
            (
                "Loading of module with unsupported crypto is rejected",
                LoadFailure::UnsupportedCrypto,
            ),
            (
                "modprobe: ERROR: could not insert 'hello': Operation not permitted",
                LoadFailure::NotPermitted,
            ),
            (
                "Lockdown: insmod: unsigned module loading is restricted; see man \
                 kernel_lockdown.7",
                LoadFailure::LockedDown,
            ),
            ("could not insert 'hello': Bad message", LoadFailure::SignatureUnreadable),
            ("PKCS7: Invalid module sig (has authattrs)", LoadFailure::SignatureHasAttributes),
            ("insmod: can't insert 'a.ko': invalid module format", LoadFailure::InvalidFormat),
            (
                "hello: version magic '6.1.0-54-amd64 SMP' should be '6.1.0-55-amd64 SMP'",
                LoadFailure::WrongKernel,
            ),
            ("hello_c: Unknown symbol crc_itu_t (err -2)", LoadFailure::UnknownSymbol),
            ("Module: not an xz compressed module", LoadFailure::CompressionNotSupported),
            (
                "hello: module verification failed: signature and/or required key missing - \
                 tainting kernel",
                LoadFailure::KernelTainted,
            ),
            (
                "modprobe: FATAL: Module hello not found in directory /opt/lib/modules/6.1.0",
                LoadFailure::ModuleNotFound,
            ),
            ("modprobe: FATAL: Module hello is in use.", LoadFailure::InUse),
            (
                "LoadPin: kernel-module denied obj=\"/opt/lib/modules/a.ko\"",
                LoadFailure::LoadPinned,
            ),
        ];
        for (text, expected) in table {
            assert_eq!(explain(text), Some(expected), "{text}");
        }
        assert_eq!(explain("hello: loading out-of-tree module taints kernel."), None);
        assert_eq!(explain(""), None);
    }

    #[test]
    fn every_error_number_is_explained() {
        use Errno as E;
        let all = [
            E::NotPermitted,
            E::NoEntry,
            E::NoExec,
            E::Exists,
            E::NoPackage,
            E::BadMessage,
            E::NoKey,
            E::KeyRejected,
        ];
        for errno in all {
            for message in [errno.modprobe_message(), errno.insmod_message()] {
                assert!(explain(message).is_some(), "{errno}: {message}");
            }
        }
    }

    #[test]
    fn phrases_are_in_lower_case_and_none_hides_another() {
        for (at, (phrase, failure)) in PHRASES.iter().enumerate() {
            assert_eq!(*phrase, phrase.to_ascii_lowercase());
            assert_eq!(explain(phrase), Some(*failure), "phrase {at}: {phrase}");
            assert!(!failure.meaning().is_empty() && !failure.remedy().is_empty());
            assert!(failure.reason().starts_with(|it: char| it.is_ascii_uppercase()));
        }
    }

    #[test]
    fn a_long_log_is_searched_at_its_end() {
        let log = format!("{}ä Bad message", "ä".repeat(100_000));
        assert_eq!(explain(&log), Some(LoadFailure::SignatureUnreadable));
        let log = format!("Bad message {}", "ä".repeat(100_000));
        assert_eq!(explain(&log), None);
    }
}
