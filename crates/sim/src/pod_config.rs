//! What a container finds around it: variables, arguments, and files of volumes. Pure.
//!
//! Values come from the pod, its node, and the ConfigMaps and Secrets it names. Those are read one by one
//! ([`PodSources`]), so whoever resolves something may find that an object is not known yet, is missing, or
//! could not be read; a kubelet says the same in its events, and its words are used here.

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
pub use inquiry::PodSources;
pub use volumes::{FileContent, MAX_POD_BYTES, VolumeContent, VolumeFile, checked_path, volumes};

/// What is known of a ConfigMap or a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing yet.
    Unknown,
    /// It could not be read, for this reason.
    Failed(String),
    /// There is none.
    Absent,
    /// Its values by key.
    Present(Arc<BTreeMap<String, Bytes>>),
}

/// Knows ConfigMaps and Secrets.
pub trait Sources {
    /// What is known of one.
    fn find(&self, key: &SourceKey) -> Lookup;
}

impl Sources for World {
    fn find(&self, key: &SourceKey) -> Lookup {
        let Some(state) = self.facts::<SourceObject>().get(key) else { return Lookup::Unknown };
        match (state.value(), &state.failure) {
            // What was read once is good until something newer is read.
            (Some(SourceObject::Present(data)), _) => Lookup::Present(Arc::clone(data)),
            (Some(SourceObject::Absent), _) => Lookup::Absent,
            (None, Some(failure)) => Lookup::Failed(failure.message.clone()),
            (None, None) => Lookup::Unknown,
        }
    }
}

/// Objects as pods without programs need them. The certificates of the API server, which every pod names,
/// are taken to be there: nobody reads them, and no start of a pod shall wait for them.
#[derive(Debug)]
pub struct WithoutPrograms<'a>(pub &'a World);

impl WithoutPrograms<'_> {
    fn assumes(key: &SourceKey) -> bool {
        key.kind == SourceKind::ConfigMap && key.name == ConfigMap::ROOT_CERTIFICATES
    }
}

impl Sources for WithoutPrograms<'_> {
    fn find(&self, key: &SourceKey) -> Lookup {
        match Self::assumes(key) {
            true => Lookup::Present(Arc::new([("ca.crt".to_owned(), Bytes::new())].into())),
            false => Sources::find(self.0, key),
        }
    }
}

/// Why something cannot be resolved now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// An object was not read yet.
    Pending,
    /// Something is wrong, in the words of a kubelet.
    Fault(String),
}

/// What values are made of.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its node, for amounts that no container limits.
    pub node: Option<&'a Node>,
    /// ConfigMaps and Secrets.
    pub sources: &'a dyn Sources,
    /// Where containers reach the API server.
    pub api_server: Option<&'a ApiServer>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Surroundings({})", self.pod.metadata.key())
    }
}

impl Surroundings<'_> {
    fn key(&self, kind: SourceKind, name: &str) -> SourceKey {
        source(self.pod, kind, name)
    }

    /// The values of an object; none when it may be missing and is.
    fn object(
        &self,
        kind: SourceKind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Arc<BTreeMap<String, Bytes>>>, Unresolved> {
        match self.sources.find(&self.key(kind, name)) {
            Lookup::Unknown => Err(Unresolved::Pending),
            Lookup::Failed(message) => {
                let what = kind.as_str();
                Err(Unresolved::Fault(format!("failed to get {what} {name:?}: {message}")))
            }
            Lookup::Absent if optional => Ok(None),
            Lookup::Absent => {
                Err(Unresolved::Fault(format!("{} {name:?} not found", kind.as_str())))
            }
            Lookup::Present(data) => Ok(Some(data)),
        }
    }
}

fn source(pod: &Pod, kind: SourceKind, name: &str) -> SourceKey {
    SourceKey { kind, namespace: pod.metadata.namespace.clone(), name: name.to_owned() }
}

/// The ConfigMaps and Secrets that a pod names in variables and volumes.
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
    found.into_iter().map(|(kind, name)| source(pod, kind, name)).collect()
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
