//! Labels, annotations and other names that Modules, their objects and nodes carry.

use gantry_reconcile::Key;

/// The label of nodes and driver DaemonSets with the kernel, in the form of a label value.
pub const KERNEL_LABEL: &str = "oot.node.kubernetes.io/kernel-version.full";
/// The label that node feature discovery sets with the kernel.
pub const NFD_KERNEL_LABEL: &str = "feature.node.kubernetes.io/kernel-version.full";
/// The label of DaemonSets, pods and Jobs with the name of their Module.
pub const MODULE_LABEL: &str = "oot.node.kubernetes.io/module.name";
/// The label of DaemonSets and pods with their part of a Module.
pub const ROLE_LABEL: &str = "ooto.sigs.k8s.io/role";
/// The label of Jobs with the kernel they are for, in the form of a label value.
pub const TARGET_KERNEL_LABEL: &str = "ooto.sigs.k8s.io/target-kernel";
/// The label of Jobs with what they do.
pub const JOB_TYPE_LABEL: &str = "ooto.sigs.k8s.io/job-type";
/// The label of Jobs with a hash of the image that they push.
pub const IMAGE_HASH_LABEL: &str = "ooto.sigs.k8s.io/image-hash";
/// The label of namespaces that have Modules.
pub const NAMESPACE_LABEL: &str = "ooto.sigs.k8s.io/contains-modules";

/// The annotation of Jobs and DaemonSets with a hash of what they were made from.
pub const HASH_ANNOTATION: &str = "ooto.sigs.k8s.io/last-hash";
/// The annotation of DaemonSets and Jobs with the kernel as its node reports it.
pub const KERNEL_ANNOTATION: &str = "ooto.sigs.k8s.io/kernel-version";
/// The annotation of Jobs with the image that they push.
pub const IMAGE_ANNOTATION: &str = "ooto.sigs.k8s.io/image";
/// The annotation of Jobs, and the label of images, with a hash of the image's inputs.
pub const INPUT_HASH: &str = "ooto.sigs.k8s.io/input-hash";
/// The annotation of Modules with the last `imageRebuildTriggerGeneration` that was acted on.
pub const REBUILD_ANNOTATION: &str = "ooto.sigs.k8s.io/image-rebuild-trigger-generation";
/// The annotation of Modules that are deleted without waiting for their pods.
pub const SKIP_UNLOAD_ANNOTATION: &str = "ooto.sigs.k8s.io/skip-unload";
/// The annotation of Modules with the resources of their device plugin, separated by commas: pods
/// that use them are evicted from a node before it changes to another version of the driver.
pub const DRAIN_ANNOTATION: &str = "ooto.sigs.k8s.io/drain-resources";

/// The finalizer of Modules.
pub const FINALIZER: &str = "ooto.sigs.k8s.io/module-finalizer";
/// The field manager of what is applied, and the reporting component of events.
pub const FIELD_MANAGER: &str = "gantry-modules";

/// The prefix of the node labels about one Module.
const NODE_PREFIX: &str = "oot.node.kubernetes.io/";
/// The prefix of the node labels of ordered upgrades.
const UPGRADE_PREFIX: &str = "beta.oot.node.kubernetes.io/";

/// A part of a Module that has DaemonSets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModulePart {
    /// The driver container.
    DriverContainer,
    /// The device plugin.
    DevicePlugin,
}

impl ModulePart {
    /// Both parts.
    pub const ALL: [Self; 2] = [Self::DriverContainer, Self::DevicePlugin];

    /// The value of [`ROLE_LABEL`], and the name of the container.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DriverContainer => "driver-container",
            Self::DevicePlugin => "device-plugin",
        }
    }

    /// The part with this value of [`ROLE_LABEL`].
    #[must_use]
    pub fn parse(role: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.as_str() == role)
    }
}

/// A node label about one Module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeLabel {
    /// What it says.
    pub kind: NodeLabelKind,
    /// The namespace of the Module.
    pub namespace: String,
    /// The name of the Module.
    pub module: String,
}

/// What a node label about a Module says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeLabelKind {
    /// The driver container is ready.
    Ready,
    /// The device plugin is ready.
    DevicePluginReady,
    /// The version of the driver container that is ready.
    VersionReady,
    /// The version that the administrator wants on the node.
    WantedVersion,
    /// The version of the driver container that may run on the node.
    DriverVersion,
    /// The version of the device plugin that may run on the node.
    PluginVersion,
}

