//! Reconciles Modules: images, DaemonSets, service accounts, status.

mod daemon_sets;
mod deletion;
mod objects;

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::kernel_modules::{DaemonSetCounts, ModuleStatus};
use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Held, Key, Kind, ObjectReference, Observer,
    Plan, Step, Subresource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::json;

use self::daemon_sets::KeptDaemonSets;
use crate::admission::host_path_problems;
use crate::daemon_set::{DesiredDaemonSet, driver_daemon_set};
use crate::driver_failure::{CRASH_LOOPING, driver_failures};
use crate::facts::{BuildFilesState, FailedHook, ImageState, SecretState};
use crate::job::{JobContext, JobType};
use crate::labels::{
    FINALIZER, JOB_TYPE_LABEL, ModulePart, NAMESPACE_LABEL, NodeLabel, REBUILD_ANNOTATION,
};
use crate::module_kernels::{KernelOutcome, ModuleKernels, module_kernels};
use crate::pipeline::{JobAction, PipelineContext, Progress, advance};
use crate::selected_nodes::{NodeGrouper, affected_modules};
use crate::settings::{LiveSettings, Settings};
use crate::view::{
    DaemonSet, DockerfileMap, Job, Module, ModulePod, Namespace, Node, ServiceAccount,
};

/// Reconciles Modules.
#[derive(Clone, Debug)]
pub struct ModuleController {
    settings: LiveSettings,
    grouper: NodeGrouper,
}

impl ModuleController {
    /// The controller's name.
    pub const NAME: &'static str = "modules";

    /// Reconciles with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings, grouper: NodeGrouper }
    }
}

impl Controller for ModuleController {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Module>(),
            Kind::of::<Node>(),
            Kind::of::<DaemonSet>(),
            Kind::of::<Job>(),
            Kind::of::<ModulePod>(),
            Kind::of::<ServiceAccount>(),
            Kind::of::<DockerfileMap>(),
            Kind::of::<Namespace>(),
        ]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![
            FactKind::of::<ImageState>(),
            FactKind::of::<SecretState>(),
            FactKind::of::<BuildFilesState>(),
            FactKind::of::<FailedHook>(),
        ]
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(&self.grouper)
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Module>() {
            return vec![change.key.clone()];
        }
        if change.is::<Node>() {
            let mut keys: BTreeSet<Key> = affected_modules(world, change).into_iter().collect();
            keys.extend(removed_labels(world, change));
            return keys.into_iter().collect();
        }
        if change.is::<Namespace>() {
            let modules = world.store::<Module>().in_namespace(change.key.name());
            let keys: Vec<Key> = modules.iter().map(|it| it.metadata.key()).collect();
            // No Module is left that would remove the label of its namespace.
            let labelled = change
                .after::<Namespace>()
                .filter(|it| it.metadata.labels.contains_key(NAMESPACE_LABEL) && keys.is_empty());
            let nothing = labelled.map(|it| Key::new(&it.metadata.name, ""));
            return keys.into_iter().chain(nothing).collect();
        }
        let pods = change.both::<ModulePod>().filter_map(ModulePod::module);
        let owners = change.both::<DaemonSet>().map(|it| &it.metadata);
        let owners = owners.chain(change.both::<Job>().map(|it| &it.metadata));
        let owners = owners.chain(change.both::<ServiceAccount>().map(|it| &it.metadata));
        let owned = owners.filter_map(|it| it.controller()).filter(|it| it.kind == "Module");
        let owned = owned.map(|it| Key::new(change.key.namespace(), &it.name));
        let mut keys: BTreeSet<Key> = owned.chain(pods).collect();
        // A name is free for the DaemonSet that a Module needs.
        if let (Some(gone), None) = (change.before::<DaemonSet>(), change.after::<DaemonSet>())
            && gone.metadata.controller().is_none_or(|it| it.kind != "Module")
        {
            let modules = world.store::<Module>().in_namespace(change.key.namespace());
            keys.extend(modules.iter().map(|it| it.metadata.key()));
        }
        // The Job that owns a Dockerfile leads to its Module.
        let maps = change.both::<DockerfileMap>().filter_map(DockerfileMap::module);
        keys.extend(maps);
        if let (Some(before), after) = (change.before::<Job>(), change.after::<Job>())
            && before.metadata.labels.contains_key(JOB_TYPE_LABEL)
            && after.is_none_or(|it| before.is_active() && !it.is_active())
        {
            // A place or an image is free for the next Job, of whichever Module.
            keys.extend(world.store::<Module>().list().iter().map(|it| it.metadata.key()));
        }
        keys.into_iter().collect()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let namespace = if let Some(change) = change.of::<ImageState>() {
            // The time matters as well: a Job is kept until its image was asked for again.
            Some(change.subject.namespace.clone())
        } else if let Some(change) = change.of::<SecretState>() {
            change.is_significant().then(|| change.subject.namespace.clone())
        } else if let Some(change) = change.of::<BuildFilesState>() {
            change.is_significant().then(|| change.subject.namespace.clone())
        } else if let Some(change) = change.of::<FailedHook>() {
            change.is_significant().then(|| change.subject.namespace.clone())
        } else {
            None
        };
        let modules = namespace.map(|it| world.store::<Module>().in_namespace(&it));
        modules.into_iter().flatten().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(module) = world.store::<Module>().get(key) else {
            return deletion::plan_namespace(world, key.namespace());
        };
        let settings = self.settings.get();
        if module.metadata.is_terminating() {
            return deletion::plan(world, &module, &settings, now);
        }
        let mut planner = Planner {
            world,
            module: &module,
            about: ObjectReference::to(&Module::RESOURCE, &module.metadata),
            settings: &settings,
            now,
            plan: Plan::default(),
            made_images: BTreeMap::new(),
        };
        planner.reconcile();
        planner.plan
    }
}

