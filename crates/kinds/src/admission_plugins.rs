//! Implements the built-in admission plugins of kube-apiserver, one function per plugin.
//!
//! The other objects that a plugin needs are arguments. Rejections carry the text that follows `is
//! forbidden: ` in a 403.

use serde_json::{Value, json};

use crate::policy::SYSTEM_CLASSES;
use crate::tree::{at, each, flag, int, is_empty, is_set, list, put, text};

/// Where a service account token is mounted; clients in pods look for it there.
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token in seconds. The odd number distinguishes tokens that the server added
/// from those that users requested, so that only the former are extended for old clients.
const TOKEN_EXPIRATION_SECONDS: i64 = 60 * 60 + 7;
/// How long pods tolerate a node that does not respond.
const DEFAULT_TOLERATION_SECONDS: i64 = 300;

/// Why admission rejects an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginRejection {
    /// The pod's service account does not exist.
    #[error(
        "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
    )]
    ServiceAccountNotFound {
        /// The pod's namespace.
        namespace: String,
        /// The account's name.
        name: String,
    },
    /// The pod's priority class does not exist.
    #[error("no PriorityClass with name {name} was found")]
    PriorityClassNotFound {
        /// The class's name.
        name: String,
    },
    /// The pod's priority differs from that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority \
         admission controller computed {computed} from the given PriorityClass name"
    )]
    PriorityMismatch {
        /// The priority of the pod.
        given: i64,
        /// The priority of its class.
        computed: i64,
    },
    /// The pod's preemption policy differs from that of its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
         admission controller computed {computed} from the given PriorityClass name"
    )]
    PreemptionPolicyMismatch {
        /// The policy of the pod.
        given: String,
        /// The policy of its class.
        computed: String,
    },
}

/// Returns the name of the service account a pod runs as.
#[must_use]
pub fn service_account_name(pod: &Value) -> &str {
    match text(pod, "spec.serviceAccountName") {
        "" => "default",
        name => name,
    }
}

/// Applies the ServiceAccount plugin: sets the account of a pod and mounts its token.
///
/// `account` is the object that [`service_account_name`] names, if it exists; `suffix` are five
/// letters that make the volume's name unique.
///
/// # Errors
///
/// When there is no such account.
pub fn service_account(
    pod: &mut Value,
    account: Option<&Value>,
    suffix: &str,
) -> Result<(), PluginRejection> {
    // Mirror pods reflect what a node already runs.
    if at(pod, "metadata.annotations").get("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let name = service_account_name(pod).to_owned();
    let Some(account) = account else {
        let namespace = text(pod, "metadata.namespace").to_owned();
        return Err(PluginRejection::ServiceAccountNotFound { namespace, name });
    };
    put(pod, "spec.serviceAccountName", name.as_str());
    put(pod, "spec.serviceAccount", name.as_str());
    if is_empty(pod, "spec.imagePullSecrets") && !is_empty(account, "imagePullSecrets") {
        put(pod, "spec.imagePullSecrets", at(account, "imagePullSecrets").clone());
    }
    let wanted = at(pod, "spec.automountServiceAccountToken").as_bool();
    let offered = at(account, "automountServiceAccountToken").as_bool();
    if wanted.or(offered).unwrap_or(true) {
        mount_token(pod, suffix);
    }
    Ok(())
}

fn mount_token(pod: &mut Value, suffix: &str) {
    let known = list(pod, "spec.volumes").iter().map(|volume| text(volume, "name"));
    let own = known.into_iter().find(|name| name.starts_with("kube-api-access-"));
    let had = own.map(str::to_owned);
    let name = had.clone().unwrap_or_else(|| format!("kube-api-access-{suffix}"));
    let mut used = false;
    for field in ["spec.initContainers", "spec.containers"] {
        for container in each(pod, field) {
            let mut mounts = list(container, "volumeMounts").to_vec();
            if mounts.iter().any(|mount| text(mount, "mountPath") == TOKEN_MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({ "name": name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH }));
            put(container, "volumeMounts", mounts);
            used = true;
        }
    }
    if used && had.is_none() {
        let mut volumes = list(pod, "spec.volumes").to_vec();
        volumes.push(token_volume(&name));
        put(pod, "spec.volumes", volumes);
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "sources": [
                {
                    "serviceAccountToken": {
                        "expirationSeconds": TOKEN_EXPIRATION_SECONDS, "path": "token",
                    },
                },
                { "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
            ],
            "defaultMode": 0o644,
        },
    })
}

