//! Generates `charts/fma-controllers`, the helm chart that deploys the controllers of actuation.
//!
//! Names, flags, ports, labels and values are those of the chart of this name of the llm-d fast
//! model actuation project, so that releases, scripts and values of that chart go on working:
//! `helm upgrade` replaces its controllers by ours. What is ours alone is in the section `gantry`
//! of the values and is off by default. Like the original it touches nothing that is shared, except
//! for one ClusterRoleBinding on request.

mod values;
mod workloads;

use anyhow::ensure;
use gantry::version::VERSION;
use gantry_yaml as yaml;
use serde_json::{Value, json};

use self::workloads::{coverage_claim, coverage_inspector, pairing, population};
use super::{Generated, chart_values};
use crate::tree::Tree;

/// The port of a launcher's API.
const LAUNCHER_PORT: u16 = 8001;

const PAIRING_ENABLED: &str = ".Values.dualPodsController.enabled";
const POPULATION_ENABLED: &str = ".Values.launcherPopulator.enabled";

/// The image of a component, as an expression.
macro_rules! image {
    ($component:literal) => {
        concat!(
            "\"{{ with .Values.global.imageRegistry }}{{ trimSuffix \"/\" . }}/{{ end }}",
            "{{ .Values.gantry.imageName | default \"",
            $component,
            "\" }}:{{ .Values.global.imageTag | default .Chart.AppVersion }}\""
        )
    };
}

/// The placeholders for what a release decides, and their helm expressions.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("HELM_ACCOUNT", "{{ .Release.Name }}-fma-controllers"),
    ("HELM_IN_NAMESPACE", "{{ .Release.Name }}-fma-controllers-in-ns"),
    ("HELM_NODE_VIEW", "{{ .Release.Name }}-node-view"),
    ("HELM_VIEW_ROLE", "{{ .Values.global.nodeViewClusterRole | quote }}"),
    ("HELM_PAIRING", "{{ .Release.Name }}-dual-pods-controller"),
    ("HELM_POPULATION", "{{ .Release.Name }}-launcher-populator"),
    ("HELM_INSPECTOR_NAME", "{{ .Release.Name }}-dpc-coverdata-inspector"),
    ("HELM_CLAIM", "{{ .Release.Name }}-coverdata-dual-pods-controller"),
    ("HELM_LAUNCHERS", "{{ .Release.Name }}-launchers"),
    ("HELM_REQUESTERS", "{{ .Release.Name }}-requesters"),
    ("HELM_INSTANCE", "{{ .Release.Name | quote }}"),
    ("HELM_SERVICE", "{{ .Release.Service | quote }}"),
    ("HELM_NAMESPACE_QUOTED", "{{ .Release.Namespace | quote }}"),
    ("HELM_NAMESPACE", "{{ .Release.Namespace }}"),
    ("HELM_IMAGE_OF_PAIRING", image!("dual-pods-controller")),
    ("HELM_IMAGE_OF_POPULATION", image!("launcher-populator")),
    ("HELM_IMAGE_OF_INSPECTOR", "{{ .Values.global.coverdataInspectorImage | quote }}"),
    ("HELM_PULL_OF_PAIRING", "{{ if .Values.global.local }}Never{{ else }}Always{{ end }}"),
    ("HELM_PULL_OF_POPULATION", "{{ .Values.launcherPopulator.pullPolicy }}"),
    ("HELM_SLEEPER_LIMIT", "{{ .Values.dualPodsController.sleeperLimit | int }}"),
    ("HELM_DEBUG_MEMORY", "{{ .Values.dualPodsController.debugAcceleratorMemory }}"),
    ("HELM_REPLICAS", "{{ .Values.launcherPopulator.replicaCount | int }}"),
    ("HELM_RESOURCES", "{{ toJson .Values.launcherPopulator.resources }}"),
    ("HELM_RETENTION", "{{ .Values.gantry.retentionTime }}"),
    ("HELM_TOKEN_SECRET", "{{ .Values.gantry.tokenSecret | quote }}"),
    ("HELM_REQUESTER_LABELS", "{{ toJson .Values.gantry.requesterLabels }}"),
    ("HELM_SPI_PORT", "{{ .Values.gantry.spiPort | int }}"),
    ("HELM_BELOW_SPI_PORT", "{{ sub (int .Values.gantry.spiPort) 1 }}"),
    ("HELM_ABOVE_SPI_PORT", "{{ add (int .Values.gantry.spiPort) 1 }}"),
];