/// Plans for one Module.
struct Planner<'a> {
    world: &'a World,
    module: &'a Module,
    about: ObjectReference,
    settings: &'a Settings,
    now: Timestamp,
    plan: Plan,
    /// The DaemonSets whose image was built or signed, by name, with their kernel.
    made_images: BTreeMap<String, String>,
}

impl Planner<'_> {
    fn reconcile(&mut self) {
        if self.ensure_finalizer() {
            // Nothing is created before: without a finalizer it would be deleted in any order.
            return;
        }
        self.ensure_namespace_label();
        let key = self.module.metadata.key();
        let problems = match &self.module.spec {
            Ok(spec) => host_path_problems(spec, &self.settings.host_path_allow_list),
            Err(problems) => problems.clone(),
        };
        if !problems.is_empty() {
            // Nothing is deleted: an error must not unload a module.
            let problems = problems.join("; ");
            self.warn("InvalidSpec", format!("{problems}; nothing is changed until it is mended"));
            return;
        }
        let Some(kernels) = module_kernels(self.world, &key, self.settings) else { return };
        self.report_kernels(&kernels);
        self.ensure_service_accounts(&kernels);
        let mut desired = Vec::new();
        let mut kept = KeptDaemonSets::default();
        self.plan_driver(&kernels, &mut desired, &mut kept);
        self.plan_device_plugin(&kernels, &mut desired, &mut kept);
        self.write_daemon_sets(desired, &kept);
        for failure in driver_failures(self.world, &key) {
            self.warn(CRASH_LOOPING, failure.message());
        }
        self.write_status(&kernels);
    }

    /// Says why kernels are not served.
    fn report_kernels(&mut self, kernels: &ModuleKernels) {
        for (kernel, outcome) in &kernels.kernels {
            match outcome {
                KernelOutcome::Planned { plan, .. } => {
                    for name in &plan.shadowed_variables {
                        let message = format!(
                            "build argument {name} replaces the variable of kernel {kernel}; \
                             rename it unless that is meant"
                        );
                        let about = self.about.clone();
                        let event = Event::warning(about, "BuildArgShadowsKernelVariable", message);
                        self.plan.events.push(event);
                    }
                    for stage in &plan.disabled_stages {
                        let message = format!(
                            "{stage} is ignored: this cluster does not {stage} images; kernel \
                             {kernel} uses {} as it is, so push it from a cluster that does",
                            plan.final_image()
                        );
                        let about = self.about.clone();
                        self.plan.events.push(Event::warning(about, "FeatureDisabled", message));
                    }
                }
                KernelOutcome::NoMapping => {}
                KernelOutcome::Error(error) => {
                    self.warn(error.reason(), format!("kernel {kernel}: {error}"));
                }
                KernelOutcome::InvalidKernel(why) => {
                    self.warn("InvalidKernelVersion", why.clone());
                }
                KernelOutcome::LabelCollision { other, label } => self.warn(
                    "KernelLabelCollision",
                    format!(
                        "kernels {other} and {kernel} have the same label value {label}; only \
                         nodes with {other} are served; give the nodes of one of them another \
                         kernel"
                    ),
                ),
                KernelOutcome::NoKernelLabel => self.warn(
                    "NoKernelLabel",
                    format!(
                        "nodes with kernel {kernel} lack the label {}; install node feature \
                         discovery, or set modules.kernelLabeling to ooto",
                        crate::labels::NFD_KERNEL_LABEL
                    ),
                ),
            }
        }
    }

    /// Runs the pipeline of every kernel, and collects the DaemonSets whose images are ready.
    fn plan_driver(
        &mut self,
        kernels: &ModuleKernels,
        desired: &mut Vec<DesiredDaemonSet>,
        kept: &mut KeptDaemonSets,
    ) {
        let trigger = kernels.spec.image_rebuild_trigger_generation;
        let metadata = &self.module.metadata;
        let forced = trigger.filter(|it| match metadata.annotations.get(REBUILD_ANNOTATION) {
            Some(last) => *last != it.to_string(),
            // A Module that has had the number from the beginning is not built twice.
            None => metadata.generation > 1,
        });
        let active = active_jobs(self.world);
        let mut wanted_jobs = WantedJobs::default();
        let mut planned_jobs = BTreeSet::new();
        let mut is_rebuilt = true;
        for (kernel, outcome) in &kernels.kernels {
            let (label, plan) = match outcome {
                KernelOutcome::Planned { label, plan } => (label, plan),
                // The DaemonSet of the other kernel would run on the same nodes.
                KernelOutcome::NoMapping | KernelOutcome::LabelCollision { .. } => continue,
                KernelOutcome::Error(_)
                | KernelOutcome::InvalidKernel(_)
                | KernelOutcome::NoKernelLabel => {
                    // An error keeps what there is.
                    kept.kernels.insert(kernel.clone());
                    wanted_jobs.kernels.insert(kernel.clone());
                    is_rebuilt = false;
                    continue;
                }
            };
            let job = JobContext {
                module: kernels,
                metadata: &self.module.metadata,
                kernel,
                kernel_label: label,
                settings: self.settings,
                rebuild_trigger: forced,
            };
            let decision = advance(&PipelineContext {
                world: self.world,
                job,
                plan,
                has_capacity: active + planned_jobs.len() < self.settings.jobs.max_concurrent,
                planned_jobs: &planned_jobs,
                rebuild_outdated: plan.rebuilds_outdated,
                now: self.now,
            });
            if let Some(JobAction::Create(job)) = &decision.job {
                planned_jobs.insert(job.name.clone());
            }
            is_rebuilt &= decision.is_rebuilt;
            wanted_jobs.names.extend(decision.kept_jobs.iter().cloned());
            self.act_on_jobs(&decision, &job, plan);
            match &decision.progress {
                Progress::Ready { outdated } => {
                    if let Some(why) = outdated {
                        let image = plan.final_image();
                        self.warn("ImageOutdated", format!("kernel {kernel}: {image}: {why}"));
                    }
                    let Some(driver) = &kernels.spec.driver_container else { continue };
                    let set = driver_daemon_set(
                        kernels,
                        &self.module.metadata,
                        driver,
                        (label, plan),
                        self.settings,
                    );
                    if plan.build.is_some() || plan.sign.is_some() {
                        self.made_images.insert(set.name.clone(), kernel.clone());
                    }
                    desired.push(set);
                }
                Progress::Pending(wait) => {
                    kept.kernels.insert(kernel.clone());
                    let message = format!("kernel {kernel}: {}", wait.message);
                    match wait.reason {
                        "Checking" | "Queued" | "Building" | "Signing" => {
                            self.hold(wait.reason, message);
                        }
                        reason => self.warn(reason, message),
                    }
                }
                Progress::Failed { reason, message } => {
                    kept.kernels.insert(kernel.clone());
                    self.warn(reason, format!("kernel {kernel}: {message}"));
                }
            }
            if let Some(wait) = decision.requeue_after {
                self.plan.requeue_after(wait);
            }
        }
        self.collect_jobs(&wanted_jobs);
        self.record_rebuild(trigger, is_rebuilt || forced.is_none());
    }

    /// Writes the sums of the DaemonSets' numbers.
    fn write_status(&mut self, kernels: &ModuleKernels) {
        let owned = self.world.store::<DaemonSet>().owned_by(&self.module.metadata.uid);
        let sum = |part: ModulePart| {
            let mut counts = DaemonSetCounts::default();
            for set in owned.iter().filter(|it| it.part() == Some(part)) {
                counts.desired_number_scheduled += set.status.desired_number_scheduled;
                counts.number_ready += set.status.number_ready;
                counts.number_available += set.status.number_available;
            }
            counts
        };
        let spec = &kernels.spec;
        let driver = spec.driver_container.as_ref().map(|_| sum(ModulePart::DriverContainer));
        let plugin = spec.device_plugin.as_ref().map(|_| sum(ModulePart::DevicePlugin));
        let ModuleStatus { driver_container, device_plugin, .. } = &self.module.status;
        if *driver_container == driver && *device_plugin == plugin {
            return;
        }
        let body = json!({"status": {"driverContainer": driver, "devicePlugin": plugin}});
        self.plan.steps.push(
            Step::new(Write::Merge {
                resource: Module::RESOURCE,
                key: self.module.metadata.key(),
                subresource: Subresource::Status,
                fence: self.module.metadata.fence(),
                body,
            })
            .deferrable(),
        );
    }

    /// Adds the finalizer. Returns whether it was missing.
    fn ensure_finalizer(&mut self) -> bool {
        let metadata = &self.module.metadata;
        if metadata.finalizers.iter().any(|it| it == FINALIZER) {
            return false;
        }
        let finalizers: Vec<&str> =
            metadata.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
        self.plan.write(Write::Merge {
            resource: Module::RESOURCE,
            key: metadata.key(),
            subresource: Subresource::Main,
            fence: metadata.fence(),
            body: json!({"metadata": {"finalizers": finalizers}}),
        });
        true
    }

    fn ensure_namespace_label(&mut self) {
        let key = Key::cluster(&self.module.metadata.namespace);
        let Some(namespace) = self.world.store::<Namespace>().get(&key) else { return };
        if namespace.metadata.labels.contains_key(NAMESPACE_LABEL) {
            return;
        }
        let fence = gantry_reconcile::Fence { revision: None, ..namespace.metadata.fence() };
        self.plan.write(Write::Merge {
            resource: Namespace::RESOURCE,
            key,
            subresource: Subresource::Main,
            fence,
            body: json!({"metadata": {"labels": {NAMESPACE_LABEL: ""}}}),
        });
    }

    /// Holds something that a user has to know: a held reason and an event.
    fn warn(&mut self, reason: &'static str, message: String) {
        let event = Event::warning(self.about.clone(), reason, message.clone());
        self.plan.events.push(event);
        self.hold(reason, message);
    }

    fn hold(&mut self, reason: &'static str, message: String) {
        let held = Held { about: self.about.clone(), reason: reason.into(), message, until: None };
        self.plan.hold(held, self.now);
    }
}

