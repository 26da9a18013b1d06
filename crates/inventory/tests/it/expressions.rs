//! What expressions stand for.

use gantry_inventory::{Value, read};
use serde_json::json;

use super::{input, password, read_well, rendered, source};

#[test]
fn prv_3_expressions_stand_for_values() {
    let text = "\
all:
  vars:
    number: 7
    flag: yes
    nothing:
    list: [1, '{{ number }}']
    text: word
  children:
    g: {hosts: {h: , i: }}
";
    let inventory = read_well(&[("hosts.yaml", text)]);
    let table = [
        ("{{ number }}", json!(7)),
        ("{{ flag }}", json!(true)),
        ("{{ list }}", json!([1, 7])),
        ("{{ inventory_hostname }}", json!("h")),
        ("{{ groups['g'] }}", json!(["h", "i"])),
        ("{{ lookup('env', 'SITE') }}", json!("lab")),
        ("{{ lookup('env', 'NOT_SET') }}", json!("")),
        ("{{ missing | default('x') }}", json!("x")),
        ("{{ missing | default(number) }}", json!(7)),
        ("{{ missing | default([]) }}", json!([])),
        ("{{ text | default('x') }}", json!("word")),
        ("{{ groups['missing'] | default({}) }}", json!({})),
        ("a-{{ number }}-{{ flag }}-{{ nothing }}.", json!("a-7-True-.")),
        ("{{ text }}{{ number }}", json!("word7")),
        ("no braces } }} {", json!("no braces } }} {")),
    ];
    for (expression, expected) in table {
        let extra = format!("x={expression:?}");
        let mut input = input(vec![source(&[("hosts.yaml", text)])]);
        input.extra_variables.push(gantry_inventory::ExtraVariables::Text(extra));
        let (inventory, findings) = read(&input);
        assert_eq!(rendered(&inventory, &findings), "", "{expression}");
        let host = inventory.tree.host_named("h").unwrap();
        let value = inventory.value(host, "x").unwrap().unwrap();
        assert_eq!(value.to_json(), expected, "{expression}");
    }
    let host = inventory.tree.host_named("h").unwrap();
    assert_eq!(inventory.value(host, "nothing"), Ok(None));
    assert_eq!(inventory.value(host, "never set"), Ok(None));
}

#[test]
fn doubling_expressions_end() {
    let mut text = "all:\n  hosts: {h: }\n  vars:\n    v0: x\n".to_owned();
    for level in 1..40 {
        let old = level - 1;
        text += &format!("    v{level}: '{{{{ v{old} }}}}{{{{ v{old} }}}}'\n");
    }
    let inventory = read_well(&[("hosts.yaml", &text)]);
    let host = inventory.tree.host_named("h").unwrap();
    assert!(inventory.value(host, "v3").is_ok());
    let error = inventory.value(host, "v39").unwrap_err();
    assert!(error.message.contains("more than"), "{error:?}");
}

#[test]
fn pvs_8_vaults_are_opened_and_never_printed() {
    let vault = include_str!("../data/vault-1.1.txt").trim_end();
    let indented = vault.replace('\n', "\n        ");
    let text = format!("master:\n  hosts:\n    h:\n      p: !vault |\n        {indented}\n");
    let mut input = input(vec![source(&[
        ("hosts.yaml", &text),
        ("group_vars/master", include_str!("../data/vault-file.txt")),
    ])]);
    input.passwords.push(password("open sesame"));
    let (inventory, findings) = read(&input);
    assert_eq!(rendered(&inventory, &findings), "");
    let host = inventory.tree.host_named("h").unwrap();
    let Value::Vault(secret) = inventory.value(host, "p").unwrap().unwrap().value else {
        panic!("not a vault");
    };
    assert_eq!(secret.secret(), Some("s3cret"));
    let json = inventory.host_json(host);
    assert_eq!(json["p"], json!({ "__ansible_vault": format!("{vault}\n") }));
    assert_eq!(json["from_file"], json!(["a", 1]), "a file that is a vault is like any other");
    let printed = format!("{json} {} {inventory:?}", inventory.origins(host));
    assert!(!printed.contains("s3cret"));

    input.passwords.clear();
    let (inventory, findings) = read(&input);
    let text = rendered(&inventory, &findings);
    assert!(text.contains("group_vars/master:1:1: encrypted, and no password"), "{text}");
    assert_eq!(findings.len(), 1, "a value alone stays encrypted: {text}");
}
