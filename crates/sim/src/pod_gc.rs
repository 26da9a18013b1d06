//! Pods that nobody else takes away.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use jiff::{SignedDuration, Timestamp};

use crate::view::{Node, Pod};
use gantry_pods::said::{Said, remove_now, say};

/// How long a node may be missing before its pods are lost.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// How many pods that have ended are kept.
const KEPT: usize = 12_500;

/// The most pods one plan removes.
const MOST: usize = 500;

/// Under this key it is decided about all pods that have ended; no pod has it, for want of a
/// namespace.
const ENDED: &str = "ended";

/// Takes away pods whose node is gone, pods that go and never had one, and the oldest of too many
/// that have ended.
#[derive(Clone, Copy, Debug)]
pub struct PodCollector {
    kept: usize,
}

impl Default for PodCollector {
    fn default() -> Self {
        Self { kept: KEPT }
    }
}

impl PodCollector {
    /// The account it acts as.
    pub const ACCOUNT: &str = "pod-garbage-collector";

    /// Keeps so many pods that have ended.
    #[must_use]
    pub fn keeping(kept: usize) -> Self {
        Self { kept }
    }
}

impl Controller for PodCollector {
    fn name(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let pods = world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name()));
            let concerned = pods.iter().filter(|pod| is_concerned(world, pod));
            return concerned.map(|pod| pod.metadata.key()).collect();
        }
        let Some(pod) = change.after::<Pod>() else { return Vec::new() };
        let mut keys: Vec<Key> =
            is_concerned(world, pod).then(|| change.key.clone()).into_iter().collect();
        if pod.is_over() && world.shelf::<Pod>().len() > self.kept {
            keys.push(Key::cluster(ENDED));
        }
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        if key.namespace().is_empty() {
            return self.plan_ended(world);
        }
        let Some(pod) = world.shelf::<Pod>().get(key) else { return Plan::default() };
        if is_hidden(world, &pod) {
            return Plan::default();
        }
        let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
        plan(&pod, node.as_deref(), now)
    }
}

impl PodCollector {
    /// Removes the oldest of too many pods that have ended, those first that were pushed out.
    fn plan_ended(&self, world: &World) -> Plan {
        let mut plan = Plan::default();
        let mut ended = world.shelf::<Pod>().all();
        ended.retain(|pod| pod.is_over());
        let surplus = ended.len().saturating_sub(self.kept);
        ended.sort_by_cached_key(|pod| {
            let evicted = pod.status.reason == "Evicted";
            (!evicted, pod.metadata.creation_timestamp, pod.metadata.name.clone())
        });
        for pod in ended.iter().take(surplus.min(MOST)) {
            plan.steps.extend(remove_now(pod).map(gantry_reconcile::Step::new));
        }
        if surplus > MOST {
            plan.look_within(std::time::Duration::ZERO);
        }
        plan
    }
}

/// Whether a pod is on a node that is there but cannot be read: such a node is not gone.
fn is_hidden(world: &World, pod: &Pod) -> bool {
    world.shelf::<Node>().is_unreadable(&Key::cluster(&pod.spec.node_name))
}

fn is_concerned(world: &World, pod: &Pod) -> bool {
    let name = &pod.spec.node_name;
    if name.is_empty() {
        return pod.metadata.is_going();
    }
    let node = world.shelf::<Node>().get(&Key::cluster(name));
    node.is_none_or(|node| pod.metadata.is_going() && is_out_of_service(&node))
}

/// Whether somebody says that a node is off for good.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.taints.iter();
    !node.is_ready() && taints.any(|it| it.key == "node.kubernetes.io/out-of-service")
}

/// Decides about one pod.
fn plan(pod: &Pod, node: Option<&Node>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let going = pod.metadata.is_going();
    match node {
        None if pod.spec.node_name.is_empty() => {
            if going {
                end(pod, None, now, &mut plan);
            }
        }
        None => {
            // The node may come back, and may only be unseen. Since when it is missing is written
            // down on the pod, so that nobody needs to remember.
            let lost = Said::to_go("DeletionByPodGC", "PodGC: node no longer exists");
            if pod.is_over() {
                plan.steps.extend(remove_now(pod).map(gantry_reconcile::Step::new));
            } else if lost.is_true_of(pod) {
                let since = pod.condition(lost.kind).and_then(|it| it.last_transition_time);
                let until = since.and_then(|it| it.checked_add(QUARANTINE).ok()).unwrap_or(now);
                if until > now {
                    plan.look_at(until, now);
                } else {
                    end(pod, Some(&lost), now, &mut plan);
                }
            } else {
                plan.write(say(pod, Some(&lost), None, now));
            }
        }
        Some(node) if going && is_out_of_service(node) => end(pod, None, now, &mut plan),
        Some(_) => {}
    }
    plan
}

