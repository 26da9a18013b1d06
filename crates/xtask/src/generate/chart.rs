//! Generates `charts/gantry`, the helm chart that deploys the operator in one namespace.
//!
//! The templates are the objects of `config/operator`, with placeholders for what a release
//! decides, so that the two cannot drift apart. Cluster-scoped and shared objects are excluded:
//! definitions, policies and roles have rules of their own. Bindings are the exception, for reading
//! nodes, for reviewing readers of metrics, with the role of those readers, and for kernel modules;
//! they are only installed on request.

mod values;

use anyhow::{Context as _, ensure};
use gantry::config::source::{WRITTEN_KEY, effective_config_map};
use gantry::manifests::{CHECK_USER_ACCESS_FILE, METRICS_PORT, METRICS_READER, manifests};
use gantry::version::VERSION;
use gantry_yaml as yaml;
use serde_json::{Value, json};

use super::{Generated, chart_values};
use crate::tree::Tree;

/// The placeholders for what a release decides, and their helm expressions. Names come from the
/// release alone: at most 53 letters, so that with what is added they fit into every name.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("HELM_FULL", "{{ .Release.Name }}-gantry"),
    ("HELM_INSTANCE", "{{ .Release.Name | quote }}"),
    ("HELM_SERVICE", "{{ .Release.Service | quote }}"),
    ("HELM_REPLICAS", "{{ .Values.operator.replicaCount | int }}"),
    (
        "HELM_IMAGE",
        "\"{{ with .Values.global.imageRegistry }}{{ trimSuffix \"/\" . }}/{{ end }}gantry:\
         {{ .Values.global.imageTag | default .Chart.AppVersion }}\"",
    ),
    (
        "HELM_PULL",
        "{{ if .Values.global.local }}Never{{ else }}{{ .Values.operator.pullPolicy }}{{ end }}",
    ),
    ("HELM_SECRETS", "{{ toJson .Values.operator.imagePullSecrets }}"),
    ("HELM_RESOURCES", "{{ toJson .Values.operator.resources }}"),
    ("HELM_SELECTOR", "{{ toJson .Values.operator.nodeSelector }}"),
    ("HELM_TOLERATIONS", "{{ toJson .Values.operator.tolerations }}"),
    (
        "HELM_CHECKSUM",
        "{{ include (print $.Template.BasePath \"/configuration.yaml\") . | sha256sum }}",
    ),
    ("HELM_VIEW_ROLE", "{{ .Values.global.nodeViewClusterRole | quote }}"),
    ("HELM_VIEW_NAME", "{{ .Release.Namespace }}-{{ .Release.Name }}-node-view"),
    ("HELM_AUTH_ROLE", "{{ .Values.global.metricsAuthClusterRole | quote }}"),
    ("HELM_AUTH_NAME", "{{ .Release.Namespace }}-{{ .Release.Name }}-metrics-auth"),
    ("HELM_READER_NAME", "{{ .Release.Namespace }}-{{ .Release.Name }}-metrics-reader"),
    ("HELM_MODULES_ROLE", "{{ .Values.global.modulesClusterRole | quote }}"),
    ("HELM_MODULES_NAME", "{{ .Release.Namespace }}-{{ .Release.Name }}-modules"),
    ("HELM_MODULE_KEYS_ROLE", "{{ .Values.global.modulesSecretsClusterRole | quote }}"),
    ("HELM_MODULE_KEYS_NAME", "{{ .Release.Namespace }}-{{ .Release.Name }}-modules-secrets"),
    ("HELM_NAMESPACE", "{{ .Release.Namespace | quote }}"),
];

