//! The upstream controllers, the upstream scheduler and simulated nodes on the embedded server: it
//! has everything they need.

use std::time::Duration;

use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::cluster::{ExternalControllers, RealCluster};
use gantry_testkit::embedded::EmbeddedServer;
use gantry_testkit::http::{Client, Protocol, Request, Target};
use serde_json::{Value, json};

use super::{embedded, say};

/// The timeout for what must happen: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A client of the embedded server.
struct TestClient<'server> {
    server: &'server EmbeddedServer,
    client: Client,
    clock: Clock,
}

impl<'server> TestClient<'server> {
    fn new(server: &'server EmbeddedServer, clock: &Clock) -> Self {
        let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
        Self { server, client, clock: clock.clone() }
    }

    async fn create(&self, collection: &str, object: &Value) {
        let answer = self.client.send(Request::post(collection, object)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
    }

    async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        // Pods are rejected before it exists.
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        self.wait_until("a service account", &account, |answer| answer["kind"] == "ServiceAccount")
            .await;
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let answer = self.client.send(Request::delete(path).json(&options)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }

    async fn get(&self, path: &str) -> Value {
        self.client.send(Request::get(path)).await.unwrap().json().unwrap()
    }

    /// Sends requests until the response is as expected.
    async fn wait_until(&self, what: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let give_up = self.clock.moment() + CONDITION_TIMEOUT;
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            let late = self.clock.moment() >= give_up;
            assert!(!late, "no {what}; last answer: {answer:#}\n{}", self.server.tails());
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn wait_until_deleted(&self, path: &str) {
        self.wait_until("end of it", path, |answer| answer["code"] == 404).await;
    }

    async fn wait_until_empty(&self, collection: &str) {
        self.wait_until("empty list", collection, |answer| count(answer) == 0).await;
    }
}

fn count(list: &Value) -> usize {
    list["items"].as_array().map_or(usize::MAX, Vec::len)
}

/// A template for pods labelled `app: <name>`, asking for a tenth of a processor.
fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{
            "name": "c", "image": "registry.test/c:1",
            "resources": {"requests": {"cpu": "100m"}},
        }]},
    })
}

fn deployment(name: &str, replicas: u8) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template(name)},
    })
}

/// What controllers make of an object: the object, and where to see what becomes of it.
struct ControllerCase {
    what: &'static str,
    collection: &'static str,
    object: Value,
    watch_path: &'static str,
    wanted: fn(&Value) -> bool,
}

fn condition(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == status)
}

