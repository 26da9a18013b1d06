//! Convergence tests: claims and volumes reach the same state, whatever goes wrong on the way.

use gantry_harness::{UserAction, prove_worlds};
use gantry_reconcile::{Key, View};
use serde_json::json;

use super::tests::{
    claim, class, delete, key, make_node_ready, namespace, node, pod, scenario, summary, uses,
    volume,
};
use super::{PROVISIONER, PersistentVolumeClaim};
use crate::test_world::{assert_proof, faulty_objects};
use crate::view::{PersistentVolume, Pod};

const WAIT_FOR_FIRST_CONSUMER: [(&str, &str); 1] = [("volumeBindingMode", "WaitForFirstConsumer")];

#[test]
fn claims_and_volumes_converge() {
    let scenario = scenario(
        vec![
            namespace(),
            node("n1"),
            class("standard", PROVISIONER, &[]),
            class("late", PROVISIONER, &WAIT_FOR_FIRST_CONSUMER),
            claim("now", "standard", &[]),
            claim("late", "late", &[]),
            claim("gone", "standard", &[]),
            claim("fixed", "", &[("volumeName", json!("v"))]),
            volume("v", "5Gi", &[]),
            pod("p", "", &uses("late")),
            pod("q", "", &uses("gone")),
        ],
        vec![
            make_node_ready("n1"),
            delete(Pod::RESOURCE, key("q")),
            delete(PersistentVolumeClaim::RESOURCE, key("gone")),
        ],
    );
    assert_proof(scenario.prove_faults(0..4, summary));
    let mut wrong = faulty_objects("claim", "/spec/volumeMode", |name| {
        claim(name, "standard", &[("volumeMode", json!("Filesystem"))])
    });
    wrong.extend(faulty_objects("volume", "/spec/storageClassName", |name| {
        volume(name, "1Gi", &[("storageClassName", json!("other"))])
    }));
    assert_proof(scenario.prove_isolation(&wrong, 0..2, summary));
}

#[test]
fn random_claims_converge() {
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut objects = vec![
            namespace(),
            node("n1"),
            class("standard", PROVISIONER, &[]),
            class("late", PROVISIONER, &WAIT_FOR_FIRST_CONSUMER),
        ];
        let mut script: Vec<UserAction> = vec![make_node_ready("n1")];
        for name in ["a", "b", "c"] {
            let (late, going) = (rng.bool(), rng.bool());
            objects.push(claim(name, if late { "late" } else { "standard" }, &[]));
            let pod_name = format!("p{name}");
            if rng.bool() {
                objects.push(pod(&pod_name, "", &uses(name)));
                // Whether a claim that waits for its pod is bound before the pod is deleted is a
                // matter of timing.
                if going || !late {
                    script.push(delete(Pod::RESOURCE, key(&pod_name)));
                }
            }
            if going {
                script.push(delete(PersistentVolumeClaim::RESOURCE, key(name)));
            }
        }
        if rng.bool() {
            // A volume that no claim can get.
            objects.push(volume("free", "1Gi", &[("storageClassName", json!("none"))]));
            script.push(delete(PersistentVolume::RESOURCE, Key::cluster("free")));
        }
        scenario(objects, script)
    };
    assert_proof(prove_worlds(0..12, world, summary));
}
