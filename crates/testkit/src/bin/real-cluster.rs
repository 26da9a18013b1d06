//! Runs a real cluster for a person or a test.
//!
//! It prints one fact per line, then `ready`, and exits when its input ends (Ctrl-D) or by any
//! signal. Either way no process or file of the cluster remains.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use gantry_testkit::cluster::{Nodes, Plan, RealCluster, StartError};

const USAGE: &str = "usage: real-cluster [--controllers | --housekeeping] [--durable] \
                     [--nodes=N|real] [--api-server-flag=FLAG]...";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(plan) = plan(std::env::args().skip(1)) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    match Box::pin(run_until_input_ends(plan)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the arguments; nothing if they are invalid.
fn plan(arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = RealCluster::plan();
    for argument in arguments {
        plan = match argument.split_once('=') {
            None if argument == "--controllers" => plan.controllers(),
            None if argument == "--housekeeping" => plan.housekeeping(),
            None if argument == "--durable" => plan.durable(),
            Some(("--nodes", "real")) => plan.nodes(Nodes::Real),
            Some(("--nodes", count)) => plan.nodes(Nodes::Simulated(count.parse().ok()?)),
            Some(("--api-server-flag", flag)) => plan.api_server_flag(flag),
            None | Some(_) => return None,
        };
    }
    Some(plan)
}

async fn run_until_input_ends(plan: Plan) -> Result<(), StartError> {
    let cluster = plan.start().await?;
    // If the reader closes our output, the cluster keeps running all the same.
    let _ = print_connection(&cluster);
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

fn print_connection(cluster: &RealCluster) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, pid) in cluster.processes() {
        writeln!(out, "process {pid} {name}")?;
    }
    writeln!(out, "folder {}", cluster.folder().display())?;
    writeln!(out, "kubeconfig {}", cluster.admin().kubeconfig().display())?;
    writeln!(out, "took {:.1?}", cluster.took())?;
    writeln!(out, "ready")?;
    out.flush()
}
