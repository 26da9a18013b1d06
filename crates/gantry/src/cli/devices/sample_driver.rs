//! `gantry devices sample-driver`: runs a device driver without hardware.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_api::decode::{self, Document};
use gantry_controller::transport::to_cluster;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::{self, Signals};
use gantry_process::tasks::{self, Tasks};
use gantry_sim::device_driver::{DriverConfig, driver_config};
use tokio_util::sync::CancellationToken;

use crate::cli::cluster_client::ClusterFlags;
use crate::cli::files::read;
use crate::cli::{CommandOutcome, run_to_end};
use crate::output::Output;
use crate::sample_driver::{self, DriverFileFuture};
use crate::version::VERSION;

/// Publish the pools of a file as a driver does, and keep them published.
///
/// It registers the driver, publishes its pools, and reports every device that is allocated to a
/// claim as ready. Changes and deletions by other clients are reverted. When the file changes, the
/// published objects follow; a pool that is no longer in the file is deleted as soon as none of its
/// devices is allocated. It owns its fields under the name of the driver. Published objects stay
/// when it stops.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices gen foozer-1000-small > pools.yaml
  gantry devices sample-driver --pools pools.yaml
  gantry devices sample-driver --pools pools.yaml --driver example.com-foozer --name rack-7

Exit codes:
  0  stopped by a signal
  1  the file cannot be used, or the cluster cannot be reached")]
pub(super) struct Arguments {
    /// DevicePools, and optionally a DeviceDriver to register; without one the types of the pools
    /// are registered.
    #[arg(long, value_name = "FILE")]
    pools: PathBuf,

    /// The driver, if the file has pools of several drivers.
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,

    /// The name of this instance among several. Each instance deletes only what it published.
    #[arg(long, value_name = "NAME", default_value = "sample-driver")]
    name: String,

    #[command(flatten)]
    reach: ClusterFlags,
}

/// How long writes in progress may take when the driver stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the caches may take to sync.
const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    run_to_end(serve(arguments, output))
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Arguments { pools, driver, name, reach } = arguments;
    let first = read_pools(&pools, driver.as_deref(), Some(output))?;
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let client = to_cluster(reach.config().await?).context("could not create a client")?;
    let metrics = Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::TaskMetrics::register(&metrics)?;
    let clock = Clock::system();
    let mut tasks =
        Tasks::new(clock.clone(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let handle = sample_driver::start(client, &name, &first, &mut tasks, &metrics)?;
    let filled = tokio::select! {
        // Either future may be dropped: they only wait.
        filled = clock.timeout(CACHE_SYNC_TIMEOUT, handle.wait_for_cache_sync()) => Some(filled),
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the start was complete");
            None
        }
    };
    match filled {
        Some(Ok(())) => {}
        None => return Ok(CommandOutcome::Success),
        Some(Err(late)) => {
            let missing = handle.unsynced_kinds().into_iter().map(|it| {
                format!("{} ({})", it.resource, it.why.as_deref().unwrap_or("no response yet"))
            });
            let missing: Vec<String> = missing.collect();
            return Err(late).with_context(|| format!("could not read {}", missing.join(", ")));
        }
    }
    let count = first.publications.len();
    output.note(format_args!("driver {} publishes {count} objects", first.driver));
    output.finish()?;
    let (path, driver) = (Arc::new(pools), Arc::new(driver));
    let again = move || -> DriverFileFuture {
        let (path, driver) = (Arc::clone(&path), Arc::clone(&driver));
        Box::pin(async move {
            let read = move || read_pools(&path, driver.as_deref(), None);
            tokio::task::spawn_blocking(read).await?
        })
    };
    sample_driver::follow_file(handle, first, again, &mut tasks);
    let ending = shutdown::run(&mut tasks, &mut signals, SHUTDOWN_TIMEOUT).await;
    for loss in &ending.lost {
        output.error(loss);
    }
    output.note("stopped; the published objects stay");
    Ok(if ending.is_clean() { CommandOutcome::Success } else { CommandOutcome::Failure })
}

/// Loads the driver's configuration from its file. Warnings about the file are printed the first
/// time.
fn read_pools(
    path: &Path,
    driver: Option<&str>,
    output: Option<&mut Output>,
) -> anyhow::Result<DriverConfig> {
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
    let config = driver_config(documents, driver).with_context(|| format!("cannot use {name}"))?;
    if let Some(output) = output {
        for warning in warnings.iter().chain(&config.notes) {
            output.warning(warning);
        }
    }
    Ok(config)
}
