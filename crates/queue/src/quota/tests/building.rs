//! Building trees from QuotaSubtrees, valid and invalid.

use super::*;

fn objects(list: Value) -> Vec<Subtree> {
    let Value::Array(list) = list else { panic!("a list") };
    list.into_iter()
        .map(|object| {
            let name = object["name"].as_str().unwrap();
            subtree(name, &object["labels"], &object["spec"])
        })
        .collect()
}

/// Returns the nodes of the first tree as `name<parent`, parents first, and the problems of the
/// rest.
fn build(list: Value) -> (String, Vec<String>) {
    let objects = objects(list);
    let (forest, problems) = Forest::new(&objects);
    let nodes = |tree: &Tree| {
        let node = |node: &tree::Node| match node.parent {
            Some(parent) => format!("{}<{}", node.name, tree.nodes[parent].name),
            None => node.name.to_string(),
        };
        tree.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
    };
    let shape = forest.trees().next().map(nodes).unwrap_or_default();
    (shape, problems.iter().map(QuotaProblem::to_string).collect())
}

#[test]
fn qu_10_problems_are_named_and_the_rest_counts() {
    let t = json!({"tree": "t"});
    let top = json!({"name": "1", "labels": t, "spec": {"children": [{"name": "r"}]}});
    let table = [
        ("nothing", json!([]), "", vec![]),
        (
            "no label",
            json!([{"name": "1", "labels": {}, "spec": {"children": [{"name": "r"}]}}]),
            "",
            vec![],
        ),
        (
            "objects in any order, children by name",
            json!([
                {"name": "0", "labels": t, "spec": {"parent": "m", "children": [{"name": "z"}, {"name": "b"}]}},
                top,
                {"name": "2", "labels": t, "spec": {"parent": "r", "children": [{"name": "m"}, {"name": "a"}]}},
            ]),
            "r a<r m<r b<m z<m",
            vec![],
        ),
        (
            "nil is no parent",
            json!([{"name": "1", "labels": t, "spec": {"parent": "nil", "children": [{"name": "r"}]}}]),
            "r",
            vec![],
        ),
        (
            "two roots",
            json!([{"name": "1", "labels": t, "spec": {"children": [{"name": "s"}, {"name": "r"}]}},
                {"name": "2", "labels": t, "spec": {"parent": "s", "children": [{"name": "x"}]}}]),
            "r",
            vec![
                "quota tree t: node \"s\" of quota/1 is left out: the tree has the root \"r\" already",
                "quota tree t: node \"x\" of quota/2 is left out: it is below \"s\", which is left out",
            ],
        ),
        (
            "an unknown parent",
            json!([top, {"name": "2", "labels": t, "spec": {"parent": "q", "children": [{"name": "x"}]}},
                {"name": "3", "labels": t, "spec": {"parent": "x", "children": [{"name": "y"}]}}]),
            "r",
            vec![
                "quota tree t: node \"x\" of quota/2 is left out: its parent \"q\" does not exist",
                "quota tree t: node \"y\" of quota/3 is left out: it is below \"x\", which is left out",
            ],
        ),
        (
            "a circle, and what hangs on it",
            json!([top,
                {"name": "2", "labels": t, "spec": {"parent": "a", "children": [{"name": "b"}, {"name": "c"}]}},
                {"name": "3", "labels": t, "spec": {"parent": "b", "children": [{"name": "a"}]}}]),
            "r",
            vec![
                "quota tree t: node \"a\" of quota/3 is left out: its parents form a cycle",
                "quota tree t: node \"b\" of quota/2 is left out: its parents form a cycle",
                "quota tree t: node \"c\" of quota/2 is left out: its parents form a cycle",
            ],
        ),
        (
            "its own parent, and no root at all",
            json!([{"name": "1", "labels": t, "spec": {"parent": "r", "children": [{"name": "r"}]}}]),
            "",
            vec!["quota tree t: node \"r\" of quota/1 is left out: its parents form a cycle"],
        ),
        (
            "a name twice: the first object counts",
            json!([
                {"name": "2", "labels": t, "spec": {"children": [{"name": "r"}, {"name": "r"}]}},
                top,
            ]),
            "r",
            vec![
                "quota tree t: node \"r\" of quota/2 is left out: quota/1 has a node of that name",
                "quota tree t: node \"r\" of quota/2 is left out: quota/1 has a node of that name",
            ],
        ),
        (
            "no name",
            json!([top, {"name": "2", "labels": t, "spec": {"parent": "r", "children": [{"name": ""}]}}]),
            "r",
            vec!["quota tree t: node \"\" of quota/2 is left out: it has no name"],
        ),
        (
            "amounts",
            json!([{"name": "1", "labels": t, "spec": {"children": [
                {"name": "r", "quotas": {"requests": {"cpu": "-1", "memory": 5, "x": "much"}}},
            ]}}]),
            "r",
            vec![
                "quota tree t: node \"r\" of quota/1 has no quota of cpu, because -1 is not an amount: \
                 a quota cannot be negative",
                "quota tree t: node \"r\" of quota/1 has no quota of x, because \"much\" is not an amount: \
                 cannot read \"much\" as a quantity: start with a number, as in 2, 500m or 1.5Gi",
            ],
        ),
    ];
    for (why, list, shape, problems) in table {
        let problems: Vec<String> = problems.into_iter().map(str::to_owned).collect();
        assert_eq!(build(list), (shape.to_owned(), problems), "{why}");
    }
}

#[test]
fn deep_and_wide_trees_are_built() {
    let mut lines = String::from("n0: cpu=1\n");
    for node in 1..5000 {
        lines.push_str(&format!("n{node} < n{}: cpu=1\n", node - 1));
    }
    for node in 0..2000 {
        lines.push_str(&format!("w{node} < n0: cpu=1\n"));
    }
    let mut forest = forest(&[("t", &lines)]);
    assert_eq!(outcome(&mut forest, &consumer("a", "t=n4999", "cpu=1", 0)), "n4999");
    // What is placed elsewhere cannot be preempted, however high the priority.
    let refused = outcome(&mut forest, &consumer("b", "t=w7", "cpu=1", 1));
    assert_eq!(refused, "node \"n0\" of quota tree t lacks 1 of cpu");
    assert!(forest.release(&id("a")));
    assert_eq!(outcome(&mut forest, &consumer("b", "t=w7", "cpu=1", 1)), "w7");
}
