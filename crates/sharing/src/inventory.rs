//! Every cluster-scoped object of Gantry: why it exists, and who wins when two want it differently.
//!
//! All else is namespaced. An object that is missing here has no rule, so a test of the binary
//! compares this list with everything that is installed anywhere.

use gantry_api::object::KINDS;
use gantry_reconcile::{ApiPath, InvalidPath};
use serde::Serialize;

use crate::admin_roles::{FMA_CRD_ADMIN, FMA_POLICY_ADMIN, GANTRY_CRD_ADMIN};

/// The group whose names and rules are fixed between projects.
pub const FMA_GROUP: &str = "fma.llm-d.ai";
/// The admission policies.
pub const POLICIES: [&str; 2] = ["fma-bound-serverreqpod", "fma-immutable-fields"];
/// What binds them, in the same order.
pub const POLICY_BINDINGS: [&str; 2] = ["bind-fma-bound-serverreqpod", "bind-fma-immutable-fields"];
/// The role for reading nodes, if nobody says another.
pub const NODE_VIEW: &str = "fma-node-view";

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ObjectKind {
    /// Defines a kind.
    CustomResourceDefinition,
    /// Refuses writes.
    ValidatingAdmissionPolicy,
    /// Says where a policy holds.
    ValidatingAdmissionPolicyBinding,
    /// Says who is asked to change what is written.
    MutatingWebhookConfiguration,
    /// Says who is asked whether it may be written.
    ValidatingWebhookConfiguration,
    /// Rights.
    ClusterRole,
    /// Who has them everywhere.
    ClusterRoleBinding,
    /// A place for all else.
    Namespace,
}

impl ObjectKind {
    /// The API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::CustomResourceDefinition => "apiextensions.k8s.io",
            Self::ValidatingAdmissionPolicy
            | Self::ValidatingAdmissionPolicyBinding
            | Self::MutatingWebhookConfiguration
            | Self::ValidatingWebhookConfiguration => "admissionregistration.k8s.io",
            Self::ClusterRole | Self::ClusterRoleBinding => "rbac.authorization.k8s.io",
            Self::Namespace => "",
        }
    }

    /// The name in URLs.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::CustomResourceDefinition => "customresourcedefinitions",
            Self::ValidatingAdmissionPolicy => "validatingadmissionpolicies",
            Self::ValidatingAdmissionPolicyBinding => "validatingadmissionpolicybindings",
            Self::MutatingWebhookConfiguration => "mutatingwebhookconfigurations",
            Self::ValidatingWebhookConfiguration => "validatingwebhookconfigurations",
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
            Self::Namespace => "namespaces",
        }
    }

    /// The kind as objects carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CustomResourceDefinition => "CustomResourceDefinition",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingAdmissionPolicyBinding => "ValidatingAdmissionPolicyBinding",
            Self::MutatingWebhookConfiguration => "MutatingWebhookConfiguration",
            Self::ValidatingWebhookConfiguration => "ValidatingWebhookConfiguration",
            Self::ClusterRole => "ClusterRole",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::Namespace => "Namespace",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == kind)
    }

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::CustomResourceDefinition,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionPolicyBinding,
        Self::MutatingWebhookConfiguration,
        Self::ValidatingWebhookConfiguration,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::Namespace,
    ];

    /// Where the objects are; every kind here is in version 1 of its group.
    #[must_use]
    pub const fn collection(self) -> ApiPath {
        ApiPath::from_static(match self {
            Self::CustomResourceDefinition => {
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            }
            Self::ValidatingAdmissionPolicy => {
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
            }
            Self::ValidatingAdmissionPolicyBinding => {
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
            }
            Self::MutatingWebhookConfiguration => {
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
            }
            Self::ValidatingWebhookConfiguration => {
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
            }
            Self::ClusterRole => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            Self::ClusterRoleBinding => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            Self::Namespace => "/api/v1/namespaces",
        })
    }

    /// Where an object is.
    ///
    /// # Errors
    /// No object can have this name.
    pub fn path(self, name: &str) -> Result<ApiPath, InvalidPath> {
        self.collection().item(name)
    }
}

/// What an object is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Name {
    /// So, in every cluster.
    Fixed(String),
    /// By a pattern, once for each installation.
    Pattern(&'static str),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(name) => f.write_str(name),
            Self::Pattern(pattern) => f.write_str(pattern),
        }
    }
}

