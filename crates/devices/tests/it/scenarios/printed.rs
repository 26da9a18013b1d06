//! Scenarios 32 to 57 again, as they are printed. Long outputs are in `scenarios/printed`, by
//! number.

use std::fs;

use gantry_api::decode::{self, Options as Reading};
use gantry_api::finding::Source;
use gantry_devices::dump::file::Wording;
use gantry_devices::schedule::{Decision, Objects, Options, ScheduleTarget, Verdict, decide};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");

fn load(files: &[&str]) -> Objects {
    let mut objects = Objects::of(Source::File);
    for file in files {
        let text = fs::read_to_string(format!("{FOLDER}/{file}.yaml")).expect(file);
        for document in decode::documents(&text, Reading::default()).expect(file) {
            assert_eq!(document.errors, [], "{file}: {}", document.subject);
            assert!(objects.add(document.content), "{file}: {}", document.subject);
        }
    }
    objects
}

/// The claims of a pod on the nodes of a file.
fn pod(nodes: &str, pod: &str, wording: Wording) -> Decision {
    let objects = load(&[&format!("nodes/{nodes}"), &format!("pods/{pod}")]);
    let asked = ScheduleTarget::CapacityClaim(&objects.capacity_claims[0]);
    decide(&objects, asked, &Options { wording, ..Options::default() }).unwrap()
}

/// All claims of a file, among the pools of others.
fn select(pools: &[&str], claims: Option<&str>) -> Decision {
    let mut files: Vec<String> = pools.iter().map(|name| format!("pools/{name}")).collect();
    files.extend(claims.map(|name| format!("claims/{name}")));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    decide(&load(&files), ScheduleTarget::Claims, &Options::default()).unwrap()
}

/// Compares a text with the file of that name.
#[track_caller]
fn matches(name: &str, text: &str) {
    let path = format!("{FOLDER}/printed/{name}.txt");
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{path}");
}

fn both(name: &str, decision: &Decision) {
    matches(name, &decision.text(false).unwrap());
    matches(&format!("{name}-verbose"), &decision.text(true).unwrap());
}

#[test]
fn scenario_33_is_printed_with_whole_blocks() {
    both("33", &pod("shape-zero", "33-7127m-8Gi", Wording::Device));
}

#[test]
fn scenario_38_is_printed_with_both_drivers() {
    both("38", &pod("shape-zero", "foozer-1-8", Wording::Device));
}

#[test]
fn scenario_43_is_printed_for_every_pod_on_every_node() {
    let pods = [
        "1x100mx100Mi",
        "besteffort-1x0",
        "foozer-1-8",
        "foozer-16-32",
        "four-containers",
        "1x2-exclusive-foozer",
        "three-containers",
    ];
    let nodes = [
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
    let mut all = String::new();
    for (node, expected) in nodes {
        for (file, expected) in pods.iter().zip(expected.chars()) {
            let decision = pod(node, file, Wording::Device);
            let text = decision.text(false).unwrap();
            let first = match expected {
                's' => "succeeded in satisfying the claim\n-------------------------------\n",
                _ => "failed to satisfy the claim\n",
            };
            assert!(text.starts_with(first), "{node} {file}: {text}");
            assert_eq!(decision.verdict == Verdict::Satisfied, expected == 's');
            assert_eq!(decision.node.is_some(), expected == 's');
            all += &format!("== {node} {file}\n{text}");
        }
    }
    matches("43", &all);
}

#[test]
fn scenario_43_is_printed_with_the_split_memory() {
    both("43-four-containers", &pod("large-16x128-numa", "four-containers", Wording::Device));
}

#[test]
fn scenario_44_is_printed_with_what_is_missing() {
    let decision = pod("tiny-1x2x1-foozer1000", "1x2-exclusive-foozer", Wording::Device);
    let text = decision.text(true).unwrap();
    let told = "- device \"dev-foo-0\" (0): insufficient capacity \"access\" present in device \"dev-foo-0\"\n";
    assert!(text.ends_with(told), "{text}");
    both("44", &decision);
}

#[test]
fn scenario_44_is_printed_in_the_words_of_the_first_files() {
    let decision = pod("tiny-1x2x1-foozer1000", "1x2-exclusive-foozer", Wording::Resource);
    both("44-e1", &decision);
    let decision = pod("medium-8x64x4-foozer1000-numa", "1x2-exclusive-foozer", Wording::Resource);
    let text = decision.text(true).unwrap();
    assert!(text.contains("resourceName: dev-foo-1") && !text.contains("deviceName"), "{text}");
}

#[test]
fn scenario_45_is_printed_with_a_card_for_each() {
    both("45", &pod("medium-8x64x4-foozer1000-numa", "1x2-exclusive-foozer", Wording::Device));
}

const MIXED: [&str; 2] = ["shape-zero", "shape-three"];

#[test]
fn scenarios_46_to_57_are_printed() {
    let table: [(&str, &[&str], Option<&str>, Verdict); 11] = [
        ("46", &MIXED, Some("46-by-driver"), Verdict::Satisfied),
        ("47", &MIXED, Some("47-by-model"), Verdict::Satisfied),
        ("48", &MIXED, Some("48-no-such-model"), Verdict::Unsatisfied),
        ("49", &["shape-zero"], Some("49-two"), Verdict::Satisfied),
        ("50", &["shape-one"], Some("50-four"), Verdict::Satisfied),
        ("51", &MIXED, Some("51-foozers-and-barzers"), Verdict::Unsatisfied),
        ("52", &["shape-foozer-barzer"], Some("51-foozers-and-barzers"), Verdict::Satisfied),
        ("53", &["shape-one"], Some("53-four-on-one-numa"), Verdict::Unsatisfied),
        ("54", &["54-none-left"], Some("46-by-driver"), Verdict::Unsatisfied),
        ("56", &["shape-zero"], Some("56-twice-two"), Verdict::Unsatisfied),
        ("57", &["shape-zero"], None, Verdict::Satisfied),
    ];
    for (name, pools, claims, verdict) in table {
        let decision = select(pools, claims);
        assert_eq!(decision.verdict, verdict, "{name}");
        both(name, &decision);
    }
}

#[test]
fn scenario_55_reports_a_pool_without_a_node() {
    let decision = select(&["55-nowhere", "shape-three"], Some("46-by-driver"));
    assert_eq!(decision.verdict, Verdict::Unsatisfied);
    let told = decision.notes.iter().any(|note| note.ends_with("is not associated with a node"));
    assert!(told, "{:?}", decision.notes);
}
