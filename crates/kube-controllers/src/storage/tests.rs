use std::time::Duration;

use gantry_harness::{Faults, FinalState, Scenario, Server, UserAction};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View};
use serde_json::{Value, json};

use super::*;
use crate::scheduler::Scheduler;
use crate::view::{Namespace, Node, PersistentVolume, Pod, StorageClass};

static CONTROLLERS: [&dyn Controller; 7] = [
    &ClaimBinder,
    &VolumeBinder,
    &VolumeProvisioner,
    &PvcProtectionController,
    &PvProtectionController,
    &EphemeralVolumeController,
    &Scheduler,
];

/// The defaults of an API server for new claims and volumes.
fn defaults(resource: &Resource, object: &mut Value) {
    let finalizer = match resource.plural.as_ref() {
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "persistentvolumes" => "kubernetes.io/pv-protection",
        _ => return,
    };
    if object["metadata"]["finalizers"].is_null()
        && object["metadata"]["deletionTimestamp"].is_null()
    {
        object["metadata"]["finalizers"] = json!([finalizer]);
    }
}

pub(super) fn scenario<'a>(
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    let horizon = Duration::from_secs(60);
    Scenario {
        controllers: &CONTROLLERS,
        defaults,
        objects,
        script,
        replicas: 1,
        horizon,
        ..Scenario::default()
    }
}

fn run(objects: Vec<(Resource, Value)>, script: Vec<UserAction>) -> FinalState {
    scenario(objects, script).run(0, Faults::none()).unwrap()
}

pub(super) fn key(name: &str) -> Key {
    Key::new("n", name)
}

pub(super) fn class(name: &str, provisioner: &str, more: &[(&str, &str)]) -> (Resource, Value) {
    let mut class = json!({"metadata": {"name": name}, "provisioner": provisioner});
    for (field, value) in more {
        class[*field] = json!(value);
    }
    (StorageClass::RESOURCE, class)
}

pub(super) fn claim(name: &str, class: &str, more: &[(&str, Value)]) -> (Resource, Value) {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": class,
        },
    });
    for (field, value) in more {
        claim["spec"][*field] = value.clone();
    }
    (PersistentVolumeClaim::RESOURCE, claim)
}

pub(super) fn volume(name: &str, size: &str, more: &[(&str, Value)]) -> (Resource, Value) {
    let mut volume = json!({
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "capacity": {"storage": size},
            "hostPath": {"path": "/data"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    for (field, value) in more {
        volume["spec"][*field] = value.clone();
    }
    (PersistentVolume::RESOURCE, volume)
}

/// A pod that is gone as soon as it is deleted.
pub(super) fn pod(name: &str, node: &str, volume: &Value) -> (Resource, Value) {
    let pod = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 0,
            "volumes": [volume],
        },
    });
    (Pod::RESOURCE, pod)
}

pub(super) fn uses(claim: &str) -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}})
}

pub(super) fn node(name: &str) -> (Resource, Value) {
    (Node::RESOURCE, json!({"metadata": {"name": name}}))
}

/// Makes a node schedulable, by its status.
pub(super) fn make_node_ready(name: &'static str) -> UserAction {
    Box::new(move |server| {
        server.edit(&Node::RESOURCE, &Key::cluster(name), |node| {
            node["status"] = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
        });
    })
}

pub(super) fn namespace() -> (Resource, Value) {
    (Namespace::RESOURCE, json!({"metadata": {"name": "n"}}))
}

pub(super) fn delete(resource: Resource, key: Key) -> UserAction {
    Box::new(move |server| server.delete(&resource, &key, Propagation::Background))
}

