//! Engines that share accelerators: one is awake only when the other is known to sleep.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::*;

/// Waits until the engine of set `a` is being unbound, and gives its accelerators to others.
async fn release(site: &Site, requester: &Value, accelerators: &[&str]) {
    site.scale("a", 0).await;
    site.free_accelerators(requester, accelerators).await;
}

pub(crate) async fn as_66_the_next_engine_waits_for_one_that_does_not_sleep(start: Start) {
    let site = start("drainLimit: 0s").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    // The engine answers nothing any more.
    let engines = processes(&launcher, "--port 8005");
    signal(&launcher, "--port 8005", Signal::STOP);
    release(&site, &requester, &["GPU-a"]).await;
    // The same model: what it would use hot is not free yet.
    site.request("next", "a", "GPU-a").await;
    let allocates = |it: &Value| it["items"][0]["status"]["podIP"].is_string();
    site.wait_until(&format!("{PODS}?labelSelector=app%3Dnext"), "ran", allocates).await;
    let waiting = site.pods("app%3Dnext").await.remove(0);
    site.held(&waiting, "AwaitingUnbinding", &name(&launcher)).await;
    assert_eq!(site.pods(LAUNCHERS).await.len(), 1, "no second launcher");
    assert_eq!(processes(&launcher, "--port 8005"), engines);
    signal(&launcher, "--port 8005", Signal::CONT);
    let next = site.ready("next").await;
    assert_eq!(label(&next, DUAL), name(&launcher));
    assert!(site.event("Bound", &next).await.ends_with("(hot)"));
    assert_eq!(site.pods(LAUNCHERS).await.len(), 1, "no second launcher");
    assert_eq!(site.assert_one_awake(), 2);
}

pub(crate) async fn as_67_two_requesters_meet_while_no_controller_runs(start: Start) {
    let site = start("drainLimit: 0s").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    // In either order of names.
    for (round, next) in ["0-next", "z-next"].into_iter().enumerate() {
        site.kill_controllers();
        let current = site.ready("a").await;
        release(&site, &current, &["GPU-a"]).await;
        site.request(next, "a", "GPU-a").await;
        let allocated = async || {
            let map = site.get(&format!("{MAPS}/gpu-allocs")).await;
            let of = site.pods(&format!("app%3D{next}")).await;
            let taken = map["data"]["GPU-a"].as_str().unwrap_or_default();
            of.first().is_some_and(|it| taken.contains(uid(it).as_str().unwrap()))
        };
        site.eventually("had both on one accelerator", allocated).await;
        assert!(!is_sleeping(&launcher, 8005).await);
        site.start_controllers();
        let ready = site.ready(next).await;
        assert_eq!(label(&ready, DUAL), name(&launcher), "round {round}");
        assert!(!is_sleeping(&launcher, 8005).await);
        site.stop(next).await;
        site.scale("a", 1).await;
        site.ready("a").await;
    }
    assert_eq!(site.pods(LAUNCHERS).await.len(), 1);
    assert_eq!(site.assert_one_awake(), 5);
}

pub(crate) async fn as_68_servers_that_share_one_of_two_accelerators_wait(start: Start) {
    let site = start("drainLimit: 0s").await;
    site.stock(2).await;
    for (set, model, accelerators) in [("a", "a", "GPU-a,GPU-b"), ("b", "b", "GPU-c,GPU-b")] {
        let mut object = site.set(set, &of(model));
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        container["env"][0]["value"] = json!(accelerators);
        container["resources"] = json!({"limits": {"nvidia.com/gpu": "2"}});
        object["spec"]["replicas"] = json!(0);
        site.post(SETS, &object).await;
    }
    site.scale("a", 1).await;
    let requester = site.ready("a").await;
    assert_eq!(annotation(&requester, "dual-pods.llm-d.ai/accelerators"), "GPU-a,GPU-b");
    let launcher = site.provider(&requester).await;
    signal(&launcher, "--port 8005", Signal::STOP);
    release(&site, &requester, &["GPU-a", "GPU-b"]).await;
    site.scale("b", 1).await;
    let waiting = site.pod("app%3Db", |it| it["status"]["podIP"].is_string()).await;
    site.held(&waiting, "AwaitingUnbinding", &name(&launcher)).await;
    assert_eq!(processes(&launcher, "--port 8006"), [0; 0], "it is not started yet");
    signal(&launcher, "--port 8005", Signal::CONT);
    let next = site.ready("b").await;
    assert_eq!(annotation(&next, "dual-pods.llm-d.ai/accelerators"), "GPU-b,GPU-c");
    // Each is awake on two accelerators.
    assert_eq!(site.assert_one_awake(), 4);
}
