//! The containers of a Module: the fields of a Kubernetes container without those that Gantry sets.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as kubernetes_core;
use k8s_openapi::api::core::v1::{
    ContainerPort, ContainerResizePolicy, ContainerRestartRule, EnvFromSource, EnvVar, Lifecycle,
    Probe, ResourceRequirements, SecurityContext, VolumeDevice, VolumeMount,
};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kubernetes;

/// The container that speaks the kubelet's device plugin interface, or that prepares it. Its name
/// is set by Gantry, and it is always privileged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PluginContainer {
    /// The image to run; required. It is the same for every kernel, so only `${MOD_NAME}` and
    /// `${MOD_NAMESPACE}` are replaced in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The rest of the container, as in any pod.
    #[serde(flatten)]
    pub fields: ContainerFields,
}

/// A directory of the host that Gantry always mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// Name of the volume.
    pub volume: &'static str,
    /// The directory, at the same place in the container as on the host.
    pub path: &'static str,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// The host directories of the driver container: the modules that come with the kernel, so that
/// others may depend on them (MOD-6).
pub const DRIVER_MOUNTS: [HostMount; 2] = [
    HostMount { volume: "node-lib-modules", path: "/lib/modules", read_only: true },
    HostMount { volume: "node-usr-lib-modules", path: "/usr/lib/modules", read_only: true },
];

/// The host directories of the device plugin: the directory of the kubelet's sockets (MOD-9).
pub const DEVICE_PLUGIN_MOUNTS: [HostMount; 1] = [HostMount {
    volume: "kubelet-device-plugins",
    path: "/var/lib/kubelet/device-plugins",
    read_only: false,
}];

/// Lists the fields once, for the type and for the way back to a whole container.
macro_rules! container_fields {
    ($( #[doc = $doc:literal] $field:ident: $type:ty, )*) => {
        /// Every field of a core/v1 Container except `name` and `image`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct ContainerFields {
            $(
                #[doc = $doc]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }

        impl ContainerFields {
            /// Returns the container that a pod runs, under this name and with this image.
            #[must_use]
            pub fn container(&self, name: &str, image: &str) -> kubernetes_core::Container {
                // Spelled out, so that a field of a later Kubernetes is not forgotten.
                kubernetes_core::Container {
                    name: name.to_owned(),
                    image: Some(image.to_owned()),
                    $( $field: self.$field.clone(), )*
                }
            }
        }
    };
}

container_fields! {
    /// Arguments of the command.
    args: Vec<String>,
    /// The command, instead of the one the image names.
    command: Vec<String>,
    /// Environment variables.
    env: Vec<EnvVar>,
    /// Objects whose entries become environment variables.
    env_from: Vec<EnvFromSource>,
    /// When the kubelet pulls the image.
    image_pull_policy: String,
    /// What runs after the start and before the end.
    lifecycle: Lifecycle,
    /// Tells when to restart the container.
    liveness_probe: Probe,
    /// Ports the container listens on.
    ports: Vec<ContainerPort>,
    /// Tells when the container is ready.
    readiness_probe: Probe,
    /// What happens to the container when its resources change.
    resize_policy: Vec<ContainerResizePolicy>,
    /// What the container asks for and is limited to.
    resources: ResourceRequirements,
    /// Whether the container is restarted on its own.
    restart_policy: String,
    /// Exit codes that decide about a restart.
    restart_policy_rules: Vec<ContainerRestartRule>,
    /// Privileges.
    security_context: SecurityContext,
    /// Tells when the container has started.
    startup_probe: Probe,
    /// Whether standard input is kept open.
    stdin: bool,
    /// Whether standard input is closed after the first session.
    stdin_once: bool,
    /// The file with the last words of the container.
    termination_message_path: String,
    /// Where the last words are taken from.
    termination_message_policy: String,
    /// Whether the container has a terminal.
    tty: bool,
    /// Block devices.
    volume_devices: Vec<VolumeDevice>,
    /// Where volumes are mounted.
    volume_mounts: Vec<VolumeMount>,
    /// The directory the command starts in.
    working_dir: String,
}

impl JsonSchema for ContainerFields {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ContainerFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        let mut schema = kubernetes::schema("Container");
        if let Some(fields) = schema.as_object_mut() {
            fields.shift_remove("description");
            fields.shift_remove("required");
        }
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.shift_remove("name");
            properties.shift_remove("image");
        }
        schemars::Schema::try_from(schema).expect("the schemas of Kubernetes are objects")
    }
}

/// Returns the shortest spelling of an absolute path, without file system access.
pub(super) fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Whether a clean path is inside a clean directory.
pub(super) fn is_below(path: &str, directory: &str) -> bool {
    directory == "/"
        || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// `container` proves that the type has every field; this, that the schema has no other.
    #[test]
    fn the_schema_has_the_fields_of_the_type() {
        let schema = crate::schema::of::<ContainerFields>();
        let names: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names.len(), 23);
        assert!(!names.contains("name") && !names.contains("image"));
        assert_eq!(schema.get("required"), None);
    }

    #[test]
    fn a_container_is_put_back_together() {
        let whole = json!({
            "name": "device-plugin", "image": "a:1", "command": ["sleep"],
            "resources": {"limits": {"cpu": "1"}}, "volumeMounts": [{"name": "x", "mountPath": "/x"}],
        });
        let fields: ContainerFields = serde_json::from_value(whole.clone()).unwrap();
        let container = fields.container("device-plugin", "a:1");
        assert_eq!(serde_json::to_value(container).unwrap(), whole);
    }

    #[test]
    fn paths_are_compared_part_by_part() {
        let table = [
            ("/opt/lib", "/opt", true),
            ("/opt", "/opt", false),
            ("/optional", "/opt", false),
            ("/opt", "/", true),
        ];
        for (path, directory, expected) in table {
            assert_eq!(is_below(path, directory), expected, "{path} below {directory}");
        }
        for (path, clean) in [("/a/", "/a"), ("//a/./b/../c", "/a/c"), ("/..", "/"), ("", "/")] {
            assert_eq!(clean_path(path), clean, "{path}");
        }
    }
}
