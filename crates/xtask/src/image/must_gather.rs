//! The tools of the must-gather image.
//!
//! `oc adm must-gather` starts `/bin/bash` with a script that runs `/usr/bin/gather` beside a check
//! of the free space, and another one that sleeps while the files are copied with `tar`. `kubectl
//! cp` starts `tar` as well.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;

use super::shared_libraries::{ImageFile, LibraryDirectories, collect};

/// The programs, and the packages of Debian that have them.
const TOOLS: [(&str, &str); 9] = [
    ("awk", "mawk"),
    ("bash", "bash"),
    ("df", "coreutils"),
    ("du", "coreutils"),
    ("pkill", "procps"),
    ("setsid", "util-linux"),
    ("sleep", "coreutils"),
    ("sync", "coreutils"),
    ("tar", "tar"),
];

/// Symbolic links besides: the shell by the paths that clients use.
pub(super) const LINKS: [(&str, &str); 2] = [("/bin", "usr/bin"), ("/usr/bin/sh", "bash")];

/// Reads the tools of this machine, with their loader and libraries.
pub(super) fn tools(directories: &LibraryDirectories) -> anyhow::Result<Vec<ImageFile>> {
    let mut files = BTreeMap::new();
    for (tool, package) in TOOLS {
        let path = format!("/usr/bin/{tool}");
        let content = fs::read(&path)
            .with_context(|| format!("could not read {path}; install the package {package}"))?;
        let (found, _) = collect(&path, content, directories)
            .with_context(|| format!("cannot put {path} into an image"))?;
        files.extend(found.into_iter().map(|it| (it.path.clone(), it)));
    }
    Ok(files.into_values().collect())
}
