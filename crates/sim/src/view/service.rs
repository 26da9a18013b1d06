//! Services, and what tells where their pods are.

use std::collections::BTreeMap;

use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Resource, View};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ServiceSpec,
}

impl View for Service {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "services", "Service");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Service {
    /// Whether it has no address of its own.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        matches!(self.spec.cluster_ip.as_str(), "" | "None")
    }

    /// Whether somebody here looks for its pods: it says which they are.
    #[must_use]
    pub fn is_selecting(&self) -> bool {
        self.spec.kind != "ExternalName" && self.spec.selector.is_some()
    }

    /// Whether a pod with these labels is one of its own.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let all = |it: &BTreeMap<String, String>| it.iter().all(|(k, v)| labels.get(k) == Some(v));
        self.is_selecting() && self.spec.selector.as_ref().is_some_and(all)
    }
}

/// What is wanted of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Labels its pods have; somebody else says where it leads when absent.
    pub selector: Option<BTreeMap<String, String>>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its address; `None` for one without.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// `IPv4`, `IPv6` or both.
    pub ip_families: Vec<String>,
    /// Whether pods that are not ready are shown as if they were.
    pub publish_not_ready_addresses: bool,
    /// Which of its pods clients should prefer.
    pub traffic_distribution: Option<String>,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// What others call it.
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// What is spoken there.
    pub app_protocol: Option<String>,
    /// The port of the pods.
    pub target_port: TargetPort,
}

/// A port of a pod, by number or by what its containers call it.
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

/// Some of the places where a service is served.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Metadata.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// The places.
    #[serde(deserialize_with = "or_null")]
    pub endpoints: Vec<Endpoint>,
    /// The ports, the same at each of them.
    #[serde(deserialize_with = "or_null")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The label that says whose places these are.
    pub const SERVICE: &str = "kubernetes.io/service-name";

    /// What the slices of a service are filed under.
    #[must_use]
    pub fn of_service(namespace: &str, name: &str) -> Tag {
        Tag { index: "service", value: format!("{namespace}/{name}") }
    }
}

impl View for EndpointSlice {
    const RESOURCE: Resource =
        Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let name = self.metadata.labels.get(Self::SERVICE);
        name.map(|name| Self::of_service(&self.metadata.namespace, name)).into_iter().collect()
    }
}

/// A place where a service is served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// What is true of it.
    pub conditions: EndpointConditions,
    /// Its name below the service's.
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
    /// Which clients should prefer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Value>,
}

/// What is true of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// It should get requests.
    pub ready: Option<bool>,
    /// It can answer, though it may be about to go.
    pub serving: Option<bool>,
    /// It is about to go.
    pub terminating: Option<bool>,
}

/// The object behind a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which of all objects with that name.
    pub uid: String,
}

/// A port of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// What the service calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// What is spoken there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// All places where a service is served, as older clients read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    /// Metadata.
    pub metadata: Meta,
    /// The places by their ports.
    #[serde(deserialize_with = "or_null")]
    pub subsets: Vec<Subset>,
}

impl View for Endpoints {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "endpoints", "Endpoints").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Places with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// Those that should get requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<SubsetAddress>,
    /// Those that should not yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<SubsetAddress>,
    /// Their ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort>,
}

/// A place in a subset.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetAddress {
    /// Its address.
    pub ip: String,
    /// Its name below the service's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The pod's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// A list that the server spells `null` when it is empty.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
