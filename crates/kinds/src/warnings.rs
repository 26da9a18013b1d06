//! Returns warnings about valid objects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field_errors::Path;
use crate::names;
use crate::tree::{at, int, list, text};

/// Warns about names that are not DNS labels: names become host names.
fn name(object: &Value, old: Option<&Value>, used_in: &str) -> Option<String> {
    let complaints = names::label(text(object, "metadata.name"));
    if old.is_some() || complaints.is_empty() {
        return None;
    }
    Some(format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS \
         label is recommended: [{}]",
        complaints.join(" ")
    ))
}

/// Returns the warnings of a pod.
pub(crate) fn pod(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut all: Vec<String> = name(object, old, "the Pod's hostname").into_iter().collect();
    spec(at(object, "spec"), &Path::new("spec"), &mut all);
    all
}

/// Returns the warnings of a workload with its template in `spec.template`.
pub(crate) fn workload(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut all: Vec<String> = name(object, old, "Pod names and hostnames").into_iter().collect();
    let path = Path::new("spec").child("template").child("spec");
    spec(at(object, "spec.template.spec"), &path, &mut all);
    all
}

/// Returns the warnings of a workload whose name does not become a host name of its pods.
pub(crate) fn template(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut all = Vec::new();
    let path = Path::new("spec").child("template").child("spec");
    spec(at(object, "spec.template.spec"), &path, &mut all);
    all
}

/// Returns the warnings of a CronJob.
pub(crate) fn cron_job(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut all: Vec<String> = name(object, old, "Pod names and hostnames").into_iter().collect();
    let path = Path::new("spec").child("jobTemplate").child("spec").child("template").child("spec");
    spec(at(object, "spec.jobTemplate.spec.template.spec"), &path, &mut all);
    all
}

/// Returns the warnings of a service.
pub(crate) fn service(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let ignored = text(object, "spec.clusterIP") == "None"
        && text(object, "spec.sessionAffinity") == "ClientIP";
    let words = "spec.SessionAffinity is ignored for headless services";
    ignored.then(|| words.to_owned()).into_iter().collect()
}

/// Returns the warnings of an ingress.
pub(crate) fn ingress(object: &Value, old: Option<&Value>) -> Vec<String> {
    let key = "kubernetes.io/ingress.class";
    let outdated = old.is_none() && at(object, "metadata.annotations").get(key).is_some();
    let words =
        format!("annotation \"{key}\" is deprecated, please use 'spec.ingressClassName' instead");
    outdated.then_some(words).into_iter().collect()
}

fn spec(spec: &Value, path: &Path, all: &mut Vec<String>) {
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let field = path.child("terminationGracePeriodSeconds");
        all.push(format!(
            "{field}: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    let mut addresses = BTreeSet::new();
    for (place, alias) in list(spec, "hostAliases").iter().enumerate() {
        let ip = text(alias, "ip");
        if !addresses.insert(ip) {
            let field = path.child("hostAliases").index(place).child("ip");
            all.push(format!("{field}: duplicate ip \"{ip}\""));
        }
    }
    for (place, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            let field = path.child("imagePullSecrets").index(place).child("name");
            all.push(format!("{field}: invalid empty name \"\""));
        }
    }
    for kind in ["containers", "initContainers"] {
        for (place, container) in list(spec, kind).iter().enumerate() {
            let path = path.child(kind).index(place);
            let mut seen = BTreeSet::new();
            for (place, entry) in list(container, "env").iter().enumerate() {
                let name = text(entry, "name");
                if !seen.insert(name) {
                    let field = path.child("env").index(place);
                    all.push(format!(
                        "{field}: hides previous definition of \"{name}\", which may be dropped \
                         when using apply"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn surprising_values_give_warnings() {
        let object =
            |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
        let env = json!([{ "name": "a" }, { "name": "a" }]);
        let table = [
            (object("a", json!({})), None),
            (
                object("a.b", json!({})),
                Some(
                    "metadata.name: this is used in the Pod's hostname, which can result in \
                     surprising behavior; a DNS label is recommended: [must not contain dots]",
                ),
            ),
            (
                object("a", json!({ "terminationGracePeriodSeconds": -1 })),
                Some(
                    "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid \
                     and will be treated as 1",
                ),
            ),
            (
                object("a", json!({ "containers": [{ "env": env }] })),
                Some(
                    "spec.containers[0].env[1]: hides previous definition of \"a\", which may be \
                     dropped when using apply",
                ),
            ),
            (
                object("a", json!({ "imagePullSecrets": [{}] })),
                Some("spec.imagePullSecrets[0].name: invalid empty name \"\""),
            ),
        ];
        for (object, expected) in table {
            let said = pod(&object, None);
            assert_eq!(said, expected.into_iter().collect::<Vec<_>>());
        }
        let named = object("a.b", json!({}));
        assert_eq!(pod(&named, Some(&named)), [""; 0], "a name is a matter of creation");
        let headless = object("a", json!({ "clusterIP": "None", "sessionAffinity": "ClientIP" }));
        assert_eq!(service(&headless, None).len(), 1);
    }
}
