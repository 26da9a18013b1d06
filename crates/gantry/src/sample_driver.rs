//! Wires a driver without hardware: its controllers in a shell of their own, and the file it follows.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_controller::{Actor, Handle, Meters, Options, Seat, Shell};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::Key;
use gantry_sim::device_driver::{Publication, Publisher, Reporter, Told};
use jiff::Timestamp;

/// How long a change of a file may go unnoticed.
const EVERY: Duration = Duration::from_secs(1);

/// Starts a driver. Its tasks belong to `tasks`; it is known by `name` beside other drivers, and owns
/// what it writes under the name of the driver.
///
/// # Errors
/// A mistake in the wiring.
pub fn start(
    client: kube::Client,
    name: &str,
    told: &Told,
    tasks: &mut Tasks,
    metrics: &Metrics,
) -> anyhow::Result<Handle> {
    let actor = Arc::new(Actor::new(client.clone(), &told.driver, &told.driver));
    let seats = vec![
        Seat::new(Arc::new(Publisher { name: name.to_owned() }), Arc::clone(&actor)),
        Seat::new(Arc::new(Reporter { driver: told.driver.clone() }), actor),
    ];
    let options = Options::default();
    let meters = Meters::register(metrics)?;
    let clock = tasks.clock().clone();
    let now = clock.now();
    let shell = Shell::new(clock, fastrand::Rng::new(), client, seats, options, meters)?;
    let handle = shell.handle();
    // Before anybody plans: what is not to be published is taken back.
    publish(&handle, told.publications.clone(), now);
    let inner = tasks.child();
    tasks.spawn("device driver", OnLoss::EndOwner, |_| async move { Ok(shell.run(inner).await?) });
    Ok(handle)
}

/// Makes these the facts, and no others.
fn publish(handle: &Handle, publications: Vec<Publication>, now: Timestamp) {
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

/// What a file says now, or why it cannot be used.
pub type Reading = Pin<Box<dyn Future<Output = anyhow::Result<Told>> + Send>>;

/// Reads a file again and again, and has the driver publish what it says then. One that cannot be
/// used changes nothing.
pub fn follow(
    handle: Handle,
    first: Told,
    mut read: impl FnMut() -> Reading + Send + 'static,
    tasks: &mut Tasks,
) {
    let clock: Clock = tasks.clock().clone();
    tasks.spawn("pools of the driver", OnLoss::EndOwner, move |stop| async move {
        let mut last = Ok::<Told, String>(first.clone());
        loop {
            tokio::select! {
                // Either may be dropped: they only wait.
                () = stop.cancelled() => return Ok(()),
                () = clock.sleep(EVERY) => {}
            }
            let found = read().await.map_err(|error| format!("{error:#}"));
            if found == last {
                continue;
            }
            match &found {
                Err(why) => tracing::warn!(why, "the file cannot be used; nothing changes"),
                Ok(told) if told.driver != first.driver => {
                    let (was, is) = (&first.driver, &told.driver);
                    tracing::warn!(was, is, "the file is about another driver; nothing changes");
                }
                Ok(told) => {
                    tracing::info!(objects = told.publications.len(), "the file has changed");
                    publish(&handle, told.publications.clone(), clock.now());
                }
            }
            last = found;
        }
    });
}
