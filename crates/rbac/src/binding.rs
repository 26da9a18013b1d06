//! Bindings: which subjects hold which role.

use serde::Deserialize;
use serde_json::Value;

use crate::attributes::User;

/// A binding of a role to subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    /// The role.
    pub role_ref: RoleRef,
    /// The subjects that hold it.
    #[serde(deserialize_with = "subjects")]
    pub subjects: Vec<Subject>,
}

/// A role, as bindings name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// The group of the kind.
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// A subject that holds a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// The group of the kind.
    pub api_group: String,
    /// The name.
    pub name: String,
    /// The namespace of a service account.
    pub namespace: String,
}

/// A list that may be written as null.
fn subjects<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Subject>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Binding {
    /// Reads a stored binding. Bindings are validated when they are written; one that nevertheless
    /// cannot be read binds no subject.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// Returns the first subject of the binding, which is in `namespace`, that matches the user.
    pub(crate) fn subject(&self, user: User<'_>, namespace: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| match subject.key(namespace) {
            Some(SubjectKey::User(name)) => name == user.name,
            Some(SubjectKey::Group(name)) => user.groups.contains(&name),
            None => false,
        })
    }
}

/// The key under which a subject is indexed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SubjectKey {
    User(String),
    Group(String),
}

impl Subject {
    /// Returns the index key of the subject in a binding that is in `namespace`. A service account
    /// without a namespace is taken from the binding's namespace; in a ClusterRoleBinding it
    /// matches no account.
    pub(crate) fn key(&self, namespace: &str) -> Option<SubjectKey> {
        match self.kind.as_str() {
            "User" => Some(SubjectKey::User(self.name.clone())),
            "Group" => Some(SubjectKey::Group(self.name.clone())),
            "ServiceAccount" => match self.namespace_or(namespace) {
                "" => None,
                home => {
                    Some(SubjectKey::User(format!("system:serviceaccount:{home}:{}", self.name)))
                }
            },
            _ => None,
        }
    }

    fn namespace_or<'a>(&'a self, namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { namespace } else { &self.namespace }
    }

    /// Formats the subject for reasons, in a binding that is in `namespace`.
    pub(crate) fn describe(&self, namespace: &str) -> String {
        let name = match self.kind.as_str() {
            "ServiceAccount" => format!("{}/{}", self.name, self.namespace_or(namespace)),
            _ => self.name.clone(),
        };
        format!("{} {}", self.kind, gantry_schema::quote(&name))
    }
}
