//! The section `devices` of the configuration.

use gantry_process::health::BindAddress;
use gantry_subsystem::settings::read::parsed;
use gantry_subsystem::settings::{
    ConfigReport, DefaultValue, Effect, EmptyMeaning, Key, ValueType, Values,
};
use serde::{Deserialize, Deserializer};

use crate::AdminQuota;
use crate::admission::Mode;

/// The keys of devices.
pub const KEYS: &[Key] = &[
    Key {
        path: "devices.enabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether pods that claim devices are allocated devices and scheduled.",
    },
    Key {
        path: "devices.requireAdminQuota",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether a namespace needs a quota for each class with administrator access.",
    },
    Key {
        path: "devices.mode",
        value_type: ValueType::Word(&["scheduler", "gate"]),
        default: DefaultValue::Text("scheduler"),
        effect: Effect::Restart,
        about: "What the webhook adds to pods that claim devices and name no scheduler: \
                `schedulerName: gantry`, or the scheduling gate that makes their own scheduler \
                wait. Both are supported with either setting.",
    },
    Key {
        path: "devices.webhook.enabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether the API server calls the admission webhook for new pods that claim \
                devices, and for objects of the device API group.",
    },
    Key {
        path: "devices.webhook.bindAddress",
        value_type: ValueType::Address { empty: EmptyMeaning::Default },
        default: DefaultValue::Text(":9443"),
        effect: Effect::Restart,
        about: "The address of the admission webhooks: for devices, and with \
                `mcad.checkUserAccess` for AppWrappers.",
    },
    Key {
        path: "devices.webhook.url",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Restart,
        about: "The URL at which the API server reaches the webhooks: `https://<host>:<port>`. \
                Empty: the service `gantry-webhook` in the operator's namespace.",
    },
];

/// The settings for pods that claim devices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// Whether such pods are allocated devices and scheduled.
    pub enabled: bool,
    /// Whether classes with administrator access need a quota; see [`Configuration::admin_quota`].
    pub require_admin_quota: bool,
    /// Which scheduler binds the pods, where they do not say.
    #[serde(deserialize_with = "mode")]
    pub mode: Mode,
    /// The admission webhook for them.
    pub webhook: Webhook,
}

/// The settings of the admission webhook for new pods and claims.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Whether the API server calls it.
    pub enabled: bool,
    /// The address it listens on.
    #[serde(deserialize_with = "parsed")]
    pub bind_address: BindAddress,
    /// The URL at which the API server reaches it; empty for the service in the operator's
    /// namespace.
    pub url: String,
}

impl Configuration {
    /// Reads the section.
    ///
    /// # Errors
    /// The keys and the fields disagree: no value that has the form of its key is refused.
    pub fn read(values: &Values) -> Result<Self, serde_json::Error> {
        values.section("devices")
    }

    /// Returns how quotas are enforced.
    #[must_use]
    pub fn admin_quota(&self) -> AdminQuota {
        match self.require_admin_quota {
            true => AdminQuota::Required,
            false => AdminQuota::Optional,
        }
    }
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum ModeName {
        Scheduler,
        Gate,
    }
    let word = ModeName::deserialize(from)?;
    Ok(match word {
        ModeName::Scheduler => Mode::Scheduler,
        ModeName::Gate => Mode::Gate,
    })
}

/// Checks the rules that span keys: an API server calls webhooks at addresses of one form only.
pub fn check(values: &mut Values, report: &mut ConfigReport) {
    const URL: &str = "devices.webhook.url";
    const ADDRESS: &str = "devices.webhook.bindAddress";
    let url = values.text(URL);
    let host = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    let plain = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
    if !url.is_empty() && !plain {
        let text = format!("found {url:?}, expected https://<host>:<port>");
        report.refuse(values, URL, text);
    }
    let listens = values.text(ADDRESS).parse();
    let listens = listens.is_ok_and(|it: BindAddress| it != BindAddress::Disabled);
    let switches = ["devices.webhook.enabled", "mcad.checkUserAccess"];
    let on = switches.into_iter().find(|key| values.is_on(key));
    if let Some(on) = on.filter(|_| !listens && !report.has_error_for(&[ADDRESS])) {
        let text = format!("switches off what {on} switches on; name an address");
        report.refuse(values, ADDRESS, text);
    }
}
