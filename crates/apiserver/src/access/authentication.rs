//! Authentication: which credentials a request has, and whether they are valid.
//!
//! Tokens are not cached. The objects a token depends on are looked up in the store each time, so a
//! token becomes invalid with its service account, its pod or its node.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_token::{Bearer, Claims, Key, ReferencedKind, StaticTokens, StoredObject, TokenError};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;

use crate::access::Caller;
use crate::access::authorizer::AuthorizationMode;
use crate::api::Api;
use crate::streams::websocket;

/// Authenticates callers.
#[derive(Clone, Debug)]
pub struct Authenticator(Arc<AuthenticatorConfig>);

#[derive(Debug)]
struct AuthenticatorConfig {
    key: Key,
    issuer: String,
    tokens: StaticTokens,
    anonymous_access: AnonymousAccess,
}

/// How requests without credentials are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// They are authenticated as `system:anonymous`.
    Allowed,
    /// They are refused.
    Denied,
}

/// The client certificate of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// No certificate, or one without a user name.
    Absent,
    /// A trusted certificate of this caller.
    Verified(Caller),
    /// A certificate that is not trusted.
    Rejected,
}

/// The caller of a valid token, and the audiences of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthenticatedToken {
    pub(crate) caller: Caller,
    pub(crate) audiences: Vec<String>,
}

/// The warning about a token that is not where it is expected.
pub(crate) const MISPLACED_TOKEN_WARNING: &str = "the provided Authorization header contains extra \
                                                  space before the bearer token, and is ignored";

impl Authenticator {
    /// Authenticates callers by certificates, by `tokens`, and by tokens that `key` signs for
    /// `issuer`.
    #[must_use]
    pub fn new(key: Key, issuer: String, tokens: StaticTokens, strangers: AnonymousAccess) -> Self {
        Self(Arc::new(AuthenticatorConfig { key, issuer, tokens, anonymous_access: strangers }))
    }

    /// Returns the key that signs tokens.
    pub(crate) fn key(&self) -> &Key {
        &self.0.key
    }

    /// Returns the issuer of tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// Returns the audiences of tokens for this server.
    pub(crate) fn audiences(&self) -> Vec<String> {
        vec![self.0.issuer.clone()]
    }
}

