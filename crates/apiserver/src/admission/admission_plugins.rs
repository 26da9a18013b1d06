//! Admission plug-ins that can be disabled, under their Kubernetes names.

use std::collections::BTreeSet;

/// An admission plug-in of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdmissionPlugin {
    /// Refuses objects in namespaces that do not exist or are terminating.
    NamespaceLifecycle,
    /// Applies limit ranges.
    LimitRanger,
    /// Gives pods a service account and its token.
    ServiceAccount,
    /// Taints new nodes until they are ready.
    TaintNodesByCondition,
    /// Sets the priority of pods from their class.
    Priority,
    /// Gives pods default tolerations for lost nodes.
    DefaultTolerationSeconds,
    /// Gives claims a storage class.
    DefaultStorageClass,
    /// Protects volumes and claims in use from deletion.
    StorageObjectInUseProtection,
    /// Restricts the approval of certificate requests.
    CertificateApproval,
    /// Restricts the signing of certificates.
    CertificateSigning,
    /// Refuses certificate requests for the administrators' group.
    CertificateSubjectRestriction,
    /// Mutating webhooks.
    MutatingAdmissionWebhook,
    /// Policies.
    ValidatingAdmissionPolicy,
    /// Validating webhooks.
    ValidatingAdmissionWebhook,
    /// Quotas.
    ResourceQuota,
}

const IMPLEMENTED: [(&str, AdmissionPlugin); 15] = [
    ("NamespaceLifecycle", AdmissionPlugin::NamespaceLifecycle),
    ("LimitRanger", AdmissionPlugin::LimitRanger),
    ("ServiceAccount", AdmissionPlugin::ServiceAccount),
    ("TaintNodesByCondition", AdmissionPlugin::TaintNodesByCondition),
    ("Priority", AdmissionPlugin::Priority),
    ("DefaultTolerationSeconds", AdmissionPlugin::DefaultTolerationSeconds),
    ("DefaultStorageClass", AdmissionPlugin::DefaultStorageClass),
    ("StorageObjectInUseProtection", AdmissionPlugin::StorageObjectInUseProtection),
    ("CertificateApproval", AdmissionPlugin::CertificateApproval),
    ("CertificateSigning", AdmissionPlugin::CertificateSigning),
    ("CertificateSubjectRestriction", AdmissionPlugin::CertificateSubjectRestriction),
    ("MutatingAdmissionWebhook", AdmissionPlugin::MutatingAdmissionWebhook),
    ("ValidatingAdmissionPolicy", AdmissionPlugin::ValidatingAdmissionPolicy),
    ("ValidatingAdmissionWebhook", AdmissionPlugin::ValidatingAdmissionWebhook),
    ("ResourceQuota", AdmissionPlugin::ResourceQuota),
];

/// Plug-ins that Kubernetes enables by default and that this server implements in another way, or
/// does not need: they may be named and have no effect.
const NO_OP: [&str; 7] = [
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "MutatingAdmissionPolicy",
    "PersistentVolumeClaimResize",
    "PodSecurity",
    "PodTopologyLabels",
    "RuntimeClass",
];

/// Plug-ins that Kubernetes disables by default and that this server does not have: they may be
/// disabled.
const UNSUPPORTED: [&str; 14] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Why a selection of plug-ins is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// There is no such plug-in.
    #[error("{flag} plugin {name:?} is unknown; known are {}", known_names().join(", "))]
    Unknown {
        /// The flag that names it.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// This server does not have the plug-in.
    #[error("enable-admission-plugins: this server does not support {name:?}")]
    Unsupported {
        /// The name.
        name: String,
    },
    /// The plug-in is both enabled and disabled.
    #[error("{name:?} is both in enable-admission-plugins and in disable-admission-plugins")]
    EnabledAndDisabled {
        /// The name.
        name: String,
    },
}

/// Returns every accepted name, in order.
fn known_names() -> Vec<&'static str> {
    let own = IMPLEMENTED.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> = own.chain(NO_OP).chain(UNSUPPORTED).collect();
    names.sort_unstable();
    names
}

/// The enabled plug-ins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPlugins(BTreeSet<AdmissionPlugin>);

impl Default for AdmissionPlugins {
    fn default() -> Self {
        Self(IMPLEMENTED.iter().map(|(_, plugin)| *plugin).collect())
    }
}

impl AdmissionPlugins {
    /// Returns the default plug-ins, with some enabled and others disabled.
    ///
    /// # Errors
    /// A name is unknown, is not supported by this server, or is in both lists.
    pub fn from_flags(enable: &[String], disable: &[String]) -> Result<Self, PluginError> {
        let known = known_names();
        let lists = [("enable-admission-plugins", enable), ("disable-admission-plugins", disable)];
        for (flag, names) in lists {
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(PluginError::Unknown { flag, name: name.clone() });
            }
        }
        if let Some(name) = enable.iter().find(|name| UNSUPPORTED.contains(&name.as_str())) {
            return Err(PluginError::Unsupported { name: name.clone() });
        }
        if let Some(name) = enable.iter().find(|name| disable.contains(name)) {
            return Err(PluginError::EnabledAndDisabled { name: name.clone() });
        }
        let mut plugins = Self::default();
        for (name, plugin) in IMPLEMENTED {
            if disable.iter().any(|it| it == name) {
                plugins.0.remove(&plugin);
            }
        }
        Ok(plugins)
    }

    /// Whether a plug-in is enabled.
    #[must_use]
    pub fn is_enabled(&self, plugin: AdmissionPlugin) -> bool {
        self.0.contains(&plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(names: &[&str]) -> Vec<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn plugins_are_chosen_by_name() {
        let chosen =
            AdmissionPlugins::from_flags(&[], &words(&["ServiceAccount", "PodSecurity"])).unwrap();
        assert!(
            !chosen.is_enabled(AdmissionPlugin::ServiceAccount)
                && chosen.is_enabled(AdmissionPlugin::Priority)
        );
        assert_eq!(
            AdmissionPlugins::from_flags(&words(&["Priority"]), &[]),
            Ok(AdmissionPlugins::default())
        );
        assert_eq!(
            AdmissionPlugins::from_flags(&[], &words(&["AlwaysDeny"])),
            Ok(AdmissionPlugins::default())
        );
        let table = [
            (&["AlwaysPullImages"][..], &[][..], "this server does not support"),
            (&["Priority"], &["Priority"], "is both in"),
            (
                &["Nothing"],
                &[],
                "enable-admission-plugins plugin \"Nothing\" is unknown; known are",
            ),
            (&[], &["Nothing"], "AlwaysAdmit, AlwaysDeny, AlwaysPullImages, Certificate"),
        ];
        for (enable, disable, expected) in table {
            let error = AdmissionPlugins::from_flags(&words(enable), &words(disable))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
