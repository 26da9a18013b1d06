//! Writes Jobs, DaemonSets and service accounts of a Module.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Event, Fence, Key, ObjectReference, Propagation, Resource, Step, Subresource, View as _, World,
    Write,
};
use serde_json::{Value, json};

use super::{Planner, WantedJobs, created_reason};
use crate::daemon_set::service_account_name;
use crate::job::{
    DesiredJob, JobContext, JobType, dockerfile_config_map, dockerfile_name, job_account_name,
    job_name,
};
use crate::kernel_plan::{Dockerfile, KernelPlan};
use crate::labels::{
    IMAGE_ANNOTATION, JOB_TYPE_LABEL, KERNEL_ANNOTATION, MODULE_LABEL, ModulePart,
    REBUILD_ANNOTATION,
};
use crate::module_kernels::ModuleKernels;
use crate::pipeline::{JobAction, PipelineDecision};
use crate::settings::{DEVICE_PLUGIN_ROLE, DRIVER_ROLE, PodSecurity};
use crate::view::{DockerfileMap, Job, JobState, Module, ModulePod, Namespace, ServiceAccount};

impl Planner<'_> {
    /// Creates, replaces and deletes Jobs, and creates the Dockerfiles of those that exist.
    pub(super) fn act_on_jobs(
        &mut self,
        decision: &PipelineDecision,
        context: &JobContext<'_>,
        plan: &KernelPlan,
    ) {
        let key = self.module.metadata.key();
        match &decision.job {
            Some(JobAction::Create(desired)) => {
                let DesiredJob { job_type, name, image, body, .. } = &**desired;
                let message = format!("created Job {name} for kernel {}: {image}", context.kernel);
                let event = Event::normal(self.about.clone(), created_reason(*job_type), message);
                let create = Write::Create { resource: Job::RESOURCE, body: body.clone() };
                self.create(Step::new(create).on_success(event));
            }
            Some(JobAction::Replace { name }) => self.delete_job(&key.in_same_namespace(name)),
            None => {}
        }
        for name in &decision.collected_jobs {
            self.delete_job(&key.in_same_namespace(name));
        }
        if let Some(build) = &plan.build
            && let Dockerfile::Inline(text) = &build.dockerfile
        {
            let name = job_name(JobType::Build, &build.output);
            self.create_dockerfile(context, &key.in_same_namespace(&name), text);
        }
    }

    /// Creates the ConfigMap with the Dockerfile of a Job that exists and needs it.
    fn create_dockerfile(&mut self, context: &JobContext<'_>, job: &Key, text: &str) {
        let Some(job) = self.world.store::<Job>().get(job) else { return };
        let name = dockerfile_name(&job.metadata.name, text);
        let map = job.metadata.key().in_same_namespace(&name);
        let found = self.world.store::<DockerfileMap>().get(&map);
        // That of a Job that was replaced is about to be deleted.
        let exists = found.is_some_and(|it| it.metadata.is_controlled_by(&job.metadata.uid));
        let is_own = job.metadata.is_controlled_by(&self.module.metadata.uid)
            && job
                .metadata
                .annotations
                .get(KERNEL_ANNOTATION)
                .is_some_and(|it| it == context.kernel);
        if exists || !is_own || !job.is_active() || job.metadata.is_terminating() {
            return;
        }
        let owner = ObjectReference::to(&Job::RESOURCE, &job.metadata);
        let body = dockerfile_config_map(context, &owner, text);
        let create = Write::Create { resource: DockerfileMap::RESOURCE, body };
        self.plan.steps.push(Step::new(create).require_present(owner));
    }

    /// Adds the step that creates an object of the Module, unless the Module is being deleted: a
    /// cache may not show that yet.
    pub(super) fn create(&mut self, step: Step) {
        self.plan.steps.push(step.require_present(self.about.clone()));
    }

    /// Deletes a Job with its pods. What became of it is reported first.
    fn delete_job(&mut self, key: &Key) {
        let Some(job) = self.world.store::<Job>().get(key) else { return };
        let is_own = job.metadata.is_controlled_by(&self.module.metadata.uid);
        if job.metadata.is_terminating() || !is_own {
            return;
        }
        let image = job.metadata.annotations.get(IMAGE_ANNOTATION);
        let is_build =
            job.metadata.labels.get(JOB_TYPE_LABEL) == Some(&JobType::Build.as_str().to_owned());
        let mut step = Step::new(Write::Delete {
            resource: Job::RESOURCE,
            key: key.clone(),
            fence: Fence { revision: None, ..job.metadata.fence() },
            grace: None,
            propagation: Some(Propagation::Background),
        });
        if let (JobState::Succeeded { .. }, Some(image)) = (job.state(), image) {
            let reason = if is_build { "BuildSucceeded" } else { "SignSucceeded" };
            let message = format!("Job {} pushed {image}", key.name());
            step = step.on_success(Event::normal(self.about.clone(), reason, message));
        }
        self.plan.steps.push(step);
    }

    /// Deletes Jobs that no kernel wants.
    pub(super) fn collect_jobs(&mut self, wanted: &WantedJobs) {
        let jobs = self.world.store::<Job>().owned_by(&self.module.metadata.uid);
        let planned: BTreeSet<Key> = self
            .plan
            .steps
            .iter()
            .filter(|it| matches!(it.write, Write::Delete { .. }))
            .map(|it| it.write.key())
            .collect();
        for job in jobs {
            let key = job.metadata.key();
            let kernel = job.metadata.annotations.get(KERNEL_ANNOTATION);
            let is_wanted = wanted.names.contains(&job.metadata.name)
                || kernel.is_some_and(|it| wanted.kernels.contains(it));
            if !is_wanted && !planned.contains(&key) {
                self.delete_job(&key);
            }
        }
    }

    /// Records that a forced rebuild is done.
    pub(super) fn record_rebuild(&mut self, trigger: Option<i64>, is_rebuilt: bool) {
        let Some(trigger) = trigger else { return };
        let metadata = &self.module.metadata;
        let recorded = metadata.annotations.get(REBUILD_ANNOTATION);
        let is_new = recorded.is_none_or(|it| *it != trigger.to_string());
        if !is_new || !is_rebuilt {
            return;
        }
        self.plan.write(Write::Merge {
            resource: Module::RESOURCE,
            key: metadata.key(),
            subresource: Subresource::Main,
            fence: metadata.fence(),
            body: json!({"metadata": {"annotations": {REBUILD_ANNOTATION: trigger.to_string()}}}),
        });
    }

    /// Creates the service accounts that the user does not name, and says what they lack.
    pub(super) fn ensure_service_accounts(&mut self, kernels: &ModuleKernels) {
        let spec = &kernels.spec;
        let driver = spec.driver_container.as_ref();
        let plugin = spec.device_plugin.as_ref();
        let named = [
            (ModulePart::DriverContainer, driver.map(|it| &it.service_account_name)),
            (ModulePart::DevicePlugin, plugin.map(|it| &it.service_account_name)),
        ];
        for (part, account) in named {
            let Some(account) = account else { continue };
            if account.as_ref().is_some_and(|it| !it.is_empty()) {
                continue;
            }
            if self.settings.create_service_accounts {
                let role = match part {
                    ModulePart::DriverContainer => DRIVER_ROLE,
                    ModulePart::DevicePlugin => DEVICE_PLUGIN_ROLE,
                };
                let role = match self.settings.pod_security {
                    PodSecurity::SecurityContextConstraints => Some(role),
                    PodSecurity::Admission => None,
                };
                let name = service_account_name(&self.module.metadata.name, part);
                self.ensure_service_account(&name, role);
            }
        }
        let has_jobs = |plan: &KernelPlan| plan.build.is_some() || plan.sign.is_some();
        if let Some(role) = self.settings.job_role()
            && kernels.plans().any(|(_, plan)| has_jobs(plan))
        {
            let name = job_account_name(&self.module.metadata.name);
            self.ensure_service_account(&name, Some(role));
        }
        self.check_pod_security();
    }

    /// Creates a service account of the Module that is bound to a cluster role in its namespace.
    fn ensure_service_account(&mut self, name: &str, role: Option<&str>) {
        let metadata = &self.module.metadata;
        let key = metadata.key().in_same_namespace(name);
        let found = self.world.store::<ServiceAccount>().get(&key);
        if let Some(found) = &found {
            let bound = found.metadata.annotations.get(ROLE_ANNOTATION).map(String::as_str);
            // One of somebody else is used as it is.
            let is_own = found.metadata.is_controlled_by(&metadata.uid);
            if !is_own || role.is_none() || bound == role {
                return;
            }
        }
        let owner = controller_reference(&Module::RESOURCE, metadata);
        let mut object = json!({
            "name": name,
            "namespace": metadata.namespace,
            "labels": {MODULE_LABEL: metadata.name},
            "ownerReferences": [owner],
        });
        let binding = role.map(|role| {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": object,
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
                },
                "subjects": [{
                    "kind": "ServiceAccount", "name": name, "namespace": metadata.namespace,
                }],
            });
            object["annotations"] = json!({ROLE_ANNOTATION: role});
            let refused = format!(
                "could not bind ServiceAccount {name} to ClusterRole {role}; apply \
                 config/operator/optional/modules-scc.yaml, or name an account of your own in \
                 serviceAccountName"
            );
            let refused = Event::warning(self.about.clone(), "ServiceAccountNotBound", refused);
            Step::new(apply(ROLE_BINDINGS, key.clone(), binding)).on_refusal(refused)
        });
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object});
        let mut step = Step::new(apply(ServiceAccount::RESOURCE, key, body));
        if found.is_none() {
            let message = format!("created ServiceAccount {name}");
            let event = Event::normal(self.about.clone(), "ServiceAccountCreated", message);
            step = step.on_success(event);
        }
        // The account says that it is bound, so the binding comes first.
        match binding {
            Some(binding) => self.create(binding.then(step)),
            None => self.create(step),
        }
    }

    /// Says that the namespace does not let the pods run. Gantry never changes its labels.
    fn check_pod_security(&mut self) {
        const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
        if self.settings.pod_security != PodSecurity::Admission {
            return;
        }
        let name = self.module.metadata.namespace.clone();
        let namespace = self.world.store::<Namespace>().get(&Key::cluster(&name));
        let level = namespace.and_then(|it| it.metadata.labels.get(ENFORCE).cloned());
        if let Some(level) = level.filter(|it| it != "privileged") {
            self.warn(
                "PodSecurityTooStrict",
                format!(
                    "namespace {name} admits pods of level {level} only, and pods of Modules need \
                     privileged; run `kubectl label --overwrite namespace {name} \
                     {ENFORCE}=privileged`"
                ),
            );
        }
    }
}

/// The annotation of service accounts with the role that they are bound to.
const ROLE_ANNOTATION: &str = "ooto.sigs.k8s.io/bound-role";

/// A write that creates an object or makes it as it should be.
pub(super) fn apply(resource: Resource, key: Key, body: Value) -> Write {
    Write::Apply { resource, key, subresource: Subresource::Main, fence: None, body }
}

/// Role bindings, which are only written.
const ROLE_BINDINGS: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
        .without_status();

/// The pods of a part of a Module.
pub(super) fn pods_of(world: &World, module: &Key, part: ModulePart) -> Vec<Arc<ModulePod>> {
    let mut pods = world.store::<ModulePod>().by_index(&ModulePod::module_index(module));
    pods.retain(|it| it.part() == Some(part));
    pods
}
