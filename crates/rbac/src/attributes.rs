//! What is asked, and by whom.

/// The group that may do everything, whatever roles say.
const ADMINISTRATORS: &str = "system:masters";

/// Who asks, as far as roles care.
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
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create` and so on; for paths the method in lower case.
    pub verb: String,
    /// To what.
    pub what: What,
}

/// What something is to be done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A resource, an object or a part of one.
    Resource {
        /// The group; empty for the core group.
        group: String,
        /// The plural name.
        resource: String,
        /// The part of the object; empty for the whole.
        subresource: String,
        /// The namespace; empty for cluster scope or all namespaces.
        namespace: String,
        /// The object; empty when the request names none.
        name: String,
    },
    /// A path that is no resource.
    Path(String),
}

impl Attributes {
    /// A verb on a resource at cluster scope; the other methods say more.
    #[must_use]
    pub fn resource(verb: &str, group: &str, resource: &str) -> Self {
        let [subresource, namespace, name] = Default::default();
        Self {
            verb: verb.to_owned(),
            what: What::Resource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource,
                namespace,
                name,
            },
        }
    }

    /// A verb on a path that is no resource.
    #[must_use]
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), what: What::Path(path.to_owned()) }
    }

    /// The same, in a namespace.
    #[must_use]
    pub fn inside(mut self, in_namespace: &str) -> Self {
        if let What::Resource { namespace, .. } = &mut self.what {
            in_namespace.clone_into(namespace);
        }
        self
    }

    /// The same, on one object.
    #[must_use]
    pub fn named(mut self, object: &str) -> Self {
        if let What::Resource { name, .. } = &mut self.what {
            object.clone_into(name);
        }
        self
    }

    /// The same, on a part of an object.
    #[must_use]
    pub fn part(mut self, part: &str) -> Self {
        if let What::Resource { subresource, .. } = &mut self.what {
            part.clone_into(subresource);
        }
        self
    }

    /// The same with another verb.
    #[must_use]
    pub fn with_verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.verb);
        self
    }

    /// The namespace asked about; empty for none.
    pub(crate) fn namespace(&self) -> &str {
        match &self.what {
            What::Resource { namespace, .. } => namespace,
            What::Path(_) => "",
        }
    }

    /// What `user` is told who may not do this, without the reason: `User "bob" cannot …`.
    #[must_use]
    pub fn refusal(&self, user: &str) -> String {
        let quote = gantry_schema::quote;
        let (verb, user) = (&self.verb, quote(user));
        let words = match &self.what {
            What::Path(path) => format!("User {user} cannot {verb} path {}", quote(path)),
            What::Resource { group, resource, subresource, namespace, .. } => {
                let resource = combined(resource, subresource);
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
        // As Kubernetes does it: a browser may show the text as a page.
        words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

/// A resource and its part as rules name them.
pub(crate) fn combined(resource: &str, subresource: &str) -> String {
    match subresource {
        "" => resource.to_owned(),
        part => format!("{resource}/{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_was_asked() {
        let table = [
            (
                Attributes::resource("list", "", "pods").inside("a"),
                r#"User "bob" cannot list resource "pods" in API group "" in the namespace "a""#,
            ),
            (
                Attributes::resource("patch", "apps", "deployments").part("scale").named("x"),
                r#"User "bob" cannot patch resource "deployments/scale" in API group "apps" at the cluster scope"#,
            ),
            (Attributes::path("get", "/a<b>"), r#"User "bob" cannot get path "/a&lt;b&gt;""#),
        ];
        for (attributes, expected) in table {
            assert_eq!(attributes.refusal("bob"), expected);
        }
    }
}
