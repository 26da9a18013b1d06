//! The commands of devices, without a cluster and with one.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Protocol, Request};
use serde_json::{Value, json};

use super::{Run, gantry, gantry_with, manifests};

fn scenarios(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../devices/tests/scenarios");
    format!("{folder}/{name}")
}

/// What a scenario prints, as the allocator's own tests have it.
fn printed(name: &str) -> String {
    fs::read_to_string(scenarios(&format!("printed/{name}.txt"))).unwrap()
}

fn stdout_of_success(run: Run) -> String {
    assert_eq!(run.code, 0, "{}", run.err);
    run.out
}

#[test]
fn scenario_46_is_answered_in_every_spelling() {
    let (zero, three) = (scenarios("pools/shape-zero.yaml"), scenarios("pools/shape-three.yaml"));
    let claims = scenarios("claims/46-by-driver.yaml");
    let (zero, three, claims) = (zero.as_str(), three.as_str(), claims.as_str());
    let lines: [&[&str]; 5] = [
        &["schedule", "-pools", zero, "-pools", three, "-claims", claims, "select"],
        &["devices", "schedule", "--pools", zero, "--pools", three, "--claims", claims, "select"],
        &["schedule", "-f", zero, "-f", three, "-f", claims],
        &["schedule", "-f", zero, "-f", three, "-f", claims, "select"],
        &["schedule", "-f", claims, "-f", zero, "-f", three, "--dry-run"],
    ];
    for line in lines {
        let run = gantry(line);
        assert!(run.err.contains("\"not implemented yet\" is ignored"), "{}", run.err);
        assert_eq!(stdout_of_success(run), printed("46"), "{line:?}");
    }
    let mut verbose = lines[0].to_vec();
    verbose.insert(1, "-v");
    assert_eq!(stdout_of_success(gantry(&verbose)), printed("46-verbose"));
    let by_environment = gantry_with(lines[0], &[("VERBOSE", "y")], "");
    assert_eq!(stdout_of_success(by_environment), printed("46-verbose"));
}

#[test]
fn scenarios_44_and_45_are_answered_as_files_were() {
    let claim = scenarios("pods/1x2-exclusive-foozer.yaml");
    let ask = |nodes: &str, more: &[&str]| {
        let nodes = scenarios(&format!("nodes/{nodes}.yaml"));
        let mut line = vec!["schedule", "-nodes", &nodes, "-claim", &claim];
        line.extend(more);
        stdout_of_success(gantry(&line))
    };
    let (tiny, medium) = ("tiny-1x2x1-foozer1000", "medium-8x64x4-foozer1000-numa");
    assert_eq!(ask(tiny, &["pod"]), printed("44"));
    assert_eq!(ask(tiny, &["-v", "pod"]), printed("44-verbose"));
    assert_eq!(ask(tiny, &["-v", "--e1-wording", "pod"]), printed("44-e1-verbose"));
    assert_eq!(ask(medium, &["pod"]), printed("45"));
    assert_eq!(ask(medium, &["-v", "pod"]), printed("45-verbose"));
    let all: Value = serde_json::from_str(&ask(medium, &["-o", "json", "pod"])).unwrap();
    assert_eq!(all["verdict"], "Satisfied");
    assert_eq!(all["nodeName"], medium);
}

#[test]
fn the_exit_code_tells_only_on_request() {
    let pools = scenarios("pools/shape-one.yaml");
    let claims = scenarios("claims/53-four-on-one-numa.yaml");
    let line = ["schedule", "-f", &pools, "-f", &claims];
    let code = |more: &[&str]| gantry(&[&line[..], more].concat()).code;
    assert_eq!(code(&[]), 0);
    assert_eq!(code(&["--exit-code"]), 3);
    assert_eq!(code(&["--exit-code", "--steps", "0"]), 4);
    let claims = scenarios("claims/50-four.yaml");
    assert_eq!(gantry(&["schedule", "-f", &pools, "-f", &claims, "--exit-code"]).code, 0);
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let pools = scenarios("pools/shape-one.yaml");
    let claims = scenarios("claims/50-four.yaml");
    let table: [(&[&str], &str); 8] = [
        (&["schedule", "-f", "/nowhere"], "could not open /nowhere"),
        (&["schedule", "-pools", &claims, "-claims", &claims, "select"], "no objects of that kind"),
        (&["schedule", "-f", &pools, "web"], "there is no pod default/web"),
        (&["schedule", "-f", &pools, "--what-if", "used=x"], "write POOL/DEVICE"),
        (&["schedule", "-f", &pools, "--what-if", "used=x/y"], "there is no pool x"),
        (&["schedule", "gen-example", "9"], "unknown shape \"9\""),
        (&["devices", "gen", "huge"], "unknown shape \"huge\""),
        (&["schedule", "--no-such-flag"], "unexpected argument"),
    ];
    for (line, expected) in table {
        let run = gantry(line);
        assert_eq!(run.code, 1, "{line:?}: {}", run.err);
        assert!(run.err.contains("error:") && run.err.contains(expected), "{line:?}: {}", run.err);
    }
}

