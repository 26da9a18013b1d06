//! Functions for `deserialize_with` that convert the values of keys into fields.

use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

use super::duration;

/// Reads a text and parses it.
///
/// # Errors
/// The text cannot be parsed.
pub fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads a duration in Go's format.
///
/// # Errors
/// The text is not a duration.
pub fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a duration")))
}

/// Reads a number of seconds.
///
/// # Errors
/// The value is not a number of seconds.
pub fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u32::deserialize(deserializer).map(|seconds| Duration::from_secs(seconds.into()))
}
