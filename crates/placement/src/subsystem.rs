//! Devices as a subsystem: their settings, and what the controllers may do.

pub mod configuration;
mod explain;
mod hook;
mod start;

use std::sync::Arc;

use gantry_subsystem::access::{Account, READ, webhook_rules};
use gantry_subsystem::admission::SharedHook;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::Offers;
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};
use serde_json::Value;

use self::configuration::Configuration;
use self::hook::DeviceHook;

use crate::admission::CONFIGURATION;

/// Devices.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "devices",
    about: "Allocates devices to claims, and schedules the pods that claim them.",
    settings: SettingsSection {
        keys: configuration::KEYS,
        aliases: &[],
        check: configuration::check,
        read: |values| Ok(Box::new(Configuration::read(values)?)),
    },
    features: &[Feature {
        name: "devices",
        enabled: |values| values.is_on("devices.enabled"),
        definitions: &[
            "devicedrivers.devmgmtproto.k8s.io",
            "deviceclasses.devmgmtproto.k8s.io",
            "deviceclaims.devmgmtproto.k8s.io",
            "deviceprivilegedclaims.devmgmtproto.k8s.io",
            "devicepools.devmgmtproto.k8s.io",
            "deviceclaimtemplates.devmgmtproto.k8s.io",
            "poddevices.devmgmtproto.k8s.io",
        ],
        controllers: &[
            ControllerSwitch::on("device-scheduler"),
            ControllerSwitch::on("device-release"),
            ControllerSwitch::on("device-books"),
            ControllerSwitch::on("device-results"),
            ControllerSwitch::on("device-gate"),
            ControllerSwitch::on("device-classes"),
            ControllerSwitch::on("device-drivers"),
        ],
    }],
    grants,
    accounts: |_| vec![Account::new(ACCOUNT, rules())],
    start: |setup| Box::pin(async move { start::start(setup) }),
    hooks,
    explain: &[explain::CLAIM],
    gather: &[("v1", "nodes"), ("v1", "pods"), ("v1", "events"), ("v1", "resourcequotas")],
};

/// Who the controllers are to the embedded server. What drivers trust is written by this user alone.
pub const ACCOUNT: &str = "system:gantry:devices";
/// Who owns the fields that are written.
pub const MANAGER: &str = "gantry-devices";

fn hooks(values: &Values, _: &Offers) -> Result<Vec<SharedHook>, serde_json::Error> {
    let Configuration { enabled, mode, webhook, .. } = Configuration::read(values)?;
    Ok(match enabled && webhook.enabled {
        true => vec![Arc::new(DeviceHook { mode })],
        false => Vec::new(),
    })
}

fn grants() -> Vec<Grant> {
    let both = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    vec![
        Grant::new(
            "optional/devices-webhook.yaml",
            "gantry-devices-webhook",
            "Lets the operator tell the API server to ask it about pods that claim devices; for \
             devices.webhook.enabled. It could then have the server ask it about everything.",
            webhook_rules(both, CONFIGURATION).to_vec(),
        )
        .with_webhook(),
        Grant::new(
            "optional/devices.yaml",
            "gantry-devices",
            "Lets the operator give devices and nodes to pods that claim devices; for \
             devices.enabled. It can then bind every pod, and delete pods whose devices are tainted.",
            rules(),
        ),
    ]
}

/// What the controllers need, and no more.
#[must_use]
pub fn rules() -> Vec<Value> {
    let group = "devmgmtproto.k8s.io";
    vec![
        rule(
            group,
            &["deviceclaims", "deviceprivilegedclaims"],
            &["create", "get", "list", "patch", "watch"],
        ),
        rule(
            group,
            &[
                "deviceclaimtemplates",
                "deviceclasses",
                "devicedrivers",
                "devicepools",
                "poddevices",
            ],
            READ,
        ),
        rule(
            group,
            &[
                "deviceclaims/status",
                "deviceclasses/status",
                "devicedrivers/status",
                "devicepools/status",
                "deviceprivilegedclaims/status",
            ],
            &["patch"],
        ),
        rule("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["pods/binding"], &["create"]),
        // Claims that are made for a pod keep it until they are gone.
        rule("", &["pods/finalizers"], &["update"]),
        rule("", &["namespaces", "nodes", "resourcequotas"], READ),
        rule("", &["configmaps"], &["get"]),
        // Whether objects of a kind may be copied into claims is said by its definition.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]),
        rule("", &["events"], &["create", "patch"]),
        rule("policy", &["poddisruptionbudgets"], READ),
    ]
}
