//! The paths of pod templates in objects of known kinds, and how many pods each template creates.

use serde_json::Value;

/// A pod template inside an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSet {
    /// Its path, as a JSON pointer; empty where the object itself is the pod.
    pub path: String,
    /// How many pods are created from it.
    pub replicas: i64,
}

/// Returns the pod templates of an object. For unknown kinds these are at the two usual paths.
///
/// Kinds are recognised by their group and kind in any version: an AppWrapper that uses another
/// version must not be charged for less.
#[must_use]
pub fn find(object: &Value) -> Vec<PodSet> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    match (group, text("kind")) {
        ("", "Pod") => single_pod_set("", 1),
        ("batch", "Job") => single_pod_set("/spec/template", pods_of_job(&object["spec"])),
        ("batch", "CronJob") => {
            let job = &object["spec"]["jobTemplate"]["spec"];
            single_pod_set("/spec/jobTemplate/spec/template", pods_of_job(job))
        }
        ("jobset.x-k8s.io", "JobSet") => pods_of_job_set(object),
        ("kubeflow.org", _) if has_roles(object) => pods_of_roles(object),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => leaders_and_workers(object),
        ("ray.io", "RayCluster") => ray_cluster(object, "/spec"),
        ("ray.io", "RayJob") => ray_cluster(object, "/spec/rayClusterSpec"),
        ("ray.io", "RayService") => ray_cluster(object, "/spec/rayClusterConfig"),
        (_, _) if object.pointer("/spec/template").is_some() => {
            single_pod_set("/spec/template", count(&object["spec"]["replicas"]))
        }
        (_, _) if object.pointer("/spec/containers").is_some() => {
            single_pod_set("", count(&object["spec"]["replicas"]))
        }
        (_, _) => Vec::new(),
    }
}

fn single_pod_set(place: &str, replicas: i64) -> Vec<PodSet> {
    vec![PodSet { path: place.to_owned(), replicas }]
}

/// Reads a number of pods; one where none is given.
#[must_use]
pub fn count(number: &Value) -> i64 {
    number.as_i64().unwrap_or(1).max(0)
}

/// Returns how many pods of a job run at once. A job without `completions` is a work queue: all of
/// its pods run until one has succeeded.
fn pods_of_job(spec: &Value) -> i64 {
    let parallelism = count(&spec["parallelism"]);
    match &spec["completions"] {
        Value::Null => parallelism,
        completions => parallelism.min(count(completions)),
    }
}

fn pods_of_job_set(object: &Value) -> Vec<PodSet> {
    let jobs = object.pointer("/spec/replicatedJobs").and_then(Value::as_array);
    let jobs = jobs.map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    let set = |(at, job): (usize, &Value)| PodSet {
        path: format!("/spec/replicatedJobs/{at}/template/spec/template"),
        replicas: count(&job["replicas"]).saturating_mul(pods_of_job(&job["template"]["spec"])),
    };
    jobs.map(set).collect()
}

/// Returns the maps of roles in Kubeflow jobs, such as `pytorchReplicaSpecs`.
fn role_maps(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object["spec"].as_object().into_iter().flatten();
    fields.filter(|(name, roles)| name.ends_with("ReplicaSpecs") && roles.is_object())
}

fn has_roles(object: &Value) -> bool {
    role_maps(object).next().is_some()
}

fn pods_of_roles(object: &Value) -> Vec<PodSet> {
    let mut sets = Vec::new();
    for (field, roles) in role_maps(object) {
        for (role, spec) in roles.as_object().into_iter().flatten() {
            let role = role.replace('~', "~0").replace('/', "~1");
            sets.push(PodSet {
                path: format!("/spec/{field}/{role}/template"),
                replicas: count(&spec["replicas"]),
            });
        }
    }
    sets
}

/// Returns groups of one leader and its workers. Without a template of its own the leader uses the
/// template of the workers.
fn leaders_and_workers(object: &Value) -> Vec<PodSet> {
    let groups = count(&object["spec"]["replicas"]);
    let place = "/spec/leaderWorkerTemplate";
    let size = count(&object["spec"]["leaderWorkerTemplate"]["size"]);
    let leader = format!("{place}/leaderTemplate");
    let leader = object.pointer(&leader).map(|_| PodSet { path: leader, replicas: groups });
    let workers = if leader.is_some() { size.saturating_sub(1).max(0) } else { size };
    let replicas = groups.saturating_mul(workers);
    leader
        .into_iter()
        .chain([PodSet { path: format!("{place}/workerTemplate"), replicas }])
        .collect()
}

