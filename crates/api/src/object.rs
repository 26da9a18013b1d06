//! All kinds together: the registry, and one type for an object of any of them.

use serde_json::Value;

use crate::finding::Findings;
use crate::kind::Kind;
use crate::meta::ObjectMeta;

/// Declares the root type of a kind with its apiVersion, kind and metadata, and the traits that
/// clients ask for.
macro_rules! object {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )*
        }
        group: $group:literal,
        version: $version:literal,
        plural: $plural:literal,
        scope: $scope:ident,
        $( $detail:ident: $value:expr, )*
    ) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize,
            schemars::JsonSchema,
        )]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The group and version of this object's schema: how servers and clients read it.
            pub api_version: $crate::meta::ApiVersion<Self>,
            /// The kind of this object. It cannot be changed.
            pub kind: $crate::meta::KindName<Self>,
            /// Name, namespace, labels and the rest of what every object has.
            #[schemars(schema_with = "crate::kubernetes::metadata")]
            pub metadata: $crate::meta::ObjectMeta,
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $name {
            /// Everything about the kind that is not a field.
            #[allow(clippy::needless_update, reason = "some kinds have every peculiarity")]
            pub const KIND: $crate::kind::Kind = $crate::kind::Kind {
                group: $group,
                version: $version,
                kind: stringify!($name),
                plural: $plural,
                scope: $crate::kind::Scope::$scope,
                canonical: || $crate::object::root_schema::<Self>(),
                decode: |value| {
                    serde_json::from_value(value)
                        .map(|object| $crate::object::Object::$name(Box::new(object)))
                },
                $( $detail: $value, )*
                ..$crate::object::PLAIN
            };
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $crate::object::scope::$scope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = $crate::meta::ObjectMeta;
            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl k8s_openapi::ListableResource for $name {
            const LIST_KIND: &'static str = concat!(stringify!($name), "List");
        }
    };
}
pub(crate) use object;

/// Scopes under the names that [`crate::kind::Scope`] uses.
pub(crate) mod scope {
    pub(crate) use k8s_openapi::ClusterResourceScope as Cluster;
    pub(crate) use k8s_openapi::NamespaceResourceScope as Namespaced;
}

/// A kind with default settings, for the parts a declaration leaves out.
pub(crate) const PLAIN: Kind = Kind {
    group: "",
    version: "",
    kind: "",
    plural: "",
    short_names: &[],
    scope: crate::kind::Scope::Namespaced,
    status: false,
    columns: &[],
    trust: crate::kind::Trust::Administrator,
    any_case: false,
    aliases: &[],
    canonical: || Value::Null,
    serve: |_| {},
    normalise: |_, _| {},
    decode: |_| unreachable_decode(),
};

fn unreachable_decode() -> Result<Object, serde_json::Error> {
    Err(<serde_json::Error as serde::de::Error>::custom("this kind has no decoder"))
}

/// Returns the canonical schema of a root type. Servers add apiVersion, kind and metadata
/// themselves.
pub(crate) fn root_schema<T: schemars::JsonSchema>() -> Value {
    let mut schema = crate::schema::of::<T>();
    // A server rejects a schema with anything about metadata, even a description.
    schema["properties"]["metadata"] = serde_json::json!({"type": "object"});
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !matches!(name.as_str(), Some("apiVersion" | "kind" | "metadata")));
        if required.is_empty()
            && let Some(fields) = schema.as_object_mut()
        {
            fields.shift_remove("required");
        }
    }
    schema
}

/// Lists the root types once: for the registry, the union and every look-up.
macro_rules! kinds {
    ($( $name:ident: $type:path, )*) => {
        /// Every kind Gantry serves, by group and then by name.
        pub const KINDS: &[Kind] = &[$( <$type>::KIND ),*];

        /// An object of any of the kinds.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $(
                #[doc = concat!("A ", stringify!($name), ".")]
                $name(Box<$type>),
            )*
        }

        impl Object {
            /// Returns the object's kind.
            #[must_use]
            pub fn kind(&self) -> &'static Kind {
                match self { $( Self::$name(_) => const { &<$type>::KIND }, )* }
            }

            /// Name, namespace, labels and the rest.
            #[must_use]
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $( Self::$name(object) => &object.metadata, )* }
            }

            /// The object as a value, in canonical form.
            ///
            /// # Errors
            /// Never for objects made of plain fields; raw content may hold what JSON cannot.
            pub fn to_value(&self) -> Result<Value, serde_json::Error> {
                match self { $( Self::$name(object) => serde_json::to_value(object), )* }
            }

            /// Checks the rules that span several fields.
            pub fn validate(&self, findings: &mut Findings) {
                match self { $( Self::$name(object) => object.validate(findings), )* }
            }
        }
    };
}

