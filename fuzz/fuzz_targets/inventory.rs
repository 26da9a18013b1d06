//! Inventories in every form: no panic and no endless work; what is listed can be printed, findings
//! have a place in their text, and reading what was exported as YAML changes no host's variables.
#![no_main]

use gantry_inventory::{
    ALL, ExtraVariables, Input, ListForm, Source, TextFile, VaultPassword, clusters, has_errors,
    read, select, split,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The first line is a pattern and decides about the form.
    let (pattern, text) = text.split_once('\n').unwrap_or(("all", text));
    let (variables, text) = text.split_once("\n...\n").unwrap_or(("", text));
    let file = |inside: &str, text: &str| TextFile {
        path: inside.to_owned(),
        inside: inside.to_owned(),
        text: text.to_owned(),
        is_private: false,
    };
    let name = if pattern.starts_with('~') { "hosts.ini" } else { "hosts.yaml" };
    let input = Input {
        sources: vec![
            Source::File {
                file: file(name, text),
                variables: vec![file("group_vars/all", variables), file("host_vars/a", variables)],
            },
            Source::Hosts(pattern.to_owned()),
        ],
        extra_variables: vec![ExtraVariables::Text(variables.to_owned())],
        passwords: vec![VaultPassword { label: None, password: b"password".to_vec().into() }],
        environment: [("HOME".to_owned(), "/root".to_owned())].into(),
    };
    let (inventory, findings) = read(&input);
    for finding in &findings {
        let text = finding.render(&inventory.files);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    let _ = select(&inventory.tree, &split(pattern));
    if has_errors(&findings) {
        return;
    }
    let _ = clusters(&inventory);
    let hosts = inventory.tree.members(ALL);
    let list = inventory.list(&hosts, ListForm::Resolved);
    for host in hosts.iter().take(20) {
        let _ = inventory.origins(*host);
        let name = &inventory.tree.host(*host).name;
        let variables = &list["_meta"]["hostvars"][name];
        // The same variables as inline variables of a host in JSON.
        let mut group = serde_json::Map::new();
        group.insert(name.clone(), variables.clone());
        let again = serde_json::json!({ "all": { "hosts": group } }).to_string();
        let source = Source::File { file: file("again.json", &again), variables: Vec::new() };
        let (copy, findings) = read(&Input { sources: vec![source], ..Input::default() });
        let has_map_vault = again.contains("__ansible_vault");
        if name.contains(['[', ':']) || has_map_vault || has_errors(&findings) {
            continue;
        }
        let id = copy.tree.host_named(name).expect("it was written");
        assert_eq!(copy.host_json(id), variables.as_object().map_or_else(
            || serde_json::json!({}),
            |it| serde_json::Value::Object(it.clone()),
        ));
    }
});
