//! The pod garbage collector: deletes pods that nothing else deletes.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use jiff::{SignedDuration, Timestamp};

use crate::view::{Node, Pod};
use gantry_pods::pod_condition::{PodConditionUpdate, force_delete, update_pod_status};

/// How long a node may be missing before its pods are lost.
const NODE_QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// How many finished pods are kept.
const TERMINATED_POD_THRESHOLD: usize = 12_500;

/// The most pods one plan deletes.
const MAX_DELETES_PER_PLAN: usize = 500;

/// The key under which all finished pods are reconciled; no pod has it, because it has no
/// namespace.
const TERMINATED_PODS_KEY: &str = "ended";

/// Deletes pods whose node is gone, deleted pods that were never scheduled, and the oldest finished
/// pods beyond the threshold.
#[derive(Clone, Copy, Debug)]
pub struct PodGarbageCollector {
    threshold: usize,
}

impl Default for PodGarbageCollector {
    fn default() -> Self {
        Self { threshold: TERMINATED_POD_THRESHOLD }
    }
}

impl PodGarbageCollector {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "pod-garbage-collector";

    /// Creates a collector that keeps this many finished pods.
    #[must_use]
    pub fn with_threshold(kept: usize) -> Self {
        Self { threshold: kept }
    }
}

impl Controller for PodGarbageCollector {
    fn name(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
            let concerned = pods.iter().filter(|pod| may_be_collected(world, pod));
            return concerned.map(|pod| pod.metadata.key()).collect();
        }
        let Some(pod) = change.after::<Pod>() else { return Vec::new() };
        let mut keys: Vec<Key> =
            may_be_collected(world, pod).then(|| change.key.clone()).into_iter().collect();
        if pod.is_terminal() && world.store::<Pod>().len() > self.threshold {
            keys.push(Key::cluster(TERMINATED_PODS_KEY));
        }
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        if key.namespace().is_empty() {
            return self.plan_terminated(world);
        }
        let Some(pod) = world.store::<Pod>().get(key) else { return Plan::default() };
        if is_on_unreadable_node(world, &pod) {
            return Plan::default();
        }
        let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
        plan(&pod, node.as_deref(), now)
    }
}

impl PodGarbageCollector {
    /// Deletes the oldest finished pods beyond the threshold, evicted ones first.
    fn plan_terminated(&self, world: &World) -> Plan {
        let mut plan = Plan::default();
        let mut ended = world.store::<Pod>().list();
        ended.retain(|pod| pod.is_terminal());
        let surplus = ended.len().saturating_sub(self.threshold);
        ended.sort_by_cached_key(|pod| {
            let evicted = pod.status.reason == "Evicted";
            (!evicted, pod.metadata.creation_timestamp, pod.metadata.name.clone())
        });
        for pod in ended.iter().take(surplus.min(MAX_DELETES_PER_PLAN)) {
            plan.steps.extend(force_delete(pod).map(gantry_reconcile::Step::new));
        }
        if surplus > MAX_DELETES_PER_PLAN {
            plan.requeue_after(std::time::Duration::ZERO);
        }
        plan
    }
}

/// Returns whether a pod is on a node that exists but cannot be read: such a node is not gone.
fn is_on_unreadable_node(world: &World, pod: &Pod) -> bool {
    world.store::<Node>().is_unreadable(&Key::cluster(&pod.spec.node_name))
}

fn may_be_collected(world: &World, pod: &Pod) -> bool {
    let name = &pod.spec.node_name;
    if name.is_empty() {
        return pod.metadata.is_terminating();
    }
    let node = world.store::<Node>().get(&Key::cluster(name));
    node.is_none_or(|node| pod.metadata.is_terminating() && is_out_of_service(&node))
}

/// Returns whether a node is marked as permanently out of service.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.taints.iter();
    !node.is_ready() && taints.any(|it| it.key == "node.kubernetes.io/out-of-service")
}

/// Plans for one pod.
fn plan(pod: &Pod, node: Option<&Node>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let going = pod.metadata.is_terminating();
    match node {
        None if pod.spec.node_name.is_empty() => {
            if going {
                fail_and_delete(pod, None, now, &mut plan);
            }
        }
        None => {
            // The node may come back, or may only not be observed yet. The time since which it is
            // missing is recorded on the pod, so that no process needs to remember it.
            let lost = PodConditionUpdate::disruption_target(
                "DeletionByPodGC",
                "PodGC: node no longer exists",
            );
            if pod.is_terminal() {
                plan.steps.extend(force_delete(pod).map(gantry_reconcile::Step::new));
            } else if lost.is_set_on(pod) {
                let since = pod.condition(lost.kind).and_then(|it| it.last_transition_time);
                let until =
                    since.and_then(|it| it.checked_add(NODE_QUARANTINE).ok()).unwrap_or(now);
                if until > now {
                    plan.requeue_at(until, now);
                } else {
                    fail_and_delete(pod, Some(&lost), now, &mut plan);
                }
            } else {
                plan.write(update_pod_status(pod, Some(&lost), None, now));
            }
        }
        Some(node) if going && is_out_of_service(node) => {
            fail_and_delete(pod, None, now, &mut plan);
        }
        Some(_) => {}
    }
    plan
}

