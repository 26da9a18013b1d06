//! The parts of admission that can be switched off, under the names Kubernetes has for them.

use std::collections::BTreeSet;

/// A plug-in of admission that this server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plugin {
    /// Nothing is made in a namespace that is not there or is going.
    NamespaceLifecycle,
    /// Limit ranges.
    LimitRanger,
    /// Pods get an account and its token.
    ServiceAccount,
    /// New nodes are not used before they are ready.
    TaintNodesByCondition,
    /// Pods get a number for their priority.
    Priority,
    /// Pods wait for a node that is lost for a while.
    DefaultTolerationSeconds,
    /// Claims get a class.
    DefaultStorageClass,
    /// Volumes and claims in use do not go.
    StorageObjectInUseProtection,
    /// Requests for certificates are approved by those who may.
    CertificateApproval,
    /// Certificates are written by those who may sign.
    CertificateSigning,
    /// Nobody becomes an administrator by a request for a certificate.
    CertificateSubjectRestriction,
    /// Webhooks that may change a write.
    MutatingAdmissionWebhook,
    /// Policies.
    ValidatingAdmissionPolicy,
    /// Webhooks that may object to a write.
    ValidatingAdmissionWebhook,
    /// Quotas.
    ResourceQuota,
}

const OWN: [(&str, Plugin); 15] = [
    ("NamespaceLifecycle", Plugin::NamespaceLifecycle),
    ("LimitRanger", Plugin::LimitRanger),
    ("ServiceAccount", Plugin::ServiceAccount),
    ("TaintNodesByCondition", Plugin::TaintNodesByCondition),
    ("Priority", Plugin::Priority),
    ("DefaultTolerationSeconds", Plugin::DefaultTolerationSeconds),
    ("DefaultStorageClass", Plugin::DefaultStorageClass),
    ("StorageObjectInUseProtection", Plugin::StorageObjectInUseProtection),
    ("CertificateApproval", Plugin::CertificateApproval),
    ("CertificateSigning", Plugin::CertificateSigning),
    ("CertificateSubjectRestriction", Plugin::CertificateSubjectRestriction),
    ("MutatingAdmissionWebhook", Plugin::MutatingAdmissionWebhook),
    ("ValidatingAdmissionPolicy", Plugin::ValidatingAdmissionPolicy),
    ("ValidatingAdmissionWebhook", Plugin::ValidatingAdmissionWebhook),
    ("ResourceQuota", Plugin::ResourceQuota),
];

/// What Kubernetes has on by default and this server does in another way, or need not do: they may
/// be named and change nothing.
const SILENT: [&str; 7] = [
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "MutatingAdmissionPolicy",
    "PersistentVolumeClaimResize",
    "PodSecurity",
    "PodTopologyLabels",
    "RuntimeClass",
];

/// What Kubernetes has off by default and this server does not have: they may be switched off.
const ABSENT: [&str; 14] = [
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

/// Why a choice of plug-ins cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// There is no such plug-in.
    #[error("{flag} plugin {name:?} is unknown; known are {}", known().join(", "))]
    Unknown {
        /// The flag that names it.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// This server does not have it.
    #[error("enable-admission-plugins: this server does not have {name:?}")]
    Absent {
        /// The name.
        name: String,
    },
    /// It is to be on and off.
    #[error("{name:?} is both in enable-admission-plugins and in disable-admission-plugins")]
    Both {
        /// The name.
        name: String,
    },
}

/// Every name that may be given, in order.
fn known() -> Vec<&'static str> {
    let own = OWN.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> = own.chain(SILENT).chain(ABSENT).collect();
    names.sort_unstable();
    names
}

/// The plug-ins that are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugins(BTreeSet<Plugin>);

impl Default for Plugins {
    fn default() -> Self {
        Self(OWN.iter().map(|(_, plugin)| *plugin).collect())
    }
}

impl Plugins {
    /// What is on by default, with some switched on and others off.
    ///
    /// # Errors
    /// When a name is unknown, names what is not there, or stands in both lists.
    pub fn choose(enable: &[String], disable: &[String]) -> Result<Self, PluginError> {
        let known = known();
        let lists = [("enable-admission-plugins", enable), ("disable-admission-plugins", disable)];
        for (flag, names) in lists {
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(PluginError::Unknown { flag, name: name.clone() });
            }
        }
        if let Some(name) = enable.iter().find(|name| ABSENT.contains(&name.as_str())) {
            return Err(PluginError::Absent { name: name.clone() });
        }
        if let Some(name) = enable.iter().find(|name| disable.contains(name)) {
            return Err(PluginError::Both { name: name.clone() });
        }
        let mut plugins = Self::default();
        for (name, plugin) in OWN {
            if disable.iter().any(|it| it == name) {
                plugins.0.remove(&plugin);
            }
        }
        Ok(plugins)
    }

    /// Whether a plug-in is on.
    #[must_use]
    pub fn has(&self, plugin: Plugin) -> bool {
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
        let chosen = Plugins::choose(&[], &words(&["ServiceAccount", "PodSecurity"])).unwrap();
        assert!(!chosen.has(Plugin::ServiceAccount) && chosen.has(Plugin::Priority));
        assert_eq!(Plugins::choose(&words(&["Priority"]), &[]), Ok(Plugins::default()));
        assert_eq!(Plugins::choose(&[], &words(&["AlwaysDeny"])), Ok(Plugins::default()));
        let table = [
            (&["AlwaysPullImages"][..], &[][..], "this server does not have"),
            (&["Priority"], &["Priority"], "is both in"),
            (
                &["Nothing"],
                &[],
                "enable-admission-plugins plugin \"Nothing\" is unknown; known are",
            ),
            (&[], &["Nothing"], "AlwaysAdmit, AlwaysDeny, AlwaysPullImages, Certificate"),
        ];
        for (enable, disable, expected) in table {
            let error = Plugins::choose(&words(enable), &words(disable)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
