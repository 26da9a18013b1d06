//! What a server is asked about authors, in the terms of access reviews.

use std::fmt;

use gantry_reconcile::Resource;
use serde::{Deserialize, Serialize};

use crate::app_wrapper::{Item, TypeName};
use crate::privilege::Privilege;
use crate::settings::UserAccess;

/// What an author must be allowed to do so that an item may be created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredPermission {
    /// To create objects of its kind.
    Create(TypeName),
    /// The privilege that the item requires beside that.
    Privilege(Privilege),
}

impl RequiredPermission {
    /// Returns all permissions that an item requires. Where it is created as its author, the server
    /// itself checks privileges, and knows more of them than a review can express.
    pub(super) fn of(item: &Item, access: UserAccess) -> impl Iterator<Item = Self> {
        let privilege = match access {
            UserAccess::Unchecked | UserAccess::OnBehalf => None,
            UserAccess::Reviewed => item.privilege.clone(),
        };
        // No object is created from an item that is none.
        item.name.clone().map(Self::Create).into_iter().chain(privilege.map(Self::Privilege))
    }
}

impl fmt::Display for RequiredPermission {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(TypeName { api_version, kind }) => {
                write!(to, "create {kind} of {api_version}")
            }
            Self::Privilege(privilege) => ResourceAttributes::of(privilege).fmt(to),
        }
    }
}

/// What an access review asks about, in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceAttributes {
    /// The verb, such as `create`.
    pub verb: String,
    /// The group; empty for the core.
    pub group: String,
    /// The version; empty for any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The subresource; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The name of the object; empty for any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl ResourceAttributes {
    /// Returns the attributes for creating objects of a kind.
    #[must_use]
    pub fn create(resource: &Resource) -> Self {
        Self {
            verb: "create".to_owned(),
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.plural.to_string(),
            ..Self::default()
        }
    }

    /// Returns the attributes for a privilege.
    #[must_use]
    pub fn of(privilege: &Privilege) -> Self {
        let [verb, group, resource, subresource, name] = privilege.attributes().map(str::to_owned);
        Self { verb, group, version: String::new(), resource, subresource, name }
    }
}

/// Formats it as API servers refuse it: `create resource "jobs" in API group "batch"`.
impl fmt::Display for ResourceAttributes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, version: _, resource, subresource, name } = self;
        write!(to, "{verb} resource \"{resource}")?;
        if !subresource.is_empty() {
            write!(to, "/{subresource}")?;
        }
        to.write_str("\"")?;
        if !name.is_empty() {
            write!(to, " named \"{name}\"")?;
        }
        write!(to, " in API group \"{group}\"")
    }
}
