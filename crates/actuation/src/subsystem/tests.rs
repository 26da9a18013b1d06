//! What the controllers may do, and what is explained.

use gantry_reconcile::{Controller as _, Inquiry as _, Key, View as _, World};
use gantry_subsystem::explain::{ExplainRequest, Report};
use gantry_subsystem::settings::{Layer, Origin};
use jiff::Timestamp;
use serde_json::json;

use super::configuration::KEYS;
use super::*;
use crate::inquiries::{EngineInquiry, LauncherInquiry, MemoryInquiry, RequesterInquiry};
use crate::settings::{LiveSettings, Settings};
use crate::view::ActuationPod;
use crate::{PairingController, PopulationController};

/// CS-31: the policies let only accounts with this ending write what pairs pods.
#[test]
fn cs_31_the_account_has_the_ending_that_policies_exempt() {
    let parts: Vec<&str> = ACCOUNT.split(':').collect();
    assert_eq!(parts.len(), 4);
    assert_eq!(parts[..2], ["system", "serviceaccount"]);
    assert!(parts[3].ends_with("-fma-controllers"));
}

/// CS-3: nothing of the cluster but nodes is read, and nothing of it is written.
#[test]
fn cs_3_every_cached_kind_may_be_read_and_nodes_are_only_read() {
    let live = LiveSettings::default();
    let kinds = [
        PairingController::new(live.clone()).kinds(),
        PopulationController::new(live.clone()).kinds(),
        CollectionController.kinds(),
        ObjectStatusController::new(live.clone()).kinds(),
        ServerConfigStatusController::new(live.clone()).kinds(),
        LauncherInquiry(live.clone()).kinds(),
        EngineInquiry(live.clone()).kinds(),
        RequesterInquiry.kinds(),
        MemoryInquiry(live).kinds(),
    ];
    let rules = rules();
    let may = |resource: &str, verb: &str| {
        rules.iter().any(|rule| {
            let has = |field: &str, value: &str| {
                rule[field].as_array().is_some_and(|it| it.iter().any(|it| it == value))
            };
            has("resources", resource) && has("verbs", verb)
        })
    };
    for kind in kinds.iter().flatten() {
        assert!(may(&kind.resource().plural, "watch"), "{kind:?}");
    }
    for verb in ["create", "patch", "update", "delete"] {
        assert!(!may("nodes", verb), "{verb}");
    }
    assert!(!rules.iter().any(|it| it.to_string().contains('*')), "{rules:?}");
    assert!(!rules.iter().any(|it| it.to_string().contains("secrets")), "{rules:?}");
}

#[test]
fn defaults_are_those_of_the_settings() {
    let values = Values::from_layers(KEYS, []);
    let configuration = Configuration::read(&values).unwrap();
    assert_eq!(configuration.settings(), Settings::default());
    assert!(!configuration.enabled);
    assert_eq!(configuration.namespace, None);
}

#[test]
fn features_require_the_kinds_that_their_controllers_read() {
    let mut layer = Layer::default();
    let on = |layer: &mut Layer, path: &'static str, value: bool| {
        layer.set(path, value.into(), Origin::Default);
    };
    let enabled = |layer: &Layer| -> Vec<&str> {
        let values = Values::from_layers(KEYS, [layer]);
        SUBSYSTEM.enabled(&values).map(|it| it.name).collect()
    };
    assert_eq!(enabled(&layer), [] as [&str; 0]);
    on(&mut layer, "actuation.enabled", true);
    assert_eq!(enabled(&layer), ["actuation", "launcher-population"]);
    on(&mut layer, "actuation.population.enabled", false);
    assert_eq!(enabled(&layer), ["actuation"]);
}

fn explained(pods: &[Value], name: &str, reports: &[Report]) -> Option<(Vec<String>, Value)> {
    let page = SUBSYSTEM.explain[0];
    let world = World::new((page.kinds)());
    let store = world.single_store_for(&ActuationPod::RESOURCE).unwrap();
    for pod in pods {
        store.observe(&pod.to_string()).unwrap().unwrap();
    }
    let values = Values::from_layers(KEYS, []);
    let key = Key::new("n", name);
    let now: Timestamp = "2027-01-01T00:01:00Z".parse().unwrap();
    let request =
        ExplainRequest { key: &key, world: &world, unread: &[], reports, values: &values, now };
    (page.explain)(&request).map(|it| (it.lines, it.facts))
}

