//! Registers scaling as a subsystem: its settings, controllers and permissions.

pub mod configuration;
mod explain;
mod start;

use gantry_subsystem::access::{Account, GrantScope, READ, named_rule};
use gantry_subsystem::settings::Values;
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};

/// The scaling subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "scaling",
    about: "Adds nodes for AppWrappers that lack resources, and releases them afterwards.",
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
        controllers: CONTROLLERS,
    }],
    grants,
    accounts,
    start: |setup| Box::pin(start::start(setup)),
    hooks: |_, _| Ok(Vec::new()),
    explain: &[explain::NODE_PAGE],
    gather: &[
        ("v1", "nodes"),
        ("machine.openshift.io/v1beta1", "machinesets"),
        ("machine.openshift.io/v1beta1", "machines"),
    ],
};

const CONTROLLERS: &[ControllerSwitch] = &[ControllerSwitch::on("scaling")];

/// The name of the ConfigMap that records what was granted, in the operator's namespace.
pub const GRANT_RECORD_NAME: &str = "gantry-scaling";

/// The account of scaling at the embedded API server, used to add simulated nodes.
const ACCOUNT: &str = "system:gantry:scaling";
/// The namespace of the grant record and the groups of simulated nodes there.
pub const EMBEDDED_NAMESPACE: &str = "kube-system";

fn accounts(_: &Values) -> Vec<Account> {
    let everywhere = vec![
        rule("", &["nodes"], &["create", "delete"]),
        rule("workload.codeflare.dev", &["appwrappers"], &["patch"]),
        rule("", &["events"], &["create", "patch"]),
    ];
    let ledger = vec![rule("", &["configmaps"], &["create", "patch"])];
    let namespaced_rules = Some((EMBEDDED_NAMESPACE, ledger));
    vec![Account { namespaced_rules, ..Account::new(ACCOUNT, everywhere) }]
}

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
                named_rule(
                    "",
                    "configmaps",
                    &[GRANT_RECORD_NAME],
                    &["get", "list", "patch", "watch"],
                ),
            ],
        )
        .in_scope(GrantScope::OwnNamespace),
    ]
}
