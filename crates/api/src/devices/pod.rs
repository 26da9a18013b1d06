//! Reads the device claims of pods, which can be written in three ways.
//!
//! Kubernetes has no field for it. Annotations (A) and a companion object (B) work on any server;
//! native fields (C) only in files and on servers that keep unknown fields.

use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{DeviceReference, PodClaims, normalise, serve};
use crate::decode;
use crate::finding::{Findings, Source};
use crate::kubernetes;
use crate::meta::dns_subdomain_problem;
use crate::schema::{self, Schema};
use gantry_yaml::node::{Content, Node, Path};

/// Annotation that lists a pod's claims as JSON or YAML.
pub const DEVICE_CLAIMS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-claims";

/// Annotation that maps container names to lists of `{name}`.
pub const CONTAINER_DEVICES_ANNOTATION: &str = "devmgmtproto.k8s.io/container-devices";

/// Annotation that names a PodDevices object.
pub const POD_DEVICES_ANNOTATION: &str = "devmgmtproto.k8s.io/pod-devices";

/// Every annotation about a pod's devices: a pod that has none of them is skipped.
pub const DEVICE_ANNOTATIONS: [&str; 3] =
    [DEVICE_CLAIMS_ANNOTATION, CONTAINER_DEVICES_ANNOTATION, POD_DEVICES_ANNOTATION];

/// The device claims of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodDeviceClaims {
    /// Its claims.
    Claims(PodClaims),
    /// The name of the PodDevices object that has them.
    Named(String),
}

impl PodDeviceClaims {
    /// Returns the device claims of a pod from an API server; nothing for the many that have none.
    ///
    /// # Errors
    /// Claims that cannot be read, or that come from two carriers at once. Such a pod must not run.
    pub fn of(pod: &Value) -> Result<Option<Self>, Findings> {
        let (carried, findings) = Self::read_with_findings(pod);
        if findings.is_accepted() { Ok(carried) } else { Err(findings) }
    }

    /// Returns the same with all findings, warnings about accepted values included.
    #[must_use]
    pub fn read_with_findings(pod: &Value) -> (Option<Self>, Findings) {
        let mut findings = Findings::from(Source::Server);
        let carried = read(&mut Node::from_json(pod), &mut findings);
        (carried, findings)
    }
}

/// Checks objects of kinds that are not Gantry's, where devices are concerned.
pub(crate) fn read_foreign(node: &mut Node, findings: &mut Findings) {
    let text = |name: &str| node.get(name).and_then(Node::text);
    match (text("apiVersion"), text("kind")) {
        (Some("v1"), Some("ConfigMap")) => warn_of_bare_values(node, findings),
        (Some("v1"), Some("Pod")) => {
            read(node, findings);
        }
        (_, Some("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job")) => {
            read_template(node, "spec.template", findings);
        }
        (_, Some("CronJob")) => read_template(node, "spec.jobTemplate.spec.template", findings),
        _ => {}
    }
}

/// A pod template has the same fields as a pod, further down.
fn read_template(node: &mut Node, place: &str, findings: &mut Findings) {
    let template = place.split('.').try_fold(node, |node, name| node.get_mut(name));
    let Some(template) = template else { return };
    let Findings { source, lenient, .. } = *findings;
    let mut found = Findings { source, lenient, ..Findings::default() };
    read(template, &mut found);
    findings.append_below(&Path::of(place), found);
}

fn warn_of_bare_values(config_map: &Node, findings: &mut Findings) {
    for (key, value) in config_map.get("data").and_then(Node::entries).into_iter().flatten() {
        if let Content::Number(_) | Content::Bool(_) = value.value {
            let text = "not a string, which an API server refuses; put it in quotes";
            findings.warn_at(&Path::of("data").key(&key.name), key.at, text);
        }
    }
}

