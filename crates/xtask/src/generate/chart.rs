//! `charts/gantry`: what deploys the operator in one namespace, for helm.
//!
//! The templates are the objects of `config/operator`, with what a release decides put in their place,
//! so that the two cannot drift apart. Whatever is cluster-scoped or shared stays out: definitions,
//! policies and roles have rules of their own. One binding is the exception, for reading nodes, and only
//! whoever asks for it gets it.

mod values;

use anyhow::{Context as _, ensure};
use gantry::config::source::WRITTEN_KEY;
use gantry::manifests::{CHECK_USER_ACCESS, manifests};
use gantry::version::VERSION;
use gantry_api::yaml;
use serde_json::{Value, json};

use super::Generated;
use crate::tree::Tree;

/// What stands in an object for what a release decides, and what helm puts there. Names come from the
/// release alone: at most 53 letters, so that with what is added they fit into every name.
const HOLES: &[(&str, &str)] = &[
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
    ("HELM_NAMESPACE", "{{ .Release.Namespace | quote }}"),
];

/// The configuration, with the one thing in it that two releases in a namespace may not share.
const CONFIGURATION: &str = "\
data:
  KEY: |
    {{- $lease := dict \"leaderElection\" (dict \"resourceName\" (printf \"%s-gantry\" .Release.Name)) }}
    {{- toYaml (mergeOverwrite (deepCopy .Values.operator.config) $lease) | nindent 4 }}
";

const NOTES: &str = "\
The operator of release {{ .Release.Name }} is in namespace {{ .Release.Namespace }}.

    kubectl -n {{ .Release.Namespace }} logs deploy/{{ .Release.Name }}-gantry

It is ready when a controller that is switched on has seen the cluster; with nothing switched on it is alive
and never ready. This chart makes no CustomResourceDefinitions, no admission policies and no ClusterRoles: one
administrator installs those for everybody, see docs/chart.md.
";

/// Makes every file of the chart.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let deployment = deployed("Deployment")?;
    let entries = values::entries(&deployment);
    let template = |name: &str, object: &Value| -> anyhow::Result<Generated> {
        Ok(Generated { path: format!("charts/gantry/templates/{name}"), content: filled(object)? })
    };
    let file =
        |name: &str, content: String| Generated { path: format!("charts/gantry/{name}"), content };
    let mut node_view = template("node-view.yaml", &node_view())?;
    node_view.content = format!(
        "{{{{- if .Values.global.nodeViewClusterRole }}}}\n{}{{{{- end }}}}\n",
        node_view.content
    );
    let mut configuration = template("configuration.yaml", &configuration()?)?;
    configuration.content.push_str(&CONFIGURATION.replace("KEY", WRITTEN_KEY));
    Ok(vec![
        file("Chart.yaml", yaml::write(&about())?),
        file("values.yaml", values::yaml(&entries)?),
        file("values.schema.json", serde_json::to_string_pretty(&values::schema(&entries))? + "\n"),
        file("README.md", values::readme(&entries)?),
        file("templates/NOTES.txt", NOTES.to_owned()),
        template("service-account.yaml", &named(deployed("ServiceAccount")?))?,
        template("role.yaml", &role()?)?,
        template("role-binding.yaml", &role_binding()?)?,
        configuration,
        template("service.yaml", &service()?)?,
        template("deployment.yaml", &in_release(deployment)?)?,
        node_view,
    ])
}

fn about() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "gantry",
        "description": "The operator of Gantry in one namespace; nothing that is shared in the cluster.",
        "type": "application",
        "version": VERSION.version,
        "appVersion": VERSION.version,
    })
}

