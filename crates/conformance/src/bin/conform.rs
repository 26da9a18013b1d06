//! Runs the cases against one server, or against two and compares them.
//!
//!     conform KUBECONFIG [OTHER-KUBECONFIG] [--only PART-OF-A-NAME] [--controllers]
//!
//! With `--controllers` also those that want controllers and a short history.
//! The first server is the judge. Exit status 0: every case holds and nothing differs.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::{env, io};

use anyhow::{Context as _, bail};
use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Report, Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::http::{Target, install_provider};
use gantry_testkit::kubeconfig::read_target;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Arguments { targets, only, controllers } = Arguments::read(env::args().skip(1))?;
    install_provider();
    let controlled = cases::controlled().chain(cases::whole_cluster());
    let all = cases::all().chain(controlled.filter(|_| controllers));
    let cases: Vec<Case> = all.filter(|case| case.name.contains(&only)).collect();
    let clock = Clock::system();
    // Names of a run that was cut short must not stand in the way of the next.
    let number = clock.now().as_second();
    let mut reports: Vec<Report> = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let label = format!("{number:x}{index}");
        let settings = Settings { label: &label, clock: &clock };
        reports.push(run(&cases, target, settings).await?);
    }
    let mut out = io::stdout().lock();
    let mut good = true;
    for report in &reports {
        writeln!(out, "{report}")?;
        good &= report.all_passed();
    }
    if let [real, other] = reports.as_slice() {
        let differences = real.differences(other);
        differences.iter().try_for_each(|difference| writeln!(out, "{difference}"))?;
        writeln!(out, "{} differences", differences.len())?;
        good &= differences.is_empty();
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the command line says.
struct Arguments {
    targets: Vec<Target>,
    only: String,
    controllers: bool,
}

impl Arguments {
    /// Reads the words of the command line, and the kubeconfigs they name.
    fn read(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut targets, mut only, mut controllers) = (Vec::new(), String::new(), false);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--only" => only = words.next().context("--only needs a part of a case's name")?,
                "--controllers" => controllers = true,
                path => targets.push(read_target(Path::new(path))?),
            }
        }
        if !matches!(targets.len(), 1 | 2) {
            bail!("usage: conform KUBECONFIG [OTHER-KUBECONFIG] [--only PART] [--controllers]");
        }
        Ok(Self { targets, only, controllers })
    }
}
