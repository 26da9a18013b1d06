//! Device plugins, whose devices are in the status of their node.

use gantry_reconcile::Observer as _;

use super::*;
use crate::kernel::{InsertRequest, in_tree_modules};
use crate::kubelet::{SimulatedNodes, annotation};

const RESOURCE: &str = "example.com/gpu";
const OWN_RESOURCE: &str = "example.com/own";

/// The pods' controller and the nodes' one, in the order of [`TestWorld`].
const PODS: usize = 0;
const NODES: usize = 1;

/// A cluster with one node, on which pods with one container each are device plugins.
struct Cluster {
    test_world: TestWorld<'static>,
    facts: Arc<FakeRecorder>,
    observer: &'static ProgramObserver,
    tasks: Tasks,
    stop: CancellationToken,
    pods: Vec<Key>,
}

fn node_key() -> Key {
    Key::cluster("n1")
}

impl Cluster {
    fn start() -> Self {
        let registry = ProgramRegistry::built_in();
        let settings = Settings { programs: Arc::new(registry.images()), ..Settings::default() };
        let (observer, runner) = programs(registry, settings.clone());
        let pods: &'static SimulatedPods =
            Box::leak(Box::new(SimulatedPods::new(settings.clone())));
        let nodes: &'static SimulatedNodes = Box::leak(Box::new(SimulatedNodes::new(settings)));
        let observer: &'static ProgramObserver = Box::leak(Box::new(observer));
        let mut test_world = TestWorld::with_observers(&[pods, nodes], &[observer]);
        let capacity = json!({"cpu": "4", "pods": "10", OWN_RESOURCE: "2"}).to_string();
        test_world.put::<Node>(json!({
            "metadata": {"name": "n1", "annotations": {
                "kwok.x-k8s.io/node": "fake", annotation::CAPACITY: capacity,
            }},
            "spec": {"podCIDR": "127.220.16.0/20"},
        }));
        test_world.reconcile_until_stable(NODES, &node_key());
        let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::with_seed(1), &stop);
        let facts = Arc::new(FakeRecorder::default());
        let host = ProgramHost::new(Arc::clone(&facts) as Arc<dyn ProgramRecorder>);
        let (own, world) = (tasks.child(), Arc::new(test_world.world.clone()));
        tasks.spawn("programs", OnLoss::EndOwner, |_| async move {
            runner.run(own, world, host).await;
            Ok(())
        });
        Self { test_world, facts, observer, tasks, stop, pods: Vec::new() }
    }

    /// Creates a pod with a device plugin.
    fn create(&mut self, name: &str, args: &str, host_path: &str) {
        let args: Vec<&str> = args.split_whitespace().collect();
        self.test_world.put::<Pod>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "containers": [{
                    "name": "c", "image": "gantry.dev/device-plugin:v1", "args": args,
                    "volumeMounts": [{
                        "name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins",
                    }],
                }],
                "volumes": [{"name": "plugins", "hostPath": {"path": host_path}}],
            },
        }));
        self.pods.push(Key::new("default", name));
        self.deliver();
    }

    fn create_plugin(&mut self, name: &str, args: &str) {
        self.create(name, args, "/var/lib/kubelet/device-plugins");
    }

    /// Delivers what was recorded to the kubelet, and lets it go on.
    fn deliver(&mut self) {
        let (world, now) = (&self.test_world.world, self.test_world.now);
        for (key, devices) in self.facts.devices.lock().unwrap().drain(..) {
            match devices {
                Some(devices) => drop(world.facts().record(key, devices, now)),
                None => drop(world.facts::<RegisteredDevices>().forget(&key)),
            }
        }
        while let Some(program) = self.facts.first() {
            let pod = Key::new("default", program.uid.as_str().trim_start_matches("uid-"));
            let change = world.facts().record(ContainerKey::new(&pod, "c"), program, now);
            self.observer.observe_fact(world, &change);
        }
        self.test_world.reconcile_until_stable(NODES, &node_key());
        for pod in self.pods.clone() {
            self.test_world.reconcile_until_stable(PODS, &pod);
        }
    }

    /// Returns the number of devices in the status of the node.
    fn offered(&self) -> Value {
        let status = &self.test_world.object::<Node>(&node_key()).unwrap()["status"];
        assert_eq!(status["capacity"], status["allocatable"]);
        assert_eq!(status["capacity"][OWN_RESOURCE], "2");
        status["capacity"][RESOURCE].clone()
    }

    async fn until_offered(&mut self, expected: &str) {
        self.deliver();
        while self.offered() != expected {
            self.facts.notify.notified().await;
            self.deliver();
        }
    }

    /// Delivers until the log of a container has a text.
    async fn until_logged(&mut self, text: &str) {
        self.facts.until(|it| it.log_lines.lock().unwrap().join("\n").contains(text)).await;
        self.deliver();
    }

    async fn until_ready(&mut self, name: &str, is_ready: bool) {
        while self.test_world.pod(name).is_ready() != is_ready {
            self.facts.notify.notified().await;
            self.deliver();
        }
    }

    fn kernel(&self) -> Arc<crate::kernel::NodeKernel> {
        let node = self.test_world.world.store::<Node>().get(&node_key()).unwrap();
        self.observer.kernel(&node, true).unwrap().kernel
    }

    fn load(&self) {
        let module = in_tree_modules().iter().find(|it| it.name == "dummy").unwrap();
        let request = InsertRequest {
            process: "modprobe",
            file_name: "dummy.ko",
            parameters: "",
            now: self.test_world.now,
        };
        self.kernel().insert_in_tree(module, request).unwrap();
    }

    fn delete(&mut self, name: &str) {
        let until = self.test_world.now + jiff::SignedDuration::from_secs(30);
        self.test_world.edit::<Pod>(&Key::new("default", name), |it| {
            it["metadata"]["deletionTimestamp"] = json!(until.to_string());
            it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        });
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join().await.unwrap();
    }
}

