//! `gantry up --merge-kubeconfig`: the context joins the kubeconfig its user already has.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A cluster that goes with the test.
struct UpProcess(Child);

impl Drop for UpProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a cluster and waits until it has merged the context; gives what it said until then.
fn merge(home: &Path, kubeconfig: Option<&str>, flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command.args(["up", "--ephemeral", "--port", "0"]).args(flags);
    command
        .env("HOME", home)
        .env_remove("KUBECONFIG")
        .envs(kubeconfig.map(|it| ("KUBECONFIG", it)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut up = UpProcess(command.spawn().unwrap());
    let mut said = String::new();
    for line in BufReader::new(up.0.stderr.take().unwrap()).lines() {
        said.push_str(&line.unwrap());
        said.push('\n');
        if said.contains("is the current one in") {
            break;
        }
    }
    assert!(said.contains("is the current one in"), "it ended:\n{said}");
    said
}

fn contexts(file: &Path) -> Vec<String> {
    let read = kube::config::Kubeconfig::read_from(file).unwrap();
    assert_eq!(read.current_context.as_deref(), Some("gantry"));
    read.contexts.into_iter().map(|it| it.name).collect()
}

#[test]
fn without_a_value_it_is_the_kubeconfig_that_kubectl_reads() {
    let home = tempfile::tempdir().unwrap();
    merge(home.path(), None, &["--merge-kubeconfig"]);
    assert_eq!(contexts(&home.path().join(".kube/config")), ["gantry"]);

    // The first that KUBECONFIG names; here a link, which stays one. The flag need not be the last.
    let (target, link) = (home.path().join("mine"), home.path().join("link"));
    fs::write(&target, "kind: Config\ncontexts: [{name: work, context: {cluster: c}}]\n").unwrap();
    std::os::unix::fs::symlink("mine", &link).unwrap();
    let list = format!(":{}:{}", link.display(), home.path().join("other").display());
    let said = merge(home.path(), Some(&list), &["--merge-kubeconfig", "--no-queue"]);
    assert!(said.contains(&format!("is the current one in {}", link.display())), "{said}");
    assert_eq!(contexts(&target), ["work", "gantry"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!home.path().join("other").exists());

    // A value is taken with a space or an equals sign.
    for (name, flags) in
        [("a", ["--merge-kubeconfig", "FILE"]), ("b", ["--merge-kubeconfig=FILE", "-v0"])]
    {
        let file = home.path().join(name);
        let flags = flags.map(|it| it.replace("FILE", &file.display().to_string()));
        merge(home.path(), None, &flags.each_ref().map(String::as_str));
        assert_eq!(contexts(&file), ["gantry"]);
    }
}

/// One page is free: enough for the copy of the file as it was, not for the file with the context.
const FULL_DISK_SCRIPT: &str = r#"
mount -t tmpfs -o size=64k,mode=700 none "$0" && cd "$0" && printf 'kind: Config\n# mine\n' >config &&
head -c 57344 /dev/zero >ballast || exit 77
"$1" up --ephemeral --port 0 --merge-kubeconfig config 2>&1
echo "code $?"; cat config; ls -A
"#;

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", FULL_DISK_SCRIPT]).arg(folder.path());
    let Ok(output) = command.arg(env!("CARGO_BIN_EXE_gantry")).output() else {
        println!("skipped: this system has no unshare");
        return;
    };
    if !output.stdout.windows(5).any(|it| it == b"code ") {
        println!("skipped: this system lets nobody but root mount a small file system");
        return;
    }
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("could not add a context to config: could not write config"), "{said}");
    let end = "code 1\nkind: Config\n# mine\nballast\nconfig\nconfig.before-gantry\n";
    assert!(said.ends_with(end), "{said}");
}
