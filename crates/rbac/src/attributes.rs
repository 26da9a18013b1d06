//! Attributes of a request that are authorized: the user, the verb and the target.

/// The group that RBAC always allows everything, whatever roles say.
const MASTERS_GROUP: &str = "system:masters";

/// The user of a request, as far as RBAC needs it.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// The name.
    pub name: &'a str,
    /// The groups.
    pub groups: &'a [String],
}

impl User<'_> {
    /// Whether this user may do everything, whatever roles say.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS_GROUP)
    }
}

/// The verb and the target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create` and so on; for paths the method in lower case.
    pub verb: String,
    /// What the verb is applied to.
    pub target: AttributesTarget,
}

/// What a verb is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributesTarget {
    /// A resource, an object or a subresource.
    Resource {
        /// The group; empty for the core group.
        group: String,
        /// The plural name.
        resource: String,
        /// The subresource; empty for the object itself.
        subresource: String,
        /// The namespace; empty for cluster scope or all namespaces.
        namespace: String,
        /// The object; empty when the request names none.
        name: String,
    },
    /// A path that is not a resource.
    NonResourcePath(String),
}

impl Attributes {
    /// Makes attributes for a verb on a cluster-scoped resource; the other methods add the rest.
    #[must_use]
    pub fn resource(verb: &str, group: &str, resource: &str) -> Self {
        let [subresource, namespace, name] = Default::default();
        Self {
            verb: verb.to_owned(),
            target: AttributesTarget::Resource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource,
                namespace,
                name,
            },
        }
    }

    /// Makes attributes for a verb on a non-resource path.
    #[must_use]
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), target: AttributesTarget::NonResourcePath(path.to_owned()) }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(mut self, in_namespace: &str) -> Self {
        if let AttributesTarget::Resource { namespace, .. } = &mut self.target {
            in_namespace.clone_into(namespace);
        }
        self
    }

    /// Sets the name of the object.
    #[must_use]
    pub fn with_name(mut self, object: &str) -> Self {
        if let AttributesTarget::Resource { name, .. } = &mut self.target {
            object.clone_into(name);
        }
        self
    }

    /// Sets the subresource.
    #[must_use]
    pub fn with_subresource(mut self, part: &str) -> Self {
        if let AttributesTarget::Resource { subresource, .. } = &mut self.target {
            part.clone_into(subresource);
        }
        self
    }

    /// Replaces the verb.
    #[must_use]
    pub fn with_verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.verb);
        self
    }

    /// Returns the namespace of the request; empty for none.
    pub(crate) fn namespace(&self) -> &str {
        match &self.target {
            AttributesTarget::Resource { namespace, .. } => namespace,
            AttributesTarget::NonResourcePath(_) => "",
        }
    }

    /// Returns the message for a `user` that is refused, without the reason: `User "bob" cannot …`.
    #[must_use]
    pub fn forbidden_message(&self, user: &str) -> String {
        let quote = gantry_schema::quote;
        let (verb, user) = (&self.verb, quote(user));
        let words = match &self.target {
            AttributesTarget::NonResourcePath(path) => {
                format!("User {user} cannot {verb} path {}", quote(path))
            }
            AttributesTarget::Resource { group, resource, subresource, namespace, .. } => {
                let resource = resource_with_subresource(resource, subresource);
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", quote(namespace)),
                };
                let (resource, group) = (quote(&resource), quote(group));
                format!(
                    "User {user} cannot {verb} resource {resource} in API group {group} {place}"
                )
            }
        };
        // The same escaping as in Kubernetes: a browser may show the text as a page.
        words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

/// A resource and its subresource as rules name them.
pub(crate) fn resource_with_subresource(resource: &str, subresource: &str) -> String {
    match subresource {
        "" => resource.to_owned(),
        part => format!("{resource}/{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_messages_name_the_request() {
        let table = [
            (
                Attributes::resource("list", "", "pods").in_namespace("a"),
                r#"User "bob" cannot list resource "pods" in API group "" in the namespace "a""#,
            ),
            (
                Attributes::resource("patch", "apps", "deployments")
                    .with_subresource("scale")
                    .with_name("x"),
                r#"User "bob" cannot patch resource "deployments/scale" in API group "apps" at the cluster scope"#,
            ),
            (Attributes::path("get", "/a<b>"), r#"User "bob" cannot get path "/a&lt;b&gt;""#),
        ];
        for (attributes, expected) in table {
            assert_eq!(attributes.forbidden_message("bob"), expected);
        }
    }
}
