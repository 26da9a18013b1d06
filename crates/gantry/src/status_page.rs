//! Renders the status of a process that runs controllers as one document: the same fields in
//! `gantry up` (`/gantry/status`) and in `gantry operator` (`/status`).

use std::collections::BTreeMap;

use gantry_controller::ManagerHandle;
use gantry_reconcile::Held;
use gantry_subsystem::settings::Values;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::subsystems::SUBSYSTEMS;
use crate::version::VERSION;

/// The maximum number of held reasons on a page: users do not read more, and programs have the
/// count.
const MAX_HELD_REASONS: usize = 1000;

/// The inputs of a status page.
#[derive(Debug)]
pub(crate) struct StatusPage<'a> {
    /// When the process started.
    pub(crate) started: Timestamp,
    /// The current time.
    pub(crate) now: Timestamp,
    /// Why it is not ready, if it is not.
    pub(crate) ready: Result<(), String>,
    /// The controllers, once they run.
    pub(crate) handle: Option<&'a ManagerHandle>,
    /// The status of the configuration.
    pub(crate) configuration: &'a ConfigurationStatus,
}

/// The status of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigurationStatus {
    /// The name of the text in effect.
    pub(crate) source: String,
    /// Why the current text is not in effect.
    pub(crate) faults: Vec<String>,
    /// Changes that need a restart: `key`, `inForce` and `wanted`.
    pub(crate) restart_to_apply: Vec<Value>,
    /// The values in effect; absent until they are known.
    pub(crate) values: Option<Values>,
    /// Which sections are in effect: `gantry up` has flags in place of the keys of the process.
    pub(crate) scope: SettingsScope,
}

/// The sections of the configuration that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SettingsScope {
    /// All of them.
    #[default]
    Everything,
    /// Those of subsystems.
    Subsystems,
}

impl SettingsScope {
    fn tree(self, values: &Values) -> Value {
        let mut tree = values.tree();
        if let (Self::Subsystems, Value::Object(sections)) = (self, &mut tree) {
            let keys = SUBSYSTEMS.iter().flat_map(|it| it.settings.keys);
            let own: Vec<&str> = keys.filter_map(|key| key.path.split('.').next()).collect();
            sections.retain(|name, _| own.contains(&name.as_str()));
        }
        tree
    }
}

impl StatusPage<'_> {
    /// Renders the document.
    pub(crate) fn to_json(&self) -> Value {
        let Self { started, now, ready, handle, configuration } = self;
        let ConfigurationStatus { source, faults, restart_to_apply, values, scope } = configuration;
        let mut page = json!({
            "version": VERSION.version,
            "started": started.to_string(),
            "now": now.to_string(),
            "ready": ready.is_ok(),
            "why": ready.as_ref().err(),
            "configuration": {
                "source": source,
                "faults": faults,
                "restartToApply": restart_to_apply,
                "values": values.as_ref().map(|it| scope.tree(it)),
            },
            "subsystems": values.as_ref().map(subsystems),
        });
        if let Some(handle) = handle {
            let names = handle.queue_lengths();
            let waiting: BTreeMap<_, _> = names.iter().filter(|(_, keys)| **keys > 0).collect();
            let missing = handle.unsynced_kinds();
            let missing = missing.iter();
            let missing = missing.map(|it| json!({"kind": it.resource.to_string(), "why": it.why}));
            let troubles =
                handle.cache_errors().into_iter().map(|(kind, why)| (kind.to_string(), why));
            page["leading"] = handle.permit().check().is_ok().into();
            page["controllers"] = names.len().into();
            page["waiting"] = json!(waiting);
            page["unfilled"] = missing.collect();
            page["troubles"] = json!(troubles.collect::<BTreeMap<_, _>>());
            page["heldCount"] = handle.held_reasons().count().into();
            page["held"] = held(handle);
        }
        page
    }
}

/// Checks that the caches of all kinds have synced; the error names those that have not, and why.
pub(crate) fn caches_filled(handle: &ManagerHandle) -> Result<(), String> {
    let missing = handle.unsynced_kinds();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.iter().map(|it| match &it.why {
        Some(why) => format!("{} ({why})", it.resource),
        None => format!("{} (being listed)", it.resource),
    });
    Err(format!("caches not synced yet: {}", missing.collect::<Vec<_>>().join(", ")))
}

/// Returns the enabled features.
fn subsystems(values: &Values) -> Value {
    let subsystems = SUBSYSTEMS.iter().map(|it| {
        let features = it.features.iter().map(|it| (it.name, (it.enabled)(values)));
        json!({
            "name": it.name,
            "about": it.about,
            "features": features.collect::<BTreeMap<_, _>>(),
        })
    });
    subsystems.collect()
}

fn held(handle: &ManagerHandle) -> Value {
    let entries = handle.held_reasons().snapshot().into_iter();
    let lines = entries.flat_map(|entry| {
        let line = move |Held { about, reason, message, until }: Held| {
            json!({
                "controller": entry.controller,
                "kind": about.resource.kind,
                "resource": about.resource.to_string(),
                "namespace": about.key.namespace(),
                "name": about.key.name(),
                "reason": reason,
                "message": message,
                "until": until.map(|it| it.to_string()),
            })
        };
        entry.held.into_iter().map(line)
    });
    lines.take(MAX_HELD_REASONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::keys::KEYS;

    #[test]
    fn status_before_the_start_gives_the_reason() {
        let (layer, _) = document::read("devices: {enabled: true}", "f");
        let values = Values::from_layers(KEYS.as_slice(), [&layer]);
        let configuration = ConfigurationStatus {
            source: "f".to_owned(),
            faults: vec!["f:1:1: wrong".to_owned()],
            restart_to_apply: vec![json!({"key": "k"})],
            values: Some(values),
            scope: SettingsScope::Everything,
        };
        let now = Timestamp::UNIX_EPOCH;
        let page = StatusPage {
            started: now,
            now,
            ready: Err("the start is not complete".to_owned()),
            handle: None,
            configuration: &configuration,
        };
        let page = page.to_json();
        assert_eq!(
            (&page["ready"], &page["why"]),
            (&json!(false), &json!("the start is not complete"))
        );
        assert_eq!(page["configuration"]["values"]["devices"]["enabled"], true);
        assert_eq!(page["configuration"]["restartToApply"][0]["key"], "k");
        assert_eq!(page["configuration"]["faults"][0], "f:1:1: wrong");
        let on = |name: &str, feature: &str| {
            let all = page["subsystems"].as_array().unwrap();
            let found = all.iter().find(|it| it["name"] == name).unwrap();
            found["features"][feature].clone()
        };
        assert_eq!((on("devices", "devices"), on("queue", "quota")), (json!(true), json!(false)));
        assert!(page["held"].is_null(), "nothing is known of controllers that do not run");
        assert_eq!(page["configuration"]["values"]["clientConnection"]["burst"], 100);
        let values = configuration.values.unwrap();
        let own = SettingsScope::Subsystems.tree(&values);
        assert!(own["clientConnection"].is_null() && own["mcadEnabled"] == true, "{own}");
    }
}
