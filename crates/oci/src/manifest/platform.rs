//! Platforms: operating system, architecture and variant, and which image of an index runs there.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::descriptor::Descriptor;
use super::document::Index;
use crate::json::{self, FieldError, Object};

/// The longest name of an operating system, an architecture or a variant.
const MAX_NAME_LENGTH: usize = 64;

/// How many platforms an error lists.
const LISTED_PLATFORMS: usize = 12;

/// Where an image runs, for instance `linux/arm64`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
    os_version: Option<String>,
}

impl Platform {
    /// Linux on an architecture. Names of the kernel (`x86_64`, `aarch64`) are translated.
    ///
    /// # Errors
    ///
    /// [`PlatformError::Malformed`] if this is not a name of an architecture.
    pub fn linux(architecture: &str) -> Result<Self, PlatformError> {
        format!("linux/{architecture}").parse()
    }

    pub(super) fn read(object: &Object) -> Result<Self, FieldError> {
        // Old lists have empty texts, and some builders leave keys out.
        let text = |key| json::string(object, key).map(Option::unwrap_or_default);
        let optional = |key| {
            let text = json::string(object, key)?;
            Ok::<_, FieldError>(text.filter(|text| !text.is_empty()).map(str::to_owned))
        };
        Ok(Self {
            os: text("os")?.to_owned(),
            architecture: text("architecture")?.to_owned(),
            variant: optional("variant")?,
            os_version: optional("os.version")?,
        })
    }

    /// The operating system.
    #[must_use]
    pub fn os(&self) -> &str {
        &self.os
    }

    /// The architecture.
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The variant of the architecture.
    #[must_use]
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// The object as a document has it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!({ "architecture": self.architecture, "os": self.os });
        if let Some(version) = &self.os_version {
            value["os.version"] = version.as_str().into();
        }
        if let Some(variant) = &self.variant {
            value["variant"] = variant.as_str().into();
        }
        value
    }

    /// How well an image for `self` runs on `machine`; none if it does not, and higher is better.
    ///
    /// A machine runs images for older variants of its architecture: `linux/arm/v7` runs `v6`.
    fn suitability(&self, machine: &Self) -> Option<u8> {
        let same = self.os == machine.os && self.architecture == machine.architecture;
        let (own, limit) = (self.variant_level()?, machine.variant_level()?);
        (same && own <= limit).then_some(own)
    }

    /// The variant as a number, with what a missing one means.
    fn variant_level(&self) -> Option<u8> {
        let default = match self.architecture.as_str() {
            "arm64" => 8,
            "arm" => 7,
            _ => 1,
        };
        match self.variant.as_deref() {
            None => Some(default),
            Some(variant) => variant.strip_prefix('v')?.split('.').next()?.parse().ok(),
        }
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    /// Reads `os/architecture` with an optional `/variant`.
    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let valid = |part: &&str| {
            (1..=MAX_NAME_LENGTH).contains(&part.len())
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
        };
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts.as_slice() {
            [os, architecture] => (*os, *architecture, None),
            [os, architecture, variant] => (*os, *architecture, Some(*variant)),
            _ => return Err(PlatformError::Malformed { text: shorten(text) }),
        };
        if !parts.iter().all(valid) {
            return Err(PlatformError::Malformed { text: shorten(text) });
        }
        let (architecture, implied) = match architecture {
            "x86_64" | "x86-64" => ("amd64", None),
            "aarch64" => ("arm64", None),
            "armhf" | "armv7l" => ("arm", Some("v7")),
            "armel" | "armv6l" => ("arm", Some("v6")),
            "i386" | "i686" => ("386", None),
            other => (other, None),
        };
        Ok(Self {
            os: os.to_ascii_lowercase(),
            architecture: architecture.to_owned(),
            variant: variant.or(implied).map(str::to_owned),
            os_version: None,
        })
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_NAME_LENGTH).collect()
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// Why there is no image for a platform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// The text is not a platform.
    #[error("cannot use {text:?} as a platform; write for instance linux/amd64")]
    Malformed {
        /// The text, cut if it is long.
        text: String,
    },
    /// The index has no image for it.
    #[error("the image has nothing for {wanted}; it has: {available}")]
    Missing {
        /// The platform.
        wanted: Platform,
        /// What there is, for a message.
        available: String,
    },
}

impl Index {
    /// Returns the image for a machine of this platform.
    ///
    /// Of several that run there, the one for the newest variant counts, and of equal ones the
    /// first. A single image without a platform is taken for any.
    ///
    /// # Errors
    ///
    /// [`PlatformError::Missing`] lists what there is.
    pub fn choose(&self, machine: &Platform) -> Result<&Descriptor, PlatformError> {
        let images = || self.manifests().iter().filter(|child| !child.is_attestation());
        let suitable = images().filter_map(|child| {
            let level = child.platform()?.suitability(machine)?;
            Some((level, child))
        });
        let best = suitable.reduce(|best, other| if other.0 > best.0 { other } else { best });
        if let Some((_, child)) = best {
            return Ok(child);
        }
        if let (Some(only), None) = (images().next(), images().nth(1))
            && only.platform().is_none()
        {
            return Ok(only);
        }
        let mut names: Vec<String> = images()
            .take(LISTED_PLATFORMS)
            .map(|child| {
                child.platform().map_or_else(|| "no platform".to_owned(), Platform::to_string)
            })
            .collect();
        if images().nth(LISTED_PLATFORMS).is_some() {
            names.push("…".to_owned());
        }
        let available = if names.is_empty() { "no image".to_owned() } else { names.join(", ") };
        Err(PlatformError::Missing { wanted: machine.clone(), available })
    }
}
