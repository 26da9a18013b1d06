//! Properties that hold for random forests and random sequences.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::model::{Model, ModelNode, ModelTree};
use super::*;

/// Something that happens to a forest.
#[derive(Clone, Debug)]
enum Event {
    Allocate(Consumer),
    TryAndUndo(Consumer),
    Release(ConsumerId),
    Force(Consumer),
    Resume(Consumer),
    Edit(Vec<ModelTree>),
}

const NAMES: [&str; 8] = ["default", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];
const RESOURCES: [&str; 4] = ["cpu", "memory", "nvidia.com/gpu", "example.com/nic"];

fn any_amounts(most: i64) -> impl Strategy<Value = BTreeMap<String, i64>> {
    let amount = prop_oneof![3 => Just(None), 2 => (0..=most).prop_map(Some)];
    (0..=most, proptest::collection::vec(amount, 3)).prop_map(|(cpu, others)| {
        let others = RESOURCES.iter().skip(1).zip(others);
        let others = others.filter_map(|(name, amount)| Some(((*name).to_owned(), amount?)));
        others.chain([("cpu".to_owned(), cpu)]).collect()
    })
}

/// Returns a tree whose root, the first node, has the name `root`.
fn any_tree(name: &'static str) -> impl Strategy<Value = ModelTree> {
    let hard = prop_oneof![4 => Just(false), 1 => Just(true)];
    let node = (any::<prop::sample::Index>(), hard, any_amounts(5));
    (any_amounts(9), proptest::collection::vec(node, 1..NAMES.len())).prop_map(
        move |(quota, nodes)| {
            let root = ModelNode { name: "root".to_owned(), parent: 0, hard: false, quota };
            let mut spots = vec![root];
            for ((parent, hard, quota), name) in nodes.into_iter().zip(NAMES) {
                let parent = parent.index(spots.len());
                spots.push(ModelNode { name: name.to_owned(), parent, hard, quota });
            }
            ModelTree::new(name, spots)
        },
    )
}

fn any_trees() -> impl Strategy<Value = Vec<ModelTree>> {
    let maybe = |name| proptest::option::weighted(0.6, any_tree(name));
    (any_tree("b"), maybe("a"), maybe("c"))
        .prop_map(|(b, a, c)| [a, Some(b), c].into_iter().flatten().collect())
}

