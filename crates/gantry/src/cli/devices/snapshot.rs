//! Reads the device objects of a cluster, once.

use anyhow::Context as _;
use gantry_api::decode::{self, Decoded};
use gantry_api::finding::Source;
use gantry_devices::schedule::Objects;
use gantry_reconcile::ApiPath;
use serde_json::Value;

use super::GROUP;
use crate::cli::cluster_client::{ClusterFlags, ClusterRequestError};
use crate::output::Output;

/// Cluster-scoped kinds.
const CLUSTER_WIDE: [&str; 3] = ["devicedrivers", "deviceclasses", "devicepools"];

/// Namespaced kinds. Claims of every namespace are read: all of them may hold devices.
const CLAIMS: [&str; 2] = ["deviceclaims", "deviceprivilegedclaims"];
const OTHER_NAMESPACED: [&str; 2] = ["deviceclaimtemplates", "poddevices"];

/// Reads the devices and nodes of a cluster, and a pod if one is named.
///
/// # Errors
/// The cluster does not respond, does not serve device kinds, or the caller may not read
/// them.
pub(in crate::cli) async fn read(
    reach: &ClusterFlags,
    namespace: &str,
    pod: Option<&str>,
    pod_may_be_missing: bool,
    output: &mut Output,
) -> anyhow::Result<Objects> {
    let cluster = reach.connect().await?;
    let mut objects = Objects::of(Source::Server);
    let version = format!("{GROUP}/v1alpha1");
    let everywhere = |kind: &str| ApiPath::collection(&version, "", kind);
    let within = |kind: &str| ApiPath::collection(&version, namespace, kind);
    for kind in CLUSTER_WIDE {
        let found = match cluster.items(&everywhere(kind)?).await {
            Err(error @ ClusterRequestError::NotFound { .. }) => {
                return Err(error).context(
                    "the cluster has no device kinds; install them with `gantry devices crds | \
                     kubectl apply --server-side -f -`",
                );
            }
            found => found?,
        };
        add(found, &mut objects, output);
    }
    for kind in CLAIMS {
        let found = match cluster.items(&everywhere(kind)?).await {
            Err(ClusterRequestError::Forbidden { .. }) => {
                output.warning(format_args!(
                    "may not list {kind} of all namespaces: devices allocated to claims in other \
                     namespaces may be shown as free"
                ));
                cluster.items(&within(kind)?).await?
            }
            found => found?,
        };
        add(found, &mut objects, output);
    }
    for kind in OTHER_NAMESPACED {
        add(cluster.items(&within(kind)?).await?, &mut objects, output);
    }
    for node in cluster.items(&ApiPath::from_static("/api/v1/nodes")).await? {
        objects.add(builtin_object(node, "Node"));
    }
    if let Some(pod) = pod {
        let path = ApiPath::object("v1", namespace, "pods", pod)?;
        match cluster.get(&path).await {
            Ok(pod) => {
                objects.add(builtin_object(pod, "Pod"));
            }
            Err(ClusterRequestError::NotFound { .. }) if pod_may_be_missing => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(objects)
}

/// Adds the objects that can be decoded, and warns about the others.
fn add(items: Vec<Value>, objects: &mut Objects, output: &mut Output) {
    for item in items {
        match decode::object(&item) {
            Ok((object, _)) => {
                objects.add(Decoded::Object(object));
            }
            Err(findings) => {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let kind = item["kind"].as_str().unwrap_or("object");
                let why = findings.errors.first().map(|it| format!("{}: {}", it.path, it.text));
                let why = why.unwrap_or_default();
                output
                    .warning(format_args!("{kind} {name} cannot be decoded and is ignored: {why}"));
            }
        }
    }
}

/// Decodes a built-in Kubernetes object. Items of a list do not repeat their kind.
fn builtin_object(mut object: Value, kind: &str) -> Decoded {
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    Decoded::Foreign(object)
}
