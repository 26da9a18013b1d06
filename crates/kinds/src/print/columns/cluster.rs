//! Columns of nodes, namespaces and other cluster-wide kinds.

use super::{AGE, Column, NAME, NAME_WIDE, boolean, integer, text, wide};

pub(in crate::print) const COMPONENTSTATUSES: &[Column] = &[
    NAME,
    text("Status", "Status of the component conditions"),
    text("Message", "Message of the component conditions"),
    text("Error", "Error of the component conditions"),
];

pub(in crate::print) const CONFIGMAPS: &[Column] = &[
    NAME,
    text(
        "Data",
        "Data contains the configuration data. Each key must consist of alphanumeric characters, \
         '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The \
         keys stored in Data must not overlap with the keys in the BinaryData field, this is \
         enforced during validation process.",
    ),
    AGE,
];

pub(in crate::print) const EVENTS: &[Column] = &[
    text("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    text("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the \
         transition into the object's current status.",
    ),
    text("Object", "The object that this event is about."),
    wide(
        "Subobject",
        "If referring to a piece of an object instead of an entire object, this string should \
         contain a valid JSON/Go field access statement, such as \
         desiredState.manifest.containers[2]. For example, if the object reference is to a \
         container within a pod, this would take on a value like: \"spec.containers{name}\" \
         (where \"name\" refers to the name of the container that triggered the event) or if no \
         container name is specified \"spec.containers[2]\" (container with index 2 in this pod). \
         This syntax is chosen only to have some well-defined way of referencing a part of an \
         object.",
    ),
    wide(
        "Source",
        "The component reporting this event. Should be a short machine understandable string.",
    ),
    text("Message", "A human-readable description of the status of this operation."),
    wide(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    ),
    wide("Count", "The number of times this event has occurred."),
    NAME_WIDE,
];

pub(in crate::print) const NAMESPACES: &[Column] =
    &[NAME, text("Status", "The status of the namespace"), AGE];

pub(in crate::print) const NODES: &[Column] = &[
    NAME,
    text("Status", "The status of the node"),
    text("Roles", "The roles of the node"),
    AGE,
    text("Version", "Kubelet Version reported by the node."),
    wide(
        "Internal-IP",
        "List of addresses reachable to the node. Queried from cloud provider, if available. More \
         info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field \
         is declared as mergeable, but the merge key is not sufficiently unique, which can cause \
         data corruption when it is merged. Callers should instead use a full-replacement patch. \
         See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can \
         change during the lifetime of a Node. However, there are some exceptions where this may \
         not be possible, such as Pods that inherit a Node's address in its own status or \
         consumers of the downward API (status.hostIP).",
    ),
    wide(
        "External-IP",
        "List of addresses reachable to the node. Queried from cloud provider, if available. More \
         info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field \
         is declared as mergeable, but the merge key is not sufficiently unique, which can cause \
         data corruption when it is merged. Callers should instead use a full-replacement patch. \
         See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can \
         change during the lifetime of a Node. However, there are some exceptions where this may \
         not be possible, such as Pods that inherit a Node's address in its own status or \
         consumers of the downward API (status.hostIP).",
    ),
    wide(
        "OS-Image",
        "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
    ),
    wide(
        "Kernel-Version",
        "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
    ),
    wide(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. \
         containerd://1.4.2).",
    ),
];

pub(in crate::print) const RESOURCEQUOTAS: &[Column] = &[
    NAME,
    text(
        "Request",
        "Request represents a minimum amount of cpu/memory that a container may consume.",
    ),
    text(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of \
         contention on the node.",
    ),
    AGE,
];

pub(in crate::print) const SECRETS: &[Column] = &[
    NAME,
    text(
        "Type",
        "Used to facilitate programmatic handling of secret data. More info: \
         https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
    ),
    text(
        "Data",
        "Data contains the secret data. Each key must consist of alphanumeric characters, '-', \
         '_' or '.'. The serialized form of the secret data is a base64 encoded string, \
         representing the arbitrary (possibly non-string) data value here. Described in \
         https://tools.ietf.org/html/rfc4648#section-4",
    ),
    AGE,
];

pub(in crate::print) const SERVICEACCOUNTS: &[Column] = &[
    NAME,
    text(
        "Secrets",
        "Secrets is a list of the secrets in the same namespace that pods running using this \
         ServiceAccount are allowed to use. Pods are only limited to this list if this service \
         account has a \"kubernetes.io/enforce-mountable-secrets\" annotation set to \"true\". \
         The \"kubernetes.io/enforce-mountable-secrets\" annotation is deprecated since v1.32. \
         Prefer separate namespaces to isolate access to mounted secrets. This field should not \
         be used to find auto-generated service account token secrets for use outside of pods. \
         Instead, tokens can be requested directly using the TokenRequest API, or service account \
         token secrets can be manually created. More info: \
         https://kubernetes.io/docs/concepts/configuration/secret",
    ),
    AGE,
];

pub(in crate::print) const LEASES: &[Column] = &[
    NAME,
    text(
        "Holder",
        "holderIdentity contains the identity of the holder of a current lease. If Coordinated \
         Leader Election is used, the holder identity must be equal to the elected \
         LeaseCandidate.metadata.name field.",
    ),
    AGE,
];

pub(in crate::print) const RUNTIMECLASSES: &[Column] = &[NAME, text("Handler", ""), AGE];

pub(in crate::print) const PRIORITYCLASSES: &[Column] = &[
    NAME,
    integer(
        "Value",
        "value represents the integer value of this priority class. This is the actual priority \
         that pods receive when they have the name of this class in their pod spec.",
    ),
    boolean(
        "Global-Default",
        "globalDefault specifies whether this PriorityClass should be considered as the default \
         priority for pods that do not have any priority class. Only one PriorityClass can be \
         marked as `globalDefault`. However, if more than one PriorityClasses exists with their \
         `globalDefault` field set to true, the smallest value of such global default \
         PriorityClasses will be used as the default priority.",
    ),
    AGE,
    text(
        "PreemptionPolicy",
        "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, \
         PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.",
    ),
];

pub(in crate::print) const APISERVICES: &[Column] = &[
    NAME,
    text("Service", "The reference to the service that hosts this API endpoint."),
    text("Available", "Whether this service is available."),
    AGE,
];
