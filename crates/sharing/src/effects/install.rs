//! Installs shared objects.

use std::time::Duration;

use gantry_process::clock::Moment;
use serde_json::Value;

use super::cluster_client::{ClusterClient, POLL_INTERVAL, RequestError};
use super::report::{ObjectOutcome, ObjectReport, desired_fields, difference};
use crate::admin_roles::admin_roles;
use crate::conditional_apply::{ApplyDecision, ApplyMode, ForeignVersions, SkipReason, decide};
use crate::definition::Definition;
use crate::inventory::{CLUSTER_ADMIN, ObjectKind};
use crate::manifest::Manifest;
use crate::merge::would_change;
use crate::{node_view, policies};

/// Options of installing definitions.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When they are applied.
    pub mode: ApplyMode,
    /// What happens to versions that this commit does not know.
    pub foreign: ForeignVersions,
    /// Whether to show what changes.
    pub diff: bool,
    /// How long to wait until all are served.
    pub timeout: Duration,
}

/// The role for reading nodes, and the installation it is bound to.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The name of the role.
    pub role: String,
    /// Whether the role is created or extended; otherwise it must exist.
    pub ensure: bool,
    /// The release and its namespace, to which the role is bound.
    pub release: Option<(String, String)>,
}

/// Installs definitions, and reports the outcome of each.
pub async fn definitions(
    server: &ClusterClient,
    wanted: &[Manifest],
    options: &Options,
) -> Vec<ObjectReport> {
    let deadline = server.clock().moment() + options.timeout;
    let mut lines = Vec::new();
    for manifest in wanted {
        lines.push(definition(server, manifest, options, deadline).await);
    }
    // All are applied before any is waited for: one that is not served does not delay the others.
    for (line, manifest) in lines.iter_mut().zip(wanted) {
        let settled = matches!(
            line.outcome,
            ObjectOutcome::Created | ObjectOutcome::Changed | ObjectOutcome::Unchanged
        );
        if settled && !server.is_dry_run() && options.mode != ApplyMode::Never {
            wait_established(server, manifest.name(), deadline, line).await;
        }
    }
    lines
}

