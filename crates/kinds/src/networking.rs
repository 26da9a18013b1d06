//! Validates Ingresses and NetworkPolicies.

use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::selector;
use crate::tree::{at, at_mut, each, int, is_empty, is_set, list, put, set_default, text};

pub(crate) const INGRESS_RULES: Rules = Rules {
    create: |object, _| put(object, "status", json!({ "loadBalancer": {} })),
    validate: |object| check_ingress(object).into_vec(),
    validate_update: |new, _| check_ingress(new).into_vec(),
    warnings: crate::warnings::ingress,
    ..Rules::NONE
};

pub(crate) const CLASS_RULES: Rules = Rules {
    default: |object| {
        if let Some(parameters) = at_mut(object, "spec.parameters") {
            set_default(parameters, "scope", "Cluster");
        }
    },
    validate: |object| check_class(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_class(new);
        faults.immutable(at(new, "spec"), at(old, "spec"), &Path::new("spec"), "controller");
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const POLICY_RULES: Rules = Rules {
    default: |object| {
        for side in ["spec.ingress", "spec.egress"] {
            for rule in each(object, side) {
                for port in each(rule, "ports") {
                    set_default(port, "protocol", "TCP");
                }
            }
        }
        if is_empty(object, "spec.policyTypes") {
            let both = !is_empty(object, "spec.egress");
            let types = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            put(object, "spec.policyTypes", types);
        }
    },
    validate: |object| check_policy(object).into_vec(),
    validate_update: |new, _| check_policy(new).into_vec(),
    ..Rules::NONE
};

fn check_ingress(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    if list(spec, "rules").is_empty() && !is_set(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        faults.value(path.clone(), at(spec, "rules").clone(), detail);
    }
    if is_set(spec, "defaultBackend") {
        check_backend(at(spec, "defaultBackend"), &path.child("defaultBackend"), &mut faults);
    }
    for (place, rule) in list(spec, "rules").iter().enumerate() {
        let path = path.child("rules").index(place);
        check_host(text(rule, "host"), &path.child("host"), &mut faults);
        if is_set(rule, "http") {
            check_paths(at(rule, "http"), &path.child("http").child("paths"), &mut faults);
        }
    }
    for (place, entry) in list(spec, "tls").iter().enumerate() {
        let path = path.child("tls").index(place).child("hosts");
        for (place, host) in list(entry, "hosts").iter().enumerate() {
            let (host, path) = (host.as_str().unwrap_or_default(), path.index(place));
            let wild = host.contains('*');
            let complaints = if wild { names::wildcard(host) } else { names::subdomain(host) };
            faults.invalid_text(&path, host, complaints);
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        faults.invalid_text(&path.child("ingressClassName"), class, names::subdomain(class));
    }
    faults
}

fn check_host(host: &str, path: &Path, faults: &mut FieldErrors) {
    if host.is_empty() {
        return;
    }
    if names::ip(host).is_empty() {
        faults.value(path.clone(), host, "must be a DNS name, not an IP address");
        return;
    }
    let wild = host.contains('*');
    let complaints = if wild { names::wildcard(host) } else { names::subdomain(host) };
    faults.invalid_text(path, host, complaints);
}

/// Sequences with which a path could lead to another one.
const BAD_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const BAD_ENDS: [&str; 2] = ["/..", "/."];

fn check_paths(http: &Value, path: &Path, faults: &mut FieldErrors) {
    if list(http, "paths").is_empty() {
        faults.required(path.clone(), "");
    }
    for (place, entry) in list(http, "paths").iter().enumerate() {
        let path = path.index(place);
        let (kind, given) = (text(entry, "pathType"), text(entry, "path"));
        let place = path.child("path");
        match kind {
            "" => faults.required(path.child("pathType"), "pathType must be specified"),
            "Exact" | "Prefix" => {
                if !given.starts_with('/') {
                    faults.value(place.clone(), given, "must be an absolute path");
                }
                for part in BAD_SEQUENCES.iter().filter(|part| given.contains(*part)) {
                    faults.value(place.clone(), given, &format!("must not contain '{part}'"));
                }
                for end in BAD_ENDS.iter().filter(|end| given.ends_with(*end)) {
                    faults.value(place.clone(), given, &format!("cannot end with '{end}'"));
                }
            }
            "ImplementationSpecific" => {
                if !given.is_empty() && !given.starts_with('/') {
                    faults.value(place, given, "must be an absolute path");
                }
            }
            other => {
                let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
                faults.not_supported(path.child("pathType"), other, &kinds);
            }
        }
        check_backend(at(entry, "backend"), &path.child("backend"), faults);
    }
}

fn check_backend(backend: &Value, path: &Path, faults: &mut FieldErrors) {
    let (service, resource) = (at(backend, "service"), at(backend, "resource"));
    if !service.is_null() && !resource.is_null() {
        faults.value(path.clone(), "", "cannot set both resource and service backends");
        return;
    }
    if !resource.is_null() {
        for field in ["kind", "name"] {
            faults.require(resource, &path.child("resource"), field);
        }
        return;
    }
    if service.is_null() {
        faults.value(path.clone(), "", "resource or service backend is required");
        return;
    }
    let place = path.child("service").child("name");
    if is_empty(service, "name") {
        faults.required(place, "");
    } else {
        let name = text(service, "name");
        faults.invalid_text(&place, name, names::label_1035(name));
    }
    let number = int(service, "port.number").unwrap_or_default();
    let name = text(service, "port.name");
    let port = path.child("service").child("port");
    if number != 0 && !name.is_empty() {
        faults.value(path.clone(), "", "cannot set both port name & port number");
    } else if !name.is_empty() {
        faults.invalid_text(&port.child("name"), name, names::port_name(name));
    } else if number != 0 {
        for complaint in names::port_number(number) {
            faults.value(port.child("number"), number, &complaint);
        }
    } else {
        faults.required(path.clone(), "port name or number is required");
    }
}

/// Validates a domain-prefixed path, such as the name of a controller.
pub(crate) fn check_domain_path(value: &str, path: &Path, faults: &mut FieldErrors) {
    if value.is_empty() {
        faults.required(path.clone(), "");
        return;
    }
    match value.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            for complaint in names::subdomain(domain) {
                faults.value(path.clone(), domain, &complaint);
            }
        }
        Some(_) | None => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            faults.value(path.clone(), value, detail);
        }
    }
}

