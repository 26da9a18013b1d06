//! How a Module refers to other objects and to registries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object in the namespace of the Module, by name. There is no way to name another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

impl LocalReference {
    /// The object called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// How far a registry is trusted. By default it must show a valid certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tls {
    /// Whether plain HTTP is tried when the registry does not speak HTTPS. False by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Whether any certificate is accepted over HTTPS. False by default.
    #[serde(rename = "insecureSkipTLSVerify", default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_tls_verify: bool,
}
