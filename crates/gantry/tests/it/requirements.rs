//! Requirements that are about the whole: its build, and what clients of the original rely on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::{Dispatch, LiveSettings, Progress};
use gantry_reconcile::{Controller, Key, Kind, StoreId, View as _, World};
use gantry_scaling::{Backend, Limits, Scaling, ShapeInference};
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

/// All controllers of AppWrappers share one store, which one watch fills; each has a name, and with
/// it a work queue, of its own.
#[test]
fn op_5_loops_of_their_own_share_what_they_see() {
    let live = LiveSettings::default();
    let limits = Limits {
        max_nodes: 1,
        provision_timeout: Duration::from_secs(1),
        cooldown: Duration::ZERO,
    };
    let ledger = Key::new("gantry-system", "ledger");
    let scaling = Arc::new(Scaling::new(gantry_scaling::Settings {
        limits,
        backend: Backend::Reuse,
        grant_record: ledger,
    }));
    let all: [Arc<dyn Controller>; 4] = [
        Arc::new(Dispatch::new(live.clone())),
        Arc::new(Progress::new(live.clone())),
        scaling.clone(),
        Arc::new(ShapeInference::new(scaling, live)),
    ];
    let names: BTreeSet<&str> = all.iter().map(|it| it.name()).collect();
    assert_eq!(names.len(), all.len());
    let kinds: Vec<Kind> = all.iter().flat_map(|it| it.kinds()).collect();
    let looks = |it: &&Arc<dyn Controller>| {
        it.kinds().iter().any(|it| *it.store_id() == StoreId::of::<AppWrapper>())
    };
    assert_eq!(all.iter().filter(looks).count(), all.len());
    let world = World::new(kinds);
    assert_eq!(world.stores_for_resource(&AppWrapper::RESOURCE).len(), 1);
}

/// Every requirement of the queue, of scaling and of quota trees is in the name of a test.
#[test]
fn every_requirement_of_the_queue_has_a_test() {
    // This one states a non-goal: nothing follows from it that could be tested.
    const NO_GOAL: &str = "OP-19";
    let mut cited: BTreeSet<(String, u32)> = BTreeSet::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let names = text.split("fn ").skip(1).map(|it| {
                    let end = it.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
                    &it[..end.unwrap_or(it.len())]
                });
                names.for_each(|name| cited.extend(ids(name)));
            }
        }
    }
    let index = fs::read_to_string(root().join("docs/specs/index.txt")).unwrap();
    let mut missing = Vec::new();
    for line in index.lines() {
        let mut words = line.split(' ');
        let (Some(spec), Some(id)) = (words.next(), words.next()) else { continue };
        if !["queue", "scaling", "quota-trees"].contains(&spec) {
            continue;
        }
        let (prefix, number) = id.split_once('-').unwrap();
        let id_of = (prefix.to_lowercase(), number.parse().unwrap());
        if !cited.contains(&id_of) && id != NO_GOAL {
            missing.push(id.to_owned());
        }
    }
    assert_eq!(missing, [] as [String; 0], "write a test that has the id in its name");
}

/// The ids that the name of a test begins with: `a_9_and_a_15_…`, `q_1_q_4_…`, `a_5_to_a_8_…`.
fn ids(name: &str) -> Vec<(String, u32)> {
    let words: Vec<&str> = name.split('_').collect();
    let mut ids: Vec<(String, u32)> = Vec::new();
    let mut at = 0;
    let mut through = false;
    while let [prefix, number, ..] = &words[at..] {
        let is_prefix =
            (1..=4).contains(&prefix.len()) && prefix.chars().all(|it| it.is_ascii_lowercase());
        let number = number.parse::<u32>().ok().filter(|_| is_prefix);
        match number {
            Some(number) => {
                let from = ids.last().filter(|it| through && it.0 == *prefix).map(|it| it.1 + 1);
                ids.extend((from.unwrap_or(number)..=number).map(|it| ((*prefix).to_owned(), it)));
                at += 2;
                through = false;
            }
            None if !ids.is_empty() && ["and", "to"].contains(prefix) => {
                through = *prefix == "to";
                at += 1;
            }
            None => break,
        }
    }
    ids
}

#[test]
fn ids_are_read_from_names() {
    let table = [
        ("a_5_to_a_8_sets", vec![("a", 5), ("a", 6), ("a", 7), ("a", 8)]),
        ("q_1_q_4_and_c_2_higher", vec![("q", 1), ("q", 4), ("c", 2)]),
        ("t_1", vec![("t", 1)]),
        ("as_soon_as_25", vec![]),
        ("b_2_and_others", vec![("b", 2)]),
    ];
    for (name, expected) in table {
        let expected: Vec<(String, u32)> =
            expected.into_iter().map(|(prefix, number)| (prefix.to_owned(), number)).collect();
        assert_eq!(ids(name), expected, "{name}");
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
    let labels =
        [gantry_queue::item_objects::APP_WRAPPER_LABEL, gantry_queue::item_objects::ITEM_LABEL];
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
