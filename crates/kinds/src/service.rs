//! Defaults, validates and updates services.

use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::tree::{
    at, copy_field, each, int, is_empty, list, put, remove, same, set_default, set_default_object,
    text,
};

mod allocate;
mod validate;

pub use allocate::{
    AllocationError, ServiceAllocationError, ServiceAllocator, allocate, cluster_ips, node_ports,
};

const HEALTH_CHECK_PORT: &str = "spec.healthCheckNodePort";

pub(crate) const RULES: Rules = Rules {
    default,
    create: |object, _| {
        if !is_empty(object, "spec.clusterIP") && is_empty(object, "spec.clusterIPs") {
            let ip = at(object, "spec.clusterIP").clone();
            put(object, "spec.clusterIPs", vec![ip]);
        }
        default_ip_families(object);
        set_default_object(object, "status.loadBalancer");
    },
    update,
    validate: validate::create,
    validate_update: validate::update,
    validate_status: validate::status,
    warnings: crate::warnings::service,
    ..Rules::NONE
};

fn default(object: &mut Value) {
    set_default(object, "spec.sessionAffinity", "None");
    match text(object, "spec.sessionAffinity") {
        "None" => drop(remove(object, "spec.sessionAffinityConfig")),
        "ClientIP" => {
            set_default(object, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10_800);
        }
        _ => {}
    }
    set_default(object, "spec.type", "ClusterIP");
    for port in each(object, "spec.ports") {
        set_default(port, "protocol", "TCP");
        let target = at(port, "targetPort");
        if target.is_null() || *target == 0 || *target == "" {
            let number = int(port, "port").unwrap_or_default();
            put(port, "targetPort", number);
        }
    }
    if is_external(object) {
        set_default(object, "spec.externalTrafficPolicy", "Cluster");
    }
    let kind = text(object, "spec.type").to_owned();
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_default(object, "spec.internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(object, "spec.allocateLoadBalancerNodePorts", true);
        for entry in each(object, "status.loadBalancer.ingress") {
            if !is_empty(entry, "ip") {
                set_default(entry, "ipMode", "VIP");
            }
        }
    }
}

/// Returns whether a service is reachable from outside the cluster.
fn is_external(object: &Value) -> bool {
    matches!(text(object, "spec.type"), "NodePort" | "LoadBalancer")
        || (text(object, "spec.type") == "ClusterIP" && !is_empty(object, "spec.externalIPs"))
}

fn is_headless(object: &Value) -> bool {
    text(object, "spec.clusterIP") == "None"
        || list(object, "spec.clusterIPs").first().is_some_and(|ip| ip == "None")
}

fn needs_node_port(object: &Value) -> bool {
    let kind = text(object, "spec.type");
    kind == "NodePort"
        || (kind == "LoadBalancer"
            && at(object, "spec.allocateLoadBalancerNodePorts").as_bool().unwrap_or(true))
}

/// Returns whether a load balancer checks each node for pods of the service.
fn needs_health_check(object: &Value) -> bool {
    text(object, "spec.type") == "LoadBalancer"
        && text(object, "spec.externalTrafficPolicy") == "Local"
}

/// Returns the address families of an IPv4-only cluster. The endpoints of a headless service
/// without a selector are written by users, so both families are left open.
fn default_ip_families(object: &mut Value) {
    if text(object, "spec.type") == "ExternalName" {
        return;
    }
    let open = is_headless(object) && is_empty(object, "spec.selector");
    if is_empty(object, "spec.ipFamilyPolicy") {
        let policy = if open { "RequireDualStack" } else { "SingleStack" };
        put(object, "spec.ipFamilyPolicy", policy);
    }
    // An address of an unsupported family is rejected by name when addresses are allocated.
    let is_ipv6 = |ip: &Value| {
        let ip = ip.as_str().and_then(|ip| ip.parse::<std::net::IpAddr>().ok());
        ip.is_some_and(|ip| ip.is_ipv6())
    };
    let foreign = list(object, "spec.clusterIPs").iter().any(is_ipv6);
    if is_empty(object, "spec.ipFamilies") && !foreign {
        put(object, "spec.ipFamilies", json!(["IPv4"]));
    }
    let both = open && text(object, "spec.ipFamilyPolicy") != "SingleStack";
    if let [only] = list(object, "spec.ipFamilies")
        && both
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        let families = json!([only, other]);
        put(object, "spec.ipFamilies", families);
    }
}

