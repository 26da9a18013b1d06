//! The inventory of all cluster-scoped objects of Gantry: why each exists, and which writer wins
//! when two want different contents.
//!
//! Everything else is namespaced. An object that is missing here has no rule, so a test of the
//! binary compares this list with everything that is installed anywhere.

use gantry_api::object::KINDS;
use gantry_reconcile::{ApiPath, InvalidPath};
use serde::Serialize;

use crate::admin_roles::{FMA_CRD_ADMIN, FMA_POLICY_ADMIN, GANTRY_CRD_ADMIN};

/// The group whose names and rules are fixed between projects.
pub const FMA_GROUP: &str = "fma.llm-d.ai";
/// The admission policies.
pub const POLICIES: [&str; 2] = ["fma-bound-serverreqpod", "fma-immutable-fields"];
/// Their bindings, in the same order.
pub const POLICY_BINDINGS: [&str; 2] = ["bind-fma-bound-serverreqpod", "bind-fma-immutable-fields"];
/// The default name of the role for reading nodes.
pub const NODE_VIEW: &str = "fma-node-view";

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ObjectKind {
    /// Defines a custom resource.
    CustomResourceDefinition,
    /// Validates writes.
    ValidatingAdmissionPolicy,
    /// Selects where a policy applies.
    ValidatingAdmissionPolicyBinding,
    /// Lists the webhooks that mutate writes.
    MutatingWebhookConfiguration,
    /// Lists the webhooks that validate writes.
    ValidatingWebhookConfiguration,
    /// Permissions.
    ClusterRole,
    /// Grants permissions in the whole cluster.
    ClusterRoleBinding,
    /// A namespace.
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

    /// The plural name in URLs.
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

    /// The kind with this name.
    #[must_use]
    pub fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == kind)
    }

    /// All kinds.
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

    /// The path of all objects; every kind here is in version 1 of its group.
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

    /// The path of an object.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn path(self, name: &str) -> Result<ApiPath, InvalidPath> {
        self.collection().item(name)
    }
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Name {
    /// The same in every cluster.
    Fixed(String),
    /// A pattern, with one object for each installation.
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

/// Which writer wins when two installations want different contents for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConflictRule {
    /// The first one that brings a version. An existing version stays as it is; another is added
    /// beside it, and none is removed unless the user asks for it.
    FirstOfAVersion,
    /// The one that applied last, whatever was there: contents stay compatible with older ones.
    LastApplied,
    /// Neither: permissions are added to the existing ones.
    Sum,
    /// The administrator of the cluster, who alone may write it.
    Administrator,
    /// The operator, of which a cluster has one.
    Operator,
    /// The one installation whose name it carries.
    ItsInstallation,
    /// It is no longer created; an existing one is reported.
    NotMade,
    /// It exists only in a cluster that is not shared.
    OwnCluster,
}

impl ConflictRule {
    /// The rule in a sentence.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::FirstOfAVersion => {
                "applied if it does not exist or lacks the version; an existing version stays"
            }
            Self::LastApplied => "always applied; the last one wins",
            Self::Sum => "rules are added if they are missing, and never removed",
            Self::Administrator => "written only by the administrator of the cluster",
            Self::Operator => "written by the operator, which reverts the changes of others",
            Self::ItsInstallation => "belongs to the installation that it is named after",
            Self::NotMade => "no longer created; reported, and removed on request",
            Self::OwnCluster => "exists only in the cluster that `gantry up` runs",
        }
    }
}

/// An object, or a pattern of one object for each installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InventoryEntry {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: Name,
    /// Why it exists and cannot be namespaced.
    pub reason: &'static str,
    /// The rule for conflicts.
    pub wins: ConflictRule,
    /// The ClusterRole with the permission to write it.
    pub owner: &'static str,
}

/// The role that allows everything.
pub const CLUSTER_ADMIN: &str = "cluster-admin";

