//! Settings of the controllers of kernel modules.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;

/// The settings that plans use.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which label tells the kernel of a node.
    pub kernel_labeling: KernelLabeling,
    /// Which stages run here.
    pub stages: EnabledStages,
    /// How images are built.
    pub builder: BuilderSettings,
    /// Jobs that build and sign.
    pub jobs: JobSettings,
    /// The ConfigMap with certificates that registries are verified with besides those of the
    /// machine, in the namespace of each Module.
    pub registry_ca_config_map: Option<String>,
    /// How long a registry may take to answer.
    pub registry_timeout: Duration,
    /// After how long an image that exists is looked for again.
    pub image_present_refresh: Duration,
    /// After how long an image that is missing is looked for again.
    pub image_missing_refresh: Duration,
    /// The security context of driver containers that have none of their own.
    pub driver_security_context: Value,
    /// The priority class of driver containers.
    pub driver_priority_class: String,
    /// The grace period of driver containers.
    pub driver_grace_period: Duration,
    /// The directory of nodes for firmware.
    pub firmware_host_path: String,
    /// Whether service accounts are created.
    pub create_service_accounts: bool,
    /// What service accounts are bound to.
    pub pod_security: PodSecurity,
    /// The prefixes of host paths that users may mount; empty means no restriction.
    pub host_path_allow_list: Vec<String>,
    /// Whether pods that use the devices of a Module are evicted in ordered upgrades, where the
    /// Module asks for it.
    pub drain_device_users: bool,
    /// Whether nodes also get the ready labels of Kernel Module Management.
    pub kmm_labels: bool,
}

/// Which label tells the kernel of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelLabeling {
    /// Our own, which is set on every node.
    Own,
    /// That of node feature discovery, which is only read.
    NodeFeatureDiscovery,
}

/// Which stages run here; on a spoke none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledStages {
    /// Whether images are built.
    pub build: bool,
    /// Whether images are signed.
    pub sign: bool,
}

/// How images are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderSettings {
    /// What builds.
    pub engine: BuildEngine,
    /// The image of buildah.
    pub buildah_image: String,
    /// The image of kaniko.
    pub kaniko_image: String,
    /// How the build is isolated from its node.
    pub isolation: BuildIsolation,
    /// The storage driver of buildah.
    pub storage_driver: String,
}

/// What builds images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildEngine {
    /// A builder in a container: buildah, or the one that the Module names.
    Container,
    /// `gantry modules build`, which runs no commands, on nodes that run no containers.
    Simulated,
}

/// How a build is isolated from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildIsolation {
    /// In a user namespace that the kubelet creates (`hostUsers: false`).
    UserNamespace,
    /// Without a seccomp and an AppArmor profile, where kubelets create no user namespaces.
    Unconfined,
}

/// Jobs that build and sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// The image of Gantry, which signs and merges credentials.
    pub gantry_image: String,
    /// How long a succeeded Job is kept.
    pub collection_delay: Duration,
    /// How long a Job may run.
    pub active_deadline: Duration,
    /// How many Jobs of all Modules run at once.
    pub max_concurrent: usize,
    /// The labels of nodes that sign Jobs run on.
    pub sign_selector: BTreeMap<String, String>,
    /// The cluster role that lets Jobs push to the registry of the cluster, where it has one: then
    /// the Jobs of a Module run as an account of their own that is bound to it; see
    /// [`Settings::job_role`]. Otherwise they push with the credentials that the Module names.
    pub registry_role: Option<String>,
}

/// What the service accounts of pods are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurity {
    /// Nothing: the labels of namespaces decide.
    Admission,
    /// Roles that may use security context constraints.
    SecurityContextConstraints,
}

/// The cluster role of the accounts of drivers, which may use security context constraints.
pub const DRIVER_ROLE: &str = "gantry-modules-driver";
/// The cluster role of the accounts of device plugins.
pub const DEVICE_PLUGIN_ROLE: &str = "gantry-modules-device-plugin";
/// The cluster role of the accounts of Jobs.
pub const IMAGE_JOBS_ROLE: &str = "gantry-modules-image-jobs";

impl Settings {
    /// The cluster role that the Jobs of a Module need; without one they run as the default account
    /// of their namespace.
    #[must_use]
    pub fn job_role(&self) -> Option<&str> {
        let constrained = || match self.pod_security {
            PodSecurity::SecurityContextConstraints if self.create_service_accounts => {
                Some(IMAGE_JOBS_ROLE)
            }
            PodSecurity::SecurityContextConstraints | PodSecurity::Admission => None,
        };
        self.jobs.registry_role.as_deref().or_else(constrained)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kernel_labeling: KernelLabeling::Own,
            stages: EnabledStages { build: true, sign: true },
            builder: BuilderSettings {
                engine: BuildEngine::Container,
                buildah_image: String::new(),
                kaniko_image: String::new(),
                isolation: BuildIsolation::UserNamespace,
                storage_driver: "vfs".to_owned(),
            },
            jobs: JobSettings {
                gantry_image: String::new(),
                collection_delay: Duration::ZERO,
                active_deadline: Duration::from_secs(7200),
                max_concurrent: 4,
                sign_selector: BTreeMap::new(),
                registry_role: None,
            },
            registry_ca_config_map: None,
            registry_timeout: Duration::from_secs(30),
            image_present_refresh: Duration::from_secs(300),
            image_missing_refresh: Duration::from_secs(15),
            driver_security_context: serde_json::json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"add": ["SYS_MODULE"]},
                "runAsUser": 0,
                "seLinuxOptions": {"type": "spc_t"},
            }),
            driver_priority_class: "system-node-critical".to_owned(),
            driver_grace_period: Duration::from_secs(60),
            firmware_host_path: "/var/lib/firmware".to_owned(),
            create_service_accounts: true,
            pod_security: PodSecurity::Admission,
            host_path_allow_list: Vec::new(),
            drain_device_users: false,
            kmm_labels: false,
        }
    }
}

/// Settings that may change while controllers run. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LiveSettings(Arc<RwLock<Arc<Settings>>>);

impl LiveSettings {
    /// Creates settings that may change.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// The settings now.
    #[must_use]
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}
