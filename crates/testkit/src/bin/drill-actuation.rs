//! Runs the drill of actuation and prints its progress; see `make drill-actuation`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::actuation_drill::{Plan, Size};
use gantry_testkit::crash::gantry_program;

const USAGE: &str =
    "usage: drill-actuation [--size full|small] [--kills N] [--seconds N] [--seed N] \
[--program PATH] [--folder DIR]

The program is the gantry beside this one unless it is named: build it first with
`cargo build --package gantry`. The folder must be empty; one that is named stays.";

#[tokio::main]
async fn main() -> ExitCode {
    let Some((plan, keep)) = plan(std::env::args().skip(1)) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    let print = Box::new(|line: &str| {
        // A closed standard output cannot be reported anywhere.
        let _ = writeln!(io::stdout(), "{line}");
    });
    let ended = Box::pin(plan.run(&Clock::system(), print)).await;
    if !keep {
        // A failed removal leaves files in the temporary folder, which nothing uses any more.
        let _ = std::fs::remove_dir_all(&plan.folder);
    }
    match ended {
        Ok(report) => {
            let _ = writeln!(io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the arguments into the plan and whether the folder is kept; nothing if they are invalid.
fn plan(mut arguments: impl Iterator<Item = String>) -> Option<(Plan, bool)> {
    let seed = fastrand::u64(..);
    let program = gantry_program(&std::env::current_exe().ok()?);
    let mut folder: Option<PathBuf> = None;
    let mut plan = Plan { program, folder: PathBuf::new(), size: Size::full(), seed };
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match (name.as_str(), value.as_str()) {
            ("--size", "full") => plan.size = Size::full(),
            ("--size", "small") => plan.size = Size::small(),
            ("--kills", _) => plan.size.kills = value.parse().ok()?,
            ("--seconds", _) => plan.size.time = Duration::from_secs(value.parse().ok()?),
            ("--seed", _) => plan.seed = value.parse().ok()?,
            ("--program", _) => plan.program = value.into(),
            ("--folder", _) => folder = Some(value.into()),
            _ => return None,
        }
    }
    let keep = folder.is_some();
    plan.folder = folder
        .unwrap_or_else(|| std::env::temp_dir().join(format!("gantry-actuation-drill-{seed}")));
    Some((plan, keep))
}
