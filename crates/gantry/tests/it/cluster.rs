//! `gantry cluster`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{Run, gantry_with};

const HOSTS: &str = "\
all:
  vars: {gantry_cluster_name: mls, site: \"{{ lookup('env', 'SITE') }}\"}
  children:
    master:
      hosts:
        gpu-0: {ansible_host: 10.20.0.11}
    minion:
      hosts:
        gpu-[1:2]: {ansible_python_interpreter: /usr/bin/python3}
";

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Runs it on an inventory in a folder, whose path is removed from what it prints.
fn inventory(folder: &Path, arguments: &[&str]) -> Run {
    let hosts = folder.join("hosts.yaml");
    let mut all = vec!["cluster", "inventory", "-i", hosts.to_str().unwrap()];
    all.extend(arguments);
    let mut run = gantry_with(&all, &[("SITE", "lab")], "");
    let prefix = format!("{}/", folder.display());
    run.err = run.err.replace(&prefix, "");
    run.out = run.out.replace(&prefix, "");
    run
}

#[test]
fn pvs_8_an_inventory_is_shown_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", HOSTS);
    write(folder.path(), "group_vars/minion.yml", "gantry_swap: off\nx: 1\n");
    write(folder.path(), "host_vars/gpu-1.yaml", "x: 2\n");
    let run = inventory(folder.path(), &["--graph"]);
    let expected = "@all:\n  |--@ungrouped:\n  |--@master:\n  |  |--gpu-0\n  |--@minion:\n  |  \
                    |--gpu-1\n  |  |--gpu-2\n";
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, expected, ""));
    let run = inventory(folder.path(), &["--graph", "minion"]);
    assert_eq!(run.out, "@minion:\n  |--gpu-1\n  |--gpu-2\n");

    let run = inventory(folder.path(), &["--list", "--limit", "minion:!gpu-2"]);
    let list: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(list["minion"], json!({"hosts": ["gpu-1"]}));
    let variables = &list["_meta"]["hostvars"]["gpu-1"];
    assert_eq!((&variables["x"], &variables["gantry_swap"]), (&json!(2), &json!(false)));
    assert_eq!(variables["site"], "{{ lookup('env', 'SITE') }}");

    let run = inventory(folder.path(), &["--list", "--export"]);
    let list: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(list["minion"]["vars"], json!({"gantry_swap": false, "x": 1}));

    let run = inventory(folder.path(), &["--list-hosts", "-l", "~gpu-[12]"]);
    assert_eq!(run.out, "  hosts (2):\n    gpu-1\n    gpu-2\n");
    write(folder.path(), "limit", "gpu-0\ngpu-2\n");
    let file = format!("@{}", folder.path().join("limit").display());
    let run = inventory(folder.path(), &["--list-hosts", "-l", &file]);
    assert_eq!(run.out, "  hosts (2):\n    gpu-0\n    gpu-2\n");

    let run = inventory(folder.path(), &["--host", "gpu-1", "--origin", "-e", "x=3", "-v"]);
    let expected = "\
ansible_python_interpreter = \"/usr/bin/python3\"
  from hosts.yaml:9 (variables of the host)
gantry_cluster_name = \"mls\"
  from hosts.yaml:2 (variables of group all)
gantry_swap = false
  from group_vars/minion.yml:1 (group_vars of minion)
site = \"lab\"
  from hosts.yaml:2 (variables of group all)
x = \"3\"
  from --extra-vars:1 (command line)
  over host_vars/gpu-1.yaml:1 (host_vars): 2
  over group_vars/minion.yml:2 (group_vars of minion): 1
";
    assert_eq!(run.out, expected);
    assert_eq!(run.err, "variables without effect here: ansible_python_interpreter\n");
}

#[test]
fn prv_7_a_list_of_hosts_is_an_inventory() {
    let run = gantry_with(&["cluster", "inventory", "-i", "local,", "--list"], &[], "");
    assert_eq!(run.code, 0, "{}", run.err);
    let list: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(list["ungrouped"], json!({"hosts": ["local"]}));
}

#[test]
fn prv_4_exit_codes_of_cluster() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", HOSTS);
    let table: [(&[&str], i32, &str); 10] = [
        (&["--list-hosts"], 0, ""),
        (&["--list-hosts", "-vvv"], 0, ""),
        (&[], 5, "required arguments"),
        (&["--list", "--graph"], 5, "cannot be used"),
        (&["--list", "--origin"], 5, "cannot be used"),
        (&["--host", "gpu-0", "--export"], 5, "cannot be used"),
        (&["--list", "master"], 5, "cannot be used"),
        (&["--list", "-l", "gpu-9"], 1, "did you mean `gpu-0`?"),
        (&["--host", "gpu-9"], 1, "no host is named gpu-9"),
        (&["--list", "-i", "missing.yaml"], 1, "could not read the inventory missing.yaml"),
    ];
    for (arguments, code, message) in table {
        let run = inventory(folder.path(), arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(message), "{arguments:?}: {}", run.err);
        assert!(code == 0 || run.out.is_empty(), "{arguments:?}: {}", run.out);
    }
    assert_eq!(gantry_with(&["cluster"], &[], "").code, 5);
    assert_eq!(gantry_with(&["cluster", "inventroy"], &[], "").code, 5);
}

#[test]
fn pvs_5_errors_name_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", "master:\n  host: {a: }\n");
    let run = inventory(folder.path(), &["--list"]);
    let expected = "hosts.yaml:2:3: unknown key `host` in group `master`\n   \
                    2 |   host: {a: }\n     |   ^^^^ expected one of: hosts, children, vars \
                    (did you mean `hosts`?)\n\
                    the inventory has 1 error and 0 warnings\n";
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (1, "", expected));
    // Rules that span hosts do not hide what the inventory is.
    write(folder.path(), "hosts.yaml", "minion: {hosts: {a: }}\n");
    let run = inventory(folder.path(), &["--list-hosts"]);
    assert_eq!((run.code, run.out.as_str()), (1, "  hosts (1):\n    a\n"));
    assert!(run.err.contains("cluster `gantry` has no master"), "{}", run.err);
}

#[test]
fn pvs_8_password_files_of_vaults() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", "master: {hosts: {a: }}\n");
    let vault = include_str!("../../../inventory/tests/data/vault-file.txt");
    write(folder.path(), "group_vars/master.yaml", vault);
    let run = inventory(folder.path(), &["--host", "a"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("encrypted, and no password was given"), "{}", run.err);

    write(folder.path(), "password", "open sesame\n");
    let path = folder.path().join("password");
    let mode = |mode: u32| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        inventory(folder.path(), &["--host", "a", "--vault-password-file", path.to_str().unwrap()])
    };
    let run = mode(0o600);
    let printed: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((printed, run.err.as_str()), (json!({"from_file": ["a", 1]}), ""));
    let run = mode(0o644);
    assert!(run.code == 0 && run.err.contains("other users can read"), "{}", run.err);
    let run = mode(0o700);
    assert!(run.code == 1 && run.err.contains("is a program, and is not run"), "{}", run.err);
}
