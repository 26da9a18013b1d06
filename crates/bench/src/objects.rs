//! Builds the objects of the same cluster for either scheduler.

use serde_json::{Value, json};

/// Which scheduler is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SchedulerKind {
    /// kube-scheduler with dynamic resource allocation.
    Kubernetes,
    /// `gantry operator`.
    Gantry,
}

const DRIVER: &str = "test-driver.cdi.k8s.io";
const CLASS: &str = "test-class";
const IMAGE: &str = "registry.k8s.io/pause:3.10.1";
/// Attributes of devices are qualified in Kubernetes.
const ROOT: &str = "dra.example.com/root";

/// The configuration of Gantry's scheduler: no limit on requests, as for Kubernetes' scheduler.
pub(crate) const OPERATOR_CONFIG: &str = "\
clientConnection: {qps: -1}
metrics: {bindAddress: \"0\"}
health: {bindAddress: \"0\"}
mcadEnabled: false
devices: {enabled: true}
";

impl SchedulerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Gantry => "gantry",
        }
    }

    /// Cluster-wide objects: the path each is created at, and the object.
    pub(crate) fn shared_objects(self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Kubernetes => {
                let selector =
                    json!({"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}});
                let mut all = vec![(
                    "/apis/resource.k8s.io/v1/deviceclasses",
                    json!({"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}}),
                )];
                for count in [1, 5] {
                    let request = |index| {
                        let exactly = json!({"deviceClassName": CLASS});
                        json!({"name": format!("req-{index}"), "exactly": exactly})
                    };
                    let requests: Vec<Value> = (0..count).map(request).collect();
                    let mut devices = json!({"requests": requests});
                    if count > 1 {
                        devices["constraints"] = json!([{"matchAttribute": ROOT}]);
                    }
                    all.push((
                        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
                        json!({
                            "metadata": {"name": format!("template-{count}")},
                            "spec": {"spec": {"devices": devices}},
                        }),
                    ));
                }
                all
            }
            Self::Gantry => {
                let group = "devmgmtproto.k8s.io/v1alpha1";
                let object = |kind: &str, name: &str| {
                    json!({
                        "apiVersion": group, "kind": kind, "metadata": {"name": name},
                    })
                };
                let mut driver = object("DeviceDriver", DRIVER);
                driver["deviceTypes"] = json!(["gpu"]);
                let mut class = object("DeviceClass", CLASS);
                class["spec"] = json!({"deviceType": "gpu", "driver": DRIVER});
                vec![
                    ("/apis/devmgmtproto.k8s.io/v1alpha1/devicedrivers", driver),
                    ("/apis/devmgmtproto.k8s.io/v1alpha1/deviceclasses", class),
                ]
            }
        }
    }

    /// The objects of a node: the path each is created at, and the object.
    pub(crate) fn device_object(self, node: &str, devices: usize) -> (&'static str, Value) {
        match self {
            Self::Kubernetes => {
                let device = |index: usize| {
                    json!({
                        "name": instance(index),
                        "attributes": {
                            "model": {"string": "A100"}, "family": {"string": "GPU"},
                            "driverVersion": {"version": "1.2.3"},
                            "dra.example.com/numa": {"int": index}, ROOT: {"string": root(index)},
                        },
                        "capacity": {"memory": {"value": "1Gi"}},
                    })
                };
                let slice = json!({
                    "metadata": {"name": node},
                    "spec": {
                        "driver": DRIVER, "nodeName": node,
                        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                        "devices": (0..devices).map(device).collect::<Vec<_>>(),
                    },
                });
                ("/apis/resource.k8s.io/v1/resourceslices", slice)
            }
            Self::Gantry => {
                let device = |index: usize| {
                    json!({
                        "name": instance(index),
                        "attributes": [
                            {"name": "numa", "intValue": index},
                            {"name": "root", "stringValue": root(index)},
                        ],
                        "resources": [{"name": "memory", "capacity": "1Gi"}],
                    })
                };
                let pool = json!({
                    "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DevicePool",
                    "metadata": {"name": node},
                    "spec": {
                        "nodeName": node, "driver": DRIVER, "deviceType": "gpu",
                        "attributes": [
                            {"name": "model", "stringValue": "A100"},
                            {"name": "family", "stringValue": "GPU"},
                            {"name": "driverVersion", "semVerValue": "1.2.3"},
                        ],
                        "devices": (0..devices).map(device).collect::<Vec<_>>(),
                    },
                });
                ("/apis/devmgmtproto.k8s.io/v1alpha1/devicepools", pool)
            }
        }
    }

    /// A pod that requests this many devices, all from one root if there are several.
    pub(crate) fn pod(self, name: &str, devices: usize) -> Value {
        match self {
            Self::Kubernetes => {
                let template = format!("template-{devices}");
                let mut pod = pause_pod(name);
                pod["spec"]["resourceClaims"] =
                    json!([{"name": "resource", "resourceClaimTemplateName": template}]);
                pod["spec"]["containers"][0]["resources"] =
                    json!({"claims": [{"name": "resource"}]});
                pod
            }
            Self::Gantry => {
                let term = |index| json!({"name": format!("req-{index}"), "deviceClass": CLASS});
                let terms: Vec<Value> = (0..devices).map(term).collect();
                let mut template = json!({"claims": terms});
                if devices > 1 {
                    template["matchAttributes"] = json!(["root"]);
                }
                gantry_pod(name, &[json!({"name": "resource", "template": template})])
            }
        }
    }
}

/// A Gantry pod with this many claims for one device each.
pub(crate) fn pod_with_claims(name: &str, claims: usize) -> Value {
    let claim = |index| {
        let template = json!({"claims": [{"name": "req-0", "deviceClass": CLASS}]});
        json!({"name": format!("resource-{index}"), "template": template})
    };
    gantry_pod(name, &(0..claims).map(claim).collect::<Vec<_>>())
}

/// A Gantry claim whose pod has been deleted.
pub(crate) fn orphaned_claim(name: &str) -> Value {
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": "gone", "controller": true,
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"claims": [{"name": "req-0", "deviceClass": CLASS}]},
    })
}

/// A Gantry pod with these claims.
fn gantry_pod(name: &str, claims: &[Value]) -> Value {
    let used: Vec<Value> = claims.iter().map(|it| json!({"name": it["name"]})).collect();
    let mut pod = pause_pod(name);
    pod["spec"]["schedulerName"] = json!("gantry");
    pod["metadata"]["annotations"] = json!({
        "devmgmtproto.k8s.io/device-claims": json!(claims).to_string(),
        "devmgmtproto.k8s.io/container-devices": json!({"pause": used}).to_string(),
    });
    pod
}

fn pause_pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "pause", "image": IMAGE}]},
    })
}

/// A node as in Kubernetes' own benchmarks.
pub(crate) fn node(name: &str) -> Value {
    let capacity = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
    json!({
        "metadata": {"name": name},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    })
}

/// A Kubernetes ResourceClaim that holds one device, and its status.
pub(crate) fn allocated_claim(index: usize, node: &str, device: usize) -> (Value, Value) {
    let name = format!("held-{index}");
    let requests = json!([{"name": "req-0", "exactly": {"deviceClassName": CLASS}}]);
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
    let result = json!({
        "request": "req-0", "driver": DRIVER, "pool": node, "device": instance(device),
    });
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let status = json!({"status": {"allocation": {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }}});
    (claim, status)
}

/// The name of a node.
pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index:04}")
}

fn instance(index: usize) -> String {
    format!("instance-{index}")
}

fn root(index: usize) -> String {
    format!("root-{}", index % 2)
}
