//! The published policies on the embedded server.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::Target;

use serde_json::{Value, json};

async fn server(clock: &Clock) -> (EmbeddedServer, Target) {
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(clock).await.unwrap();
    let target = server.target().clone();
    (server, target)
}

crate::shared_policies::scenarios!(server);

/// The four files and their objects, in the order of their names.
fn published() -> Vec<(String, String, Value)> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let documents = gantry_yaml::read(&text).unwrap();
        assert_eq!(documents.len(), 1, "{} holds one object", file.display());
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, text, documents[0].to_json())
    };
    files.into_iter().map(read).collect()
}

fn folder() -> std::path::PathBuf {
    let config = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config"));
    config.join("validating-admission-policies")
}

/// The file with all four objects is the four files, in the order of their names.
#[test]
fn cs_44_the_collected_policies_are_the_single_ones() {
    let expected: String = published().iter().map(|(_, text, _)| format!("---\n{text}")).collect();
    let found = std::fs::read_to_string(folder().with_extension("yaml")).unwrap();
    assert_eq!(found, expected, "put the four files together again");
}

#[test]
fn cs_30_and_cs_41_names_are_fixed_and_constant() {
    let expected = [
        ("bind-fma-bound-serverreqpod", "ValidatingAdmissionPolicyBinding"),
        ("bind-fma-immutable-fields", "ValidatingAdmissionPolicyBinding"),
        ("fma-bound-serverreqpod", "ValidatingAdmissionPolicy"),
        ("fma-immutable-fields", "ValidatingAdmissionPolicy"),
    ];
    let found = published();
    assert_eq!(found.len(), expected.len());
    for ((file, _, object), (name, kind)) in found.iter().zip(expected) {
        assert_eq!(file, name, "CS-44: the file is named after its object");
        assert_eq!(object["apiVersion"], "admissionregistration.k8s.io/v1");
        assert_eq!(object["kind"], kind);
        // Nothing that depends on a release or a namespace.
        assert_eq!(object["metadata"], json!({ "name": name }));
    }
}

/// What the policies look at: pods and not their subresources, everywhere, in every case.
#[test]
fn cs_30_policies_hold_in_the_whole_cluster_and_bindings_repeat_what_they_match() {
    let found = published();
    let object = |name: &str| &found.iter().find(|(file, ..)| file == name).unwrap().2["spec"];
    let table = [
        ("fma-bound-serverreqpod", json!(["UPDATE"])),
        ("fma-immutable-fields", json!(["CREATE", "UPDATE"])),
    ];
    for (name, operations) in table {
        let matched = json!({ "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": operations,
            "resources": ["pods"],
        }] });
        let policy = object(name);
        assert_eq!(policy["failurePolicy"], "Fail", "{name}");
        assert_eq!(policy["matchConstraints"], matched, "{name}");
        assert_eq!(policy.get("paramKind"), None, "{name}");
        assert_eq!(policy.get("matchConditions"), None, "{name}");
        let binding = json!({
            "policyName": name, "matchResources": matched, "validationActions": ["Deny"],
        });
        assert_eq!(*object(&format!("bind-{name}")), binding);
    }
}
