//! The control groups of a run. They are named after its folder, so they can be found from the
//! folder alone, and nothing else has to be recorded.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux mounts them by convention; every container runtime looks here.
const ROOT: &str = "/sys/fs/cgroup";

/// The controllers that a kubelet needs; cgroup v1 has a hierarchy for each.
const REQUIRED_CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "pids"];

/// Returns the name of the groups of the run in `folder`. The guard builds the same name.
pub(super) fn name(folder: &Path) -> String {
    format!("gantry-{}", folder.file_name().unwrap_or_default().display())
}

/// Returns the mount points of the hierarchies in which a run needs a group, read from the text of
/// `/proc/self/mountinfo`: one for all controllers, or one for each in cgroup v1.
///
/// # Errors
/// They are not mounted or not writable.
pub fn hierarchies(mountinfo: &str) -> Result<Vec<PathBuf>, CgroupsError> {
    let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::read).collect();
    let unified = mounts.iter().rfind(|mount| mount.point == ROOT && mount.kind == "cgroup2");
    let found: Vec<&Mount<'_>> = match unified {
        Some(unified) => vec![unified],
        None => mounts
            .iter()
            .filter(|mount| mount.kind == "cgroup" && Path::new(mount.point).starts_with(ROOT))
            .collect(),
    };
    if let Some(fixed) = found.iter().find(|mount| !mount.writable) {
        return Err(CgroupsError::ReadOnly(PathBuf::from(fixed.point)));
    }
    if unified.is_none() {
        let has = |wanted: &str| found.iter().any(|mount| mount.controls(wanted));
        if let Some(missing) = REQUIRED_CONTROLLERS.into_iter().find(|wanted| !has(wanted)) {
            return Err(CgroupsError::Missing(missing));
        }
    }
    Ok(found.into_iter().map(|mount| PathBuf::from(mount.point)).collect())
}

/// Removes the groups called `name` with all below them, and returns whether none is left. A group
/// in which a process is still exiting cannot be removed yet.
pub(super) fn remove(name: &str) -> bool {
    let below = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let places = std::iter::once(PathBuf::from(ROOT)).chain(below);
    let groups: Vec<_> = places.map(|place| place.join(name)).filter(|it| it.is_dir()).collect();
    for group in &groups {
        remove_tree(group);
    }
    !groups.iter().any(|group| group.exists())
}

/// Deepest first. The files in a group are not removed: they disappear with it.
fn remove_tree(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// One line of `mountinfo`.
#[derive(Debug)]
struct Mount<'text> {
    point: &'text str,
    kind: &'text str,
    writable: bool,
    options: &'text str,
}

impl<'text> Mount<'text> {
    fn read(line: &'text str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(4);
        let (point, own) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        Some(Self { point, kind, writable: own.split(',').any(|own| own == "rw"), options })
    }

    fn controls(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }
}

/// Why a run cannot have control groups here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupsError {
    /// A controller is not mounted.
    #[error("control group {0} is not mounted below {ROOT}")]
    Missing(&'static str),
    /// They are read-only, as in most containers.
    #[error("{} is read-only", .0.display())]
    ReadOnly(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mounts as Linux shows them: place, own options, kind, options of the file system.
    fn mountinfo(mounts: &[(&str, &str, &str, &str)]) -> String {
        let line = |(point, own, kind, options): &(&str, &str, &str, &str)| {
            format!("30 23 0:26 / {point} {own},relatime shared:4 - {kind} name {options}\n")
        };
        mounts.iter().map(line).collect()
    }

    #[test]
    fn both_forms_are_found_if_they_can_be_used() {
        let unified = ("/sys/fs/cgroup", "rw", "cgroup2", "rw,nsdelegate");
        let fixed = ("/sys/fs/cgroup", "ro", "cgroup2", "rw,nsdelegate");
        let cpu = ("/sys/fs/cgroup/cpu,cpuacct", "rw", "cgroup", "rw,cpu,cpuacct");
        let rest = ("/sys/fs/cgroup/rest", "rw", "cgroup", "rw,cpuset,memory,pids");
        let named = ("/sys/fs/cgroup/systemd", "rw", "cgroup", "rw,name=systemd");
        let empty = ("/sys/fs/cgroup/unified", "rw", "cgroup2", "rw");
        let stray = ("/mnt/cgroup", "ro", "cgroup", "rw,cpu");
        let table = [
            ("new", vec![unified], Ok(vec!["/sys/fs/cgroup"])),
            (
                "new, in a container",
                vec![fixed],
                Err(CgroupsError::ReadOnly("/sys/fs/cgroup".into())),
            ),
            ("mounted over", vec![fixed, unified], Ok(vec!["/sys/fs/cgroup"])),
            (
                "old, with an empty new one beside it",
                vec![cpu, rest, named, empty, stray],
                Ok(vec![cpu.0, rest.0, named.0]),
            ),
            ("half of the old", vec![cpu, named], Err(CgroupsError::Missing("cpuset"))),
            ("none", vec![], Err(CgroupsError::Missing("cpu"))),
        ];
        for (why, mounts, expected) in table {
            let expected = expected.map(|points| points.into_iter().map(PathBuf::from).collect());
            assert_eq!(hierarchies(&mountinfo(&mounts)), expected, "{why}");
        }
    }
}
