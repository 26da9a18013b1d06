//! Type, metadata and name checks that all kinds share.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The `apiVersion` of objects of type `T`. It has one value, so a typed object cannot claim
/// another.
pub struct ApiVersion<T>(PhantomData<fn() -> T>);

/// The `kind` of objects of type `T`. It has one value, so a typed object cannot claim another.
pub struct KindName<T>(PhantomData<fn() -> T>);

macro_rules! constant_text {
    ($name:ident, $constant:ident) => {
        impl<T> Default for $name<T> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
        impl<T> PartialEq for $name<T> {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }
        impl<T: k8s_openapi::Resource> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::$constant)
            }
        }
        impl<T: k8s_openapi::Resource> Serialize for $name<T> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(T::$constant)
            }
        }
        impl<'de, T: k8s_openapi::Resource> Deserialize<'de> for $name<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == T::$constant {
                    Ok(Self(PhantomData))
                } else {
                    Err(D::Error::custom(format!("\"{text}\" is not \"{}\"", T::$constant)))
                }
            }
        }
        impl<T> JsonSchema for $name<T> {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string"})
            }
        }
    };
}

constant_text!(ApiVersion, API_VERSION);
constant_text!(KindName, KIND);

/// Returns why a name is invalid, with the message of kube-apiserver.
#[must_use]
pub fn dns_label_problem(name: &str) -> Option<&'static str> {
    let ok = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!ok).then_some(
        "must be a DNS label: at most 63 lower case letters, digits and `-`, starting and ending \
         with a letter or digit",
    )
}

/// Returns why a dotted name is invalid, with the message of kube-apiserver.
#[must_use]
pub fn dns_subdomain_problem(name: &str) -> Option<&'static str> {
    let ok = name.len() <= 253 && name.split('.').all(|part| dns_label_problem(part).is_none());
    (!ok).then_some(
        "must be a DNS subdomain: at most 253 lower case letters, digits, `-` and `.`, each part \
         starting and ending with a letter or digit",
    )
}

/// Returns why a text is not a valid label value.
#[must_use]
pub fn label_value_problem(text: &str) -> Option<&'static str> {
    let edge = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    let ok = text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && edge(text.bytes().next())
        && edge(text.bytes().last());
    (!ok).then_some(
        "must be a label value: at most 63 letters, digits, `-`, `_` and `.`, starting and ending \
         with a letter or digit",
    )
}

/// Returns why a text is not a valid label key.
#[must_use]
pub fn label_key_problem(text: &str) -> Option<&'static str> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(p, n)| (Some(p), n));
    let ok = !name.is_empty()
        && label_value_problem(name).is_none()
        && prefix
            .is_none_or(|prefix| !prefix.is_empty() && dns_subdomain_problem(prefix).is_none());
    (!ok).then_some(
        "must be a label key: a name of at most 63 letters, digits, `-`, `_` and `.`, optionally \
         after a DNS prefix and `/`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_servers_do() {
        type NameCheck = fn(&str) -> Option<&'static str>;
        let table: [(NameCheck, &[&str], &[&str]); 4] = [
            (dns_label_problem, &["a", "a-1", "0"], &["", "A", "-a", "a-", "a.b", "a_b"]),
            (dns_subdomain_problem, &["a.b", "example.com"], &["a..b", ".a", "sriov-1Gbps", ""]),
            (label_value_problem, &["", "A.b_c-1"], &["-a", "a-", "a b", "a/b"]),
            (
                label_key_problem,
                &["a", "example.com/a_B", "A.b"],
                &["", "/a", "a/", "EX/a", "a/b/c"],
            ),
        ];
        for (judge, good, bad) in table {
            for name in good {
                assert_eq!(judge(name), None, "{name}");
            }
            for name in bad {
                assert!(judge(name).is_some(), "{name}");
            }
        }
        assert!(dns_label_problem(&"a".repeat(64)).is_some());
        assert!(label_value_problem(&"a".repeat(64)).is_some());
    }
}
