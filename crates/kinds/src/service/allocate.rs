//! Allocates cluster addresses and node ports to services.
//!
//! The rules, their order and the texts are those of Kubernetes
//! (`pkg/registry/core/service/storage`). The implementation of [`ServiceAllocator`] knows what is
//! free, and how an allocation is released when the service is not stored after all.

use std::net::IpAddr;

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{is_headless, needs_health_check, needs_node_port, validate};
use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, each, int, is_empty, list, put, same, text};

/// The source of addresses and ports. Implementations remember what is allocated.
pub trait ServiceAllocator {
    /// Allocates this cluster address.
    ///
    /// # Errors
    /// When the address is allocated already, or outside the range.
    fn reserve_cluster_ip(&mut self, wanted: IpAddr) -> Result<(), AllocationError>;

    /// Allocates any free cluster address.
    ///
    /// # Errors
    /// When none is free.
    fn allocate_cluster_ip(&mut self) -> Result<IpAddr, AllocationError>;

    /// Allocates this port of every node.
    ///
    /// # Errors
    /// When the port is allocated already, or outside the range.
    fn reserve_node_port(&mut self, wanted: i64) -> Result<(), AllocationError>;

    /// Allocates any free port of every node.
    ///
    /// # Errors
    /// When none is free.
    fn allocate_node_port(&mut self) -> Result<i64, AllocationError>;
}

/// Why an address or a port is not allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// A service has the address.
    #[error("provided IP is already allocated")]
    IpAllocated,
    /// No network of the cluster has the address.
    #[error("the provided network does not match the current range")]
    IpNotInNetwork,
    /// A dry run asks for an address outside the network.
    #[error("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")]
    IpNotInRange {
        /// The address.
        ip: IpAddr,
        /// The network of the cluster.
        range: String,
    },
    /// A service has the port.
    #[error("provided port is already allocated")]
    PortAllocated,
    /// Nodes do not open such a port for services.
    #[error("provided port is not in the valid range. The range of valid ports is {0}")]
    PortNotInRange(String),
    /// All are allocated.
    #[error("range is full")]
    RangeFull,
}

/// Why the addresses or ports of a service cannot be allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAllocationError {
    /// The service requests an invalid or unavailable value.
    Invalid(Vec<FieldError>),
    /// The range is exhausted, reported as an internal error.
    Internal(String),
    /// The range is exhausted, without such a message.
    Failure(String),
}

/// Allocates the addresses and ports that a service needs; `old` is the stored object of an update.
///
/// # Errors
///
/// When something cannot be allocated. The caller releases what was allocated before that.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    from: &mut dyn ServiceAllocator,
) -> Result<(), ServiceAllocationError> {
    check_families(service, old)?;
    if old.is_none_or(|old| text(old, "spec.type") == "ExternalName") {
        allocate_cluster_ip(service, from)?;
    }
    if matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer") {
        match old {
            None => allocate_new_ports(service, from)?,
            Some(old) => allocate_changed_ports(service, old, from)?,
        }
    }
    if needs_health_check(service) && !old.is_some_and(needs_health_check) {
        allocate_health_check_port(service, from)?;
    }
    Ok(())
}

/// Returns the cluster addresses of a stored service.
pub fn cluster_ips(service: &Value) -> impl Iterator<Item = IpAddr> {
    list(service, "spec.clusterIPs").iter().filter_map(|ip| ip.as_str()?.parse().ok())
}