/// What a line of its own in a template is the beginning of: an element of a list, or a key, up to
/// the next `HELM_END`.
const CONDITIONS: &[(&str, &str)] = &[
    ("HELM_IF_TOKEN", ".Values.gantry.tokenSecret"),
    ("HELM_IF_RETENTION", ".Values.gantry.retentionTime"),
    ("HELM_IF_COVERAGE", ".Values.global.produceCoverdata"),
    ("HELM_IF_VOLUMES", "or .Values.global.produceCoverdata .Values.gantry.tokenSecret"),
];

const NOTES: &str = "The actuation controllers of release {{ .Release.Name }} are in namespace {{ \
.Release.Namespace }}.
{{ if .Values.dualPodsController.enabled }}
    kubectl -n {{ .Release.Namespace }} logs deploy/{{ .Release.Name }}-dual-pods-controller
{{- end }}
{{- if .Values.launcherPopulator.enabled }}
    kubectl -n {{ .Release.Namespace }} logs deploy/{{ .Release.Name }}-launcher-populator
{{- end }}

They end with an error that names the missing kinds until the CustomResourceDefinitions of \
fma.llm-d.ai
are installed. This chart installs neither these nor admission policies: one administrator does, \
for all
users of the cluster, with `gantry install`.
{{- if not .Values.global.nodeViewClusterRole }}
They read nodes. If not every account of the cluster may, set global.nodeViewClusterRole.
{{- end }}
";

/// Refuses a policy that would protect no requester.
const NO_LABELS: &str = "{{- if not .Values.gantry.requesterLabels }}
{{- fail \"gantry.requesterLabels is empty: name labels that all requesters have, for instance \
{role: requester}, or set gantry.networkPolicy=false\" }}
{{- end }}
";

/// Generates every file of the chart.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let entries = values::entries();
    let schema = chart_values::schema("fma-controllers", &entries);
    let file = |name: &str, content: String| Generated {
        path: format!("charts/fma-controllers/{name}"),
        content,
    };
    let template = |name: &str, condition: Option<&str>, objects: &[Value]| {
        let mut content = render_templates(objects)?;
        if let Some(condition) = condition {
            content = format!("{{{{- if {condition} }}}}\n{content}{{{{- end }}}}\n");
        }
        anyhow::Ok(file(&format!("templates/{name}.yaml"), content))
    };
    let coverage = format!("and {PAIRING_ENABLED} .Values.global.produceCoverdata");
    let policy = ".Values.gantry.networkPolicy";
    let mut policies =
        template("network-policy", Some(policy), &[launcher_policy(), requester_policy()])?;
    let begin = format!("{{{{- if {policy} }}}}\n");
    policies.content = policies.content.replacen(&begin, &format!("{begin}{NO_LABELS}"), 1);
    let readme = chart_values::readme(include_str!("fma_chart/readme.txt"), &entries)?;
    Ok(vec![
        file("Chart.yaml", yaml::write(&about())?),
        file("values.yaml", chart_values::values_yaml(&entries)?),
        file("values.schema.json", serde_json::to_string_pretty(&schema)? + "\n"),
        file("README.md", readme),
        file("templates/NOTES.txt", NOTES.to_owned()),
        template("service-account", None, &[account()])?,
        template("role", None, &[role()])?,
        template("role-binding", None, &[role_binding()])?,
        template("node-view", Some(".Values.global.nodeViewClusterRole"), &[node_view()])?,
        template("dual-pods-controller", Some(PAIRING_ENABLED), &[pairing()])?,
        template("launcher-populator", Some(POPULATION_ENABLED), &[population()])?,
        template("coverage", Some(&coverage), &[coverage_claim(), coverage_inspector()])?,
        policies,
    ])
}

fn about() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "fma-controllers",
        "description": "The controllers of actuation in one namespace; nothing that is shared in \
                        the cluster.",
        "type": "application",
        "version": VERSION.version,
        "appVersion": VERSION.version,
    })
}

/// Returns the labels of every object; those of the original and no others.
fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "fma-controllers",
        "app.kubernetes.io/managed-by": "HELM_SERVICE",
        "app.kubernetes.io/instance": "HELM_INSTANCE",
    })
}

/// Returns the labels by which a Deployment finds its pods. They are those of the original, because
/// the selector of a Deployment cannot be changed, and releases of it are upgraded to this chart.
fn selector(component: Option<&str>) -> Value {
    let mut labels = json!({
        "app.kubernetes.io/name": "fma-controllers",
        "app.kubernetes.io/instance": "HELM_INSTANCE",
    });
    if let Some(component) = component {
        labels["app.kubernetes.io/component"] = json!(component);
    }
    labels
}

fn account() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "HELM_ACCOUNT", "labels": labels() },
    })
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "HELM_ACCOUNT", "labels": labels() },
        "rules": rules(),
    })
}

