//! Executes the calls of plans over HTTP.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use gantry_controller::ManagerHandle;
use gantry_controller::external::{BoxFuture, CallError, Caller};
use gantry_http_client::Bounds;
use gantry_process::clock::Clock;
use gantry_reconcile::{Call, Key, Reply, World};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;

use super::metrics::ActuationMetrics;
use super::peer::{PeerClient, PeerRequest};
use super::responders::config_of;
use crate::calls::{PROTOCOL, Purpose, read_reply};
use crate::labels::LAUNCHER_PORT;
use crate::view::ActuationPod;

/// The largest response of which the status and the words are read.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Executes calls. Clones share connections.
#[derive(Clone, Debug)]
pub struct PeerCaller {
    client: PeerClient,
    metrics: Arc<ActuationMetrics>,
    clock: Clock,
    handle: Arc<OnceLock<ManagerHandle>>,
}

impl PeerCaller {
    /// A caller that executes nothing until it is given the handle of its manager.
    #[must_use]
    pub fn new(client: PeerClient, metrics: Arc<ActuationMetrics>, clock: Clock) -> Self {
        Self { client, metrics, clock, handle: Arc::default() }
    }

    /// Gives it the manager in whose cache it looks up pods.
    pub fn connect(&self, handle: &ManagerHandle) {
        // There is one manager.
        let _ = self.handle.set(handle.clone());
    }

    async fn execute(&self, call: &Call) -> Result<Reply, CallError> {
        let handle = self.handle.get();
        let handle = handle.ok_or_else(|| CallError("the cache is not filled yet".to_owned()))?;
        self.execute_in(handle.world(), call).await
    }

    /// Executes a call to a pod of this world.
    pub(super) async fn execute_in(&self, world: &World, call: &Call) -> Result<Reply, CallError> {
        let target = Target::look_up(world, call).map_err(CallError)?;
        let reply = self.send(call, &target).await.map_err(CallError)?;
        if target.purpose == Purpose::RelayReady && matches!(reply, Reply::Done(_)) {
            self.metrics.relayed(world, &target.pod, self.clock.now());
            let created = target.pod.metadata.creation_timestamp;
            tracing::info!(
                requesterName = target.pod.metadata.name,
                namespace = target.pod.metadata.namespace,
                requesterCreateTime = created.map(|it| it.to_string()),
                "relayed readiness"
            );
        }
        Ok(reply)
    }

    async fn send(&self, call: &Call, target: &Target) -> Result<Reply, String> {
        let Call { request, .. } = call;
        let method = request["method"].as_str().unwrap_or_default();
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("cannot call: {method:?} is no method"))?;
        let body = Some(&request["body"]).filter(|it| !it.is_null());
        let reply = self.exchange(call, target, method, body).await?;
        let has_conflict = reply.status == 409 && request["compareOnConflict"] == true;
        if has_conflict {
            let known = self.exchange(call, target, Method::GET, None).await?;
            let known: Option<Value> = serde_json::from_slice(&known.body).ok();
            let is_same = known.zip(body).is_some_and(|(known, body)| {
                ["address", "port"].iter().all(|it| known[*it] == body[*it])
            });
            if is_same {
                return Ok(read_reply(target.purpose, 200, b""));
            }
        }
        Ok(read_reply(target.purpose, reply.status, &reply.body))
    }

    async fn exchange(
        &self,
        call: &Call,
        target: &Target,
        method: Method,
        body: Option<&Value>,
    ) -> Result<super::peer::PeerResponse, String> {
        let path = call.request["path"].as_str().unwrap_or_default();
        self.client
            .send(PeerRequest {
                purpose: target.purpose.as_str(),
                method,
                pod: &target.pod.metadata.key(),
                address: target.address,
                path,
                headers: target.headers.clone(),
                body,
                bounds: Bounds { time: call.timeout, bytes: MAX_REPLY_BYTES },
                has_token: target.has_token,
                config: &target.config,
                requester: target.requester.as_deref(),
            })
            .await
    }
}

impl Caller for PeerCaller {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.execute(call))
    }
}

/// The pod that a call is made to, as it is now.
struct Target {
    purpose: Purpose,
    pod: Arc<ActuationPod>,
    address: SocketAddr,
    headers: HeaderMap,
    has_token: bool,
    config: String,
    /// The name of the requester: the pod itself, or the one that it is bound to.
    requester: Option<String>,
}

impl Target {
    /// Looks up the pod right before it is called: another one may have got its name, or its
    /// address.
    fn look_up(world: &World, call: &Call) -> Result<Self, String> {
        let purpose = Purpose::from_name(call.purpose)
            .ok_or_else(|| format!("cannot call: {} is no purpose", call.purpose))?;
        let name = call.request["pod"].as_str().unwrap_or_default();
        let key = match name.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => return Err(format!("cannot call: {name:?} is no pod")),
        };
        let pod = world.store::<ActuationPod>().get(&key);
        let pod = pod.filter(|it| it.metadata.uid == call.target.uid);
        let pod = pod.ok_or_else(|| format!("pod {key} is gone"))?;
        let address: SocketAddr = call
            .target
            .address
            .parse()
            .map_err(|_| format!("cannot call pod {key}: {:?} is no address", pod.ip))?;
        if pod.ip.parse::<IpAddr>().ok() != Some(address.ip()) {
            return Err(format!("pod {key} has another address now"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in call.request["headers"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            let pair = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
            let (name, value) =
                pair.ok_or_else(|| format!("cannot call pod {key}: header {name} is invalid"))?;
            headers.insert(name, value);
        }
        let is_launcher = pod.is_launcher() && address.port() == LAUNCHER_PORT;
        let has_token = is_launcher || pod.variant().is_some();
        let config = config_of(&pod);
        let requester = match pod.variant() {
            Some(_) => Some(pod.metadata.name.clone()),
            None => pod.binding().map(|it| it.name),
        };
        Ok(Self { purpose, pod, address, headers, has_token, config, requester })
    }
}
