//! Explains an object of any kind: its generic state and events, and what subsystems add.

use std::fmt::Write as _;

use anyhow::bail;
use gantry_api::kind::Kind;
use gantry_api::object::KINDS;
use gantry_controller::discovery::ResourceList;
use gantry_reconcile::{ApiPath, Key, Parameter, Resource, Scope, World};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation, Report};
use gantry_subsystem::settings::Values;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::cli::cluster_client::{ClusterClient, ClusterRequestError};
use crate::output::Output;
use crate::subsystems::SUBSYSTEMS;
use crate::up::STATUS_PATH;

/// The maximum number of events that are shown, the newest.
const MAX_EVENTS: usize = 10;

/// The explanation of one object.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct ObjectPage {
    /// Its kind.
    kind: String,
    /// Its namespace and name.
    object: String,
    /// Its phase or state, if it has one.
    state: Option<String>,
    /// Its conditions.
    conditions: Vec<Condition>,
    /// The state of its containers, if it is a pod.
    containers: Vec<String>,
    /// Why controllers hold it; absent if that cannot be read.
    held: Option<Vec<HeldReason>>,
    /// The events about it, the newest last.
    events: Vec<Event>,
    /// The explanations of the subsystems, by subsystem.
    subsystems: serde_json::Map<String, Value>,
    #[serde(skip)]
    sections: Vec<Explanation>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct HeldReason {
    controller: String,
    reason: String,
    message: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Event {
    at: String,
    r#type: String,
    reason: String,
    message: String,
    count: u64,
}

/// The object to explain.
#[derive(Debug)]
pub(super) struct ObjectReference<'a> {
    /// The kind as it was typed.
    pub(super) kind: &'a str,
    /// The name.
    pub(super) name: &'a str,
    /// The namespace, for kinds that have one.
    pub(super) namespace: &'a str,
}

/// Reads everything about an object.
pub(super) async fn explain(
    cluster: &ClusterClient,
    named: &ObjectReference<'_>,
    values: &Values,
    now: Timestamp,
    output: &mut Output,
) -> anyhow::Result<ObjectPage> {
    let resource = find_resource(cluster, named.kind).await?;
    let namespace = match resource.scope {
        Scope::Namespaced => named.namespace,
        Scope::Cluster => "",
    };
    let key = Key::new(namespace, named.name);
    let object = match cluster.get(&resource.path(&key)?).await {
        Err(ClusterRequestError::NotFound { .. }) => {
            let place = match resource.scope {
                Scope::Namespaced => format!(" -n {namespace}"),
                Scope::Cluster => String::new(),
            };
            bail!(
                "there is no {} {key}; `kubectl get {resource}{place}` lists them",
                resource.kind
            );
        }
        object => object?,
    };
    let held = held(cluster, &resource, &key, output).await?;
    let events = events(cluster, &resource, &key, output).await?;
    let mut page = ObjectPage::new(&resource.kind, &key, &object, held, events);
    let about = SectionSubject { key: &key, reports: &page.reports() };
    for subsystem in SUBSYSTEMS {
        let own = subsystem.explain.iter().filter(|it| is_about(it, &resource));
        for explain in own {
            let read = SectionWorld::read(cluster, explain, Some(&key), output).await?;
            if let Some(said) = read.section(explain, &about, values, now) {
                page.subsystems.insert(subsystem.name.to_owned(), said.facts.clone());
                page.sections.push(said);
            }
        }
    }
    Ok(page)
}

/// The object that sections are about.
struct SectionSubject<'a> {
    key: &'a Key,
    reports: &'a [Report],
}

impl ObjectPage {
    fn new(
        kind: &str,
        key: &Key,
        object: &Value,
        held: Option<Vec<HeldReason>>,
        events: Vec<Event>,
    ) -> Self {
        Self {
            kind: kind.to_owned(),
            object: key.to_string(),
            state: state(object),
            conditions: conditions(object),
            containers: containers(object),
            held,
            events,
            ..Self::default()
        }
    }

    /// Describes an object that was read, with the status page of `gantry up` if there is one and
    /// the events of its namespace.
    pub(in crate::cli) fn of_object(
        resource: &Resource,
        key: &Key,
        object: &Value,
        status: Option<&Value>,
        events: &[Value],
    ) -> Self {
        let held = status.map(|it| held_in(it, resource, key));
        let about = |it: &&Value| {
            let subject = &it["involvedObject"];
            subject["kind"] == resource.kind.as_ref() && subject["name"] == key.name()
        };
        let events = latest(events.iter().filter(about).cloned().collect());
        Self::new(&resource.kind, key, object, held, events)
    }