fn check_class(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    let controller = text(object, "spec.controller");
    if !controller.is_empty() {
        check_domain_path(controller, &path.child("controller"), &mut faults);
    }
    let parameters = at(object, "spec.parameters");
    if !parameters.is_null() {
        let path = path.child("parameters");
        faults.require(parameters, &path, "kind");
        faults.require(parameters, &path, "name");
        faults.require_one_of(parameters, &path, "scope", &["Cluster", "Namespace"]);
    }
    faults
}

fn check_policy(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let pods = path.child("podSelector");
    selector::check(at(spec, "podSelector"), &pods, &mut faults);
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (place, rule) in list(spec, side).iter().enumerate() {
            let path = path.child(side).index(place);
            for (place, port) in list(rule, "ports").iter().enumerate() {
                check_policy_port(port, &path.child("ports").index(place), &mut faults);
            }
            for (place, peer) in list(rule, peers).iter().enumerate() {
                check_peer(peer, &path.child(peers).index(place), &mut faults);
            }
        }
    }
    let types = list(spec, "policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        faults.value(path.child("policyTypes"), at(spec, "policyTypes").clone(), detail);
        return faults;
    }
    for (place, kind) in types.iter().enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let place = path.child("policyTypes").index(place);
            faults.not_supported(place, kind.clone(), &["Ingress", "Egress"]);
        }
    }
    faults
}

fn check_policy_port(port: &Value, path: &Path, faults: &mut FieldErrors) {
    faults.one_of(port, path, "protocol", &["TCP", "UDP", "SCTP"]);
    match at(port, "port") {
        Value::Null => {
            if is_set(port, "endPort") {
                let detail = "may not be specified when `port` is not specified";
                faults.value(path.child("endPort"), at(port, "endPort").clone(), detail);
            }
        }
        Value::String(name) => {
            if is_set(port, "endPort") {
                let detail = "may not be specified when `port` is non-numeric";
                faults.value(path.child("endPort"), at(port, "endPort").clone(), detail);
            }
            faults.invalid_text(&path.child("port"), name, names::port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            for complaint in names::port_number(number) {
                faults.value(path.child("port"), number, &complaint);
            }
            if let Some(end) = int(port, "endPort") {
                if end < number {
                    // kube-apiserver reports the first port here, not the last.
                    let detail = "must be greater than or equal to `port`";
                    faults.value(path.child("endPort"), number, detail);
                }
                for complaint in names::port_number(end) {
                    faults.value(path.child("endPort"), end, &complaint);
                }
            }
        }
    }
}

fn check_peer(peer: &Value, path: &Path, faults: &mut FieldErrors) {
    let mut given = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if is_set(peer, field) {
            given += 1;
            selector::check(at(peer, field), &path.child(field), faults);
        }
    }
    let block = at(peer, "ipBlock");
    if !block.is_null() {
        check_block(block, &path.child("ipBlock"), faults);
        if given > 0 {
            let detail = "may not specify both ipBlock and another peer";
            faults.forbidden(path.clone(), detail);
        }
        given += 1;
    }
    if given == 0 {
        faults.required(path.clone(), "must specify a peer");
    }
}

fn check_block(block: &Value, path: &Path, faults: &mut FieldErrors) {
    let cidr = text(block, "cidr");
    let Some((address, bits)) = names::parse_cidr(cidr) else {
        if cidr.is_empty() {
            faults.required(path.child("cidr"), "");
        } else {
            faults.invalid_text(&path.child("cidr"), cidr, names::cidr(cidr));
        }
        return;
    };
    for (place, part) in list(block, "except").iter().enumerate() {
        let path = path.child("except").index(place);
        let part = part.as_str().unwrap_or_default();
        match names::parse_cidr(part) {
            None => faults.invalid_text(&path, part, names::cidr(part)),
            Some((inner, inner_bits)) => {
                let inside = names::network(inner, bits) == names::network(address, bits);
                if !inside || inner_bits <= bits {
                    faults.value(path, part, "must be a strict subset of `cidr`");
                }
            }
        }
    }
}
