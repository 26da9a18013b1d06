//! Finds the settings that the operator of a cluster decides by, as far as they can be read.

use std::path::PathBuf;

use anyhow::bail;
use gantry_queue::subsystem::configuration;
use gantry_queue::{Settings, UserAccess};
use gantry_reconcile::{ApiPath, Parameter};
use serde_json::Value;

use crate::cli::cluster_client::{ClusterClient, ClusterRequestError};
use crate::cli::files;
use crate::config::document;
use crate::config::operator::merge_and_check;
use crate::config::source::{
    self, ConfigFile, ConfigMapState, LEGACY, NextStep, OWN, SourceState, TextSource,
};
use crate::config::values::Values;
use crate::manifests;
use crate::subsystems::CONTROLLERS;
use crate::up::STATUS_PATH;

/// Flags that say where the settings of the queue are.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SettingsFlags {
    /// The configuration file of the operator, instead of its ConfigMap.
    #[arg(long, value_name = "FILE", help_heading = "Settings of the queue")]
    config_file: Option<PathBuf>,

    /// The ConfigMap of the operator; by default gantry-config, then codeflare-operator-config.
    #[arg(long, value_name = "NAME", default_value = OWN, hide_default_value = true,
          help_heading = "Settings of the queue")]
    config: String,

    /// The namespace of the ConfigMap; by default it is searched for.
    #[arg(long, value_name = "NAMESPACE", help_heading = "Settings of the queue")]
    config_namespace: Option<String>,
}

impl Default for SettingsFlags {
    fn default() -> Self {
        Self { config_file: None, config: OWN.to_owned(), config_namespace: None }
    }
}

/// The settings of the queue, and their source.
pub(in crate::cli) struct QueueSettings {
    /// The queue's settings.
    pub(in crate::cli) settings: Settings,
    /// The source of the settings, as text for the user.
    pub(in crate::cli) source: String,
    /// The keys below `mcad`, as the configuration has them.
    pub(in crate::cli) values: Value,
    /// All settings of the configuration.
    pub(in crate::cli) all: Values,
    /// Warnings about the settings, for the user.
    pub(in crate::cli) warnings: Vec<String>,
}

/// How the source is described when no settings are configured.
const DEFAULTS: &str = "the default settings";

impl SettingsFlags {
    /// Returns the settings of the file given by `--config-file`, or the defaults.
    fn read_file(&self) -> anyhow::Result<QueueSettings> {
        match &self.config_file {
            Some(path) => {
                let name = path.display().to_string();
                read(&files::read(path)?, format!("the settings of {name}"), &name)
            }
            None => defaults(format!("{DEFAULTS}; use --config-file for others")),
        }
    }

    /// Returns the settings for objects read from files: files do not say what a user may create,
    /// so the permissions of authors are not checked.
    pub(in crate::cli) fn for_files(&self) -> anyhow::Result<QueueSettings> {
        let mut found = self.read_file()?;
        found.settings.user_access = UserAccess::Unchecked;
        Ok(found)
    }

    /// Returns the settings of the file given by `--config-file`, the effective ones that `gantry
    /// up` or the operator publishes, those of the operator's ConfigMap, or the defaults, in this
    /// order.
    pub(in crate::cli) async fn load(
        &self,
        cluster: &ClusterClient,
    ) -> anyhow::Result<QueueSettings> {
        if self.config_file.is_some() {
            return self.read_file();
        }
        if let Some(found) = from_gantry_up(cluster).await? {
            return Ok(found);
        }
        if let Some(found) = self.read_published(cluster).await? {
            return Ok(found);
        }
        match self.text(cluster).await {
            Ok(Some((text, name))) => {
                let said = format!(
                    "the settings of {name}; the operator publishes no effective settings, and \
                     its flags may override these"
                );
                read(&text, said, &name)
            }
            Ok(None) => {
                defaults(format!("{DEFAULTS}: the cluster has no ConfigMap {}", self.config))
            }
            Err(SettingsError::Request(ClusterRequestError::Forbidden { path, .. })) => {
                defaults(format!("{DEFAULTS}: you may not read {path}; use --config-file"))
            }
            Err(SettingsError::Request(error)) => Err(error.into()),
            Err(SettingsError::Other(error)) => Err(error),
        }
    }

