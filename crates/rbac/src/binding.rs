//! Bindings: who holds which role.

use serde::Deserialize;
use serde_json::Value;

use crate::attributes::User;

/// A binding of a role to some subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    /// The role.
    pub role_ref: RoleRef,
    /// Who holds it.
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

/// Somebody who holds a role.
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
    /// Reads a stored binding. What is stored was checked when it was written; what can nevertheless
    /// not be read binds nobody.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// The first subject of the binding, which is in `namespace`, that is this user.
    pub(crate) fn subject(&self, user: User<'_>, namespace: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| match subject.key(namespace) {
            Some(Key::User(name)) => name == user.name,
            Some(Key::Group(name)) => user.groups.contains(&name),
            None => false,
        })
    }
}

/// By what a subject is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    User(String),
    Group(String),
}

impl Subject {
    /// By what the subject is found in a binding that is in `namespace`; an account without a
    /// namespace is one of the binding's, and in a binding of the cluster nobody.
    pub(crate) fn key(&self, namespace: &str) -> Option<Key> {
        match self.kind.as_str() {
            "User" => Some(Key::User(self.name.clone())),
            "Group" => Some(Key::Group(self.name.clone())),
            "ServiceAccount" => match self.home(namespace) {
                "" => None,
                home => Some(Key::User(format!("system:serviceaccount:{home}:{}", self.name))),
            },
            _ => None,
        }
    }

    fn home<'a>(&'a self, namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { namespace } else { &self.namespace }
    }

    /// As reasons show it, in a binding that is in `namespace`.
    pub(crate) fn shown(&self, namespace: &str) -> String {
        let name = match self.kind.as_str() {
            "ServiceAccount" => format!("{}/{}", self.name, self.home(namespace)),
            _ => self.name.clone(),
        };
        format!("{} {}", self.kind, gantry_schema::quote(&name))
    }
}
