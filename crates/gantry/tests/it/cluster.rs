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

/// Runs a command of `gantry cluster` in which `@` stands for the path of the folder.
fn on_hosts(folder: &Path, line: &[&str]) -> Run {
    let path = folder.display().to_string();
    let line: Vec<String> = line.iter().map(|word| word.replace('@', &path)).collect();
    let words: Vec<&str> = ["cluster"].into_iter().chain(line.iter().map(String::as_str)).collect();
    let variables = [("HOME", path.as_str()), ("PATH", "/usr/bin:/bin")];
    let mut run = gantry_with(&words, &variables, "");
    run.err = run.err.replace(&path, "@");
    run.out = run.out.replace(&path, "@");
    run
}

#[test]
fn pvs_4_a_command_on_hosts_has_the_output_and_codes_of_ansible() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "hosts.yaml",
        "all: {hosts: {a: {ansible_connection: local}, b: {ansible_connection: local}}}\n",
    );
    let exec = |words: &[&str]| {
        let line = ["exec", "-i", "@/hosts.yaml", "--forks", "1"];
        on_hosts(folder.path(), &[&line[..], words].concat())
    };
    let run = exec(&["all", "--", "printf", "%s\n", "it's", "$HOME"]);
    let expected = "a | CHANGED | rc=0 >>\nit's\n$HOME\nb | CHANGED | rc=0 >>\nit's\n$HOME\n";
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, expected, ""));
    let run = exec(&["all", "-l", "b", "--", "sh", "-c", "echo out; echo err >&2; exit 255"]);
    let expected = "b | FAILED | rc=255 >>\nout\nerr\nnon-zero return code\n";
    assert_eq!((run.code, run.out.as_str()), (2, expected));
    let run = exec(&["all:!b", "--timeout", "1ms", "--", "sleep", "600"]);
    assert_eq!(run.code, 2);
    assert!(run.out.starts_with("a | FAILED! => {") && run.out.contains("CommandTimedOut"));

    // Nothing is tried.
    let table: [(&[&str], i32, &str); 5] = [
        (&["all", "-l", "c", "--", "true"], 1, "c"),
        (&["all"], 5, "<WORD>"),
        (&["all", "--forks", "0", "--", "true"], 5, "--forks"),
        (&["all", "-b", "--become-password-file", "@/hosts.yaml", "--", "true"], 1, "chmod 600"),
        (&["all", "-K", "--become-password-file", "x", "--", "true"], 5, "cannot be used with"),
    ];
    for (words, code, part) in table {
        let run = exec(words);
        assert_eq!((run.code, run.out.as_str()), (code, ""), "{words:?}: {}", run.err);
        assert!(run.err.contains(part), "{words:?}: {}", run.err);
    }
    write(folder.path(), "wrong.yaml", "all: {hostz: {}}\n");
    let run = on_hosts(folder.path(), &["exec", "-i", "@/wrong.yaml", "all", "--", "true"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("hostz"), "{}", run.err);
}

#[test]
fn pvs_4_a_host_that_is_not_reached_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = "all:\n  vars: {ansible_port: 2222, ansible_user: ops,\n    \
                 ansible_ssh_private_key_file: /k, ansible_ssh_common_args: \"-o 'A=b c'\"}\n  \
                 hosts: {a: {ansible_host: 10.0.0.1}}\n";
    write(folder.path(), "hosts.yaml", hosts);
    write(
        folder.path(),
        "bin/ssh",
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$HOME/words\"\n\
        echo 'ssh: connect to host 10.0.0.1 port 2222: Connection refused' >&2\nexit 255\n",
    );
    let ssh = folder.path().join("bin/ssh");
    std::fs::set_permissions(ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}/bin:/usr/bin:/bin", folder.path().display());
    let home = folder.path().display().to_string();
    let inventory = format!("{home}/hosts.yaml");
    let words = ["cluster", "exec", "-i", &inventory, "-u", "other", "all", "--", "true"];
    let run = gantry_with(&words, &[("HOME", &home), ("PATH", &path)], "");
    assert_eq!(run.code, 4, "{}{}", run.out, run.err);
    let json = run.out.strip_prefix("a | UNREACHABLE! => ").unwrap();
    let value: Value = serde_json::from_str(json).unwrap();
    assert_eq!(
        (&value["reason"], &value["unreachable"]),
        (&json!("ConnectionRefused"), &json!(true))
    );
    let line = value["ssh"].as_str().unwrap();
    assert!(
        line.contains("-o 'A=b c'")
            && line.ends_with(
                "-p 2222 -i /k -oIdentitiesOnly=yes \
        -- ops@10.0.0.1 true"
            ),
        "{line}"
    );
    let words = std::fs::read_to_string(folder.path().join("words")).unwrap();
    assert!(words.contains("\n-oBatchMode=yes\n") && words.contains("\nA=b c\n"), "{words}");
    assert!(words.contains("-oControlPath=/tmp/gantry-ssh-"), "{words}");
}

