//! The nodes of a cluster.

use std::path::Path;

use ::http::StatusCode;
use gantry_process::clock::Clock;
use serde_json::{Value, json};

use super::machine::Machine;
use super::{StartError, text};
use crate::http::{Client, Protocol, Request, Target};
use crate::programs::Programs;

/// The nodes of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// There are none, and pods stay pending.
    #[default]
    None,
    /// So many nodes simulated by kwok: pods become Running and Ready, and no program is started
    /// for them.
    Simulated(u16),
    /// One node, with a real kubelet and containerd on this machine. It has the image [`IMAGE`],
    /// and all its pods use the network of the machine. Not every machine supports it: see
    /// [`NodeRequirementError`](super::NodeRequirementError).
    ///
    /// [`IMAGE`]: super::IMAGE
    Real,
}

impl Nodes {
    /// Returns their names.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let count = match self {
            Self::None => 0,
            Self::Simulated(count) => count,
            Self::Real => 1,
        };
        (0..count).map(|nth| format!("node-{nth}")).collect()
    }

    /// Checks whether this machine supports them, which a start also does.
    ///
    /// # Errors
    /// [`StartError::Unfit`] has the reason.
    pub fn check(self) -> Result<(), StartError> {
        if self == Self::Real {
            Machine::check(&Programs::find()?)?;
        }
        Ok(())
    }

    fn annotations(self) -> Value {
        match self {
            Self::None | Self::Real => Value::Null,
            Self::Simulated(_) => json!({"kwok.x-k8s.io/node": "fake"}),
        }
    }

    /// The status of a node before its kubelet reports it: a real one is on loopback.
    fn status(self) -> Value {
        match self {
            Self::None | Self::Simulated(_) => Value::Null,
            Self::Real => json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}),
        }
    }
}

/// Returns the flags of kwok: it simulates every node there is.
pub(super) fn kwok(kubeconfig: &Path, stages: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", text(kubeconfig)),
        format!("--config={}", text(stages)),
        "--manage-all-nodes".to_owned(),
        "--node-lease-duration-seconds=40".to_owned(),
    ]
}

/// Registers the nodes, as their kubelets would.
pub(super) async fn create(admin: &Target, clock: &Clock, nodes: Nodes) -> Result<(), StartError> {
    let client = Client::new(admin, Protocol::Http1, clock.clone())?;
    for name in nodes.names() {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                },
                "annotations": nodes.annotations(),
            },
            "status": nodes.status(),
        });
        let answer = match client.send(Request::post("/api/v1/nodes", &node)).await {
            Ok(answer) if answer.status == StatusCode::CREATED => continue,
            Ok(answer) => answer.text(),
            Err(error) => format!("{error}: {}", error.cause),
        };
        return Err(StartError::Refused { what: format!("node {name}"), answer });
    }
    Ok(())
}
