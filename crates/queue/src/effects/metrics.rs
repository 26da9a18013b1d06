//! The metrics of the queue.
//!
//! What happened is derived from the written statuses, by the leader: each step is counted once
//! across all processes. The current state is counted again when something has changed, once a
//! second at most.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_api::quantity::Quantity;
use gantry_api::queue::{AppWrapperState, QuotaSubtreeStatus};
use gantry_controller::ManagerHandle;
use gantry_process::clock::Clock;
use gantry_process::metrics::{Buckets, Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Kind, Observer, View as _, World};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor as _};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde::Deserialize as _;
use tokio::sync::Notify;

use crate::amounts::{Amounts, GPU};
use crate::app_wrapper::AppWrapper;
use crate::pod_counts::reports_excess;
use crate::queue_events::{QueueEvent, between};
use crate::quota::Subtree;
use crate::settings::LiveSettings;

/// How often the current state is counted at most.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// From an idle cluster to a week in a long queue.
const WAIT_BUCKETS: Buckets = Buckets(&[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0,
    86_400.0, 604_800.0,
]);

/// Counts what happens to AppWrappers.
#[derive(Debug)]
pub struct QueueMetrics {
    handle: OnceLock<ManagerHandle>,
    changed: Notify,
    states: Family<StateLabels, Gauge>,
    reserved: Family<ResourceLabels, Gauge>,
    settings: LiveSettings,
    understated: Gauge,
    exceeding: Gauge,
    quota: Family<QuotaNodeLabels, Gauge>,
    evaluations: Family<ResultLabels, Counter>,
    backoffs: Family<ReasonLabels, Counter>,
    preemptions: Family<ReasonLabels, Counter>,
    requeuings: Counter,
    waits: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct QuotaNodeLabels {
    tree: String,
    node: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

impl QueueMetrics {
    /// Registers the metrics of a queue with these settings.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn register(metrics: &Metrics, settings: LiveSettings) -> Result<Self, RegisterError> {
        Ok(Self {
            handle: OnceLock::new(),
            settings,
            understated: metrics.register(
                "queue_demand_understated",
                "AppWrappers that hold a reservation and are charged less than their templates ask \
                 for",
                Gauge::default(),
            )?,
            exceeding: metrics.register(
                "queue_demand_exceeded",
                "AppWrappers whose running pods request more than was admitted",
                Gauge::default(),
            )?,
            changed: Notify::new(),
            states: metrics.gauges("queue_appwrappers", "AppWrappers, by state")?,
            reserved: metrics.gauges(
                "queue_reserved",
                "Demand of admitted AppWrappers: thousandths of a cpu, bytes, or pieces",
            )?,
            quota: metrics.gauges(
                "queue_quota_used",
                "Quota allocated by nodes of quota trees: thousandths of a cpu, bytes, or pieces",
            )?,
            evaluations: metrics
                .counters("queue_evaluations", "Reported evaluations, by result")?,
            backoffs: metrics.counters("queue_backoffs", "Backoffs, by reason")?,
            preemptions: metrics
                .counters("queue_preemptions", "Evictions and preemptions, by reason")?,
            requeuings: metrics.register(
                "queue_requeuings",
                "Times that too few pods of an AppWrapper came up in time",
                Counter::default(),
            )?,
            waits: metrics.register(
                "queue_dispatch_seconds",
                "Time from when an AppWrapper was first seen until all its items existed",
                WAIT_BUCKETS.new_metric(),
            )?,
        })
    }

    fn count_event(&self, news: QueueEvent) {
        match news {
            QueueEvent::Admitted => self.evaluated("passed"),
            QueueEvent::BackedOff(reason) => {
                self.evaluated(&reason);
                self.backoffs.get_or_create(&ReasonLabels { reason }).inc();
            }
            QueueEvent::BackedOffAfterEviction => {
                let reason = "PreemptionTriggered".to_owned();
                self.backoffs.get_or_create(&ReasonLabels { reason }).inc();
            }
            QueueEvent::Dispatched(waited) => self.waits.observe(waited.as_secs_f64()),
            QueueEvent::Evicted(reason) => {
                self.preemptions.get_or_create(&ReasonLabels { reason }).inc();
            }
            QueueEvent::Requeued => {
                self.requeuings.inc();
            }
        }
    }

    fn evaluated(&self, result: &str) {
        self.evaluations.get_or_create(&ResultLabels { result: result.to_owned() }).inc();
    }

    /// Counts what a manager observes, for as long as the tasks run.
    pub fn spawn(self: Arc<Self>, tasks: &mut Tasks, handle: &ManagerHandle) {
        // There is one manager.
        let _ = self.handle.set(handle.clone());
        let (handle, clock) = (handle.clone(), tasks.clock().clone());
        tasks.spawn("counts of the queue", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: counting can restart at any time.
                () = stop.cancelled() => {}
                () = self.run(&handle, &clock) => {}
            }
            Ok(())
        });
    }

    /// Counts the current state, whenever something has changed.
    async fn run(&self, handle: &ManagerHandle, clock: &Clock) {
        handle.wait_for_cache_sync().await;
        loop {
            self.update_gauges(handle.world());
            self.changed.notified().await;
            clock.sleep(COUNT_INTERVAL).await;
        }
    }

    fn update_gauges(&self, world: &World) {
        let mut states: BTreeMap<&'static str, i64> = BTreeMap::new();
        let mut reserved = Amounts::default();
        let inference = self.settings.get().inference;
        let (mut understated, mut exceeding) = (0, 0);
        for wrapper in world.store::<AppWrapper>().list() {
            *states.entry(state(&wrapper)).or_default() += 1;
            if wrapper.status.can_run {
                let demand = wrapper.demand();
                understated += i64::from(!demand.understated(inference).is_empty());
                exceeding += i64::from(reports_excess(&wrapper.status));
                // Everything counts here, whatever the settings of the queue.
                reserved.add(&demand.full);
            }
        }
        self.understated.set(understated);
        self.exceeding.set(exceeding);
        for known in STATES {
            let count = states.get(known).copied().unwrap_or_default();
            self.states.get_or_create(&StateLabels { state: known }).set(count);
        }
        self.reserved.clear();
        let Amounts { cpu, memory, gpu, others } = reserved;
        let three = [("cpu", cpu), ("memory", memory), (GPU, gpu)];
        let three = three.into_iter().map(|(name, amount)| (name.to_owned(), amount));
        for (resource, amount) in three.chain(others) {
            self.reserved.get_or_create(&ResourceLabels { resource }).set(amount);
        }
        self.quota.clear();
        for (node, amount) in quotas(world) {
            self.quota.get_or_create(&node).set(amount);
        }
    }
}

