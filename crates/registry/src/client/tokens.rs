//! Access tokens: asked for at the endpoint that a registry names, and kept until they expire.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Uri};
use serde_json::Value;

use super::error::RegistryError;
use super::exchange::{Refusal, Reply, RequestSpec};
use super::{Call, Client, lock};
use crate::client::challenge::Challenge;
use crate::credentials::{Credential, SecretText};
use crate::path_query::encode;

/// For which requests a value of the header `Authorization` is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    pub(super) server: String,
    pub(super) scope: String,
    pub(super) credential: Option<Credential>,
}

/// Values of the header `Authorization` that registries have accepted.
#[derive(Debug)]
pub(super) struct TokenCache {
    clock: Clock,
    /// A `HashMap` because credentials have no order.
    tokens: Mutex<HashMap<TokenKey, (SecretText, Moment)>>,
}

/// Tokens that are kept; beyond it, all are asked for again.
const MAX_TOKENS: usize = 1024;

impl TokenCache {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, tokens: Mutex::default() }
    }

    pub(super) fn get(&self, key: &TokenKey) -> Option<SecretText> {
        let now = self.clock.moment();
        let tokens = lock(&self.tokens);
        tokens.get(key).filter(|(_, until)| *until > now).map(|(token, _)| token.clone())
    }

    pub(super) fn insert(&self, key: TokenKey, token: SecretText, lifetime: Duration) {
        let now = self.clock.moment();
        let mut tokens = lock(&self.tokens);
        if tokens.len() >= MAX_TOKENS {
            tokens.retain(|_, (_, until)| *until > now);
            if tokens.len() >= MAX_TOKENS {
                tokens.clear();
            }
        }
        tokens.insert(key, (token, now + lifetime));
    }

    pub(super) fn remove(&self, key: &TokenKey) {
        lock(&self.tokens).remove(key);
    }
}

/// A value of the header `Authorization`, and how long it is valid.
#[derive(Debug)]
pub(super) struct Authorization {
    pub(super) value: SecretText,
    pub(super) lifetime: Duration,
    /// Whether it is valid for more than what it was asked for.
    pub(super) any_scope: bool,
}

/// How long a token is valid whose endpoint does not say so; the protocol fixes it.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
/// How long user name and password are sent without being asked for; they do not expire.
const BASIC_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The longest time that a token is kept.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest response of a token endpoint.
const MAX_TOKEN_BYTES: usize = 256 << 10;

impl Client {
    /// Answers the challenges of a registry; `Err` of the inner result if it cannot be done with
    /// this credential.
    pub(super) async fn authorization(
        &self,
        call: &Call,
        origin: &Uri,
        challenges: &[Challenge],
        credential: Option<&Credential>,
    ) -> Result<Result<Authorization, Refusal>, RegistryError> {
        let bearer = challenges.iter().find_map(|it| match it {
            Challenge::Bearer { realm, service, scope } => Some((realm, service, scope)),
            Challenge::Basic => None,
        });
        if let Some((realm, service, scope)) = bearer {
            if let Some(Credential::RegistryToken(_)) = credential {
                // It was sent already.
                return Ok(Err(Refusal::unauthorized(String::new())));
            }
            let request = self.token_request(
                call,
                origin,
                realm,
                service.as_deref(),
                scope.as_deref(),
                credential,
            )?;
            let reply = self.retrying(call, &request, None).await?;
            return read_token(call, &reply, credential);
        }
        let basic = challenges.contains(&Challenge::Basic);
        match credential.and_then(Credential::basic).filter(|_| basic) {
            Some(value) => {
                Ok(Ok(Authorization { value, lifetime: BASIC_LIFETIME, any_scope: true }))
            }
            None => Ok(Err(Refusal::unauthorized(String::new()))),
        }
    }

