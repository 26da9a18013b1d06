//! Control groups: which version a host has, and who may manage them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::sections::Sections;

/// The control groups of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cgroup {
    /// The version.
    pub version: CgroupVersion,
    /// The controllers that are enabled.
    pub controllers: BTreeSet<String>,
    /// Whether systemd can manage them.
    pub systemd_manages: bool,
}

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
    /// Both; the controllers are in version 1.
    Hybrid,
    /// None is mounted.
    None,
}

impl CgroupVersion {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
            Self::None => "none",
        }
    }
}

/// What manages control groups of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd.
    Systemd,
    /// Runtime and kubelet themselves.
    Cgroupfs,
}

/// Controllers that a kubelet does not start without.
const REQUIRED_CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

impl Cgroup {
    pub(super) fn parse(sections: &Sections<'_>) -> Self {
        let mut has_v2 = false;
        let mut v1 = BTreeSet::new();
        let mut systemd_is_writable = false;
        for line in sections.lines("mountinfo") {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut right = right.split_whitespace();
            let file_system = right.next().unwrap_or_default();
            let options = right.nth(1).unwrap_or_default();
            let mount_options = left.split_whitespace().nth(5).unwrap_or_default();
            let is_writable = mount_options.split(',').all(|it| it != "ro");
            match file_system {
                "cgroup2" => has_v2 = true,
                "cgroup" => {
                    v1.extend(options.split(',').map(str::to_owned));
                    systemd_is_writable |= options.contains("name=systemd") && is_writable;
                }
                _ => {}
            }
        }
        let known = sections.lines("cgroups");
        let enabled = known.iter().filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let is_on = columns.get(3) == Some(&"1");
            (is_on && !line.starts_with('#')).then(|| columns.first().copied()).flatten()
        });
        let enabled: BTreeSet<&str> = enabled.collect();
        let mut v1: BTreeSet<String> =
            v1.into_iter().filter(|it| enabled.contains(it.as_str())).collect();
        let v2 = sections.words("controllers");
        let version = match (v1.is_empty(), has_v2) {
            (true, true) => CgroupVersion::V2,
            (false, true) => CgroupVersion::Hybrid,
            (false, false) => CgroupVersion::V1,
            (true, false) => CgroupVersion::None,
        };
        v1.extend(v2);
        let is_v2 = version == CgroupVersion::V2;
        Self { version, controllers: v1, systemd_manages: is_v2 || systemd_is_writable }
    }

    /// Controllers that are missing.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = |it: &&str| !self.controllers.contains(*it);
        REQUIRED_CONTROLLERS.into_iter().filter(missing).collect()
    }

    /// The driver for a host whose first process has this name.
    #[must_use]
    pub fn driver(&self, init: &str) -> CgroupDriver {
        let is_systemd = init == "systemd" && self.systemd_manages;
        if is_systemd { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs }
    }
}
