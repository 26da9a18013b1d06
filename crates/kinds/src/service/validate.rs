//! Validates services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{is_external, is_headless, needs_health_check};
use crate::endpoints::check_endpoint_ip;
use crate::field_errors::{FieldErrors, Path};
use crate::metadata::check_labels;
use crate::names;
use crate::pod::containers::check_port;
use crate::tree::{at, int, is_empty, is_set, list, same, text};

pub(super) fn create(object: &Value) -> Vec<FieldError> {
    check(object).into_vec()
}

/// Validates the addresses and families alone, which happens before any is allocated.
pub(super) fn cluster_ips(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    check_ips(at(object, "spec"), is_headless(object), &Path::new("spec"), &mut faults);
    faults
}

fn check(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let kind = text(spec, "type");
    let headless = is_headless(object);
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        faults.required(path.child("ports"), "");
    }
    check_service_type(spec, headless, &path, &mut faults);
    let mut names = BTreeSet::new();
    for (place, port) in ports.iter().enumerate() {
        let path = path.child("ports").index(place);
        check_service_port(port, ports.len() > 1, &path, &mut faults);
        let name = text(port, "name");
        if !name.is_empty() && names::label(name).is_empty() && !names.insert(name) {
            faults.duplicate(path.child("name"), name);
        }
    }
    check_labels(spec, &path, "selector", &mut faults);
    faults.require_one_of(spec, &path, "sessionAffinity", &["ClientIP", "None"]);
    if let Some(seconds) = int(spec, "sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=86_400).contains(&seconds)
    {
        let path = path.child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds");
        faults.value(path, seconds, "must be greater than 0 and less than 86400");
    }
    if kind != "ExternalName" {
        check_ips(spec, headless, &path, &mut faults);
    }
    for (place, ip) in list(spec, "externalIPs").iter().enumerate() {
        let path = path.child("externalIPs").index(place);
        let ip = ip.as_str().unwrap_or_default();
        if names::ip(ip).is_empty() {
            check_endpoint_ip(ip, &path, &mut faults);
        } else {
            faults.invalid_text(&path, ip, names::ip(ip));
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    faults.require_one_of(spec, &path, "type", &kinds);
    check_uniqueness(spec, &path, &mut faults);
    check_balancer(spec, &path, &mut faults);
    check_policies(object, &path, &mut faults);
    faults
}

fn check_service_type(spec: &Value, headless: bool, path: &Path, faults: &mut FieldErrors) {
    let kind = text(spec, "type");
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            faults.value(path.child("clusterIPs").index(0), "None", &detail);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !is_empty(spec, field) {
                    let detail = "may not be set for ExternalName services";
                    faults.forbidden(path.child(field), detail);
                }
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                faults.required(path.child("externalName"), "");
            } else {
                faults.invalid_text(&path.child("externalName"), name, names::subdomain(name));
            }
        }
        _ => {}
    }
}

fn check_service_port(port: &Value, needs_name: bool, path: &Path, faults: &mut FieldErrors) {
    let name = text(port, "name");
    if name.is_empty() {
        if needs_name {
            faults.required(path.child("name"), "");
        }
    } else {
        faults.invalid_text(&path.child("name"), name, names::label(name));
    }
    let number = int(port, "port").unwrap_or_default();
    for complaint in names::port_number(number) {
        faults.value(path.child("port"), number, &complaint);
    }
    faults.require_one_of(port, path, "protocol", &["SCTP", "TCP", "UDP"]);
    check_port(at(port, "targetPort"), &path.child("targetPort"), faults);
    if let Some(protocol) = at(port, "appProtocol").as_str() {
        faults.invalid_text(&path.child("appProtocol"), protocol, names::qualified(protocol));
    }
}