/// Preserves fields that a client need not repeat, and removes those that the new type does not
/// use.
fn update(new: &mut Value, old: &Value) {
    sync_cluster_ips(new, old);
    let (was, is) = (text(old, "spec.type"), text(new, "spec.type").to_owned());
    if is == "ExternalName" && was != "ExternalName" {
        let of_no_use =
            ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
        for field in of_no_use.map(|field| format!("spec.{field}")) {
            if same(new, old, &field) {
                remove(new, &field);
            }
        }
    }
    if needs_node_port(old) && !needs_node_port(new) {
        let before = list(old, "spec.ports");
        let had = |port: &Value| before.iter().any(|it| at(it, "nodePort") == at(port, "nodePort"));
        for port in each(new, "spec.ports").filter(|port| had(port)) {
            remove(port, "nodePort");
        }
    }
    let balancer = |object: &Value| text(object, "spec.type") == "LoadBalancer";
    if balancer(old) && !balancer(new) {
        for field in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if same(new, old, field) {
                remove(new, field);
            }
        }
        put(new, "status", json!({ "loadBalancer": {} }));
    }
    let was_external = is_external(old) && !is_external(new);
    if was_external && same(new, old, "spec.externalTrafficPolicy") {
        remove(new, "spec.externalTrafficPolicy");
    }
    if needs_health_check(old) && !needs_health_check(new) && same(new, old, HEALTH_CHECK_PORT) {
        remove(new, HEALTH_CHECK_PORT);
    }
    if was != "ExternalName" && is != "ExternalName" {
        preserve_allocations(new, old);
    }
    allocate::drop_secondary_family(new, old);
    default_ip_families(new);
}

/// Synchronises the two address fields: either may be left out or changed; they mean the same.
fn sync_cluster_ips(new: &mut Value, old: &Value) {
    let one_same = same(new, old, "spec.clusterIP");
    let all_same = same(new, old, "spec.clusterIPs");
    if is_empty(new, "spec.clusterIP") {
        if all_same && !is_empty(old, "spec.clusterIP") {
            remove(new, "spec.clusterIPs");
        }
    } else if !one_same && all_same {
        let ip = at(new, "spec.clusterIP").clone();
        put(new, "spec.clusterIPs", vec![ip]);
    } else if is_empty(new, "spec.clusterIPs") {
        if one_same && !is_empty(old, "spec.clusterIPs") {
            remove(new, "spec.clusterIP");
        } else {
            let ip = at(new, "spec.clusterIP").clone();
            put(new, "spec.clusterIPs", vec![ip]);
        }
    }
}

fn preserve_allocations(new: &mut Value, old: &Value) {
    if is_empty(new, "spec.clusterIP") {
        copy_field(new, old, "spec.clusterIP");
        copy_field(new, old, "spec.clusterIPs");
    }
    if is_empty(new, "spec.ipFamilies") {
        copy_field(new, old, "spec.ipFamilies");
        copy_field(new, old, "spec.ipFamilyPolicy");
    }
    if needs_node_port(old) && needs_node_port(new) {
        let used: Vec<i64> =
            list(new, "spec.ports").iter().filter_map(|port| int(port, "nodePort")).collect();
        for port in each(new, "spec.ports") {
            if int(port, "nodePort").unwrap_or_default() != 0 {
                continue;
            }
            let twin = list(old, "spec.ports").iter().find(|it| {
                at(it, "port") == at(port, "port") && at(it, "protocol") == at(port, "protocol")
            });
            if let Some(number) = twin.and_then(|it| int(it, "nodePort"))
                && !used.contains(&number)
            {
                put(port, "nodePort", number);
            }
        }
    }
    let asked = int(new, HEALTH_CHECK_PORT).unwrap_or_default() != 0;
    if needs_health_check(old) && needs_health_check(new) && !asked {
        copy_field(new, old, HEALTH_CHECK_PORT);
    }
}
