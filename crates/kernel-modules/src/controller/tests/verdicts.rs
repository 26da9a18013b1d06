//! What is wrong with Modules, where no webhook refuses them.

use gantry_harness::Scenario;
use gantry_reconcile::Resource;
use serde_json::{Value, json};

use super::cluster::{
    EL8, Simulation, TestControllers, container, daemon_sets, edit_module, module, node,
    node_labels, stored,
};
use crate::admission::{ReviewKind, answer_review};
use crate::settings::Settings;

const DRIVER: &str = "driver-container";
const PLUGIN: &str = "device-plugin";

fn with(
    settings: Settings,
    objects: Vec<(Resource, Value)>,
    test: impl FnOnce(&mut Simulation<'_>),
) {
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let node = std::iter::once(node("a", EL8));
    let scenario: Scenario<'_> = controllers.scenario(&all, node.chain(objects).collect());
    test(&mut Simulation::new(&scenario));
}

/// What the webhook says about a Module with a changed spec; nothing if it admits it.
fn refusal(settings: &Settings, change: Change) -> Option<String> {
    let mut object = module("hello");
    object["apiVersion"] = json!("ooto.sigs.k8s.io/v1alpha1");
    object["kind"] = json!("Module");
    change(&mut object["spec"]);
    let review = json!({"request": {"uid": "u", "object": object}});
    let answer = answer_review(ReviewKind::Module, &review, &settings.host_path_allow_list);
    answer["response"]["status"]["message"].as_str().map(str::to_owned)
}

/// A change of a spec.
type Change = fn(&mut Value);

/// Changes that break a rule each, beyond what a schema refuses.
const BAD_CHANGES: [(&str, Change); 12] = [
    ("W-1", |spec| container(spec)["kernelMappings"][0] = json!({"regexp": "("})),
    ("W-2", |spec| container(spec)["kernelMappings"][0]["regexp"] = json!("a")),
    ("W-3", |spec| container(spec)["kernelMappings"][0] = json!({})),
    ("W-4", |spec| container(spec)["containerImage"] = Value::Null),
    ("W-5", |spec| container(spec)["containerImage"] = json!("quay.io/a/b")),
    ("W-6", |spec| container(spec)["containerImage"] = json!("quay.io/a/b:${KERNEL")),
    ("W-8", |spec| container(spec)["build"] = json!({})),
    ("W-10", |spec| container(spec)["sign"] = json!({})),
    ("W-14", |spec| container(spec)["kernelMappings"] = json!([])),
    ("W-16", |spec| {
        let volume = json!({"name": "node-lib-modules", "emptyDir": {}});
        spec["driverContainer"]["volumes"] = json!([volume]);
    }),
    ("W-17", |spec| {
        spec["driverContainer"]["volumes"] =
            json!([{"name": "v", "hostPath": {"path": "/dev/../etc"}}]);
    }),
    ("W-18", |spec| container(spec)["modprobe"] = json!({})),
];

#[test]
fn kms_19_without_the_webhook_its_verdicts_are_events() {
    let settings =
        Settings { host_path_allow_list: vec!["/dev".to_owned()], ..Settings::default() };
    assert_eq!(refusal(&settings, |_| {}), None);
    for (rule, change) in BAD_CHANGES {
        let refusal = refusal(&settings, change).unwrap_or_else(|| panic!("{rule} is admitted"));
        with(settings.clone(), vec![stored(module("hello"))], |it| {
            let before = (
                daemon_sets(it.run.server(), DRIVER),
                daemon_sets(it.run.server(), PLUGIN),
                node_labels(it.run.server(), "a"),
            );
            assert_eq!((before.0.len(), before.1.len()), (1, 1));
            it.run.take_events();
            it.act(|server| edit_module(server, "hello", change));
            let events = it.run.take_events();
            let event = events.iter().find(|it| it.reason == "InvalidSpec");
            let message = event.map(|it| it.message.as_str());
            let expected = format!("{refusal}; nothing is changed until it is mended");
            assert_eq!(message, Some(expected.as_str()), "{rule}");
            assert!(it.holds("InvalidSpec"), "{rule}: {:?}", it.held());
            let after = (
                daemon_sets(it.run.server(), DRIVER),
                daemon_sets(it.run.server(), PLUGIN),
                node_labels(it.run.server(), "a"),
            );
            assert_eq!(after, before, "{rule}: an error unloads nothing");
        });
    }
}

#[test]
fn kms_16_a_device_plugin_alone_runs_on_every_selected_node() {
    let mut plugin = module("hello");
    plugin["spec"]["driverContainer"] = Value::Null;
    with(Settings::default(), vec![stored(plugin)], |it| {
        assert_eq!(it.held(), Vec::<String>::new());
        assert_eq!(daemon_sets(it.run.server(), DRIVER), []);
        let image = "quay.io/vendor/plugin:1".to_owned();
        assert_eq!(daemon_sets(it.run.server(), PLUGIN), [(String::new(), image)]);
        let labels = node_labels(it.run.server(), "a");
        let labels: Vec<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(labels, ["drivers.hello.device-plugin-ready"]);
    });
}

#[test]
fn kms_17_host_paths_that_are_not_allowed_start_nothing() {
    let settings = Settings {
        host_path_allow_list: vec!["/dev".to_owned(), "/sys".to_owned()],
        ..Settings::default()
    };
    for (path, expected) in [("//sys/x", 1), ("/devious", 0), ("/dev/../etc", 0)] {
        let mut module = module("hello");
        module["spec"]["driverContainer"]["volumes"] =
            json!([{"name": "v", "hostPath": {"path": path}}]);
        with(settings.clone(), vec![stored(module)], |it| {
            assert_eq!(daemon_sets(it.run.server(), DRIVER).len(), expected, "{path}");
            assert_eq!(it.holds("InvalidSpec"), expected == 0, "{path}: {:?}", it.held());
        });
    }
}