/// Returns what both controllers need in their namespace. Beyond the original: the status of
/// InferenceServerConfigs, the condition of a requester's readiness gate, the ResourceClaims of
/// requesters, and the leases of the processes that work. A test compares this with what the
/// subsystem asks for.
fn rules() -> Vec<Value> {
    let read: &[&str] = &["get", "list", "watch"];
    let models = "fma.llm-d.ai";
    vec![
        rule(
            models,
            &["inferenceserverconfigs", "launcherconfigs", "launcherpopulationpolicies"],
            read,
        ),
        rule(
            models,
            &[
                "inferenceserverconfigs/status",
                "launcherconfigs/status",
                "launcherpopulationpolicies/status",
            ],
            &["patch"],
        ),
        rule("", &["configmaps"], read),
        rule("resource.k8s.io", &["resourceclaims"], &["get"]),
        rule("", &["pods"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["create", "delete", "get", "list", "patch", "update", "watch"],
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

fn role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "HELM_IN_NAMESPACE", "labels": labels() },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "HELM_ACCOUNT",
        },
        "subjects": [
            {
                "kind": "ServiceAccount", "name": "HELM_ACCOUNT",
                "namespace": "HELM_NAMESPACE_QUOTED",
            },
        ],
    })
}

/// Binds a role that an administrator created. Its name does not have the namespace, because the
/// original's does not: helm refuses a second release of this name that wants one.
fn node_view() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "HELM_NODE_VIEW", "labels": labels() },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "HELM_VIEW_ROLE",
        },
        "subjects": [
            {
                "kind": "ServiceAccount", "name": "HELM_ACCOUNT",
                "namespace": "HELM_NAMESPACE_QUOTED",
            },
        ],
    })
}

/// Admits to the API of launchers only the controllers of this release, and to all other ports of
/// them, which engines listen on, what was admitted before.
fn launcher_policy() -> Value {
    let selector = json!({
        "matchLabels": { "app.kubernetes.io/component": "launcher" },
        "matchExpressions": [
            { "key": "dual-pods.llm-d.ai/launcher-config-name", "operator": "Exists" },
        ],
    });
    let (below, above) = (LAUNCHER_PORT - 1, LAUNCHER_PORT + 1);
    policy("HELM_LAUNCHERS", &selector, &[json!(LAUNCHER_PORT), json!(below), json!(above)])
}

/// Admits to the port for controllers of requesters only the controllers of this release. A
/// requester has no label of ours before it is bound, so that users name one.
fn requester_policy() -> Value {
    policy(
        "HELM_REQUESTERS",
        &json!({ "matchLabels": "HELM_REQUESTER_LABELS" }),
        &[json!("HELM_SPI_PORT"), json!("HELM_BELOW_SPI_PORT"), json!("HELM_ABOVE_SPI_PORT")],
    )
}

/// Returns the policy of `pods`. Their port for controllers lies between the ports below and above.
fn policy(name: &str, pods: &Value, [port, below, above]: &[Value; 3]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": name, "labels": labels() },
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{ "podSelector": { "matchLabels": selector(None) } }],
                    "ports": [{ "protocol": "TCP", "port": port }],
                },
                {
                    "ports": [
                        { "protocol": "TCP", "port": 1, "endPort": below },
                        { "protocol": "TCP", "port": above, "endPort": 65535 },
                        { "protocol": "UDP", "port": 1, "endPort": 65535 },
                    ],
                },
            ],
        },
    })
}

/// Renders objects as templates: placeholders become helm expressions, conditions actions.
fn render_templates(objects: &[Value]) -> anyhow::Result<String> {
    let mut documents = Vec::new();
    for object in objects {
        let text = yaml::write(object)?;
        documents.push(text.lines().map(render_line).collect::<String>());
    }
    let text = documents.join("---\n");
    ensure!(!text.contains("HELM_"), "a hole in a template has no filling:\n{text}");
    Ok(text)
}

/// Renders one line; the line of a condition becomes an action with the same indentation.
fn render_line(line: &str) -> String {
    let content = line.trim_start();
    let indentation = &line[..line.len() - content.len()];
    let word = content.trim_start_matches("- ").trim_end_matches(": null");
    if word.starts_with("HELM_END") {
        return format!("{indentation}{{{{- end }}}}\n");
    }
    if let Some((_, condition)) = CONDITIONS.iter().find(|(name, _)| *name == word) {
        return format!("{indentation}{{{{- if {condition} }}}}\n");
    }
    let mut text = line.to_owned();
    for (hole, filling) in PLACEHOLDERS {
        text = text.replace(hole, filling);
    }
    text + "\n"
}

#[cfg(test)]
mod tests;
