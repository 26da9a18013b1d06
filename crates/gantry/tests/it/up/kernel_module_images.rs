//! Modules that are built and signed on the embedded cluster: Jobs run, nodes load the images.

use std::path::Path;

use gantry_oci::Reference;

use super::images::{host, registry};
use super::kernel_modules::MODULES;
use super::*;

pub(super) const NODES: &str = "/api/v1/nodes";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const KERNELS: [&str; 3] = ["6.1.0-54-amd64", "6.8.0-45-generic", "6.12.100+deb13-amd64"];
/// What the log of a build says about each command.
const SIMULATED: &str = "(simulated: commands are not run in gantry up";
pub(super) const DOCKERFILE: &str = "\
FROM example.com/toolkit:1 AS builder
WORKDIR /src
RUN make
FROM example.com/base:1
ARG KERNEL_FULL_VERSION
COPY --from=builder /src/hello.ko /opt/lib/modules/$KERNEL_FULL_VERSION/
";

fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod/tests/fixtures");
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// A node for each kernel; the last one loads only modules that the RSA certificate verifies.
fn nodes() -> tempfile::NamedTempFile {
    let certificate = fixture("certificates/rsa2048.pem");
    let [old, new, enforcing] = KERNELS;
    let certificate: String = certificate.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!(
        "nodes:\n- {{name: old, kernelVersion: {old}}}\n- {{name: new, kernelVersion: {new}}}\n\
         - name: secure\n  kernelVersion: {enforcing}\n  moduleSignatures: enforce\n  \
         trustedKeys: |\n{certificate}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A cluster with such nodes, and with Secrets for the key and the certificate.
async fn cluster(plan: Plan) -> Cluster {
    let nodes = nodes();
    let plan = plan.flag("--nodes").flag(nodes.path().to_str().unwrap());
    Cluster::start(plan).await
}

pub(super) async fn ephemeral() -> Cluster {
    let cluster = cluster(Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral")).await;
    create_secrets(&cluster, "rsa2048").await;
    cluster
}

/// Creates the Secrets `key` and `cert` from a key pair of the fixtures.
async fn create_secrets(cluster: &Cluster, pair: &str) {
    let files =
        [("key", format!("keys/{pair}.pkcs8.pem")), ("cert", format!("certificates/{pair}.pem"))];
    for (name, file) in files {
        let secret = json!({"metadata": {"name": name}, "stringData": {name: fixture(&file)}});
        cluster.post("/api/v1/namespaces/default/secrets", &secret).await;
    }
}

/// A Module that is built.
pub(super) fn built(cluster: &Cluster, name: &str, dockerfile: &str) -> Value {
    let image = format!("{}/default/{name}:v1-${{KERNEL_FULL_VERSION}}", host(cluster));
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1",
        "kind": "Module",
        "metadata": {"name": name},
        "spec": {
            "selector": {"kubernetes.io/os": "linux"},
            "driverContainer": {"container": {
                "modprobe": {"moduleName": name},
                "kernelMappings": [{"regexp": "^.+$", "containerImage": image}],
                "build": {"dockerfile": dockerfile},
            }},
        },
    })
}

/// The same, with a file that is signed.
pub(super) fn signed(mut module: Value, files: &[&str]) -> Value {
    let files: Vec<String> = files
        .iter()
        .map(|it| format!("/opt/lib/modules/${{KERNEL_FULL_VERSION}}/{it}.ko"))
        .collect();
    module["spec"]["driverContainer"]["container"]["sign"] = json!({
        "keySecret": {"name": "key"}, "certSecret": {"name": "cert"}, "filesToSign": files,
    });
    module
}

/// The same, with a device plugin whose devices need the module.
pub(super) fn with_devices(mut module: Value) -> Value {
    let name = module["metadata"]["name"].clone();
    module["spec"]["devicePlugin"] = json!({"container": {
        "image": "gantry.dev/device-plugin",
        "args": ["--resource", "example.com/gpu", "--count", "4", "--module", name,
                 "--driver", "gpu.example.com"],
    }});
    module
}

pub(super) fn ready(module: &Value) -> [u64; 2] {
    let count = |part: &str| module["status"][part]["numberReady"].as_u64().unwrap_or_default();
    [count("driverContainer"), count("devicePlugin")]
}

/// The modules that a node has loaded, in the order in which they were loaded.
pub(super) fn loaded(node: &Value) -> Vec<String> {
    let text = node["metadata"]["annotations"]["sim.gantry.dev/loaded-modules"].as_str();
    let state: Value = serde_json::from_str(text.unwrap_or("{}")).unwrap();
    let names = state["modules"].as_array().into_iter().flatten();
    names.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

pub(super) fn all_have(nodes: &Value, good: impl Fn(&Value) -> bool) -> bool {
    nodes["items"].as_array().is_some_and(|it| it.iter().all(good))
}

pub(super) fn devices(node: &Value) -> &str {
    node["status"]["capacity"]["example.com/gpu"].as_str().unwrap_or("0")
}

impl Cluster {
    /// What the containers of a Job have logged.
    pub(super) async fn job_log(&self, selector: &str) -> String {
        let pods = self.get(&format!("{PODS}?labelSelector={selector}")).await;
        let mut text = String::new();
        for pod in pods["items"].as_array().unwrap() {
            let path = format!("{PODS}/{}/log", pod["metadata"]["name"].as_str().unwrap());
            text += &self.client.send(Request::get(path)).await.unwrap().text();
        }
        text
    }

    /// Waits for a warning about an object, and returns its message.
    async fn warning(&self, about: &str, reason: &str, words: &str) -> String {
        let path = format!("{EVENTS}?fieldSelector=involvedObject.name={about}");
        let found = |list: &Value| {
            let mut events = list["items"].as_array().into_iter().flatten();
            let is_it = |it: &&Value| {
                it["reason"] == reason && it["message"].as_str().unwrap().contains(words)
            };
            events.find(is_it).map(|it| it["message"].as_str().unwrap().to_owned())
        };
        let list = self.wait_until(&path, reason, |it| found(it).is_some()).await;
        found(&list).unwrap()
    }

    pub(super) async fn run_gantry(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.process.kubeconfig().to_str().unwrap().to_owned();
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let run = tokio::task::spawn_blocking(move || {
            let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            arguments.extend(["--kubeconfig", &kubeconfig]);
            gantry(&arguments)
        });
        let run = run.await.unwrap();
        format!("{}{}", run.out, run.err)
    }

    pub(super) async fn delete_module(&self, name: &str) {
        let path = format!("{MODULES}/{name}");
        let deleted = self.client.send(Request::delete(&path)).await.unwrap();
        assert!(deleted.status.is_success(), "{}", deleted.text());
        let is_gone = |it: &Value| it["code"] == 404;
        self.wait_until(&path, "is gone", is_gone).await;
    }
}

/// From a manifest to loaded modules on three kernels, one of which enforces signatures; then a
/// fourth kernel comes, and goes again.
#[tokio::test(flavor = "multi_thread")]
async fn kms_40_kms_90_modules_are_built_signed_and_loaded_for_each_kernel() {
    let cluster = ephemeral().await;
    let module = with_devices(signed(built(&cluster, "hello", DOCKERFILE), &["hello"]));
    cluster.post(MODULES, &module).await;
    let path = format!("{MODULES}/hello");
    cluster.wait_until(&path, "is ready on three kernels", |it| ready(it) == [3, 3]).await;
    let is_whole = |it: &Value| loaded(it) == ["hello"] && devices(it) == "4";
    cluster.wait_until(NODES, "have the module and its devices", |it| all_have(it, is_whole)).await;
    // Every command that was not run says so, and the log stays for a while.
    let log = cluster.job_log("ooto.sigs.k8s.io/job-type%3Dbuild").await;
    assert_eq!(log.matches(&format!("RUN make {SIMULATED}")).count(), 3, "{log}");
    assert!(log.contains("hello.ko, a synthetic module for kernel 6.12.100+deb13-amd64"), "{log}");
    // Images are pushed by an account that may do that in its namespace, and nothing else.
    let account = "/api/v1/namespaces/default/serviceaccounts/hello-image-jobs/token";
    let token = cluster.post(account, &json!({"spec": {}})).await;
    let registry = registry(&cluster, token["status"]["token"].as_str());
    let image = |kernel: &str| -> Reference {
        let tag = kernel.replace('+', "_");
        format!("{}/default/hello:v1-{tag}", host(&cluster)).parse().unwrap()
    };
    for kernel in KERNELS {
        registry.pull_manifest(&image(kernel)).await.unwrap();
    }
    for (namespace, group, resource, verb, allowed) in [
        ("default", "registry.gantry.dev", "repositories", "update", true),
        ("default", "registry.gantry.dev", "repositories", "delete", false),
        ("kube-system", "registry.gantry.dev", "repositories", "update", false),
        ("default", "", "secrets", "get", false),
        ("default", "", "pods", "create", false),
    ] {
        let review = json!({"spec": {
            "user": "system:serviceaccount:default:hello-image-jobs",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "namespace": namespace, "group": group, "resource": resource, "verb": verb,
            },
        }});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = cluster.post(path, &review).await;
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {resource} in {namespace}");
    }
    // A node with a new kernel: its image is made, and the module is loaded again.
    let node = format!("{NODES}/old-0");
    for kernel in ["6.9.1-gantry", KERNELS[0]] {
        let said = cluster.run_gantry(&["node", "upgrade-kernel", "old-0", kernel]).await;
        assert!(said.contains("restarting"), "{said}");
        let runs = |it: &Value| {
            let label = "oot.node.kubernetes.io/kernel-version.full";
            let labels = &it["metadata"]["labels"];
            labels[label] == kernel
                && labels.get("oot.node.kubernetes.io/default.hello.ready").is_some()
                && is_whole(it)
        };
        cluster.wait_until(&node, "has the module for its new kernel", runs).await;
        registry.pull_manifest(&image(kernel)).await.unwrap();
    }
    cluster.wait_until(&path, "is ready again", |it| ready(it) == [3, 3]).await;
    cluster.delete_module("hello").await;
    let is_empty = |it: &Value| loaded(it).is_empty() && devices(it) == "0";
    cluster.wait_until(NODES, "have neither module nor devices", |it| all_have(it, is_empty)).await;
}

/// A kernel that enforces signatures refuses an unsigned module in its own words.
#[tokio::test(flavor = "multi_thread")]
async fn kms_33_an_enforcing_node_is_not_ready_without_a_signature_that_it_trusts() {
    let cluster = ephemeral().await;
    cluster.post(MODULES, &built(&cluster, "hello", DOCKERFILE)).await;
    let path = format!("{MODULES}/hello");
    cluster.wait_until(&path, "is ready on two kernels", |it| ready(it)[0] == 2).await;
    let words = "modprobe: ERROR: could not insert 'hello': Key was rejected by service";
    let said = cluster.warning("hello", "DriverContainerCrashLooping", words).await;
    assert!(said.contains("secure-0") && said.contains("sign the module"), "{said}");
    let label = "oot.node.kubernetes.io/default.hello.ready";
    let node = cluster.get(&format!("{NODES}/secure-0")).await;
    assert!(node["metadata"]["labels"].get(label).is_none() && loaded(&node).is_empty(), "{node}");
    let said = cluster.run_gantry(&["explain", "module/hello"]).await;
    assert!(said.contains(words), "{said}");
    // Signed by the key that the node trusts, it is loaded.
    let signed = signed(built(&cluster, "hello", DOCKERFILE), &["hello"]);
    let mut sign = signed["spec"]["driverContainer"]["container"]["sign"].clone();
    // The image that exists is not made again.
    let image = format!("{}/default/hello:signed-${{KERNEL_FULL_VERSION}}", host(&cluster));
    sign["signedImage"] = json!({"name": image});
    cluster
        .merge(&path, &json!({"spec": {"driverContainer": {"container": {"sign": sign}}}}))
        .await;
    let has_label = |it: &Value| it["metadata"]["labels"].get(label).is_some();
    let node = format!("{NODES}/secure-0");
    let loads = |it: &Value| has_label(it) && loaded(it) == ["hello"];
    cluster.wait_until(&node, "has loaded the signed module", loads).await;
}

/// An image with a module of another kernel, on a node that enforces nothing: its version magic is
/// wrong, which the event and `gantry explain` say with the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn kms_43_bad_input_of_another_kernel_is_reported_and_not_loaded() {
    let cluster = ephemeral().await;
    let [old, new, _] = KERNELS;
    let only_for = |mut module: Value, kernel: &str| {
        let container = &mut module["spec"]["driverContainer"]["container"];
        let image = container["kernelMappings"][0]["containerImage"].take();
        container["kernelMappings"] = json!([{"literal": kernel, "containerImage": image}]);
        module
    };
    cluster.post(MODULES, &only_for(built(&cluster, "hello", DOCKERFILE), old)).await;
    let path = format!("{MODULES}/hello");
    cluster.wait_until(&path, "is ready on the old kernel", |it| ready(it)[0] == 1).await;
    let dockerfile = format!(
        "FROM {}/default/hello:v1-{old} AS other\nFROM example.com/base:1\n\
         COPY --from=other /opt/lib/modules/{old}/hello.ko /opt/lib/modules/{new}/hello.ko\n",
        host(&cluster)
    );
    let mut wrong = only_for(built(&cluster, "wrong", &dockerfile), new);
    wrong["spec"]["driverContainer"]["container"]["modprobe"]["moduleName"] = json!("hello");
    cluster.post(MODULES, &wrong).await;
    let words = "modprobe: ERROR: could not insert 'hello': Exec format error";
    let said = cluster.warning("wrong", "DriverContainerCrashLooping", words).await;
    for part in ["node new-0", &format!("kernel {new}"), "built for another kernel", "magic"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let explained = cluster.run_gantry(&["explain", "module/wrong"]).await;
    for part in ["DriverContainerCrashLooping", words, "built for another kernel"] {
        assert!(explained.contains(part), "no {part:?} in {explained}");
    }
    let node = cluster.get(&format!("{NODES}/new-0")).await;
    let label = "oot.node.kubernetes.io/default.wrong.ready";
    assert!(node["metadata"]["labels"].get(label).is_none() && loaded(&node).is_empty(), "{node}");
    let node = cluster.get(&format!("{NODES}/old-0")).await;
    assert_eq!(loaded(&node), ["hello"], "its own kernel has loaded it");
}

/// What is wrong is said with the words of the Job, and nothing is pushed.
#[tokio::test(flavor = "multi_thread")]
async fn kms_41_a_key_of_another_certificate_is_reported_with_the_words_of_the_job() {
    let cluster = ephemeral().await;
    let key = fixture("keys/rsa3072.pkcs8.pem");
    let other = json!({"metadata": {"name": "other"}, "stringData": {"key": key}});
    cluster.post("/api/v1/namespaces/default/secrets", &other).await;
    let mut module = signed(built(&cluster, "hello", DOCKERFILE), &["hello"]);
    module["spec"]["driverContainer"]["container"]["sign"]["keySecret"]["name"] = json!("other");
    cluster.post(MODULES, &module).await;
    let said = cluster.warning("hello", "SignFailed", "error: ").await;
    assert!(
        said.contains("certificate") && said.contains("kubectl logs -n default job/"),
        "{said}"
    );
    let sets = cluster.get(DAEMON_SETS).await;
    assert_eq!(sets["items"].as_array().unwrap().len(), 0, "{sets}");
}

/// A whole cluster that loses its power while images are built, and again while they are signed,
/// goes on from what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn kms_49_builds_and_signatures_go_on_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let plan = || Plan::new(env!("CARGO_BIN_EXE_gantry")).data(folder.path());
    let mut running = cluster(plan()).await;
    create_secrets(&running, "rsa2048").await;
    let port: u16 = host(&running).rsplit_once(':').unwrap().1.parse().unwrap();
    // Enough files that a build and a signature take a while.
    let mut dockerfile = DOCKERFILE.to_owned();
    let files: Vec<String> = (0..3000).map(|it| format!("printf {it} > /data/{it}")).collect();
    dockerfile += &format!("RUN {}\n", files.join(" && "));
    running.post(MODULES, &signed(built(&running, "hello", &dockerfile), &["hello"])).await;
    for job_type in ["build", "sign"] {
        let pods = format!("{PODS}?labelSelector=ooto.sigs.k8s.io/job-type%3D{job_type}");
        let runs = |it: &Value| {
            let mut pods = it["items"].as_array().into_iter().flatten();
            pods.any(|it| {
                ["Running", "Succeeded"].iter().any(|phase| it["status"]["phase"] == *phase)
            })
        };
        running.wait_until(&pods, "a pod runs", runs).await;
        running.stop(Signal::KILL).await;
        running = Cluster::start(plan().port(port)).await;
    }
    let path = format!("{MODULES}/hello");
    running.wait_until(&path, "is ready on three kernels", |it| ready(it)[0] == 3).await;
    let is_loaded = |it: &Value| loaded(it) == ["hello"];
    running.wait_until(NODES, "have the module", |it| all_have(it, is_loaded)).await;
    let jobs = running.get(JOBS).await;
    let has_failed = |it: &Value| it["status"]["failed"].as_u64().unwrap_or_default() > 0;
    assert!(!jobs["items"].as_array().unwrap().iter().any(has_failed), "{jobs:#}");
}
