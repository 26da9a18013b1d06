//! The formats a text may be asked to have. Names outside the list are ignored, as is `int32`, and
//! as are those that upstream knows but does not ask for until its next release.

mod internet;
mod time;

use std::sync::LazyLock;

use regex::Regex;

/// A format a text must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    name: Box<str>,
    kind: FormatKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormatKind {
    BsonObjectId,
    Byte,
    Cidr,
    CreditCard,
    Date,
    DateTime,
    Duration,
    Email,
    HexColor,
    Hostname,
    Ipv4,
    Ipv6,
    Isbn,
    Isbn10,
    Isbn13,
    Mac,
    Password,
    RgbColor,
    Ssn,
    Uri,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
}

impl Format {
    /// The format named `name`, if it is one that is checked. Dashes in names do not count.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let known = match name.replace('-', "").as_str() {
            "bsonobjectid" => FormatKind::BsonObjectId,
            "byte" => FormatKind::Byte,
            "cidr" => FormatKind::Cidr,
            "creditcard" => FormatKind::CreditCard,
            "date" => FormatKind::Date,
            "datetime" => FormatKind::DateTime,
            "duration" => FormatKind::Duration,
            "email" => FormatKind::Email,
            "hexcolor" => FormatKind::HexColor,
            "hostname" => FormatKind::Hostname,
            "ipv4" => FormatKind::Ipv4,
            "ipv6" => FormatKind::Ipv6,
            "isbn" => FormatKind::Isbn,
            "isbn10" => FormatKind::Isbn10,
            "isbn13" => FormatKind::Isbn13,
            "mac" => FormatKind::Mac,
            "password" => FormatKind::Password,
            "rgbcolor" => FormatKind::RgbColor,
            "ssn" => FormatKind::Ssn,
            "uri" => FormatKind::Uri,
            "uuid" => FormatKind::Uuid,
            "uuid3" => FormatKind::Uuid3,
            "uuid4" => FormatKind::Uuid4,
            "uuid5" => FormatKind::Uuid5,
            _ => return None,
        };
        Some(Self { name: name.into(), kind: known })
    }

    /// The name as it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a text has the format.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        match self.kind {
            FormatKind::BsonObjectId => {
                text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())
            }
            FormatKind::Byte => BASE64.is_match(text),
            FormatKind::Cidr => internet::is_cidr(text),
            FormatKind::CreditCard => is_credit_card(text),
            FormatKind::Date => time::is_date(text),
            FormatKind::DateTime => time::is_date_time(text),
            FormatKind::Duration => time::is_duration(text),
            FormatKind::Email => internet::is_email(text),
            FormatKind::HexColor => HEX_COLOR.is_match(text),
            FormatKind::Hostname => internet::is_hostname(text),
            FormatKind::Ipv4 => internet::is_ipv4(text),
            FormatKind::Ipv6 => internet::is_ipv6(text),
            FormatKind::Isbn => is_isbn10(text) || is_isbn13(text),
            FormatKind::Isbn10 => is_isbn10(text),
            FormatKind::Isbn13 => is_isbn13(text),
            FormatKind::Mac => internet::is_mac(text),
            FormatKind::Password => true,
            FormatKind::RgbColor => RGB_COLOR.is_match(text),
            FormatKind::Ssn => text.len() == 11 && SSN.is_match(text),
            FormatKind::Uri => internet::is_request_uri(text),
            FormatKind::Uuid => UUID.is_match(text),
            FormatKind::Uuid3 => UUID3.is_match(text),
            FormatKind::Uuid4 => UUID4.is_match(text),
            FormatKind::Uuid5 => UUID5.is_match(text),
        }
    }
}

/// Whether a text is a URL with a scheme and a host.
pub(crate) fn is_absolute_url(text: &str) -> bool {
    let after_scheme = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty());
    let host = after_scheme.map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty()) && internet::is_request_uri(text)
}

type Lazy = LazyLock<Regex>;

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of formats are fixed and tested")
}

