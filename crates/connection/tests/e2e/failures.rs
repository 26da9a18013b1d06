//! The failures of ssh and sudo, as real ones print them.

use std::process::Command;

use super::*;

/// Prepares users: `asked` for a password by sudo, `stranger` to sudo, `typist` who needs a
/// terminal, and `shellless`. All have the key of the first user.
const USERS: &str = "set -e; for user in asked stranger typist; do \
    sudo useradd -m -s /bin/bash $user; \
    echo $user:right | sudo chpasswd; \
    sudo cp /etc/ssh/authorized_keys.d/ops /etc/ssh/authorized_keys.d/$user; done; \
    sudo useradd -m -s /usr/sbin/nologin shellless; \
    sudo cp /etc/ssh/authorized_keys.d/ops /etc/ssh/authorized_keys.d/shellless; \
    printf 'asked ALL=(ALL) ALL\\ntypist ALL=(ALL) ALL\\nDefaults:typist requiretty\\n' | \
    sudo tee /etc/sudoers.d/tests >/dev/null; sudo chmod 0440 /etc/sudoers.d/tests; \
    echo 'echo Welcome to the machine; echo warned >&2' | sudo tee /home/asked/.bashrc";

#[tokio::test]
async fn pvs_4_every_failure_of_ssh_has_its_own_message() {
    let Some(hosts) = hosts("failures of ssh", 1).await else { return };
    let host = &hosts.hosts()[0];
    hosts.prepare(host, USERS).unwrap();
    let good = || target(&hosts, host);
    let other_key = hosts.folder().join("other");
    let keygen = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&other_key)
        .status();
    assert!(keygen.unwrap().success());
    let write = |name: &str, text: &str| {
        let path = hosts.folder().join(name);
        std::fs::write(&path, text).unwrap();
        vec![format!("-oUserKnownHostsFile={}", path.display())]
    };
    let unknown = write("no-known-hosts", "");
    let public = std::fs::read_to_string(other_key.with_extension("pub")).unwrap();
    let changed = write("changed-known-hosts", &format!("{} {public}", host.address));
    // Nobody has this address of the network, so nobody answers for it.
    let [one, two, three, _] = host.address.octets();
    let absent = format!("{one}.{two}.{three}.250");
    // Packets to this port are dropped.
    hosts.prepare(host, "sudo iptables -A INPUT -p tcp --dport 2222 -j DROP").unwrap();
    let table = [
        (
            "NameNotResolved",
            SshTarget { host: "host.invalid".to_owned(), ..good() },
            "Could not resolve hostname",
        ),
        ("NoRoute", SshTarget { host: absent, ..good() }, "No route to host"),
        ("ConnectionRefused", SshTarget { port: Some(2223), ..good() }, "Connection refused"),
        (
            "ConnectTimedOut",
            SshTarget { port: Some(2222), connect_timeout: Duration::from_secs(1), ..good() },
            "timed out",
        ),
        (
            "HostKeyUnknown",
            SshTarget { arguments: unknown, ..good() },
            "you have requested strict checking",
        ),
        (
            "HostKeyChanged",
            SshTarget { arguments: changed, ..good() },
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
        ),
        (
            "PermissionDenied",
            SshTarget { key_file: Some(other_key.display().to_string()), ..good() },
            "Permission denied (publickey",
        ),
        (
            "KeyFileUnusable",
            SshTarget { key_file: Some("/missing/key".to_owned()), ..good() },
            "not accessible: No such file",
        ),
        (
            "WrongConfiguration",
            SshTarget { arguments: vec!["-oControlPat=x".to_owned()], ..good() },
            "Bad configuration option",
        ),
        (
            "ProxyFailed",
            SshTarget { arguments: vec!["-oProxyCommand=false".to_owned()], ..good() },
            "UNKNOWN port 65535",
        ),
        (
            "NoShell",
            SshTarget { user: Some("shellless".to_owned()), ..good() },
            "This account is currently not available",
        ),
    ];
    let mut steps = std::collections::BTreeSet::new();
    for (reason, wrong, words) in table {
        let connection = connection(&hosts, wrong);
        let error = connection.run(&request(&["true"])).await.unwrap_err();
        assert_eq!((error.reason(), error.exit_code()), (reason, 4), "{error}");
        assert!(error.to_string().contains(words), "{reason}: {error}");
        assert!(steps.insert(error.next_step()), "{reason} has a next step of its own");
        // The line that is shown fails with the same words when it is pasted.
        let pasted = Command::new("sh")
            .args(["-c", error.line().unwrap()])
            .env("LC_ALL", "C")
            .env("HOME", hosts.folder())
            .output()
            .unwrap();
        let said = [&pasted.stdout[..], &pasted.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(words) && !pasted.status.success(), "{reason}: {said}");
        print_line(&format!("{reason}: exit {}: {}", error.exit_code(), error.next_step()));
    }
    let works = connection(&hosts, good());
    assert_eq!(works.run(&request(&["id", "-un"])).await.unwrap().stdout, b"ops\n");
    // The host goes away while a command runs.
    let words = ["sh", "-c", "echo begun; sudo sh -c 'kill -9 $(pgrep -f ^sshd:)'; sleep 600"];
    let error = works.run(&request(&words)).await.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("ConnectionLost", 4), "{error}");
    works.close().await;
}