/// Says that a pod has failed, and then takes it away.
fn end(pod: &Pod, said: Option<&Said>, now: Timestamp, plan: &mut Plan) {
    if pod.is_over() {
        plan.steps.extend(remove_now(pod).map(gantry_reconcile::Step::new));
    } else {
        plan.write(say(pod, said, Some("Failed"), now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_harness::{Faults, Scenario, Server, prove_worlds};
    use gantry_reconcile::{Propagation, View};
    use serde_json::{Value, json};

    use super::*;
    use crate::stand::{bad, is_bad, proven};

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
    fn pods_that_nobody_takes_away_go() {
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
    fn a_missing_node_has_some_time_to_come_back() {
        let mut text = pod("gone", "Running", false);
        text["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let pod: Pod = serde_json::from_value(text).unwrap();
        let early = plan(&pod, None, "2026-01-01T00:00:39Z".parse().unwrap());
        assert_eq!((early.steps.len(), early.look_again), (0, Some(Duration::from_secs(1))));
        let late = plan(&pod, None, "2026-01-01T00:00:40Z".parse().unwrap());
        let gantry_reconcile::Write::Merge { body, .. } = &late.steps[0].write else {
            panic!("a merge")
        };
        assert_eq!(body["status"]["phase"], "Failed");
        assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn pods_of_lost_nodes_end_in_the_same_place() {
        let collector = PodCollector::default();
        let controllers: [&dyn Controller; 1] = [&collector];
        let object = |name: &str, node: &str| {
            let body = json!({
                "metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": node},
            });
            (Pod::RESOURCE, body)
        };
        let there = json!({"metadata": {"name": "there"}});
        let going: gantry_harness::Action = Box::new(|server: &mut Server| {
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
            names.filter(|name| !is_bad(name)).collect()
        };
        assert_eq!(shape(&scenario.run(0, Faults::none()).unwrap().server), json!(["a"]));
        proven(scenario.prove(0..8, shape));
        let mut wrong = bad("pod", "/spec", |name| object(name, "never-was"));
        let node = |name: &str| (Node::RESOURCE, json!({"metadata": {"name": name}, "spec": {}}));
        wrong.extend(bad("node", "/spec", node).pop());
        proven(scenario.prove_apart(&wrong, 0..4, shape));
    }

    #[test]
    fn a_node_that_cannot_be_read_is_not_gone() {
        let collector = PodCollector::default();
        let controllers: [&dyn Controller; 1] = [&collector];
        let spoil = |spec: Value| -> gantry_harness::Action {
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
        assert_eq!(shape(&ending.server), json!([null]), "nobody touches the pod");
        assert_eq!(ending.held[0].reason, "Unreadable");
        proven(odd.prove(0..8, shape));
        let mended = scenario(vec![spoil(json!({"taints": 7})), spoil(json!({}))]);
        proven(mended.prove(0..8, shape));
    }

    #[test]
    fn pods_of_any_world_stay_or_go_in_one_way() {
        let collector = PodCollector::default();
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
            let script: Vec<gantry_harness::Action> = vec![
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
        proven(prove_worlds(0..20, world, shape));
    }

    #[test]
    fn only_so_many_ended_pods_are_kept() {
        let collector = PodCollector::keeping(2);
        let controllers: [&dyn Controller; 1] = [&collector];
        let pods = (0..6).map(|number| {
            let body = json!({"metadata": {"name": format!("p{number}"), "namespace": "n"}});
            (Pod::RESOURCE, body)
        });
        let script: Vec<gantry_harness::Action> = (0..6)
            .map(|number| -> gantry_harness::Action {
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
        proven(scenario.prove(0..8, shape));
        let left = scenario.run(1, Faults::none()).unwrap().server;
        assert_eq!(shape(&left), json!(2));
    }
}