/// Marks a pod as failed, and then deletes it.
fn fail_and_delete(pod: &Pod, said: Option<&PodConditionUpdate>, now: Timestamp, plan: &mut Plan) {
    if pod.is_terminal() {
        plan.steps.extend(force_delete(pod).map(gantry_reconcile::Step::new));
    } else {
        plan.write(update_pod_status(pod, said, Some("Failed"), now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_harness::{Faults, Scenario, Server, prove_worlds};
    use gantry_reconcile::{Propagation, View};
    use serde_json::{Value, json};

    use super::*;
    use crate::test_world::{assert_proof, faulty_objects, is_faulty};

    fn pod(node: &str, phase: &str, going: bool) -> Value {
        json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "deletionTimestamp": going.then_some("2026-01-01T00:00:00Z"),
                "finalizers": ["x"],
            },
            "spec": {"nodeName": node}, "status": {"phase": phase},
        })
    }

    fn node(ready: &str, taint: &str) -> Value {
        json!({
            "metadata": {"name": "there"},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn orphaned_pods_are_deleted() {
        let off = "node.kubernetes.io/out-of-service";
        let table = [
            ("running where it should", pod("there", "Running", false), node("True", ""), vec![]),
            ("not yet placed", pod("", "Pending", false), Value::Null, vec![]),
            ("never placed, and to go", pod("", "Pending", true), Value::Null, vec!["patch"]),
            ("the same, marked", pod("", "Failed", true), Value::Null, vec!["delete"]),
            ("lost its node", pod("gone", "Running", false), Value::Null, vec!["patch"]),
            (
                "ended, and lost its node",
                pod("gone", "Succeeded", false),
                Value::Null,
                vec!["delete"],
            ),
            (
                "going on a node that is off",
                pod("there", "Running", true),
                node("False", off),
                vec!["patch"],
            ),
            (
                "going on a node that is not",
                pod("there", "Running", true),
                node("True", off),
                vec![],
            ),
        ];
        for (why, pod, node, expected) in table {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let node: Option<Node> = serde_json::from_value(node).unwrap();
            let plan = plan(&pod, node.as_ref(), "2026-01-01T00:00:00Z".parse().unwrap());
            let verbs: Vec<_> = plan.steps.iter().map(|it| it.write.verb()).collect();
            assert_eq!(verbs, expected, "{why}");
        }
    }

    #[test]
    fn a_missing_node_is_quarantined_first() {
        let mut text = pod("gone", "Running", false);
        text["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let pod: Pod = serde_json::from_value(text).unwrap();
        let early = plan(&pod, None, "2026-01-01T00:00:39Z".parse().unwrap());
        assert_eq!((early.steps.len(), early.requeue_after), (0, Some(Duration::from_secs(1))));
        let late = plan(&pod, None, "2026-01-01T00:00:40Z".parse().unwrap());
        let gantry_reconcile::Write::Merge { body, .. } = &late.steps[0].write else {
            panic!("a merge")
        };
        assert_eq!(body["status"]["phase"], "Failed");
        assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn pods_of_missing_nodes_converge() {
        let collector = PodGarbageCollector::default();
        let controllers: [&dyn Controller; 1] = [&collector];
        let object = |name: &str, node: &str| {
            let body = json!({
                "metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": node},
            });
            (Pod::RESOURCE, body)
        };
        let there = json!({"metadata": {"name": "there"}});
        let going: gantry_harness::UserAction = Box::new(|server: &mut Server| {
            server.delete(&Node::RESOURCE, &Key::cluster("goes"), Propagation::Background);
        });
        let scenario = Scenario {
            controllers: &controllers,
            defaults: |_, _| {},
            objects: vec![
                (Node::RESOURCE, there),
                (Node::RESOURCE, json!({"metadata": {"name": "goes"}})),
                object("a", "there"),
                object("b", "goes"),
                object("c", "never-was"),
            ],
            script: vec![going],
            replicas: 1,
            horizon: Duration::from_secs(600),
            ..Scenario::default()
        };
        let shape = |server: &Server| {
            let pods = server.list(&Pod::RESOURCE);
            let names = pods.iter().map(|it| it["metadata"]["name"].clone());
            names.filter(|name| !is_faulty(name)).collect()
        };
        assert_eq!(shape(&scenario.run(0, Faults::none()).unwrap().server), json!(["a"]));
        assert_proof(scenario.prove(0..8, shape));
        let mut wrong = faulty_objects("pod", "/spec", |name| object(name, "never-was"));
        let node = |name: &str| (Node::RESOURCE, json!({"metadata": {"name": name}, "spec": {}}));
        wrong.extend(faulty_objects("node", "/spec", node).pop());
        assert_proof(scenario.prove_isolation(&wrong, 0..4, shape));
    }

    #[test]
    fn an_unreadable_node_is_not_missing() {
        let collector = PodGarbageCollector::default();
        let controllers: [&dyn Controller; 1] = [&collector];
        let spoil = |spec: Value| -> gantry_harness::UserAction {
            Box::new(move |server: &mut Server| {
                let key = Key::cluster("odd");
                server.edit(&Node::RESOURCE, &key, |node| node["spec"] = spec.clone());
            })
        };
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "odd"}});
        let scenario = |script| Scenario {
            controllers: &controllers,
            defaults: |_, _| {},
            objects: vec![
                (Node::RESOURCE, json!({"metadata": {"name": "odd"}, "spec": {}})),
                (Pod::RESOURCE, pod.clone()),
            ],
            script,
            replicas: 1,
            horizon: Duration::from_secs(600),
            ..Scenario::default()
        };
        let shape = |server: &Server| {
            let pods = server.list(&Pod::RESOURCE);
            json!(pods.iter().map(|it| &it["status"]).collect::<Vec<_>>())
        };
        let odd = scenario(vec![spoil(json!({"taints": 7}))]);
        let ending = odd.run(0, Faults::none()).unwrap();
        assert_eq!(shape(&ending.server), json!([null]), "the pod is left alone");
        assert_eq!(ending.held[0].reason, "Unreadable");
        assert_proof(odd.prove(0..8, shape));
        let mended = scenario(vec![spoil(json!({"taints": 7})), spoil(json!({}))]);
        assert_proof(mended.prove(0..8, shape));
    }

    #[test]
    fn random_pods_converge() {
        let collector = PodGarbageCollector::default();
        let controllers: [&dyn Controller; 1] = [&collector];
        let world = |seed| {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let mut objects: Vec<_> =
                ["a", "b"].map(|name| (Node::RESOURCE, json!({"metadata": {"name": name}}))).into();
            for number in 0..rng.usize(1..6) {
                let node = ["", "a", "b", "never-was"][rng.usize(..4)];
                let metadata = json!({"name": format!("p{number}"), "namespace": "n"});
                let body = json!({"metadata": metadata, "spec": {"nodeName": node}});
                objects.push((Pod::RESOURCE, body));
            }
            let (lost, gone) = (rng.bool(), rng.usize(..6));
            let script: Vec<gantry_harness::UserAction> = vec![
                Box::new(move |server: &mut Server| {
                    if lost {
                        let key = Key::cluster("b");
                        server.delete(&Node::RESOURCE, &key, Propagation::Background);
                    }
                }),
                Box::new(move |server: &mut Server| {
                    let key = Key::new("n", &format!("p{gone}"));
                    server.delete(&Pod::RESOURCE, &key, Propagation::Background);
                }),
            ];
            let horizon = Duration::from_secs(600);
            let defaults = |_: &gantry_reconcile::Resource, _: &mut Value| {};
            Scenario {
                controllers: &controllers,
                defaults,
                objects,
                script,
                replicas: 1,
                horizon,
                ..Scenario::default()
            }
        };
        let shape = |server: &Server| {
            let pods = server.list(&Pod::RESOURCE);
            json!(pods.iter().map(|it| &it["metadata"]["name"]).collect::<Vec<_>>())
        };
        assert_proof(prove_worlds(0..20, world, shape));
    }

    #[test]
    fn terminated_pods_above_the_threshold_are_deleted() {
        let collector = PodGarbageCollector::with_threshold(2);
        let controllers: [&dyn Controller; 1] = [&collector];
        let pods = (0..6).map(|number| {
            let body = json!({"metadata": {"name": format!("p{number}"), "namespace": "n"}});
            (Pod::RESOURCE, body)
        });
        let script: Vec<gantry_harness::UserAction> = (0..6)
            .map(|number| -> gantry_harness::UserAction {
                Box::new(move |server: &mut Server| {
                    let key = Key::new("n", &format!("p{number}"));
                    server.edit(&Pod::RESOURCE, &key, |it| {
                        it["status"] = json!({"phase": "Succeeded"});
                    });
                    if number == 0 {
                        server.delete(&Pod::RESOURCE, &key, Propagation::Background);
                    }
                })
            })
            .collect();
        let scenario = Scenario {
            controllers: &controllers,
            defaults: |_, _| {},
            objects: pods.collect(),
            script,
            replicas: 1,
            horizon: Duration::from_secs(60),
            ..Scenario::default()
        };
        let shape = |server: &Server| json!(server.list(&Pod::RESOURCE).len());
        assert_proof(scenario.prove(0..8, shape));
        let left = scenario.run(1, Faults::none()).unwrap().server;
        assert_eq!(shape(&left), json!(2));
    }
}
