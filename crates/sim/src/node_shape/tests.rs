use std::sync::Arc;

use super::*;

#[test]
fn shapes_become_nodes() {
    let text = "
nodes:
- name: gpu
  count: 2
  cpu: 96
  memory: 1Ti
  accelerators:
    nvidia.com/gpu: {count: 8, model: H100}
    example.com/nic: 2
  kernelVersion: 6.8.0-45-generic
  moduleSignatures: enforce
  zone: a
  labels: {tier: gold}
  taints:
  - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
- name: plain
";
    let shapes = parse(text).unwrap();
    assert_eq!(shapes.iter().map(|it| it.count).collect::<Vec<_>>(), [2, 1]);
    let node = shapes[0].node(1);
    assert_eq!(node["metadata"]["name"], "gpu-1");
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["nvidia.com/gpu.product"], "H100");
    assert_eq!(labels["topology.kubernetes.io/zone"], "a");
    assert_eq!(labels["tier"], "gold");
    let taint = json!({"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"});
    assert_eq!(node["spec"]["taints"][0], taint);
    let annotations = &node["metadata"]["annotations"];
    assert_eq!(annotations["gantry.dev/sim-kernel-version"], "6.8.0-45-generic");
    assert_eq!(annotations["sim.gantry.dev/module-signatures"], "enforce");
    let off = parse("nodes:\n- name: a\n  moduleSignatures: off").unwrap();
    assert_eq!(
        off[0].node(0)["metadata"]["annotations"]["sim.gantry.dev/module-signatures"],
        "off"
    );
    let capacity: Value =
        serde_json::from_str(annotations["gantry.dev/sim-capacity"].as_str().unwrap()).unwrap();
    assert_eq!(
        capacity,
        json!({"cpu": "96", "memory": "1Ti", "ephemeral-storage": "512Gi", "pods": "110",
               "nvidia.com/gpu": "8", "example.com/nic": "2"})
    );
}

#[test]
fn errors_name_line_field_value_and_remedy() {
    let table = [
        (
            "nodes:\n- name: a\n  cpu: lots",
            "line 3: nodes[0].cpu: cannot read \"lots\" as a quantity: start with a number, as in 2, 500m or 1.5Gi; write an amount such as 32, 500m or 128Gi",
        ),
        (
            "nodes:\n- count: 2",
            "line 2: nodes[0].name: is missing; write the prefix of the node names, as in `name: gpu`",
        ),
        (
            "nodes:\n- name: A_b",
            "line 2: nodes[0].name: \"A_b\" cannot be the prefix of node names; use up to 50 of a-z, 0-9 and -, with a letter or digit at both ends",
        ),
        (
            "nodes:\n- name: a\n  count: -1",
            "line 3: nodes[0].count: -1 is not an allowed number; write a whole number from 0 to 3840",
        ),
        (
            "nodes:\n- name: a\n  memory: -1Gi",
            "line 3: nodes[0].memory: -1Gi is not more than zero; write an amount such as 32, 500m or 128Gi",
        ),
        (
            "nodes:\n- name: a\n  cpu: 0",
            "line 3: nodes[0].cpu: 0 is not more than zero; write an amount such as 32, 500m or 128Gi",
        ),
        (
            "nodes:\n- name: a\n  accelerators: {x.io/gpu: 0}",
            "line 3: nodes[0].accelerators.x.io/gpu: 0 is not an allowed number; write a whole number from 1 to 4294967295",
        ),
        (
            "nodes:\n- name: a\n  gpus: 1",
            "line 3: nodes[0].gpus: unknown field; use one of name, count, max, cpu, memory, ephemeralStorage, pods, accelerators, kernelVersion, moduleSignatures, trustedKeys, zone, labels, taints",
        ),
        (
            "nodes:\n- name: a\n  taints:\n  - {key: k, effect: Never}",
            "line 4: nodes[0].taints[0].effect: \"Never\" is not a taint effect; write NoSchedule, PreferNoSchedule or NoExecute",
        ),
        (
            "nodes:\n- name: a\n  accelerators: {gpu: 1}",
            "line 3: nodes[0].accelerators.gpu: \"gpu\" is not a resource name; write a domain before it, as in nvidia.com/gpu",
        ),
        (
            "nodes:\n- name: a\n  kernelVersion: new",
            "line 3: nodes[0].kernelVersion: kernel release \"new\" does not begin with two numbers as in 6.1.0-55-amd64; use the output of `uname -r`; write it as in 6.8.0-45-generic",
        ),
        (
            "nodes:\n- name: a\n  moduleSignatures: sometimes",
            "line 3: nodes[0].moduleSignatures: \"sometimes\" does not say which modules are loaded; write off, enforce or lockdown",
        ),
        (
            "nodes:\n- name: a\n  trustedKeys: abc",
            "line 3: nodes[0].trustedKeys: it has no certificate; write certificates in PEM",
        ),
        (
            "- name: a\n- name: a",
            "line 2: nodes[1].name: \"a\" is the name of two shapes; give each its own name, or one a larger count",
        ),
        ("nodes: 3", "line 1: nodes: has no list of shapes; write `nodes:` and a list below it"),
        ("nodes:\n- a", "line 2: nodes[0]: \"a\" is not a map; write fields such as `name:`"),
    ];
    for (text, expected) in table {
        let faults: Vec<String> =
            parse(text).unwrap_err().iter().map(ShapeError::to_string).collect();
        assert_eq!(faults, [expected], "{text}");
    }
    let two = parse("nodes:\n- name: a\n  cpu: x\n  pods: y").unwrap_err();
    assert_eq!(two.len(), 2, "all of them are reported");
    assert!(parse("nodes: [").is_err(), "no YAML");
}

#[test]
fn default_shapes_are_valid() {
    let usual = default_shapes();
    assert_eq!(usual.iter().map(|it| it.count).sum::<u32>(), 3);
    let accelerators = usual.iter().flat_map(|it| it.accelerators.values().map(|it| it.count));
    assert_eq!(accelerators.collect::<Vec<_>>(), [8]);
}

#[test]
fn node_operations_change_one_thing() {
    let node = |name: &str| -> Arc<Node> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": "u"}})).unwrap())
    };
    let shape = NodeShape { count: 2, ..NodeShape::new("gpu") };
    let names = |nodes: &[Arc<Node>]| -> Vec<String> {
        add(&shape, nodes).iter().map(|it| it.key().name().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["gpu-0", "gpu-1"]);
    let there = [node("gpu-0"), node("gpu-7"), node("gpu-x"), node("other-9")];
    assert_eq!(names(&there), ["gpu-8", "gpu-9"]);
    let bodies = [
        (cordon(&there[0]), json!({"spec": {"unschedulable": true}})),
        (uncordon(&there[0]), json!({"spec": {"unschedulable": null}})),
        (
            power_off(&there[0]),
            json!({"metadata": {"annotations": {"gantry.dev/sim-node": "down"}}}),
        ),
        (power_on(&there[0]), json!({"metadata": {"annotations": {"gantry.dev/sim-node": null}}})),
        (
            upgrade_kernel(&there[0], "6.9"),
            json!({"metadata": {"annotations": {"gantry.dev/sim-kernel-version": "6.9"}}}),
        ),
    ];
    for (write, expected) in bodies {
        let Write::Merge { body, fence, .. } = write else { panic!("{write:?}") };
        assert_eq!((body, fence.revision), (expected, None));
    }
    assert_eq!(remove(&there[0]).verb(), "delete");
}
