//! Synthetic modules: small ELF files that tools take for modules, for demonstrations and tests.
//!
//! `modinfo` reads them, they can be signed, and a kernel that checks signatures gets past theirs.
//! Then it refuses them with `ENOEXEC`, because they contain no code.

use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind, elf};

use crate::release::KernelRelease;

/// What a synthetic module says about itself. The same values give the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticModule {
    name: String,
    vermagic: String,
    depends: Vec<String>,
    fields: Vec<(String, String)>,
    arch: ModuleArch,
}

/// The processor that a synthetic module claims to be for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModuleArch {
    /// `amd64` in Kubernetes.
    #[default]
    X86_64,
    /// `arm64` in Kubernetes.
    Aarch64,
}

/// Why no synthetic module was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// A text has a zero byte, which ends a field of `.modinfo`, or a name has an equals sign.
    #[error("field {0:?} of a synthetic module has a zero byte, or `=` in its name")]
    Text(String),
    /// The ELF file could not be written.
    #[error("cannot write a synthetic module: {0}")]
    Elf(String),
}

impl SyntheticModule {
    /// A module of this name for this kernel.
    #[must_use]
    pub fn new(name: &str, release: &KernelRelease) -> Self {
        Self {
            name: name.to_owned(),
            vermagic: format!("{release} SMP preempt mod_unload modversions "),
            depends: Vec::new(),
            fields: vec![("license".to_owned(), "GPL".to_owned())],
            arch: ModuleArch::default(),
        }
    }

    /// Adds a module that must be loaded before this one.
    #[must_use]
    pub fn depends_on(mut self, module: &str) -> Self {
        self.depends.push(module.to_owned());
        self
    }

    /// Adds a field of `.modinfo`, such as `description` or `softdep`.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the processor.
    #[must_use]
    pub fn arch(mut self, arch: ModuleArch) -> Self {
        self.arch = arch;
        self
    }

    /// Writes the module as a relocatable ELF file.
    ///
    /// # Errors
    /// Returns an error for texts that cannot be in `.modinfo`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SyntheticError> {
        let depends = self.depends.join(",");
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all = own.chain([
            ("depends", depends.as_str()),
            ("name", self.name.as_str()),
            ("vermagic", self.vermagic.as_str()),
        ]);
        let mut modinfo = Vec::new();
        for (name, value) in all {
            if name.contains(['\0', '=']) || value.contains('\0') {
                return Err(SyntheticError::Text(name.to_owned()));
            }
            modinfo.extend_from_slice(format!("{name}={value}\0").as_bytes());
        }
        let arch = match self.arch {
            ModuleArch::X86_64 => Architecture::X86_64,
            ModuleArch::Aarch64 => Architecture::Aarch64,
        };
        let mut file = Object::new(BinaryFormat::Elf, arch, Endianness::Little);
        let section = file.add_section(Vec::new(), b".modinfo".to_vec(), SectionKind::ReadOnlyData);
        file.section_mut(section).flags =
            SectionFlags::Elf { sh_type: elf::SHT_PROGBITS, sh_flags: elf::SHF_ALLOC };
        file.append_section_data(section, &modinfo, 1);
        file.write().map_err(|error| SyntheticError::Elf(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::ModuleInfo;

    fn release() -> KernelRelease {
        "6.12.111+deb12-cloud-amd64".parse().unwrap()
    }

    #[test]
    fn a_synthetic_module_is_small_and_always_the_same() {
        for arch in [ModuleArch::X86_64, ModuleArch::Aarch64] {
            let module = SyntheticModule::new("hello", &release())
                .depends_on("crc-itu-t")
                .depends_on("libcrc32c")
                .field("description", "A demonstration")
                .arch(arch);
            let bytes = module.to_bytes().unwrap();
            assert_eq!(bytes, module.to_bytes().unwrap());
            assert!(bytes.len() < 1024, "{}", bytes.len());
            let info = ModuleInfo::parse(&bytes).unwrap();
            assert!(info.is_relocatable());
            assert_eq!(info.name(), Some("hello"));
            assert_eq!(info.kernel_release(), Some(release()));
            assert_eq!(info.depends().collect::<Vec<_>>(), ["crc-itu-t", "libcrc32c"]);
            assert_eq!(info.field("description"), Some("A demonstration"));
        }
    }

    #[test]
    fn texts_that_would_end_a_field_are_refused() {
        let refused = SyntheticModule::new("a\0license=other", &release()).to_bytes();
        assert_eq!(refused, Err(SyntheticError::Text("name".to_owned())));
        let refused = SyntheticModule::new("a", &release()).field("b=c", "d").to_bytes();
        assert_eq!(refused, Err(SyntheticError::Text("b=c".to_owned())));
    }
}
