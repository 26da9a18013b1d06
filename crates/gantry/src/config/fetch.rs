//! Fetches the configuration from the source that [`source`] chooses.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gantry_api::meta::dns_label_problem;
use gantry_process::clock::Clock;
use http::Uri;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::source::{
    self, ConfigFile, ConfigMapState, KeysError, NextStep, SourceState, TextSource, WRITTEN_KEY,
};
use super::value_type::ParsedValue;
use super::values::{ConfigMessage, ConfigReport, Layer, Origin};
use super::{keys, render};
use crate::operator::cluster::{CallError, ConnectError, RequestDescription, call, connect};

/// The maximum size of a configuration: a ConfigMap cannot hold more.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The maximum number of steps until the source is chosen. Each source is read once, and once more
/// whenever another process creates it first.
const MAX_SOURCE_STEPS: usize = 12;
/// The file in a pod that has its namespace.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A configuration text and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedConfig {
    /// The whole text.
    pub text: String,
    /// Its name in messages.
    pub source: String,
    /// How the text was obtained.
    pub outcome: FetchOutcome,
}

/// How a configuration text was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// It existed.
    Existing,
    /// It existed, under the name of the operator that Gantry replaces.
    Legacy,
    /// It did not exist, and was created.
    Created,
    /// It does not exist, and would be created if this were not a dry run.
    WouldCreate,
}

/// Whether a missing ConfigMap is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// It is created.
    Create,
    /// It is not created: this is a dry run.
    ReadOnly,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The file exists and cannot be read.
    #[error("could not read configuration file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        error: io::Error,
    },
    /// The ConfigMap does not have exactly one key.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The operator's namespace is unknown.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// No API server is configured.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A request to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The defaults cannot be rendered.
    #[error(transparent)]
    Defaults(#[from] gantry_yaml::WriteError),
    /// The ConfigMap is created and deleted repeatedly by another client.
    #[error(
        "could not determine the configuration: ConfigMap {name} is created and deleted \
         repeatedly; restart the operator"
    )]
    Unstable {
        /// The ConfigMap.
        name: String,
    },
}

/// Reads and creates the ConfigMaps of one namespace.
pub(crate) trait ConfigMapStore {
    /// Returns the name of a ConfigMap in messages.
    fn display_name(&self, name: &str) -> String;
    /// Reads a ConfigMap.
    async fn get(&self, name: &str) -> Result<ConfigMapState, FetchError>;
    /// Creates a ConfigMap with this text; returns false if it already exists.
    async fn create(&self, name: &str, text: &str) -> Result<bool, FetchError>;
}

/// Follows the steps of [`source::next_step`] until there is a text.
pub(crate) async fn fetch(
    file: ConfigFile,
    name: &str,
    writes: WritePolicy,
    maps: &impl ConfigMapStore,
) -> Result<FetchedConfig, FetchError> {
    let mut seen =
        SourceState { file, name, named: ConfigMapState::NotRead, legacy: ConfigMapState::NotRead };
    for _ in 0..MAX_SOURCE_STEPS {
        match source::next_step(&seen)? {
            NextStep::Use { source, text } => {
                let (source, how) = match source {
                    TextSource::File(path) => (path.display().to_string(), FetchOutcome::Existing),
                    TextSource::Named { name, key } => {
                        (format!("{}, {key}", maps.display_name(name)), FetchOutcome::Existing)
                    }
                    TextSource::Legacy { key } => (
                        format!("{}, {key}", maps.display_name(source::LEGACY)),
                        FetchOutcome::Legacy,
                    ),
                };
                return Ok(FetchedConfig { text: text.to_owned(), source, outcome: how });
            }
            NextStep::Read(which) if which == name => seen.named = maps.get(name).await?,
            NextStep::Read(which) => seen.legacy = maps.get(which).await?,
            NextStep::Create(name) => {
                let text = render::defaults()?;
                let source = format!("{}, {WRITTEN_KEY}", maps.display_name(name));
                if writes == WritePolicy::ReadOnly {
                    return Ok(FetchedConfig { text, source, outcome: FetchOutcome::WouldCreate });
                }
                if maps.create(name, &text).await? {
                    return Ok(FetchedConfig { text, source, outcome: FetchOutcome::Created });
                }
                // The process that created it decided its content.
                seen.named = ConfigMapState::NotRead;
            }
        }
    }
    Err(FetchError::Unstable { name: name.to_owned() })
}

