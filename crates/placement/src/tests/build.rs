//! Objects of small worlds, and those who decide about them.

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim,
    PodDevices,
};
use gantry_harness::{Action, Asking, Failure, Outside, Scenario, Server};
use gantry_pods::view::{Namespace, Node, Pod};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View};
use proptest::test_runner::Config as ProptestConfig;
use serde_json::{Value, json};
use std::time::Duration;

use super::invariants;
use crate::claim::ENTRY_ANNOTATION;
use crate::{
    AdminQuota, Books, ClassStanding, ConfigInquiry, ConfigObject, DriverStanding, Gate, Quota,
    Reference, Release, Results, Scheduler, Seen,
};

pub(super) const PODS: Resource = Pod::RESOURCE;
pub(super) const CLAIMS: Resource = <Seen<DeviceClaim> as View>::RESOURCE;
pub(super) const PRIVILEGED: Resource = <Seen<DevicePrivilegedClaim> as View>::RESOURCE;
pub(super) const POOLS: Resource = <Seen<DevicePool> as View>::RESOURCE;
pub(super) const CLASSES: Resource = <Seen<DeviceClass> as View>::RESOURCE;
pub(super) const DRIVERS: Resource = <Seen<DeviceDriver> as View>::RESOURCE;
pub(super) const TEMPLATES: Resource = <Seen<DeviceClaimTemplate> as View>::RESOURCE;
pub(super) const POD_DEVICES: Resource = <Seen<PodDevices> as View>::RESOURCE;
pub(super) const NAMESPACES: Resource = Namespace::RESOURCE;
pub(super) const QUOTAS: Resource = Quota::RESOURCE;
pub(super) const CONFIG_MAPS: Resource =
    Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

pub(super) type Objects = Vec<(Resource, Value)>;

/// Everyone who decides here.
pub(super) struct Team {
    scheduler: Scheduler,
    classes: ClassStanding,
}

impl Team {
    pub(super) fn new() -> Self {
        Self { scheduler: Scheduler::default(), classes: ClassStanding::default() }
    }

    /// One that wants quotas for whoever looks at devices of others.
    pub(super) fn strict() -> Self {
        Self { scheduler: Scheduler::new(AdminQuota::Required), ..Self::new() }
    }

    pub(super) fn all(&self) -> Vec<&dyn Controller> {
        vec![&self.scheduler, &Release, &Books, &Results, &Gate, &self.classes, &DriverStanding]
    }
}

/// A run of everyone on these objects.
pub(super) fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Objects,
    script: Vec<Action>,
) -> Scenario<'a> {
    Scenario {
        controllers,
        defaults,
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(30),
        outside: Outside { inquiries: vec![&READS_CONFIGS], ..Outside::default() },
    }
}

/// What reads the objects that configure devices.
static READS_CONFIGS: Asking<ConfigInquiry> =
    Asking { inquiry: ConfigInquiry, answer: read_config };

fn read_config(server: &Server, reference: &Reference) -> Result<ConfigObject, String> {
    let place = Key::new(&reference.namespace, &reference.name);
    let Some(object) = server.get(&CONFIG_MAPS, &place) else { return Ok(ConfigObject::NotFound) };
    let mut object = object.clone();
    // What differs from run to run is left out.
    object["metadata"] = json!({
        "name": place.name(), "namespace": place.namespace(), "uid": "u", "managedFields": [],
    });
    Ok(ConfigObject::Found(object))
}

/// Seeds for so many cases each of those that property tests are told to try, at least one.
pub(super) fn seeds(cases_each: u32) -> u64 {
    u64::from((ProptestConfig::default().cases / cases_each).max(1))
}

pub(super) fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// What a node says of itself, which nobody here pretends.
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

/// A node with so many processors.
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

/// A pool of so many devices on a node.
pub(super) fn pool(name: &str, node: &str, devices: usize) -> (Resource, Value) {
    let devices: Vec<Value> = (0..devices).map(|at| json!({"name": format!("d{at}")})).collect();
    let spec = json!({
        "nodeName": node, "driver": "gpu.example.com", "deviceType": "gpu", "devices": devices,
    });
    (POOLS, json!({"metadata": {"name": name}, "spec": spec}))
}

/// What asks for so many devices of a class.
pub(super) fn wish(class: &str, count: usize) -> Value {
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

/// A pod with these claims, all of them for its only container.
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

/// A pod that uses a claim by name.
pub(super) fn user(name: &str, claim: &str) -> (Resource, Value) {
    pod(name, &json!([{"name": "gpu", "claimName": claim}]))
}

/// A pod with a claim of its own.
pub(super) fn owner(name: &str, template: &str) -> (Resource, Value) {
    pod(name, &json!([{"name": "gpu", "claimTemplateName": template}]))
}

/// Ends a pod, as its node would.
pub(super) fn end(name: &str) -> Action {
    let name = name.to_owned();
    Box::new(move |server| {
        server.edit(&PODS, &key(&name), |pod| pod["status"]["phase"] = json!("Succeeded"));
    })
}

/// Takes a pod away, as a user and its node would.
pub(super) fn remove(name: &str) -> Action {
    let name = name.to_owned();
    Box::new(move |server| server.delete(&PODS, &key(&name), Propagation::Background))
}

/// Lets the ConfigMap that configures devices say this.
pub(super) fn configure(says: &'static str) -> Action {
    Box::new(move |server| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": says},
            "metadata": {"name": "conf", "namespace": "default"},
        });
        server.create(&CONFIG_MAPS, object);
        server.edit(&CONFIG_MAPS, &key("conf"), |it| it["data"] = json!({"x": says}));
    })
}

/// Makes an object, as a user would.
pub(super) fn make(object: (Resource, Value)) -> Action {
    Box::new(move |server| {
        server.create(&object.0, object.1.clone());
    })
}

/// What matters in the end, whoever got which device: which pods run, which claims have how many
/// devices for whom, and how many entries each has in ledgers. Claims that are made are called by what
/// they are for.
pub(super) fn shape(server: &Server) -> Value {
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
                Some(owner) => format!("{owner}/{}", meta["annotations"][ENTRY_ANNOTATION]),
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

/// The same, and that everything held at every moment.
pub(super) fn checked(server: &Server) -> Value {
    invariants::hold(server, invariants::Claims::Always);
    shape(server)
}

/// What a proof says when it fails.
pub(super) fn proven(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}
