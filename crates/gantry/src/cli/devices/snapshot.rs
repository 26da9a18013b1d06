//! What a cluster has of devices, read once.

use anyhow::Context as _;
use gantry_api::decode::{self, Decoded};
use gantry_api::finding::Source;
use gantry_devices::schedule::Objects;
use gantry_reconcile::ApiPath;
use serde_json::Value;

use super::GROUP;
use crate::cli::reach::{AskError, Reach};
use crate::output::Output;

/// Kinds that are in no namespace.
const CLUSTER_WIDE: [&str; 3] = ["devicedrivers", "deviceclasses", "devicepools"];

/// Kinds that are in one. Claims of every namespace are read: all of them hold devices.
const CLAIMS: [&str; 2] = ["deviceclaims", "deviceprivilegedclaims"];
const BESIDES: [&str; 2] = ["deviceclaimtemplates", "poddevices"];

/// Reads the devices and nodes of a cluster, and a pod if one is named.
///
/// # Errors
/// The cluster does not answer, has no devices at all, or does not show them to the caller.
pub(in crate::cli) async fn read(
    reach: &Reach,
    namespace: &str,
    pod: Option<&str>,
    pod_may_be_missing: bool,
    output: &mut Output,
) -> anyhow::Result<Objects> {
    let cluster = reach.reach().await?;
    let mut objects = Objects::of(Source::Server);
    let version = format!("{GROUP}/v1alpha1");
    let everywhere = |kind: &str| ApiPath::collection(&version, "", kind);
    let within = |kind: &str| ApiPath::collection(&version, namespace, kind);
    for kind in CLUSTER_WIDE {
        let found = match cluster.items(&everywhere(kind)?).await {
            Err(error @ AskError::Absent { .. }) => {
                return Err(error).context(
                    "the cluster has no kinds of devices; install them with `gantry devices crds | \
                     kubectl apply --server-side -f -`",
                );
            }
            found => found?,
        };
        add(found, &mut objects, output);
    }
    for kind in CLAIMS {
        let found = match cluster.items(&everywhere(kind)?).await {
            Err(AskError::Forbidden { .. }) => {
                output.warning(format_args!(
                    "may not read {kind} of all namespaces: devices that only their claims know to \
                     be used are taken for free"
                ));
                cluster.items(&within(kind)?).await?
            }
            found => found?,
        };
        add(found, &mut objects, output);
    }
    for kind in BESIDES {
        add(cluster.items(&within(kind)?).await?, &mut objects, output);
    }
    for node in cluster.items(&ApiPath::from_static("/api/v1/nodes")).await? {
        objects.add(foreign(node, "Node"));
    }
    if let Some(pod) = pod {
        let path = ApiPath::object("v1", namespace, "pods", pod)?;
        match cluster.get(&path).await {
            Ok(pod) => {
                objects.add(foreign(pod, "Pod"));
            }
            Err(AskError::Absent { .. }) if pod_may_be_missing => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(objects)
}

/// Adds what can be read, and says what cannot.
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
                output.warning(format_args!("{kind} {name} cannot be read and is left out: {why}"));
            }
        }
    }
}

/// An object of Kubernetes' own. Lists of them do not repeat what they are.
fn foreign(mut object: Value, kind: &str) -> Decoded {
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    Decoded::Foreign(object)
}
