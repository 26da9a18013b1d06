//! Driver containers that do not stay up.

use gantry_harness::{Scenario, Server};
use gantry_reconcile::{Key, View as _};
use serde_json::{Value, json};

use super::cluster::{EL8, NAMESPACE, Simulation, TestControllers, module, node, stored, text};
use crate::driver_failure::CRASH_LOOPING;
use crate::settings::Settings;
use crate::view::ModulePod;

const REJECTED: &str = "modprobe: ERROR: could not insert 'hello': Key was rejected by service";

/// Sets what the kubelet reports about the driver container.
fn report(server: &mut Server, ready: &str, status: &Value) {
    let is_driver =
        |it: &&Value| text(it, "/metadata/labels/ooto.sigs.k8s.io~1role") == "driver-container";
    let pods = server.list(&ModulePod::RESOURCE);
    let name = text(pods.into_iter().find(is_driver).unwrap(), "/metadata/name").to_owned();
    server.edit(&ModulePod::RESOURCE, &Key::new(NAMESPACE, &name), |pod| {
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
        pod["status"]["containerStatuses"] = json!([status]);
    });
}

#[test]
fn a_driver_that_does_not_stay_up_is_reported_until_it_does() {
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    let objects = vec![node("a", EL8), stored(module("hello"))];
    let scenario: Scenario<'_> = controllers.scenario(&all, objects);
    let mut it = Simulation::new(&scenario);
    it.run.take_events();
    let image = format!("quay.io/vendor/hello:{EL8}");
    let fails = json!({
        "name": "driver-container", "image": image, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "message": REJECTED}},
    });
    it.act(|server| report(server, "False", &fails));
    let events = it.run.take_events();
    let event = events.iter().find(|it| it.reason == CRASH_LOOPING).unwrap();
    for part in ["node a,", EL8, image.as_str(), REJECTED, "sign the module and enroll"] {
        assert!(event.message.contains(part), "{part}: {}", event.message);
    }
    assert_eq!(event.about.key, Key::new(NAMESPACE, "hello"));
    assert!(it.holds(CRASH_LOOPING), "{:?}", it.held());
    let runs = json!({"name": "driver-container", "image": image, "state": {"running": {}}});
    it.act(|server| report(server, "True", &runs));
    assert!(!it.holds(CRASH_LOOPING), "{:?}", it.held());
}
