//! Validates pod specs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{containers, placement, resources, security, volumes};
use crate::field_errors::{FieldErrors, Path};
use crate::metadata::check_labels;
use crate::names;
use crate::tree::{at, flag, int, is_empty, is_set, list, text};

/// Validates a pod spec.
pub(crate) fn check(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let volumes = volumes::check(spec, path, faults);
    let claims = check_claims(spec, path, faults);
    let seen = containers::ContainerReferences { spec, volumes: &volumes, claims: &claims };
    containers::check_all(&seen, path, faults);
    if flag(spec, "hostNetwork") {
        host_ports(spec, path, faults);
    }
    if is_set(spec, "resources") {
        let path = path.child("resources");
        resources::check(at(spec, "resources"), &claims, &path, faults);
    }
    faults.require_one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"]);
    faults.require_one_of(
        spec,
        path,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    check_labels(spec, path, "nodeSelector", faults);
    security::check_pod(at(spec, "securityContext"), &path.child("securityContext"), faults);
    placement::check_affinity(at(spec, "affinity"), &path.child("affinity"), faults);
    check_dns(spec, path, faults);
    check_gates(spec, path, faults);
    placement::check_spread(spec, path, faults);
    for (field, rule) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain),
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            faults.invalid_text(&path.child(field), name, rule(name));
        }
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        let complaints = names::in_range(seconds, 1, i64::from(i32::MAX));
        for complaint in complaints {
            faults.value(path.child("activeDeadlineSeconds"), seconds, &complaint);
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            faults.invalid_text(&path.child(field), name, names::label(name));
        }
    }
    placement::check_tolerations(spec, path, faults);
    check_aliases(spec, path, faults);
    for field in ["priorityClassName", "runtimeClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            faults.invalid_text(&path.child(field), name, names::subdomain(name));
        }
    }
    faults.one_of(spec, path, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    if is_set(spec, "os") {
        let name = text(spec, "os.name");
        if name.is_empty() {
            faults.required(path.child("os").child("name"), "cannot be empty");
        } else if !matches!(name, "linux" | "windows") {
            faults.not_supported(path.child("os"), name, &["linux", "windows"]);
        }
    }
}

/// Validates scheduling gates, which must be removed before scheduling, and readiness gates.
fn check_gates(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let ready = path.child("readinessGates");
    for (place, gate) in list(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        faults.invalid_text(
            &ready.index(place).child("conditionType"),
            kind,
            names::qualified(kind),
        );
    }
    let path = path.child("schedulingGates");
    let mut seen = BTreeSet::new();
    for (place, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        faults.invalid_text(&path.index(place), name, names::qualified(name));
        if !seen.insert(name) {
            faults.duplicate(path.index(place), name);
        }
    }
}

fn check_dns(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("dnsConfig");
    let config = at(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            faults.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if list(config, "nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            faults.required(path.child("nameservers"), detail);
        }
    }
    let servers = list(config, "nameservers");
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        faults.value(path.child("nameservers"), at(config, "nameservers").clone(), detail);
    }
    for (place, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        faults.invalid_text(&path.child("nameservers").index(place), server, names::ip(server));
    }
    for (place, option) in list(config, "options").iter().enumerate() {
        if is_empty(option, "name") {
            faults.required(path.child("options").index(place), "must not be empty");
        }
    }
}

fn check_aliases(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = path.child("hostAliases").index(place);
        let ip = text(alias, "ip");
        faults.invalid_text(&path.child("ip"), ip, names::ip(ip));
        for (place, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            faults.invalid_text(
                &path.child("hostnames").index(place),
                name,
                names::subdomain(name),
            );
        }
    }
}

/// Validates the device claims of the pod; returns their names.
fn check_claims<'a>(spec: &'a Value, path: &Path, faults: &mut FieldErrors) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (place, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let path = path.child("resourceClaims").index(place);
        let name = text(claim, "name");
        if name.is_empty() {
            faults.required(path.child("name"), "");
        } else if !seen.insert(name) {
            faults.duplicate(path.child("name"), name);
        } else {
            faults.invalid_text(&path.child("name"), name, names::label(name));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = sources.iter().filter(|field| is_set(claim, field)).count();
        let shown = json!({
            "Name": name,
            "ResourceClaimName": at(claim, sources[0]),
            "ResourceClaimTemplateName": at(claim, sources[1]),
        });
        let detail = "one of: `resourceClaimName`, `resourceClaimTemplateName`";
        if given == 0 {
            faults.value(path.clone(), shown, &format!("must specify {detail}"));
        } else if given > 1 {
            faults.value(path.clone(), shown, &format!("at most {detail} may be specified"));
        }
        for field in sources {
            if let Some(name) = at(claim, field).as_str() {
                faults.invalid_text(&path.child(field), name, names::subdomain(name));
            }
        }
    }
    seen
}

fn host_ports(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, container) in list(spec, "containers").iter().enumerate() {
        let path = path.child("containers").index(place).child("ports");
        for (place, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if host != int(port, "containerPort").unwrap_or_default() {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                faults.value(path.index(place).child("hostPort"), host, detail);
            }
        }
    }
}
