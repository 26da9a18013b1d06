//! The stock of launchers: what goes when, and what is kept.

use std::time::Duration;

use gantry_actuation::object_status::ObjectStatusController;
use gantry_actuation::view::{ActuationPod, LauncherConfig, LauncherPopulationPolicy, Node};
use gantry_actuation::{CollectionController, PairingController, PopulationController, Settings};
use gantry_harness::TestCluster;
use gantry_reconcile::write::{Outcome, PODS, Propagation};
use gantry_reconcile::{Controller, Key, Refusal, Resource, View as _, Write};
use serde_json::{Value, json};

use crate::world::{self, Fleet, Inquiries, NAMESPACE, NodeAgent, create, delete, edit};

/// Runs a test with a policy that wants this many launchers.
fn with_cluster(settings: &Settings, count: u32, test: impl FnOnce(&mut TestCluster<'_>)) {
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let status = ObjectStatusController::new(settings.clone());
    let inquiries = Inquiries::new(settings);
    let controllers: [&dyn Controller; 5] =
        [&pairing, &population, &status, &CollectionController, &NodeAgent];
    let fleet = Fleet::new(true);
    let mut scenario = world::scenario(&controllers, &inquiries, fleet, Vec::new());
    scenario.objects.push(world::policy(count));
    test(&mut TestCluster::new(&scenario));
}

fn advance(cluster: &mut TestCluster<'_>, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).unwrap();
}

fn launchers(cluster: &mut TestCluster<'_>) -> Vec<ActuationPod> {
    world::pods(cluster.server()).into_iter().filter(ActuationPod::is_launcher).collect()
}

fn reasons(cluster: &mut TestCluster<'_>) -> Vec<String> {
    cluster.take_events().iter().map(|it| it.reason.to_string()).collect()
}

fn set_count(cluster: &mut TestCluster<'_>, count: u32) {
    let key = Key::new(NAMESPACE, "p");
    cluster.server().edit(&LauncherPopulationPolicy::RESOURCE, &key, |it| {
        it["spec"]["countForLauncher"][0]["launcherCount"] = json!(count);
    });
}

fn change_template(cluster: &mut TestCluster<'_>) {
    edit(LauncherConfig::RESOURCE, "lc", |it| {
        it["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = json!("changed");
    })(cluster.server());
}

fn retaining() -> Settings {
    Settings { retention: Duration::from_secs(600), ..Settings::default() }
}

/// Beyond the policy an empty launcher goes at once, and one with a sleeper after the retention
/// time; until then it serves hot.
#[test]
fn as_76_a_launcher_with_a_sleeper_is_retained() {
    with_cluster(&retaining(), 2, |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        delete("r1")(cluster.server());
        advance(cluster, 20);
        assert_eq!(launchers(cluster).len(), 2);
        set_count(cluster, 0);
        advance(cluster, 60);
        let kept = launchers(cluster);
        assert_eq!(kept.len(), 1, "the empty one goes at once");
        create("r2", "a", "g0")(cluster.server());
        advance(cluster, 20);
        let record = &launchers(cluster)[0].metadata.annotations["actuation.gantry.dev/record"];
        assert!(record.contains("\"path\":\"hot\""), "{record}");
        delete("r2")(cluster.server());
        advance(cluster, 590);
        assert_eq!(launchers(cluster).len(), 1);
        advance(cluster, 60);
        assert_eq!(launchers(cluster).len(), 0);
        assert!(reasons(cluster).contains(&"LauncherExcess".to_owned()));
    });
}

/// The template changes while three launchers have sleepers: they are replaced one at a time, the
/// one used last at the end; the bound one stays.
#[test]
fn as_75_launchers_of_an_older_template_are_replaced_one_at_a_time() {
    with_cluster(&retaining(), 4, |cluster| {
        for (name, config, gpus) in [("r1", "a", "g0"), ("r2", "b", "g1"), ("r3", "c", "g2")] {
            create(name, config, gpus)(cluster.server());
            advance(cluster, 20);
        }
        create("r4", "a", "g3")(cluster.server());
        advance(cluster, 20);
        let bound = |name: &str, all: &[ActuationPod]| {
            let is_its = |it: &&ActuationPod| it.binding().is_some_and(|it| it.name == name);
            all.iter().find(is_its).map(|it| it.metadata.uid.clone()).unwrap()
        };
        let all = launchers(cluster);
        let used = ["r1", "r2", "r3"].map(|it| bound(it, &all));
        let serving = bound("r4", &all);
        for name in ["r1", "r2", "r3"] {
            delete(name)(cluster.server());
            advance(cluster, 20);
        }
        change_template(cluster);
        advance(cluster, 60);
        let left: Vec<_> = launchers(cluster).into_iter().map(|it| it.metadata.uid).collect();
        assert_eq!(left.len(), 4);
        assert!(left.contains(&serving) && !used.iter().any(|it| left.contains(it)));
        // The order in which they went, and how many idle ones were being deleted at a time.
        let history: Vec<(Value, bool)> = cluster
            .server()
            .history(&PODS)
            .map(|(text, is_gone)| (serde_json::from_str(text).unwrap(), is_gone))
            .collect();
        let mut gone: Vec<String> = Vec::new();
        for (pod, _) in history.iter().filter(|(_, is_gone)| *is_gone) {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            if used.iter().any(|it| it.as_str() == uid) {
                gone.push(uid);
            }
        }
        assert_eq!(gone, used.map(|it| it.as_str().to_owned()), "the least recently used first");
    });
}

/// An idle launcher that its node has refused is replaced after the grace period, and does not
/// count meanwhile.
#[test]
fn as_84_a_failed_launcher_is_replaced() {
    with_cluster(&Settings::default(), 1, |cluster| {
        advance(cluster, 20);
        let failed = launchers(cluster).remove(0).metadata;
        let now = cluster.server().now().to_string();
        cluster.server().edit(&PODS, &failed.key(), |it| {
            it["status"]["phase"] = json!("Failed");
            it["status"]["conditions"][0]["status"] = json!("False");
            it["status"]["conditions"][0]["lastTransitionTime"] = json!(now);
        });
        advance(cluster, 5);
        assert!(launchers(cluster).iter().any(|it| it.metadata.uid == failed.uid), "grace");
        advance(cluster, 30);
        let all = launchers(cluster);
        assert!(all.len() == 1 && all[0].metadata.uid != failed.uid, "{all:?}");
        assert!(reasons(cluster).contains(&"LauncherFailed".to_owned()));
    });
}

/// The node is deleted while idle launchers wait for it: they go, and none are created.
#[test]
fn as_77_idle_launchers_of_a_node_that_is_gone_are_deleted() {
    with_cluster(&Settings::default(), 2, |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        assert_eq!(launchers(cluster).len(), 2);
        let node = Key::cluster("n1");
        cluster.server().delete(&Node::RESOURCE, &node, Propagation::Background);
        advance(cluster, 60);
        let left = launchers(cluster);
        assert_eq!(left.len(), 1, "the bound one follows its requester");
        assert!(left[0].binding().is_some());
        assert!(reasons(cluster).contains(&"NodeGone".to_owned()));
    });
}

