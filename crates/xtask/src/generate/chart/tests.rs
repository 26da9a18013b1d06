//! What must hold of the chart without helm; with it, `crates/gantry/tests/clients/chart.rs` goes
//! on.

use super::*;

fn files() -> Vec<Generated> {
    make(&Tree::default()).unwrap()
}

fn file(name: &str) -> String {
    let path = format!("charts/gantry/{name}");
    files().into_iter().find(|file| file.path == path).unwrap().content
}

/// The lines of all templates that begin with this key.
fn template_lines(key: &str) -> Vec<String> {
    let templates = files().into_iter().filter(|file| file.path.contains("/templates/"));
    let lines = templates.flat_map(|file| {
        let lines = file.content.lines().filter(|line| line.starts_with(key));
        lines.map(|line| line[key.len()..].trim().to_owned()).collect::<Vec<_>>()
    });
    let mut found: Vec<_> = lines.collect();
    found.sort();
    found
}

#[test]
fn cs_26_and_cs_46_nothing_that_is_shared_is_touched() {
    let kinds = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "ConfigMap",
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(template_lines("kind:"), kinds);
    for Generated { path, content } in files() {
        assert!(!path.contains("/crds/"), "{path}");
        assert!(!content.contains("helm.sh/hook"), "{path}");
    }
}

#[test]
fn cs_8_only_a_role_that_was_named_is_bound_in_the_cluster() {
    let (nodes, metrics) = ("nodeViewClusterRole", "metricsAuthClusterRole");
    let table = [
        ("node-view", nodes),
        ("metrics-auth", metrics),
        ("metrics-reader", metrics),
        ("modules", "modulesClusterRole"),
        ("modules-secrets", "modulesSecretsClusterRole"),
    ];
    for (name, value) in table {
        let template = file(&format!("templates/{name}.yaml"));
        let begin = format!("{{{{- if .Values.global.{value} }}}}\n");
        assert!(template.starts_with(&begin), "{template}");
        assert!(template.ends_with("\n{{- end }}\n"), "{template}");
    }
    let in_cluster = files().into_iter().filter(|it| it.content.contains("\nkind: ClusterRole"));
    assert_eq!(in_cluster.count(), table.len(), "nothing else is cluster-scoped");
}

/// The chart gives up the same privileges as config/operator.
#[test]
fn the_pod_gives_up_every_privilege() {
    let template = file("templates/deployment.yaml");
    for line in [
        "        runAsNonRoot: true\n",
        "          type: RuntimeDefault\n",
        "          allowPrivilegeEscalation: false\n",
        "            drop:\n            - ALL\n",
        "          readOnlyRootFilesystem: true\n",
    ] {
        assert!(template.contains(line), "{line:?} in\n{template}");
    }
}

#[test]
fn names_are_those_of_the_release() {
    for file in files().into_iter().filter(|file| file.path.ends_with(".yaml")) {
        let Generated { path, content } = file;
        if path.contains("/templates/") {
            assert!(!content.contains("gantry-system"), "{path}:\n{content}");
            assert!(!content.contains("controller-manager"), "{path}:\n{content}");
        }
    }
}

#[test]
fn the_schema_knows_every_value_and_leaves_out_what_the_chart_decides() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    let values = yaml::read(&file("values.yaml")).unwrap()[0].to_json();
    for (section, below) in values.as_object().unwrap() {
        for (name, _) in below.as_object().unwrap() {
            let known = &schema["properties"][section]["properties"][name];
            assert!(known["description"].is_string(), "{section}.{name}");
        }
    }
    let config = &schema["properties"]["operator"]["properties"]["config"]["properties"];
    let names: Vec<_> = config.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "clientConnection",
        "logging",
        "leaderElection",
        "controllers",
        "kuberay",
        "appwrapper",
        "mcadEnabled",
        "mcad",
        "instascale",
        "simulation",
        "devices",
        "modules",
        "actuation",
    ];
    assert_eq!(names, expected);
    let election = config["leaderElection"]["properties"].as_object().unwrap();
    let kept: Vec<_> = election.keys().map(String::as_str).collect();
    assert_eq!(kept, ["leaseDuration", "renewDeadline", "retryPeriod", "resourceLock"]);
}