/// Returns the state of claims, volumes and pods, in short.
pub(super) fn summary(server: &Server) -> Value {
    let good = |it: &&&Value| !crate::test_world::is_faulty(&it["metadata"]["name"]);
    let name = |it: &Value| {
        let name = it.as_str().unwrap_or_default();
        if name.starts_with("pvc-") { "made".to_owned() } else { name.to_owned() }
    };
    let going = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    let claims = server.list(&PersistentVolumeClaim::RESOURCE);
    let claims = claims.iter().filter(good).map(|it| {
        let (meta, status) = (&it["metadata"], &it["status"]);
        let volume = name(&it["spec"]["volumeName"]);
        json!([meta["name"], status["phase"], volume, status["capacity"]["storage"], going(it)])
    });
    let volumes = server.list(&PersistentVolume::RESOURCE);
    let volumes =
        volumes.iter().filter(|it| !crate::test_world::is_faulty(&it["spec"]["claimRef"]["name"]));
    let volumes = volumes.filter(good).map(|it| {
        let claim = &it["spec"]["claimRef"]["name"];
        json!([name(&it["metadata"]["name"]), it["status"]["phase"], claim, going(it)])
    });
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().filter(good);
    let pods = pods.map(|it| json!([it["metadata"]["name"], it["spec"]["nodeName"]]));
    json!({
        "claims": claims.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "pods": pods.collect::<Vec<_>>(),
    })
}

/// Returns the events about a claim, each once.
fn claim_events(ending: &FinalState) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for note in &ending.events {
        let said = format!("{}: {}", note.reason, note.message);
        if note.about.resource == PersistentVolumeClaim::RESOURCE && !messages.contains(&said) {
            messages.push(said);
        }
    }
    messages
}

#[test]
fn a_claim_gets_a_volume_of_its_own() {
    let standard = class("standard", PROVISIONER, &[]);
    let ending = run(vec![standard, claim("c", "standard", &[])], vec![]);
    let expected = json!({
        "claims": [["c", "Bound", "made", "2Gi", false]],
        "volumes": [["made", "Bound", "c", false]],
        "pods": [],
    });
    assert_eq!(summary(&ending.server), expected);
    let volumes = ending.server.list(&PersistentVolume::RESOURCE);
    let claim = ending.server.get(&PersistentVolumeClaim::RESOURCE, &key("c")).unwrap();
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let made = volumes[0];
    assert_eq!(made["metadata"]["name"], format!("pvc-{uid}"));
    assert_eq!(made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], PROVISIONER);
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(made["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteOnce"]));
    let annotations = &claim["metadata"]["annotations"];
    assert_eq!(annotations["volume.kubernetes.io/storage-provisioner"], PROVISIONER);
    assert_eq!(annotations["volume.beta.kubernetes.io/storage-provisioner"], PROVISIONER);
    let messages = claim_events(&ending);
    let begun = "Provisioning: External provisioner is provisioning volume for claim \"n/c\"";
    let done = format!("ProvisioningSucceeded: Successfully provisioned volume pvc-{uid}");
    assert!(messages.contains(&begun.to_owned()) && messages.contains(&done), "{messages:?}");
}

#[test]
fn a_used_claim_is_deleted_after_its_pod() {
    let objects = || {
        let standard = class("standard", PROVISIONER, &[]);
        vec![standard, claim("c", "standard", &[]), pod("p", "some", &uses("c"))]
    };
    let gone = || delete(PersistentVolumeClaim::RESOURCE, key("c"));
    let used = run(objects(), vec![gone()]);
    let claim = used.server.get(&PersistentVolumeClaim::RESOURCE, &key("c")).unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_string(), "{claim}");
    let held = used.held.iter().find(|it| it.reason == "InUse").unwrap();
    assert_eq!(held.message, "pod \"p\" uses it; it is deleted after the pod");
    let unused = run(objects(), vec![gone(), delete(Pod::RESOURCE, key("p"))]);
    assert_eq!(summary(&unused.server), json!({"claims": [], "volumes": [], "pods": []}));
    // A pod that was never scheduled does not protect the claim.
    let mut objects = objects();
    objects[2].1["spec"]["nodeName"] = json!("");
    let never = run(objects, vec![gone()]);
    assert_eq!(summary(&never.server)["claims"], json!([]));
}

