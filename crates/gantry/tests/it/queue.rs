//! The queue as its users see it, on a server and from files.

use std::fs;
use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Protocol, Request};
use serde_json::{Value, json};

use super::{Run, gantry};

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A server that has the kinds, and no controllers.
async fn server() -> (EmbeddedServer, Client) {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let server = plan.start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock).unwrap();
    for kind in gantry_api::object::KINDS {
        post(&client, DEFINITIONS, &kind.crd()).await;
    }
    (server, client)
}

async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let answer = client.send(Request::post(path, object)).await.unwrap();
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    answer.json().unwrap()
}

async fn set_status(client: &Client, path: &str, mut object: Value, status: Value) {
    object["status"] = status;
    let path = format!("{path}/{}/status", object["metadata"]["name"].as_str().unwrap());
    let answer = client.send(Request::put(path, &object)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn wrapper(name: &str, priority: i64, cpu: &str) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name},
        "spec": {"priority": priority, "resources": {"GenericItems": [{
            "custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}],
            "generictemplate": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}},
        }]}},
    })
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn waiting() -> Value {
    json!({"state": "Pending", "queuejobstate": "Queueing",
        "controllerfirsttimestamp": "2026-01-01T00:00:00.000000Z",
        "conditions": [{"type": "Queueing", "status": "True",
            "lastTransitionMicroTime": "2026-01-01T00:00:00.000000Z"}]})
}

