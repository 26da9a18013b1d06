//! What a process that runs controllers says of itself, as one document: the same fields in `gantry up`
//! (`/gantry/status`) and in `gantry operator` (`/status`).

use std::collections::BTreeMap;

use gantry_controller::Handle;
use gantry_reconcile::Held;
use gantry_subsystem::settings::Values;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::subsystems::SUBSYSTEMS;
use crate::version::VERSION;

/// The most held reasons that one page shows: a person does not read more, and a program has the count.
const MOST_HELD: usize = 1000;

/// What a page is made from.
#[derive(Debug)]
pub(crate) struct StatusPage<'a> {
    /// When the process started.
    pub(crate) started: Timestamp,
    /// What time it is.
    pub(crate) now: Timestamp,
    /// Why it is not ready, if it is not.
    pub(crate) ready: Result<(), String>,
    /// The controllers, once they run.
    pub(crate) handle: Option<&'a Handle>,
    /// How the configuration fares.
    pub(crate) configuration: &'a ConfigurationStatus,
}

/// How the configuration fares.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigurationStatus {
    /// What the text in force is called.
    pub(crate) source: String,
    /// Why the text there is now is not in force.
    pub(crate) faults: Vec<String>,
    /// Changes that act after a restart: `key`, `inForce` and `wanted`.
    pub(crate) restart_to_apply: Vec<Value>,
    /// The values in force; absent until they are known.
    pub(crate) values: Option<Values>,
    /// Which of them are in force: `gantry up` has flags in place of the keys of the process.
    pub(crate) scope: SettingsScope,
}

/// Which sections of the configuration a process obeys.
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
    /// The document.
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
            let names = handle.waiting();
            let waiting: BTreeMap<_, _> = names.iter().filter(|(_, keys)| **keys > 0).collect();
            let missing = handle.missing();
            let missing = missing.iter();
            let missing = missing.map(|it| json!({"kind": it.resource.to_string(), "why": it.why}));
            let troubles = handle.troubles().into_iter().map(|(kind, why)| (kind.to_string(), why));
            page["leading"] = handle.permit().check().is_ok().into();
            page["controllers"] = names.len().into();
            page["waiting"] = json!(waiting);
            page["unfilled"] = missing.collect();
            page["troubles"] = json!(troubles.collect::<BTreeMap<_, _>>());
            page["heldCount"] = handle.ledger().count().into();
            page["held"] = held(handle);
        }
        page
    }
}

/// Whether every kind that controllers look at was listed; if not, which were not and why.
pub(crate) fn caches_filled(handle: &Handle) -> Result<(), String> {
    let missing = handle.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.iter().map(|it| match &it.why {
        Some(why) => format!("{} ({why})", it.resource),
        None => format!("{} (being listed)", it.resource),
    });
    Err(format!("not seen yet: {}", missing.collect::<Vec<_>>().join(", ")))
}

/// What is switched on.
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

fn held(handle: &Handle) -> Value {
    let entries = handle.ledger().snapshot().into_iter();
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
    lines.take(MOST_HELD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::keys::KEYS;

    #[test]
    fn a_process_that_does_not_run_yet_says_why_and_what_will_run() {
        let (layer, _) = document::read("devices: {enabled: true}", "f");
        let values = Values::stack(KEYS.as_slice(), [&layer]);
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
            ready: Err("the start is not done".to_owned()),
            handle: None,
            configuration: &configuration,
        };
        let page = page.to_json();
        assert_eq!(
            (&page["ready"], &page["why"]),
            (&json!(false), &json!("the start is not done"))
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