/// Reads the file of `--config-file`, if it exists.
///
/// # Errors
/// The file exists and cannot be read, or is too large for a configuration.
pub fn read_file(path: Option<&Path>) -> Result<ConfigFile, FetchError> {
    let Some(path) = path else { return Ok(ConfigFile::NotConfigured) };
    let failed = |error| FetchError::File { path: path.to_owned(), error };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ConfigFile::Absent),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(failed(io::Error::other("it is larger than a megabyte")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(io::Error::other("it is not UTF-8")))?;
    Ok(ConfigFile::Text { path: path.to_owned(), text })
}

/// Returns the operator's own namespace: the given one, else the one of its pod.
///
/// # Errors
/// No namespace is given, or it is not a valid namespace name.
pub fn namespace(
    said: Option<&str>,
    account: impl FnOnce() -> io::Result<String>,
) -> Result<String, NamespaceError> {
    let name = match said.filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => match account() {
            Ok(name) => name.trim().to_owned(),
            Err(error) => return Err(NamespaceError::Unknown { why: error.to_string() }),
        },
    };
    match dns_label_problem(&name) {
        Some(problem) => Err(NamespaceError::Invalid { name, problem }),
        None => Ok(name),
    }
}

/// Why the operator's namespace is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// No namespace is given.
    #[error(
        "cannot determine the operator's namespace: set NAMESPACE or use --namespace; in a pod it \
         would be in {NAMESPACE_FILE}: {why}"
    )]
    Unknown {
        /// The error of reading the file in the pod.
        why: String,
    },
    /// The name is not valid.
    #[error("cannot use {name:?} as the operator's namespace: {problem}")]
    Invalid {
        /// The given name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A client for one namespace of a cluster, which connects when it is first needed.
pub(crate) struct NamespaceClient<'a> {
    kubeconfig: &'a str,
    server: Option<&'a Uri>,
    clock: &'a Clock,
    namespace: Result<String, NamespaceError>,
    client: OnceCell<kube::Client>,
}

impl<'a> NamespaceClient<'a> {
    pub(crate) fn new(
        kubeconfig: &'a str,
        server: Option<&'a Uri>,
        clock: &'a Clock,
        namespace: Result<String, NamespaceError>,
    ) -> Self {
        Self { kubeconfig, server, clock, namespace, client: OnceCell::new() }
    }

    async fn connect(&self) -> Result<(kube::Client, &str), FetchError> {
        let namespace = self.namespace.as_ref().map_err(Clone::clone)?;
        let client = self.client.get_or_try_init(|| connect(self.kubeconfig, self.server)).await?;
        Ok((client.clone(), namespace))
    }

    /// Returns whether a Secret exists. Its content is not read.
    async fn has_secret(&self, name: &str) -> Result<bool, FetchError> {
        let (client, namespace) = self.connect().await?;
        let api = Api::<Secret>::namespaced(client, namespace);
        let asked = || describe_request("get", "secrets", name, namespace);
        Ok(call(self.clock, asked, api.get_metadata_opt(name)).await?.is_some())
    }

    fn namespace_text(&self) -> &str {
        self.namespace.as_ref().map_or("?", String::as_str)
    }
}

