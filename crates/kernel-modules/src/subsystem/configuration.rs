//! The section `modules` of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_subsystem::settings::read::length;
use gantry_subsystem::settings::{DefaultValue, Effect, Key, ValueType, Values, ZeroMeaning};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::settings::{
    BuildEngine, BuildIsolation, BuilderSettings, EnabledStages, JobSettings, KernelLabeling,
    Settings,
};

const DURATION: ValueType = ValueType::Duration { zero: ZeroMeaning::Default };

/// A key that takes effect while the controllers run.
const fn live(
    path: &'static str,
    value_type: ValueType,
    default: DefaultValue,
    about: &'static str,
) -> Key {
    Key { path, value_type, default, effect: Effect::Live, about }
}

/// The keys of kernel modules.
pub const KEYS: &[Key] = &[
    Key {
        path: "modules.enabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether Modules are reconciled.",
    },
    Key {
        path: "modules.webhook.enabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether Modules are checked by an admission webhook. Without it, what is wrong \
                with them is only in events.",
    },
    live(
        "modules.kernelLabeling",
        ValueType::Word(&["ooto", "nfd"]),
        DefaultValue::Text("ooto"),
        "Which label tells the kernel of a node: our own, or that of node feature discovery.",
    ),
    live(
        "modules.builder.image",
        ValueType::Text,
        DefaultValue::Text("quay.io/buildah/stable:v1.39"),
        "The image of buildah that builds images.",
    ),
    live(
        "modules.builder.kanikoImage",
        ValueType::Text,
        DefaultValue::Text(""),
        "The image of kaniko, for Modules with `builder: kaniko`.",
    ),
    live(
        "modules.builder.isolation",
        ValueType::Word(&["userNamespace", "unconfined"]),
        DefaultValue::Text("userNamespace"),
        "How builds are isolated: in a user namespace that the kubelet creates, or, where \
         kubelets create none, without seccomp and AppArmor profiles.",
    ),
    live(
        "modules.builder.storageDriver",
        ValueType::Word(&["vfs", "overlay"]),
        DefaultValue::Text("vfs"),
        "The storage driver of buildah.",
    ),
    live(
        "modules.job.image",
        ValueType::Text,
        DefaultValue::Text("gantry:latest"),
        "The image of Gantry in Jobs that sign.",
    ),
    live(
        "modules.job.gcDelay",
        ValueType::Duration { zero: ZeroMeaning::Literal },
        DefaultValue::Text("0s"),
        "How long Jobs that succeeded are kept.",
    ),
    live(
        "modules.job.activeDeadline",
        DURATION,
        DefaultValue::Text("2h0m0s"),
        "How long a Job may run.",
    ),
    live(
        "modules.job.maxConcurrent",
        ValueType::Integer { min: 1, max: 1000, zero: ZeroMeaning::Default },
        DefaultValue::Count(4),
        "How many Jobs of all Modules run at once.",
    ),
    live(
        "modules.job.signSelector",
        ValueType::Opaque,
        DefaultValue::Unset,
        "Labels of nodes that Jobs that sign run on, as a map. Unset: any node.",
    ),
    live(
        "modules.registry.existsTTL",
        DURATION,
        DefaultValue::Text("5m0s"),
        "After how long an image that exists is looked for again.",
    ),
    live(
        "modules.registry.missingTTL",
        DURATION,
        DefaultValue::Text("15s"),
        "After how long an image that is missing is looked for again.",
    ),
    live(
        "modules.registry.timeout",
        DURATION,
        DefaultValue::Text("30s"),
        "How long a registry may take to answer.",
    ),
    live(
        "modules.registry.caConfigMap",
        ValueType::Name,
        DefaultValue::Unset,
        "The name of a ConfigMap in the namespace of each Module. The certificates under its key \
         `ca.crt` are trusted besides those of the machine, by Jobs and when images are looked \
         for.",
    ),
    live(
        "modules.driverContainer.priorityClassName",
        ValueType::Text,
        DefaultValue::Text("system-node-critical"),
        "The priority class of driver containers; empty for none.",
    ),
    live(
        "modules.driverContainer.securityContext",
        ValueType::Opaque,
        DefaultValue::Unset,
        "The security context of driver containers that have none of their own. Unset: user 0 with \
         the capability SYS_MODULE and the SELinux type spc_t.",
    ),
    live(
        "modules.driverContainer.gracePeriod",
        DURATION,
        DefaultValue::Text("1m0s"),
        "How long a driver container has to unload.",
    ),
    live(
        "modules.firmwareHostPath",
        ValueType::Text,
        DefaultValue::Text("/var/lib/firmware"),
        "The directory of nodes that firmware is copied to.",
    ),
    Key {
        path: "modules.hostPathAllowList",
        value_type: ValueType::Texts,
        default: DefaultValue::Empty,
        effect: Effect::Restart,
        about: "Directories of nodes that volumes of Modules may mount; empty for no restriction.",
    },
    live(
        "modules.serviceAccounts.create",
        ValueType::Bool,
        DefaultValue::Flag(true),
        "Whether service accounts are created for Modules that name none.",
    ),
    Key {
        path: "modules.upgrade.drain",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether pods that use the devices of a Module are evicted from a node before it \
                changes to another version of the driver, for Modules with the annotation \
                ooto.sigs.k8s.io/drain-resources.",
    },
    live(
        "modules.compatibility.kmmLabels",
        ValueType::Bool,
        DefaultValue::Flag(false),
        "Whether nodes also get the ready labels of Kernel Module Management.",
    ),
];

