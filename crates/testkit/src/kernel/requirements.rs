//! Finds the programs that boot kernels and sign modules.

use std::fs;
use std::path::{Path, PathBuf};

/// Where systems keep programs, whatever the search path of the user is.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The folder of the firmware.
const FIRMWARE: &str = "/usr/share/OVMF";

/// The programs, as found on this machine.
#[derive(Clone, Debug)]
pub(super) struct KernelPrograms {
    pub(super) qemu: PathBuf,
    /// The firmware's code, without and with Secure Boot.
    pub(super) firmware: PathBuf,
    pub(super) secure_firmware: PathBuf,
    /// An empty store of the firmware's variables.
    pub(super) variables: PathBuf,
    pub(super) busybox: PathBuf,
    pub(super) kmod: PathBuf,
    pub(super) perl: PathBuf,
    pub(super) ldd: PathBuf,
    pub(super) sbsign: PathBuf,
    pub(super) xz: PathBuf,
    pub(super) sign_file: PathBuf,
}

impl KernelPrograms {
    pub(super) fn find() -> Result<Self, KernelRequirementError> {
        // The programs of this machine run in the booted kernel too.
        if std::env::consts::ARCH != "x86_64" {
            return Err(KernelRequirementError::Architecture { found: std::env::consts::ARCH });
        }
        let program = |name, package| {
            let mut paths = PROGRAM_DIRECTORIES.iter().map(|folder| Path::new(folder).join(name));
            paths
                .find(|path| path.is_file())
                .ok_or(KernelRequirementError::NoProgram { name, package })
        };
        let firmware = |name| {
            let path = Path::new(FIRMWARE).join(name);
            let found = path.is_file().then_some(path);
            found.ok_or(KernelRequirementError::NoProgram { name, package: "ovmf" })
        };
        Ok(Self {
            qemu: program("qemu-system-x86_64", "qemu-system-x86")?,
            firmware: firmware("OVMF_CODE_4M.fd")?,
            secure_firmware: firmware("OVMF_CODE_4M.secboot.fd")?,
            variables: firmware("OVMF_VARS_4M.fd")?,
            busybox: program("busybox", "busybox-static")?,
            kmod: program("kmod", "kmod")?,
            perl: program("perl", "perl-base")?,
            ldd: program("ldd", "libc-bin")?,
            sbsign: program("sbsign", "sbsigntool")?,
            xz: program("xz", "xz-utils")?,
            sign_file: sign_file(Path::new("/usr/lib")).ok_or(
                KernelRequirementError::NoProgram { name: "sign-file", package: "linux-kbuild-*" },
            )?,
        })
    }
}

/// The `sign-file` of any kernel's build tools: they all sign alike.
fn sign_file(libraries: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(libraries).ok()?.flatten();
    let tools = entries.filter(|it| it.file_name().to_string_lossy().starts_with("linux-kbuild-"));
    tools.map(|it| it.path().join("scripts/sign-file")).filter(|path| path.is_file()).max()
}

/// Why kernels cannot be booted on this machine.
#[derive(Debug, thiserror::Error)]
pub enum KernelRequirementError {
    /// The kernels and this machine's programs do not fit together.
    #[error("booted kernels need an x86-64 machine, this is {found}")]
    Architecture {
        /// This machine's architecture.
        found: &'static str,
    },
    /// No cache folder is known.
    #[error("booted kernels need a cache folder: set HOME or GANTRY_CACHE")]
    NoCache,
    /// A program or a file of the system is missing.
    #[error("booted kernels need {name}: run `testbed/kernels` as root, which installs {package}")]
    NoProgram {
        /// The program.
        name: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The kernels were not downloaded.
    #[error(
        "booted kernels need two in {}, there are {found}: run `testbed/kernels`", folder.display()
    )]
    TooFewKernels {
        /// How many there are.
        found: usize,
        /// Where they should be.
        folder: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_file_is_found_in_any_release_of_the_build_tools() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sign_file(root.path()), None);
        assert_eq!(sign_file(&root.path().join("missing")), None);
        for (folder, file) in [("linux-kbuild-6.1", "sign-file"), ("linux-kbuild-7.0", "other")] {
            let scripts = root.path().join(folder).join("scripts");
            fs::create_dir_all(&scripts).unwrap();
            fs::write(scripts.join(file), "").unwrap();
        }
        let expected = root.path().join("linux-kbuild-6.1/scripts/sign-file");
        assert_eq!(sign_file(root.path()), Some(expected));
    }

    #[test]
    fn a_reason_says_what_to_do() {
        let table = [
            (
                KernelRequirementError::NoProgram { name: "sbsign", package: "sbsigntool" },
                "booted kernels need sbsign: run `testbed/kernels` as root, which installs \
                 sbsigntool",
            ),
            (
                KernelRequirementError::TooFewKernels { found: 1, folder: "/k".into() },
                "booted kernels need two in /k, there are 1: run `testbed/kernels`",
            ),
        ];
        for (reason, expected) in table {
            assert_eq!(reason.to_string(), expected);
        }
    }
}
