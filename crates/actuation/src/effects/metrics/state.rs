//! Counts the current state: requesters, configs, pairs and launchers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_controller::ManagerHandle;
use gantry_process::clock::{Clock, Moment};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Kind, Observer, World};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::bookkeeping::Bookkeeping;
use crate::labels::INFERENCE_SERVER;
use crate::launcher_template::launcher_template;
use crate::population::{LauncherPhase, Thresholds, phase_counts};
use crate::settings::{LiveSettings, Settings};
use crate::view::{ActuationPod, InferenceServerConfig, LauncherConfig, Variant};

/// How often the state is counted at most.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// How often the state is counted at least: phases change by time alone.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(30);
/// How long a pair that has ended is shown as 0.
const ENDED_PAIR_RETENTION: Duration = Duration::from_secs(300);

/// Which part of the state a process counts. Controllers that run in processes of their own would
/// otherwise show the same twice, and sums over processes would be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedState {
    /// Requesters, InferenceServerConfigs and pairs, where requesters are paired.
    pub pairs: bool,
    /// Launchers by phase, where their stock is kept.
    pub launchers: bool,
}

/// Counts the current state.
#[derive(Debug)]
pub struct StateMetrics {
    changed: Notify,
    settings: LiveSettings,
    pairs: Option<PairGauges>,
    launchers: Option<Family<PhaseLabels, Gauge>>,
}

/// The gauges of the controller that pairs.
#[derive(Debug)]
struct PairGauges {
    requesters: Family<ConfigLabels, Gauge>,
    configs: Family<LauncherConfigLabels, Gauge>,
    pairs: Family<PairLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ConfigLabels {
    isc_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct LauncherConfigLabels {
    launcher_config_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
#[expect(non_snake_case, reason = "the label has the name of the original")]
struct PairLabels {
    exported_namespace: String,
    requester_name: String,
    exported_pod: String,
    exported_container: &'static str,
    instance_id: String,
    UUID: String,
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct PhaseLabels {
    lcfg_name: String,
    phase: &'static str,
}

/// What is counted.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    requesters: BTreeMap<ConfigLabels, i64>,
    configs: BTreeMap<LauncherConfigLabels, i64>,
    pairs: BTreeMap<PairLabels, i64>,
    launchers: BTreeMap<PhaseLabels, i64>,
}

impl StateMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register(
        metrics: &Metrics,
        settings: LiveSettings,
        counted: CountedState,
    ) -> Result<Self, RegisterError> {
        let metrics = metrics.without_prefix();
        let pairs = match counted.pairs {
            true => Some(PairGauges {
                requesters: metrics.gauges(
                    "fma_requester_count",
                    "Requesters that name an InferenceServerConfig",
                )?,
                configs: metrics
                    .gauges("fma_isc_count", "InferenceServerConfigs, by their LauncherConfig")?,
                pairs: metrics.gauges(
                    "fma_duality",
                    "1 for each accelerator of a launcher that is bound, 0 for a while after that",
                )?,
            }),
            false => None,
        };
        let launchers = match counted.launchers {
            true => Some(metrics.gauges("fma_launcher_pod_count", "Launchers, by phase")?),
            false => None,
        };
        Ok(Self { changed: Notify::new(), settings, pairs, launchers })
    }

    /// Counts for as long as the tasks run.
    pub fn spawn(self: Arc<Self>, tasks: &mut Tasks, handle: &ManagerHandle) {
        let (handle, clock) = (handle.clone(), tasks.clock().clone());
        tasks.spawn("counts of actuation", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: counting can restart at any time.
                () = stop.cancelled() => {}
                () = self.run(&handle, &clock) => {}
            }
            Ok(())
        });
    }

    async fn run(&self, handle: &ManagerHandle, clock: &Clock) {
        handle.wait_for_cache_sync().await;
        // Of several replicas only the leader counts.
        if handle.permit().granted().await.is_err() {
            return;
        }
        let mut ended = BTreeMap::new();
        loop {
            let counts = Counts::of(handle.world(), &self.settings.get(), clock.now());
            self.update(&counts, &mut ended, clock.moment());
            tokio::select! {
                // Either may be dropped: a notification that is lost is made up for by the other.
                () = self.changed.notified() => {}
                () = clock.sleep(RECOUNT_INTERVAL) => {}
            }
            clock.sleep(COUNT_INTERVAL).await;
        }
    }

