//! Decides where a redirect leads and what may be sent there.

use http::header::{AUTHORIZATION, COOKIE, LOCATION, PROXY_AUTHORIZATION};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri};

/// The request that a response asks for instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// Whether the body is sent again.
    pub(crate) with_body: bool,
    /// Whether it leads to the same scheme, host and port.
    pub(crate) same_origin: bool,
}

/// Returns where a response redirects to; `None` if it does not, or leads from TLS to plain HTTP.
pub(crate) fn redirect(
    method: &Method,
    uri: &Uri,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<Redirect> {
    let to_get = match status {
        StatusCode::SEE_OTHER => *method != Method::GET && *method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
        _ => return None,
    };
    let target = resolve(uri, headers.get(LOCATION)?.to_str().ok()?)?;
    if uri.scheme() == Some(&Scheme::HTTPS) && target.scheme() != Some(&Scheme::HTTPS) {
        return None;
    }
    let method = if to_get { Method::GET } else { method.clone() };
    let same_origin = origin(uri) == origin(&target);
    Some(Redirect { method, uri: target, with_body: !to_get, same_origin })
}

/// Removes headers that are meant for the original origin only.
pub(crate) fn strip_credentials(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
}

fn origin(uri: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let usual = match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        Some(_) | None => None,
    };
    let host = uri.host().map(str::to_ascii_lowercase);
    (uri.scheme_str(), host, uri.port_u16().or(usual))
}

/// Resolves a reference relative to the URI of the request (RFC 3986, 5.2).
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = base.scheme_str()?;
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse().ok();
    }
    // A scheme ends with the first colon, if that comes before any slash, question mark or number
    // sign.
    let before = reference.split(['/', '?']).next().unwrap_or_default();
    if before.contains(':') {
        return reference
            .parse()
            .ok()
            .filter(|it: &Uri| it.scheme().is_some() && it.host().is_some());
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let path = match path {
        "" => base.path().to_owned(),
        path if path.starts_with('/') => remove_dot_segments(path),
        path => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            remove_dot_segments(&format!("{folder}/{path}"))
        }
    };
    let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(target.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns an absolute path without `.` and `..`.
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        match *part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
        if last && matches!(*part, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_resolve_as_in_browsers() {
        let table = [
            ("https://b/x", Some("https://b/x")),
            ("//b:1/x", Some("https://b:1/x")),
            ("/x?y#z", Some("https://a:8/x?y")),
            ("x", Some("https://a:8/one/x")),
            ("./x/.", Some("https://a:8/one/x/")),
            ("../../../x", Some("https://a:8/x")),
            ("x:y/../z", None),
            ("?q=1", Some("https://a:8/one/two?q=1")),
            ("x?u=http://c/", Some("https://a:8/one/x?u=http://c/")),
            ("mailto:x", None),
        ];
        let base: Uri = "https://a:8/one/two?three".parse().unwrap();
        for (reference, expected) in table {
            let found = resolve(&base, reference).map(|it| it.to_string());
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn redirects_change_methods_as_upstream_and_never_leave_tls() {
        let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
        let table = [
            // method, status, location, expected method, with body, same origin
            (&get, 302, "/x", Some((&get, true, true))),
            (&post, 301, "/x", Some((&get, false, true))),
            (&put, 302, "/x", Some((&put, true, true))),
            (&put, 303, "/x", Some((&get, false, true))),
            (&post, 307, "/x", Some((&post, true, true))),
            (&post, 308, "https://A:443/x", Some((&post, true, true))),
            (&get, 307, "https://a:444/x", Some((&get, true, false))),
            (&get, 307, "https://b/x", Some((&get, true, false))),
            (&get, 307, "http://a/x", None),
            (&get, 307, "ftp://a/x", None),
            (&get, 300, "/x", None),
            (&get, 304, "/x", None),
            (&get, 200, "/x", None),
        ];
        let base: Uri = "https://a/".parse().unwrap();
        for (method, status, location, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, location.parse().unwrap());
            let status = StatusCode::from_u16(status).unwrap();
            let found = redirect(method, &base, status, &headers);
            let found = found.as_ref().map(|it| (&it.method, it.with_body, it.same_origin));
            assert_eq!(found, expected, "{method} {status} {location}");
        }
        assert_eq!(redirect(&get, &base, StatusCode::FOUND, &HeaderMap::new()), None);
    }
}
