//! Small test worlds with crashes, lost responses and bad objects.

use gantry_harness::{CONFLICTED_PREFIX, REFUSED_PREFIX, UNREADABLE_PREFIX, prove_worlds};
use serde_json::json;

use super::build::*;

#[test]
fn a_pod_with_a_claim_of_its_own_gets_it_once() {
    let team = Controllers::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 2),
        template("t", &device_request("gpu", 1)),
        pod_with_template("a", "t"),
    ];
    assert_proven(scenario(&all, objects, vec![]).prove(0..6, checked_summary));
}

#[test]
fn competing_pods_are_served_one_after_another() {
    let team = Controllers::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        claim("one", &device_request("gpu", 1)),
        claim("two", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
        pod_with_claim("b", "two"),
    ];
    // A pod may end before it was bound to a node at all.
    let script = vec![end("a"), end("b")];
    assert_proven(scenario(&all, objects, script).prove(0..4, |server| {
        let mut shape = checked_summary(server);
        shape["pods"] = json!(null);
        shape
    }));
}

#[test]
fn devices_of_several_pools_come_together() {
    let team = Controllers::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        node("n2"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n1", 2),
        pool("p3", "n2", 1),
        claim("three", &device_request("gpu", 3)),
        claim("one", &device_request("gpu", 1)),
        pod_with_claim("a", "three"),
        pod_with_claim("b", "one"),
    ];
    assert_proven(scenario(&all, objects, vec![]).prove(0..4, checked_summary));
}

#[test]
fn devices_are_released_when_pods_end() {
    let team = Controllers::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        node("n2"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n2", 1),
        claim("shared", &device_request("gpu", 1)),
        template("t", &device_request("gpu", 1)),
        pod_with_claim("a", "shared"),
        pod_with_claim("b", "shared"),
        pod_with_template("c", "t"),
    ];
    let script = vec![remove("a"), remove("c"), remove("b")];
    assert_proven(scenario(&all, objects, script).prove(0..4, |server| {
        let shape = checked_summary(server);
        assert_eq!(shape["entries"], json!({}), "nothing is held");
        assert_eq!(shape["claims"], json!({"shared": [0, null, false]}), "nothing is kept");
        shape
    }));
}

#[test]
fn a_deleted_claim_releases_its_devices() {
    let team = Controllers::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        claim("one", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
    ];
    let gone = |server: &mut gantry_harness::Server| {
        server.delete(&CLAIMS, &key("one"), gantry_reconcile::Propagation::Background);
    };
    let script: Vec<gantry_harness::UserAction> = vec![Box::new(gone), remove("a")];
    assert_proven(scenario(&all, objects, script).prove(0..4, checked_summary));
}

/// Random worlds of a few nodes, pools, claims and pods.
#[test]
fn random_worlds_converge() {
    let team = Controllers::new();
    let all = team.all();
    let world = |seed: u64| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut objects =
            vec![driver(), class("gpu", &json!({})), template("t", &device_request("gpu", 1))];
        let nodes = rng.usize(1..4);
        for at in 0..nodes {
            objects.push(node(&format!("n{at}")));
            for pool_at in 0..rng.usize(1..3) {
                let name = format!("p{at}{pool_at}");
                objects.push(pool(&name, &format!("n{at}"), rng.usize(1..4)));
            }
        }
        let mut script = Vec::new();
        for at in 0..rng.usize(1..5) {
            let name = format!("pod{at}");
            let object = match rng.usize(..3) {
                0 => pod_with_template(&name, "t"),
                1 => pod(
                    &name,
                    &json!([{"name": "gpu", "claim": device_request("gpu", rng.usize(1..3))}]),
                ),
                _ => {
                    let claim_name = format!("claim{at}");
                    objects.push(claim(&claim_name, &device_request("gpu", rng.usize(1..3))));
                    pod_with_claim(&name, &claim_name)
                }
            };
            objects.push(object);
            script.push(remove(&name));
        }
        scenario(&all, objects, script)
    };
    assert_proven(prove_worlds(0..15, world, |server| {
        let shape = checked_summary(server);
        assert_eq!(shape["entries"], json!({}), "nothing is held");
        shape
    }));
}

/// Claims and pods that cannot be written, or cannot be parsed.
#[test]
fn bad_objects_do_not_affect_others() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 8),
        template("t", &device_request("gpu", 1)),
        claim("good", &device_request("gpu", 1)),
        pod_with_claim("a", "good"),
        pod_with_template("b", "t"),
    ];
    let mut bad = Vec::new();
    for wrong in [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX] {
        let (claim_name, own) = (format!("{wrong}-claim"), format!("own-{wrong}"));
        objects.push(pod_with_claim(&format!("user-of-{wrong}"), &claim_name));
        objects.push(claim(&own, &device_request("gpu", 1)));
        let mut objects = [
            claim(&claim_name, &device_request("gpu", 1)),
            pod_with_claim(&format!("{wrong}-pod"), &own),
        ];
        if wrong == UNREADABLE_PREFIX {
            // A label that is a number is invalid.
            objects.iter_mut().for_each(|it| it.1["metadata"]["labels"] = json!({"x": 1}));
        }
        bad.extend(objects);
    }
    assert_proven(scenario(&all, objects, vec![]).prove_isolation(&bad, 0..4, |server| {
        let shape = summary(server);
        let good = |part: &str, name: &str| shape[part][name].clone();
        json!([
            good("pods", "a"),
            good("pods", "b"),
            good("claims", "good"),
            good("entries", "good")
        ])
    }));
}
