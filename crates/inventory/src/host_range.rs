//! Names of hosts with a port and ranges: `gpu[01:16]:2222`.

use std::net::Ipv6Addr;

/// The hosts that a name in an inventory stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostNames {
    pub(crate) names: Vec<String>,
    pub(crate) port: Option<u64>,
}

/// The maximum number of hosts that one name stands for.
const MAX_HOSTS: usize = 20_000;

/// Expands the ranges of a name, and takes a port off its end.
///
/// # Errors
/// A range is malformed; the text says what is expected.
pub(crate) fn expand(text: &str) -> Result<HostNames, String> {
    let (pattern, port) = match split_port(text) {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let mut names = vec![pattern.to_owned()];
    // Each round expands the first range of every name.
    while names.iter().any(|name| name.contains('[')) {
        let mut next = Vec::new();
        for name in &names {
            expand_first(name, &mut next)?;
            if next.len() > MAX_HOSTS {
                return Err(format!("a name stands for at most {MAX_HOSTS} hosts"));
            }
        }
        names = next;
    }
    Ok(HostNames { names, port })
}

/// Splits a port off, if what is before it is the name of a host.
pub(crate) fn split_port(text: &str) -> Option<(&str, u64)> {
    let (name, port) = text.rsplit_once(':')?;
    if port.is_empty() || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let port = port.parse().ok()?;
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        && (is_address(inner) || is_host_name(inner))
    {
        return Some((inner, port));
    }
    // A colon outside of ranges belongs to an address.
    let mut depth = 0;
    let is_plain = name.chars().all(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c != ':' || depth > 0
    });
    (is_plain && is_host_name(name)).then_some((name, port))
}

/// Whether a text is the name of a host, an address, or either of them with ranges.
pub(crate) fn is_host(text: &str) -> bool {
    is_host_name(text) || is_address(text)
}

/// Whether a text is an IPv6 address, perhaps with ranges.
fn is_address(text: &str) -> bool {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('[') {
        let Some((range, tail)) = tail.split_once(']') else { return false };
        if !is_range(range, |c| c.is_ascii_hexdigit()) {
            return false;
        }
        plain += head;
        plain.push('1');
        rest = tail;
    }
    plain += rest;
    plain.parse::<Ipv6Addr>().is_ok()
}

/// Whether a text is labels of letters, digits, `_` and `-` with dots between them, perhaps with
/// ranges.
fn is_host_name(text: &str) -> bool {
    let mut rest = text;
    // What the previous character was: nothing yet, part of a label, or `-` and `_` inside one.
    let mut previous = '.';
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '[' => {
                let Some((range, tail)) = rest.split_once(']') else { return false };
                let is_letters = matches!(range.as_bytes(), [a, b':', b, step @ ..]
                    if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() && is_step(step));
                if !is_letters && !is_range(range, |c| c.is_ascii_digit()) {
                    return false;
                }
                rest = tail;
            }
            '.' if matches!(previous, '.' | '-' | '_') => return false,
            '-' if previous == '.' => return false,
            '.' | '-' | '_' => {}
            c if c.is_alphanumeric() => {}
            _ => return false,
        }
        previous = if c == '[' { 'a' } else { c };
    }
    !matches!(previous, '.' | '-' | '_')
}