#[test]
fn what_if_changes_are_explained() {
    let claims = scenarios("claims/46-by-driver.yaml");
    let pools = stdout_of_success(gantry(&["devices", "gen", "foozer-1000-tiny"]));
    let ask = |more: &[&str]| {
        let line = [&["schedule", "-f", "-", "-f", claims.as_str()], more].concat();
        stdout_of_success(gantry_with(&line, &[], &pools))
    };
    assert!(
        ask(&[]).contains("deviceName: dev-00\n  devicePoolName: foozer-1000-tiny-00-pool-foozer")
    );
    let supposed = [
        "--what-if",
        "used=foozer-1000-tiny-00-pool-foozer/dev-00",
        "--what-if",
        "tainted=foozer-1000-tiny-00-pool-foozer/dev-01:NoSchedule",
        "--explain",
    ];
    let text = ask(&supposed);
    assert!(text.contains("devicePoolName: foozer-1000-tiny-01-pool-foozer"), "{text}");
    let told = "\
node foozer-1000-tiny-00 is refused: it cannot satisfy myclaim
  claim myclaim needs 1 device; only 0 of 2 here qualify
    pool foozer-1000-tiny-00-pool-foozer: none of 2 devices: no available devices
      device dev-00: no available devices
      device dev-01: taint \"what-if\" is not tolerated
node foozer-1000-tiny-01 is chosen: it satisfies all claims with score 100
";
    assert!(text.contains(told), "{text}");
}

#[test]
fn every_shape_is_printed() {
    let one = stdout_of_success(gantry(&["schedule", "gen-example", "1"]));
    assert_eq!(one, stdout_of_success(gantry(&["devices", "gen", "1"])));
    assert!(one.starts_with("- name: shape-one-000\n"), "only YAML: {one}");
    let listed: Value = serde_json::from_str(&stdout_of_success(gantry(&[
        "devices", "gen", "zero", "--nodes", "3", "-o", "json",
    ])))
    .unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    let checked = gantry_with(
        &["check", "-"],
        &[],
        &stdout_of_success(gantry(&["devices", "gen", "foozer-4000-large"])),
    );
    assert_eq!(checked.err, "2 accepted, 0 refused, 0 of other kinds, 0 warnings\n");
    let crds = stdout_of_success(gantry(&["devices", "crds"]));
    assert_eq!(crds, stdout_of_success(gantry(&["crds", "--group", "devmgmtproto.k8s.io"])));
}

fn manifest(name: &str) -> String {
    manifests().join("devices").join(name).display().to_string()
}

/// The manifests of the original, and everything that is said about them.
#[test]
fn scenario_69_the_manifests_of_the_original_are_read_with_these_warnings_and_no_others() {
    let files = [
        "drivers.yaml",
        "classes.yaml",
        "pod-embedded-foozer-single.yaml",
        "pod-template-foozer-single.yaml",
        "pod-shared-foozer.yaml",
    ];
    let mut line = vec!["check".to_owned()];
    line.extend(files.map(manifest));
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let run = gantry(&line);
    assert_eq!(run.code, 0, "{}", run.err);
    let folder = manifest("");
    let said = run.err.replace(&folder, "");
    assert_eq!(said, include_str!("devices/69.txt"));
}

#[test]
fn manifests_of_the_original_are_made_fit_for_a_server() {
    let run = gantry(&["devices", "inject", "-f", &manifest("classes.yaml")]);
    assert_eq!(run.code, 0, "{}", run.err);
    let remark = "classes.yaml[5] DeviceClass sriov-nic-1Gbps: metadata.name: \"sriov-nic-1Gbps\" \
                  written in lower case: \"sriov-nic-1gbps\"\n";
    assert!(run.err.contains(remark), "{}", run.err);
    let again = gantry_with(&["check", "-"], &[], &run.out);
    let warnings: Vec<&str> = again.err.lines().collect();
    // What is wrong with a constraint is its author's to say.
    assert_eq!(warnings.len(), 3, "{}", again.err);
    assert!(warnings[0].contains("`=` is not CEL") && warnings[1].contains("`=` is not CEL"));
    let nodes = gantry(&["devices", "inject", "-f", &scenarios("nodes/tiny-1x1.yaml")]);
    assert_eq!((nodes.code, nodes.out.as_str()), (1, ""));
    assert!(nodes.err.contains("not a Kubernetes API object"), "{}", nodes.err);
}

