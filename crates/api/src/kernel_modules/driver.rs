//! The part of a Module that loads a module into the kernel.

use k8s_openapi::api::core::v1::Volume;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::Build;
use super::container::ContainerFields;
use super::mapping::KernelMapping;
use super::modprobe::Modprobe;
use super::reference::{LocalReference, Tls};
use super::sign::Sign;

/// The pods that load the module and stay while it is loaded: one DaemonSet per kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverContainer {
    /// The container, and which image it runs on which kernel. Its name and image are set by
    /// Gantry. It is not privileged unless it says so: it gets the capability SYS_MODULE and the
    /// SELinux type `spc_t`. The host's `/lib/modules` and `/usr/lib/modules` are mounted
    /// read-only, so keep the modules of the image elsewhere, for example below `/opt/lib/modules`.
    pub container: LoaderContainer,
    /// Secrets with registry credentials, to pull the image onto nodes and to pull and push when
    /// building and signing. The first that matches the registry is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_repo_secrets: Vec<LocalReference>,
    /// The service account of the pods. By default Gantry creates one that may run them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Volumes besides the two that are always there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::kubernetes::volumes")]
    pub volumes: Vec<Volume>,
}

/// The container that loads the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoaderContainer {
    /// The image of every mapping that names none. Variables such as `${KERNEL_FULL_VERSION}` are
    /// replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_image: Option<String>,
    /// Which image goes with which kernel; at least one. Mappings are tried in their order and the
    /// first that matches is used. A node whose kernel matches none is left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub kernel_mappings: Vec<KernelMapping>,
    /// How to build images that the registry does not have, for every mapping that does not say
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How to sign the modules in images, for every mapping that does not say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// Version of the driver, a label value. If set, nodes change from one version to the next when
    /// their label `oot.node.kubernetes.io/version-module.<namespace>.<name>` says so. It may
    /// change, but cannot be added or removed later.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub version: String,
    /// The module to load and unload with commands that Gantry writes. Without it the container's
    /// own `command` and `lifecycle` do so. Exclusive with `command`, `args` and `lifecycle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modprobe: Option<Modprobe>,
    /// Modules of the kernel's own tree that are unloaded before the module is loaded, and not
    /// loaded again afterwards. Needs `modprobe`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_tree_modules_to_remove: Vec<String>,
    /// How far the registry of the image is trusted, instead of what `build` says about it.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<Tls>,
    /// The rest of the container, as in any pod.
    #[serde(flatten)]
    pub fields: ContainerFields,
}

impl LoaderContainer {
    /// The image of a mapping before variables are replaced: its own, or that of the container.
    #[must_use]
    pub fn image_of<'a>(&'a self, mapping: &'a KernelMapping) -> Option<&'a str> {
        let set = |image: &'a Option<String>| image.as_deref().filter(|image| !image.is_empty());
        set(&mapping.container_image).or_else(|| set(&self.container_image))
    }

    /// Returns the build settings of a mapping; nothing if nothing is built for it.
    #[must_use]
    pub fn build_of(&self, mapping: &KernelMapping) -> Option<Build> {
        Build::merged(self.build.as_ref(), mapping.build.as_ref()).filter(Build::is_enabled)
    }

    /// Returns the signing settings of a mapping; nothing if nothing is signed for it.
    #[must_use]
    pub fn sign_of(&self, mapping: &KernelMapping) -> Option<Sign> {
        Sign::merged(self.sign.as_ref(), mapping.sign.as_ref())
    }

    /// Returns how far the registry of a mapping's image is trusted.
    #[must_use]
    pub fn registry_tls_of(&self, mapping: &KernelMapping) -> Option<Tls> {
        mapping.registry_tls.or(self.registry_tls)
    }

    /// Returns the modules to unload first on kernels of a mapping. A list there replaces that of
    /// the container, even if it is empty.
    #[must_use]
    pub fn in_tree_modules_of<'a>(&'a self, mapping: &'a KernelMapping) -> &'a [String] {
        mapping.in_tree_modules_to_remove.as_deref().unwrap_or(&self.in_tree_modules_to_remove)
    }
}
