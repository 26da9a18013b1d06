//! The metrics of Modules.
//!
//! What happened is counted by the leader, from changes of Jobs, pods and facts. The current state
//! is counted again when something has changed, once a second at most; series of Modules that are
//! gone are removed by that.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_controller::ManagerHandle;
use gantry_oci::Reference;
use gantry_process::clock::Clock;
use gantry_process::metrics::{Buckets, Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, FactChange, FactKind, Kind, Observer, World};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Notify;

use crate::facts::ImageState;
use crate::module_counts::{EndedJob, ModuleCounts, ended_job, signed_files};
use crate::selected_nodes::is_relevant;
use crate::settings::LiveSettings;
use crate::view::{DaemonSet, Job, Module, ModulePod, Node};

/// How often the current state is counted at most.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// From a signing of one file to a build that runs into its deadline.
const JOB_BUCKETS: Buckets =
    Buckets(&[1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0]);

/// Counts Modules and what happens to them.
#[derive(Debug)]
pub struct ModuleMetrics {
    handle: OnceLock<ManagerHandle>,
    changed: Notify,
    settings: LiveSettings,
    modules: Gauge,
    with_build: Gauge,
    with_sign: Gauge,
    with_device_plugin: Gauge,
    stages: Family<StageLabels, Gauge>,
    nodes_desired: Family<PartLabels, Gauge>,
    nodes_ready: Family<PartLabels, Gauge>,
    jobs: Family<JobLabels, Counter>,
    job_seconds: Family<JobLabels, Histogram, Buckets>,
    image_checks: Family<RegistryLabels, Counter>,
    signed_files: Family<ResultLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    module: String,
    namespace: String,
    kernel: String,
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    module: String,
    namespace: String,
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    r#type: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RegistryLabels {
    registry: String,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: String,
}

