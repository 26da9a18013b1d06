//! The Python client, typed and dynamic.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use super::shell::Shell;
use super::{say, toolchain};

#[tokio::test]
async fn the_python_client_finds_what_it_knows() {
    let Some(packages) = toolchain::python("clients/python/requirements.txt") else { return };
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    shell.link("clients", "../../testbed/clients/python");
    let began = clock.moment();
    let python = toolchain::which("python3");
    let output = shell
        .command(python.to_str().unwrap())
        .args(["-B", "clients/clients.py"])
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && text.ends_with("ok all\n"), "{text}\n{}", server.tails());
    say(&format!("the Python client took {:.1?}", clock.moment() - began));
}