async fn definition(
    server: &ClusterClient,
    manifest: &Manifest,
    options: &Options,
    deadline: Moment,
) -> ObjectReport {
    let kind = ObjectKind::CustomResourceDefinition;
    let name = manifest.name();
    let line = |outcome, why: String| ObjectReport::new(kind, name, outcome, why);
    loop {
        let found = match server.find(kind, name).await {
            Ok(found) => found,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        };
        let waiting = match decide(manifest, found.as_ref(), options.mode, options.foreign) {
            ApplyDecision::Leave(why) => return line(ObjectOutcome::Unchanged, why.to_string()),
            ApplyDecision::Refuse(refusal) => {
                return line(ObjectOutcome::Refused, refusal.to_string());
            }
            ApplyDecision::Wait => "it is being deleted",
            // An apply changes the managed fields, which would be a new revision each time.
            ApplyDecision::Apply(apply)
                if found
                    .as_ref()
                    .is_some_and(|found| !would_change(&found["spec"], &apply.object["spec"])) =>
            {
                return line(ObjectOutcome::Unchanged, SkipReason::Same.to_string());
            }
            ApplyDecision::Apply(apply) => match server.apply(kind, &apply.object).await {
                Ok(answer) => {
                    if let Err(fault) = server.disown(kind, &answer).await {
                        return ObjectReport::failed(kind, name, &fault);
                    }
                    let why = match apply.removes.is_empty() {
                        true => apply.why.to_string(),
                        false => format!("{}; removed {}", apply.why, apply.removes.join(", ")),
                    };
                    return write_report(server, kind, found.as_ref(), &answer, &why, options.diff);
                }
                // Another writer was first, or it was deleted: decide again by its current state.
                Err(RequestError::Conflict(_)) => {
                    "it is constantly changed by others; try again later"
                }
                Err(fault) => return ObjectReport::failed(kind, name, &fault),
            },
        };
        if server.clock().moment() >= deadline {
            return line(ObjectOutcome::TimedOut, waiting.to_owned());
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// Reports the outcome of writing an object.
fn write_report(
    server: &ClusterClient,
    kind: ObjectKind,
    before: Option<&Value>,
    after: &Value,
    why: &str,
    diff: bool,
) -> ObjectReport {
    let name = after["metadata"]["name"].as_str().unwrap_or_default();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let outcome = match before {
        None => ObjectOutcome::Created,
        // A dry run gives no new revision.
        Some(before) if server.is_dry_run() && desired_fields(before) == desired_fields(after) => {
            ObjectOutcome::Unchanged
        }
        Some(before) if !server.is_dry_run() && revision(before) == revision(after) => {
            ObjectOutcome::Unchanged
        }
        Some(_) => ObjectOutcome::Changed,
    };
    let diff = if diff { difference(before, after) } else { None };
    ObjectReport::new(kind, name, outcome, why).with_diff(diff)
}

/// Waits until a definition is served.
async fn wait_established(
    server: &ClusterClient,
    name: &str,
    deadline: Moment,
    line: &mut ObjectReport,
) {
    let kind = ObjectKind::CustomResourceDefinition;
    loop {
        let complaint = match server.find(kind, name).await {
            Ok(Some(object)) => {
                let read = Definition::read(&object);
                if read.established {
                    return;
                }
                read.complaint.unwrap_or_else(|| "the server does not serve it yet".to_owned())
            }
            Ok(None) => "it was deleted meanwhile".to_owned(),
            Err(fault) => {
                *line = ObjectReport::failed(kind, name, &fault);
                return;
            }
        };
        if server.clock().moment() >= deadline {
            *line = ObjectReport::new(
                kind,
                name,
                ObjectOutcome::TimedOut,
                format!("not served yet: {complaint}"),
            );
            return;
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// Applies policies and bindings, whatever exists.
pub async fn policies(server: &ClusterClient, wanted: &[Value], diff: bool) -> Vec<ObjectReport> {
    let named = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        policies::kind(object).map(|kind| (kind, name))
    };
    let all = || wanted.iter().filter_map(|it| Some((it, named(it)?)));
    if wanted.is_empty() {
        return Vec::new();
    }
    match server.get(&policies::DISCOVERY_PATH).await {
        Ok(answer) if policies::are_supported(answer.as_ref()) => {}
        Ok(_) => {
            let skip = |(_, (kind, name)): (&Value, (ObjectKind, String))| {
                ObjectReport::new(
                    kind,
                    &name,
                    ObjectOutcome::Skipped,
                    policies::UNSUPPORTED_MESSAGE,
                )
            };
            return all().map(skip).collect();
        }
        Err(fault) => {
            let fail = |(_, (kind, name)): (&Value, (ObjectKind, String))| {
                ObjectReport::failed(kind, &name, &fault)
            };
            return all().map(fail).collect();
        }
    }
    let mut lines = Vec::new();
    for (object, (kind, name)) in all() {
        lines.push(apply_object(server, kind, &name, object, "it is always applied", diff).await);
    }
    lines
}

/// Applies an object whatever exists; the current state is read only to report what changed.
async fn apply_object(
    server: &ClusterClient,
    kind: ObjectKind,
    name: &str,
    object: &Value,
    why: &str,
    diff: bool,
) -> ObjectReport {
    let before = match server.find(kind, name).await {
        Ok(before) => before,
        Err(fault) => return ObjectReport::failed(kind, name, &fault),
    };
    match server.apply(kind, object).await {
        Ok(after) => write_report(server, kind, before.as_ref(), &after, why, diff),
        Err(fault) => ObjectReport::failed(kind, name, &fault),
    }
}

/// All published roles, for administrators and for users.
#[must_use]
pub fn published_roles() -> Vec<Value> {
    let admin = admin_roles().into_iter().map(|role| role.object);
    admin.chain(gantry_api::roles::roles()).collect()
}

/// Installs the published roles, and the role for reading nodes.
pub async fn roles(server: &ClusterClient, nodes: &NodeView, diff: bool) -> Vec<ObjectReport> {
    let mut lines = Vec::new();
    for object in published_roles() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = "an administrator installs it";
        lines.push(apply_object(server, ObjectKind::ClusterRole, name, &object, why, diff).await);
    }
    if nodes.ensure {
        let decide = |found: Option<&Value>| node_view::decide(&nodes.role, found);
        lines.push(
            apply_with_retries(server, ObjectKind::ClusterRole, &nodes.role, decide, diff).await,
        );
    }
    if let Some((release, namespace)) = &nodes.release {
        let wanted = node_view::binding(release, namespace, &nodes.role);
        let name = node_view::binding_name(release);
        let decide = |found: Option<&Value>| node_view::decide_binding(&wanted, found);
        lines.push(
            apply_with_retries(server, ObjectKind::ClusterRoleBinding, &name, decide, diff).await,
        );
    }
    lines
}

/// Whether the caller may install roles; otherwise they are left to the administrator.
///
/// # Errors
/// The request failed.
pub async fn may_install_roles(server: &ClusterClient) -> Result<bool, RequestError> {
    server.is_allowed("patch", ObjectKind::ClusterRole, crate::admin_roles::FMA_CRD_ADMIN).await
}

/// The report about roles that are left to the administrator.
#[must_use]
pub fn left_to_administrator() -> Vec<ObjectReport> {
    let skip = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!("an administrator with ClusterRole {CLUSTER_ADMIN} has to install it");
        ObjectReport::new(ObjectKind::ClusterRole, name, ObjectOutcome::Skipped, why)
    };
    published_roles().iter().map(skip).collect()
}

/// How often the decision about an object that others change is repeated.
const MAX_APPLY_ATTEMPTS: u32 = 10;

async fn apply_with_retries(
    server: &ClusterClient,
    kind: ObjectKind,
    name: &str,
    decide: impl Fn(Option<&Value>) -> node_view::RoleDecision,
    diff: bool,
) -> ObjectReport {
    let line = |outcome, why: String| ObjectReport::new(kind, name, outcome, why);
    for _ in 0..MAX_APPLY_ATTEMPTS {
        let found = match server.find(kind, name).await {
            Ok(found) => found,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        };
        let (object, why) = match decide(found.as_ref()) {
            node_view::RoleDecision::Leave => {
                return line(ObjectOutcome::Unchanged, "it allows reading nodes".to_owned());
            }
            node_view::RoleDecision::Refuse(why) => {
                return line(ObjectOutcome::Refused, why.to_string());
            }
            node_view::RoleDecision::Create(object) => (object, "it did not exist"),
            node_view::RoleDecision::Extend(object) => (object, "it did not allow reading nodes"),
        };
        match server.apply(kind, &object).await {
            Ok(after) => return write_report(server, kind, found.as_ref(), &after, why, diff),
            Err(RequestError::Conflict(_)) => server.clock().sleep(POLL_INTERVAL).await,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        }
    }
    line(ObjectOutcome::TimedOut, "it is constantly changed by others; try again later".to_owned())
}

#[cfg(test)]
mod tests;