impl ModuleMetrics {
    /// Registers the metrics of Modules with these settings.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn register(metrics: &Metrics, settings: LiveSettings) -> Result<Self, RegisterError> {
        let gauge = |name, help| metrics.register(name, help, Gauge::default());
        Ok(Self {
            handle: OnceLock::new(),
            changed: Notify::new(),
            settings,
            modules: gauge("modules_modules", "Modules")?,
            with_build: gauge("modules_modules_with_build", "Modules that build images")?,
            with_sign: gauge("modules_modules_with_sign", "Modules that sign images")?,
            with_device_plugin: gauge(
                "modules_modules_with_device_plugin",
                "Modules with a device plugin",
            )?,
            stages: metrics.gauges(
                "modules_stage_completed",
                "Whether a stage of a Module is done for a kernel; device plugins have no kernel",
            )?,
            nodes_desired: metrics
                .gauges("modules_nodes_desired", "Nodes that should run a part of a Module")?,
            nodes_ready: metrics
                .gauges("modules_nodes_ready", "Nodes where a part of a Module is ready")?,
            jobs: metrics.counters("modules_jobs", "Jobs that ended, by type and result")?,
            job_seconds: metrics.histograms(
                "modules_job_duration_seconds",
                "Time from the creation of a Job to its end",
                JOB_BUCKETS,
            )?,
            image_checks: metrics.counters(
                "modules_registry_requests",
                "Checks whether a registry has an image: 200 if it does, 404 if not, or error",
            )?,
            signed_files: metrics
                .counters("modules_signed_files", "Files of signing Jobs, by result")?,
        })
    }

    /// Counts what a manager observes, for as long as the tasks run.
    pub fn spawn(self: Arc<Self>, tasks: &mut Tasks, handle: &ManagerHandle) {
        // There is one manager.
        let _ = self.handle.set(handle.clone());
        let (handle, clock) = (handle.clone(), tasks.clock().clone());
        tasks.spawn("counts of Modules", OnLoss::EndOwner, move |stop| async move {
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
            self.update_gauges(&ModuleCounts::of(handle.world(), &self.settings.get()));
            self.changed.notified().await;
            clock.sleep(COUNT_INTERVAL).await;
        }
    }

    fn update_gauges(&self, counts: &ModuleCounts) {
        self.modules.set(counts.modules);
        self.with_build.set(counts.with_build);
        self.with_sign.set(counts.with_sign);
        self.with_device_plugin.set(counts.with_device_plugin);
        self.nodes_desired.clear();
        self.nodes_ready.clear();
        for ((key, part), (desired, ready)) in &counts.nodes {
            let (module, namespace) = (key.name().to_owned(), key.namespace().to_owned());
            let labels = PartLabels { module, namespace, part };
            self.nodes_desired.get_or_create(&labels).set(*desired);
            self.nodes_ready.get_or_create(&labels).set(*ready);
        }
        self.stages.clear();
        for ((key, kernel, stage), done) in &counts.stages {
            let (module, namespace) = (key.name().to_owned(), key.namespace().to_owned());
            let labels = StageLabels { module, namespace, kernel: kernel.clone(), stage };
            self.stages.get_or_create(&labels).set(i64::from(*done));
        }
    }

    /// Whether this process is the leader. Changes from before were counted by the former one.
    fn leads(&self) -> bool {
        self.handle.get().is_some_and(|it| it.permit().check().is_ok())
    }

    fn count_job(&self, ended: EndedJob) {
        let labels = JobLabels { r#type: ended.job_type, result: ended.result };
        self.jobs.get_or_create(&labels).inc();
        if let Some(seconds) = ended.seconds {
            self.job_seconds.get_or_create(&labels).observe(seconds);
        }
    }

    fn count_check(&self, change: &FactChange) {
        let Some(change) = change.of::<ImageState>() else { return };
        let Some(state) = change.after else { return };
        let code = match (&state.failure, state.value()) {
            (Some(_), _) => "error",
            (None, Some(ImageState::Present { .. })) => "200",
            (None, Some(ImageState::Missing | ImageState::MissingArchitecture(_))) => "404",
            // The registry was not asked.
            (None, Some(ImageState::SecretMissing(_) | ImageState::CaBundleMissing(_)) | None) => {
                return;
            }
        };
        let Ok(image) = change.subject.image.parse::<Reference>() else { return };
        let registry = image.repository().registry().to_string();
        self.image_checks.get_or_create(&RegistryLabels { registry, code }).inc();
    }

    fn count_files(&self, results: Vec<String>) {
        for result in results {
            // The message of a pod is what its container writes; only our words are labels.
            let is_known = ["signed", "already-signed", "skipped"].contains(&result.as_str());
            let result = if is_known { result } else { "other".to_owned() };
            self.signed_files.get_or_create(&ResultLabels { result }).inc();
        }
    }
}

impl Observer for ModuleMetrics {
    fn name(&self) -> &'static str {
        "module-counts"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Module>(),
            Kind::of::<DaemonSet>(),
            Kind::of::<Job>(),
            Kind::of::<ModulePod>(),
            Kind::of::<Node>(),
        ]
    }

    fn observe(&self, _: &World, change: &Change) {
        if change.is::<Node>() && !is_relevant(change) {
            return;
        }
        self.changed.notify_one();
        if !self.leads() {
            return;
        }
        if let (Some(before), Some(after)) = (change.before::<Job>(), change.after::<Job>())
            && let Some(ended) = ended_job(before, after)
        {
            self.count_job(ended);
        }
        if let (Some(before), Some(after)) =
            (change.before::<ModulePod>(), change.after::<ModulePod>())
        {
            self.count_files(signed_files(before, after));
        }
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<ImageState>()]
    }

    fn observe_fact(&self, _: &World, change: &FactChange) {
        self.changed.notify_one();
        self.count_check(change);
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::BuildInfo;
    use gantry_reconcile::Key;
    use jiff::Timestamp;

    use super::*;
    use crate::facts::ImageQuery;

    #[test]
    fn modules_are_counted_and_series_of_deleted_ones_are_removed() {
        let metrics = Metrics::new(&BuildInfo::default());
        let counts = ModuleMetrics::register(&metrics, LiveSettings::default()).unwrap();
        let key = Key::new("drivers", "hello");
        let part = "driver-container";
        let of_one = ModuleCounts {
            modules: 1,
            with_build: 1,
            with_sign: 1,
            with_device_plugin: 1,
            nodes: [((key.clone(), part), (3, 2))].into(),
            stages: [((key, "5.1".to_owned(), "build"), true)].into(),
        };
        counts.update_gauges(&of_one);
        let seconds = Some(4.0);
        counts.count_job(EndedJob { job_type: "sign".to_owned(), result: "failed", seconds });
        counts.count_files(vec!["signed".to_owned(), "signed".to_owned(), "x y".to_owned()]);
        let images = World::new(counts.kinds()).facts::<ImageState>();
        let query = ImageQuery {
            namespace: "drivers".to_owned(),
            image: "quay.io/a/b:1".to_owned(),
            secrets: Vec::new(),
            ca_config_map: None,
            insecure: false,
            insecure_skip_tls_verify: false,
            architectures: std::collections::BTreeSet::new(),
            is_pushed: true,
        };
        let at = Timestamp::UNIX_EPOCH;
        counts.count_check(&images.record(query.clone(), ImageState::Missing, at));
        counts.count_check(&images.fail(query, "no".to_owned(), at));
        let page = metrics.encode().unwrap();
        let series = "module=\"hello\",namespace=\"drivers\"";
        for line in [
            "gantry_modules_modules 1".to_owned(),
            "gantry_modules_modules_with_build 1".to_owned(),
            "gantry_modules_modules_with_sign 1".to_owned(),
            "gantry_modules_modules_with_device_plugin 1".to_owned(),
            format!("gantry_modules_nodes_desired{{{series},part=\"{part}\"}} 3"),
            format!("gantry_modules_nodes_ready{{{series},part=\"{part}\"}} 2"),
            format!("gantry_modules_stage_completed{{{series},kernel=\"5.1\",stage=\"build\"}} 1"),
            "gantry_modules_jobs_total{type=\"sign\",result=\"failed\"} 1".to_owned(),
            "gantry_modules_job_duration_seconds_bucket{le=\"5.0\",type=\"sign\",\
             result=\"failed\"} 1"
                .to_owned(),
            "gantry_modules_signed_files_total{result=\"signed\"} 2".to_owned(),
            "gantry_modules_signed_files_total{result=\"other\"} 1".to_owned(),
            "gantry_modules_registry_requests_total{registry=\"quay.io\",code=\"404\"} 1"
                .to_owned(),
            "gantry_modules_registry_requests_total{registry=\"quay.io\",code=\"error\"} 1"
                .to_owned(),
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is missing:\n{page}");
        }
        counts.update_gauges(&ModuleCounts::default());
        let page = metrics.encode().unwrap();
        let hello = page.lines().find(|it| it.contains("hello"));
        assert_eq!(hello, None, "series of Modules that are gone");
    }
}
