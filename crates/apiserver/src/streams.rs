//! Streaming subresources: logs, exec and attach sessions, and connections to the ports of pods.
//!
//! Everything that follows from stored objects is checked here, in the order and the words of a
//! real server; then [`kubelet_client::KubeletClient`] is called.

mod activity;
mod exec;
mod exec_session;
pub mod kubelet_client;
mod logs;
mod port_forward;
mod protocol;
mod proxy;
pub mod spdy;
pub(crate) mod websocket;
pub mod websocket_frames;

use std::sync::Arc;

use http::Response;
use serde_json::Value;

use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::query::Query;
use crate::request::route::Verb;
use crate::resource::Resource;
use crate::response::status::StatusError;
use crate::streams::kubelet_client::{Action, KubeletClient, PodTarget};
use crate::verbs::subresources::resource;
use crate::verbs::write::meta;

/// Concurrent exec and attach sessions. Each buffers up to a megabyte of data that is not yet read,
/// so this bounds them to about a gigabyte; far more sessions than users open.
pub(crate) const MAX_SESSIONS: usize = 1_000;
/// Concurrent connections to ports of pods, of all sessions together. Each is a socket, and buffers
/// up to 96 KiB that was read on one side and not yet written on the other, so this bounds them to
/// 400 MB.
pub(crate) const MAX_CONNECTIONS: usize = 4_000;

impl Api {
    /// Serves a request for a streaming subresource.
    pub(crate) async fn stream(
        &self,
        verb: Verb,
        ask: ResourceRequest,
    ) -> Result<Response<Body>, StatusError> {
        let (part, rest) = match ask.target.subresource.split_once('/') {
            Some((part, rest)) => (part, Some(rest)),
            None => (ask.target.subresource.as_str(), None),
        };
        if part != "proxy" && rest.is_some() {
            return Err(StatusError::unknown_resource());
        }
        let served = match part {
            "log" => verb == Verb::Get,
            "exec" | "attach" | "portforward" => matches!(verb, Verb::Get | Verb::Create),
            _ => true,
        };
        if !served {
            return Err(StatusError::method_not_allowed());
        }
        match part {
            "log" => self.log(&ask).await,
            "exec" => {
                let command = ask.query.all("command").map(str::to_owned).collect();
                self.start_exec_session(&ask, verb, Action::Exec(command)).await
            }
            "attach" => self.start_exec_session(&ask, verb, Action::Attach).await,
            "portforward" => self.forward_ports(&ask, verb).await,
            _ => self.proxy(ask).await,
        }
    }

    /// Finds the target of a request: the container of that name, or the only one when `container`
    /// is empty. `None` stands for the pod as a whole.
    fn locate(
        &self,
        ask: &ResourceRequest,
        container: Option<&str>,
    ) -> Result<PodLocation, StatusError> {
        self.locate_pod(&ask.resource, &ask.target.namespace, &ask.target.name, container)
    }

    /// Finds a pod and its node.
    fn locate_pod(
        &self,
        pods: &Resource,
        namespace: &str,
        name: &str,
        container: Option<&str>,
    ) -> Result<PodLocation, StatusError> {
        let found = self.stored_entry(pods, namespace, name);
        let entry = found.ok_or_else(|| StatusError::not_found(&pods.group, &pods.plural, name))?;
        let pod = pods.tree(&entry);
        let container = match container {
            Some(named) => choose_container(&pod, named).map_err(StatusError::bad_request)?,
            None => String::new(),
        };
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            return Ok(PodLocation::Unscheduled);
        }
        let nodes = resource(self, "", "v1", "nodes");
        let host = nodes.and_then(|nodes| {
            let entry = self.stored_entry(&nodes, "", &node)?;
            Some(nodes.tree(&entry))
        });
        let Some(host) = host else {
            // A real server reports a missing node under the resource of the path.
            return Err(StatusError::not_found(&pods.group, &pods.plural, &node));
        };
        Ok(PodLocation::Scheduled(PodTarget {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            uid: meta(&pod, "uid").to_owned(),
            node,
            container,
            pod_object: Arc::new(pod),
            node_object: Arc::new(host),
        }))
    }

    /// Returns the client for the nodes.
    fn kubelet_client(&self, part: &str) -> Result<Arc<dyn KubeletClient>, StatusError> {
        self.0.settings.kubelet_client.clone().ok_or_else(|| no_kubelet_client(part))
    }
}

