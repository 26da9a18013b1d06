//! The claims of pods, with the messages of the original.

use super::*;
use crate::view::{DeviceClass, ResourceClaim};

const NOT_HELPFUL: &str =
    "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

fn refused(why: &str) -> String {
    format!("0/1 nodes are available: {why}. no new claims to deallocate, {NOT_HELPFUL}")
}

fn misfit(why: &str, claims: &str) -> String {
    format!("0/1 nodes are available: 1 {why}. {claims}, {NOT_HELPFUL}")
}

fn named(name: &str) -> Value {
    json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}})
}

fn from_template(claim_name: Option<&str>) -> Value {
    let statuses = claim_name.map(|name| json!([{"name": "gpu", "resourceClaimName": name}]));
    json!({
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": statuses.unwrap_or_else(|| json!([]))},
    })
}

/// A claim for a device of class `gpus`.
fn device(more: &Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [
            {"name": "one", "exactly": {"deviceClassName": "gpus"}},
        ]}},
    });
    merge_into(&mut claim, more);
    claim
}

fn owned_by(uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true},
    ]}})
}

fn allocated(selector: &Value, users: usize) -> Value {
    let user =
        |it: usize| json!({"resource": "pods", "name": format!("u{it}"), "uid": format!("u{it}")});
    json!({"status": {
        "allocation": {"nodeSelector": selector},
        "reservedFor": (0..users).map(user).collect::<Vec<_>>(),
    }})
}

#[test]
fn pods_wait_for_resource_claims_and_say_why() {
    let on_node = |name: &str| {
        json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]},
        ]})
    };
    let class = Some("gpus");
    let still = "still not schedulable";
    let one_of = json!({"spec": {"devices": {"requests": [
        {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "none"}]},
    ]}}});
    let table = vec![
        ("no claim", named("c"), None, None, refused("could not find ResourceClaim \"default/c\"")),
        (
            "a claim that goes",
            named("c"),
            Some(device(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))),
            class,
            refused("resourceclaim \"c\" is being deleted"),
        ),
        (
            "no class",
            named("c"),
            Some(device(&json!({}))),
            None,
            refused("request one: device class gpus does not exist"),
        ),
        (
            "no class for one of several",
            named("c"),
            Some(device(&one_of)),
            class,
            refused("request any/big: device class none does not exist"),
        ),
        (
            "not allocated",
            named("c"),
            Some(device(&json!({}))),
            class,
            misfit("cannot allocate all claims", still),
        ),
        (
            "allocated elsewhere",
            named("c"),
            Some(device(&allocated(&on_node("n2"), 1))),
            class,
            misfit("resourceclaim not available on the node", still),
        ),
        ("allocated", named("c"), Some(device(&allocated(&on_node("n1"), 1))), class, "n1".into()),
        (
            "allocated, and used by too many",
            named("c"),
            Some(device(&allocated(&Value::Null, 256))),
            class,
            refused("resourceclaim in use"),
        ),
        (
            "no claim made yet",
            from_template(None),
            None,
            class,
            refused("pod \"default/p\": ResourceClaim not created yet"),
        ),
        (
            "made for another pod",
            from_template(Some("c")),
            Some(device(&owned_by("uid-q"))),
            class,
            refused("ResourceClaim default/c was not created for pod default/p (pod is not owner)"),
        ),
        (
            "made for this pod",
            from_template(Some("c")),
            Some(device(&owned_by("uid-p"))),
            class,
            misfit("cannot allocate all claims", still),
        ),
    ];
    for (why, more, claim, class, expected) in table {
        let mut world = test_world(&[node("n1", &json!({}))], &[pod("p", &more)]);
        claim.into_iter().for_each(|it| world.put::<ResourceClaim>(it));
        if let Some(name) = class {
            world.put::<DeviceClass>(json!({"metadata": {"name": name}}));
        }
        world.reconcile_until_stable(0, &scheduler_key());
        assert_eq!(outcome(&world, "p"), expected, "{why}");
        let events = world.take_events();
        if expected != "n1" {
            assert_eq!(events, [format!("FailedScheduling: {expected}")], "{why}");
        }
    }
}

#[test]
fn claims_are_reserved_before_a_pod_is_bound() {
    let mut world = test_world(&[node("n1", &json!({}))], &[pod("p", &named("c"))]);
    world.put::<ResourceClaim>(device(&allocated(&Value::Null, 1)));
    let plan = world.plan(0, &scheduler_key());
    let [step] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!((step.write.verb(), step.then[0].write.verb()), ("patch", "bind"));
    let Write::Merge { body, subresource: part, .. } = &step.write else { panic!("a merge") };
    assert_eq!(*part, Subresource::Status);
    let users = &body["status"]["reservedFor"];
    assert_eq!(users[0]["uid"], "u0", "others stay");
    assert_eq!(users[1], json!({"resource": "pods", "name": "p", "uid": "uid-p"}));

    // A reserved claim is bound immediately.
    world.edit::<ResourceClaim>(&Key::new("default", "c"), |claim| {
        claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "uid-p"}]);
    });
    let plan = world.plan(0, &scheduler_key());
    assert_eq!(plan.steps[0].write.verb(), "bind");
}

