//! The keys that belong to no subsystem.

use gantry_subsystem::settings::{Effect, Empty, Form, Key, Usual, Zero};

const NOT_NEGOTIATED: &str = "has no effect: requests and answers are JSON";
const VERBOSITY: i32 = gantry_process::telemetry::MOST_VERBOSE as i32;
const LEASE: Form = Form::Duration { zero: Zero::Default };

/// The keys, in the order they are printed.
pub(super) const PROCESS: &[Key] = &[
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
        default: Usual::Text("127.0.0.1:8080"),
        effect: Effect::Restart,
        about: "Where `/metrics` is served; `\"0\"` switches it off.",
    },
    Key {
        path: "metrics.secureServing",
        form: Form::Flag,
        default: Usual::Flag(true),
        effect: Effect::Restart,
        about: "Whether that takes TLS and a bearer token whose user may `get` the path `/metrics`; the API server reviews both. `false` is accepted on loopback only.",
    },
    Key {
        path: "metrics.certFile",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Restart,
        about: "The certificate of the metrics server, a PEM file that is followed when it changes. Empty: self-signed, anew with each start.",
    },
    Key {
        path: "metrics.keyFile",
        form: Form::Text,
        default: Usual::Text(""),
        effect: Effect::Restart,
        about: "The private key of that certificate, a PEM file.",
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
        path: "controllers",
        form: Form::Switches,
        default: Usual::Unset,
        effect: Effect::Restart,
        about: "Controllers to switch on or off by name, or a list of all that run.",
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
