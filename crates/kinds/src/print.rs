//! Renders an object as a table for people: the columns, and its row.
//!
//! Built-in kinds have their columns and cells here; custom kinds declare theirs as paths
//! ([`CustomColumns`]). All of it is a function of the object and of `now`, and none of it fails: a
//! field that is missing or of another type reads as the zero value of its type, as it does for a
//! server that decodes objects into structs before it prints them. Quantities are printed as they
//! are stored, which is their canonical form.

mod access;
mod age;
mod autoscaler;
mod cluster;
mod columns;
mod custom;
mod devices;
mod fields;
pub mod json_path;
mod network;
mod pods;
mod selector;
mod storage;
mod workloads;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

pub use age::age;
pub use columns::Column;
pub use custom::{CustomColumns, UnrecognizedColumn, check_columns};

use columns::{access as of_access, cluster as of_cluster, devices as of_devices};
use columns::{network as of_network, storage as of_storage, workloads as of_workloads};

/// One row of a table, without the object it stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// As many as there are columns, except where kube-apiserver itself has a mismatch:
    /// `ipaddresses` has an age that no column announces.
    pub cells: Vec<Value>,
    /// Conditions of the row that clients read before they show it, such as that a pod has
    /// completed.
    pub conditions: Vec<Value>,
}

/// The columns of a built-in kind, or [`default_columns`].
///
/// A `scale` subresource is `("autoscaling", "scales")`, whatever it scales; every other
/// subresource that answers with the object itself has the columns of the object.
#[must_use]
pub fn columns(group: &str, resource: &str) -> &'static [Column] {
    printer(group, resource).0
}

/// The row of an object of a built-in kind, to go with [`columns()`].
///
/// The object is in the version that is stored; that matters for `horizontalpodautoscalers` alone,
/// which are read as `autoscaling/v2`.
#[must_use]
pub fn row(group: &str, resource: &str, object: &Value, now: Timestamp) -> Row {
    let (_, cells) = printer(group, resource);
    let conditions = match (group, resource) {
        ("", "pods") => pods::conditions(object),
        _ => Vec::new(),
    };
    Row { cells: cells(object, now), conditions }
}

