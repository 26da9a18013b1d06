//! Kernel releases: what `uname -r` prints, and the template variables made of it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;

/// The longest release: the kernel's own buffer for it holds 64 characters.
pub const MAX_RELEASE_LENGTH: usize = 64;

/// The longest value of a label.
const MAX_LABEL_LENGTH: usize = 63;

/// A kernel release, such as `6.1.0-55-cloud-amd64`.
///
/// The families (RHEL, Debian, Ubuntu) are found by grammar alone, because a kernel may be asked
/// about before any node runs it. So a release of Ubuntu has the variables of Debian, too.
///
/// ```
/// let release: gantry_kmod::KernelRelease = "5.14.0-284.11.1.el9_2.x86_64".parse()?;
/// assert_eq!(release.version(), (5, 14, 0));
/// assert_eq!(release.variables()["KERNEL_RHEL_VERSION"], "el9_2");
/// # Ok::<(), gantry_kmod::release::InvalidKernelVersion>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelRelease {
    text: String,
    major: u32,
    minor: u32,
    patch: u32,
}

/// A text that is no kernel release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKernelVersion {
    /// It does not begin with two numbers.
    #[error(
        "kernel release {0:?} does not begin with two numbers as in 6.1.0-55-amd64; \
         use the output of `uname -r`"
    )]
    Grammar(String),
    /// It has characters that cannot be in the path of `/lib/modules`.
    #[error(
        "kernel release {0:?} has a slash, a space or a character that is not ASCII; \
         use the output of `uname -r`"
    )]
    Characters(String),
    /// It is longer than any kernel's.
    #[error("a kernel release has at most 64 characters, and this one has {0}")]
    Length(usize),
}

/// The parts of a release of RHEL, CentOS or a distribution that is built like them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RhelRelease<'a> {
    /// The distribution's version, such as `el9_2`.
    pub version: &'a str,
    /// The release of the package, such as `284.11.1.el9_2`.
    pub release: &'a str,
    /// The architecture, such as `x86_64`.
    pub arch: &'a str,
    /// The variant after a plus sign, such as `rt`.
    pub variant: Option<&'a str>,
}

/// The parts of a release of Debian or Ubuntu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlavoredRelease<'a> {
    /// The release of the package, such as `55` or `deb12`.
    pub release: &'a str,
    /// The flavor, such as `cloud-amd64` or `generic`.
    pub flavor: &'a str,
}

static GENERIC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(?:[^0-9].*)?$"));

static RHEL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^[0-9]+\.[0-9]+\.[0-9]+-",
        r"(?P<release>(?:[^.+]+\.)*(?P<version>el[0-9]+[A-Za-z0-9_]*))",
        r"\.(?P<arch>[A-Za-z0-9_]+)(?:\+(?P<variant>[A-Za-z0-9.-]+))?$",
    ))
});

/// Debian up to 6.1: `6.1.0-55-cloud-amd64`.
static DEBIAN_NUMBERED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^[0-9]+\.[0-9]+\.[0-9]+-(?P<release>[0-9]+(?:\.[A-Za-z0-9~]+)*)",
        r"-(?P<flavor>[a-z0-9][a-z0-9-]*)$",
    ))
});

/// Debian since 6.12, and its backports: `6.12.111+deb12-cloud-amd64`.
static DEBIAN_SUFFIXED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^[0-9]+\.[0-9]+(?:\.[0-9]+)?\+(?P<release>deb[0-9]+(?:[+.~]?[A-Za-z0-9]+)*)",
        r"-(?P<flavor>[a-z0-9][a-z0-9-]*)$",
    ))
});

static UBUNTU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^[0-9]+\.[0-9]+\.[0-9]+-(?P<release>[0-9]+)-(?P<flavor>[a-z][a-z0-9-]*)$")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant, and a test uses it")
}

impl FromStr for KernelRelease {
    type Err = InvalidKernelVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_RELEASE_LENGTH {
            return Err(InvalidKernelVersion::Length(text.len()));
        }
        let grammar = || InvalidKernelVersion::Grammar(text.to_owned());
        let groups = GENERIC.captures(text).ok_or_else(grammar)?;
        if text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'/') {
            return Err(InvalidKernelVersion::Characters(text.to_owned()));
        }
        let number = |at: usize| {
            let digits = groups.get(at).map_or("0", |group| group.as_str());
            digits.parse::<u32>().map_err(|_| grammar())
        };
        let (major, minor, patch) = (number(1)?, number(2)?, number(3)?);
        Ok(Self { text: text.to_owned(), major, minor, patch })
    }
}

impl KernelRelease {
    /// The release as the kernel prints it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The three numbers it begins with. A missing third one is zero.
    #[must_use]
    pub fn version(&self) -> (u32, u32, u32) {
        (self.major, self.minor, self.patch)
    }

