//! The values that expressions compute with.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::key::{AsKey, Key};
use crate::library::named_formats::Format;
use crate::library::net::{Cidr, Ip};
use crate::library::quantity::Quantity;
use crate::library::semver::Semver;
use crate::library::time::Timestamp;
use crate::library::url::Url;
use crate::types::{ListKind, MapType, ObjectType, Type};
use crate::view::view;

/// A value, which may borrow the JSON tree it is seen in.
///
/// Copying one never copies a tree.
// The tag takes a whole word: with a tag of one byte what follows is moved byte for byte from an
// odd place, which costs an evaluation more than half of its time.
#[derive(Clone, Debug)]
#[repr(u64)]
pub enum Value<'v> {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// Text.
    String(Text<'v>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A point in time.
    Timestamp(Timestamp),
    /// A length of time in nanoseconds.
    Duration(i64),
    /// A list.
    List(List<'v>),
    /// A map or an object.
    Map(Map<'v>),
    /// A value that may be missing.
    Optional(Option<Arc<Self>>),
    /// A type, by name.
    Type(Arc<str>),
    /// An exact number with a unit, as in `1500Mi`.
    Quantity(Quantity),
    /// An internet address.
    Ip(Ip),
    /// A range of internet addresses.
    Cidr(Cidr),
    /// A reference to a resource.
    Url(Arc<Url>),
    /// A semantic version.
    Semver(Arc<Semver>),
    /// A named format of text.
    Format(&'static Format),
    /// A value that only the host understands.
    Host(Arc<dyn HostValue>),
}

/// A value that the host brings, for functions of the host.
pub trait HostValue: Any + Send + Sync + fmt::Debug {
    /// The name of its type, as declared with [`Type::Opaque`].
    fn type_name(&self) -> &str;
    /// The value itself, for a function of the host to downcast.
    fn as_any(&self) -> &dyn Any;
}

/// A map that the host shows without making one: entries become values when they are looked at.
pub trait HostMap: Send + Sync + fmt::Debug {
    /// The entry with this name; a host may have an answer for names that it does not list.
    ///
    /// # Errors
    /// When the entry is not what it says it is.
    fn get(&self, name: &str) -> Result<Option<Value<'_>>, EvalError>;
    /// Whether `in` finds a name.
    fn has(&self, name: &str) -> bool;
    /// The names that it lists, in order.
    fn names(&self) -> Vec<&str>;
}

/// Text that is borrowed or shared.
#[derive(Clone, Debug)]
pub enum Text<'v> {
    /// Text of a tree or of a program.
    Borrowed(&'v str),
    /// Text that was computed.
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// A list: a view of a tree, or computed.
#[derive(Clone, Debug)]
pub enum List<'v> {
    /// Elements of a tree.
    View {
        /// The elements.
        items: &'v [Json],
        /// What they are.
        element: &'v Type,
        /// How the list is compared and joined.
        kind: &'v ListKind,
    },
    /// Elements that were computed.
    Owned {
        /// The elements.
        items: Arc<Vec<Value<'v>>>,
        /// How the list is compared and joined.
        kind: &'v ListKind,
    },
}

impl<'v> List<'v> {
    /// A list of computed elements.
    #[must_use]
    pub fn new(items: Vec<Value<'v>>) -> Self {
        Self::Owned { items: Arc::new(items), kind: &ListKind::Atomic }
    }

    /// How many elements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::View { items, .. } => items.len(),
            Self::Owned { items, .. } => items.len(),
        }
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a place.
    ///
    /// # Errors
    /// When the element is not what its type says.
    pub fn get(&self, place: usize) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Self::View { items, element, .. } => {
                items.get(place).map(|item| view(item, element)).transpose()
            }
            Self::Owned { items, .. } => Ok(items.get(place).cloned()),
        }
    }

    /// Its elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'v>, EvalError>> + '_ {
        (0..self.len()).map(|place| Ok(self.get(place)?.unwrap_or(Value::Null)))
    }

    /// All elements, computed.
    pub(crate) fn to_vec(&self) -> Result<Vec<Value<'v>>, EvalError> {
        match self {
            Self::Owned { items, .. } => Ok(items.to_vec()),
            Self::View { .. } => self.iter().collect(),
        }
    }

    pub(crate) fn kind(&self) -> &'v ListKind {
        match self {
            Self::View { kind, .. } | Self::Owned { kind, .. } => kind,
        }
    }
}

/// A map: a view of a tree with or without known fields, or computed.
#[derive(Clone, Debug)]
pub enum Map<'v> {
    /// Entries of a tree whose keys are data.
    View {
        /// The entries.
        entries: &'v serde_json::Map<String, Json>,
        /// What the values are.
        value: &'v Type,
    },
    /// An object of a tree, of which only the declared fields can be seen.
    Object {
        /// The entries, declared or not.
        entries: &'v serde_json::Map<String, Json>,
        /// The declared fields.
        ty: &'v ObjectType,
    },
    /// Entries that were computed.
    Owned(Arc<BTreeMap<Key<'v>, Value<'v>>>),
    /// Entries of the host.
    Host(&'v dyn HostMap),
}