#[tokio::test]
async fn pvs_4_every_failure_of_sudo_has_its_own_message() {
    let Some(hosts) = hosts("failures of sudo", 1).await else { return };
    let host = &hosts.hosts()[0];
    hosts.prepare(host, USERS).unwrap();
    let user = |user: &str| {
        connection(&hosts, SshTarget { user: Some(user.to_owned()), ..target(&hosts, host) })
    };
    let unknown = Become { user: "nobody-here".to_owned(), password: None };
    let table = [
        ("SudoPasswordRequired", "asked", root(None), "a password is required"),
        ("SudoWrongPassword", "asked", root(Some("wrong")), "Sorry, try again"),
        ("SudoNotAllowed", "stranger", root(Some("right")), "is not in the sudoers file"),
        ("SudoTerminalRequired", "typist", root(Some("right")), "you must have a tty"),
        ("SudoUnknownUser", "ops", unknown, "unknown user"),
    ];
    let mut steps = std::collections::BTreeSet::new();
    for (reason, name, wanted, words) in table {
        let connection = user(name);
        let request = Request { r#become: Some(&wanted), ..request(&["id", "-un"]) };
        let error = connection.run(&request).await.unwrap_err();
        assert_eq!((error.reason(), error.exit_code()), (reason, 2), "{error}");
        assert!(error.to_string().contains(words), "{reason}: {error}");
        assert!(steps.insert(error.next_step()), "{reason} has a next step of its own");
        print_line(&format!("{reason}: exit {}: {}", error.exit_code(), error.next_step()));
        connection.close().await;
    }
    hosts.prepare(host, "sudo chage -E 1 asked").unwrap();
    let expired = user("asked");
    let error = expired.run(&request(&["true"])).await.unwrap_err();
    assert_eq!(error.exit_code(), 4, "{error}");
    hosts.prepare(host, "sudo chage -E -1 asked").unwrap();
    // What works: with a password and without, with input, and with a greeting of the login shell.
    for (name, wanted) in
        [("asked", root(Some("right"))), ("ops", root(None)), ("ops", root(Some("x")))]
    {
        let connection = user(name);
        let request =
            Request { r#become: Some(&wanted), ..request(&["sh", "-c", "id -un; cat; exit 3"]) };
        let result = connection.transfer(&request, &mut &b"input"[..], None).await.unwrap();
        assert_eq!((result.code, &result.stdout[..]), (3, &b"root\ninput"[..]), "{name}");
        assert_eq!(result.stderr, "", "{name}");
        let greets = result.preamble.contains("Welcome to the machine\n")
            && result.preamble.contains("warned\n");
        assert_eq!(greets, name == "asked", "{:?}", result.preamble);
        connection.close().await;
    }
}