/// Runs a command against a server.
fn run_gantry(server: &EmbeddedServer, arguments: &[&str]) -> Run {
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    gantry(&[arguments, &["--kubeconfig", kubeconfig]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_cluster_is_listed_by_the_settings_of_its_operator() {
    let (server, client) = server().await;
    let none = run_gantry(&server, &["queue"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{}", none.err);
    assert!(none.err.contains("no AppWrappers found"), "{}", none.err);

    let mut made = post(&client, "/api/v1/nodes", &node()).await;
    // Every node begins with a taint that a controller removes, and none runs here.
    made["spec"]["taints"] = json!([]);
    let answer = client.send(Request::put("/api/v1/nodes/a", &made)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let made = answer.json().unwrap();
    set_status(&client, "/api/v1/nodes", made, node()["status"].clone()).await;
    for (name, priority, cpu) in [("small", 1, "1"), ("large", 5, "9")] {
        let made = post(&client, WRAPPERS, &wrapper(name, priority, cpu)).await;
        set_status(&client, WRAPPERS, made, waiting()).await;
    }
    post(&client, WRAPPERS, &wrapper("new", 9, "1")).await;

    let run = run_gantry(&server, &["queue"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<Vec<&str>> =
        run.out.lines().map(|it| it.split_whitespace().take(5).collect()).collect();
    assert_eq!(
        lines,
        [
            ["POS", "NAMESPACE", "NAME", "PRIORITY", "STATE"],
            ["1", "default", "large", "5", "Pending"],
            ["2", "default", "small", "1", "Pending"],
            ["-", "default", "new", "9", "Unseen"],
        ]
    );
    // An AppWrapper with a higher priority that was not processed yet will have been admitted by
    // then.
    assert!(run.out.contains("Resources: cpu: needs 9, 3 available, 6 missing"), "{}", run.out);
    let said = "with the default settings: the cluster has no ConfigMap gantry-config";
    assert!(run.err.contains(said), "{}", run.err);

    let run = run_gantry(&server, &["queue", "--state", "pending", "-o", "json", "-n", "default"]);
    let page: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(page["appWrappers"].as_array().unwrap().len(), 2, "{page}");
    assert_eq!(page["appWrappers"][0]["waitsFor"]["reason"], "Resources");
    assert_eq!(page["appWrappers"][1]["expected"]["what"], "Starts");
    assert_eq!(page["settings"]["values"]["backoffTime"], 20);

    let run = run_gantry(&server, &["queue", "--state", "Nonsense"]);
    assert_eq!(run.code, 2, "{}", run.out);
    assert!(run.err.contains("[possible values: Unseen, Pending, Running"), "{}", run.err);

    // Commands about one namespace need an existing one.
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("gathered");
    for command in [&["status"][..], &["gather", "--directory", to.to_str().unwrap()]] {
        let run = run_gantry(&server, &[command, &["-n", "nosuch"]].concat());
        assert_eq!(run.code, 1, "{command:?}: {}", run.out);
        assert!(run.err.contains("namespaces/nosuch"), "{command:?}: {}", run.err);
    }
    assert!(!to.exists(), "nothing is half done");
    let run = run_gantry(&server, &["status", "-n", "default"]);
    assert!(run.code == 0 && run.out.contains("namespace     default\n"), "{}{}", run.out, run.err);

    // With the operator's settings the head of the line is not skipped.
    post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "ops"}})).await;
    let map = json!({"metadata": {"name": "gantry-config"},
        "data": {"config.yaml": "mcad: {headOfLineHoldingTime: 60}"}});
    post(&client, "/api/v1/namespaces/ops/configmaps", &map).await;
    let run = run_gantry(&server, &["queue", "-o", "wide"]);
    assert!(
        run.out.contains("HeadOfLine: AppWrapper default/large holds the head of the line"),
        "{}",
        run.out
    );
    let said = "with the settings of ConfigMap ops/gantry-config, config.yaml";
    assert!(run.err.contains(said), "{}", run.err);

    // The published settings take precedence: they include the operator's flags.
    let map = json!({"metadata": {"name": "gantry-config-in-effect"},
        "data": {"config.yaml": "mcad:\n  backoffTime: 7 # from --backofftime\n"}});
    post(&client, "/api/v1/namespaces/ops/configmaps", &map).await;
    let run = run_gantry(&server, &["queue", "-o", "json"]);
    let page: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(page["settings"]["values"]["backoffTime"], 7);
    assert_eq!(page["settings"]["values"]["headOfLineHoldingTime"], 0, "{page}");
    let said = "the effective settings of ConfigMap ops/gantry-config-in-effect, config.yaml";
    assert_eq!(page["settings"]["source"], said);

    let run = run_gantry(&server, &["explain", "aw/large"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains(&format!("with {said}")), "{}", run.err);
    for words in [
        "position    1 of 2",
        "job/large   cpu 9, declared in custompodresources   not made",
        "ask for less, or add nodes",
    ] {
        assert!(run.out.contains(words), "{words}\n{}", run.out);
    }
    let run = run_gantry(&server, &["explain", "appwrapper/nobody"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("there is no AppWrapper default/nobody"), "{}", run.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_10_a_template_that_does_not_say_what_it_is_is_refused() {
    let (_server, client) = server().await;
    let mut bare = wrapper("bare", 0, "1");
    let template = &mut bare["spec"]["resources"]["GenericItems"][0]["generictemplate"];
    *template = json!({"metadata": {"name": "bare"}, "spec": {}});
    let answer = client.send(Request::post(WRAPPERS, &bare)).await.unwrap();
    assert_eq!(answer.status, 422, "{}", answer.text());
    for field in ["apiVersion", "kind"] {
        let place =
            format!("spec.resources.GenericItems[0].generictemplate.{field}: Required value");
        assert!(answer.text().contains(&place), "{place}\n{}", answer.text());
    }
}

fn write(folder: &Path, name: &str, objects: &[Value]) -> String {
    let path = folder.join(name);
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::write(&path, text.join("\n---\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_suffice_to_predict_admission() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = [wrapper("first", 2, "3"), wrapper("second", 1, "3"), wrapper("huge", 0, "9")];
    let jobs = write(folder.path(), "jobs.yaml", &jobs);
    let nodes = write(folder.path(), "nodes.yaml", &[node()]);
    let config = write(folder.path(), "config.yaml", &[json!({"mcad": {"backoffTime": 3}})]);
    let files = ["-f", &jobs, "-f", &nodes, "--config-file", &config];
    let run = gantry(&[&["queue"], files.as_slice()].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let waits: Vec<&str> =
        run.out.lines().skip(1).map(|it| it.split_once("s   ").unwrap().1.trim()).collect();
    assert_eq!(
        waits,
        [
            "now        NextCycle: there is free capacity for it",
            "-          Resources: cpu: needs 3, 1 available, 2 missing",
            "-          Resources: cpu: needs 9, 1 available, 8 missing",
        ],
        "{}",
        run.out
    );
    assert!(run.err.contains(&format!("with the settings of {config}")), "{}", run.err);
    let run = gantry(&[&["explain", "aw", "second"], files.as_slice(), &["-o", "json"]].concat());
    let page: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(page["appWrapper"]["room"]["free"]["cpu"], "4", "{page}");
    assert_eq!(page["appWrapper"]["position"], 2);
    assert_eq!(page["settings"]["values"]["backoffTime"], 3);
}