#[test]
fn a_file_is_copied_to_hosts_and_back() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "file", "content\n");
    write(folder.path(), "hosts.ini", "a ansible_connection=local\n");
    std::fs::create_dir(folder.path().join("there")).unwrap();
    let cp =
        |words: &[&str]| on_hosts(folder.path(), &[&["cp", "-i", "@/hosts.ini"], words].concat());
    let expected = "a | CHANGED => {\n    \"changed\": true,\n    \"dest\": \"@/there\",\n    \
                    \"size\": 8\n}\n";
    let run = cp(&["@/file", "all:@/there"]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, expected, ""));
    let run = cp(&["@/file", "all:@/there"]);
    assert!(run.code == 0 && run.out.starts_with("a | SUCCESS => {"), "{}", run.out);
    let run = cp(&["all:@/there/file", "@/back"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    let back = folder.path().join("back/a").join(folder.path().strip_prefix("/").unwrap());
    assert_eq!(std::fs::read_to_string(back.join("there/file")).unwrap(), "content\n");
    let run = cp(&["all:@/missing", "@/back"]);
    assert!(run.code == 2 && run.out.contains("there is no file"), "{}", run.out);
    let run = cp(&["@/file", "@/other"]);
    assert!(run.code == 1 && run.err.contains("PATTERN:/PATH"), "{}", run.err);
    let run = cp(&["@/missing", "all:@/there"]);
    assert!(run.code == 1 && run.err.contains("could not read"), "{}", run.err);
}

/// Runs the words of a line on the inventory of a folder.
fn seed_line(folder: &Path, line: &str) -> Run {
    let hosts = folder.join("hosts.yaml").display().to_string();
    let line = line.replace("hosts.yaml", &hosts);
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    gantry_with(&words, &[("SITE", "lab")], "")
}

#[test]
fn prv_4_the_command_lines_of_the_original_parse_and_list() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", HOSTS);
    let lines = [
        ("gantry cluster create cluster_create.yaml -i hosts.yaml -v", "kernel.sysctl\tTAGS: ["),
        (
            "gantry cluster create cluster_create.yaml -i hosts.yaml --tags config -v",
            "rbac.profiles (held)\tTAGS: [rbac, config, apply]",
        ),
        (
            "gantry cluster create cluster_create.yaml --connection local --inventory local, \
             --tags config -v -K",
            "storage.class (held)\tTAGS: [storage, config, apply]",
        ),
    ];
    for (line, expected) in lines {
        let run = seed_line(folder.path(), line);
        assert!(run.out.contains(expected), "{line}: {} {}", run.out, run.err);
        assert!(run.err.contains("nothing was changed: this version reaches no hosts"), "{line}");
        assert_eq!(run.code, 1, "{line}: {}", run.err);
        let listed = seed_line(folder.path(), &format!("{line} --list-tasks"));
        assert_eq!((listed.code, listed.out == run.out), (0, true), "{line}: {}", listed.err);
    }
    let config = seed_line(folder.path(), lines[1].0);
    assert!(!config.out.contains("kernel.sysctl"), "{}", config.out);
    let wrong = seed_line(folder.path(), "gantry cluster create -i hosts.yaml --frob");
    assert_eq!(wrong.code, 5, "{}", wrong.err);
    let wrong = seed_line(folder.path(), "gantry cluster create -i hosts.yaml --tags confg");
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("did you mean `config`?"), "{}", wrong.err);
}

#[test]
fn prv_6_steps_of_the_user_are_listed_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "hosts.yaml", HOSTS);
    let step =
        "- name: tuned\n  about: Tunes.\n  tags: [site]\n  actions:\n    - packages: [tuned]\n";
    write(folder.path(), "gantry_steps/site.yaml", step);
    let listed =
        seed_line(folder.path(), "gantry cluster create -i hosts.yaml --tags site --list-tasks");
    assert!(listed.out.contains("user.tuned\tTAGS: [site]\towns: package tuned"), "{}", listed.out);
    let text = seed_line(folder.path(), "gantry cluster explain user.tuned -i hosts.yaml");
    assert!(text.out.starts_with("step user.tuned: Tunes.\n"), "{} {}", text.out, text.err);
    write(folder.path(), "gantry_steps/bad.yaml", "- name: b\n  action: []\n");
    let run = seed_line(folder.path(), "gantry cluster create -i hosts.yaml --list-tasks");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("bad.yaml:2:3: unknown key `action`"), "{}", run.err);
}

#[test]
fn prv_3_the_inventory_that_init_prints_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for hosts in [&["gpu-0"][..], &["gpu-0", "10.0.0.2", "gpu-2"]] {
        let words: Vec<&str> =
            ["cluster", "init"].into_iter().chain(hosts.iter().copied()).collect();
        let made = gantry_with(&words, &[], "");
        assert_eq!((made.code, made.err.as_str()), (0, ""));
        write(folder.path(), "hosts.yaml", &made.out);
        let run = seed_line(folder.path(), "gantry cluster create -i hosts.yaml --list-hosts");
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", made.out);
        assert!(run.out.starts_with(&format!("  hosts ({}):", hosts.len())), "{}", run.out);
    }
    let wrong = gantry_with(&["cluster", "init", "a b"], &[], "");
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("is not a name"), "{}", wrong.err);
}
