//! The section `devices` of the configuration.

use gantry_process::health::BindAddress;
use gantry_subsystem::settings::read::parsed;
use gantry_subsystem::settings::{Effect, Empty, Form, Key, Report, Usual, Values};
use serde::{Deserialize, Deserializer};

use crate::AdminQuota;
use crate::admission::Mode;

/// The keys of devices.
pub const KEYS: &[Key] = &[
    Key {
        path: "devices.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether pods that claim devices are given devices and nodes.",
    },
    Key {
        path: "devices.requireAdminQuota",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether a namespace needs a quota for each class that looks at devices of others.",
    },
    Key {
        path: "devices.mode",
        form: Form::Word(&["scheduler", "gate"]),
        default: Usual::Text("scheduler"),
        effect: Effect::Restart,
        about: "What the webhook gives pods that claim devices and name nobody: `schedulerName: gantry`, or the \
                gate behind which their own scheduler waits. Both are understood whatever this says.",
    },
    Key {
        path: "devices.webhook.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether the API server asks about new pods that claim devices, and about objects of the group.",
    },
    Key {
        path: "devices.webhook.bindAddress",
        form: Form::Address { empty: Empty::Default },
        default: Usual::Text(":9443"),
        effect: Effect::Restart,
        about: "Where the API server is answered, about devices and with `mcad.checkUserAccess` about AppWrappers.",
    },
    Key {
        path: "devices.webhook.url",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Restart,
        about: "Where the API server reaches that: `https://<host>:<port>`. Empty: the service `gantry-webhook` \
                in the operator's namespace.",
    },
];

/// Pods that claim devices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// Whether they are given devices and nodes.
    pub enabled: bool,
    /// Whether classes that look at devices of others need a quota; see [`Configuration::admin_quota`].
    pub require_admin_quota: bool,
    /// Who gives them to nodes, where they do not say.
    #[serde(deserialize_with = "mode")]
    pub mode: Mode,
    /// Whether and where the API server asks about them.
    pub webhook: Webhook,
}

/// Whether the API server asks about new pods and claims, and where it is answered whatever it asks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Whether it does.
    pub enabled: bool,
    /// Where it is answered.
    #[serde(deserialize_with = "parsed")]
    pub bind_address: BindAddress,
    /// Where the API server reaches it; empty for the service in the operator's namespace.
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

    /// How quotas are asked for.
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
    enum Word {
        Scheduler,
        Gate,
    }
    let word = Word::deserialize(from)?;
    Ok(match word {
        Word::Scheduler => Mode::Scheduler,
        Word::Gate => Mode::Gate,
    })
}

/// Checks the rules that span keys: an API server calls webhooks at addresses of one form only.
pub fn check(values: &mut Values, report: &mut Report) {
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
    if let Some(on) = on.filter(|_| !listens && !report.blames(&[ADDRESS])) {
        let text = format!("switches off what {on} switches on; name an address");
        report.refuse(values, ADDRESS, text);
    }
}
