//! Shows the state of shared objects: versions, writers, namespaces that use them, what an
//! installation would change, and which permissions the caller lacks.

use std::fmt::Write as _;

use gantry_reconcile::ApiPath;
use serde::Serialize;

use super::cluster_client::{ClusterClient, RequestError};
use super::report::role_request_hint;
use super::source::InstallSource;
use super::uninstall::usage;
use crate::conditional_apply::{ApplyDecision, ApplyMode, ForeignVersions, decide};
use crate::definition::{Definition, Manager, managers};
use crate::inventory::{InventoryEntry, NODE_VIEW, ObjectKind, owner_role};
use crate::removal::Usage;
use crate::{node_view, policies};

/// The state of a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    server: String,
    version: String,
    groups: Vec<GroupStatus>,
    policies: PolicyStatus,
    node_view: ObjectStatus,
    /// Bindings by which older charts let controllers view everything; absent if the caller may not
    /// list bindings.
    view_bindings: Option<Vec<(String, String)>>,
    /// The permissions that the caller lacks, with the role that grants them.
    missing_rights: Vec<MissingPermission>,
    /// The inventory of all objects that may be shared, with its rules.
    inventory: Vec<SharedObject>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupStatus {
    group: String,
    definitions: Vec<KindStatus>,
    usage: Usage,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindStatus {
    name: String,
    wanted: String,
    present: LookupResult<Definition>,
    would: PlannedAction,
}

/// The result of reading an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum LookupResult<T> {
    Present(T),
    Absent,
    Forbidden,
}

