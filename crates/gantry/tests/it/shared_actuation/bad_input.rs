//! What authors get wrong: each has a status or an event, and others are unharmed.

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const CONFIGS: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/inferenceserverconfigs";
const LAUNCHER_CONFIGS: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/launcherconfigs";

/// A model that is served all the time.
struct Unharmed(Value);

impl Unharmed {
    async fn serve(site: &Site) -> Self {
        site.stock(3).await;
        site.request("unharmed", "c", "GPU-d").await;
        Self(site.ready("unharmed").await)
    }

    async fn check(&self, site: &Site) {
        let now = site.get(&format!("{PODS}/{}", name(&self.0))).await;
        assert!(uid(&now) == uid(&self.0) && is_ready(&now), "{now:#}");
        assert_eq!(now["metadata"]["annotations"], self.0["metadata"]["annotations"]);
        assert_eq!(answering(&site.provider(&now).await, 8007).await, "tiny/c");
    }
}

pub(crate) async fn engines_that_do_not_start_are_reported(start: Start) {
    let site = start("startLimit: 3s").await;
    let unharmed = Unharmed::serve(&site).await;
    // Without a port, it is refused.
    let mut config = model("portless", 1, "");
    config["spec"]["modelServerConfig"].as_object_mut().unwrap().remove("port");
    let answer = site.try_post(CONFIGS, &config).await;
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text());
    assert!(answer.text().contains("spec.modelServerConfig.port: Required"), "{}", answer.text());
    // An unknown option is the engine's affair: ours ignores it, as it ignores those of the real
    // one.
    site.model("unknown", 8010, "--tensor-parallel-size 1 --no-such-option=3").await;
    site.request("unknown", "unknown", "GPU-a").await;
    assert_eq!(
        answering(&site.provider(&site.ready("unknown").await).await, 8010).await,
        "tiny/unknown"
    );
    site.stop("unknown").await;
    // Each requester is deleted, and the event says why, with the end of the log.
    let table = [
        ("value", "--load-time soon", "InstanceStopped", "write a time like 2s"),
        ("dies", "--fault crash-before-listening", "InstanceStopped", "crash"),
        ("silent", "--fault never-listen", "EngineNotStarted", "does not answer"),
    ];
    for (port, (set, options, reason, words)) in (8011..).zip(table) {
        site.model(set, port, options).await;
        site.request(set, set, "GPU-a").await;
        let requester = site.pod(&format!("app%3D{set}"), |it| !label(it, DUAL).is_empty()).await;
        let message = site.event(reason, &requester).await;
        assert!(message.contains(words), "{set}: {message}");
        site.delete(&format!("{SETS}/{set}")).await;
        site.gone(&format!("app%3D{set}")).await;
        unharmed.check(&site).await;
    }
}

pub(crate) async fn as_78_and_templates_that_are_invalid_have_a_status(start: Start) {
    let site = start("").await;
    let unharmed = Unharmed::serve(&site).await;
    let long = "x".repeat(70);
    let says = async |set: &str, words: &str| {
        let label = format!("app%3D{set}");
        let pod = site.pod(&label, |it| annotation(it, STATUS).contains(words)).await;
        assert!(!is_ready(&pod));
        pod
    };
    let with_config = async |name: &str, config: Value| {
        site.post(LAUNCHER_CONFIGS, &config).await;
        let mut isc = model(name, 8010, "");
        isc["spec"]["launcherConfigName"] = config["metadata"]["name"].clone();
        site.post(CONFIGS, &isc).await;
        site.request(name, name, "GPU-a").await;
    };
    // A template without the essential container.
    let mut config = launcher_config("nameless", 1);
    config["spec"]["podTemplate"]["spec"]["containers"][0]["name"] = json!("main");
    with_config("nameless", config).await;
    says("nameless", "inference-server").await;
    let has_errors = |it: &Value| it["status"]["errors"][0].is_string();
    let path = format!("{LAUNCHER_CONFIGS}/nameless");
    let status = site.wait_until(&path, "had a status", has_errors).await;
    assert!(status["status"]["errors"][0].as_str().unwrap().contains("inference-server"));
    site.delete(&format!("{SETS}/nameless")).await;
    // A template that the server refuses.
    let mut config = launcher_config("invalid", 1);
    config["spec"]["podTemplate"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 70_000}]);
    with_config("invalid", config).await;
    says("invalid", "containerPort").await;
    site.delete(&format!("{SETS}/invalid")).await;
    // AS-78: a LauncherConfig whose name is no label value.
    with_config("long-config", launcher_config(&long, 1)).await;
    says("long-config", "63").await;
    site.delete(&format!("{SETS}/long-config")).await;
    // A requester.
    let template = site.set("long", &of("a"))["spec"]["template"].clone();
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!(long);
    site.post(PODS, &pod).await;
    let written = says("long", "63").await["metadata"]["resourceVersion"].clone();
    unharmed.check(&site).await;
    // No retries: nobody has written it again.
    let now = site.get(&format!("{PODS}/{long}")).await;
    assert_eq!(now["metadata"]["resourceVersion"], written);
}