/// How long anything may take on a busy machine. Nothing is decided by it but that a test ends.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const GROUP: &str = "/apis/devmgmtproto.k8s.io/v1alpha1";

struct Cluster {
    server: EmbeddedServer,
    client: Client,
    clock: Clock,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let clock = Clock::system();
        let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster().flag("--ephemeral");
        let server = plan.flag("--demo").start(&clock).await.unwrap();
        let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
        Self { server, client, clock, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn run_gantry(&self, arguments: &[&str]) -> Run {
        let kubeconfig = self.server.kubeconfig().display().to_string();
        gantry(&[arguments, &["--kubeconfig", &kubeconfig]].concat())
    }

    async fn wait_until(&self, path: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let began = self.clock.moment();
        loop {
            let seen = self.client.send(Request::get(path)).await.unwrap().json().unwrap();
            if good(&seen) {
                return seen;
            }
            let tails = self.server.tails();
            assert!(
                self.clock.moment() - began < CONDITION_TIMEOUT,
                "{path} never {what}:\n{seen:#}\n{tails}"
            );
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }
}

/// A driver at work; it is ended with us.
struct DriverProcess(Child);

impl Drop for DriverProcess {
    fn drop(&mut self) {
        // It has ended, or a test has failed; neither leaves anything to be said.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const POOL: &str = "
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: node-0-nics}
spec: {nodeName: node-0, driver: nic.example.com, deviceType: nic, devices: [{name: eth0}, {name: eth1}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_devices_answers() {
    let cluster = Cluster::start().await;
    let demo = format!("{GROUP}/devicepools/gpu-0-gpus");
    cluster.wait_until(&demo, "was published", |it| it["status"]["availableDevices"] == 8).await;
    a_pod_of_the_demo_has_a_device(&cluster).await;
    let top = stdout_of_success(cluster.run_gantry(&["devices", "top"]));
    let row = top.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["gpu-0", "gpu", "8", "1", "7"], "{top}");

    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: demo}\nspec:\n  \
               deviceClaims: [{name: g, claimName: pair}]\n  \
               containers: [{name: c, image: i, devices: [{name: g}]}]\n";
    let pod = cluster.file("pod.yaml", pod).display().to_string();
    let run = cluster.run_gantry(&["schedule", "-f", &pod]);
    assert!(run.err.contains("nothing was written: the scheduler of the cluster"), "{}", run.err);
    let answer = stdout_of_success(run);
    let expected = "- deviceName: gpu-1\n  devicePoolName: gpu-0-gpus\n- deviceName: gpu-2\n";
    assert!(answer.contains(expected), "{answer}");
    assert!(answer.contains("node-0: could not satisfy these claims: pair\n"), "{answer}");
    let run = cluster.run_gantry(&["schedule", "-f", &pod, "--dry-run", "-o", "json"]);
    assert_eq!(run.err, "");
    let missing = cluster.run_gantry(&["schedule", "-n", "demo", "web"]);
    assert_eq!(missing.code, 1, "{}", missing.out);

    a_driver_keeps_what_it_publishes(&cluster).await;
}

/// The loop is whole: the driver publishes, the pod's claim is made and gets a device, the pod
/// runs, and the driver says of the device that it is ready.
async fn a_pod_of_the_demo_has_a_device(cluster: &Cluster) {
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    let pod = cluster.wait_until("/api/v1/namespaces/demo/pods/tuner", "ran", runs).await;
    assert_eq!(pod["spec"]["nodeName"], "gpu-0");
    let claims = format!("{GROUP}/namespaces/demo/deviceclaims");
    let told = |list: &Value| {
        let all = list["items"].as_array().into_iter().flatten();
        all.into_iter().any(|it| {
            it["status"]["podNames"] == json!(["tuner"])
                && it["status"]["deviceStatuses"][0]["deviceName"] == "gpu-0"
        })
    };
    cluster.wait_until(&claims, "were told of by the driver", told).await;
}

/// A pod of each driver's devices runs, and its claim has the words of that driver. Then both go.
async fn drivers_report_allocations(cluster: &Cluster) {
    let (claims, pods) = (
        format!("{GROUP}/namespaces/default/deviceclaims"),
        "/api/v1/namespaces/default/pods".to_owned(),
    );
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    cluster.wait_until(account, "came", |it| it["metadata"]["name"] == "default").await;
    let wishes = [
        ("c-nic", json!({"name": "main", "deviceType": "nic"}), "nic.example.com"),
        ("c-gpu", json!({"name": "main", "deviceClass": "gpu"}), "gpu.gantry.dev"),
    ];
    for (name, term, driver) in &wishes {
        let claim = json!({
            "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim",
            "metadata": {"name": name}, "spec": {"claims": [term]},
        });
        let made = cluster.client.send(Request::post(&claims, &claim)).await.unwrap();
        assert_eq!(made.status, 201, "{}", made.text());
        let carried = json!([{"name": "d", "claimName": name}]).to_string();
        let pod = json!({
            "metadata": {
                "name": name, "annotations": {"devmgmtproto.k8s.io/device-claims": carried},
            },
            "spec": {
                "schedulerName": "gantry", "containers": [{"name": "c", "image": "i"}],
            },
        });
        let made = cluster.client.send(Request::post(&pods, &pod)).await.unwrap();
        assert_eq!(made.status, 201, "{}", made.text());
        let told = cluster
            .wait_until(&format!("{claims}/{name}"), "was told of by its driver", |it| {
                it["status"]["deviceStatuses"].as_array().is_some_and(|it| it.len() == 1)
            })
            .await;
        let entries = told["metadata"]["managedFields"].as_array().unwrap();
        let owners: Vec<_> = entries.iter().filter_map(|it| it["manager"].as_str()).collect();
        assert!(owners.contains(driver), "{owners:?}");
    }
    for (name, _, _) in &wishes {
        let gone = format!("{pods}/{name}?gracePeriodSeconds=0");
        cluster.client.send(Request::delete(gone)).await.unwrap();
        let free = |it: &Value| it["status"]["allocations"].as_array().is_none_or(Vec::is_empty);
        cluster.wait_until(&format!("{claims}/{name}"), "was released", free).await;
    }
}

async fn a_driver_keeps_what_it_publishes(cluster: &Cluster) {
    let file = cluster.file("pools.yaml", POOL);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command.args(["devices", "sample-driver", "--pools"]).arg(&file);
    command.arg("--kubeconfig").arg(cluster.server.kubeconfig());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut driver = DriverProcess(command.spawn().unwrap());

    let pool = format!("{GROUP}/devicepools/node-0-nics");
    let published = |it: &Value| it["status"]["availableDevices"] == 2;
    let seen = cluster.wait_until(&pool, "was published", published).await;
    let managers: Vec<_> = seen["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["fieldsV1"].get("f:spec").is_some())
        .map(|it| it["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["nic.example.com"]);
    let registered = format!("{GROUP}/devicedrivers/nic.example.com");
    cluster
        .wait_until(&registered, "was registered", |it| it["deviceTypes"] == json!(["nic"]))
        .await;

    let merge = "application/merge-patch+json";
    let change = json!({"spec": {"devices": [], "deviceCount": 7}});
    cluster.client.send(Request::patch(&pool, merge, &change)).await.unwrap();
    let names = |it: &Value| {
        let devices = it["spec"]["devices"].as_array().cloned().unwrap_or_default();
        devices.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    cluster.wait_until(&pool, "was put right", |it| names(it) == ["eth0", "eth1"]).await;
    let uid = seen["metadata"]["uid"].clone();
    cluster.client.send(Request::delete(&pool)).await.unwrap();
    cluster
        .wait_until(&pool, "came back", |it| names(it).len() == 2 && it["metadata"]["uid"] != uid)
        .await;

    drivers_report_allocations(cluster).await;

    fs::write(&file, POOL.replace("{name: eth1}", "{name: eth2}")).unwrap();
    cluster.wait_until(&pool, "followed the file", |it| names(it) == ["eth0", "eth2"]).await;
    fs::write(&file, "no: manifest").unwrap();
    fs::write(&file, POOL.replace("node-0-nics", "node-1-nics").replace("node-0", "node-1"))
        .unwrap();
    let moved = format!("{GROUP}/devicepools/node-1-nics");
    cluster.wait_until(&moved, "took its place", |it| names(it) == ["eth0", "eth1"]).await;
    cluster.wait_until(&pool, "was deleted", |it| it["code"] == 404).await;

    let id = rustix::process::Pid::from_child(&driver.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let began = cluster.clock.moment();
    let ended = loop {
        if let Some(ended) = driver.0.try_wait().unwrap() {
            break ended;
        }
        assert!(cluster.clock.moment() - began < CONDITION_TIMEOUT, "it does not stop");
        cluster.clock.sleep(POLL_INTERVAL).await;
    };
    assert_eq!(ended.code(), Some(0));
    cluster.wait_until(&moved, "stayed", |it| names(it).len() == 2).await;
}
