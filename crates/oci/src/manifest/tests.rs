use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Digest, Family, MediaType};

fn digest(name: &str) -> Digest {
    Digest::sha256(name.as_bytes())
}

fn descriptor(media_type: &str, name: &str) -> Value {
    json!({ "mediaType": media_type, "digest": digest(name).as_str(), "size": 7 })
}

const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

fn manifest() -> Value {
    json!({
        "schemaVersion": 2,
        "config": descriptor(OCI_CONFIG, "config"),
        "layers": [descriptor(OCI_LAYER, "layer")],
    })
}

fn index() -> Value {
    json!({ "schemaVersion": 2, "manifests": [descriptor(OCI_MANIFEST, "one")] })
}

fn with(mut value: Value, key: &str, field: impl Into<Value>) -> Value {
    value[key] = field.into();
    value
}

fn parse(value: &Value, declared: Option<&str>) -> Result<Document, DocumentProblem> {
    let declared = declared.map(MediaType::from);
    Document::parse(value.to_string().as_bytes(), declared.as_ref()).map_err(|it| it.problem)
}

#[test]
fn the_media_type_is_read_or_inferred() {
    let table = [
        ("its own", with(manifest(), "mediaType", OCI_MANIFEST), None, OCI_MANIFEST),
        ("Docker's", with(manifest(), "mediaType", DOCKER_MANIFEST), None, DOCKER_MANIFEST),
        ("declared", manifest(), Some(DOCKER_MANIFEST), DOCKER_MANIFEST),
        ("layers mean a manifest", manifest(), None, OCI_MANIFEST),
        ("manifests mean an index", index(), None, OCI_INDEX),
        ("a list", with(index(), "mediaType", DOCKER_LIST), None, DOCKER_LIST),
        ("a general declaration says nothing", index(), Some("application/json"), OCI_INDEX),
        (
            "an empty index of a Go program",
            json!({ "schemaVersion": 2, "manifests": null }),
            Some(OCI_INDEX),
            OCI_INDEX,
        ),
    ];
    for (why, value, declared, expected) in table {
        let document = parse(&value, declared).expect(why);
        assert_eq!(document.media_type().as_str(), expected, "{why}");
    }
}

#[test]
fn documents_that_are_not_supported_are_refused_with_the_reason() {
    let text = |value: &Value, declared| parse(value, declared).unwrap_err().to_string();
    let schema1 = json!({ "schemaVersion": 1, "name": "a", "tag": "b", "fsLayers": [] });
    let both = with(manifest(), "manifests", json!([]));
    let swapped = with(manifest(), "mediaType", OCI_INDEX);
    let artifact = with(manifest(), "mediaType", "application/vnd.example");
    let size = with(
        manifest(),
        "layers",
        json!([{ "mediaType": "a", "digest": digest("a").as_str(),
        "size": -1 }]),
    );
    let algorithm = with(manifest(), "config", json!({ "mediaType": "a", "digest": "md5:1" }));
    let many = with(index(), "manifests", vec![descriptor(OCI_MANIFEST, "a"); 1025]);
    let table = [
        (text(&schema1, None), "Docker schema 1 manifests are not supported"),
        (
            text(&manifest(), Some("application/vnd.docker.distribution.manifest.v1+prettyjws")),
            "Docker schema 1",
        ),
        (text(&with(manifest(), "schemaVersion", 3), None), "schemaVersion must be 2"),
        (text(&json!({}), None), "schemaVersion must be 2"),
        (text(&json!({ "schemaVersion": 2 }), None), "neither layers nor manifests"),
        (text(&both, None), "either layers or manifests"),
        (text(&swapped, None), "either layers or manifests"),
        (text(&artifact, None), "application/vnd.example"),
        (text(&with(manifest(), "mediaType", OCI_MANIFEST), Some(OCI_INDEX)), "was sent as"),
        (text(&size, None), "layers[0].size must be a number of bytes"),
        (text(&algorithm, None), "config.digest is malformed"),
        (text(&with(manifest(), "annotations", json!({ "a": 1 })), None), "annotations[\"a\"]"),
        (text(&with(manifest(), "layers", "a"), None), "layers must be a list"),
        (text(&many, None), "manifests has 1025 items, and 1024 is the limit"),
        (text(&json!([]), None), "not a JSON object"),
    ];
    for (actual, expected) in table {
        assert!(actual.contains(expected), "{actual:?} lacks {expected:?}");
    }
    let large = vec![b' '; MAX_DOCUMENT_BYTES + 1];
    let error = Document::parse(&large, None).unwrap_err();
    assert_eq!(error.problem, DocumentProblem::TooLarge { limit: MAX_DOCUMENT_BYTES });
    let deep = "[".repeat(100_000);
    assert!(Document::parse(format!("{{\"a\":{deep}").as_bytes(), None).is_err());
}

#[test]
fn a_manifest_is_not_an_index_and_the_other_way_round() {
    let error = Manifest::parse(index().to_string().as_bytes(), None).unwrap_err();
    assert_eq!(error.problem, DocumentProblem::IndexForManifest);
    let error = Index::parse(manifest().to_string().as_bytes(), None).unwrap_err();
    assert_eq!(error.problem, DocumentProblem::ManifestForIndex);
}

