//! Who uses what is shared: versions, writers, namespaces, what an installation would change, and
//! which rights the caller lacks.

use std::fmt::Write as _;

use gantry_reconcile::ApiPath;
use serde::Serialize;

use super::report::request;
use super::server::{RequestError, Server};
use super::source::Source;
use super::uninstall::usage;
use crate::conditional_apply::{Decision, Foreign, Mode, decide};
use crate::definition::{Definition, Manager, managers};
use crate::inventory::{Entry, NODE_VIEW, ObjectKind, owner_of};
use crate::removal::Usage;
use crate::{node_view, policies};

/// What there is to say about a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    server: String,
    version: String,
    groups: Vec<Group>,
    policies: Policies,
    node_view: ObjectStatus,
    /// Bindings by which older charts let controllers view everything; none can be seen by those who
    /// may not list bindings.
    view_bindings: Option<Vec<(String, String)>>,
    /// What the caller may not do, with the role that lets them.
    missing_rights: Vec<Missing>,
    /// Everything that may be shared, with its rules.
    inventory: Vec<Shared>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    group: String,
    definitions: Vec<Kind>,
    usage: Usage,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    name: String,
    wanted: String,
    present: Observed<Definition>,
    would: Would,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Observed<T> {
    Present(T),
    Absent,
    Forbidden,
}