/// The lists of containers that can have devices.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Reads the claims that a pod carries. A pod without any is skipped.
fn read(pod: &mut Node, findings: &mut Findings) -> Option<PodDeviceClaims> {
    let carriers = carriers(pod);
    let first = carriers.first()?;
    decode::normalise_values(pod, &schemas().lenient, true, &Path::root(), findings);
    if let Some(second) = carriers.get(1) {
        let text = format!("set beside {first}; a pod states its devices in one place");
        findings.error(second, text);
    }
    if let Some(claims) = pod.get_mut("spec").and_then(|spec| spec.get_mut("deviceClaims")) {
        normalise::pod_claims(claims, &Path::of("spec.deviceClaims"), findings);
    }
    match findings.source {
        Source::File => {
            decode::report(schemas().strict.check(&pod.to_json()), findings);
        }
        // The server has checked the pod, perhaps against a newer schema than ours.
        Source::Server => {}
    }
    if !findings.is_accepted() {
        return None;
    }
    let annotations = Path::of("metadata.annotations");
    let annotation = |name: &str| {
        let text = pod.get("metadata")?.get("annotations")?.get(name)?.text()?;
        Some((annotations.key(name), text.to_owned()))
    };
    if let Some((path, name)) = annotation(POD_DEVICES_ANNOTATION) {
        if let Some(problem) = dns_subdomain_problem(&name) {
            findings.error(&path, format!("Invalid value: \"{name}\": {problem}"));
        }
        return Some(PodDeviceClaims::Named(name));
    }
    let listed = annotation(DEVICE_CLAIMS_ANNOTATION);
    let used = annotation(CONTAINER_DEVICES_ANNOTATION);
    let claims = if listed.is_some() || used.is_some() {
        annotated(pod, listed, used, findings)
    } else {
        native(pod, findings)
    };
    claims.map(PodDeviceClaims::Claims)
}

/// The places where the pod lists its devices, one per carrier.
fn carriers(pod: &Node) -> Vec<Path> {
    let has = |node: &Node, field: &str| {
        node.entries().is_some_and(|entries| {
            entries
                .iter()
                .any(|(key, value)| key.name.eq_ignore_ascii_case(field) && !value.is_null())
        })
    };
    let mut found = Vec::new();
    if let Some(annotations) = pod.get("metadata").and_then(|m| m.get("annotations")) {
        let path = Path::of("metadata.annotations");
        let listed = [DEVICE_CLAIMS_ANNOTATION, CONTAINER_DEVICES_ANNOTATION];
        found.extend(listed.into_iter().find(|name| has(annotations, name)).map(|n| path.key(n)));
        if has(annotations, POD_DEVICES_ANNOTATION) {
            found.push(path.key(POD_DEVICES_ANNOTATION));
        }
    }
    if let Some(spec) = pod.get("spec") {
        if has(spec, "deviceClaims") {
            found.push(Path::of("spec.deviceClaims"));
        } else {
            let with_devices = CONTAINERS.into_iter().find_map(|list| {
                let place = spec.get(list)?.items()?.iter().position(|c| has(c, "devices"))?;
                Some(Path::of("spec").key(list).index(place).key("devices"))
            });
            found.extend(with_devices);
        }
    }
    found
}

/// Carrier A: annotations.
fn annotated(
    pod: &Node,
    listed: Option<(Path, String)>,
    used: Option<(Path, String)>,
    findings: &mut Findings,
) -> Option<PodClaims> {
    let mut claims = PodClaims::default();
    if let Some((path, text)) = listed {
        let mut node = parse(&path, &text, findings)?;
        decode::normalise_values(&mut node, &schemas().lenient_claims, true, &path, findings);
        normalise::pod_claims(&mut node, &path, findings);
        claims.device_claims = finish(&node, &schemas().claims, &path, findings)?;
        claims.validate_claims(&path, findings);
    }
    if let Some((path, text)) = used {
        let mut node = parse(&path, &text, findings)?;
        decode::normalise_values(&mut node, &schemas().containers, true, &path, findings);
        claims.containers = finish(&node, &schemas().containers, &path, findings)?;
        let names: Vec<&str> = containers(pod).map(|(_, name, _)| name).collect();
        for (container, references) in &claims.containers {
            let path = path.key(container);
            if !names.contains(&container.as_str()) {
                findings
                    .error(&path, format!("Not found: the pod has no container \"{container}\""));
            }
            claims.validate_references(references, &path, findings);
        }
    }
    Some(claims)
}

