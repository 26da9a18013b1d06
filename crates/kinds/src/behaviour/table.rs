//! One row per kind.

use super::{
    Behaviour, Deletion, FinalizerNames, Generation, MetadataChecks, Propagation, Rules, Status,
};
use crate::names::NameRule;
use crate::workloads::{
    autoscaler, cron_job, daemon_set, deployment, job, replica_set, stateful_set,
};
use crate::{
    certificates, cluster, config, devices, endpoints, networking, pod, policies, policy, quota,
    rbac, records, service, storage, webhooks,
};

const PLAIN: Behaviour = Behaviour::PLAIN;
const SPEC: Generation = Generation::On(&["spec"]);
const ONCE_MORE: MetadataChecks = MetadataChecks { updates: 1, objects: 1 };
const TWICE_MORE: MetadataChecks = MetadataChecks { updates: 1, objects: 2 };

/// Kinds whose status only the status subresource changes, and which count changes of the spec.
const WORKLOAD: Behaviour = Behaviour { generation: SPEC, status: Status::KeepsSpec, ..PLAIN };

/// Kinds that configure admission.
const ADMISSION: Behaviour = Behaviour {
    generation: SPEC,
    unconditional_update: false,
    finalizer_names: FinalizerNames::Free,
    ..PLAIN
};

/// Roles and bindings.
const ROLE: Behaviour = Behaviour {
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    metadata_checks: TWICE_MORE,
    ..PLAIN
};

/// Kinds whose deletion answers with the object.
const RETURNED: Behaviour =
    Behaviour { delete_returns_object: true, metadata_checks: ONCE_MORE, ..PLAIN };

/// The behaviour of a built-in kind, by group and plural name. A kind without a row adds nothing
/// of its own.
#[must_use]
pub fn behaviour(group: &str, resource: &str) -> &'static Behaviour {
    let row = TABLE.iter().find(|(of, name, _)| (*of, *name) == (group, resource));
    row.map_or(&PLAIN, |(_, _, behaviour)| behaviour)
}

const fn with(base: Behaviour, rules: Rules) -> Behaviour {
    Behaviour { rules, ..base }
}

type Row = (&'static str, &'static str, Behaviour);