/// Returns the node ports of a stored service, each once: several protocols may share one.
#[must_use]
pub fn node_ports(service: &Value) -> Vec<i64> {
    let ports = list(service, "spec.ports").iter().filter_map(|port| int(port, "nodePort"));
    let health = int(service, "spec.healthCheckNodePort").filter(|_| needs_health_check(service));
    let mut all: Vec<i64> = ports.chain(health).filter(|number| *number != 0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Rejects what an IPv4-only cluster cannot provide, before anything is allocated.
fn check_families(service: &Value, old: Option<&Value>) -> Result<(), ServiceAllocationError> {
    if text(service, "spec.type") == "ExternalName" {
        return Ok(());
    }
    let invalid = |faults: FieldErrors| match faults.into_vec() {
        none if none.is_empty() => Ok(()),
        some => Err(ServiceAllocationError::Invalid(some)),
    };
    invalid(validate::cluster_ips(service))?;
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    let policy = text(service, "spec.ipFamilyPolicy");
    let at_policy = path.child("ipFamilyPolicy");
    let (ips, families) = (list(service, "spec.clusterIPs"), list(service, "spec.ipFamilies"));
    if policy == "SingleStack" {
        let many = [("cluster IPs", ips), ("IP families", families)];
        for (what, _) in many.into_iter().filter(|(_, list)| list.len() == 2) {
            let detail = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            );
            faults.value(at_policy.clone(), policy, &detail);
        }
    } else if let Some(old) = old {
        let reduced =
            |field: &str| (1..list(old, field).len()).contains(&list(service, field).len());
        let lists = [("spec.clusterIPs", "cluster IP"), ("spec.ipFamilies", "IP family")];
        for (_, what) in lists.into_iter().filter(|(field, _)| reduced(field)) {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            faults.value(at_policy.clone(), policy, &detail);
        }
    }
    for (place, ip) in ips.iter().enumerate().skip(families.len()) {
        if ip.as_str().and_then(|ip| ip.parse().ok()).is_some_and(|ip: IpAddr| ip.is_ipv6()) {
            let all = at(service, "spec.clusterIPs").clone();
            let detail = "IPv6 is not configured on this cluster";
            faults.value(path.child("clusterIPs").index(place), all, detail);
        }
    }
    invalid(faults)?;
    if is_headless(service) && is_empty(service, "spec.selector") {
        return Ok(());
    }
    let mut faults = FieldErrors::new();
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        faults.value(at_policy, policy, detail);
    }
    for (place, family) in families.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
        let path = path.child("ipFamilies").index(place);
        faults.value(path, family.clone(), "not configured on this cluster");
    }
    invalid(faults)
}

fn allocate_cluster_ip(
    service: &mut Value,
    from: &mut dyn ServiceAllocator,
) -> Result<(), ServiceAllocationError> {
    if text(service, "spec.type") == "ExternalName" || is_headless(service) {
        return Ok(());
    }
    let wanted = list(service, "spec.clusterIPs").first().and_then(Value::as_str);
    let wanted = wanted.unwrap_or_default().to_owned();
    if let Ok(ip) = wanted.parse() {
        return from.reserve_cluster_ip(ip).map_err(|why| {
            let ips = at(service, "spec.clusterIPs").clone();
            let detail = format!("failed to allocate IP {wanted}: {why}");
            ServiceAllocationError::Invalid(vec![FieldError::invalid(
                "spec.clusterIPs",
                &ips,
                &detail,
            )])
        });
    }
    let ip = from.allocate_cluster_ip().map_err(|why| {
        ServiceAllocationError::Internal(format!("failed to allocate a serviceIP: {why}"))
    })?;
    put(service, "spec.clusterIP", ip.to_string());
    put(service, "spec.clusterIPs", vec![json!(ip.to_string())]);
    Ok(())
}