impl Api {
    /// Authenticates a request; `None` for invalid credentials.
    #[must_use]
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: ClientCertificate,
    ) -> Option<Caller> {
        let identity = &self.0.settings.authenticator;
        let refused = match certificate {
            ClientCertificate::Verified(caller) => return Some(caller),
            ClientCertificate::Rejected => true,
            ClientCertificate::Absent => false,
        };
        let shown = match presented_token(headers) {
            PresentedToken::Absent | PresentedToken::Misplaced => websocket_token(headers),
            shown => shown,
        };
        match shown {
            PresentedToken::Token(token) => {
                match self.authenticate_token(&token, &identity.audiences()) {
                    Ok(valid) => Some(valid.caller),
                    Err(fault) => {
                        tracing::debug!(%fault, "a bearer token is invalid");
                        None
                    }
                }
            }
            PresentedToken::Malformed => None,
            PresentedToken::Absent | PresentedToken::Misplaced => match self.anonymous_access() {
                AnonymousAccess::Allowed if !refused => Some(Caller::anonymous()),
                AnonymousAccess::Allowed | AnonymousAccess::Denied => None,
            },
        }
    }

    /// Returns how requests without credentials are treated. Where an authorizer allows everything,
    /// anonymous callers would be allowed everything too; as in Kubernetes they are refused then,
    /// whatever the settings say.
    fn anonymous_access(&self) -> AnonymousAccess {
        if self.0.settings.authorization.contains(&AuthorizationMode::AlwaysAllow) {
            return AnonymousAccess::Denied;
        }
        self.0.settings.authenticator.0.anonymous_access
    }

    /// Logs when the settings allow anonymous callers that are refused all the same.
    pub(crate) fn warn_if_anonymous_denied(&self) {
        if self.anonymous_access() != self.0.settings.authenticator.0.anonymous_access {
            tracing::warn!(
                "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting \
                 AnonymousAuth to false. You should use a different authorizer"
            );
        }
    }

    /// Returns the caller of a token, if it is valid for one of these audiences now.
    pub(crate) fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<AuthenticatedToken, TokenError> {
        let identity = &self.0.settings.authenticator;
        if let Some(user) = identity.0.tokens.find(token) {
            // Such a token has no audience: it is for this server.
            let meant = identity.audiences().into_iter().filter(|it| audiences.contains(it));
            let meant: Vec<String> = meant.collect();
            if meant.is_empty() {
                return Err(TokenError::OtherIssuer);
            }
            let caller =
                Caller { uid: user.uid.clone(), ..Caller::authenticated(&user.name, &user.groups) };
            return Ok(AuthenticatedToken { caller, audiences: meant });
        }
        let claims: Claims = match identity.0.key.verify(token, &identity.0.issuer) {
            Err(TokenError::OtherIssuer) => {
                return self.authenticate_legacy_token(token, audiences);
            }
            read => read?,
        };
        let find = |kind, namespace: &str, name: &str| self.stored_object(kind, namespace, name);
        let Bearer { name, uid, groups, extra, audiences } =
            claims.check(self.now(), audiences, find)?;
        let caller = Caller { uid, extra, ..Caller::authenticated(&name, &groups) };
        Ok(AuthenticatedToken { caller, audiences })
    }

    /// Returns the caller of a token that is stored in a Secret. It is for this server alone.
    fn authenticate_legacy_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<AuthenticatedToken, TokenError> {
        let identity = &self.0.settings.authenticator;
        let claims = identity.0.key.verify_legacy(token)?;
        let own = identity.audiences();
        let meant: Vec<String> =
            audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
        if meant.is_empty() {
            return Err(TokenError::Audience { token: own, asked: audiences.to_vec() });
        }
        let secret = |namespace: &str, name: &str| self.token_secret(namespace, name);
        let account = |namespace: &str, name: &str| {
            self.stored_object(ReferencedKind::ServiceAccount, namespace, name)
        };
        let Bearer { name, uid, groups, extra, audiences } =
            claims.check(token, meant, secret, account)?;
        let caller = Caller { uid, extra, ..Caller::authenticated(&name, &groups) };
        Ok(AuthenticatedToken { caller, audiences })
    }

    /// Returns the stored state of an object that a token depends on.
    fn stored_object(
        &self,
        kind: ReferencedKind,
        namespace: &str,
        name: &str,
    ) -> Option<StoredObject> {
        let (space, key) = match kind {
            ReferencedKind::ServiceAccount => ("serviceaccounts", format!("{namespace}/{name}")),
            ReferencedKind::Pod => ("pods", format!("{namespace}/{name}")),
            ReferencedKind::Secret => ("secrets", format!("{namespace}/{name}")),
            ReferencedKind::Node => ("nodes", name.to_owned()),
        };
        let space = self.0.store.space(space);
        let entry = space.get(key.as_bytes())?;
        let metadata = entry.extra.metadata(&entry.value);
        let deleted = metadata.deletion_timestamp.as_deref();
        // A timestamp that cannot be read was not written by this server; it counts as long past.
        let deleted = deleted.map(|text| text.parse().unwrap_or(Timestamp::MIN));
        Some(StoredObject { uid: metadata.uid.clone(), deletion_timestamp: deleted })
    }
}

/// The bearer token of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PresentedToken {
    /// No token for this server.
    Absent,
    /// A token after an extra space, which is ignored.
    Misplaced,
    /// A token that cannot be decoded.
    Malformed,
    /// A token.
    Token(String),
}