/// What an installation would do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedAction {
    action: Action,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Leave,
    Apply,
    Refuse,
    Wait,
    Unknown,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyStatus {
    supported: bool,
    objects: Vec<ObjectStatus>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectStatus {
    kind: ObjectKind,
    name: String,
    present: LookupResult<Vec<Manager>>,
    would: PlannedAction,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MissingPermission {
    kind: ObjectKind,
    name: String,
    verbs: Vec<&'static str>,
    ask_for: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SharedObject {
    kind: ObjectKind,
    name: String,
    reason: &'static str,
    rule: &'static str,
    owner: &'static str,
}

/// The verbs that installing and removing an object by its name need. To apply an object that does
/// not exist needs two of them.
const VERBS: [&str; 4] = ["get", "patch", "create", "delete"];

/// Reads everything that this commit shares with others, and the inventory.
///
/// # Errors
/// The server does not respond.
pub async fn read_status(
    server: &ClusterClient,
    at: String,
    source: &InstallSource,
    mode: ApplyMode,
    foreign: ForeignVersions,
    own: &str,
    inventory: Vec<InventoryEntry>,
) -> Result<Status, RequestError> {
    let version = server.get(&ApiPath::from_static("/version")).await?.unwrap_or_default();
    let version = version["gitVersion"].as_str().unwrap_or("unknown version").to_owned();
    let mut groups: Vec<GroupStatus> = Vec::new();
    let mut missing = Vec::new();
    for manifest in &source.definitions {
        let kind = ObjectKind::CustomResourceDefinition;
        let (present, would) = match server.find(kind, manifest.name()).await {
            Ok(found) => {
                let would = planned_action(&decide(manifest, found.as_ref(), mode, foreign));
                (
                    found.map_or(LookupResult::Absent, |it| {
                        LookupResult::Present(Definition::read(&it))
                    }),
                    would,
                )
            }
            Err(RequestError::Forbidden(_)) => (LookupResult::Forbidden, unknown_action()),
            Err(fault) => return Err(fault),
        };
        check_permissions(server, kind, manifest.name(), &mut missing).await?;
        let name = manifest.name().to_owned();
        let shown = KindStatus { name, wanted: manifest.version().to_owned(), present, would };
        match groups.iter_mut().find(|it| it.group == manifest.group()) {
            Some(group) => group.definitions.push(shown),
            None => groups.push(GroupStatus {
                group: manifest.group().to_owned(),
                definitions: vec![shown],
                usage: usage(server, manifest.group(), own).await?,
            }),
        }
    }
    let supported = policies::are_supported(server.get(&policies::DISCOVERY_PATH).await?.as_ref());
    let mut objects = Vec::new();
    for object in &source.policies {
        let Some(kind) = policies::kind(object) else { continue };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let would = match supported {
            true => PlannedAction { action: Action::Apply, why: "it is always applied".to_owned() },
            false => PlannedAction {
                action: Action::Leave,
                why: policies::UNSUPPORTED_MESSAGE.to_owned(),
            },
        };
        objects.push(object_status(server, kind, name, |_| would.clone()).await?);
        if supported {
            check_permissions(server, kind, name, &mut missing).await?;
        }
    }
    let nodes = object_status(server, ObjectKind::ClusterRole, NODE_VIEW, |found| {
        let (action, why) = match node_view::decide(NODE_VIEW, found) {
            node_view::RoleDecision::Leave => (Action::Leave, "it allows reading nodes".to_owned()),
            node_view::RoleDecision::Create(_) => (Action::Apply, "it does not exist".to_owned()),
            node_view::RoleDecision::Extend(_) => {
                (Action::Apply, "it does not allow reading nodes".to_owned())
            }
            node_view::RoleDecision::Refuse(why) => (Action::Refuse, why.to_string()),
        };
        PlannedAction { action, why }
    })
    .await?;
    let view_bindings = match server.list(&ObjectKind::ClusterRoleBinding.collection()).await {
        Ok(bindings) => Some(node_view::view_bindings(&bindings)),
        Err(RequestError::Forbidden(_)) => None,
        Err(fault) => return Err(fault),
    };
    Ok(Status {
        server: at,
        version,
        groups,
        policies: PolicyStatus { supported, objects },
        node_view: nodes,
        view_bindings,
        missing_rights: missing,
        inventory: inventory.into_iter().map(shared_object).collect(),
    })
}

async fn object_status(
    server: &ClusterClient,
    kind: ObjectKind,
    name: &str,
    would: impl Fn(Option<&serde_json::Value>) -> PlannedAction,
) -> Result<ObjectStatus, RequestError> {
    let (present, would) = match server.find(kind, name).await {
        Ok(found) => {
            let would = would(found.as_ref());
            (found.map_or(LookupResult::Absent, |it| LookupResult::Present(managers(&it))), would)
        }
        Err(RequestError::Forbidden(_)) => (LookupResult::Forbidden, unknown_action()),
        Err(fault) => return Err(fault),
    };
    Ok(ObjectStatus { kind, name: name.to_owned(), present, would })
}

async fn check_permissions(
    server: &ClusterClient,
    kind: ObjectKind,
    name: &str,
    missing: &mut Vec<MissingPermission>,
) -> Result<(), RequestError> {
    let mut verbs = Vec::new();
    for verb in VERBS {
        if !server.is_allowed(verb, kind, name).await? {
            verbs.push(verb);
        }
    }
    if !verbs.is_empty() {
        missing.push(MissingPermission {
            kind,
            name: name.to_owned(),
            verbs,
            ask_for: owner_role(kind, name),
        });
    }
    Ok(())
}

fn planned_action(decision: &ApplyDecision) -> PlannedAction {
    let (action, why) = match decision {
        ApplyDecision::Leave(why) => (Action::Leave, why.to_string()),
        ApplyDecision::Apply(apply) => (Action::Apply, apply.why.to_string()),
        ApplyDecision::Refuse(why) => (Action::Refuse, why.to_string()),
        ApplyDecision::Wait => (Action::Wait, "it is being deleted".to_owned()),
    };
    PlannedAction { action, why }
}

fn unknown_action() -> PlannedAction {
    PlannedAction { action: Action::Unknown, why: "you may not read it".to_owned() }
}

fn shared_object(entry: InventoryEntry) -> SharedObject {
    let InventoryEntry { kind, name, reason, wins, owner } = entry;
    SharedObject { kind, name: name.to_string(), reason, rule: wins.rule(), owner }
}

impl Status {
    /// Renders the status for users.
    #[must_use]
    pub fn render(&self) -> String {
        let Self { server, version, groups, policies, node_view, view_bindings, .. } = self;
        let mut page = format!("cluster {server} ({version})\n");
        // Writing to a string does not fail.
        for GroupStatus { group, definitions, usage } in groups {
            let _ = writeln!(page, "{group}: {}", usage_summary(usage));
            for kind in definitions {
                let _ = writeln!(page, "  {kind}");
            }
        }
        let supported = if policies.supported { "served" } else { "not served by this cluster" };
        let _ = writeln!(page, "admission policies: {supported}");
        for object in &policies.objects {
            let _ = writeln!(page, "  {object}");
        }
        let _ = writeln!(page, "role for reading nodes:\n  {node_view}");
        match view_bindings.as_deref() {
            None => page.push_str("bindings of view: you may not list them\n"),
            Some([]) => {}
            Some(old) => {
                for (name, account) in old {
                    let _ = writeln!(
                        page,
                        "ClusterRoleBinding {name} lets {account} view everything, as older charts \
                         made it; remove it with: gantry uninstall roles --old-view-bindings"
                    );
                }
            }
        }
        self.render_rights(&mut page);
        page
    }

    fn render_rights(&self, page: &mut String) {
        let mut roles: Vec<&str> = self.missing_rights.iter().map(|it| it.ask_for).collect();
        roles.sort_unstable();
        roles.dedup();
        if roles.is_empty() {
            page.push_str("you have all permissions to install and remove these\n");
        }
        for role in roles {
            let count = self.missing_rights.iter().filter(|it| it.ask_for == role).count();
            let _ = writeln!(
                page,
                "you lack permissions on {count} objects; {}",
                role_request_hint(role)
            );
        }
    }
}

fn usage_summary(usage: &Usage) -> String {
    let place = |(name, count): (&String, &usize)| {
        let objects = if *count == 1 { "object" } else { "objects" };
        match name.as_str() {
            "" => format!("{count} {objects} cluster-scoped"),
            name => format!("{count} {objects} in {name}"),
        }
    };
    let mut said: Vec<String> = usage.namespaces.iter().map(place).collect();
    if !usage.unseen.is_empty() {
        said.push("other namespaces cannot be seen".to_owned());
    }
    if said.is_empty() { "not used".to_owned() } else { said.join(", ") }
}

impl std::fmt::Display for KindStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, wanted: _, present, would } = self;
        write!(f, "{name}: ")?;
        match present {
            LookupResult::Absent => f.write_str("absent")?,
            LookupResult::Forbidden => f.write_str("you may not read it")?,
            LookupResult::Present(read) => {
                let version = |it: &crate::definition::Version| {
                    let stored = if it.storage { " (stored)" } else { "" };
                    let served = if it.served { "" } else { " (not served)" };
                    format!("{}{stored}{served}", it.name)
                };
                let versions: Vec<_> = read.versions.iter().map(version).collect();
                let writers: Vec<_> = read.managers.iter().map(|it| it.name.as_str()).collect();
                write!(f, "{}", versions.join(", "))?;
                if !read.established {
                    f.write_str(", not established")?;
                }
                write!(f, "; written by {}", writers.join(", "))?;
            }
        }
        write!(f, "; install would {would}")
    }
}

impl std::fmt::Display for ObjectStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind: _, name, present, would } = self;
        write!(f, "{name}: ")?;
        match present {
            LookupResult::Absent => f.write_str("absent")?,
            LookupResult::Forbidden => f.write_str("you may not read it")?,
            LookupResult::Present(managers) => {
                let writers: Vec<_> = managers.iter().map(|it| it.name.as_str()).collect();
                write!(f, "written by {}", writers.join(", "))?;
            }
        }
        write!(f, "; install would {would}")
    }
}

impl std::fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { action, why } = self;
        match action {
            Action::Leave => write!(f, "leave it: {why}"),
            Action::Apply => write!(f, "apply it: {why}"),
            Action::Refuse => write!(f, "refuse: {why}"),
            Action::Wait => write!(f, "wait: {why}"),
            Action::Unknown => write!(f, "have an unknown effect: {why}"),
        }
    }
}