#[test]
fn volumes_are_reclaimed_by_their_policy() {
    let gone = || delete(PersistentVolumeClaim::RESOURCE, key("c"));
    let kept = class("kept", PROVISIONER, &[("reclaimPolicy", "Retain")]);
    let ending = run(vec![kept, claim("c", "kept", &[])], vec![gone()]);
    let volumes = summary(&ending.server)["volumes"].clone();
    // A claim may be deleted before it has a volume.
    assert!(
        volumes == json!([["made", "Released", "c", false]]) || volumes == json!([]),
        "{volumes}"
    );
    let table = [
        ("Retain", "Released", None),
        (
            "Delete",
            "Failed",
            Some(
                "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
            ),
        ),
        ("Recycle", "Failed", Some("No recycler plugin found for the volume!")),
    ];
    for (policy, phase, why) in table {
        let policies = [("persistentVolumeReclaimPolicy", json!(policy))];
        let objects = vec![volume("v", "5Gi", &policies), claim("c", "", &[])];
        let bound: UserAction = Box::new(|server| {
            // Deleted when it is bound, and not before.
            server.edit(&PersistentVolume::RESOURCE, &Key::cluster("v"), |it| {
                it["spec"]["claimRef"] = json!({"namespace": "n", "name": "was", "uid": "gone"});
            });
        });
        let ending = run(objects, vec![bound]);
        let volume = ending.server.get(&PersistentVolume::RESOURCE, &Key::cluster("v")).unwrap();
        assert_eq!(volume["status"]["phase"], phase, "{policy}");
        assert_eq!(volume["status"]["message"].as_str(), why, "{policy}");
    }
}

#[test]
fn a_bound_volume_stays_until_its_claim_goes() {
    let objects = || vec![volume("v", "5Gi", &[]), claim("c", "", &[("volumeName", json!("v"))])];
    let binds: fn(&Server) -> Value = |server| summary(server)["volumes"].clone();
    let bound = run(objects(), vec![]);
    assert_eq!(binds(&bound.server), json!([["v", "Bound", "c", false]]));
    let going = || delete(PersistentVolume::RESOURCE, Key::cluster("v"));
    let both = run(objects(), vec![going(), delete(PersistentVolumeClaim::RESOURCE, key("c"))]);
    assert_eq!(summary(&both.server), json!({"claims": [], "volumes": [], "pods": []}));
}

