//! Which values a variable has.

use std::fmt;
use std::net::Ipv4Addr;

use crate::finding::{Finding, did_you_mean};
use crate::value::{Node, Value};

/// Which values a variable has.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Text that is not empty.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, or text with one of these prefixes.
    OneOfOrPrefix(&'static [&'static str], &'static [&'static str]),
    /// A boolean.
    Bool,
    /// An integer between these bounds.
    Integer(i64, i64),
    /// A word of a DNS name with at most 40 characters.
    ClusterName,
    /// A path that begins with `/` or `{data}`.
    Path,
    /// A path of the machine that runs Gantry, which may be relative to the inventory.
    LocalPath,
    /// An IPv4 network.
    Cidr,
    /// `host:port`.
    HostPort,
    /// A name or an address that a connection is made to.
    Address,
    /// The name of a user.
    User,
    /// A version: `1.34.11`.
    Version,
    /// An amount of CPU or memory.
    Quantity,
    /// A number of hosts, or a percentage of them.
    Rolling,
    /// A list.
    List(&'static Shape),
    /// A map with these keys.
    Map(&'static [Field]),
    /// A map with any keys.
    MapOf(&'static Shape),
    /// The first shape that fits.
    Either(&'static [Shape]),
    /// Anything.
    Any,
}

/// A key of a map.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// Which values it has.
    pub shape: Shape,
    /// Whether it has to be there.
    pub required: bool,
}

impl Field {
    /// A key that may be absent.
    pub(crate) const fn new(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: false }
    }

    /// A key that has to be there.
    pub(crate) const fn required(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: true }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::OneOf(words) => write!(f, "{}", words.join(", ")),
            Self::OneOfOrPrefix(words, prefixes) => {
                let prefixes: Vec<String> = prefixes.iter().map(|it| format!("{it}…")).collect();
                write!(f, "{}, {}", words.join(", "), prefixes.join(", "))
            }
            Self::Bool => f.write_str("true or false"),
            Self::Integer(low, high) => write!(f, "integer, {low} to {high}"),
            Self::ClusterName => f.write_str("lower-case letters, digits and `-`, at most 40"),
            Self::Path => f.write_str("absolute path"),
            Self::LocalPath => f.write_str("path"),
            Self::Cidr => f.write_str("IPv4 network"),
            Self::HostPort => f.write_str("host:port"),
            Self::Address => f.write_str("name or address"),
            Self::User => f.write_str("name of a user"),
            Self::Version => f.write_str("version"),
            Self::Quantity => f.write_str("quantity"),
            Self::Rolling => f.write_str("number or percentage"),
            Self::List(item) => write!(f, "list of: {item}"),
            Self::Map(fields) => {
                let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
                write!(f, "map with {}", names.join(", "))
            }
            Self::MapOf(item) => write!(f, "map to: {item}"),
            Self::Either(shapes) => {
                for (index, shape) in shapes.iter().enumerate() {
                    let between = if index == 0 { "" } else { "; or " };
                    write!(f, "{between}{shape}")?;
                }
                Ok(())
            }
            Self::Any => f.write_str("anything"),
        }
    }
}

/// Checks a value, and everything below it.
pub(crate) fn check(name: &str, shape: &Shape, node: &Node, into: &mut Vec<Finding>) {
    // An encrypted text is checked when it is used: nothing may be said about it.
    if matches!(node.value, Value::Vault(_) | Value::Null) {
        return;
    }
    match shape {
        Shape::List(item) => match node.items() {
            Some(items) => items
                .iter()
                .enumerate()
                .for_each(|(index, node)| check(&format!("{name}[{index}]"), item, node, into)),
            None => into.push(wrong(name, shape, node)),
        },
        Shape::MapOf(item) => match node.entries() {
            Some(entries) => entries
                .iter()
                .for_each(|(key, node)| check(&format!("{name}.{}", key.name), item, node, into)),
            None => into.push(wrong(name, shape, node)),
        },
        Shape::Map(fields) => check_map(name, shape, fields, node, into),
        Shape::Either(shapes) => check_either(name, shapes, node, into),
        Shape::OneOf(words) | Shape::OneOfOrPrefix(words, _) => {
            if !fits(shape, node) {
                let hint = node.text().map(|text| did_you_mean(text, words.iter().copied()));
                let mut finding = wrong(name, shape, node);
                finding.remedy += &hint.unwrap_or_default();
                into.push(finding);
            }
        }
        Shape::Cidr if node.text().is_some_and(|text| text.contains(':')) => {
            let message = format!("`{name}` is an IPv6 network");
            let remedy = "expected an IPv4 network: clusters have IPv4 addresses only";
            into.push(Finding::error(node.at, node.width(), message, remedy));
        }
        Shape::Text
        | Shape::Bool
        | Shape::Integer(..)
        | Shape::ClusterName
        | Shape::Path
        | Shape::LocalPath
        | Shape::Cidr
        | Shape::HostPort
        | Shape::Address
        | Shape::User
        | Shape::Version
        | Shape::Quantity
        | Shape::Rolling
        | Shape::Any => {
            if !fits(shape, node) {
                into.push(wrong(name, shape, node));
            }
        }
    }
}

