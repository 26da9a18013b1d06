//! What pods run on.

use std::path::Path;

use ::http::StatusCode;
use gantry_process::clock::Clock;
use serde_json::json;

use super::{StartError, User, text};
use crate::http::{Protocol, Request};

/// The nodes of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// There are none, and pods stay where they are.
    #[default]
    None,
    /// So many, played by kwok: pods become Running and Ready, and no program is started for them.
    Simulated(u16),
}

impl Nodes {
    /// Their names.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Simulated(count) => (0..count).map(|nth| format!("node-{nth}")).collect(),
        }
    }
}

/// The flags of kwok: it plays every node there is.
pub(super) fn kwok(kubeconfig: &Path, stages: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", text(kubeconfig)),
        format!("--config={}", text(stages)),
        "--manage-all-nodes".to_owned(),
        "--node-lease-duration-seconds=40".to_owned(),
    ]
}

/// Registers the nodes, as their kubelets would.
pub(super) async fn create(admin: &User, clock: &Clock, count: u16) -> Result<(), StartError> {
    let client = admin.http(Protocol::Http1, clock.clone())?;
    for name in Nodes::Simulated(count).names() {
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
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
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
