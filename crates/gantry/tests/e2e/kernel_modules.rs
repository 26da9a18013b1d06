//! Modules on a real control plane with a real node: buildah builds in a Job, our image signs in a
//! Job, real kernels load the result in virtual machines, and a kubelet runs driver containers and
//! device plugins.
//!
//! The kernel of the machine that runs the tests may have no modules, so its driver container only
//! sleeps. The kernels that modules are built for belong to nodes without a kubelet, which are
//! cordoned: no Job runs there.
#![expect(clippy::panic, reason = "all of this is tests, and failures show what led to them")]

mod admission;
mod registry;
mod virtual_machine;

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster, StartError};
use gantry_testkit::http::{Protocol, Request};
use gantry_testkit::kernel::{Kernel, Kernels, SigningKey};
use serde_json::{Value, json};

use self::registry::{PulledImage, Registry, program};
use self::virtual_machine::{GREETING, in_tree_name, module_path, run_hooks};
use super::say;
use crate::shared_operator::{Site, manifests};
use crate::shared_process::Operator;

const NAMESPACE: &str = "/api/v1/namespaces/drivers";
const MODULES: &str = "/apis/ooto.sigs.k8s.io/v1alpha1/namespaces/drivers/modules";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/drivers/daemonsets";
const JOBS: &str = "/apis/batch/v1/namespaces/drivers/jobs";
const PODS: &str = "/api/v1/namespaces/drivers/pods";
const REAL_NODE: &str = "/api/v1/nodes/node-0";
const MERGE: &str = "application/merge-patch+json";

/// The safety net for what must come: several times what a build takes on a loaded machine.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The annotation of DaemonSets and Jobs with their kernel.
const KERNEL: &str = "ooto.sigs.k8s.io/kernel-version";
const ROLE: &str = "ooto.sigs.k8s.io/role";
const TOKEN: &str = "open sesame";

/// What the tests need beside the real node, or why they are skipped.
fn kernels_and_registry(test: &str) -> Option<(Kernels, Registry)> {
    let skip = |why: &str| {
        say(&format!("skipped: {test}: {why}"));
        None
    };
    match Nodes::Real.check() {
        Ok(()) => {}
        Err(StartError::Unfit(reason)) => return skip(&reason.to_string()),
        Err(error) => panic!("{error}"),
    }
    let kernels = match Kernels::find() {
        Ok(kernels) => kernels,
        Err(reason) => return skip(&reason.to_string()),
    };
    if kernels.builder_images().is_none() {
        return skip("no images of builds: run `testbed/builder` as root");
    }
    let Some(docker_registry) = program("docker-registry") else {
        return skip("docker-registry is not installed: run `testbed/images` as root");
    };
    if program("skopeo").is_none() || !virtual_machine::has_shell() {
        return skip("skopeo or dash is not installed: run `testbed/images` as root");
    }
    Some((kernels, Registry::start(&docker_registry)))
}

/// Brings the manifests of the operator. Their Deployment has no pods: the operator runs here, and
/// its image is in no registry.
async fn install(real: &RealCluster, clock: &Clock) -> Site {
    let client = real.admin().http(Protocol::Http2, clock.clone()).unwrap();
    let patch = |path: &'static str, patch: Value| {
        let client = client.clone();
        async move {
            let answer = client.send(Request::patch(path, MERGE, &patch)).await.unwrap();
            crate::shared_operator::done(&answer)
        }
    };
    patch(REAL_NODE, json!({"spec": {"unschedulable": true}})).await;
    let site = Site::new(real.admin().target(), clock).await;
    let deployment = "/apis/apps/v1/namespaces/gantry-system/deployments/gantry-operator";
    patch(deployment, json!({"spec": {"replicas": 0}})).await;
    site.until(deployment, |it| it["status"]["observedGeneration"] == 2).await;
    patch(REAL_NODE, json!({"spec": {"unschedulable": null}})).await;
    site
}

