//! Removing what is shared, as far as nobody else needs it.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_api::object::KINDS;
use gantry_process::clock::Moment;
use gantry_reconcile::ApiPath;
use serde_json::{Value, json};

use super::install::published_roles;
use super::report::{ObjectReport, Outcome};
use super::server::{POLL_INTERVAL, RequestError, Server};
use crate::definition::Definition;
use crate::finalizers::{self, Held, Which};
use crate::inventory::{FMA_GROUP, NODE_VIEW, ObjectKind, POLICIES, POLICY_BINDINGS};
use crate::manifest::Manifest;
use crate::node_view;
use crate::removal::{self, Decision, Force, Usage};

/// How things are removed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the caller: what is in it does not keep anything.
    pub namespace: String,
    /// Whether reasons to stay are listened to.
    pub force: Force,
    /// How long to wait until all is gone.
    pub timeout: Duration,
}

/// The objects of a group, as far as the caller may see them. Nothing is asked that needs more than
/// the right to list: which kinds there are is open to everybody.
///
/// # Errors
/// The server did not say.
pub async fn usage(server: &Server, group: &str, own: &str) -> Result<Usage, RequestError> {
    let mut usage = Usage::default();
    for (version, plural) in served(server, group).await? {
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

/// The collections of a group, each in one version. Definitions know best; who may not read them asks
/// what is served, which may lag behind by a moment.
async fn served(server: &Server, group: &str) -> Result<Vec<(String, String)>, RequestError> {
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
    server: &Server,
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
            0 => "nobody needs it".to_owned(),
            _ => format!("with the objects in {}", options.namespace),
        };
        lines.push(removed(server, kind, manifest.name(), decide, &why, deadline).await);
    }
    lines
}

/// Removes policies and their bindings.
pub async fn policies(server: &Server, options: &Options) -> Vec<ObjectReport> {
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
                removed(server, kind, name, decide, "nobody needs it", deadline).await
            }
            Err(fault) => ObjectReport::failed(kind, name, fault),
        };
        lines.push(line);
    }
    lines
}

/// Which bindings go with the roles.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// The release whose right to read nodes goes.
    pub release: Option<String>,
    /// The role for reading nodes.
    pub node_view: Option<String>,
    /// Whether the bindings of `view` that older charts made go too.
    pub old_views: bool,
}

/// Removes bindings, and then the published roles that nobody else is bound to.
pub async fn roles(server: &Server, bindings: &Bindings, options: &Options) -> Vec<ObjectReport> {
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
        lines.push(removed(server, kind, name, plain, "it was asked for", deadline).await);
    }
    let nodes = bindings.node_view.clone().unwrap_or_else(|| NODE_VIEW.to_owned());
    let published = published_roles();
    let published = published.iter().filter_map(|it| it["metadata"]["name"].as_str());
    for name in published.map(str::to_owned).chain([nodes]) {
        let bound = all.iter().filter(|it| it["roleRef"]["name"] == name.as_str());
        let bound = bound.filter_map(|it| it["metadata"]["name"].as_str());
        let bound: Vec<&str> = bound.filter(|it| !going.iter().any(|gone| gone == it)).collect();
        if !bound.is_empty() && options.force == Force::No {
            let why = format!("others are bound to it, by {}", bound.join(", "));
            lines.push(ObjectReport::new(role, &name, Outcome::Refused, why));
            continue;
        }
        lines.push(removed(server, role, &name, plain, "nobody is bound to it", deadline).await);
    }
    lines
}

fn plain(found: Option<&Value>) -> Decision {
    let Some(found) = found else { return Decision::Absent };
    let revision = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    Decision::Delete { resource_version: revision.to_owned() }
}

