use std::fs;

use gantry_api::decode::{self, Decoded, Options};
use gantry_api::object::Object;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");

/// Reads a file of the scenarios.
fn file(name: &str) -> Example {
    let text = fs::read_to_string(format!("{FOLDER}/{name}.yaml")).unwrap();
    read(&text)
}

fn read(text: &str) -> Example {
    let documents = decode::documents(text, Options::default()).unwrap();
    let mut pools = Vec::new();
    for document in documents {
        assert_eq!((document.errors, document.warnings), (Vec::new(), Vec::new()));
        match document.content {
            Decoded::Nodes(nodes) => return Example::Nodes(nodes),
            Decoded::Object(Object::DevicePool(pool)) => pools.push(*pool),
            other => panic!("{other:?}"),
        }
    }
    Example::Pools(pools)
}

fn two(shape: &str) -> Example {
    example(shape, Extent { nodes: Some(2), nets: None }).unwrap()
}

#[test]
fn shapes_are_those_of_the_scenarios() {
    let table = [
        ("0", "nodes/shape-zero"),
        ("1", "nodes/shape-one"),
        ("2", "nodes/shape-two"),
        ("zero", "pools/shape-zero"),
        ("one", "pools/shape-one"),
        ("shape-three", "pools/shape-three"),
        ("foozer-barzer", "pools/shape-foozer-barzer"),
    ];
    for (shape, expected) in table {
        assert_eq!(two(shape), file(expected), "{shape}");
    }
}

#[test]
fn the_original_made_one_node_of_files_and_two_of_pools() {
    let count = |shape: &str| match example(shape, Extent::default()).unwrap() {
        Example::Nodes(nodes) => nodes.len(),
        Example::Pools(pools) => {
            let mut nodes: Vec<_> = pools.iter().map(|pool| &pool.spec.node_name).collect();
            nodes.dedup();
            nodes.len()
        }
    };
    for shape in shapes() {
        let expected = if shape.len() == 1 { 1 } else { 2 };
        assert_eq!(count(&shape), expected, "{shape}");
    }
}

#[test]
fn cards_of_the_last_shape_are_of_two_models() {
    let extent = Extent { nodes: Some(3), nets: Some(2) };
    let Example::Nodes(nodes) = example("3", extent).unwrap() else { panic!("pools") };
    let pools: Vec<_> = nodes[0].pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["primary", "foozer-1000-01", "foozer-4000-01"]);
    let names: Vec<_> = nodes[0].pools[2].devices.iter().map(|device| &device.name).collect();
    assert_eq!(names, ["dev-foo-4", "dev-foo-5", "dev-foo-6", "dev-foo-7"]);
    let net = |node: &NodeDevices| {
        let card = &node.pools[1].devices[0].capacities[2];
        card.topologies.last().unwrap().name.clone()
    };
    let nets: Vec<_> = nodes.iter().map(net).collect();
    assert_eq!(nets, ["foonet-three-00", "foonet-three-01", "foonet-three-00"]);
}

#[test]
fn devices_with_names_are_spread_over_the_halves_of_a_node() {
    let Example::Pools(pools) = two("foozer-4000-medium") else { panic!("nodes") };
    let names: Vec<_> = pools.iter().filter_map(|pool| pool.metadata.name.as_deref()).collect();
    let expected = ["foozer-4000-medium-00-pool-foozer", "foozer-4000-medium-01-pool-foozer"];
    assert_eq!(names, expected, "the original gave both the same name");
    let devices = &pools[0].spec.devices;
    assert_eq!(devices.len(), 8);
    let halves: Vec<_> = devices.iter().map(|device| device.attributes[0].clone()).collect();
    assert_eq!(halves[3], text("numa", "0"));
    assert_eq!(halves[4], text("numa", "1"));
}

#[test]
fn every_shape_reads_back_as_it_was_made() {
    for shape in shapes() {
        let made = two(&shape);
        let text: Vec<String> = made
            .documents()
            .unwrap()
            .iter()
            .map(|document| gantry_yaml::write(document).unwrap())
            .collect();
        assert_eq!(read(&text.join("---\n")), made, "{shape}");
    }
}

#[test]
fn a_shape_that_does_not_exist_is_named() {
    let error = example("huge", Extent::default()).unwrap_err().to_string();
    assert!(error.starts_with("unknown shape \"huge\"; choose from 0, 1, 2, 3, zero,"), "{error}");
}