/// The location of a pod.
#[must_use = "a pod without a node cannot be reached"]
enum PodLocation {
    /// It has no node yet.
    Unscheduled,
    /// Its node.
    Scheduled(PodTarget),
}

impl PodLocation {
    /// Returns the target, or the refusal for a pod without a node.
    fn scheduled_target(self, ask: &ResourceRequest) -> Result<PodTarget, StatusError> {
        match self {
            Self::Scheduled(target) => Ok(target),
            Self::Unscheduled => {
                let name = &ask.target.name;
                Err(StatusError::bad_request(format!("pod {name} does not have a host assigned")))
            }
        }
    }
}

/// The refusal when there are no nodes to call. A retry would not help, so none is suggested.
fn no_kubelet_client(part: &str) -> StatusError {
    StatusError::failure(format!("this server has no node agents to ask for \"{part}\""))
}

/// Returns the container called `named`, or the only one when no name is given.
fn choose_container(pod: &Value, named: &str) -> Result<String, String> {
    let name = meta(pod, "name");
    let names = |list: &str| {
        let list = pod["spec"][list].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned())
    };
    let all =
        || names("initContainers").chain(names("containers")).chain(names("ephemeralContainers"));
    if !named.is_empty() {
        return match all().find(|known| known == named) {
            Some(found) => Ok(found),
            None => Err(format!("container {named} is not valid for pod {name}")),
        };
    }
    let mut own: Vec<String> = names("containers").collect();
    match (own.pop(), own.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(format!("a container name must be specified for pod {name}")),
        (Some(_), false) => {
            let all: Vec<String> = all().collect();
            let all = all.join(" ");
            let words = "a container name must be specified for pod";
            Err(format!("{words} {name}, choose one of: [{all}]"))
        }
    }
}

/// Checks whether the ports of a request are valid.
fn check_ports(query: &Query) -> Result<(), StatusError> {
    for port in query.all("ports").flat_map(|list| list.split(',')) {
        if port.starts_with('+') || port.parse::<u16>().is_err() {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let why = if digits { "value out of range" } else { "invalid syntax" };
            let port = gantry_schema::quote(port);
            let words = "cannot convert to []int32: strconv.ParseUint: parsing";
            return Err(StatusError::bad_request(format!("{words} {port}: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_is_the_named_or_the_only_one() {
        let pod = |init: &[&str], own: &[&str], late: &[&str]| {
            let list = |names: &[&str]| -> Value {
                names.iter().map(|name| json!({ "name": name })).collect()
            };
            json!({ "metadata": { "name": "p" }, "spec": {
                "initContainers": list(init), "containers": list(own),
                "ephemeralContainers": list(late),
            } })
        };
        let one = pod(&["i"], &["c"], &["e"]);
        let two = pod(&["i"], &["c", "d"], &["e"]);
        let which = "a container name must be specified for pod p";
        let table = [
            ("the only one", &one, "", Ok("c")),
            ("by name", &two, "d", Ok("d")),
            ("one of those that come first", &two, "i", Ok("i")),
            ("one of those that come later", &two, "e", Ok("e")),
            ("none of them", &one, "x", Err("container x is not valid for pod p".to_owned())),
            ("too many", &two, "", Err(format!("{which}, choose one of: [i c d e]"))),
            ("none at all", &json!({ "metadata": { "name": "p" } }), "", Err(which.to_owned())),
        ];
        for (why, pod, named, expected) in table {
            assert_eq!(choose_container(pod, named), expected.map(str::to_owned), "{why}");
        }
    }

    #[test]
    fn ports_are_read_as_go_reads_them() {
        let fault = |port: &str, why: &str| {
            let words = "cannot convert to []int32: strconv.ParseUint: parsing";
            Err(format!("{words} \"{port}\": {why}"))
        };
        let table = [
            ("ports=80,443&ports=1", Ok(())),
            ("", Ok(())),
            ("ports=x", fault("x", "invalid syntax")),
            ("ports=80,,", fault("", "invalid syntax")),
            ("ports=-1", fault("-1", "invalid syntax")),
            ("ports=%2B1", fault("+1", "invalid syntax")),
            ("ports=65536", fault("65536", "value out of range")),
        ];
        for (query, expected) in table {
            let read = check_ports(&Query::read(Some(query))).map_err(|refusal| refusal.message);
            assert_eq!(read, expected, "{query}");
        }
    }
}