    /// Adds the section of a subsystem.
    pub(in crate::cli) fn explain_with(
        &mut self,
        page: &ExplainPage,
        read: &SectionWorld,
        key: &Key,
        values: &Values,
        now: Timestamp,
    ) {
        let about = SectionSubject { key, reports: &self.reports() };
        self.sections.extend(read.section(page, &about, values, now));
    }

    /// What controllers have reported: why they hold the object, or its warnings.
    fn reports(&self) -> Vec<Report> {
        let report = |reason: &String, message: &String| Report {
            reason: reason.clone(),
            message: message.clone(),
        };
        match &self.held {
            Some(held) => held.iter().map(|it| report(&it.reason, &it.message)).collect(),
            None => {
                let newest_first = self.events.iter().rev();
                let warnings = newest_first.filter(|it| it.r#type == "Warning");
                warnings.map(|it| report(&it.reason, &it.message)).collect()
            }
        }
    }

    /// Renders the explanation as text.
    pub(in crate::cli) fn text(&self) -> String {
        let Self { kind, object, state, conditions, containers, held, events, sections, .. } = self;
        let mut text = format!("{kind} {object}");
        if let Some(state) = state {
            // Writing to a `String` cannot fail.
            let _ = write!(text, ": {state}");
        }
        text.push('\n');
        let mut section = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = write!(text, "\n{title}\n");
                for line in lines {
                    let _ = writeln!(text, "  {line}");
                }
            }
        };
        let joined = |reason: &str, message: &str| match (reason, message) {
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        let conditions = conditions.iter().map(|it| {
            let why = joined(&it.reason, &it.message);
            format!("{}={}  {why}", it.r#type, it.status).trim_end().to_owned()
        });
        section("conditions", conditions.collect());
        section("containers", containers.clone());
        let held = held.iter().flatten();
        let held =
            held.map(|it| format!("{} ({})", joined(&it.reason, &it.message), it.controller));
        section("held", held.collect());
        for Explanation { title, lines, .. } in sections {
            section(title, lines.clone());
        }
        let events = events.iter().map(|it| {
            let times = if it.count > 1 { format!(" (x{})", it.count) } else { String::new() };
            format!("{}  {}  {}{times}", it.at, it.r#type, joined(&it.reason, &it.message))
        });
        section("events", events.collect());
        text
    }
}

/// Finds the resource for what the user typed: `pod`, `po`, `deviceclaims.devmgmtproto.k8s.io`.
async fn find_resource(cluster: &ClusterClient, word: &str) -> anyhow::Result<Resource> {
    let (name, group) = word.split_once('.').map_or((word, None), |(name, it)| (name, Some(it)));
    // If several groups have the name, Gantry's own kind is used.
    let own = |it: &&Kind| {
        let names = [it.kind, it.plural];
        names.iter().chain(it.short_names).any(|it| it.eq_ignore_ascii_case(name))
    };
    let own = KINDS.iter().find(own).filter(|_| group.is_none());
    let mut versions = Vec::new();
    versions.extend(own.map(Kind::api_version));
    if group.is_none() {
        versions.push("v1".to_owned());
    }
    let groups = cluster.get(&ApiPath::from_static("/apis")).await?;
    for served in groups["groups"].as_array().into_iter().flatten() {
        if group.is_none_or(|it| served["name"] == it) {
            let preferred = served["preferredVersion"]["groupVersion"].as_str();
            versions.extend(preferred.map(str::to_owned));
        }
    }
    for version in versions {
        let document = match cluster.get(&ApiPath::version(&version)?).await {
            Ok(document) => document,
            // An API group whose aggregated server is unavailable does not hide the others.
            Err(ClusterRequestError::NotFound { .. } | ClusterRequestError::Refused { .. }) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(found) = ResourceList::read(&version, &document)?.resource_called(name) {
            return Ok(found.resource);
        }
    }
    bail!("the cluster has no kind {word:?}; `kubectl api-resources` lists them")
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn state(object: &Value) -> Option<String> {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
        return Some(match names.as_slice() {
            [] => "being deleted".to_owned(),
            names => format!("being deleted; finalizers: {}", names.join(", ")),
        });
    }
    if object["kind"] == "Node" {
        let ready = conditions(object).into_iter().find(|it| it.r#type == "Ready");
        let is_ready = ready.is_some_and(|it| it.status == "True");
        return Some(if is_ready { "Ready" } else { "NotReady" }.to_owned());
    }
    let fields = ["/status/phase", "/status/state"].map(|it| text(object, it));
    fields.into_iter().find(|it| !it.is_empty())
}

/// Describes the state of the containers of a pod, one line per container.
fn containers(object: &Value) -> Vec<String> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let all = lists.iter().flat_map(|it| object["status"][it].as_array().into_iter().flatten());
    let ended = |it: &Value| {
        let (code, reason) = (&it["exitCode"], text(it, "/reason"));
        let message = match text(it, "/message") {
            message if message.is_empty() => String::new(),
            message => format!(": {}", message.trim_end()),
        };
        format!("terminated with exit code {code} ({reason}){message}")
    };
    let line = |it: &Value| {
        let state = &it["state"];
        let mut line = match (&state["waiting"], &state["running"], &state["terminated"]) {
            (waiting, _, _) if waiting.is_object() => {
                let (reason, message) = (text(waiting, "/reason"), text(waiting, "/message"));
                let colon = if message.is_empty() { "" } else { ": " };
                format!("waiting: {reason}{colon}{message}")
            }
            (_, running, _) if running.is_object() => match it["ready"] == true {
                true => "running, ready".to_owned(),
                false => "running, not ready".to_owned(),
            },
            (_, _, terminated) => ended(terminated),
        };
        let restarts = it["restartCount"].as_u64().unwrap_or(0);
        if restarts > 0 {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "; {restarts} restarts");
        }
        let last = &it["lastState"]["terminated"];
        if last.is_object() {
            let _ = write!(line, "; previous run {}", ended(last));
        }
        format!("{}  {line}", text(it, "/name"))
    };
    all.map(line).collect()
}

fn conditions(object: &Value) -> Vec<Condition> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = |it: &Value| Condition {
        r#type: text(it, "/type"),
        status: text(it, "/status"),
        reason: text(it, "/reason"),
        message: text(it, "/message"),
    };
    all.map(condition).collect()
}

/// Returns why the controllers of `gantry up` hold an object.
async fn held(
    cluster: &ClusterClient,
    resource: &Resource,
    key: &Key,
    output: &mut Output,
) -> Result<Option<Vec<HeldReason>>, ClusterRequestError> {
    let page = match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => page,
        // Only `gantry up` serves this path.
        Err(ClusterRequestError::NotFound { .. }) => return Ok(None),
        Err(ClusterRequestError::Forbidden { path, .. }) => {
            output.warning(format_args!(
                "may not read {path}: the reasons of controllers are not shown"
            ));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(Some(held_in(&page, resource, key)))
}

/// The reasons on the status page why controllers hold an object.
fn held_in(page: &Value, resource: &Resource, key: &Key) -> Vec<HeldReason> {
    let about = |it: &&Value| {
        it["resource"] == resource.to_string()
            && it["namespace"] == key.namespace()
            && it["name"] == key.name()
    };
    let all = page["held"].as_array().into_iter().flatten().filter(about);
    let reason = |it: &Value| HeldReason {
        controller: text(it, "/controller"),
        reason: text(it, "/reason"),
        message: text(it, "/message"),
    };
    all.map(reason).collect()
}

async fn events(
    cluster: &ClusterClient,
    resource: &Resource,
    key: &Key,
    output: &mut Output,
) -> anyhow::Result<Vec<Event>> {
    let selector =
        format!("involvedObject.kind={},involvedObject.name={}", resource.kind, key.name());
    // Events about cluster-scoped objects may be in any namespace.
    let path = ApiPath::collection("v1", key.namespace(), "events")?;
    let path = path.with(Parameter::FieldSelector(&selector));
    match cluster.items(&path).await {
        Ok(found) => Ok(latest(found)),
        Err(ClusterRequestError::Forbidden { .. }) => {
            output.warning("may not list events: none are shown");
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

/// The latest of these events, the newest last.
fn latest(mut found: Vec<Value>) -> Vec<Event> {
    let time = |it: &Value| {
        let fields = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
        let own = fields.map(|field| text(it, field)).into_iter().find(|it| !it.is_empty());
        own.unwrap_or_else(|| text(it, "/metadata/creationTimestamp"))
    };
    found.sort_by_cached_key(time);
    let skip = found.len().saturating_sub(MAX_EVENTS);
    let event = |it: &Value| Event {
        at: time(it),
        r#type: text(it, "/type"),
        reason: text(it, "/reason"),
        message: text(it, "/message"),
        count: it["series"]["count"].as_u64().or_else(|| it["count"].as_u64()).unwrap_or(1),
    };
    found.iter().skip(skip).map(event).collect()
}

/// Whether a section is about the objects of a kind.
fn is_about(page: &ExplainPage, resource: &Resource) -> bool {
    let own = (page.resource)();
    (&own.group, &own.plural) == (&resource.group, &resource.plural)
}

/// The objects that a section reads, and the kinds that could not be read.
pub(in crate::cli) struct SectionWorld {
    world: World,
    unread: Vec<Resource>,
}

impl SectionWorld {
    /// Reads the objects of a section. Where the section's own kind may not be listed, the object
    /// itself is read.
    pub(in crate::cli) async fn read(
        cluster: &ClusterClient,
        page: &ExplainPage,
        key: Option<&Key>,
        output: &mut Output,
    ) -> anyhow::Result<Self> {
        let own = (page.resource)();
        let world = World::new((page.kinds)());
        let mut unread = Vec::new();
        for kind in (page.kinds)() {
            let resource = kind.resource();
            let objects = match (cluster.items(&resource.collection("")?).await, key) {
                (Ok(objects), _) => objects,
                (Err(ClusterRequestError::NotFound { .. }), _) => Vec::new(),
                (Err(ClusterRequestError::Forbidden { .. }), Some(key)) if *resource == own => {
                    vec![cluster.get(&resource.path(key)?).await?]
                }
                (Err(ClusterRequestError::Forbidden { path, .. }), _) => {
                    output.warning(format_args!(
                        "may not read {path}: the explanation is incomplete"
                    ));
                    unread.push(resource.clone());
                    continue;
                }
                (Err(error), _) => return Err(error.into()),
            };
            let Some(store) = world.single_store_for(resource) else { continue };
            for object in objects {
                if let Err(error) = store.observe(&object.to_string()) {
                    output.warning(format_args!("{error}"));
                }
            }
        }
        Ok(Self { world, unread })
    }

    /// Evaluates the section for one object.
    fn section(
        &self,
        page: &ExplainPage,
        about: &SectionSubject<'_>,
        values: &Values,
        now: Timestamp,
    ) -> Option<Explanation> {
        let Self { world, unread } = self;
        let SectionSubject { key, reports } = *about;
        (page.explain)(&ExplainRequest { key, world, unread, reports, values, now })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_omits_unknown_facts() {
        let object = json!({"metadata": {}, "status": {"phase": "Pending", "conditions": [
            {"type": "Ready", "status": "False", "reason": "NoNode", "message": "no node fits"},
            {"type": "Fine", "status": "True"},
        ]}});
        let page = ObjectPage {
            kind: "Pod".to_owned(),
            object: "n/p".to_owned(),
            state: state(&object),
            conditions: conditions(&object),
            held: Some(vec![HeldReason {
                controller: "scheduler".to_owned(),
                reason: "Unschedulable".to_owned(),
                message: "0/3 nodes".to_owned(),
            }]),
            events: vec![Event {
                at: "2026-01-01T00:00:00Z".to_owned(),
                r#type: "Warning".to_owned(),
                reason: "FailedScheduling".to_owned(),
                message: "0/3".to_owned(),
                count: 2,
            }],
            ..ObjectPage::default()
        };
        let expected = "Pod n/p: Pending\n\nconditions\n  Ready=False  NoNode: no node fits\n  \
                        Fine=True\n\nheld\n  Unschedulable: 0/3 nodes (scheduler)\n\nevents\n  \
                        2026-01-01T00:00:00Z  Warning  FailedScheduling: 0/3 (x2)\n";
        assert_eq!(page.text(), expected);
        let bare =
            ObjectPage { kind: "A".to_owned(), object: "b".to_owned(), ..Default::default() };
        assert_eq!(bare.text(), "A b\n");
        let pod = json!({"kind": "Pod", "status": {"containerStatuses": [
            {"name": "a", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no port\n"}}},
            {"name": "b", "ready": true, "state": {"running": {}}},
        ]}});
        assert_eq!(
            containers(&pod),
            [
                "a  waiting: CrashLoopBackOff; 2 restarts; previous run terminated with exit \
                 code 1 (Error): no port",
                "b  running, ready"
            ]
        );
        let node = |status: &str| {
            json!({"kind": "Node", "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": status}]}})
        };
        assert_eq!(state(&node("Unknown")).unwrap(), "NotReady");
        assert_eq!(state(&node("True")).unwrap(), "Ready");
        let going = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["f"]}});
        assert_eq!(state(&going).unwrap(), "being deleted; finalizers: f");
    }
}