    /// The parts by the grammar of RHEL. Fedora is not RHEL.
    #[must_use]
    pub fn rhel(&self) -> Option<RhelRelease<'_>> {
        let groups = RHEL.captures(&self.text)?;
        let part = |name| groups.name(name).map(|group| group.as_str());
        Some(RhelRelease {
            version: part("version")?,
            release: part("release")?,
            arch: part("arch")?,
            variant: part("variant"),
        })
    }

    /// The parts by the grammar of Debian.
    #[must_use]
    pub fn debian(&self) -> Option<FlavoredRelease<'_>> {
        self.flavored(&DEBIAN_NUMBERED).or_else(|| self.flavored(&DEBIAN_SUFFIXED))
    }

    /// The parts by the grammar of Ubuntu.
    #[must_use]
    pub fn ubuntu(&self) -> Option<FlavoredRelease<'_>> {
        self.flavored(&UBUNTU)
    }

    fn flavored(&self, pattern: &Regex) -> Option<FlavoredRelease<'_>> {
        let groups = pattern.captures(&self.text)?;
        let part = |name| groups.name(name).map(|group| group.as_str());
        Some(FlavoredRelease { release: part("release")?, flavor: part("flavor")? })
    }

    /// The template variables that this release defines, with their values.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<&'static str, String> {
        let groups = GENERIC.captures(&self.text);
        // The digits as they are written: `05` stays `05`.
        let number = |at| {
            let group = groups.as_ref().and_then(|groups| groups.get(at));
            group.map_or("0", |group| group.as_str()).to_owned()
        };
        let (x, y, z) = (number(1), number(2), number(3));
        let mut variables = BTreeMap::from([
            ("KERNEL_FULL_VERSION", self.text.clone()),
            ("KERNEL_VERSION", self.text.clone()),
            ("KERNEL_XYZ", format!("{x}.{y}.{z}")),
            ("KERNEL_X", x),
            ("KERNEL_Y", y),
            ("KERNEL_Z", z),
        ]);
        if let Some(rhel) = self.rhel() {
            variables.insert("KERNEL_RHEL_VERSION", rhel.version.to_owned());
            variables.insert("KERNEL_RHEL_RELEASE", rhel.release.to_owned());
            variables.insert("KERNEL_RHEL_ARCH", rhel.arch.to_owned());
            if let Some(variant) = rhel.variant {
                variables.insert("KERNEL_RHEL_VARIANT", variant.to_owned());
            }
        }
        if let Some(debian) = self.debian() {
            variables.insert("KERNEL_DEBIAN_RELEASE", debian.release.to_owned());
            variables.insert("KERNEL_DEBIAN_FLAVOR", debian.flavor.to_owned());
        }
        if let Some(ubuntu) = self.ubuntu() {
            variables.insert("KERNEL_UBUNTU_RELEASE", ubuntu.release.to_owned());
            variables.insert("KERNEL_UBUNTU_FLAVOR", ubuntu.flavor.to_owned());
        }
        variables
    }

    /// The release as part of an image's tag.
    #[must_use]
    pub fn tag_safe(&self) -> String {
        tag_safe(&self.text)
    }

    /// The release as the value of a label.
    #[must_use]
    pub fn label_safe(&self) -> String {
        let mut label = self.tag_safe();
        label.truncate(MAX_LABEL_LENGTH);
        label.trim_matches(['-', '_', '.']).to_owned()
    }

    /// The release as part of the name of an object.
    #[must_use]
    pub fn dns_safe(&self) -> String {
        let safe =
            |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
        self.text.chars().map(safe).collect::<String>().trim_matches('-').to_owned()
    }
}

/// Every template variable that [`KernelRelease::variables`] may define.
pub const VARIABLES: [&str; 14] = [
    "KERNEL_DEBIAN_FLAVOR",
    "KERNEL_DEBIAN_RELEASE",
    "KERNEL_FULL_VERSION",
    "KERNEL_RHEL_ARCH",
    "KERNEL_RHEL_RELEASE",
    "KERNEL_RHEL_VARIANT",
    "KERNEL_RHEL_VERSION",
    "KERNEL_UBUNTU_FLAVOR",
    "KERNEL_UBUNTU_RELEASE",
    "KERNEL_VERSION",
    "KERNEL_X",
    "KERNEL_XYZ",
    "KERNEL_Y",
    "KERNEL_Z",
];

/// Replaces what may not be in the tag of an image.
#[must_use]
pub fn tag_safe(text: &str) -> String {
    let safe = |it: char| if it.is_ascii_alphanumeric() || "_.-".contains(it) { it } else { '_' };
    text.chars().map(safe).collect()
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelRelease({:?})", self.text)
    }
}

#[cfg(test)]
mod tests;
