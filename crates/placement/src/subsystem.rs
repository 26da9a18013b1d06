//! The device subsystem: its settings, and the permissions of its controllers.

pub mod configuration;
mod explain;
mod hook;
mod start;

use std::sync::Arc;

use gantry_subsystem::access::{Account, READ, webhook_rules};
use gantry_subsystem::admission::SharedHook;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};
use serde_json::Value;

use self::configuration::Configuration;
use self::hook::DeviceHook;

use crate::admission::CONFIGURATION_NAME;

/// The device subsystem.
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
            ControllerSwitch::on("device-ledger"),
            ControllerSwitch::on("device-results"),
            ControllerSwitch::on("device-gate"),
            ControllerSwitch::on("device-classes"),
            ControllerSwitch::on("device-drivers"),
        ],
    }],
    grants,
    accounts: |_| vec![Account::new(ALLOCATOR_USER, rbac_rules())],
    start: |setup| Box::pin(async move { start::start(setup) }),
    hooks,
    explain: &[explain::CLAIM],
    gather: &[("v1", "nodes"), ("v1", "pods"), ("v1", "events"), ("v1", "resourcequotas")],
};

/// The user name of the controllers at the embedded server. Only this user may write what drivers
/// trust.
pub const ALLOCATOR_USER: &str = "system:gantry:devices";
/// The field manager of all writes.
pub const FIELD_MANAGER: &str = "gantry-devices";

fn hooks(values: &Values, _: &HostExtensions) -> Result<Vec<SharedHook>, serde_json::Error> {
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
            "Lets the operator register admission webhooks for pods that claim devices; for \
             devices.webhook.enabled. It could then register webhooks for every request.",
            webhook_rules(both, CONFIGURATION_NAME).to_vec(),
        )
        .with_webhook(),
        Grant::new(
            "optional/devices.yaml",
            "gantry-devices",
            "Lets the operator allocate devices to pods and schedule them; for devices.enabled. \
             It can then bind every pod, and delete pods whose devices are tainted.",
            rbac_rules(),
        ),
    ]
}

/// Returns the RBAC rules that the controllers need, and no more.
#[must_use]
pub fn rbac_rules() -> Vec<Value> {
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
        // Claims that are created for a pod have owner references that block its deletion.
        rule("", &["pods/finalizers"], &["update"]),
        rule("", &["namespaces", "nodes", "resourcequotas"], READ),
        rule("", &["configmaps"], &["get"]),
        // The definition of a kind says whether its objects may be copied into claims.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]),
        rule("", &["events"], &["create", "patch"]),
        rule("policy", &["poddisruptionbudgets"], READ),
    ]
}