/// The one object of this kind that every deployment of the operator has.
fn deployed(kind: &str) -> anyhow::Result<Value> {
    // A namespace cannot have the cluster record authors: the chart keeps to its own rights.
    let belongs = |file: &str| !file.starts_with("optional/") && file != CHECK_USER_ACCESS;
    let files = manifests().into_iter().filter(|it| belongs(it.file));
    let mut found = files.flat_map(|it| it.objects).filter(|object| object["kind"] == kind);
    let object = found.next().with_context(|| format!("config/operator has no {kind}"))?;
    ensure!(found.next().is_none(), "config/operator has more than one {kind}");
    Ok(object)
}

/// The object under the name of the release, wherever that is.
fn named(mut object: Value) -> Value {
    let labels = labelled(object["metadata"]["labels"].take());
    object["metadata"] = json!({ "name": "HELM_FULL", "labels": labels });
    object
}

/// The labels of `config/operator` and those by which helm and people find a release.
fn labelled(mut labels: Value) -> Value {
    labels["app.kubernetes.io/instance"] = json!("HELM_INSTANCE");
    labels["app.kubernetes.io/managed-by"] = json!("HELM_SERVICE");
    labels
}

/// What the operator does in its own namespace, without what its ConfigMap needs elsewhere: here helm
/// makes that, and the kubelet mounts it. Events are about its lease.
fn role() -> anyhow::Result<Value> {
    let mut role = named(deployed("Role")?);
    let about = |rule: &Value, resource: &str| rule["resources"] == json!([resource]);
    let rules = role["rules"].as_array_mut().context("the Role has no rules")?;
    rules.retain(|rule| !about(rule, "configmaps"));
    let everywhere = deployed_cluster_role()?;
    let events = everywhere["rules"].as_array().into_iter().flatten();
    rules.extend(events.filter(|rule| about(rule, "events")).cloned());
    ensure!(rules.len() == 2, "the Role is not about leases and events alone: {rules:?}");
    Ok(role)
}

fn deployed_cluster_role() -> anyhow::Result<Value> {
    let all = manifests().into_iter().flat_map(|it| it.objects);
    let mut found = all.filter(|it| it["kind"] == "ClusterRole");
    found
        .find(|it| it["metadata"]["name"] == "gantry-operator")
        .context("config/operator has no ClusterRole gantry-operator")
}

fn role_binding() -> anyhow::Result<Value> {
    let mut binding = named(deployed("RoleBinding")?);
    binding["roleRef"]["name"] = json!("HELM_FULL");
    binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": "HELM_FULL" }]);
    binding["subjects"][0]["namespace"] = json!("HELM_NAMESPACE");
    Ok(binding)
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

/// A selector that does not find the pods of another release.
fn select(labels: &mut Value) {
    labels["app.kubernetes.io/instance"] = json!("HELM_INSTANCE");
}

/// The Deployment, with what the values decide.
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
    // The ConfigMap is there before the operator, which need not look for it.
    let args = container["args"].as_array_mut().context("the container has no arguments")?;
    let elsewhere = |arg: &str| arg.starts_with("--config=") || arg == "--check-user-access";
    args.retain(|arg| !arg.as_str().is_some_and(elsewhere));
    Ok(deployment)
}

/// Lets the operator read nodes, through a role that an administrator made. The namespace is in the
/// name: releases of one name in two namespaces are two.
fn node_view() -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "gantry-operator", "app.kubernetes.io/part-of": "gantry",
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "HELM_VIEW_NAME", "labels": labelled(labels) },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "HELM_VIEW_ROLE",
        },
        "subjects": [
            { "kind": "ServiceAccount", "name": "HELM_FULL", "namespace": "HELM_NAMESPACE" },
        ],
    })
}

/// The object as a template: what stands for something is what helm puts there.
fn filled(object: &Value) -> anyhow::Result<String> {
    let mut text = yaml::write(object)?;
    for (hole, filling) in HOLES {
        text = text.replace(hole, filling);
    }
    ensure!(!text.contains("HELM_"), "a hole in a template has no filling:\n{text}");
    Ok(text)
}

#[cfg(test)]
mod tests;
