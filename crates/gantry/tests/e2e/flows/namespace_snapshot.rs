//! A snapshot of a namespace: its objects without random values, and the events about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Protocol, Request, Target};
use regex::Regex;
use serde_json::{Map, Value, json};

use super::{CONVERGENCE_TIMEOUT, POLL_INTERVAL};

/// Every kind that a flow may create.
const COLLECTIONS: [(&str, &str); 14] = [
    ("/api/v1", "services"),
    ("/api/v1", "endpoints"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/api/v1", "pods"),
    ("/api/v1", "events"),
    ("/apis/apps/v1", "controllerrevisions"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "replicasets"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/batch/v1", "cronjobs"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/discovery.k8s.io/v1", "endpointslices"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
];

/// Metadata that says when an object was made and by whose counting, not what it is.
const VOLATILE_METADATA: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"];

/// Labels whose value stands for a template.
const HASHES: [&str; 3] =
    ["pod-template-hash", "controller-revision-hash", "controller.kubernetes.io/hash"];

/// Lists in the order of what differs: addresses and names that were made up, and what changed
/// last.
const UNORDERED_LISTS: [&str; 4] = ["addresses", "conditions", "endpoints", "notReadyAddresses"];

/// Conditions of pods that both simulators of nodes write.
const POD_CONDITIONS: [&str; 4] = ["ContainersReady", "Initialized", "PodScheduled", "Ready"];

static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(10|127)\.\d+\.\d+\.\d+\b").unwrap());
/// A node that the scheduler chose among equals; flows with nodes of their own name them otherwise.
static NODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bnode-\d\b").unwrap());
/// Identities, times, and the volume with a pod's token, which the server names.
static VOLATILE_TEXT: LazyLock<Regex> = LazyLock::new(|| {
    let uid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    let volume = r"kube-api-access-[a-z0-9]{5}";
    let time = r"\d{4}-\d\d-\d\dT[0-9:.]+Z";
    Regex::new(&[uid, volume, time].join("|")).unwrap()
});

/// Reads one namespace repeatedly.
#[derive(Debug)]
pub(super) struct NamespaceObserver {
    client: Client,
    namespace: String,
    names: GeneratedNames,
}

impl NamespaceObserver {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), names: GeneratedNames::default() }
    }

    /// What names were made up so far.
    pub(super) fn names(&self) -> &GeneratedNames {
        &self.names
    }

    /// Reads everything in the namespace.
    pub(super) async fn snapshot(&mut self) -> Value {
        let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
        for (group, collection) in COLLECTIONS {
            let path = format!("{group}/namespaces/{}/{collection}", self.namespace);
            let answer = self.client.send(Request::get(path)).await.unwrap();
            let mut list: Value = answer.json().unwrap();
            assert!(list["items"].is_array(), "{list:#}");
            let items = list["items"].as_array_mut().map(std::mem::take);
            all.push((collection, items.unwrap_or_default()));
        }
        let objects = all.iter().flat_map(|(_, items)| items);
        let owners: BTreeMap<&str, &str> =
            objects.clone().map(|it| (text(it, "uid"), text(it, "name"))).collect();
        self.names.record(objects);
        let develop = |collection: &str, item: &Value| match collection {
            "events" => self.names.event(item),
            "pods" => Some(self.names.object(&as_kwok_reports(item), &owners)),
            "endpoints" | "endpointslices" => {
                Some(self.names.object(&without_write_counts(item), &owners))
            }
            _ => Some(self.names.object(item, &owners)),
        };
        let picture = all.iter().map(|(collection, items)| {
            let mut items: Vec<Value> =
                items.iter().filter_map(|item| develop(collection, item)).collect();
            items.sort_by_cached_key(plain);
            if *collection == "events" {
                items.dedup();
            }
            ((*collection).to_owned(), Value::Array(items))
        });
        Value::Object(picture.collect())
    }
}

