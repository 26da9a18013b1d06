//! What must hold of the chart without helm; with it, `crates/gantry/tests/clients/fma_chart.rs`
//! goes on.

use std::collections::BTreeSet;

use gantry::manifests::manifests;

use super::*;
use crate::image::PROGRAM;

fn files() -> Vec<Generated> {
    make(&Tree::default()).unwrap()
}

fn file(name: &str) -> String {
    let path = format!("charts/fma-controllers/{name}");
    files().into_iter().find(|file| file.path == path).unwrap().content
}

fn templates() -> impl Iterator<Item = Generated> {
    files().into_iter().filter(|file| file.path.contains("/templates/"))
}

#[test]
fn cs_26_and_cs_46_nothing_that_is_shared_is_touched() {
    let of_template = |file: Generated| {
        let kinds = file.content.lines().filter_map(|line| line.strip_prefix("kind: "));
        kinds.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut kinds: Vec<_> = templates().flat_map(of_template).collect();
    kinds.sort();
    let expected = [
        "ClusterRoleBinding",
        "Deployment",
        "Deployment",
        "Deployment",
        "NetworkPolicy",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ];
    assert_eq!(kinds, expected);
    for Generated { path, content } in files() {
        assert!(!path.contains("/crds/"), "{path}");
        assert!(!content.contains("helm.sh/hook"), "{path}");
    }
}

#[test]
fn cs_8_only_a_role_that_was_named_is_bound_in_the_cluster() {
    let template = file("templates/node-view.yaml");
    assert!(template.starts_with("{{- if .Values.global.nodeViewClusterRole }}\n"), "{template}");
    assert!(template.ends_with("\n{{- end }}\n"), "{template}");
    assert!(template.contains("\n  name: {{ .Release.Name }}-node-view\n"), "{template}");
    let in_cluster = files().into_iter().filter(|it| it.content.contains("\nkind: ClusterRole"));
    assert_eq!(in_cluster.count(), 1, "nothing else is cluster-scoped");
}

/// The policies exempt the controllers by the end of this name.
#[test]
fn cs_31_the_account_has_the_name_that_policies_exempt() {
    let account = file("templates/service-account.yaml");
    assert!(account.contains("\n  name: {{ .Release.Name }}-fma-controllers\n"), "{account}");
    for name in ["dual-pods-controller", "launcher-populator", "coverage"] {
        let template = file(&format!("templates/{name}.yaml"));
        let line = "      serviceAccountName: {{ .Release.Name }}-fma-controllers\n";
        assert_eq!(template.matches(line).count(), 1, "{template}");
    }
}

/// What scripts that were written for the original rely on: names, labels of selectors, flags, the
/// port of metrics.
#[test]
fn deployments_are_those_of_the_original() {
    let table: [(&str, &str, &[&str]); 2] = [
        (
            "dual-pods-controller",
            "controller",
            &[
                "        - -v=5\n",
                "        - --namespace={{ .Release.Namespace }}\n",
                "        - --sleeper-limit={{ .Values.dualPodsController.sleeperLimit | int }}\n",
                "        - --debug-accelerator-memory=\
                 {{ .Values.dualPodsController.debugAcceleratorMemory }}\n",
            ],
        ),
        (
            "launcher-populator",
            "launcher-populator",
            &["        - --namespace={{ .Release.Namespace }}\n"],
        ),
    ];
    for (name, container, flags) in table {
        let template = file(&format!("templates/{name}.yaml"));
        let common = [
            format!("\n  name: {{{{ .Release.Name }}}}-{name}\n"),
            format!("\n      - name: {container}\n"),
            format!(
                "    matchLabels:\n      app.kubernetes.io/name: fma-controllers\n      \
                 app.kubernetes.io/instance: {{{{ .Release.Name | quote }}}}\n      \
                 app.kubernetes.io/component: {name}\n"
            ),
            "        scrape: \"true\"\n".to_owned(),
            format!("        command:\n        - {PROGRAM}\n        - {name}\n"),
            "        - name: metrics\n          containerPort: 8002\n".to_owned(),
        ];
        for part in common.iter().map(String::as_str).chain(flags.iter().copied()) {
            assert!(template.contains(part), "{part:?} in\n{template}");
        }
    }
}

/// Arguments that the programs do not know end them at once, so each list is given to the command
/// line that reads it, with every condition met.
#[test]
fn the_arguments_of_the_containers_are_those_of_the_programs() {
    let values = [
        ("HELM_NAMESPACE", "team"),
        ("HELM_SLEEPER_LIMIT", "2"),
        ("HELM_DEBUG_MEMORY", "false"),
        ("HELM_RETENTION", "10m"),
    ];
    for deployment in [pairing(), population()] {
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let words = ["command", "args"].map(|it| container[it].as_array().unwrap());
        let words = words.into_iter().flatten().map(|it| it.as_str().unwrap());
        let words = words.filter(|it| !it.starts_with("HELM_IF") && *it != "HELM_END");
        let words: Vec<String> = words
            .map(|word| values.iter().fold(word.to_owned(), |it, (from, to)| it.replace(from, to)))
            .collect();
        assert!(words.iter().all(|it| !it.contains("HELM_")), "{words:?}");
        assert!(words.contains(&"--leader-elect".to_owned()), "{words:?}");
        let parsed = gantry::cli::command().try_get_matches_from(&words);
        assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        let unknown = [&words[..], &["--retention=1m".to_owned()]].concat();
        assert!(gantry::cli::command().try_get_matches_from(unknown).is_err());
    }
}

#[test]
fn the_pods_give_up_every_privilege() {
    for name in ["dual-pods-controller", "launcher-populator"] {
        let template = file(&format!("templates/{name}.yaml"));
        for line in [
            "        runAsNonRoot: true\n",
            "          type: RuntimeDefault\n",
            "          allowPrivilegeEscalation: false\n",
            "            drop:\n            - ALL\n",
            "          readOnlyRootFilesystem: true\n",
        ] {
            assert!(template.contains(line), "{line:?} in\n{template}");
        }
        assert!(!template.contains("runAsUser"), "platforms assign users: {template}");
    }
}

/// Every condition that begins ends in the same template.
#[test]
fn conditions_are_closed() {
    for Generated { path, content } in templates().filter(|it| it.path.ends_with(".yaml")) {
        let count = |word: &str| content.matches(word).count();
        // `with` and `if` of one line end in that line.
        let inline = content.lines().filter(|it| it.contains("{{ end }}")).count();
        assert_eq!(count("{{ end }}"), inline, "{path}");
        assert_eq!(count("{{- if "), count("{{- end }}"), "{path}:\n{content}");
    }
}

/// The values of the original's `values.yaml` at release 0.6, with their defaults; the registry and
/// the tag are where Gantry differs, because its image is elsewhere.
#[test]
fn values_of_the_original_have_their_names_and_defaults() {
    let values = yaml::read(&file("values.yaml")).unwrap()[0].to_json();
    let original = json!({
        "global": {
            "imageRegistry": "", "imageTag": "", "nodeViewClusterRole": "", "local": false,
            "produceCoverdata": false, "coverdataInspectorImage": "busybox:stable",
        },
        "dualPodsController": {
            "enabled": true, "sleeperLimit": 2, "debugAcceleratorMemory": false,
        },
        "launcherPopulator": {
            "enabled": true, "pullPolicy": "IfNotPresent", "replicaCount": 1,
            "resources": {
                "limits": { "cpu": 2, "memory": "2Gi" },
                "requests": { "cpu": "100m", "memory": "128Mi" },
            },
        },
    });
    for (section, expected) in original.as_object().unwrap() {
        assert_eq!(values[section], *expected, "{section}");
    }
    // What is ours alone is off.
    for (name, off) in
        [("tokenSecret", json!("")), ("retentionTime", json!("")), ("networkPolicy", json!(false))]
    {
        assert_eq!(values["gantry"][name], off, "{name}");
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    let values = yaml::read(&file("values.yaml")).unwrap()[0].to_json();
    assert_eq!(schema["additionalProperties"], false);
    for (section, below) in values.as_object().unwrap() {
        let known = &schema["properties"][section];
        // Values of a parent chart for all of its subcharts are in `global` too.
        assert_eq!(known["additionalProperties"], section == "global", "{section}");
        for (name, _) in below.as_object().unwrap() {
            assert!(known["properties"][name]["description"].is_string(), "{section}.{name}");
        }
    }
}

/// Returns what rules allow, as group, resource and verb.
fn allowed(rules: &[Value]) -> BTreeSet<[String; 3]> {
    let words = |rule: &Value, list: &str| -> Vec<String> {
        let items = rule[list].as_array().into_iter().flatten();
        items.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules {
        assert!(rule["resourceNames"].is_null(), "compare rules about names by hand: {rule}");
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                for verb in words(rule, "verbs") {
                    all.insert([group.clone(), resource.clone(), verb]);
                }
            }
        }
    }
    all
}

/// Compares the Role with what the subsystem asks for in `config/operator`: nodes are read through
/// `global.nodeViewClusterRole`, events and leases are in roles that every operator has.
#[test]
fn cs_3_the_role_is_what_the_code_needs() {
    let files = manifests().into_iter().filter(|it| it.file.contains("actuation"));
    let objects = files.flat_map(|it| it.objects);
    let rules_of_code: Vec<Value> =
        objects.filter_map(|it| it["rules"].as_array().cloned()).flatten().collect();
    if rules_of_code.is_empty() {
        return;
    }
    let elsewhere = |it: &[String; 3]| {
        matches!(it[1].as_str(), "nodes" | "events" | "leases" | "customresourcedefinitions")
    };
    let of_code: BTreeSet<_> =
        allowed(&rules_of_code).into_iter().filter(|it| !elsewhere(it)).collect();
    let of_chart: BTreeSet<_> = allowed(&rules()).into_iter().filter(|it| !elsewhere(it)).collect();
    assert_eq!(of_chart, of_code);
}

#[test]
fn no_rule_allows_escalation() {
    let secret = ["secrets", "serviceaccounts", "serviceaccounts/token", "pods/exec"];
    for [group, resource, verb] in allowed(&rules()) {
        assert!(group != "rbac.authorization.k8s.io" && group != "*", "{group}");
        assert!(resource != "*" && !secret.contains(&resource.as_str()), "{resource}");
        assert!(!["*", "bind", "escalate", "impersonate"].contains(&verb.as_str()), "{verb}");
    }
}