impl ConfigMapStore for NamespaceClient<'_> {
    fn display_name(&self, name: &str) -> String {
        format!("ConfigMap {}/{name}", self.namespace_text())
    }

    async fn get(&self, name: &str) -> Result<ConfigMapState, FetchError> {
        let (client, namespace) = self.connect().await?;
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let asked = || describe_request("get", "configmaps", name, namespace);
        Ok(match call(self.clock, asked, api.get_opt(name)).await? {
            None => ConfigMapState::Absent,
            Some(ConfigMap { data, binary_data, .. }) => ConfigMapState::Present {
                data: data.unwrap_or_default().into_iter().collect(),
                binary: binary_data.unwrap_or_default().into_keys().collect(),
            },
        })
    }

    async fn create(&self, name: &str, text: &str) -> Result<bool, FetchError> {
        let (client, namespace) = self.connect().await?;
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let labels = BTreeMap::from([("app.kubernetes.io/part-of".into(), "gantry".into())]);
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        let data = Some(BTreeMap::from([(WRITTEN_KEY.to_owned(), text.to_owned())]));
        let object = ConfigMap { metadata, data, ..ConfigMap::default() };
        let manager = Some("gantry-operator".to_owned());
        let parameters = PostParams { field_manager: manager, ..PostParams::default() };
        let work = async {
            match api.create(&parameters, &object).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
                Err(error) => Err(error),
            }
        };
        Ok(call(self.clock, || describe_request("create", "configmaps", name, namespace), work)
            .await?)
    }
}

fn describe_request(
    verb: &'static str,
    resource: &'static str,
    name: &str,
    namespace: &str,
) -> RequestDescription {
    RequestDescription {
        verb,
        resource,
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
    }
}

/// The ConfigMap of a standalone InstaScale.
const INSTASCALE: &str = "instascale-config";
/// The Secret of a standalone InstaScale.
const INSTASCALE_SECRET: &str = "instascale-ocm-secret";

/// Returns the settings of a standalone InstaScale's ConfigMap, as keys.
pub(crate) async fn instascale(
    cluster: &NamespaceClient<'_>,
) -> Result<(Layer, ConfigReport), FetchError> {
    let map = cluster.get(INSTASCALE).await?;
    Ok(translate_instascale(&map, &cluster.display_name(INSTASCALE)))
}

/// Returns the reference to the Secret of a standalone InstaScale, if it exists.
pub(crate) async fn instascale_secret(cluster: &NamespaceClient<'_>) -> Result<Layer, FetchError> {
    let mut layer = Layer::default();
    if cluster.has_secret(INSTASCALE_SECRET).await? {
        let origin =
            Origin::Object(format!("Secret {}/{INSTASCALE_SECRET}", cluster.namespace_text()));
        let name = Value::from(INSTASCALE_SECRET);
        layer.set("instascale.ocmSecretRef.name", name, origin.clone());
        let namespace = Value::from(cluster.namespace_text());
        layer.set("instascale.ocmSecretRef.namespace", namespace, origin);
    }
    Ok(layer)
}

fn translate_instascale(map: &ConfigMapState, called: &str) -> (Layer, ConfigReport) {
    const NAMES: [(&str, &str); 2] = [
        ("maxScaleoutAllowed", "instascale.maxScaleoutAllowed"),
        ("machineSetsStrategy", "instascale.machineSetsStrategy"),
    ];
    let (mut layer, mut report) = (Layer::default(), ConfigReport::default());
    let origin = |key: &str| Origin::Object(format!("{called}, {key}"));
    let ConfigMapState::Present { data, binary: _ } = map else {
        let text = "does not exist, so none of its settings are used".to_owned();
        let origin = Origin::Object(called.to_owned());
        report.warnings.push(ConfigMessage { origin, key: String::new(), text });
        return (layer, report);
    };
    // A standalone InstaScale added no more than three nodes.
    layer.set("instascale.maxScaleoutAllowed", 3.into(), origin("default"));
    for (name, text) in data {
        let known = NAMES.iter().find(|(known, _)| known == name);
        let Some(key) = known.and_then(|(_, path)| keys::key(path)) else {
            let remark = "ignored: unknown key".to_owned();
            report.warnings.push(ConfigMessage {
                origin: origin(name),
                key: name.clone(),
                text: remark,
            });
            report.unknown_keys.push(name.clone());
            continue;
        };
        match key.value_type.parse_str(text.trim()) {
            Ok(ParsedValue::Set(value)) => layer.set(key.path, value, origin(name)),
            Ok(ParsedValue::Default) => {}
            Err(text) => {
                let key = key.path.to_owned();
                report.errors.push(ConfigMessage { origin: origin(name), key, text });
            }
        }
    }
    (layer, report)
}

#[cfg(test)]
mod tests;
