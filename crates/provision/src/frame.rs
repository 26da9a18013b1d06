//! What controller and host say to each other: requests and replies, as frames on two pipes.
//!
//! A frame is the length of a header in four bytes (big-endian), the header as JSON, and a body
//! whose length the header has. Before the first frame a host writes a marker that it was given on
//! its command line: what a login shell prints before it is dropped.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::lock::Lock;
use crate::state::{Observed, Want};

/// The version of the frames.
pub const FRAME_VERSION: u32 = 1;
/// Bytes of a header.
pub const MAX_HEADER_BYTES: usize = 16 << 20;
/// Bytes of a body.
pub const MAX_BODY_BYTES: u64 = 1 << 30;
/// Bytes of a marker.
pub const MARKER_BYTES: usize = 32;

/// What a controller asks of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// Observes resources.
    Observe {
        /// Which.
        wants: Vec<Want>,
    },
    /// Performs an action. The same action twice is done once.
    Act {
        /// The cluster, which has a journal of its own.
        cluster: String,
        /// The run.
        run: String,
        /// The step.
        step: String,
        /// The action; its bytes are the body.
        action: Action,
    },
    /// Reads the journal of a cluster.
    Journal {
        /// The cluster.
        cluster: String,
    },
    /// Performs the actions that undo an entry of the journal, and records that it is undone.
    Undo {
        /// The cluster.
        cluster: String,
        /// The number of the entry.
        sequence: u64,
        /// The actions.
        actions: Vec<Action>,
        /// Whether the entry is undone with them.
        ends: bool,
    },
    /// Removes the journal and what was saved beside it, if everything was undone.
    Forget {
        /// The cluster.
        cluster: String,
    },
    /// Takes or renews the lock of a cluster.
    Lock {
        /// The cluster.
        cluster: String,
        /// The lock of this run; the host sets its times.
        lock: Lock,
    },
    /// Releases the lock of a cluster, if it is that of the run.
    Unlock {
        /// The cluster.
        cluster: String,
        /// The run.
        run: String,
    },
}

/// What a host replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// The first frame.
    Hello {
        /// The version of the frames.
        version: u32,
    },
    /// What was observed.
    Observed {
        /// The states.
        observed: Observed,
    },
    /// It is done.
    Done {
        /// What was left as it is, and why.
        notes: Vec<String>,
    },
    /// The text of a journal; empty without one.
    Journal {
        /// The text.
        text: String,
    },
    /// The lock is held by another run.
    Held {
        /// Its lock.
        holder: Lock,
        /// Seconds since it was written.
        age: u64,
    },
    /// It could not be done.
    Failed {
        /// Why.
        error: String,
        /// Whether it may work when it is tried again.
        transient: bool,
    },
}

#[derive(Serialize, Deserialize)]
struct Header<T> {
    body: u64,
    #[serde(flatten)]
    payload: T,
}

/// A frame that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is larger than it may be.
    #[error("cannot read a frame of {size} bytes: {limit} is the limit")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// Its header has another form.
    #[error("cannot read the header of a frame: {0}; the versions of both sides differ")]
    Header(String),
}

/// Returns the bytes of a frame without its body, which follows them.
///
/// # Errors
/// The header is too large.
pub fn encode<T: Serialize>(payload: &T, body: u64) -> Result<Vec<u8>, FrameError> {
    let header = serde_json::to_vec(&Header { body, payload })
        .map_err(|error| FrameError::Header(error.to_string()))?;
    let size = header.len() as u64;
    let limit = MAX_HEADER_BYTES as u64;
    if size > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    if body > MAX_BODY_BYTES {
        return Err(FrameError::TooLarge { size: body, limit: MAX_BODY_BYTES });
    }
    let length = u32::try_from(size).map_err(|_| FrameError::TooLarge { size, limit })?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(header);
    Ok(bytes)
}

/// The length of a header from the first four bytes of a frame.
///
/// # Errors
/// The header is too large.
pub fn header_length(bytes: [u8; 4]) -> Result<usize, FrameError> {
    let size = u64::from(u32::from_be_bytes(bytes));
    let limit = MAX_HEADER_BYTES as u64;
    if size > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    usize::try_from(size).map_err(|_| FrameError::TooLarge { size, limit })
}

/// Reads a header: what it says, and the length of the body that follows.
///
/// # Errors
/// It has another form, or the body is too large.
pub fn decode<T: DeserializeOwned>(header: &[u8]) -> Result<(T, u64), FrameError> {
    let Header { body, payload } =
        serde_json::from_slice(header).map_err(|error| FrameError::Header(error.to_string()))?;
    if body > MAX_BODY_BYTES {
        return Err(FrameError::TooLarge { size: body, limit: MAX_BODY_BYTES });
    }
    Ok((payload, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let request = Request::Observe { wants: vec![Want::Swap, Want::Path("/etc".to_owned())] };
        let bytes = encode(&request, 7).unwrap();
        let length = header_length(bytes[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - 4);
        assert_eq!(decode::<Request>(&bytes[4..]).unwrap(), (request, 7));
    }

    #[test]
    fn a_login_shell_that_prints_is_not_a_frame() {
        let error = header_length(*b"Welc").unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { size: 0x5765_6c63, .. }), "{error}");
        assert!(matches!(decode::<Reply>(b"{}"), Err(FrameError::Header(_))));
        let large = format!("{{\"body\":{},\"reply\":\"hello\",\"version\":1}}", u64::MAX);
        assert!(matches!(decode::<Reply>(large.as_bytes()), Err(FrameError::TooLarge { .. })));
    }
}
