//! What controllers are made of: client-go, over a server that is killed under it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use super::shell::{self, Shell};
use super::{say, toolchain};

/// Informers, elections, patches and applies work, and after a crash of the server in the middle
/// every cache holds what the store holds.
#[tokio::test]
async fn client_go_keeps_true_caches_over_a_crash() {
    let Some(program) = toolchain::go("clients", ".") else { return };
    let clock = Clock::system();
    let data = tempfile::tempdir().unwrap();
    let plan = || Plan::new(env!("CARGO_BIN_EXE_gantry")).data(data.path());
    let mut server = plan().start(&clock).await.unwrap();
    let port = server.target().base.rsplit(':').next().unwrap().parse().unwrap();
    let shell = Shell::new(server.kubeconfig());
    let began = clock.moment();
    let mut command = shell.command(program.to_str().unwrap());
    let kubeconfig: PathBuf = shell.home().join("kubeconfig");
    command.arg(kubeconfig).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = shell::Child::start(command);
    let mut lines = Vec::new();
    for line in BufReader::new(client.out()).lines() {
        let line = line.unwrap();
        if line == "restart" {
            // A dropped server is killed, not asked.
            drop(server);
            server = plan().port(port).start(&clock).await.unwrap();
        }
        lines.push(line);
    }
    let (code, complaints) = client.end();
    let lines = lines.join("\n");
    assert_eq!(code, Some(0), "{lines}\n{complaints}\n{}", server.tails());
    assert!(lines.contains("restart") && lines.ends_with("ok all"), "{lines}");
    say(&format!("client-go over a crash took {:.1?}", clock.moment() - began));
}