fn is_step(step: &[u8]) -> bool {
    match step {
        [] => true,
        [b':', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn is_range(range: &str, is_digit: impl Fn(char) -> bool) -> bool {
    let mut parts = range.splitn(3, ':');
    let mut bound = || parts.next().is_some_and(|it| !it.is_empty() && it.chars().all(&is_digit));
    bound() && bound() && parts.next().is_none_or(|step| is_step(format!(":{step}").as_bytes()))
}

fn expand_first(name: &str, into: &mut Vec<String>) -> Result<(), String> {
    let Some((head, rest)) = name.split_once('[') else {
        into.push(name.to_owned());
        return Ok(());
    };
    let Some((range, tail)) = rest.split_once(']') else {
        return Err("a range ends with `]`".to_owned());
    };
    let parts: Vec<&str> = range.split(':').collect();
    let (begin, end, step) = match parts.as_slice() {
        [begin, end] => (*begin, *end, "1"),
        [begin, end, step] => (*begin, *end, *step),
        _ => return Err("a range is [begin:end] or [begin:end:step]".to_owned()),
    };
    let begin = if begin.is_empty() { "0" } else { begin };
    if end.is_empty() {
        return Err("a range has an end".to_owned());
    }
    let step: usize = step.parse().ok().filter(|step| *step > 0).ok_or("a step is 1 or more")?;
    let is_padded = begin.len() > 1 && begin.starts_with('0');
    if is_padded && begin.len() != end.len() {
        return Err("with leading zeros, begin and end have equally many digits".to_owned());
    }
    if let (Some(first), Some(last)) = (letter(begin), letter(end)) {
        if first > last {
            return Err("a range begins with the smaller letter".to_owned());
        }
        let letters = LETTERS[first..=last].chars().step_by(step);
        into.extend(letters.map(|letter| format!("{head}{letter}{tail}")));
        return Ok(());
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_| bounds());
    let (first, last) = (number(begin)?, number(end)?);
    if first > last {
        return Err("a range begins with the smaller number".to_owned());
    }
    let count = ((last - first) / step as u64).saturating_add(1);
    if count > MAX_HOSTS as u64 {
        return Err(format!("a name stands for at most {MAX_HOSTS} hosts"));
    }
    let width = if is_padded { begin.len() } else { 0 };
    into.extend((first..=last).step_by(step).map(|number| format!("{head}{number:0width$}{tail}")));
    Ok(())
}

fn bounds() -> String {
    "the bounds of a range are two numbers or two letters".to_owned()
}

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn letter(text: &str) -> Option<usize> {
    (text.len() == 1).then(|| LETTERS.find(text)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pvs_8_ranges_expand() {
        let table: [(&str, &[&str], Option<u64>); 16] = [
            ("web", &["web"], None),
            ("web:22", &["web"], Some(22)),
            ("n[1:3]", &["n1", "n2", "n3"], None),
            ("n[08:10]", &["n08", "n09", "n10"], None),
            ("n[:1]", &["n0", "n1"], None),
            ("n[1:9:4].x", &["n1.x", "n5.x", "n9.x"], None),
            ("n[a:c]", &["na", "nb", "nc"], None),
            ("n[y:B]", &["ny", "nz", "nA", "nB"], None),
            ("n[a:e:2]", &["na", "nc", "ne"], None),
            ("r[1:2]n[a:b]:2222", &["r1na", "r1nb", "r2na", "r2nb"], Some(2222)),
            ("10.0.0.[1:2]", &["10.0.0.1", "10.0.0.2"], None),
            ("fe80::1", &["fe80::1"], None),
            ("[fe80::1]:22", &["fe80::1"], Some(22)),
            ("[web]:22", &["web"], Some(22)),
            ("web-:22", &["web-:22"], None),
            ("x:y", &["x:y"], None),
        ];
        for (text, names, port) in table {
            let expanded = expand(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (expanded.names, expanded.port),
                (names.iter().map(|&name| name.to_owned()).collect(), port),
                "{text}"
            );
        }
        let wrong = [
            "n[1]",
            "n[1:2:3:4]",
            "n[1:]",
            "n[01:3]",
            "n[c:a]",
            "n[3:1]",
            "n[1:b]",
            "n[1:2:0]",
            "n[1:2",
            "n[0:99999999999]",
            "n[0:999][0:999]",
            "n[a:c:x]",
        ];
        for text in wrong {
            assert!(expand(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_has_as_many_hosts_as_numbers(
            first in 0u64..50,
            more in 0u64..50,
            step in 1u64..9,
        ) {
            let names = expand(&format!("n[{first}:{}:{step}]", first + more)).unwrap().names;
            prop_assert_eq!(names.len() as u64, more / step + 1);
            prop_assert_eq!(&names[0], &format!("n{first}"));
        }

        #[test]
        fn no_name_makes_it_panic(text in "[a1:\\[\\]. _-]{0,14}") {
            let _ = expand(&text);
            let _ = split_port(&text);
        }
    }
}
