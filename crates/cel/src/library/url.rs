//! References to resources on the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::key::Key;
use crate::value::{Map, Text, Value};

const COMPONENT_SIGNATURES: &[&str] = &["kubernetes.URL.() string"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "url",
        signatures: &["(string) kubernetes.URL"],
        charge: CostRule::Text,
        run: url,
    },
    LibraryFunction {
        name: "isURL",
        signatures: &["(string) bool"],
        charge: CostRule::Nominal,
        run: is_url,
    },
    LibraryFunction {
        name: "getScheme",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: scheme,
    },
    LibraryFunction {
        name: "getHost",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: host,
    },
    LibraryFunction {
        name: "getHostname",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: hostname,
    },
    LibraryFunction {
        name: "getPort",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: port,
    },
    LibraryFunction {
        name: "getEscapedPath",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: path,
    },
    LibraryFunction {
        name: "getQuery",
        signatures: &["kubernetes.URL.() map(string,list(string))"],
        charge: CostRule::Nominal,
        run: query,
    },
];

/// A reference, in its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// The reference that `text` spells: an absolute one, or an absolute path.
    ///
    /// # Errors
    /// In the words of a server when it spells none.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Once as a request line would have it, where a fragment is part of the path, and once as a
        // reference: both must be right.
        Self::parse_part(text, text)?;
        let head = text.split_once('#').map_or(text, |(head, _)| head);
        Self::parse_part(text, head)
    }

    fn parse_part(text: &str, head: &str) -> Result<Self, String> {
        let fault = |what: &str| format!("parse {text:?}: {what}");
        if head.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(format!("parse {text:?}: net/url: invalid control character in URL"));
        }
        if head.is_empty() {
            return Err(fault("empty url"));
        }
        let mut url = Self::default();
        if head == "*" {
            head.clone_into(&mut url.path);
            return Ok(url);
        }
        let rest = match split_scheme(head).map_err(&fault)? {
            Some((scheme, rest)) => {
                url.scheme = scheme.to_ascii_lowercase();
                rest
            }
            None => head,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            // What follows a scheme may be opaque, as in `mailto:a@b`.
            return if url.scheme.is_empty() {
                Err(fault("invalid URI for request"))
            } else {
                Ok(url)
            };
        }
        let mut path = rest;
        if let Some(after) = rest.strip_prefix("//").filter(|_| !rest.starts_with("///")) {
            let (authority, tail) = after.split_at(after.find('/').unwrap_or(after.len()));
            url.host = parse_authority(authority).map_err(|what| fault(&what))?;
            path = tail;
        } else if let Some(tail) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
            path = tail;
        }
        check_escapes(path).map_err(|what| fault(&what))?;
        url.path = escaped_path(path);
        Ok(url)
    }

    fn hostname(&self) -> &str {
        let (name, _) = self.split_port();
        name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
    }

    fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
            _ => (&self.host, ""),
        }
    }
}

fn split_scheme(text: &str) -> Result<Option<(&str, &str)>, &'static str> {
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return Err("missing protocol scheme"),
            b':' => return Ok(Some((&text[..place], &text[place + 1..]))),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The host of an authority, with its port.
fn parse_authority(authority: &str) -> Result<String, String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:%@".contains(&byte);
    if !user.bytes().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    check_escapes(user)?;
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        &host[end + 1..]
    } else {
        host.find(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let valid = port.is_empty() || port.starts_with(':');
    if !valid || digits.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(format!("invalid port {port:?} after host"));
    }
    for letter in host.chars() {
        let plain = letter.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(letter);
        if letter.is_ascii() && !plain {
            return Err(format!("invalid character {:?} in host name", letter.to_string()));
        }
    }
    check_escapes(host)?;
    Ok(unescape(host, false).unwrap_or_else(|| host.to_owned()))
}

/// Every percent sign must be followed by two hexadecimal digits.
fn check_escapes(text: &str) -> Result<(), String> {
    for (place, _) in text.match_indices('%') {
        let rest = &text.as_bytes()[place..];
        if !(rest.len() > 2 && rest[1].is_ascii_hexdigit() && rest[2].is_ascii_hexdigit()) {
            let shown = text[place..].chars().take(3).collect::<String>();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

/// The path as written if every letter may stand there, else with the rest escaped.
fn escaped_path(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    if path.bytes().all(|byte| plain(byte) || b"!'()*[]%".contains(&byte)) {
        return path.to_owned();
    }
    let decoded = unescape_bytes(path, false).unwrap_or_else(|| path.as_bytes().to_vec());
    let mut escaped = String::with_capacity(path.len());
    for byte in decoded {
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape_bytes(text: &str, plus_is_space: bool) -> Option<Vec<u8>> {
    check_escapes(text).ok()?;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(bytes)
}

fn unescape(text: &str, plus_is_space: bool) -> Option<String> {
    let bytes = unescape_bytes(text, plus_is_space)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn url<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    match Url::parse(text) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(what) => {
            Err(EvalError::failed(format!("URL parse error during conversion from string: {what}")))
        }
    }
}

fn is_url<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Url::parse_part(text, text).is_ok()))
}

fn component<'v>(args: &[Value<'v>], part: fn(&Url) -> &str) -> EvalResult<'v> {
    let [Value::Url(url)] = args else { return no_overload() };
    Ok(Value::text(part(url)))
}

fn scheme<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, |url| &url.scheme)
}

fn host<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, |url| &url.host)
}

fn hostname<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, Url::hostname)
}

fn port<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, |url| url.split_port().1)
}

fn path<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, |url| &url.path)
}

fn query<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Url(url)] = args else { return no_overload() };
    let mut found: BTreeMap<String, Vec<Value<'v>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A pair that cannot be read is left out, as a server does.
        if let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) {
            found.entry(key).or_default().push(Value::text(value));
        }
    }
    let entries = found
        .into_iter()
        .map(|(key, values)| (Key::String(Text::Shared(key.into())), Value::list(values)));
    Ok(Value::Map(Map::new(entries.collect())))
}

/// Whether text is a reference as a request line has it, and if not, why.
pub(super) fn validate(text: &str) -> Result<(), String> {
    Url::parse_part(text, text).map(|_| ())
}
