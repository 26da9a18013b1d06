//! The controllers of Kubernetes that Modules need: DaemonSets have pods, and Jobs end.

use std::collections::BTreeMap;

use gantry_harness::Server;
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Fence, Key, Kind, Meta, Plan, Propagation, Resource, Step, Subresource,
    View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::job::image_hash;
use crate::labels::{IMAGE_ANNOTATION, INPUT_HASH, JOB_TYPE_LABEL};
use crate::view::{DaemonSet, DockerfileMap, Job, ModulePod, Node};

/// Images of the registry.
pub(super) const IMAGES: Resource =
    Resource::namespaced("test", "v1", "images", "Image").cluster_scoped().without_status();
/// How long a Job runs.
const JOB_SECONDS: i64 = 5;

/// How everything outside the controllers behaves.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Outside {
    metadata: Meta,
    /// What the registry responds instead of an answer.
    pub(super) registry_error: String,
    /// A part of the names of images that the registry denies to have.
    pub(super) denied: String,
    /// How Jobs end: `succeed`, `fail`, or `lose` the image that they pushed.
    build: String,
    sign: String,
    /// `full` while the registry has no space: every push fails, and so does its Job.
    pub(super) space: String,
}

impl View for Outside {
    const RESOURCE: Resource =
        Resource::namespaced("test", "v1", "outsides", "Outside").cluster_scoped().without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Outside {
    pub(super) fn of(server: &Server) -> Self {
        let found = server.get(&Self::RESOURCE, &Key::cluster("outside"));
        found.map(|it| serde_json::from_value(it.clone()).unwrap()).unwrap_or_default()
    }
}

/// What the DaemonSet controller reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RunDaemonSet {
    metadata: Meta,
    spec: Value,
    status: Value,
}

impl View for RunDaemonSet {
    const RESOURCE: Resource = DaemonSet::RESOURCE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What the DaemonSet controller reads of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RunPod {
    metadata: Meta,
    spec: Value,
    status: Value,
}

impl View for RunPod {
    const RESOURCE: Resource = ModulePod::RESOURCE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl RunPod {
    fn is_ready(&self) -> bool {
        let conditions = self.status["conditions"].as_array();
        conditions
            .is_some_and(|it| it.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
    }
}

/// Runs a pod of each DaemonSet on every node that its selector matches, ready or not.
pub(super) struct DaemonSetRunner;

impl Controller for DaemonSetRunner {
    fn name(&self) -> &'static str {
        "daemon-sets"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<RunDaemonSet>(), Kind::of::<RunPod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            return world
                .store::<RunDaemonSet>()
                .list()
                .iter()
                .map(|it| it.metadata.key())
                .collect();
        }
        let owners = change.both::<RunPod>().filter_map(|it| it.metadata.controller());
        let mut keys: Vec<Key> = owners.map(|it| change.key.in_same_namespace(&it.name)).collect();
        if change.is::<RunDaemonSet>() {
            keys.push(change.key.clone());
        }
        keys
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(set) = world.store::<RunDaemonSet>().get(key) else { return plan };
        if set.metadata.is_terminating() {
            return plan;
        }
        let template = &set.spec["template"];
        let selector: BTreeMap<String, String> =
            serde_json::from_value(template["spec"]["nodeSelector"].clone()).unwrap_or_default();
        let matches = |node: &Node| {
            selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        };
        let nodes = world.store::<Node>().list();
        let nodes: Vec<&str> =
            nodes.iter().filter(|it| matches(it)).map(|it| it.metadata.name.as_str()).collect();
        let pods = world.store::<RunPod>().owned_by(&set.metadata.uid);
        let image = &template["spec"]["containers"][0]["image"];
        for pod in pods.iter().filter(|it| !it.metadata.is_terminating()) {
            let node = pod.spec["nodeName"].as_str().unwrap_or_default();
            if !nodes.contains(&node) || pod.spec["containers"][0]["image"] != *image {
                plan.write(Write::Delete {
                    resource: RunPod::RESOURCE,
                    key: pod.metadata.key(),
                    fence: pod.metadata.fence(),
                    grace: None,
                    propagation: None,
                });
            }
        }
        for node in &nodes {
            let name = format!("{}-{node}", set.metadata.name);
            if world.store::<RunPod>().get(&key.in_same_namespace(&name)).is_some() {
                continue;
            }
            plan.write(Write::Create {
                resource: RunPod::RESOURCE,
                body: json!({
                    "metadata": {
                        "name": name, "namespace": key.namespace(),
                        "labels": template["metadata"]["labels"],
                        "ownerReferences": [controller_reference(&DaemonSet::RESOURCE, &set.metadata)],
                    },
                    "spec": {
                        "nodeName": node, "containers": [{"name": "main", "image": image}],
                        "terminationGracePeriodSeconds": 1,
                    },
                }),
            });
        }
        let ready = pods.iter().filter(|it| it.is_ready() && !it.metadata.is_terminating()).count();
        let status = json!({
            "desiredNumberScheduled": nodes.len(), "numberReady": ready, "numberAvailable": ready,
            "observedGeneration": set.metadata.generation,
        });
        if set.status != status {
            plan.write(Write::Merge {
                resource: RunDaemonSet::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                fence: set.metadata.fence(),
                body: json!({"status": status}),
            });
        }
        plan
    }
}

/// What the Job controller reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RunJob {
    metadata: Meta,
    spec: Value,
    status: Value,
}

