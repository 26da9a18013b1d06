//! Scenarios 58 to 68: typical claims of pods, each with an inventory that satisfies them and one
//! that does not.

use gantry_devices::lower::allocations;

use super::loaded_files::LoadedFiles;

fn placed(file: &str) -> Option<String> {
    LoadedFiles::load(&[&format!("intents/{file}")]).placed()
}

#[test]
fn scenarios_58_to_68_with_devices() {
    let table = [
        ("58", "nics/main: nic-a/vf-0, nic-a/vf-1, nic-b/vf-0, nic-b/vf-1"),
        ("59", "nics/main: c-pf-1/vf-0, c-pf-1/vf-1, c-pf-1/vf-2, c-pf-1/vf-3"),
        ("60", "gpus/main: gpus/gpu-1, gpus/gpu-3"),
        ("61", "cards/gpu-one: gpus/gpu-1\ncards/gpu-two: gpus/gpu-2"),
        ("62", "pair/gpu: gpus/gpu-1\npair/nic: nics/vf-1"),
        ("63-a100", "card/gpu: gpus-a100/a100-0"),
        ("63-h100", "card/gpu #1: gpus-h100/h100-0"),
        ("63-l4", "card/gpu #2: gpus-l4/l4-1, gpus-l4/l4-2"),
        ("64", "set/vf: nics/vf-0\nset/gpu #1: gpus-l4/l4-1, gpus-l4/l4-2"),
        ("65", "nics/main: nics/vf-1, nics/vf-3, nics/vf-5, nics/vf-6"),
        ("67-half-b", "partitions/t0: card/half-a\npartitions/t1: card/half-b"),
        (
            "67-quarters",
            "partitions/t0: card/half-a\npartitions/t1: card/q1\npartitions/t2: card/q2",
        ),
        ("67-four-quarters", "partitions/main: card/q1, card/q2, card/q3, card/q4"),
        (
            "68",
            "memory/main: gpus/gpu-0 memory=16Gi, gpus/gpu-1 memory=16Gi, gpus/gpu-2 memory=8Gi",
        ),
    ];
    for (file, expected) in table {
        let shown = placed(file).unwrap_or_else(|| panic!("{file} does not fit"));
        let (node, terms) = shown.split_once('\n').unwrap();
        assert!(node.starts_with("node-a "), "{file}: {node}");
        assert_eq!(terms, expected, "{file}");
    }
}

#[test]
fn scenarios_58_to_68_without_enough() {
    let files = [
        "58-negative",
        "59-negative",
        "60-negative",
        "61-negative",
        "62-negative",
        "63-negative",
        "64-negative",
        "65-negative",
        "66-negative",
        "67-full-negative",
        "67-quarter-negative",
        "67-five-negative",
        "68-negative",
    ];
    for file in files {
        assert_eq!(placed(file), None, "{file}");
    }
}

#[test]
fn scenario_66_eight_share_a_card_and_the_ninth_goes_elsewhere() {
    let shown = placed("66").unwrap();
    let claims: Vec<&str> = shown.lines().skip(1).collect();
    for (number, line) in claims.iter().enumerate() {
        let card = if number < 8 { 0 } else { 1 };
        let expected = format!("slice-{number}/main: gpus-h100/h100-{card} memory=8Gi");
        assert_eq!(*line, expected);
    }
    let eight: Vec<String> = (0..8).map(|number| format!("slice-{number}")).collect();
    let eight: Vec<&str> = eight.iter().map(String::as_str).collect();
    assert!(LoadedFiles::load(&["intents/66-negative"]).with_claims(&eight).placed().is_some());
}

#[test]
fn scenario_63_scores_tell_alternatives_apart() {
    for (file, score) in [("63-a100", "(100)"), ("63-h100", "(90)"), ("63-l4", "(80)")] {
        let shown = placed(file).unwrap();
        assert!(shown.lines().next().unwrap().ends_with(score), "{file}: {shown}");
    }
}

#[test]
fn scenario_68_amounts_are_recorded_in_the_suffixes_of_the_request() {
    let question = LoadedFiles::load(&["intents/68"]).query();
    let (_, given) = question.best().unwrap();
    let inventory = &question.snapshot.inventory;
    let recorded = allocations(inventory, &question.request.claims[0], &given.claims[0]);
    let shown: Vec<(&str, String)> = recorded
        .iter()
        .map(|entry| {
            assert_eq!(entry.claim_name.as_deref(), Some("main"));
            let parts: Vec<String> = entry
                .allocations
                .iter()
                .map(|part| format!("{} {}", part.name, part.allocation))
                .collect();
            (entry.device_name.as_deref().unwrap(), parts.join(", "))
        })
        .collect();
    let expected = [("gpu-0", "memory 16Gi"), ("gpu-1", "memory 16Gi"), ("gpu-2", "memory 8Gi")];
    assert_eq!(shown, expected.map(|(device, part)| (device, part.to_owned())));
}
