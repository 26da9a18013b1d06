//! Small worlds in which everything goes wrong.

use gantry_harness::{CONFLICTED, REFUSED, UNREADABLE, prove_worlds};
use serde_json::json;

use super::build::*;

#[test]
fn a_pod_with_a_claim_of_its_own_gets_it_once() {
    let team = Team::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 2),
        template("t", &wish("gpu", 1)),
        owner("a", "t"),
    ];
    proven(scenario(&all, objects, vec![]).prove(0..6, checked));
}

#[test]
fn pods_that_compete_take_turns() {
    let team = Team::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        claim("one", &wish("gpu", 1)),
        claim("two", &wish("gpu", 1)),
        user("a", "one"),
        user("b", "two"),
    ];
    // A pod may end before it was given to a node at all.
    let script = vec![end("a"), end("b")];
    proven(scenario(&all, objects, script).prove(0..4, |server| {
        let mut shape = checked(server);
        shape["pods"] = json!(null);
        shape
    }));
}

#[test]
fn devices_of_several_pools_come_together() {
    let team = Team::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        node("n2"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n1", 2),
        pool("p3", "n2", 1),
        claim("three", &wish("gpu", 3)),
        claim("one", &wish("gpu", 1)),
        user("a", "three"),
        user("b", "one"),
    ];
    proven(scenario(&all, objects, vec![]).prove(0..4, checked));
}

#[test]
fn everything_ends_with_its_pods() {
    let team = Team::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        node("n2"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n2", 1),
        claim("shared", &wish("gpu", 1)),
        template("t", &wish("gpu", 1)),
        user("a", "shared"),
        user("b", "shared"),
        owner("c", "t"),
    ];
    let script = vec![remove("a"), remove("c"), remove("b")];
    proven(scenario(&all, objects, script).prove(0..4, |server| {
        let shape = checked(server);
        assert_eq!(shape["entries"], json!({}), "nothing is held");
        assert_eq!(shape["claims"], json!({"shared": [0, null, false]}), "nothing is kept");
        shape
    }));
}

#[test]
fn a_claim_that_goes_takes_its_devices_along() {
    let team = Team::new();
    let all = team.all();
    let objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        claim("one", &wish("gpu", 1)),
        user("a", "one"),
    ];
    let gone = |server: &mut gantry_harness::Server| {
        server.delete(&CLAIMS, &key("one"), gantry_reconcile::Propagation::Background);
    };
    let script: Vec<gantry_harness::Action> = vec![Box::new(gone), remove("a")];
    proven(scenario(&all, objects, script).prove(0..4, checked));
}

/// Worlds of a few nodes, pools, claims and pods, made by chance.
#[test]
fn worlds_made_by_chance_end_in_one_place() {
    let team = Team::new();
    let all = team.all();
    let world = |seed: u64| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut objects = vec![driver(), class("gpu", &json!({})), template("t", &wish("gpu", 1))];
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
                0 => owner(&name, "t"),
                1 => pod(&name, &json!([{"name": "gpu", "claim": wish("gpu", rng.usize(1..3))}])),
                _ => {
                    let claim_name = format!("claim{at}");
                    objects.push(claim(&claim_name, &wish("gpu", rng.usize(1..3))));
                    user(&name, &claim_name)
                }
            };
            objects.push(object);
            script.push(remove(&name));
        }
        scenario(&all, objects, script)
    };
    proven(prove_worlds(0..15, world, |server| {
        let shape = checked(server);
        assert_eq!(shape["entries"], json!({}), "nothing is held");
        shape
    }));
}

/// Claims and pods that cannot be written, or cannot be read.
#[test]
fn bad_objects_harm_nobody_else() {
    let team = Team::new();
    let all = team.all();
    let mut objects = vec![
        node("n1"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 8),
        template("t", &wish("gpu", 1)),
        claim("good", &wish("gpu", 1)),
        user("a", "good"),
        owner("b", "t"),
    ];
    let mut bad = Vec::new();
    for wrong in [REFUSED, CONFLICTED, UNREADABLE] {
        let (claim_name, own) = (format!("{wrong}-claim"), format!("own-{wrong}"));
        objects.push(user(&format!("user-of-{wrong}"), &claim_name));
        objects.push(claim(&own, &wish("gpu", 1)));
        let mut objects =
            [claim(&claim_name, &wish("gpu", 1)), user(&format!("{wrong}-pod"), &own)];
        if wrong == UNREADABLE {
            // No label is a number.
            objects.iter_mut().for_each(|it| it.1["metadata"]["labels"] = json!({"x": 1}));
        }
        bad.extend(objects);
    }
    proven(scenario(&all, objects, vec![]).prove_apart(&bad, 0..4, |server| {
        let shape = shape(server);
        let good = |part: &str, name: &str| shape[part][name].clone();
        json!([
            good("pods", "a"),
            good("pods", "b"),
            good("claims", "good"),
            good("entries", "good")
        ])
    }));
}
