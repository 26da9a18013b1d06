//! Providers of their own: which sleepers stay, nodes, patches, readiness.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::*;

/// Makes the provider of a requester: it has an engine, and no label of the requester's set.
fn patch(provides: &str) -> Value {
    let patch = format!(
        r#"
metadata:
  labels: {{app: "", provides: {provides}, at: "{{{{ .NodeName }}}}"}}
spec:
  containers:
  - name: inference-server
    image: gantry.dev/test-server:v1
    command: [/ko-app/test-server]
    args: [--port, "8000", --startup-delay, "1"]
    readinessProbe: {{httpGet: {{path: /health, port: 8000}}, periodSeconds: 1}}
"#
    );
    json!({"dual-pods.llm-d.ai/server-patch": patch})
}

pub(crate) async fn as_3_and_as_11_nodes_that_go_and_nodes_that_are_cordoned(start: Start) {
    let site = start("").await;
    let mut set = site.set("direct", &patch("direct"));
    let spec = set["spec"]["template"]["spec"].as_object_mut().unwrap();
    spec.remove("nodeName");
    site.post(SETS, &set).await;
    let requester = site.ready("direct").await;
    let provider = site.provider(&requester).await;
    // AS-11: a cordon after binding changes nothing; before it, the requester is deleted.
    let node = requester["spec"]["nodeName"].as_str().unwrap();
    let path = format!("/api/v1/nodes/{node}");
    site.merge(&path, &json!({"spec": {"unschedulable": true}})).await;
    let mut set = site.set("late", &of("none"));
    set["spec"]["template"]["spec"]["nodeName"] = json!(node);
    set["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("GPU-d");
    site.post(SETS, &set).await;
    let late = site.pod("app%3Dlate", |_| true).await;
    let message = site.event("NodeCordoned", &late).await;
    assert!(message.contains(node), "{message}");
    site.delete(&format!("{SETS}/late")).await;
    for before in [&requester, &provider] {
        let now = site.get(&format!("{PODS}/{}", name(before))).await;
        assert!(uid(&now) == uid(before) && is_ready(&now), "{now:#}");
    }
    // AS-3: both go with their node, and another pair serves elsewhere.
    site.delete(&path).await;
    let next = site.replaced("direct", &requester).await;
    assert_ne!(next["spec"]["nodeName"], requester["spec"]["nodeName"]);
    let there = site.provider(&next).await;
    assert_eq!(there["spec"]["nodeName"], next["spec"]["nodeName"]);
    let at = label(&there, "at");
    assert_eq!(at, next["spec"]["nodeName"].as_str().unwrap(), "{there:#}");
    let gone = async || {
        let pods = site.pods("provides%3Ddirect").await;
        !pods.iter().any(|it| uid(it) == uid(&provider))
    };
    site.eventually("removed the provider of the deleted node", gone).await;
}

pub(crate) async fn as_7_and_as_8_the_sleeper_used_least_recently_is_deleted(start: Start) {
    let site = start("sleeperLimit: 1").await;
    let serve = async |set: &str| {
        if site.get(&format!("{SETS}/{set}")).await["code"] == 404 {
            site.post(SETS, &site.set(set, &patch(set))).await;
        } else {
            site.scale(set, 1).await;
        }
        let provider = site.provider(&site.ready(set).await).await;
        site.stop(set).await;
        provider
    };
    let sleepers = async || {
        let mut all = Vec::new();
        for set in ["d1", "d2", "d3", "d4"] {
            all.extend(site.pods(&format!("provides%3D{set}")).await);
        }
        all.retain(|it| it["metadata"]["deletionTimestamp"].is_null());
        all.iter().map(|it| label(it, "provides").to_owned()).collect::<Vec<_>>()
    };
    let first = serve("d1").await;
    serve("d2").await;
    assert_eq!(sleepers().await, ["d1", "d2"], "one more than the limit may sleep");
    // AS-8: what is used again is recent.
    assert_eq!(uid(&serve("d1").await), uid(&first));
    serve("d3").await;
    assert_eq!(sleepers().await, ["d1", "d3"]);
    // AS-7: exactly the one used least recently.
    serve("d4").await;
    assert_eq!(sleepers().await, ["d3", "d4"]);
    site.assert_one_awake();
}

pub(crate) async fn as_17_a_bad_patch_has_a_status_and_a_corrected_one_serves(start: Start) {
    let site = start("").await;
    let bad = |text: &str| json!({"dual-pods.llm-d.ai/server-patch": text});
    let container = "- name: inference-server\n    image: gantry.dev/test-server:v1\n";
    let table = [
        ("colour", format!("spec:\n  containers:\n  {container}    colour: red\n")),
        (
            "readinessProbe",
            format!("spec:\n  containers:\n  {container}    readinessProbe: null\n"),
        ),
        ("line 1", "metadata: {labels: {on: \"{{ range .Nodes }}\"}}".to_owned()),
        ("line 2", "metadata:\n  labels: [".to_owned()),
    ];
    for (number, (expected, text)) in table.iter().enumerate() {
        let set = format!("bad-{number}");
        let mut object = site.set(&set, &bad(text));
        object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] =
            json!(ACCELERATORS[number]);
        site.post(SETS, &object).await;
        let says = |it: &Value| annotation(it, STATUS).contains(expected);
        site.pod(&format!("app%3D{set}"), says).await;
    }
    // A corrected requester replaces it.
    let template = json!({"metadata": {"annotations": patch("good")}});
    site.merge(&format!("{SETS}/bad-0"), &json!({"spec": {"template": template}})).await;
    let before = site.pods("app%3Dbad-0").await.remove(0);
    site.delete(&format!("{PODS}/{}", name(&before))).await;
    let after = site.replaced("bad-0", &before).await;
    assert_eq!(annotation(&after, STATUS), r#"{"Errors":null}"#);
}

pub(crate) async fn as_18_the_requester_follows_the_readiness_of_its_engine(start: Start) {
    let site = start("renewalInterval: 1s").await;
    site.post(SETS, &site.set("direct", &patch("direct"))).await;
    let requester = site.ready("direct").await;
    let provider = site.provider(&requester).await;
    let words = "--startup-delay";
    signal(&provider, words, Signal::STOP);
    let is_same = |it: &Value| uid(it) == uid(&requester);
    site.pod("app%3Ddirect", |it| is_same(it) && !is_ready(it)).await;
    signal(&provider, words, Signal::CONT);
    site.pod("app%3Ddirect", |it| is_same(it) && is_ready(it)).await;
    // One call each time, and none in between.
    let metrics = site.metrics().await;
    let calls = |purpose: &str| {
        let is_it = |it: &&str| {
            it.starts_with("fma_http_latency_seconds_count")
                && it.contains(&format!("purpose=\"{purpose}\""))
        };
        let counts = metrics.lines().filter(is_it);
        counts.map(|it| it.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum::<u32>()
    };
    assert_eq!((calls("relay_ready"), calls("relay_unready")), (2, 1), "{metrics}");
}
