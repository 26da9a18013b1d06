//! By which settings the operator of a cluster decides, as far as that can be read.

use std::path::PathBuf;

use anyhow::bail;
use gantry_queue::subsystem::configuration;
use gantry_queue::{Settings, UserAccess};
use gantry_reconcile::{ApiPath, Parameter};
use serde_json::Value;

use crate::cli::files;
use crate::cli::reach::{AskError, Reached};
use crate::config::document;
use crate::config::operator::settle;
use crate::config::source::{self, File, LEGACY, Map, OWN, Seen, Source, Step};
use crate::config::values::Values;
use crate::manifests;
use crate::subsystems::CONTROLLERS;
use crate::up::STATUS_PATH;

/// Where the settings of the queue are.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SettingsFlags {
    /// The configuration of the operator, instead of its ConfigMap.
    #[arg(long, value_name = "FILE", help_heading = "Settings of the queue")]
    config_file: Option<PathBuf>,

    /// The ConfigMap of the operator; by default gantry-config, then codeflare-operator-config.
    #[arg(long, value_name = "NAME", default_value = OWN, hide_default_value = true,
          help_heading = "Settings of the queue")]
    config: String,

    /// Its namespace; by default where there is one.
    #[arg(long, value_name = "NAMESPACE", help_heading = "Settings of the queue")]
    config_namespace: Option<String>,
}

/// Settings, and who says so.
pub(in crate::cli) struct Found {
    /// The settings.
    pub(in crate::cli) settings: Settings,
    /// Where they are from, in words.
    pub(in crate::cli) source: String,
    /// The keys below `mcad`, as the file has them.
    pub(in crate::cli) values: Value,
    /// All settings.
    pub(in crate::cli) all: Values,
    /// What its user should know about them.
    pub(in crate::cli) warnings: Vec<String>,
}

/// The words for settings that nobody has set.
const DEFAULTS: &str = "the default settings";

impl SettingsFlags {
    /// Those of the file that is named, or the defaults.
    fn of_file(&self) -> anyhow::Result<Found> {
        match &self.config_file {
            Some(path) => {
                let name = path.display().to_string();
                read(&files::read(path)?, format!("the settings of {name}"), &name)
            }
            None => defaults(format!("{DEFAULTS}; say --config-file for others")),
        }
    }

    /// The same, for files instead of a cluster: they do not say what anybody may create.
    pub(in crate::cli) fn for_files(&self) -> anyhow::Result<Found> {
        let mut found = self.of_file()?;
        found.settings.user_access = UserAccess::Unchecked;
        Ok(found)
    }

    /// Those of the file that is named, those in effect as `gantry up` or the operator publishes them,
    /// those of the operator's ConfigMap, or the defaults.
    pub(in crate::cli) async fn find(&self, cluster: &Reached) -> anyhow::Result<Found> {
        if self.config_file.is_some() {
            return self.of_file();
        }
        if let Some(found) = of_process(cluster).await? {
            return Ok(found);
        }
        if let Some(found) = self.in_effect(cluster).await? {
            return Ok(found);
        }
        match self.text(cluster).await {
            Ok(Some((text, name))) => {
                let said = format!(
                    "the settings of {name}; the operator publishes none that are in effect, and \
                     its flags may say otherwise"
                );
                read(&text, said, &name)
            }
            Ok(None) => {
                defaults(format!("{DEFAULTS}: the cluster has no ConfigMap {}", self.config))
            }
            Err(Lookup::Ask(AskError::Forbidden { path, .. })) => {
                defaults(format!("{DEFAULTS}: you may not read {path}; say --config-file"))
            }
            Err(Lookup::Ask(error)) => Err(error.into()),
            Err(Lookup::Other(error)) => Err(error),
        }
    }

    /// Those that the operator publishes: its file or ConfigMap, with its flags and variables.
    async fn in_effect(&self, cluster: &Reached) -> anyhow::Result<Option<Found>> {
        let name = source::in_effect(&self.config);
        let looked = async {
            let Some(namespace) = self.namespace(cluster, &[&name]).await? else { return Ok(None) };
            Ok(Some((get(cluster, &namespace, &name).await?, namespace)))
        };
        let (map, namespace) = match looked.await {
            Ok(Some(found)) => found,
            // Whoever may not read it may still read the ConfigMap it was made from.
            Ok(None) | Err(Lookup::Ask(AskError::Forbidden { .. })) => return Ok(None),
            Err(Lookup::Ask(error)) => return Err(error.into()),
            Err(Lookup::Other(error)) => return Err(error),
        };
        let Map::Present { data, .. } = map else { return Ok(None) };
        let text = data.into_iter().find(|(key, _)| key == source::WRITTEN_KEY);
        let Some((key, text)) = text else { return Ok(None) };
        let name = format!("ConfigMap {namespace}/{name}, {key}");
        read(&text, format!("the settings in effect of {name}"), &name).map(Some)
    }

