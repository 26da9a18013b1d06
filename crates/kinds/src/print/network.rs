//! Rows of services, their endpoints, and ingresses.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{
    NONE, UNSET, age, each, first_three, joined, list, name, number, set_or, text, text_or,
};
use super::selector::{labels, selector};

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let first = list(&spec["clusterIPs"]).first().map_or("", text);
    let first = if first.is_empty() { text_or(&spec["clusterIP"], NONE) } else { first };
    vec![
        name(object),
        text(&spec["type"]).into(),
        first.into(),
        external_ips(object).into(),
        ports(&spec["ports"]).into(),
        age(object, now),
        labels(&spec["selector"]).into(),
    ]
}

/// Returns the external address of a service.
fn external_ips(service: &Value) -> String {
    let spec = &service["spec"];
    let declared = joined(&spec["externalIPs"]);
    match text(&spec["type"]) {
        "ClusterIP" | "NodePort" if declared.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => declared,
        "LoadBalancer" => {
            let given = load_balancer_addresses(service);
            match (given.is_empty(), declared.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => declared,
                (false, true) => given,
                (false, false) => format!("{given},{declared}"),
            }
        }
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the addresses that load balancers assigned, each once and in order.
fn load_balancer_addresses(object: &Value) -> String {
    let ingress = list(&object["status"]["loadBalancer"]["ingress"]).iter();
    let addresses: BTreeSet<&str> = ingress
        .map(|it| text_or(&it["ip"], text(&it["hostname"])))
        .filter(|it| !it.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn ports(ports: &Value) -> String {
    let ports: Vec<String> = list(ports)
        .iter()
        .map(|it| {
            let (port, protocol) = (number(&it["port"]), text(&it["protocol"]));
            match number(&it["nodePort"]) {
                node if node > 0 => format!("{port}:{node}/{protocol}"),
                _ => format!("{port}/{protocol}"),
            }
        })
        .collect();
    if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let subsets = list(&object["subsets"]);
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = each(&subset["addresses"], "ip");
        let ports = list(&subset["ports"]);
        if ports.is_empty() {
            // A headless service may have none.
            all.extend(addresses.iter().map(|it| (*it).to_owned()));
        }
        for port in ports {
            let port = number(&port["port"]);
            all.extend(addresses.iter().map(|it| match it.contains(':') {
                true => format!("[{it}]:{port}"),
                false => format!("{it}:{port}"),
            }));
        }
    }
    let cell = if subsets.is_empty() { NONE.to_owned() } else { first_three(&all) };
    vec![name(object), cell.into(), age(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |it: &Value| match it["port"].as_i64() {
        Some(port) => port.to_string(),
        None => set_or(&it["name"], "*").to_owned(),
    };
    let ports: Vec<String> = list(&object["ports"]).iter().map(port).collect();
    let endpoints = list(&object["endpoints"]).iter();
    let addresses: Vec<&str> = endpoints.flat_map(|it| list(&it["addresses"])).map(text).collect();
    vec![
        name(object),
        text(&object["addressType"]).into(),
        some_or_unset(first_three(&ports)),
        some_or_unset(first_three(&addresses)),
        age(object, now),
    ]
}

fn some_or_unset(cell: String) -> Value {
    if cell.is_empty() { UNSET.into() } else { cell.into() }
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let ports = if list(&spec["tls"]).is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        set_or(&spec["ingressClassName"], NONE).into(),
        hosts(&spec["rules"]).into(),
        load_balancer_addresses(object).into(),
        ports.into(),
        age(object, now),
    ]
}

/// Formats the first three hosts; the number of further ones counts rules, with or without a host.
fn hosts(rules: &Value) -> String {
    const MAX_HOSTS_SHOWN: usize = 3;
    let mut shown = Vec::new();
    let mut more = false;
    for host in each(rules, "host") {
        more |= shown.len() == MAX_HOSTS_SHOWN;
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => {
            format!("{} + {} more...", shown.join(","), list(rules).len() - MAX_HOSTS_SHOWN)
        }
    }
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let parameters = &spec["parameters"];
    let cell = if parameters.is_object() {
        let (kind, of_name) = (text(&parameters["kind"]), text(&parameters["name"]));
        match parameters["apiGroup"].as_str() {
            Some(group) => format!("{kind}.{group}/{of_name}"),
            None => format!("{kind}/{of_name}"),
        }
    } else {
        NONE.to_owned()
    };
    vec![name(object), text(&spec["controller"]).into(), cell.into(), age(object, now)]
}

/// The age has no column on kube-apiserver either.
pub(super) fn ip_address(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = &object["spec"]["parentRef"];
    let cell = if parent.is_object() {
        let mut cell = text(&parent["resource"]).to_lowercase();
        for (mark, part) in [
            (".", text(&parent["group"]).to_lowercase()),
            ("/", text(&parent["namespace"]).to_owned()),
        ] {
            if !part.is_empty() {
                cell = format!("{cell}{mark}{part}");
            }
        }
        format!("{cell}/{}", text(&parent["name"]))
    } else {
        NONE.to_owned()
    };
    vec![name(object), cell.into(), age(object, now)]
}

pub(super) fn policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), selector(&object["spec"]["podSelector"]).into(), age(object, now)]
}

pub(super) fn service_cidr(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), joined(&object["spec"]["cidrs"]).into(), age(object, now)]
}
