//! What an expression sees of a device.

use std::collections::BTreeMap;

use gantry_api::devices::{Attribute, AttributeValue};
use gantry_cel::{Key, Map, Quantity, Text, Value, Version};

/// A device, or a pool that only counts its devices, as a constraint sees it.
///
/// An attribute of the device hides one of the pool with the same name, and both hide the reserved
/// entries `driver`, `pool`, `name` and `deviceType`. What is not known is not there: the devices of
/// a pool that only counts them have no name.
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

/// The reserved entries by which devices differ that are otherwise the same.
pub(super) const IDENTITY: [&str; 2] = ["pool", "name"];

/// An entry of `device`.
#[derive(Clone, Copy, Debug)]
enum Seen<'a> {
    Text(&'a str),
    Attribute(&'a AttributeValue),
}

/// The entries of `device` that can matter to one expression.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    /// Whether the entries are all there are, or those with known names in a known order.
    whole: bool,
    entries: Vec<(&'a str, Option<Seen<'a>>)>,
}

impl<'a> Subject<'a> {
    fn entry(&self, name: &str) -> Option<Seen<'a>> {
        let attributes = self.device_attributes.iter().chain(self.pool_attributes);
        let attribute = attributes.into_iter().find(|attribute| attribute.name == name);
        attribute.map(|attribute| Seen::Attribute(&attribute.value)).or_else(|| {
            let (_, text) = self.reserved().into_iter().find(|(reserved, _)| *reserved == name)?;
            text.map(Seen::Text)
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

    /// The entries with these names.
    pub(super) fn named(&self, names: &'a [String]) -> Entries<'a> {
        let entries = names.iter().map(|name| (name.as_str(), self.entry(name))).collect();
        Entries { whole: false, entries }
    }

    /// All entries, by name.
    pub(super) fn all(&self) -> Entries<'a> {
        let reserved = self.reserved().into_iter().map(|(name, text)| (name, text.map(Seen::Text)));
        let attributes = self.pool_attributes.iter().chain(self.device_attributes);
        let attributes = attributes
            .map(|attribute| (attribute.name.as_str(), Some(Seen::Attribute(&attribute.value))));
        // Later ones hide earlier ones.
        let entries: BTreeMap<_, _> = reserved.chain(attributes).collect();
        Entries { whole: true, entries: entries.into_iter().collect() }
    }
}

impl<'a> Entries<'a> {
    /// Bytes that are the same for two devices exactly if the entries are.
    pub(super) fn signature(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 * self.entries.len());
        for (name, seen) in &self.entries {
            if self.whole {
                push_text(&mut bytes, name);
            }
            match seen {
                None => bytes.push(0),
                Some(Seen::Text(text)) => push_tagged(&mut bytes, 1, text),
                Some(Seen::Attribute(value)) => push_value(&mut bytes, value),
            }
        }
        bytes
    }

    /// The entries as an expression sees them.
    ///
    /// # Errors
    /// If an attribute is not the version it says it is.
    pub(super) fn to_map(&self) -> Result<Map<'a>, String> {
        let mut map = BTreeMap::new();
        for (name, seen) in &self.entries {
            let value = match seen {
                None => continue,
                Some(Seen::Text(text)) => Value::String(Text::Borrowed(text)),
                Some(Seen::Attribute(value)) => {
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
        AttributeValue::SemVer(text) => Value::Semver(Version::parse(text)?.into()),
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

/// The length goes first, so that two texts in a row have one reading.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.len().to_le_bytes());
    bytes.extend(text.as_bytes());
}
