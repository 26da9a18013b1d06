//! A simulated cluster around the controllers: DaemonSets have pods, Jobs end, and a registry has
//! what they push.
//!
//! The registry is a set of objects of the server, so that it survives crashes of processes. One
//! object, [`Outside`], says how everything outside the controllers behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_api::kernel_modules::dockerfile_problem;
use gantry_harness::{
    ExternalSystems, Invariant, Kubelet, Scenario, Server, SimulatedInquiry, TestCluster,
};
use gantry_oci::Digest;
use gantry_reconcile::{Controller, Key, Resource, View as _};
use serde_json::{Value, json};

use super::runners::{DaemonSetRunner, IMAGES, JobRunner, Outside};
use crate::facts::{
    BuildFiles, BuildFilesQuery, BuildFilesState, DockerfileInquiry, ImageInquiry, ImageQuery,
    ImageState, SecretInquiry, SecretQuery, SecretState,
};
use crate::job::image_hash;
use crate::labels::{IMAGE_ANNOTATION, JOB_TYPE_LABEL, ROLE_LABEL};
use crate::settings::{LiveSettings, Settings};
use crate::view::{DaemonSet, DockerfileMap, Job, Module, ModulePod, Namespace, Node};
use crate::{ModuleController, NodeLabelController};

/// Secrets, which controllers do not watch.
pub(super) const SECRETS: Resource =
    Resource::namespaced("", "v1", "secrets", "Secret").without_status();
pub(super) const NAMESPACE: &str = "drivers";
pub(super) const EL8: &str = "4.18.0-348.el8.x86_64";
pub(super) const EL9: &str = "5.14.0-70.el9.x86_64";

/// Changes how the outside behaves.
pub(super) fn set_outside(server: &mut Server, field: &str, value: &str) {
    server.edit(&Outside::RESOURCE, &Key::cluster("outside"), |it| it[field] = json!(value));
}

/// What the registry responds instead of an answer.
pub(super) fn registry_error(server: &Server) -> String {
    Outside::of(server).registry_error
}

fn answer_image(server: &Server, query: &ImageQuery) -> Result<ImageState, String> {
    let outside = Outside::of(server);
    if !outside.registry_error.is_empty() {
        return Err(outside.registry_error);
    }
    let missing =
        |name: &&String| server.get(&SECRETS, &Key::new(&query.namespace, name)).is_none();
    if let Some(secret) = query.secrets.iter().find(missing) {
        return Ok(ImageState::SecretMissing(secret.clone()));
    }
    let denied = !outside.denied.is_empty() && query.image.contains(&outside.denied);
    let image = server.get(&IMAGES, &Key::cluster(&image_hash(&query.image))).filter(|_| !denied);
    Ok(match image {
        Some(image) => ImageState::Present {
            digest: image["digest"].as_str().unwrap_or_default().to_owned(),
            input_hash: image["inputHash"].as_str().map(str::to_owned),
        },
        None => ImageState::Missing,
    })
}

fn answer_secret(server: &Server, query: &SecretQuery) -> Result<SecretState, String> {
    let found = server.get(&SECRETS, &Key::new(&query.namespace, &query.name));
    Ok(match found {
        Some(secret) => SecretState::Present { version: secret["data"].to_string() },
        None => SecretState::Missing,
    })
}

fn answer_build_files(server: &Server, query: &BuildFilesQuery) -> Result<BuildFilesState, String> {
    let key = Key::new(&query.namespace, &query.config_map);
    let Some(map) = server.get(&DockerfileMap::RESOURCE, &key) else {
        return Ok(BuildFilesState::Missing);
    };
    let text = match query.files {
        BuildFiles::Dockerfile => map["data"]["dockerfile"].as_str().map(str::to_owned),
        BuildFiles::Context => Some(map["data"].to_string()),
    };
    Ok(text.map_or(BuildFilesState::NoKey, |text| BuildFilesState::Present {
        digest: Digest::sha256(text.as_bytes()).to_string(),
        problem: match query.files {
            BuildFiles::Dockerfile => dockerfile_problem(&text).map(str::to_owned),
            BuildFiles::Context => None,
        },
    }))
}

/// The controllers under test, and what they ask.
#[derive(Debug)]
pub(super) struct TestControllers {
    pub(super) modules: ModuleController,
    pub(super) labels: NodeLabelController,
    images: SimulatedInquiry<ImageInquiry>,
    secrets: SimulatedInquiry<SecretInquiry>,
    dockerfiles: SimulatedInquiry<DockerfileInquiry>,
}

impl TestControllers {
    pub(super) fn new(settings: Settings) -> Self {
        let live = LiveSettings::new(settings);
        Self {
            modules: ModuleController::new(live.clone()),
            labels: NodeLabelController::new(live.clone()),
            images: SimulatedInquiry {
                inquiry: ImageInquiry::new(live.clone()),
                answer: answer_image,
            },
            secrets: SimulatedInquiry {
                inquiry: SecretInquiry::new(live.clone()),
                answer: answer_secret,
            },
            dockerfiles: SimulatedInquiry {
                inquiry: DockerfileInquiry::new(live),
                answer: answer_build_files,
            },
        }
    }

