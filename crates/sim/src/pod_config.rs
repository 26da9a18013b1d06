//! Resolves the environment of a container: variables, arguments, and files of volumes. Pure.
//!
//! Values come from the pod, its node, and the ConfigMaps and Secrets it references. Those are read
//! one by one ([`PodSourceInquiry`]), so resolving may find that an object was not read yet, is
//! missing, or could not be read; the messages are those of a kubelet's events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use gantry_reconcile::World;

use crate::view::{ConfigMap, Container, Node, Pod, SourceKey, SourceKind, SourceObject};

mod command;
mod environment;
mod fields;
mod inquiry;
mod volumes;

pub use command::{Command, command, expand};
pub use environment::{ApiServer, environment};
pub use inquiry::PodSourceInquiry;
pub use volumes::{FileContent, MAX_POD_BYTES, VolumeContent, VolumeFile, checked_path, volumes};

/// The result of looking up a ConfigMap or a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceLookup {
    /// The object was not read yet.
    Unknown,
    /// The object could not be read, for this reason.
    Failed(String),
    /// The object does not exist.
    Absent,
    /// The values of the object by key.
    Present(Arc<BTreeMap<String, Bytes>>),
}

/// Looks up ConfigMaps and Secrets.
pub trait Sources {
    /// Looks up one object.
    fn find(&self, key: &SourceKey) -> SourceLookup;
}

impl Sources for World {
    fn find(&self, key: &SourceKey) -> SourceLookup {
        let Some(state) = self.facts::<SourceObject>().get(key) else {
            return SourceLookup::Unknown;
        };
        match (state.value(), &state.failure) {
            // The last read data stays valid until something newer is read.
            (Some(SourceObject::Present(data)), _) => SourceLookup::Present(Arc::clone(data)),
            (Some(SourceObject::Absent), _) => SourceLookup::Absent,
            (None, Some(failure)) => SourceLookup::Failed(failure.message.clone()),
            (None, None) => SourceLookup::Unknown,
        }
    }
}

/// Looks up objects for pods without programs. The CA certificates of the API server, which every
/// pod references, are assumed to exist: they are not read, and no pod's start shall wait for them.
#[derive(Debug)]
pub struct SourcesWithoutPrograms<'a>(pub &'a World);

impl SourcesWithoutPrograms<'_> {
    fn assumes(key: &SourceKey) -> bool {
        key.kind == SourceKind::ConfigMap && key.name == ConfigMap::ROOT_CA_CONFIG_MAP
    }
}

impl Sources for SourcesWithoutPrograms<'_> {
    fn find(&self, key: &SourceKey) -> SourceLookup {
        match Self::assumes(key) {
            true => SourceLookup::Present(Arc::new([("ca.crt".to_owned(), Bytes::new())].into())),
            false => Sources::find(self.0, key),
        }
    }
}

/// Why something cannot be resolved now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// An object was not read yet.
    Pending,
    /// Something is invalid, with the message of a kubelet.
    Invalid(String),
}

/// The inputs of resolving.
#[derive(Clone, Copy)]
pub struct ResolveContext<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its node, for quantities that no container limits.
    pub node: Option<&'a Node>,
    /// ConfigMaps and Secrets.
    pub sources: &'a dyn Sources,
    /// Where containers reach the API server.
    pub api_server: Option<&'a ApiServer>,
}

impl std::fmt::Debug for ResolveContext<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Surroundings({})", self.pod.metadata.key())
    }
}

impl ResolveContext<'_> {
    fn key(&self, kind: SourceKind, name: &str) -> SourceKey {
        source_key(self.pod, kind, name)
    }

    /// Returns the values of an object; `None` when it is optional and missing.
    fn source_data(
        &self,
        kind: SourceKind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Arc<BTreeMap<String, Bytes>>>, Unresolved> {
        match self.sources.find(&self.key(kind, name)) {
            SourceLookup::Unknown => Err(Unresolved::Pending),
            SourceLookup::Failed(message) => {
                let what = kind.as_str();
                Err(Unresolved::Invalid(format!("failed to get {what} {name:?}: {message}")))
            }
            SourceLookup::Absent if optional => Ok(None),
            SourceLookup::Absent => {
                Err(Unresolved::Invalid(format!("{} {name:?} not found", kind.as_str())))
            }
            SourceLookup::Present(data) => Ok(Some(data)),
        }
    }
}

fn source_key(pod: &Pod, kind: SourceKind, name: &str) -> SourceKey {
    SourceKey { kind, namespace: pod.metadata.namespace.clone(), name: name.to_owned() }
}

/// Returns the ConfigMaps and Secrets that a pod references in variables and volumes.
#[must_use]
pub fn sources_of(pod: &Pod) -> BTreeSet<SourceKey> {
    use SourceKind::{ConfigMap as Map, Secret};
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let mut found: Vec<(SourceKind, &str)> = containers.flat_map(sources_of_container).collect();
    for volume in &pod.spec.volumes {
        found.extend(volume.secret.iter().map(|it| (Secret, it.secret_name.as_str())));
        found.extend(volume.config_map.iter().map(|it| (Map, it.name.as_str())));
        let projected = volume.projected.iter().flat_map(|it| &it.sources);
        for projection in projected {
            found.extend(projection.secret.iter().map(|it| (Secret, it.name.as_str())));
            found.extend(projection.config_map.iter().map(|it| (Map, it.name.as_str())));
        }
    }
    found.into_iter().map(|(kind, name)| source_key(pod, kind, name)).collect()
}

fn sources_of_container(container: &Container) -> Vec<(SourceKind, &str)> {
    use SourceKind::{ConfigMap as Map, Secret};
    let mut found = Vec::new();
    for variable in container.env.iter().filter_map(|it| it.value_from.as_deref()) {
        found.extend(variable.config_map_key_ref.iter().map(|it| (Map, it.name.as_str())));
        found.extend(variable.secret_key_ref.iter().map(|it| (Secret, it.name.as_str())));
    }
    for object in &container.env_from {
        found.extend(object.config_map_ref.iter().map(|it| (Map, it.name.as_str())));
        found.extend(object.secret_ref.iter().map(|it| (Secret, it.name.as_str())));
    }
    found
}

#[cfg(test)]
mod tests;
