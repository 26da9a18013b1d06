//! The kubelet of a simulated cluster: it runs pods, and probes the stubs of requesters.

use std::time::Duration;

use gantry_actuation::facts::Endpoint;
use gantry_actuation::view::ActuationPod;
use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{
    Change, Controller, Fact, FactChange, FactKind, Inquiry, Key, Kind, Plan, Subresource, View,
    World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Whether the stub of a requester is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StubReady(pub(crate) bool);

impl Fact for StubReady {
    type Subject = Endpoint;
    const NAME: &'static str = "stub-ready";
}

/// Probes the stubs.
#[derive(Debug)]
pub(crate) struct ProbeInquiry;

impl Inquiry for ProbeInquiry {
    type Fact = StubReady;

    fn name(&self) -> &'static str {
        "probes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<Endpoint> {
        let pod = world.store::<ActuationPod>().get(key);
        let pod = pod.filter(|it| it.variant().is_some() && !it.metadata.is_terminating());
        pod.filter(|it| !it.ip.is_empty()).map(|it| Endpoint::of(&it, 8080)).into_iter().collect()
    }

    fn policy(&self, _: &Endpoint) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: Duration::from_secs(5),
            leader_only: false,
            ..InquiryPolicy::default()
        }
    }
}

/// Runs the pods.
#[derive(Debug)]
pub(crate) struct NodeAgent;

impl Controller for NodeAgent {
    fn name(&self) -> &'static str {
        "node-agent"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<StubReady>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        change.of::<StubReady>().map(|it| it.subject.pod.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<ActuationPod>().get(key) else { return plan };
        let meta = &pod.metadata;
        if meta.is_terminating() {
            if meta.deletion_grace_period_seconds != Some(0) {
                plan.write(Write::Delete {
                    resource: ActuationPod::RESOURCE,
                    key: key.clone(),
                    fence: meta.fence(),
                    grace: Some(0),
                    propagation: None,
                });
            }
            return plan;
        }
        if pod.is_terminal() {
            return plan;
        }
        if pod.ip.is_empty() {
            plan.write(status(&pod, pod.variant().is_none(), now));
            return plan;
        }
        // A probe from before the last change says nothing: it may be another process's.
        let changed = pod.condition("Ready").and_then(|it| it.last_transition_time);
        let probe = world.facts::<StubReady>().observed(&Endpoint::of(&pod, 8080));
        let probe = probe.filter(|it| changed.is_none_or(|changed| it.at > changed));
        if let Some(probe) = probe.filter(|it| it.value.0 != pod.server.is_ready) {
            plan.write(status(&pod, probe.value.0, now));
        }
        plan
    }
}

fn status(pod: &ActuationPod, is_ready: bool, now: Timestamp) -> Write {
    let text = if is_ready { "True" } else { "False" };
    let containers: Value =
        json!([{"name": "inference-server", "ready": is_ready, "state": {"running": {}}}]);
    Write::Merge {
        resource: ActuationPod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Status,
        fence: pod.metadata.fence(),
        body: json!({"status": {
            "phase": "Running",
            "podIP": format!("10.0.0.{}", pod.metadata.uid.as_str().trim_start_matches("uid-")),
            "conditions": [{"type": "Ready", "status": text, "lastTransitionTime": now.to_string()}],
            "containerStatuses": containers,
        }}),
    }
}
