//! Claims and volumes end in the same place, whatever goes wrong on the way.

use gantry_harness::{Action, prove_worlds};
use gantry_reconcile::{Key, View};
use serde_json::json;

use super::tests::{
    claim, class, delete, key, namespace, node, pod, power, scenario, shape, uses, volume,
};
use super::{PROVISIONER, PersistentVolumeClaim};
use crate::stand::{bad, proven};
use crate::view::{PersistentVolume, Pod};

const LATE: [(&str, &str); 1] = [("volumeBindingMode", "WaitForFirstConsumer")];

#[test]
fn claims_and_volumes_end_in_the_same_place() {
    let scenario = scenario(
        vec![
            namespace(),
            node("n1"),
            class("standard", PROVISIONER, &[]),
            class("late", PROVISIONER, &LATE),
            claim("now", "standard", &[]),
            claim("late", "late", &[]),
            claim("gone", "standard", &[]),
            claim("fixed", "", &[("volumeName", json!("v"))]),
            volume("v", "5Gi", &[]),
            pod("p", "", &uses("late")),
            pod("q", "", &uses("gone")),
        ],
        vec![
            power("n1"),
            delete(Pod::RESOURCE, key("q")),
            delete(PersistentVolumeClaim::RESOURCE, key("gone")),
        ],
    );
    proven(scenario.prove_faults(0..4, shape));
    let mut wrong = bad("claim", "/spec/volumeMode", |name| {
        claim(name, "standard", &[("volumeMode", json!("Filesystem"))])
    });
    wrong.extend(bad("volume", "/spec/storageClassName", |name| {
        volume(name, "1Gi", &[("storageClassName", json!("other"))])
    }));
    proven(scenario.prove_apart(&wrong, 0..2, shape));
}

#[test]
fn claims_of_any_world_end_in_one_place() {
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut objects = vec![
            namespace(),
            node("n1"),
            class("standard", PROVISIONER, &[]),
            class("late", PROVISIONER, &LATE),
        ];
        let mut script: Vec<Action> = vec![power("n1")];
        for name in ["a", "b", "c"] {
            let (late, going) = (rng.bool(), rng.bool());
            objects.push(claim(name, if late { "late" } else { "standard" }, &[]));
            let pod_name = format!("p{name}");
            if rng.bool() {
                objects.push(pod(&pod_name, "", &uses(name)));
                // Whether a claim that waits for its pod is bound before the pod goes is chance.
                if going || !late {
                    script.push(delete(Pod::RESOURCE, key(&pod_name)));
                }
            }
            if going {
                script.push(delete(PersistentVolumeClaim::RESOURCE, key(name)));
            }
        }
        if rng.bool() {
            // Nothing is left of a volume that nobody claims.
            objects.push(volume("free", "1Gi", &[("storageClassName", json!("none"))]));
            script.push(delete(PersistentVolume::RESOURCE, Key::cluster("free")));
        }
        scenario(objects, script)
    };
    proven(prove_worlds(0..12, world, shape));
}
