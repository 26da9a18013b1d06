//! Whether a cluster serves the kinds of a controller: before it starts, and when a watch fails
//! later. Discovery is open to every user, so that no right on definitions is needed.

use std::time::Duration;

use anyhow::Context as _;
use gantry_api::kind::Kind;
use gantry_controller::ManagerHandle;
use gantry_controller::discovery::{self, DiscoveryError, ResourceList};
use gantry_controller::read::{self, ReadBounds};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::ApiPath;
use serde_json::Value;

/// The limits of one discovery request, and the delay before it is repeated when the server did not
/// answer.
const DISCOVERY_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 4 << 20 };
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How often discovery is repeated before the process gives up, so that it is restarted.
const MAX_DISCOVERY_ATTEMPTS: u32 = 30;
/// How often failures of watches are looked for.
const WATCH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A kind that must be served.
#[derive(Clone, Copy, Debug)]
pub struct NeededKind {
    /// The kind.
    pub kind: &'static Kind,
    /// Whether its status is written, so that it needs the subresource.
    pub status: bool,
}

/// The cluster does not serve what a controller needs; one line that says what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct MissingKinds(String);

/// What a server has of a group.
#[derive(Debug)]
struct ServedGroup {
    /// The resources of the version; `None` if the version is not served.
    resources: Option<ResourceList>,
    /// The versions that are served, if that one is not.
    versions: Vec<String>,
}

/// Returns what the cluster does not serve of these kinds. A server that does not answer is asked
/// again.
///
/// # Errors
/// It never answered.
pub(super) async fn missing(
    client: &kube::Client,
    clock: &Clock,
    kinds: &[NeededKind],
) -> anyhow::Result<Option<MissingKinds>> {
    let Some(first) = kinds.first() else { return Ok(None) };
    let mut attempt = 0;
    loop {
        attempt += 1;
        match served(client, clock, first.kind).await {
            Ok(served) => return Ok(message(kinds, first.kind, &served)),
            Err(error) if attempt >= MAX_DISCOVERY_ATTEMPTS || is_final(&error) => {
                let version = version(first.kind);
                return Err(error).with_context(|| format!("could not discover {version}"));
            }
            Err(error) => {
                tracing::warn!(%error, "could not discover the kinds; asks again");
                clock.sleep(DISCOVERY_RETRY_DELAY).await;
            }
        }
    }
}

/// Ends the process when kinds are no longer served: a watch that fails is the sign, discovery the
/// proof.
pub(super) fn watch(
    tasks: &mut Tasks,
    handle: &ManagerHandle,
    client: kube::Client,
    kinds: Vec<NeededKind>,
) {
    let (handle, clock) = (handle.clone(), tasks.clock().clone());
    tasks.spawn("kinds of the controllers", OnLoss::EndOwner, move |stop| async move {
        tokio::select! {
            // Either may be dropped: one only reads, the other only waits.
            () = stop.cancelled() => Ok(()),
            missing = until_missing(&handle, &clock, &client, &kinds) => Err(missing.into()),
        }
    });
}

async fn until_missing(
    handle: &ManagerHandle,
    clock: &Clock,
    client: &kube::Client,
    kinds: &[NeededKind],
) -> MissingKinds {
    loop {
        clock.sleep(WATCH_CHECK_INTERVAL).await;
        let errors = handle.cache_errors();
        let fails = |it: &NeededKind| {
            errors.keys().any(|at| at.group == it.kind.group && at.plural == it.kind.plural)
        };
        if !kinds.iter().any(fails) {
            continue;
        }
        let Some(first) = kinds.first() else { continue };
        match served(client, clock, first.kind).await {
            Ok(served) => {
                if let Some(missing) = message(kinds, first.kind, &served) {
                    return missing;
                }
            }
            // Watches fail for other reasons, too: a server that does not answer has all kinds.
            Err(error) => tracing::debug!(%error, "could not discover the kinds"),
        }
    }
}

fn version(kind: &Kind) -> String {
    format!("{}/{}", kind.group, kind.version)
}

