//! The configuration from everywhere it is said, at the start and whenever it is looked at again.

use std::io;
use std::path::PathBuf;

use gantry_process::clock::Clock;
use gantry_subsystem::ControllerSwitch;
use http::Uri;

use super::document;
use super::fetch::{self, Cluster, FetchError, Fetched, How, Maps, NamespaceError, Writes};
use super::legacy::Given;
use super::operator::{Checked, settle};
use super::reload::Seen;
use super::values::{Layer, Origin, Remark, Report};

/// Where to look, as the command line says it.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The name of the ConfigMap.
    pub config: String,
    /// The file that wins over it.
    pub config_file: Option<PathBuf>,
    /// The operator's namespace, if somebody said.
    pub namespace: Option<String>,
    /// The API server, in place of the one in the kubeconfig.
    pub server: Option<Uri>,
    /// The namespace of the ConfigMap of an InstaScale that ran alone.
    pub instascale: Option<String>,
    /// The namespace of the Secret of an InstaScale that ran alone.
    pub instascale_secret: Option<String>,
    /// What flags and variables say.
    pub given: Given,
}

/// The namespaces of a cluster in which the configuration may be. Each is reached when it is first
/// needed, and only then.
pub(crate) struct Places<'a> {
    own: Cluster<'a>,
    old: Old<'a>,
}

/// Where an InstaScale that ran alone left things.
#[derive(Default)]
pub(crate) struct Old<'a> {
    map: Option<Cluster<'a>>,
    secret: Option<Cluster<'a>>,
}

/// What was found.
#[derive(Debug)]
pub struct Gathered {
    /// What the text is called.
    pub source: String,
    /// How the text came to be used.
    pub how: How,
    /// The whole, or what is wrong with it.
    pub found: Result<Checked, Report>,
}

impl Sources {
    /// The operator's own namespace.
    ///
    /// # Errors
    /// Nobody said, or it is no name of a namespace.
    pub fn own_namespace(&self) -> Result<String, NamespaceError> {
        fetch::namespace(self.namespace.as_deref(), || {
            std::fs::read_to_string(fetch::NAMESPACE_FILE)
        })
    }

    pub(crate) fn places<'a>(&'a self, clock: &'a Clock) -> Places<'a> {
        let kubeconfig = self.given.flags.get("clientConnection.kubeconfig");
        let kubeconfig = kubeconfig.and_then(|path| path.as_str()).unwrap_or_default();
        let at = |namespace| Cluster::new(kubeconfig, self.server.as_ref(), clock, namespace);
        // A namespace that was named is looked for nowhere else.
        let named = |name: &String| {
            at(fetch::namespace(Some(name), || Err(io::ErrorKind::NotFound.into())))
        };
        Places {
            own: at(self.own_namespace()),
            old: Old {
                map: self.instascale.as_ref().map(named),
                secret: self.instascale_secret.as_ref().map(named),
            },
        }
    }

    pub(crate) async fn gather(
        &self,
        places: &Places<'_>,
        writes: Writes,
        controllers: &[ControllerSwitch],
    ) -> Result<Gathered, FetchError> {
        self.gather_from(&places.own, &places.old, writes, controllers).await
    }

    async fn gather_from(
        &self,
        own: &impl Maps,
        old: &Old<'_>,
        writes: Writes,
        controllers: &[ControllerSwitch],
    ) -> Result<Gathered, FetchError> {
        let Given { environment, flags, warnings } = &self.given;
        let file = fetch::read_file(self.config_file.as_deref())?;
        let Fetched { text, source, how } = fetch::fetch(file, &self.config, writes, own).await?;
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
        Ok(Gathered { source, how, found: settle(layers, report, controllers) })
    }
}

/// What a second look at the configuration has shown.
#[must_use]
pub fn seen(looked: Result<Gathered, FetchError>) -> Seen {
    match looked {
        Ok(Gathered { source, how: How::WouldCreate, .. }) => Seen::Gone { source },
        Ok(Gathered { found: Ok(checked), .. }) => Seen::Valid(Box::new(checked)),
        Ok(Gathered { found: Err(report), .. }) => Seen::Wrong(report),
        // It was read, and is none.
        Err(FetchError::Keys(error)) => {
            let origin = Origin::Object(format!("ConfigMap {}", error.name));
            let remark = Remark { origin, key: String::new(), text: error.to_string() };
            Seen::Wrong(Report { errors: vec![remark], ..Report::default() })
        }
        Err(error) => Seen::Unreadable { why: format!("{:#}", anyhow::Error::from(error)) },
    }
}

#[cfg(test)]
mod tests;
