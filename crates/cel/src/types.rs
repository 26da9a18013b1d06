//! The types of values, as far as they are known before evaluation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The type of a value, as far as it is known before evaluation.
///
/// Types of JSON trees also say how large a value may be, because the cost of an expression is
/// bounded before it runs; a size that is not declared is derived from the largest request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Anything: whatever is done with it is decided when it is evaluated.
    Dyn,
    /// `null` and nothing else.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating point number of 64 bits.
    Double,
    /// Text.
    String {
        /// The most characters it may have.
        max_length: Option<u64>,
    },
    /// Bytes, which are base64 text in JSON.
    Bytes {
        /// The most characters the text may have.
        max_length: Option<u64>,
    },
    /// A point in time, which is RFC 3339 text in JSON.
    Timestamp,
    /// A day, which is text like `2006-01-02` in JSON and its first instant to an expression.
    Date,
    /// A length of time, which is text like `1h30m` in JSON.
    Duration,
    /// A number or text: known only when it is evaluated.
    IntOrString {
        /// The most characters it may have as text.
        max_length: Option<u64>,
    },
    /// A list.
    List(Arc<ListType>),
    /// A map whose keys are data.
    Map(Arc<MapType>),
    /// A map whose keys are known.
    Object(Arc<ObjectType>),
    /// A value that may be missing.
    Optional(Arc<Type>),
    /// A value of the library or of the host, by name, as in `kubernetes.Quantity`.
    Opaque(Arc<str>),
    /// A type itself, as in `type(x) == int`.
    Kind,
}

/// The type of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListType {
    /// What its elements are.
    pub element: Type,
    /// How two lists are compared and joined.
    pub kind: ListKind,
    /// The most elements it may have.
    pub max_items: Option<u64>,
}

/// How two lists are compared and joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Element by element; `+` appends.
    #[default]
    Atomic,
    /// Without regard to order; `+` appends what is new.
    Set,
    /// By the values of these fields, JSON names; `+` replaces in place what has the same keys and
    /// appends the rest.
    Map(Vec<String>),
}

/// The type of a map whose keys are data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapType {
    /// What its keys are: always text where the map is JSON.
    pub key: Type,
    /// What its values are.
    pub value: Type,
    /// The most entries it may have.
    pub max_properties: Option<u64>,
}

/// The type of a map whose keys are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectType {
    /// What messages call it.
    pub name: Arc<str>,
    /// Its fields by the name that expressions use, see [`escape`].
    pub fields: BTreeMap<String, Field>,
}

impl ObjectType {
    /// The field that an expression calls `name`: by its escaped name, or by a word that the
    /// grammar keeps for itself and takes as the name of a field all the same.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(name).or_else(|| {
            RESERVED_WORDS
                .contains(&name)
                .then(|| self.fields.get(&format!("__{name}__")))
                .flatten()
        })
    }
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in JSON.
    pub json: String,
    /// What it is.
    pub ty: Type,
    /// Whether it is always written out, which makes the object's shortest form longer: a required
    /// field without a default.
    pub required: bool,
}

impl Type {
    /// Text without a declared limit.
    #[must_use]
    pub fn string() -> Self {
        Self::String { max_length: None }
    }

    /// Bytes without a declared limit.
    #[must_use]
    pub fn bytes() -> Self {
        Self::Bytes { max_length: None }
    }

