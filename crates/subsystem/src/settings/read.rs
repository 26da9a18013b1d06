//! How the values of keys become fields: for `deserialize_with`.

use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

use super::duration;

/// Reads a text that is parsed.
///
/// # Errors
/// It cannot be parsed.
pub fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads a duration in Go's form.
///
/// # Errors
/// It is none.
pub fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no duration")))
}

/// Reads a number of seconds.
///
/// # Errors
/// It is none.
pub fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u32::deserialize(deserializer).map(|seconds| Duration::from_secs(seconds.into()))
}