/// Who wins when two installations want different contents for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wins {
    /// Whoever brings a version first. A version that is there stays as it is; another is added
    /// beside it, and none is taken away unasked.
    FirstOfAVersion,
    /// Whoever applied last, whatever was there: contents stay compatible with older ones.
    LastApplied,
    /// Nobody: rights are added to those that are there.
    Sum,
    /// The administrator of the cluster, who alone may write it.
    Administrator,
    /// The operator, of which a cluster has one.
    Operator,
    /// The one installation whose name it carries.
    ItsInstallation,
    /// It is not made any more; one that is found is reported.
    NotMade,
    /// It exists only where the cluster is nobody else's.
    OwnCluster,
}

impl Wins {
    /// The rule in a sentence.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::FirstOfAVersion => {
                "applied if absent or if it lacks the version; a version that is there stays"
            }
            Self::LastApplied => "applied whatever is there; the last one wins",
            Self::Sum => "rules are added if they are missing, and never removed",
            Self::Administrator => "written by the administrator of the cluster alone",
            Self::Operator => "written by the operator, which puts right what others change",
            Self::ItsInstallation => "belongs to the installation that it is named after",
            Self::NotMade => "not made any more; reported, and removed on request",
            Self::OwnCluster => "exists only in the cluster that `gantry up` runs",
        }
    }
}

/// One object, or one for each installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What it is.
    pub kind: ObjectKind,
    /// What it is called.
    pub name: Name,
    /// Why it exists and cannot be namespaced.
    pub reason: &'static str,
    /// Who wins.
    pub wins: Wins,
    /// The ClusterRole with the right to write it.
    pub owner: &'static str,
}

/// The role of those who may do everything.
pub const CLUSTER_ADMIN: &str = "cluster-admin";

/// The entry of a role of the operator, or of its binding, that a subsystem needs.
#[must_use]
pub fn operator_entry(kind: ObjectKind, name: &str, is_optional: bool) -> Entry {
    let reason = if is_optional { OPTIONAL } else { OPERATOR };
    let name = Name::Fixed(name.to_owned());
    Entry { kind, name, reason, wins: Wins::Administrator, owner: CLUSTER_ADMIN }
}

/// The entry of a role, or of a binding, of an account that a subsystem has on the embedded server.
#[must_use]
pub fn account_entry(kind: ObjectKind, name: &str) -> Entry {
    let name = Name::Fixed(name.to_owned());
    Entry { kind, name, reason: OWN, wins: Wins::OwnCluster, owner: CLUSTER_ADMIN }
}

/// Everything but the roles of subsystems, in the order in which it is installed.
#[must_use]
pub fn inventory() -> Vec<Entry> {
    let mut entries = definitions();
    entries.extend(policies());
    entries.extend(FIXED.iter().map(|(kind, name, reason, wins)| Entry {
        kind: *kind,
        name: Name::Fixed((*name).to_owned()),
        reason,
        wins: *wins,
        owner: CLUSTER_ADMIN,
    }));
    entries.extend(WEBHOOKS.map(|kind| Entry {
        kind,
        name: Name::Fixed("gantry-devices".to_owned()),
        reason: "a server asks about pods with devices, in every namespace, only if it is told to",
        wins: Wins::Operator,
        owner: DEVICES_WEBHOOK,
    }));
    entries.push(Entry {
        kind: ObjectKind::MutatingWebhookConfiguration,
        name: Name::Fixed("gantry-queue".to_owned()),
        reason: "a server has the authors of AppWrappers recorded, in every namespace, only if it is told to",
        wins: Wins::Operator,
        owner: ACCESS_REVIEWS,
    });
    entries.extend(PATTERNS.iter().map(|(kind, pattern, reason, wins)| Entry {
        kind: *kind,
        name: Name::Pattern(pattern),
        reason,
        wins: *wins,
        owner: CLUSTER_ADMIN,
    }));
    entries
}

/// The ClusterRole to ask for by whoever may not write an object.
#[must_use]
pub fn owner_of(kind: ObjectKind, name: &str) -> &'static str {
    let found = inventory().into_iter().find(|entry| {
        entry.kind == kind && matches!(&entry.name, Name::Fixed(fixed) if fixed == name)
    });
    found.map_or(CLUSTER_ADMIN, |entry| entry.owner)
}

fn definitions() -> Vec<Entry> {
    let entry = |kind: &gantry_api::kind::Kind| Entry {
        kind: ObjectKind::CustomResourceDefinition,
        name: Name::Fixed(kind.crd_name()),
        reason: "a server serves a kind only with its definition, whose name is forced by the kind",
        wins: Wins::FirstOfAVersion,
        owner: if kind.group == FMA_GROUP { FMA_CRD_ADMIN } else { GANTRY_CRD_ADMIN },
    };
    KINDS.iter().map(entry).collect()
}

