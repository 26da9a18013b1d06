//! The objects of a drill, and when nothing is left to do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Size;
use super::record::AwakeRecord;

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const ALLOCATIONS: &str = "/api/v1/namespaces/default/configmaps/gpu-allocs";
const CORE: &str = "/api/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const KINDS: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default";
const REQUESTER: &str = "dual-pods.llm-d.ai/requester";

/// A model, with the set of its requester.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) accelerator: String,
    /// Whether it is the first of its accelerator.
    pub(super) is_first: bool,
    /// Whether its set has a replica.
    pub(super) wanted: bool,
}

/// The models of a drill.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) models: Vec<Model>,
    accelerators: Vec<String>,
}

/// The path of a set.
pub(super) fn set_of(model: &str) -> String {
    format!("{SETS}/{model}")
}

impl Workload {
    pub(super) fn new(size: &Size) -> Self {
        let accelerators: Vec<String> =
            (0..size.accelerators).map(|place| format!("GPU-{place}")).collect();
        let mut models = Vec::new();
        for (place, accelerator) in accelerators.iter().enumerate() {
            for number in 0..size.models {
                models.push(Model {
                    name: format!("m-{place}-{number}"),
                    accelerator: accelerator.clone(),
                    is_first: number == 0,
                    wanted: false,
                });
            }
        }
        Self { models, accelerators }
    }

    /// All objects, with the paths to which they are posted.
    pub(super) fn objects(&self, node: &str) -> Vec<(String, Value)> {
        let named = json!({"name": "models"});
        let verbs = ["get", "list", "watch", "create", "update", "patch"];
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        ]);
        let binding = json!({
            "metadata": named,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "models"},
            "subjects": [{"kind": "ServiceAccount", "name": "models", "namespace": "default"}],
        });
        let places: BTreeMap<&String, usize> =
            self.accelerators.iter().enumerate().map(|(place, uuid)| (uuid, place)).collect();
        let map = json!({
            "metadata": {"name": "gpu-map"}, "data": {node: json!(places).to_string()},
        });
        let launchers = json!({
            "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "LauncherConfig",
        "metadata": {"name": "lc"},
            "spec": {"maxInstances": 2, "podTemplate": {"spec": {
                "serviceAccountName": "models", "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "inference-server", "image": "gantry.dev/launcher:v1"}],
            }}},
        });
        let policy = json!({
            "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "LauncherPopulationPolicy",
        "metadata": {"name": "stock"},
            "spec": {
                "enhancedNodeSelector":
                    {"labelSelector": {"matchLabels": {"kubernetes.io/hostname": node}}},
                "countForLauncher":
                    [{"launcherConfigName": "lc", "launcherCount": self.accelerators.len()}],
            },
        });
        let allocations = json!({"metadata": {"name": "gpu-allocs"}});
        let mut objects = vec![
            (format!("{CORE}/serviceaccounts"), json!({"metadata": named})),
            (format!("{RBAC}/roles"), json!({"metadata": named, "rules": rules})),
            (format!("{RBAC}/rolebindings"), binding),
            (format!("{CORE}/configmaps"), map),
            (format!("{CORE}/configmaps"), allocations),
            (format!("{KINDS}/launcherconfigs"), launchers),
            (format!("{KINDS}/launcherpopulationpolicies"), policy),
        ];
        for (number, model) in self.models.iter().enumerate() {
            let options = format!("--model tiny/{} --sleep-time 20ms --wake-time 20ms", model.name);
            let config = json!({
                    "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "InferenceServerConfig",
            "metadata": {"name": model.name},
                    "spec": {"launcherConfigName": "lc", "modelServerConfig": {
                        "port": 8005 + number,
                        "options": options,
                        "labels": {"model": model.name},
                    }},
                });
            objects.push((format!("{KINDS}/inferenceserverconfigs"), config));
            objects.push((SETS.to_owned(), model.set(node)));
        }
        objects
    }

    /// What is still to happen: if `serves`, each model that is wanted is served and no other, else
    /// nothing is bound or awake.
    pub(super) fn unsettled(
        &self,
        pods: &Value,
        record: &AwakeRecord,
        serves: bool,
    ) -> Vec<String> {
        let pods: Vec<&Value> = pods["items"].as_array().into_iter().flatten().collect();
        let mut open = Vec::new();
        for model in &self.models {
            let of = |it: &&&Value| it["metadata"]["labels"]["app"] == model.name.as_str();
            let requesters: Vec<_> = pods.iter().filter(of).collect();
            let is_served = requesters.len() == 1 && is_ready(requesters[0]);
            match (model.wanted, requesters.len()) {
                (true, _) if !is_served => open.push(format!("{} is not served", model.name)),
                (false, 1..) => open.push(format!("a requester of {} is left", model.name)),
                (true | false, _) => {}
            }
        }
        let bound = pods.iter().filter(|it| it["metadata"]["annotations"][REQUESTER].is_string());
        let (bound, wanted) = (bound.count(), self.models.iter().filter(|it| it.wanted).count());
        if bound != wanted || record.awake != wanted || serves != (wanted > 0) {
            open.push(format!(
                "{wanted} models are wanted, {bound} providers are bound, {} engines are awake",
                record.awake
            ));
        }
        open
    }
}

impl Model {
    fn set(&self, node: &str) -> Value {
        let labels = json!({"app": self.name});
        json!({
            "metadata": {"name": self.name},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {
                        "labels": labels,
                        "annotations": {"dual-pods.llm-d.ai/inference-server-config": self.name},
                    },
                    "spec": {
                        "nodeName": node, "serviceAccountName": "models",
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{
                            "name": "inference-server", "image": "gantry.dev/test-requester:v1",
                            "env": [
                                {"name": "NVIDIA_VISIBLE_DEVICES", "value": self.accelerator},
                            ],
                            "readinessProbe": {
                                "httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1,
                            },
                        }],
                    },
                },
            },
        })
    }
}

pub(super) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// The names of pods, each with the one it is paired with.
pub(super) fn names(pods: &Value) -> Vec<String> {
    let pods = pods["items"].as_array().into_iter().flatten();
    let shown = |it: &Value| {
        let meta = &it["metadata"];
        let dual = meta["labels"]["dual-pods.llm-d.ai/dual"].as_str().unwrap_or("nobody");
        format!("{} with {dual}", meta["name"].as_str().unwrap_or_default())
    };
    pods.map(shown).collect()
}
