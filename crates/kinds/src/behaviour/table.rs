//! The table of behaviours, one row per kind.

use super::{
    Behaviour, Deletion, FinalizerNames, Generation, MetadataChecks, Propagation, Rules,
    StatusSubresource,
};
use crate::names::NameRule;
use crate::workloads::{
    autoscaler, cron_job, daemon_set, deployment, job, replica_set, stateful_set,
};
use crate::{
    admission_policies, certificates, cluster, config, devices, endpoints, leases_and_events,
    networking, pod, policy, quota, rbac, service, storage, webhooks,
};

const PLAIN: Behaviour = Behaviour::PLAIN;
const SPEC: Generation = Generation::On(&["spec"]);
const ONE_EXTRA_CHECK: MetadataChecks = MetadataChecks { updates: 1, objects: 1 };
const TWO_EXTRA_CHECKS: MetadataChecks = MetadataChecks { updates: 1, objects: 2 };

/// Kinds whose status only the status subresource changes, and whose spec changes increment the
/// generation.
const WORKLOAD: Behaviour =
    Behaviour { generation: SPEC, status: StatusSubresource::KeepsSpec, ..PLAIN };

/// Kinds that configure admission.
const ADMISSION: Behaviour = Behaviour {
    generation: SPEC,
    unconditional_update: false,
    finalizer_names: FinalizerNames::AnyQualified,
    ..PLAIN
};

/// Roles and bindings.
const ROLE: Behaviour = Behaviour {
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    metadata_checks: TWO_EXTRA_CHECKS,
    ..PLAIN
};

/// Kinds whose deletion returns the object.
const DELETE_RETURNS_OBJECT: Behaviour =
    Behaviour { delete_returns_object: true, metadata_checks: ONE_EXTRA_CHECK, ..PLAIN };

/// Returns the behaviour of a built-in kind, by group and plural name. A kind without a row adds no
/// functions of its own.
#[must_use]
pub fn behaviour(group: &str, resource: &str) -> &'static Behaviour {
    let row = TABLE.iter().find(|(of, name, _)| (*of, *name) == (group, resource));
    row.map_or(&PLAIN, |(_, _, behaviour)| behaviour)
}

const fn with_rules(base: Behaviour, rules: Rules) -> Behaviour {
    Behaviour { rules, ..base }
}

type Row = (&'static str, &'static str, Behaviour);

