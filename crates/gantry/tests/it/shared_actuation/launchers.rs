//! Which launcher and which instance serve: stock, hot, warm, reclaim, and what changes meanwhile.

use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::*;

/// Waits until the launcher of the stock is idle.
async fn idle(site: &Site, launcher: &Value) -> Value {
    site.pod(LAUNCHERS, |it| uid(it) == uid(launcher) && is_idle(it)).await
}

pub(crate) async fn as_19_to_as_22_a_launcher_of_the_stock_serves(start: Start) {
    let site = start("").await;
    let stocked = site.stock(2).await;
    assert_eq!(label(&stocked, "dual-pods.llm-d.ai/sleeping"), "true");
    assert_eq!(label(&stocked, "dual-pods.llm-d.ai/node-name"), site.node);
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    // Routed to by the time the requester is ready.
    let launcher = site.provider(&requester).await;
    assert_eq!(uid(&launcher), uid(&stocked));
    assert_eq!(label(&launcher, DUAL), name(&requester));
    assert_eq!((label(&launcher, "model"), annotation(&launcher, "serves")), ("a", "a"));
    let template = (label(&launcher, "from"), annotation(&launcher, "made"));
    assert_eq!(template, ("template", "by template"));
    assert_eq!(annotation(&requester, "dual-pods.llm-d.ai/accelerators"), "GPU-a");
    assert_eq!(annotation(&requester, STATUS), r#"{"Errors":null}"#);
    assert_eq!(answering(&launcher, 8005).await, "tiny/a");
    // AS-22.
    let count = json!({"launcherConfigName": "lc", "launcherCount": 1});
    let policy = json!({
        "metadata": {"name": "twice"},
        "spec": {
            "enhancedNodeSelector": {"labelSelector": {}}, "countForLauncher": [count, count],
        },
    });
    let answer = site.try_post(&format!("{KINDS}/launcherpopulationpolicies"), &policy).await;
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text());
    assert!(answer.text().contains("countForLauncher[1]"), "{}", answer.text());
    assert!(answer.text().contains("Duplicate value"), "{}", answer.text());
}