    /// The text of the ConfigMap, and what it is called.
    async fn text(&self, cluster: &Reached) -> Result<Option<(String, String)>, Lookup> {
        let names = if self.config == OWN { vec![OWN, LEGACY] } else { vec![self.config.as_str()] };
        let Some(namespace) = self.namespace(cluster, &names).await? else { return Ok(None) };
        let mut seen = Seen {
            file: File::Unnamed,
            name: &self.config,
            named: Map::Unknown,
            legacy: Map::Unknown,
        };
        loop {
            let looked = match source::choose(&seen).map_err(|it| Lookup::Other(it.into()))? {
                Step::Use { source, text } => {
                    let (name, key) = match source {
                        Source::Named { name, key } => (name, key),
                        Source::Legacy { key } => (LEGACY, key),
                        Source::File(_) => return Ok(None),
                    };
                    let name = format!("ConfigMap {namespace}/{name}, {key}");
                    return Ok(Some((text.to_owned(), name)));
                }
                Step::Create(_) => return Ok(None),
                Step::Look(name) => name.to_owned(),
            };
            let map = get(cluster, &namespace, &looked).await?;
            if looked == self.config {
                seen.named = map;
            } else {
                seen.legacy = map;
            }
        }
    }

    /// The namespace that has a ConfigMap of one of these names; the first name that is found counts.
    async fn namespace(&self, cluster: &Reached, names: &[&str]) -> Result<Option<String>, Lookup> {
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
                // Whoever may not search may still read the usual one.
                Err(AskError::Forbidden { .. }) => return Ok(Some(usual)),
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
                    return Err(Lookup::Other(anyhow::anyhow!(
                        "several namespaces have a ConfigMap {name}: {}; say --config-namespace",
                        several.join(", ")
                    )));
                }
            }
        }
        Ok(None)
    }
}

/// Those of a cluster that `gantry up` runs, where one does and shows them.
async fn of_process(cluster: &Reached) -> anyhow::Result<Option<Found>> {
    let page = match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => page,
        Err(AskError::Absent { .. } | AskError::Forbidden { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let keys =
        page["configuration"].get("values").filter(|it| it.is_object()).map(Value::to_string);
    let Some(text) = keys else { return Ok(None) };
    if page["configuration"]["values"]["mcadEnabled"] == false {
        // The queue is an operator's.
        return Ok(None);
    }
    let mut found = read(&text, "the settings of gantry up".to_owned(), "gantry up")?;
    if found.settings.user_access.is_checked() {
        found.settings.user_access = UserAccess::OnBehalf;
    }
    Ok(Some(found))
}

/// Why settings are not found.
enum Lookup {
    /// The cluster does not tell.
    Ask(AskError),
    Other(anyhow::Error),
}

impl From<AskError> for Lookup {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

async fn get(cluster: &Reached, namespace: &str, name: &str) -> Result<Map, AskError> {
    let path = ApiPath::object("v1", namespace, "configmaps", name)?;
    let map = match cluster.get(&path).await {
        Ok(map) => map,
        Err(AskError::Absent { .. }) => return Ok(Map::Absent),
        Err(error) => return Err(error),
    };
    let data = map["data"].as_object().into_iter().flatten();
    let data = data.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned()));
    let binary = map["binaryData"].as_object().into_iter().flatten();
    Ok(Map::Present { data: data.collect(), binary: binary.map(|(key, _)| key.clone()).collect() })
}

/// Settings that nobody has set.
fn defaults(source: String) -> anyhow::Result<Found> {
    let mut found = read("", source, "defaults")?;
    found.warnings.clear();
    Ok(found)
}

/// Settings as a text has them, on top of the defaults.
fn read(text: &str, source: String, name: &str) -> anyhow::Result<Found> {
    let (layer, report) = document::read(text, name);
    let checked = match settle([&layer], report, &CONTROLLERS) {
        Ok(checked) => checked,
        Err(report) => {
            let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
            bail!("cannot use {source}: {}", errors.join("; "))
        }
    };
    let mut warnings: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
    if !configuration::is_enabled(&checked.values) {
        warnings.push(
            "the operator's configuration has mcadEnabled: false: nobody runs this queue"
                .to_owned(),
        );
    }
    Ok(Found {
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
            assert!(said.len() == 1 && said[0].contains("nobody runs this queue"), "{said:?}");
        }
        let said = read("mcad: {backoftime: 3}", String::new(), "f").unwrap().warnings;
        assert_eq!(
            said,
            ["f:1:8: mcad.backoftime: ignored: unknown key; did you mean mcad.backoffTime?"]
        );
    }

    #[test]
    fn nothing_said_is_what_the_operator_does_by_itself() {
        let found = defaults(DEFAULTS.to_owned()).unwrap();
        assert_eq!((found.settings, found.warnings), (Settings::default(), Vec::new()));
    }

    #[test]
    fn a_configuration_that_no_operator_takes_is_refused() {
        let error = read("mcad: {backoffTime: soon}", "the settings of f".to_owned(), "f");
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("cannot use the settings of f: f:1:"), "{error}");
        assert!(error.contains("mcad.backoffTime"), "{error}");
    }
}
