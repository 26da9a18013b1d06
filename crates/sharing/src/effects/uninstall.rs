//! Removes shared objects that others do not need.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_api::object::KINDS;
use gantry_process::clock::Moment;
use gantry_reconcile::ApiPath;
use serde_json::{Value, json};

use super::cluster_client::{ClusterClient, POLL_INTERVAL, RequestError};
use super::install::published_roles;
use super::report::{ObjectOutcome, ObjectReport};
use crate::definition::Definition;
use crate::finalizers::{self, PodSelection, PodWithFinalizers};
use crate::inventory::{FMA_GROUP, NODE_VIEW, ObjectKind, POLICIES, POLICY_BINDINGS};
use crate::manifest::Manifest;
use crate::node_view;
use crate::removal::{self, RemovalDecision, RemovalForce, Usage};

/// Options of a removal.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the caller: objects in it are no reason to keep anything.
    pub namespace: String,
    /// Whether reasons to keep an object are overridden.
    pub force: RemovalForce,
    /// How long to wait until all objects are deleted.
    pub timeout: Duration,
}

/// The objects of a group, as far as the caller may list them. This needs only the permission to
/// list: every user may discover which kinds there are.
///
/// # Errors
/// The request failed.
pub async fn usage(server: &ClusterClient, group: &str, own: &str) -> Result<Usage, RequestError> {
    let mut usage = Usage::default();
    for (version, plural) in served_collections(server, group).await? {
        let api_version = format!("{group}/{version}");
        let path = ApiPath::collection(&api_version, "", &plural)?;
        match server.list(&path).await {
            Ok(objects) => usage.add(&objects),
            Err(RequestError::Forbidden(_)) => {
                usage.unseen.push(format!("{plural}.{group}"));
                let own = ApiPath::collection(&api_version, own, &plural)?;
                match server.list(&own).await {
                    Ok(objects) => usage.add(&objects),
                    Err(RequestError::Forbidden(_)) => {}
                    Err(fault) => return Err(fault),
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(usage)
}

/// The collections of a group, each in one version, from the definitions; for a caller that may not
/// read those, from discovery, which may lag behind by a moment.
async fn served_collections(
    server: &ClusterClient,
    group: &str,
) -> Result<Vec<(String, String)>, RequestError> {
    let mut kinds = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.group == group) {
        match server.find(ObjectKind::CustomResourceDefinition, &kind.crd_name()).await {
            Ok(Some(object)) => {
                if let Some(version) = Definition::read(&object).served() {
                    kinds.push((version.to_owned(), kind.plural.to_owned()));
                }
            }
            Ok(None) | Err(RequestError::Forbidden(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    let Some(answer) = server.get(&ApiPath::group(group)?).await? else { return Ok(kinds) };
    for version in answer["versions"].as_array().into_iter().flatten() {
        let version = version["version"].as_str().unwrap_or_default();
        let Some(list) = server.resources(&format!("{group}/{version}")).await? else { continue };
        for served in list.resources() {
            let plural = served.resource.plural;
            if !kinds.iter().any(|(_, known)| *known == plural) {
                kinds.push((version.to_owned(), plural.into_owned()));
            }
        }
    }
    Ok(kinds)
}

/// Removes definitions.
pub async fn definitions(
    server: &ClusterClient,
    wanted: &[Manifest],
    options: &Options,
) -> Vec<ObjectReport> {
    let kind = ObjectKind::CustomResourceDefinition;
    let deadline = server.clock().moment() + options.timeout;
    let mut known: BTreeMap<String, Usage> = BTreeMap::new();
    let mut lines = Vec::new();
    for manifest in wanted {
        let usage = match known.get(manifest.group()) {
            Some(usage) => usage.clone(),
            None => match usage(server, manifest.group(), &options.namespace).await {
                Ok(usage) => usage,
                Err(fault) => {
                    lines.push(ObjectReport::failed(kind, manifest.name(), &fault));
                    continue;
                }
            },
        };
        known.insert(manifest.group().to_owned(), usage.clone());
        let decide = |found: Option<&Value>| {
            removal::definition(manifest, found, &usage, &options.namespace, options.force)
        };
        let own = usage.namespaces.get(&options.namespace).copied().unwrap_or_default();
        let why = match own {
            0 => "no other namespace uses it".to_owned(),
            _ => format!("with the objects in {}", options.namespace),
        };
        lines.push(remove_object(server, kind, manifest.name(), decide, &why, deadline).await);
    }
    lines
}

/// Removes policies and their bindings.
pub async fn policies(server: &ClusterClient, options: &Options) -> Vec<ObjectReport> {
    let deadline = server.clock().moment() + options.timeout;
    let bindings = POLICY_BINDINGS.map(|name| (ObjectKind::ValidatingAdmissionPolicyBinding, name));
    let policies = POLICIES.map(|name| (ObjectKind::ValidatingAdmissionPolicy, name));
    let usage = usage(server, FMA_GROUP, &options.namespace).await;
    let mut lines = Vec::new();
    for (kind, name) in bindings.into_iter().chain(policies) {
        let line = match &usage {
            Ok(usage) => {
                let decide = |found: Option<&Value>| {
                    removal::policy(found, usage, &options.namespace, options.force)
                };
                remove_object(server, kind, name, decide, "no other namespace uses it", deadline)
                    .await
            }
            Err(fault) => ObjectReport::failed(kind, name, fault),
        };
        lines.push(line);
    }
    lines
}

/// The bindings to remove along with the roles.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// The release whose permission to read nodes is removed.
    pub release: Option<String>,
    /// The role for reading nodes.
    pub node_view: Option<String>,
    /// Whether the bindings of `view` that older charts created are removed too.
    pub old_views: bool,
}

/// Removes bindings, and then the published roles that have no other bindings.
pub async fn roles(
    server: &ClusterClient,
    bindings: &Bindings,
    options: &Options,
) -> Vec<ObjectReport> {
    let deadline = server.clock().moment() + options.timeout;
    let (kind, role) = (ObjectKind::ClusterRoleBinding, ObjectKind::ClusterRole);
    let all = match server.list(&kind.collection()).await {
        Ok(all) => all,
        Err(fault) => return vec![ObjectReport::failed(kind, "(all)", &fault)],
    };
    let mut going: Vec<String> =
        bindings.release.iter().map(|it| node_view::binding_name(it)).collect();
    if bindings.old_views {
        going.extend(node_view::view_bindings(&all).into_iter().map(|(name, _)| name));
    }
    let mut lines = Vec::new();
    for name in &going {
        lines.push(
            remove_object(server, kind, name, delete_if_present, "requested", deadline).await,
        );
    }
    let nodes = bindings.node_view.clone().unwrap_or_else(|| NODE_VIEW.to_owned());
    let published = published_roles();
    let published = published.iter().filter_map(|it| it["metadata"]["name"].as_str());
    for name in published.map(str::to_owned).chain([nodes]) {
        let bound = all.iter().filter(|it| it["roleRef"]["name"] == name.as_str());
        let bound = bound.filter_map(|it| it["metadata"]["name"].as_str());
        let bound: Vec<&str> = bound.filter(|it| !going.iter().any(|gone| gone == it)).collect();
        if !bound.is_empty() && options.force == RemovalForce::No {
            let why = format!("it is still bound by {}", bound.join(", "));
            lines.push(ObjectReport::new(role, &name, ObjectOutcome::Refused, why));
            continue;
        }
        lines.push(
            remove_object(
                server,
                role,
                &name,
                delete_if_present,
                "no binding refers to it",
                deadline,
            )
            .await,
        );
    }
    lines
}

fn delete_if_present(found: Option<&Value>) -> RemovalDecision {
    let Some(found) = found else { return RemovalDecision::NotFound };
    let revision = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    RemovalDecision::Delete { resource_version: revision.to_owned() }
}

/// Removes an object if the decision allows it, and waits until it is deleted.
async fn remove_object(
    server: &ClusterClient,
    kind: ObjectKind,
    name: &str,
    decide: impl Fn(Option<&Value>) -> RemovalDecision,
    why: &str,
    deadline: Moment,
) -> ObjectReport {
    let line = |outcome, why: &str| ObjectReport::new(kind, name, outcome, why);
    let path = match kind.path(name) {
        Ok(path) => path,
        Err(invalid) => return ObjectReport::failed(kind, name, &invalid.into()),
    };
    let mut deleted = false;
    loop {
        let found = match server.get(&path).await {
            Ok(found) => found,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        };
        match decide(found.as_ref()) {
            RemovalDecision::NotFound if deleted => return line(ObjectOutcome::Deleted, why),
            RemovalDecision::NotFound => return line(ObjectOutcome::Absent, "it does not exist"),
            RemovalDecision::Keep(reasons) if !deleted => {
                let blind = reasons.iter().all(removal::RetainReason::is_missing_permission);
                let said: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                let said = format!("{}; use --force to remove it anyway", said.join("; "));
                let outcome = if blind { ObjectOutcome::Forbidden } else { ObjectOutcome::Refused };
                let mut line = line(outcome, &said);
                line.ask_for = blind.then(|| "gantry-viewer".to_owned());
                return line;
            }
            RemovalDecision::Delete { resource_version } if !deleted => {
                match server.delete(&path, &resource_version).await {
                    Ok(()) if server.is_dry_run() => return line(ObjectOutcome::Deleted, why),
                    Ok(()) => deleted = true,
                    Err(RequestError::Conflict(_) | RequestError::NotFound(_)) => {}
                    Err(fault) => return ObjectReport::failed(kind, name, &fault),
                }
            }
            // If it exists again, another user has recreated it: ours was deleted.
            RemovalDecision::Keep(_) | RemovalDecision::Delete { .. } => {
                return line(ObjectOutcome::Deleted, why);
            }
            RemovalDecision::Terminating if server.is_dry_run() => {
                return line(ObjectOutcome::Deleted, "it is terminating");
            }
            RemovalDecision::Terminating => deleted = true,
        }
        if server.clock().moment() >= deadline {
            return line(ObjectOutcome::TimedOut, "it still exists");
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// A pod whose finalizers were removed, or why not.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FreedPod {
    /// The pod and its finalizers.
    #[serde(flatten)]
    pub held: PodWithFinalizers,
    /// The outcome.
    pub outcome: ObjectOutcome,
    /// The reason.
    pub why: String,
}

/// How often pods that were changed meanwhile are retried.
const MAX_FREE_ATTEMPTS: u32 = 20;

/// Removes the finalizers of deleted controllers from the pods of a namespace. A dry run for every
/// pod comes first, so that nothing is started that would be refused half-way.
///
/// # Errors
/// The pods cannot be listed, or the server refuses the change of one of them.
pub async fn free_pods(
    server: &ClusterClient,
    namespace: &str,
    which: PodSelection,
) -> Result<Vec<FreedPod>, RequestError> {
    let mut freed = Vec::new();
    let mut attempt = 1;
    loop {
        match free_once(server, namespace, which, &mut freed).await {
            // Pods without these finalizers are skipped the next time.
            Err(RequestError::Conflict(_)) if attempt < MAX_FREE_ATTEMPTS => attempt += 1,
            Err(fault) => return Err(fault),
            Ok(()) => return Ok(freed),
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// Removes the finalizers from the pods of the caller's namespace, as [`free_pods`] does: a line
/// for each.
pub async fn pod_finalizers(server: &ClusterClient, options: &Options) -> Vec<ObjectReport> {
    let which = match options.force {
        RemovalForce::Yes => PodSelection::All,
        RemovalForce::No => PodSelection::Terminating,
    };
    let line = |name: &str, outcome, why: String| ObjectReport {
        kind: "Pod".to_owned(),
        name: format!("{} -n {}", name, options.namespace),
        outcome,
        why,
        ask_for: None,
        diff: None,
    };
    match free_pods(server, &options.namespace, which).await {
        Ok(freed) => freed.into_iter().map(|it| line(&it.held.pod, it.outcome, it.why)).collect(),
        Err(error) => {
            let outcome = match &error {
                RequestError::Forbidden(_) => ObjectOutcome::Forbidden,
                RequestError::Conflict(_)
                | RequestError::NotFound(_)
                | RequestError::Refused(_)
                | RequestError::NoResponse(_) => ObjectOutcome::Failed,
            };
            let mut line = line("(all)", outcome, error.to_string());
            if outcome == ObjectOutcome::Forbidden {
                line.ask_for = Some("edit".to_owned());
            }
            vec![line]
        }
    }
}

async fn free_once(
    server: &ClusterClient,
    namespace: &str,
    which: PodSelection,
    report: &mut Vec<FreedPod>,
) -> Result<(), RequestError> {
    let collection = ApiPath::collection("v1", namespace, "pods")?;
    let pods = server.list(&collection).await?;
    let (stuck, left) = finalizers::plan(&pods, which);
    let rehearsal = server.as_dry_run();
    for held in &stuck {
        rehearsal.merge(&collection.item(&held.pod)?, &finalizer_patch(held)).await?;
    }
    for held in stuck {
        if !server.is_dry_run() {
            server.merge(&collection.item(&held.pod)?, &finalizer_patch(&held)).await?;
        }
        let why = format!("removed finalizers {}", held.remove.join(", "));
        report.push(FreedPod { held, outcome: ObjectOutcome::Changed, why });
    }
    for held in left {
        let why = "it is not being deleted; use --force to remove its finalizers anyway".to_owned();
        report.push(FreedPod { held, outcome: ObjectOutcome::Skipped, why });
    }
    Ok(())
}

fn finalizer_patch(held: &PodWithFinalizers) -> Value {
    json!({"metadata": {"resourceVersion": held.resource_version, "finalizers": held.keep}})
}

/// What is left in a cluster on purpose after these parts were removed.
#[must_use]
pub fn left_in_place(
    definitions: bool,
    policies: bool,
    roles: bool,
    namespace: &str,
) -> Vec<String> {
    let mut stays = Vec::new();
    if !definitions {
        stays.push("definitions: gantry uninstall crds".to_owned());
    }
    if !policies {
        stays.push("admission policies: gantry uninstall policies".to_owned());
    }
    if !roles {
        stays.push("ClusterRoles and bindings: gantry uninstall roles".to_owned());
    }
    stays.push(format!("namespace {namespace} and its content: it is yours to delete"));
    stays
}
