//! Names and descriptions of the columns of each table. The texts are those of kube-apiserver.

pub(super) mod access;
pub(super) mod cluster;
pub(super) mod devices;
pub(super) mod network;
pub(super) mod storage;
pub(super) mod workloads;

use std::borrow::Cow;

use serde_json::{Value, json};

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: Cow<'static, str>,
    /// The type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    ///
    /// Clients take it as a hint: many integer columns of the built-in kinds say `string`.
    pub kind: Cow<'static, str>,
    /// The format within the type; `name` marks the column that identifies the row.
    pub format: Cow<'static, str>,
    /// The description, in a sentence or more.
    pub description: Cow<'static, str>,
    /// 0 is always shown; anything above only in wide output, as in `kubectl -o wide`.
    pub priority: i64,
}

impl Column {
    /// Returns the entry of `columnDefinitions` as it goes over the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// The columns of a kind without a printer.
pub(super) const DEFAULT: &[Column] = &[NAME, column("Created At", "date", "", AGE_TEXT, 0)];

/// The column that every table of objects has.
pub(super) const NAME: Column = named("Name", NAME_TEXT);
const NAME_WIDE: Column = column("Name", "string", "name", NAME_TEXT, 1);
const AGE: Column = text("Age", AGE_TEXT);
/// The column that a custom kind gets when its definition declares none.
pub(super) const CUSTOM_AGE: Column = column("Age", "date", "", AGE_TEXT, 0);

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating \
                         resources, although some resources may allow a client to request the \
                         generation of an appropriate name automatically. Name is primarily \
                         intended for creation idempotence and configuration definition. Cannot be \
                         updated. More info: \
                         https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this \
                        object was created. It is not guaranteed to be set in happens-before order \
                        across separate operations. Clients may not set this value. It is \
                        represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
                        Read-only. Null for lists. More info: \
                        https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const fn text(name: &'static str, description: &'static str) -> Column {
    column(name, "string", "", description, 0)
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    column(name, "string", "", description, 1)
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", "", description, 0)
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", "", description, 0)
}

const fn named(name: &'static str, description: &'static str) -> Column {
    column(name, "string", "name", description, 0)
}

const fn column(
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i64,
) -> Column {
    Column {
        name: Cow::Borrowed(name),
        kind: Cow::Borrowed(kind),
        format: Cow::Borrowed(format),
        description: Cow::Borrowed(description),
        priority,
    }
}
