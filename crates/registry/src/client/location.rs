//! Where a registry wants the next request to be sent: `Location` and `Link`.

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

use crate::path_query::encode;

/// The longest address that is followed.
const MAX_BYTES: usize = 8 << 10;

/// Resolves the header `Location` of an upload.
///
/// # Errors
/// It is malformed, or leads from TLS to plain HTTP.
pub(super) fn resolve(base: &Uri, location: &str) -> Result<Uri, &'static str> {
    if location.len() > MAX_BYTES {
        return Err("the address of the upload is too long");
    }
    let malformed = "the address of the upload is malformed";
    let target: Uri = if location.starts_with('/') && !location.starts_with("//") {
        let mut parts = base.clone().into_parts();
        parts.path_and_query = Some(location.parse::<PathAndQuery>().map_err(|_| malformed)?);
        Uri::from_parts(parts).map_err(|_| malformed)?
    } else {
        location.parse().map_err(|_| malformed)?
    };
    match target.scheme_str() {
        Some("https") => {}
        Some("http") if base.scheme() == Some(&Scheme::HTTP) => {}
        Some("http") => {
            return Err("it leads from https:// to an upload at http://, which is not followed");
        }
        Some(_) | None => return Err(malformed),
    }
    if target.host().is_none_or(str::is_empty) {
        return Err(malformed);
    }
    Ok(target)
}

/// Whether two addresses have the same scheme, host and port, so that credentials for one may be
/// sent to the other.
pub(super) fn same_origin(one: &Uri, other: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        (uri.scheme_str().map(str::to_owned), host, uri.port_u16().unwrap_or(usual))
    };
    origin(one) == origin(other)
}

/// Adds a parameter to the query of an address.
pub(super) fn with_parameter(uri: &Uri, name: &str, value: &str) -> Option<Uri> {
    let value = encode(value);
    let target = match uri.query() {
        None | Some("") => format!("{}?{name}={value}", uri.path()),
        Some(query) => format!("{}?{query}&{name}={value}", uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns the path and query of the next page, of the header `Link`. The host in it, if any, is
/// ignored: a list does not continue at another registry.
pub(super) fn next_page(link: &str) -> Option<String> {
    if link.len() > MAX_BYTES {
        return None;
    }
    link.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let next = parameters.split(';').any(|it| {
            let (name, value) = it.split_once('=').unwrap_or((it, ""));
            name.trim().eq_ignore_ascii_case("rel") && value.trim().trim_matches('"') == "next"
        });
        let uri: Uri = target.parse().ok()?;
        let path = uri.path_and_query()?.as_str();
        (next && path.starts_with("/v2/")).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn locations_resolve_and_never_leave_tls() {
        let table = [
            ("/v2/a?x=1", Ok("https://r:5/v2/a?x=1")),
            ("https://r:5/v2/a", Ok("https://r:5/v2/a")),
            ("https://other/up", Ok("https://other/up")),
            ("http://r:5/v2/a", Err(())),
            ("//other/up", Err(())),
            ("ftp://r/x", Err(())),
            ("v2/a", Err(())),
            ("", Err(())),
            ("/a b", Err(())),
        ];
        for (location, expected) in table {
            let found = resolve(&uri("https://r:5/v2/x"), location);
            let found = found.map(|it| it.to_string()).map_err(drop);
            assert_eq!(found.as_deref(), expected.as_ref().map(|it| &**it).map_err(|()| &()));
        }
        assert!(resolve(&uri("http://r/"), "http://s/").is_ok());
        assert!(resolve(&uri("http://r/"), &format!("/{}", "x".repeat(MAX_BYTES))).is_err());
    }

    #[test]
    fn origins_are_compared_with_usual_ports() {
        let table = [
            ("https://a/x", "https://A:443/y", true),
            ("http://a/", "http://a:80/", true),
            ("https://a/", "http://a/", false),
            ("https://a/", "https://a:444/", false),
            ("https://a/", "https://b/", false),
        ];
        for (one, other, expected) in table {
            assert_eq!(same_origin(&uri(one), &uri(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn parameters_are_added_and_links_are_read() {
        let add = |text: &str| with_parameter(&uri(text), "digest", "sha256:a").unwrap();
        assert_eq!(add("https://r/u"), uri("https://r/u?digest=sha256%3Aa"));
        assert_eq!(add("https://r/u?_state=x"), uri("https://r/u?_state=x&digest=sha256%3Aa"));
        let table = [
            ("</v2/a/tags/list?n=2&last=b>; rel=\"next\"", Some("/v2/a/tags/list?n=2&last=b")),
            ("<https://evil/v2/a/tags/list?last=b>; rel=next", Some("/v2/a/tags/list?last=b")),
            ("</v2/p>; rel=\"prev\", </v2/n>; rel=\"next\"", Some("/v2/n")),
            ("</v2/p>; rel=\"prev\"", None),
            ("</other>; rel=\"next\"", None),
            ("/v2/a; rel=\"next\"", None),
            ("", None),
        ];
        for (link, expected) in table {
            assert_eq!(next_page(link).as_deref(), expected, "{link}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,60}") {
            let _ = resolve(&uri("https://r/"), &text);
            let _ = next_page(&text);
        }
    }
}
