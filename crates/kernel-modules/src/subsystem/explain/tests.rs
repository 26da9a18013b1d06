//! What `gantry explain module/NAME` says.

use gantry_reconcile::{Key, World};
use gantry_subsystem::settings::{Layer, Origin};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::configuration::KEYS;
use super::*;
use crate::labels::{KERNEL_ANNOTATION, MODULE_LABEL, ROLE_LABEL};
use crate::test_support::{driver_spec, key, with_kernel};

const KERNEL: &str = "6.8.0-50-generic";
const LONGER: &str = "6.8.0-50-generic-64k";

fn observe(world: &World, resource: &gantry_reconcile::Resource, mut object: Value) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["uid"] = json!(format!("uid-{}", name.as_str().unwrap()));
    object["metadata"]["resourceVersion"] = json!("1");
    world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap().unwrap();
}

/// A world with a Module that builds and signs, and two nodes of each kernel.
fn world(kernels: &[&str]) -> World {
    let world = World::new((MODULE_PAGE.kinds)());
    let spec = json!({
        "selector": {},
        "driverContainer": {"container": {
            "containerImage": "quay.io/v/hello:${KERNEL_VERSION}",
            "kernelMappings": [{"literal": "5.0.0"}, {"regexp": "^6\\."}],
            "build": {"dockerfile": "FROM a"},
            "sign": {"keySecret": "k", "certSecret": "c", "filesToSign": ["/a.ko"]},
        }},
    });
    let module = json!({"metadata": {"name": "hello", "namespace": "drivers"}, "spec": spec});
    observe(&world, &Module::RESOURCE, module);
    for (at, kernel) in kernels.iter().enumerate() {
        for name in ["a", "b"] {
            let node = json!({"metadata": {"name": format!("{name}{at}")}, "status": {
                "nodeInfo": {"kernelVersion": kernel, "architecture": "amd64"}}});
            observe(&world, &Node::RESOURCE, node);
        }
    }
    world
}

fn add_job(world: &World, job_type: JobType, image: &str, status: &Value) -> String {
    let name = job_name(job_type, image);
    let metadata = json!({"name": name, "namespace": "drivers"});
    observe(world, &Job::RESOURCE, json!({"metadata": metadata, "status": status}));
    name
}

fn report(reason: &str, message: &str) -> Report {
    Report { reason: reason.to_owned(), message: message.to_owned() }
}

fn explained(world: &World, reports: &[Report]) -> Explanation {
    let mut on = Layer::default();
    on.set("modules.enabled", true.into(), Origin::Default);
    let values = Values::from_layers(KEYS, [&on]);
    let (key, now) = (key(), Timestamp::UNIX_EPOCH);
    explain(&ExplainRequest { key: &key, world, unread: &[], reports, values: &values, now })
        .unwrap()
}

#[test]
fn a_pending_stage_shows_its_job_and_what_is_missing() {
    let world = world(&[KERNEL]);
    let unsigned = format!("quay.io/v/hello:{KERNEL}_drivers_hello_unsigned");
    let image = format!("quay.io/v/hello:{KERNEL}");
    let job = add_job(&world, JobType::Build, &unsigned, &json!({}));
    let message = format!("kernel {KERNEL}: Job {job} runs");
    let said = explained(&world, &[report("Building", &message)]);
    let expected = [
        format!("kernel {KERNEL}, 2 nodes: kernelMappings[1], regexp ^6\\."),
        format!("  image {image}"),
        format!("  build of {unsigned}: Job {job} runs"),
        "  sign: no Job".to_owned(),
        format!("  Building: Job {job} runs"),
    ];
    assert_eq!(said.lines, expected);
    let fact = &said.facts["kernels"][0];
    assert_eq!(fact["mapping"], json!({"index": 1, "regexp": "^6\\."}));
    assert_eq!(
        (&fact["kernel"], &fact["nodes"], &fact["image"]),
        (&json!(KERNEL), &json!(2), &json!(image))
    );
    let stages = json!([
        {"stage": "build", "image": unsigned, "job": job, "state": "runs"},
        {"stage": "sign", "image": image, "job": null, "state": "no Job"},
    ]);
    assert_eq!(fact["stages"], stages);
    let missing = json!([{"reason": "Building", "message": format!("Job {job} runs")}]);
    assert_eq!(fact["missing"], missing);
    assert_eq!(fact["daemonSet"], Value::Null);
}