/// One object for each controller that is quick enough to wait for. `{ns}` is the namespace.
fn controller_cases() -> Vec<ControllerCase> {
    let service = |name: &str, selector: Value| json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": [{"port": 80}]}});
    let mut job = template("job");
    job["spec"]["restartPolicy"] = json!("Never");
    vec![
        ControllerCase {
            what: "a deployment that rolls out",
            collection: "/apis/apps/v1/namespaces/{ns}/deployments",
            object: deployment("web", 3),
            watch_path: "/apis/apps/v1/namespaces/{ns}/deployments/web",
            wanted: |it| {
                it["status"]["availableReplicas"] == 3 && condition(it, "Available", "True")
            },
        },
        ControllerCase {
            what: "a stateful set with both pods",
            collection: "/apis/apps/v1/namespaces/{ns}/statefulsets",
            object: json!({"metadata": {"name": "db"}, "spec": {
                "replicas": 2, "serviceName": "db", "template": template("db"),
                "selector": {"matchLabels": {"app": "db"}},
            }}),
            watch_path: "/apis/apps/v1/namespaces/{ns}/statefulsets/db",
            wanted: |it| it["status"]["readyReplicas"] == 2,
        },
        ControllerCase {
            what: "a daemon on every node",
            collection: "/apis/apps/v1/namespaces/{ns}/daemonsets",
            object: json!({"metadata": {"name": "agent"}, "spec": {
                "template": template("agent"), "selector": {"matchLabels": {"app": "agent"}},
            }}),
            watch_path: "/apis/apps/v1/namespaces/{ns}/daemonsets/agent",
            wanted: |it| it["status"]["numberReady"] == 2,
        },
        ControllerCase {
            what: "a job that completes",
            collection: "/apis/batch/v1/namespaces/{ns}/jobs",
            object: json!({"metadata": {"name": "once"}, "spec": {"template": job}}),
            watch_path: "/apis/batch/v1/namespaces/{ns}/jobs/once",
            wanted: |it| it["status"]["succeeded"] == 1 && condition(it, "Complete", "True"),
        },
        ControllerCase {
            what: "slices of a service's endpoints",
            collection: "/api/v1/namespaces/{ns}/services",
            object: service("web", json!({"app": "web"})),
            watch_path: "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices\
                   ?labelSelector=kubernetes.io/service-name%3Dweb",
            wanted: |it| {
                let all = it["items"][0]["endpoints"].as_array();
                all.is_some_and(|all| {
                    all.len() == 3 && all.iter().all(|it| it["conditions"]["ready"] == true)
                })
            },
        },
        ControllerCase {
            what: "a copy of endpoints made by hand",
            collection: "/api/v1/namespaces/{ns}/endpoints",
            object: json!({"metadata": {"name": "outside"}, "subsets": [{
                "addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 5432}],
            }]}),
            watch_path: "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices\
                   ?labelSelector=kubernetes.io/service-name%3Doutside",
            wanted: |it| it["items"][0]["endpoints"][0]["addresses"][0] == "192.0.2.7",
        },
        ControllerCase {
            what: "a budget that knows its pods",
            collection: "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
            object: json!({"metadata": {"name": "web"}, "spec": {
                "minAvailable": 1, "selector": {"matchLabels": {"app": "web"}},
            }}),
            watch_path: "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/web",
            wanted: |it| it["status"]["disruptionsAllowed"] == 2,
        },
        ControllerCase {
            what: "an autoscaler that says why it does nothing",
            collection: "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
            object: json!({"metadata": {"name": "web"}, "spec": {
                "minReplicas": 3, "maxReplicas": 5,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            }}),
            watch_path: "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers/web",
            wanted: |it| {
                condition(it, "AbleToScale", "True") && condition(it, "ScalingActive", "False")
            },
        },
        ControllerCase {
            what: "a claim made of its template",
            collection: "/api/v1/namespaces/{ns}/pods",
            object: json!({"metadata": {"name": "with-device"}, "spec": {
                "containers": [{
                    "name": "c", "image": "registry.test/c:1",
                    "resources": {"claims": [{"name": "device"}]},
                }],
                "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "device"}],
            }}),
            watch_path: "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims",
            wanted: |it| count(it) == 1,
        },
        ControllerCase {
            what: "the certificate of the server",
            collection: "/api/v1/namespaces/{ns}/services",
            // Endpoints are copied for a service that selects no pods.
            object: service("outside", Value::Null),
            watch_path: "/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt",
            wanted: |it| it["data"]["ca.crt"].is_string(),
        },
        ControllerCase {
            what: "a quota that counts",
            collection: "/api/v1/namespaces/{ns}/resourcequotas",
            // The last: what is made later is counted by admission, or minutes later.
            object: json!({"metadata": {"name": "all"}, "spec": {"hard": {"services": "9"}}}),
            watch_path: "/api/v1/namespaces/{ns}/resourcequotas/all",
            wanted: |it| it["status"]["used"]["services"] == "2",
        },
    ]
}

/// Log messages that no upstream component may have about its server.
const ERROR_PATTERNS: [&str; 7] = [
    "could not find the requested resource",
    "unable to decode",
    "nternal error",
    "InternalError",
    "cannot unmarshal",
    "Failed to watch",
    "the server rejected",
];

