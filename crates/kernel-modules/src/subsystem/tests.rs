//! What the controllers may do, and what they know about Secrets.

use gantry_reconcile::{Controller as _, Inquiry as _};
use serde_json::json;

use super::*;
use crate::facts::{DockerfileInquiry, ImageInquiry, SecretInquiry};
use crate::settings::LiveSettings;

/// MC-11: Secrets are read by name and never listed or watched, whichever role grants it.
#[test]
fn secrets_are_read_by_name_only() {
    let of_grants = grants().into_iter().flat_map(|it| it.rules);
    let about_secrets = |rule: &Value| {
        let resources = rule["resources"].as_array().cloned().unwrap_or_default();
        resources.iter().any(|it| it == "secrets" || it == "*")
    };
    let rules: Vec<Value> =
        rbac_rules().into_iter().chain(of_grants).filter(about_secrets).collect();
    assert!(rules.len() >= 3, "{rules:?}");
    for rule in rules {
        assert_eq!((&rule["verbs"], &rule["resources"]), (&json!(["get"]), &json!(["secrets"])));
    }
    let live = LiveSettings::default();
    let controllers = [
        ModuleController::new(live.clone()).kinds(),
        NodeLabelController::new(live.clone()).kinds(),
        ImageInquiry::new(live.clone()).kinds(),
        SecretInquiry::new(live.clone()).kinds(),
        DockerfileInquiry::new(live).kinds(),
        (MODULE_PAGE.kinds)(),
    ];
    let cached: Vec<String> =
        controllers.iter().flatten().map(|it| it.resource().to_string()).collect();
    assert!(cached.iter().any(|it| it.contains("pods")), "{cached:?}");
    assert!(!cached.iter().any(|it| it.contains("secret")), "no cache has Secrets: {cached:?}");
}

/// MC-11: reading Secrets is a role of its own, offered for the cluster and for a namespace.
#[test]
fn secrets_can_be_granted_in_single_namespaces() {
    let of =
        |file: &str| -> Vec<Grant> { grants().into_iter().filter(|it| it.file == file).collect() };
    let grants_secrets = |grant: &Grant| grant.rules.contains(&secrets_rule());
    let cluster = of("optional/modules.yaml");
    assert_eq!(cluster.iter().filter(|it| grants_secrets(it)).count(), 1);
    assert!(cluster.iter().all(|it| it.scope == GrantScope::Cluster));
    let single = of("optional/modules-secrets.yaml");
    assert_eq!(single.len(), 1);
    assert!(grants_secrets(&single[0]) && single[0].rules.len() == 1);
    assert!(matches!(single[0].scope, GrantScope::Namespace(_)));
}
