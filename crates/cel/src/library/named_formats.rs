//! Named formats of text.

use super::{EvalResult, LibraryFunction, no_overload, time, url};
use crate::cost::CostRule;
use crate::eval_context::EvalContext;
use crate::value::Value;
use crate::view::decode_base64;

/// A format that text can have.
#[derive(Debug)]
pub struct Format {
    /// What expressions call it.
    pub(crate) name: &'static str,
    /// How long a server takes the pattern behind it to be, which decides its price.
    pub(crate) pattern: u64,
    validate: fn(&str) -> Vec<String>,
}

static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", pattern: 30, validate: |text| label(text) },
    Format { name: "dns1123Subdomain", pattern: 60, validate: |text| subdomain(text) },
    Format { name: "dns1035Label", pattern: 30, validate: |text| dns1035(text) },
    Format { name: "qualifiedName", pattern: 60, validate: qualified_name },
    Format { name: "dns1123LabelPrefix", pattern: 30, validate: |text| label(&prefix(text)) },
    Format {
        name: "dns1123SubdomainPrefix",
        pattern: 60,
        validate: |text| subdomain(&prefix(text)),
    },
    Format { name: "dns1035LabelPrefix", pattern: 30, validate: |text| dns1035(&prefix(text)) },
    Format { name: "labelValue", pattern: 40, validate: label_value },
    Format {
        name: "uri",
        pattern: 1_103,
        validate: |text| url::validate(text).err().into_iter().collect(),
    },
    Format {
        name: "uuid",
        pattern: 72,
        validate: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    Format {
        name: "byte",
        pattern: 84,
        validate: |text| {
            unless(!text.is_empty() && decode_base64(text).is_some(), "invalid base64")
        },
    },
    Format {
        name: "date",
        pattern: 71,
        validate: |text| unless(time::parse_date(text).is_some(), "invalid date"),
    },
    Format {
        name: "datetime",
        pattern: 71,
        validate: |text| {
            let known = time::parse_rfc3339(&text.to_ascii_uppercase());
            unless(known.is_some(), "invalid datetime")
        },
    },
];

const NAMED_FORMAT_SIGNATURES: &[&str] = &["() kubernetes.NamedFormat"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "format.named",
        signatures: &["(string) optional(kubernetes.NamedFormat)"],
        charge: CostRule::Nominal,
        run: named,
    },
    LibraryFunction {
        name: "validate",
        signatures: &["kubernetes.NamedFormat.(string) optional(list(string))"],
        charge: CostRule::Validation,
        run: validate,
    },
    constant::<0>("format.dns1123Label"),
    constant::<1>("format.dns1123Subdomain"),
    constant::<2>("format.dns1035Label"),
    constant::<3>("format.qualifiedName"),
    constant::<4>("format.dns1123LabelPrefix"),
    constant::<5>("format.dns1123SubdomainPrefix"),
    constant::<6>("format.dns1035LabelPrefix"),
    constant::<7>("format.labelValue"),
    constant::<8>("format.uri"),
    constant::<9>("format.uuid"),
    constant::<10>("format.byte"),
    constant::<11>("format.date"),
    constant::<12>("format.datetime"),
];

const fn constant<const PLACE: usize>(name: &'static str) -> LibraryFunction {
    LibraryFunction {
        name,
        signatures: NAMED_FORMAT_SIGNATURES,
        charge: CostRule::Nominal,
        run: fixed::<PLACE>,
    }
}

fn fixed<'v, const PLACE: usize>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    if args.is_empty() { Ok(Value::Format(&FORMATS[PLACE])) } else { no_overload() }
}

fn named<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(name)] = args else { return no_overload() };
    let found = FORMATS.iter().find(|format| format.name == &**name);
    Ok(found.map_or_else(Value::none, |format| Value::some(Value::Format(format))))
}

fn validate<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Format(format), Value::String(text)] = args else { return no_overload() };
    let faults = (format.validate)(text);
    if faults.is_empty() {
        return Ok(Value::none());
    }
    Ok(Value::some(Value::list(faults.into_iter().map(Value::text).collect())))
}

fn unless(valid: bool, fault: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![fault.to_owned()] }
}

/// What a name that is to be completed is checked as: it may end in a dash.
fn prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        // The letter before the dash goes too, as on a server; a name of one dash stays.
        Some(head) if !head.is_empty() => {
            let kept = head.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &head[..kept])
        }
        _ => text.to_owned(),
    }
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

/// Letters, digits and dashes, with neither end a dash.
fn is_label(text: &str) -> bool {
    let ends = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn label(text: &str) -> Vec<String> {
    let mut faults: Vec<String> = too_long(text, 63).into_iter().collect();
    if !is_label(text) {
        faults.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character (e.g. 'my-name',  or \
             '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned()
        });
    }
    faults
}

fn subdomain(text: &str) -> Vec<String> {
    let mut faults: Vec<String> = too_long(text, 253).into_iter().collect();
    if !is_subdomain(text) {
        faults.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    faults
}

fn dns1035(text: &str) -> Vec<String> {
    let mut faults: Vec<String> = too_long(text, 63).into_iter().collect();
    if !(is_label(text) && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())) {
        faults.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. \
             'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// Letters, digits and `-_.`, with neither end one of those.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                    '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [domain, name] => {
            if domain.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = subdomain(domain).into_iter();
                faults.extend(wrong.map(|fault| format!("prefix part {fault}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, 63).map(|fault| format!("name part {fault}")));
    if !is_name(name) {
        faults.push(format!("name part {NAME}"));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults: Vec<String> = too_long(text, 63).into_iter().collect();
    if !text.is_empty() && !is_name(text) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// Thirty-two hexadecimal digits, with or without a dash at each of the usual places.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (place, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((digits, tail)) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                rest = tail;
            }
            _ => return false,
        }
    }
    rest.is_empty()
}
