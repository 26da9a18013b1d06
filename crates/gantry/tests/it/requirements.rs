//! Requirements that are about the whole: its build, and what clients of the original rely on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn op_12_all_parts_have_one_version() {
    let mut parts = 0;
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let manifest = folder.unwrap().path().join("Cargo.toml");
        let Ok(text) = fs::read_to_string(&manifest) else { continue };
        assert!(text.contains("\nversion.workspace = true\n"), "{}", manifest.display());
        parts += 1;
    }
    assert!(parts > 20, "only {parts} parts found");
}

#[test]
fn op_16_there_is_one_client_and_one_set_of_types() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for name in ["kube", "kube-client", "kube-core", "k8s-openapi"] {
        let found = lock.matches(&format!("\nname = \"{name}\"\n")).count();
        assert_eq!(found, 1, "{name}");
    }
}

/// What client libraries of the original read and write is where it was, under the same names.
#[test]
fn op_20_clients_find_what_they_know() {
    let kind = gantry_api::object::find("workload.codeflare.dev/v1beta1", "AppWrapper").unwrap();
    let crd = kind.crd();
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"]["status"], serde_json::json!({}));
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let has = |place: &str, names: &[&str]| {
        let fields = schema.pointer(place).and_then(Value::as_object);
        let fields = fields.unwrap_or_else(|| panic!("there is no {place}"));
        for name in names {
            assert!(fields.contains_key(*name), "{name} in {place}");
        }
    };
    let status = [
        "state",
        "queuejobstate",
        "canrun",
        "isdispatched",
        "pending",
        "running",
        "Succeeded",
        "failed",
        "template",
        "systempriority",
        "controllerfirsttimestamp",
        "controllerfirstdispatchtimestamp",
        "conditions",
        "pendingpodconditions",
        "totalcpu",
        "totalmemory",
        "totalgpu",
        "requeueingTimeInSeconds",
        "numberOfRequeueings",
        "message",
        "sender",
        "filterignore",
        "local",
    ];
    has("/status/properties", &status);
    let condition =
        ["type", "status", "reason", "message", "lastUpdateMicroTime", "lastTransitionMicroTime"];
    has("/status/properties/conditions/items/properties", &condition);
    has(
        "/spec/properties",
        &["priority", "priorityslope", "service", "selector", "resources", "schedulingSpec"],
    );
    let item = [
        "replicas",
        "minavailable",
        "allocated",
        "priority",
        "priorityslope",
        "custompodresources",
        "completionstatus",
        "generictemplate",
    ];
    has("/spec/properties/resources/properties/GenericItems/items/properties", &item);
    let scheduling = ["nodeSelector", "minAvailable", "requeuing", "dispatchDuration"];
    has("/spec/properties/schedulingSpec/properties", &scheduling);
    let labels = [gantry_queue::dispatch::LABEL, gantry_queue::dispatch::ITEM_LABEL];
    assert_eq!(labels, ["appwrapper.mcad.ibm.com", "resourceName"]);
}

#[test]
fn rb_4_the_first_line_of_the_log_says_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let file = folder.path().join("gantry.yaml");
    fs::write(&file, "").unwrap();
    let flags = [
        "operator",
        "--kubeconfig",
        absent.to_str().unwrap(),
        "--config-file",
        file.to_str().unwrap(),
    ];
    let run = super::gantry_with(&flags, &[("NAMESPACE", "x")], "");
    let first = run.err.lines().next().unwrap_or_default();
    let facts: Value =
        serde_json::from_str(&super::gantry(&["version", "-o", "json"]).out).unwrap();
    let version = facts["version"].as_str().unwrap();
    for (key, value) in [("version", version), ("date", facts["commitDate"].as_str().unwrap())] {
        assert!(first.contains(&format!("{key}=\"{value}\"")), "{key} in {first}");
    }
    assert!(first.contains(" commit=\""), "{first}");
    for part in ["queue", "scaling"] {
        assert!(first.contains(&format!("{part} {version}")), "{part} in {first}");
    }
}
