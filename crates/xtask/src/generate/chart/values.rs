//! What the user of the chart decides: one table, from which its values, their schema and the page about
//! them are made.

use std::fmt::Write as _;

use gantry::config::form::Form;
use gantry::config::keys::KEYS;
use gantry_api::yaml;
use serde_json::{Map, Value, json};

/// One value.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its way from the root: a section and a name.
    path: [&'static str; 2],
    /// What it is when nothing is said.
    default: Value,
    /// What it may be, as a JSON schema.
    form: Value,
    /// What it means.
    about: &'static str,
}

/// Keys of the configuration that the Deployment decides: ports, probes, the lease, and how the server is
/// reached.
const DECIDED: [&str; 6] = [
    "clientConnection.kubeconfig",
    "health.",
    "leaderElection.leaderElect",
    "leaderElection.resourceName",
    "leaderElection.resourceNamespace",
    "metrics.",
];

/// The values, in the order in which they are shown.
pub(super) fn entries(deployment: &Value) -> Vec<Entry> {
    let entry =
        |section, name, default, form, about| Entry { path: [section, name], default, form, about };
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let text = || json!({ "type": "string" });
    vec![
        entry(
            "global",
            "imageRegistry",
            json!(""),
            text(),
            "Where the image is: `<imageRegistry>/gantry:<imageTag>`. Empty: `gantry:<imageTag>`.",
        ),
        entry(
            "global",
            "imageTag",
            json!(""),
            text(),
            "The tag of the image. Empty: the version of the chart.",
        ),
        entry(
            "global",
            "nodeViewClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may get, list and watch nodes, which is then bound to the operator's \
             account. Binding it takes an administrator. Empty: no binding.",
        ),
        entry(
            "global",
            "metricsAuthClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may create TokenReviews and SubjectAccessReviews, such as \
             `system:auth-delegator`, which is then bound to the operator's account: metrics are served \
             with TLS to whoever may read them, and there are a Service and the ClusterRole \
             `<namespace>-<release>-metrics-reader`. That takes an administrator. Empty: metrics are \
             served within the pod alone, to `kubectl port-forward`.",
        ),
        entry(
            "global",
            "local",
            json!(false),
            json!({ "type": "boolean" }),
            "Whether the nodes have the image already: it is never pulled then.",
        ),
        entry(
            "operator",
            "config",
            json!({ "mcadEnabled": false }),
            configuration(),
            "The configuration of the operator, see docs/operator-configuration.md. What the chart \
             decides is not part of it: ports, probes, the lease and the kubeconfig. The queue is off, \
             because it works on the whole cluster. Whoever switches it on here has AppWrappers created \
             with the rights of the operator's account, whoever wrote them; docs/chart.md says more.",
        ),
        entry(
            "operator",
            "replicaCount",
            deployment["spec"]["replicas"].clone(),
            json!({ "type": "integer", "minimum": 0 }),
            "How many run; one of them works, the others wait for it to go.",
        ),
        entry(
            "operator",
            "pullPolicy",
            json!("IfNotPresent"),
            json!({ "enum": ["Always", "IfNotPresent", "Never"] }),
            "When the image is pulled, unless `global.local` is set.",
        ),
        entry(
            "operator",
            "imagePullSecrets",
            json!([]),
            json!({ "type": "array", "items": {
                "type": "object",
                "properties": { "name": { "type": "string" } },
                "required": ["name"],
                "additionalProperties": false,
            } }),
            "The Secrets with which it is pulled, each as `name: …`.",
        ),
        entry(
            "operator",
            "networkPolicy",
            json!(true),
            json!({ "type": "boolean" }),
            "Whether a NetworkPolicy lets in only readers of metrics, from namespaces with the label \
             `metrics: enabled`, and callers of webhooks. Kubelets reach the probes in any case.",
        ),
        entry(
            "operator",
            "resources",
            container["resources"].clone(),
            json!({ "type": "object" }),
            "What the container requests, and its limits.",
        ),
        entry(
            "operator",
            "nodeSelector",
            json!({}),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            "Labels of the nodes it may run on.",
        ),
        entry(
            "operator",
            "tolerations",
            json!([]),
            json!({ "type": "array", "items": { "type": "object" } }),
            "Taints it tolerates.",
        ),
    ]
}

/// `values.yaml`: every value with its default, and what it means above it.
pub(super) fn yaml(entries: &[Entry]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut section = "";
    for Entry { path: [above, name], default, about, .. } in entries {
        if *above != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            writeln!(text, "{gap}{above}:")?;
            section = above;
        }
        for line in wrapped(about, 94) {
            writeln!(text, "  # {line}")?;
        }
        for line in yaml::write(&json!({ *name: default }))?.lines() {
            writeln!(text, "  {line}")?;
        }
    }
    Ok(text)
}

/// `values.schema.json`: what helm checks before it makes anything.
pub(super) fn schema(entries: &[Entry]) -> Value {
    let mut sections = Map::new();
    for Entry { path: [section, name], form, about, .. } in entries {
        let mut form = form.clone();
        form["description"] = json!(about);
        // What a chart above this one says to all of its parts is in `global` too.
        let open = *section == "global";
        let empty = json!({
            "type": "object", "properties": {}, "additionalProperties": open,
        });
        let properties = sections.entry(*section).or_insert(empty);
        properties["properties"][*name] = form;
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gantry",
        "type": "object",
        "properties": sections,
        "additionalProperties": false,
    })
}

/// The page about the chart: what stands in `readme.txt`, and the table of values.
pub(super) fn readme(entries: &[Entry]) -> anyhow::Result<String> {
    let mut table = String::from("| Value | Default | Meaning |\n|---|---|---|\n");
    for Entry { path: [section, name], default, about, .. } in entries {
        writeln!(table, "| `{section}.{name}` | `{default}` | {about} |")?;
    }
    Ok(include_str!("readme.txt").replace("VALUES\n", &table))
}

/// The keys of the configuration that are left to the user. Types are checked before anything is made,
/// all else when the operator starts.
fn configuration() -> Value {
    let mut root = section();
    let free = KEYS.iter().filter(|key| !DECIDED.iter().any(|it| key.path.starts_with(it)));
    for key in free {
        let mut at = &mut root;
        let mut parts = key.path.split('.').peekable();
        while let Some(part) = parts.next() {
            let below = match parts.peek() {
                Some(_) => section(),
                None => form(key.form),
            };
            at = match at["properties"].as_object_mut() {
                Some(properties) => properties.entry(part).or_insert(below),
                None => break,
            };
        }
    }
    root
}

fn section() -> Value {
    json!({ "type": ["object", "null"], "properties": {}, "additionalProperties": false })
}

/// What a value may be; null is the default in every case.
fn form(form: Form) -> Value {
    match form {
        Form::Flag => json!({ "type": ["boolean", "null"] }),
        Form::Integer { .. } => json!({ "type": ["integer", "null"], "maximum": i32::MAX }),
        Form::Number => json!({ "type": ["number", "null"] }),
        Form::Text
        | Form::Duration { .. }
        | Form::Address { .. }
        | Form::Word(_)
        | Form::Name
        | Form::Namespace => json!({ "type": ["string", "null"] }),
        Form::Texts => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
        Form::Switches => json!({ "type": ["object", "array", "null"] }),
        Form::Opaque => json!({ "type": ["object", "null"] }),
    }
}

/// The words in lines of at most this many letters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