static BASE64: Lazy = Lazy::new(|| {
    regex("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static HEX_COLOR: Lazy = Lazy::new(|| regex("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: Lazy = Lazy::new(|| {
    let part =
        "[\\t\\n\\x0c\\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\\t\\n\\x0c\\r ]*";
    regex(&format!("^rgb\\({part},{part},{part}\\)$"))
});
static SSN: Lazy = Lazy::new(|| regex("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static UUID: Lazy =
    Lazy::new(|| regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID3: Lazy =
    Lazy::new(|| regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID4: Lazy = Lazy::new(|| {
    regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
});
static UUID5: Lazy = Lazy::new(|| {
    regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
});
static CARD: Lazy = Lazy::new(|| {
    regex(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}\
         |3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, byte)| {
            let digit = u32::from(byte - b'0');
            match place % 2 {
                0 => digit,
                _ if digit >= 5 => digit * 2 - 9,
                _ => digit * 2,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The text without the spaces and dashes that group digits.
fn ungrouped(text: &str) -> Vec<u8> {
    text.bytes()
        .filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ' | b'-'))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = ungrouped(text);
    let (Ok(digits), true) = (<[u8; 10]>::try_from(digits), text.is_ascii()) else { return false };
    let last_ok = digits[9] == b'X' || digits[9].is_ascii_digit();
    if !last_ok || !digits[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let value = |byte: u8| if byte == b'X' { 10 } else { u32::from(byte - b'0') };
    let sum: u32 = (1..).zip(digits).map(|(factor, byte)| factor * value(byte)).sum();
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = ungrouped(text);
    let Ok(digits) = <[u8; 13]>::try_from(digits) else { return false };
    if !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let factors = [1, 3].into_iter().cycle();
    let sum: u32 =
        digits.iter().zip(factors).map(|(byte, factor)| factor * u32::from(byte - b'0')).sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_match_upstream() {
        let table: [(&str, &[&str], &[&str]); 22] = [
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77", "x"]),
            ("byte", &["YQ==", "YWI=", "YWJj"], &["", "YQ", "Y Q="]),
            ("cidr", &["10.0.0.0/8", "010.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111111111111112", "1"]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-1", "zz"]),
            (
                "date-time",
                &["1999-01-01T00:00:00Z", "1999-01-01t00:00:00.5+01:00"],
                &["zz", "1999-01-01", "1999-01-01T24:00:00Z", "1999-01-01T00:00:00"],
            ),
            ("duration", &["5m", "1.5h", "22 ns", "3 days", "0", "-2s", "1.s"], &["zz", "", "5"]),
            ("email", &["a@case.test", "A <a@b>", "\"a b\"@c"], &["zz", "a@", "@b", "a..b@c"]),
            ("hexcolor", &["#fff", "A0B1C2"], &["#ff", "red"]),
            ("hostname", &["a", "a.test", "1a.example"], &["-a", "a..b", "a_b", ""]),
            ("ipv4", &["192.0.2.1", "192.000.2.1"], &["zz", "256.0.0.1", "::1"]),
            ("ipv6", &["::1", "::ffff:1.2.3.4"], &["1.2.3.4", "::g", "fe80::1%eth0"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044"]),
            ("isbn10", &["0-8044-2957-X"], &["978-0321751041"]),
            ("isbn13", &["978-0321751041"], &["0321751043"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00", "zz"]),
            ("rgbcolor", &["rgb(1, 2 ,255)"], &["rgb(1,2,256)", "rgb(1,2)"]),
            ("ssn", &["123-45-6789"], &["123456789", "123-45-678"]),
            (
                "uri",
                &["https://case.test/", "/a", "urn:x"],
                &["zz", "", ":a", "http://a b", "/%zz"],
            ),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567"]),
            (
                "uuid4",
                &["f47ac10b-58cc-4372-a567-0e02b2c3d479"],
                &["123e4567-e89b-12d3-a456-426614174000"],
            ),
            (
                "uuid5",
                &["886313e1-3b8a-5372-9b90-0c9aee199e5d"],
                &["f47ac10b-58cc-4372-a567-0e02b2c3d479"],
            ),
        ];
        for (name, good, bad) in table {
            let format = Format::from_name(name).unwrap();
            for text in good {
                assert!(format.matches(text), "{name}: {text}");
            }
            for text in bad {
                assert!(!format.matches(text), "{name}: not {text}");
            }
        }
    }

    #[test]
    fn unknown_names_are_no_formats() {
        for name in ["", "int32", "int64", "float", "double", "no-such-format", "k8s-short-name"] {
            assert_eq!(Format::from_name(name), None, "{name}");
        }
    }
}
