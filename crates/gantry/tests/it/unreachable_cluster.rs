//! Commands that ask a cluster, when there is none to be asked.

use crate::gantry;

/// A kubeconfig that leads to a server, in a folder that goes with the first value.
fn kubeconfig(server: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "contexts": [{ "name": "here", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "token": "t" } }],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

const COMMANDS: [&[&str]; 3] = [&["status"], &["node", "kill", "a"], &["node", "add", "a"]];

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent").display().to_string();
    let (_folder, broken) = kubeconfig("https://127.0.0.1:1");
    std::fs::write(&broken, "clusters: [").unwrap();
    for path in [&absent, &broken] {
        for command in COMMANDS {
            let run = gantry(&[command, &["--kubeconfig", path]].concat());
            assert_eq!((run.code, run.out.as_str()), (1, ""), "{command:?}");
            let expected = format!("error: cannot use kubeconfig {path}: ");
            assert!(run.err.contains(&expected), "{command:?}: {}", run.err);
        }
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_with_the_context_that_leads_there() {
    // Nothing listens there, and nothing that is not root can.
    let (_folder, path) = kubeconfig("https://127.0.0.1:1");
    for command in COMMANDS {
        let run = gantry(&[command, &["--kubeconfig", &path]].concat());
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{command:?}");
        let expected = format!(
            "error: could not connect to https://127.0.0.1:1 (context here of {path}); start a \
             cluster with `gantry up`, or use --kubeconfig: "
        );
        assert!(run.err.contains(&expected), "{command:?}: {}", run.err);
    }
}