    /// An atomic list without a declared limit.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(ListType { element, kind: ListKind::Atomic, max_items: None }))
    }

    /// A map from text without a declared limit.
    #[must_use]
    pub fn map(value: Self) -> Self {
        Self::Map(Arc::new(MapType { key: Self::string(), value, max_properties: None }))
    }

    /// An object with fields given by their JSON names, none of them required.
    ///
    /// Fields whose names cannot be escaped are left out: no expression can reach them.
    #[must_use]
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Self)>) -> Self {
        let fields = fields
            .into_iter()
            .filter_map(|(json, ty)| Some((escape(&json)?, Field { json, ty, required: false })))
            .collect();
        Self::Object(Arc::new(ObjectType { name: name.into(), fields }))
    }

    /// A value that may be missing.
    #[must_use]
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// A value of the library or of the host.
    #[must_use]
    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    /// Whether nothing can be said before evaluation.
    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::IntOrString { .. })
    }

    /// Whether null may stand for a value of this type. A server decides by type alone: that a
    /// field is declared nullable changes nothing.
    pub(crate) fn may_be_null(&self) -> bool {
        match self {
            Self::Dyn
            | Self::IntOrString { .. }
            | Self::Null
            | Self::Timestamp
            | Self::Date
            | Self::Duration
            | Self::Object(_)
            | Self::Optional(_)
            | Self::Opaque(_) => true,
            Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::String { .. }
            | Self::Bytes { .. }
            | Self::List(_)
            | Self::Map(_)
            | Self::Kind => false,
        }
    }

    /// The most characters or entries a value can have, given that it came in one request.
    ///
    /// The sizes are those of a real server, because they decide which rules it accepts.
    pub(crate) fn max_size(&self) -> Option<u64> {
        match self {
            // A character takes up to four bytes, and a size counts bytes.
            Self::String { max_length } | Self::IntOrString { max_length } => {
                Some(max_length.map_or(MAX_REQUEST_BYTES - 2, |most| most.saturating_mul(4)))
            }
            Self::Bytes { max_length } => Some(max_length.unwrap_or(MAX_REQUEST_BYTES - 2)),
            Self::List(list) => {
                let smallest = list.element.min_serialized();
                Some(list.max_items.unwrap_or((MAX_REQUEST_BYTES - 2) / (smallest + 1)))
            }
            Self::Map(map) => {
                // Two quotes, a colon, a comma and a key of at least two characters.
                let smallest = map.value.min_serialized();
                Some(map.max_properties.unwrap_or((MAX_REQUEST_BYTES - 2) / (smallest + 6)))
            }
            Self::Optional(inner) => inner.max_size(),
            Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::Null
            | Self::Timestamp
            | Self::Date
            | Self::Duration
            | Self::Kind => Some(1),
            Self::Dyn | Self::Object(_) | Self::Opaque(_) => None,
        }
    }

    /// The fewest bytes a value can take as JSON, which bounds how many of them a request can have.
    #[must_use]
    pub fn min_serialized(&self) -> u64 {
        match self {
            Self::Bool | Self::Null => 4,
            Self::Timestamp => 21,
            Self::Date => 12,
            Self::Duration => 3,
            Self::String { .. } | Self::Bytes { .. } | Self::List(_) | Self::Map(_) => 2,
            Self::Object(object) => {
                object.fields.values().filter(|field| field.required).fold(2, |sum, field| {
                    let name = u64::try_from(field.json.len()).unwrap_or(u64::MAX);
                    sum.saturating_add(name).saturating_add(field.ty.min_serialized() + 4)
                })
            }
            Self::Optional(inner) => inner.min_serialized(),
            Self::Dyn
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::IntOrString { .. }
            | Self::Opaque(_)
            | Self::Kind => 1,
        }
    }
}

/// The largest request a server takes, 3 MiB: no value is larger.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::IntOrString { .. } => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String { .. } => f.write_str("string"),
            Self::Bytes { .. } => f.write_str("bytes"),
            Self::Timestamp | Self::Date => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(list) => write!(f, "list({})", list.element),
            Self::Map(map) => write!(f, "map({}, {})", map.key, map.value),
            Self::Object(object) => f.write_str(&object.name),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Opaque(name) => f.write_str(name),
            Self::Kind => f.write_str("type(dyn)"),
        }
    }
}

/// The name an expression uses for the field `name`, or nothing if no expression can reach it.
///
/// ```
/// assert_eq!(gantry_cel::escape("nodePort").as_deref(), Some("nodePort"));
/// assert_eq!(gantry_cel::escape("node-port/a.b").as_deref(),
/// Some("node__dash__port__slash__a__dot__b"));
/// assert_eq!(gantry_cel::escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(gantry_cel::escape("__x").as_deref(), Some("__underscores__x"));
/// assert_eq!(gantry_cel::escape("1st"), None);
/// ```
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    if name.bytes().next()?.is_ascii_digit() {
        return None;
    }
    if RESERVED_WORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                escaped.push_str("__underscores__");
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => escaped.push(letter),
            _ => return None,
        }
    }
    Some(escaped)
}

/// Words that the grammar keeps for itself.
const RESERVED_WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The field whose name is written `escaped` in an expression, the inverse of [`escape`].
///
/// Names that are not escapes stand for themselves.
#[must_use]
pub fn unescape(escaped: &str) -> String {
    if let Some(word) = escaped.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && RESERVED_WORDS.contains(&word)
    {
        return word.to_owned();
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    'next: while let Some(letter) = rest.chars().next() {
        for (code, plain) in
            [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")]
        {
            if let Some(tail) = rest.strip_prefix(code) {
                name.push_str(plain);
                rest = tail;
                continue 'next;
            }
        }
        name.push(letter);
        rest = &rest[letter.len_utf8()..];
    }
    name
}