pub(crate) async fn as_24_to_as_27_and_as_74_hot_warm_and_who_makes_way(start: Start) {
    let site = start("").await;
    let stocked = site.stock(2).await;
    let bound = async |site: &Site, model: &str, path: &str| {
        site.scale(model, 1).await;
        let requester = site.ready(model).await;
        let launcher = site.provider(&requester).await;
        assert_eq!(uid(&launcher), uid(&stocked), "{model} is served by another launcher");
        let message = site.event("Bound", &requester).await;
        assert!(message.ends_with(path), "{model}: {message}");
        site.stop(model).await;
        idle(site, &stocked).await
    };
    for model in ["a", "b", "c"] {
        let mut set = site.set(model, &of(model));
        set["spec"]["replicas"] = json!(0);
        site.post(SETS, &set).await;
    }
    let after = bound(&site, "a", "(warm)").await;
    assert_eq!((label(&after, "model"), label(&after, DUAL)), ("", ""));
    assert_eq!((annotation(&after, "serves"), label(&after, "from")), ("", "template"));
    assert_eq!(after["metadata"]["finalizers"], Value::Null);
    assert!(is_sleeping(&after, 8005).await);
    bound(&site, "b", "(warm)").await;
    bound(&site, "a", "(hot)").await;
    // The controllers restart, and forget nothing: b makes way for c, and a does not, although b
    // was created after a.
    site.kill_controllers();
    site.start_controllers();
    let after = bound(&site, "c", "(reclaim)").await;
    let instances = site.instances(&after).await;
    assert_eq!(instances.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(site.pods(LAUNCHERS).await.len(), 1);
    bound(&site, "a", "(hot)").await;
    assert_eq!(site.assert_one_awake(), 5);
}

pub(crate) async fn as_23_two_engines_on_one_port_are_in_two_launchers(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    site.request("one", "a", "GPU-a").await;
    site.request("two", "a", "GPU-b").await;
    let (one, two) = (site.ready("one").await, site.ready("two").await);
    let key = "dual-pods.llm-d.ai/accelerators";
    assert_eq!((annotation(&one, key), annotation(&two, key)), ("GPU-a", "GPU-b"));
    assert_ne!(label(&one, DUAL), label(&two, DUAL));
    for requester in [one, two] {
        assert_eq!(answering(&site.provider(&requester).await, 8005).await, "tiny/a");
    }
    site.assert_one_awake();
}

pub(crate) async fn as_28_restarted_controllers_change_nothing_and_wake_a_sleeper(start: Start) {
    let site = start("renewalInterval: 1s").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    let state = site.instances(&launcher).await;
    site.kill_controllers();
    site.start_controllers();
    site.are_at_work("at-work").await;
    for before in [&requester, &launcher] {
        let now = site.get(&format!("{PODS}/{}", name(before))).await;
        for field in ["uid", "labels", "annotations", "finalizers"] {
            let (now, before) = (&now["metadata"][field], &before["metadata"][field]);
            assert_eq!(now, before, "{field}");
        }
        assert!(is_ready(&now));
    }
    assert_eq!(site.instances(&launcher).await, state);
    // A sleeper is found and woken by controllers that did not put it to sleep.
    site.stop("a").await;
    idle(&site, &launcher).await;
    site.kill_controllers();
    site.start_controllers();
    site.scale("a", 1).await;
    let requester = site.ready("a").await;
    assert!(site.event("Bound", &requester).await.ends_with("(hot)"));
    assert_eq!(label(&requester, DUAL), name(&launcher));
    site.assert_one_awake();
}

pub(crate) async fn as_29_and_as_30_instances_of_an_edited_config_are_deleted(start: Start) {
    let site = start("").await;
    site.stock(3).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    site.stop("a").await;
    site.request("b", "b", "GPU-a").await;
    site.ready("b").await;
    assert_eq!(site.instances(&launcher).await.keys().collect::<Vec<_>>(), ["a", "b"]);
    // One sleeps, the other is awake: the former is deleted at once, the latter when it is unbound.
    let edit = json!({"spec": {"modelServerConfig": {"options": "--model tiny/edited"}}});
    for model in ["b", "a"] {
        site.merge(&format!("{KINDS}/inferenceserverconfigs/{model}"), &edit).await;
    }
    site.stop("b").await;
    idle(&site, &launcher).await;
    let has_none = async || site.instances(&launcher).await.is_empty();
    site.eventually("deleted the sleeping instance", has_none).await;
    site.scale("b", 1).await;
    let requester = site.ready("b").await;
    assert_eq!(answering(&site.provider(&requester).await, 8006).await, "tiny/edited");
}

pub(crate) async fn as_31_a_deleted_launcher_leaves_no_stale_state(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let launcher = site.provider(&site.ready("a").await).await;
    site.stop("a").await;
    idle(&site, &launcher).await;
    site.delete(&format!("{PODS}/{}", name(&launcher))).await;
    site.scale("a", 1).await;
    let next = site.provider(&site.ready("a").await).await;
    assert_ne!(uid(&next), uid(&launcher));
    assert_eq!(answering(&next, 8005).await, "tiny/a");
    site.assert_one_awake();
}

pub(crate) async fn as_32_an_instance_that_was_removed_dooms_its_requester(start: Start) {
    let site = start("renewalInterval: 1s").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    let id = label(&requester, "dual-pods.llm-d.ai/instance").to_owned();
    let path = format!("{INSTANCES}/{id}");
    assert_eq!(ask("DELETE", &address(&launcher, 8001), &path, "").await.0, 200);
    let message = site.event("InstanceGone", &requester).await;
    assert!(message.contains(&id), "{message}");
    let next = site.replaced("a", &requester).await;
    assert_eq!(label(&next, DUAL), name(&launcher));
    assert_eq!(answering(&launcher, 8005).await, "tiny/a");
    assert!(site.client.send(Request::get(PODS)).await.unwrap().status.is_success());
}
