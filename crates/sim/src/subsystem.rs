//! The simulation of nodes as a subsystem: its settings, and its permissions on a cluster.

mod explain;
mod start;

use gantry_subsystem::access::{GrantScope, READ};
use gantry_subsystem::settings::{DefaultValue, Effect, Key, ValueType};
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};

/// The simulation of nodes.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "simulation",
    about: "Simulates nodes, and runs their pods.",
    settings: SettingsSection {
        keys: KEYS,
        read: |values| Ok(Box::new(values.is_on("simulation.enabled"))),
        ..SettingsSection::NONE
    },
    features: &[Feature {
        name: "simulation",
        enabled: |values| values.is_on("simulation.enabled"),
        definitions: &[],
        controllers: &[
            ControllerSwitch::on("kubelet-nodes"),
            ControllerSwitch::on("node-ranges"),
            ControllerSwitch::on("kubelet-pods"),
        ],
    }],
    grants,
    accounts: |_| Vec::new(),
    start: |setup| Box::pin(async move { start::start(setup) }),
    hooks: |_, _| Ok(Vec::new()),
    explain: &[explain::NODE],
    gather: &[("v1", "nodes"), ("v1", "pods"), ("v1", "events")],
};

const KEYS: &[Key] = &[Key {
    path: "simulation.enabled",
    value_type: ValueType::Bool,
    default: DefaultValue::Flag(false),
    effect: Effect::Restart,
    about: "Whether nodes and their pods are simulated.",
}];

/// The namespace in which kubelets renew their leases, the only one whose leases are read.
pub const NODE_LEASES: &str = "kube-node-lease";

fn grants() -> Vec<Grant> {
    const FILE: &str = "optional/simulation.yaml";
    const NAME: &str = "gantry-simulation";
    vec![
        // The operator always may read nodes, and read and delete pods.
        Grant::new(
            FILE,
            NAME,
            "Lets the operator speak for simulated nodes and their pods; for \
             simulation.enabled. It can then write the status of every node and pod, read \
             every ConfigMap and Secret by its name, and act as every service account: pods \
             on such nodes are shown what they name, and their programs act as their account.",
            vec![
                rule("", &["nodes"], &["patch"]),
                rule("", &["nodes/status", "pods/status"], &["patch"]),
                // To check whether the claims of pods are available before they start.
                rule("resource.k8s.io", &["resourceclaims"], READ),
                rule("", &["persistentvolumeclaims"], READ),
                // The objects that pods reference in variables and volumes, and the accounts of
                // their programs.
                rule("", &["configmaps", "secrets"], &["get"]),
                rule("", &["serviceaccounts/token"], &["create"]),
            ],
        ),
        Grant::new(
            FILE,
            NAME,
            "",
            vec![rule("coordination.k8s.io", &["leases"], &["create", "list", "patch", "watch"])],
        )
        .in_scope(GrantScope::Namespace(NODE_LEASES)),
    ]
}