fn policies() -> Vec<Entry> {
    let entry = |kind, name: &str| Entry {
        kind,
        name: Name::Fixed(name.to_owned()),
        reason: "keeps users from changing what controllers note on pods; one constant policy \
                 serves the controllers of every installation",
        wins: Wins::LastApplied,
        owner: FMA_POLICY_ADMIN,
    };
    let policies = POLICIES.map(|name| entry(ObjectKind::ValidatingAdmissionPolicy, name));
    let bindings =
        POLICY_BINDINGS.map(|name| entry(ObjectKind::ValidatingAdmissionPolicyBinding, name));
    policies.into_iter().chain(bindings).collect()
}

/// The role of who may write the configurations of webhooks.
const DEVICES_WEBHOOK: &str = "gantry-devices-webhook";
/// The role of who may have the authors of AppWrappers recorded, and ask what they may do.
const ACCESS_REVIEWS: &str = "gantry-access-reviews";
/// By what a server is told whom to ask.
const WEBHOOKS: [ObjectKind; 2] =
    [ObjectKind::MutatingWebhookConfiguration, ObjectKind::ValidatingWebhookConfiguration];

const ROLE: ObjectKind = ObjectKind::ClusterRole;
const BINDING: ObjectKind = ObjectKind::ClusterRoleBinding;

