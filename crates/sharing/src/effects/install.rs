//! Installing what is shared.

use std::time::Duration;

use gantry_process::clock::Moment;
use serde_json::Value;

use super::report::{ObjectReport, Outcome, difference, shown};
use super::server::{POLL_INTERVAL, RequestError, Server};
use crate::admin_roles::admin_roles;
use crate::conditional_apply::{Decision, Foreign, Left, Mode, decide};
use crate::definition::Definition;
use crate::inventory::{CLUSTER_ADMIN, ObjectKind};
use crate::manifest::Manifest;
use crate::merge::would_change;
use crate::{node_view, policies};

/// How definitions are installed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When they are applied.
    pub mode: Mode,
    /// What becomes of versions of others.
    pub foreign: Foreign,
    /// Whether to show what changes.
    pub diff: bool,
    /// How long to wait until all is in effect.
    pub timeout: Duration,
}

/// The right to read nodes, and whose controllers get it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The name of the role.
    pub role: String,
    /// Whether the role is made or extended; otherwise it is there.
    pub ensure: bool,
    /// The release and its namespace, to which the role is bound.
    pub release: Option<(String, String)>,
}

/// Installs definitions, one after the other: what became of each.
pub async fn definitions(
    server: &Server,
    wanted: &[Manifest],
    options: &Options,
) -> Vec<ObjectReport> {
    let deadline = server.clock().moment() + options.timeout;
    let mut lines = Vec::new();
    for manifest in wanted {
        lines.push(definition(server, manifest, options, deadline).await);
    }
    // All are applied before any is waited for: what keeps one from being served keeps no other back.
    for (line, manifest) in lines.iter_mut().zip(wanted) {
        let settled =
            matches!(line.outcome, Outcome::Created | Outcome::Changed | Outcome::Unchanged);
        if settled && !server.is_dry_run() && options.mode != Mode::Never {
            established(server, manifest.name(), deadline, line).await;
        }
    }
    lines
}

async fn definition(
    server: &Server,
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
            Decision::Leave(why) => return line(Outcome::Unchanged, why.to_string()),
            Decision::Refuse(refusal) => return line(Outcome::Refused, refusal.to_string()),
            Decision::Wait => "it is being deleted",
            // Who applies owns what is applied, which would be news for the server each time.
            Decision::Apply(apply)
                if found
                    .as_ref()
                    .is_some_and(|found| !would_change(&found["spec"], &apply.object["spec"])) =>
            {
                return line(Outcome::Unchanged, Left::Same.to_string());
            }
            Decision::Apply(apply) => match server.apply(kind, &apply.object).await {
                Ok(answer) => {
                    if let Err(fault) = server.disown(kind, &answer).await {
                        return ObjectReport::failed(kind, name, &fault);
                    }
                    let why = match apply.removes.is_empty() {
                        true => apply.why.to_string(),
                        false => format!("{}; removed {}", apply.why, apply.removes.join(", ")),
                    };
                    return written(server, kind, found.as_ref(), &answer, &why, options.diff);
                }
                // Somebody was in between, or it went away: what is true now decides.
                Err(RequestError::Conflict(_)) => "others change it all the time",
                Err(fault) => return ObjectReport::failed(kind, name, &fault),
            },
        };
        if server.clock().moment() >= deadline {
            return line(Outcome::TimedOut, waiting.to_owned());
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// What writing an object came to.
fn written(
    server: &Server,
    kind: ObjectKind,
    before: Option<&Value>,
    after: &Value,
    why: &str,
    diff: bool,
) -> ObjectReport {
    let name = after["metadata"]["name"].as_str().unwrap_or_default();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let outcome = match before {
        None => Outcome::Created,
        // A dry run gives no new revision.
        Some(before) if server.is_dry_run() && shown(before) == shown(after) => Outcome::Unchanged,
        Some(before) if !server.is_dry_run() && revision(before) == revision(after) => {
            Outcome::Unchanged
        }
        Some(_) => Outcome::Changed,
    };
    let diff = if diff { difference(before, after) } else { None };
    ObjectReport::new(kind, name, outcome, why).with_diff(diff)
}

/// Waits until a definition is served.
async fn established(server: &Server, name: &str, deadline: Moment, line: &mut ObjectReport) {
    let kind = ObjectKind::CustomResourceDefinition;
    loop {
        let complaint = match server.find(kind, name).await {
            Ok(Some(object)) => {
                let read = Definition::read(&object);
                if read.established {
                    return;
                }
                read.complaint.unwrap_or_else(|| "the server has not taken it up".to_owned())
            }
            Ok(None) => "somebody has deleted it".to_owned(),
            Err(fault) => {
                *line = ObjectReport::failed(kind, name, &fault);
                return;
            }
        };
        if server.clock().moment() >= deadline {
            *line = ObjectReport::new(
                kind,
                name,
                Outcome::TimedOut,
                format!("not served yet: {complaint}"),
            );
            return;
        }
        server.clock().sleep(POLL_INTERVAL).await;
    }
}

/// Applies policies and bindings, whatever is there.
pub async fn policies(server: &Server, wanted: &[Value], diff: bool) -> Vec<ObjectReport> {
    let named = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        policies::kind(object).map(|kind| (kind, name))
    };
    let all = || wanted.iter().filter_map(|it| Some((it, named(it)?)));
    if wanted.is_empty() {
        return Vec::new();
    }
    match server.get(&policies::DISCOVERY).await {
        Ok(answer) if policies::supported(answer.as_ref()) => {}
        Ok(_) => {
            let skip = |(_, (kind, name)): (&Value, (ObjectKind, String))| {
                ObjectReport::new(kind, &name, Outcome::Skipped, policies::UNSUPPORTED)
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
        lines.push(
            applied(server, kind, &name, object, "it is applied whatever is there", diff).await,
        );
    }
    lines
}

/// Applies an object without asking what is there, except to say what changed.
async fn applied(
    server: &Server,
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
        Ok(after) => written(server, kind, before.as_ref(), &after, why, diff),
        Err(fault) => ObjectReport::failed(kind, name, &fault),
    }
}

/// Every role that is published, for those who administer and for those who use.
#[must_use]
pub fn published_roles() -> Vec<Value> {
    let admin = admin_roles().into_iter().map(|role| role.object);
    admin.chain(gantry_api::roles::roles()).collect()
}

/// Installs the published roles, and the right to read nodes.
pub async fn roles(server: &Server, nodes: &NodeView, diff: bool) -> Vec<ObjectReport> {
    let mut lines = Vec::new();
    for object in published_roles() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = "it is the administrator's";
        lines.push(applied(server, ObjectKind::ClusterRole, name, &object, why, diff).await);
    }
    if nodes.ensure {
        let decide = |found: Option<&Value>| node_view::decide(&nodes.role, found);
        lines.push(settled(server, ObjectKind::ClusterRole, &nodes.role, decide, diff).await);
    }
    if let Some((release, namespace)) = &nodes.release {
        let wanted = node_view::binding(release, namespace, &nodes.role);
        let name = node_view::binding_name(release);
        let decide = |found: Option<&Value>| node_view::decide_binding(&wanted, found);
        lines.push(settled(server, ObjectKind::ClusterRoleBinding, &name, decide, diff).await);
    }
    lines
}