#[test]
fn bytes_and_digest_are_the_authors() {
    let bytes = serde_json::to_vec_pretty(&manifest()).unwrap();
    let read = Manifest::parse(&bytes, None).unwrap();
    assert_eq!(read.bytes(), bytes);
    assert_eq!(read.digest(), &Digest::sha256(&bytes));
    assert_eq!(read.descriptor().size(), bytes.len() as u64);
}

#[test]
fn kms_58_a_changed_manifest_keeps_unknown_keys_and_their_order() {
    let value: Value = serde_json::from_str(&format!(
        r#"{{"x":[1,{{"b":1,"a":2}}],"layers":[],"schemaVersion":2,"config":{},
            "annotations":{{"z":"1"}},"subject":{}}}"#,
        descriptor(OCI_CONFIG, "config"),
        descriptor(OCI_MANIFEST, "subject")
    ))
    .unwrap();
    let read = Manifest::parse(value.to_string().as_bytes(), None).unwrap();
    let config = Descriptor::new(MediaType::OciConfig, digest("new"), 9);
    let layers = [Descriptor::new(MediaType::OciLayerGzip, digest("layer"), 1)];
    let added = BTreeMap::from([("y".to_owned(), "2".to_owned())]);
    let changed = read.with_content(&config, &layers, &added);
    let mut expected = value;
    expected["config"] = config.to_json();
    expected["layers"] = json!([layers[0].to_json()]);
    expected["annotations"]["y"] = "2".into();
    assert_eq!(String::from_utf8(changed.bytes().to_vec()).unwrap(), expected.to_string());
    assert_eq!(Manifest::parse(changed.bytes(), None).unwrap(), changed);
}

#[test]
fn descriptors_keep_what_is_not_about_their_content() {
    let value = json!({
        "mediaType": OCI_MANIFEST, "digest": digest("a").as_str(), "size": 3, "data": "YWJj",
        "platform": { "os": "linux", "architecture": "arm", "variant": "v7", "os.features": ["x"] },
        "annotations": { "k": "v" }, "x": 1, "urls": ["https://example.com"],
    });
    let index = with(index(), "manifests", json!([value]));
    let Ok(Document::Index(index)) = parse(&index, None) else { panic!("an index") };
    let child = &index.manifests()[0];
    assert_eq!(child.urls(), ["https://example.com"]);
    let new = Descriptor::new(MediaType::OciManifest, digest("b"), 4);
    let mut expected = value;
    expected["digest"] = digest("b").as_str().into();
    expected["size"] = 4.into();
    expected.as_object_mut().unwrap().shift_remove("data");
    expected.as_object_mut().unwrap().shift_remove("urls");
    assert_eq!(child.with_content(&new).to_json().to_string(), expected.to_string());
}

fn index_of(children: &[(&str, Option<&str>)]) -> Index {
    let children: Vec<Descriptor> = children
        .iter()
        .map(|(name, platform)| {
            let child = Descriptor::new(MediaType::OciManifest, digest(name), 1)
                .with_annotation("name", name);
            match platform {
                Some(platform) => child.with_platform(&platform.parse().unwrap()),
                None => child,
            }
        })
        .collect();
    Index::new(Family::Oci, &children, &BTreeMap::new())
}

#[test]
fn the_image_for_a_platform_is_chosen() {
    let usual = index_of(&[
        ("amd", Some("linux/amd64")),
        ("arm", Some("linux/arm64/v8")),
        ("arm6", Some("linux/arm/v6")),
        ("arm7", Some("linux/arm/v7")),
        ("amd again", Some("linux/amd64")),
        ("attestation", Some("unknown/unknown")),
        ("fast", Some("linux/amd64/v3")),
        ("windows", Some("windows/amd64")),
    ]);
    let choose = |index: &Index, machine: &str| {
        let machine: Platform = machine.parse().unwrap();
        index
            .choose(&machine)
            .map(|child| child.annotations()["name"].clone())
            .map_err(|error| error.to_string())
    };
    let table = [
        ("linux/amd64", "amd"),
        ("linux/x86_64", "amd"),
        ("linux/amd64/v2", "amd"),
        ("linux/amd64/v4", "fast"),
        ("linux/arm64", "arm"),
        ("linux/aarch64", "arm"),
        ("linux/arm", "arm7"),
        ("linux/arm/v6", "arm6"),
        ("windows/amd64", "windows"),
    ];
    for (machine, expected) in table {
        assert_eq!(choose(&usual, machine).as_deref(), Ok(expected), "{machine}");
    }
    for machine in ["linux/arm/v5", "linux/s390x", "unknown/unknown"] {
        let error = choose(&usual, machine).unwrap_err();
        assert!(error.contains("it has: linux/amd64, linux/arm64/v8"), "{error}");
        assert!(!error.contains("has: unknown"), "{error}");
    }
    assert_eq!(choose(&index_of(&[("only", None)]), "linux/amd64").as_deref(), Ok("only"));
    assert!(choose(&index_of(&[("one", None), ("two", None)]), "linux/amd64").is_err());
    assert!(choose(&index_of(&[]), "linux/amd64").unwrap_err().contains("no image"));
}

