//! `gantry devices sample-driver`: a driver without hardware.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_api::decode::{self, Document};
use gantry_controller::transport::to_cluster;
use gantry_process::clock::Clock;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::shutdown::{self, Signals};
use gantry_process::tasks::{self, Tasks};
use gantry_sim::device_driver::{Told, told};
use tokio_util::sync::CancellationToken;

use crate::cli::files::read;
use crate::cli::reach::Reach;
use crate::cli::{End, run_to_end};
use crate::output::Output;
use crate::sample_driver::{self, Reading};
use crate::version::VERSION;

/// Publish the pools of a file as a driver does, and keep them published.
///
/// It registers the driver, publishes its pools, and says of every device that a claim gets that it is
/// ready. What others change or remove is put right; when the file changes, so does what is published,
/// and a pool that is not in it any more is taken back as soon as nobody holds its devices. It owns its
/// fields under the name of the driver. What it published stays when it is stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices gen foozer-1000-small > pools.yaml
  gantry devices sample-driver --pools pools.yaml
  gantry devices sample-driver --pools pools.yaml --driver example.com-foozer --name rack-7

Exit codes:
  0  stopped by a signal
  1  the file cannot be used, or the cluster cannot be reached")]
pub(super) struct Arguments {
    /// DevicePools, and a DeviceDriver to register; without one the types of the pools are.
    #[arg(long, value_name = "FILE")]
    pools: PathBuf,

    /// The driver, if the file has pools of several.
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,

    /// What this driver is called beside others. Each takes back only what it published itself.
    #[arg(long, value_name = "NAME", default_value = "sample-driver")]
    name: String,

    #[command(flatten)]
    reach: Reach,
}

/// How long writes that are under way may take when it is told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long the cluster may take to show what it has.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    run_to_end(serve(arguments, output))
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    let Arguments { pools, driver, name, reach } = arguments;
    let first = read_pools(&pools, driver.as_deref(), Some(output))?;
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let client = to_cluster(reach.config().await?).context("could not make a client")?;
    let metrics = Metrics::new(&Build { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::Counters::register(&metrics)?;
    let clock = Clock::system();
    let mut tasks =
        Tasks::new(clock.clone(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let handle = sample_driver::start(client, &name, &first, &mut tasks, &metrics)?;
    let filled = tokio::select! {
        // Either may be dropped: they only wait.
        filled = clock.timeout(PATIENCE, handle.filled()) => Some(filled),
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before the start was done");
            None
        }
    };
    match filled {
        Some(Ok(())) => {}
        None => return Ok(End::Done),
        Some(Err(late)) => {
            let missing = handle.missing().into_iter().map(|it| {
                format!("{} ({})", it.resource, it.why.as_deref().unwrap_or("no answer yet"))
            });
            let missing: Vec<String> = missing.collect();
            return Err(late).with_context(|| format!("could not read {}", missing.join(", ")));
        }
    }
    let count = first.publications.len();
    output.note(format_args!("driver {} keeps {count} objects published", first.driver));
    output.finish()?;
    let (path, driver) = (Arc::new(pools), Arc::new(driver));
    let again = move || -> Reading {
        let (path, driver) = (Arc::clone(&path), Arc::clone(&driver));
        Box::pin(async move {
            let read = move || read_pools(&path, driver.as_deref(), None);
            tokio::task::spawn_blocking(read).await?
        })
    };
    sample_driver::follow(handle, first, again, &mut tasks);
    let ending = shutdown::run(&mut tasks, &mut signals, GRACE).await;
    for loss in &ending.lost {
        output.error(loss);
    }
    output.note("stopped; what was published stays");
    Ok(if ending.is_clean() { End::Done } else { End::Refused })
}

/// What a file tells the driver. What should be written differently is said the first time.
fn read_pools(
    path: &Path,
    driver: Option<&str>,
    output: Option<&mut Output>,
) -> anyhow::Result<Told> {
    let name = path.display();
    let documents = decode::documents(&read(path)?, decode::Options::default());
    let documents = documents.map_err(|error| {
        let at = error.at;
        anyhow::Error::new(error).context(format!("{name}:{at}"))
    })?;
    for Document { subject, errors, .. } in &documents {
        if let Some(error) = errors.first() {
            bail!("{name}:{}: {subject}: {}: {}", error.at, error.path, error.text);
        }
    }
    let mut warnings = Vec::new();
    for Document { index, warnings: found, .. } in &documents {
        warnings.extend(found.iter().map(|it| format!("{name}[{index}] {}: {}", it.path, it.text)));
    }
    let documents = documents.into_iter().map(|document| (document.subject, document.content));
    let told = told(documents, driver).with_context(|| format!("cannot use {name}"))?;
    if let Some(output) = output {
        for warning in warnings.iter().chain(&told.notes) {
            output.warning(warning);
        }
    }
    Ok(told)
}
