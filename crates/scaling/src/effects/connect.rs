//! Finds the service that manages the pools of this cluster, by the identity of the cluster.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_controller::read::{self, ReadBounds, ReadError};
use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, InvalidPath};
use kube::Client;
use serde_json::Value;

use super::{CallError, Endpoints, OcmClient, Pools, Secret};
use crate::subsystem::configuration::SecretReference;

/// The limits of one read.
const READ_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(30), bytes: 4 << 20 };

/// Why pools cannot be scaled.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration has a name that no object can have.
    #[error("cannot scale pools: {0}")]
    InvalidName(#[from] InvalidPath),
    /// The operator lacks the permission to read something.
    #[error("may not get {what}: give the operator's service account that right: {says}")]
    Forbidden {
        /// What could not be read.
        what: String,
        /// The message of the server.
        says: String,
    },
    /// Something could not be read.
    #[error("could not get {what}")]
    ReadFailed {
        /// What could not be read.
        what: String,
        /// The error.
        #[source]
        error: ReadError,
    },
    /// The Secret has no token.
    #[error("cannot scale pools: Secret {0} has no token; put one under `token`")]
    NoToken(String),
    /// The service did not identify the cluster.
    #[error(transparent)]
    Service(#[from] CallError),
}

impl Pools {
    /// Returns the pools of this cluster, with the token in a Secret.
    ///
    /// # Errors
    /// Fails if the Secret is missing or has no token, or the service does not manage the cluster:
    /// scaling could never work then.
    pub async fn connect(
        client: &Client,
        clock: &Clock,
        reference: &SecretReference,
        endpoints: Endpoints,
    ) -> Result<Self, ConnectError> {
        let SecretReference { namespace, name } = reference;
        let path = ApiPath::object("v1", namespace, "secrets", name)?;
        let what = format!("secrets {name} in namespace {namespace}");
        let secret = get(client, clock, &path, what).await?;
        let token = secret["data"]["token"].as_str().and_then(|it| STANDARD.decode(it).ok());
        let token = token.and_then(|it| Secret::new(&String::from_utf8_lossy(&it)));
        let token = token.ok_or_else(|| ConnectError::NoToken(format!("{namespace}/{name}")))?;
        let path = ApiPath::from_static("/apis/config.openshift.io/v1/clusterversions/version");
        let what = "clusterversions.config.openshift.io version".to_owned();
        let version = get(client, clock, &path, what).await?;
        let external = version["spec"]["clusterID"].as_str().unwrap_or_default();
        let ocm = OcmClient::new(clock.clone(), endpoints, token)?;
        let cluster = ocm.cluster(external).await?;
        tracing::info!(
            cluster = cluster.id, kind = ?cluster.kind,
            "scaling the pools of this cluster"
        );
        Ok(Self::new(ocm, cluster, clock.clone()))
    }
}

async fn get(
    client: &Client,
    clock: &Clock,
    path: &ApiPath,
    what: String,
) -> Result<Value, ConnectError> {
    let found = read::get(client, clock, path, READ_BOUNDS).await;
    found.map_err(|error| match error {
        error if error.is_forbidden() => ConnectError::Forbidden { what, says: error.to_string() },
        error => ConnectError::ReadFailed { what, error },
    })
}