fn check_ips(spec: &Value, headless: bool, path: &Path, faults: &mut FieldErrors) {
    let ips = list(spec, "clusterIPs");
    let first = text(spec, "clusterIP");
    let at_ips = path.child("clusterIPs");
    let all = at(spec, "clusterIPs").clone();
    if first.is_empty() {
        if !ips.is_empty() {
            let detail = "must be empty when `clusterIP` is not specified";
            faults.value(at_ips.clone(), all.clone(), detail);
        }
    } else if ips.is_empty() {
        faults.required(at_ips.clone(), "");
    } else if ips[0] != first {
        faults.value(at_ips.clone(), all.clone(), "first value must match `clusterIP`");
    }
    let mut seen = BTreeSet::new();
    for (place, family) in list(spec, "ipFamilies").iter().enumerate() {
        let path = path.child("ipFamilies").index(place);
        let family = family.as_str().unwrap_or_default();
        if !matches!(family, "IPv4" | "IPv6") {
            faults.not_supported(path.clone(), family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(family) {
            faults.duplicate(path, family);
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    faults.one_of(spec, path, "ipFamilyPolicy", &policies);
    for (place, ip) in ips.iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if place == 0 && headless {
            if ips.len() > 1 {
                let detail = "'None' must be the first and only value";
                faults.value(at_ips.clone(), all.clone(), detail);
            }
            continue;
        }
        faults.invalid_text(&at_ips.index(place), ip, names::ip(ip));
    }
    if ips.len() > 2 {
        faults.value(at_ips.clone(), all.clone(), "may only hold up to 2 values");
    }
    let addresses: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    if headless || addresses.len() != ips.len() {
        return;
    }
    let fours = addresses.iter().filter(|ip| ip.is_ipv4()).count();
    if ips.len() > 1 && (fours == 0 || fours == ips.len()) {
        let detail = "may specify no more than one IP for each IP family";
        faults.value(at_ips.clone(), all, detail);
    }
    for (place, (ip, family)) in addresses.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let fits = match family.as_str() {
            Some("IPv4") => ip.is_ipv4(),
            Some("IPv6") => ip.is_ipv6(),
            Some(_) | None => true,
        };
        if !fits {
            let family = family.as_str().unwrap_or_default();
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{place}]`");
            faults.value(at_ips.index(place), ips[place].clone(), &detail);
        }
    }
}

fn check_uniqueness(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let mut node_ports = BTreeSet::new();
    let mut ports = BTreeSet::new();
    let kind = text(spec, "type");
    let number = |port: &Value, field: &str| int(port, field).unwrap_or_default();
    let each = || list(spec, "ports").iter().enumerate();
    let path = path.child("ports");
    for (place, port) in each().filter(|(_, port)| number(port, "nodePort") != 0) {
        if kind == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            faults.forbidden(path.index(place).child("nodePort"), detail);
        }
        if !node_ports.insert((text(port, "protocol"), number(port, "nodePort"))) {
            faults.duplicate(path.index(place).child("nodePort"), number(port, "nodePort"));
        }
    }
    for (place, port) in each() {
        let key = (text(port, "protocol"), number(port, "port"));
        if !ports.insert(key) {
            let shown = json!({
                "Name": "", "Protocol": key.0, "AppProtocol": null, "Port": key.1,
                "TargetPort": 0, "NodePort": 0,
            });
            faults.duplicate(path.index(place), shown);
        }
    }
}

fn check_balancer(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let is_balancer = text(spec, "type") == "LoadBalancer";
    let ranges = path.child("LoadBalancerSourceRanges");
    if !is_empty(spec, "loadBalancerSourceRanges") && !is_balancer {
        faults.forbidden(ranges.clone(), only);
    }
    for (place, range) in list(spec, "loadBalancerSourceRanges").iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        faults.invalid_text(&ranges.index(place), range, names::cidr(range));
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if is_set(spec, field) && !is_balancer {
            faults.forbidden(path.child(field), only);
        }
    }
}

fn check_policies(object: &Value, path: &Path, faults: &mut FieldErrors) {
    let spec = at(object, "spec");
    let policy = text(spec, "externalTrafficPolicy");
    let place = path.child("externalTrafficPolicy");
    if is_external(object) {
        faults.require_one_of(spec, path, "externalTrafficPolicy", &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        faults.value(place, policy, "may only be set for externally-accessible services");
    }
    let health = int(spec, "healthCheckNodePort").unwrap_or_default();
    let at_health = path.child("healthCheckNodePort");
    if needs_health_check(object) {
        if health == 0 {
            faults.required(at_health, "");
        } else {
            for complaint in names::port_number(health) {
                faults.value(at_health.clone(), health, &complaint);
            }
        }
    } else if health != 0 {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        faults.value(at_health, health, detail);
    }
    faults.one_of(spec, path, "internalTrafficPolicy", &["Cluster", "Local"]);
    let ways = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    faults.one_of(spec, path, "trafficDistribution", &ways);
}

pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let external = |object: &Value| text(object, "spec.type") == "ExternalName";
    let path = Path::new("spec");
    if !external(new) && !external(old) && !is_empty(old, "spec.clusterIPs") {
        let (ips, had) = (list(new, "spec.clusterIPs"), list(old, "spec.clusterIPs"));
        if ips.first() != had.first() {
            let detail = "may not change once set";
            let value = at(new, "spec.clusterIPs").clone();
            faults.value(path.child("clusterIPs").index(0), value, detail);
        }
    }
    if needs_health_check(old)
        && needs_health_check(new)
        && !same(new, old, "spec.healthCheckNodePort")
    {
        faults.forbidden(path.child("healthCheckNodePort"), "field is immutable");
    }
    let balancer = |object: &Value| text(object, "spec.type") == "LoadBalancer";
    if balancer(new) && balancer(old) && !same(new, old, "spec.loadBalancerClass") {
        let value = at(new, "spec.loadBalancerClass").clone();
        faults.value(path.child("loadBalancerClass"), value, "may not change once set");
    }
    let mut all = faults.into_vec();
    all.extend(check(new).into_vec());
    all
}

pub(super) fn status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let places = list(new, "status.loadBalancer.ingress");
    if text(new, "spec.type") != "LoadBalancer" && !places.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        faults.forbidden(path.clone(), detail);
    }
    for (place, entry) in places.iter().enumerate() {
        let path = path.index(place);
        let ip = text(entry, "ip");
        if !ip.is_empty() {
            faults.invalid_text(&path.child("ip"), ip, names::ip(ip));
        }
        let name = text(entry, "hostname");
        if !name.is_empty() {
            faults.invalid_text(&path.child("hostname"), name, names::subdomain(name));
        }
    }
    faults.into_vec()
}
