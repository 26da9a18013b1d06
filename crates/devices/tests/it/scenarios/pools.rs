//! 46 to 57: node selection among pools that count their devices.

use super::loaded_files::LoadedFiles;

const MIXED: [&str; 2] = ["pools/shape-zero", "pools/shape-three"];

fn mixed(claims: &str) -> LoadedFiles {
    LoadedFiles::load(&[MIXED[0], MIXED[1], &format!("claims/{claims}")])
}

fn on(pools: &str, claims: &str) -> LoadedFiles {
    LoadedFiles::load(&[&format!("pools/{pools}"), &format!("claims/{claims}")])
}

fn reasons(pools: [&str; 4], reason: &str) -> Vec<String> {
    pools.iter().map(|pool| format!("{pool}: {reason}")).collect()
}

const THREE: [&str; 4] = [
    "shape-three-00-barzer-00",
    "shape-three-00-barzer-01",
    "shape-three-00-barzer-02",
    "shape-three-00-barzer-03",
];

#[test]
fn scenario_46_by_driver() {
    let stage = mixed("46-by-driver");
    let expected = "shape-zero-00 (100)\nmyclaim/main: 1 of shape-zero-00-foozer-00";
    assert_eq!(stage.placed().as_deref(), Some(expected));
    let told = stage.query().reasons("shape-three-00", 0);
    assert_eq!(told, reasons(THREE, "claim and pool driver do not match"));
}

#[test]
fn scenario_47_by_model() {
    let stage = mixed("47-by-model");
    let expected = "shape-zero-00 (100)\nmyclaim/main: 1 of shape-zero-00-foozer-00";
    assert_eq!(stage.placed().as_deref(), Some(expected));
    let told = stage.query().reasons("shape-three-00", 0);
    assert_eq!(told, reasons(THREE, "constraints not met"));
}

#[test]
fn scenario_48_no_such_model() {
    assert_eq!(mixed("48-no-such-model").placed(), None);
}

#[test]
fn scenario_49_two_of_one_pool() {
    let expected = "shape-zero-00 (100)\nmyclaim/main: 2 of shape-zero-00-foozer-00";
    assert_eq!(on("shape-zero", "49-two").placed().as_deref(), Some(expected));
}

#[test]
fn scenario_50_four_of_two_pools() {
    let expected = "shape-one-00 (100)\n\
        myclaim/main: 2 of shape-one-00-foozer-00, 2 of shape-one-00-foozer-01";
    assert_eq!(on("shape-one", "50-four").placed().as_deref(), Some(expected));
}

#[test]
fn scenario_51_no_node_has_both() {
    let stage = mixed("51-foozers-and-barzers");
    assert_eq!(stage.placed(), None);
    let question = stage.query();
    assert_eq!(question.report("shape-zero-00").claims, [Some(true), Some(false)]);
    assert_eq!(question.report("shape-three-00").claims, [Some(false), Some(true)]);
}

#[test]
fn scenario_52_a_node_has_both() {
    let expected = "shape-foozer-barzer-00 (100)\n\
        foozers/main: 2 of shape-foozer-barzer-00-foozer-00\n\
        barzers/main: 2 of shape-foozer-barzer-00-barzer-00";
    let placed = on("shape-foozer-barzer", "51-foozers-and-barzers").placed();
    assert_eq!(placed.as_deref(), Some(expected));
}

#[test]
fn scenario_53_no_four_on_one_numa_node() {
    assert_eq!(on("shape-one", "53-four-on-one-numa").placed(), None);
}

#[test]
fn scenario_54_a_pool_without_devices() {
    let stage = on("54-none-left", "46-by-driver");
    assert_eq!(stage.placed(), None);
    assert_eq!(stage.query().reasons("node-a", 0), ["empty: no available devices"]);
}

#[test]
fn scenario_55_a_pool_without_a_node() {
    let stage = on("55-nowhere", "46-by-driver").with_node("node-a");
    assert_eq!(stage.placed(), None);
    assert_eq!(stage.query().reasons("node-a", 0), [""; 0]);
}

#[test]
fn scenario_56_the_same_devices_are_not_given_twice() {
    let stage = on("shape-zero", "56-twice-two");
    assert_eq!(stage.placed(), None);
    assert_eq!(stage.query().report("shape-zero-00").claims, [Some(true), Some(false)]);
}

#[test]
fn scenario_57_a_pod_without_claims_fits_everywhere() {
    let stage = LoadedFiles::load(&["pools/shape-zero"]);
    assert_eq!(stage.placed().as_deref(), Some("shape-zero-00 (100)"));
}
