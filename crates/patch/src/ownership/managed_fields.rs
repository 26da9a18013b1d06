//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value};

use crate::golang;
use crate::set::{FieldSet, FieldsError};

/// One entry: the fields that one manager owns by one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// Who owns the fields.
    pub manager: String,
    /// How it came to own them.
    pub operation: Operation,
    /// The version in which the fields are named.
    pub api_version: String,
    /// When it last changed something, in UTC by the second.
    pub time: Option<String>,
    /// The part of the object it wrote to, or nothing for the object itself.
    pub subresource: String,
    /// The fields.
    pub fields: FieldSet,
}

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    /// The word in an entry.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Identifies an entry. A manager that applies keeps its entry from version to version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ManagerIdentifier<'a> {
    pub(super) manager: &'a str,
    pub(super) operation: Operation,
    pub(super) api_version: &'a str,
    pub(super) subresource: &'a str,
}

/// Why entries cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// `managedFields` is not a list of objects of text.
    #[error("managed fields entry {0} is not an object of text")]
    Shape(usize),
    /// The operation is neither of the two.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// There is no version.
    #[error("apiVersion must not be empty")]
    Version,
    /// The sort of fields is not said.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The sort of fields is not known.
    #[error("invalid fieldsType {} in managed fields entry {place}", golang::quoted(.sort))]
    FieldsType {
        /// Which entry.
        place: usize,
        /// The sort.
        sort: String,
    },
    /// The fields cannot be read.
    #[error("error decoding set of managed fields entry {place}")]
    Fields {
        /// Which entry.
        place: usize,
        /// Why.
        source: FieldsError,
    },
}

/// Whether the entries of an object can be read. Admission must leave them so.
///
/// # Errors
/// If one cannot.
pub fn check_managed_fields(object: &Value) -> Result<(), ManagedFieldsError> {
    ManagedFieldsEntry::read_all(&object["metadata"]["managedFields"]).map(|_| ())
}

/// Whether what a client sent asks to forget all ownership: no entries, or a single empty one.
pub(super) fn is_reset(entries: &Value) -> bool {
    let Value::Array(entries) = entries else { return false };
    match entries.as_slice() {
        [] | [Value::Null] => true,
        [Value::Object(only)] => only.values().all(|value| value.is_null() || value == ""),
        _ => false,
    }
}

/// Whether two lists of entries differ in their times at most.
pub(super) fn equal_ignoring_times(old: &Value, new: &Value) -> bool {
    let (Value::Array(old), Value::Array(new)) = (old, new) else { return old == new };
    let timeless = |entry: &Value| {
        let entries = entry.as_object().into_iter().flatten();
        entries.filter(|(name, _)| *name != "time").count()
    };
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| {
            timeless(old) == timeless(new)
                && old.as_object().into_iter().flatten().all(|(name, value)| {
                    name == "time" || new.get(name).is_some_and(|other| value == other)
                })
        })
}

impl ManagedFieldsEntry {
    /// Reads the entries of an object.
    ///
    /// # Errors
    /// If any of them cannot be read.
    pub fn read_all(entries: &Value) -> Result<Vec<Self>, ManagedFieldsError> {
        let entries = match entries {
            Value::Null => return Ok(Vec::new()),
            Value::Array(entries) => entries,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                return Err(ManagedFieldsError::Shape(0));
            }
        };
        let mut read: Vec<Self> = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            let entry = Self::read(place, entry)?;
            match read.iter_mut().find(|known| known.identity() == entry.identity()) {
                Some(known) => *known = entry,
                None => read.push(entry),
            }
        }
        Ok(read)
    }

    fn read(place: usize, entry: &Value) -> Result<Self, ManagedFieldsError> {
        let Value::Object(entry) = entry else { return Err(ManagedFieldsError::Shape(place)) };
        let text = |name: &str| match entry.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(ManagedFieldsError::Shape(place))
            }
        };
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let api_version = text("apiVersion")?;
        if api_version.is_empty() {
            return Err(ManagedFieldsError::Version);
        }
        match text("fieldsType")? {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType(place)),
            sort => return Err(ManagedFieldsError::FieldsType { place, sort: sort.to_owned() }),
        }
        let time = match text("time")? {
            "" => None,
            time => Some(truncate_to_seconds(time).ok_or(ManagedFieldsError::Shape(place))?),
        };
        let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
        let fields = FieldSet::from_fields(fields)
            .map_err(|source| ManagedFieldsError::Fields { place, source })?;
        Ok(Self {
            manager: text("manager")?.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            time,
            subresource: text("subresource")?.to_owned(),
            fields,
        })
    }

    /// Writes entries in their order: applied ones first, then the oldest. No entries are none.
    #[must_use]
    pub fn write_all(mut entries: Vec<Self>) -> Option<Value> {
        if entries.is_empty() {
            return None;
        }
        entries.sort_by(|one, other| one.order().cmp(&other.order()));
        Some(entries.into_iter().map(Self::write).collect())
    }

    fn order(&self) -> impl Ord + '_ {
        (
            self.operation,
            self.time.as_deref(),
            self.manager.as_str(),
            self.api_version.as_str(),
            self.subresource.as_str(),
        )
    }

    fn write(self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
        if !self.manager.is_empty() {
            put("manager", self.manager.into());
        }
        put("operation", self.operation.as_str().into());
        put("apiVersion", self.api_version.into());
        if let Some(time) = self.time {
            put("time", time.into());
        }
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", self.fields.to_fields());
        if !self.subresource.is_empty() {
            put("subresource", self.subresource.into());
        }
        Value::Object(entry)
    }

    pub(super) fn identity(&self) -> ManagerIdentifier<'_> {
        ManagerIdentifier {
            manager: &self.manager,
            operation: self.operation,
            api_version: match self.operation {
                Operation::Apply => "",
                Operation::Update => &self.api_version,
            },
            subresource: &self.subresource,
        }
    }
}

impl ManagerIdentifier<'_> {
    /// The identity as JSON text. Managers are sorted by it in messages and when old entries are
    /// merged, so the text decides the order.
    pub(super) fn text(&self) -> String {
        let mut text = "{".to_owned();
        let members = [
            ("manager", self.manager),
            ("operation", self.operation.as_str()),
            ("apiVersion", self.api_version),
            ("subresource", self.subresource),
        ];
        for (name, value) in members {
            if !value.is_empty() {
                if text.len() > 1 {
                    text.push(',');
                }
                golang::write_json_string(&mut text, name);
                text.push(':');
                golang::write_json_string(&mut text, value);
            }
        }
        text.push('}');
        text
    }
}

/// A time in UTC by the second, in which form times sort as text.
fn truncate_to_seconds(time: &str) -> Option<String> {
    let canonical = time.len() == 20
        && time.bytes().zip(*b"0000-00-00T00:00:00Z").all(|(letter, form)| match form {
            b'0' => letter.is_ascii_digit(),
            _ => letter == form,
        });
    if canonical {
        return Some(time.to_owned());
    }
    let time: jiff::Timestamp = time.parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
