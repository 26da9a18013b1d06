//! Calls to launchers, engines and requesters, and how their replies are read.

use std::time::Duration;

use gantry_reconcile::{Call, CallId, Refusal, Reply, Target};
use serde_json::{Value, json};

use crate::facts::{Endpoint, shown};
use crate::instance::InstanceConfig;
use crate::labels::{
    BECOME_READY_PATH, BECOME_UNREADY_PATH, BINDING_HEADER, BOOT_HEADER, INSTANCES_PATH, PROXY_PATH,
};
use crate::view::ActuationPod;

/// The protocol of these calls.
pub const PROTOCOL: &str = "actuation-http";

/// What a call is made for; the names are those of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Creates an instance.
    CreateInstance,
    /// Deletes an instance.
    DeleteInstance,
    /// Puts an engine to sleep.
    Sleep,
    /// Wakes an engine.
    Wake,
    /// Makes a requester ready.
    RelayReady,
    /// Makes a requester unready.
    RelayUnready,
    /// Tells a requester's proxy its target.
    ConfigureProxy,
}

impl Purpose {
    /// The name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateInstance => "create_instance",
            Self::DeleteInstance => "delete_instance",
            Self::Sleep => "sleep",
            Self::Wake => "wake",
            Self::RelayReady => "relay_ready",
            Self::RelayUnready => "relay_unready",
            Self::ConfigureProxy => "configure_proxy",
        }
    }

    /// The purpose with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::CreateInstance,
            Self::DeleteInstance,
            Self::Sleep,
            Self::Wake,
            Self::RelayReady,
            Self::RelayUnready,
            Self::ConfigureProxy,
        ];
        all.into_iter().find(|it| it.as_str() == name)
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::RelayReady | Self::RelayUnready | Self::ConfigureProxy => 5,
            Self::CreateInstance => 15,
            Self::DeleteInstance => 60,
            Self::Sleep | Self::Wake => 180,
        })
    }
}

/// An engine that calls are made to.
#[derive(Clone, Debug)]
pub struct Engine<'a> {
    /// Its provider.
    pub provider: &'a ActuationPod,
    /// Its port.
    pub port: u16,
    /// Its instance in a launcher; `None` for a direct provider.
    pub instance: Option<&'a str>,
    /// The launcher process, if it fences calls.
    pub boot: Option<&'a str>,
}

impl Engine<'_> {
    /// The call that wakes it.
    #[must_use]
    pub fn wake(&self) -> Call {
        self.switch(Purpose::Wake, "wake_up", "", "")
    }

    /// The call that puts it to sleep: after the requests under way if it is to drain them, else at
    /// once. Without draining no mode is sent, because some engines know none.
    #[must_use]
    pub fn sleep(&self, drains: bool) -> Call {
        let (variant, query) = if drains { ("drain", "level=1&mode=wait") } else { ("", "") };
        self.switch(Purpose::Sleep, "sleep", variant, query)
    }

    fn switch(&self, purpose: Purpose, action: &str, variant: &str, query: &str) -> Call {
        let fenced = self.instance.zip(self.boot);
        let (endpoint, path) = match fenced {
            Some((id, _)) => {
                (Endpoint::launcher(self.provider), format!("{INSTANCES_PATH}/{id}/{action}"))
            }
            None => (Endpoint::of(self.provider, self.port), format!("/{action}")),
        };
        let path = if query.is_empty() { path } else { format!("{path}?{query}") };
        let subject = format!("{}{variant}", self.instance.unwrap_or("engine"));
        let request = json!({"method": "POST", "path": path});
        provider_call(self.provider, &endpoint, purpose, &subject, request, self.boot)
    }
}

/// The call that creates an instance.
#[must_use]
pub fn create_instance(
    launcher: &ActuationPod,
    boot: Option<&str>,
    id: &str,
    config: &InstanceConfig,
) -> Call {
    let path = format!("{INSTANCES_PATH}/{id}");
    let request = json!({"method": "PUT", "path": path, "body": config});
    let endpoint = Endpoint::launcher(launcher);
    provider_call(launcher, &endpoint, Purpose::CreateInstance, id, request, boot)
}

/// The call that deletes an instance.
#[must_use]
pub fn delete_instance(launcher: &ActuationPod, boot: Option<&str>, id: &str) -> Call {
    let request = json!({"method": "DELETE", "path": format!("{INSTANCES_PATH}/{id}")});
    let endpoint = Endpoint::launcher(launcher);
    provider_call(launcher, &endpoint, Purpose::DeleteInstance, id, request, boot)
}

/// The call that makes a requester ready or unready.
#[must_use]
pub fn relay(requester: &ActuationPod, port: u16, provider: &ActuationPod, ready: bool) -> Call {
    let (purpose, path) = match ready {
        true => (Purpose::RelayReady, BECOME_READY_PATH),
        false => (Purpose::RelayUnready, BECOME_UNREADY_PATH),
    };
    let request = json!({"method": "POST", "path": path});
    requester_call(requester, port, provider, purpose, request)
}

/// The call that tells a requester's proxy where its provider listens.
#[must_use]
pub fn configure_proxy(
    requester: &ActuationPod,
    port: u16,
    provider: &ActuationPod,
    engine_port: u16,
) -> Call {
    let body = json!({"address": provider.ip, "port": engine_port});
    // Older stubs answer 409 to the target they have: then it is read and compared.
    let request =
        json!({"method": "PUT", "path": PROXY_PATH, "body": body, "compareOnConflict": true});
    requester_call(requester, port, provider, Purpose::ConfigureProxy, request)
}

