//! Sets the defaults of pods and their templates.

use serde_json::{Value, json};

use crate::tree::{
    at, at_mut, each, entries, flag, int, is_set, put, set_default, set_default_if_zero,
    set_default_object, text,
};

/// The lists of containers in a pod spec.
pub(crate) const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Keys of a volume that are not its source.
const NO_SOURCE: [&str; 1] = ["name"];

/// Sets a pod's own defaults: those of its spec, and some that templates do not have.
pub(crate) fn pod(object: &mut Value) {
    let Some(spec) = at_mut(object, "spec") else { return };
    default_spec(spec);
    for name in ["containers", "initContainers"] {
        each(spec, name).for_each(|container| requests_from_limits(at_mut(container, "resources")));
    }
    pod_requests(spec);
    set_default(spec, "enableServiceLinks", true);
    if flag(spec, "hostNetwork") {
        for name in ["containers", "initContainers"] {
            for port in each(spec, name).flat_map(|container| each(container, "ports")) {
                let number = int(port, "containerPort").unwrap_or_default();
                set_default_if_zero(port, "hostPort", number);
            }
        }
    }
}

/// Sets the defaults of a pod template, wherever it occurs.
pub(crate) fn template(template: &mut Value) {
    set_default_object(template, "spec");
    if let Some(spec) = at_mut(template, "spec") {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut Value) {
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_default_object(spec, "securityContext");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    // The deprecated field is kept equal for clients that read it.
    if text(spec, "serviceAccountName").is_empty() && !text(spec, "serviceAccount").is_empty() {
        put(spec, "serviceAccountName", text(spec, "serviceAccount").to_owned());
    }
    if !text(spec, "serviceAccountName").is_empty() {
        put(spec, "serviceAccount", text(spec, "serviceAccountName").to_owned());
    }
    each(spec, "volumes").for_each(volume);
    for name in CONTAINERS {
        each(spec, name).for_each(container);
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for entry in each(container, "env") {
        if let Some(reference) = at_mut(entry, "valueFrom.fieldRef") {
            set_default(reference, "apiVersion", "v1");
        }
        if let Some(reference) = at_mut(entry, "valueFrom.resourceFieldRef") {
            set_default(reference, "divisor", "0");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = at_mut(container, name) {
            set_default_if_zero(probe, "timeoutSeconds", 1);
            set_default_if_zero(probe, "periodSeconds", 10);
            set_default_if_zero(probe, "successThreshold", 1);
            set_default_if_zero(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(call) = at_mut(probe, "grpc") {
                set_default(call, "service", "");
            }
        }
    }
    for name in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(handler) = at_mut(container, name) {
            http_get(handler);
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = at_mut(handler, "httpGet") {
        set_default(get, "path", "/");
        set_default(get, "scheme", "HTTP");
    }
}

/// Returns the default pull policy: an image without a tag, or with `latest`, is always pulled.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn volume(volume: &mut Value) {
    let sources = volume.as_object().into_iter().flatten();
    if !sources.clone().any(|(key, value)| !NO_SOURCE.contains(&key.as_str()) && !value.is_null()) {
        set_default_object(volume, "emptyDir");
    }
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = at_mut(volume, source) {
            set_default(source, "defaultMode", 0o644);
        }
    }
    each(volume, "downwardAPI.items").for_each(downward_item);
    for source in each(volume, "projected.sources") {
        if let Some(token) = at_mut(source, "serviceAccountToken") {
            set_default(token, "expirationSeconds", 3600);
        }
        each(source, "downwardAPI.items").for_each(downward_item);
    }
    if let Some(image) = at_mut(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        set_default(image, "pullPolicy", policy);
    }
    source(volume);
    if let Some(claim) = at_mut(volume, "ephemeral.volumeClaimTemplate") {
        set_default(claim, "spec.volumeMode", "Filesystem");
    }
}

/// Sets the defaults of the sources that pods and persistent volumes share.
pub(crate) fn source(holder: &mut Value) {
    if let Some(path) = at_mut(holder, "hostPath") {
        set_default(path, "type", "");
    }
    let tables: [(&str, &[(&str, Value)]); 4] = [
        ("iscsi", &[("iscsiInterface", json!("default"))]),
        (
            "rbd",
            &[
                ("pool", json!("rbd")),
                ("user", json!("admin")),
                ("keyring", json!("/etc/ceph/keyring")),
            ],
        ),
        (
            "azureDisk",
            &[
                ("cachingMode", json!("ReadWrite")),
                ("kind", json!("Shared")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
            ],
        ),
        ("scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
    ];
    for (name, fields) in tables {
        if let Some(source) = at_mut(holder, name) {
            for (field, value) in fields {
                set_default(source, field, value.clone());
            }
        }
    }
}

fn downward_item(item: &mut Value) {
    if let Some(reference) = at_mut(item, "fieldRef") {
        set_default(reference, "apiVersion", "v1");
    }
    if let Some(reference) = at_mut(item, "resourceFieldRef") {
        set_default(reference, "divisor", "0");
    }
}

fn requests_from_limits(resources: Option<&mut Value>) {
    let Some(resources) = resources else { return };
    let limits: Vec<(String, Value)> = owned(at(resources, "limits"));
    for (name, amount) in limits {
        set_default_object(resources, "requests");
        let requests = at_mut(resources, "requests").and_then(Value::as_object_mut);
        if let Some(requests) = requests {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn owned(map: &Value) -> Vec<(String, Value)> {
    let map = map.as_object().into_iter().flatten();
    map.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Sets the pod-level requests from its limits: the sum of the containers' requests, or else the
/// limit itself.
fn pod_requests(spec: &mut Value) {
    if !is_set(spec, "resources.limits") {
        return;
    }
    let sums = crate::pod::status::container_requests(spec);
    let limits = owned(at(spec, "resources.limits"));
    let had = at(spec, "resources.requests").as_object().cloned().unwrap_or_default();
    let mut requests = had;
    for name in ["cpu", "memory"] {
        if let Some(sum) = sums.get(name)
            && !requests.contains_key(name)
        {
            requests.insert(name.to_owned(), json!(sum.to_string()));
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.entry(name).or_insert(amount);
        }
    }
    if !requests.is_empty() {
        put(spec, "resources.requests", Value::Object(requests));
    }
}

/// Sets the fields of a LimitRange entry for containers that follow from the others.
pub(crate) fn limit_range(object: &mut Value) {
    for item in each(object, "spec.limits") {
        if text(item, "type") != "Container" {
            continue;
        }
        for (from, to) in
            [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")]
        {
            let amounts: Vec<_> = entries(item, from)
                .into_iter()
                .map(|(name, amount)| (name.clone(), amount.clone()))
                .collect();
            for (name, amount) in amounts {
                set_default_object(item, to);
                if let Some(known) = at_mut(item, to).and_then(Value::as_object_mut) {
                    known.entry(name).or_insert(amount);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_moving_images_are_pulled_every_time() {
        let table = [
            ("a", "Always"),
            ("a:latest", "Always"),
            ("a:1", "IfNotPresent"),
            ("r.test:5000/a", "Always"),
            ("r.test:5000/a:1", "IfNotPresent"),
            ("a@sha256:00", "IfNotPresent"),
            ("a:latest@sha256:00", "IfNotPresent"),
        ];
        for (image, policy) in table {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn requests_of_a_pod_follow_its_containers_and_then_its_limits() {
        let mut object = json!({ "spec": {
            "resources": { "limits": { "cpu": "4", "memory": "1Gi" } },
            "containers": [
                { "name": "a", "image": "a", "resources": { "requests": { "cpu": "500m" } } },
                { "name": "b", "image": "b", "resources": { "limits": { "cpu": "1" } } },
            ],
        } });
        pod(&mut object);
        let requests = json!({ "cpu": "1500m", "memory": "1Gi" });
        assert_eq!(at(&object, "spec.resources.requests"), &requests);
    }
}