fn check_either(name: &str, shapes: &[Shape], node: &Node, into: &mut Vec<Finding>) {
    let mut best: Option<Vec<Finding>> = None;
    for shape in shapes {
        let mut findings = Vec::new();
        check(name, shape, node, &mut findings);
        if findings.is_empty() {
            return;
        }
        // A map is meant to be the form that is a map.
        let is_container = matches!(
            (shape, &node.value),
            (Shape::Map(_) | Shape::MapOf(_), Value::Map(_)) | (Shape::List(_), Value::List(_))
        );
        if is_container && best.is_none() {
            best = Some(findings);
        }
    }
    let other = || {
        let expected: Vec<String> = shapes.iter().map(ToString::to_string).collect();
        let message = format!("`{name}` is {}", value_text(node));
        let remedy = format!("expected {}", expected.join("; or "));
        vec![Finding::error(node.at, node.width(), message, remedy)]
    };
    into.extend(best.unwrap_or_else(other));
}

fn check_map(name: &str, shape: &Shape, fields: &[Field], node: &Node, into: &mut Vec<Finding>) {
    let Some(entries) = node.entries() else {
        into.push(wrong(name, shape, node));
        return;
    };
    for (key, value) in entries {
        match fields.iter().find(|field| field.name == key.name) {
            Some(field) => check(&format!("{name}.{}", key.name), &field.shape, value, into),
            None => {
                let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
                let hint = did_you_mean(&key.name, names.iter().copied());
                let message = format!("unknown key `{}` in `{name}`", key.name);
                let remedy = format!("expected one of: {}{hint}", names.join(", "));
                let width = key.name.chars().count();
                into.push(Finding::error(key.at, width, message, remedy));
            }
        }
    }
    for field in fields.iter().filter(|field| field.required && node.get(field.name).is_none()) {
        let message = format!("`{name}` has no key `{}`", field.name);
        let remedy = format!("expected {}: {}", field.name, field.shape);
        into.push(Finding::error(node.at, 1, message, remedy));
    }
}

fn wrong(name: &str, shape: &Shape, node: &Node) -> Finding {
    let message = format!("`{name}` is {}", value_text(node));
    Finding::error(node.at, node.width(), message, format!("expected {shape}"))
}

/// A value in a message.
fn value_text(node: &Node) -> String {
    match &node.value {
        Value::Text(text) if text.is_empty() => "empty".to_owned(),
        Value::Text(text) if text.chars().count() <= 60 && !text.contains(char::is_control) => {
            format!("`{text}`")
        }
        Value::Number(number) => format!("`{number}`"),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Null | Value::Text(_) | Value::Vault(_) | Value::List(_) | Value::Map(_) => {
            node.type_name().to_owned()
        }
    }
}

/// Whether a scalar has a value of the shape. Text counts as what it spells: variables of the
/// command line are text.
fn fits(shape: &Shape, node: &Node) -> bool {
    let text = match &node.value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Vault(_) | Value::List(_) | Value::Map(_) => {
            return matches!(shape, Shape::Any);
        }
    };
    let is_text = matches!(node.value, Value::Text(_));
    let is_bool = matches!(node.value, Value::Bool(_));
    match shape {
        Shape::Any => true,
        Shape::Text | Shape::LocalPath => is_text && !text.is_empty(),
        // Unquoted `off` and `none` of YAML: `off` is the boolean false.
        Shape::OneOf(words) => {
            words.contains(&text.as_str()) || text == "false" && is_bool && words.contains(&"off")
        }
        Shape::OneOfOrPrefix(words, prefixes) => {
            let has_prefix = |it: &&str| text.strip_prefix(*it).is_some_and(|it| !it.is_empty());
            words.contains(&text.as_str())
                || text == "false" && is_bool && words.contains(&"off")
                || prefixes.iter().any(has_prefix)
        }
        Shape::Bool => {
            let word = text.to_ascii_lowercase();
            matches!(word.as_str(), "true" | "false" | "yes" | "no" | "on" | "off")
        }
        Shape::Integer(low, high) => {
            text.parse::<i64>().is_ok_and(|number| (*low..=*high).contains(&number))
        }
        Shape::ClusterName => is_text && text.len() <= 40 && is_dns_label(&text),
        Shape::Path => {
            let rest = text.strip_prefix("{data}").unwrap_or(&text);
            is_text
                && (rest.starts_with('/') || rest.is_empty() && rest.len() != text.len())
                && !rest.split('/').any(|part| part == "..")
        }
        Shape::Cidr => is_text && network(&text).is_some(),
        Shape::HostPort => is_text && is_host_port(&text),
        Shape::Address | Shape::User => is_text && is_word(&text),
        Shape::Version => is_version(&text),
        Shape::Quantity => is_quantity(&text),
        Shape::Rolling => {
            let number = text.strip_suffix('%').map(|it| (it, 100)).unwrap_or((&text, 10_000));
            number.0.parse::<i64>().is_ok_and(|it| (1..=number.1).contains(&it))
        }
        Shape::List(_) | Shape::Map(_) | Shape::MapOf(_) | Shape::Either(_) => false,
    }
}

