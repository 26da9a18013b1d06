//! Addresses and names of the internet.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    Regex::new(pattern).expect("the pattern of host names is fixed and tested")
});

pub(super) fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

/// Leading zeros are tolerated; they do not make a number octal.
fn sloppy_ipv4(text: &str) -> bool {
    let mut parts = 0;
    for part in text.split('.') {
        parts += 1;
        let digits = part.trim_start_matches('0');
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || (!digits.is_empty() && digits.parse::<u8>().is_err()) {
            return false;
        }
    }
    parts == 4
}

pub(super) fn is_ipv4(text: &str) -> bool {
    sloppy_ipv4(text) || (text.contains('.') && text.parse::<Ipv6Addr>().is_ok())
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match () {
        () if sloppy_ipv4(address) => 8 * size_of::<Ipv4Addr>(),
        () if is_ipv6(address) => 8 * size_of::<Ipv6Addr>(),
        () => return false,
    };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<usize>().is_ok_and(|length| length <= most)
}

/// Six, eight or twenty octets, in pairs of digits by colon or dash, or in fours by point.
pub(super) fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes() {
        [_, _, separator @ (b':' | b'-'), ..] => (char::from(*separator), 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        _ => return false,
    };
    let mut digits = 0;
    for part in text.split(separator) {
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        digits += width;
    }
    matches!(digits / 2, 6 | 8 | 20)
}

/// An address, alone or in angle brackets after a name. A comment may follow.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let text = match text.strip_suffix(')').and_then(|text| text.rsplit_once('(')) {
        Some((address, _)) => address.trim_end_matches([' ', '\t']),
        None => text,
    };
    if is_address(text) {
        return true;
    }
    let Some(inner) = text.strip_suffix('>') else { return false };
    let Some((name, address)) = inner.rsplit_once('<') else { return false };
    is_display_name(name.trim_matches([' ', '\t'])) && is_address(address.trim_matches([' ', '\t']))
}

fn is_display_name(name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    if let Some(quoted) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        return is_quoted(quoted);
    }
    name.split([' ', '\t']).all(|word| word.chars().all(|c| is_atom(c) || c == '.'))
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let local_ok = match local.strip_prefix('"').and_then(|local| local.strip_suffix('"')) {
        Some(quoted) => !quoted.is_empty() && is_quoted(quoted),
        None => is_dotted(local),
    };
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let domain_ok = match literal {
        Some(literal) => literal
            .strip_prefix("IPv6:")
            .map_or_else(|| literal.parse::<Ipv4Addr>().is_ok(), is_ipv6),
        None => is_dotted(domain),
    };
    local_ok && domain_ok
}

fn is_dotted(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.chars().all(is_atom))
}

fn is_atom(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter) || !letter.is_ascii()
}

fn is_quoted(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let ok = match letter {
            '"' => false,
            '\\' => letters.next().is_some_and(|letter| !letter.is_control()),
            _ => !letter.is_control() || letter == '\t',
        };
        if !ok {
            return false;
        }
    }
    true
}

/// What may stand in the first line of a request: a path from the root, or anything with a scheme.
pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((has_scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return has_scheme;
    }
    let path = match rest.strip_prefix("//") {
        Some(rest) if has_scheme => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !is_authority(authority) {
                return false;
            }
            path
        }
        _ => rest,
    };
    has_whole_escapes(path)
}

/// Whether there is a scheme, and what follows it; nothing if the scheme is empty.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return None,
            b':' => return Some((true, &text[place + 1..])),
            _ => return Some((false, text)),
        }
    }
    Some((false, text))
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let user_ok = user
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte));
    user_ok && has_whole_escapes(user) && is_host(host)
}

fn is_host(host: &str) -> bool {
    let is_port = |text: &str| {
        text.is_empty()
            || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
    };
    if host.starts_with('[') {
        let Some((address, port)) = host.rsplit_once(']') else { return false };
        return is_port(port) && address.bytes().all(is_host_byte);
    }
    let port = host.rfind(':').map_or("", |place| &host[place..]);
    is_port(port) && host.bytes().all(is_host_byte) && has_whole_escapes(host)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte)
}

fn has_whole_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(place, _)| {
        bytes.get(place + 1..place + 3).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
    })
}
