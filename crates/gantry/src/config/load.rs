//! Loads the configuration from all its sources, at the start and at every reload.

use std::io;
use std::path::PathBuf;

use gantry_process::clock::Clock;
use gantry_subsystem::ControllerSwitch;
use http::Uri;

use super::document;
use super::fetch::{
    self, ConfigMapStore, FetchError, FetchOutcome, FetchedConfig, NamespaceClient, NamespaceError,
    WritePolicy,
};
use super::legacy::FlagOverrides;
use super::operator::{CheckedConfig, merge_and_check};
use super::reload::ReloadedConfig;
use super::values::{ConfigMessage, ConfigReport, Layer, Origin};

/// The sources of the configuration, as given on the command line.
#[derive(Clone, Debug)]
pub struct ConfigSources {
    /// The name of the ConfigMap.
    pub config: String,
    /// The file that overrides the ConfigMap.
    pub config_file: Option<PathBuf>,
    /// The operator's namespace, if it is given.
    pub namespace: Option<String>,
    /// The API server, instead of the one in the kubeconfig.
    pub server: Option<Uri>,
    /// The namespace of the ConfigMap of a standalone InstaScale.
    pub instascale: Option<String>,
    /// The namespace of the Secret of a standalone InstaScale.
    pub instascale_secret: Option<String>,
    /// The values of flags and variables.
    pub overrides: FlagOverrides,
}

/// The namespaces of a cluster in which the configuration may be. Each is connected to when it is
/// first needed, and only then.
pub(crate) struct ConfigNamespaces<'a> {
    own: NamespaceClient<'a>,
    legacy: LegacyInstaScale<'a>,
}

/// The namespaces of the objects of a standalone InstaScale.
#[derive(Default)]
pub(crate) struct LegacyInstaScale<'a> {
    map: Option<NamespaceClient<'a>>,
    secret: Option<NamespaceClient<'a>>,
}

/// A configuration that was loaded.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The name of the text in messages.
    pub source: String,
    /// How the text was obtained.
    pub outcome: FetchOutcome,
    /// The whole configuration, or what is wrong with it.
    pub result: Result<CheckedConfig, ConfigReport>,
}

impl ConfigSources {
    /// Returns the operator's own namespace.
    ///
    /// # Errors
    /// No namespace is given, or it is not a valid namespace name.
    pub fn own_namespace(&self) -> Result<String, NamespaceError> {
        fetch::namespace(self.namespace.as_deref(), || {
            std::fs::read_to_string(fetch::NAMESPACE_FILE)
        })
    }

    pub(crate) fn namespaces<'a>(&'a self, clock: &'a Clock) -> ConfigNamespaces<'a> {
        let kubeconfig = self.overrides.flags.get("clientConnection.kubeconfig");
        let kubeconfig = kubeconfig.and_then(|path| path.as_str()).unwrap_or_default();
        let at =
            |namespace| NamespaceClient::new(kubeconfig, self.server.as_ref(), clock, namespace);
        // If a namespace is given, the ConfigMap is not searched for elsewhere.
        let named = |name: &String| {
            at(fetch::namespace(Some(name), || Err(io::ErrorKind::NotFound.into())))
        };
        ConfigNamespaces {
            own: at(self.own_namespace()),
            legacy: LegacyInstaScale {
                map: self.instascale.as_ref().map(named),
                secret: self.instascale_secret.as_ref().map(named),
            },
        }
    }

    pub(crate) async fn load(
        &self,
        places: &ConfigNamespaces<'_>,
        writes: WritePolicy,
        controllers: &[ControllerSwitch],
    ) -> Result<LoadedConfig, FetchError> {
        self.load_from(&places.own, &places.legacy, writes, controllers).await
    }

    async fn load_from(
        &self,
        own: &impl ConfigMapStore,
        old: &LegacyInstaScale<'_>,
        writes: WritePolicy,
        controllers: &[ControllerSwitch],
    ) -> Result<LoadedConfig, FetchError> {
        let FlagOverrides { environment, flags, warnings } = &self.overrides;
        let file = fetch::read_file(self.config_file.as_deref())?;
        let FetchedConfig { text, source, outcome: how } =
            fetch::fetch(file, &self.config, writes, own).await?;
        let (layer, mut report) = document::read(&text, &source);
        report.warnings.extend(warnings.iter().cloned());
        let mut layers = vec![layer];
        if let Some(cluster) = &old.map {
            let (layer, found) = fetch::instascale(cluster).await?;
            report.append(found);
            layers.push(layer);
        }
        if let Some(cluster) = &old.secret {
            layers.push(fetch::instascale_secret(cluster).await?);
        }
        let layers: Vec<&Layer> = layers.iter().chain([environment, flags]).collect();
        Ok(LoadedConfig {
            source,
            outcome: how,
            result: merge_and_check(layers, report, controllers),
        })
    }
}

/// Converts a loaded configuration into the result of a reload.
#[must_use]
pub fn to_reloaded_config(looked: Result<LoadedConfig, FetchError>) -> ReloadedConfig {
    match looked {
        Ok(LoadedConfig { source, outcome: FetchOutcome::WouldCreate, .. }) => {
            ReloadedConfig::Deleted { source }
        }
        Ok(LoadedConfig { result: Ok(checked), .. }) => ReloadedConfig::Valid(Box::new(checked)),
        Ok(LoadedConfig { result: Err(report), .. }) => ReloadedConfig::Invalid(report),
        // The text was read, and is not a valid configuration.
        Err(FetchError::Keys(error)) => {
            let origin = Origin::Object(format!("ConfigMap {}", error.name));
            let remark = ConfigMessage { origin, key: String::new(), text: error.to_string() };
            ReloadedConfig::Invalid(ConfigReport {
                errors: vec![remark],
                ..ConfigReport::default()
            })
        }
        Err(error) => {
            ReloadedConfig::Unreadable { why: format!("{:#}", anyhow::Error::from(error)) }
        }
    }
}

#[cfg(test)]
mod tests;
