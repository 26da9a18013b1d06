//! The arguments of the device plugin. Pure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::kernel::is_module_name;
use crate::view::{PluginPool, RegisteredDevices};

/// How many devices a plugin may offer: as many as a DevicePool may list.
const COUNTS: RangeInclusive<u32> = 1..=1024;
/// The most attributes, as DevicePools have them.
const MAX_ATTRIBUTES: usize = 32;
/// The most bytes of an attribute's name, as DevicePools have them.
const MAX_ATTRIBUTE_NAME_BYTES: usize = 253;
/// The most bytes of an attribute's value.
const MAX_ATTRIBUTE_VALUE_BYTES: usize = 1024;
/// The most bytes of the part of a resource's name after the slash.
const MAX_RESOURCE_NAME_BYTES: usize = 63;
/// The most bytes of the part of a resource's name before the slash. Quotas put `requests.` in
/// front of it.
const MAX_RESOURCE_DOMAIN_BYTES: usize = 253 - "requests.".len();
/// The most bytes of the name of a driver.
const MAX_DRIVER_BYTES: usize = 63;

/// What a plugin is to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) devices: RegisteredDevices,
    /// The kernel module that the devices need.
    pub(super) module: Option<String>,
}

impl Arguments {
    /// Reads arguments: `--name value` or `--name=value`.
    ///
    /// # Errors
    /// Which argument is wrong, and what to write.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut resource, mut count, mut module, mut driver) = (None, None, None, None);
        let mut attributes = BTreeMap::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            let known = ["--resource", "--count", "--module", "--driver", "--attribute"];
            if !known.contains(&name) {
                return Err(format!("unknown argument {name:?}: use {}", known.join(", ")));
            }
            let value = value.or_else(|| rest.next().map(String::as_str));
            let Some(value) = value else {
                return Err(format!("{name} has no value: write `{name} VALUE`"));
            };
            match name {
                "--resource" => set(&mut resource, name, parse_resource(value)?)?,
                "--count" => set(&mut count, name, parse_count(value)?)?,
                "--module" => set(&mut module, name, parse_module(value)?)?,
                "--driver" => set(&mut driver, name, parse_driver(value)?)?,
                _ => {
                    let (key, value) = parse_attribute(value)?;
                    if attributes.insert(key.clone(), value).is_some() {
                        return Err(format!("--attribute {key:?} is given twice: keep one"));
                    }
                }
            }
        }
        let Some(resource) = resource else {
            return Err("--resource is missing: name the extended resource of the devices, as in \
                        `--resource example.com/gpu`"
                .to_owned());
        };
        if attributes.len() > MAX_ATTRIBUTES {
            return Err(format!(
                "--attribute is given {} times: a DevicePool has at most {MAX_ATTRIBUTES}",
                attributes.len()
            ));
        }
        if driver.is_none() && !attributes.is_empty() {
            return Err("--attribute needs --driver: only devices of a DevicePool have attributes"
                .to_owned());
        }
        let pool = driver.map(|driver| PluginPool { driver, attributes });
        let devices = RegisteredDevices { resource, count: count.unwrap_or(1), pool };
        Ok(Self { devices, module })
    }
}

fn set<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        Some(_) => Err(format!("{name} is given twice: keep one")),
        None => Ok(()),
    }
}

fn parse_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|it| COUNTS.contains(it));
    count.ok_or_else(|| {
        let (first, last) = (COUNTS.start(), COUNTS.end());
        format!(
            "--count {text:?} is not a number of devices: write a number from {first} to {last}"
        )
    })
}

/// Reads the name of an extended resource, as Kubernetes defines it.
fn parse_resource(text: &str) -> Result<String, String> {
    let wrong = |why: &str| {
        Err(format!(
            "--resource {text:?} is not an extended resource: {why}; write a domain and a name, as \
             in `example.com/gpu`"
        ))
    };
    let Some((domain, name)) = text.split_once('/') else { return wrong("it has no domain") };
    let inner = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    let ends = [name.bytes().next(), name.bytes().last()];
    let is_name = ends.into_iter().all(|it| it.is_some_and(|it| it.is_ascii_alphanumeric()))
        && name.bytes().all(inner)
        && name.len() <= MAX_RESOURCE_NAME_BYTES;
    if !is_subdomain(domain) || domain.len() > MAX_RESOURCE_DOMAIN_BYTES {
        return wrong(&format!("{domain:?} is not a DNS name"));
    }
    if !is_name {
        return wrong(&format!("{name:?} is not a name of at most 63 letters, digits, -, _ and ."));
    }
    if domain.ends_with("kubernetes.io") || domain.starts_with("requests.") {
        return wrong(&format!("{domain} is reserved"));
    }
    Ok(text.to_owned())
}

