//! 32 to 45: the claims of pods in files from before there were API kinds.

use gantry_devices::problem::AllocationOutcome;

use super::loaded_files::LoadedFiles;

fn placed(nodes: &str, pod: &str) -> Option<String> {
    LoadedFiles::load(&[&format!("nodes/{nodes}"), &format!("pods/{pod}")]).placed()
}

#[test]
fn scenario_32_a_container_that_wants_nothing() {
    let expected = "shape-zero-000 (100)\n\
        pod/pod: primary/primary pods=1\n\
        c1/container: primary/primary containers=1";
    assert_eq!(placed("shape-zero", "besteffort-1x0").as_deref(), Some(expected));
}

#[test]
fn scenario_33_the_first_node_and_whole_blocks() {
    let expected = "shape-zero-000 (100)\n\
        pod/pod: primary/primary pods=1\n\
        c1/container: primary/primary containers=1 cpu=7130m@numa-0 memory=8Gi@numa-0";
    assert_eq!(placed("shape-zero", "33-7127m-8Gi").as_deref(), Some(expected));
}

#[test]
fn scenario_34_too_many_cores() {
    assert_eq!(placed("shape-zero", "34-64-8Gi"), None);
}

#[test]
fn scenario_35_too_much_memory() {
    assert_eq!(placed("shape-zero", "35-4-256Gi"), None);
}

#[test]
fn scenario_35b_memory_of_both_sides() {
    let expected = "shape-zero-000 (97)\n\
        pod/pod: primary/primary pods=1\n\
        c1/container: primary/primary containers=1 cpu=4@numa-0 memory=64Gi@numa-0 \
        memory=64Gi@numa-1";
    assert_eq!(placed("shape-zero", "35b-4-128Gi").as_deref(), Some(expected));
}

#[test]
fn scenario_36_three_containers() {
    assert!(placed("shape-zero", "three-containers").is_some());
}

#[test]
fn scenario_37_three_containers_that_are_too_much() {
    assert_eq!(placed("shape-zero", "37-7127m-8-4"), None);
}

#[test]
fn scenario_38_no_such_driver() {
    let stage = LoadedFiles::load(&["nodes/shape-zero", "pods/foozer-1-8"]);
    assert_eq!(stage.placed(), None);
    let reasons = stage.query().reasons("shape-zero-000", 2);
    assert_eq!(reasons, ["primary: claim and pool driver do not match"]);
}

#[test]
fn scenario_39_a_small_card() {
    let expected = "shape-one-000 (100)\n\
        pod/pod: primary/primary pods=1\n\
        c1/container: primary/primary containers=1 cpu=100m@numa-0 memory=100Mi@numa-0\n\
        c1/foozer: foozer-1000-01/dev-foo-0 cores=1@numa-0@pci-0 memory=2Gi@numa-0@pci-0 \
        interfaces=0@numa-0@pci-0@foonet-one-000";
    assert_eq!(placed("shape-one", "39-foozer-1-2").as_deref(), Some(expected));
    assert!(placed("shape-one", "39-foozer-only").is_some());
}

#[test]
fn scenario_40_no_card_is_big_enough() {
    assert_eq!(placed("shape-one", "40-foozer-16-32"), None);
    assert_eq!(placed("shape-one", "40-foozer-only"), None);
}

#[test]
fn scenarios_41_and_42_big_cards() {
    for pod in ["39-foozer-1-2", "39-foozer-only", "40-foozer-16-32", "40-foozer-only"] {
        assert!(placed("shape-two", pod).is_some(), "{pod}");
    }
}

#[test]
fn scenario_43_every_pod_on_every_node() {
    let pods = [
        "1x100mx100Mi",
        "besteffort-1x0",
        "foozer-1-8",
        "foozer-16-32",
        "four-containers",
        "1x2-exclusive-foozer",
        "three-containers",
    ];
    let table = [
        ("large-16x128-numa", "ssffsfs"),
        ("large-16x128x8-foozer4000-numa", "sssssss"),
        ("medium-8x64-numa", "ssffffs"),
        ("medium-8x64x4-foozer1000-numa", "sssffss"),
        ("small-2x8", "ssfffff"),
        ("small-4x32", "ssfffff"),
        ("small-4x32-numa", "ssfffff"),
        ("tiny-1x1", "ssfffff"),
        ("tiny-1x2", "ssfffff"),
        ("tiny-1x2x1-foozer1000", "sssffff"),
    ];
    for (node, expected) in table {
        let fits = |pod: &&str| if placed(node, pod).is_some() { 's' } else { 'f' };
        assert_eq!(pods.iter().map(fits).collect::<String>(), expected, "{node}");
    }
}

#[test]
fn scenario_43_the_last_memory_is_split() {
    let shown = placed("large-16x128-numa", "four-containers").unwrap();
    let last = shown.lines().last().unwrap();
    let expected = "c4/container: primary/primary containers=1 cpu=200m@numa-0 \
        memory=40Gi@numa-0 memory=8Gi@numa-1";
    assert_eq!(last, expected);
}

#[test]
fn scenario_44_one_card_for_two_exclusive_claims() {
    let stage = LoadedFiles::load(&["nodes/tiny-1x2x1-foozer1000", "pods/1x2-exclusive-foozer"]);
    let question = stage.query();
    let AllocationOutcome::Unsatisfiable(report) = question.allocate(0) else { panic!("it fits") };
    assert_eq!(
        report.claims,
        [Some(true), Some(false)],
        "the container's claims together do not fit"
    );
}

#[test]
fn scenario_44_the_second_claim_has_a_reason() {
    let stage = LoadedFiles::load(&["nodes/tiny-1x2x1-foozer1000", "pods/1x2-exclusive-foozer"]);
    let mut question = stage.query();
    let second = question.request.claims[1].terms.pop().unwrap();
    let AllocationOutcome::Allocated(first) = question.allocate(0) else {
        panic!("the first does not fit")
    };
    for hold in first.holds() {
        question.snapshot.inventory.hold(hold).unwrap();
    }
    question.request.claims[1].terms = vec![second];
    question.request.claims.remove(0);
    let reasons = question.reasons("tiny-1x2x1-foozer1000", 0);
    let expected = [
        "primary: claim and pool driver do not match",
        "foozer-1000: insufficient capacity \"access\" present in device \"dev-foo-0\"",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn scenario_45_two_cards_for_two_exclusive_claims() {
    let shown = placed("medium-8x64x4-foozer1000-numa", "1x2-exclusive-foozer").unwrap();
    let cards: Vec<&str> = shown.lines().skip(3).collect();
    let expected = [
        "c1/foozer-1: foozer-1000-01/dev-foo-0 cores=1 memory=8Gi",
        "c1/foozer-2: foozer-1000-01/dev-foo-1 cores=1 memory=8Gi",
    ];
    assert_eq!(cards, expected);
}
