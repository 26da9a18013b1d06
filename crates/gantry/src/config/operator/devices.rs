//! Pods that claim devices.

use gantry_placement::AdminQuota;
use gantry_placement::admission::Mode;
use gantry_process::health::BindAddress;

use super::{Report, Values, parsed, refuse};

/// Pods that claim devices.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Devices {
    /// Whether they are given devices and nodes.
    pub enabled: bool,
    /// Whether classes that look at devices of others need a quota; see [`Devices::admin_quota`].
    pub require_admin_quota: bool,
    /// Who gives them to nodes, where they do not say.
    #[serde(deserialize_with = "mode")]
    pub mode: Mode,
    /// Whether and where the API server asks about them.
    pub webhook: Webhook,
}

impl Devices {
    /// How quotas are asked for.
    #[must_use]
    pub fn admin_quota(&self) -> AdminQuota {
        match self.require_admin_quota {
            true => AdminQuota::Required,
            false => AdminQuota::Optional,
        }
    }
}

/// Whether the API server asks about new pods and claims, and where it is answered whatever it asks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
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

fn mode<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Word {
        Scheduler,
        Gate,
    }
    let word: Word = serde::Deserialize::deserialize(from)?;
    Ok(match word {
        Word::Scheduler => Mode::Scheduler,
        Word::Gate => Mode::Gate,
    })
}

/// An API server calls webhooks at addresses of one form only.
pub(super) fn check(values: &Values, report: &mut Report) {
    const URL: &str = "devices.webhook.url";
    const ADDRESS: &str = "devices.webhook.bindAddress";
    let text = |key| values.get(key).as_str().unwrap_or_default();
    let url = text(URL);
    let host = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    let plain = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
    if !url.is_empty() && !plain {
        let text = format!("found {url:?}, expected https://<host>:<port>");
        refuse(values, report, URL, text);
    }
    let listens = text(ADDRESS).parse().is_ok_and(|it: BindAddress| it != BindAddress::Disabled);
    let switches = ["devices.webhook.enabled", "mcad.checkUserAccess"];
    let on = switches.into_iter().find(|key| values.get(key) == true);
    if let Some(on) = on.filter(|_| !listens && !report.blames(&[ADDRESS])) {
        let text = format!("switches off what {on} switches on; name an address");
        refuse(values, report, ADDRESS, text);
    }
}
