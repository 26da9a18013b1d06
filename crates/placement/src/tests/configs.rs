//! Which objects that configure devices are read, and how many at once.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_reconcile::inquiry::QuestionTable;
use gantry_reconcile::{Inquiry as _, Key};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::{ConfigInquiry, NamedBy, Reference};

#[test]
fn claims_are_asked_about_where_something_configures_devices() {
    let config = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}]);
    let mut of_class = config.clone();
    of_class[0]["namespace"] = json!("default");
    let mut own = wish("gpu", 1);
    own["claims"][0]["configs"] = config;
    let plain = claim("c", &wish("gpu", 1));
    let configured = class("other", &json!({"configs": of_class}));
    let table: [(&str, Value, _, &[&str]); 6] = [
        ("nothing configures anything", json!({}), plain.clone(), &[]),
        ("the claim names what does", json!({}), claim("c", &own), &["c"]),
        ("a class names it", json!({"configs": of_class}), plain, &["c"]),
        ("a class that comes", json!({}), class("other", &json!({})), &[]),
        ("a class that comes and names it", json!({}), configured, &["waits"]),
        ("a pod never does", json!({}), user("a", "c"), &[]),
    ];
    for (why, more, (resource, mut object), expected) in table {
        let world = world(&[driver(), class("gpu", &more), claim("waits", &wish("gpu", 1))]);
        object["metadata"]["resourceVersion"] = json!("9");
        object["metadata"]["uid"] = json!("uid-9");
        let change = world.find(&resource).unwrap().saw(&object.to_string()).unwrap().unwrap();
        let keys = ConfigInquiry.enqueue(&world, &change);
        assert_eq!(keys, expected.iter().map(|it| key(it)).collect::<Vec<_>>(), "{why}");
    }
}

/// A reference of a claim to a ConfigMap.
fn reference(namespace: &str, name: &str) -> Reference {
    Reference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        named_by: NamedBy::Claim,
    }
}

#[test]
fn claims_that_refer_to_the_same_share_one_question() {
    let refers = |name: &str, config: Value| {
        let mut spec = wish("gpu", 1);
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
    let wanted = |name: &str| ConfigInquiry.wanted(&world, &key(name), now).questions;
    let class = Reference {
        api_version: "ex.com/v1".to_owned(),
        kind: "Open".to_owned(),
        namespace: "x".to_owned(),
        name: "o".to_owned(),
        named_by: NamedBy::Class,
    };
    let own =
        Reference { namespace: "default".to_owned(), named_by: NamedBy::Claim, ..class.clone() };
    let table = [
        ("a", vec![reference("default", "one"), class.clone()]),
        ("b", vec![reference("default", "one"), class.clone()]),
        ("c", vec![reference("default", "two"), class.clone()]),
        // A claim that names a Secret is not valid, and nothing is read for it.
        ("d", vec![]),
        // Of what a claim names, the kind has to say that it may be copied: that is another question.
        ("e", vec![own, class]),
        ("none", vec![]),
    ];
    for (name, expected) in table {
        assert_eq!(wanted(name), expected.into_iter().collect(), "{name}");
    }
}

#[test]
fn one_namespace_does_not_keep_others_from_being_read() {
    let mut table = QuestionTable::new(ConfigInquiry.concurrency());
    let now = Duration::ZERO;
    let mut want = |namespace: &str, name: &str| {
        let questions = BTreeSet::from([reference(namespace, name)]);
        table.want(&Key::new(namespace, name), questions, |it| ConfigInquiry.group(it), now);
    };
    (0..100).for_each(|nth| want("greedy", &format!("u{nth:03}")));
    want("small", "z");
    let begun: Vec<String> =
        table.startable(now).iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    assert_eq!(begun, ["greedy/u000", "greedy/u001", "greedy/u002", "greedy/u003", "small/z"]);
    let class = Reference { named_by: NamedBy::Class, ..reference("greedy", "shared") };
    let own = reference("greedy", "shared");
    assert_ne!(ConfigInquiry.group(&class), ConfigInquiry.group(&own), "classes are apart");
}