/// A launcher that does not become ready gets a label and an event, once, at the exact threshold,
/// and loses the label when it does.
#[test]
fn as_55_a_stuck_launcher_is_labelled_and_reported_once() {
    with_cluster(&Settings::default(), 1, |cluster| {
        advance(cluster, 20);
        let launcher = launchers(cluster).remove(0).metadata;
        let stuck = |cluster: &mut TestCluster<'_>| {
            launchers(cluster)[0].label("dual-pods.llm-d.ai/launcher-stuck").is_some()
        };
        let set_ready = |cluster: &mut TestCluster<'_>, ready: &str| {
            let now = cluster.server().now().to_string();
            cluster.server().edit(&PODS, &launcher.key(), |it| {
                it["status"]["conditions"] = json!([
                    {"type": "Ready", "status": ready, "lastTransitionTime": now},
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
                ]);
            });
        };
        set_ready(cluster, "False");
        advance(cluster, 440);
        assert!(!stuck(cluster));
        // The timer at the threshold is the only thing that makes it look again.
        advance(cluster, 20);
        assert!(stuck(cluster));
        advance(cluster, 600);
        let events = reasons(cluster);
        assert_eq!(events.iter().filter(|it| *it == "LauncherStuck").count(), 1, "{events:?}");
        assert_eq!(launchers(cluster)[0].metadata.uid, launcher.uid, "it is not replaced");
        set_ready(cluster, "True");
        advance(cluster, 10);
        assert!(!stuck(cluster));
        assert!(!reasons(cluster).contains(&"LauncherStuck".to_owned()));
    });
}

/// The server refuses the launchers of a template: the LauncherConfig says so in its status and an
/// event, nothing is tried again, and a corrected template is used.
#[test]
fn g_27_a_template_that_the_server_refuses_is_reported() {
    with_cluster(&Settings::default(), 1, |cluster| {
        let is_refused = |write: &Write| match write {
            Write::Create { resource, body } if *resource == PODS => {
                body["spec"]["containers"][0]["image"] == "bad"
            }
            _ => false,
        };
        cluster.server().intercept(move |write| {
            is_refused(write).then(|| {
                Outcome::Refused(Refusal {
                    code: 422,
                    reason: "Invalid".to_owned(),
                    message: "spec.containers[0].image: no".to_owned(),
                })
            })
        });
        let image = |cluster: &mut TestCluster<'_>, image: &'static str| {
            let key = Key::new(NAMESPACE, "lc");
            let resource: Resource = LauncherConfig::RESOURCE;
            cluster.server().edit(&resource, &key, |it| {
                it["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = json!(image);
                let generation = it["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                it["metadata"]["generation"] = json!(generation);
            });
        };
        let errors = |cluster: &mut TestCluster<'_>| {
            let key = Key::new(NAMESPACE, "lc");
            let config = cluster.server().get(&LauncherConfig::RESOURCE, &key).cloned().unwrap();
            config["status"]["errors"].to_string()
        };
        image(cluster, "bad");
        advance(cluster, 60);
        let text = errors(cluster);
        assert!(text.contains("the server refuses its launchers"), "{text}");
        assert!(text.contains("image: no"), "{text}");
        let events = reasons(cluster);
        assert_eq!(events.iter().filter(|it| *it == "LauncherRefused").count(), 1, "{events:?}");
        assert!(launchers(cluster).is_empty());
        image(cluster, "good");
        advance(cluster, 60);
        assert_eq!(errors(cluster), "[]");
        assert_eq!(launchers(cluster).len(), 1);
    });
}