/// Applies the Priority plugin: a pod gets the priority of its class.
///
/// `class` is the object that the pod names, or else the default one, if it exists. The system's
/// own classes need no object.
///
/// # Errors
///
/// When a class does not exist, or the pod's values differ from those of its class.
pub fn priority(pod: &mut Value, class: Option<&Value>) -> Result<(), PluginRejection> {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let system = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name);
    let (computed, policy) = match (class, system) {
        (Some(class), _) => {
            put(pod, "spec.priorityClassName", text(class, "metadata.name").to_owned());
            let policy = match text(class, "preemptionPolicy") {
                "" => "PreemptLowerPriority",
                policy => policy,
            };
            (int(class, "value").unwrap_or_default(), policy.to_owned())
        }
        (None, Some((_, value))) => (*value, "PreemptLowerPriority".to_owned()),
        (None, None) if name.is_empty() => (0, "PreemptLowerPriority".to_owned()),
        (None, None) => return Err(PluginRejection::PriorityClassNotFound { name }),
    };
    if let Some(given) = int(pod, "spec.priority").filter(|given| *given != computed) {
        return Err(PluginRejection::PriorityMismatch { given, computed });
    }
    let given = text(pod, "spec.preemptionPolicy").to_owned();
    if !given.is_empty() && given != policy {
        return Err(PluginRejection::PreemptionPolicyMismatch { given, computed: policy });
    }
    put(pod, "spec.priority", computed);
    put(pod, "spec.preemptionPolicy", policy);
    Ok(())
}

/// Applies the Priority plugin to an update of a pod: the values computed at creation are kept if
/// the update leaves them out. A different value is left for validation to reject.
pub fn preserve_priority(pod: &mut Value, old: &Value) {
    for field in ["spec.priority", "spec.preemptionPolicy"] {
        if !is_set(pod, field) && is_set(old, field) {
            put(pod, field, at(old, field).clone());
        }
    }
}

/// Applies the Priority plugin to classes: returns why a class may not become the default one.
///
/// `classes` are all stored classes. Of several default classes, which only a race can create, the
/// one with the lowest value counts.
#[must_use]
pub fn default_class_conflict<'a>(
    class: &Value,
    is_new: bool,
    classes: impl Iterator<Item = &'a Value>,
) -> Option<String> {
    if !flag(class, "globalDefault") {
        return None;
    }
    let defaults = classes.filter(|it| flag(it, "globalDefault"));
    let default = defaults.min_by_key(|it| int(it, "value").unwrap_or_default())?;
    let name = text(default, "metadata.name");
    let other = is_new || name != text(class, "metadata.name");
    other.then(|| {
        format!("PriorityClass {name} is already marked as default. Only one default can exist")
    })
}

/// Applies the DefaultTolerationSeconds plugin: a pod tolerates a node that does not respond for a
/// while. Also on updates.
pub fn default_tolerations(pod: &mut Value) {
    let mut tolerations = list(pod, "spec.tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |it: &Value| {
            matches!(
                text(it, "key"),
                "" | "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"
            ) && (text(it, "key").is_empty() || text(it, "key") == key)
                && matches!(text(it, "effect"), "" | "NoExecute")
        };
        if !list(pod, "spec.tolerations").iter().any(covers) {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": DEFAULT_TOLERATION_SECONDS,
            }));
        }
    }
    if !tolerations.is_empty() {
        put(pod, "spec.tolerations", tolerations);
    }
}

/// Applies the TaintNodesByCondition plugin: no pod is scheduled to a new node before it is ready.
pub fn taint_new_node(node: &mut Value) {
    let mut taints = list(node, "spec.taints").to_vec();
    let key = "node.kubernetes.io/not-ready";
    let has = |it: &Value| text(it, "key") == key && text(it, "effect") == "NoSchedule";
    if !taints.iter().any(has) {
        taints.push(json!({ "key": key, "effect": "NoSchedule" }));
        put(node, "spec.taints", taints);
    }
}

/// Applies the StorageObjectInUseProtection plugin: new volumes and claims are not removed while
/// they are used.
pub fn protect_storage(object: &mut Value, resource: &str) {
    let finalizer = match resource {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        _ => return,
    };
    let mut finalizers = list(object, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|it| it == finalizer) {
        finalizers.push(json!(finalizer));
        put(object, "metadata.finalizers", finalizers);
    }
}

/// Applies the DefaultStorageClass plugin: a new claim that names no class gets the default one.
///
/// Of several default classes the youngest wins, and of equally old ones the first by name.
pub fn default_storage_class<'a>(claim: &mut Value, classes: impl Iterator<Item = &'a Value>) {
    let annotation = "volume.beta.kubernetes.io/storage-class";
    let asked = at(claim, "metadata.annotations").get(annotation).is_some();
    if asked || is_set(claim, "spec.storageClassName") {
        return;
    }
    let marks = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let is_default = |class: &&Value| {
        let annotations = at(class, "metadata.annotations");
        marks.iter().any(|mark| annotations.get(mark).is_some_and(|it| it == "true"))
    };
    let mut defaults: Vec<&Value> = classes.filter(is_default).collect();
    defaults.sort_by(|a, b| {
        let age = |it: &Value| text(it, "metadata.creationTimestamp").to_owned();
        age(b).cmp(&age(a)).then_with(|| text(a, "metadata.name").cmp(text(b, "metadata.name")))
    });
    if let Some(class) = defaults.first() {
        put(claim, "spec.storageClassName", text(class, "metadata.name").to_owned());
    }
}

#[cfg(test)]
mod tests;
