//! Engines and launchers that end, do not wake, or are refused.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::*;

pub(crate) async fn as_70_and_as_85_a_killed_engine_is_replaced_and_its_log_is_shown(start: Start) {
    let site = start("renewalInterval: 1s").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    let before = processes(&launcher, "engine");
    signal(&launcher, "--port 8005", Signal::KILL);
    let message = site.event("InstanceStopped", &requester).await;
    assert!(message.contains("signal 9"), "{message}");
    assert!(message.contains("tiny/a"), "the end of its log: {message}");
    let next = site.replaced("a", &requester).await;
    assert_eq!(label(&next, DUAL), name(&launcher), "the launcher lives on");
    assert_eq!(answering(&launcher, 8005).await, "tiny/a");
    let after = processes(&launcher, "engine");
    let left: Vec<_> = before.iter().filter(|it| after.contains(it)).collect();
    let survives = |it: &&i32| processes(&launcher, "engine-core").contains(it);
    assert!(!left.iter().any(survives), "a core was left: {left:?}");
    site.stop("a").await;
    assert_eq!(site.assert_one_awake(), 2);
}

pub(crate) async fn as_71_an_engine_that_cannot_be_woken_is_replaced(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    let options = "--model tiny/a --fault refuse-wake";
    let edit = json!({"spec": {"modelServerConfig": {"options": options}}});
    site.merge(&format!("{KINDS}/inferenceserverconfigs/a"), &edit).await;
    site.request("a", "a", "GPU-a").await;
    let launcher = site.provider(&site.ready("a").await).await;
    let before = site.instances(&launcher).await["a"]["revision"].clone();
    site.stop("a").await;
    site.scale("a", 1).await;
    let wedged = site.pod("app%3Da", |it| !label(it, DUAL).is_empty()).await;
    let message = site.event("EngineWedged", &wedged).await;
    assert!(message.contains("out of memory"), "the words of the engine: {message}");
    let next = site.replaced("a", &wedged).await;
    assert_eq!(answering(&site.provider(&next).await, 8005).await, "tiny/a");
    let after = site.instances(&launcher).await["a"]["revision"].clone();
    assert_ne!(before, after, "another instance");
    site.assert_one_awake();
}

pub(crate) async fn as_84_a_failed_launcher_is_replaced(start: Start) {
    let site = start("failedGracePeriod: 0s").await;
    let launcher = site.stock(2).await;
    let status = json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}});
    site.merge(&format!("{PODS}/{}/status", name(&launcher)), &status).await;
    let message = site.event("LauncherFailed", &launcher).await;
    assert!(!message.is_empty());
    let next = site.pod(LAUNCHERS, |it| uid(it) != uid(&launcher) && is_ready(it)).await;
    site.eventually("removed the failed one", async || site.pods(LAUNCHERS).await.len() == 1).await;
    assert_eq!(uid(&site.pods(LAUNCHERS).await[0]), uid(&next));
}

pub(crate) async fn as_9_deletions_are_completed_by_the_next_controllers(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let launcher = site.provider(&site.ready("a").await).await;
    site.kill_controllers();
    site.scale("a", 0).await;
    let is_leaving = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
    site.pod("app%3Da", is_leaving).await;
    assert!(!is_sleeping(&launcher, 8005).await, "nobody has put it to sleep");
    site.start_controllers();
    site.gone("app%3Da").await;
    assert!(is_sleeping(&launcher, 8005).await);
    // The launcher is deleted while nobody is there to relay it.
    site.scale("a", 1).await;
    let requester = site.ready("a").await;
    site.kill_controllers();
    site.delete(&format!("{PODS}/{}", name(&launcher))).await;
    site.start_controllers();
    site.replaced("a", &requester).await;
    site.assert_one_awake();
}
