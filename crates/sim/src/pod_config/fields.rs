//! Resolves the fields of a pod and resources of its containers that variables and files reference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gantry_api::quantity::Quantity;

use super::{ResolveContext, Unresolved};
use crate::view::{FieldRef, Pod, ResourceFieldRef};

/// Returns the value of a field of the pod.
pub(super) fn field(pod: &Pod, reference: &FieldRef) -> Result<String, Unresolved> {
    let (meta, status) = (&pod.metadata, &pod.status);
    let path = reference.field_path.as_str();
    let ips = |first: &str, all: &[crate::view::PodIp]| match all.is_empty() {
        true => first.to_owned(),
        false => all.iter().map(|it| it.ip.as_str()).collect::<Vec<_>>().join(","),
    };
    Ok(match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.to_string(),
        "metadata.labels" => lines(&meta.labels),
        "metadata.annotations" => lines(&meta.annotations),
        "spec.nodeName" => pod.spec.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" | "status.hostIPs" => status.host_ip.clone(),
        "status.podIP" => status.pod_ip.clone(),
        "status.podIPs" => ips(&status.pod_ip, &status.pod_ips),
        _ => {
            let keyed = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
            let label = keyed("metadata.labels").map(|key| meta.labels.get(key));
            let found = label
                .or_else(|| keyed("metadata.annotations").map(|key| meta.annotations.get(key)));
            match found {
                Some(value) => value.cloned().unwrap_or_default(),
                None => {
                    let fault = format!("unsupported fieldPath: {path}");
                    return Err(Unresolved::Invalid(fault));
                }
            }
        }
    })
}

/// Formats a map as files have it: one `key="value"` a line.
fn lines(map: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (at, (key, value)) in map.iter().enumerate() {
        let end = if at == 0 { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{end}{key}={value:?}");
    }
    text
}

/// Returns the quantity of a container's resource.
pub(super) fn resource(
    context: &ResolveContext<'_>,
    own: &str,
    reference: &ResourceFieldRef,
) -> Result<String, Unresolved> {
    let name = match reference.container_name.as_str() {
        "" => own,
        name => name,
    };
    let pod = context.pod;
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let Some(container) = containers.find(|it| it.name == name) else {
        return Err(Unresolved::Invalid(format!("container {name} not found")));
    };
    let (list, resource) = reference.resource.split_once('.').unwrap_or_default();
    let written = match list {
        "limits" => {
            // A container without a limit may use all of its node's allocatable resources.
            let node = context.node.and_then(|it| it.status.allocatable.get(resource));
            container.resources.limits.get(resource).or(node)
        }
        "requests" => container.resources.requests.get(resource),
        _ => {
            let fault = format!("unsupported container resource : {}", reference.resource);
            return Err(Unresolved::Invalid(fault));
        }
    };
    Ok(in_units_of(written.copied(), resource, reference.divisor).to_string())
}

/// Returns how many units of `divisor` a quantity is, rounded up.
fn in_units_of(amount: Option<Quantity>, resource: &str, divisor: Option<Quantity>) -> i128 {
    let Some(amount) = amount else { return 0 };
    let divisor = divisor.filter(|it| !it.is_zero()).unwrap_or_else(|| Quantity::from(1));
    let (amount, divisor) = match resource {
        "cpu" => (amount.milli_rounded_up(), divisor.milli_rounded_up()),
        _ => (amount.value_rounded_up().into(), divisor.value_rounded_up().into()),
    };
    let divisor = divisor.max(1);
    amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
}
