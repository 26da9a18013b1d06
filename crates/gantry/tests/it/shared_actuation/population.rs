//! The stock of launchers: templates that change, excess, nodes that go, launchers that are stuck.

use serde_json::{Value, json};

use super::*;

const POLICIES: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/launcherpopulationpolicies";

pub(crate) async fn as_75_launchers_with_sleepers_are_replaced_one_at_a_time(start: Start) {
    let site = start("retention: 10m").await;
    site.stock(1).await;
    site.model("d", 8008, "").await;
    site.merge(
        &format!("{POLICIES}/one"),
        &json!({"spec": {"countForLauncher": [
        {"launcherConfigName": "lc", "launcherCount": 4}]}}),
    )
    .await;
    for (model, accelerator) in [("a", "GPU-a"), ("b", "GPU-b"), ("c", "GPU-c"), ("d", "GPU-d")] {
        site.request(model, model, accelerator).await;
        site.ready(model).await;
    }
    let bound = site.provider(&site.ready("d").await).await;
    let mut sleepers = Vec::new();
    for model in ["b", "c", "a"] {
        let launcher = site.provider(&site.ready(model).await).await;
        site.stop(model).await;
        sleepers.push(name(&launcher));
    }
    let four = async || {
        let launchers = site.pods(LAUNCHERS).await;
        launchers.len() == 4 && launchers.iter().filter(|it| is_idle(it)).count() == 3
    };
    site.eventually("had three idle launchers", four).await;
    let edit = json!({"spec": {"podTemplate": {"metadata": {"labels": {"from": "edited"}}}}});
    site.merge(&format!("{KINDS}/launcherconfigs/lc"), &edit).await;
    // At every moment, at most one is replaced whose replacement is not ready.
    let mut order: Vec<String> = Vec::new();
    let replaced = async || {
        let launchers = site.pods(LAUNCHERS).await;
        let is_old = |it: &&Value| label(it, "from") == "template";
        let left: Vec<String> = launchers.iter().filter(is_old).map(name).collect();
        let fresh = launchers.iter().filter(|it| label(it, "from") == "edited" && is_ready(it));
        let gone: Vec<&String> = sleepers.iter().filter(|it| !left.contains(it)).collect();
        assert!(gone.len() <= fresh.count() + 1, "{gone:?} are gone of {sleepers:?}");
        order.extend(
            gone.iter()
                .filter(|it| !order.contains(it))
                .map(|it| (*it).clone())
                .collect::<Vec<_>>(),
        );
        gone.len() == 3
    };
    site.eventually("replaced all that slept", replaced).await;
    assert_eq!(order, sleepers, "the one used last goes last");
    let now = site.get(&format!("{PODS}/{}", name(&bound))).await;
    assert_eq!(uid(&now), uid(&bound), "a bound one stays");
    assert_eq!(label(&now, "from"), "template");
}

pub(crate) async fn as_76_excess_launchers_with_sleepers_stay_and_empty_ones_go(start: Start) {
    let site = start("retention: 10m").await;
    site.stock(1).await;
    site.request("a", "a", "GPU-a").await;
    site.request("b", "b", "GPU-b").await;
    let one = site.provider(&site.ready("a").await).await;
    let two = site.provider(&site.ready("b").await).await;
    assert_ne!(uid(&one), uid(&two));
    site.stop("a").await;
    site.stop("b").await;
    site.policy("more", &site.node, 3).await;
    let is_new = |it: &Value| ![uid(&one), uid(&two)].contains(&uid(it)) && is_ready(it);
    let empty = site.pod(LAUNCHERS, is_new).await;
    for policy in ["more", "one"] {
        site.delete(&format!("{POLICIES}/{policy}")).await;
    }
    site.event("LauncherExcess", &empty).await;
    let gone = async || !site.pods(LAUNCHERS).await.iter().any(|it| uid(it) == uid(&empty));
    site.eventually("removed the empty one", gone).await;
    site.scale("b", 1).await;
    let requester = site.ready("b").await;
    assert_eq!(label(&requester, DUAL), name(&two));
    assert!(site.event("Bound", &requester).await.ends_with("(hot)"));
    let left = site.pods(LAUNCHERS).await;
    assert!(left.iter().any(|it| uid(it) == uid(&one)), "no policy wants it, but its sleeper");
}

pub(crate) async fn as_53_as_55_and_as_77_launchers_that_cannot_start(start: Start) {
    let site = start("stuckSchedulingThreshold: 1s").await;
    site.stock(1).await;
    let other = site.nodes.iter().find(|it| **it != site.node).unwrap().clone();
    let node = format!("/api/v1/nodes/{other}");
    site.merge(&node, &json!({"spec": {"unschedulable": true}})).await;
    site.policy("other", &other, 1).await;
    let selector = format!("dual-pods.llm-d.ai%2Fnode-name%3D{other}");
    let stuck = "dual-pods.llm-d.ai/launcher-stuck";
    // AS-55: one event and a label, which goes when it is ready.
    let launcher = site.pod(&selector, |it| label(it, stuck) == "true").await;
    let message = site.event("LauncherStuck", &launcher).await;
    assert!(message.contains("stuck_scheduling"), "{message}");
    // AS-53.
    let line = |phase: &str, count: u32| {
        format!("fma_launcher_pod_count{{lcfg_name=\"lc\",phase=\"{phase}\"}} {count}\n")
    };
    for (phase, count) in [("stuck_scheduling", 1), ("unbound", 1), ("bound", 0)] {
        let is_there = async || site.metrics().await.contains(&line(phase, count));
        site.eventually(&line(phase, count), is_there).await;
    }
    site.merge(&node, &json!({"spec": {"unschedulable": false}})).await;
    site.pod(&selector, |it| is_ready(it) && label(it, stuck).is_empty()).await;
    let events = site.get("/api/v1/namespaces/default/events").await;
    let events = events["items"].as_array().unwrap().iter();
    let about = events.filter(|it| {
        it["reason"] == "LauncherStuck" && it["involvedObject"]["uid"] == *uid(&launcher)
    });
    assert_eq!(about.filter(|it| it["count"].as_u64().unwrap_or(1) == 1).count(), 1);
    // AS-77: pending for a node that is deleted.
    site.merge(&node, &json!({"spec": {"unschedulable": true}})).await;
    site.delete(&format!("{PODS}/{}", name(&launcher))).await;
    let is_pending = |it: &Value| uid(it) != uid(&launcher) && it["spec"]["nodeName"].is_null();
    let pending = site.pod(&selector, is_pending).await;
    site.delete(&node).await;
    site.event("NodeGone", &pending).await;
    site.gone(&selector).await;
    assert_eq!(site.pods(LAUNCHERS).await.len(), 1, "the other node is unharmed");
}
