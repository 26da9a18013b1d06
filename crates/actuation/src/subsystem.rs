//! Registers actuation as a subsystem: settings, controllers, permissions, explanations.

pub mod configuration;
mod explain;
mod start;
#[cfg(test)]
mod tests;

use gantry_subsystem::access::{Account, READ};
use gantry_subsystem::settings::Values;
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};
use serde_json::Value;

use self::configuration::Configuration;
use crate::collection::CollectionController;
use crate::labels::{PAIRING_MANAGER, POPULATION_MANAGER};
use crate::object_status::ObjectStatusController;
use crate::server_config_status::ServerConfigStatusController;

/// The actuation subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "actuation",
    about: "Changes which model an accelerator serves: pairs requesters with engines that sleep.",
    settings: SettingsSection {
        keys: configuration::KEYS,
        aliases: &[],
        check: configuration::check,
        read: |values| {
            let configuration = Configuration::read(values)?;
            let settings = configuration.settings();
            Ok(Box::new((configuration, settings)))
        },
    },
    features: &[
        Feature {
            name: "actuation",
            enabled: |values| values.is_on("actuation.enabled"),
            definitions: &["inferenceserverconfigs.fma.llm-d.ai", "launcherconfigs.fma.llm-d.ai"],
            controllers: PAIRING_CONTROLLERS,
        },
        Feature {
            name: "launcher-population",
            enabled: is_population_enabled,
            definitions: &[
                "launcherconfigs.fma.llm-d.ai",
                "launcherpopulationpolicies.fma.llm-d.ai",
            ],
            controllers: POPULATION_CONTROLLERS,
        },
    ],
    grants,
    accounts: |_| vec![Account::new(ACCOUNT, rules())],
    start: |setup| Box::pin(async move { start::start(setup) }),
    hooks: |_, _| Ok(Vec::new()),
    explain: &[explain::REQUESTER_PAGE],
    gather: &[("v1", "pods"), ("v1", "nodes"), ("v1", "events")],
};

/// The controllers that pair, collect what pairs leave, and report what is wrong with configs.
const PAIRING_CONTROLLERS: &[ControllerSwitch] = &[
    ControllerSwitch::on(PAIRING_MANAGER),
    ControllerSwitch::on(CollectionController::NAME),
    ControllerSwitch::on(ServerConfigStatusController::NAME),
];
const POPULATION_CONTROLLERS: &[ControllerSwitch] =
    &[ControllerSwitch::on(POPULATION_MANAGER), ControllerSwitch::on(ObjectStatusController::NAME)];

/// The account of the controllers at the embedded API server. The admission policies
/// `fma-immutable-fields` and `fma-bound-serverreqpod` let accounts with this ending, and no
/// others, write the fields by which pods are paired.
pub const ACCOUNT: &str = "system:serviceaccount:kube-system:gantry-fma-controllers";

fn is_population_enabled(values: &Values) -> bool {
    values.is_on("actuation.enabled") && values.is_on("actuation.population.enabled")
}

fn grants() -> Vec<Grant> {
    let about = "Lets the operator pair pods that request models with pods that serve them; for \
                 actuation.enabled. It creates pods from LauncherConfigs and server patches, and \
                 deletes pods that request models.";
    vec![Grant::new("optional/actuation.yaml", "gantry-actuation", about, rules())]
}

/// The rules that the controllers need, and no more. Where a namespace is set, a Role there
/// suffices for all but nodes.
#[must_use]
pub fn rules() -> Vec<Value> {
    let group = "fma.llm-d.ai";
    let kinds = ["inferenceserverconfigs", "launcherconfigs", "launcherpopulationpolicies"];
    let statuses = kinds.map(|it| format!("{it}/status"));
    vec![
        rule(group, &kinds, READ),
        rule(group, &statuses.each_ref().map(String::as_str), &["patch"]),
        rule("", &["configmaps", "nodes"], READ),
        rule("resource.k8s.io", &["resourceclaims"], &["get"]),
        rule("", &["pods"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["events"], &["create", "patch"]),
    ]
}