fn with_volume(source: &Value) -> Value {
    let mut volume = json!({"name": "v"});
    merge_into(&mut volume, source);
    json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}, volume]}})
}

#[test]
fn pods_wait_for_volume_claims_and_say_why() {
    let claims = |name: &str| with_volume(&json!({"persistentVolumeClaim": {"claimName": name}}));
    let ephemeral = with_volume(&json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
    });
    let claim = |name: &str, more: &Value| {
        let mut claim = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"},
        });
        merge_into(&mut claim, more);
        claim
    };
    let far = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
    ]}}}});
    let volume = |more: &Value| {
        let mut volume = json!({
            "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "late"},
            "status": {"phase": "Available"},
        });
        merge_into(&mut volume, more);
        volume
    };
    let late = json!({"spec": {"storageClassName": "late"}});
    let no_claims = "no new claims to deallocate";
    let waits = "node(s) didn't find available persistent volumes to bind";
    let table = vec![
        ("no claim", claims("c"), vec![], vec![], refused("persistentvolumeclaim \"c\" not found")),
        (
            "no claim made yet",
            ephemeral.clone(),
            vec![],
            vec![],
            refused(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"",
            ),
        ),
        (
            "another's claim",
            ephemeral,
            vec![claim("p-v", &bound)],
            vec![],
            refused("PVC default/p-v was not created for pod default/p (pod is not owner)"),
        ),
        (
            "a claim that goes",
            claims("c"),
            vec![claim("c", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))],
            vec![],
            refused("persistentvolumeclaim \"c\" is being deleted"),
        ),
        (
            "a lost claim",
            claims("c"),
            vec![claim("c", &json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}))],
            vec![],
            refused("persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\""),
        ),
        (
            "not bound",
            claims("c"),
            vec![claim("c", &json!({}))],
            vec![],
            refused("pod has unbound immediate PersistentVolumeClaims"),
        ),
        ("bound", claims("c"), vec![claim("c", &bound)], vec![volume(&json!({}))], "n1".into()),
        (
            "bound to a volume of other nodes",
            claims("c"),
            vec![claim("c", &bound)],
            vec![volume(&far)],
            misfit("node(s) didn't match PersistentVolume's node affinity", no_claims),
        ),
        (
            "bound to nothing",
            claims("c"),
            vec![claim("c", &bound)],
            vec![],
            misfit(
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                no_claims,
            ),
        ),
        (
            "waits for a pod, and no volume is there",
            claims("c"),
            vec![claim("c", &late)],
            vec![],
            misfit(waits, no_claims),
        ),
        (
            "waits for a pod, and only a volume of other nodes is there",
            claims("c"),
            vec![claim("c", &late)],
            vec![volume(&far)],
            misfit(waits, no_claims),
        ),
        (
            "waits for a pod, and a volume is there",
            claims("c"),
            vec![claim("c", &late)],
            vec![volume(&json!({}))],
            "untouched".into(),
        ),
    ];
    for (why, more, claims, volumes, expected) in table {
        let mut world = test_world(&[node("n1", &json!({}))], &[pod("p", &more)]);
        world.put::<StorageClass>(json!({
            "metadata": {"name": "late"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
        claims.into_iter().for_each(|it| world.put::<PersistentVolumeClaim>(it));
        volumes.into_iter().for_each(|it| world.put::<PersistentVolume>(it));
        world.reconcile_until_stable(0, &scheduler_key());
        assert_eq!(outcome(&world, "p"), expected, "{why}");
        if expected == "untouched" {
            let volume = world.object::<PersistentVolume>(&Key::cluster("v")).unwrap();
            assert_eq!(volume["spec"]["claimRef"]["name"], "c", "{why}");
        }
    }
}

#[test]
fn a_claim_for_one_pod_is_not_shared() {
    let claims = with_volume(&json!({"persistentVolumeClaim": {"claimName": "c"}}));
    let mut world = test_world(
        &[node("n1", &json!({}))],
        &[pod_on_node("first", &claims), pod("second", &claims)],
    );
    world.put::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "c", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": "Bound"},
    }));
    world.put::<PersistentVolume>(json!({"metadata": {"name": "v"}, "spec": {}}));
    world.reconcile_until_stable(0, &scheduler_key());
    let why = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    assert_eq!(outcome(&world, "second"), misfit(why, "no new claims to deallocate"));
}

#[test]
fn no_preemption_for_a_pod_whose_volume_is_elsewhere() {
    let mut wants = with_volume(&json!({"persistentVolumeClaim": {"claimName": "c"}}));
    merge_into(&mut wants, &requests_cpu("4"));
    wants["spec"]["priority"] = json!(10);
    let mut world = test_world(
        &[node("n1", &json!({}))],
        &[pod_on_node("least", &requests_cpu("4")), pod("most", &wants)],
    );
    world.put::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "c", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
    }));
    world.put::<PersistentVolume>(json!({
        "metadata": {"name": "v"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        ]}}},
    }));
    world.reconcile_until_stable(0, &scheduler_key());
    let why = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.";
    assert_eq!(outcome(&world, "most"), why);
    assert!(!world.pod("least").metadata.is_terminating());
}