    /// Returns the effective settings that the operator publishes: its file or ConfigMap, with its
    /// flags and environment variables applied.
    async fn read_published(
        &self,
        cluster: &ClusterClient,
    ) -> anyhow::Result<Option<QueueSettings>> {
        let name = source::effective_config_map(&self.config);
        let looked = async {
            let Some(namespace) = self.namespace(cluster, &[&name]).await? else { return Ok(None) };
            Ok(Some((get(cluster, &namespace, &name).await?, namespace)))
        };
        let (map, namespace) = match looked.await {
            Ok(Some(found)) => found,
            // A user who may not read it may still read the ConfigMap it was made from.
            Ok(None) | Err(SettingsError::Request(ClusterRequestError::Forbidden { .. })) => {
                return Ok(None);
            }
            Err(SettingsError::Request(error)) => return Err(error.into()),
            Err(SettingsError::Other(error)) => return Err(error),
        };
        let ConfigMapState::Present { data, .. } = map else { return Ok(None) };
        let text = data.into_iter().find(|(key, _)| key == source::WRITTEN_KEY);
        let Some((key, text)) = text else { return Ok(None) };
        let name = format!("ConfigMap {namespace}/{name}, {key}");
        read(&text, format!("the effective settings of {name}"), &name).map(Some)
    }

    /// Returns the text of the ConfigMap, and the ConfigMap's display name.
    async fn text(
        &self,
        cluster: &ClusterClient,
    ) -> Result<Option<(String, String)>, SettingsError> {
        let names = if self.config == OWN { vec![OWN, LEGACY] } else { vec![self.config.as_str()] };
        let Some(namespace) = self.namespace(cluster, &names).await? else { return Ok(None) };
        let mut seen = SourceState {
            file: ConfigFile::NotConfigured,
            name: &self.config,
            named: ConfigMapState::NotRead,
            legacy: ConfigMapState::NotRead,
        };
        loop {
            let looked =
                match source::next_step(&seen).map_err(|it| SettingsError::Other(it.into()))? {
                    NextStep::Use { source, text } => {
                        let (name, key) = match source {
                            TextSource::Named { name, key } => (name, key),
                            TextSource::Legacy { key } => (LEGACY, key),
                            TextSource::File(_) => return Ok(None),
                        };
                        let name = format!("ConfigMap {namespace}/{name}, {key}");
                        return Ok(Some((text.to_owned(), name)));
                    }
                    NextStep::Create(_) => return Ok(None),
                    NextStep::Read(name) => name.to_owned(),
                };
            let map = get(cluster, &namespace, &looked).await?;
            if looked == self.config {
                seen.named = map;
            } else {
                seen.legacy = map;
            }
        }
    }