/// Whether the caller may install roles; others leave them to the administrator.
///
/// # Errors
/// The server did not say.
pub async fn may_install_roles(server: &Server) -> Result<bool, RequestError> {
    server.may("patch", ObjectKind::ClusterRole, crate::admin_roles::FMA_CRD_ADMIN).await
}

/// What is said of roles that are left to the administrator.
#[must_use]
pub fn left_to_administrator() -> Vec<ObjectReport> {
    let skip = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!("it is the administrator's, with ClusterRole {CLUSTER_ADMIN}");
        ObjectReport::new(ObjectKind::ClusterRole, name, Outcome::Skipped, why)
    };
    published_roles().iter().map(skip).collect()
}

/// How often an object that others change is decided about anew.
const ATTEMPTS: u32 = 10;

async fn settled(
    server: &Server,
    kind: ObjectKind,
    name: &str,
    decide: impl Fn(Option<&Value>) -> node_view::Decision,
    diff: bool,
) -> ObjectReport {
    let line = |outcome, why: String| ObjectReport::new(kind, name, outcome, why);
    for _ in 0..ATTEMPTS {
        let found = match server.find(kind, name).await {
            Ok(found) => found,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        };
        let (object, why) = match decide(found.as_ref()) {
            node_view::Decision::Leave => {
                return line(Outcome::Unchanged, "it lets nodes be read".to_owned());
            }
            node_view::Decision::Refuse(why) => return line(Outcome::Refused, why.to_string()),
            node_view::Decision::Create(object) => (object, "it was absent"),
            node_view::Decision::Extend(object) => (object, "it did not let nodes be read"),
        };
        match server.apply(kind, &object).await {
            Ok(after) => return written(server, kind, found.as_ref(), &after, why, diff),
            Err(RequestError::Conflict(_)) => server.clock().sleep(POLL_INTERVAL).await,
            Err(fault) => return ObjectReport::failed(kind, name, &fault),
        }
    }
    line(Outcome::TimedOut, "others change it all the time".to_owned())
}

#[cfg(test)]
mod tests;