    pub(super) fn all(&self) -> [&dyn Controller; 5] {
        [&self.modules, &self.labels, &DaemonSetRunner, &JobRunner, &Kubelet::RUNS_ALL]
    }

    /// A scenario with a namespace, a healthy outside, and these objects.
    pub(super) fn scenario<'a>(
        &'a self,
        controllers: &'a [&'a dyn Controller],
        objects: Vec<(Resource, Value)>,
    ) -> Scenario<'a> {
        let always = [
            (Namespace::RESOURCE, json!({"metadata": {"name": NAMESPACE}})),
            (Outside::RESOURCE, json!({"metadata": {"name": "outside"}})),
        ];
        Scenario {
            controllers,
            defaults: report_nodes,
            objects: always.into_iter().chain(objects).collect(),
            script: Vec::new(),
            replicas: 1,
            horizon: Duration::from_secs(400),
            external: ExternalSystems {
                inquiries: vec![&self.images, &self.secrets, &self.dockerfiles],
                invariants: super::invariants::always(),
                ..ExternalSystems::default()
            },
        }
    }
}

/// Sets the status that a kubelet would have reported for its node.
fn report_nodes(resource: &Resource, object: &mut Value) {
    if *resource == Node::RESOURCE && object["status"].is_null() {
        let status = json!({
            "nodeInfo": {"kernelVersion": object["kernel"], "architecture": "amd64"},
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        object["status"] = status;
    }
}

/// A node with the label that Modules select.
pub(super) fn node(name: &str, kernel: &str) -> (Resource, Value) {
    let metadata = json!({"name": name, "labels": {"gpu": "yes"}});
    (Node::RESOURCE, json!({"metadata": metadata, "spec": {}, "kernel": kernel}))
}

/// Sets what a node reports.
pub(super) fn set_node(server: &mut Server, name: &str, change: impl FnOnce(&mut Value)) {
    server.edit(&Node::RESOURCE, &Key::cluster(name), change);
}

pub(super) fn set_kernel(server: &mut Server, name: &str, kernel: &str) {
    set_node(server, name, |it| it["status"]["nodeInfo"]["kernelVersion"] = json!(kernel));
}

/// A Module with a driver and a device plugin; both images are prebuilt.
pub(super) fn module(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"gpu": "yes"},
            "driverContainer": {"container": {
                "kernelMappings": [{"literal": EL8}, {"literal": EL9}],
                "containerImage": format!("quay.io/vendor/{name}:${{KERNEL_VERSION}}"),
            }},
            "devicePlugin": {"container": {"image": "quay.io/vendor/plugin:1"}},
        },
    })
}

/// The same Module for every kernel.
pub(super) fn for_any_kernel(mut module: Value) -> Value {
    container(&mut module["spec"])["kernelMappings"] = json!([{"regexp": "."}]);
    module
}

/// The same, built from a Dockerfile.
pub(super) fn built(name: &str) -> Value {
    let mut module = module(name);
    module["spec"]["driverContainer"]["container"]["build"] = json!({"dockerfile": "FROM a"});
    module
}

/// The same, built and signed.
pub(super) fn signed(name: &str) -> Value {
    let mut module = built(name);
    module["spec"]["driverContainer"]["container"]["sign"] = json!({
        "keySecret": {"name": "key"}, "certSecret": {"name": "cert"}, "filesToSign": ["/a.ko"],
    });
    module
}

pub(super) fn stored(module: Value) -> (Resource, Value) {
    (Module::RESOURCE, module)
}

pub(super) fn secret(name: &str) -> (Resource, Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    (SECRETS, json!({"metadata": metadata, "data": "1"}))
}

/// An image that somebody has pushed.
pub(super) fn image(name: &str) -> (Resource, Value) {
    let metadata = json!({"name": image_hash(name)});
    (IMAGES, json!({"metadata": metadata, "image": name, "digest": "sha256:bb"}))
}

/// Changes the spec of a Module.
pub(super) fn edit_module(server: &mut Server, name: &str, change: impl FnOnce(&mut Value)) {
    server.edit(&Module::RESOURCE, &Key::new(NAMESPACE, name), |it| change(&mut it["spec"]));
}

