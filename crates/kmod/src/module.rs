//! What is written in a module: the fields of `.modinfo`, and its signature as `modinfo` shows it.

use object::{Object, ObjectSection};

use crate::certificate::common_name;
use crate::cms::{ModuleSignature, SignerIdentity};
use crate::digest::Digest;
use crate::release::KernelRelease;
use crate::signature;

/// The largest `.modinfo` that is read. Those with thousands of aliases have some hundred KiB.
const MAX_MODINFO_SIZE: u64 = 4 << 20;

/// How many fields of `.modinfo` are read.
const MAX_FIELDS: usize = 65_536;

/// The first bytes of an ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// What an uncompressed module says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    relocatable: bool,
    fields: Option<Vec<(String, String)>>,
}

/// Why a file is not read as a module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// It is something else.
    #[error(
        "the file is no kernel module: it does not begin with the ELF magic; \
         name the `.ko` file, or one compressed with gzip, xz or zstd"
    )]
    NotElf,
    /// It claims to be ELF and cannot be read.
    #[error("cannot read the module: {0}; build it again")]
    Damaged(String),
    /// Its `.modinfo` is beyond any real one.
    #[error("cannot read the module: its .modinfo section has {size} bytes, more than {limit}")]
    TooLarge {
        /// How large it is.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

/// Whether a file begins as ELF files do. That is all the kernel's `sign-file` would need.
#[must_use]
pub fn is_elf(module: &[u8]) -> bool {
    module.starts_with(ELF_MAGIC)
}

impl ModuleInfo {
    /// Reads an uncompressed module, signed or not.
    ///
    /// # Errors
    /// Returns an error for a file that is not ELF or is damaged. An ELF file that is no module is
    /// no error: see [`is_relocatable`](Self::is_relocatable) and
    /// [`has_modinfo`](Self::has_modinfo).
    pub fn parse(module: &[u8]) -> Result<Self, ModuleError> {
        if !is_elf(module) {
            return Err(ModuleError::NotElf);
        }
        let damaged = |error: object::Error| ModuleError::Damaged(error.to_string());
        let file = object::File::parse(module).map_err(damaged)?;
        let fields = match file.section_by_name(".modinfo") {
            None => None,
            Some(section) if section.size() > MAX_MODINFO_SIZE => {
                let (size, limit) = (section.size(), MAX_MODINFO_SIZE);
                return Err(ModuleError::TooLarge { size, limit });
            }
            Some(section) => Some(fields(section.data().map_err(damaged)?)),
        };
        Ok(Self { relocatable: file.kind() == object::ObjectKind::Relocatable, fields })
    }

    /// Whether the file is of the type of kernel modules, `ET_REL`.
    #[must_use]
    pub fn is_relocatable(&self) -> bool {
        self.relocatable
    }

    /// Whether the file has a section `.modinfo`. Without it a kernel does not load it.
    #[must_use]
    pub fn has_modinfo(&self) -> bool {
        self.fields.is_some()
    }

    /// The fields of `.modinfo` in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first value of a field, such as `license`, `version` or `srcversion`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// All values of a field, such as `alias`, `softdep`, `parm` or `firmware`.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields().filter(move |(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The module's name. Modules built before Linux 4.13 do not have it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.field("name")
    }

    /// The version magic: the kernel's release and options that must agree with the kernel's.
    #[must_use]
    pub fn vermagic(&self) -> Option<&str> {
        self.field("vermagic")
    }

    /// The release of the kernel that the module was built for, from the version magic.
    #[must_use]
    pub fn kernel_release(&self) -> Option<KernelRelease> {
        self.vermagic()?.split_ascii_whitespace().next()?.parse().ok()
    }

    /// The modules that must be loaded before.
    pub fn depends(&self) -> impl Iterator<Item = &str> {
        self.values("depends").flat_map(|names| names.split(',')).filter(|name| !name.is_empty())
    }
}

