//! Facts: what a host is, read from the output of one script.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

mod cgroup;
mod network;
mod sections;

pub use cgroup::{Cgroup, CgroupDriver, CgroupVersion};
pub use network::{Address, Firewall, Listener, Network};

/// The script that prints what [`Facts::parse`] reads; it is for `/bin/sh`, and changes nothing.
pub const FACTS_SCRIPT: &str = include_str!("facts/facts.sh");

/// What a host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The name that the host has for itself.
    pub hostname: String,
    /// The id that no other host has.
    pub machine_id: String,
    /// The distribution.
    pub distribution: Distribution,
    /// The processor, in the words of images: `amd64`, `arm64`.
    pub architecture: String,
    /// The release of the kernel.
    pub kernel: String,
    /// Control groups.
    pub cgroup: Cgroup,
    /// The name of the first process.
    pub init: String,
    /// The version of systemd.
    pub systemd: Option<u32>,
    /// What the host runs in: `none`, `kvm`, `systemd-nspawn`.
    pub virtualization: String,
    /// The capabilities that processes of the host may have at most, as bits.
    pub capabilities: u64,
    /// File systems of the kernel.
    pub file_systems: BTreeSet<String>,
    /// Modules that are loaded or built in.
    pub modules: BTreeSet<String>,
    /// Modules that are not loaded, but could be.
    pub loadable: BTreeSet<String>,
    /// The number of processors.
    pub cpus: u32,
    /// The memory in KiB.
    pub memory_kib: u64,
    /// Swap that is in use, in KiB.
    pub swap_kib: u64,
    /// Free space by mount point, in KiB.
    pub free_kib: BTreeMap<String, u64>,
    /// The network.
    pub network: Network,
    /// Programs that matter, with their paths.
    pub programs: BTreeMap<String, String>,
    /// The version of containerd.
    pub containerd: Option<Version>,
    /// Units that matter and run.
    pub active_units: BTreeSet<String>,
    /// The clock of the host, in seconds since 1970.
    pub time: u64,
    /// Whether the clock is synchronized, if the host knows.
    pub is_synchronized: Option<bool>,
    /// Whether SELinux refuses what it does not allow.
    pub is_selinux_enforcing: bool,
    /// Whether AppArmor is on.
    pub has_apparmor: bool,
    /// Vendors of accelerators by their PCI ids: `10de`.
    pub accelerators: Vec<String>,
    /// The user who connects.
    pub user: String,
    /// How the user becomes root.
    pub sudo: Sudo,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// `ID` of os-release.
    pub id: String,
    /// `VERSION_ID`.
    pub version: String,
    /// `VERSION_CODENAME`.
    pub codename: String,
    /// What it is packaged like.
    pub family: Family,
}

/// How a distribution is packaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// dpkg and apt.
    Debian,
    /// rpm and dnf.
    Redhat,
    /// rpm and zypper.
    Suse,
    /// pacman.
    Arch,
    /// Something else.
    #[default]
    Other,
}

impl Family {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Redhat => "redhat",
            Self::Suse => "suse",
            Self::Arch => "arch",
            Self::Other => "other",
        }
    }
}

/// How a user becomes root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sudo {
    /// The user is root.
    Root,
    /// With sudo, without a password.
    Nopasswd,
    /// With sudo and a password, or not at all: only sudo knows.
    Password,
    /// There is no sudo.
    None,
}

/// A version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads the first version in a text, as `containerd github.com/x v1.7.2 abc`.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix('v').unwrap_or(word);
            let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let mut numbers = word.get(..end)?.split('.');
            let major = numbers.next()?.parse().ok()?;
            let minor = numbers.next()?.parse().ok()?;
            let patch = numbers.next().and_then(|it| it.parse().ok()).unwrap_or(0);
            Some(Self(major, minor, patch))
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The output of the script is not that of a host that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// The output ends early.
    #[error("could not read the facts: the output ends in section {0}; the connection was lost")]
    Truncated(String),
    /// The host does not run Linux.
    #[error("cannot use this host: it runs {0}, and clusters are made on Linux only")]
    Kernel(String),
    /// The processor is one that nothing is built for.
    #[error("cannot use this host: its processor is {0}; amd64 and arm64 are supported")]
    Architecture(String),
}

/// `CAP_SYS_RESOURCE`, without which no process may be protected from running out of memory.
const CAP_SYS_RESOURCE: u64 = 1 << 24;

impl Distribution {
    /// Reads `/etc/os-release`.
    #[must_use]
    pub fn parse(os_release: &str) -> Self {
        distribution(&os_release.lines().collect::<Vec<_>>())
    }
}