/// The driver container of a Module's spec.
pub(super) fn container(spec: &mut Value) -> &mut Value {
    &mut spec["driverContainer"]["container"]
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The DaemonSets of a part, by kernel (empty for device plugins) and image.
pub(super) fn daemon_sets(server: &Server, part: &str) -> Vec<(String, String)> {
    let all = server.list(&DaemonSet::RESOURCE);
    let of_part = all.into_iter().filter(|it| it["metadata"]["labels"][ROLE_LABEL] == part);
    let mut found: Vec<(String, String)> = of_part
        .map(|it| {
            let kernel = &it["metadata"]["annotations"]["ooto.sigs.k8s.io/kernel-version"];
            let image = text(it, "/spec/template/spec/containers/0/image");
            (kernel.as_str().unwrap_or_default().to_owned(), image.to_owned())
        })
        .collect();
    found.sort();
    found
}

/// The Jobs, by type, image and how they stand.
pub(super) fn jobs(server: &Server) -> Vec<(String, String, &'static str)> {
    let describe = |it: &&Value| {
        let status = match (&it["status"]["succeeded"], &it["status"]["failed"]) {
            (Value::Number(_), _) => "succeeded",
            (_, Value::Number(_)) => "failed",
            _ => "active",
        };
        let kind = it["metadata"]["labels"][JOB_TYPE_LABEL].as_str().unwrap_or_default();
        let image = it["metadata"]["annotations"][IMAGE_ANNOTATION].as_str().unwrap_or_default();
        (kind.to_owned(), image.to_owned(), status)
    };
    server.list(&Job::RESOURCE).iter().map(describe).collect()
}

/// The labels of a node that Gantry sets, without their common prefix.
pub(super) fn node_labels(server: &Server, name: &str) -> BTreeMap<String, String> {
    let node = server.get(&Node::RESOURCE, &Key::cluster(name)).unwrap();
    let labels = node["metadata"]["labels"].as_object().unwrap().iter();
    let ours = labels.filter_map(|(key, value)| {
        let is_ours = key.contains("oot.node.kubernetes.io/") || key.starts_with("kmm.");
        let key = key.strip_prefix("oot.node.kubernetes.io/").unwrap_or(key);
        is_ours.then(|| (key.to_owned(), value.as_str().unwrap().to_owned()))
    });
    ours.filter(|(key, _)| key != "kernel-version.full").collect()
}

/// What a run ends with: everything but times, UIDs and revisions.
pub(super) fn shape(server: &Server) -> Value {
    let pods = server.list(&ModulePod::RESOURCE);
    let mut pods: Vec<&str> = pods.iter().map(|it| text(it, "/metadata/name")).collect();
    pods.sort_unstable();
    let modules = server.list(&Module::RESOURCE);
    let modules = modules.iter().map(|it| {
        let annotations = &it["metadata"]["annotations"];
        (
            text(it, "/metadata/name").to_owned(),
            json!({"status": it["status"], "annotations": annotations}),
        )
    });
    let nodes = server.list(&Node::RESOURCE);
    let nodes = nodes
        .iter()
        .map(|it| (text(it, "/metadata/name").to_owned(), it["metadata"]["labels"].clone()));
    let namespaces = server.list(&Namespace::RESOURCE);
    let labels = namespaces.iter().filter_map(|it| it["metadata"]["labels"].as_object());
    let namespaces: Vec<&String> = labels.flat_map(|it| it.keys()).collect();
    let images = server.list(&IMAGES);
    let mut images: Vec<&str> = images.iter().map(|it| text(it, "/image")).collect();
    images.sort_unstable();
    json!({
        "drivers": daemon_sets(server, "driver-container"),
        "plugins": daemon_sets(server, "device-plugin"),
        "jobs": jobs(server),
        "pods": pods,
        "modules": modules.collect::<BTreeMap<_, _>>(),
        "nodes": nodes.collect::<BTreeMap<_, _>>(),
        "namespaces": namespaces,
        "images": images,
        "dockerfiles": server.list(&DockerfileMap::RESOURCE).len(),
    })
}

/// A cluster that a test advances.
pub(super) struct Simulation<'a> {
    pub(super) run: TestCluster<'a>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>) -> Self {
        let mut simulation = Self { run: TestCluster::new(scenario) };
        simulation.advance(30);
        simulation
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        if let Err(failure) = self.run.advance(Duration::from_secs(seconds)) {
            panic!("{failure}");
        }
    }

    /// Changes something, and lets the cluster react.
    pub(super) fn act(&mut self, action: impl FnOnce(&mut Server)) {
        action(self.run.server());
        self.advance(90);
    }

    /// The reasons of events since the last call, sorted, each once.
    pub(super) fn event_reasons(&mut self) -> Vec<String> {
        let mut reasons: Vec<String> =
            self.run.take_events().iter().map(|it| it.reason.to_string()).collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }

    /// What Modules wait for, as `reason: message`.
    pub(super) fn held(&self) -> Vec<String> {
        self.run.held().iter().map(|it| format!("{}: {}", it.reason, it.message)).collect()
    }

    pub(super) fn holds(&self, reason: &str) -> bool {
        self.run.held().iter().any(|it| it.reason == reason)
    }
}

/// An invariant that reads the server.
pub(super) fn invariant<'a>(
    name: &'static str,
    check: impl Fn(&Server) -> Result<(), String> + 'a,
) -> Invariant<'a> {
    Invariant { name, check: Box::new(check) }
}