fn parse_module(text: &str) -> Result<String, String> {
    let name = crate::kernel::canonical_name(text);
    match is_module_name(&name) {
        true => Ok(name),
        false => Err(format!(
            "--module {text:?} is not the name of a kernel module: write it as lsmod shows it"
        )),
    }
}

fn parse_driver(text: &str) -> Result<String, String> {
    match is_subdomain(text) && text.len() <= MAX_DRIVER_BYTES {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "--driver {text:?} is not a DNS name of at most {MAX_DRIVER_BYTES} characters: write \
             it as in `gpu.example.com`"
        )),
    }
}

fn parse_attribute(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, value)| {
        (1..=MAX_ATTRIBUTE_NAME_BYTES).contains(&name.len())
            && value.len() <= MAX_ATTRIBUTE_VALUE_BYTES
    });
    match parts {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!(
            "--attribute {text:?} is not a name and a value: write it as in `model=a100`"
        )),
    }
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.into_iter().all(|it| it.is_some_and(|it| it.is_ascii_alphanumeric()))
            && label.bytes().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn arguments_say_what_is_offered() {
        let table = [
            ("--resource example.com/gpu", "example.com/gpu", 1, None, None),
            ("--resource=a.b/c_D.e --count=1024", "a.b/c_D.e", 1024, None, None),
            (
                "--count 4 --module my-driver --resource x.io/fpga",
                "x.io/fpga",
                4,
                Some("my_driver"),
                None,
            ),
            (
                "--resource x.io/f --driver f.x.io --attribute model=a=b --attribute=numa=",
                "x.io/f",
                1,
                None,
                Some(("f.x.io", vec![("model", "a=b"), ("numa", "")])),
            ),
        ];
        for (text, resource, count, module, pool) in table {
            let pool = pool.map(|(driver, attributes): (&str, Vec<(&str, &str)>)| PluginPool {
                driver: driver.to_owned(),
                attributes: attributes.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            });
            let devices = RegisteredDevices { resource: resource.to_owned(), count, pool };
            let module = module.map(str::to_owned);
            assert_eq!(parse(text), Ok(Arguments { devices, module }), "{text}");
        }
    }

    #[test]
    fn wrong_arguments_name_the_remedy() {
        let long = format!("--resource example.com/{}", "g".repeat(64));
        let many: String =
            (0..33).fold(String::new(), |all, at| format!("{all} --attribute a{at}=v"));
        let many = format!("--resource a.b/c --driver d{many}");
        let table = [
            ("", "--resource is missing: name the extended resource"),
            ("--resource", "--resource has no value"),
            ("--resource gpu", "it has no domain; write a domain and a name"),
            ("--resource Example.com/gpu", "\"Example.com\" is not a DNS name"),
            ("--resource /gpu", "\"\" is not a DNS name"),
            ("--resource example.com/", "\"\" is not a name of at most 63"),
            ("--resource example.com/a/b", "\"a/b\" is not a name"),
            ("--resource example.com/-a", "\"-a\" is not a name"),
            (&long, "is not a name of at most 63"),
            ("--resource kubernetes.io/gpu", "kubernetes.io is reserved"),
            ("--resource x.kubernetes.io/gpu", "x.kubernetes.io is reserved"),
            ("--resource requests.example.com/gpu", "is reserved"),
            ("--resource a.b/c --resource a.b/d", "--resource is given twice"),
            ("--resource a.b/c --count 0", "write a number from 1 to 1024"),
            ("--resource a.b/c --count 1025", "write a number from 1 to 1024"),
            ("--resource a.b/c --count many", "--count \"many\" is not a number"),
            ("--resource a.b/c --module ../x", "--module \"../x\" is not the name"),
            ("--resource a.b/c --driver A", "--driver \"A\" is not a DNS name"),
            ("--resource a.b/c --driver d --attribute x", "write it as in `model=a100`"),
            ("--resource a.b/c --driver d --attribute =x", "write it as in `model=a100`"),
            ("--resource a.b/c --driver d --attribute x=1 --attribute x=2", "\"x\" is given twice"),
            ("--resource a.b/c --attribute x=1", "--attribute needs --driver"),
            (&many, "--attribute is given 33 times"),
            ("--resources a.b/c", "unknown argument \"--resources\": use --resource, --count"),
            ("gpu", "unknown argument \"gpu\""),
        ];
        for (text, expected) in table {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
