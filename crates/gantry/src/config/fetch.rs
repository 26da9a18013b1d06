//! Fetches the configuration from where [`source`] says it is.

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

use super::form::Fit;
use super::source::{self, File, KeysError, Map, Seen, Source, Step, WRITTEN_KEY};
use super::values::{Layer, Origin, Remark, Report};
use super::{keys, render};
use crate::operator::cluster::{Asked, CallError, ConnectError, call, connect};

/// Bytes of a configuration: a ConfigMap cannot hold more.
const MOST_BYTES: u64 = 1 << 20;
/// Steps until the sources must have settled. Each is looked at once, and once more for every time
/// that somebody else is quicker.
const STEPS: usize = 12;
/// Where a pod finds its namespace.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A configuration text and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// All of it.
    pub text: String,
    /// What messages call it.
    pub source: String,
    /// How it came to be used.
    pub how: How,
}

/// How a text came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was there.
    Found,
    /// It was there, under the name of the operator that Gantry replaces.
    Legacy,
    /// It was not there, and was written.
    Created,
    /// It is not there, and would be written if this were not a rehearsal.
    WouldCreate,
}

/// Whether a ConfigMap that is absent is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// It is.
    Create,
    /// It is not: somebody only asks what would happen.
    Nothing,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The file is there and cannot be read.
    #[error("could not read configuration file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The ConfigMap has not exactly one key.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The operator does not know where to look.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no way to a server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server did not do what it was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The defaults cannot be written.
    #[error(transparent)]
    Defaults(#[from] gantry_api::yaml::WriteError),
    /// Somebody creates and deletes the ConfigMap all the time.
    #[error("could not settle on a configuration: ConfigMap {name} comes and goes; start again")]
    Restless {
        /// The ConfigMap.
        name: String,
    },
}

/// ConfigMaps of one namespace.
pub(crate) trait Maps {
    /// What messages call a ConfigMap.
    fn called(&self, name: &str) -> String;
    /// Reads one.
    async fn get(&self, name: &str) -> Result<Map, FetchError>;
    /// Makes one with this text; false if somebody else was quicker.
    async fn create(&self, name: &str, text: &str) -> Result<bool, FetchError>;
}

/// Follows the steps of [`source::choose`] until there is a text.
pub(crate) async fn fetch(
    file: File,
    name: &str,
    writes: Writes,
    maps: &impl Maps,
) -> Result<Fetched, FetchError> {
    let mut seen = Seen { file, name, named: Map::Unknown, legacy: Map::Unknown };
    for _ in 0..STEPS {
        match source::choose(&seen)? {
            Step::Use { source, text } => {
                let (source, how) = match source {
                    Source::File(path) => (path.display().to_string(), How::Found),
                    Source::Named { name, key } => {
                        (format!("{}, {key}", maps.called(name)), How::Found)
                    }
                    Source::Legacy { key } => {
                        (format!("{}, {key}", maps.called(source::LEGACY)), How::Legacy)
                    }
                };
                return Ok(Fetched { text: text.to_owned(), source, how });
            }
            Step::Look(which) if which == name => seen.named = maps.get(name).await?,
            Step::Look(which) => seen.legacy = maps.get(which).await?,
            Step::Create(name) => {
                let text = render::defaults()?;
                let source = format!("{}, {WRITTEN_KEY}", maps.called(name));
                if writes == Writes::Nothing {
                    return Ok(Fetched { text, source, how: How::WouldCreate });
                }
                if maps.create(name, &text).await? {
                    return Ok(Fetched { text, source, how: How::Created });
                }
                // Whoever was quicker decided what is in it.
                seen.named = Map::Unknown;
            }
        }
    }
    Err(FetchError::Restless { name: name.to_owned() })
}

/// The file of `--config-file`, if it is there.
///
/// # Errors
/// It is there and cannot be read, or is too large to be one.
pub fn read_file(path: Option<&Path>) -> Result<File, FetchError> {
    let Some(path) = path else { return Ok(File::Unnamed) };
    let failed = |error| FetchError::File { path: path.to_owned(), error };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(File::Absent),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(failed(io::Error::other("it is larger than a megabyte")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(io::Error::other("it is not UTF-8")))?;
    Ok(File::Text { path: path.to_owned(), text })
}

/// The operator's own namespace: what was said, else what its pod was told.
///
/// # Errors
/// Nobody said, or it is no name of a namespace.
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
        Some(problem) => Err(NamespaceError::Unfit { name, problem }),
        None => Ok(name),
    }
}

