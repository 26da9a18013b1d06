//! The variables of a container, as far as its pod defines them.

use serde_json::Value;

/// Where programs are searched.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the variables that a container of a pod starts with: those every container has, then its
/// own.
///
/// Values that come from the pod itself are resolved; those from other objects and of resources are
/// left out, because they were not read here.
#[must_use]
pub fn variables(pod: &Value, container: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let hostname = hostname(pod);
    let mut all = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOSTNAME".to_owned(), hostname),
        ("HOME".to_owned(), "/root".to_owned()),
    ];
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let found = lists
        .iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
        .find(|known| known["name"] == container);
    for variable in found.and_then(|it| it["env"].as_array()).into_iter().flatten() {
        let value = match variable["valueFrom"].as_object() {
            None => Some(text(&variable["value"])),
            Some(source) => source
                .get("fieldRef")
                .and_then(|field| field["fieldPath"].as_str())
                .and_then(|path| field(pod, path)),
        };
        all.extend(value.map(|value| (text(&variable["name"]), value)));
    }
    all
}

/// Returns the host name of a pod, as seen from inside.
#[must_use]
pub fn hostname(pod: &Value) -> String {
    let named = pod["spec"]["hostname"].as_str().filter(|name| !name.is_empty());
    named.or_else(|| pod["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
}

/// Returns a field of the pod that variables may reference.
fn field(pod: &Value, path: &str) -> Option<String> {
    let (meta, status) = (&pod["metadata"], &pod["status"]);
    let keyed = |map: &str| {
        let key = path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(meta[map.strip_prefix("metadata.")?][key].as_str().unwrap_or_default().to_owned())
    };
    let value = match path {
        "metadata.name" => &meta["name"],
        "metadata.namespace" => &meta["namespace"],
        "metadata.uid" => &meta["uid"],
        "spec.nodeName" => &pod["spec"]["nodeName"],
        "spec.serviceAccountName" => &pod["spec"]["serviceAccountName"],
        "status.hostIP" => &status["hostIP"],
        "status.podIP" => &status["podIP"],
        _ => return keyed("metadata.labels").or_else(|| keyed("metadata.annotations")),
    };
    Some(value.as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn container_variables_come_from_the_pod() {
        let from = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "labels": { "app.x/y": "web" } },
            "spec": { "nodeName": "node-1", "containers": [
                { "name": "other", "env": [{ "name": "NOT", "value": "this" }] },
                { "name": "c", "env": [
                    { "name": "A", "value": "one" },
                    { "name": "EMPTY" },
                    { "name": "NODE", "valueFrom": from("spec.nodeName") },
                    { "name": "APP", "valueFrom": from("metadata.labels['app.x/y']") },
                    { "name": "ODD", "valueFrom": from("status.nothing") },
                    { "name": "SECRET", "valueFrom": { "secretKeyRef": { "name": "s" } } },
                    { "name": "HOME", "value": "/home" },
                ] },
            ] },
        });
        let all = variables(&pod, "c");
        let expected = [
            ("PATH", PATH),
            ("HOSTNAME", "p"),
            ("HOME", "/root"),
            ("A", "one"),
            ("EMPTY", ""),
            ("NODE", "node-1"),
            ("APP", "web"),
            ("HOME", "/home"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(all, expected);
        assert_eq!(variables(&pod, "none").len(), 3);
        assert_eq!(hostname(&json!({ "spec": { "hostname": "h" } })), "h");
    }
}