fn ray_cluster(object: &Value, spec: &str) -> Vec<PodSet> {
    let head = format!("{spec}/headGroupSpec/template");
    let head = object.pointer(&head).map(|_| PodSet { path: head, replicas: 1 });
    let groups = object.pointer(&format!("{spec}/workerGroupSpecs")).and_then(Value::as_array);
    let groups = groups.map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    let group = |(at, group): (usize, &Value)| PodSet {
        path: format!("{spec}/workerGroupSpecs/{at}/template"),
        replicas: count(&group["replicas"]).saturating_mul(count(&group["numOfHosts"])),
    };
    head.into_iter().chain(groups.map(group)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_kinds_have_their_pods_found() {
        let table = [
            (json!({"apiVersion": "v1", "kind": "Pod", "spec": {}}), vec![("", 1)]),
            (json!({"apiVersion": "v1", "kind": "Service", "spec": {}}), vec![]),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3, "template": {}}}),
                vec![("/spec/template", 3)],
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {}}}),
                vec![("/spec/template", 1)],
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 5, "completions": 3, "template": {}}}),
                vec![("/spec/template", 3)],
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {}}}),
                vec![("/spec/template", 1)],
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 5, "template": {}}}),
                vec![("/spec/template", 5)],
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 5, "template": {}}}),
                vec![("/spec/template", 1)],
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {
                    "parallelism": 2, "template": {}}}}}),
                vec![("/spec/jobTemplate/spec/template", 2)],
            ),
            (
                json!({"apiVersion": "ray.io/v1alpha1", "kind": "RayService", "spec": {"rayClusterConfig": {
                    "headGroupSpec": {"template": {}},
                    "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4}]}}}),
                vec![
                    ("/spec/rayClusterConfig/headGroupSpec/template", 1),
                    ("/spec/rayClusterConfig/workerGroupSpecs/0/template", 8),
                ],
            ),
            (
                json!({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "spec": {"mpiReplicaSpecs": {
                    "Launcher": {}, "Worker": {"replicas": 4}}}}),
                vec![
                    ("/spec/mpiReplicaSpecs/Launcher/template", 1),
                    ("/spec/mpiReplicaSpecs/Worker/template", 4),
                ],
            ),
            (
                json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": {
                    "replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": {}, "workerTemplate": {}}}}),
                vec![
                    ("/spec/leaderWorkerTemplate/leaderTemplate", 2),
                    ("/spec/leaderWorkerTemplate/workerTemplate", 6),
                ],
            ),
            (
                json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4}}}, {"template": {}}]}}),
                vec![
                    ("/spec/replicatedJobs/0/template/spec/template", 8),
                    ("/spec/replicatedJobs/1/template/spec/template", 1),
                ],
            ),
            (
                json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
                    "Master": {}, "Worker": {"replicas": 3}}}}),
                vec![
                    ("/spec/pytorchReplicaSpecs/Master/template", 1),
                    ("/spec/pytorchReplicaSpecs/Worker/template", 3),
                ],
            ),
            (
                json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {
                    "headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"replicas": 2}]}}),
                vec![("/spec/headGroupSpec/template", 1), ("/spec/workerGroupSpecs/0/template", 2)],
            ),
            (
                json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"rayClusterSpec": {
                    "headGroupSpec": {"template": {}}}}}),
                vec![("/spec/rayClusterSpec/headGroupSpec/template", 1)],
            ),
            (
                json!({"apiVersion": "example.com/v1", "kind": "Other", "spec": {"replicas": -2, "template": {}}}),
                vec![("/spec/template", 0)],
            ),
            (
                json!({"apiVersion": "example.com/v1", "kind": "Other", "spec": {"containers": []}}),
                vec![("", 1)],
            ),
        ];
        for (object, expected) in table {
            let found = find(&object);
            let found: Vec<(&str, i64)> =
                found.iter().map(|it| (it.path.as_str(), it.replicas)).collect();
            assert_eq!(found, expected, "{object}");
        }
    }
}
