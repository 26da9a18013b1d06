//! Measures a watch fan-out with one writer and many watchers: events delivered per second, and
//! their latency.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Request, Stream, Target};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::sample::{Samples, Summary};
use crate::workload::{config_map, create};

/// How long the last events may take to arrive before they count as lost.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The values of the object before the first write and after the last.
const FIRST_VALUE: &str = "before";
const LAST_VALUE: &str = "end";

/// The result of a fan-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Events delivered per second, over all watchers.
    pub(crate) deliveries: f64,
    /// Events written per second.
    pub(crate) writes: f64,
    /// Latency from the moment a write was sent to its arrival at each watcher.
    pub(crate) delays: Summary,
}

/// Writes for `time` while `watchers` watch, and waits for the last event at each of them.
pub(crate) async fn measure(
    target: &Target,
    namespace: &str,
    watchers: usize,
    time: Duration,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Outcome> {
    let writer = Client::new(target, Protocol::Http2, clock.clone())?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    create(&writer, &maps, &config_map("fan", FIRST_VALUE)).await?;
    let zero = clock.moment();

    let (done, mut results) = mpsc::channel(watchers);
    for index in 0..watchers {
        // A connection each, as informers in different processes have.
        let client =
            Client::new(target, Protocol::Http2, clock.clone())?.with_timeout(DELIVERY_TIMEOUT);
        let path =
            format!("{maps}?watch=true&fieldSelector=metadata.name%3Dfan&timeoutSeconds=600");
        let stream = client.open(Request::get(path)).await.context("could not watch")?;
        ensure!(stream.status.is_success(), "watch: {}", stream.status);
        let (done, clock) = (done.clone(), clock.clone());
        tasks.spawn(format!("watcher {index}"), OnLoss::EndOwner, move |_| async move {
            let _connection = client;
            let samples = receive(stream, &clock, zero).await?;
            done.send(samples).await.map_err(Into::into)
        });
    }
    drop(done);

    let start = clock.moment();
    let mut writes = 0_u64;
    while clock.moment() - start < time {
        write(&writer, &maps, &(clock.moment() - zero).as_nanos().to_string()).await?;
        writes += 1;
    }
    let wrote_for = clock.moment() - start;
    write(&writer, &maps, LAST_VALUE).await?;
    let mut all = Samples::default();
    while let Some(samples) = results.recv().await {
        all.merge(samples);
    }
    let took = clock.moment() - start;
    tasks.join().await?;
    let delays = all.summary();
    #[expect(clippy::cast_precision_loss, reason = "counts of events are far below 2^52")]
    let (writes, deliveries) = (writes as f64, delays.count as f64);
    Ok(Outcome {
        deliveries: deliveries / took.as_secs_f64(),
        writes: writes / wrote_for.as_secs_f64(),
        delays,
    })
}

async fn write(writer: &Client, maps: &str, n: &str) -> anyhow::Result<()> {
    let patch = serde_json::json!({"data": {"n": n}});
    let request = Request::patch(format!("{maps}/fan"), "application/merge-patch+json", &patch);
    let answer = writer.send(request).await?;
    ensure!(answer.status.is_success(), "patch: {}: {}", answer.status, answer.text());
    Ok(())
}

/// Reads events until the writer's final value. Each event carries the time it was sent, in
/// nanoseconds from `zero`.
async fn receive(mut stream: Stream, clock: &Clock, zero: Moment) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    loop {
        let line = stream.next_line(DELIVERY_TIMEOUT).await?.context("the watch ended early")?;
        let event: Value = serde_json::from_slice(&line)?;
        match event["object"]["data"]["n"].as_str().unwrap_or_default() {
            LAST_VALUE => return Ok(samples),
            FIRST_VALUE => {}
            sent => {
                let sent = Duration::from_nanos(sent.parse()?);
                samples.add((clock.moment() - zero).saturating_sub(sent));
            }
        }
    }
}
