//! The keys of the process itself, which belong to no subsystem.

use gantry_subsystem::settings::{DefaultValue, Effect, EmptyMeaning, Key, ValueType, ZeroMeaning};

const NOT_NEGOTIATED: &str = "has no effect: requests and responses are JSON";
const VERBOSITY: i32 = gantry_process::telemetry::MOST_VERBOSE as i32;
const LEASE: ValueType = ValueType::Duration { zero: ZeroMeaning::Default };

/// The keys, in the order they are printed.
pub(super) const PROCESS: &[Key] = &[
    Key {
        path: "clientConnection.qps",
        value_type: ValueType::Number,
        default: DefaultValue::Count(50),
        effect: Effect::Live,
        about: "Requests per second to the API server, for the whole process. When the limit is \
            reached, purely informational status updates are delayed. Negative: no limit.",
    },
    Key {
        path: "clientConnection.burst",
        value_type: ValueType::Integer { min: 0, max: i32::MAX, zero: ZeroMeaning::Default },
        default: DefaultValue::Count(100),
        effect: Effect::Live,
        about: "Requests that may exceed the rate for a moment.",
    },
    Key {
        path: "clientConnection.kubeconfig",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Restart,
        about: "The kubeconfig file to use. Empty: the default locations, then the pod's service \
            account.",
    },
    Key {
        path: "clientConnection.acceptContentTypes",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Never(NOT_NEGOTIATED),
        about: "Read and not used.",
    },
    Key {
        path: "clientConnection.contentType",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Never(NOT_NEGOTIATED),
        about: "Read and not used.",
    },
    Key {
        path: "logging.verbosity",
        value_type: ValueType::Integer { min: 0, max: VERBOSITY, zero: ZeroMeaning::Literal },
        default: DefaultValue::Unset,
        effect: Effect::Live,
        about: "The log verbosity, as with the flag `--v`, which takes precedence. Unset: 0.",
    },
    Key {
        path: "metrics.bindAddress",
        value_type: ValueType::Address { empty: EmptyMeaning::Default },
        default: DefaultValue::Text("127.0.0.1:8080"),
        effect: Effect::Restart,
        about: "The address for `/metrics`; `\"0\"` disables it.",
    },
    Key {
        path: "metrics.secureServing",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(true),
        effect: Effect::Restart,
        about: "Whether metrics need TLS and a bearer token whose user may `get` the path \
            `/metrics`; the API server reviews both. `false` is accepted on loopback only.",
    },
    Key {
        path: "metrics.certFile",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Restart,
        about: "The certificate of the metrics server, a PEM file that is reloaded when it \
            changes. Empty: self-signed, created at each start.",
    },
    Key {
        path: "metrics.keyFile",
        value_type: ValueType::Text,
        default: DefaultValue::Text(""),
        effect: Effect::Restart,
        about: "The private key of that certificate, a PEM file.",
    },
    Key {
        path: "health.bindAddress",
        value_type: ValueType::Address { empty: EmptyMeaning::Off },
        default: DefaultValue::Text(":8081"),
        effect: Effect::Restart,
        about: "The address for probes; `\"0\"` or `\"\"` disables them.",
    },
    Key {
        path: "health.readinessEndpointName",
        value_type: ValueType::Text,
        default: DefaultValue::Text("readyz"),
        effect: Effect::Restart,
        about: "The path of the readiness probe.",
    },
    Key {
        path: "health.livenessEndpointName",
        value_type: ValueType::Text,
        default: DefaultValue::Text("healthz"),
        effect: Effect::Restart,
        about: "The path of the liveness probe. `livez` is served too.",
    },
    Key {
        path: "leaderElection.leaderElect",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether replicas elect a leader, and only the leader acts. Needed with more than \
            one replica.",
    },
    Key {
        path: "leaderElection.leaseDuration",
        value_type: LEASE,
        default: DefaultValue::Text("15s"),
        effect: Effect::Restart,
        about: "How long candidates wait for a leader that does not renew the lease. Zero: the \
            default.",
    },
    Key {
        path: "leaderElection.renewDeadline",
        value_type: LEASE,
        default: DefaultValue::Text("10s"),
        effect: Effect::Restart,
        about: "How long the leader tries to renew the lease before it gives up. Zero: the \
            default.",
    },
    Key {
        path: "leaderElection.retryPeriod",
        value_type: LEASE,
        default: DefaultValue::Text("2s"),
        effect: Effect::Restart,
        about: "How long candidates and leader wait between two attempts. Zero: the default.",
    },
    Key {
        path: "leaderElection.resourceLock",
        value_type: ValueType::Word(&["leases"]),
        default: DefaultValue::Text("leases"),
        effect: Effect::Restart,
        about: "The resource used as lock.",
    },
    Key {
        path: "leaderElection.resourceName",
        value_type: ValueType::Name,
        default: DefaultValue::Text("gantry-operator"),
        effect: Effect::Restart,
        about: "The name of the lease.",
    },
    Key {
        path: "leaderElection.resourceNamespace",
        value_type: ValueType::Namespace,
        default: DefaultValue::Unset,
        effect: Effect::Restart,
        about: "The namespace of the lease. Unset: the operator's own.",
    },
    Key {
        path: "controllers",
        value_type: ValueType::Switches,
        default: DefaultValue::Unset,
        effect: Effect::Restart,
        about: "Controllers to enable or disable by name, or a list of all that run.",
    },
    Key {
        path: "kuberay",
        value_type: ValueType::Opaque,
        default: DefaultValue::Unset,
        effect: Effect::Never("has no effect: Gantry does not run KubeRay"),
        about: "Read and not used.",
    },
    Key {
        path: "appwrapper",
        value_type: ValueType::Opaque,
        default: DefaultValue::Unset,
        effect: Effect::Never("has no effect: AppWrapper v1beta2 is not served"),
        about: "Read and not used.",
    },
];