/// Jobs that are not deleted.
#[derive(Debug, Default)]
struct WantedJobs {
    /// Those with these names.
    names: BTreeSet<String>,
    /// Those for these kernels, which have no plan.
    kernels: BTreeSet<String>,
}

/// How many Jobs of all Modules are active.
fn active_jobs(world: &World) -> usize {
    world.store::<Job>().list().iter().filter(|job| job.is_active()).count()
}

/// Modules that are being deleted and whose labels are gone from a node.
fn removed_labels(world: &World, change: &Change) -> Vec<Key> {
    let keys = |node: Option<&Node>| -> BTreeSet<String> {
        node.map(|it| it.metadata.labels.keys().cloned().collect()).unwrap_or_default()
    };
    let (before, after) = (keys(change.before()), keys(change.after()));
    let removed = before.difference(&after).filter_map(|it| NodeLabel::parse(it));
    let modules = removed.map(|it| it.module_key());
    let terminating = |key: &Key| {
        let module = world.store::<Module>().get(key);
        module.is_some_and(|it| it.metadata.is_terminating())
    };
    modules.filter(terminating).collect()
}

/// The reason of the event about a new Job.
fn created_reason(job_type: JobType) -> &'static str {
    match job_type {
        JobType::Build => "BuildCreated",
        JobType::Sign => "SignCreated",
    }
}

#[cfg(test)]
mod tests;