#[test]
fn claims_bind_to_matching_volumes() {
    let sizes = || {
        vec![
            volume("small", "1Gi", &[]),
            volume("large", "9Gi", &[]),
            volume("right", "3Gi", &[]),
            volume("other", "3Gi", &[("storageClassName", json!("x"))]),
            volume("block", "2Gi", &[("volumeMode", json!("Block"))]),
        ]
    };
    let labelled = json!({"matchLabels": {"name": "large"}});
    let reserved = json!({"namespace": "n", "name": "c"});
    let no_class =
        "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    let cases = vec![
        ("the smallest that is large enough", vec![], vec![], "right", ""),
        ("the one it selects", vec![("selector", labelled)], vec![], "large", ""),
        ("the one it names", vec![("volumeName", json!("large"))], vec![], "large", ""),
        (
            "one that is reserved for it",
            vec![],
            vec![volume("mine", "8Gi", &[("claimRef", reserved)])],
            "mine",
            "",
        ),
        ("one of its mode", vec![("volumeMode", json!("Block"))], vec![], "block", ""),
        (
            "none of its modes",
            vec![("accessModes", json!(["ReadWriteMany"]))],
            vec![],
            "",
            no_class,
        ),
        (
            "one that is too small",
            vec![("volumeName", json!("small"))],
            vec![],
            "small",
            "VolumeMismatch: Cannot bind to requested volume \"small\": requested PV is too small",
        ),
        (
            "one of another class",
            vec![("volumeName", json!("other"))],
            vec![],
            "other",
            "VolumeMismatch: Cannot bind to requested volume \"other\": storageClassName does not match",
        ),
        (
            "one that is another's",
            vec![("volumeName", json!("taken"))],
            vec![volume("taken", "5Gi", &[("claimRef", json!({"namespace": "n", "name": "d"}))])],
            "taken",
            "FailedBinding: volume \"taken\" already bound to a different claim.",
        ),
    ];
    for (why, wanted, more, expected, said) in cases {
        let mut objects = sizes();
        objects.extend(more);
        // Volumes are available once they were observed, which takes a moment.
        let late: UserAction = {
            let wanted: Vec<(&str, Value)> = wanted;
            Box::new(move |server| {
                let (resource, claim) = claim("c", "", &wanted);
                server.create(&resource, claim);
            })
        };
        let ending = run(objects, vec![late]);
        let found = ending.server.get(&PersistentVolumeClaim::RESOURCE, &key("c")).unwrap();
        assert_eq!(found["spec"]["volumeName"].as_str().unwrap_or_default(), expected, "{why}");
        let phase = if said.is_empty() { "Bound" } else { "Pending" };
        assert_eq!(found["status"]["phase"], phase, "{why}");
        assert!(
            said.is_empty() || claim_events(&ending).contains(&said.to_owned()),
            "{why}: {:?}",
            claim_events(&ending)
        );
    }
}

#[test]
fn claims_of_other_provisioners_are_left_alone() {
    let foreign = class("foreign", "example.com/nfs", &[]);
    let ending = run(vec![foreign, claim("c", "foreign", &[])], vec![]);
    assert_eq!(summary(&ending.server)["claims"], json!([["c", "Pending", "", null, false]]));
    assert_eq!(summary(&ending.server)["volumes"], json!([]));
    let said = "ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/nfs' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.";
    assert_eq!(claim_events(&ending).last().map(String::as_str), Some(said));
    let ending = run(vec![claim("c", "none", &[])], vec![]);
    let said = "ProvisioningFailed: storageclass.storage.k8s.io \"none\" not found";
    assert_eq!(claim_events(&ending), [said]);
}

#[test]
fn a_claim_without_its_volume_is_lost() {
    let objects = vec![volume("v", "5Gi", &[]), claim("c", "", &[("volumeName", json!("v"))])];
    let mut server = run(objects, vec![]).server;
    let claim = server.get(&PersistentVolumeClaim::RESOURCE, &key("c")).unwrap().clone();
    // By force: a user removes its finalizer.
    server.edit(&PersistentVolume::RESOURCE, &Key::cluster("v"), |it| {
        it["metadata"]["finalizers"] = Value::Null;
    });
    let world = gantry_reconcile::World::new(ClaimBinder.kinds());
    world
        .single_store_for(&PersistentVolumeClaim::RESOURCE)
        .unwrap()
        .observe(&claim.to_string())
        .unwrap();
    let plan = ClaimBinder.plan(&world, &key("c"), server.now());
    let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("a merge") };
    assert_eq!(body["status"]["phase"], "Lost");
    let note = &plan.steps[0].success_events[0];
    let said = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!((note.reason.as_ref(), note.message.as_str()), ("ClaimLost", said));
}

