//! The queue as a subsystem: its settings, and what it may do.

pub mod configuration;
mod hook;
mod start;

use std::sync::Arc;

use gantry_subsystem::access::{Account, READ, named_rule, webhook_rules};
use gantry_subsystem::admission::SharedHook;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::Offers;
use gantry_subsystem::{
    ControllerSwitch, Feature, Grant, Membership, SettingsSection, Subsystem, rule,
};
use serde_json::Value;

use self::hook::AuthorHook;
use crate::effects::admission::LeafAdmission;

use crate::author;

pub use start::NAME;

/// The queue.
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

/// The file with the rights to record and review authors of AppWrappers.
pub const CHECK_USER_ACCESS_FILE: &str = "45-check-user-access.yaml";
/// A ClusterRole with this label, set to `true`, joins what the operator may do with wrapped objects.
pub const WRAPPED_LABEL: &str = "gantry.dev/aggregate-to-wrapped-kinds";

const WRAPPED_FILE: &str = "30-wrapped-kinds.yaml";
const WRAPPED: &[&str] = &["create", "delete", "get", "list", "watch"];

/// Who the queue is to the embedded server, where it admits AppWrappers and creates what they wrap.
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
    // Any kind may be wrapped. What is wrapped is created by its author, unless that is switched off.
    let wrapped: &[&str] = match values.is_on("mcad.checkUserAccess") {
        true => &["delete"],
        false => &["create", "delete"],
    };
    all.push(rule("*", &["*"], wrapped));
    vec![Account::new(ACCOUNT, all)]
}

fn hooks(values: &Values, offers: &Offers) -> Result<Vec<SharedHook>, serde_json::Error> {
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
        .by(Membership::Collects(WRAPPED_LABEL)),
        Grant::new(
            WRAPPED_FILE,
            "gantry-wrapped-kinds",
            "The kinds that may be wrapped unless somebody adds more. Whoever may create pods in every \
             namespace can use what is in it: protect the operator's namespace accordingly.",
            wrapped_kinds(),
        )
        .by(Membership::Labelled(WRAPPED_LABEL)),
        Grant::new(
            CHECK_USER_ACCESS_FILE,
            "gantry-access-reviews",
            "Lets the operator ask what others may do, and tell the API server to ask it who makes \
             AppWrappers, so that nobody gets more by wrapping than by creating. It could then have the server ask it about \
             everything.",
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
            vec![rule("", &["secrets", "serviceaccounts"], WRAPPED)],
        )
        .by(Membership::Labelled(WRAPPED_LABEL)),
    ]
}

fn wrapped_kinds() -> Vec<Value> {
    vec![
        rule("", &["configmaps", "persistentvolumeclaims", "pods", "services"], WRAPPED),
        rule("apps", &["deployments", "replicasets", "statefulsets"], WRAPPED),
        rule("batch", &["jobs"], WRAPPED),
        rule("jobset.x-k8s.io", &["jobsets"], WRAPPED),
        rule("kubeflow.org", &["pytorchjobs"], WRAPPED),
        rule("networking.k8s.io", &["ingresses"], WRAPPED),
        rule("ray.io", &["rayclusters", "rayjobs"], WRAPPED),
        rule("route.openshift.io", &["routes"], WRAPPED),
        rule("scheduling.sigs.k8s.io", &["podgroups"], WRAPPED),
        rule("scheduling.x-k8s.io", &["podgroups"], WRAPPED),
    ]
}

/// What the queue does with its own objects and with pods, in every namespace.
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

/// What it does with quota trees.
#[must_use]
pub fn quota_rules() -> Vec<Value> {
    let verbs = ["get", "list", "patch", "update", "watch"];
    vec![rule("quota.codeflare.dev", &["quotasubtrees", "quotasubtrees/status"], &verbs)]
}