#[tokio::test]
async fn devices_appear_and_go_with_their_module() {
    let mut cluster = Cluster::start();
    cluster.create_plugin("p", &format!("--resource {RESOURCE} --count 4 --module dummy"));
    cluster.until_logged("waiting for kernel module dummy").await;
    assert_eq!(cluster.offered(), Value::Null, "the module is not loaded");
    assert!(!cluster.test_world.pod("p").is_ready());
    cluster.load();
    cluster.until_offered("4").await;
    cluster.until_ready("p", true).await;

    cluster.kernel().remove("dummy").unwrap();
    cluster.until_offered("0").await;
    cluster.until_ready("p", false).await;
    cluster.load();
    cluster.until_offered("4").await;

    cluster.delete("p");
    cluster.until_offered("0").await;
    let log = cluster.facts.log_lines.lock().unwrap().join("\n");
    let words = "registered example.com/gpu: 4\nunregistered example.com/gpu: kernel module dummy \
                 was removed\nwaiting for kernel module dummy\nregistered example.com/gpu: 4\n";
    assert!(log.contains(words), "{log}");
    cluster.end().await;
}

/// A plugin that is killed, and one whose node loses power, could not say so.
#[tokio::test]
async fn devices_go_when_their_plugin_is_killed() {
    let mut cluster = Cluster::start();
    cluster.create_plugin("p", &format!("--resource {RESOURCE} --count 3"));
    cluster.until_offered("3").await;
    cluster.test_world.edit::<Pod>(&key(), |it| {
        it["metadata"]["annotations"] = json!({annotation::KILL: "0"});
    });
    cluster.deliver();
    cluster.until_offered("0").await;
    // The container is restarted after its back-off.
    cluster.test_world.advance_time(15);
    cluster.until_offered("3").await;

    let power = |cluster: &mut Cluster, value: &str| {
        cluster.test_world.edit::<Node>(&node_key(), |it| {
            it["metadata"]["annotations"][annotation::NODE_POWER] = json!(value);
        });
    };
    power(&mut cluster, "down");
    let is_gone = |it: &FakeRecorder| it.devices.lock().unwrap().iter().any(|it| it.1.is_none());
    cluster.facts.until(is_gone).await;
    cluster.deliver();
    assert_eq!(cluster.offered(), "3", "a node without power reports nothing");
    power(&mut cluster, "");
    // Before anything is delivered that the next run of the plugin records.
    cluster.test_world.reconcile_until_stable(NODES, &node_key());
    assert_eq!(cluster.offered(), "0");
    cluster.until_offered("3").await;
    cluster.end().await;
}

