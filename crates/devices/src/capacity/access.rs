//! Access modes: which holders may share a device.

use gantry_api::devices::{AccessMode, Sharing};

use super::CapacityError;

/// Whether the holders of a device allow one more in this mode.
#[must_use]
pub const fn allows_holder(held: &Sharing, wanted: AccessMode) -> bool {
    let Sharing {
        allow_read_only_shared: _,
        allow_read_write_shared: _,
        allow_write_exclusive: _,
        read_only_shared,
        read_write_shared,
        write_exclusive,
        read_write_exclusive,
    } = held;
    *read_write_exclusive == 0
        && match wanted {
            AccessMode::ReadOnlyShared => true,
            AccessMode::ReadWriteShared => *write_exclusive == 0,
            AccessMode::WriteExclusive => *read_write_shared == 0 && *write_exclusive == 0,
            AccessMode::ReadWriteExclusive => {
                *read_only_shared == 0 && *read_write_shared == 0 && *write_exclusive == 0
            }
        }
}

/// Parses an access mode in any of its spellings.
///
/// # Errors
/// If it is not an access mode.
pub fn parse_mode(text: &str) -> Result<AccessMode, CapacityError> {
    AccessMode::parse(text).ok_or_else(|| CapacityError::InvalidMode { mode: text.to_owned() })
}