/// The entry of a role of the operator, or of its binding, that a subsystem needs.
#[must_use]
pub fn operator_entry(kind: ObjectKind, name: &str, is_optional: bool) -> InventoryEntry {
    let reason = if is_optional { OPTIONAL_REASON } else { OPERATOR_REASON };
    let name = Name::Fixed(name.to_owned());
    InventoryEntry { kind, name, reason, wins: ConflictRule::Administrator, owner: CLUSTER_ADMIN }
}

/// The entry of a role, or of a binding, of an account that a subsystem has on the embedded server.
#[must_use]
pub fn account_entry(kind: ObjectKind, name: &str) -> InventoryEntry {
    let name = Name::Fixed(name.to_owned());
    InventoryEntry {
        kind,
        name,
        reason: EMBEDDED_REASON,
        wins: ConflictRule::OwnCluster,
        owner: CLUSTER_ADMIN,
    }
}

/// All objects except the roles of subsystems, in the order in which they are installed.
#[must_use]
pub fn inventory() -> Vec<InventoryEntry> {
    let mut entries = definitions();
    entries.extend(policies());
    entries.extend(FIXED_NAME_OBJECTS.iter().map(|(kind, name, reason, wins)| InventoryEntry {
        kind: *kind,
        name: Name::Fixed((*name).to_owned()),
        reason,
        wins: *wins,
        owner: CLUSTER_ADMIN,
    }));
    entries.extend(WEBHOOKS.map(|kind| InventoryEntry {
        kind,
        name: Name::Fixed("gantry-devices".to_owned()),
        reason: "pods with devices of all namespaces are sent to a webhook that is registered",
        wins: ConflictRule::Operator,
        owner: DEVICES_WEBHOOK_ROLE,
    }));
    entries.push(InventoryEntry {
        kind: ObjectKind::MutatingWebhookConfiguration,
        name: Name::Fixed("gantry-queue".to_owned()),
        reason: "the authors of AppWrappers of all namespaces are recorded by a webhook",
        wins: ConflictRule::Operator,
        owner: ACCESS_REVIEWS_ROLE,
    });
    entries.extend(PER_INSTALLATION_OBJECTS.iter().map(|(kind, pattern, reason, wins)| {
        InventoryEntry {
            kind: *kind,
            name: Name::Pattern(pattern),
            reason,
            wins: *wins,
            owner: CLUSTER_ADMIN,
        }
    }));
    entries
}

/// The ClusterRole that a user needs to write an object.
#[must_use]
pub fn owner_role(kind: ObjectKind, name: &str) -> &'static str {
    let found = inventory().into_iter().find(|entry| {
        entry.kind == kind && matches!(&entry.name, Name::Fixed(fixed) if fixed == name)
    });
    found.map_or(CLUSTER_ADMIN, |entry| entry.owner)
}

fn definitions() -> Vec<InventoryEntry> {
    let entry = |kind: &gantry_api::kind::Kind| InventoryEntry {
        kind: ObjectKind::CustomResourceDefinition,
        name: Name::Fixed(kind.crd_name()),
        reason: "a server serves a kind only with its definition, whose name follows from the kind",
        wins: ConflictRule::FirstOfAVersion,
        owner: if kind.group == FMA_GROUP { FMA_CRD_ADMIN } else { GANTRY_CRD_ADMIN },
    };
    KINDS.iter().map(entry).collect()
}

fn policies() -> Vec<InventoryEntry> {
    let entry = |kind, name: &str| InventoryEntry {
        kind,
        name: Name::Fixed(name.to_owned()),
        reason: "keeps users from changing what controllers note on pods; one constant policy \
                 serves the controllers of every installation",
        wins: ConflictRule::LastApplied,
        owner: FMA_POLICY_ADMIN,
    };
    let policies = POLICIES.map(|name| entry(ObjectKind::ValidatingAdmissionPolicy, name));
    let bindings =
        POLICY_BINDINGS.map(|name| entry(ObjectKind::ValidatingAdmissionPolicyBinding, name));
    policies.into_iter().chain(bindings).collect()
}