/// Whether a text is one word that no program takes for an option.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

pub(crate) fn is_dns_label(text: &str) -> bool {
    let is_part = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_part)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_host_port(text: &str) -> bool {
    crate::host_range::split_port(text).is_some_and(|(host, port)| {
        (1..=65_535).contains(&port) && !host.contains('[') && crate::host_range::is_host(host)
    })
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
    let is_number = |part: &&str| {
        !part.is_empty() && part.len() <= 4 && part.chars().all(|c| c.is_ascii_digit())
    };
    parts.len() == 3 && parts.iter().all(is_number)
}

fn is_quantity(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let is_unit = matches!(unit, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti");
    is_unit && digits.parse::<f64>().is_ok_and(|number| number >= 0.0 && number.is_finite())
}

/// Reads an IPv4 network: its first address and how many addresses it has. The address is the
/// first one.
pub(crate) fn network(text: &str) -> Option<(u32, u64)> {
    let (address, length) = text.split_once('/')?;
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
    let size = 1u64 << (32 - length);
    (u64::from(address) % size == 0).then_some((address, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Place;

    fn is_fine(shape: &Shape, text: &str) -> bool {
        let value = crate::scalar::plain(text).unwrap();
        let mut findings = Vec::new();
        check("x", shape, &Node { at: Place::default(), value }, &mut findings);
        findings.is_empty()
    }

    #[test]
    fn prv_3_scalars_have_types() {
        let table: [(Shape, &[&str], &[&str]); 14] = [
            (Shape::Text, &["a"], &["1", "true"]),
            (Shape::OneOf(&["off", "on-demand"]), &["off", "on-demand"], &["on", "x"]),
            (
                Shape::OneOfOrPrefix(&["none"], &["manifest:"]),
                &["none", "manifest:x"],
                &["manifest:", "x"],
            ),
            (Shape::Bool, &["true", "no"], &["1", "maybe"]),
            (Shape::Integer(1, 9), &["1", "9"], &["0", "10", "x", "1.5"]),
            (
                Shape::ClusterName,
                &["mls", "a-1"],
                &["A", "-a", "a.b", "abcdefghij-abcdefghij-abcdefghij-abcdefghi"],
            ),
            (Shape::Path, &["/data", "{data}/x", "{data}"], &["data", "./x", "/a/../b", "{x}/y"]),
            (Shape::Cidr, &["10.0.0.0/8"], &["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "fd00::/8"]),
            (
                Shape::HostPort,
                &["api.x:6443", "10.0.0.1:6443"],
                &["api", "api:0", "api:70000", "a b:1", "x[1:2]:3"],
            ),
            (Shape::Address, &["10.0.0.1", "h"], &["-oProxyCommand=x", "a b"]),
            (Shape::Version, &["1.34.11", "v1.34.11"], &["1.34", "1.34.x", "latest"]),
            (Shape::Quantity, &["500m", "1Gi", "2"], &["1 Gi", "x", "-1"]),
            (Shape::Rolling, &["1", "25%", "100%"], &["0", "101%", "x%"]),
            (Shape::Any, &["1", "x"], &[]),
        ];
        for (shape, right, wrong) in table {
            for text in right {
                assert!(is_fine(&shape, text), "{shape}: {text}");
            }
            for text in wrong {
                assert!(!is_fine(&shape, text), "{shape}: {text}");
            }
        }
    }
}