async fn served(
    client: &kube::Client,
    clock: &Clock,
    kind: &Kind,
) -> Result<ServedGroup, DiscoveryError> {
    let resources = discovery::list(client, clock, &version(kind), DISCOVERY_BOUNDS).await?;
    let mut versions = Vec::new();
    if resources.is_none() {
        match read::get(client, clock, &ApiPath::group(kind.group)?, DISCOVERY_BOUNDS).await {
            Ok(group) => versions = versions_of(&group),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ServedGroup { resources, versions })
}

/// The versions in the discovery document of a group.
fn versions_of(group: &Value) -> Vec<String> {
    let versions = group["versions"].as_array().into_iter().flatten();
    versions.filter_map(|it| it["version"].as_str()).map(str::to_owned).collect()
}

/// Whether asking again cannot help.
fn is_final(error: &DiscoveryError) -> bool {
    match error {
        DiscoveryError::Refused { code, .. } => code.is_client_error(),
        DiscoveryError::NoResponse(_) | DiscoveryError::Malformed(_) => false,
        // What else there is are mistakes in a path.
        DiscoveryError::InvalidApiVersion(_) => true,
    }
}

fn message(kinds: &[NeededKind], first: &Kind, served: &ServedGroup) -> Option<MissingKinds> {
    let problem = |needed: &NeededKind| {
        let name = needed.kind.crd_name();
        let found = served.resources.as_ref().and_then(|it| it.resource_called(needed.kind.plural));
        match found {
            None => Some(name),
            Some(found) if needed.status && !found.resource.has_status => {
                Some(format!("{name} (its subresource status)"))
            }
            Some(_) => None,
        }
    };
    let missing: Vec<String> = kinds.iter().filter_map(problem).collect();
    if missing.is_empty() {
        return None;
    }
    let version = version(first);
    let what = match (&served.resources, served.versions.as_slice()) {
        (Some(_), _) => format!("the cluster does not serve these kinds in {version}"),
        (None, []) => format!("the cluster does not serve {version}"),
        (None, others) => {
            format!("the cluster does not serve {version}, only {}", others.join(", "))
        }
    };
    Some(MissingKinds(format!(
        "{what}: {}; ask an administrator to install them with: gantry crds | kubectl apply \
         --server-side -f -",
        missing.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use gantry_api::object::KINDS;
    use serde_json::json;

    use super::*;

    fn needed(plural: &str, status: bool) -> NeededKind {
        NeededKind { kind: KINDS.iter().find(|it| it.plural == plural).unwrap(), status }
    }

    fn list(names: &[&str]) -> ResourceList {
        let resources: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "kind": name, "namespaced": true, "verbs": []}))
            .collect();
        let document = json!({"resources": resources});
        ResourceList::read("fma.llm-d.ai/v1alpha1", &document).unwrap()
    }

    #[test]
    fn as_41_kinds_that_are_not_served_are_named_with_the_remedy() {
        let kinds = [needed("inferenceserverconfigs", false), needed("launcherconfigs", true)];
        let said = |resources: Option<ResourceList>, versions: &[&str]| {
            let versions = versions.iter().map(|it| (*it).to_owned()).collect();
            let found = message(&kinds, kinds[0].kind, &ServedGroup { resources, versions });
            found.map(|it| it.to_string()).unwrap_or_default()
        };
        let all = ["inferenceserverconfigs", "launcherconfigs", "launcherconfigs/status"];
        assert_eq!(said(Some(list(&all)), &[]), "");
        let one = said(Some(list(&all[1..])), &[]);
        let expected = "these kinds in fma.llm-d.ai/v1alpha1: inferenceserverconfigs.fma.llm-d.ai;";
        assert!(one.contains(expected), "{one}");
        let status = said(Some(list(&all[..2])), &[]);
        let expected = "v1alpha1: launcherconfigs.fma.llm-d.ai (its subresource status);";
        assert!(status.contains(expected), "{status}");
        let none = said(None, &[]);
        assert!(none.contains("does not serve fma.llm-d.ai/v1alpha1: inference"), "{none}");
        assert!(none.ends_with("gantry crds | kubectl apply --server-side -f -"), "{none}");
        let other = said(None, &["v1beta1", "v1"]);
        let expected = "does not serve fma.llm-d.ai/v1alpha1, only v1beta1, v1: inference";
        assert!(other.contains(expected), "{other}");
    }

    #[test]
    fn versions_are_read_from_the_group() {
        let group = json!({"kind": "APIGroup", "versions": [
            {"groupVersion": "g/v2", "version": "v2"}, {"groupVersion": "g/v1", "version": "v1"},
        ]});
        assert_eq!(versions_of(&group), ["v2", "v1"]);
        assert_eq!(versions_of(&json!({})), [""; 0]);
    }
}