    /// Shows these counts. `ended` has the pairs that were shown and when they ended.
    fn update(
        &self,
        counts: &Counts,
        ended: &mut BTreeMap<PairLabels, Option<Moment>>,
        now: Moment,
    ) {
        if let Some(launchers) = &self.launchers {
            set_all(launchers, &counts.launchers);
        }
        let Some(gauges) = &self.pairs else { return };
        set_all(&gauges.requesters, &counts.requesters);
        set_all(&gauges.configs, &counts.configs);
        for labels in counts.pairs.keys() {
            ended.insert(labels.clone(), None);
        }
        ended.retain(|labels, at| {
            if counts.pairs.contains_key(labels) {
                return true;
            }
            let at = at.get_or_insert(now);
            now < *at + ENDED_PAIR_RETENTION
        });
        gauges.pairs.clear();
        for (labels, at) in ended {
            gauges.pairs.get_or_create(labels).set(i64::from(at.is_none()));
        }
    }
}

fn set_all<L>(family: &Family<L, Gauge>, counts: &BTreeMap<L, i64>)
where
    L: Clone + std::hash::Hash + Eq,
{
    family.clear();
    for (labels, count) in counts {
        family.get_or_create(labels).set(*count);
    }
}

impl Counts {
    fn of(world: &World, settings: &Settings, now: Timestamp) -> Self {
        let mut counts = Self::default();
        let mut launchers: BTreeMap<(String, String), Vec<Arc<ActuationPod>>> = BTreeMap::new();
        for config in world.store::<LauncherConfig>().list() {
            let meta = &config.metadata;
            launchers.insert((meta.namespace.clone(), meta.name.clone()), Vec::new());
        }
        for pod in world.store::<ActuationPod>().list() {
            if let Some(Variant::Launcher(config)) = pod.variant() {
                let labels = ConfigLabels { isc_name: config.to_owned() };
                *counts.requesters.entry(labels).or_default() += 1;
            } else if let Some(config) = pod.launcher_config() {
                counts.add_pairs(&pod);
                let key = (pod.metadata.namespace.clone(), config.to_owned());
                launchers.entry(key).or_default().push(pod);
            }
        }
        for config in world.store::<InferenceServerConfig>().list() {
            let name = config.spec.launcher_config_name.clone();
            let labels = LauncherConfigLabels { launcher_config_name: name };
            *counts.configs.entry(labels).or_default() += 1;
        }
        for ((namespace, name), pods) in launchers {
            let key = gantry_reconcile::Key::new(&namespace, &name);
            let config = world.store::<LauncherConfig>().get(&key);
            let template =
                config.and_then(|it| launcher_template(&it, &settings.notifier_command).ok());
            let hash = template.as_ref().map(|it| it.hash.as_str());
            let phases = phase_counts(&pods, hash, Thresholds::of(settings), now);
            for phase in LauncherPhase::ALL {
                let labels = PhaseLabels { lcfg_name: name.clone(), phase: phase.as_str() };
                let count = phases.get(&phase).copied().unwrap_or(0);
                *counts.launchers.entry(labels).or_default() +=
                    i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
        counts
    }

    /// Adds a series for each accelerator of a launcher that is bound.
    fn add_pairs(&mut self, launcher: &ActuationPod) {
        let Some(binding) = launcher.binding() else { return };
        let Ok(bookkeeping) = Bookkeeping::read(launcher) else { return };
        for uuid in &bookkeeping.config.gpu_uuids {
            let labels = PairLabels {
                exported_namespace: launcher.metadata.namespace.clone(),
                requester_name: binding.name.clone(),
                exported_pod: launcher.metadata.name.clone(),
                exported_container: INFERENCE_SERVER,
                instance_id: bookkeeping.id.clone(),
                UUID: uuid.clone(),
                node: launcher.selected_node.clone(),
            };
            self.pairs.insert(labels, 1);
        }
    }
}

impl Observer for StateMetrics {
    fn name(&self) -> &'static str {
        "actuation-counts"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<ActuationPod>(),
            Kind::of::<InferenceServerConfig>(),
            Kind::of::<LauncherConfig>(),
        ]
    }

