//! What is logged about Modules, and from which verbosity.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use gantry_process::clock::FakeClock;
use gantry_process::telemetry::{LogHandle, Settings as LogSettings, subscriber};
use gantry_reconcile::{Resource, View as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::facts::ImageQuery;
use crate::settings::Settings;

/// A writer whose content can be read.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A world that the log follows.
struct Followed {
    world: World,
    log: DecisionLog,
    handle: LogHandle,
    page: LogBuffer,
}

impl Followed {
    fn observe(&self, resource: &Resource, object: &Value) {
        let store = self.world.single_store_for(resource).unwrap();
        let change = store.observe(&object.to_string()).unwrap().unwrap();
        self.log.observe(&self.world, &change);
    }

    /// The lines since the last call, without time and place.
    fn take(&self) -> Vec<String> {
        let page = std::mem::take(&mut *self.page.0.lock().unwrap());
        let page = String::from_utf8(page).unwrap();
        page.lines().map(|it| it.split_once("] ").unwrap().1.to_owned()).collect()
    }
}

/// Runs a test with a log that shows changes of state only.
fn followed(test: impl FnOnce(&Followed)) {
    let log = DecisionLog::new(LiveSettings::new(Settings::default()));
    let page = LogBuffer::default();
    let clock = FakeClock::at(Timestamp::UNIX_EPOCH);
    let settings = LogSettings::default();
    let (subscriber, handle) = subscriber(&settings, clock.clock(), page.clone()).unwrap();
    let followed = Followed { world: World::new(log.kinds()), log, handle, page };
    tracing::subscriber::with_default(subscriber, || test(&followed));
}

fn node(name: &str, revision: u32, kernel: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string(),
            "labels": labels},
        "status": {"nodeInfo": {"kernelVersion": kernel, "architecture": "amd64"}}})
}

fn module() -> Value {
    json!({
        "metadata": {"name": "hello", "namespace": "drivers", "uid": "m", "resourceVersion": "1"},
        "spec": {"selector": {"gpu": "yes"}, "driverContainer": {"container": {
            "containerImage": "quay.io/v/hello:${KERNEL_VERSION}",
            "kernelMappings": [{"regexp": "^6\\."}],
            "build": {
                "dockerfile": "FROM a\nRUN curl -H s3cr3t-of-dockerfile",
                "buildArgs": [{"name": "TOKEN", "value": "s3cr3t-of-argument"}],
                "secrets": [{"name": "b"}],
            },
        }}},
    })
}

#[test]
fn kms_92_verbosity_that_is_raised_shows_decisions_per_node() {
    followed(|it| {
        let gpu = || json!({"gpu": "yes"});
        it.observe(&Module::RESOURCE, &module());
        it.observe(&Node::RESOURCE, &node("a", 1, "6.8.0", &gpu()));
        assert_eq!(it.take(), Vec::<String>::new(), "verbosity 0");
        it.handle.set_verbosity(1).unwrap();
        let prefix = r#"controller="modules" module="drivers/hello""#;
        it.observe(&Node::RESOURCE, &node("b", 2, "6.8.0", &gpu()));
        let line = format!(
            r#""kernel mapping matches the node" {prefix} node="b" kernel="6.8.0" image="quay.io/v/hello:6.8.0" mapping=0 build=true sign=false"#
        );
        assert_eq!(it.take(), [line]);
        it.observe(&Node::RESOURCE, &node("c", 3, "5.10.0", &gpu()));
        let line =
            format!(r#""no kernel mapping matches the node" {prefix} node="c" kernel="5.10.0""#);
        assert_eq!(it.take(), [line]);
        it.observe(&Node::RESOURCE, &node("other", 4, "6.8.0", &json!({})));
        assert_eq!(it.take(), Vec::<String>::new(), "it is not selected");
        it.observe(&Node::RESOURCE, &node("b", 5, "6.8.0", &json!({})));
        let line = format!(r#""node is not selected any more" {prefix} node="b""#);
        assert_eq!(it.take(), [line]);
        it.handle.set_verbosity(0).unwrap();
        it.observe(&Node::RESOURCE, &node("b", 6, "6.8.0", &gpu()));
        assert_eq!(it.take(), Vec::<String>::new(), "verbosity 0 again");
    });
}

#[test]
fn kms_92_labels_pods_jobs_and_images_are_logged_by_their_keys() {
    followed(|it| {
        it.handle.set_verbosity(1).unwrap();
        it.observe(&Module::RESOURCE, &module());
        let ready = "oot.node.kubernetes.io/drivers.hello.ready";
        it.observe(&Node::RESOURCE, &node("a", 1, "6.8.0", &json!({})));
        it.observe(&Node::RESOURCE, &node("a", 2, "6.8.0", &json!({ready: ""})));
        it.observe(&Node::RESOURCE, &node("a", 3, "6.8.0", &json!({})));
        let of_node = r#"controller="module-node-labels" module="drivers/hello" node="a""#;
        let of_label = format!(r#"{of_node} kernel="6.8.0" label="{ready}""#);
        let expected = [
            format!(r#""label was added to the node" {of_label}"#),
            format!(r#""label was removed from the node" {of_label}"#),
        ];
        assert_eq!(it.take(), expected);
        let pod = json!({"metadata": {"name": "p", "namespace": "drivers", "uid": "p",
                "resourceVersion": "4", "labels": {"oot.node.kubernetes.io/module.name": "hello",
                "ooto.sigs.k8s.io/role": "driver-container"}},
            "spec": {"nodeName": "a"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        it.observe(&ModulePod::RESOURCE, &pod);
        assert_eq!(it.take(), [format!(r#""driver container is ready" {of_node} pod="p""#)]);
        let job = json!({"metadata": {"name": "j", "namespace": "drivers", "uid": "j",
                "resourceVersion": "5", "labels": {JOB_TYPE_LABEL: "build"},
                "annotations": {KERNEL_ANNOTATION: "6.8.0", IMAGE_ANNOTATION: "quay.io/v/a:1"},
                "ownerReferences": [{"apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
                    "name": "hello", "uid": "m", "controller": true}]}});
        it.observe(&Job::RESOURCE, &job);
        let line = r#""Job runs" controller="modules" module="drivers/hello" job="j" kernel="6.8.0" image="quay.io/v/a:1""#;
        assert_eq!(it.take(), [line]);
        let query = ImageQuery {
            namespace: "drivers".to_owned(),
            image: "quay.io/v/a:1".to_owned(),
            secrets: vec!["name-of-a-secret".to_owned()],
            ca_config_map: None,
            insecure: false,
            insecure_skip_tls_verify: false,
            architectures: std::collections::BTreeSet::new(),
            is_pushed: true,
        };
        let images = it.world.facts::<ImageState>();
        let change = images.record(query, ImageState::Missing, Timestamp::UNIX_EPOCH);
        it.log.observe_fact(&it.world, &change);
        let line = r#""registry lacks the image" controller="modules" namespace="drivers" image="quay.io/v/a:1""#;
        assert_eq!(it.take(), [line]);
    });
}

#[test]
fn kms_92_secrets_never_appear() {
    followed(|it| {
        it.handle.set_verbosity(gantry_process::telemetry::MOST_VERBOSE).unwrap();
        it.observe(&Node::RESOURCE, &node("a", 1, "6.8.0", &json!({"gpu": "yes"})));
        it.observe(&Module::RESOURCE, &module());
        it.observe(&Node::RESOURCE, &node("a", 2, "6.9.0", &json!({"gpu": "yes"})));
        let lines = it.take();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(!lines.iter().any(|it| it.contains("s3cr3t")), "{lines:?}");
    });
}
