//! Containers that load modules of their image into the kernel of their node.

use std::collections::BTreeSet;

use gantry_reconcile::Observer as _;

use super::*;
use crate::image::tests::{RELEASE, TestRegistry, module};
use crate::image::{ImageFiles as _, RegistryImages};
use crate::kernel::KernelState;
use crate::kubelet::{SimulatedNodes, annotation};
use crate::view::PulledImage;

const IMAGE: &str = "reg:1/default/driver:v1";

/// A cluster with one node and one pod, whose only container is a driver container.
struct Cluster {
    test_world: TestWorld<'static>,
    registry: TestRegistry,
    images: RegistryImages,
    facts: Arc<FakeRecorder>,
    observer: &'static ProgramObserver,
    tasks: Tasks,
    stop: CancellationToken,
    /// How many states of programs were delivered.
    delivered: usize,
}

/// The nodes' controller and the pods' one, in the order of [`TestWorld`].
const PODS: usize = 0;
const NODES: usize = 1;

impl Cluster {
    fn start(address: &str, annotations: &Value, container: &Value) -> Self {
        let settings = Settings {
            registries: Arc::new(BTreeSet::from(["reg:1".to_owned()])),
            ..Settings::default()
        };
        let (observer, runner) = programs(ProgramRegistry::default(), settings.clone());
        let pods: &'static SimulatedPods =
            Box::leak(Box::new(SimulatedPods::new(settings.clone())));
        let nodes: &'static SimulatedNodes = Box::leak(Box::new(SimulatedNodes::new(settings)));
        let observer: &'static ProgramObserver = Box::leak(Box::new(observer));
        let mut test_world = TestWorld::with_observers(&[pods, nodes], &[observer]);
        let mut all = json!({
            "kwok.x-k8s.io/node": "fake", annotation::KERNEL: RELEASE,
        });
        for (name, value) in annotations.as_object().unwrap() {
            all[name] = value.clone();
        }
        test_world.put::<Node>(json!({
            "metadata": {"name": "n1", "annotations": all},
            "spec": {"podCIDR": address},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        }));
        test_world.reconcile(NODES, &Key::cluster("n1"));
        test_world.put::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [container], "volumes": [
                {"name": "modules", "hostPath": {"path": "/lib/modules"}},
            ]},
        }));
        let registry = TestRegistry::default();
        let images = RegistryImages::new(registry.clone());
        let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
        let facts = Arc::new(FakeRecorder::default());
        let host = ProgramHost {
            images: Some(Arc::new(images.clone())),
            ..ProgramHost::new(Arc::clone(&facts) as Arc<dyn ProgramRecorder>)
        };
        let (own, world) = (tasks.child(), Arc::new(test_world.world.clone()));
        tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
            runner.run(own, world, host).await;
            Ok(())
        });
        Self { test_world, registry, images, facts, observer, tasks, stop, delivered: 0 }
    }

    /// Pulls the image as the runtime does, and lets the kubelet go on.
    async fn pull(&mut self) {
        let pull = crate::image::tests::pull(IMAGE);
        let pulled = match self.images.resolve(&pull).await {
            Ok(digest) => PulledImage::Present { digest },
            Err(error) => PulledImage::Unavailable { message: error.message(IMAGE) },
        };
        self.test_world.world.facts().record(pull, pulled, self.test_world.now);
        self.test_world.reconcile_until_stable(PODS, &key());
    }

    /// Waits for a state of the program, and delivers it to the kubelet.
    async fn next(&mut self) -> Program {
        let program = self.facts.next().await;
        self.delivered += 1;
        let container = ContainerKey::new(&key(), "c");
        let (world, now) = (&self.test_world.world, self.test_world.now);
        let change = world.facts().record(container, program.clone(), now);
        self.observer.observe_fact(world, &change);
        self.test_world.reconcile_until_stable(PODS, &key());
        program
    }

    /// Delivers states until the pod is ready.
    async fn until_ready(&mut self) {
        while !self.test_world.pod("p").is_ready() {
            self.next().await;
        }
    }

    fn waiting(&self) -> [String; 2] {
        let waiting = &self.test_world.status("p")["containerStatuses"][0]["state"]["waiting"];
        ["reason", "message"].map(|it| waiting[it].as_str().unwrap_or_default().to_owned())
    }

    /// Delivers the last state of the kernel to the node's kubelet, and returns its modules.
    fn loaded_modules(&mut self) -> Vec<String> {
        let last = self.facts.kernels.lock().unwrap().last().cloned();
        if let Some((node, Some(state))) = last {
            assert_eq!(node, "n1");
            let now = self.test_world.now;
            self.test_world.world.facts().record(Key::cluster("n1"), state, now);
        }
        self.test_world.reconcile(NODES, &Key::cluster("n1"));
        let node = self.test_world.object::<Node>(&Key::cluster("n1")).unwrap();
        let text = &node["metadata"]["annotations"][annotation::LOADED_MODULES];
        let state: KernelState = match text.as_str() {
            Some(text) => serde_json::from_str(text).unwrap(),
            None => KernelState::default(),
        };
        state.modules.into_iter().map(|it| it.name).collect()
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join().await.unwrap();
    }
}