/// Passes requests on to a launcher as an older one would answer them: without the ID of its run,
/// without fences, and without what was added for them.
async fn older_launcher(listener: TcpListener, behind: String) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else { return };
        let mut text = String::new();
        let mut bytes = [0; 4096];
        // Until the head and as many bytes as it says are there.
        let length = |head: &str| {
            let line = head.lines().find(|it| it.to_lowercase().starts_with("content-length:"))?;
            line.split(':').nth(1)?.trim().parse::<usize>().ok()
        };
        let is_whole = |text: &str| {
            text.split_once("\r\n\r\n")
                .is_some_and(|(head, body)| body.len() >= length(head).unwrap_or(0))
        };
        while !is_whole(&text) {
            match client.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(count) => text.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            }
        }
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let is_added =
            ["/sleep", "/wake_up", "/is_sleeping", "/watch"].iter().any(|it| path.contains(it));
        let (code, body) = match is_added {
            true => (404, r#"{"detail":"Not Found"}"#.to_owned()),
            false => ask(method, &behind, path, body).await,
        };
        let body = match serde_json::from_str::<Value>(&body) {
            Ok(mut it) => {
                it.as_object_mut().map(|it| it.remove("boot_id"));
                it.to_string()
            }
            Err(_) => body,
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {code} Other\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        // A client that has gone needs no answer.
        let _ = client.write_all(answer.as_bytes()).await;
    }
}

/// A launcher of an older release serves, sleeps and wakes by the port of its engine.
pub(crate) async fn an_older_launcher_serves_too(start: Start) {
    let site = start("").await;
    let mut config = launcher_config("lc", 2);
    config["spec"]["podTemplate"]["spec"]["containers"][0]["args"] =
        json!(["python3 launcher.py --port 18001"]);
    site.post(LAUNCHER_CONFIGS, &config).await;
    site.model("a", 8005, "").await;
    site.policy("one", &site.node, 1).await;
    let launcher = site.pod(LAUNCHERS, |it| it["status"]["podIP"].is_string()).await;
    let listens = async || TcpStream::connect(address(&launcher, 18001)).await.is_ok();
    site.eventually("had a launcher that listens", listens).await;
    let listener = TcpListener::bind(address(&launcher, 8001)).await.unwrap();
    let mut older = tokio::task::JoinSet::new();
    older.spawn(older_launcher(listener, address(&launcher, 18001)));
    site.pod(LAUNCHERS, is_ready).await;
    site.request("a", "a", "GPU-a").await;
    let requester = site.ready("a").await;
    assert_eq!(label(&requester, DUAL), name(&launcher));
    site.stop("a").await;
    assert!(is_sleeping(&launcher, 8005).await);
    site.scale("a", 1).await;
    assert!(site.event("Bound", &site.ready("a").await).await.ends_with("(hot)"));
    assert_eq!(answering(&launcher, 8005).await, "tiny/a");
    assert_eq!(site.assert_one_awake(), 2);
}
