//! Every key of the unified configuration, as data.
//!
//! Reading, defaults, the legacy names, `--print-config`, the comparison of two configurations and
//! the page `docs/operator-configuration.md` are all made from this one list.

use serde_json::Value;

use super::form::{Empty, Form, Zero};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its way from the root, with dots.
    pub path: &'static str,
    /// What its value may look like.
    pub form: Form,
    /// What it is when nothing is said.
    pub default: Usual,
    /// When a change of it is noticed.
    pub effect: Effect,
    /// What it means.
    pub about: &'static str,
}

/// The value of a key when nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// None.
    Unset,
    /// A switch.
    Flag(bool),
    /// A number.
    Count(i32),
    /// A text.
    Text(&'static str),
    /// A list without elements.
    Empty,
}

impl Usual {
    /// The same as JSON; null if there is none.
    #[must_use]
    pub fn value(self) -> Value {
        match self {
            Self::Unset => Value::Null,
            Self::Flag(flag) => flag.into(),
            Self::Count(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::Empty => Value::Array(Vec::new()),
        }
    }
}

/// When a change of a key is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is taken over while the operator runs: the next decision uses it, none is undone.
    Live,
    /// The operator has to start again, and says so.
    Restart,
    /// Never: it is read because older configurations have it. The text says so.
    Never(&'static str),
}

/// Where a key that is known begins: sections are maps of keys.
#[must_use]
pub fn is_section(path: &str) -> bool {
    let below = |key: &Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    path.is_empty() || KEYS.iter().any(below)
}

/// The key of this path.
#[must_use]
pub fn key(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The names that may stand in a section, each once.
#[must_use]
pub fn names_in(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let rest = match section {
            "" => Some(key.path),
            _ => key.path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')),
        };
        let name = rest.and_then(|rest| rest.split('.').next());
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names
}

const NOT_NEGOTIATED: &str = "has no effect: requests and answers are JSON";
const COUNT: Form = Form::Integer { least: 0, most: i32::MAX, zero: Zero::Itself };
const VERBOSITY: i32 = gantry_process::telemetry::MOST_VERBOSE as i32;
const LEASE: Form = Form::Duration { zero: Zero::Default };

/// The keys, in the order they are printed.
pub const KEYS: &[Key] = &[
    Key {
        path: "clientConnection.qps",
        form: Form::Number,
        default: Usual::Count(50),
        effect: Effect::Live,
        about: "Requests per second to the API server, for the whole process. Where that is reached, statuses that only tell something come late. Negative: no limit.",
    },
    Key {
        path: "clientConnection.burst",
        form: Form::Integer { least: 0, most: i32::MAX, zero: Zero::Default },
        default: Usual::Count(100),
        effect: Effect::Live,
        about: "Requests that may exceed the rate for a moment.",
    },
    Key {
        path: "clientConnection.kubeconfig",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Restart,
        about: "The kubeconfig file to use. Empty: the usual places, then the pod's service account.",
    },
    Key {
        path: "clientConnection.acceptContentTypes",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Never(NOT_NEGOTIATED),
        about: "Read and not used.",
    },
    Key {
        path: "clientConnection.contentType",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Never(NOT_NEGOTIATED),
        about: "Read and not used.",
    },
    Key {
        path: "logging.verbosity",
        form: Form::Integer { least: 0, most: VERBOSITY, zero: Zero::Itself },
        default: Usual::Unset,
        effect: Effect::Live,
        about: "How much is logged, as with the flag `--v`, which wins. Unset: 0.",
    },
    Key {
        path: "metrics.bindAddress",
        form: Form::Address { empty: Empty::Default },
        default: Usual::Text(":8080"),
        effect: Effect::Restart,
        about: "Where `/metrics` is served; `\"0\"` switches it off.",
    },
    Key {
        path: "health.bindAddress",
        form: Form::Address { empty: Empty::Off },
        default: Usual::Text(":8081"),
        effect: Effect::Restart,
        about: "Where probes are answered; `\"0\"` or `\"\"` switches it off.",
    },
    Key {
        path: "health.readinessEndpointName",
        form: Form::Text,
        default: Usual::Text("readyz"),
        effect: Effect::Restart,
        about: "The path of the readiness probe.",
    },
    Key {
        path: "health.livenessEndpointName",
        form: Form::Text,
        default: Usual::Text("healthz"),
        effect: Effect::Restart,
        about: "The path of the liveness probe. `livez` answers too.",
    },
    Key {
        path: "leaderElection.leaderElect",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether only the holder of a lease acts. Needed with more than one replica.",
    },
    Key {
        path: "leaderElection.leaseDuration",
        form: LEASE,
        default: Usual::Text("15s"),
        effect: Effect::Restart,
        about: "How long others wait for a holder that is silent. Zero: the default.",
    },
    Key {
        path: "leaderElection.renewDeadline",
        form: LEASE,
        default: Usual::Text("10s"),
        effect: Effect::Restart,
        about: "How long the holder tries to renew before it gives up. Zero: the default.",
    },
    Key {
        path: "leaderElection.retryPeriod",
        form: LEASE,
        default: Usual::Text("2s"),
        effect: Effect::Restart,
        about: "How long everyone waits between two attempts. Zero: the default.",
    },
    Key {
        path: "leaderElection.resourceLock",
        form: Form::Word(&["leases"]),
        default: Usual::Text("leases"),
        effect: Effect::Restart,
        about: "The kind of the lock.",
    },
    Key {
        path: "leaderElection.resourceName",
        form: Form::Name,
        default: Usual::Text("gantry-operator"),
        effect: Effect::Restart,
        about: "The name of the lease.",
    },
    Key {
        path: "leaderElection.resourceNamespace",
        form: Form::Namespace,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "The namespace of the lease. Unset: the operator's own.",
    },
    Key {
        path: "mcadEnabled",
        form: Form::Flag,
        default: Usual::Flag(true),
        effect: Effect::Restart,
        about: "Whether the queue runs.",
    },
    Key {
        path: "mcad.dynamicPriority",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether priority grows with the time spent waiting. Turns preemption off.",
    },
    Key {
        path: "mcad.preemption",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether what lower priorities use counts as free, and may be taken back.",
    },
    Key {
        path: "mcad.backoffTime",
        form: COUNT,
        default: Usual::Count(20),
        effect: Effect::Live,
        about: "Seconds an AppWrapper waits after it did not fit or was preempted.",
    },
    Key {
        path: "mcad.headOfLineHoldingTime",
        form: COUNT,
        default: Usual::Count(0),
        effect: Effect::Live,
        about: "Seconds the first of the queue is tried again before others may pass it.",
    },
    Key {
        path: "mcad.quotaEnabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether quota trees are evaluated.",
    },
    Key {
        path: "mcad.dispatcher",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Dispatching to other clusters, which Gantry does not do: `true` is refused.",
    },
    Key {
        path: "mcad.agentConfigs",
        form: Form::Texts,
        default: Usual::Empty,
        effect: Effect::Never("has no effect: Gantry does not dispatch to other clusters"),
        about: "Clusters to dispatch to. Read and not used.",
    },
    Key {
        path: "mcad.demandInference",
        form: Form::Word(&["compat", "full"]),
        default: Usual::Text("full"),
        effect: Effect::Live,
        about: "What AppWrappers are charged: `full` for what the templates of every known kind ask for and at least what is declared, `compat` as MCAD for what is declared, whatever the templates ask for.",
    },
    Key {
        path: "mcad.requireQuotaBindings",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether only leaves of quota trees that are bound to namespaces or groups may be used.",
    },
    Key {
        path: "mcad.honorNodeSelector",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether only nodes that the pods may run on count as room.",
    },
    Key {
        path: "mcad.requeueDefaultSeconds",
        form: Form::Integer { least: 1, most: i32::MAX, zero: Zero::Default },
        default: Usual::Count(300),
        effect: Effect::Live,
        about: "Seconds the pods of a dispatched AppWrapper have to come up if it does not say.",
    },
    Key {
        path: "mcad.requeueCheckInterval",
        form: LEASE,
        default: Usual::Text("1m0s"),
        effect: Effect::Live,
        about: "How often dispatched AppWrappers are looked at for that.",
    },
    Key {
        path: "mcad.wakeOnRelease",
        form: Form::Flag,
        default: Usual::Flag(true),
        effect: Effect::Live,
        about: "Whether released room ends the pause of those that wait for it.",
    },
    Key {
        path: "mcad.packingCheck",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether the pods of an AppWrapper must find nodes one by one, and not only in sum.",
    },
    Key {
        path: "mcad.fairness",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether namespaces of the same priority take turns, the one that has the least first.",
    },
    Key {
        path: "mcad.activeEviction",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether AppWrappers of lower priority are taken back for one of a higher, with `preemption`. Turns the packing check on.",
    },
    Key {
        path: "mcad.checkUserAccess",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether the author of an AppWrapper must be allowed to create what it wraps. The API server then asks who that is, where `devices.webhook` says.",
    },
    Key {
        path: "instascale.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether scaling runs.",
    },
    Key {
        path: "instascale.maxScaleoutAllowed",
        form: COUNT,
        default: Usual::Count(5),
        effect: Effect::Live,
        about: "The most nodes that scaling adds.",
    },
    Key {
        path: "instascale.machineSetsStrategy",
        form: Form::Word(&["reuse", "duplicate"]),
        default: Usual::Text("reuse"),
        effect: Effect::Restart,
        about: "Whether a MachineSet is scaled up, or a copy of it made.",
    },
    Key {
        path: "instascale.ocmSecretRef.name",
        form: Form::Name,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "A Secret with the key `token`. If set, machine pools are scaled, not MachineSets.",
    },
    Key {
        path: "instascale.ocmSecretRef.namespace",
        form: Form::Namespace,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "Where that Secret is.",
    },
    Key {
        path: "instascale.ocmUrl",
        form: Form::Text,
        default: Usual::Text(gantry_scaling::effects::SERVICE),
        effect: Effect::Restart,
        about: "Where the service that manages the cluster is, for machine pools.",
    },
    Key {
        path: "instascale.ocmTokenUrl",
        form: Form::Text,
        default: Usual::Text(gantry_scaling::effects::TOKENS),
        effect: Effect::Restart,
        about: "Where that Secret's token is exchanged for those the service believes.",
    },
    Key {
        path: "instascale.provisionTimeout",
        form: Form::Duration { zero: Zero::Default },
        default: Usual::Text("20m0s"),
        effect: Effect::Live,
        about: "How long new nodes may take to come.",
    },
    Key {
        path: "instascale.cooldown",
        form: Form::Duration { zero: Zero::Itself },
        default: Usual::Text("0s"),
        effect: Effect::Live,
        about: "How long nodes stay after they are no longer needed.",
    },
    Key {
        path: "instascale.inferShapes",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether nodes are chosen for AppWrappers without the label `orderedinstance`: the smallest with which all pods fit.",
    },
    Key {
        path: "controllers",
        form: Form::Switches,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "Controllers to switch on or off by name, or a list of all that run.",
    },
    Key {
        path: "devices.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether pods that claim devices are given devices and nodes.",
    },
    Key {
        path: "devices.requireAdminQuota",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether a namespace needs a quota for each class that looks at devices of others.",
    },
    Key {
        path: "devices.mode",
        form: Form::Word(&["scheduler", "gate"]),
        default: Usual::Text("scheduler"),
        effect: Effect::Restart,
        about: "What the webhook gives pods that claim devices and name nobody: `schedulerName: gantry`, or the \
                gate behind which their own scheduler waits. Both are understood whatever this says.",
    },
    Key {
        path: "devices.webhook.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether the API server asks about new pods that claim devices, and about objects of the group.",
    },
    Key {
        path: "devices.webhook.bindAddress",
        form: Form::Address { empty: Empty::Default },
        default: Usual::Text(":9443"),
        effect: Effect::Restart,
        about: "Where the API server is answered, about devices and with `mcad.checkUserAccess` about AppWrappers.",
    },
    Key {
        path: "devices.webhook.url",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Restart,
        about: "Where the API server reaches that: `https://<host>:<port>`. Empty: the service `gantry-webhook` \
                in the operator's namespace.",
    },
    Key {
        path: "simulation.enabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether nodes and their pods are simulated.",
    },
    Key {
        path: "kuberay",
        form: Form::Opaque,
        default: Usual::Unset,
        effect: Effect::Never("has no effect: Gantry does not run KubeRay"),
        about: "Read and not used.",
    },
    Key {
        path: "appwrapper",
        form: Form::Opaque,
        default: Usual::Unset,
        effect: Effect::Never("has no effect: AppWrapper v1beta2 is not served"),
        about: "Read and not used.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::form::Fit;
    use gantry_api::node::Node;

    #[test]
    fn every_default_is_a_canonical_value_of_its_form() {
        for key in KEYS {
            let fit = key.form.fit(&Node::from_json(&key.default.value())).unwrap();
            match fit {
                Fit::Is(value) => assert_eq!(value, key.default.value(), "{}", key.path),
                // Zero and the empty text stand for a default that is just that.
                Fit::Default => assert_eq!(key.default, Usual::Unset, "{}", key.path),
            }
        }
    }

    #[test]
    fn paths_are_unique_and_no_key_is_a_section() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(!is_section(key.path), "{}", key.path);
            assert!(KEYS[index + 1..].iter().all(|other| other.path != key.path), "{}", key.path);
            assert!(key.about.ends_with('.'), "{}", key.path);
        }
        assert_eq!(names_in("instascale.ocmSecretRef"), ["name", "namespace"]);
        assert_eq!(names_in("simulation"), ["enabled"]);
        assert!(names_in("").contains(&"mcadEnabled") && names_in("").contains(&"mcad"));
    }
}