fn tree(file: &str) -> String {
    format!("/opt/lib/modules/{RELEASE}/{file}")
}

fn container(more: &Value) -> Value {
    let mut container = json!({
        "name": "c", "image": IMAGE,
        "securityContext": {"capabilities": {"add": ["SYS_MODULE"]}},
        "volumeMounts": [{"name": "modules", "mountPath": "/lib/modules"}],
        "command": ["sleep", "infinity"],
        "lifecycle": {
            "postStart": {"exec": {"command": ["modprobe", "-vd", "/opt", "hello"]}},
            "preStop": {"exec": {"command": ["modprobe", "-rvd", "/opt", "hello"]}},
        },
    });
    for (field, value) in more.as_object().unwrap() {
        container[field] = value.clone();
    }
    container
}

fn push(cluster: &Cluster) {
    let files = [tree("hello.ko"), tree("base.ko")];
    let files = vec![
        (files[0].as_str(), module("hello", &["base", "crc-itu-t"])),
        (files[1].as_str(), module("base", &[])),
    ];
    cluster.registry.push(IMAGE, files);
}

/// From a missing image to a loaded module, and back.
#[tokio::test]
async fn a_driver_container_loads_and_removes_its_module() {
    let mut cluster = Cluster::start("127.210.16.0/20", &json!({}), &container(&json!({})));
    cluster.test_world.reconcile_until_stable(PODS, &key());
    assert_eq!(cluster.waiting()[0], "ContainerCreating", "nothing is known yet");
    cluster.pull().await;
    let [reason, message] = cluster.waiting();
    assert_eq!(reason, "ErrImagePull");
    assert!(message.ends_with("reg:1/default/driver:v1: not found"), "{message}");
    cluster.test_world.now += jiff::SignedDuration::from_secs(10);
    cluster.pull().await;
    assert_eq!(cluster.waiting()[0], "ImagePullBackOff");

    push(&cluster);
    cluster.pull().await;
    let status = cluster.test_world.status("p");
    let image_id = status["containerStatuses"][0]["imageID"].as_str().unwrap();
    assert!(image_id.starts_with("reg:1/default/driver@sha256:"), "{image_id}");
    cluster.until_ready().await;
    assert_eq!(cluster.loaded_modules(), ["base", "crc_itu_t", "hello"]);
    // Commands that are executed in the container see the same.
    let root = cluster.observer.root("uid-p", "c");
    assert!(root.image().is_some() && root.has_host_modules());

    let until = cluster.test_world.now + jiff::SignedDuration::from_secs(30);
    cluster.test_world.edit::<Pod>(&key(), |it| {
        it["metadata"]["deletionTimestamp"] = json!(until.to_string());
        it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    let program = loop {
        let program = cluster.next().await;
        if matches!(program.state, ProgramState::Exited { .. }) {
            break program;
        }
    };
    assert!(matches!(program.state, ProgramState::Exited { code: 143, .. }), "{program:?}");
    assert_eq!(program.failed_hook, None);
    assert_eq!(cluster.loaded_modules(), Vec::<String>::new());
    cluster.end().await;
}

/// A container whose module is refused is killed and restarted, and its pod says why.
#[tokio::test]
async fn a_refused_module_fails_the_hook() {
    let enforce = json!({annotation::MODULE_SIGNATURES: "enforce"});
    let mut cluster = Cluster::start("127.211.16.0/20", &enforce, &container(&json!({})));
    push(&cluster);
    cluster.test_world.reconcile_until_stable(PODS, &key());
    cluster.test_world.take_events();
    cluster.pull().await;
    let program = loop {
        let program = cluster.next().await;
        if matches!(program.state, ProgramState::Exited { .. }) {
            break program;
        }
        assert!(!cluster.test_world.pod("p").is_ready(), "the hook has not succeeded");
    };
    let failed = program.failed_hook.unwrap();
    assert_eq!(failed.hook, Hook::PostStart);
    let words = "modprobe: ERROR: could not insert 'hello': Key was rejected by service";
    assert!(failed.message.ends_with(words), "{}", failed.message);
    let events = cluster.test_world.take_events();
    let event = events.iter().find(|it| it.starts_with("FailedPostStartHook: ")).unwrap();
    assert!(event.contains("Key was rejected by service"), "{event}");
    assert_eq!(cluster.test_world.status("p")["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(cluster.loaded_modules(), Vec::<String>::new());
    cluster.end().await;
}

/// A container without a command runs that of its image; its output is logged, and its exit code is
/// that of its command.
#[tokio::test]
async fn commands_of_driver_containers_run_in_the_shell() {
    let script = "set -e; echo $FROM_IMAGE $OWN; modprobe -d '/opt' 'hello'; lsmod; exit 3";
    let more = json!({
        "command": ["/bin/sh", "-c", script], "lifecycle": {},
        "env": [{"name": "OWN", "value": "own"}],
        "securityContext": {"privileged": true},
    });
    let mut cluster = Cluster::start("127.212.16.0/20", &json!({}), &container(&more));
    push(&cluster);
    cluster.pull().await;
    let program = loop {
        let program = cluster.next().await;
        if matches!(program.state, ProgramState::Exited { .. }) {
            break program;
        }
    };
    assert!(matches!(program.state, ProgramState::Exited { code: 3, .. }), "{program:?}");
    let log = cluster.facts.log_lines.lock().unwrap().join("\n");
    assert!(log.contains("yes own\n"), "{log}");
    assert!(log.contains("hello                  16384  0\n"), "{log}");
    cluster.end().await;
}

/// A node that reboots with another kernel has loaded nothing, and its containers run their hooks
/// again.
#[tokio::test]
async fn a_reboot_restarts_containers_with_their_hooks() {
    let mut cluster = Cluster::start("127.213.16.0/20", &json!({}), &container(&json!({})));
    push(&cluster);
    cluster.pull().await;
    cluster.until_ready().await;
    let node = Key::cluster("n1");
    assert_eq!(cluster.loaded_modules().len(), 3);
    let info =
        |cluster: &Cluster| cluster.test_world.object::<Node>(&node).unwrap()["status"].clone();
    let before = info(&cluster);

    let release = "6.1.0-56-cloud-amd64";
    cluster.test_world.now += jiff::SignedDuration::from_secs(5);
    cluster.test_world.edit::<Node>(&node, |it| {
        it["metadata"]["annotations"][annotation::KERNEL] = json!(release);
    });
    cluster.test_world.reconcile(NODES, &node);
    cluster.test_world.reconcile(NODES, &node);
    let status = info(&cluster);
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["nodeInfo"]["kernelVersion"], RELEASE);
    cluster.facts.until(|it| !it.forgotten.lock().unwrap().is_empty()).await;
    assert!(cluster.test_world.reconcile(PODS, &key()).steps.is_empty(), "nothing runs there");
    cluster.test_world.now += jiff::SignedDuration::from_secs(2);
    cluster.test_world.reconcile(NODES, &node);
    let status = info(&cluster);
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["nodeInfo"]["kernelVersion"], release);
    assert_ne!(status["nodeInfo"]["bootID"], before["nodeInfo"]["bootID"]);

    cluster.facts.programs.lock().unwrap().clear();
    cluster.test_world.reconcile_until_stable(PODS, &key());
    let container = cluster.test_world.status("p")["containerStatuses"][0].clone();
    assert_eq!(container["restartCount"], 1);
    let last = &container["lastState"]["terminated"];
    assert_eq!([&last["exitCode"], &last["reason"]], [&json!(255), &json!("Unknown")]);
    // The module was built for the kernel before.
    let program = loop {
        let program = cluster.next().await;
        if program.failed_hook.is_some() {
            break program;
        }
    };
    assert_eq!(program.run, 1);
    let message = program.failed_hook.unwrap().message;
    let missing = format!("Module hello not found in directory /opt/lib/modules/{release}");
    assert!(message.contains(&missing), "{message}");
    assert_eq!(cluster.loaded_modules(), Vec::<String>::new());
    cluster.end().await;
}
