//! Sends the fixtures of `api` to a real server with strict field validation.
//!
//! What our reader accepts, a server must accept as it is written; what our reader rejects by
//! schema, a server must reject. A table lists the differences and their reasons.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ::http::HeaderValue;
use ::http::header::CONTENT_TYPE;
use gantry_api::decode::{self, Options};
use gantry_api::kind::Scope;
use gantry_api::object;
use gantry_testkit::http::{Client, Request};
use serde_json::Value;

use super::definitions::establish;
use super::{http, namespace, print_line, shared};

/// Documents on which our reader and a server differ, and why. A row that no longer holds fails.
const DIFFERENCES: &[(&str, &str)] = &[
    ("devices/claims-by-driver.yaml 1", "only in a file may a driver stand alone"),
    ("devices/claims-refused.yaml 0", "a server does not know that two names mean one thing"),
    ("devices/classes-refused.yaml 1", "a server does not know that two names mean one thing"),
    ("devices/classes.yaml 5", "only in a file may a name have upper case letters"),
    ("devices/classes.yaml 6", "only in a file may a name have upper case letters"),
    ("devices/classes.yaml 7", "only in a file may a name have upper case letters"),
    ("devices/pools-refused.yaml 4", "the pattern of an amount has no lower bound"),
    (
        "models/launcherconfig-fraction.yaml 0",
        "no definition can allow a quantity such as 0.5 without quotes",
    ),
    ("modules/images.yaml 0", "templates and Dockerfiles are read by the webhook, not by a schema"),
    ("modules/signing.yaml 0", "Secrets are asked for only where something is signed"),
    ("modules/updated.yaml 0", "Secrets are asked for only where something is signed"),
    ("queue/appwrapper-refused.yaml 2", "the original's schema has no bounds"),
    ("queue/quota-refused.yaml 0", "the original's schema has no bounds and no keys"),
];

#[tokio::test]
async fn a_server_agrees_with_our_reader() {
    let (cluster, _tails) = shared().await;
    let client = http(cluster.admin());
    establish(&client).await;
    let mut namespaces = BTreeSet::new();
    let (mut wrong, mut agreed) = (Vec::new(), 0);
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        // A file that our reader cannot parse as YAML has no documents to send.
        let Ok(documents) = decode::documents(&text, Options::default()) else { continue };
        for (document, text) in documents.iter().zip(texts(&text)) {
            let name = format!("{} {}", name(&file), document.index);
            let difference = DIFFERENCES.iter().find(|(known, _)| *known == name);
            let value: Value = gantry_yaml::read(text).unwrap().remove(0).to_json();
            let place = value["metadata"]["namespace"].as_str().unwrap_or("manifests");
            if namespaces.insert(place.to_owned()) {
                namespace(&client, place).await;
            }
            let Some(verdict) = ask(&client, &value, place, text).await else { continue };
            let agree = verdict.is_ok() == document.errors.is_empty();
            match (agree, difference) {
                (true, None) => agreed += 1,
                (false, Some(_)) => {}
                (true, Some((_, why))) => wrong.push(format!("{name}: no difference: {why}")),
                (false, None) => wrong.push(format!(
                    "{name}: we said {:?}, the server {verdict:?}",
                    document.errors.iter().map(|error| &error.text).collect::<Vec<_>>()
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    print_line(&format!("{agreed} documents agreed, {} differ for a reason", DIFFERENCES.len()));
    assert!(agreed > 20, "only {agreed} documents were compared");
}

/// The samples of the queue, every shape that manifests of the original have: none is rejected.
#[tokio::test]
async fn e_5_every_sample_of_the_queue_is_accepted() {
    let (cluster, _tails) = shared().await;
    let client = http(cluster.admin());
    establish(&client).await;
    namespace(&client, "samples").await;
    let mut accepted = 0;
    for file in files().iter().filter(|it| name(it).starts_with("queue/sample-")) {
        let text = fs::read_to_string(file).unwrap();
        for text in texts(&text) {
            let text = text.replace("namespace: test", "namespace: samples");
            let value: Value = gantry_yaml::read(&text).unwrap().remove(0).to_json();
            let verdict = ask(&client, &value, "samples", &text).await.unwrap();
            assert_eq!(verdict, Ok(()), "{} {}", name(file), value["metadata"]["name"]);
            accepted += 1;
        }
    }
    assert!(accepted > 10, "only {accepted} samples were found");
}

#[tokio::test]
async fn a_10_a_template_that_does_not_say_what_it_is_is_refused() {
    let (cluster, _tails) = shared().await;
    let client = http(cluster.admin());
    establish(&client).await;
    namespace(&client, "bare").await;
    let text = fs::read_to_string(root().join("queue/appwrapper-bare-template.yaml")).unwrap();
    let text = text.replace("namespace: test", "namespace: bare");
    let value: Value = gantry_yaml::read(&text).unwrap().remove(0).to_json();
    let said = ask(&client, &value, "bare", &text).await.unwrap().unwrap_err();
    for field in ["apiVersion", "kind"] {
        let place =
            format!("spec.resources.GenericItems[0].generictemplate.{field}: Required value");
        assert!(said.contains(&place), "{place}\n{said}");
    }
}

/// Returns the server's answer to a document as it is written, or nothing if the kind is not ours.
async fn ask(
    client: &Client,
    value: &Value,
    namespace: &str,
    text: &str,
) -> Option<Result<(), String>> {
    let kind = object::find(value["apiVersion"].as_str()?, value["kind"].as_str()?)?;
    let place = match kind.scope {
        Scope::Namespaced => format!("namespaces/{namespace}/"),
        Scope::Cluster => String::new(),
    };
    let (group, version, plural) = (kind.group, kind.version, kind.plural);
    let query = "dryRun=All&fieldValidation=Strict";
    let path = format!("/apis/{group}/{version}/{place}{plural}?{query}");
    let yaml = HeaderValue::from_static("application/yaml");
    let request = Request::new(::http::Method::POST, path).header(CONTENT_TYPE, yaml);
    let answer = client.send(request.body(text.to_owned())).await.unwrap();
    if answer.status == 201 {
        return Some(Ok(()));
    }
    let status = answer.json().unwrap();
    Some(Err(status["message"].as_str().unwrap_or_default().to_owned()))
}

/// The documents of a file, as they are written.
fn texts(text: &str) -> Vec<&str> {
    text.split("\n---\n").filter(|text| !text.trim().is_empty()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/manifests")
}

fn name(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
