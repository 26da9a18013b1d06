//! Starts a driver without hardware: its controllers in a manager of their own, and the file it
//! follows.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_controller::{
    Actor, ControllerManager, ControllerMetrics, ManagerHandle, ManagerOptions, Registration,
};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::Key;
use gantry_sim::device_driver::{DeviceStatusReporter, DriverConfig, Publication, Publisher};
use jiff::Timestamp;

/// How often the file is read.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Starts a driver. Its tasks belong to `tasks`; `name` distinguishes it from other drivers, and it
/// owns what it writes under the name of the driver.
///
/// # Errors
/// A mistake in the wiring.
pub fn start(
    client: kube::Client,
    name: &str,
    config: &DriverConfig,
    tasks: &mut Tasks,
    metrics: &Metrics,
) -> anyhow::Result<ManagerHandle> {
    let actor = Arc::new(Actor::new(client.clone(), &config.driver, &config.driver));
    let registrations = vec![
        Registration::new(Arc::new(Publisher { name: name.to_owned() }), Arc::clone(&actor)),
        Registration::new(Arc::new(DeviceStatusReporter { driver: config.driver.clone() }), actor),
    ];
    let options = ManagerOptions::default();
    let meters = ControllerMetrics::register(metrics)?;
    let clock = tasks.clock().clone();
    let now = clock.now();
    let shell = ControllerManager::new(
        clock,
        fastrand::Rng::new(),
        client,
        registrations,
        options,
        meters,
    )?;
    let handle = shell.handle();
    // Set before the first reconcile: published objects that are not in the file are deleted.
    publish(&handle, config.publications.clone(), now);
    let inner = tasks.child();
    tasks.spawn("device driver", OnLoss::EndOwner, |_| async move { Ok(shell.run(inner).await?) });
    Ok(handle)
}

/// Sets the publications, and removes all others.
fn publish(handle: &ManagerHandle, publications: Vec<Publication>, now: Timestamp) {
    let facts = handle.world().facts::<Publication>();
    let wanted: BTreeSet<&Key> = publications.iter().map(|it| &it.key).collect();
    for (key, _) in facts.all().iter().filter(|(key, _)| !wanted.contains(key)) {
        handle.forget::<Publication>(key);
    }
    for publication in publications {
        let known = facts.observed(&publication.key);
        if known.is_none_or(|it| it.value != publication) {
            handle.record(publication.key.clone(), publication, now);
        }
    }
}

/// The configuration of a file, or why it cannot be used.
pub type DriverFileFuture = Pin<Box<dyn Future<Output = anyhow::Result<DriverConfig>> + Send>>;

/// Reads a file periodically, and updates what the driver publishes. An invalid file changes
/// nothing.
pub fn follow_file(
    handle: ManagerHandle,
    first: DriverConfig,
    mut read: impl FnMut() -> DriverFileFuture + Send + 'static,
    tasks: &mut Tasks,
) {
    let clock: Clock = tasks.clock().clone();
    tasks.spawn("pools of the driver", OnLoss::EndOwner, move |stop| async move {
        let mut last = Ok::<DriverConfig, String>(first.clone());
        loop {
            tokio::select! {
                // Either future may be dropped: they only wait.
                () = stop.cancelled() => return Ok(()),
                () = clock.sleep(FILE_POLL_INTERVAL) => {}
            }
            let found = read().await.map_err(|error| format!("{error:#}"));
            if found == last {
                continue;
            }
            match &found {
                Err(why) => tracing::warn!(why, "the file cannot be used; nothing changes"),
                Ok(config) if config.driver != first.driver => {
                    let (was, is) = (&first.driver, &config.driver);
                    tracing::warn!(was, is, "the file is about another driver; nothing changes");
                }
                Ok(config) => {
                    tracing::info!(objects = config.publications.len(), "the file has changed");
                    publish(&handle, config.publications.clone(), clock.now());
                }
            }
            last = found;
        }
    });
}
