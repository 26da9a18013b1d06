use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq)]
struct Pair(u16, u32);

impl Keyed for Pair {
    type Key = u16;
    type Separator = u16;
    fn key(&self) -> &u16 {
        &self.0
    }
    fn separator(&self) -> u16 {
        self.0
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u16),
    Change(u16),
    Remove(u16),
    /// Removes what is left of a run of keys, so that nodes become narrow and join.
    RemoveRun(u16, u16),
    Keep,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2000_u16).prop_map(Step::Insert),
        1 => (0..2000_u16).prop_map(Step::Change),
        3 => (0..2000_u16).prop_map(Step::Remove),
        1 => (0..2000_u16, 0..300_u16).prop_map(|(from, len)| Step::RemoveRun(from, len)),
        1 => Just(Step::Keep),
    ]
}

/// Checks everything a tree can be asked, and the shape it must have.
fn check(tree: &Tree<Pair>, model: &BTreeMap<u16, u32>, probe: u16) {
    assert_eq!(tree.len(), model.len());
    assert_eq!(tree.is_empty(), model.is_empty());
    let expected: Vec<_> = model.iter().map(|(key, value)| Pair(*key, *value)).collect();
    assert!(tree.iter().eq(&expected));
    assert_eq!(tree.first(), expected.first());
    assert_eq!(tree.last(), expected.last());
    for bound in [Bound::Included(&probe), Bound::Excluded(&probe), Bound::Unbounded] {
        let part: Vec<_> =
            model.range((bound, Bound::Unbounded)).map(|(key, value)| Pair(*key, *value)).collect();
        assert!(tree.range(bound).eq(&part));
        assert_eq!(tree.count(bound), part.len());
    }
    assert_eq!(tree.get(&probe).map(|pair| pair.1), model.get(&probe).copied());
    check_shape(&tree.root);
}

fn check_shape(node: &Node<Pair>) -> usize {
    assert!(node.items.is_empty() || node.children.is_empty());
    assert!(node.width() <= MAX_NODE_WIDTH);
    let mut depth = None;
    for child in &node.children {
        let (last, count) = Child::measure(&child.node).expect("no child is empty");
        assert_eq!((child.last, child.count), (last, count));
        let below = check_shape(&child.node);
        assert_eq!(*depth.get_or_insert(below), below, "all leaves are equally deep");
    }
    depth.map_or(0, |depth| depth + 1)
}

proptest! {
    #[test]
    fn tree_is_a_map_with_stable_copies(
        filled in 0..1500_u16,
        steps in prop::collection::vec(any_step(), 0..400),
        probe in 0..2000_u16,
    ) {
        let mut tree = Tree::default();
        let mut model = BTreeMap::new();
        for key in 0..filled {
            tree.insert(Pair(key, 0));
            model.insert(key, 0);
        }
        let mut kept = Vec::new();
        for (value, step) in (1..).zip(steps) {
            match step {
                Step::Insert(key) => {
                    let replaced = tree.insert(Pair(key, value)).map(|pair| pair.1);
                    prop_assert_eq!(replaced, model.insert(key, value));
                }
                Step::Change(key) => {
                    if let Some(pair) = tree.get_mut(&key) {
                        pair.1 = value;
                    }
                    if let Some(known) = model.get_mut(&key) {
                        *known = value;
                    }
                }
                Step::Remove(key) => {
                    prop_assert_eq!(tree.remove(&key).map(|pair| pair.1), model.remove(&key));
                }
                Step::RemoveRun(from, len) => {
                    for key in from..from.saturating_add(len) {
                        prop_assert_eq!(tree.remove(&key).map(|pair| pair.1), model.remove(&key));
                    }
                }
                Step::Keep => kept.push((tree.clone(), model.clone())),
            }
        }
        check(&tree, &model, probe);
        for (tree, model) in kept {
            check(&tree, &model, probe);
        }
    }
}

/// What arrives in order, as revisions do, fills its nodes; what leaves at the front, leaves none.
#[test]
fn a_queue_stays_compact() {
    let mut tree = Tree::default();
    for key in 0..20_000 {
        tree.insert(Pair(key, 0));
        if key >= 2000 {
            tree.remove(&(key - 2000));
        }
    }
    assert_eq!(tree.len(), 2000);
    fn leaves(node: &Node<Pair>) -> usize {
        if node.children.is_empty() {
            1
        } else {
            node.children.iter().map(|c| leaves(&c.node)).sum()
        }
    }
    assert!(leaves(&tree.root) <= 2 * 2000 / MAX_NODE_WIDTH);
}