fn requester_call(
    requester: &ActuationPod,
    port: u16,
    provider: &ActuationPod,
    purpose: Purpose,
    request: Value,
) -> Call {
    let endpoint = Endpoint::of(requester, port);
    // A stub that restarts has forgotten what it was told.
    let id = format!(
        "{}/{}/{}/{}/{}",
        purpose.as_str(),
        requester.metadata.uid,
        requester.server.restarts,
        provider.metadata.uid,
        provider.binding_counter()
    );
    call(&endpoint, &requester.node_name, purpose, id, request)
}

/// A call that carries the fence of the provider's binding.
fn provider_call(
    provider: &ActuationPod,
    endpoint: &Endpoint,
    purpose: Purpose,
    subject: &str,
    mut request: Value,
    boot: Option<&str>,
) -> Call {
    let counter = provider.binding_counter();
    let uid = provider.binding().map(|it| it.uid).unwrap_or_default();
    request["headers"] = json!({ BINDING_HEADER: format!("{uid}/{counter}") });
    if let Some(boot) = boot {
        request["headers"][BOOT_HEADER] = json!(boot);
    }
    let pod = &provider.metadata.uid;
    let boot = boot.unwrap_or_default();
    let id = format!("{}/{pod}/{subject}/{counter}/{uid}/{boot}", purpose.as_str());
    call(endpoint, &provider.selected_node, purpose, id, request)
}

fn call(endpoint: &Endpoint, node: &str, purpose: Purpose, id: String, mut request: Value) -> Call {
    request["pod"] = json!(endpoint.pod.to_string());
    Call {
        id: CallId::new(id),
        target: Target {
            protocol: PROTOCOL,
            address: endpoint.address(),
            uid: endpoint.uid.clone(),
            group: node.to_owned(),
        },
        purpose: purpose.as_str(),
        request,
        timeout: purpose.timeout(),
    }
}

/// Reads the reply to a call. An instance that is created twice, or deleted and not there, is as it
/// was wanted; whether it is the right one is seen in the list of instances.
#[must_use]
pub fn read_reply(purpose: Purpose, status: u16, body: &[u8]) -> Reply {
    let is_done = match (purpose, status) {
        (_, 200..=299)
        | (Purpose::DeleteInstance, 404)
        | (Purpose::CreateInstance, 409)
        // Requesters of an older release have no proxy.
        | (Purpose::ConfigureProxy, 404 | 405) => true,
        (_, _) => false,
    };
    if is_done {
        return Reply::Done(json!({ "status": status }));
    }
    let reason = match status {
        409 | 412 => "Conflict",
        404 => "NotFound",
        500..=599 => "InternalError",
        _ => "BadRequest",
    };
    let message = format!("{}: HTTP status {status}: {}", purpose.as_str(), shown(body));
    Reply::Refused(Refusal { code: status, reason: reason.to_owned(), message })
}

/// Whether an engine's words about a failed wake say that memory is short.
#[must_use]
pub fn is_out_of_memory(refusal: &Refusal) -> bool {
    let text = refusal.message.to_lowercase();
    text.contains("memory") || text.contains("oom")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher() -> ActuationPod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "l", "uid": "ul",
                "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
                "annotations": {
                    "dual-pods.llm-d.ai/requester": "u1 r",
                    "actuation.gantry.dev/binding": "3",
                },
            },
            "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
            "status": {"podIP": "10.0.0.1"},
        }))
        .unwrap()
    }

    #[test]
    fn as_69_calls_carry_the_fence_of_their_binding() {
        let launcher = launcher();
        let engine =
            Engine { provider: &launcher, port: 8005, instance: Some("I1"), boot: Some("b1") };
        let wake = engine.wake();
        assert_eq!(
            wake.request,
            json!({
                "method": "POST", "path": "/v2/vllm/instances/I1/wake_up",
                "headers": {"Gantry-Binding": "u1/3", "Gantry-Boot-Id": "b1"}, "pod": "n/l",
            })
        );
        assert_eq!(
            (wake.target.address.as_str(), wake.target.group.as_str()),
            ("10.0.0.1:8001", "n1")
        );
        assert_eq!(wake.timeout, Duration::from_secs(180));
        // Other launchers are passed by.
        let engine = Engine { boot: None, ..engine };
        assert_eq!(engine.wake().target.address, "10.0.0.1:8005");
        assert_eq!(engine.sleep(true).request["path"], "/sleep?level=1&mode=wait");
        assert_eq!(engine.sleep(false).request["path"], "/sleep");
        assert_ne!(engine.sleep(true).id, engine.sleep(false).id);
        let mut next = launcher.clone();
        next.metadata.annotations.insert("actuation.gantry.dev/binding".into(), "4".into());
        let later = Engine { provider: &next, ..engine.clone() };
        assert_ne!(later.wake().id, engine.wake().id);
    }

    #[test]
    fn replies_are_read() {
        let done = |purpose, status| matches!(read_reply(purpose, status, b""), Reply::Done(_));
        let table = [
            (Purpose::CreateInstance, 201, true),
            (Purpose::CreateInstance, 409, true),
            (Purpose::CreateInstance, 412, false),
            (Purpose::DeleteInstance, 404, true),
            (Purpose::DeleteInstance, 500, false),
            (Purpose::Wake, 200, true),
            (Purpose::Wake, 404, false),
            (Purpose::Sleep, 500, false),
            (Purpose::ConfigureProxy, 404, true),
            (Purpose::ConfigureProxy, 409, false),
        ];
        for (purpose, status, expected) in table {
            assert_eq!(done(purpose, status), expected, "{purpose:?} {status}");
            assert_eq!(Purpose::from_name(purpose.as_str()), Some(purpose));
        }
        let Reply::Refused(refusal) = read_reply(Purpose::Wake, 500, b"CUDA out of memory") else {
            panic!("refused");
        };
        assert!(is_out_of_memory(&refusal));
    }
}