/// Returns the columns of a kind that has no printer of its own.
#[must_use]
pub fn default_columns() -> &'static [Column] {
    columns::DEFAULT
}

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// Columns and cells are defined together here, so that neither exists without the other.
fn printer(group: &str, resource: &str) -> (&'static [Column], Cells) {
    match (group, resource) {
        ("", "componentstatuses") => (of_cluster::COMPONENTSTATUSES, cluster::component_status),
        ("", "configmaps") => (of_cluster::CONFIGMAPS, cluster::config_map),
        ("", "endpoints") => (of_network::ENDPOINTS, network::endpoints),
        ("" | "events.k8s.io", "events") => (of_cluster::EVENTS, cluster::event),
        ("", "namespaces") => (of_cluster::NAMESPACES, cluster::namespace),
        ("", "nodes") => (of_cluster::NODES, cluster::node),
        ("", "persistentvolumeclaims") => (of_storage::PERSISTENTVOLUMECLAIMS, storage::claim),
        ("", "persistentvolumes") => (of_storage::PERSISTENTVOLUMES, storage::volume),
        ("", "pods") => (of_workloads::PODS, pods::cells),
        ("", "podtemplates") => (of_workloads::PODTEMPLATES, workloads::pod_template),
        ("", "replicationcontrollers") => {
            (of_workloads::REPLICATIONCONTROLLERS, workloads::replication_controller)
        }
        ("", "resourcequotas") => (of_cluster::RESOURCEQUOTAS, cluster::resource_quota),
        ("", "secrets") => (of_cluster::SECRETS, cluster::secret),
        ("", "serviceaccounts") => (of_cluster::SERVICEACCOUNTS, cluster::service_account),
        ("", "services") => (of_network::SERVICES, network::service),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => {
            (of_access::MUTATINGWEBHOOKCONFIGURATIONS, access::webhooks)
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            (of_access::VALIDATINGADMISSIONPOLICIES, access::policy)
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            (of_access::VALIDATINGADMISSIONPOLICYBINDINGS, access::policy_binding)
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            (of_access::VALIDATINGWEBHOOKCONFIGURATIONS, access::webhooks)
        }
        ("apiregistration.k8s.io", "apiservices") => {
            (of_cluster::APISERVICES, cluster::api_service)
        }
        ("apps", "controllerrevisions") => {
            (of_workloads::CONTROLLERREVISIONS, workloads::controller_revision)
        }
        ("apps", "daemonsets") => (of_workloads::DAEMONSETS, workloads::daemon_set),
        ("apps", "deployments") => (of_workloads::DEPLOYMENTS, workloads::deployment),
        ("apps", "replicasets") => (of_workloads::REPLICASETS, workloads::replica_set),
        ("apps", "statefulsets") => (of_workloads::STATEFULSETS, workloads::stateful_set),
        ("autoscaling", "horizontalpodautoscalers") => {
            (of_workloads::HORIZONTALPODAUTOSCALERS, autoscaler::cells)
        }
        ("autoscaling", "scales") => (of_workloads::SCALES, workloads::scale),
        ("batch", "cronjobs") => (of_workloads::CRONJOBS, workloads::cron_job),
        ("batch", "jobs") => (of_workloads::JOBS, workloads::job),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            (of_access::CERTIFICATESIGNINGREQUESTS, access::signing_request)
        }
        ("coordination.k8s.io", "leases") => (of_cluster::LEASES, cluster::lease),
        ("discovery.k8s.io", "endpointslices") => {
            (of_network::ENDPOINTSLICES, network::endpoint_slice)
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => {
            (of_access::FLOWSCHEMAS, access::flow_schema)
        }
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            (of_access::PRIORITYLEVELCONFIGURATIONS, access::priority_level)
        }
        ("networking.k8s.io", "ingressclasses") => {
            (of_network::INGRESSCLASSES, network::ingress_class)
        }
        ("networking.k8s.io", "ingresses") => (of_network::INGRESSES, network::ingress),
        ("networking.k8s.io", "ipaddresses") => (of_network::IPADDRESSES, network::ip_address),
        ("networking.k8s.io", "networkpolicies") => (of_network::NETWORKPOLICIES, network::policy),
        ("networking.k8s.io", "servicecidrs") => (of_network::SERVICECIDRS, network::service_cidr),
        ("node.k8s.io", "runtimeclasses") => (of_cluster::RUNTIMECLASSES, cluster::runtime_class),
        ("policy", "poddisruptionbudgets") => {
            (of_workloads::PODDISRUPTIONBUDGETS, workloads::disruption_budget)
        }
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            (of_access::CLUSTERROLEBINDINGS, access::role_binding)
        }
        ("rbac.authorization.k8s.io", "rolebindings") => {
            (of_access::ROLEBINDINGS, access::role_binding)
        }
        ("resource.k8s.io", "deviceclasses") => (of_devices::DEVICECLASSES, devices::name_and_age),
        ("resource.k8s.io", "resourceclaims") => (of_devices::RESOURCECLAIMS, devices::claim),
        ("resource.k8s.io", "resourceclaimtemplates") => {
            (of_devices::RESOURCECLAIMTEMPLATES, devices::name_and_age)
        }
        ("resource.k8s.io", "resourceslices") => (of_devices::RESOURCESLICES, devices::slice),
        ("scheduling.k8s.io", "priorityclasses") => {
            (of_cluster::PRIORITYCLASSES, cluster::priority_class)
        }
        ("storage.k8s.io", "csidrivers") => (of_storage::CSIDRIVERS, storage::driver),
        ("storage.k8s.io", "csinodes") => (of_storage::CSINODES, storage::driver_node),
        ("storage.k8s.io", "storageclasses") => (of_storage::STORAGECLASSES, storage::class),
        ("storage.k8s.io", "volumeattachments") => {
            (of_storage::VOLUMEATTACHMENTS, storage::attachment)
        }
        ("storage.k8s.io", "volumeattributesclasses") => {
            (of_storage::VOLUMEATTRIBUTESCLASSES, storage::attributes_class)
        }
        _ => (columns::DEFAULT, cluster::name_and_creation_time),
    }
}