impl NodeLabelKind {
    /// All kinds, the longest suffixes first: a shorter one may be the end of a longer one.
    pub const ALL: [Self; 6] = [
        Self::DevicePluginReady,
        Self::VersionReady,
        Self::Ready,
        Self::WantedVersion,
        Self::DriverVersion,
        Self::PluginVersion,
    ];

    /// Prefix and suffix of the label's key around `<namespace>.<name>`.
    const fn affixes(self) -> (&'static str, &'static str) {
        match self {
            Self::Ready => (NODE_PREFIX, ".ready"),
            Self::DevicePluginReady => (NODE_PREFIX, ".device-plugin-ready"),
            Self::VersionReady => (NODE_PREFIX, ".version.ready"),
            Self::WantedVersion => ("oot.node.kubernetes.io/version-module.", ""),
            Self::DriverVersion => ("beta.oot.node.kubernetes.io/version-driver.", ""),
            Self::PluginVersion => ("beta.oot.node.kubernetes.io/version-plugin.", ""),
        }
    }

    /// The key of this label for a Module.
    #[must_use]
    pub fn key(self, namespace: &str, module: &str) -> String {
        let (prefix, suffix) = self.affixes();
        format!("{prefix}{namespace}.{module}{suffix}")
    }
}

impl NodeLabel {
    /// Reads the key of a node label; `None` if it is not about a Module.
    ///
    /// Namespace and name are split at the first dot: a namespace has none, a name may have some.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        if !key.starts_with(NODE_PREFIX) && !key.starts_with(UPGRADE_PREFIX) {
            return None;
        }
        // A Module may be called `version-module.x.ready`: the prefix of a namespace cannot
        // contain a dot, so prefixes that end with one are tried first.
        let (prefixed, suffixed): (Vec<_>, Vec<_>) =
            NodeLabelKind::ALL.into_iter().partition(|kind| kind.affixes().1.is_empty());
        prefixed.into_iter().chain(suffixed).find_map(|kind| {
            let (prefix, suffix) = kind.affixes();
            let names = key.strip_prefix(prefix)?.strip_suffix(suffix)?;
            let (namespace, module) = names.split_once('.')?;
            let valid = !namespace.is_empty() && !module.is_empty();
            valid.then(|| Self { kind, namespace: namespace.to_owned(), module: module.to_owned() })
        })
    }

    /// The Module that it is about.
    #[must_use]
    pub fn module_key(&self) -> Key {
        Key::new(&self.namespace, &self.module)
    }

    /// The key of the label.
    #[must_use]
    pub fn key(&self) -> String {
        self.kind.key(&self.namespace, &self.module)
    }
}

/// The labels of Kernel Module Management about a Module: driver and device plugin are ready.
#[must_use]
pub fn kmm_ready_labels(module: &Key) -> [String; 2] {
    let (namespace, name) = (module.namespace(), module.name());
    let label = |suffix: &str| format!("kmm.node.kubernetes.io/{namespace}.{name}.{suffix}");
    [label("ready"), label("device-plugin-ready")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes_are_read_back() {
        for kind in NodeLabelKind::ALL {
            for (namespace, module) in [("default", "hello"), ("a", "b.c.d"), ("x-y", "ready")] {
                let label =
                    NodeLabel { kind, namespace: namespace.to_owned(), module: module.to_owned() };
                assert_eq!(NodeLabel::parse(&label.key()), Some(label));
            }
        }
        for other in [KERNEL_LABEL, "oot.node.kubernetes.io/ready", "kubernetes.io/hostname"] {
            let parsed = NodeLabel::parse(other);
            assert_eq!(parsed, None, "{other}");
        }
    }

    #[test]
    fn the_longest_label_of_the_longest_module_is_valid() {
        let (namespace, module) = ("n".repeat(20), "m".repeat(22));
        for kind in NodeLabelKind::ALL {
            let key = kind.key(&namespace, &module);
            let name = key.split_once('/').expect("labels have a prefix").1;
            assert!(name.len() <= 63, "{name}");
        }
    }
}