/// The configuration, with what two releases in a namespace may not share, and with metrics:
/// without the permission to review readers they are served only inside the pod, to `kubectl
/// port-forward`.
const CONFIGURATION: &str = "\
data:
  KEY: |
    {{- $lease := dict \"resourceName\" (printf \"%s-gantry\" .Release.Name) }}
    {{- $metrics := dict \"bindAddress\" \"127.0.0.1:PORT\" \"secureServing\" false }}
    {{- if .Values.global.metricsAuthClusterRole }}
    {{- $metrics = dict \"bindAddress\" \":PORT\" \"secureServing\" true }}
    {{- end }}
    {{- $decided := dict \"leaderElection\" $lease \"metrics\" $metrics }}
    {{- toYaml (mergeOverwrite (deepCopy .Values.operator.config) $decided) | nindent 4 }}
";

/// The value that enables reviews of readers of metrics.
const METRICS_AUTH: &str = ".Values.global.metricsAuthClusterRole";

const NOTES: &str = "The operator of release {{ .Release.Name }} is in namespace {{ \
.Release.Namespace }}.

    kubectl -n {{ .Release.Namespace }} logs deploy/{{ .Release.Name }}-gantry

It is ready when the caches of the enabled controllers have synced; with nothing enabled it is alive
and never ready. This chart installs no CustomResourceDefinitions and no admission policies: one \
administrator
installs those for all users of the cluster, see docs/chart.md.
{{ if .Values.global.metricsAuthClusterRole }}
Metrics are at https://{{ .Release.Name }}-gantry.{{ .Release.Namespace }}.svc:PORT/metrics, for \
users bound to the
ClusterRole {{ .Release.Namespace }}-{{ .Release.Name }}-metrics-reader{{ if \
.Values.operator.networkPolicy }}, from namespaces with the label metrics: enabled{{ end }}.
{{- else }}
Metrics are at http://127.0.0.1:PORT/metrics inside the pod:

    kubectl -n {{ .Release.Namespace }} port-forward deploy/{{ .Release.Name }}-gantry PORT
{{- end }}
";

/// Generates every file of the chart.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let deployment = deployed("Deployment")?;
    let entries = values::entries(&deployment);
    let template = |name: &str, object: &Value| -> anyhow::Result<Generated> {
        Ok(Generated {
            path: format!("charts/gantry/templates/{name}"),
            content: render_template(object)?,
        })
    };
    let file =
        |name: &str, content: String| Generated { path: format!("charts/gantry/{name}"), content };
    let template_if = |value: &str, name: &str, object: &Value| -> anyhow::Result<Generated> {
        let mut made = template(name, object)?;
        made.content = format!("{{{{- if {value} }}}}\n{}{{{{- end }}}}\n", made.content);
        Ok(made)
    };
    let port = METRICS_PORT.to_string();
    let mut configuration = template("configuration.yaml", &configuration()?)?;
    let keys = CONFIGURATION.replace("KEY", WRITTEN_KEY).replace("PORT", &port);
    configuration.content.push_str(&keys);
    let view = ".Values.global.nodeViewClusterRole";
    let schema = chart_values::schema("gantry", &entries);
    Ok(vec![
        file("Chart.yaml", yaml::write(&about())?),
        file("values.yaml", chart_values::values_yaml(&entries)?),
        file("values.schema.json", serde_json::to_string_pretty(&schema)? + "\n"),
        file("README.md", chart_values::readme(include_str!("chart/readme.txt"), &entries)?),
        file("templates/NOTES.txt", NOTES.replace("PORT", &port)),
        template("service-account.yaml", &named(deployed("ServiceAccount")?))?,
        template("role.yaml", &role()?)?,
        template("role-binding.yaml", &role_binding()?)?,
        configuration,
        template("settings-in-effect.yaml", &settings_in_effect()?)?,
        template_if(METRICS_AUTH, "service.yaml", &service()?)?,
        template("deployment.yaml", &in_release(deployment)?)?,
        template_if(".Values.operator.networkPolicy", "network-policy.yaml", &network_policy()?)?,
        template_if(view, "node-view.yaml", &bound_in_cluster("HELM_VIEW_NAME", "HELM_VIEW_ROLE"))?,
        template_if(
            METRICS_AUTH,
            "metrics-auth.yaml",
            &bound_in_cluster("HELM_AUTH_NAME", "HELM_AUTH_ROLE"),
        )?,
        template_if(METRICS_AUTH, "metrics-reader.yaml", &metrics_reader()?)?,
        template_if(
            ".Values.global.modulesClusterRole",
            "modules.yaml",
            &bound_in_cluster("HELM_MODULES_NAME", "HELM_MODULES_ROLE"),
        )?,
        template_if(
            ".Values.global.modulesSecretsClusterRole",
            "modules-secrets.yaml",
            &bound_in_cluster("HELM_MODULE_KEYS_NAME", "HELM_MODULE_KEYS_ROLE"),
        )?,
    ])
}

fn about() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "gantry",
        "description": "The operator of Gantry in one namespace; nothing that is shared in the \
                        cluster.",
        "type": "application",
        "version": VERSION.version,
        "appVersion": VERSION.version,
    })
}

/// Returns the one object of this kind that every deployment of the operator has.
fn deployed(kind: &str) -> anyhow::Result<Value> {
    // A namespace cannot have the cluster record authors: the chart uses only its own permissions.
    let belongs = |file: &str| !file.starts_with("optional/") && file != CHECK_USER_ACCESS_FILE;
    let files = manifests().into_iter().filter(|it| belongs(it.file));
    let mut found = files.flat_map(|it| it.objects).filter(|object| object["kind"] == kind);
    let object = found.next().with_context(|| format!("config/operator has no {kind}"))?;
    ensure!(found.next().is_none(), "config/operator has more than one {kind}");
    Ok(object)
}

/// Returns the object of this kind and name in `config/operator`.
fn deployed_as(kind: &str, name: &str) -> anyhow::Result<Value> {
    let mut all = manifests().into_iter().flat_map(|it| it.objects);
    all.find(|it| it["kind"] == kind && it["metadata"]["name"] == name)
        .with_context(|| format!("config/operator has no {kind} {name}"))
}

/// Puts the name of the release into an object, wherever its name occurs.
fn named(mut object: Value) -> Value {
    let labels = labelled(object["metadata"]["labels"].take());
    object["metadata"] = json!({ "name": "HELM_FULL", "labels": labels });
    object
}

/// Returns the labels of `config/operator` and those by which helm and users find a release.
fn labelled(mut labels: Value) -> Value {
    labels["app.kubernetes.io/instance"] = json!("HELM_INSTANCE");
    labels["app.kubernetes.io/managed-by"] = json!("HELM_SERVICE");
    labels
}

/// Returns the operator's permissions in its own namespace, without those for creating ConfigMaps:
/// here helm creates them, and the kubelet mounts one. The operator publishes its settings in the
/// other; events are about its lease.
fn role() -> anyhow::Result<Value> {
    let mut role = named(deployed_as("Role", "gantry-operator")?);
    let about = |rule: &Value, resource: &str| rule["resources"] == json!([resource]);
    let verbs = |rule: &Value, verbs: &[&str]| rule["verbs"] == json!(verbs);
    let rules = role["rules"].as_array_mut().context("the Role has no rules")?;
    rules.retain(|rule| !about(rule, "configmaps") || verbs(rule, &["patch"]));
    for rule in rules.iter_mut().filter(|it| about(it, "configmaps") && verbs(it, &["patch"])) {
        rule["resourceNames"] = json!([effective_config_map("HELM_FULL")]);
    }
    let everywhere = deployed_as("ClusterRole", "gantry-operator")?;
    let events = everywhere["rules"].as_array().into_iter().flatten();
    rules.extend(events.filter(|rule| about(rule, "events")).cloned());
    ensure!(rules.len() == 3, "the Role is not about settings, leases and events alone: {rules:?}");
    Ok(role)
}

fn role_binding() -> anyhow::Result<Value> {
    let mut binding = named(deployed_as("RoleBinding", "gantry-operator")?);
    binding["roleRef"]["name"] = json!("HELM_FULL");
    binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": "HELM_FULL" }]);
    binding["subjects"][0]["namespace"] = json!("HELM_NAMESPACE");
    Ok(binding)
}

/// Returns the ConfigMap in which the operator publishes its settings: here it is created by helm,
/// so that it is deleted with the release, and the operator needs no permission to create any.
fn settings_in_effect() -> anyhow::Result<Value> {
    let mut map = configuration()?;
    map["metadata"]["name"] = json!(effective_config_map("HELM_FULL"));
    Ok(map)
}

fn configuration() -> anyhow::Result<Value> {
    let mut map = named(deployed("ServiceAccount")?);
    map["kind"] = json!("ConfigMap");
    Ok(map)
}

fn service() -> anyhow::Result<Value> {
    let mut service = named(deployed("Service")?);
    select(&mut service["spec"]["selector"]);
    Ok(service)
}

/// Returns a selector that does not match the pods of another release.
fn select(labels: &mut Value) {
    labels["app.kubernetes.io/instance"] = json!("HELM_INSTANCE");
}

/// Returns the Deployment, with what the values decide.
fn in_release(deployment: Value) -> anyhow::Result<Value> {
    let mut deployment = named(deployment);
    let spec = &mut deployment["spec"];
    spec["replicas"] = json!("HELM_REPLICAS");
    select(&mut spec["selector"]["matchLabels"]);
    let pod = &mut spec["template"];
    let labels = labelled(pod["metadata"]["labels"].take());
    pod["metadata"] =
        json!({ "annotations": { "checksum/config": "HELM_CHECKSUM" }, "labels": labels });
    let pod = &mut pod["spec"];
    pod["serviceAccountName"] = json!("HELM_FULL");
    pod["imagePullSecrets"] = json!("HELM_SECRETS");
    pod["nodeSelector"] = json!("HELM_SELECTOR");
    pod["tolerations"] = json!("HELM_TOLERATIONS");
    pod["volumes"] = json!([{ "name": "config", "configMap": { "name": "HELM_FULL" } }]);
    let containers = pod["containers"].as_array_mut().context("the pod has no containers")?;
    let [container] = containers.as_mut_slice() else {
        anyhow::bail!("the pod has not one container");
    };
    container["image"] = json!("HELM_IMAGE");
    container["imagePullPolicy"] = json!("HELM_PULL");
    container["resources"] = json!("HELM_RESOURCES");
    // The ConfigMap exists before the operator, which need not search for it. The ConfigMap with
    // the published settings is named after it, and the address for metrics is in it.
    let args = container["args"].as_array_mut().context("the container has no arguments")?;
    let begins = |arg: &Value, with: &str| arg.as_str().is_some_and(|arg| arg.starts_with(with));
    let elsewhere = ["--metrics-bind-address=", "--check-user-access"];
    args.retain(|arg| !elsewhere.iter().any(|it| begins(arg, it)));
    for arg in args.iter_mut().filter(|arg| begins(arg, "--config=")) {
        *arg = json!("--config=HELM_FULL");
    }
    Ok(deployment)
}

fn network_policy() -> anyhow::Result<Value> {
    let mut policy = named(deployed("NetworkPolicy")?);
    select(&mut policy["spec"]["podSelector"]["matchLabels"]);
    Ok(policy)
}

/// Returns the role for reading the metrics of this release; the namespace is in the name as below.
fn metrics_reader() -> anyhow::Result<Value> {
    let mut role = named(deployed_as("ClusterRole", METRICS_READER)?);
    role["metadata"]["name"] = json!("HELM_READER_NAME");
    Ok(role)
}

/// Binds the account of the operator to a role that an administrator created or that every cluster
/// has. The namespace is in the name: releases of one name in two namespaces are distinct.
fn bound_in_cluster(name: &str, role: &str) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "gantry-operator", "app.kubernetes.io/part-of": "gantry",
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name, "labels": labelled(labels) },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [
            { "kind": "ServiceAccount", "name": "HELM_FULL", "namespace": "HELM_NAMESPACE" },
        ],
    })
}

/// Renders the object as a template: placeholders become helm expressions.
fn render_template(object: &Value) -> anyhow::Result<String> {
    let mut text = yaml::write(object)?;
    for (hole, filling) in PLACEHOLDERS {
        text = text.replace(hole, filling);
    }
    ensure!(!text.contains("HELM_"), "a hole in a template has no filling:\n{text}");
    Ok(text)
}

#[cfg(test)]
mod tests;