/// A real cluster with an operator that manages Modules.
struct TestCluster {
    /// It ends before its server does.
    operator: Option<Operator>,
    real: RealCluster,
    site: Site,
    clock: Clock,
    folder: tempfile::TempDir,
}

impl TestCluster {
    async fn start(registry: &Registry) -> Self {
        let clock = Clock::system();
        let real = Box::pin(RealCluster::plan().nodes(Nodes::Real).start()).await.unwrap();
        real.allow_plain_registry(&registry.address).unwrap();
        let site = install(&real, &clock).await;
        site.install_definitions().await;
        // A definition is served a moment after it is there.
        site.until(MODULES, |it| it["kind"] == "ModuleList").await;
        site.apply_file(&manifests().join("optional/modules.yaml")).await;
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self { real, site, clock, operator: None, folder };
        let isolation = cluster.isolation().await;
        let config = json!({
            "mcadEnabled": false,
            "clientConnection": {"qps": -1},
            "leaderElection": {"leaderElect": false},
            "health": {"bindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "modules": {
                "enabled": true,
                "builder": {"image": registry.image("builder:1"), "isolation": isolation},
                // Logs of Jobs are what a failure is understood by.
                "job": {"image": registry.image("gantry:e2e"), "gcDelay": "1h"},
            },
        });
        std::fs::write(cluster.folder.path().join("gantry.yaml"), config.to_string()).unwrap();
        cluster.start_operator().await;
        let namespace = json!({"metadata": {"name": "drivers"}});
        cluster.site.create("/api/v1/namespaces", &namespace).await;
        cluster
    }

