//! Services, and their endpoints.

use std::collections::BTreeMap;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, Resource, View};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: ServiceSpec,
}

impl View for Service {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "services", "Service");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Service {
    /// Returns whether it has no cluster IP.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        matches!(self.spec.cluster_ip.as_str(), "" | "None")
    }

    /// Returns whether its endpoints are managed here: it has a selector.
    #[must_use]
    pub fn has_selector(&self) -> bool {
        self.spec.kind != "ExternalName" && self.spec.selector.is_some()
    }

    /// Returns whether it selects a pod with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let all = |it: &BTreeMap<String, String>| it.iter().all(|(k, v)| labels.get(k) == Some(v));
        self.has_selector() && self.spec.selector.as_ref().is_some_and(all)
    }
}

/// The spec of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The labels of its pods; when absent, its endpoints are managed elsewhere.
    pub selector: Option<BTreeMap<String, String>>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its cluster IP; the text `None` for a headless service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// `IPv4`, `IPv6` or both.
    pub ip_families: Vec<String>,
    /// Whether unready pods are published as ready.
    pub publish_not_ready_addresses: bool,
    /// Which of its pods clients should prefer.
    pub traffic_distribution: Option<String>,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// The name of the port.
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The application protocol.
    pub app_protocol: Option<String>,
    /// The port of the pods.
    pub target_port: TargetPort,
}

/// A port of a pod, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// By number.
    Number(i32),
    /// By name.
    Name(String),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// An EndpointSlice: some of the endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Metadata.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// The endpoints.
    #[serde(deserialize_with = "or_null")]
    pub endpoints: Vec<Endpoint>,
    /// The ports, the same at each endpoint.
    #[serde(deserialize_with = "or_null")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The label with the name of the service.
    pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

    /// Returns the index value of the slices of a service.
    #[must_use]
    pub fn of_service(namespace: &str, name: &str) -> IndexValue {
        IndexValue { index: "service", value: format!("{namespace}/{name}") }
    }
}

impl View for EndpointSlice {
    const RESOURCE: Resource =
        Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let name = self.metadata.labels.get(Self::SERVICE_NAME_LABEL);
        name.map(|name| Self::of_service(&self.metadata.namespace, name)).into_iter().collect()
    }
}

/// An endpoint of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The conditions.
    pub conditions: EndpointConditions,
    /// Its hostname below the service's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The pod's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The node's zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The topology hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Value>,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Whether it should get requests.
    pub ready: Option<bool>,
    /// Whether it can respond, even if it is terminating.
    pub serving: Option<bool>,
    /// Whether it is terminating.
    pub terminating: Option<bool>,
}

/// The object behind an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A port of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// The name of the service's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// An Endpoints object: all endpoints of a service, as older clients read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    /// Metadata.
    pub metadata: Meta,
    /// The endpoints by their ports.
    #[serde(deserialize_with = "or_null")]
    pub subsets: Vec<EndpointSubset>,
}

impl View for Endpoints {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "endpoints", "Endpoints").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Endpoints with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSubset {
    /// The ready addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<EndpointAddress>,
    /// The addresses that are not ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    /// Their ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort>,
}

/// An address of a subset.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    /// Its address.
    pub ip: String,
    /// Its hostname below the service's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The pod's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// Deserializes a list that the server spells `null` when it is empty.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
