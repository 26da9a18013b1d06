//! Who sends a request: what they show, and whether it is believed.
//!
//! Nothing about a token is remembered. What it depends on is looked up in the store each time, so a
//! token ends with its account, its pod or its node.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_token::{Bearer, Claims, Fault, Key, Kind, Known, StaticTokens};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;

use crate::access::Caller;
use crate::api::Api;
use crate::authority::Mode;
use crate::websocket;

/// How callers are known.
#[derive(Clone, Debug)]
pub struct Identity(Arc<Means>);

#[derive(Debug)]
struct Means {
    key: Key,
    issuer: String,
    tokens: StaticTokens,
    strangers: Strangers,
}

/// What becomes of requests that show nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// They are those of `system:anonymous`.
    Anonymous,
    /// They are refused.
    Refused,
}

/// What a connection showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// No certificate, or one that names nobody.
    Absent,
    /// A certificate that is believed, of this caller.
    Of(Caller),
    /// A certificate that is not believed.
    Refused,
}

/// Someone whose token is believed, and for whom it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vouched {
    pub(crate) caller: Caller,
    pub(crate) audiences: Vec<String>,
}

/// What is said about a token that is not where it is looked for.
pub(crate) const MISPLACED_TOKEN: &str = "the provided Authorization header contains extra space \
                                          before the bearer token, and is ignored";

impl Identity {
    /// Callers are known by certificates, by `tokens`, and by what `key` signs for `issuer`.
    #[must_use]
    pub fn new(key: Key, issuer: String, tokens: StaticTokens, strangers: Strangers) -> Self {
        Self(Arc::new(Means { key, issuer, tokens, strangers }))
    }

    /// The key that signs tokens.
    pub(crate) fn key(&self) -> &Key {
        &self.0.key
    }

    /// Who signs tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// For whom tokens are meant that are shown to this server.
    pub(crate) fn audiences(&self) -> Vec<String> {
        vec![self.0.issuer.clone()]
    }
}

impl Api {
    /// Who sends a request; `None` for someone who showed something that is not believed.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap, certificate: Certificate) -> Option<Caller> {
        let identity = &self.0.settings.identity;
        let refused = match certificate {
            Certificate::Of(caller) => return Some(caller),
            Certificate::Refused => true,
            Certificate::Absent => false,
        };
        let shown = match shown(headers) {
            Shown::Nothing | Shown::Misplaced => shown_by_browser(headers),
            shown => shown,
        };
        match shown {
            Shown::Token(token) => match self.vouch(&token, &identity.audiences()) {
                Ok(vouched) => Some(vouched.caller),
                Err(fault) => {
                    tracing::debug!(%fault, "a token is not believed");
                    None
                }
            },
            Shown::Garbled => None,
            Shown::Nothing | Shown::Misplaced => match self.strangers() {
                Strangers::Anonymous if !refused => Some(Caller::anonymous()),
                Strangers::Anonymous | Strangers::Refused => None,
            },
        }
    }

    /// What becomes of requests that show nothing. Where an authorizer allows everything, anonymous
    /// callers would be allowed everything too; as in Kubernetes they are refused then, whatever the
    /// settings say.
    fn strangers(&self) -> Strangers {
        if self.0.settings.authorization.contains(&Mode::AlwaysAllow) {
            return Strangers::Refused;
        }
        self.0.settings.identity.0.strangers
    }

    /// Logs when the settings ask for anonymous callers that are refused all the same.
    pub(crate) fn warn_of_refused_strangers(&self) {
        if self.strangers() != self.0.settings.identity.0.strangers {
            tracing::warn!(
                "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting \
                 AnonymousAuth to false. You should use a different authorizer"
            );
        }
    }

    /// Whom a token stands for, if it is good for one of these audiences now.
    pub(crate) fn vouch(&self, token: &str, audiences: &[String]) -> Result<Vouched, Fault> {
        let identity = &self.0.settings.identity;
        if let Some(user) = identity.0.tokens.find(token) {
            // Such a token says nothing about whom it is for: it is for this server.
            let meant = identity.audiences().into_iter().filter(|it| audiences.contains(it));
            let meant: Vec<String> = meant.collect();
            if meant.is_empty() {
                return Err(Fault::Foreign);
            }
            let caller =
                Caller { uid: user.uid.clone(), ..Caller::authenticated(&user.name, &user.groups) };
            return Ok(Vouched { caller, audiences: meant });
        }
        let claims: Claims = match identity.0.key.read(token, &identity.0.issuer) {
            Err(Fault::Foreign) => return self.vouch_for_secret(token, audiences),
            read => read?,
        };
        let find = |kind, namespace: &str, name: &str| self.known(kind, namespace, name);
        let Bearer { name, uid, groups, extra, audiences } =
            claims.check(self.now(), audiences, find)?;
        let caller = Caller { uid, extra, ..Caller::authenticated(&name, &groups) };
        Ok(Vouched { caller, audiences })
    }

    /// Whom a token that is kept in a Secret stands for. It is for this server alone.
    fn vouch_for_secret(&self, token: &str, audiences: &[String]) -> Result<Vouched, Fault> {
        let identity = &self.0.settings.identity;
        let claims = identity.0.key.read_legacy(token)?;
        let own = identity.audiences();
        let meant: Vec<String> =
            audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
        if meant.is_empty() {
            return Err(Fault::Audience { token: own, asked: audiences.to_vec() });
        }
        let secret = |namespace: &str, name: &str| self.token_secret(namespace, name);
        let account =
            |namespace: &str, name: &str| self.known(Kind::ServiceAccount, namespace, name);
        let Bearer { name, uid, groups, extra, audiences } =
            claims.check(token, meant, secret, account)?;
        let caller = Caller { uid, extra, ..Caller::authenticated(&name, &groups) };
        Ok(Vouched { caller, audiences })
    }

    /// What is stored of an object that a token depends on.
    fn known(&self, kind: Kind, namespace: &str, name: &str) -> Option<Known> {
        let (space, key) = match kind {
            Kind::ServiceAccount => ("serviceaccounts", format!("{namespace}/{name}")),
            Kind::Pod => ("pods", format!("{namespace}/{name}")),
            Kind::Secret => ("secrets", format!("{namespace}/{name}")),
            Kind::Node => ("nodes", name.to_owned()),
        };
        let space = self.0.store.space(space);
        let entry = space.get(key.as_bytes())?;
        let metadata = entry.extra.metadata(&entry.value);
        let deleted = metadata.deletion_timestamp.as_deref();
        // What cannot be read was not written by this server; it ended long ago.
        let deleted = deleted.map(|text| text.parse().unwrap_or(Timestamp::MIN));
        Some(Known { uid: metadata.uid.clone(), deleted })
    }
}

