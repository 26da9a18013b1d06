//! Describes what the server does differently for single resources, in one table.
//!
//! [`gantry_kinds::Behaviour`] holds the rules of a kind that need nothing but its objects. A
//! strategy adds the rules that need other parts of the server: the compiler of policies, the
//! allocator of addresses, quotas, the served kinds. It is looked up once, when a resource is
//! described, so that no other code compares resources by name.

use gantry_schema::FieldError;
use serde_json::{Value, json};

use crate::admission::{certificates, lifecycle_hooks};
use crate::resource::definitions;

/// How the server treats one resource.
#[derive(Debug)]
pub(crate) struct Strategy {
    /// Sets defaults after those of the kind.
    pub(crate) default: fn(&mut Value),
    /// Validates a new object before the rules of its kind do.
    pub(crate) validate_new: fn(&Value) -> Option<FieldError>,
    /// Validates a new or changed object after the rules of its kind.
    pub(crate) validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
    /// Returns warnings about a new or changed object after those of its kind.
    pub(crate) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// What the server sets in an object before it is validated.
    pub(crate) preparation: Preparation,
    /// The built-in admission plug-ins that apply.
    pub(crate) admission: AdmissionRules,
    /// The namespace in which admission reviews an object.
    pub(crate) review_namespace: ReviewNamespace,
    /// The objects that cannot be deleted.
    pub(crate) protected: ProtectedObjects,
    /// What a deleted object waits for besides the finalizers in its metadata.
    pub(crate) termination: Termination,
    /// What the server derives from the stored objects.
    pub(crate) derived: DerivedState,
    /// The changes after which the quotas of a namespace are recalculated.
    pub(crate) quota: QuotaEffect,
    /// The fields besides `status` that a write to the object itself does not own.
    pub(crate) unowned: UnownedFields,
}

/// What the server sets in an object before it is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Nothing.
    None,
    /// The status of a CustomResourceDefinition.
    DefinitionStatus,
    /// The user who creates a CertificateSigningRequest.
    Requester,
    /// The addresses and ports of a Service.
    ServiceAddresses,
}

/// The built-in admission plug-ins that apply, besides those for all resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionRules {
    /// None.
    None,
    /// ServiceAccount, Priority, DefaultTolerationSeconds, LimitRanger.
    Pod,
    /// TaintNodesByCondition.
    Node,
    /// StorageObjectInUseProtection.
    PersistentVolume,
    /// StorageObjectInUseProtection, DefaultStorageClass, LimitRanger.
    PersistentVolumeClaim,
    /// Priority: there is one default class.
    PriorityClass,
    /// CertificateApproval, CertificateSigning, CertificateSubjectRestriction.
    CertificateSigningRequest,
}

/// The namespace in which admission reviews an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewNamespace {
    /// The one the object is in.
    Containing,
    /// The one the object is.
    Itself,
}

impl ReviewNamespace {
    /// Returns the namespace in which an object is reviewed.
    pub(crate) fn of<'a>(self, namespace: &'a str, name: &'a str) -> &'a str {
        match self {
            Self::Containing => namespace,
            Self::Itself => name,
        }
    }
}

/// Objects that cannot be deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtectedObjects {
    /// Their names.
    pub(crate) names: &'static [&'static str],
    /// The message of the refusal.
    pub(crate) why: &'static str,
}

/// What a deleted object waits for besides the finalizers in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Termination {
    /// Nothing.
    None,
    /// The finalizers in its specification: a Namespace waits for its content.
    SpecFinalizers,
    /// A finalizer that the server sets: a CustomResourceDefinition waits for its instances.
    InstanceCleanup,
}

impl Termination {
    /// Whether a deleted object has to wait.
    pub(crate) fn holds(self, object: &Value) -> bool {
        match self {
            Self::None => false,
            Self::SpecFinalizers => {
                object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            }
            Self::InstanceCleanup => true,
        }
    }

    /// Sets the status of an object that gets its deletion timestamp, and the server's finalizer.
    pub(crate) fn mark(self, object: &mut Value, now: &str) {
        match self {
            Self::None => {}
            Self::SpecFinalizers => object["status"]["phase"] = json!("Terminating"),
            Self::InstanceCleanup => definitions::mark_terminating(object, now),
        }
    }

    /// Whether setting the deletion timestamp increments the generation.
    pub(crate) fn bumps_generation(self) -> bool {
        match self {
            Self::None | Self::SpecFinalizers => true,
            Self::InstanceCleanup => false,
        }
    }
}

/// What the server derives from the stored objects, and updates after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DerivedState {
    /// Nothing.
    None,
    /// The custom kinds that are served.
    ServedKinds,
    /// The rules of aggregated ClusterRoles.
    AggregatedRoles,
    /// The compiled admission policies.
    AdmissionPolicies,
    /// The admission webhooks in effect.
    AdmissionWebhooks,
    /// The token in a Secret, which the token controller sets.
    TokenSecret,
    /// The tokens of a ServiceAccount, which the token controller deletes with it.
    AccountTokens,
}

/// The changes after which the quotas of a namespace are recalculated. Every deletion in the
/// namespace is one as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaEffect {
    /// None.
    None,
    /// A change of the specification.
    Spec,
    /// A change of the specification, and the end of a pod.
    Pod,
    /// A new ResourceQuota, and changes of its limits and of its reported usage.
    ResourceQuota,
}

