//! What the tests of the original show about quota, as far as trees decide it.

use super::*;

const CONTEXT: &str = "
    context-root: cpu=1075m memory=1045Mi nvidia.com/gpu=16
    gold < context-root: cpu=1075m memory=450Mi nvidia.com/gpu=8
    silver < context-root: cpu=1075m memory=400Mi nvidia.com/gpu=8
    bronze < context-root: cpu=900m memory=300Mi nvidia.com/gpu=8 hard
    default < context-root: cpu=0 memory=0 nvidia.com/gpu=0";

const SERVICE: &str = "
    service-root: cpu=1075m memory=1045Mi nvidia.com/gpu=16
    gold < service-root: cpu=1075m memory=1045Mi nvidia.com/gpu=16
    default < service-root: cpu=0 memory=0 nvidia.com/gpu=0";

fn both() -> Forest {
    forest(&[("quota_context", CONTEXT), ("quota_service", SERVICE)])
}

/// An AppWrapper of the team, paying for gold service.
fn team(name: &str, context: &str, request: &str, priority: i32) -> Consumer {
    let labels = format!("quota_context={context} quota_service=gold");
    consumer(name, &labels, request, priority)
}

#[test]
fn b_1_apply_delete_and_apply_again() {
    let mut forest = both();
    let asks = team("deployment", "silver", "cpu=100m memory=50Mi", 0);
    for _ in 0..2 {
        assert_eq!(outcome(&mut forest, &asks), "silver gold");
        assert!(forest.release(&asks.id));
    }
    assert_eq!(forest.usage(), both().usage());
}

#[test]
fn b_2_priority_replaces() {
    let mut forest = both();
    assert_eq!(outcome(&mut forest, &team("low", "gold", "cpu=600m", 0)), "gold gold");
    assert_eq!(
        outcome(&mut forest, &team("lost", "platinum", "cpu=600m", 0)),
        "quota tree quota_context has no node \"platinum\""
    );
    assert_eq!(
        outcome(&mut forest, &team("equal", "gold", "cpu=600m", 0)),
        "node \"context-root\" of quota tree quota_context lacks 125m of cpu"
    );
    let high = team("high", "gold", "cpu=600m", 1000);
    assert_eq!(outcome(&mut forest, &high), "gold gold, without low");
    // B3 goes on from here.
    let bronze = |name| team(name, "bronze", "cpu=400m", 1000);
    assert_eq!(outcome(&mut forest, &bronze("next")), "bronze gold");
    assert_eq!(
        outcome(&mut forest, &bronze("last")),
        "node \"context-root\" of quota tree quota_context lacks 325m of cpu"
    );
}

#[test]
fn b_4_one_after_the_other() {
    let mut forest = both();
    let [first, second] = ["first", "second"].map(|name| team(name, "bronze", "cpu=900m", 0));
    assert_eq!(outcome(&mut forest, &first), "bronze gold");
    assert_eq!(
        outcome(&mut forest, &second),
        "node \"bronze\" of quota tree quota_context lacks 900m of cpu"
    );
    forest.release(&first.id);
    assert_eq!(outcome(&mut forest, &second), "bronze gold");
}

#[test]
fn b_5_without_labels() {
    for labels in ["", "app=web"] {
        let mut forest = both();
        let mut asks = consumer("job", labels, "cpu=500m memory=100Mi", 0);
        asks.labels.extend(forest.missing_labels(&asks.labels));
        assert_eq!(asks.labels["quota_service"], "default");
        assert_eq!(outcome(&mut forest, &asks), "context-root service-root");
    }
}

/// The reclaim requires the second tree to release the victim of the first: both hold all gpus.
#[test]
fn b_6_borrowing_and_reclaim() {
    for other in ["quota_service", "a_service"] {
        let mut forest = forest(&[("quota_context", CONTEXT), (other, SERVICE)]);
        let asks = |name: &str, leaf: &str, request: &str| {
            consumer(name, &format!("quota_context={leaf} {other}=gold"), request, 0)
        };
        let silver = asks("silver", "silver", "cpu=1 nvidia.com/gpu=16 memory=600Mi");
        let gold = asks("gold", "gold", "cpu=500m nvidia.com/gpu=8 memory=300Mi");
        let borrowed = forest.try_allocate(&silver).unwrap();
        assert_eq!(borrowed.placed["quota_context"], "context-root");
        let reclaimed = forest.try_allocate(&gold).unwrap();
        assert_eq!(reclaimed.placed["quota_context"], "gold");
        assert_eq!(names(&reclaimed.victims), "silver");
        assert!(!forest.holds(&silver.id));
    }
}