/// The configuration of kernel modules.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// Whether Modules are reconciled.
    pub enabled: bool,
    /// The webhook.
    pub webhook: WebhookSection,
    kernel_labeling: KernelLabelingWord,
    builder: BuilderSection,
    job: JobSection,
    registry: RegistrySection,
    driver_container: DriverSection,
    firmware_host_path: String,
    host_path_allow_list: Vec<String>,
    service_accounts: AccountSection,
    upgrade: UpgradeSection,
    compatibility: CompatibilitySection,
}

/// The section `modules.webhook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSection {
    /// Whether Modules are checked by an admission webhook.
    pub enabled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum KernelLabelingWord {
    Ooto,
    Nfd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum IsolationWord {
    UserNamespace,
    Unconfined,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BuilderSection {
    image: String,
    kaniko_image: String,
    isolation: IsolationWord,
    storage_driver: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobSection {
    image: String,
    #[serde(deserialize_with = "length")]
    gc_delay: Duration,
    #[serde(deserialize_with = "length")]
    active_deadline: Duration,
    max_concurrent: u32,
    sign_selector: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistrySection {
    #[serde(rename = "existsTTL", deserialize_with = "length")]
    exists_ttl: Duration,
    #[serde(rename = "missingTTL", deserialize_with = "length")]
    missing_ttl: Duration,
    #[serde(deserialize_with = "length")]
    timeout: Duration,
    #[serde(rename = "caConfigMap")]
    ca_config_map: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DriverSection {
    priority_class_name: String,
    security_context: Option<Map<String, Value>>,
    #[serde(deserialize_with = "length")]
    grace_period: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountSection {
    create: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpgradeSection {
    drain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CompatibilitySection {
    kmm_labels: bool,
}

impl Configuration {
    /// Reads checked values.
    ///
    /// # Errors
    /// The values were not checked.
    pub fn read(values: &Values) -> Result<Self, serde_json::Error> {
        values.section("modules")
    }

    /// The settings that plans use.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let defaults = Settings::default();
        Settings {
            kernel_labeling: match self.kernel_labeling {
                KernelLabelingWord::Ooto => KernelLabeling::Own,
                KernelLabelingWord::Nfd => KernelLabeling::NodeFeatureDiscovery,
            },
            stages: EnabledStages { build: true, sign: true },
            builder: BuilderSettings {
                engine: BuildEngine::Container,
                buildah_image: self.builder.image.clone(),
                kaniko_image: self.builder.kaniko_image.clone(),
                isolation: match self.builder.isolation {
                    IsolationWord::UserNamespace => BuildIsolation::UserNamespace,
                    IsolationWord::Unconfined => BuildIsolation::Unconfined,
                },
                storage_driver: self.builder.storage_driver.clone(),
            },
            jobs: JobSettings {
                gantry_image: self.job.image.clone(),
                collection_delay: self.job.gc_delay,
                active_deadline: self.job.active_deadline,
                max_concurrent: usize::try_from(self.job.max_concurrent).unwrap_or(usize::MAX),
                sign_selector: self.job.sign_selector.clone().unwrap_or_default(),
                registry_role: None,
            },
            registry_ca_config_map: self.registry.ca_config_map.clone(),
            registry_timeout: self.registry.timeout,
            image_present_refresh: self.registry.exists_ttl,
            image_missing_refresh: self.registry.missing_ttl,
            driver_security_context: match &self.driver_container.security_context {
                Some(context) => Value::Object(context.clone()),
                None => defaults.driver_security_context.clone(),
            },
            driver_priority_class: self.driver_container.priority_class_name.clone(),
            driver_grace_period: self.driver_container.grace_period,
            firmware_host_path: self.firmware_host_path.clone(),
            host_path_allow_list: self.host_path_allow_list.clone(),
            create_service_accounts: self.service_accounts.create,
            drain_device_users: self.upgrade.drain,
            kmm_labels: self.compatibility.kmm_labels,
            ..defaults
        }
    }
}
