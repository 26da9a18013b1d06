//! Writes the status of LauncherConfigs and LauncherPopulationPolicies: what is wrong with them.
//!
//! A key is one of both: its namespace, and its kind and name.

use std::collections::BTreeSet;

use gantry_api::models::ObservedStatus;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Meta, Plan, Resource, Subresource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::json;

use crate::launcher_template::launcher_template;
use crate::settings::LiveSettings;
use crate::view::{LauncherConfig, LauncherPopulationPolicy};

/// Writes what is wrong with LauncherConfigs and LauncherPopulationPolicies.
#[derive(Clone, Debug)]
pub struct ObjectStatusController {
    settings: LiveSettings,
}

impl ObjectStatusController {
    /// The controller's name.
    pub const NAME: &'static str = "launcher-status";

    /// Reports with these settings.
    #[must_use]
    pub fn new(settings: impl Into<LiveSettings>) -> Self {
        Self { settings: settings.into() }
    }

    /// What is wrong with a template.
    fn template_problem(&self, config: &LauncherConfig) -> Option<String> {
        launcher_template(config, &self.settings.get().notifier_command).err()
    }

    /// What is wrong with a policy.
    fn policy_problems(&self, world: &World, policy: &LauncherPopulationPolicy) -> Vec<String> {
        let Some(spec) = &policy.spec else { return Vec::new() };
        let selector = spec.selector_problem();
        let configs = world.store::<LauncherConfig>();
        let counts = spec.count_for_launcher.iter().filter_map(|it| {
            let name = &it.launcher_config_name;
            match configs.get(&policy.metadata.key().in_same_namespace(name)) {
                None => Some(format!("LauncherConfig {name} does not exist")),
                Some(config) => self
                    .template_problem(&config)
                    .map(|it| format!("LauncherConfig {name} is malformed: {it}")),
            }
        });
        selector.into_iter().chain(counts).collect()
    }
}

/// The key of an object.
fn key_of(resource: &Resource, object: &Key) -> Key {
    Key::new(object.namespace(), &format!("{}/{}", resource.plural, object.name()))
}

impl Controller for ObjectStatusController {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<LauncherConfig>(), Kind::of::<LauncherPopulationPolicy>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        if change.is::<LauncherPopulationPolicy>() {
            keys.insert(key_of(&LauncherPopulationPolicy::RESOURCE, &change.key));
        }
        if change.is::<LauncherConfig>() {
            keys.insert(key_of(&LauncherConfig::RESOURCE, &change.key));
            let policies = world.store::<LauncherPopulationPolicy>();
            for policy in policies.in_namespace(change.key.namespace()) {
                let counts = policy.spec.iter().flat_map(|it| &it.count_for_launcher);
                if counts.into_iter().any(|it| it.launcher_config_name == change.key.name()) {
                    let key = policy.metadata.key();
                    keys.insert(key_of(&LauncherPopulationPolicy::RESOURCE, &key));
                }
            }
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some((plural, name)) = key.name().split_once('/') else { return plan };
        let object = key.in_same_namespace(name);
        if plural == LauncherConfig::RESOURCE.plural {
            if let Some(config) = world.store::<LauncherConfig>().get(&object) {
                let refused = refused_template(&config).map(str::to_owned);
                let errors = self.template_problem(&config).or(refused).into_iter().collect();
                let (meta, status) = (&config.metadata, &config.status);
                plan.steps.extend(report(LauncherConfig::RESOURCE, meta, status, errors));
            }
        } else if let Some(policy) = world.store::<LauncherPopulationPolicy>().get(&object) {
            let errors = self.policy_problems(world, &policy);
            let (meta, status) = (&policy.metadata, &policy.status);
            plan.steps.extend(report(LauncherPopulationPolicy::RESOURCE, meta, status, errors));
        }
        plan
    }
}

/// What the message begins with that the server refuses the pods of a template.
pub(crate) const REFUSED_TEMPLATE: &str = "spec.podTemplate: the server refuses its launchers";