/// Returns what the nodes of quota trees have allocated, by their statuses.
fn quotas(world: &World) -> Vec<(QuotaNodeLabels, i64)> {
    // Quota trees are not watched where they are disabled.
    let Some(store) = world.store_for::<Subtree>(&Subtree::RESOURCE) else { return Vec::new() };
    let mut all = Vec::new();
    for subtree in store.list() {
        let Some(tree) = subtree.tree() else { continue };
        // A status that the queue did not write is ignored.
        let status = QuotaSubtreeStatus::deserialize(&subtree.status).unwrap_or_default();
        for child in status.children {
            for (resource, amount) in child.allocated {
                let amount = whole_units(&resource, amount);
                let node =
                    QuotaNodeLabels { tree: tree.to_owned(), node: child.name.clone(), resource };
                all.push((node, amount));
            }
        }
    }
    all
}

fn whole_units(resource: &str, amount: Quantity) -> i64 {
    match resource {
        "cpu" => i64::try_from(amount.milli_rounded_up()).unwrap_or(i64::MAX),
        _ => amount.value_rounded_up(),
    }
}

const STATES: [&str; 8] = [
    "New",
    "Pending",
    "Running",
    "RunningHoldCompletion",
    "Completed",
    "Failed",
    "Deleted",
    "Other",
];

fn state(wrapper: &AppWrapper) -> &'static str {
    match wrapper.state() {
        None => "New",
        Some(AppWrapperState::Pending) => "Pending",
        Some(AppWrapperState::Running) => "Running",
        Some(AppWrapperState::RunningHoldCompletion) => "RunningHoldCompletion",
        Some(AppWrapperState::Completed) => "Completed",
        Some(AppWrapperState::Failed) => "Failed",
        Some(AppWrapperState::Deleted) => "Deleted",
        Some(AppWrapperState::Other(_)) => "Other",
    }
}