#[test]
fn delayed_claims_are_bound_when_their_pod_is_scheduled() {
    let late = || {
        let mode = [("volumeBindingMode", "WaitForFirstConsumer")];
        vec![namespace(), class("late", PROVISIONER, &mode), claim("c", "late", &[])]
    };
    let ending = run(late(), vec![]);
    assert_eq!(summary(&ending.server)["claims"], json!([["c", "Pending", "", null, false]]));
    let said =
        "WaitForFirstConsumer: waiting for first consumer to be created before binding".to_owned();
    assert_eq!(claim_events(&ending), [said]);

    let mut objects = late();
    objects.extend([pod("p", "", &uses("c")), node("n1")]);
    let ending = run(objects.clone(), vec![make_node_ready("n1")]);
    let expected = json!({
        "claims": [["c", "Bound", "made", "2Gi", false]],
        "volumes": [["made", "Bound", "c", false]],
        "pods": [["p", "n1"]],
    });
    assert_eq!(summary(&ending.server), expected);
    let claim = ending.server.get(&PersistentVolumeClaim::RESOURCE, &key("c")).unwrap();
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n1");
    let waited = "WaitForPodScheduled: waiting for pod p to be scheduled".to_owned();
    assert!(claim_events(&ending).contains(&waited), "{:?}", claim_events(&ending));

    // An existing volume is used, and only on the nodes that can access it.
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
    ]}});
    let fields = [("storageClassName", json!("late")), ("nodeAffinity", affinity)];
    let mut objects = late();
    objects[1] = {
        let mode = [("volumeBindingMode", "WaitForFirstConsumer")];
        class("late", "kubernetes.io/no-provisioner", &mode)
    };
    objects.extend([volume("local", "4Gi", &fields), pod("p", "", &uses("c"))]);
    objects.extend([node("n1"), node("n2")]);
    let ending = run(objects, vec![make_node_ready("n1"), make_node_ready("n2")]);
    let expected = json!({
        "claims": [["c", "Bound", "local", "4Gi", false]],
        "volumes": [["local", "Bound", "c", false]],
        "pods": [["p", "n2"]],
    });
    assert_eq!(summary(&ending.server), expected);
}

#[test]
fn a_claim_does_not_wait_for_a_node_that_is_gone() {
    let mode = [("volumeBindingMode", "WaitForFirstConsumer")];
    let (resource, mut selected) = claim("c", "late", &[]);
    let name = annotation::SELECTED_NODE;
    selected["metadata"]["annotations"] = json!({name: "gone"});
    let objects = vec![
        namespace(),
        class("late", PROVISIONER, &mode),
        (resource, selected),
        pod("p", "", &uses("c")),
        node("n1"),
    ];
    let ending = run(objects, vec![make_node_ready("n1")]);
    assert_eq!(summary(&ending.server)["pods"], json!([["p", "n1"]]));
}

#[test]
fn claims_of_ephemeral_volumes_are_deleted_with_their_pod() {
    let template = json!({
        "metadata": {"labels": {"kept": "yes"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    let source = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
    let objects = || {
        let standard = class("standard", PROVISIONER, &[]);
        vec![namespace(), standard, pod("p", "", &source), node("n1")]
    };
    let ending = run(objects(), vec![make_node_ready("n1")]);
    let expected = json!({
        "claims": [["p-v", "Bound", "made", "1Gi", false]],
        "volumes": [["made", "Bound", "p-v", false]],
        "pods": [["p", "n1"]],
    });
    assert_eq!(summary(&ending.server), expected);
    let claim = ending.server.get(&PersistentVolumeClaim::RESOURCE, &key("p-v")).unwrap();
    assert_eq!(claim["metadata"]["labels"], json!({"kept": "yes"}));
    let gone = run(objects(), vec![make_node_ready("n1"), delete(Pod::RESOURCE, key("p"))]);
    assert_eq!(summary(&gone.server), json!({"claims": [], "volumes": [], "pods": []}));
    // A claim of that name with another owner is not used.
    let mut objects = objects();
    objects.push(self::claim("p-v", "standard", &[]));
    let ending = run(objects, vec![make_node_ready("n1")]);
    assert_eq!(summary(&ending.server)["pods"], json!([["p", ""]]));
    let held = ending.held.iter().find(|it| it.reason == "FailedBinding").unwrap();
    let why = "ephemeral volume v: PVC n/p-v was not created for pod n/p (pod is not owner)";
    assert_eq!(held.message, why);
}