#[test]
fn platforms_are_read_and_printed() {
    for text in ["linux/amd64", "linux/arm/v7", "windows/amd64"] {
        assert_eq!(text.parse::<Platform>().unwrap().to_string(), text);
    }
    for text in ["", "linux", "linux/", "a/b/c/d", "linux/a b"] {
        assert!(text.parse::<Platform>().is_err(), "{text:?}");
    }
    assert_eq!(Platform::linux("aarch64").unwrap().to_string(), "linux/arm64");
}

#[test]
fn kms_59_attestations_are_recognised() {
    let plain = Descriptor::new(MediaType::OciManifest, digest("a"), 1);
    let platform = |text: &str| plain.clone().with_platform(&text.parse().unwrap());
    assert!(!plain.is_attestation());
    assert!(!platform("linux/amd64").is_attestation());
    assert!(!platform("linux/unknown").is_attestation());
    assert!(platform("unknown/unknown").is_attestation());
    let annotated = platform("linux/amd64").with_annotation(ATTESTATION_ANNOTATION, "x");
    assert!(annotated.is_attestation());
}

fn record() -> HistoryRecord {
    HistoryRecord {
        created: Timestamp::from_second(1_700_000_000).unwrap(),
        created_by: "gantry modules sign".to_owned(),
        comment: "2 files".to_owned(),
    }
}

fn config(history: &Value) -> Value {
    let mut value = json!({
        "x-unknown": { "z": 1, "a": [null] }, "created": "2020-01-01T00:00:00Z",
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [digest("1").as_str(), digest("2").as_str()] },
        "config": { "Labels": { "l": "v" }, "Env": ["A=1"] },
    });
    if !history.is_null() {
        value["history"] = history.clone();
    }
    value
}

#[test]
fn kms_58_a_layer_is_added_to_a_config_and_to_a_history_that_agrees() {
    let agrees = json!([{}, { "empty_layer": true }, { "created_by": "x", "empty_layer": false }]);
    let table = [
        ("no history", Value::Null, false),
        ("one record for each layer", agrees, true),
        ("too few", json!([{}]), false),
        ("too many", json!([{}, {}, {}]), false),
        ("empty", json!([]), false),
    ];
    for (why, history, added) in table {
        let before = config(&history);
        let read = Config::parse(before.to_string().as_bytes()).unwrap();
        let after = read.with_layer(&digest("3"), &record());
        let mut expected = before;
        let time = "2023-11-14T22:13:20Z";
        expected["created"] = time.into();
        expected["rootfs"]["diff_ids"].as_array_mut().unwrap().push(digest("3").as_str().into());
        if added {
            let record = json!({ "created": time, "created_by": "gantry modules sign",
                "comment": "2 files" });
            expected["history"].as_array_mut().unwrap().push(record);
        }
        assert_eq!(String::from_utf8_lossy(after.bytes()), expected.to_string(), "{why}");
        assert_eq!(Config::parse(after.bytes()).unwrap(), after, "{why}");
    }
}

#[test]
fn configs_are_read_and_labelled() {
    let read = Config::parse(config(&Value::Null).to_string().as_bytes()).unwrap();
    assert_eq!((read.os(), read.architecture()), ("linux", "amd64"));
    assert_eq!(read.labels()["l"], "v");
    let labelled = read.with_label("n", "w");
    assert_eq!(labelled.labels(), &BTreeMap::from([("l", "v"), ("n", "w")].map(owned)));
    assert_eq!(Config::parse(labelled.bytes()).unwrap(), labelled);
    let none = json!({ "rootfs": { "diff_ids": null }, "config": { "Labels": null } });
    let labelled = Config::parse(none.to_string().as_bytes()).unwrap().with_label("n", "w");
    assert_eq!(labelled.object()["config"]["Labels"], json!({ "n": "w" }));
    let none = json!({ "rootfs": {} });
    let labelled = Config::parse(none.to_string().as_bytes()).unwrap().with_label("n", "w");
    assert_eq!(labelled.object()["config"]["Labels"], json!({ "n": "w" }));
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn malformed_configs_are_refused_with_the_reason() {
    let table = [
        (json!({}), "rootfs is missing"),
        (json!({ "rootfs": { "diff_ids": ["x"] } }), "rootfs.diff_ids[0]"),
        (json!({ "rootfs": { "diff_ids": [1] } }), "rootfs.diff_ids[0] must be a string"),
        (json!({ "rootfs": {}, "config": { "Labels": [] } }), "config.Labels must be an object"),
        (json!({ "rootfs": {}, "history": [1] }), "history[0] must be an object"),
        (json!({ "rootfs": {}, "os": 1 }), "os must be a string"),
    ];
    for (value, expected) in table {
        let error = Config::parse(value.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

proptest! {
    #[test]
    fn reading_never_panics_and_keeps_bytes(bytes: Vec<u8>) {
        if let Ok(document) = Document::parse(&bytes, None) {
            prop_assert_eq!(document.bytes(), &bytes[..]);
        }
    }
}
