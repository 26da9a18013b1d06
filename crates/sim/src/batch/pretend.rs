//! What stands in for nodes and the server's defaults in tests.

use gantry_reconcile::{Change, Controller, Key, Kind, Part, Plan, Resource, View, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{Job, Phase, Pod};

/// Runs pods.
pub(crate) struct Kubelet {
    /// The exit code of a pod, or none for one that does not end by itself.
    pub(crate) exit: fn(&Pod) -> Option<i64>,
}

impl Controller for Kubelet {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        let meta = &pod.metadata;
        let status = |body: Value| Write::Merge {
            resource: Pod::RESOURCE,
            key: key.clone(),
            part: Part::Status,
            fence: meta.fence(),
            body: json!({"status": body}),
        };
        let ended = |code: i64| {
            let at = Timestamp::from_second(now.as_second()).unwrap().to_string();
            status(json!({
                "phase": if code == 0 { "Succeeded" } else { "Failed" },
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
                "containerStatuses": [
                    {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": at}}},
                ],
            }))
        };
        if meta.is_going() {
            if !pod.is_over() {
                plan.write(ended(137));
            } else if meta.deletion_grace_period_seconds != Some(0) {
                let fence = meta.fence();
                let (resource, key) = (Pod::RESOURCE, key.clone());
                plan.write(Write::Delete {
                    resource,
                    key,
                    fence,
                    grace: Some(0),
                    propagation: None,
                });
            }
        } else if pod.status.phase == Phase::Pending {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            plan.write(status(json!({"phase": "Running", "conditions": ready})));
        } else if let Some(code) = (self.exit)(&pod).filter(|_| !pod.is_over()) {
            plan.write(ended(code));
        }
        plan
    }
}

/// What the server fills in.
pub(crate) fn defaults(resource: &Resource, object: &mut Value) {
    if *resource != Job::RESOURCE || !object["spec"]["selector"].is_null() {
        return;
    }
    let labels = json!({"batch.kubernetes.io/controller-uid": object["metadata"]["uid"]});
    object["spec"]["selector"] = json!({"matchLabels": labels});
    object["spec"]["template"]["metadata"]["labels"] = labels;
}

/// A job with a spec.
pub(crate) fn job(name: &str, spec: Value) -> (Resource, Value) {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}},
        },
    });
    if let Value::Object(fields) = spec {
        for (name, value) in fields {
            object["spec"][name] = value;
        }
    }
    (Job::RESOURCE, object)
}