    fn token_request(
        &self,
        call: &Call,
        origin: &Uri,
        realm: &str,
        service: Option<&str>,
        challenged: Option<&str>,
        credential: Option<&Credential>,
    ) -> Result<RequestSpec, RegistryError> {
        let _ = self;
        let malformed = || call.protocol("the address of its token endpoint is malformed");
        let realm: Uri = realm.parse().map_err(|_| malformed())?;
        // Credentials must not be sent in the clear to an endpoint of a registry with TLS.
        if origin.scheme_str() == Some("https") && realm.scheme_str() != Some("https") {
            return Err(call.protocol("its token endpoint is not at https://"));
        }
        let mut form: Vec<(&str, &str)> = Vec::new();
        form.extend(service.map(|it| ("service", it)));
        // What this operation needs, and what the registry asked for in addition.
        let own = call.scope.split(' ');
        let more = challenged.into_iter().flat_map(|it| it.split(' '));
        for scope in own.chain(more).filter(|it| !it.is_empty()) {
            if !form.contains(&("scope", scope)) && form.len() < MAX_SCOPES {
                form.push(("scope", scope));
            }
        }
        if let Some(Credential::IdentityToken(token)) = credential {
            let scopes: Vec<&str> =
                form.iter().filter(|(name, _)| *name == "scope").map(|(_, it)| *it).collect();
            let scopes = scopes.join(" ");
            form.retain(|(name, _)| *name != "scope");
            form.extend([("scope", scopes.as_str()), ("grant_type", "refresh_token")]);
            form.extend([("client_id", "gantry"), ("refresh_token", token.reveal())]);
            let mut request = RequestSpec::new(Method::POST, realm);
            let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers.insert(CONTENT_TYPE, form_type);
            request.body = encode_form(&form).into();
            request.limit = MAX_TOKEN_BYTES;
            return Ok(request);
        }
        if let Some(Credential::Basic { username, .. }) = credential {
            form.push(("account", username));
        }
        let query = encode_form(&form);
        let query = match realm.query() {
            None | Some("") => query,
            Some(own) => format!("{own}&{query}"),
        };
        let mut parts = realm.clone().into_parts();
        let target = format!("{}?{query}", realm.path());
        parts.path_and_query = Some(target.parse().map_err(|_| malformed())?);
        let mut request = RequestSpec::get(Uri::from_parts(parts).map_err(|_| malformed())?);
        request.limit = MAX_TOKEN_BYTES;
        if let Some(basic) = credential.and_then(Credential::basic) {
            let mut value = HeaderValue::from_str(basic.reveal()).map_err(|_| malformed())?;
            value.set_sensitive(true);
            request.headers.insert(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// The largest number of parameters, so that a challenge cannot make a request of any length.
const MAX_SCOPES: usize = 16;

fn encode_form(form: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        form.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

fn read_token(
    call: &Call,
    reply: &Reply,
    credential: Option<&Credential>,
) -> Result<Result<Authorization, Refusal>, RegistryError> {
    match reply.status.as_u16() {
        200 => {}
        // Endpoints answer with 400 too when a refresh token is not valid.
        400 | 401 => return Ok(Err(Refusal::unauthorized(reply.message(credential)))),
        403 => return Ok(Err(Refusal::denied(reply.message(credential)))),
        status => {
            return Err(call.protocol(&format!("its token endpoint responded with {status}")));
        }
    }
    parse_token(&reply.body)
        .map(Ok)
        .ok_or_else(|| call.protocol("its token endpoint responded without a token"))
}

/// Reads the response of a token endpoint.
fn parse_token(bytes: &[u8]) -> Option<Authorization> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let text = |key| document.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let token = text("token").or_else(|| text("access_token"))?;
    // What cannot be sent in a header is not a token.
    HeaderValue::from_str(token).ok()?;
    let seconds = document.get("expires_in").and_then(Value::as_u64).filter(|it| *it > 0);
    let lifetime = seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
    // A tenth earlier, so that a token does not expire on its way.
    let lifetime = lifetime - lifetime / 10;
    let value = SecretText::new(format!("Bearer {token}"));
    Some(Authorization { value, lifetime, any_scope: false })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use gantry_process::clock::FakeClock;

    #[test]
    fn tokens_are_read_with_their_lifetimes() {
        let table = [
            (r#"{"token":"a"}"#, Some(("Bearer a", 54))),
            (r#"{"access_token":"a","expires_in":300}"#, Some(("Bearer a", 270))),
            (r#"{"token":"a","access_token":"b","expires_in":0}"#, Some(("Bearer a", 54))),
            (r#"{"token":"","access_token":"b","expires_in":-1}"#, Some(("Bearer b", 54))),
            (r#"{"token":"a","expires_in":18446744073709551615}"#, Some(("Bearer a", 77_760))),
            (r#"{"token":"a\nb"}"#, None),
            (r#"{"token":7}"#, None),
            ("{}", None),
            ("[", None),
        ];
        for (text, expected) in table {
            let found = parse_token(text.as_bytes());
            let found = found.as_ref().map(|it| (it.value.reveal(), it.lifetime.as_secs()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn cached_tokens_expire_and_are_kept_apart() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let cache = TokenCache::new(hand.clock());
        let key = |scope: &str, credential: Option<&str>| TokenKey {
            server: "r".to_owned(),
            scope: scope.to_owned(),
            credential: credential.map(|it| Credential::RegistryToken(SecretText::new(it))),
        };
        cache.insert(key("a", None), SecretText::new("1"), Duration::from_secs(10));
        let get = |key: &TokenKey| cache.get(key).map(|it| it.reveal().to_owned());
        assert_eq!(get(&key("a", None)).as_deref(), Some("1"));
        assert_eq!(get(&key("b", None)), None);
        assert_eq!(get(&key("a", Some("x"))), None, "another credential is another user");
        let now = hand.clock().moment();
        hand.jump_to(now + Duration::from_secs(10));
        assert_eq!(get(&key("a", None)), None);
        for number in 0..=MAX_TOKENS {
            let lifetime = Duration::from_secs(10);
            cache.insert(key(&number.to_string(), None), SecretText::new("1"), lifetime);
        }
        assert!(lock(&cache.tokens).len() <= MAX_TOKENS);
    }
}