fn requester() -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": "r", "uid": "u1", "resourceVersion": "1",
            "creationTimestamp": "2027-01-01T00:00:00Z",
            "labels": {"dual-pods.llm-d.ai/dual": "l"},
            "annotations": {
                "dual-pods.llm-d.ai/inference-server-config": "a",
                "dual-pods.llm-d.ai/accelerators": "GPU-0",
            },
        },
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True",
                 "lastTransitionTime": "2027-01-01T00:00:01Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:07Z"},
            ],
        },
    })
}

#[test]
fn as_83_the_path_and_why_no_better_one_and_a_time_line_that_adds_up() {
    let record = |path: &str, reason: &str| {
        let record = json!({
            "requester": "u1", "path": path, "reason": reason, "instancesDeleted": 1,
            "bound": "2027-01-01T00:00:02Z", "routed": "2027-01-01T00:00:06.500Z",
        });
        json!({
            "metadata": {
                "namespace": "n", "name": "l", "uid": "u2", "resourceVersion": "1",
                "labels": {
                    "dual-pods.llm-d.ai/launcher-config-name": "lc",
                    "dual-pods.llm-d.ai/sleeping": "false",
                },
                "annotations": {
                    "dual-pods.llm-d.ai/requester": "u1 r",
                    "dual-pods.llm-d.ai/instance-id": "I1",
                    "dual-pods.llm-d.ai/server-port": "8005",
                    "dual-pods.llm-d.ai/vllm-config": "{\"options\":\"\"}",
                    "dual-pods.llm-d.ai/isc-routing-metadata": "{}",
                    "actuation.gantry.dev/record": record.to_string(),
                },
            },
        })
    };
    for (path, reason) in [
        ("hot", ""),
        ("warm", "launcher l has no such instance"),
        ("cold", "the node has no launcher of its LauncherConfig"),
    ] {
        let (lines, facts) = explained(&[requester(), record(path, reason)], "r", &[]).unwrap();
        let text = lines.join("\n");
        assert!(text.contains(&format!("path: {path}")) && text.contains(reason), "{text}");
        assert!(text.contains("instance I1 in launcher l, port 8005: it is routed to"), "{text}");
        assert!(
            text.contains(
                "scheduled 1.000 s + bound 1.000 s + routed 4.500 s + ready 0.500 s = 7.000 s"
            ),
            "{text}"
        );
        let parts = facts["timeline"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|it| it["milliseconds"].as_u64().unwrap()).sum();
        assert_eq!((sum, &facts["path"]), (7000, &json!(path)));
    }
}

#[test]
fn as_83_what_a_requester_waits_for_is_named() {
    let mut waiting = requester();
    waiting["metadata"]["labels"] = json!({});
    waiting["metadata"]["annotations"]["dual-pods.llm-d.ai/status"] =
        json!("{\"Errors\":[\"LauncherConfig lc does not exist; create it\"]}");
    waiting["status"]["conditions"][1]["status"] = json!("False");
    let report = Report {
        reason: "AwaitingUnbinding".to_owned(),
        message: "waits until launcher l is unbound".to_owned(),
    };
    let (lines, facts) = explained(&[waiting], "r", &[report]).unwrap();
    let text = lines.join("\n");
    for part in [
        "has no provider yet",
        "problem: LauncherConfig lc does not exist; create it",
        "waits: AwaitingUnbinding: waits until launcher l is unbound",
        "not ready: 59.000 s since",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(facts["path"], Value::Null);
    let plain = json!({"metadata": {"namespace": "n", "name": "x", "uid": "x",
        "resourceVersion": "1"}});
    assert_eq!(explained(&[plain], "x", &[]), None, "other pods have no section");
}
