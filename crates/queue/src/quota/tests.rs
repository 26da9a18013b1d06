//! Tests of quota trees.

mod building;
mod golden;
mod laws;
mod model;
mod rules;
mod scenarios;
mod sliding;

use serde_json::{Value, json};

use super::*;

/// Returns the QuotaSubtrees of one tree, one object for each parent. A line is `node: amounts` for
/// the root and `node < parent: amounts` below it; amounts are `resource=quantity` and the word
/// `hard`.
fn subtrees(tree: &str, lines: &str) -> Vec<Subtree> {
    let mut objects: Vec<(&str, Vec<Value>)> = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (node, amounts) = line.split_once(':').unwrap();
        let (name, parent) = node.split_once('<').unwrap_or((node, ""));
        let (mut requests, mut hard) = (json!({}), false);
        for word in amounts.split_whitespace() {
            match word.split_once('=') {
                Some((resource, amount)) => requests[resource] = json!(amount),
                None => hard = word == "hard",
            }
        }
        let quotas = json!({"hardLimit": hard, "requests": requests});
        let child = json!({"name": name.trim(), "quotas": quotas});
        match objects.iter_mut().find(|(other, _)| *other == parent.trim()) {
            Some((_, children)) => children.push(child),
            None => objects.push((parent.trim(), vec![child])),
        }
    }
    let object = |(parent, children): (&str, Vec<Value>)| {
        let name = format!("{tree}-{}", if parent.is_empty() { "top" } else { parent });
        subtree(&name, &json!({"tree": tree}), &json!({"parent": parent, "children": children}))
    };
    objects.into_iter().map(object).collect()
}

fn subtree(name: &str, labels: &Value, spec: &Value) -> Subtree {
    let metadata = json!({"name": name, "namespace": "quota", "labels": labels});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// Builds a forest of valid trees.
fn forest(trees: &[(&str, &str)]) -> Forest {
    let objects: Vec<Subtree> =
        trees.iter().flat_map(|(name, lines)| subtrees(name, lines)).collect();
    let (forest, problems) = Forest::new(&objects);
    assert_eq!(problems, []);
    forest
}

fn id(name: &str) -> ConsumerId {
    ConsumerId::new("n", name)
}

/// A preemptable consumer. Labels are `tree=node`, requests `resource=quantity`.
fn consumer(name: &str, labels: &str, request: &str, priority: i32) -> Consumer {
    let pairs = |text: &str| -> Vec<(String, String)> {
        let pair = |word: &str| word.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
        text.split_whitespace().filter_map(pair).collect()
    };
    let amount = |(name, amount): (String, String)| {
        let units = requested(&name, amount.parse().unwrap());
        (name, units)
    };
    Consumer {
        id: id(name),
        priority,
        preemptable: true,
        preempt_first: false,
        request: pairs(request).into_iter().map(amount).collect(),
        labels: pairs(labels).into_iter().collect(),
    }
}

/// Returns the consumers on each node that is not empty, in order of arrival: `A: b f, J: g`.
fn placements_of(forest: &Forest, tree: &str) -> String {
    let found = forest.tree(tree).unwrap();
    let nodes = found.nodes.iter().filter(|node| !node.placed.is_empty());
    let mut lines: Vec<String> = nodes
        .map(|node| {
            let ids: Vec<&str> = found.placed_on(&node.name).map(|id| id.key().name()).collect();
            format!("{}: {}", node.name, ids.join(" "))
        })
        .collect();
    lines.sort();
    lines.join(", ")
}

/// Names of consumers.
fn names(ids: &[ConsumerId]) -> String {
    let names: Vec<&str> = ids.iter().map(|id| id.key().name()).collect();
    names.join(" ")
}

/// Returns the outcome of an attempt: `node` in the only tree, `node, without victims`, or the
/// refusal.
fn outcome(forest: &mut Forest, consumer: &Consumer) -> String {
    match forest.try_allocate(consumer) {
        Ok(allocation) => {
            let nodes: Vec<&str> = allocation.placed.values().map(String::as_str).collect();
            match allocation.victims.as_slice() {
                [] => nodes.join(" "),
                victims => format!("{}, without {}", nodes.join(" "), names(victims)),
            }
        }
        Err(refusal) => refusal.to_string(),
    }
}