impl Facts {
    /// Reads the output of [`FACTS_SCRIPT`]. What a shell printed before the first section is left
    /// out.
    ///
    /// # Errors
    /// The output is not whole, or the host cannot be used at all.
    pub fn parse(output: &str) -> Result<Self, FactsError> {
        let sections = sections::Sections::parse(output)?;
        let kernel = sections.lines("kernel");
        let (system, machine) = (kernel.first().copied(), kernel.get(1).copied());
        if system != Some("Linux") {
            return Err(FactsError::Kernel(system.unwrap_or("nothing known").to_owned()));
        }
        let architecture = match machine.unwrap_or_default() {
            "x86_64" => "amd64",
            "aarch64" | "arm64" => "arm64",
            other => return Err(FactsError::Architecture(other.to_owned())),
        };
        let memory = |key: &str| sections.kib("meminfo", key);
        let modules = sections.words("modules");
        Ok(Self {
            hostname: sections.line("hostname"),
            machine_id: sections.line("machine-id"),
            distribution: distribution(&sections.lines("os-release")),
            architecture: architecture.to_owned(),
            kernel: kernel.get(2).copied().unwrap_or_default().to_owned(),
            cgroup: Cgroup::parse(&sections),
            init: sections.line("init"),
            systemd: sections.line("systemd").split(' ').nth(1).and_then(|it| it.parse().ok()),
            virtualization: sections.line("virt"),
            capabilities: hexadecimal(&sections.line("capabilities")),
            file_systems: file_systems(&sections.lines("filesystems")),
            modules,
            loadable: sections.words("loadable"),
            cpus: sections.line("cpus").parse().unwrap_or(1),
            memory_kib: memory("MemTotal"),
            swap_kib: memory("SwapTotal"),
            free_kib: free_space(&sections.lines("disks")),
            network: Network::parse(&sections),
            programs: sections.pairs("programs"),
            containerd: Version::find(&sections.line("containerd")),
            active_units: active_units(&sections),
            time: sections.line("time").parse().unwrap_or(0),
            is_synchronized: match sections.line("synchronized").as_str() {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            },
            is_selinux_enforcing: sections.line("selinux") == "Enforcing",
            has_apparmor: sections.line("apparmor") == "Y",
            accelerators: accelerators(&sections.lines("pci")),
            user: sections.line("user"),
            sudo: match sections.line("sudo").as_str() {
                "root" => Sudo::Root,
                "nopasswd" => Sudo::Nopasswd,
                "password" => Sudo::Password,
                _ => Sudo::None,
            },
        })
    }

    /// Whether the runtime must not lower the scores by which processes are killed when memory runs
    /// out: it fails without the capability.
    #[must_use]
    pub fn restricts_oom_score(&self) -> bool {
        self.capabilities & CAP_SYS_RESOURCE == 0
    }

    /// Whether a module is loaded or built in.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        let built_in = self.file_systems.contains(name);
        self.modules.contains(name) || built_in
    }

    /// A fact by the name that `when` of a user's step gives it.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<String> {
        Some(match name {
            "distribution.id" => self.distribution.id.clone(),
            "distribution.version" => self.distribution.version.clone(),
            "distribution.codename" => self.distribution.codename.clone(),
            "distribution.family" => self.distribution.family.name().to_owned(),
            "architecture" => self.architecture.clone(),
            "hostname" => self.hostname.clone(),
            "init" => self.init.clone(),
            "virtualization" => self.virtualization.clone(),
            "cgroup.version" => self.cgroup.version.name().to_owned(),
            "accelerators" => (!self.accelerators.is_empty()).to_string(),
            "user" => self.user.clone(),
            _ => return None,
        })
    }

    /// The names that [`Facts::named`] has.
    pub const NAMES: [&'static str; 11] = [
        "distribution.id",
        "distribution.version",
        "distribution.codename",
        "distribution.family",
        "architecture",
        "hostname",
        "init",
        "virtualization",
        "cgroup.version",
        "accelerators",
        "user",
    ];
}

fn distribution(lines: &[&str]) -> Distribution {
    let value = |key: &str| {
        let found = lines.iter().filter_map(|line| line.split_once('=')).find(|(it, _)| *it == key);
        found.map(|(_, value)| value.trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
    };
    let (id, like) = (value("ID"), value("ID_LIKE"));
    let family = std::iter::once(id.as_str()).chain(like.split_whitespace()).find_map(family);
    Distribution {
        family: family.unwrap_or_default(),
        version: value("VERSION_ID"),
        codename: value("VERSION_CODENAME"),
        id,
    }
}

fn family(id: &str) -> Option<Family> {
    Some(match id {
        "debian" | "ubuntu" => Family::Debian,
        "rhel" | "fedora" | "centos" | "rocky" | "almalinux" | "ol" | "amzn" => Family::Redhat,
        "suse" | "opensuse" | "sles" | "opensuse-leap" => Family::Suse,
        "arch" => Family::Arch,
        _ => return None,
    })
}

fn hexadecimal(line: &str) -> u64 {
    let digits = line.split_whitespace().last().unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

fn file_systems(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// Reads `df -P -k`: the fourth column is free space, the sixth the mount point.
fn free_space(lines: &[&str]) -> BTreeMap<String, u64> {
    let row = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let free = columns.get(3)?.parse().ok()?;
        Some(((*columns.get(5)?).to_owned(), free))
    };
    lines.iter().filter_map(row).collect()
}

fn active_units(sections: &sections::Sections<'_>) -> BTreeSet<String> {
    let pairs = sections.pairs("firewalls");
    pairs.into_iter().filter(|(_, state)| state == "active").map(|(unit, _)| unit).collect()
}

/// Reads classes and ids of PCI devices; controllers of displays and processing accelerators count
/// if their vendor makes accelerators.
fn accelerators(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_accelerator = false;
    for line in lines {
        if let Some(class) = line.strip_prefix("PCI_CLASS=") {
            let class = class.trim_start_matches('0');
            is_accelerator = ["302", "300", "1200", "120"]
                .iter()
                .any(|it| class.starts_with(it) && class.len() >= 5);
            is_accelerator &= class.len() <= 6;
        } else if let Some(id) = line.strip_prefix("PCI_ID=") {
            let vendor = id.split(':').next().unwrap_or_default().to_lowercase();
            if is_accelerator && ["10de", "1002", "8086", "1da3"].contains(&vendor.as_str()) {
                found.push(vendor);
            }
        }
    }
    found
}