    /// Finds the namespace that has a ConfigMap of one of these names; the first name found wins.
    async fn namespace(
        &self,
        cluster: &ClusterClient,
        names: &[&str],
    ) -> Result<Option<String>, SettingsError> {
        if let Some(namespace) = &self.config_namespace {
            return Ok(Some(namespace.clone()));
        }
        let usual = manifests::NAMESPACE.to_owned();
        for name in names {
            let selector = format!("metadata.name={name}");
            let path = ApiPath::from_static("/api/v1/configmaps");
            let path = path.with(Parameter::FieldSelector(&selector));
            let list = match cluster.get(&path).await {
                Ok(list) => list,
                // A user who may not list ConfigMaps may still read the one in the default
                // namespace.
                Err(ClusterRequestError::Forbidden { .. }) => return Ok(Some(usual)),
                Err(error) => return Err(error.into()),
            };
            let found = list["items"].as_array().into_iter().flatten();
            let found = found.filter_map(|it| it["metadata"]["namespace"].as_str());
            let found: Vec<&str> = found.collect();
            match found.as_slice() {
                [] => {}
                all if all.contains(&usual.as_str()) => return Ok(Some(usual)),
                [only] => return Ok(Some((*only).to_owned())),
                several => {
                    return Err(SettingsError::Other(anyhow::anyhow!(
                        "several namespaces have a ConfigMap {name}: {}; use --config-namespace",
                        several.join(", ")
                    )));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the settings of a cluster that `gantry up` runs, if it is one and the user may read
/// them.
async fn from_gantry_up(cluster: &ClusterClient) -> anyhow::Result<Option<QueueSettings>> {
    let page = match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => page,
        Err(ClusterRequestError::NotFound { .. } | ClusterRequestError::Forbidden { .. }) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let keys =
        page["configuration"].get("values").filter(|it| it.is_object()).map(Value::to_string);
    let Some(text) = keys else { return Ok(None) };
    if page["configuration"]["values"]["mcadEnabled"] == false {
        // The queue is run by a separate operator.
        return Ok(None);
    }
    let mut found = read(&text, "the settings of gantry up".to_owned(), "gantry up")?;
    if found.settings.user_access.is_checked() {
        found.settings.user_access = UserAccess::OnBehalf;
    }
    Ok(Some(found))
}

/// Why the settings cannot be loaded.
enum SettingsError {
    /// A request to the cluster failed.
    Request(ClusterRequestError),
    Other(anyhow::Error),
}

impl From<ClusterRequestError> for SettingsError {
    fn from(error: ClusterRequestError) -> Self {
        Self::Request(error)
    }
}

async fn get(
    cluster: &ClusterClient,
    namespace: &str,
    name: &str,
) -> Result<ConfigMapState, ClusterRequestError> {
    let path = ApiPath::object("v1", namespace, "configmaps", name)?;
    let map = match cluster.get(&path).await {
        Ok(map) => map,
        Err(ClusterRequestError::NotFound { .. }) => return Ok(ConfigMapState::Absent),
        Err(error) => return Err(error),
    };
    let data = map["data"].as_object().into_iter().flatten();
    let data = data.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned()));
    let binary = map["binaryData"].as_object().into_iter().flatten();
    Ok(ConfigMapState::Present {
        data: data.collect(),
        binary: binary.map(|(key, _)| key.clone()).collect(),
    })
}

/// Returns the default settings.
fn defaults(source: String) -> anyhow::Result<QueueSettings> {
    let mut found = read("", source, "defaults")?;
    found.warnings.clear();
    Ok(found)
}

/// Parses settings on top of the defaults.
fn read(text: &str, source: String, name: &str) -> anyhow::Result<QueueSettings> {
    let (layer, report) = document::read(text, name);
    let checked = match merge_and_check([&layer], report, &CONTROLLERS) {
        Ok(checked) => checked,
        Err(report) => {
            let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
            bail!("cannot use {source}: {}", errors.join("; "))
        }
    };
    let mut warnings: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
    if !configuration::is_enabled(&checked.values) {
        warnings.push(
            "the operator's configuration has mcadEnabled: false: this queue is not running"
                .to_owned(),
        );
    }
    Ok(QueueSettings {
        settings: configuration::settings(&checked.values)?,
        source,
        values: checked.values.tree()["mcad"].clone(),
        all: checked.values,
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_queue::Inference;

    use super::*;

    #[test]
    fn every_key_reaches_the_queue() {
        let text = "mcad: {dynamicPriority: true, backoffTime: 7, headOfLineHoldingTime: 9,
            quotaEnabled: true, requireQuotaBindings: true, demandInference: compat, honorNodeSelector: true,
            requeueDefaultSeconds: 11, requeueCheckInterval: 13s, wakeOnRelease: false,
            packingCheck: true, fairness: true, activeEviction: true, checkUserAccess: true}
devices: {enabled: true}";
        let found = read(text, "the settings of f".to_owned(), "f").unwrap();
        let expected = Settings {
            dynamic_priority: true,
            preemption: false,
            backoff: Duration::from_secs(7),
            holding: Duration::from_secs(9),
            quota: true,
            require_quota_bindings: true,
            inference: Inference::Compat,
            honor_node_selector: true,
            requeue_default: Duration::from_secs(11),
            requeue_interval: Duration::from_secs(13),
            wake_on_release: false,
            packing_check: true,
            fairness: true,
            active_eviction: true,
            user_access: UserAccess::Reviewed,
            devices: true,
        };
        assert_eq!(found.settings, expected);
        assert_eq!(found.values["backoffTime"], 7);
        assert_eq!(found.warnings, [""; 0]);
        assert!(read("mcad: {preemption: true}", String::new(), "f").unwrap().settings.preemption);
        for text in ["mcadEnabled: false", "mcad: {enabled: false}"] {
            let said = read(text, String::new(), "f").unwrap().warnings;
            assert!(said.len() == 1 && said[0].contains("this queue is not running"), "{said:?}");
        }
        let said = read("mcad: {backoftime: 3}", String::new(), "f").unwrap().warnings;
        assert_eq!(
            said,
            ["f:1:8: mcad.backoftime: ignored: unknown key; did you mean mcad.backoffTime?"]
        );
    }

    #[test]
    fn defaults_match_the_operator() {
        let found = defaults(DEFAULTS.to_owned()).unwrap();
        assert_eq!((found.settings, found.warnings), (Settings::default(), Vec::new()));
    }

    #[test]
    fn an_invalid_configuration_is_refused() {
        let error = read("mcad: {backoffTime: soon}", "the settings of f".to_owned(), "f");
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("cannot use the settings of f: f:1:"), "{error}");
        assert!(error.contains("mcad.backoffTime"), "{error}");
    }
}
