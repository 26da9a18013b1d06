//! Resolves services of the cluster, for calls from the server to them.

use std::net::SocketAddr;

use gantry_webhook::{ResolveError, ResolveService};
use serde_json::Value;

use crate::api::ObjectStore;

pub(crate) mod service_allocator;

const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Resolves services from stored objects; there is no cluster DNS.
#[derive(Clone)]
pub(crate) struct StoreServiceResolver(ObjectStore);

impl std::fmt::Debug for StoreServiceResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services")
    }
}

impl StoreServiceResolver {
    pub(crate) fn of(store: &ObjectStore) -> Self {
        Self(store.clone())
    }

    /// Returns the ready pods behind a service: name, address and port.
    pub(crate) fn ready_pods(
        &self,
        namespace: &str,
        name: &str,
        port_name: &str,
    ) -> Vec<(String, String, u16)> {
        let slices = self.slices(namespace, name);
        slices.iter().flat_map(|slice| ready_pods(slice, port_name)).collect()
    }

    /// The endpoints of a service.
    fn slices(&self, namespace: &str, name: &str) -> Vec<Value> {
        let prefix = format!("{namespace}/");
        let slices = self.0.space(SLICES);
        let start = std::ops::Bound::Included(prefix.as_bytes());
        slices
            .range(start)
            .take_while(|it| it.key.starts_with(prefix.as_bytes()))
            .filter(|it| {
                let labels = &it.extra.metadata(&it.value).labels;
                labels.get(SERVICE_NAME).is_some_and(|it| it == name)
            })
            .map(|it| serde_json::from_slice::<Value>(&it.value).unwrap_or_default())
            .collect()
    }
}

impl ResolveService for StoreServiceResolver {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, ResolveError> {
        let key = format!("{namespace}/{name}");
        let services = self.0.space("services");
        let service = services.get(key.as_bytes());
        let service = service.ok_or_else(|| ResolveError::NotFound(name.to_owned()))?;
        let service: Value = serde_json::from_slice(&service.value).unwrap_or_default();
        let port_name = port_name(&service, name, port)?;
        let slices = self.slices(namespace, name);
        let ready: Vec<SocketAddr> =
            slices.iter().flat_map(|slice| ready_addresses(slice, &port_name)).collect();
        fastrand::choice(&ready).copied().ok_or_else(|| ResolveError::NoEndpoints(name.to_owned()))
    }
}

/// Returns the name of a service's port.
fn port_name(service: &Value, name: &str, port: u16) -> Result<String, ResolveError> {
    let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return Err(ResolveError::Unsupported(kind.to_owned()));
    }
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|it| it["port"].as_u64() == Some(u64::from(port)));
    let found = found.ok_or_else(|| ResolveError::NoPort { name: name.to_owned(), port })?;
    Ok(found["name"].as_str().unwrap_or_default().to_owned())
}

/// Returns the addresses at which a slice serves a port.
fn ready_addresses(slice: &Value, port_name: &str) -> Vec<SocketAddr> {
    let Some((port, ready)) = ready_endpoints(slice, port_name) else { return Vec::new() };
    let addresses = ready.flat_map(|it| it["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|it| Some(SocketAddr::new(it.as_str()?.parse().ok()?, port))).collect()
}

/// Returns the pods that serve a port according to a slice: name, address and port.
fn ready_pods(slice: &Value, port_name: &str) -> Vec<(String, String, u16)> {
    let Some((port, ready)) = ready_endpoints(slice, port_name) else { return Vec::new() };
    let pods = ready.filter(|it| it["targetRef"]["kind"] == "Pod");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    pods.filter_map(|it| Some((text(&it["targetRef"]["name"])?, text(&it["addresses"][0])?, port)))
        .collect()
}

/// Returns the port of that name, and the ready endpoints of a slice.
fn ready_endpoints<'a>(
    slice: &'a Value,
    port_name: &str,
) -> Option<(u16, impl Iterator<Item = &'a Value> + use<'a>)> {
    let mut ports = slice["ports"].as_array().into_iter().flatten();
    let named = |it: &&Value| it["name"].as_str().unwrap_or_default() == port_name;
    let port = ports.find(named).and_then(|it| u16::try_from(it["port"].as_u64()?).ok())?;
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    // An endpoint without a `ready` condition counts as ready.
    Some((port, endpoints.filter(|it| it["conditions"]["ready"] != false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_is_found_by_its_name_where_it_is_ready() {
        let service = json!({ "spec": { "ports": [
            { "port": 80 }, { "name": "hooks", "port": 443 },
        ] } });
        assert_eq!(port_name(&service, "s", 443), Ok("hooks".to_owned()));
        assert_eq!(port_name(&service, "s", 80), Ok(String::new()));
        let none = ResolveError::NoPort { name: "s".to_owned(), port: 8443 };
        assert_eq!(none.to_string(), "no service port 8443 found for service \"s\"");
        assert_eq!(port_name(&service, "s", 8443), Err(none));
        let slice = json!({
            "ports": [{ "name": "other", "port": 1 }, { "name": "hooks", "port": 8443 }],
            "endpoints": [
                { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
                { "addresses": ["10.0.0.3", "no address"] },
            ],
        });
        let found: Vec<String> =
            ready_addresses(&slice, "hooks").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1:8443", "10.0.0.3:8443"]);
        assert_eq!(ready_addresses(&slice, "absent"), []);
    }
}