/// What an installation would do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Would {
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
struct Policies {
    supported: bool,
    objects: Vec<ObjectStatus>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectStatus {
    kind: ObjectKind,
    name: String,
    present: Observed<Vec<Manager>>,
    would: Would,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    kind: ObjectKind,
    name: String,
    verbs: Vec<&'static str>,
    ask_for: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shared {
    kind: ObjectKind,
    name: String,
    reason: &'static str,
    rule: &'static str,
    owner: &'static str,
}

/// The verbs that installing and removing an object by its name take. To apply what is absent takes
/// two of them.
const VERBS: [&str; 4] = ["get", "patch", "create", "delete"];

/// Looks at everything that this commit shares with others, and shows the inventory.
///
/// # Errors
/// The server does not answer.
pub async fn read_status(
    server: &Server,
    at: String,
    source: &Source,
    mode: Mode,
    foreign: Foreign,
    own: &str,
    inventory: Vec<Entry>,
) -> Result<Status, RequestError> {
    let version = server.get(&ApiPath::from_static("/version")).await?.unwrap_or_default();
    let version = version["gitVersion"].as_str().unwrap_or("unknown version").to_owned();
    let mut groups: Vec<Group> = Vec::new();
    let mut missing = Vec::new();
    for manifest in &source.definitions {
        let kind = ObjectKind::CustomResourceDefinition;
        let (present, would) = match server.find(kind, manifest.name()).await {
            Ok(found) => {
                let would = foresee(&decide(manifest, found.as_ref(), mode, foreign));
                (
                    found.map_or(Observed::Absent, |it| Observed::Present(Definition::read(&it))),
                    would,
                )
            }
            Err(RequestError::Forbidden(_)) => (Observed::Forbidden, unknown()),
            Err(fault) => return Err(fault),
        };
        rights(server, kind, manifest.name(), &mut missing).await?;
        let name = manifest.name().to_owned();
        let shown = Kind { name, wanted: manifest.version().to_owned(), present, would };
        match groups.iter_mut().find(|it| it.group == manifest.group()) {
            Some(group) => group.definitions.push(shown),
            None => groups.push(Group {
                group: manifest.group().to_owned(),
                definitions: vec![shown],
                usage: usage(server, manifest.group(), own).await?,
            }),
        }
    }
    let supported = policies::supported(server.get(&policies::DISCOVERY).await?.as_ref());
    let mut objects = Vec::new();
    for object in &source.policies {
        let Some(kind) = policies::kind(object) else { continue };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let would = match supported {
            true => Would { action: Action::Apply, why: "applied whatever is there".to_owned() },
            false => Would { action: Action::Leave, why: policies::UNSUPPORTED.to_owned() },
        };
        objects.push(found(server, kind, name, |_| would.clone()).await?);
        if supported {
            rights(server, kind, name, &mut missing).await?;
        }
    }
    let nodes = found(server, ObjectKind::ClusterRole, NODE_VIEW, |found| {
        let (action, why) = match node_view::decide(NODE_VIEW, found) {
            node_view::Decision::Leave => (Action::Leave, "it lets nodes be read".to_owned()),
            node_view::Decision::Create(_) => (Action::Apply, "it is absent".to_owned()),
            node_view::Decision::Extend(_) => {
                (Action::Apply, "it does not let nodes be read".to_owned())
            }
            node_view::Decision::Refuse(why) => (Action::Refuse, why.to_string()),
        };
        Would { action, why }
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
        policies: Policies { supported, objects },
        node_view: nodes,
        view_bindings,
        missing_rights: missing,
        inventory: inventory.into_iter().map(shared).collect(),
    })
}

async fn found(
    server: &Server,
    kind: ObjectKind,
    name: &str,
    would: impl Fn(Option<&serde_json::Value>) -> Would,
) -> Result<ObjectStatus, RequestError> {
    let (present, would) = match server.find(kind, name).await {
        Ok(found) => {
            let would = would(found.as_ref());
            (found.map_or(Observed::Absent, |it| Observed::Present(managers(&it))), would)
        }
        Err(RequestError::Forbidden(_)) => (Observed::Forbidden, unknown()),
        Err(fault) => return Err(fault),
    };
    Ok(ObjectStatus { kind, name: name.to_owned(), present, would })
}

async fn rights(
    server: &Server,
    kind: ObjectKind,
    name: &str,
    missing: &mut Vec<Missing>,
) -> Result<(), RequestError> {
    let mut verbs = Vec::new();
    for verb in VERBS {
        if !server.may(verb, kind, name).await? {
            verbs.push(verb);
        }
    }
    if !verbs.is_empty() {
        missing.push(Missing { kind, name: name.to_owned(), verbs, ask_for: owner_of(kind, name) });
    }
    Ok(())
}

fn foresee(decision: &Decision) -> Would {
    let (action, why) = match decision {
        Decision::Leave(why) => (Action::Leave, why.to_string()),
        Decision::Apply(apply) => (Action::Apply, apply.why.to_string()),
        Decision::Refuse(why) => (Action::Refuse, why.to_string()),
        Decision::Wait => (Action::Wait, "it is being deleted".to_owned()),
    };
    Would { action, why }
}

fn unknown() -> Would {
    Would { action: Action::Unknown, why: "it may not be read".to_owned() }
}

fn shared(entry: Entry) -> Shared {
    let Entry { kind, name, reason, wins, owner } = entry;
    Shared { kind, name: name.to_string(), reason, rule: wins.rule(), owner }
}

impl Status {
    /// For people.
    #[must_use]
    pub fn render(&self) -> String {
        let Self { server, version, groups, policies, node_view, view_bindings, .. } = self;
        let mut page = format!("cluster {server} ({version})\n");
        // Writing to a string does not fail.
        for Group { group, definitions, usage } in groups {
            let _ = writeln!(page, "{group}: {}", used(usage));
            for kind in definitions {
                let _ = writeln!(page, "  {kind}");
            }
        }
        let supported = if policies.supported { "served" } else { "not served by this cluster" };
        let _ = writeln!(page, "admission policies: {supported}");
        for object in &policies.objects {
            let _ = writeln!(page, "  {object}");
        }
        let _ = writeln!(page, "reading nodes:\n  {node_view}");
        match view_bindings.as_deref() {
            None => page.push_str("bindings of view: may not be listed\n"),
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
            page.push_str("you have every right to install and remove these\n");
        }
        for role in roles {
            let count = self.missing_rights.iter().filter(|it| it.ask_for == role).count();
            let _ = writeln!(page, "you lack rights on {count} objects; {}", request(role));
        }
    }
}

fn used(usage: &Usage) -> String {
    let place = |(name, count): (&String, &usize)| {
        let objects = if *count == 1 { "object" } else { "objects" };
        match name.as_str() {
            "" => format!("{count} {objects} in no namespace"),
            name => format!("{count} {objects} in {name}"),
        }
    };
    let mut said: Vec<String> = usage.namespaces.iter().map(place).collect();
    if !usage.unseen.is_empty() {
        said.push("other namespaces cannot be seen".to_owned());
    }
    if said.is_empty() { "not used".to_owned() } else { said.join(", ") }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, wanted: _, present, would } = self;
        write!(f, "{name}: ")?;
        match present {
            Observed::Absent => f.write_str("absent")?,
            Observed::Forbidden => f.write_str("may not be read")?,
            Observed::Present(read) => {
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
            Observed::Absent => f.write_str("absent")?,
            Observed::Forbidden => f.write_str("may not be read")?,
            Observed::Present(managers) => {
                let writers: Vec<_> = managers.iter().map(|it| it.name.as_str()).collect();
                write!(f, "written by {}", writers.join(", "))?;
            }
        }
        write!(f, "; install would {would}")
    }
}

impl std::fmt::Display for Would {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { action, why } = self;
        match action {
            Action::Leave => write!(f, "leave it: {why}"),
            Action::Apply => write!(f, "apply it: {why}"),
            Action::Refuse => write!(f, "refuse: {why}"),
            Action::Wait => write!(f, "wait: {why}"),
            Action::Unknown => write!(f, "do what is not known: {why}"),
        }
    }
}
