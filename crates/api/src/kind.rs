//! Describes a kind apart from its fields: names, scope, columns, and how it is read.

use serde_json::{Map, Value, json};

use crate::alias::{self, Alias};
use crate::finding::Findings;
use crate::object::Object;
use gantry_yaml::node::Node;

/// Whether objects live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object per name in the cluster.
    Cluster,
    /// One object per name in a namespace.
    Namespaced,
}

impl Scope {
    /// The word a CustomResourceDefinition uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

/// One column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: &'static str,
    /// Where the value is, as a JSON path.
    pub path: &'static str,
    /// Zero is always shown, more only with `-o wide`.
    pub priority: i32,
}

impl Column {
    /// A column that is always shown.
    #[must_use]
    pub const fn new(name: &'static str, kind: &'static str, path: &'static str) -> Self {
        Self { name, kind, path, priority: 0 }
    }

    /// A column shown with `-o wide`.
    #[must_use]
    pub const fn wide(name: &'static str, kind: &'static str, path: &'static str) -> Self {
        Self { name, kind, path, priority: 1 }
    }

    /// The age of the object, as every built-in kind shows it.
    pub const AGE: Self = Self::new("Age", "date", ".metadata.creationTimestamp");
}

/// Which of the roles that every cluster has may write objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Safe for users that may edit a namespace: the kind's roles join `edit` and `view`.
    Tenant,
    /// Gives power beyond the namespace: an administrator binds the role by hand.
    Administrator,
}

/// Everything about a kind that is not a field of it.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The API group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind itself.
    pub kind: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub scope: Scope,
    /// Whether `status` is a subresource.
    pub status: bool,
    /// The columns of `kubectl get`; none means name and age.
    pub columns: &'static [Column],
    /// Which users may write such objects.
    pub trust: Trust,
    /// Whether field names and object names in files may differ in letter case, as the decoder of
    /// the original let them.
    pub any_case: bool,
    /// Old names of fields.
    pub aliases: &'static [Alias],
    /// The schema of the canonical form.
    pub canonical: fn() -> Value,
    /// Adds to the canonical schema what a server must accept besides [`Kind::aliases`].
    pub serve: fn(&mut Value),
    /// Rewrites to the canonical form what [`Kind::aliases`] cannot express.
    pub normalise: fn(&mut Node, &mut Findings),
    /// Turns a canonical value into the typed object.
    pub decode: fn(Value) -> Result<Object, serde_json::Error>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {}", self.group, self.version, self.kind)
    }
}

impl Kind {
    /// `group/version`, as objects carry it.
    #[must_use]
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The name of the CustomResourceDefinition.
    #[must_use]
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The kind in lower case: the singular name.
    #[must_use]
    pub fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// Returns the schema a server enforces: the canonical one plus every legacy spelling that is
    /// accepted.
    #[must_use]
    pub fn served_schema(&self) -> Value {
        let mut schema = (self.canonical)();
        alias::declare(self.aliases, &mut schema);
        (self.serve)(&mut schema);
        schema
    }

    /// The CustomResourceDefinition.
    #[must_use]
    pub fn crd(&self) -> Value {
        let mut metadata = json!({"name": self.crd_name()});
        // Groups below k8s.io are reserved; a server rejects them without an approval annotation.
        if self.group.ends_with(".k8s.io") {
            metadata["annotations"] = json!({
                "api-approved.kubernetes.io": "unapproved, kept for manifests written for the \
                                               original project",
            });
        }
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.singular(),
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": self.served_schema()},
        });
        if self.status {
            version["subresources"] = json!({"status": {}});
        }
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = self.columns.iter().map(column).collect();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": names,
                "scope": self.scope.as_str(),
                "versions": [version],
            },
        })
    }
}

fn column(column: &Column) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(column.name));
    fields.insert("type".to_owned(), json!(column.kind));
    fields.insert("jsonPath".to_owned(), json!(column.path));
    if column.priority > 0 {
        fields.insert("priority".to_owned(), json!(column.priority));
    }
    Value::Object(fields)
}