    /// How builds are isolated on this node.
    async fn isolation(&self) -> &'static str {
        let node = self.site.until(REAL_NODE, |_| true).await;
        let handlers = node["status"]["runtimeHandlers"].as_array().cloned().unwrap_or_default();
        let has = |it: &Value| it["features"]["userNamespaces"] == true;
        if handlers.iter().any(has) {
            return "userNamespace";
        }
        let runtime = &node["status"]["nodeInfo"]["containerRuntimeVersion"];
        say(&format!(
            "builds run with modules.builder.isolation: unconfined: {runtime} creates no user \
             namespaces for pods"
        ));
        "unconfined"
    }

    async fn start_operator(&mut self) {
        let kubeconfig = self.site.kubeconfig().await;
        let config = self.folder.path().join("gantry.yaml");
        let flags = [
            "--config-file",
            config.to_str().unwrap(),
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        self.operator = Some(Operator::start(&flags));
    }

    /// Asks until the answer is as wanted. A Job that fails ends the test at once.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let give_up = self.clock.moment() + CONDITION_TIMEOUT;
        loop {
            let answer = self.site.get(path).await.json().unwrap_or(Value::Null);
            if wanted(&answer) {
                return answer;
            }
            let jobs = self.list(JOBS).await;
            let failed = jobs.iter().find(|it| it["status"]["failed"].as_u64() > Some(0));
            let failed = failed.map(|it| &it["metadata"]["name"]);
            if failed.is_some() || self.clock.moment() > give_up {
                let state = self.state();
                panic!("{path}: failed Job: {failed:?}; last answer: {answer:#}\n{state}");
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// What a person needs to understand a failure.
    fn state(&self) -> String {
        let kubectl = |words: &[&str]| {
            let output = self.real.admin().kubectl().args(words).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            format!("--- kubectl {}\n{}\n", words.join(" "), String::from_utf8_lossy(&said))
        };
        let all = ["pods,jobs,daemonsets,modules.ooto.sigs.k8s.io", "-n", "drivers", "-o", "wide"];
        let mut state = kubectl(&[&["get"], &all[..]].concat());
        state += &kubectl(&["get", "events", "-n", "drivers"]);
        let selector = "job-name";
        state +=
            &kubectl(&["logs", "-n", "drivers", "-l", selector, "--all-containers", "--tail=60"]);
        state
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let list: Value = self.site.get(path).await.json().unwrap_or(Value::Null);
        list["items"].as_array().cloned().unwrap_or_default()
    }

    async fn patch(&self, path: &str, patch: &Value) -> Value {
        let answer = self.site.admin.send(Request::patch(path, MERGE, patch)).await.unwrap();
        crate::shared_operator::done(&answer)
    }

    /// Adds a node that has a kernel and no kubelet.
    async fn add_node(&self, name: &str, kernel: &Kernel) {
        let node = json!({
            "metadata": {
                "name": name,
                "labels": {"example.com/hello": "true", "kubernetes.io/arch": "amd64"},
            },
            "spec": {"unschedulable": true},
            "status": {"nodeInfo": {
                "kernelVersion": kernel.release(), "architecture": "amd64",
                "operatingSystem": "linux", "osImage": "", "containerRuntimeVersion": "",
                "kubeletVersion": "", "kubeProxyVersion": "", "machineID": "", "systemUUID": "",
                "bootID": "",
            }},
        });
        self.site.create("/api/v1/nodes", &node).await;
    }

    async fn add_secret(&self, name: &str, key: &str, value: &str) {
        let secret = json!({"metadata": {"name": name}, "stringData": {key: value}});
        self.site.create(&format!("{NAMESPACE}/secrets"), &secret).await;
    }

    /// The pods of a part of a Module that run and are not about to end.
    async fn ready_pods(&self, module: &str, part: &str) -> Vec<Value> {
        let selector = format!("oot.node.kubernetes.io/module.name={module},{ROLE}={part}");
        let path = format!("{PODS}?labelSelector={}", selector.replace(',', "%2C"));
        let mut pods = self.list(&path).await;
        pods.retain(|it| {
            let statuses = it["status"]["containerStatuses"].as_array();
            it["metadata"]["deletionTimestamp"].is_null()
                && statuses.is_some_and(|all| all.iter().all(|one| one["ready"] == true))
        });
        pods
    }

    /// Waits for the only pod of a part that runs an image.
    async fn pod_with(&self, module: &str, part: &str, image: &str) -> Value {
        let give_up = self.clock.moment() + CONDITION_TIMEOUT;
        loop {
            let pods = self.ready_pods(module, part).await;
            let found = pods.iter().find(|it| it["spec"]["containers"][0]["image"] == image);
            if let Some(pod) = found {
                return pod.clone();
            }
            assert!(self.clock.moment() < give_up, "no {part} with {image}\n{}", self.state());
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn daemon_set(&self, module: &str, part: &str) -> Value {
        let wanted = |it: &Value| {
            let labels = &it["metadata"]["labels"];
            labels["oot.node.kubernetes.io/module.name"] == module && labels[ROLE] == part
        };
        let found = self.list(DAEMON_SETS).await.into_iter().find(wanted);
        found.unwrap_or_else(|| panic!("no {part} of {module}"))
    }
}

/// The Module that is built and signed for every kernel of Debian's cloud images.
fn hello(registry: &Registry, kernels: &Kernels) -> Value {
    let leaves = kernels.all().iter().map(|it| it.leaf_module().unwrap());
    let mut in_tree_modules: Vec<String> = leaves.map(|it| in_tree_name(&it)).collect();
    in_tree_modules.dedup();
    let plain = json!({"insecure": true});
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
        "metadata": {"name": "hello", "namespace": "drivers"},
        "spec": {
            "selector": {"example.com/hello": "true"},
            "driverContainer": {"container": {
                "containerImage": registry.image("hello:v1-${KERNEL_FULL_VERSION}"),
                "kernelMappings": [{"regexp": "-cloud-amd64$"}],
                "registryTLS": plain,
                "modprobe": {"moduleName": "hello", "parameters": [format!("greeting={GREETING}")]},
                "inTreeModulesToRemove": in_tree_modules,
                "build": {
                    "dockerfile": include_str!("kernel_modules/source/Dockerfile"),
                    "contextConfigMap": {"name": "hello-source"},
                    "buildArgs": [
                        {"name": "TOOLCHAIN", "value": registry.image("toolchain:1")},
                        {"name": "SHELL_IMAGE", "value": registry.image("shell:1")},
                        {"name": "COLOUR", "value": "$(blue) $green"},
                    ],
                    "pull": plain,
                    "secrets": [{"name": "build-token"}],
                    "selector": {"kubernetes.io/hostname": "node-0"},
                },
                "sign": {
                    "keySecret": {"name": "signing-key"},
                    "certSecret": {"name": "signing-cert"},
                    "filesToSign": ["/opt/lib/modules/${KERNEL_FULL_VERSION}/*.ko"],
                },
            }},
        },
    })
}

/// The Module whose driver container runs on the real node: its image is there already.
fn present(registry: &Registry, kernel: &str, driver_image: &str) -> Value {
    // The first process of a container ignores signals that it has not asked for.
    let sleep = json!(["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]);
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
        "metadata": {"name": "present", "namespace": "drivers"},
        "spec": {
            "selector": {"kubernetes.io/hostname": "node-0"},
            "driverContainer": {
                "container": {
                    "command": sleep,
                    "kernelMappings": [{"literal": kernel, "containerImage": driver_image}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                },
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "imageRepoSecrets": [{"name": "registry"}],
            },
            "devicePlugin": {
                "container": {"image": registry.image("plugin:1"), "command": sleep},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_86_kms_87_kms_20_kms_21_kms_23_kms_24_and_kms_89_modules_are_built_signed_and_run() {
    let test =
        "kms_86_kms_87_kms_20_kms_21_kms_23_kms_24_and_kms_89_modules_are_built_signed_and_run";
    let Some((kernels, registry)) = kernels_and_registry(test) else { return };
    let clock = Clock::system();
    let began = clock.moment();
    let took = |what: &str| say(&format!("{what}: {:.0?} after the start", clock.moment() - began));
    let layers = kernels.builder_images().unwrap();
    registry.push_archive("builder:1", &layers.builder).await;
    registry.push_archive("toolchain:1", &layers.toolchain).await;
    let busybox = program("busybox").unwrap();
    for name in ["shell:1", "plugin:1", "plugin:2"] {
        registry.push_shell(name, &busybox, name).await;
    }
    registry.push_gantry("gantry:e2e");
    took("images are in the registry");
    let mut cluster = TestCluster::start(&registry).await;
    took("the cluster runs");

    let key = SigningKey::rsa("drivers of the test").unwrap();
    let signed = build_and_sign(&cluster, &registry, &kernels, &key).await;
    took("images are built and signed");
    run_on_real_node(&mut cluster, &registry, &signed).await;
    took("driver container and device plugin have run on the node");
    drop(cluster);
    for (kernel, image) in kernels.all().iter().zip(&signed) {
        load(kernel, image, (&key, &kernels)).await;
        took(&format!("kernel {} has loaded the modules", kernel.release()));
    }
}

/// A signed image of one kernel, with the hooks of its driver container.
struct SignedImage {
    name: String,
    image: PulledImage,
    lifecycle: Value,
}

/// Waits until the Jobs have made an image for every kernel, and reads the images.
async fn build_and_sign(
    cluster: &TestCluster,
    registry: &Registry,
    kernels: &Kernels,
    key: &SigningKey,
) -> Vec<SignedImage> {
    cluster.add_secret("build-token", "token", TOKEN).await;
    cluster.add_secret("signing-key", "key", &key.key).await;
    cluster.add_secret("signing-cert", "cert", &key.certificate).await;
    let source = json!({"metadata": {"name": "hello-source"}, "data": {
        "Makefile": include_str!("kernel_modules/source/Makefile"),
        "hello.c": include_str!("kernel_modules/source/hello.c"),
        "hello_base.c": include_str!("kernel_modules/source/hello_base.c"),
    }});
    cluster.site.create(&format!("{NAMESPACE}/configmaps"), &source).await;
    for (number, kernel) in kernels.all().iter().enumerate() {
        cluster.add_node(&format!("kernel-{number}"), kernel).await;
    }
    cluster.site.create(MODULES, &hello(registry, kernels)).await;
    let count = kernels.all().len();
    let found =
        cluster.until(DAEMON_SETS, |it| it["items"].as_array().map_or(0, Vec::len) == count);
    let daemon_sets = found.await["items"].as_array().unwrap().clone();
    let mut signed = Vec::new();
    for kernel in kernels.all() {
        let release = kernel.release();
        let of_kernel = |it: &&Value| it["metadata"]["annotations"][KERNEL] == release;
        let daemon_set = daemon_sets.iter().find(of_kernel).unwrap();
        let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
        let tag = release.replace('+', "_");
        let name = registry.image(&format!("hello:v1-{tag}"));
        assert_eq!(container["image"], name.as_str());
        let image = registry.pull(&name).await;
        let lifecycle = container["lifecycle"].clone();
        check_content(&image, release);
        // What was built is kept under a name of its own, and is not signed.
        let unsigned = registry.pull(&format!("{name}_drivers_hello_unsigned")).await;
        let path = module_path(release, "hello");
        let (unsigned, with) = (&unsigned.files("/opt")[&path], &image.files("/opt")[&path]);
        assert_eq!(gantry_testkit::kernel::unsigned(unsigned), &unsigned[..]);
        assert_eq!(gantry_testkit::kernel::unsigned(with), &unsigned[..]);
        assert!(with.len() > unsigned.len());
        signed.push(SignedImage { name, image, lifecycle });
    }
    signed
}

/// KMS-87: what the build was given is in the image.
fn check_content(image: &PulledImage, release: &str) {
    let files = image.files("/opt");
    let text = |path: &str| String::from_utf8_lossy(&files[path]).into_owned();
    assert_eq!(text("/opt/proof/secret"), TOKEN);
    assert_eq!(text("/opt/proof/arguments"), format!("$(blue) $green round {release}\n"));
    let dependencies = text(&format!("/opt/lib/modules/{release}/modules.dep"));
    assert!(dependencies.contains("hello.ko: hello_base.ko"), "{dependencies}");
    for name in ["hello", "hello_base"] {
        let module = &files[&module_path(release, name)];
        let info = gantry_kmod::ModuleInfo::parse(module).unwrap();
        assert!(info.vermagic().unwrap().starts_with(&format!("{release} ")), "{info:?}");
    }
}

/// KMS-86: the hooks of the driver container remove the in-tree module and load both modules in a
/// kernel that enforces signatures; afterwards all are gone.
async fn load(kernel: &Kernel, signed: &SignedImage, (key, kernels): (&SigningKey, &Kernels)) {
    let files = signed.image.files("/opt");
    let tools = (key, kernels.sign_file());
    let outcome = run_hooks(kernel, &files, &signed.lifecycle, tools).await;
    assert_eq!(outcome.release, kernel.release());
    assert!(outcome.enforced);
    let [hooks, unsigned] = &outcome.attempts[..] else { panic!("{outcome:?}") };
    assert_eq!(hooks.status, 0, "{hooks:?}");
    let line = |name: &str| {
        let mut lines = hooks.output.lines();
        let found = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
        found.unwrap_or_else(|| panic!("{hooks:?}")).trim().to_owned()
    };
    let in_tree = in_tree_name(&kernel.leaf_module().unwrap()).replace('-', "_");
    assert_eq!(line("before"), in_tree);
    assert_eq!(line("loaded"), "hello hello_base", "the in-tree module was removed");
    assert_eq!(line("unloaded"), "", "all are gone");
    assert!(hooks.output.lines().any(|line| line == GREETING), "{hooks:?}");
    assert!(hooks.has_message(&format!("hello: {GREETING}, 42")), "{hooks:?}");
    assert!(!unsigned.is_loaded() && unsigned.status == 129, "{unsigned:?}");
}

/// Runs signed images as driver containers, with a device plugin, on the real node.
async fn run_on_real_node(cluster: &mut TestCluster, registry: &Registry, signed: &[SignedImage]) {
    let node: Value = cluster.site.get(REAL_NODE).await.json().unwrap();
    let kernel = node["status"]["nodeInfo"]["kernelVersion"].as_str().unwrap().to_owned();
    let [first, second, ..] = signed else { panic!("two kernels") };
    let module = cluster.site.create(MODULES, &present(registry, &kernel, &first.name)).await;
    let driver = cluster.pod_with("present", "driver-container", &first.name).await;
    // The node runs what the signing Job has pushed.
    let image_id = driver["status"]["containerStatuses"][0]["imageID"].as_str().unwrap();
    assert!(image_id.ends_with(first.image.digest.as_str()), "{image_id}");
    let plugin_image = registry.image("plugin:1");
    let plugin = cluster.pod_with("present", "device-plugin", &plugin_image).await;
    let ready = |it: &Value| {
        let labels = &it["metadata"]["labels"];
        let has =
            |what: &str| labels[format!("oot.node.kubernetes.io/drivers.present.{what}")] == "";
        has("ready") && has("device-plugin-ready")
    };
    cluster.until(REAL_NODE, ready).await;
    let status = format!("{MODULES}/present");
    let is_ready = |it: &Value| {
        ["driverContainer", "devicePlugin"].iter().all(|part| {
            let status = &it["status"][part];
            status["desiredNumberScheduled"] == 1 && status["numberReady"] == 1
        })
    };
    cluster.until(&status, is_ready).await;
    let driver_set = cluster.daemon_set("present", "driver-container").await;
    let plugin_set = cluster.daemon_set("present", "device-plugin").await;
    check_driver(&driver_set, &module, &kernel);
    check_plugin(&plugin_set);

    // KMS-89: an operator that is killed, and the next one.
    cluster.operator = None;
    cluster.start_operator().await;
    // The new one is at work when it has corrected this.
    let wrong = json!({"status": {"driverContainer": {"numberReady": 7}}});
    cluster.patch(&format!("{status}/status"), &wrong).await;
    cluster.until(&status, is_ready).await;
    for pod in [&driver, &plugin] {
        let part = pod["metadata"]["labels"][ROLE].as_str().unwrap();
        let pods = cluster.ready_pods("present", part).await;
        assert_eq!(pods.len(), 1, "{pods:#?}");
        assert_eq!(pods[0]["metadata"]["uid"], pod["metadata"]["uid"], "no pod was replaced");
        assert_eq!(pods[0]["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    let again = cluster.daemon_set("present", "driver-container").await;
    assert_eq!(again["metadata"]["generation"], driver_set["metadata"]["generation"]);

    // KMS-23: another image of the device plugin.
    let other_plugin = registry.image("plugin:2");
    let patch = json!({"spec": {"devicePlugin": {"container": {"image": other_plugin}}}});
    cluster.patch(&status, &patch).await;
    let changed_plugin = cluster.pod_with("present", "device-plugin", &other_plugin).await;
    assert_ne!(changed_plugin["metadata"]["uid"], plugin["metadata"]["uid"]);
    let pods = cluster.ready_pods("present", "driver-container").await;
    assert_eq!(pods[0]["metadata"]["uid"], driver["metadata"]["uid"], "the driver was not touched");
    let after = cluster.daemon_set("present", "driver-container").await;
    assert_eq!(after["metadata"]["generation"], driver_set["metadata"]["generation"]);

    // KMS-24: another image of the driver, in the same DaemonSet.
    let plugin_set = cluster.daemon_set("present", "device-plugin").await;
    let mut changed = present(registry, &kernel, &second.name);
    changed["spec"]["devicePlugin"]["container"]["image"] = json!(other_plugin);
    cluster.patch(&status, &json!({"spec": changed["spec"]})).await;
    let other_driver = cluster.pod_with("present", "driver-container", &second.name).await;
    let image_id = other_driver["status"]["containerStatuses"][0]["imageID"].as_str().unwrap();
    assert!(image_id.ends_with(second.image.digest.as_str()), "{image_id}");
    let after = cluster.daemon_set("present", "driver-container").await;
    assert_eq!(after["metadata"]["uid"], driver_set["metadata"]["uid"], "the same DaemonSet");
    let after = cluster.daemon_set("present", "device-plugin").await;
    for field in ["uid", "generation"] {
        assert_eq!(after["metadata"][field], plugin_set["metadata"][field]);
    }
    // Its pod ends with the driver that it needs (KMS-33), and comes back with the next one.
    cluster.pod_with("present", "device-plugin", &other_plugin).await;

    // What was loaded is unloaded before the Module is gone.
    let answer = cluster.site.admin.send(Request::delete(&*status)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    cluster.until(&status, |it| it["code"] == 404).await;
    for part in ["driver-container", "device-plugin"] {
        let pods = cluster.ready_pods("present", part).await;
        assert!(pods.is_empty(), "{pods:#?}");
    }
    let node = cluster.until(REAL_NODE, |it| !ready(it)).await;
    let labels = node["metadata"]["labels"].as_object().unwrap();
    assert!(!labels.keys().any(|it| it.contains("drivers.present")), "{labels:?}");
}

/// KMS-20.
fn check_driver(daemon_set: &Value, module: &Value, kernel: &str) {
    let label = kernel.replace('+', "_");
    let labels = json!({
        "oot.node.kubernetes.io/module.name": "present",
        ROLE: "driver-container",
        "oot.node.kubernetes.io/kernel-version.full": label,
    });
    assert_eq!(daemon_set["metadata"]["labels"], labels);
    assert_eq!(daemon_set["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(daemon_set["metadata"]["annotations"][KERNEL], kernel);
    let owner = &daemon_set["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Module"), &json!(true)));
    assert_eq!(owner["uid"], module["metadata"]["uid"]);
    let pod = &daemon_set["spec"]["template"]["spec"];
    let selector = json!({
        "kubernetes.io/hostname": "node-0",
        "oot.node.kubernetes.io/kernel-version.full": label,
    });
    assert_eq!(pod["nodeSelector"], selector);
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(pod["serviceAccountName"], "present-driver-container");
    let security = &pod["containers"][0]["securityContext"];
    assert_eq!(security["capabilities"], json!({"add": ["SYS_MODULE"]}));
    assert_eq!(security["privileged"], Value::Null);
    let volumes: Vec<&str> =
        pod["volumes"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(volumes, ["node-lib-modules", "node-usr-lib-modules", "scratch"]);
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let read_only = |path: &str| {
        let mount = mounts.iter().find(|it| it["mountPath"] == path);
        mount.unwrap_or_else(|| panic!("{mounts:?}"))["readOnly"] == true
    };
    assert!(read_only("/lib/modules") && read_only("/usr/lib/modules"), "{mounts:?}");
    assert_eq!(mounts.last().unwrap()["mountPath"], "/scratch");
}

/// KMS-21.
fn check_plugin(daemon_set: &Value) {
    let pod = &daemon_set["spec"]["template"]["spec"];
    let selector = json!({"oot.node.kubernetes.io/drivers.present.ready": ""});
    assert_eq!(pod["nodeSelector"], selector);
    assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
    let mount = &pod["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/lib/kubelet/device-plugins");
    assert_eq!(mount["readOnly"], Value::Null);
}
