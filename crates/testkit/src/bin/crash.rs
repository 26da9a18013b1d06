//! Runs the crash test with many more kills than CI has time for.

use std::io::{self, Write as _};
use std::process::ExitCode;

use gantry_process::clock::Clock;
use gantry_testkit::crash::{Plan, gantry_program};

const USAGE: &str = "usage: crash [--kills N] [--seed N] [--program PATH] [--data DIR]

The program is the gantry beside this one unless it is named: build it first with
`cargo build --package gantry`. The data directory must be empty, and stays.";

#[tokio::main]
async fn main() -> ExitCode {
    let Some(plan) = plan(std::env::args().skip(1)) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    let _ = writeln!(io::stderr(), "seed {}, data in {}", plan.seed, plan.data.display());
    match Box::pin(plan.run(&Clock::system())).await {
        Ok(report) => {
            let _ = writeln!(io::stdout(), "{report:#?}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            let _ = writeln!(io::stderr(), "{fault}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the arguments; nothing if they are invalid.
fn plan(mut arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let seed = fastrand::u64(..);
    let mut plan = Plan {
        program: gantry_program(&std::env::current_exe().ok()?),
        data: std::env::temp_dir().join(format!("gantry-crash-{seed}")),
        kills: 200,
        seed,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--kills" => plan.kills = value.parse().ok()?,
            "--seed" => plan.seed = value.parse().ok()?,
            "--program" => plan.program = value.into(),
            "--data" => plan.data = value.into(),
            _ => return None,
        }
    }
    Some(plan)
}