/// The fields of a section: `name=value` texts, each ended by one zero byte or more.
fn fields(section: &[u8]) -> Vec<(String, String)> {
    section
        .split(|byte| *byte == 0)
        .filter_map(|field| {
            let at = field.iter().position(|byte| *byte == b'=')?;
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&field[..at]), text(&field[at + 1..])))
        })
        .take(MAX_FIELDS)
        .collect()
}

/// The outermost signature of a module, with the fields that `modinfo` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureInfo {
    /// `sig_id`: always `PKCS#7`.
    pub sig_id: &'static str,
    /// `signer`: the common name of the certificate's issuer. A signature by key identifier has
    /// none, and `modinfo` of kmod 30 shows no signature at all for it.
    pub signer: Option<String>,
    /// `sig_key`: the certificate's serial number, or the key identifier, in hexadecimal.
    pub sig_key: String,
    /// `sig_hashalgo`.
    pub sig_hashalgo: Digest,
    /// `signature`: the signature itself in hexadecimal.
    pub signature: String,
    /// How many signatures the file has. A kernel looks at the outermost only.
    pub count: usize,
}

impl SignatureInfo {
    /// Reads the outermost signature of an uncompressed module; `None` if there is none that can be
    /// read.
    #[must_use]
    pub fn of(module: &[u8]) -> Option<Self> {
        let count = signature::stack(module).count();
        let outermost = signature::split(module).ok()??;
        let cms = ModuleSignature::parse(outermost.cms).ok()?;
        let (signer, key) = match cms.signer() {
            SignerIdentity::IssuerAndSerial { issuer, serial } => {
                (common_name(issuer), serial.clone())
            }
            SignerIdentity::KeyIdentifier(key) => (None, key.clone()),
        };
        Some(Self {
            sig_id: "PKCS#7",
            signer,
            sig_key: colon_hex(&key),
            sig_hashalgo: cms.digest(),
            signature: colon_hex(cms.signature()),
            count,
        })
    }
}

/// Bytes in hexadecimal, as `modinfo` and `openssl` print them.
pub(crate) fn colon_hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::synthetic::SyntheticModule;

    const SAMPLE: &[u8] = include_bytes!("../tests/fixtures/sample.ko");

    #[test]
    fn an_object_of_an_assembler_is_read() {
        let info = ModuleInfo::parse(SAMPLE).unwrap();
        assert!(info.is_relocatable() && info.has_modinfo());
        assert_eq!(info.name(), Some("sample"));
        assert_eq!(info.field("license"), Some("GPL"));
        assert_eq!(info.field("nothing"), None);
        assert_eq!(info.kernel_release().unwrap().as_str(), "6.1.0-55-cloud-amd64");
        assert_eq!(info.depends().collect::<Vec<_>>(), ["crc-itu-t", "libcrc32c"]);
        assert_eq!(info.values("alias").count(), 2);
        assert_eq!(info.field("softdep"), Some("pre: crc32c post: sample_late"));
        assert_eq!(info.fields().count(), 10);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(ModuleInfo::parse(b""), Err(ModuleError::NotElf));
        assert_eq!(ModuleInfo::parse(b"#!/bin/sh"), Err(ModuleError::NotElf));
        let cut = ModuleInfo::parse(&SAMPLE[..100]);
        assert!(matches!(cut, Err(ModuleError::Damaged(_))), "{cut:?}");
    }

    #[test]
    fn an_oversized_modinfo_is_refused() {
        let release: KernelRelease = "6.1.0".parse().unwrap();
        let text = "x".repeat(4 << 20);
        let module = SyntheticModule::new("large", &release).field("description", &text);
        let refused = ModuleInfo::parse(&module.to_bytes().unwrap());
        assert!(matches!(refused, Err(ModuleError::TooLarge { limit: 4_194_304, .. })));
    }

    proptest! {
        #[test]
        fn no_file_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
            length: prop::sample::Index,
        ) {
            let mut module = SAMPLE.to_vec();
            for (at, value) in changes {
                let at = at.index(module.len());
                module[at] = value;
            }
            module.truncate(length.index(SAMPLE.len() + 1));
            let _ = ModuleInfo::parse(&module);
            let _ = SignatureInfo::of(&module);
        }
    }
}
