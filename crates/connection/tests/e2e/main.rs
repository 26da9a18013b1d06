//! Connections to real hosts: sshd and sudo of Debian, in containers. `testbed/hosts` makes what
//! they boot.
//!
//! A test has its own hosts. Where they cannot run it prints `skipped:` and why.

#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod failures;
mod secrets;
mod speed;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gantry_connection::{
    Become, Connection, ControlFolder, Request, Secret, Settings, SshTarget, Target, Transport,
};
use gantry_process::clock::Clock;
use gantry_testkit::hosts::{TestHost, TestHosts, USER};

/// The hosts of a test; none if they cannot run here.
async fn hosts(test: &str, count: usize) -> Option<TestHosts> {
    match TestHosts::start(count).await {
        Ok(hosts) => {
            print_line(&format!("{test}: {count} hosts took {:.1?}", hosts.took()));
            Some(hosts)
        }
        Err(error) if error.is_requirement() => {
            print_line(&format!("skipped: {test}: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Prints a line for the user, bypassing the harness, which captures what a passing test prints.
fn print_line(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// How ssh reaches a host.
fn target(hosts: &TestHosts, host: &TestHost) -> SshTarget {
    SshTarget {
        host: host.address.to_string(),
        user: Some(USER.to_owned()),
        key_file: Some(hosts.key().display().to_string()),
        arguments: vec![hosts.known_hosts_argument()],
        connect_timeout: Duration::from_secs(10),
        ..SshTarget::default()
    }
}

fn connection(hosts: &TestHosts, target: SshTarget) -> Connection {
    let mut random = fastrand::Rng::new();
    let control_folder = ControlFolder::create(&["/tmp".into()], &mut random).unwrap();
    let settings = Settings {
        environment: [
            ("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            // There is no configuration of a user.
            ("HOME".to_owned(), hosts.folder().display().to_string()),
        ]
        .into(),
        control_folder: Arc::new(control_folder),
        clock: Clock::system(),
    };
    let target = Target { name: target.host.clone(), transport: Transport::Ssh(target) };
    Connection::new(target, settings, random).unwrap()
}

fn request(words: &[&str]) -> Request<'static> {
    Request { words: words.iter().map(|it| (*it).to_owned()).collect(), ..Request::default() }
}

fn root(password: Option<&str>) -> Become {
    let password = password.map(|it| Secret::new(it.as_bytes().to_vec().into()));
    Become { user: "root".to_owned(), password }
}
