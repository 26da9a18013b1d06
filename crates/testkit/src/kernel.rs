//! Boots real kernels in a virtual machine and loads modules into them: the reference for which
//! signatures a kernel accepts, and for the words with which it refuses the others.
//!
//! `testbed/kernels` downloads the kernels and installs the programs. The machine is emulated, so
//! it needs no privilege, and a boot takes 10 to 20 seconds: tests put all attempts of a kernel
//! into one [`Boot`].

use std::fs;
use std::path::{Path, PathBuf};

use crate::programs::cache_folder;

mod boot;
mod firmware;
mod initramfs;
mod keys;
mod module;
mod outcome;
mod requirements;
mod sign_file;

pub use boot::{Attempt, Boot, BootError, Enforcement};
pub use firmware::FirmwareError;
pub use initramfs::InitramfsError;
pub use keys::{SigningKey, certificate_der};
pub use module::{ModuleError, compressed, unsigned};
pub use outcome::{AttemptOutcome, BootOutcome, OutcomeError};
pub use requirements::KernelRequirementError;
pub use sign_file::{Identifier, SignFile, SignFileError};

use requirements::KernelPrograms;

/// How many kernels tests need: what one release accepts another may refuse.
const MIN_KERNELS: usize = 2;

/// The kernels of the test bed, the oldest first, and the programs that boot them.
#[derive(Debug)]
pub struct Kernels {
    kernels: Vec<Kernel>,
    sign_file: SignFile,
    builder: PathBuf,
}

/// The images of a build of modules: archives with the files of the only layer of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderImages {
    /// buildah.
    pub builder: PathBuf,
    /// A compiler, depmod, and the headers of all kernels.
    pub toolchain: PathBuf,
}

/// One kernel and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: String,
    version: (u32, u32),
    folder: PathBuf,
    runs: PathBuf,
    programs: KernelPrograms,
}

impl Kernels {
    /// Finds what `testbed/kernels` has prepared.
    ///
    /// # Errors
    /// A program or a kernel is missing. A test that cannot run prints the reason and is skipped.
    pub fn find() -> Result<Self, KernelRequirementError> {
        let programs = KernelPrograms::find()?;
        let cache = cache_folder().ok_or(KernelRequirementError::NoCache)?.join("testbed");
        let folder = cache.join("kernels");
        let mut kernels = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Anything else in there is a download that has not finished.
            let Some(version) = version(&name) else { continue };
            kernels.push(Kernel {
                release: name,
                version,
                folder: entry.path(),
                runs: cache.join("runs"),
                programs: programs.clone(),
            });
        }
        kernels.sort_by(|a, b| (a.version, &a.release).cmp(&(b.version, &b.release)));
        if kernels.len() < MIN_KERNELS {
            return Err(KernelRequirementError::TooFewKernels { found: kernels.len(), folder });
        }
        let sign_file = SignFile::new(programs.sign_file);
        Ok(Self { kernels, sign_file, builder: cache.join("builder") })
    }

    /// The images with which modules for these kernels are built, if `testbed/builder` has made
    /// them.
    #[must_use]
    pub fn builder_images(&self) -> Option<BuilderImages> {
        let archive = |name: &str| Some(self.builder.join(name)).filter(|path| path.is_file());
        // The key is written last.
        archive("key")?;
        Some(BuilderImages {
            builder: archive("builder.tar")?,
            toolchain: archive("toolchain.tar")?,
        })
    }

    /// All kernels, the oldest first.
    #[must_use]
    pub fn all(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel's own program for signing modules.
    #[must_use]
    pub fn sign_file(&self) -> &SignFile {
        &self.sign_file
    }
}

impl Kernel {
    /// Its release, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The first two numbers of the release.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The kernel itself.
    #[must_use]
    pub fn vmlinuz(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// The directory of its modules.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    /// Returns a small module of this kernel that needs no other one and no device, without
    /// compression and without signature.
    ///
    /// # Errors
    /// The kernel's package has none, or it cannot be read.
    pub fn leaf_module(&self) -> Result<Vec<u8>, ModuleError> {
        module::leaf(&self.modules(), &self.programs.xz)
    }

    /// Boots this kernel and makes all attempts.
    ///
    /// # Errors
    /// The machine could not be prepared or started, or the kernel did not reach the end of the
    /// attempts; then the error has the end of its console.
    pub async fn boot(&self, boot: &Boot) -> Result<BootOutcome, BootError> {
        boot::boot(self, boot).await
    }

    /// Compresses a module so that a kernel can unpack it; see [`compressed`].
    ///
    /// # Errors
    /// `xz` did not run.
    pub fn compress(&self, module: &[u8]) -> Result<Vec<u8>, ModuleError> {
        compressed(&self.programs.xz, module)
    }

    fn programs(&self) -> &KernelPrograms {
        &self.programs
    }

    fn runs(&self) -> &Path {
        &self.runs
    }
}

/// Reads the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_release() {
        let table = [
            ("6.1.0-56-cloud-amd64", Some((6, 1))),
            ("6.12.117+deb12-cloud-amd64", Some((6, 12))),
            ("7.0-cloud", Some((7, 0))),
            (".lock", None),
            (".new", None),
            ("6", None),
            ("", None),
        ];
        for (release, expected) in table {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
