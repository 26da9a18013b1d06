//! Access modes: how a device is shared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a device is used while others use it too, from the most to the least sociable.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AccessMode {
    /// Reads, beside readers and writers.
    ReadOnlyShared,
    /// Reads and writes, beside others that do the same.
    ReadWriteShared,
    /// Is the only writer, beside readers.
    WriteExclusive,
    /// Is alone.
    ReadWriteExclusive,
}

impl AccessMode {
    /// Every mode, in the order in which one is upgraded to the next.
    pub const UPGRADE_ORDER: [Self; 4] = [
        Self::ReadOnlyShared,
        Self::ReadWriteShared,
        Self::WriteExclusive,
        Self::ReadWriteExclusive,
    ];

    /// The canonical spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnlyShared => "ReadOnlyShared",
            Self::ReadWriteShared => "ReadWriteShared",
            Self::WriteExclusive => "WriteExclusive",
            Self::ReadWriteExclusive => "ReadWriteExclusive",
        }
    }

    /// Reads any spelling: canonical, or in words with hyphens, in any letter case. `exclusive`
    /// alone means [`AccessMode::ReadWriteExclusive`].
    ///
    /// ```
    /// use gantry_api::devices::AccessMode;
    ///
    /// assert_eq!(AccessMode::parse("readonly-shared"), Some(AccessMode::ReadOnlyShared));
    /// assert_eq!(AccessMode::parse("Exclusive"), Some(AccessMode::ReadWriteExclusive));
    /// assert_eq!(AccessMode::parse("shared"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "readonlyshared" | "readonly-shared" => Some(Self::ReadOnlyShared),
            "readwriteshared" | "readwrite-shared" => Some(Self::ReadWriteShared),
            "writeexclusive" | "write-exclusive" => Some(Self::WriteExclusive),
            "readwriteexclusive" | "readwrite-exclusive" | "exclusive" => {
                Some(Self::ReadWriteExclusive)
            }
            _ => None,
        }
    }

    /// The spellings that [`AccessMode::parse`] reads, as a pattern for a schema.
    pub(super) const PATTERN: &str =
        "^(?i:readonly-?shared|readwrite-?shared|write-?exclusive|(readwrite-?)?exclusive)$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_spelling_fits_the_pattern_of_the_schema() {
        let pattern = regex::Regex::new(AccessMode::PATTERN).unwrap();
        for mode in AccessMode::UPGRADE_ORDER {
            assert_eq!(AccessMode::parse(mode.as_str()), Some(mode));
        }
        let spellings = [
            "ReadOnlyShared",
            "readonly-shared",
            "READWRITE-SHARED",
            "write-exclusive",
            "readwrite-exclusive",
            "exclusive",
            "readwriteexclusive",
        ];
        for text in spellings {
            assert!(AccessMode::parse(text).is_some() && pattern.is_match(text), "{text}");
        }
        for text in ["", "shared", "read-write-shared", "read", "exclusively", "read-only-shared"] {
            assert!(AccessMode::parse(text).is_none() && !pattern.is_match(text), "{text}");
        }
    }
}
