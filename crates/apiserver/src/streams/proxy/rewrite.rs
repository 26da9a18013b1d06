//! Rewrites proxied requests and responses.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST,
    HeaderName, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;

use crate::access::authentication::WEBSOCKET_TOKEN_PREFIX;
use crate::api::ResourceRequest;
use crate::request::body::Body;
use crate::request::query::decode;
use crate::response::status::StatusError;

/// The parts of a proxy path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyPath {
    /// All of it, decoded.
    whole: String,
    /// The part that names the program, up to `proxy`.
    prefix: String,
    /// The path for the program; empty when nothing follows `proxy`, not even a slash.
    pub(super) path: String,
    /// The query, as it was sent.
    query: Option<String>,
}

impl ProxyPath {
    /// Splits the path of a request; `part` is what follows the name of the object.
    pub(super) fn of(uri: &Uri, part: &str) -> Self {
        let whole = decode(uri.path(), false);
        let rest = part.split_once('/').map_or("", |(_, rest)| rest);
        let mut path = if rest.is_empty() { String::new() } else { clean(&format!("/{rest}")) };
        if whole.ends_with('/') && !path.ends_with('/') {
            path.push('/');
        }
        let prefix = whole.strip_suffix(path.as_str()).unwrap_or(&whole).to_owned();
        Self { prefix, path, query: uri.query().map(str::to_owned), whole }
    }

    /// Returns the same path with a trailing slash.
    pub(super) fn with_slash(&self) -> String {
        self.with_query(format!("{}/", escape(&self.whole)))
    }

    fn with_query(&self, path: String) -> String {
        match &self.query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        }
    }

    /// Returns the URI of the program, as the client names it.
    fn forwarded(&self) -> String {
        join(&escape(&self.prefix), &escape(&self.path))
    }
}

/// Whether a request asks for an upgrade to another protocol.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    headers.contains_key(UPGRADE)
        && values.into_iter().any(|it| it.to_ascii_lowercase().contains("upgrade"))
}

/// Which connection headers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptHeaders {
    Nothing,
    /// The protocol of the upgrade.
    Upgrade,
}

/// Builds the request for the program.
pub(super) fn request(
    ask: &ResourceRequest,
    proxied: &ProxyPath,
    kept: KeptHeaders,
) -> Result<Request<Full<Bytes>>, StatusError> {
    let mut headers = ask.headers.clone();
    remove_hop_by_hop(&mut headers, kept);
    remove_credentials(&mut headers);
    // These are set again for the body, which was read already.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    if !headers.contains_key(HOST)
        && let Some(host) = ask.uri.authority()
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        headers.insert(HOST, host);
    }
    add_forwarded(&mut headers, ask, proxied);
    let path = if proxied.path.is_empty() { "/" } else { &proxied.path };
    let uri = proxied.with_query(escape(path));
    let uri: Uri = uri.parse().map_err(|error| {
        StatusError::bad_request(format!("the path {uri:?} cannot be passed on: {error}"))
    })?;
    let mut request = Request::new(Full::new(ask.body.clone()));
    *request.method_mut() = ask.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

fn add_forwarded(headers: &mut HeaderMap, ask: &ResourceRequest, proxied: &ProxyPath) {
    let forwarded_for = HeaderName::from_static("x-forwarded-for");
    if let Some(address) = ask.client {
        let before = headers.get_all(&forwarded_for).iter().filter_map(|it| it.to_str().ok());
        let mut all: Vec<String> = before.map(str::to_owned).collect();
        all.push(address.to_string());
        if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
            headers.insert(forwarded_for, value);
        }
    }
    if let Ok(value) = HeaderValue::from_str(&proxied.forwarded()) {
        headers.insert(HeaderName::from_static("x-forwarded-uri"), value);
    }
}

/// Removes headers about one connection (hop-by-hop).
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, kept: KeptHeaders) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let listed: Vec<String> =
        listed.flat_map(|it| it.split(',')).map(|it| it.trim().to_ascii_lowercase()).collect();
    let upgrade = headers.get(UPGRADE).cloned();
    let own = [
        CONNECTION,
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("keep-alive"),
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in own {
        headers.remove(name);
    }
    for name in listed {
        headers.remove(name);
    }
    if let (KeptHeaders::Upgrade, Some(upgrade)) = (kept, upgrade) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

/// Removes all credentials and impersonation headers.
fn remove_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let speaks_of_identity = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| speaks_of_identity(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols: Vec<String> = protocols
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','))
        .map(str::trim)
        .filter(|it| !it.is_empty() && !it.starts_with(WEBSOCKET_TOKEN_PREFIX))
        .map(str::to_owned)
        .collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(protocols) = HeaderValue::from_str(&protocols.join(", "))
        && !protocols.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    }
}

/// Builds the response for the client. `authority` is the program's address, `host` the client's
/// name for this server.
pub(super) fn response(
    mut response: Response<Body>,
    proxied: &ProxyPath,
    authority: &str,
    host: Option<&HeaderValue>,
) -> Result<Response<Body>, StatusError> {
    let headers = response.headers_mut();
    remove_hop_by_hop(headers, KeptHeaders::Nothing);
    // A program must not set the CORS policy of this server.
    for name in [
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN,
    ] {
        headers.remove(name);
    }
    let host = host.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if let Some(location) = headers.get(LOCATION).filter(|it| !it.is_empty()) {
        let rewritten = location.to_str().ok().and_then(|location| {
            HeaderValue::from_str(&relocate(location, &proxied.prefix, authority, host)).ok()
        });
        let rewritten = rewritten
            .ok_or_else(|| StatusError::internal("error trying to parse Location header"))?;
        headers.insert(LOCATION, rewritten);
    }
    Ok(response)
}

/// Rewrites a redirect: through the proxy, if it leads to the program.
fn relocate(location: &str, prefix: &str, authority: &str, host: &str) -> String {
    let after_scheme =
        ["http://", "https://", "//"].iter().find_map(|it| location.strip_prefix(it));
    let (named, rest) = match after_scheme {
        Some(after) => after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len())),
        None => ("", location),
    };
    let elsewhere = !named.is_empty() && named != authority && named != host;
    if elsewhere || !rest.starts_with('/') {
        return location.to_owned();
    }
    let (path, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let path = match path.starts_with(prefix) {
        true => path.to_owned(),
        false => join(prefix, path),
    };
    // A location under the name by which the client knows this server keeps that name.
    let before = match named {
        "" => "",
        named if named == host => &location[..location.len() - rest.len()],
        _ => "",
    };
    format!("{before}{path}{tail}")
}

/// Joins two paths, and keeps a trailing slash.
fn join(prefix: &str, path: &str) -> String {
    let joined = clean(&format!("{prefix}/{path}"));
    match path.ends_with('/') && !joined.ends_with('/') {
        true => format!("{joined}/"),
        false => joined,
    }
}

/// Returns an absolute path without empty, `.` and `..` segments; no trailing slash.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Encodes a path for a request.
fn escape(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            _ if b"-_.~$&+,/:;=@".contains(&byte) => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