/// Lines of the components' logs about a server that does not behave as expected.
fn error_log_lines(server: &mut EmbeddedServer) -> Vec<String> {
    let folder = server.run().folder().join("logs");
    let mut found = Vec::new();
    for guest in ["kube-controller-manager", "kube-scheduler", "kwok"] {
        let log = std::fs::read_to_string(folder.join(format!("{guest}.log"))).unwrap();
        // Metrics are not served here, which the autoscaler reports.
        let lines = log.lines().filter(|line| !line.contains("metrics.k8s.io"));
        let bad = lines.filter(|line| ERROR_PATTERNS.iter().any(|it| line.contains(it)));
        found.extend(bad.map(|line| format!("{guest}: {line}")));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn real_controllers_work_on_the_embedded_server() {
    let clock = Clock::system();
    let mut server = embedded(&clock).await;
    let joined = ExternalControllers::start(&mut server, &clock, 2).await;
    let guests = joined.unwrap_or_else(|error| panic!("{error}\n{}", server.tails()));
    say(&format!("the guests were ready after {:.1?}", guests.took()));
    let began = clock.moment();
    let talk = TestClient::new(&server, &clock);

    talk.namespace("work").await;
    let fill = |text: &str| text.replace("{ns}", "work");
    let claims = json!({"metadata": {"name": "device"}, "spec": {"spec": {"devices": {"requests": [
        {"name": "one", "exactly": {"deviceClassName": "none.test"}},
    ]}}}});
    let templates = fill("/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaimtemplates");
    talk.create(&templates, &claims).await;
    for ControllerCase { collection, object, .. } in controller_cases() {
        talk.create(&fill(collection), &object).await;
    }
    for ControllerCase { what, watch_path, wanted, .. } in controller_cases() {
        talk.wait_until(what, &fill(watch_path), wanted).await;
    }
    let pods = talk.get(&fill("/api/v1/namespaces/{ns}/pods?labelSelector=app%3Dweb")).await;
    for pod in pods["items"].as_array().unwrap() {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        assert!(guests.nodes().iter().any(|known| known == node), "{pod:#}");
        let name = pod["metadata"]["name"].as_str().unwrap();
        let events = format!(
            "/api/v1/namespaces/work/events?fieldSelector=reason%3DScheduled,\
             involvedObject.name%3D{name}"
        );
        talk.wait_until("event of its scheduling", &events, |list| count(list) == 1).await;
    }

    for policy in ["Background", "Foreground", "Orphan"] {
        let place = format!("gone-{}", policy.to_lowercase());
        talk.namespace(&place).await;
        let deployments = format!("/apis/apps/v1/namespaces/{place}/deployments");
        let sets = format!("/apis/apps/v1/namespaces/{place}/replicasets");
        let pods = format!("/api/v1/namespaces/{place}/pods");
        talk.create(&deployments, &deployment("web", 2)).await;
        let web = format!("{deployments}/web");
        talk.wait_until("rollout", &web, |it| it["status"]["availableReplicas"] == 2).await;
        talk.delete(&web, policy).await;
        talk.wait_until_deleted(&web).await;
        if policy == "Orphan" {
            let left = talk.get(&sets).await;
            assert_eq!(count(&left), 1, "{left:#}");
            assert_eq!(left["items"][0]["metadata"]["ownerReferences"], Value::Null, "{left:#}");
            assert_eq!(count(&talk.get(&pods).await), 2);
        } else {
            talk.wait_until_empty(&sets).await;
            talk.wait_until_empty(&pods).await;
        }
    }

    for place in ["work", "gone-orphan"] {
        let path = format!("/api/v1/namespaces/{place}");
        talk.delete(&path, "Background").await;
        talk.wait_until_deleted(&path).await;
        assert_eq!(count(&talk.get(&format!("{path}/pods")).await), 0);
    }
    say(&format!("they worked for {:.1?}", clock.moment() - began));
    let found = error_log_lines(&mut server);
    assert!(found.is_empty(), "{found:#?}");
}

/// The cases for servers with controllers, on both servers.
#[tokio::test(flavor = "multi_thread")]
async fn cases_of_controllers_hold_as_on_kubernetes() {
    let clock = Clock::system();
    let cases: Vec<Case> = cases::controlled().collect();
    let plan = RealCluster::plan().controllers();
    let plan = plan.api_server_flag("--etcd-compaction-interval=2s");
    let real = Box::pin(plan.start()).await.unwrap();
    let settings = |label| Settings { label, clock: &clock };
    let judge = run(&cases, real.admin().target(), settings("one")).await.unwrap();
    assert!(judge.all_passed(), "a case that the real server fails is wrong:\n{judge}");
    drop(real);
    let mut server = embedded(&clock).await;
    let joined = ExternalControllers::start(&mut server, &clock, 1).await;
    joined.unwrap_or_else(|error| panic!("{error}\n{}", server.tails()));
    let running = run(&cases, server.target(), settings("two"));
    // The background load is dropped when the cases are done, as intended.
    let report = tokio::select! {
        report = running => report.unwrap(),
        () = write_filler(server.target(), &clock) => unreachable!("it never ends"),
    };
    assert!(report.all_passed(), "{report}\n{}", server.tails());
    let differences = judge.differences(&report);
    for difference in &differences {
        say(&difference.to_string());
    }
    assert!(differences.is_empty(), "{} differences, listed above", differences.len());
}

/// Writes until the server has dropped its earlier history, which is bounded by bytes and by a
/// number of changes, not by time. An event counts with the state before it.
async fn write_filler(target: &Target, clock: &Clock) {
    let client = Client::new(target, Protocol::Http1, clock.clone()).unwrap();
    let collection = "/api/v1/namespaces/default/configmaps";
    let filler = "x".repeat(32 << 10);
    for nth in 0_u64.. {
        let object = json!({"metadata": {"name": "noise"}, "data": {"at": nth.to_string(), "filler": filler}});
        let request = match nth {
            0 => Request::post(collection, &object),
            _ => Request::put(format!("{collection}/noise"), &object),
        };
        let answer = client.send(request).await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.text());
    }
}
