//! Validates names, keys and other short texts, with the messages of kube-apiserver.

/// A class of characters.
type ByteClass = fn(u8) -> bool;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
    used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or \
    '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
    '[-._a-zA-Z0-9]+')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid \
    DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end \
    with an alphanumeric character (e.g. '*.example.com', regex used for validation is \
    '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The rule that names of a kind follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Dot-separated labels of lower case letters, digits and hyphens: most kinds.
    DnsSubdomain,
    /// One such label: namespaces.
    DnsLabel,
    /// One such label that starts with a letter: services.
    Dns1035Label,
    /// Anything that is a valid path segment: roles and their bindings.
    PathSegment,
}

impl NameRule {
    /// Validates a name. The prefix of a generated name may end in characters that a name may not.
    #[must_use]
    pub fn check(self, name: &str, is_prefix: bool) -> Vec<String> {
        let closed;
        // The generated suffix starts with a letter or digit, so any end of the prefix is valid.
        let name = match name.strip_suffix('-') {
            Some(start) if is_prefix && self != Self::PathSegment && !start.is_empty() => {
                closed = format!("{start}a");
                &closed
            }
            Some(_) | None => name,
        };
        match self {
            Self::DnsSubdomain => subdomain(name),
            Self::DnsLabel => label(name),
            Self::Dns1035Label => label_1035(name),
            Self::PathSegment => path_segment(name, is_prefix),
        }
    }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn lower_or_hyphen(byte: u8) -> bool {
    is_lower_alphanumeric(byte) || byte == b'-'
}

fn qualified_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Returns whether a text is not empty, ends in `ends` and has only `inner` between.
fn matches_shape(text: &str, start: ByteClass, inner: ByteClass, end: ByteClass) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            start(*first) && end(*last) && bytes.iter().all(|byte| inner(*byte))
        }
        _ => false,
    }
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| {
        matches_shape(part, is_lower_alphanumeric, lower_or_hyphen, is_lower_alphanumeric)
    })
}

fn max_length_message(most: usize) -> String {
    format!("must be no more than {most} characters")
}

fn check_length_and_form(text: &str, most: usize, fits: bool, otherwise: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > most {
        complaints.push(max_length_message(most));
    }
    if !fits {
        complaints.push(otherwise.to_owned());
    }
    complaints
}

pub(crate) fn subdomain(text: &str) -> Vec<String> {
    check_length_and_form(text, 253, is_subdomain(text), SUBDOMAIN)
}

pub(crate) fn label(text: &str) -> Vec<String> {
    let fits = matches_shape(text, is_lower_alphanumeric, lower_or_hyphen, is_lower_alphanumeric);
    // A name with dots is valid for other kinds, so the message is about the dots.
    let otherwise = if is_subdomain(text) { "must not contain dots" } else { LABEL };
    check_length_and_form(text, 63, fits, otherwise)
}

pub(crate) fn label_1035(text: &str) -> Vec<String> {
    let fits = matches_shape(
        text,
        |byte| byte.is_ascii_lowercase(),
        lower_or_hyphen,
        is_lower_alphanumeric,
    );
    check_length_and_form(text, 63, fits, LABEL_1035)
}

pub(crate) fn wildcard(text: &str) -> Vec<String> {
    check_length_and_form(text, 253, text.strip_prefix("*.").is_some_and(is_subdomain), WILDCARD)
}

pub(crate) fn path_segment(text: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let found = ["/", "%"].into_iter().filter(|letter| text.contains(letter));
    found.map(|letter| format!("may not contain '{letter}'")).collect()
}

fn is_qualified(text: &str) -> bool {
    matches_shape(
        text,
        |it| it.is_ascii_alphanumeric(),
        qualified_letter,
        |it| it.is_ascii_alphanumeric(),
    )
}

pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                let inner = subdomain(prefix).into_iter();
                complaints.extend(inner.map(|it| format!("prefix part {it}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push(format!("name part {}", max_length_message(63)));
    }
    if !is_qualified(name) {
        complaints.push(format!("name part {QUALIFIED}"));
    }
    complaints
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    check_length_and_form(text, 63, text.is_empty() || is_qualified(text), LABEL_VALUE)
}

/// Validates keys of ConfigMaps and Secrets.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut complaints = check_length_and_form(
        text,
        253,
        matches_shape(text, qualified_letter, qualified_letter, qualified_letter),
        CONFIG_KEY,
    );
    // A key becomes a file name.
    if matches!(text, "." | "..") {
        complaints.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        complaints.push("must not start with '..'".to_owned());
    }
    complaints
}

/// Validates names of ports, as registered services have them.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 15 {
        complaints.push(max_length_message(15));
    }
    if !matches_shape(text, lower_or_hyphen, lower_or_hyphen, lower_or_hyphen) {
        let words = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        complaints.push(words.to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

pub(crate) fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

pub(crate) fn in_range(value: i64, least: i64, most: i64) -> Vec<String> {
    if (least..=most).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {least} and {most}, inclusive")]
}

/// Validates names of environment variables: anything printable but `=`.
pub(crate) fn environment_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    let words = "a valid environment variable name must consist only of printable ASCII characters \
                 other than '='";
    vec![words.to_owned()]
}

/// Validates percentages: `1%` to any number of percents.
pub(crate) fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let words = "a valid percent string must be a numeric string followed by an ending '%' (e.g. \
                 '1%',  or '93%', regex used for validation is '[0-9]+%')";
    vec![words.to_owned()]
}

pub(crate) fn ip(text: &str) -> Vec<String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

/// Parses an address and its prefix length.
pub(crate) fn parse_cidr(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.parse().ok()?;
    (bits <= most).then_some((address, bits))
}

/// Returns the network prefix of an address; different families have none in common.
pub(crate) fn network(address: std::net::IpAddr, bits: u8) -> (bool, u128) {
    match address {
        std::net::IpAddr::V4(it) => {
            let all = u128::from(u32::from(it));
            (true, all.checked_shr(32_u32.saturating_sub(bits.into())).unwrap_or_default())
        }
        std::net::IpAddr::V6(it) => {
            let shift = 128_u32.saturating_sub(bits.into());
            (false, u128::from(it).checked_shr(shift).unwrap_or_default())
        }
    }
}

pub(crate) fn cidr(text: &str) -> Vec<String> {
    if parse_cidr(text).is_some() {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        use NameRule::{Dns1035Label, DnsLabel, DnsSubdomain, PathSegment};
        let table = [
            (DnsSubdomain, "a.b-c.0", true),
            (DnsSubdomain, "a..b", false),
            (DnsSubdomain, "-a", false),
            (DnsLabel, "0-a", true),
            (DnsLabel, "a.b", false),
            (DnsLabel, "", false),
            (Dns1035Label, "0a", false),
            (Dns1035Label, "a0", true),
            (PathSegment, "system:A_b", true),
            (PathSegment, "..", false),
            (PathSegment, "a%", false),
        ];
        for (rule, name, fits) in table {
            assert_eq!(rule.check(name, false).is_empty(), fits, "{rule:?} {name}");
        }
        assert!(DnsSubdomain.check("a-", true).is_empty(), "the generated part closes it");
        assert!(!DnsSubdomain.check("a-", false).is_empty());
        assert!(PathSegment.check("..", true).is_empty());
    }

    #[test]
    fn keys_and_ports_are_told_apart() {
        assert!(qualified("a.test/Name_1").is_empty());
        assert_eq!(qualified("a/").len(), 2);
        assert_eq!(port_name("a--b"), ["must not contain consecutive hyphens"]);
        assert_eq!(port_name("-a"), ["must not begin or end with a hyphen"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(parse_cidr("10.0.0.0/33"), None);
        assert!(cidr("::/0").is_empty());
        assert!(percent("%").len() == 1 && percent("5%").is_empty());
        assert!(wildcard("*.a.test").is_empty() && !wildcard("*a.test").is_empty());
    }
}
