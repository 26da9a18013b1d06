//! Inventories that are wrong, and the messages that their authors get.

use std::path::Path;

use gantry_inventory::{clusters, has_errors, read};

use super::{file, input, password, rendered, source};

const CASES: &str = include_str!("../data/broken.txt");
const EXPECTED: &str = include_str!("../data/broken.golden");

#[test]
fn pvs_5_broken_inventories_are_explained() {
    let mut actual = String::new();
    let mut count = 0;
    for case in CASES.split("### ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let files: Vec<(&str, &str)> =
            rest.split("--- ").skip(1).filter_map(|file| file.split_once('\n')).collect();
        let mut input = input(vec![source(&files)]);
        input.passwords.push(password("open sesame"));
        let (inventory, mut findings) = read(&input);
        if !has_errors(&findings) {
            findings.extend(clusters(&inventory).1);
        }
        assert!(!findings.is_empty(), "{title}");
        count += 1;
        actual += &format!("### {title}\n{}", rendered(&inventory, &findings));
    }
    assert!(count >= 60, "{count}");
    assert!(!actual.contains("hunter2"), "a password is printed");
    if actual != EXPECTED {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken.golden");
        std::fs::write(&path, &actual).unwrap();
        panic!("the messages differ from tests/data/broken.golden; see {}", path.display());
    }
}

/// The example of the specification, letter by letter.
#[test]
fn pvs_5_a_message_has_line_caret_and_suggestion() {
    let text = "all:\n  children:\n    master:\n      host:\n        a:\n";
    let (inventory, findings) = read(&input(vec![source(&[("hosts.yaml", text)])]));
    let expected = "hosts.yaml:4:7: unknown key `host` in group `master`\n   \
                    4 |       host:\n     |       ^^^^ expected one of: hosts, children, vars \
                    (did you mean `hosts`?)\n";
    assert_eq!(rendered(&inventory, &findings), expected);
}

#[test]
fn prv_3_passwords_need_a_private_file_or_a_vault() {
    let text = "master: {hosts: {a: {ansible_become_password: x}}}\n";
    let mut private = file("hosts.yaml", text);
    private.is_private = true;
    let sources = vec![gantry_inventory::Source::File { file: private, variables: Vec::new() }];
    let (inventory, findings) = read(&input(sources));
    assert!(!has_errors(&findings), "{}", rendered(&inventory, &findings));
    assert!(rendered(&inventory, &findings).contains("warning: "));
    for value in ["'@/run/pass'", "!vault x", "!vault |\n          x\n"] {
        let text = format!("master:\n  hosts:\n    a:\n      ansible_become_password: {value}\n");
        let (inventory, findings) = read(&input(vec![source(&[("hosts.yaml", &text)])]));
        assert_eq!(rendered(&inventory, &findings), "", "{value}");
    }
}
