//! What is observed on a host: resources and their states.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::{Digest, Salt};

/// Something on a host that is observed, and that actions change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "camelCase")]
pub enum Want {
    /// A file, a folder or a link, by its absolute path.
    Path(String),
    /// The text of a file, for steps that change a part of it.
    Text(String),
    /// A package of the distribution.
    Package(String),
    /// A unit of systemd.
    Unit(String),
    /// A kernel setting, with dots.
    Sysctl(String),
    /// A kernel module.
    Module(String),
    /// A mount point.
    Mount(String),
    /// A container image by its reference.
    Image(String),
    /// A TCP port.
    Port(u16),
    /// Whether swap is in use.
    Swap,
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Text(path) => write!(f, "{path}"),
            Self::Package(name) => write!(f, "package {name}"),
            Self::Unit(name) => write!(f, "unit {name}"),
            Self::Sysctl(key) => write!(f, "sysctl {key}"),
            Self::Module(name) => write!(f, "module {name}"),
            Self::Mount(path) => write!(f, "mount {path}"),
            Self::Image(reference) => write!(f, "image {reference}"),
            Self::Port(port) => write!(f, "port {port}/tcp"),
            Self::Swap => write!(f, "swap"),
        }
    }
}

/// The state of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// It does not exist; of a setting, it is not there; of swap, it is off.
    Absent,
    /// It exists, in whatever state.
    Present,
    /// A regular file.
    File {
        /// What it contains.
        digest: Digest,
        /// Its permissions.
        mode: u32,
        /// Its owner and group.
        owner: (u32, u32),
    },
    /// A folder.
    Directory {
        /// Its permissions.
        mode: u32,
        /// Its owner and group.
        owner: (u32, u32),
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: String,
    },
    /// A device, a socket or a pipe.
    Special,
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// A unit.
    Unit {
        /// Whether it starts with the host.
        enabled: bool,
        /// Whether it runs.
        active: bool,
        /// The digest of the configuration that it was last started with by us.
        config: Option<Digest>,
    },
    /// An installed package.
    Package {
        /// Its version.
        version: String,
    },
    /// The value of a setting.
    Value {
        /// The value.
        value: String,
    },
    /// A module that is not loaded, but could be.
    Loadable,
    /// A mounted file system.
    Mounted {
        /// What is mounted.
        source: String,
        /// The type of the file system.
        file_system: String,
    },
    /// An image.
    Image {
        /// The digest of its manifest.
        digest: String,
    },
    /// A port on which a process listens.
    Listening {
        /// The name of the process.
        process: String,
        /// Its id.
        pid: u32,
    },
}

impl State {
    /// Whether a state is one that was left behind. What others may well change on the side does
    /// not count: owners, versions, and whether a unit runs at the moment.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present, other) | (other, Self::Present) => {
                !matches!(other, Self::Absent | Self::Loadable)
            }
            (
                Self::File { digest, mode, owner: _ },
                Self::File { digest: digest_2, mode: mode_2, owner: _ },
            ) => digest == digest_2 && mode == mode_2,
            (Self::Directory { .. }, Self::Directory { .. })
            | (Self::Package { .. }, Self::Package { .. }) => true,
            (Self::Unit { enabled, .. }, Self::Unit { enabled: enabled_2, .. }) => {
                enabled == enabled_2
            }
            (one, other) => one == other,
        }
    }

    /// The state with a digest as the journal has it.
    #[must_use]
    pub fn salted(self, salt: &Salt) -> Self {
        match self {
            Self::File { digest, mode, owner } => {
                Self::File { digest: digest.salted(salt), mode, owner }
            }
            Self::Unit { enabled, active, config } => {
                Self::Unit { enabled, active, config: config.map(|it| it.salted(salt)) }
            }
            // A text is in no journal: the file that it is the text of is.
            Self::Text { .. } => Self::Present,
            Self::Absent
            | Self::Present
            | Self::Directory { .. }
            | Self::Link { .. }
            | Self::Special
            | Self::Package { .. }
            | Self::Value { .. }
            | Self::Loadable
            | Self::Mounted { .. }
            | Self::Image { .. }
            | Self::Listening { .. } => self,
        }
    }
}

/// The states of resources. A resource that was not asked for is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Want, State)>", into = "Vec<(Want, State)>")]
pub struct Observed(BTreeMap<Want, State>);

impl From<Vec<(Want, State)>> for Observed {
    fn from(pairs: Vec<(Want, State)>) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl From<Observed> for Vec<(Want, State)> {
    fn from(observed: Observed) -> Self {
        observed.0.into_iter().collect()
    }
}

impl Observed {
    /// The state of a resource. One that was not asked for is absent, so that a step that forgets
    /// to ask is never satisfied, and its test fails.
    #[must_use]
    pub fn get(&self, want: &Want) -> &State {
        self.0.get(want).unwrap_or(&State::Absent)
    }

    /// The state of a resource, if it was asked for.
    #[must_use]
    pub fn find(&self, want: &Want) -> Option<&State> {
        self.0.get(want)
    }

    /// Records a state.
    pub fn set(&mut self, want: Want, state: State) {
        self.0.insert(want, state);
    }

    /// All resources with their states.
    pub fn iter(&self) -> impl Iterator<Item = (&Want, &State)> {
        self.0.iter()
    }

    /// The states with digests as the journal has them.
    #[must_use]
    pub fn salted(self, salt: &Salt) -> Self {
        Self(self.0.into_iter().map(|(want, state)| (want, state.salted(salt))).collect())
    }
}
