//! The token that requesters and launchers ask for: a file that is read again, because Secrets are
//! rotated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use http::HeaderValue;
use tokio::sync::Mutex;

/// After how long the file is read again.
const TOKEN_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// The largest token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// A file with a bearer token. Clones share what was read.
#[derive(Clone, Debug)]
pub struct TokenFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    clock: Clock,
    read: Mutex<Option<(Moment, HeaderValue)>>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("could not read actuation.tokenFile {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// It has no token.
    #[error("actuation.tokenFile {0}: it must hold one line of visible characters")]
    Malformed(PathBuf),
}

impl TokenFile {
    /// The token in this file; it is read when it is needed.
    #[must_use]
    pub fn new(path: &Path, clock: Clock) -> Self {
        Self(Arc::new(Inner { path: path.to_owned(), clock, read: Mutex::default() }))
    }

    /// The value of the header `Authorization`.
    ///
    /// # Errors
    /// The file cannot be read, or has no token.
    pub async fn authorization(&self) -> Result<HeaderValue, TokenError> {
        let Inner { path, clock, read } = &*self.0;
        let mut cached = read.lock().await;
        let now = clock.moment();
        let is_fresh = |it: &&(Moment, HeaderValue)| now < it.0 + TOKEN_REFRESH_INTERVAL;
        if let Some((_, value)) = cached.as_ref().filter(is_fresh) {
            return Ok(value.clone());
        }
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|source| TokenError::Read { path: path.clone(), source })?;
        let token = text.trim();
        let is_token = !token.is_empty()
            && token.len() <= MAX_TOKEN_BYTES
            && token.bytes().all(|it| it.is_ascii_graphic());
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let (true, Ok(mut value)) = (is_token, value) else {
            return Err(TokenError::Malformed(path.clone()));
        };
        value.set_sensitive(true);
        *cached = Some((now, value.clone()));
        Ok(value)
    }
}