#[test]
fn b_7_trees_after_the_fact() {
    let mut forest = Forest::default();
    for name in ["one", "two"] {
        forest.restore(&team(name, "gold", "cpu=500m", 0));
    }
    let objects: Vec<Subtree> = [("quota_context", CONTEXT), ("quota_service", SERVICE)]
        .into_iter()
        .flat_map(|(tree, lines)| subtrees(tree, lines))
        .collect();
    assert_eq!(forest.edit(&objects), []);
    let late = team("late", "gold", "cpu=500m", 0);
    assert!(forest.try_allocate(&late).is_err());
    forest.release(&id("one"));
    assert_eq!(outcome(&mut forest, &late), "gold gold");
}

#[test]
fn b_8_restart_keeps_usage() {
    let running = [team("one", "silver", "cpu=500m", 0), team("two", "gold", "cpu=300m", 0)];
    let next = team("next", "gold", "cpu=200m", 0);
    let more = team("more", "gold", "cpu=200m", 0);
    for put in [Forest::force_place, Forest::restore] {
        let mut forest = both();
        for consumer in &running {
            put(&mut forest, consumer);
        }
        assert_eq!(outcome(&mut forest, &next), "gold gold");
        assert!(forest.try_allocate(&more).is_err(), "1000m of 1075m are in use");
    }
}

#[test]
fn b_9_a_third_tree() {
    let mut forest = both();
    forest.try_allocate(&team("old", "gold", "cpu=500m", 0)).unwrap();
    let mut objects = subtrees("quota_context", CONTEXT);
    objects.extend(subtrees("quota_service", SERVICE));
    objects.extend(subtrees(
        "third",
        "third-root: cpu=2\n gold < third-root: cpu=2\n default < third-root: cpu=0",
    ));
    assert_eq!(forest.edit(&objects), []);
    assert_eq!(forest.placed(&id("old"))["third"], "default");
    let mut only = consumer("only", "third=gold", "cpu=100m", 0);
    only.labels.extend(forest.missing_labels(&only.labels));
    assert_eq!(outcome(&mut forest, &only), "context-root service-root gold");
    let all = consumer("all", "third=gold quota_context=gold quota_service=gold", "cpu=100m", 0);
    assert_eq!(outcome(&mut forest, &all), "gold gold gold");
}

/// Whatever the outcome of an attempt, undoing it restores the same bytes.
#[test]
fn b_13_undo_restores_every_byte() {
    let table = [
        // why                                   asks                                    outcome
        ("an unknown leaf", team("w", "iron", "cpu=1m", 0), "no node"),
        ("too large", team("w", "gold", "cpu=2", 1000), "lacks"),
        ("no victim to be had", team("w", "bronze", "cpu=500m", 0), "lacks"),
        ("room without a victim", team("w", "gold", "cpu=75m", 0), "gold gold"),
        ("a victim", team("w", "silver", "cpu=175m", 0), "silver gold, without lent"),
        ("high priority without victim", team("w", "gold", "cpu=75m", 1000), "gold gold"),
        (
            "high priority and a victim",
            team("w", "gold", "cpu=700m", 1000),
            "gold gold, without lent held",
        ),
    ];
    let mut forest = both();
    forest.try_allocate(&team("held", "gold", "cpu=600m memory=100Mi", 0)).unwrap();
    forest.try_allocate(&team("lent", "default", "cpu=400m memory=100Mi", 0)).unwrap();
    for (why, asks, expected) in table {
        let before = (forest.clone(), format!("{forest:?}"));
        let mut other = forest.clone();
        let seen = outcome(&mut other, &asks);
        assert!(seen.contains(expected), "{why}: {seen}");
        if let Ok(allocation) = forest.try_allocate(&asks) {
            forest.undo(allocation).unwrap();
        }
        assert_eq!((&forest, &format!("{forest:?}")), (&before.0, &before.1), "{why}");
    }
}

#[test]
fn b_14_two_that_want_everything_take_turns() {
    let mut forest = both();
    let asks = ["one", "two"].map(|name| team(name, "gold", "cpu=1075m", 0));
    for turn in 0..6 {
        let (runs, waits) = (&asks[turn % 2], &asks[(turn + 1) % 2]);
        assert_eq!(outcome(&mut forest, runs), "gold gold", "turn {turn}");
        assert!(forest.try_allocate(waits).is_err(), "turn {turn}");
        assert!(forest.release(&runs.id), "turn {turn}");
    }
}