/// Why the operator does not know its namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// Nobody said.
    #[error(
        "cannot tell the operator's namespace: set NAMESPACE or say --namespace; in a pod it would \
         be in {NAMESPACE_FILE}: {why}"
    )]
    Unknown {
        /// What the system said about the file.
        why: String,
    },
    /// It is none.
    #[error("cannot use {name:?} as the operator's namespace: {problem}")]
    Unfit {
        /// What was said.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// One namespace of a cluster, which is reached when it is first needed.
pub(crate) struct Cluster<'a> {
    kubeconfig: &'a str,
    server: Option<&'a Uri>,
    clock: &'a Clock,
    namespace: Result<String, NamespaceError>,
    client: OnceCell<kube::Client>,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(
        kubeconfig: &'a str,
        server: Option<&'a Uri>,
        clock: &'a Clock,
        namespace: Result<String, NamespaceError>,
    ) -> Self {
        Self { kubeconfig, server, clock, namespace, client: OnceCell::new() }
    }

    async fn reach(&self) -> Result<(kube::Client, &str), FetchError> {
        let namespace = self.namespace.as_ref().map_err(Clone::clone)?;
        let client = self.client.get_or_try_init(|| connect(self.kubeconfig, self.server)).await?;
        Ok((client.clone(), namespace))
    }

    /// Whether a Secret is there. What is in it is not looked at.
    async fn has_secret(&self, name: &str) -> Result<bool, FetchError> {
        let (client, namespace) = self.reach().await?;
        let api = Api::<Secret>::namespaced(client, namespace);
        let asked = || asked("get", "secrets", name, namespace);
        Ok(call(self.clock, asked, api.get_metadata_opt(name)).await?.is_some())
    }

    fn place(&self) -> &str {
        self.namespace.as_ref().map_or("?", String::as_str)
    }
}

impl Maps for Cluster<'_> {
    fn called(&self, name: &str) -> String {
        format!("ConfigMap {}/{name}", self.place())
    }

    async fn get(&self, name: &str) -> Result<Map, FetchError> {
        let (client, namespace) = self.reach().await?;
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let asked = || asked("get", "configmaps", name, namespace);
        Ok(match call(self.clock, asked, api.get_opt(name)).await? {
            None => Map::Absent,
            Some(ConfigMap { data, binary_data, .. }) => Map::Present {
                data: data.unwrap_or_default().into_iter().collect(),
                binary: binary_data.unwrap_or_default().into_keys().collect(),
            },
        })
    }

    async fn create(&self, name: &str, text: &str) -> Result<bool, FetchError> {
        let (client, namespace) = self.reach().await?;
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
        Ok(call(self.clock, || asked("create", "configmaps", name, namespace), work).await?)
    }
}

fn asked(verb: &'static str, resource: &'static str, name: &str, namespace: &str) -> Asked {
    Asked { verb, resource, name: name.to_owned(), namespace: Some(namespace.to_owned()) }
}

/// The ConfigMap of an InstaScale that ran alone.
const INSTASCALE: &str = "instascale-config";
/// The Secret of an InstaScale that ran alone.
const INSTASCALE_SECRET: &str = "instascale-ocm-secret";

/// What the ConfigMap of an InstaScale that ran alone says, as keys.
pub(crate) async fn instascale(cluster: &Cluster<'_>) -> Result<(Layer, Report), FetchError> {
    let map = cluster.get(INSTASCALE).await?;
    Ok(translate_instascale(&map, &cluster.called(INSTASCALE)))
}

/// The reference to the Secret of an InstaScale that ran alone, if it is there.
pub(crate) async fn instascale_secret(cluster: &Cluster<'_>) -> Result<Layer, FetchError> {
    let mut layer = Layer::default();
    if cluster.has_secret(INSTASCALE_SECRET).await? {
        let origin = Origin::Object(format!("Secret {}/{INSTASCALE_SECRET}", cluster.place()));
        let name = Value::from(INSTASCALE_SECRET);
        layer.set("instascale.ocmSecretRef.name", name, origin.clone());
        let namespace = Value::from(cluster.place());
        layer.set("instascale.ocmSecretRef.namespace", namespace, origin);
    }
    Ok(layer)
}

fn translate_instascale(map: &Map, called: &str) -> (Layer, Report) {
    const NAMES: [(&str, &str); 2] = [
        ("maxScaleoutAllowed", "instascale.maxScaleoutAllowed"),
        ("machineSetsStrategy", "instascale.machineSetsStrategy"),
    ];
    let (mut layer, mut report) = (Layer::default(), Report::default());
    let origin = |key: &str| Origin::Object(format!("{called}, {key}"));
    let Map::Present { data, binary: _ } = map else {
        let text = "is not there, so nothing is taken from it".to_owned();
        let origin = Origin::Object(called.to_owned());
        report.warnings.push(Remark { origin, key: String::new(), text });
        return (layer, report);
    };
    // Alone, it added no more than three.
    layer.set("instascale.maxScaleoutAllowed", 3.into(), origin("default"));
    for (name, text) in data {
        let known = NAMES.iter().find(|(known, _)| known == name);
        let Some(key) = known.and_then(|(_, path)| keys::key(path)) else {
            let remark = "ignored: unknown key".to_owned();
            report.warnings.push(Remark { origin: origin(name), key: name.clone(), text: remark });
            report.unknown.push(name.clone());
            continue;
        };
        match key.form.fit_word(text.trim()) {
            Ok(Fit::Is(value)) => layer.set(key.path, value, origin(name)),
            Ok(Fit::Default) => {}
            Err(text) => {
                let key = key.path.to_owned();
                report.errors.push(Remark { origin: origin(name), key, text });
            }
        }
    }
    (layer, report)
}

#[cfg(test)]
mod tests;
