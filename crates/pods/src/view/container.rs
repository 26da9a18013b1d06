//! What a container says about its surroundings: variables, mounts, probes and hooks.

use gantry_api::quantity::Quantity;
use serde::Deserialize;

use super::Named;

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, when it is written out.
    pub value: String,
    /// Where its value is read, when it is not written out.
    pub value_from: Option<Box<VariableSource>>,
}

/// Where the value of a variable is read: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VariableSource {
    /// A field of the pod.
    pub field_ref: Option<FieldRef>,
    /// A resource of a container.
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// A key of a ConfigMap.
    pub config_map_key_ref: Option<KeyRef>,
    /// A key of a Secret.
    pub secret_key_ref: Option<KeyRef>,
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
    /// The container; empty for the one that asks.
    pub container_name: String,
    /// Which one, such as `limits.cpu`.
    pub resource: String,
    /// The unit it is counted in; absent or zero for one.
    pub divisor: Option<Quantity>,
}

/// A key of an object in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    /// The object.
    pub name: String,
    /// The key.
    pub key: String,
    /// Whether it may be missing.
    pub optional: bool,
}

/// An object all of whose keys become variables: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFrom {
    /// What the names of the variables begin with.
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

/// Where a container finds a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The volume.
    pub name: String,
    /// The path in the container.
    pub mount_path: String,
    /// The path in the volume; empty for all of it.
    pub sub_path: String,
    /// The same with variables.
    pub sub_path_expr: String,
    /// Whether the container may not write.
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

/// How a container is asked whether it is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// What is asked.
    #[serde(flatten)]
    pub action: Action,
    /// How long after its start it is asked first, in seconds.
    pub initial_delay_seconds: Option<i32>,
    /// How often, in seconds; ten when absent.
    pub period_seconds: Option<i32>,
    /// How long an answer may take, in seconds; one when absent.
    pub timeout_seconds: Option<i32>,
    /// After how many good answers in a row it is well; one when absent.
    pub success_threshold: Option<i32>,
    /// After how many bad answers in a row it is not; three when absent.
    pub failure_threshold: Option<i32>,
    /// How long it may take to end when it is not well, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
}

/// What a probe asks or a hook does: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    /// A GET request.
    pub http_get: Option<HttpGet>,
    /// A connection.
    pub tcp_socket: Option<TcpSocket>,
    /// A command in the container.
    pub exec: Option<Exec>,
    /// A request of the health service of gRPC.
    pub grpc: Option<Grpc>,
    /// A pause, for hooks.
    pub sleep: Option<Sleep>,
}

/// A GET request.
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
    /// More headers.
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

/// A connection.
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

/// A request of the health service of gRPC.
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

/// What is done when a container starts, and before it stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// After its start.
    pub post_start: Option<Action>,
    /// Before its end.
    pub pre_stop: Option<Action>,
}

/// Where the last words of a container are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TerminationMessagePolicy {
    /// In its file.
    #[default]
    File,
    /// In its file, or else at the end of its log if it failed.
    FallbackToLogsOnError,
}

/// What volumes are made of, as far as nodes make them of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    /// The Secret.
    pub secret_name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyPath>,
    /// The mode of files that say none.
    pub default_mode: Option<i32>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A volume made of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolume {
    /// The ConfigMap.
    pub name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyPath>,
    /// The mode of files that say none.
    pub default_mode: Option<i32>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A key, and the path of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyPath {
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
pub struct DownwardVolume {
    /// Its files.
    pub items: Vec<DownwardFile>,
    /// The mode of files that say none.
    pub default_mode: Option<i32>,
}

/// A file made of a field of the pod or a resource of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardFile {
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
pub struct ProjectedVolume {
    /// The sources.
    pub sources: Vec<Projection>,
    /// The mode of files that say none.
    pub default_mode: Option<i32>,
}

/// A source of a projected volume: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projection {
    /// A Secret.
    pub secret: Option<ProjectedObject>,
    /// A ConfigMap.
    pub config_map: Option<ProjectedObject>,
    /// Fields of the pod.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardVolume>,
    /// A token of the pod's account.
    pub service_account_token: Option<TokenFile>,
    /// Certificates of signers; not provided by simulated nodes.
    pub cluster_trust_bundle: Option<Named>,
}

/// A Secret or a ConfigMap in a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProjectedObject {
    /// The object.
    pub name: String,
    /// Which keys, and under which paths; all of them when empty.
    pub items: Vec<KeyPath>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A file with a token of the pod's account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenFile {
    /// For whom it is meant; the API server when empty.
    pub audience: String,
    /// For how long it is good, in seconds; an hour when absent.
    pub expiration_seconds: Option<i64>,
    /// The path in the volume.
    pub path: String,
}