    fn observe(&self, _: &World, _: &Change) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::clock::FakeClock;
    use gantry_process::metrics::BuildInfo;
    use gantry_reconcile::View as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn as_33_the_state_is_counted_with_the_names_of_the_original() {
        let metrics = Metrics::new(&BuildInfo::default());
        let counted = CountedState { pairs: true, launchers: true };
        let state = StateMetrics::register(&metrics, LiveSettings::default(), counted).unwrap();
        let world = World::new(state.kinds());
        let observe = |resource, object: Value| {
            let store = world.single_store_for(&resource).unwrap();
            store.observe(&object.to_string()).unwrap().unwrap();
        };
        observe(
            LauncherConfig::RESOURCE,
            json!({
                "metadata": {"namespace": "n", "name": "lc", "uid": "1", "resourceVersion": "1"},
                "spec": {"maxInstances": 2, "podTemplate": {"spec": {"containers": [
                    {"name": "inference-server", "image": "l"}]}}},
            }),
        );
        observe(
            InferenceServerConfig::RESOURCE,
            json!({
                "metadata": {"namespace": "n", "name": "a", "uid": "2", "resourceVersion": "1"},
                "spec": {"launcherConfigName": "lc", "modelServerConfig": {"port": 1}},
            }),
        );
        observe(
            ActuationPod::RESOURCE,
            json!({"metadata": {
                "namespace": "n", "name": "r", "uid": "3", "resourceVersion": "1",
                "annotations": {"dual-pods.llm-d.ai/inference-server-config": "a"},
            }}),
        );
        observe(
            ActuationPod::RESOURCE,
            json!({
                "metadata": {
                    "namespace": "n", "name": "l", "uid": "4", "resourceVersion": "1",
                    "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
                    "annotations": {
                        "dual-pods.llm-d.ai/requester": "3 r",
                        "dual-pods.llm-d.ai/instance-id": "I",
                        "dual-pods.llm-d.ai/server-port": "1",
                        "dual-pods.llm-d.ai/vllm-config":
                            "{\"options\":\"\",\"gpu_uuids\":[\"g0\",\"g1\"]}",
                        "dual-pods.llm-d.ai/isc-routing-metadata": "{}",
                    },
                },
                "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
            }),
        );
        let clock = FakeClock::at(Timestamp::UNIX_EPOCH).clock();
        let (now, mut ended) = (clock.moment(), BTreeMap::new());
        let counts = Counts::of(&world, &Settings::default(), Timestamp::UNIX_EPOCH);
        state.update(&counts, &mut ended, now);
        let page = metrics.encode().unwrap();
        let pair = |uuid: &str, value: i64| {
            format!(
                "fma_duality{{exported_namespace=\"n\",requester_name=\"r\",exported_pod=\"l\",\
                 exported_container=\"inference-server\",instance_id=\"I\",UUID=\"{uuid}\",\
                 node=\"n1\"}} {value}"
            )
        };
        let mut lines = vec![
            "fma_requester_count{isc_name=\"a\"} 1".to_owned(),
            "fma_isc_count{launcher_config_name=\"lc\"} 1".to_owned(),
            pair("g0", 1),
            pair("g1", 1),
        ];
        for (phase, count) in [
            ("bound", 1),
            ("stale", 0),
            ("unbound", 0),
            ("stuck_starting", 0),
            ("stuck_scheduling", 0),
        ] {
            lines.push(format!(
                "fma_launcher_pod_count{{lcfg_name=\"lc\",phase=\"{phase}\"}} {count}"
            ));
        }
        for line in lines {
            assert!(page.lines().any(|it| it == line), "{line} is missing:\n{page}");
        }
        state.update(&Counts::default(), &mut ended, now + Duration::from_secs(1));
        let page = metrics.encode().unwrap();
        assert!(page.contains(&pair("g0", 0)), "the pair has ended:\n{page}");
        state.update(&Counts::default(), &mut ended, now + Duration::from_secs(302));
        let page = metrics.encode().unwrap();
        assert!(!page.contains("fma_duality{"), "series are removed:\n{page}");
    }

    /// What one of two processes counts is not counted by the other.
    #[test]
    fn each_controller_counts_its_own_part_of_the_state() {
        let config = ConfigLabels { isc_name: "a".to_owned() };
        let launcher_config = LauncherConfigLabels { launcher_config_name: "lc".to_owned() };
        let phase = PhaseLabels { lcfg_name: "lc".to_owned(), phase: "bound" };
        let pair = PairLabels {
            exported_namespace: "n".to_owned(),
            requester_name: "r".to_owned(),
            exported_pod: "l".to_owned(),
            exported_container: INFERENCE_SERVER,
            instance_id: "I".to_owned(),
            UUID: "g".to_owned(),
            node: "n1".to_owned(),
        };
        let counts = Counts {
            requesters: BTreeMap::from([(config, 1)]),
            configs: BTreeMap::from([(launcher_config, 1)]),
            pairs: BTreeMap::from([(pair, 1)]),
            launchers: BTreeMap::from([(phase, 1)]),
        };
        let clock = FakeClock::at(Timestamp::UNIX_EPOCH).clock();
        let names = |counted| {
            let metrics = Metrics::new(&BuildInfo::default());
            let state = StateMetrics::register(&metrics, LiveSettings::default(), counted).unwrap();
            state.update(&counts, &mut BTreeMap::new(), clock.moment());
            let page = metrics.encode().unwrap();
            let names = page.lines().filter_map(|it| it.strip_prefix("# TYPE fma_"));
            let names = names.filter_map(|it| it.split(' ').next()).map(str::to_owned);
            names.collect::<Vec<_>>()
        };
        let pairs = CountedState { pairs: true, launchers: false };
        assert_eq!(names(pairs), ["requester_count", "isc_count", "duality"]);
        let launchers = CountedState { pairs: false, launchers: true };
        assert_eq!(names(launchers), ["launcher_pod_count"]);
    }
}
