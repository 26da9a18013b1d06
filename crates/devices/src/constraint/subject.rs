//! The entries of a device that an expression can read.

use std::collections::BTreeMap;

use gantry_api::devices::{Attribute, AttributeValue};
use gantry_cel::{Key, Map, Quantity, Semver, Text, Value};

/// A device, or a pool that only counts its devices, as a constraint sees it.
///
/// An attribute of the device hides one of the pool with the same name, and both hide the reserved
/// entries `driver`, `pool`, `name` and `deviceType`. Unknown entries are absent: the devices of a
/// pool that only counts them have no name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Attributes of the device.
    pub device_attributes: &'a [Attribute],
    /// Attributes of its pool.
    pub pool_attributes: &'a [Attribute],
    /// Name of its driver.
    pub driver: &'a str,
    /// Name of its pool.
    pub pool: &'a str,
    /// Its name.
    pub name: Option<&'a str>,
    /// Its type, if it has exactly one.
    pub device_type: Option<&'a str>,
}

/// The reserved entries in which otherwise equal devices differ.
pub(super) const IDENTITY: [&str; 2] = ["pool", "name"];

/// An entry of `device`.
#[derive(Clone, Copy, Debug)]
enum SubjectValue<'a> {
    Text(&'a str),
    Attribute(&'a AttributeValue),
}

/// The entries of `device` that one expression can read.
#[derive(Debug)]
pub(super) struct SubjectEntries<'a> {
    /// Whether these are all entries, or those with known names in a known order.
    complete: bool,
    entries: Vec<(&'a str, Option<SubjectValue<'a>>)>,
}

impl<'a> Subject<'a> {
    fn entry(&self, name: &str) -> Option<SubjectValue<'a>> {
        let attributes = self.device_attributes.iter().chain(self.pool_attributes);
        let attribute = attributes.into_iter().find(|attribute| attribute.name == name);
        attribute.map(|attribute| SubjectValue::Attribute(&attribute.value)).or_else(|| {
            let (_, text) = self.reserved().into_iter().find(|(reserved, _)| *reserved == name)?;
            text.map(SubjectValue::Text)
        })
    }

    fn reserved(&self) -> [(&'static str, Option<&'a str>); 4] {
        [
            ("driver", Some(self.driver)),
            ("pool", Some(self.pool)),
            ("name", self.name),
            ("deviceType", self.device_type),
        ]
    }

    /// Returns the entries with these names.
    pub(super) fn named(&self, names: &'a [String]) -> SubjectEntries<'a> {
        let entries = names.iter().map(|name| (name.as_str(), self.entry(name))).collect();
        SubjectEntries { complete: false, entries }
    }

    /// Returns all entries, by name.
    pub(super) fn all(&self) -> SubjectEntries<'a> {
        let reserved =
            self.reserved().into_iter().map(|(name, text)| (name, text.map(SubjectValue::Text)));
        let attributes = self.pool_attributes.iter().chain(self.device_attributes);
        let attributes = attributes.map(|attribute| {
            (attribute.name.as_str(), Some(SubjectValue::Attribute(&attribute.value)))
        });
        // Later ones hide earlier ones.
        let entries: BTreeMap<_, _> = reserved.chain(attributes).collect();
        SubjectEntries { complete: true, entries: entries.into_iter().collect() }
    }
}

impl<'a> SubjectEntries<'a> {
    /// Returns bytes that are equal for two devices exactly if the entries are.
    pub(super) fn signature(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 * self.entries.len());
        for (name, seen) in &self.entries {
            if self.complete {
                push_text(&mut bytes, name);
            }
            match seen {
                None => bytes.push(0),
                Some(SubjectValue::Text(text)) => push_tagged(&mut bytes, 1, text),
                Some(SubjectValue::Attribute(value)) => push_value(&mut bytes, value),
            }
        }
        bytes
    }

    /// Returns the entries as an expression sees them.
    ///
    /// # Errors
    /// If an attribute of type version is not a valid version.
    pub(super) fn to_map(&self) -> Result<Map<'a>, String> {
        let mut map = BTreeMap::new();
        for (name, seen) in &self.entries {
            let value = match seen {
                None => continue,
                Some(SubjectValue::Text(text)) => Value::String(Text::Borrowed(text)),
                Some(SubjectValue::Attribute(value)) => {
                    to_value(value).map_err(|problem| format!("attribute \"{name}\": {problem}"))?
                }
            };
            map.insert(Key::String(Text::Borrowed(name)), value);
        }
        Ok(Map::new(map))
    }
}

fn to_value(value: &AttributeValue) -> Result<Value<'_>, String> {
    Ok(match value {
        AttributeValue::String(text) => Value::String(Text::Borrowed(text)),
        AttributeValue::Int(number) => Value::Int(*number),
        AttributeValue::Bool(truth) => Value::Bool(*truth),
        AttributeValue::Quantity(amount) => Value::Quantity(Quantity::parse(&amount.to_string())?),
        AttributeValue::SemVer(text) => Value::Semver(Semver::parse(text)?.into()),
    })
}

fn push_value(bytes: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::String(text) => push_tagged(bytes, 1, text),
        AttributeValue::Int(number) => {
            bytes.push(2);
            bytes.extend(number.to_le_bytes());
        }
        AttributeValue::Quantity(amount) => {
            bytes.push(3);
            bytes.extend(amount.nanos().to_le_bytes());
        }
        AttributeValue::SemVer(text) => push_tagged(bytes, 4, text),
        AttributeValue::Bool(truth) => bytes.extend([5, u8::from(*truth)]),
    }
}

fn push_tagged(bytes: &mut Vec<u8>, tag: u8, text: &str) {
    bytes.push(tag);
    push_text(bytes, text);
}

/// Appends a string with its length first, so that consecutive strings are unambiguous.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.len().to_le_bytes());
    bytes.extend(text.as_bytes());
}
