//! Which objects that configure devices are read, and how many at once.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_reconcile::inquiry::QuestionTable;
use gantry_reconcile::{Inquiry as _, Key};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::{ConfigInquiry, DeviceConfigReference, ReferencedBy};

#[test]
fn configs_are_read_for_unallocated_claims() {
    let config = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}]);
    let mut of_class = config.clone();
    of_class[0]["namespace"] = json!("default");
    let mut own = device_request("gpu", 1);
    own["claims"][0]["configs"] = config;
    let plain = claim("c", &device_request("gpu", 1));
    let configured = class("other", &json!({"configs": of_class}));
    let table: [(&str, Value, _, &[&str]); 6] = [
        ("nothing configures anything", json!({}), plain.clone(), &[]),
        ("the claim names what does", json!({}), claim("c", &own), &["c"]),
        ("a class names it", json!({"configs": of_class}), plain, &["c"]),
        ("a class that comes", json!({}), class("other", &json!({})), &[]),
        ("a class that comes and names it", json!({}), configured, &["waits"]),
        ("a pod never does", json!({}), pod_with_claim("a", "c"), &[]),
    ];
    for (why, more, (resource, mut object), expected) in table {
        let world =
            world(&[driver(), class("gpu", &more), claim("waits", &device_request("gpu", 1))]);
        object["metadata"]["resourceVersion"] = json!("9");
        object["metadata"]["uid"] = json!("uid-9");
        let change = world
            .single_store_for(&resource)
            .unwrap()
            .observe(&object.to_string())
            .unwrap()
            .unwrap();
        let keys = ConfigInquiry.enqueue(&world, &change);
        assert_eq!(keys, expected.iter().map(|it| key(it)).collect::<Vec<_>>(), "{why}");
    }
}

/// A reference of a claim to a ConfigMap.
fn reference(namespace: &str, name: &str) -> DeviceConfigReference {
    DeviceConfigReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        referenced_by: ReferencedBy::Claim,
    }
}

#[test]
fn claims_with_the_same_config_share_one_read() {
    let refers = |name: &str, config: Value| {
        let mut spec = device_request("gpu", 1);
        spec["claims"][0]["configs"] = json!([config]);
        claim(name, &spec)
    };
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    let of_class =
        json!([{"apiVersion": "ex.com/v1", "kind": "Open", "namespace": "x", "name": "o"}]);
    let world = world(&[
        class("gpu", &json!({"configs": of_class})),
        class("other", &json!({"deviceType": "other", "configs": of_class})),
        refers("a", map("one")),
        refers("b", map("one")),
        refers("c", map("two")),
        refers("d", json!({"apiVersion": "v1", "kind": "Secret", "name": "s"})),
        refers("e", json!({"apiVersion": "ex.com/v1", "kind": "Open", "name": "o"})),
    ]);
    let now = Timestamp::UNIX_EPOCH;
    let wanted = |name: &str| ConfigInquiry.wanted_questions(&world, &key(name), now).questions;
    let class = DeviceConfigReference {
        api_version: "ex.com/v1".to_owned(),
        kind: "Open".to_owned(),
        namespace: "x".to_owned(),
        name: "o".to_owned(),
        referenced_by: ReferencedBy::Class,
    };
    let own = DeviceConfigReference {
        namespace: "default".to_owned(),
        referenced_by: ReferencedBy::Claim,
        ..class.clone()
    };
    let table = [
        ("a", vec![reference("default", "one"), class.clone()]),
        ("b", vec![reference("default", "one"), class.clone()]),
        ("c", vec![reference("default", "two"), class.clone()]),
        // A claim that names a Secret is not valid, and nothing is read for it.
        ("d", vec![]),
        // An object that a claim names needs a kind that may be copied: that is a separate
        // question.
        ("e", vec![own, class]),
        ("none", vec![]),
    ];
    for (name, expected) in table {
        assert_eq!(wanted(name), expected.into_iter().collect(), "{name}");
    }
}

#[test]
fn one_namespace_does_not_starve_others() {
    let mut table = QuestionTable::new(ConfigInquiry.concurrency());
    let now = Duration::ZERO;
    let mut want = |namespace: &str, name: &str| {
        let questions = BTreeSet::from([reference(namespace, name)]);
        table.set_wanted(&Key::new(namespace, name), questions, |it| ConfigInquiry.group(it), now);
    };
    (0..100).for_each(|nth| want("greedy", &format!("u{nth:03}")));
    want("small", "z");
    let begun: Vec<String> =
        table.startable(now).iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    assert_eq!(begun, ["greedy/u000", "greedy/u001", "greedy/u002", "greedy/u003", "small/z"]);
    let class = DeviceConfigReference {
        referenced_by: ReferencedBy::Class,
        ..reference("greedy", "shared")
    };
    let own = reference("greedy", "shared");
    assert_ne!(ConfigInquiry.group(&class), ConfigInquiry.group(&own), "classes are apart");
}