static TABLE: &[Row] = &[
    (
        "",
        "pods",
        Behaviour {
            generation: SPEC,
            status: StatusSubresource::KeepsSpecAndOwners,
            deletion: Deletion::Graceful,
            rules: pod::RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "",
        "namespaces",
        Behaviour {
            name_rule: NameRule::DnsLabel,
            status: StatusSubresource::KeepsSpec,
            deletion: Deletion::ImmediateUnrecorded,
            rules: cluster::NAMESPACE_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "",
        "configmaps",
        with_rules(
            Behaviour { metadata_checks: ONE_EXTRA_CHECK, ..PLAIN },
            config::CONFIG_MAP_RULES,
        ),
    ),
    (
        "",
        "secrets",
        with_rules(Behaviour { metadata_checks: ONE_EXTRA_CHECK, ..PLAIN }, config::SECRET_RULES),
    ),
    (
        "",
        "services",
        Behaviour {
            name_rule: NameRule::Dns1035Label,
            create_on_update: true,
            delete_returns_object: true,
            status: StatusSubresource::KeepsSpec,
            rules: service::RULES,
            ..PLAIN
        },
    ),
    ("", "serviceaccounts", DELETE_RETURNS_OBJECT),
    (
        "",
        "nodes",
        Behaviour {
            status: StatusSubresource::SetAtCreation,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: cluster::NODE_RULES,
            ..PLAIN
        },
    ),
    ("", "events", EVENT),
    ("events.k8s.io", "events", EVENT),
    (
        "",
        "endpoints",
        Behaviour {
            create_on_update: true,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: endpoints::ENDPOINTS_RULES,
            ..PLAIN
        },
    ),
    (
        "",
        "persistentvolumes",
        Behaviour {
            status: StatusSubresource::KeepsSpec,
            rules: storage::VOLUME_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "",
        "persistentvolumeclaims",
        Behaviour {
            status: StatusSubresource::KeepsSpec,
            metadata_checks: TWO_EXTRA_CHECKS,
            rules: storage::CLAIM_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "",
        "resourcequotas",
        Behaviour {
            delete_returns_object: true,
            status: StatusSubresource::KeepsSpec,
            rules: quota::QUOTA_RULES,
            ..PLAIN
        },
    ),
    ("", "limitranges", Behaviour { create_on_update: true, rules: quota::RANGE_RULES, ..PLAIN }),
    (
        "",
        "podtemplates",
        Behaviour {
            generation: Generation::On(&["template"]),
            delete_returns_object: true,
            rules: pod::TEMPLATE_RULES,
            ..PLAIN
        },
    ),
    (
        "",
        "replicationcontrollers",
        Behaviour {
            default_propagation: Propagation::Orphan,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: replica_set::CONTROLLER_RULES,
            ..WORKLOAD
        },
    ),
    (
        "apps",
        "deployments",
        Behaviour {
            // Annotations are copied to the ReplicaSets, so they increment the generation as well.
            generation: Generation::On(&["spec", "metadata.annotations"]),
            status: StatusSubresource::KeepsSpecAndLabels,
            rules: deployment::RULES,
            ..WORKLOAD
        },
    ),
    ("apps", "replicasets", with_rules(WORKLOAD, replica_set::RULES)),
    (
        "apps",
        "statefulsets",
        Behaviour { name_rule: NameRule::DnsLabel, rules: stateful_set::RULES, ..WORKLOAD },
    ),
    ("apps", "daemonsets", with_rules(WORKLOAD, daemon_set::RULES)),
    (
        "apps",
        "controllerrevisions",
        Behaviour {
            metadata_checks: ONE_EXTRA_CHECK,
            rules: stateful_set::REVISION_RULES,
            ..PLAIN
        },
    ),
    (
        "batch",
        "jobs",
        Behaviour {
            default_propagation: Propagation::Orphan,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: job::RULES,
            ..WORKLOAD
        },
    ),
    ("batch", "cronjobs", with_rules(WORKLOAD, cron_job::RULES)),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        Behaviour { generation: Generation::Never, rules: autoscaler::RULES, ..WORKLOAD },
    ),
    (
        "coordination.k8s.io",
        "leases",
        Behaviour {
            unconditional_update: false,
            create_on_update: true,
            finalizer_names: FinalizerNames::AnyQualified,
            rules: leases_and_events::LEASE_RULES,
            ..PLAIN
        },
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        Behaviour {
            generation: Generation::OnContentAndLabels,
            rules: endpoints::SLICE_RULES,
            ..PLAIN
        },
    ),
    ("rbac.authorization.k8s.io", "roles", with_rules(ROLE, rbac::ROLE_RULES)),
    ("rbac.authorization.k8s.io", "clusterroles", with_rules(ROLE, rbac::CLUSTER_ROLE_RULES)),
    ("rbac.authorization.k8s.io", "rolebindings", with_rules(ROLE, rbac::BINDING_RULES)),
    (
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        with_rules(ROLE, rbac::CLUSTER_BINDING_RULES),
    ),
    (
        "policy",
        "poddisruptionbudgets",
        Behaviour {
            name_rule: NameRule::PathSegment,
            unconditional_update: false,
            finalizer_names: FinalizerNames::AnyQualified,
            metadata_checks: MetadataChecks { updates: 0, objects: 0 },
            rules: policy::BUDGET_RULES,
            ..WORKLOAD
        },
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        Behaviour { generation: Generation::Once, rules: policy::PRIORITY_RULES, ..PLAIN },
    ),
    (
        "node.k8s.io",
        "runtimeclasses",
        Behaviour {
            unconditional_update: false,
            create_on_update: true,
            finalizer_names: FinalizerNames::AnyQualified,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: policy::RUNTIME_RULES,
            ..PLAIN
        },
    ),
    ("storage.k8s.io", "storageclasses", with_rules(DELETE_RETURNS_OBJECT, storage::CLASS_RULES)),
    (
        "storage.k8s.io",
        "csinodes",
        Behaviour {
            unconditional_update: false,
            rules: storage::NODE_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        Behaviour {
            generation: Generation::AfterFirst(&["spec"]),
            unconditional_update: false,
            metadata_checks: MetadataChecks { updates: 1, objects: 0 },
            rules: storage::DRIVER_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        Behaviour {
            unconditional_update: false,
            status: StatusSubresource::KeepsAll,
            rules: storage::ATTACHMENT_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "storage.k8s.io",
        "csistoragecapacities",
        Behaviour { unconditional_update: false, ..DELETE_RETURNS_OBJECT },
    ),
    ("storage.k8s.io", "volumeattributesclasses", DELETE_RETURNS_OBJECT),
    (
        "networking.k8s.io",
        "ingresses",
        Behaviour {
            metadata_checks: ONE_EXTRA_CHECK,
            rules: networking::INGRESS_RULES,
            ..WORKLOAD
        },
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        Behaviour {
            generation: SPEC,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: networking::CLASS_RULES,
            ..PLAIN
        },
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        Behaviour {
            generation: SPEC,
            metadata_checks: ONE_EXTRA_CHECK,
            rules: networking::POLICY_RULES,
            ..PLAIN
        },
    ),
    (
        "networking.k8s.io",
        "servicecidrs",
        Behaviour { status: StatusSubresource::KeepsAll, ..PLAIN },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        Behaviour {
            generation: Generation::On(&["webhooks"]),
            rules: webhooks::VALIDATING_RULES,
            ..ADMISSION
        },
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        Behaviour {
            generation: Generation::On(&["webhooks"]),
            rules: webhooks::MUTATING_RULES,
            ..ADMISSION
        },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        Behaviour {
            status: StatusSubresource::KeepsAll,
            rules: admission_policies::POLICY_RULES,
            ..ADMISSION
        },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        with_rules(ADMISSION, admission_policies::BINDING_RULES),
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", ADMISSION),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ADMISSION),
    (
        "resource.k8s.io",
        "deviceclasses",
        Behaviour { generation: SPEC, rules: devices::CLASS_RULES, ..DELETE_RETURNS_OBJECT },
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        Behaviour {
            status: StatusSubresource::KeepsAll,
            rules: devices::CLAIM_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        with_rules(DELETE_RETURNS_OBJECT, devices::TEMPLATE_RULES),
    ),
    (
        "resource.k8s.io",
        "resourceslices",
        Behaviour {
            generation: SPEC,
            metadata_checks: MetadataChecks { updates: 1, objects: 0 },
            rules: devices::SLICE_RULES,
            ..DELETE_RETURNS_OBJECT
        },
    ),
    (
        "resource.k8s.io",
        "devicetaintrules",
        Behaviour { generation: SPEC, ..DELETE_RETURNS_OBJECT },
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        Behaviour {
            // Names of CSRs have no rule: kubelets put digests into them.
            name_rule: NameRule::PathSegment,
            status: StatusSubresource::KeepsSpec,
            rules: certificates::RULES,
            ..PLAIN
        },
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", WORKLOAD),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", WORKLOAD),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        Behaviour {
            generation: SPEC,
            unconditional_update: false,
            status: StatusSubresource::KeepsAll,
            deletion: Deletion::ImmediateUnrecorded,
            finalizer_names: FinalizerNames::AnyQualified,
            metadata_checks: ONE_EXTRA_CHECK,
            ..PLAIN
        },
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        Behaviour {
            unconditional_update: false,
            status: StatusSubresource::KeepsSpec,
            finalizer_names: FinalizerNames::AnyQualified,
            ..PLAIN
        },
    ),
];

const EVENT: Behaviour = Behaviour {
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    finalizer_names: FinalizerNames::AnyQualified,
    metadata_checks: MetadataChecks { updates: 0, objects: 0 },
    rules: leases_and_events::EVENT_RULES,
    ..PLAIN
};
