//! Objects of small test worlds, and the controllers that decide about them.

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim,
    PodDevices,
};
use gantry_harness::{ExternalSystems, Failure, Scenario, Server, SimulatedInquiry, UserAction};
use gantry_pods::view::{Namespace, Node, Pod};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View};
use proptest::test_runner::Config as ProptestConfig;
use serde_json::{Value, json};
use std::time::Duration;

use super::invariants;
use crate::claim::POD_CLAIM_NAME_ANNOTATION;
use crate::{
    AdminQuota, ClassStatusController, ConfigInquiry, ConfigObject, DeviceConfigReference,
    DeviceObject, DriverStatusController, GateController, LedgerReconciler, PodAnnotator,
    ReleaseController, ResourceQuota, Scheduler,
};

pub(super) const PODS: Resource = Pod::RESOURCE;
pub(super) const CLAIMS: Resource = <DeviceObject<DeviceClaim> as View>::RESOURCE;
pub(super) const PRIVILEGED: Resource = <DeviceObject<DevicePrivilegedClaim> as View>::RESOURCE;
pub(super) const POOLS: Resource = <DeviceObject<DevicePool> as View>::RESOURCE;
pub(super) const CLASSES: Resource = <DeviceObject<DeviceClass> as View>::RESOURCE;
pub(super) const DRIVERS: Resource = <DeviceObject<DeviceDriver> as View>::RESOURCE;
pub(super) const TEMPLATES: Resource = <DeviceObject<DeviceClaimTemplate> as View>::RESOURCE;
pub(super) const POD_DEVICES: Resource = <DeviceObject<PodDevices> as View>::RESOURCE;
pub(super) const NAMESPACES: Resource = Namespace::RESOURCE;
pub(super) const QUOTAS: Resource = ResourceQuota::RESOURCE;
pub(super) const CONFIG_MAPS: Resource =
    Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

pub(super) type Objects = Vec<(Resource, Value)>;

/// All controllers under test.
pub(super) struct Controllers {
    scheduler: Scheduler,
    classes: ClassStatusController,
}

impl Controllers {
    pub(super) fn new() -> Self {
        Self { scheduler: Scheduler::default(), classes: ClassStatusController::default() }
    }

    /// Creates controllers that require quotas for classes with administrator access.
    pub(super) fn strict() -> Self {
        Self { scheduler: Scheduler::new(AdminQuota::Required), ..Self::new() }
    }

    pub(super) fn all(&self) -> Vec<&dyn Controller> {
        vec![
            &self.scheduler,
            &ReleaseController,
            &LedgerReconciler,
            &PodAnnotator,
            &GateController,
            &self.classes,
            &DriverStatusController,
        ]
    }
}

/// Runs all controllers on these objects.
pub(super) fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Objects,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    Scenario {
        controllers,
        defaults,
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(30),
        external: ExternalSystems { inquiries: vec![&READS_CONFIGS], ..ExternalSystems::default() },
    }
}

/// Reads the objects that configure devices.
static READS_CONFIGS: SimulatedInquiry<ConfigInquiry> =
    SimulatedInquiry { inquiry: ConfigInquiry, answer: read_config };

fn read_config(server: &Server, reference: &DeviceConfigReference) -> Result<ConfigObject, String> {
    let place = Key::new(&reference.namespace, &reference.name);
    let Some(object) = server.get(&CONFIG_MAPS, &place) else { return Ok(ConfigObject::NotFound) };
    let mut object = object.clone();
    // What differs from run to run is left out.
    object["metadata"] = json!({
        "name": place.name(), "namespace": place.namespace(), "uid": "u", "managedFields": [],
    });
    Ok(ConfigObject::Found(object))
}

/// Returns as many seeds as property tests are configured to try, so many cases each, at least one.
pub(super) fn seeds(cases_each: u32) -> u64 {
    u64::from((ProptestConfig::default().cases / cases_each).max(1))
}

pub(super) fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// Fills in the status of a node, which no simulated kubelet writes here.
pub(super) fn defaults(resource: &Resource, object: &mut Value) {
    if *resource == Node::RESOURCE && object["status"].is_null() {
        let cpu = object["metadata"]["labels"]["cpu"].as_str().unwrap_or("8").to_owned();
        object["status"] = json!({
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        });
    }
}

pub(super) fn node(name: &str) -> (Resource, Value) {
    small_node(name, "8")
}

/// Returns a node with so much CPU.
pub(super) fn small_node(name: &str, cpu: &str) -> (Resource, Value) {
    (Node::RESOURCE, json!({"metadata": {"name": name, "labels": {"cpu": cpu}}}))
}

pub(super) fn namespace(labels: &Value) -> (Resource, Value) {
    (NAMESPACES, json!({"metadata": {"name": "default", "labels": labels}}))
}

pub(super) fn driver() -> (Resource, Value) {
    (DRIVERS, json!({"metadata": {"name": "gpu.example.com"}, "deviceTypes": ["gpu"]}))
}

pub(super) fn class(name: &str, more: &Value) -> (Resource, Value) {
    let mut spec = json!({"deviceType": "gpu"});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    (CLASSES, json!({"metadata": {"name": name}, "spec": spec}))
}