/// Asks a server for the schemas that every kubectl will ask for: the first time they are made,
/// which takes a build without optimisation so long that those who ask meanwhile give up.
pub(super) async fn warm_up_schemas(target: &Target, clock: &Clock) {
    let client = Client::new(target, Protocol::Http1, clock.clone()).unwrap();
    let groups = COLLECTIONS.iter().map(|(group, _)| format!("/openapi/v3{group}"));
    let mut documents: BTreeSet<String> = groups.collect();
    documents.insert("/openapi/v3".to_owned());
    let give_up = clock.moment() + 2 * CONVERGENCE_TIMEOUT;
    for document in documents {
        while !client.send(Request::get(&document)).await.is_ok_and(|it| it.status.is_success()) {
            assert!(clock.moment() < give_up, "{document}");
            clock.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits until all nodes of a cluster that starts exist, and returns their number.
pub(super) async fn wait_for_ready_nodes(target: &Target, clock: &Clock) -> usize {
    let client = Client::new(target, Protocol::Http1, clock.clone()).unwrap();
    let give_up = clock.moment() + CONVERGENCE_TIMEOUT;
    loop {
        let answer = client.send(Request::get("/api/v1/nodes")).await.unwrap();
        let list: Value = answer.json().unwrap();
        let nodes = list["items"].as_array().cloned().unwrap_or_default();
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let mut conditions = conditions.map(|it| (&it["type"], &it["status"]));
            conditions.any(|(kind, status)| kind == "Ready" && status == "True")
        };
        if (!nodes.is_empty() && nodes.iter().all(is_ready)) || clock.moment() >= give_up {
            return nodes.len();
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// What a value is sorted by: itself, without what differs between any two.
fn plain(value: &Value) -> String {
    VOLATILE_TEXT.replace_all(&value.to_string(), "").into_owned()
}

/// Endpoints and their slices are written anew for whatever turned up meanwhile: how often, and
/// what was the last of it, is chance. The original has ports in the order of their hashes.
fn without_write_counts(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
        if annotations.is_empty() {
            object["metadata"]["annotations"] = Value::Null;
        }
    }
    for subset in object["subsets"].as_array_mut().into_iter().flatten() {
        if let Some(ports) = subset["ports"].as_array_mut() {
            ports.sort_by_cached_key(plain);
        }
    }
    object
}

/// A pod as far as both simulators of nodes say the same. What the embedded one says beyond is what
/// a real kubelet says.
fn as_kwok_reports(pod: &Value) -> Value {
    let status = &pod["status"];
    let list = |field: &str| status[field].as_array().cloned().unwrap_or_default();
    let is_over = ["Succeeded", "Failed"].iter().any(|it| status["phase"] == *it);
    let mut conditions: Vec<Value> = list("conditions");
    conditions.retain(|it| {
        let kind = it["type"].as_str().unwrap_or_default();
        POD_CONDITIONS.contains(&kind) && (!is_over || kind == "PodScheduled")
    });
    for condition in &mut conditions {
        let kept = |field: &str| condition[field].clone();
        *condition = json!({
            "type": kept("type"), "status": kept("status"),
            "reason": kept("reason"), "message": kept("message"),
        });
    }
    let container = |it: &Value| {
        json!({
            "name": it["name"], "image": it["image"], "ready": it["ready"],
            "restartCount": it["restartCount"],
            "runs": it["state"].get("running").is_some(),
            "ended": it["state"]["terminated"]["exitCode"],
        })
    };
    let mut pod = pod.clone();
    pod["status"] = json!({
        "phase": status["phase"], "reason": status["reason"], "message": status["message"],
        "qosClass": status["qosClass"], "conditions": conditions,
        "containers": list("containerStatuses").iter().map(container).collect::<Vec<_>>(),
    });
    pod
}

/// What controllers made up, as far as it was seen.
#[derive(Debug, Default)]
pub(super) struct GeneratedNames {
    /// What made up names begin with.
    prefixes: BTreeSet<String>,
    generated: Option<Regex>,
    /// What stands for a template, and what the template is for. The original's hash is of how Go
    /// shows it in memory.
    hashes: BTreeMap<String, String>,
}

/// Whether an event depends on which controller observed a change first: an address that is
/// repaired before it is recorded, a pod that is bound when it is gone, a budget that is reconciled
/// before its pods. Under load a real control plane records such events, or does not.
fn is_race_dependent(event: &Value) -> bool {
    let reason = event["reason"].as_str().unwrap_or_default();
    let message = event["message"].as_str().unwrap_or_default();
    if event["type"] == "Normal" {
        return reason == "NoPods";
    }
    !LASTING_WARNINGS.contains(&reason) && !message.contains("nodes are available")
}

/// Warnings about states that stay until a user changes them.
const LASTING_WARNINGS: [&str; 2] = ["BackoffLimitExceeded", "DeadlineExceeded"];

impl GeneratedNames {
    /// Whatever owns something may have made up names that begin with its own.
    fn record<'a>(&mut self, objects: impl Iterator<Item = &'a Value>) {
        let before = self.prefixes.len();
        for object in objects {
            self.prefixes.insert(format!("{}-", text(object, "name")));
            // Not all that made up names is still there.
            for prefix in [&object["metadata"]["generateName"], &object["involvedObject"]["name"]] {
                if let Some(prefix) = prefix.as_str() {
                    self.prefixes.insert(format!("{}-", prefix.trim_end_matches('-')));
                }
            }
            self.record_hash(object);
        }
        if self.prefixes.len() > before {
            let mut prefixes: Vec<String> =
                self.prefixes.iter().map(|it| regex::escape(it)).collect();
            // The longest that fits.
            prefixes.sort_by_key(|it| std::cmp::Reverse(it.len()));
            let pattern = format!(r"\b({})[a-z0-9]{{5}}\b", prefixes.join("|"));
            self.generated = Some(Regex::new(&pattern).unwrap());
        }
    }

    fn record_hash(&mut self, object: &Value) {
        let image = |template: &Value| template["spec"]["containers"][0]["image"].clone();
        let image = match image(&object["spec"]["template"]) {
            Value::Null => image(&object["data"]["spec"]["template"]),
            image => image,
        };
        for label in HASHES {
            let hash = object["metadata"]["labels"][label].as_str();
            if let (Some(hash), Some(image)) = (hash, image.as_str()) {
                self.hashes.insert(hash.to_owned(), format!("HASH({image})"));
            }
        }
    }

    /// A text without what was made up and where it is.
    pub(super) fn mask(&self, text: &str) -> String {
        let text = match &self.generated {
            Some(made_up) => made_up.replace_all(text, "${1}NAME"),
            None => text.into(),
        };
        let text = self.hashes.iter().fold(text, |text, (hash, of)| text.replace(hash, of).into());
        let text = ADDRESS.replace_all(&text, "ADDRESS");
        NODE.replace_all(&text, "SOME NODE").into_owned()
    }

    /// Returns an event as one line; nothing if only one of the simulators of nodes records such
    /// events.
    fn event(&self, event: &Value) -> Option<Value> {
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let (source, by) = (&event["source"]["component"], &event["reportingComponent"]);
        if source == "kubelet" {
            return None;
        }
        let about = &event["involvedObject"];
        // Which of many similar events is recorded last is random, and so is whether a deleted pod
        // is still pending.
        let message = event["message"].as_str().unwrap_or_default();
        if message.starts_with("(combined") || message.starts_with("skip schedule deleting pod") {
            return None;
        }
        if is_race_dependent(event) {
            return None;
        }
        let line = format!(
            "{} {} {} {}/{}{} by {}/{}: {}",
            word(&event["type"]),
            word(&event["reason"]),
            word(&event["action"]),
            word(&about["kind"]),
            word(&about["name"]),
            word(&about["fieldPath"]),
            word(source),
            word(by),
            word(&event["message"]),
        );
        Some(self.mask(&line).into())
    }

    /// An object without accidents.
    fn object(&self, object: &Value, owners: &BTreeMap<&str, &str>) -> Value {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|field, _| !VOLATILE_METADATA.contains(&field.as_str()));
        }
        self.value("", &object, owners)
    }

    fn value(&self, key: &str, value: &Value, owners: &BTreeMap<&str, &str>) -> Value {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(_) if key == "nodeName" => "SOME NODE".into(),
            Value::String(text) => self.mask(text).into(),
            Value::Array(items) => {
                let mut items: Vec<Value> =
                    items.iter().map(|it| self.value(key, it, owners)).collect();
                if UNORDERED_LISTS.contains(&key) {
                    items.sort_by_cached_key(plain);
                }
                Value::Array(items)
            }
            Value::Object(fields) => {
                // In order: things are sorted by their texts.
                let made = fields
                    .iter()
                    .map(|(key, field)| (self.mask(key), self.value(key, field, owners)));
                let mut made: Map<String, Value> =
                    made.collect::<BTreeMap<_, _>>().into_iter().collect();
                // A reference says whether it is to what has the name now.
                if let (Some(Value::String(uid)), Some(Value::String(name))) =
                    (fields.get("uid"), fields.get("name"))
                {
                    let found = owners.get(uid.as_str()) == Some(&name.as_str());
                    made.insert("uid".to_owned(), found.into());
                }
                Value::Object(made)
            }
        }
    }
}