#[test]
fn a_failed_stage_says_why_and_where_its_log_is() {
    let world = world(&[KERNEL]);
    let unsigned = format!("quay.io/v/hello:{KERNEL}_drivers_hello_unsigned");
    let failed = json!({"conditions": [
        {"type": "Failed", "status": "True", "reason": "R", "message": "out of tries"}]});
    let job = add_job(&world, JobType::Build, &unsigned, &failed);
    // On a cluster that shows no held reasons, the Job alone tells.
    let said = explained(&world, &[]);
    let line = format!("  build of {unsigned}: Job {job} failed");
    assert_eq!(said.lines[2], line);
    let next = said.lines.last().unwrap();
    assert!(next.contains(&format!("BuildFailed: Job {job} failed: out of tries")), "{next}");
    assert!(next.contains(&format!("`kubectl logs -n drivers job/{job}`")), "{next}");
    let missing = said.facts["kernels"][0]["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    // What is held says the same, and is shown instead.
    let held = report("BuildFailed", &format!("kernel {KERNEL}: as held"));
    let said = explained(&world, &[held]);
    assert_eq!(said.lines.last().unwrap(), "  BuildFailed: as held");
}

#[test]
fn reports_are_shown_with_their_kernel_only() {
    let world = world(&[KERNEL, LONGER, "5.10.0", "test"]);
    let reports = [
        report("ImageCheckFailed", &format!("kernel {LONGER}: refused")),
        report("ImageCheckFailed", &format!("kernel {LONGER}: refused before")),
        report("SecretNotFound", &format!("kernel {KERNEL}: create it")),
        report(
            "DriverContainerCrashLooping",
            &format!("on node a0, kernel {KERNEL}, image x fails"),
        ),
        report("PodSecurityTooStrict", "namespace drivers admits"),
    ];
    let said = explained(&world, &reports);
    let reasons = |kernel: &str| -> Vec<String> {
        let all = said.facts["kernels"].as_array().unwrap();
        let fact = all.iter().find(|it| it["kernel"] == kernel).unwrap();
        let missing = fact["missing"].as_array().unwrap();
        missing.iter().map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(reasons(KERNEL), ["SecretNotFound", "DriverContainerCrashLooping"]);
    assert_eq!(reasons(LONGER), ["ImageCheckFailed"], "of two the first");
    assert_eq!(reasons("5.10.0"), ["NoMapping"]);
    assert_eq!(reasons("test"), ["InvalidKernelVersion"]);
    assert!(said.lines.contains(&"  ImageCheckFailed: refused".to_owned()), "{:?}", said.lines);
    let next = said.lines.iter().find(|it| it.contains("NoMapping")).unwrap();
    assert!(next.contains("add one to kernelMappings"), "{next}");
}

#[test]
fn a_daemon_set_shows_its_pods_and_the_image_that_runs_until_the_new_one_is_there() {
    let world = world(&[KERNEL]);
    let module = world.store::<Module>().get(&key()).unwrap();
    NodeGrouper::group_all(&world);
    let spec = module.spec.as_ref().unwrap();
    let kernels = with_kernel(spec, KERNEL);
    let KernelOutcome::Planned { label, plan } = &kernels.kernels[KERNEL] else { panic!() };
    let driver = spec.driver_container.as_ref().unwrap();
    let meta = &module.metadata;
    let set = driver_daemon_set(&kernels, meta, driver, (label, plan), &Settings::default());
    let image = plan.final_image().to_owned();
    let object = |image: &str| {
        json!({
            "metadata": {"name": set.name, "namespace": "drivers",
                "annotations": {KERNEL_ANNOTATION: KERNEL}},
            "spec": {"template": {"spec": {"containers": [{"name": "driver-container", "image": image}]}}},
            "status": {"desiredNumberScheduled": 2, "numberReady": 1},
        })
    };
    observe(&world, &DaemonSet::RESOURCE, object(&image));
    let said = explained(&world, &[]);
    assert!(said.lines.contains(&"  sign: done".to_owned()), "{:?}", said.lines);
    let line = format!("  DaemonSet {}: 1 of 2 pods ready", set.name);
    assert!(said.lines.contains(&line), "{:?}", said.lines);
    assert_eq!(said.facts["kernels"][0]["missing"], json!([]));
    let mut old = object("quay.io/v/hello:old");
    old["metadata"]["resourceVersion"] = json!("2");
    world.store::<DaemonSet>().set(serde_json::from_value(old).unwrap());
    let said = explained(&world, &[]);
    let line = format!("{line}; runs quay.io/v/hello:old until then");
    assert!(said.lines.contains(&line), "{:?}", said.lines);
    assert!(said.lines.contains(&"  sign: no Job".to_owned()), "{:?}", said.lines);
}

#[test]
fn a_device_plugin_alone_has_no_kernels() {
    let world = World::new((MODULE_PAGE.kinds)());
    let metadata = json!({"name": "hello", "namespace": "drivers"});
    let spec = json!({"selector": {}, "devicePlugin": {"container": {"image": "a:1"}}});
    observe(&world, &Module::RESOURCE, json!({"metadata": metadata, "spec": spec}));
    let node =
        json!({"metadata": {"name": "a"}, "status": {"nodeInfo": {"kernelVersion": KERNEL}}});
    observe(&world, &Node::RESOURCE, node);
    let owner = json!([{"apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
        "name": "hello", "uid": "uid-hello", "controller": true}]);
    let set = json!({"metadata": {"name": "p", "namespace": "drivers", "ownerReferences": owner,
            "labels": {ROLE_LABEL: "device-plugin", MODULE_LABEL: "hello"}},
        "status": {"desiredNumberScheduled": 1, "numberReady": 1}});
    observe(&world, &DaemonSet::RESOURCE, set);
    let said = explained(&world, &[]);
    assert_eq!(said.lines, ["device plugin: DaemonSet p: 1 of 1 pods ready"]);
    assert_eq!(said.facts["kernels"], json!([]));
    assert_eq!(said.facts["devicePlugin"]["ready"], 1);
}

#[test]
fn an_invalid_module_and_one_that_is_deleted_say_so() {
    let world = World::new((MODULE_PAGE.kinds)());
    let bad = serde_json::to_value(driver_spec(json!({}), json!({"regexp": "("}))).unwrap();
    let metadata = json!({"name": "hello", "namespace": "drivers"});
    observe(&world, &Module::RESOURCE, json!({"metadata": metadata, "spec": bad}));
    let said = explained(&world, &[]);
    assert!(said.lines[0].contains("invalid regexp"), "{:?}", said.lines);
    assert!(said.lines.last().unwrap().contains("correct the Module"), "{:?}", said.lines);
    assert!(said.facts["problems"].as_array().is_some_and(|it| !it.is_empty()));
    let off = Values::from_layers(KEYS, [] as [&Layer; 0]);
    let (key, now) = (Key::new("drivers", "hello"), Timestamp::UNIX_EPOCH);
    let request =
        ExplainRequest { key: &key, world: &world, unread: &[], reports: &[], values: &off, now };
    let said = explain(&request).unwrap();
    assert!(said.lines[0].contains("modules.enabled is false"), "{:?}", said.lines);
}
