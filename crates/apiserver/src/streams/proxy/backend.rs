//! Finds the backend of a proxy request.

use std::sync::Arc;

use gantry_schema::quote;
use serde_json::Value;

use super::super::PodLocation;
use crate::api::{Api, ResourceRequest};
use crate::resource::Resource;
use crate::response::status::StatusError;
use crate::services::StoreServiceResolver;
use crate::streams::kubelet_client::{KubeletClient, PodTarget};
use crate::verbs::subresources::resource;

/// A port of a pod.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) nodes: Arc<dyn KubeletClient>,
    pub(super) target: PodTarget,
    pub(super) port: u16,
}

impl Backend {
    /// The address and the port, as the pod's status has them.
    pub(super) fn authority(&self) -> String {
        let address = self.target.pod_object["status"]["podIP"].as_str().unwrap_or_default();
        format!("{address}:{}", self.port)
    }
}

impl Api {
    /// Returns the program that `pods/[scheme:]name[:port]` names; without a port, the first one
    /// that a container declares.
    pub(super) fn pod_backend(
        &self,
        ask: &ResourceRequest,
        id: &str,
    ) -> Result<Backend, StatusError> {
        let Some(BackendName { name, port }) = BackendName::read(id)? else {
            return Err(StatusError::bad_request(format!("invalid pod request {}", quote(id))));
        };
        let target = self.pod_target(&ask.resource, &ask.target.namespace, name)?;
        let port = match port {
            "" => first_port(&target.pod_object).unwrap_or(DEFAULT_HTTP_PORT),
            named => port_of_pod(&target.pod_object, named).ok_or_else(|| {
                let words = format!("dial tcp: lookup tcp/{named}: unknown port");
                StatusError::unreachable(&format!("error trying to reach service: {words}"))
            })?,
        };
        Ok(Backend { nodes: self.kubelet_client("proxy")?, target, port })
    }

    /// Returns a program behind `services/[scheme:]name[:port]`: one of the ready pods.
    pub(super) fn service_backend(
        &self,
        ask: &ResourceRequest,
        id: &str,
    ) -> Result<Backend, StatusError> {
        let Some(BackendName { name, port }) = BackendName::read(id)? else {
            return Err(StatusError::bad_request(format!("invalid service request {}", quote(id))));
        };
        let namespace = ask.target.namespace.as_str();
        let service = self.stored_entry(&ask.resource, namespace, name);
        let number = port.parse::<u64>();
        // A real server looks up the service only to find the name of a port.
        let missing = if number.is_ok() { "services" } else { "endpoints" };
        let service = service.ok_or_else(|| StatusError::not_found("", missing, name))?;
        let port = match number {
            Ok(number) => port_name(&ask.resource.tree(&service), name, number)?,
            Err(_) => port.to_owned(),
        };
        let none = || {
            let words = format!("no endpoints available for service {}", quote(id));
            StatusError::unreachable(&words)
        };
        let pods = resource(self, "", "v1", "pods").ok_or_else(none)?;
        let services = StoreServiceResolver::of(&self.0.store);
        let mut candidates = services.ready_pods(namespace, name, &port);
        fastrand::shuffle(&mut candidates);
        for (pod, address, port) in candidates {
            // A user-written endpoint must not lead anywhere but to the pod it names.
            if let Ok(target) = self.pod_target(&pods, namespace, &pod)
                && target.pod_object["status"]["podIP"] == address
            {
                return Ok(Backend { nodes: self.kubelet_client("proxy")?, target, port });
            }
        }
        Err(none())
    }

    fn pod_target(
        &self,
        pods: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<PodTarget, StatusError> {
        match self.locate_pod(pods, namespace, name, None)? {
            PodLocation::Scheduled(target) => Ok(target),
            // A pod without a node has no address either.
            PodLocation::Unscheduled => Err(StatusError::bad_request("address not allowed")),
        }
    }
}

/// The default port of a scheme.
const DEFAULT_HTTP_PORT: u16 = 80;

/// The parsed name of a backend.
#[derive(Debug, PartialEq, Eq)]
struct BackendName<'a> {
    name: &'a str,
    port: &'a str,
}

impl<'a> BackendName<'a> {
    /// Parses `[scheme:]name[:port]`; `None` if it is invalid.
    fn read(id: &'a str) -> Result<Option<Self>, StatusError> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
            _ => return Ok(None),
        };
        if scheme == "https" {
            return Err(StatusError::bad_request(format!(
                "the scheme \"https\" of {} is not supported: the programs of simulated pods are \
                 reached by http",
                quote(id)
            )));
        }
        Ok((!name.is_empty()).then_some(Self { name, port }))
    }
}

fn ports(pod: &Value) -> impl Iterator<Item = &Value> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.flat_map(|it| it["ports"].as_array().into_iter().flatten())
}

fn number(port: &Value) -> Option<u16> {
    port["containerPort"].as_u64().and_then(|it| it.try_into().ok())
}

fn first_port(pod: &Value) -> Option<u16> {
    ports(pod).find_map(number)
}

/// Returns a port by its number, or by the name that a container gives it.
fn port_of_pod(pod: &Value, named: &str) -> Option<u16> {
    match named.parse() {
        Ok(0) => None,
        Ok(port) => Some(port),
        Err(_) => ports(pod).find(|it| it["name"] == named).and_then(number),
    }
}

/// Returns the name of a service's port.
fn port_name(service: &Value, name: &str, number: u64) -> Result<String, StatusError> {
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|it| it["port"].as_u64() == Some(number));
    let found = found.ok_or_else(|| {
        let words = format!("no service port {number} found for service {}", quote(name));
        StatusError::unreachable(&words)
    })?;
    Ok(found["name"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_have_schemes_and_ports() {
        let id = |name, port| Some(BackendName { name, port });
        let table = [
            ("p", id("p", "")),
            ("p:80", id("p", "80")),
            ("p:web", id("p", "web")),
            ("http:p:80", id("p", "80")),
            ("http:p:", id("p", "")),
            (":p:80", id("p", "80")),
            ("ftp:p:80", None),
            ("http:p:80:1", None),
            (":80", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(BackendName::read(text).unwrap(), expected, "{text}");
        }
        assert!(BackendName::read("https:p:443").unwrap_err().message.contains("\"https\""));
    }

    #[test]
    fn ports_of_pods_have_numbers_and_names() {
        let pod = json!({ "spec": { "containers": [
            { "name": "a" },
            { "ports": [{ "containerPort": 8080, "name": "web" }, { "containerPort": 9 }] },
        ] } });
        assert_eq!(first_port(&pod), Some(8080));
        let table =
            [("web", Some(8080)), ("81", Some(81)), ("0", None), ("x", None), ("65536", None)];
        for (named, expected) in table {
            assert_eq!(port_of_pod(&pod, named), expected, "{named}");
        }
    }
}
