//! Validation errors, in the words of an API server.

use std::fmt;

use serde_json::Value;

/// One thing that is wrong with one field. Clients read the reason, people read the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as in `spec.containers[0].image`.
    pub field: String,
    /// What sort of fault it is.
    pub reason: FieldErrorReason,
    /// The fault without the field, as in `Invalid value: 3: must be even`.
    pub message: String,
}

/// The kinds of errors that clients tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldErrorReason {
    /// A field that must be there is not.
    Required,
    /// A value that breaks a rule.
    Invalid,
    /// A value of another type.
    TypeInvalid,
    /// A value outside a closed set.
    NotSupported,
    /// A value that may occur once and occurs again.
    Duplicate,
    /// A value that may not be set here, now, or by this caller.
    Forbidden,
    /// Text beyond its limit.
    TooLong,
    /// A list or map beyond its limit.
    TooMany,
    /// A reference to what does not exist.
    NotFound,
    /// The check itself failed.
    Internal,
}

impl FieldErrorReason {
    /// The word in `details.causes[].reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }
}

impl FieldError {
    /// A field that must be there is not; `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, FieldErrorReason::Required, with_detail("Required value", detail))
    }

    /// A value that breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            FieldErrorReason::Invalid,
            with_detail(&format!("Invalid value: {value}"), detail),
        )
    }

    /// A value of another type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = with_detail(&format!("Invalid value: {value}"), detail);
        Self::new(field, FieldErrorReason::TypeInvalid, message)
    }

    /// A value outside a closed set, which is listed as given.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let mut message = format!("Unsupported value: {value}");
        for (place, word) in supported.iter().enumerate() {
            message.push_str(if place == 0 { ": supported values: " } else { ", " });
            message.push_str(&Value::from(*word).to_string());
        }
        Self::new(field, FieldErrorReason::NotSupported, message)
    }

    /// A value that may occur once and occurs again.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, FieldErrorReason::Duplicate, format!("Duplicate value: {value}"))
    }

    /// A value that may not be set.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, FieldErrorReason::Forbidden, with_detail("Forbidden", detail))
    }

    /// Text beyond `most` bytes.
    pub fn too_long(field: impl Into<String>, most: usize) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {most} {unit}");
        Self::new(field, FieldErrorReason::TooLong, message)
    }

    /// A list or map with `count` entries where `most` are allowed.
    pub fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {most} {unit}");
        Self::new(field, FieldErrorReason::TooMany, message)
    }

    /// A reference to what does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, FieldErrorReason::NotFound, format!("Not found: {value}"))
    }

    /// The check itself failed.
    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, FieldErrorReason::Internal, format!("Internal error: {detail}"))
    }

    /// A fault whose message is already worded.
    pub fn new(field: impl Into<String>, reason: FieldErrorReason, message: String) -> Self {
        Self { field: field.into(), reason, message }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}