impl View for RunJob {
    const RESOURCE: Resource = Job::RESOURCE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Ends Jobs some time after they were created, and pushes their images.
pub(super) struct JobRunner;

impl JobRunner {
    fn end(job: &RunJob, outside: &Outside, now: Timestamp) -> Step {
        let annotation =
            |name: &str| job.metadata.annotations.get(name).cloned().unwrap_or_default();
        let at = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let behaviour = match job.metadata.labels.get(JOB_TYPE_LABEL).map(String::as_str) {
            Some("build") => outside.build.as_str(),
            _ => outside.sign.as_str(),
        };
        let behaviour = if outside.space == "full" { "fail" } else { behaviour };
        let status = match behaviour {
            "fail" => json!({"failed": 1, "conditions": [{
                "type": "Failed", "status": "True", "message": "BackoffLimitExceeded",
            }]}),
            _ => json!({"succeeded": 1, "completionTime": at, "conditions": [{
                "type": "Complete", "status": "True", "lastTransitionTime": at,
            }]}),
        };
        let status = Step::new(Write::Merge {
            resource: RunJob::RESOURCE,
            key: job.metadata.key(),
            subresource: Subresource::Status,
            fence: job.metadata.fence(),
            body: json!({"status": status}),
        });
        if ["fail", "lose"].contains(&behaviour) {
            return status;
        }
        let image = annotation(IMAGE_ANNOTATION);
        let body = json!({
            "metadata": {"name": image_hash(&image)},
            "image": image,
            "digest": "sha256:aa",
            "inputHash": annotation(INPUT_HASH),
        });
        let push = Write::Apply {
            resource: IMAGES,
            key: Key::cluster(&image_hash(&image)),
            subresource: Subresource::Main,
            fence: None,
            body,
        };
        Step::new(push).then(status)
    }
}

impl Controller for JobRunner {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<RunJob>(), Kind::of::<DockerfileMap>(), Kind::of::<Outside>()]
    }

    fn enqueue(&self, world: &World, _: &Change) -> Vec<Key> {
        world.store::<RunJob>().list().iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(job) = world.store::<RunJob>().get(key) else { return plan };
        let outside = world.store::<Outside>().get(&Key::cluster("outside"));
        let outside = outside.as_deref().cloned().unwrap_or_default();
        if !job.status.is_null() || job.metadata.is_terminating() {
            return plan;
        }
        // A pod does not start before its ConfigMaps are there.
        let volumes = job.spec["template"]["spec"]["volumes"].as_array().unwrap();
        let sources = volumes.iter().map(|it| &it["projected"]["sources"][0]["configMap"]["name"]);
        let mut maps = sources.filter_map(Value::as_str);
        if maps.any(|it| world.store::<DockerfileMap>().get(&key.in_same_namespace(it)).is_none()) {
            return plan;
        }
        let created = job.metadata.creation_timestamp.unwrap_or(now);
        let ends = created + SignedDuration::from_secs(JOB_SECONDS);
        match now < ends {
            true => plan.requeue_at(ends, now),
            false => plan.steps.push(Self::end(&job, &outside, now)),
        }
        plan
    }
}

/// The annotation of Jobs that a user deletes to have them tried again.
pub(super) const RETRIED_BY_USER: &str = "test/retried-by-user";

/// The user who deletes failed Jobs once the registry has space again.
pub(super) struct RetryingUser;

impl Controller for RetryingUser {
    fn name(&self) -> &'static str {
        "user"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<RunJob>(), Kind::of::<Outside>()]
    }

    fn enqueue(&self, world: &World, _: &Change) -> Vec<Key> {
        world.store::<RunJob>().list().iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let outside = world.store::<Outside>().get(&Key::cluster("outside"));
        let has_space = outside.is_some_and(|it| it.space.is_empty());
        let Some(job) = world.store::<RunJob>().get(key) else { return plan };
        if !has_space || job.status["failed"].is_null() || job.metadata.is_terminating() {
            return plan;
        }
        let mark = Write::Merge {
            resource: RunJob::RESOURCE,
            key: key.clone(),
            subresource: Subresource::Main,
            fence: job.metadata.fence(),
            body: json!({"metadata": {"annotations": {RETRIED_BY_USER: "true"}}}),
        };
        let delete = Write::Delete {
            resource: RunJob::RESOURCE,
            key: key.clone(),
            fence: Fence { revision: None, ..job.metadata.fence() },
            grace: None,
            propagation: Some(Propagation::Background),
        };
        let is_marked = job.metadata.annotations.contains_key(RETRIED_BY_USER);
        plan.write(if is_marked { delete } else { mark });
        plan
    }
}
