//! Which users may do what: decided by the host of a registry.

use std::future::Future;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::credentials::SecretText;
use crate::name::RepositoryName;

/// Authenticates and authorizes the users of a registry.
pub trait Access: Send + Sync + 'static {
    /// A user of the host.
    type User: Send + Sync;

    /// Returns the user that presents credentials; `None` if they are not valid.
    ///
    /// Clients that can only send a user name and a password send a token as password; the user
    /// name is then any text, and must not be relied on.
    fn authenticate(
        &self,
        presented: PresentedCredentials,
    ) -> impl Future<Output = Result<Option<Self::User>, AccessUnavailable>> + Send;

    /// Whether a user may do something; with `None`, without authentication. `repository` is absent
    /// where the request is for the registry as a whole.
    fn authorize(
        &self,
        user: Option<&Self::User>,
        verb: Verb,
        repository: Option<&RepositoryName>,
    ) -> impl Future<Output = Result<bool, AccessUnavailable>> + Send;

    /// Whether requests without credentials are authorized at all, instead of being challenged.
    fn anonymous(&self) -> bool {
        false
    }
}

/// The host could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not check the user: {0}; try again later")]
pub struct AccessUnavailable(pub String);

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Asks whether the registry is there and the credentials are valid.
    Ping,
    /// Lists repositories.
    List,
    /// Reads manifests, blobs, tags and referrers.
    Pull,
    /// Writes manifests and blobs.
    Push,
    /// Removes manifests, tags and blobs.
    Delete,
}

/// What a request presents in its header `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresentedCredentials {
    /// A token.
    Bearer(SecretText),
    /// A user name and a password.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: SecretText,
    },
}

/// The longest header; tokens of Kubernetes have about a thousand bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Reads the header `Authorization`; `None` if it cannot be read.
#[must_use]
pub fn presented_credentials(header: &str) -> Option<PresentedCredentials> {
    if header.len() > MAX_HEADER_BYTES {
        return None;
    }
    let (scheme, value) = header.trim().split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !value.is_empty() {
        return Some(PresentedCredentials::Bearer(SecretText::new(value)));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
    let (username, password) = decoded.split_once(':')?;
    let username = username.to_owned();
    let password = SecretText::new(password);
    (!password.reveal().is_empty()).then_some(PresentedCredentials::Basic { username, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presented_credentials_are_read_or_refused() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let table = [
            ("Bearer abc".to_owned(), Some("bearer abc".to_owned())),
            ("bearer  abc ".to_owned(), Some("bearer abc".to_owned())),
            (basic("ann:x:y"), Some("basic ann x:y".to_owned())),
            (basic(":token"), Some("basic  token".to_owned())),
            (basic("ann:"), None),
            (basic("ann"), None),
            ("Bearer ".to_owned(), None),
            ("Bearer".to_owned(), None),
            ("Basic !".to_owned(), None),
            ("Digest x".to_owned(), None),
            (String::new(), None),
            (format!("Bearer {}", "x".repeat(MAX_HEADER_BYTES)), None),
        ];
        for (header, expected) in table {
            let found = presented_credentials(&header).map(|presented| match presented {
                PresentedCredentials::Bearer(token) => format!("bearer {}", token.reveal()),
                PresentedCredentials::Basic { username, password } => {
                    format!("basic {username} {}", password.reveal())
                }
            });
            assert_eq!(found, expected, "{header:.40}");
        }
        let shown = format!("{:?}", presented_credentials("Bearer abc").unwrap());
        assert_eq!(shown, "Bearer(SecretText(…))");
    }
}
