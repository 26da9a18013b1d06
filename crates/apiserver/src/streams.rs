//! Parts of objects that go on for as long as somebody listens: logs, conversations with
//! containers, and connections to the ports of pods.
//!
//! Everything that stored objects can tell is checked here, in the order and the words of a real
//! server; then [`crate::nodes::Nodes`] is asked.

mod activity;
mod conversation;
mod forward;
mod logs;
mod protocol;
mod proxy;
mod sessions;

use std::sync::Arc;

use http::Response;
use serde_json::Value;

use crate::api::{Api, Ask};
use crate::body::Body;
use crate::nodes::{Action, Nodes, Target};
use crate::parts::resource;
use crate::query::Query;
use crate::resource::Resource;
use crate::route::Verb;
use crate::status::Refusal;
use crate::write::meta;

/// Conversations with containers at a time. Each keeps up to a megabyte of what was said and not
/// yet heard, so this bounds them to about a gigabyte; far more than anybody types into.
pub(crate) const SESSIONS: usize = 1_000;
/// Connections to ports of pods at a time, of all sessions together. Each is a socket, and keeps up to
/// 96 KiB that was read on one side and not yet taken on the other, so this bounds them to 400 MB.
pub(crate) const CONNECTIONS: usize = 4_000;

impl Api {
    /// Answers a request for a part that is a stream.
    pub(crate) async fn stream(&self, verb: Verb, ask: Ask) -> Result<Response<Body>, Refusal> {
        let (part, rest) = match ask.target.subresource.split_once('/') {
            Some((part, rest)) => (part, Some(rest)),
            None => (ask.target.subresource.as_str(), None),
        };
        if part != "proxy" && rest.is_some() {
            return Err(Refusal::unknown_resource());
        }
        let served = match part {
            "log" => verb == Verb::Get,
            "exec" | "attach" | "portforward" => matches!(verb, Verb::Get | Verb::Create),
            _ => true,
        };
        if !served {
            return Err(Refusal::method_not_allowed());
        }
        match part {
            "log" => self.log(&ask).await,
            "exec" => {
                let command = ask.query.all("command").map(str::to_owned).collect();
                self.converse(&ask, verb, Action::Exec(command)).await
            }
            "attach" => self.converse(&ask, verb, Action::Attach).await,
            "portforward" => self.forward_ports(&ask, verb).await,
            _ => self.proxy(ask).await,
        }
    }

    /// Finds what a request is about: the container of that name, or the only one when `container`
    /// is empty. `None` stands for the pod as a whole.
    fn locate(&self, ask: &Ask, container: Option<&str>) -> Result<Located, Refusal> {
        self.locate_pod(&ask.resource, &ask.target.namespace, &ask.target.name, container)
    }

    /// Finds a pod and the node it is on.
    fn locate_pod(
        &self,
        pods: &Resource,
        namespace: &str,
        name: &str,
        container: Option<&str>,
    ) -> Result<Located, Refusal> {
        let found = self.stored(pods, namespace, name);
        let entry = found.ok_or_else(|| Refusal::not_found(&pods.group, &pods.plural, name))?;
        let pod = pods.tree(&entry);
        let container = match container {
            Some(named) => choose(&pod, named).map_err(Refusal::bad_request)?,
            None => String::new(),
        };
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            return Ok(Located::Nowhere);
        }
        let nodes = resource(self, "", "v1", "nodes");
        let host = nodes.and_then(|nodes| {
            let entry = self.stored(&nodes, "", &node)?;
            Some(nodes.tree(&entry))
        });
        let Some(host) = host else {
            // A real server takes the node for one of what the path names.
            return Err(Refusal::not_found(&pods.group, &pods.plural, &node));
        };
        Ok(Located::On(Target {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            uid: meta(&pod, "uid").to_owned(),
            node,
            container,
            object: Arc::new(pod),
            host: Arc::new(host),
        }))
    }

    /// Whoever plays the nodes.
    fn nodes(&self, part: &str) -> Result<Arc<dyn Nodes>, Refusal> {
        self.0.settings.nodes.clone().ok_or_else(|| unreachable(part))
    }
}

/// Where a pod runs.
#[must_use = "a pod without a node cannot be reached"]
enum Located {
    /// Not yet on any node.
    Nowhere,
    /// There.
    On(Target),
}

impl Located {
    /// The place, or the refusal of a pod that has none.
    fn on_node(self, ask: &Ask) -> Result<Target, Refusal> {
        match self {
            Self::On(target) => Ok(target),
            Self::Nowhere => {
                let name = &ask.target.name;
                Err(Refusal::bad_request(format!("pod {name} does not have a host assigned")))
            }
        }
    }
}

/// Nobody plays the nodes. Trying again would not help, so nobody is asked to.
fn unreachable(part: &str) -> Refusal {
    Refusal::failure(format!("this server has no node agents to ask for \"{part}\""))
}

/// The container that is meant by `named`, or the only one when nothing is.
fn choose(pod: &Value, named: &str) -> Result<String, String> {
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

/// Whether the ports of a request can be read.
fn check_ports(query: &Query) -> Result<(), Refusal> {
    for port in query.all("ports").flat_map(|list| list.split(',')) {
        if port.starts_with('+') || port.parse::<u16>().is_err() {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let why = if digits { "value out of range" } else { "invalid syntax" };
            let port = gantry_schema::quote(port);
            let words = "cannot convert to []int32: strconv.ParseUint: parsing";
            return Err(Refusal::bad_request(format!("{words} {port}: {why}")));
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
            assert_eq!(choose(pod, named), expected.map(str::to_owned), "{why}");
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
