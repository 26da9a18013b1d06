//! Writes the status of InferenceServerConfigs: what would keep a requester from being served.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, View as _, World};
use jiff::Timestamp;

use crate::launcher_template::launcher_template;
use crate::object_status::report;
use crate::routing::RoutingMetadata;
use crate::settings::LiveSettings;
use crate::view::{InferenceServerConfig, LauncherConfig};

/// Writes what is wrong with InferenceServerConfigs. A key is one of them.
#[derive(Clone, Debug)]
pub struct ServerConfigStatusController {
    settings: LiveSettings,
}

impl ServerConfigStatusController {
    /// The controller's name.
    pub const NAME: &'static str = "server-config-status";

    /// Reports with these settings.
    #[must_use]
    pub fn new(settings: impl Into<LiveSettings>) -> Self {
        Self { settings: settings.into() }
    }

    /// What is wrong with a config, each with its field.
    fn problems(&self, world: &World, config: &InferenceServerConfig) -> Vec<String> {
        let server = &config.spec.model_server_config;
        let mut problems = Vec::new();
        if !(1..=i32::from(u16::MAX)).contains(&server.port) {
            problems.push(format!(
                "spec.modelServerConfig.port: {} is no port; use one of 1 to 65535",
                server.port
            ));
        }
        let name = &config.spec.launcher_config_name;
        let key = config.metadata.key().in_same_namespace(name);
        let template = match world.store::<LauncherConfig>().get(&key) {
            None => Err(format!("LauncherConfig {name:?} does not exist")),
            Some(launchers) => launcher_template(&launchers, &self.settings.get().notifier_command)
                .map_err(|it| format!("LauncherConfig {name:?} is malformed: {it}")),
        };
        let [labels, annotations] = match template {
            Ok(template) => template.metadata(),
            Err(problem) => {
                problems.push(format!("spec.launcherConfigName: {problem}"));
                Default::default()
            }
        };
        let routing = RoutingMetadata::of(server).problems(&labels, &annotations);
        problems.extend(routing.iter().map(|it| format!("spec.modelServerConfig.{it}")));
        problems
    }
}

impl Controller for ServerConfigStatusController {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<InferenceServerConfig>(), Kind::of::<LauncherConfig>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<InferenceServerConfig>() {
            return vec![change.key.clone()];
        }
        if change.is::<LauncherConfig>() {
            let (namespace, name) = (change.key.namespace(), change.key.name());
            let index = InferenceServerConfig::of_launcher_config(namespace, name);
            let configs = world.store::<InferenceServerConfig>().by_index(&index);
            return configs.iter().map(|it| it.metadata.key()).collect();
        }
        Vec::new()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if let Some(config) = world.store::<InferenceServerConfig>().get(key) {
            let errors = self.problems(world, &config);
            let resource = InferenceServerConfig::RESOURCE;
            plan.steps.extend(report(resource, &config.metadata, &config.status, errors));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Resource, Subresource, Write};
    use serde_json::{Value, json};

    use super::*;

    fn observe(world: &World, resource: &Resource, object: &Value) -> Change {
        let store = world.single_store_for(resource).unwrap();
        store.observe(&object.to_string()).unwrap().unwrap()
    }

    fn launchers(container: &str) -> Value {
        json!({
            "metadata": {"namespace": "n", "name": "lc", "uid": "lc", "resourceVersion": "1"},
            "spec": {"maxInstances": 1, "podTemplate": {
                "metadata": {"labels": {"tier": "gold"}},
                "spec": {"containers": [{"name": container, "image": "l"}]},
            }},
        })
    }

    fn config(server: &Value) -> Value {
        json!({
            "metadata": {"namespace": "n", "name": "a", "uid": "a", "resourceVersion": "1",
                         "generation": 4},
            "spec": {"launcherConfigName": "lc", "modelServerConfig": server},
        })
    }

    fn written(world: &World) -> Option<Value> {
        let controller = ServerConfigStatusController::new(LiveSettings::default());
        let plan = controller.plan(world, &Key::new("n", "a"), Timestamp::UNIX_EPOCH);
        plan.steps.into_iter().next().map(|step| match step.write {
            Write::Merge { body, subresource: Subresource::Status, .. } => body["status"].clone(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn g_27_what_is_wrong_with_an_inference_server_config_is_in_its_status() {
        let controller = ServerConfigStatusController::new(LiveSettings::default());
        let good = json!({"port": 8005, "labels": {"model": "a", "tier": "gold"}});
        let table: [(Value, Option<&str>, &[&str]); 6] = [
            (good.clone(), Some("inference-server"), &[]),
            (
                good.clone(),
                None,
                &["spec.launcherConfigName: LauncherConfig \"lc\" does not exist"],
            ),
            (good, Some("main"), &["LauncherConfig \"lc\" is malformed: "]),
            (
                json!({"port": 0}),
                Some("inference-server"),
                &["spec.modelServerConfig.port: 0 is no port; use one of 1 to 65535"],
            ),
            (
                json!({"port": 1, "labels": {"tier": "silver", "model": "a b"}}),
                Some("inference-server"),
                &[
                    "spec.modelServerConfig.labels[model]: \"a b\"",
                    "spec.modelServerConfig.labels[tier]: the launcher has another value",
                ],
            ),
            (
                json!({"port": 70000, "annotations": {"kubernetes.io/x": "1"}}),
                None,
                &["70000 is no port", "does not exist", "annotations[kubernetes.io/x]: keys with"],
            ),
        ];
        for (server, container, expected) in table {
            let world = World::new(controller.kinds());
            if let Some(container) = container {
                observe(&world, &LauncherConfig::RESOURCE, &launchers(container));
            }
            observe(&world, &InferenceServerConfig::RESOURCE, &config(&server));
            let status = written(&world).unwrap();
            assert_eq!(status["observedGeneration"], 4);
            let errors: Vec<&str> = status["errors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it.as_str().unwrap())
                .collect();
            assert_eq!(errors.len(), expected.len(), "{errors:?}");
            for (error, expected) in errors.iter().zip(expected) {
                assert!(error.contains(expected), "{error}, not {expected}");
            }
        }
    }

    #[test]
    fn g_27_a_change_of_the_launcher_config_is_noticed_and_a_right_status_stays() {
        let controller = ServerConfigStatusController::new(LiveSettings::default());
        let world = World::new(controller.kinds());
        let mut right = config(&json!({"port": 1}));
        right["status"] = json!({"observedGeneration": 4});
        observe(&world, &InferenceServerConfig::RESOURCE, &right);
        assert!(written(&world).is_some(), "the LauncherConfig is missing");
        let change = observe(&world, &LauncherConfig::RESOURCE, &launchers("inference-server"));
        assert_eq!(controller.enqueue(&world, &change), [Key::new("n", "a")]);
        assert_eq!(written(&world), None);
    }
}