/// The message that the server refuses the launchers of a LauncherConfig as it is now. The
/// population controller writes it when that happens; it stays until the LauncherConfig is changed.
pub(crate) fn refused_template(config: &LauncherConfig) -> Option<&str> {
    let is_current = config.status.observed_generation == Some(config.metadata.generation);
    let mut errors = config.status.errors.iter().filter(|_| is_current);
    errors.find(|it| it.starts_with(REFUSED_TEMPLATE)).map(String::as_str)
}

/// Writes a status; `None` if it says so, or the object is being deleted.
pub(crate) fn report(
    resource: Resource,
    meta: &Meta,
    status: &ObservedStatus,
    errors: Vec<String>,
) -> Option<gantry_reconcile::Step> {
    let wanted = ObservedStatus { observed_generation: Some(meta.generation), errors };
    if meta.is_terminating() || *status == wanted {
        return None;
    }
    // The list is written also when it is empty, so that older errors go.
    let body = json!({
        "observedGeneration": wanted.observed_generation, "errors": wanted.errors,
    });
    Some(gantry_reconcile::Step::new(Write::Merge {
        resource,
        key: meta.key(),
        subresource: Subresource::Status,
        fence: meta.fence(),
        body: json!({ "status": body }),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn observe(world: &World, resource: &Resource, object: &Value) {
        let store = world.single_store_for(resource).unwrap();
        store.observe(&object.to_string()).unwrap().unwrap();
    }

    fn config(name: &str, container: &str) -> Value {
        json!({
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
                         "generation": 3},
            "spec": {"maxInstances": 1, "podTemplate": {"spec": {"containers": [
                {"name": container, "image": "l"}]}}},
        })
    }

    fn policy(operator: &str, names: &[&str]) -> Value {
        let counts: Vec<Value> =
            names.iter().map(|it| json!({"launcherConfigName": it, "launcherCount": 1})).collect();
        json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "p", "resourceVersion": "1",
                         "generation": 2},
            "spec": {
                "enhancedNodeSelector": {"labelSelector": {"matchExpressions": [
                    {"key": "k", "operator": operator}]}},
                "countForLauncher": counts,
            },
        })
    }

    fn written(world: &World, key: &str) -> Option<Value> {
        let controller = ObjectStatusController::new(LiveSettings::default());
        let plan = controller.plan(world, &Key::new("n", key), Timestamp::UNIX_EPOCH);
        plan.steps.into_iter().next().map(|step| match step.write {
            Write::Merge { body, subresource: Subresource::Status, .. } => body["status"].clone(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn g_27_what_is_wrong_with_configs_and_policies_is_in_their_status() {
        let controller = ObjectStatusController::new(LiveSettings::default());
        let world = World::new(controller.kinds());
        observe(&world, &LauncherConfig::RESOURCE, &config("good", "inference-server"));
        observe(&world, &LauncherConfig::RESOURCE, &config("bad", "main"));
        observe(
            &world,
            &LauncherPopulationPolicy::RESOURCE,
            &policy("Near", &["good", "bad", "none"]),
        );
        let good = written(&world, "launcherconfigs/good");
        assert_eq!(good, Some(json!({"observedGeneration": 3, "errors": []})));
        let bad = written(&world, "launcherconfigs/bad").unwrap();
        assert!(bad["errors"][0].as_str().unwrap().contains("inference-server"), "{bad}");
        let policy = written(&world, "launcherpopulationpolicies/p").unwrap();
        let errors: Vec<&str> =
            policy["errors"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].contains("operator: use In, NotIn"), "{errors:?}");
        assert!(errors[1].starts_with("LauncherConfig bad is malformed:"), "{errors:?}");
        assert_eq!(errors[2], "LauncherConfig none does not exist");
        assert_eq!(written(&world, "launcherconfigs/none"), None);
    }

    #[test]
    fn a_status_that_is_right_is_not_written() {
        let controller = ObjectStatusController::new(LiveSettings::default());
        let world = World::new(controller.kinds());
        let mut right = config("good", "inference-server");
        right["status"] = json!({"observedGeneration": 3});
        observe(&world, &LauncherConfig::RESOURCE, &right);
        assert_eq!(written(&world, "launcherconfigs/good"), None);
    }
}
