//! Checks whether this machine can be a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Programs, ProgramsError};
use crate::run::cgroups::{CgroupsError, hierarchies};

/// Where systems keep programs, whatever the search path of the user is.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Directories that a node sees empty: containerd and kubelet have sockets, links and folders in
/// them that cannot be configured, and that must not remain. So nothing of ours may be there.
pub(super) const HIDDEN_DIRECTORIES: [&str; 4] = ["/run", "/var/lib", "/var/log", "/var/run"];

/// The dynamic loaders of programs that need shared libraries, which our images do not
/// have.
const LOADERS: [&[u8]; 2] = [b"/ld-linux", b"/ld-musl"];

/// The programs of a node, as found on this machine.
#[derive(Debug)]
pub(in crate::cluster) struct Machine {
    pub(super) kubelet: PathBuf,
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    pub(super) runc: PathBuf,
    /// A program that needs no other file, to build images of.
    pub(super) busybox: PathBuf,
}

impl Machine {
    /// Checks all requirements, the cheapest first.
    pub(in crate::cluster) fn check(programs: &Programs) -> Result<Self, NodeRequirementError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NodeRequirementError::NotRoot);
        }
        for folder in [programs.folder(), programs.runs()] {
            if HIDDEN_DIRECTORIES.iter().any(|place| folder.starts_with(place)) {
                return Err(NodeRequirementError::Hidden { folder: folder.to_path_buf() });
            }
        }
        let find = |name, package| {
            find(&PROGRAM_DIRECTORIES, name)
                .ok_or(NodeRequirementError::NoProgram { name, package })
        };
        let machine = Self {
            kubelet: programs.path("kubelet").map_err(NodeRequirementError::NoKubelet)?,
            containerd: find("containerd", "containerd")?,
            ctr: find("ctr", "containerd")?,
            runc: find("runc", "runc")?,
            busybox: find("busybox", "busybox-static")?,
        };
        let busybox = fs::read(&machine.busybox).unwrap_or_default();
        if LOADERS.iter().any(|loader| contains(&busybox, loader)) {
            return Err(NodeRequirementError::NoProgram {
                name: "a static busybox",
                package: "busybox-static",
            });
        }
        if !Path::new("/dev/kmsg").exists() {
            return Err(NodeRequirementError::NoKernelLog);
        }
        hierarchies(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())?;
        let namespaces = ["--pid", "--mount", "--fork", "--mount-proc", "true"];
        match Command::new("unshare").args(namespaces).output() {
            Ok(output) if output.status.success() => Ok(machine),
            Ok(output) => Err(NodeRequirementError::NoNamespaces {
                said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
            Err(error) => {
                Err(NodeRequirementError::NoNamespaces { said: format!("unshare: {error}") })
            }
        }
    }
}

fn find(folders: &[&str], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

/// Why this machine cannot be a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeRequirementError {
    /// The tests do not run as root, which containers need.
    #[error("a real node needs root")]
    NotRoot,
    /// Our files are in a directory that a node sees empty.
    #[error("a real node cannot use {}: move it with GANTRY_CACHE", folder.display())]
    Hidden {
        /// The folder of the test bed.
        folder: PathBuf,
    },
    /// The kubelet was not built.
    #[error("a real node needs a kubelet: run `testbed/node`")]
    NoKubelet(#[source] ProgramsError),
    /// A program of the system is missing.
    #[error("a real node needs {name}: run `apt-get install {package}`")]
    NoProgram {
        /// The program.
        name: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The kubelet does not start without it.
    #[error("a real node needs /dev/kmsg")]
    NoKernelLog,
    /// There are no control groups to count and limit containers with.
    #[error("a real node needs control groups: {0}")]
    NoCgroups(#[from] CgroupsError),
    /// The system does not allow us to create namespaces.
    #[error("a real node needs namespaces for processes and mounts: {said}")]
    NoNamespaces {
        /// The error message of the attempt.
        said: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| root.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        fs::create_dir(folders[0].join("runc")).unwrap();
        fs::write(folders[1].join("runc"), "").unwrap();
        let folders = folders.each_ref().map(|folder| folder.to_str().unwrap());
        assert_eq!(find(&folders, "runc"), Some(root.path().join("b/runc")), "no folder");
        assert_eq!(find(&folders, "ctr"), None);
    }

    #[test]
    fn a_reason_says_what_to_do() {
        let table = [
            (
                NodeRequirementError::NoProgram { name: "ctr", package: "containerd" },
                "a real node needs ctr: run `apt-get install containerd`",
            ),
            (
                NodeRequirementError::NoCgroups(CgroupsError::ReadOnly("/sys/fs/cgroup".into())),
                "a real node needs control groups: /sys/fs/cgroup is read-only",
            ),
        ];
        for (reason, expected) in table {
            assert_eq!(reason.to_string(), expected);
        }
    }
}
