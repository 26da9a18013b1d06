//! Scaling as a subsystem: its settings, and what it may do.

pub mod configuration;
mod explain;

use gantry_subsystem::access::{READ, Reach, named_rule};
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};

/// Scaling.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "scaling",
    about: "Adds nodes for AppWrappers that wait for want of resources, and gives them back.",
    settings: SettingsSection {
        keys: configuration::KEYS,
        aliases: &[],
        check: configuration::check,
        read: |values| Ok(Box::new(configuration::Configuration::read(values)?)),
    },
    features: &[Feature {
        name: "scaling",
        enabled: |values| values.is_on("instascale.enabled"),
        definitions: &["appwrappers.workload.codeflare.dev"],
        controllers: &[ControllerSwitch::on("scaling")],
    }],
    grants,
    explain: &[explain::NODE],
    gather: &[
        ("v1", "nodes"),
        ("machine.openshift.io/v1beta1", "machinesets"),
        ("machine.openshift.io/v1beta1", "machines"),
    ],
};

/// The ConfigMap that says what was granted, in the operator's namespace.
pub const LEDGER: &str = "gantry-scaling";

fn grants() -> Vec<Grant> {
    const FILE: &str = "optional/scaling.yaml";
    const NAME: &str = "gantry-scaling";
    let machines = &["create", "delete", "get", "list", "patch", "update", "watch"];
    vec![
        Grant::new(
            FILE,
            NAME,
            "Lets the operator add machines and label nodes; for instascale.enabled.",
            vec![
                rule("machine.openshift.io", &["machines", "machinesets"], machines),
                rule("config.openshift.io", &["clusterversions"], READ),
                rule("", &["nodes"], &["patch", "update"]),
            ],
        ),
        Grant::new(
            FILE,
            NAME,
            "",
            vec![
                named_rule("", "secrets", &["instascale-ocm-secret"], &["get"]),
                named_rule("", "configmaps", &[LEDGER], &["get", "list", "patch", "watch"]),
            ],
        )
        .within(Reach::OwnNamespace),
    ]
}