static TABLE: &[Row] = &[
    (
        "",
        "pods",
        Behaviour {
            generation: SPEC,
            status: Status::KeepsSpecAndOwners,
            deletion: Deletion::Graceful,
            rules: pod::RULES,
            ..RETURNED
        },
    ),
    (
        "",
        "namespaces",
        Behaviour {
            name_rule: NameRule::DnsLabel,
            status: Status::KeepsSpec,
            deletion: Deletion::Unmentioned,
            rules: cluster::NAMESPACE_RULES,
            ..RETURNED
        },
    ),
    (
        "",
        "configmaps",
        with(Behaviour { metadata_checks: ONCE_MORE, ..PLAIN }, config::CONFIG_MAP_RULES),
    ),
    ("", "secrets", with(Behaviour { metadata_checks: ONCE_MORE, ..PLAIN }, config::SECRET_RULES)),
    (
        "",
        "services",
        Behaviour {
            name_rule: NameRule::Dns1035Label,
            create_on_update: true,
            delete_returns_object: true,
            status: Status::KeepsSpec,
            rules: service::RULES,
            ..PLAIN
        },
    ),
    ("", "serviceaccounts", RETURNED),
    (
        "",
        "nodes",
        Behaviour {
            status: Status::BroughtAtCreation,
            metadata_checks: ONCE_MORE,
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
            metadata_checks: ONCE_MORE,
            rules: endpoints::ENDPOINTS_RULES,
            ..PLAIN
        },
    ),
    (
        "",
        "persistentvolumes",
        Behaviour { status: Status::KeepsSpec, rules: storage::VOLUME_RULES, ..RETURNED },
    ),
    (
        "",
        "persistentvolumeclaims",
        Behaviour {
            status: Status::KeepsSpec,
            metadata_checks: TWICE_MORE,
            rules: storage::CLAIM_RULES,
            ..RETURNED
        },
    ),
    (
        "",
        "resourcequotas",
        Behaviour {
            delete_returns_object: true,
            status: Status::KeepsSpec,
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
            metadata_checks: ONCE_MORE,
            rules: replica_set::CONTROLLER_RULES,
            ..WORKLOAD
        },
    ),
    (
        "apps",
        "deployments",
        Behaviour {
            // Annotations are copied to the replica sets, so they count as well.
            generation: Generation::On(&["spec", "metadata.annotations"]),
            status: Status::KeepsSpecAndLabels,
            rules: deployment::RULES,
            ..WORKLOAD
        },
    ),
    ("apps", "replicasets", with(WORKLOAD, replica_set::RULES)),
    (
        "apps",
        "statefulsets",
        Behaviour { name_rule: NameRule::DnsLabel, rules: stateful_set::RULES, ..WORKLOAD },
    ),
    ("apps", "daemonsets", with(WORKLOAD, daemon_set::RULES)),
    (
        "apps",
        "controllerrevisions",
        Behaviour { metadata_checks: ONCE_MORE, rules: stateful_set::REVISION_RULES, ..PLAIN },
    ),
    (
        "batch",
        "jobs",
        Behaviour {
            default_propagation: Propagation::Orphan,
            metadata_checks: ONCE_MORE,
            rules: job::RULES,
            ..WORKLOAD
        },
    ),
    ("batch", "cronjobs", with(WORKLOAD, cron_job::RULES)),
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
            finalizer_names: FinalizerNames::Free,
            rules: records::LEASE_RULES,
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
    ("rbac.authorization.k8s.io", "roles", with(ROLE, rbac::ROLE_RULES)),
    ("rbac.authorization.k8s.io", "clusterroles", with(ROLE, rbac::CLUSTER_ROLE_RULES)),
    ("rbac.authorization.k8s.io", "rolebindings", with(ROLE, rbac::BINDING_RULES)),
    ("rbac.authorization.k8s.io", "clusterrolebindings", with(ROLE, rbac::CLUSTER_BINDING_RULES)),
    (
        "policy",
        "poddisruptionbudgets",
        Behaviour {
            name_rule: NameRule::PathSegment,
            unconditional_update: false,
            finalizer_names: FinalizerNames::Free,
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
            finalizer_names: FinalizerNames::Free,
            metadata_checks: ONCE_MORE,
            rules: policy::RUNTIME_RULES,
            ..PLAIN
        },
    ),
    ("storage.k8s.io", "storageclasses", with(RETURNED, storage::CLASS_RULES)),
    (
        "storage.k8s.io",
        "csinodes",
        Behaviour { unconditional_update: false, rules: storage::NODE_RULES, ..RETURNED },
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        Behaviour {
            generation: Generation::AfterFirst(&["spec"]),
            unconditional_update: false,
            metadata_checks: MetadataChecks { updates: 1, objects: 0 },
            rules: storage::DRIVER_RULES,
            ..RETURNED
        },
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        Behaviour {
            unconditional_update: false,
            status: Status::KeepsAll,
            rules: storage::ATTACHMENT_RULES,
            ..RETURNED
        },
    ),
    (
        "storage.k8s.io",
        "csistoragecapacities",
        Behaviour { unconditional_update: false, ..RETURNED },
    ),
    ("storage.k8s.io", "volumeattributesclasses", RETURNED),
    (
        "networking.k8s.io",
        "ingresses",
        Behaviour { metadata_checks: ONCE_MORE, rules: networking::INGRESS_RULES, ..WORKLOAD },
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        Behaviour {
            generation: SPEC,
            metadata_checks: ONCE_MORE,
            rules: networking::CLASS_RULES,
            ..PLAIN
        },
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        Behaviour {
            generation: SPEC,
            metadata_checks: ONCE_MORE,
            rules: networking::POLICY_RULES,
            ..PLAIN
        },
    ),
    ("networking.k8s.io", "servicecidrs", Behaviour { status: Status::KeepsAll, ..PLAIN }),
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
        Behaviour { status: Status::KeepsAll, rules: policies::POLICY_RULES, ..ADMISSION },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        with(ADMISSION, policies::BINDING_RULES),
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", ADMISSION),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ADMISSION),
    (
        "resource.k8s.io",
        "deviceclasses",
        Behaviour { generation: SPEC, rules: devices::CLASS_RULES, ..RETURNED },
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        Behaviour { status: Status::KeepsAll, rules: devices::CLAIM_RULES, ..RETURNED },
    ),
    ("resource.k8s.io", "resourceclaimtemplates", with(RETURNED, devices::TEMPLATE_RULES)),
    (
        "resource.k8s.io",
        "resourceslices",
        Behaviour {
            generation: SPEC,
            metadata_checks: MetadataChecks { updates: 1, objects: 0 },
            rules: devices::SLICE_RULES,
            ..RETURNED
        },
    ),
    ("resource.k8s.io", "devicetaintrules", Behaviour { generation: SPEC, ..RETURNED }),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        Behaviour {
            // Nobody cares what requests are called: kubelets put digests into their names.
            name_rule: NameRule::PathSegment,
            status: Status::KeepsSpec,
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
            status: Status::KeepsAll,
            deletion: Deletion::Unmentioned,
            finalizer_names: FinalizerNames::Free,
            metadata_checks: ONCE_MORE,
            ..PLAIN
        },
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        Behaviour {
            unconditional_update: false,
            status: Status::KeepsSpec,
            finalizer_names: FinalizerNames::Free,
            ..PLAIN
        },
    ),
];

const EVENT: Behaviour = Behaviour {
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    finalizer_names: FinalizerNames::Free,
    metadata_checks: MetadataChecks { updates: 0, objects: 0 },
    rules: records::EVENT_RULES,
    ..PLAIN
};