impl<'v> Map<'v> {
    /// A map of computed entries.
    #[must_use]
    pub fn new(entries: BTreeMap<Key<'v>, Value<'v>>) -> Self {
        Self::Owned(Arc::new(entries))
    }

    /// A map of computed entries with text for keys.
    #[must_use]
    pub fn of_text(entries: impl IntoIterator<Item = (&'v str, Value<'v>)>) -> Self {
        let keyed =
            entries.into_iter().map(|(name, value)| (Key::String(Text::Borrowed(name)), value));
        Self::new(keyed.collect())
    }

    /// How many entries can be seen.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::View { entries, .. } => entries.len(),
            Self::Object { entries, ty } => {
                ty.fields.values().filter(|field| entries.contains_key(&field.json)).count()
            }
            Self::Owned(entries) => entries.len(),
            Self::Host(entries) => entries.names().len(),
        }
    }

    /// Whether no entries can be seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry with this name.
    ///
    /// # Errors
    /// When the entry is not what its type says.
    pub fn get(&self, name: &str) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Self::View { entries, value } => {
                entries.get(name).map(|found| view(found, value)).transpose()
            }
            Self::Object { entries, ty } => {
                let Some(field) = ty.field(name) else { return Ok(None) };
                entries.get(&field.json).map(|found| view(found, &field.ty)).transpose()
            }
            Self::Owned(entries) => Ok(entries.get(&name as &dyn AsKey).cloned()),
            Self::Host(entries) => entries.get(name),
        }
    }

    /// Whether `in` finds a key.
    pub(crate) fn has(&self, key: &Key<'_>) -> Result<bool, EvalError> {
        match (self, key) {
            (Self::Host(entries), Key::String(name)) => Ok(entries.has(name)),
            (
                Self::View { .. } | Self::Object { .. } | Self::Owned(_) | Self::Host(_),
                Key::Bool(_) | Key::Int(_) | Key::Uint(_) | Key::String(_),
            ) => Ok(self.at(key)?.is_some()),
        }
    }

    /// The entry with this key.
    ///
    /// # Errors
    /// When the entry is not what its type says.
    pub fn at(&self, key: &Key<'_>) -> Result<Option<Value<'v>>, EvalError> {
        match (self, key) {
            (_, Key::String(name)) => self.get(name),
            (
                Self::View { .. } | Self::Object { .. } | Self::Host(_),
                Key::Bool(_) | Key::Int(_) | Key::Uint(_),
            ) => Ok(None),
            (Self::Owned(entries), Key::Bool(_) | Key::Int(_) | Key::Uint(_)) => {
                Ok(entries.get(key as &dyn AsKey).cloned())
            }
        }
    }

    /// The keys of all entries that can be seen, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key<'v>> {
        match self {
            Self::View { entries, .. } => {
                entries.keys().map(|name| Key::String(Text::Borrowed(name))).collect()
            }
            Self::Object { entries, ty } => ty
                .fields
                .iter()
                .filter(|(_, field)| entries.contains_key(&field.json))
                .map(|(name, _)| Key::String(Text::Borrowed(name)))
                .collect(),
            Self::Owned(entries) => entries.keys().cloned().collect(),
            Self::Host(entries) => {
                entries.names().into_iter().map(|name| Key::String(Text::Borrowed(name))).collect()
            }
        }
    }

    /// What messages call it.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Object { ty, .. } => &ty.name,
            Self::View { .. } | Self::Owned(_) | Self::Host(_) => "map",
        }
    }
}

impl<'v> Value<'v> {
    /// Text that was computed.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// A list of computed elements.
    #[must_use]
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    /// A value that is there.
    #[must_use]
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A value that is missing.
    #[must_use]
    pub fn none() -> Self {
        Self::Optional(None)
    }

    /// The name of its type, which is what `type(x)` answers.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(map) => map.type_name(),
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Host(host) => host.type_name(),
        }
    }

    /// The value as a key of a map, if it can be one.
    pub(crate) fn as_key(&self) -> Option<Key<'v>> {
        match self {
            Self::Bool(truth) => Some(Key::Bool(*truth)),
            Self::Int(number) => Some(Key::Int(*number)),
            Self::Uint(number) => Some(Key::Uint(*number)),
            Self::String(text) => Some(Key::String(text.clone())),
            // A whole number finds the entry of the integer it equals.
            Self::Double(number) => whole(*number).map(Key::Int),
            _ => None,
        }
    }

    /// How large it is where size decides cost: characters, bytes, entries, or one.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(inner)) => return inner.size(),
            Self::Ip(ip) => ip.size(),
            Self::Cidr(cidr) => cidr.size(),
            _ => 1,
        };
        u64::try_from(size).unwrap_or(u64::MAX)
    }
}

/// The integer that a floating point number is, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
pub(crate) fn whole(number: f64) -> Option<i64> {
    let fits = number.fract() == 0.0
        && (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&number);
    fits.then_some(number as i64)
}

/// The type of a map literal, for the places that need one.
pub(crate) fn map_type(key: Type, value: Type) -> Type {
    Type::Map(Arc::new(MapType { key, value, max_properties: None }))
}