/// What has the same name everywhere, beside definitions and policies.
const FIXED: &[(ObjectKind, &str, &str, Wins)] = &[
    (ROLE, FMA_CRD_ADMIN, "lets people install definitions by themselves", Wins::Administrator),
    (ROLE, FMA_POLICY_ADMIN, "lets people install policies by themselves", Wins::Administrator),
    (ROLE, GANTRY_CRD_ADMIN, "lets people install definitions by themselves", Wins::Administrator),
    (
        ROLE,
        "gantry-viewer",
        "joins `view`, so that whoever may look sees Gantry's kinds",
        Wins::Administrator,
    ),
    (
        ROLE,
        "gantry-editor",
        "joins `edit`, so that tenants may write Gantry's kinds",
        Wins::Administrator,
    ),
    (
        ROLE,
        "gantry-modules-editor",
        "is root on nodes, so somebody has to bind it",
        Wins::Administrator,
    ),
    (ROLE, "gantry-devices-administrator", "publishes devices for all", Wins::Administrator),
    (ROLE, "gantry-quota-administrator", "divides the cluster among teams", Wins::Administrator),
    (ROLE, NODE_VIEW, "nodes are in no namespace, and controllers place pods by them", Wins::Sum),
    (ObjectKind::Namespace, "gantry-system", "where the operator lives", Wins::Administrator),
    (ROLE, "gantry-operator", OPERATOR, Wins::Administrator),
    (BINDING, "gantry-operator", OPERATOR, Wins::Administrator),
    (ROLE, "gantry-metrics-auth", OPERATOR, Wins::Administrator),
    (BINDING, "gantry-metrics-auth", OPERATOR, Wins::Administrator),
    (ROLE, "gantry-metrics-reader", OPERATOR, Wins::Administrator),
    (ROLE, "system:gantry:controllers", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:controllers", OWN, Wins::OwnCluster),
    (ROLE, "system:gantry:nodes", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:nodes", OWN, Wins::OwnCluster),
    (ROLE, "system:gantry:certificate-signer", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:certificate-signer", OWN, Wins::OwnCluster),
    (ROLE, "system:gantry:horizontal-pod-autoscaler", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:horizontal-pod-autoscaler", OWN, Wins::OwnCluster),
    (ROLE, "system:gantry:reader", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:reader", OWN, Wins::OwnCluster),
    (ROLE, "system:gantry:sample-driver", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:sample-driver", OWN, Wins::OwnCluster),
    (BINDING, "system:gantry:volume-provisioner", OWN, Wins::OwnCluster),
    (ROLE, "system:aggregated-metrics-reader", OWN, Wins::OwnCluster),
];

const OPERATOR: &str = "the operator serves all namespaces: one deployment in a cluster";
const OPTIONAL: &str = "a right the operator needs for something that is off by default";
const OWN: &str = "what the members of an embedded cluster may do";

/// What exists once for each installation.
const PATTERNS: &[(ObjectKind, &str, &str, Wins)] = &[
    (
        BINDING,
        "<release>-node-view",
        "lets the controllers of one installation read nodes",
        Wins::ItsInstallation,
    ),
    (
        BINDING,
        "<any, of ClusterRole view>",
        "older charts let their controllers view everything",
        Wins::NotMade,
    ),
    (ObjectKind::Namespace, "<namespace>", "where one installation lives", Wins::ItsInstallation),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn count(kind: ObjectKind, wins: Wins) -> usize {
        inventory().iter().filter(|it| it.kind == kind && it.wins == wins).count()
    }

    /// Two entries for one object would be two rules for it.
    #[test]
    fn cs_4_every_object_has_one_rule_and_one_owner() {
        let entries = inventory();
        for (index, entry) in entries.iter().enumerate() {
            let same = |it: &&Entry| it.kind == entry.kind && it.name == entry.name;
            assert_eq!(entries.iter().filter(same).count(), 1, "{entry:?}");
            assert!(!entry.reason.is_empty() && !entry.wins.rule().is_empty(), "{index}");
        }
    }

    #[test]
    fn cs_5_definitions_are_isolated_by_version_alone() {
        assert_eq!(count(ObjectKind::CustomResourceDefinition, Wins::FirstOfAVersion), KINDS.len());
        for kind in KINDS {
            assert_eq!(kind.crd_name(), format!("{}.{}", kind.plural, kind.group));
        }
    }

    #[test]
    fn cs_6_to_cs_10_are_in_the_inventory() {
        assert_eq!(count(ObjectKind::ValidatingAdmissionPolicy, Wins::LastApplied), 2);
        assert_eq!(count(ObjectKind::ValidatingAdmissionPolicyBinding, Wins::LastApplied), 2);
        assert_eq!(count(ObjectKind::ClusterRole, Wins::Sum), 1);
        assert_eq!(count(ObjectKind::ClusterRoleBinding, Wins::ItsInstallation), 1);
        assert_eq!(count(ObjectKind::ClusterRoleBinding, Wins::NotMade), 1);
        assert_eq!(count(ObjectKind::Namespace, Wins::ItsInstallation), 1);
        assert_eq!(count(ObjectKind::MutatingWebhookConfiguration, Wins::Operator), 2);
        assert_eq!(count(ObjectKind::ValidatingWebhookConfiguration, Wins::Operator), 1);
    }

    #[test]
    fn cs_30_policy_names_depend_on_nothing() {
        for entry in inventory().iter().filter(|it| it.wins == Wins::LastApplied) {
            assert!(matches!(&entry.name, Name::Fixed(name) if name.contains("fma-")), "{entry:?}");
        }
    }

    #[test]
    fn whoever_lacks_a_right_is_told_the_role() {
        let definition = ObjectKind::CustomResourceDefinition;
        let table = [
            (definition, "launcherconfigs.fma.llm-d.ai", FMA_CRD_ADMIN),
            (definition, "appwrappers.workload.codeflare.dev", GANTRY_CRD_ADMIN),
            (definition, "others.example.com", CLUSTER_ADMIN),
            (ObjectKind::ValidatingAdmissionPolicy, "fma-immutable-fields", FMA_POLICY_ADMIN),
            (ObjectKind::ClusterRole, "fma-crd-admin", CLUSTER_ADMIN),
            (ObjectKind::MutatingWebhookConfiguration, "gantry-devices", DEVICES_WEBHOOK),
            (ObjectKind::ValidatingWebhookConfiguration, "gantry-devices", DEVICES_WEBHOOK),
            (ObjectKind::MutatingWebhookConfiguration, "gantry-queue", ACCESS_REVIEWS),
            (ObjectKind::ValidatingWebhookConfiguration, "others", CLUSTER_ADMIN),
        ];
        for (kind, name, role) in table {
            assert_eq!(owner_of(kind, name), role, "{name}");
        }
    }

    #[test]
    fn paths_are_those_of_the_kinds() {
        assert_eq!(ObjectKind::Namespace.path("n").unwrap().as_str(), "/api/v1/namespaces/n");
        assert!(ObjectKind::Namespace.path("n/../m").is_err());
        for kind in ObjectKind::ALL {
            let api_version = match kind.group() {
                "" => "v1".to_owned(),
                group => format!("{group}/v1"),
            };
            let path = ApiPath::object(&api_version, "", kind.plural(), "a.b");
            assert_eq!(kind.path("a.b"), path);
            assert_eq!(ObjectKind::of(kind.as_str()), Some(kind));
        }
        assert_eq!(ObjectKind::of("Pod"), None);
    }
}