/// Carrier C: fields of the pod.
fn native(pod: &Node, findings: &mut Findings) -> Option<PodClaims> {
    let mut claims = PodClaims::default();
    let path = Path::of("spec.deviceClaims");
    if let Some(list) = pod.get("spec").and_then(|spec| spec.get("deviceClaims")) {
        claims.device_claims = finish(list, &schemas().claims, &path, findings)?;
        claims.validate_claims(&path, findings);
    }
    for (path, name, container) in containers(pod) {
        let Some(list) = container.get("devices") else { continue };
        let path = path.key("devices");
        let references: Vec<DeviceReference> =
            finish(list, &schemas().references, &path, findings)?;
        claims.validate_references(&references, &path, findings);
        claims.containers.insert(name.to_owned(), references);
    }
    Some(claims)
}

fn containers(pod: &Node) -> impl Iterator<Item = (Path, &str, &Node)> {
    let spec = pod.get("spec");
    CONTAINERS.into_iter().flat_map(move |list| {
        let items = spec.and_then(|spec| spec.get(list)).and_then(Node::items).unwrap_or_default();
        items.iter().enumerate().filter_map(move |(place, container)| {
            let name = container.get("name")?.text()?;
            Some((Path::of("spec").key(list).index(place), name, container))
        })
    })
}

/// Parses the content of an annotation. Its places are dropped: they are lines of the annotation,
/// and findings about them point at the annotation itself.
fn parse(path: &Path, text: &str, findings: &mut Findings) -> Option<Node> {
    let problem = match gantry_yaml::read(text) {
        Ok(documents) if documents.len() == 1 => {
            return documents.first().map(|document| Node::from_json(&document.to_json()));
        }
        Ok(documents) => format!("holds {} documents; write one", documents.len()),
        Err(error) => format!("line {} is neither JSON nor YAML: {error}", error.at.line),
    };
    findings.error(path, format!("Invalid value: {problem}"));
    None
}

fn finish<T: DeserializeOwned>(
    node: &Node,
    schema: &Schema,
    path: &Path,
    findings: &mut Findings,
) -> Option<T> {
    let value = node.to_json();
    decode::report(schema.check_at(&value, path), findings);
    if !findings.is_accepted() {
        return None;
    }
    match serde_json::from_value(value) {
        Ok(read) => Some(read),
        Err(error) => {
            findings.error(path, format!("cannot be read: {error}"));
            None
        }
    }
}

struct Schemas {
    /// A pod with the native fields, old spellings included.
    lenient: Schema,
    /// A pod with the native fields.
    strict: Schema,
    /// The list of claims, old spellings included.
    lenient_claims: Schema,
    claims: Schema,
    references: Schema,
    /// From container names to references.
    containers: Schema,
}

fn schemas() -> &'static Schemas {
    static COMPILED: OnceLock<Schemas> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let whole = schema::of::<PodClaims>();
        let claims = whole["properties"]["deviceClaims"].clone();
        let containers = whole["properties"]["containers"].clone();
        let references = containers["additionalProperties"].clone();
        let mut lenient_claims = claims.clone();
        serve::pod_claims(&mut lenient_claims["items"]);
        let compile = |schema: &Value| Schema::compile(schema).expect("a test reads such a pod");
        Schemas {
            lenient: compile(&pod_schema(&lenient_claims, &references)),
            strict: compile(&pod_schema(&claims, &references)),
            lenient_claims: compile(&lenient_claims),
            claims: compile(&claims),
            references: compile(&references),
            containers: compile(&containers),
        }
    })
}

fn pod_schema(claims: &Value, references: &Value) -> Value {
    let mut spec = kubernetes::schema("PodSpec");
    spec["properties"]["deviceClaims"] = claims.clone();
    for list in CONTAINERS {
        serve::schema_of(&mut spec, list)["items"]["properties"]["devices"] = references.clone();
    }
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": kubernetes::schema("ObjectMeta"),
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    })
}