fn any_consumer() -> impl Strategy<Value = Consumer> {
    let leaf = || prop_oneof![9 => prop::sample::select(&NAMES[..]), 1 => Just("root")];
    let bound = prop_oneof![5 => Just(true), 1 => Just(false)];
    let labels = (leaf(), leaf(), leaf());
    (0..9_u8, -1..3_i32, bound, any_amounts(4), labels).prop_map(
        |(name, priority, preemptable, request, (a, b, c))| {
            let labels = [("a", a), ("b", b), ("c", c)];
            let labels = labels.map(|(tree, leaf)| (tree.to_owned(), leaf.to_owned())).into();
            let (id, preempt_first) = (id(&name.to_string()), false);
            Consumer { id, priority, preemptable, preempt_first, request, labels }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => any_consumer().prop_map(Event::Allocate),
        3 => any_consumer().prop_map(Event::TryAndUndo),
        4 => (0..9_u8).prop_map(|name| Event::Release(id(&name.to_string()))),
        1 => any_consumer().prop_map(Event::Force),
        1 => any_consumer().prop_map(Event::Resume),
        1 => any_trees().prop_map(Event::Edit),
    ]
}

/// Returns consumers that hold quota since some time, each once.
fn any_holders() -> impl Strategy<Value = Vec<QuotaHolder>> {
    let holder = (any_consumer(), 0..4_i64);
    proptest::collection::vec(holder, 0..9).prop_map(|holders| {
        let mut known = std::collections::BTreeSet::new();
        let since = |second| jiff::Timestamp::from_second(second).unwrap();
        let standing = holders
            .into_iter()
            .map(|(consumer, second)| QuotaHolder { since: since(second), consumer });
        standing.filter(|it| known.insert(it.consumer.id.clone())).collect()
    })
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(any_event(), 1..40)
}

/// Returns the objects that describe these trees, one for each node.
fn subtrees_of(trees: &[ModelTree]) -> Vec<Subtree> {
    let mut objects = Vec::new();
    for (tree, plain) in
        trees.iter().flat_map(|tree| tree.nodes.iter().map(move |node| (tree, node)))
    {
        let parent = (plain.name != "root").then(|| tree.nodes[plain.parent].name.clone());
        let amount = |(name, units): (&String, &i64)| {
            (name.clone(), json!(quantity(name, i128::from(*units)).to_string()))
        };
        let requests: serde_json::Map<String, Value> = plain.quota.iter().map(amount).collect();
        let quotas = json!({"hardLimit": plain.hard, "requests": requests});
        let spec = json!({"parent": parent, "children": [{"name": plain.name, "quotas": quotas}]});
        let name = format!("{}-{}", tree.name(), plain.name);
        objects.push(subtree(&name, &json!({"tree": tree.name()}), &spec));
    }
    objects
}

/// Applies the event to the forest.
fn apply_event(forest: &mut Forest, event: &Event) {
    match event {
        Event::Allocate(who) => {
            let _outcome = forest.try_allocate(who);
        }
        Event::TryAndUndo(who) => {
            if let Ok(allocation) = forest.try_allocate(who) {
                forest.undo(allocation).unwrap();
            }
        }
        Event::Release(who) => {
            forest.release(who);
        }
        Event::Force(who) => forest.force_place(who),
        Event::Resume(who) => forest.restore(who),
        Event::Edit(trees) => {
            forest.edit(subtrees_of(trees));
        }
    }
}

/// Returns the consumers on each node in order, and what is charged to it.
fn observed_state(forest: &Forest) -> Vec<(String, String, Vec<ConsumerId>, Vec<i128>)> {
    let mut facts = Vec::new();
    for tree in forest.trees() {
        for node in &tree.nodes {
            let sum = |resource: &&str| {
                let place = tree.resources.iter().position(|name| **name == **resource);
                place.map_or(0, |place| node.allocated[place])
            };
            facts.push((
                tree.name().to_owned(),
                node.name.to_string(),
                tree.placed_on(&node.name).cloned().collect(),
                RESOURCES.iter().map(sum).collect(),
            ));
        }
    }
    facts.sort();
    facts
}

fn model_state(model: &Model) -> Vec<(String, String, Vec<ConsumerId>, Vec<i128>)> {
    let mut facts = Vec::new();
    for (name, tree) in &model.trees {
        for (index, node) in tree.nodes.iter().enumerate() {
            let on = tree.placements.iter().filter(|(_, at)| *at == index);
            // A resource that no node lists is not counted at all.
            let sum = |resource: &&str| {
                let listed = tree.nodes.iter().any(|node| node.quota.contains_key(*resource));
                let counts = listed || TRACKED_RESOURCES.contains(resource);
                if counts { tree.allocated(index, resource) } else { 0 }
            };
            facts.push((
                name.clone(),
                node.name.clone(),
                on.map(|(who, _)| who.id.clone()).collect(),
                RESOURCES.iter().map(sum).collect(),
            ));
        }
    }
    facts.sort();
    facts
}

/// Sums along all paths, placements and members agree with one another.
fn check_sums(forest: &Forest) -> Result<(), TestCaseError> {
    for tree in forest.trees() {
        for (index, node) in tree.nodes.iter().enumerate() {
            let mut sums = vec![0; tree.resources.len()];
            node.add_totals(None, &mut sums);
            let own = sums.clone();
            for child in tree.nodes.iter().filter(|child| child.parent == Some(index)) {
                sums.iter_mut().zip(&child.allocated).for_each(|(sum, more)| *sum += more);
            }
            prop_assert_eq!(&sums[..], &node.allocated[..], "{} {}", tree.name(), node.name);
            let mut placed = vec![0; sums.len()];
            let waiting = node.branches.values().flat_map(|waiting| waiting.values().flatten());
            let mut waiting: Vec<u64> = waiting.copied().collect();
            waiting.sort_unstable();
            prop_assert_eq!(waiting, node.placed.keys().copied().collect::<Vec<_>>());
            for (arrival, holder) in &node.placed {
                tree::add(&mut placed, &holder.request);
                let seat = tree::Placement { node: index, arrival: *arrival };
                prop_assert_eq!(tree.placements[&holder.id], seat);
                prop_assert!(tree.is_within(holder.home, index), "on the way to the root");
            }
            prop_assert_eq!(placed, own);
        }
        let everyone: Vec<&ConsumerId> = forest.consumers().map(|who| &who.id).collect();
        prop_assert_eq!(tree.placements.keys().collect::<Vec<_>>(), everyone);
    }
    Ok(())
}

/// Returns the nodes that are over their quota, by tree and name.
fn nodes_over_quota(forest: &Forest) -> Vec<(String, String)> {
    let mut over = Vec::new();
    for (tree, nodes) in forest.usage() {
        for (name, node) in nodes {
            let exceeds =
                |(resource, quota): (&String, &i64)| node.allocated[resource] > i128::from(*quota);
            if node.quota.iter().any(exceeds) {
                over.push((tree.clone(), name));
            }
        }
    }
    over
}

proptest! {
    /// A cached forest equals a rebuilt one, whatever it was before, and whatever was tried on it
    /// in between.
    #[test]
    fn a_forest_cache_equals_a_rebuilt_forest(
        trees in proptest::collection::vec(any_trees(), 1..3),
        times in proptest::collection::vec((any::<prop::sample::Index>(), any_holders(), any_consumer()), 1..8),
    ) {
        let mut roll = ForestCache::default();
        for (which, holders, asks) in times {
            let subtrees = subtrees_of(&trees[which.index(trees.len())]);
            let subtrees: Vec<_> = subtrees.into_iter().map(std::sync::Arc::new).collect();
            let (rebuilt, _) = Forest::rebuild(subtrees.iter().cloned(), holders.clone());
            roll.update_trees(subtrees);
            roll.update_holders(holders);
            prop_assert_eq!(roll.forest(), &rebuilt);
            let forest = roll.forest_mut();
            if let Ok(allocation) = forest.try_allocate(&asks) {
                forest.undo(allocation).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The forest and the model agree: same outcomes, same placements, same sums.
    #[test]
    fn qu_5_agrees_with_the_simplest_model(trees in any_trees(), events in any_events()) {
        let (mut forest, problems) = Forest::new(subtrees_of(&trees));
        prop_assert_eq!(problems, []);
        let mut model = Model::new(trees);
        for event in &events {
            match event {
                Event::Allocate(who) | Event::TryAndUndo(who) => {
                    let mut other = model.clone();
                    let expected = other.try_allocate(who);
                    let found = forest.try_allocate(who);
                    let seen = match &found {
                        Ok(allocation) => Ok(allocation.victims.clone()),
                        Err(refusal) => Err((refusal.tree.clone(), refusal.node.clone())),
                    };
                    prop_assert_eq!(seen, expected, "{:?}", event);
                    prop_assert_eq!(observed_state(&forest), model_state(&other), "{:?}", event);
                    match (event, found) {
                        (Event::TryAndUndo(_), Ok(allocation)) => forest.undo(allocation).unwrap(),
                        _ => model = other,
                    }
                }
                Event::Release(who) => model.release(who),
                Event::Force(who) => model.put(who, false),
                Event::Resume(who) => model.put(who, true),
                Event::Edit(trees) => model.edit(trees.clone()),
            }
            if !matches!(event, Event::Allocate(_) | Event::TryAndUndo(_)) {
                apply_event(&mut forest, event);
            }
            prop_assert_eq!(observed_state(&forest), model_state(&model), "{:?}", event);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Sums are right after every event, and only force and edits bring a node over its quota.
    #[test]
    fn only_force_placement_exceeds_quota(trees in any_trees(), events in any_events()) {
        let (mut forest, _) = Forest::new(subtrees_of(&trees));
        for event in &events {
            let before = nodes_over_quota(&forest);
            apply_event(&mut forest, event);
            check_sums(&forest)?;
            let may = matches!(event, Event::Force(_) | Event::Resume(_) | Event::Edit(_));
            let new: Vec<_> = nodes_over_quota(&forest).into_iter().filter(|it| !before.contains(it)).collect();
            prop_assert!(may || new.is_empty(), "{:?} brought {:?} over", event, new);
        }
    }

    /// A refusal or an undone allocation leaves no trace, in any state.
    #[test]
    fn undo_restores_equality(
        trees in any_trees(), events in any_events(), tried in proptest::collection::vec(any_consumer(), 1..4)
    ) {
        let (mut forest, _) = Forest::new(subtrees_of(&trees));
        for event in &events {
            apply_event(&mut forest, event);
        }
        let before = (forest.clone(), format!("{forest:?}"));
        let done: Vec<_> = tried.iter().filter_map(|who| forest.try_allocate(who).ok()).collect();
        for allocation in done.into_iter().rev() {
            forest.undo(allocation).unwrap();
        }
        prop_assert_eq!(&forest, &before.0);
        prop_assert_eq!(format!("{forest:?}"), before.1);
    }

    /// A consumer that is given quota is placed in every tree on the path from its leaf to the
    /// root; a victim is in none, was preemptable, and is not the consumer that asked.
    #[test]
    fn allocations_say_what_they_did(trees in any_trees(), events in any_events(), who in any_consumer()) {
        let (mut forest, _) = Forest::new(subtrees_of(&trees));
        for event in &events {
            apply_event(&mut forest, event);
        }
        let before = forest.clone();
        let Ok(allocation) = forest.try_allocate(&who) else { return Ok(()) };
        prop_assert!(forest.holds(&who.id));
        prop_assert_eq!(allocation.placed.len(), forest.trees().count());
        for victim in &allocation.victims {
            prop_assert!(!forest.holds(victim) && *victim != who.id);
            let was = before.consumers().find(|other| other.id == *victim).unwrap();
            prop_assert!(was.preemptable);
            prop_assert!(forest.placed(victim).is_empty());
        }
        let mut distinct = allocation.victims.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), allocation.victims.len());
        let kept = before.consumers().filter(|other| !allocation.victims.contains(&other.id));
        for other in kept {
            prop_assert!(forest.holds(&other.id), "{:?} was forgotten", other.id);
        }
    }

    /// When all consumers are released nothing is left, whatever happened before.
    #[test]
    fn release_of_all_gives_the_empty_forest(trees in any_trees(), events in any_events(), last in any_trees()) {
        let (mut forest, _) = Forest::new(subtrees_of(&trees));
        for event in &events {
            apply_event(&mut forest, event);
        }
        forest.edit(subtrees_of(&last));
        for name in 0..9 {
            forest.release(&id(&name.to_string()));
        }
        prop_assert_eq!(forest.consumers().count(), 0);
        prop_assert_eq!(forest.usage(), Forest::new(subtrees_of(&last)).0.usage());
    }

    /// The order in which objects are given has no effect.
    #[test]
    fn qu_7_order_of_objects_does_not_matter(
        trees in any_trees(), events in any_events(), turn in any::<prop::sample::Index>()
    ) {
        let objects = subtrees_of(&trees);
        let mut turned = objects.clone();
        turned.rotate_left(turn.index(objects.len()));
        turned.reverse();
        let (mut one, _) = Forest::new(&objects);
        let (mut other, _) = Forest::new(&turned);
        prop_assert_eq!(&one, &other);
        for event in &events {
            apply_event(&mut one, event);
            apply_event(&mut other, event);
        }
        prop_assert_eq!(one, other);
    }
}