/// The role that may write the webhook configurations of devices.
const DEVICES_WEBHOOK_ROLE: &str = "gantry-devices-webhook";
/// The role that may have the authors of AppWrappers recorded, and review their access.
const ACCESS_REVIEWS_ROLE: &str = "gantry-access-reviews";
/// The kinds that register webhooks.
const WEBHOOKS: [ObjectKind; 2] =
    [ObjectKind::MutatingWebhookConfiguration, ObjectKind::ValidatingWebhookConfiguration];

const ROLE: ObjectKind = ObjectKind::ClusterRole;
const BINDING: ObjectKind = ObjectKind::ClusterRoleBinding;

/// Objects with the same name in every cluster, beside definitions and policies.
const FIXED_NAME_OBJECTS: &[(ObjectKind, &str, &str, ConflictRule)] = &[
    (
        ROLE,
        FMA_CRD_ADMIN,
        "lets users install definitions without an administrator",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        FMA_POLICY_ADMIN,
        "lets users install policies without an administrator",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        GANTRY_CRD_ADMIN,
        "lets users install definitions without an administrator",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        "gantry-viewer",
        "aggregated to `view`, so that its users can read Gantry's kinds",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        "gantry-editor",
        "aggregated to `edit`, so that tenants may write Gantry's kinds",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        "gantry-modules-editor",
        "allows root on nodes, so an administrator has to bind it",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        "gantry-devices-administrator",
        "publishes devices for all namespaces",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        "gantry-quota-administrator",
        "divides the cluster among teams",
        ConflictRule::Administrator,
    ),
    (
        ROLE,
        NODE_VIEW,
        "nodes are cluster-scoped, and controllers read them to place pods",
        ConflictRule::Sum,
    ),
    (
        ObjectKind::Namespace,
        "gantry-system",
        "the namespace of the operator",
        ConflictRule::Administrator,
    ),
    (ROLE, "gantry-operator", OPERATOR_REASON, ConflictRule::Administrator),
    (BINDING, "gantry-operator", OPERATOR_REASON, ConflictRule::Administrator),
    (ROLE, "gantry-metrics-auth", OPERATOR_REASON, ConflictRule::Administrator),
    (BINDING, "gantry-metrics-auth", OPERATOR_REASON, ConflictRule::Administrator),
    (ROLE, "gantry-metrics-reader", OPERATOR_REASON, ConflictRule::Administrator),
    (ROLE, "system:gantry:controllers", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:controllers", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:gantry:nodes", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:nodes", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:gantry:certificate-signer", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:certificate-signer", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:gantry:horizontal-pod-autoscaler", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:horizontal-pod-autoscaler", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:gantry:reader", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:reader", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:gantry:sample-driver", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:sample-driver", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (BINDING, "system:gantry:volume-provisioner", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "system:aggregated-metrics-reader", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "gantry-registry-viewer", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "gantry-registry-editor", EMBEDDED_REASON, ConflictRule::OwnCluster),
    (ROLE, "gantry-registry-pusher", EMBEDDED_REASON, ConflictRule::OwnCluster),
];

const OPERATOR_REASON: &str = "the operator serves all namespaces: one deployment in a cluster";
const OPTIONAL_REASON: &str =
    "a permission the operator needs for a feature that is off by default";
const EMBEDDED_REASON: &str = "the permissions of the components of an embedded cluster";

/// Objects that exist once for each installation.
const PER_INSTALLATION_OBJECTS: &[(ObjectKind, &str, &str, ConflictRule)] = &[
    (
        BINDING,
        "<release>-node-view",
        "lets the controllers of one installation read nodes",
        ConflictRule::ItsInstallation,
    ),
    (
        BINDING,
        "<any, of ClusterRole view>",
        "older charts let their controllers view everything",
        ConflictRule::NotMade,
    ),
    (
        ObjectKind::Namespace,
        "<namespace>",
        "the namespace of one installation",
        ConflictRule::ItsInstallation,
    ),
];

#[cfg(test)]
mod tests;
