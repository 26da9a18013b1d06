//! Registers the queue as a subsystem: its settings, controllers and permissions.

pub mod configuration;
mod hook;
mod start;

use std::sync::Arc;

use gantry_subsystem::access::{Account, READ, named_rule, webhook_rules};
use gantry_subsystem::admission::SharedHook;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use gantry_subsystem::{
    ControllerSwitch, Feature, Grant, GrantBinding, SettingsSection, Subsystem, rule,
};
use serde_json::Value;

use self::hook::AuthorHook;
use crate::effects::admission::LeafAdmission;

use crate::author;

pub use start::FIELD_MANAGER;

/// The queue subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "queue",
    about: "Queues AppWrappers, admits those that fit as a gang, and preempts and requeues them.",
    settings: SettingsSection {
        keys: configuration::KEYS,
        aliases: configuration::ALIASES,
        check: configuration::check,
        read: |values| {
            let settings = configuration::settings(values)?;
            Ok(Box::new((configuration::is_enabled(values), settings)))
        },
    },
    features: &[
        Feature {
            name: "queue",
            enabled: configuration::is_enabled,
            definitions: &["appwrappers.workload.codeflare.dev"],
            controllers: &[
                ControllerSwitch::on("queue-dispatch"),
                ControllerSwitch::on("queue-progress"),
            ],
        },
        Feature {
            name: "quota",
            enabled: |values| {
                configuration::is_enabled(values) && values.is_on("mcad.quotaEnabled")
            },
            definitions: &["quotasubtrees.quota.codeflare.dev"],
            controllers: &[ControllerSwitch::on("quota-status")],
        },
    ],
    grants,
    accounts,
    start: |setup| Box::pin(async move { start::start(setup) }),
    hooks,
    explain: &[],
    gather: &[("v1", "nodes"), ("v1", "pods"), ("v1", "events")],
};

/// The manifest with the permissions to record and review authors of AppWrappers.
pub const CHECK_USER_ACCESS_FILE: &str = "45-check-user-access.yaml";
/// A ClusterRole with this label set to `true` is aggregated into what the operator may do with
/// wrapped objects.
pub const WRAPPED_LABEL: &str = "gantry.dev/aggregate-to-wrapped-kinds";

const WRAPPED_FILE: &str = "30-wrapped-kinds.yaml";
const WRAPPED_VERBS: &[&str] = &["create", "delete", "get", "list", "watch"];

/// The account of the queue at the embedded API server, used to admit AppWrappers and create what
/// they wrap.
const ACCOUNT: &str = "system:gantry:queue";

fn accounts(values: &Values) -> Vec<Account> {
    let mut all = rules();
    all.extend(quota_rules());
    all.push(rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]));
    all.push(named_rule(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        &[author::CONFIGURATION],
        &["get"],
    ));
    // Any kind may be wrapped. Wrapped objects are created as their author, unless that is switched
    // off.
    let wrapped: &[&str] = match values.is_on("mcad.checkUserAccess") {
        true => &["delete"],
        false => &["create", "delete"],
    };
    all.push(rule("*", &["*"], wrapped));
    vec![Account::new(ACCOUNT, all)]
}

fn hooks(values: &Values, offers: &HostExtensions) -> Result<Vec<SharedHook>, serde_json::Error> {
    let is_on = configuration::is_enabled(values) && values.is_on("mcad.checkUserAccess");
    let leaves = offers.get::<LeafAdmission>().cloned().unwrap_or_default();
    Ok(match is_on {
        true => vec![Arc::new(AuthorHook { leaves })],
        false => Vec::new(),
    })
}

fn grants() -> Vec<Grant> {
    let reviews = rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]);
    let hooks = webhook_rules(&["mutatingwebhookconfigurations"], author::CONFIGURATION);
    vec![
        Grant::base(rules()),
        Grant::new(
            WRAPPED_FILE,
            "gantry-wrapped",
            "Everything that may be wrapped: the sum of the ClusterRoles with the label \
             gantry.dev/aggregate-to-wrapped-kinds. Add one to let other kinds be wrapped.",
            Vec::new(),
        )
        .with_binding(GrantBinding::AggregatesLabel(WRAPPED_LABEL)),
        Grant::new(
            WRAPPED_FILE,
            "gantry-wrapped-kinds",
            "The kinds that may be wrapped by default. Users who may create pods in every \
             namespace can use this role: protect the operator's namespace accordingly.",
            wrapped_kinds(),
        )
        .with_binding(GrantBinding::AggregatedByLabel(WRAPPED_LABEL)),
        Grant::new(
            CHECK_USER_ACCESS_FILE,
            "gantry-access-reviews",
            "Lets the operator ask what others may do, and tell the API server to ask it who makes \
             AppWrappers, so that nobody gets more by wrapping than by creating. It could then \
             have the server ask it about everything.",
            [reviews].into_iter().chain(hooks).collect(),
        )
        .with_webhook(),
        Grant::new(
            "optional/quota.yaml",
            "gantry-quota",
            "Lets the operator read and mark quota trees; for mcad.quotaEnabled.",
            quota_rules(),
        ),
        Grant::new(
            "optional/wrapped-secrets.yaml",
            "gantry-wrapped-secrets",
            "Lets Secrets and ServiceAccounts be wrapped. The operator can then read every Secret.",
            vec![rule("", &["secrets", "serviceaccounts"], WRAPPED_VERBS)],
        )
        .with_binding(GrantBinding::AggregatedByLabel(WRAPPED_LABEL)),
    ]
}

fn wrapped_kinds() -> Vec<Value> {
    vec![
        rule("", &["configmaps", "persistentvolumeclaims", "pods", "services"], WRAPPED_VERBS),
        rule("apps", &["deployments", "replicasets", "statefulsets"], WRAPPED_VERBS),
        rule("batch", &["jobs"], WRAPPED_VERBS),
        rule("jobset.x-k8s.io", &["jobsets"], WRAPPED_VERBS),
        rule("kubeflow.org", &["pytorchjobs"], WRAPPED_VERBS),
        rule("networking.k8s.io", &["ingresses"], WRAPPED_VERBS),
        rule("ray.io", &["rayclusters", "rayjobs"], WRAPPED_VERBS),
        rule("route.openshift.io", &["routes"], WRAPPED_VERBS),
        rule("scheduling.sigs.k8s.io", &["podgroups"], WRAPPED_VERBS),
        rule("scheduling.x-k8s.io", &["podgroups"], WRAPPED_VERBS),
    ]
}

/// Returns the permissions on the queue's own objects and on pods, in every namespace.
#[must_use]
pub fn rules() -> Vec<Value> {
    let own = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let wrappers = ["appwrappers", "appwrappers/finalizers", "appwrappers/status"];
    vec![
        rule("workload.codeflare.dev", &wrappers, &own),
        rule("", &["pods"], &["delete", "get", "list", "watch"]),
        rule("", &["nodes"], READ),
        rule("", &["events"], &["create", "patch"]),
    ]
}

/// Returns the permissions on quota trees.
#[must_use]
pub fn quota_rules() -> Vec<Value> {
    let verbs = ["get", "list", "patch", "update", "watch"];
    vec![rule("quota.codeflare.dev", &["quotasubtrees", "quotasubtrees/status"], &verbs)]
}