#[tokio::test]
async fn a_rebooted_node_has_no_devices_until_the_module_is_loaded() {
    let mut cluster = Cluster::start();
    cluster.load();
    cluster.create_plugin("p", &format!("--resource {RESOURCE} --count 2 --module dummy"));
    cluster.until_offered("2").await;
    cluster.test_world.advance_time(5);
    cluster.test_world.edit::<Node>(&node_key(), |it| {
        it["metadata"]["annotations"][annotation::KERNEL] = json!("6.9.0");
    });
    cluster.until_offered("0").await;
    cluster.facts.log_lines.lock().unwrap().clear();
    cluster.test_world.advance_time(2);
    cluster.deliver();
    cluster.until_logged("waiting for kernel module dummy").await;
    assert_eq!(cluster.offered(), "0");
    cluster.load();
    cluster.until_offered("2").await;
    cluster.end().await;
}

/// The plugin that registered last counts, as with kubelets, and devices are not added up.
#[tokio::test]
async fn the_last_of_two_plugins_counts() {
    let mut cluster = Cluster::start();
    cluster.create_plugin("p", &format!("--resource {RESOURCE} --count 4"));
    cluster.until_offered("4").await;
    cluster.create_plugin("q", &format!("--resource {RESOURCE} --count 2"));
    cluster.until_offered("2").await;
    cluster.create_plugin("r", "--resource example.com/nic --count 7");
    cluster.until_ready("r", true).await;
    cluster.deliver();
    assert_eq!(cluster.offered(), "2");
    let node = cluster.test_world.object::<Node>(&node_key()).unwrap();
    assert_eq!(node["status"]["capacity"]["example.com/nic"], "7");
    cluster.delete("q");
    cluster.until_offered("4").await;
    cluster.end().await;
}

#[tokio::test]
async fn refused_plugins_exit_with_a_code_and_a_reason() {
    let directory = "/var/lib/kubelet/device-plugins";
    let table = [
        ("--count 2", directory, 2, "--resource is missing"),
        ("--resource gpu", directory, 2, "--resource \"gpu\" is not an extended resource"),
        (
            "--resource example.com/gpu",
            "/var/lib/other",
            1,
            "cannot register example.com/gpu: the kubelet's socket is missing; mount the hostPath \
             /var/lib/kubelet/device-plugins",
        ),
        (
            "--resource example.com/own",
            directory,
            1,
            "cannot register example.com/own: node n1 has example.com/own of its own",
        ),
    ];
    for (args, host_path, expected, words) in table {
        let mut cluster = Cluster::start();
        cluster.create("p", args, host_path);
        let ProgramState::Exited { code, message, .. } = cluster.facts.next().await.state else {
            panic!("{args} runs")
        };
        assert_eq!(code, expected, "{args}");
        assert!(message.contains(words), "{message}");
        let log = cluster.facts.log_lines.lock().unwrap().join("\n");
        assert!(log.contains(words), "{log}");
        cluster.deliver();
        assert_eq!(cluster.offered(), Value::Null);
        cluster.end().await;
    }
}
