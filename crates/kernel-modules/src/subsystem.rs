//! Registers kernel modules as a subsystem: settings, controllers, permissions, webhook.

pub mod configuration;
mod explain;
mod hook;
mod observation;
mod security_constraints;
mod start;

use std::sync::Arc;

use gantry_subsystem::access::{Account, GrantScope, READ, named_rule, webhook_rules};
use gantry_subsystem::admission::SharedHook;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::HostExtensions;
use gantry_subsystem::{ControllerSwitch, Feature, Grant, SettingsSection, Subsystem, rule};
use serde_json::Value;

use self::configuration::Configuration;
use self::explain::MODULE_PAGE;
use self::hook::ModuleHook;
pub use self::start::{REGISTRY_ROLE, SIMULATED_GANTRY_IMAGE};
use crate::admission::CONFIGURATION_NAME;
use crate::controller::ModuleController;
use crate::node_labels::NodeLabelController;

/// The kernel-module subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "modules",
    about: "Loads kernel modules on nodes: picks, builds and signs the image for each kernel.",
    settings: SettingsSection {
        keys: configuration::KEYS,
        aliases: &[],
        check: |_, _| {},
        read: |values| {
            let configuration = Configuration::read(values)?;
            let settings = configuration.settings();
            Ok(Box::new((configuration, settings)))
        },
    },
    features: &[Feature {
        name: "modules",
        enabled: |values| values.is_on("modules.enabled"),
        definitions: &["modules.ooto.sigs.k8s.io"],
        controllers: CONTROLLERS,
    }],
    grants,
    accounts: |_| vec![Account::new(ACCOUNT, [rbac_rules(), embedded_rules()].concat())],
    start: |setup| Box::pin(async move { observation::observe(setup, start::start(setup).await?) }),
    hooks,
    explain: &[MODULE_PAGE],
    gather: &[
        ("v1", "nodes"),
        ("v1", "pods"),
        ("v1", "events"),
        ("v1", "serviceaccounts"),
        ("apps/v1", "daemonsets"),
        ("batch/v1", "jobs"),
    ],
};

const CONTROLLERS: &[ControllerSwitch] = &[
    ControllerSwitch::on(ModuleController::NAME),
    ControllerSwitch::on(NodeLabelController::NAME),
];

/// The account of the controllers at the embedded API server.
pub const ACCOUNT: &str = "system:gantry:modules";

fn hooks(values: &Values, _: &HostExtensions) -> Result<Vec<SharedHook>, serde_json::Error> {
    let configuration = Configuration::read(values)?;
    let allowed_host_paths = configuration.settings().host_path_allow_list;
    Ok(match configuration.enabled && configuration.webhook.enabled {
        true => vec![Arc::new(ModuleHook { allowed_host_paths })],
        false => Vec::new(),
    })
}

fn grants() -> Vec<Grant> {
    vec![
        Grant::new(
            "optional/modules-webhook.yaml",
            "gantry-modules-webhook",
            "Lets the operator register the admission webhook for Modules; for \
             modules.webhook.enabled. It could then register webhooks for every request.",
            webhook_rules(&["validatingwebhookconfigurations"], CONFIGURATION_NAME).to_vec(),
        )
        .with_webhook(),
        Grant::new(
            "optional/modules.yaml",
            "gantry-modules",
            "Lets the operator load kernel modules on nodes; for modules.enabled. It creates \
             privileged pods in namespaces with Modules, and labels nodes.",
            rules_without_secrets(),
        ),
        Grant::new(
            "optional/modules.yaml",
            SECRETS_ROLE,
            "Lets the operator read Secrets by name, in every namespace; for the registry \
             credentials and keys that Modules name. To allow single namespaces only, leave this \
             role and its binding out, and use optional/modules-secrets.yaml instead.",
            vec![secrets_rule()],
        ),
        Grant::new(
            "optional/modules-drain.yaml",
            "gantry-modules-drain",
            "Lets the operator evict pods, as far as PodDisruptionBudgets allow it; for \
             modules.upgrade.drain.",
            vec![eviction_rule()],
        ),
        Grant::new("optional/modules-secrets.yaml", SECRETS_ROLE, "", vec![secrets_rule()])
            .in_scope(GrantScope::Namespace(EXAMPLE_NAMESPACE)),
    ]
    .into_iter()
    .chain(security_constraints::grants())
    .collect()
}

/// The role for reading Secrets.
const SECRETS_ROLE: &str = "gantry-modules-secrets";
/// The namespace of the role for single namespaces; users put theirs in its place.
const EXAMPLE_NAMESPACE: &str = "drivers";

/// Secrets are read by name, when a Module names them; never listed. Of keys only the metadata is
/// requested, which is the same permission.
fn secrets_rule() -> Value {
    rule("", &["secrets"], &["get"])
}

/// Pods that use devices are evicted in ordered upgrades; budgets hold.
fn eviction_rule() -> Value {
    rule("", &["pods/eviction"], &["create"])
}

/// Returns the rules that the controllers need besides on an embedded server: they bind accounts of
/// Jobs to the role of its registry, and to no other.
fn embedded_rules() -> Vec<Value> {
    let group = "rbac.authorization.k8s.io";
    vec![
        rule(group, &["rolebindings"], &["create", "get", "patch"]),
        named_rule(group, "clusterroles", &[REGISTRY_ROLE], &["bind"]),
    ]
}

/// Returns the RBAC rules that the controllers need, and no more.
#[must_use]
pub fn rbac_rules() -> Vec<Value> {
    let mut rules = rules_without_secrets();
    rules.extend([secrets_rule(), eviction_rule()]);
    rules
}

fn rules_without_secrets() -> Vec<Value> {
    let group = "ooto.sigs.k8s.io";
    vec![
        // At its start the operator checks that the kind is there. Releases of the chart have no
        // other role for that.
        named_rule(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            &["modules.ooto.sigs.k8s.io"],
            &["get"],
        ),
        rule(group, &["modules"], &["get", "list", "patch", "watch"]),
        rule(group, &["modules/status"], &["patch"]),
        // Objects that block the deletion of their owner need it.
        rule(group, &["modules/finalizers"], &["update"]),
        rule("apps", &["daemonsets"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("batch", &["jobs"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("batch", &["jobs/finalizers"], &["update"]),
        rule("", &["configmaps"], &["create", "get", "list", "watch"]),
        rule("", &["serviceaccounts"], &["create", "get", "list", "patch", "watch"]),
        rule("", &["namespaces", "nodes"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], READ),
        // Those about failed hooks are read by pod; see `facts::FailedHook`.
        rule("", &["events"], &["create", "list", "patch"]),
    ]
}

#[cfg(test)]
mod tests;