/// Removes an object if it may go, and waits until it is gone.
async fn removed(
    server: &Server,
    kind: ObjectKind,
    name: &str,
    decide: impl Fn(Option<&Value>) -> Decision,
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
            Decision::Absent if deleted => return line(Outcome::Deleted, why),
            Decision::Absent => return line(Outcome::Absent, "it is not there"),
            Decision::Keep(reasons) if !deleted => {
                let blind = reasons.iter().all(removal::Kept::is_blindness);
                let said: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                let said = format!("{}; --force removes it all the same", said.join("; "));
                let outcome = if blind { Outcome::Forbidden } else { Outcome::Refused };
                let mut line = line(outcome, &said);
                line.ask_for = blind.then(|| "gantry-viewer".to_owned());
                return line;
            }
            Decision::Delete { resource_version } if !deleted => {
                match server.delete(&path, &resource_version).await {
                    Ok(()) if server.is_dry_run() => return line(Outcome::Deleted, why),
                    Ok(()) => deleted = true,
                    Err(RequestError::Conflict(_) | RequestError::NotFound(_)) => {}
                    Err(fault) => return ObjectReport::failed(kind, name, &fault),
                }
            }
            // Whoever makes it again meanwhile is not us: it was deleted.
            Decision::Keep(_) | Decision::Delete { .. } => return line(Outcome::Deleted, why),
            Decision::Going if server.is_dry_run() => return line(Outcome::Deleted, "it is going"),
            Decision::Going => deleted = true,
        }
        if server.clock().moment() >= deadline {
            return line(Outcome::TimedOut, "it is still there");
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// A pod that was freed, or why not.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Freed {
    /// The pod and what holds it.
    #[serde(flatten)]
    pub held: Held,
    /// What became of it.
    pub outcome: Outcome,
    /// Why.
    pub why: String,
}

/// How often pods are looked at anew that somebody changed meanwhile.
const ATTEMPTS: u32 = 20;

/// Frees pods of a namespace from the finalizers of controllers that are gone. A dry run for
/// every pod comes first, so that nothing is begun that would be refused half-way.
///
/// # Errors
/// The pods cannot be listed, or the server refuses to free one of them.
pub async fn free_pods(
    server: &Server,
    namespace: &str,
    which: Which,
) -> Result<Vec<Freed>, RequestError> {
    let mut freed = Vec::new();
    let mut attempt = 1;
    loop {
        match free_once(server, namespace, which, &mut freed).await {
            // What was freed is seen to be free the next time.
            Err(RequestError::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
            Err(fault) => return Err(fault),
            Ok(()) => return Ok(freed),
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// Frees the pods of the caller's namespace, as [`free_pods`] does: a line for each.
pub async fn pod_finalizers(server: &Server, options: &Options) -> Vec<ObjectReport> {
    let which = match options.force {
        Force::Yes => Which::All,
        Force::No => Which::Deleted,
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
                RequestError::Forbidden(_) => Outcome::Forbidden,
                RequestError::Conflict(_)
                | RequestError::NotFound(_)
                | RequestError::Refused(_)
                | RequestError::NoAnswer(_) => Outcome::Failed,
            };
            let mut line = line("(all)", outcome, error.to_string());
            if outcome == Outcome::Forbidden {
                line.ask_for = Some("edit".to_owned());
            }
            vec![line]
        }
    }
}

async fn free_once(
    server: &Server,
    namespace: &str,
    which: Which,
    report: &mut Vec<Freed>,
) -> Result<(), RequestError> {
    let collection = ApiPath::collection("v1", namespace, "pods")?;
    let pods = server.list(&collection).await?;
    let (stuck, left) = finalizers::plan(&pods, which);
    let rehearsal = server.as_dry_run();
    for held in &stuck {
        rehearsal.merge(&collection.item(&held.pod)?, &without(held)).await?;
    }
    for held in stuck {
        if !server.is_dry_run() {
            server.merge(&collection.item(&held.pod)?, &without(&held)).await?;
        }
        let why = format!("freed of {}", held.remove.join(", "));
        report.push(Freed { held, outcome: Outcome::Changed, why });
    }
    for held in left {
        let why = "nobody has deleted it; --force frees it all the same".to_owned();
        report.push(Freed { held, outcome: Outcome::Skipped, why });
    }
    Ok(())
}

fn without(held: &Held) -> Value {
    json!({"metadata": {"resourceVersion": held.resource_version, "finalizers": held.keep}})
}

/// What is left in a cluster on purpose, when these parts were removed.
#[must_use]
pub fn stays(definitions: bool, policies: bool, roles: bool, namespace: &str) -> Vec<String> {
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
    stays.push(format!("namespace {namespace} and what is in it: it is yours"));
    stays
}
