//! Validates containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{resources, security, volumes};
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, int, is_empty, is_set, list, text};

/// The names that a container may refer to.
pub(super) struct ContainerReferences<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: &'a BTreeSet<&'a str>,
    pub(super) claims: &'a BTreeSet<&'a str>,
}

pub(super) fn check_all(seen: &ContainerReferences<'_>, path: &Path, faults: &mut FieldErrors) {
    let spec = seen.spec;
    let containers = list(spec, "containers");
    let names_path = path.child("containers");
    if containers.is_empty() {
        faults.required(names_path.clone(), "");
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for (place, container) in containers.iter().enumerate() {
        let path = names_path.index(place);
        check(container, seen, &path, faults);
        unique(container, &mut names, &path, faults);
        check_host_ports(container, &mut host_ports, &path, faults);
        check_probes(container, &path, faults);
        check_lifecycle(container, &path, faults);
    }
    let init = path.child("initContainers");
    for (place, container) in list(spec, "initContainers").iter().enumerate() {
        let path = init.index(place);
        check(container, seen, &path, faults);
        unique(container, &mut names, &path, faults);
        check_host_ports(container, &mut BTreeSet::new(), &path, faults);
        if text(container, "restartPolicy") == "Always" {
            check_probes(container, &path, faults);
            check_lifecycle(container, &path, faults);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if is_set(container, field) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    faults.forbidden(path.child(field), detail);
                }
            }
        }
    }
    let ephemeral = path.child("ephemeralContainers");
    for (place, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = ephemeral.index(place);
        check(container, seen, &path, faults);
        unique(container, &mut names, &path, faults);
        let target = text(container, "targetContainerName");
        let known = ["containers", "initContainers"].into_iter().flat_map(|it| list(spec, it));
        if !target.is_empty() && !known.into_iter().any(|it| text(it, "name") == target) {
            faults.not_found(path.child("targetContainerName"), target);
        }
        let banned = [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resources",
            "resizePolicy",
        ];
        for field in banned {
            if !is_empty(container, field) {
                let detail = "cannot be set for an Ephemeral Container";
                faults.forbidden(path.child(field), detail);
            }
        }
    }
}

fn unique<'a>(
    container: &'a Value,
    names: &mut BTreeSet<&'a str>,
    path: &Path,
    faults: &mut FieldErrors,
) {
    let name = text(container, "name");
    if !name.is_empty() && !names.insert(name) {
        faults.duplicate(path.child("name"), name);
    }
}

fn check(container: &Value, seen: &ContainerReferences<'_>, path: &Path, faults: &mut FieldErrors) {
    let name = text(container, "name");
    if faults.require(container, path, "name") {
        faults.invalid_text(&path.child("name"), name, names::label(name));
    }
    let image = text(container, "image");
    if image.is_empty() {
        faults.required(path.child("image"), "");
    } else if image.trim() != image {
        faults.value(path.child("image"), image, "must not have leading or trailing whitespace");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    faults.require_one_of(container, path, "terminationMessagePolicy", &policies);
    check_ports(container, path, faults);
    check_env(container, path, faults);
    volumes::check_mounts(container, seen.volumes, path, faults);
    let policies = ["Always", "IfNotPresent", "Never"];
    faults.require_one_of(container, path, "imagePullPolicy", &policies);
    let resources = path.child("resources");
    resources::check(at(container, "resources"), seen.claims, &resources, faults);
    let context = path.child("securityContext");
    security::check_container(at(container, "securityContext"), &context, faults);
}

fn check_ports(container: &Value, path: &Path, faults: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (place, port) in list(container, "ports").iter().enumerate() {
        let path = path.child("ports").index(place);
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() {
                if !names.insert(name) {
                    faults.duplicate(path.child("name"), name);
                }
            } else {
                faults.invalid_text(&path.child("name"), name, complaints);
            }
        }
        for (field, is_required) in [("containerPort", true), ("hostPort", false)] {
            match int(port, field).unwrap_or_default() {
                0 if is_required => faults.required(path.child(field), ""),
                0 => {}
                number => {
                    for complaint in names::port_number(number) {
                        faults.value(path.child(field), number, &complaint);
                    }
                }
            }
        }
        faults.require_one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
    }
}

fn check_host_ports(
    container: &Value,
    seen: &mut BTreeSet<String>,
    path: &Path,
    faults: &mut FieldErrors,
) {
    for (place, port) in list(container, "ports").iter().enumerate() {
        let number = int(port, "hostPort").unwrap_or_default();
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if !seen.insert(key.clone()) {
            faults.duplicate(path.child("ports").index(place).child("hostPort"), key);
        }
    }
}