/// Allocates the node ports of a new service. Entries with the same service port share a node port,
/// so that TCP and UDP have the same number.
fn allocate_new_ports(
    service: &mut Value,
    from: &mut dyn ServiceAllocator,
) -> Result<(), ServiceAllocationError> {
    let any = needs_node_port(service);
    let asked: Vec<(i64, i64)> = list(service, "spec.ports").iter().map(port_numbers).collect();
    let mut allocated: Vec<(i64, i64)> = Vec::new();
    for (place, port) in each(service, "spec.ports").enumerate() {
        let (number, own) = asked[place];
        if own == 0 && !any {
            continue;
        }
        let shared = allocated.iter().find(|(port, _)| *port == number).map(|(_, shared)| *shared);
        match shared {
            None => {
                let wanted = asked.iter().find(|(port, wanted)| *port == number && *wanted != 0);
                let given = match wanted {
                    Some((_, wanted)) => {
                        from.reserve_node_port(*wanted)
                            .map_err(|why| node_port_error(place, *wanted, &why))?;
                        *wanted
                    }
                    None => allocate_any_node_port(from)?,
                };
                allocated.push((number, given));
                put(port, "nodePort", given);
            }
            Some(shared) if own == 0 => put(port, "nodePort", shared),
            Some(shared) if own == shared => {}
            Some(_) => {
                from.reserve_node_port(own).map_err(|why| node_port_error(place, own, &why))?;
            }
        }
    }
    Ok(())
}

/// Allocates the node ports of an updated service.
fn allocate_changed_ports(
    service: &mut Value,
    old: &Value,
    from: &mut dyn ServiceAllocator,
) -> Result<(), ServiceAllocationError> {
    let any = needs_node_port(service);
    let mut had: Vec<i64> = list(old, "spec.ports").iter().map(|it| port_numbers(it).1).collect();
    let mut seen: Vec<(String, i64)> = Vec::new();
    for (place, port) in each(service, "spec.ports").enumerate() {
        let (_, mut number) = port_numbers(port);
        if number == 0 && !any {
            continue;
        }
        if number == 0 {
            number = allocate_any_node_port(from)?;
            put(port, "nodePort", number);
        } else if !had.contains(&number) {
            from.reserve_node_port(number).map_err(|why| node_port_error(place, number, &why))?;
            had.push(number);
        }
        let key = (text(port, "protocol").to_owned(), number);
        if seen.contains(&key) {
            let (protocol, number) = key;
            return Err(ServiceAllocationError::Failure(format!(
                "duplicate nodePort: {{{protocol} {number}}}"
            )));
        }
        seen.push(key);
    }
    Ok(())
}

fn allocate_health_check_port(
    service: &mut Value,
    from: &mut dyn ServiceAllocator,
) -> Result<(), ServiceAllocationError> {
    let wanted = int(service, "spec.healthCheckNodePort").filter(|number| *number != 0);
    let Some(wanted) = wanted else {
        let given = from.allocate_node_port().map_err(|why| {
            ServiceAllocationError::Internal(format!(
                "failed to allocate a HealthCheck NodePort 0: {why}"
            ))
        })?;
        put(service, "spec.healthCheckNodePort", given);
        return Ok(());
    };
    from.reserve_node_port(wanted).map_err(|why| {
        ServiceAllocationError::Internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        ))
    })
}

/// Returns the number of a service port, and that of its node port or zero.
fn port_numbers(port: &Value) -> (i64, i64) {
    (int(port, "port").unwrap_or_default(), int(port, "nodePort").unwrap_or_default())
}

fn allocate_any_node_port(from: &mut dyn ServiceAllocator) -> Result<i64, ServiceAllocationError> {
    let failed =
        |why| ServiceAllocationError::Internal(format!("failed to allocate a nodePort: {why}"));
    from.allocate_node_port().map_err(failed)
}

fn node_port_error(place: usize, number: i64, why: &AllocationError) -> ServiceAllocationError {
    let field = format!("spec.ports[{place}].nodePort");
    ServiceAllocationError::Invalid(vec![FieldError::invalid(
        field,
        &json!(number),
        &why.to_string(),
    )])
}

/// Drops the second of two families that the client did not change if the policy is single-stack.
pub(super) fn drop_secondary_family(new: &mut Value, old: &Value) {
    if text(new, "spec.ipFamilyPolicy") != "SingleStack" {
        return;
    }
    for field in ["spec.clusterIPs", "spec.ipFamilies"] {
        if same(new, old, field) && list(new, field).len() > 1 {
            let first = list(new, field)[0].clone();
            put(new, field, vec![first]);
        }
    }
}

#[cfg(test)]
mod tests;