/// The prefix of the WebSocket subprotocol by which browsers send a token: they can open a
/// WebSocket, but cannot set any other header on it.
pub(crate) const WEBSOCKET_TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns the token of a WebSocket request from its subprotocols.
///
/// There must be another protocol beside it, or none could be negotiated.
fn websocket_token(headers: &HeaderMap) -> PresentedToken {
    if !websocket::is_websocket_upgrade(headers) {
        return PresentedToken::Absent;
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        offered.map(str::trim).partition(|it| it.starts_with(WEBSOCKET_TOKEN_PREFIX));
    let token = match tokens.as_slice() {
        [] => return PresentedToken::Absent,
        [token] => token.strip_prefix(WEBSOCKET_TOKEN_PREFIX).unwrap_or_default(),
        [_, _, ..] => return PresentedToken::Malformed,
    };
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|it| String::from_utf8(it).ok());
    match token {
        None => PresentedToken::Malformed,
        Some(token) if token.is_empty() => PresentedToken::Absent,
        Some(_) if others.is_empty() => PresentedToken::Malformed,
        Some(token) => PresentedToken::Token(token),
    }
}

/// Whether a request has a token that is ignored.
pub(crate) fn has_misplaced_token(headers: &HeaderMap) -> bool {
    presented_token(headers) == PresentedToken::Misplaced
}

fn presented_token(headers: &HeaderMap) -> PresentedToken {
    let Some(value) = headers.get(AUTHORIZATION) else { return PresentedToken::Absent };
    let value = String::from_utf8_lossy(value.as_bytes());
    let mut words = value.trim().splitn(3, ' ');
    let (scheme, token, more) = (words.next(), words.next(), words.next());
    if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
        return PresentedToken::Absent;
    }
    match (token, more) {
        (Some(""), Some(_)) => PresentedToken::Misplaced,
        (None | Some(""), _) => PresentedToken::Absent,
        (Some(token), _) => PresentedToken::Token(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_tokens_follow_a_single_space() {
        let token = |text: &str| PresentedToken::Token(text.to_owned());
        let table: [(&[u8], PresentedToken); 12] = [
            (b"Bearer abc", token("abc")),
            (b"bearer abc", token("abc")),
            (b"BEARER abc.def.ghi", token("abc.def.ghi")),
            (b"  Bearer abc  ", token("abc")),
            (b"Bearer abc def", token("abc")),
            (b"Bearer  abc", PresentedToken::Misplaced),
            (b"Bearer", PresentedToken::Absent),
            (b"Bearer ", PresentedToken::Absent),
            (b"Basic abc", PresentedToken::Absent),
            (b"abc", PresentedToken::Absent),
            (b"", PresentedToken::Absent),
            (b"Bearer \xff", token("\u{fffd}")),
        ];
        for (value, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(presented_token(&headers), expected, "{}", value.escape_ascii());
        }
        assert_eq!(presented_token(&HeaderMap::new()), PresentedToken::Absent);
    }

    #[test]
    fn browsers_send_tokens_as_a_subprotocol() {
        let offer = |text: &str| text.replace('T', WEBSOCKET_TOKEN_PREFIX);
        let table = [
            ("TYWJj, binary.k8s.io", PresentedToken::Token("abc".to_owned())),
            ("binary.k8s.io,TYWJj", PresentedToken::Token("abc".to_owned())),
            ("TYWJj", PresentedToken::Malformed),
            ("TYWJj,TYWJj,binary.k8s.io", PresentedToken::Malformed),
            ("TYW!j,binary.k8s.io", PresentedToken::Malformed),
            ("T_w,binary.k8s.io", PresentedToken::Malformed),
            ("T,binary.k8s.io", PresentedToken::Absent),
            ("binary.k8s.io", PresentedToken::Absent),
        ];
        for (protocols, expected) in table {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&offer(protocols)).unwrap();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
            assert_eq!(
                websocket_token(&headers),
                PresentedToken::Absent,
                "no WebSocket is asked for"
            );
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
            assert_eq!(websocket_token(&headers), expected, "{protocols}");
        }
    }
}