impl Observer for QueueMetrics {
    fn name(&self) -> &'static str {
        "queue-counts"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>()]
    }

    fn observe(&self, _: &World, change: &Change) {
        self.changed.notify_one();
        let leads = self.handle.get().is_some_and(|it| it.permit().check().is_ok());
        // Changes from before this process led were counted by the former leader.
        if let (true, Some(before), Some(after)) = (leads, change.before(), change.after()) {
            between(before, after).into_iter().for_each(|it| self.count_event(it));
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::BuildInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_queue_is_counted() {
        let metrics = Metrics::new(&BuildInfo::default());
        let settings =
            crate::Settings { inference: crate::Inference::Compat, ..crate::Settings::default() };
        let counts = QueueMetrics::register(&metrics, LiveSettings::new(settings)).unwrap();
        let world = World::new([Kind::of::<AppWrapper>(), Kind::of::<Subtree>()]);
        let jobs = [
            (
                "a",
                json!({"state": "Running", "canrun": true,
                "message": "its pods ask for more than was admitted (cpu 9 of 3)"}),
            ),
            ("b", json!({"state": "Pending"})),
            ("c", json!({"state": "Pending"})),
        ];
        for (name, status) in jobs {
            let object = json!({
                "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
                "spec": {"resources": {"GenericItems": [
                    {"custompodresources": [{"replicas": 2, "requests": {"cpu": "1500m", "memory": "1Ki"}}]},
                    {"custompodresources": [{"replicas": 0, "requests": {}}], "generictemplate":
                        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
                            {"name": "c", "resources": {"requests": {"memory": "1Ki"}}}]}}},
                ]}},
                "status": status,
            });
            world
                .single_store_for(&AppWrapper::RESOURCE)
                .unwrap()
                .observe(&object.to_string())
                .unwrap();
        }
        let tree = json!({
            "metadata": {"name": "t", "namespace": "n", "uid": "t", "resourceVersion": "1",
                "labels": {"tree": "team"}},
            "status": {"children": [{"name": "gold", "allocated": {"cpu": "3"}}]},
        });
        world.single_store_for(&Subtree::RESOURCE).unwrap().observe(&tree.to_string()).unwrap();
        counts.update_gauges(&world);
        for news in [
            QueueEvent::Admitted,
            QueueEvent::BackedOff("quota limit exceeded".to_owned()),
            QueueEvent::BackedOffAfterEviction,
            QueueEvent::Evicted("QuotaReclaimed".to_owned()),
            QueueEvent::Requeued,
            QueueEvent::Dispatched(Duration::from_secs(2)),
        ] {
            counts.count_event(news);
        }
        let page = metrics.encode().unwrap();
        for line in [
            "gantry_queue_appwrappers{state=\"Pending\"} 2",
            "gantry_queue_appwrappers{state=\"Running\"} 1",
            "gantry_queue_appwrappers{state=\"Completed\"} 0",
            "gantry_queue_reserved{resource=\"cpu\"} 3000",
            "gantry_queue_reserved{resource=\"memory\"} 3072",
            "gantry_queue_demand_understated 1",
            "gantry_queue_demand_exceeded 1",
            "gantry_queue_quota_used{tree=\"team\",node=\"gold\",resource=\"cpu\"} 3000",
            "gantry_queue_evaluations_total{result=\"passed\"} 1",
            "gantry_queue_evaluations_total{result=\"quota limit exceeded\"} 1",
            "gantry_queue_backoffs_total{reason=\"PreemptionTriggered\"} 1",
            "gantry_queue_backoffs_total{reason=\"quota limit exceeded\"} 1",
            "gantry_queue_preemptions_total{reason=\"QuotaReclaimed\"} 1",
            "gantry_queue_requeuings_total 1",
            "gantry_queue_dispatch_seconds_bucket{le=\"2.5\"} 1",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is missing:\n{page}");
        }
    }
}