kinds! {
    DeviceClaim: crate::devices::DeviceClaim,
    DeviceClaimTemplate: crate::devices::DeviceClaimTemplate,
    DeviceClass: crate::devices::DeviceClass,
    DeviceDriver: crate::devices::DeviceDriver,
    DevicePool: crate::devices::DevicePool,
    DevicePrivilegedClaim: crate::devices::DevicePrivilegedClaim,
    PodDevices: crate::devices::PodDevices,
    InferenceServerConfig: crate::models::InferenceServerConfig,
    LauncherConfig: crate::models::LauncherConfig,
    LauncherPopulationPolicy: crate::models::LauncherPopulationPolicy,
    ManagedClusterModule: crate::kernel_modules::ManagedClusterModule,
    Module: crate::kernel_modules::Module,
    Preflight: crate::kernel_modules::Preflight,
    QuotaSubtree: crate::queue::QuotaSubtree,
    AppWrapper: crate::queue::AppWrapper,
    SchedulingSpec: crate::queue::SchedulingSpec,
}

/// The kind with this apiVersion and name.
#[must_use]
pub fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.kind == kind && known.api_version() == api_version)
}

/// The API groups, in the order of [`KINDS`].
#[must_use]
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = KINDS.iter().map(|kind| kind.group).collect();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    #[test]
    fn every_schema_compiles() {
        for kind in KINDS {
            for schema in [(kind.canonical)(), kind.served_schema()] {
                Schema::compile(&schema).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            }
        }
    }

    /// The rules a server applies before it calls a schema structural (apiserver specification,
    /// 4.2).
    #[test]
    fn every_schema_is_structural() {
        fn visit(schema: &Value, at: &str, inside_any_of: bool) {
            let fields = schema.as_object().unwrap_or_else(|| panic!("{at}: {schema}"));
            let open = fields.contains_key("x-kubernetes-preserve-unknown-fields")
                || fields.contains_key("x-kubernetes-int-or-string");
            assert!(
                inside_any_of || open || fields.contains_key("type"),
                "{at}: no type in {schema}"
            );
            assert!(
                !(fields.contains_key("properties") && fields.contains_key("additionalProperties")),
                "{at}: properties exclude additionalProperties"
            );
            for forbidden in [
                "$ref",
                "$defs",
                "definitions",
                "allOf",
                "oneOf",
                "not",
                "const",
                "title",
                "patternProperties",
            ] {
                assert!(!fields.contains_key(forbidden), "{at}: {forbidden}");
            }
            if fields.get("type") == Some(&"array".into()) {
                assert!(fields.contains_key("items"), "{at}: array without items");
            }
            for (name, part) in
                fields.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                visit(part, &format!("{at}.{name}"), false);
            }
            for name in ["items", "additionalProperties"] {
                if let Some(part) = fields.get(name) {
                    visit(part, &format!("{at}[]"), false);
                }
            }
        }
        for kind in KINDS {
            visit(&kind.served_schema(), kind.kind, false);
        }
    }

    #[test]
    fn metadata_is_left_to_the_server() {
        for kind in KINDS {
            let metadata = &kind.served_schema()["properties"]["metadata"];
            assert_eq!(metadata, &serde_json::json!({"type": "object"}), "{kind:?}");
        }
    }

    #[test]
    fn every_field_we_declare_is_explained() {
        fn visit(schema: &Value, at: &str, bare: &mut Vec<String>) {
            for (name, part) in
                schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                let at = format!("{at}.{name}");
                if part.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
                    bare.push(at.clone());
                }
                visit(part, &at, bare);
                visit(&part["items"], &format!("{at}[]"), bare);
                visit(&part["additionalProperties"], &format!("{at}[]"), bare);
            }
        }
        let mut bare = Vec::new();
        for kind in KINDS {
            visit(&kind.served_schema(), kind.kind, &mut bare);
        }
        bare.retain(|path| !path.ends_with(".metadata"));
        assert_eq!(bare, Vec::<String>::new(), "fields without a description");
    }
}
