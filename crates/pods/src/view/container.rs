//! The environment of a container: variables, mounts, probes and hooks.

use gantry_api::quantity::Quantity;
use serde::Deserialize;

use super::NameReference;

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value, if it is given literally.
    pub value: String,
    /// The source of its value, if it is not given literally.
    pub value_from: Option<Box<EnvVarSource>>,
}

/// The source of a variable's value: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVarSource {
    /// A field of the pod.
    pub field_ref: Option<FieldRef>,
    /// A resource of a container.
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// A key of a ConfigMap.
    pub config_map_key_ref: Option<KeySelector>,
    /// A key of a Secret.
    pub secret_key_ref: Option<KeySelector>,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldRef {
    /// Its path, such as `metadata.name`.
    pub field_path: String,
}

/// A resource of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldRef {
    /// The container; empty for the one that has the variable.
    pub container_name: String,
    /// The resource, such as `limits.cpu`.
    pub resource: String,
    /// The unit it is counted in; absent or zero for one.
    pub divisor: Option<Quantity>,
}

/// A key of an object in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeySelector {
    /// The object.
    pub name: String,
    /// The key.
    pub key: String,
    /// Whether it may be missing.
    pub optional: bool,
}

/// An object all of whose keys become environment variables: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFrom {
    /// The prefix of the variables' names.
    pub prefix: String,
    /// A ConfigMap.
    pub config_map_ref: Option<ObjectRef>,
    /// A Secret.
    pub secret_ref: Option<ObjectRef>,
}

/// An object in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub optional: bool,
}

/// Where a volume is mounted in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The volume.
    pub name: String,
    /// The path in the container.
    pub mount_path: String,
    /// The path in the volume; empty for all of it.
    pub sub_path: String,
    /// The same with variables to expand.
    pub sub_path_expr: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
}

/// A port by number or by the name that a container gives to it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PortName {
    /// By number.
    Number(i32),
    /// By name.
    Name(String),
}

impl Default for PortName {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// A probe of a container's health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// The action of the probe.
    #[serde(flatten)]
    pub action: Handler,
    /// The delay after the container's start before the first probe, in seconds.
    pub initial_delay_seconds: Option<i32>,
    /// The interval between probes, in seconds; ten when absent.
    pub period_seconds: Option<i32>,
    /// The timeout of a probe, in seconds; one when absent.
    pub timeout_seconds: Option<i32>,
    /// After how many successes in a row the container counts as healthy; one when absent.
    pub success_threshold: Option<i32>,
    /// After how many failures in a row it counts as unhealthy; three when absent.
    pub failure_threshold: Option<i32>,
    /// The grace period when the container is stopped because the probe failed, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
}

/// The action of a probe or a hook: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handler {
    /// An HTTP GET request.
    pub http_get: Option<HttpGet>,
    /// A TCP connection.
    pub tcp_socket: Option<TcpSocket>,
    /// A command in the container.
    pub exec: Option<Exec>,
    /// A request to the gRPC health service.
    pub grpc: Option<Grpc>,
    /// A pause, for hooks.
    pub sleep: Option<Sleep>,
}

/// An HTTP GET request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGet {
    /// The path; `/` when empty.
    pub path: String,
    /// The port.
    pub port: PortName,
    /// The host; the pod's address when empty.
    pub host: String,
    /// `HTTP` or `HTTPS`.
    pub scheme: String,
    /// Additional headers.
    pub http_headers: Vec<HttpHeader>,
}

/// A header of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HttpHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    /// The port.
    pub port: PortName,
    /// The host; the pod's address when empty.
    pub host: String,
}

/// A command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// A request to the gRPC health service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Grpc {
    /// The port.
    pub port: i32,
    /// The service.
    pub service: String,
}

/// A pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Sleep {
    /// How long, in seconds.
    pub seconds: i64,
}

/// The hooks of a container after its start and before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Runs after its start.
    pub post_start: Option<Handler>,
    /// Runs before its end.
    pub pre_stop: Option<Handler>,
}

/// Where the termination message of a container is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TerminationMessagePolicy {
    /// From its file.
    #[default]
    File,
    /// From its file, or the end of its log if it failed and the file is empty.
    FallbackToLogsOnError,
}

/// A volume made of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolumeSource {
    /// The Secret.
    pub secret_name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyToPath>,
    /// The mode of files that specify none.
    pub default_mode: Option<i32>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A volume made of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolumeSource {
    /// The ConfigMap.
    pub name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyToPath>,
    /// The mode of files that specify none.
    pub default_mode: Option<i32>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A key, and the path of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyToPath {
    /// The key.
    pub key: String,
    /// The path in the volume.
    pub path: String,
    /// The mode of the file.
    pub mode: Option<i32>,
}

/// A volume made of fields of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolumeSource {
    /// Its files.
    pub items: Vec<DownwardApiVolumeFile>,
    /// The mode of files that specify none.
    pub default_mode: Option<i32>,
}

/// A file made of a field of the pod or a resource of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolumeFile {
    /// The path in the volume.
    pub path: String,
    /// A field of the pod.
    pub field_ref: Option<FieldRef>,
    /// A resource of a container.
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// The mode of the file.
    pub mode: Option<i32>,
}

/// A volume made of several sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedVolumeSource {
    /// The sources.
    pub sources: Vec<VolumeProjection>,
    /// The mode of files that specify none.
    pub default_mode: Option<i32>,
}

/// A source of a projected volume: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeProjection {
    /// A Secret.
    pub secret: Option<ProjectedObject>,
    /// A ConfigMap.
    pub config_map: Option<ProjectedObject>,
    /// Fields of the pod.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardApiVolumeSource>,
    /// A token of the pod's service account.
    pub service_account_token: Option<ServiceAccountTokenProjection>,
    /// Certificates of signers; not provided by simulated nodes.
    pub cluster_trust_bundle: Option<NameReference>,
}

/// A Secret or a ConfigMap in a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProjectedObject {
    /// The object.
    pub name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyToPath>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A file with a token of the pod's service account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountTokenProjection {
    /// The audience of the token; the API server when empty.
    pub audience: String,
    /// The lifetime of the token in seconds; an hour when absent.
    pub expiration_seconds: Option<i64>,
    /// The path in the volume.
    pub path: String,
}
