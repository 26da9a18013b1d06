//! What is printed.

use gantry_inventory::{ALL, ListForm, Source, read};
use serde_json::json;

use super::{input, read_well, rendered};

const HOSTS: &str = "\
all:
  vars: {a: 1}
  hosts: {lonely: }
  children:
    web:
      hosts: {w1: {b: 2}, w2: }
      vars: {c: 3, ansible_group_priority: 5}
    empty:
    site: {children: {web: }}
";

#[test]
fn pvs_8_lists_have_the_form_of_the_original() {
    let inventory = read_well(&[("hosts.yaml", HOSTS)]);
    let hosts = inventory.tree.members(ALL);
    let expected = json!({
        "_meta": {
            "hostvars": {
                "lonely": {"a": 1}, "w1": {"a": 1, "b": 2, "c": 3}, "w2": {"a": 1, "c": 3},
            },
            "profile": "inventory_legacy",
        },
        "all": {"children": ["ungrouped", "web", "empty", "site"]},
        "site": {"children": ["web"]},
        "ungrouped": {"hosts": ["lonely"]},
        "web": {"hosts": ["w1", "w2"]},
    });
    assert_eq!(inventory.list(&hosts, ListForm::Resolved), expected);
    let expected = json!({
        "_meta": {"hostvars": {"w1": {"b": 2}}, "profile": "inventory_legacy"},
        "all": {"children": ["ungrouped", "web", "empty", "site"], "vars": {"a": 1}},
        "site": {"children": ["web"]},
        "ungrouped": {"hosts": ["lonely"]},
        "web": {"hosts": ["w1", "w2"], "vars": {"ansible_group_priority": 5, "c": 3}},
    });
    assert_eq!(inventory.list(&hosts, ListForm::Export), expected);
}

#[test]
fn pvs_8_graphs_have_the_form_of_the_original() {
    let inventory = read_well(&[("hosts.yaml", HOSTS)]);
    let expected = "\
@all:
  |--@ungrouped:
  |  |--lonely
  |--@web:
  |  |--w1
  |  |--w2
  |--@empty:
  |--@site:
  |  |--@web:
  |  |  |--w1
  |  |  |--w2
";
    assert_eq!(inventory.graph(ALL), expected);
}

#[test]
fn prv_7_lists_of_hosts() {
    let (inventory, findings) = read(&input(vec![Source::Hosts("a, b:2222 ,,a".to_owned())]));
    assert_eq!(rendered(&inventory, &findings), "");
    let hosts = inventory.tree.members(ALL);
    let list = inventory.list(&hosts, ListForm::Resolved);
    assert_eq!(list["ungrouped"], json!({"hosts": ["a", "b"]}));
    assert_eq!(list["_meta"]["hostvars"], json!({"b": {"ansible_port": 2222}}));
    let (inventory, findings) = read(&input(vec![Source::Hosts("n[1:3],".to_owned())]));
    assert!(rendered(&inventory, &findings).contains("a range in a list of hosts"));
}

#[test]
fn pvs_8_ini_and_yaml_mean_the_same() {
    let ini = "\
lonely
[web]
w1 b=2
w2
[web:vars]
c=3
ansible_group_priority=5
[site:children]
web
[empty]
[all:vars]
a=1
";
    let list = |name: &str, text: &str| {
        let inventory = read_well(&[(name, text)]);
        inventory.list(&inventory.tree.members(ALL), ListForm::Resolved)
    };
    let (from_ini, from_yaml) = (list("hosts", ini), list("hosts.yaml", HOSTS));
    assert_eq!(from_ini["_meta"], from_yaml["_meta"]);
    assert_eq!(from_ini["site"], from_yaml["site"]);
    let json = serde_json::to_string(&json!({
        "all": {"vars": {"a": 1}, "hosts": {"lonely": {}}},
        "web": {"hosts": {"w1": {"b": 2}, "w2": null}, "vars": {"c": 3}},
        "site": {"children": {"web": {}}},
    }));
    assert_eq!(list("hosts.json", &json.unwrap())["_meta"], from_yaml["_meta"]);
}