/// The fields besides `status` that a write to the object itself does not own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnownedFields {
    /// None.
    None,
    /// The specification, which cannot be changed.
    Spec,
}

/// Resources that are treated like most.
const PLAIN: Strategy = Strategy {
    default: |_| {},
    validate_new: |_| None,
    validate: |_, _| Vec::new(),
    warnings: |_, _| Vec::new(),
    preparation: Preparation::None,
    admission: AdmissionRules::None,
    review_namespace: ReviewNamespace::Containing,
    protected: ProtectedObjects { names: &[], why: "" },
    termination: Termination::None,
    derived: DerivedState::None,
    quota: QuotaEffect::None,
    unowned: UnownedFields::None,
};

/// Webhook configurations of both types.
const WEBHOOKS: Strategy = Strategy {
    validate: gantry_admission::match_conditions::validate_webhooks,
    derived: DerivedState::AdmissionWebhooks,
    ..PLAIN
};

/// Returns the strategy of a resource, by group and plural name. A resource without a row is
/// treated like most.
pub(crate) fn strategy(group: &str, plural: &str) -> &'static Strategy {
    static DEFAULT: Strategy = PLAIN;
    let row = TABLE.iter().find(|(of, name, _)| (*of, *name) == (group, plural));
    row.map_or(&DEFAULT, |(_, _, strategy)| strategy)
}

type Row = (&'static str, &'static str, Strategy);

static TABLE: &[Row] = &[
    (
        "",
        "namespaces",
        Strategy {
            review_namespace: ReviewNamespace::Itself,
            protected: ProtectedObjects {
                names: &lifecycle_hooks::SYSTEM_NAMESPACES,
                why: "this namespace may not be deleted",
            },
            termination: Termination::SpecFinalizers,
            ..PLAIN
        },
    ),
    ("", "nodes", Strategy { admission: AdmissionRules::Node, ..PLAIN }),
    (
        "",
        "persistentvolumeclaims",
        Strategy {
            admission: AdmissionRules::PersistentVolumeClaim,
            quota: QuotaEffect::Spec,
            ..PLAIN
        },
    ),
    ("", "persistentvolumes", Strategy { admission: AdmissionRules::PersistentVolume, ..PLAIN }),
    ("", "pods", Strategy { admission: AdmissionRules::Pod, quota: QuotaEffect::Pod, ..PLAIN }),
    ("", "resourcequotas", Strategy { quota: QuotaEffect::ResourceQuota, ..PLAIN }),
    ("", "secrets", Strategy { derived: DerivedState::TokenSecret, ..PLAIN }),
    ("", "serviceaccounts", Strategy { derived: DerivedState::AccountTokens, ..PLAIN }),
    (
        "",
        "services",
        Strategy { preparation: Preparation::ServiceAddresses, quota: QuotaEffect::Spec, ..PLAIN },
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", WEBHOOKS),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        Strategy {
            validate: gantry_admission::validate_policy,
            derived: DerivedState::AdmissionPolicies,
            ..PLAIN
        },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        Strategy { derived: DerivedState::AdmissionPolicies, ..PLAIN },
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", WEBHOOKS),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        Strategy {
            default: gantry_schema::default_definition,
            validate: gantry_schema::validate_definition,
            warnings: gantry_schema::definition_warnings,
            preparation: Preparation::DefinitionStatus,
            termination: Termination::InstanceCleanup,
            derived: DerivedState::ServedKinds,
            ..PLAIN
        },
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        Strategy {
            validate_new: certificates::request_error,
            preparation: Preparation::Requester,
            admission: AdmissionRules::CertificateSigningRequest,
            unowned: UnownedFields::Spec,
            ..PLAIN
        },
    ),
    (
        "rbac.authorization.k8s.io",
        "clusterroles",
        Strategy { derived: DerivedState::AggregatedRoles, ..PLAIN },
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        Strategy {
            admission: AdmissionRules::PriorityClass,
            protected: ProtectedObjects {
                names: &lifecycle_hooks::SYSTEM_PRIORITIES,
                why: "this is a system priority class and cannot be deleted",
            },
            ..PLAIN
        },
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::bootstrap::builtin_resources;

    #[test]
    fn every_row_is_a_served_resource_with_a_unique_name() {
        let served = builtin_resources();
        let served: BTreeSet<(&str, &str)> =
            served.iter().map(|it| (it.group.as_str(), it.plural.as_str())).collect();
        let mut names = BTreeSet::new();
        for (group, plural, _) in TABLE {
            assert!(served.contains(&(*group, *plural)), "{plural}.{group} is not served");
            assert!(names.insert((group, plural)), "{plural}.{group} has two rows");
        }
    }

    #[test]
    fn rows_are_in_order() {
        assert!(TABLE.is_sorted_by_key(|(group, plural, _)| (*group, *plural)));
    }

    #[test]
    fn resources_that_share_their_objects_share_a_strategy() {
        let served = builtin_resources();
        let mut spaces = BTreeMap::new();
        for resource in &served {
            let first = spaces.entry(&resource.space).or_insert(resource.strategy);
            assert!(std::ptr::eq(*first, resource.strategy), "{}", resource.qualified());
        }
    }

    #[test]
    fn a_resource_without_a_row_is_plain() {
        let plain = strategy("apps", "deployments");
        assert!(std::ptr::eq(plain, strategy("example.com", "namespaces")));
        assert_eq!(plain.derived, DerivedState::None);
        assert_eq!(plain.termination, Termination::None);
    }
}