/// Fields of a pod that its containers may read through `fieldRef`.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn check_env(container: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, entry) in list(container, "env").iter().enumerate() {
        let path = path.child("env").index(place);
        let name = text(entry, "name");
        if faults.require(entry, &path, "name") {
            faults.invalid_text(&path.child("name"), name, names::environment_name(name));
        }
        if is_set(entry, "valueFrom") {
            check_value_from(entry, &path.child("valueFrom"), faults);
        }
    }
    for (place, source) in list(container, "envFrom").iter().enumerate() {
        let path = path.child("envFrom");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            let complaints = names::environment_name(prefix);
            faults.invalid_text(&path.index(place).child("prefix"), prefix, complaints);
        }
        let kinds = ["configMapRef", "secretRef"];
        let given: Vec<_> = kinds.into_iter().filter(|kind| is_set(source, kind)).collect();
        match given[..] {
            [] => {
                let detail = "must specify one of: `configMapRef` or `secretRef`";
                faults.value(path, "", detail);
            }
            [kind] => drop(faults.require(at(source, kind), &path.child(kind), "name")),
            _ => faults.value(path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn check_value_from(entry: &Value, path: &Path, faults: &mut FieldErrors) {
    let from = at(entry, "valueFrom");
    let mut given = 0;
    if is_set(from, "fieldRef") {
        given += 1;
        check_field(at(from, "fieldRef"), &path.child("fieldRef"), &POD_FIELDS, faults);
    }
    if is_set(from, "resourceFieldRef") {
        given += 1;
        check_resource(at(from, "resourceFieldRef"), &path.child("resourceFieldRef"), faults);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let reference = at(from, kind);
        if reference.is_null() {
            continue;
        }
        given += 1;
        let path = path.child(kind);
        let name = text(reference, "name");
        faults.invalid_text(&path.child("name"), name, names::subdomain(name));
        if faults.require(reference, &path, "key") {
            let key = text(reference, "key");
            faults.invalid_text(&path.child("key"), key, names::config_key(key));
        }
    }
    if given == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or \
                      `secretKeyRef`";
        faults.value(path.clone(), "", detail);
    } else if !text(entry, "value").is_empty() {
        faults.value(path.clone(), "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        let detail = "may not have more than one field specified at a time";
        faults.value(path.clone(), "", detail);
    }
}

/// Validates a reference to a field of the pod itself.
pub(super) fn check_field(
    reference: &Value,
    path: &Path,
    fields: &[&str],
    faults: &mut FieldErrors,
) {
    if !faults.require(reference, path, "apiVersion")
        || !faults.require(reference, path, "fieldPath")
    {
        return;
    }
    let field = text(reference, "fieldPath");
    let whole = path;
    let path = path.child("fieldPath");
    if let Some((map, key)) = field.strip_suffix("']").and_then(|it| it.split_once("['")) {
        match map {
            "metadata.annotations" => {
                faults.invalid_text(whole, key, names::qualified(&key.to_lowercase()));
            }
            "metadata.labels" => faults.invalid_text(whole, key, names::qualified(key)),
            _ => faults.value(
                path,
                field,
                &format!(
                    "error converting fieldPath: field label does not support subscript: {map}"
                ),
            ),
        }
        return;
    }
    let known = POD_FIELDS.contains(&field)
        || matches!(
            field,
            "metadata.annotations"
                | "metadata.labels"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "status.phase"
                | "spec.host"
        );
    if !known {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        faults.value(path, field, &detail);
    } else if !fields.contains(&field) {
        let mut supported = fields.to_vec();
        supported.sort_unstable();
        faults.not_supported(path, field, &supported);
    }
}

/// Validates a reference to a resource of a container.
pub(super) fn check_resource(reference: &Value, path: &Path, faults: &mut FieldErrors) {
    if !faults.require(reference, path, "resource") {
        return;
    }
    let name = text(reference, "resource");
    let huge = ["limits.hugepages-", "requests.hugepages-"];
    if !RESOURCES.contains(&name) && !huge.iter().any(|prefix| name.starts_with(prefix)) {
        faults.not_supported(path.child("resource"), name, &RESOURCES);
    }
}

fn check_probes(container: &Value, path: &Path, faults: &mut FieldErrors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, name);
        if probe.is_null() {
            continue;
        }
        let path = path.child(name);
        check_handler(probe, &path, faults);
        let fields = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        for field in fields {
            faults.not_negative(probe, &path, field);
        }
        if let Some(seconds) = int(probe, "terminationGracePeriodSeconds") {
            let path = path.child("terminationGracePeriodSeconds");
            if name == "readinessProbe" {
                faults.value(path, seconds, "must not be set for readinessProbes");
            } else if seconds <= 0 {
                faults.value(path, seconds, "must be greater than 0");
            }
        }
        let successes = int(probe, "successThreshold").unwrap_or(1);
        if name != "readinessProbe" && successes != 1 {
            faults.value(path.child("successThreshold"), successes, "must be 1");
        }
    }
}

fn check_lifecycle(container: &Value, path: &Path, faults: &mut FieldErrors) {
    for name in ["postStart", "preStop"] {
        let handler = at(container, "lifecycle").get(name).unwrap_or(&Value::Null);
        if !handler.is_null() {
            check_handler(handler, &path.child("lifecycle").child(name), faults);
        }
    }
}

fn check_handler(handler: &Value, path: &Path, faults: &mut FieldErrors) {
    let kinds = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
    let mut given = 0;
    for kind in kinds.into_iter().filter(|kind| is_set(handler, kind)) {
        let action = at(handler, kind);
        let path = path.child(kind);
        given += 1;
        if given > 1 {
            faults.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" => drop(faults.require(action, &path, "command")),
            "httpGet" => {
                faults.require(action, &path, "path");
                check_port(at(action, "port"), &path.child("port"), faults);
                faults.one_of(action, &path, "scheme", &["HTTP", "HTTPS"]);
                for (place, header) in list(action, "httpHeaders").iter().enumerate() {
                    let path = path.child("httpHeaders").index(place);
                    faults.require(header, &path, "name");
                }
            }
            "tcpSocket" | "grpc" => check_port(at(action, "port"), &path.child("port"), faults),
            _ => faults.not_negative(action, &path, "seconds"),
        }
    }
    if given == 0 {
        faults.required(path.clone(), "must specify a handler type");
    }
}

/// Validates a port that is a number or a name.
pub(crate) fn check_port(port: &Value, path: &Path, faults: &mut FieldErrors) {
    match port {
        Value::String(name) => faults.invalid_text(path, name, names::port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for complaint in names::port_number(number) {
                faults.value(path.clone(), number, &complaint);
            }
        }
    }
}
