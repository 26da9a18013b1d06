//! Compares discovery with the answers of kube-apiserver.

use std::collections::BTreeMap;

use gantry_builtin::{discovery, groups};
use serde_json::Value;

use crate::golden;

const SERVED: &[u8] = include_bytes!("../../data/discovery.json.gz");
const LEGACY: &[u8] = include_bytes!("golden/legacy.json.gz");

#[test]
fn aggregated_discovery_is_what_the_server_says() {
    let served: BTreeMap<String, Value> = golden(SERVED);
    let made: Vec<Value> = groups().iter().map(discovery::aggregated).collect();
    let (core, named) = made.split_first().unwrap();
    assert_eq!(served["/api"]["items"], Value::from(vec![core.clone()]));
    assert_eq!(served["/apis"]["items"], Value::from(named.to_vec()));
}

#[test]
fn older_discovery_is_what_the_server_says() {
    let served: BTreeMap<String, Value> = golden(LEGACY);
    let made: Vec<Value> = groups().iter().skip(1).map(discovery::group_entry).collect();
    assert_eq!(served["/apis"]["groups"], Value::from(made));
    let mut documents = 0;
    for (path, document) in &served {
        let made = match path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", version] => discovery::resources("", version),
            ["", "apis", group] => discovery::group(group),
            ["", "apis", group, version] => discovery::resources(group, version),
            // The first names the address of the server, the second is above.
            ["", "api" | "apis"] => continue,
            _ => unreachable!("{path}"),
        };
        assert_eq!(made.as_ref(), Some(document), "{path}");
        documents += 1;
    }
    assert_eq!(documents, 42);
    assert_eq!(discovery::group(""), None);
    assert_eq!(discovery::resources("apps", "v2"), None);
}
