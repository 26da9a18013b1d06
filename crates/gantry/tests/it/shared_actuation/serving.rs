//! While an engine serves: sleep by hand, requests under way, the proxy of a requester.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::*;

pub(crate) async fn as_72_an_engine_put_to_sleep_by_hand_is_woken(start: Start) {
    let site = start("renewalInterval: 1s").await;
    site.stock(2).await;
    // Waking takes long enough to be observed.
    let options = "--model tiny/a --wake-time 3s";
    let edit = json!({"spec": {"modelServerConfig": {"options": options}}});
    site.merge(&format!("{KINDS}/inferenceserverconfigs/a"), &edit).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    let (code, text) = ask("POST", &address(&launcher, 8005), "/sleep", "").await;
    assert_eq!(code, 200, "{text}");
    let is_same = |it: &Value| uid(it) == uid(&launcher);
    site.pod(LAUNCHERS, |it| is_same(it) && label(it, "model").is_empty()).await;
    site.pod("app%3Da", |it| uid(it) == uid(&requester) && !is_ready(it)).await;
    site.pod(LAUNCHERS, |it| is_same(it) && label(it, "model") == "a").await;
    site.pod("app%3Da", |it| uid(it) == uid(&requester) && is_ready(it)).await;
    assert_eq!(answering(&launcher, 8005).await, "tiny/a");
}

pub(crate) async fn as_73_requests_end_normally_until_the_drain_limit(start: Start) {
    let site = start("drainLimit: 6s").await;
    site.stock(2).await;
    let options = "--model tiny/a --token-time 100ms";
    let edit = json!({"spec": {"modelServerConfig": {"options": options}}});
    site.merge(&format!("{KINDS}/inferenceserverconfigs/a"), &edit).await;
    site.request("a", "a", "GPU-a").await;
    for (tokens, end) in [(20, "length"), (4096, "abort")] {
        site.scale("a", 1).await;
        let launcher = site.provider(&site.ready("a").await).await;
        let body = json!({"prompt": "Hello", "max_tokens": tokens, "stream": true}).to_string();
        let mut stream = begin("POST", &address(&launcher, 8005), "/v1/completions", &body).await;
        // It is under way once it says something.
        let mut first = [0; 16];
        stream.read_exact(&mut first).await.unwrap();
        site.scale("a", 0).await;
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        let last = rest.rsplit("data: {").next().unwrap();
        assert!(last.contains(&format!("\"finish_reason\":\"{end}\"")), "{tokens}: {last}");
        site.gone("app%3Da").await;
        assert!(is_sleeping(&launcher, 8005).await);
    }
}

pub(crate) async fn as_82_a_proxy_is_configured_before_readiness_and_once(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    site.request("plain", "b", "GPU-b").await;
    let mut set = site.set("a", &of("a"));
    let proxy = json!({"dual-pods.llm-d.ai/proxy-port": "8082"});
    set["spec"]["template"]["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .extend(proxy.as_object().unwrap().clone());
    site.post(SETS, &set).await;
    let plain = site.ready("plain").await;
    let path = "/v1/proxy/config";
    assert_eq!(ask("GET", &address(&plain, 8081), path, "").await.0, 404, "nobody asked for it");
    let requester = site.ready("a").await;
    // Clients address the requester.
    assert_eq!(answering(&requester, 8082).await, "tiny/a");
    let configured = ask("GET", &address(&requester, 8081), path, "").await;
    assert_eq!(configured.0, 200);
    // Controllers that restart find that it is configured.
    site.kill_controllers();
    site.start_controllers();
    site.are_at_work("at-work").await;
    assert_eq!(ask("GET", &address(&requester, 8081), path, "").await, configured);
    let now = site.get(&format!("{PODS}/{}", name(&requester))).await;
    assert!(is_ready(&now) && uid(&now) == uid(&requester));
    assert_eq!(annotation(&now, STATUS), r#"{"Errors":null}"#);
}

pub(crate) async fn as_79_a_launcher_whose_bookkeeping_is_lost_is_deleted(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    let launcher = site.provider(&requester).await;
    let body = json!({"metadata": {"annotations": {"dual-pods.llm-d.ai/instance-id": null}}});
    site.merge(&format!("{PODS}/{}", name(&launcher)), &body).await;
    let message = site.event("BookkeepingLost", &requester).await;
    assert!(message.contains("instance-id"), "{message}");
    let next = site.provider(&site.replaced("a", &requester).await).await;
    assert_ne!(uid(&next), uid(&launcher));
    assert_eq!(answering(&next, 8005).await, "tiny/a");
    site.assert_one_awake();
}

pub(crate) async fn as_80_a_slow_launcher_delays_nobody_else(start: Start) {
    let site = start("").await;
    site.stock(2).await;
    // An engine that does not end, in a launcher that waits for it.
    let mut config = launcher_config("slow", 2);
    config["spec"]["podTemplate"]["spec"]["containers"][0]["args"] =
        json!(["python3 launcher.py --port 8001 --stop-seconds 100"]);
    site.post(&format!("{KINDS}/launcherconfigs"), &config).await;
    let mut slow = model("slow", 8008, "--fault ignore-terminate");
    slow["spec"]["launcherConfigName"] = json!("slow");
    site.post(&format!("{KINDS}/inferenceserverconfigs"), &slow).await;
    site.request("slow", "slow", "GPU-a").await;
    let launcher = site.provider(&site.ready("slow").await).await;
    // Edited while it is awake: it is deleted when it is unbound, which takes 100 s.
    let edit = json!({"spec": {"modelServerConfig": {"options": "--model tiny/edited"}}});
    site.merge(&format!("{KINDS}/inferenceserverconfigs/slow"), &edit).await;
    site.scale("slow", 0).await;
    let unbinds = |it: &Value| !annotation(it, "actuation.gantry.dev/unbinding-since").is_empty();
    let selector = "dual-pods.llm-d.ai%2Flauncher-config-name%3Dslow";
    site.pod(selector, unbinds).await;
    // Another accelerator of the same node, and another node.
    site.request("same", "b", "GPU-b").await;
    let other = site.nodes.iter().find(|it| **it != site.node).unwrap();
    let mut set = site.set("other", &of("c"));
    set["spec"]["template"]["spec"]["nodeName"] = json!(other);
    set["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("GPU-c");
    site.post(SETS, &set).await;
    site.ready("same").await;
    site.ready("other").await;
    let still = site.instances(&launcher).await;
    assert!(still.contains_key("slow"), "the slow one is not deleted yet: {still:?}");
    signal(&launcher, "--port 8008", Signal::KILL);
    site.gone("app%3Dslow").await;
}
