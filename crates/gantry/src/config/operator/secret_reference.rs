//! A Secret that the configuration refers to.

use serde::de::{Deserialize, Deserializer};

/// A Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Reads a reference; one without a name or a namespace refers to nothing.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretReference>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Both {
        name: Option<String>,
        namespace: Option<String>,
    }
    let Both { name, namespace } = Both::deserialize(deserializer)?;
    Ok(name.zip(namespace).map(|(name, namespace)| SecretReference { namespace, name }))
}
