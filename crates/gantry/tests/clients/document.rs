//! The tour for users, command by command.

use std::fs;
use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use super::shell::Shell;

/// Runs the fenced blocks of the document in one shell that stops at the first failure.
#[tokio::test]
async fn every_command_of_the_tour_works() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.md");
    let document = fs::read_to_string(document).unwrap();
    let blocks: Vec<&str> =
        document.split("```sh\n").skip(1).map(|block| block.split_once("```").unwrap().0).collect();
    assert!(blocks.len() >= 5, "{blocks:?}");
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    fs::create_dir(shell.home().join("gantry")).unwrap();
    fs::copy(server.kubeconfig(), shell.home().join("gantry/kubeconfig")).unwrap();
    let outcome = shell.run(&format!("set -eux\n{}", blocks.concat()));
    assert_eq!(outcome.code, Some(0), "{}\n{}", outcome.out, outcome.err);
    assert!(outcome.out.contains("mode: slow"), "{}", outcome.out);
    assert!(outcome.err.contains("No resources found in demo namespace"), "{}", outcome.err);
}