/// What a request shows beside a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    /// Nothing that concerns this server.
    Nothing,
    /// Something after one space too many, which is not looked at.
    Misplaced,
    /// Something that is meant to be a token and cannot be read.
    Garbled,
    /// A token.
    Token(String),
}

/// What the protocols begin with by which pages in a browser show a token: they can open a
/// WebSocket, and set no other header on it.
pub(crate) const BROWSER_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// What a request for a WebSocket shows among its protocols.
///
/// There must be another protocol beside it, or none could be agreed on.
fn shown_by_browser(headers: &HeaderMap) -> Shown {
    if !websocket::is_asked(headers) {
        return Shown::Nothing;
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        offered.map(str::trim).partition(|it| it.starts_with(BROWSER_TOKEN));
    let token = match tokens.as_slice() {
        [] => return Shown::Nothing,
        [token] => token.strip_prefix(BROWSER_TOKEN).unwrap_or_default(),
        [_, _, ..] => return Shown::Garbled,
    };
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|it| String::from_utf8(it).ok());
    match token {
        None => Shown::Garbled,
        Some(token) if token.is_empty() => Shown::Nothing,
        Some(_) if others.is_empty() => Shown::Garbled,
        Some(token) => Shown::Token(token),
    }
}

/// Whether a request shows a token that is not looked at.
pub(crate) fn misplaces_token(headers: &HeaderMap) -> bool {
    shown(headers) == Shown::Misplaced
}

fn shown(headers: &HeaderMap) -> Shown {
    let Some(value) = headers.get(AUTHORIZATION) else { return Shown::Nothing };
    let value = String::from_utf8_lossy(value.as_bytes());
    let mut words = value.trim().splitn(3, ' ');
    let (scheme, token, more) = (words.next(), words.next(), words.next());
    if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
        return Shown::Nothing;
    }
    match (token, more) {
        (Some(""), Some(_)) => Shown::Misplaced,
        (None | Some(""), _) => Shown::Nothing,
        (Some(token), _) => Shown::Token(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_follows_one_space() {
        let token = |text: &str| Shown::Token(text.to_owned());
        let table: [(&[u8], Shown); 12] = [
            (b"Bearer abc", token("abc")),
            (b"bearer abc", token("abc")),
            (b"BEARER abc.def.ghi", token("abc.def.ghi")),
            (b"  Bearer abc  ", token("abc")),
            (b"Bearer abc def", token("abc")),
            (b"Bearer  abc", Shown::Misplaced),
            (b"Bearer", Shown::Nothing),
            (b"Bearer ", Shown::Nothing),
            (b"Basic abc", Shown::Nothing),
            (b"abc", Shown::Nothing),
            (b"", Shown::Nothing),
            (b"Bearer \xff", token("\u{fffd}")),
        ];
        for (value, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(shown(&headers), expected, "{}", value.escape_ascii());
        }
        assert_eq!(shown(&HeaderMap::new()), Shown::Nothing);
    }

    #[test]
    fn a_page_shows_its_token_as_a_protocol() {
        let offer = |text: &str| text.replace('T', BROWSER_TOKEN);
        let table = [
            ("TYWJj, binary.k8s.io", Shown::Token("abc".to_owned())),
            ("binary.k8s.io,TYWJj", Shown::Token("abc".to_owned())),
            ("TYWJj", Shown::Garbled),
            ("TYWJj,TYWJj,binary.k8s.io", Shown::Garbled),
            ("TYW!j,binary.k8s.io", Shown::Garbled),
            ("T_w,binary.k8s.io", Shown::Garbled),
            ("T,binary.k8s.io", Shown::Nothing),
            ("binary.k8s.io", Shown::Nothing),
        ];
        for (protocols, expected) in table {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&offer(protocols)).unwrap();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
            assert_eq!(shown_by_browser(&headers), Shown::Nothing, "no WebSocket is asked for");
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
            assert_eq!(shown_by_browser(&headers), expected, "{protocols}");
        }
    }
}