/// Returns a pool of so many devices on a node.
pub(super) fn pool(name: &str, node: &str, devices: usize) -> (Resource, Value) {
    let devices: Vec<Value> = (0..devices).map(|at| json!({"name": format!("d{at}")})).collect();
    let spec = json!({
        "nodeName": node, "driver": "gpu.example.com", "deviceType": "gpu", "devices": devices,
    });
    (POOLS, json!({"metadata": {"name": name}, "spec": spec}))
}

/// Returns a request for so many devices of a class.
pub(super) fn device_request(class: &str, count: usize) -> Value {
    json!({"claims": [{"name": "main", "deviceClass": class,
        "requests": {"count": count.to_string()}, "limits": {"count": count.to_string()}}]})
}

pub(super) fn claim(name: &str, spec: &Value) -> (Resource, Value) {
    (CLAIMS, json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
}

pub(super) fn template(name: &str, spec: &Value) -> (Resource, Value) {
    let meta = json!({"name": name, "namespace": "default"});
    (TEMPLATES, json!({"metadata": meta, "spec": {"claimSpec": spec}}))
}

/// Returns a pod with these claims, all of them for its only container.
pub(super) fn pod(name: &str, claims: &Value) -> (Resource, Value) {
    let names = claims.as_array().into_iter().flatten().map(|it| json!({"name": it["name"]}));
    let devices = json!({"main": names.collect::<Vec<_>>()});
    let object = json!({
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {
                "devmgmtproto.k8s.io/device-claims": claims.to_string(),
                "devmgmtproto.k8s.io/container-devices": devices.to_string(),
            },
        },
        "spec": {
            "schedulerName": "gantry",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}],
            "terminationGracePeriodSeconds": 0,
        },
    });
    (PODS, object)
}

/// Returns a pod that uses a claim by name.
pub(super) fn pod_with_claim(name: &str, claim: &str) -> (Resource, Value) {
    pod(name, &json!([{"name": "gpu", "claimName": claim}]))
}

/// Returns a pod with a claim of its own.
pub(super) fn pod_with_template(name: &str, template: &str) -> (Resource, Value) {
    pod(name, &json!([{"name": "gpu", "claimTemplateName": template}]))
}

/// Ends a pod, as its kubelet would.
pub(super) fn end(name: &str) -> UserAction {
    let name = name.to_owned();
    Box::new(move |server| {
        server.edit(&PODS, &key(&name), |pod| pod["status"]["phase"] = json!("Succeeded"));
    })
}

/// Deletes a pod, as a user and its kubelet would.
pub(super) fn remove(name: &str) -> UserAction {
    let name = name.to_owned();
    Box::new(move |server| server.delete(&PODS, &key(&name), Propagation::Background))
}

/// Sets the content of the ConfigMap that configures devices.
pub(super) fn set_config(says: &'static str) -> UserAction {
    Box::new(move |server| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": says},
            "metadata": {"name": "conf", "namespace": "default"},
        });
        server.create(&CONFIG_MAPS, object);
        server.edit(&CONFIG_MAPS, &key("conf"), |it| it["data"] = json!({"x": says}));
    })
}

/// Creates an object, as a user would.
pub(super) fn make(object: (Resource, Value)) -> UserAction {
    Box::new(move |server| {
        server.create(&object.0, object.1.clone());
    })
}

/// Summarizes the final state, regardless of which claim got which device: which pods run, which
/// claims have how many devices for which pods, and how many entries each has in ledgers. Generated
/// claims are named by their purpose.
pub(super) fn summary(server: &Server) -> Value {
    let mut out = json!({"pods": {}, "claims": {}, "entries": {}});
    for pod in server.list(&PODS) {
        let placed = pod["spec"]["nodeName"].is_string();
        let told = &pod["metadata"]["annotations"]["devmgmtproto.k8s.io/device-allocations"];
        let name = pod["metadata"]["name"].as_str().unwrap();
        out["pods"][name] = json!([placed, told.is_string()]);
    }
    let mut names = std::collections::BTreeMap::new();
    for resource in [CLAIMS, PRIVILEGED] {
        for claim in server.list(&resource) {
            let meta = &claim["metadata"];
            let name = match meta["ownerReferences"][0]["name"].as_str() {
                Some(owner) => {
                    format!("{owner}/{}", meta["annotations"][POD_CLAIM_NAME_ANNOTATION])
                }
                None => meta["name"].as_str().unwrap().to_owned(),
            };
            let got = claim["status"]["allocations"].as_array().map_or(0, Vec::len);
            let kept = meta["finalizers"].as_array().is_some_and(|it| !it.is_empty());
            out["claims"][&name] = json!([got, claim["status"]["podNames"], kept]);
            names.insert(meta["uid"].as_str().unwrap().to_owned(), name);
        }
    }
    for pool in server.list(&POOLS) {
        for entry in pool["status"]["allocations"].as_array().into_iter().flatten() {
            let uid = entry["claimRef"]["uid"].as_str().unwrap();
            let name = names.get(uid).map_or("nobody", String::as_str);
            let count = out["entries"][name].as_u64().unwrap_or_default();
            out["entries"][name] = json!(count + 1);
        }
    }
    out
}

/// Returns the same, and checks the invariants at every revision.
pub(super) fn checked_summary(server: &Server) -> Value {
    invariants::check_history(server, invariants::ClaimInvariant::Always);
    summary(server)
}

/// Panics with the message of a failed proof.
pub(super) fn assert_proven(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}
