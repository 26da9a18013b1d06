//! Programs that really run, in this process.

use gantry_reconcile::world::Tag;
use gantry_reconcile::{Key, Meta, Resource, Uid, View};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

/// What became of the program of one container.
///
/// No server knows of these: who runs programs puts them on their shelf by
/// [`Shelf::set`](gantry_reconcile::Shelf::set). The metadata is that of the pod, but for the name,
/// which the container is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Which program this is: [`Program::key`], and the identity of the pod.
    pub metadata: Meta,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// Which run of the container: how often it had been started again.
    pub run: i64,
    /// What it does.
    pub state: ProgramState,
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It runs, and listens where it should.
    Running,
    /// It has ended.
    Exited {
        /// What it answered; zero is well.
        code: i64,
        /// When.
        at: Timestamp,
    },
}

impl Program {
    /// The program of a container of the pod with this key and identity.
    #[must_use]
    pub fn new(pod: &Key, uid: &Uid, container: &str, run: i64, state: ProgramState) -> Self {
        let key = Self::key(pod, container);
        let metadata = Meta {
            name: key.name().to_owned(),
            namespace: key.namespace().to_owned(),
            uid: uid.clone(),
            ..Meta::default()
        };
        let (pod, container) = (pod.name().to_owned(), container.to_owned());
        Self { metadata, pod, container, run, state }
    }

    /// Where the program of a container is filed. No pod's name has a slash.
    #[must_use]
    pub fn key(pod: &Key, container: &str) -> Key {
        pod.beside(&format!("{}/{container}", pod.name()))
    }

    /// What the programs of a pod are filed under.
    #[must_use]
    pub fn of_pod(pod: &Key) -> Tag {
        Tag { index: "pod", value: pod.to_string() }
    }
}

impl View for Program {
    /// A kind that no server serves.
    const RESOURCE: Resource =
        Resource::namespaced("local.gantry.dev", "v1", "programs", "Program").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        vec![Self::of_pod(&Key::new(&self.metadata.namespace, &self.pod))]
    }
}

impl<'de> Deserialize<'de> for Program {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("programs are told by who runs them, never by a server"))
    }
}
