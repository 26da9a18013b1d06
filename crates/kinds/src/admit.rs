//! What a stock server's admission adds to objects, plugin by plugin.
//!
//! What a plugin needs to know of other objects is an argument. Refusals carry the text that
//! follows `is forbidden: ` in a 403.

use serde_json::{Value, json};

use crate::policy::SYSTEM_CLASSES;
use crate::tree::{at, each, flag, int, is_empty, is_set, list, put, text};

/// Where a token is mounted; clients in pods look for it there.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Seconds a token holds. The odd number tells tokens that the server added from those that were
/// asked for, so that only the former are extended for old clients.
const TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// How long pods stay on a node that does not answer.
const STAY_SECONDS: i64 = 300;

/// Why admission refuses an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The account a pod wants to run as does not exist.
    #[error(
        "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
    )]
    NoAccount {
        /// The pod's namespace.
        namespace: String,
        /// The account's name.
        name: String,
    },
    /// The class a pod wants to belong to does not exist.
    #[error("no PriorityClass with name {name} was found")]
    NoPriorityClass {
        /// The class's name.
        name: String,
    },
    /// A pod brings a number of its own that is not that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority \
         admission controller computed {computed} from the given PriorityClass name"
    )]
    OtherPriority {
        /// What the pod says.
        given: i64,
        /// What its class says.
        computed: i64,
    },
    /// A pod brings a policy of its own that is not that of its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
         admission controller computed {computed} from the given PriorityClass name"
    )]
    OtherPreemption {
        /// What the pod says.
        given: String,
        /// What its class says.
        computed: String,
    },
}

/// The name of the account a pod runs as.
#[must_use]
pub fn service_account_name(pod: &Value) -> &str {
    match text(pod, "spec.serviceAccountName") {
        "" => "default",
        name => name,
    }
}

/// ServiceAccount: a pod runs as someone, and carries a token to prove it.
///
/// `account` is the object that [`service_account_name`] names, if it exists; `suffix` are five
/// letters that make the volume's name its own.
///
/// # Errors
///
/// When there is no such account.
pub fn service_account(
    pod: &mut Value,
    account: Option<&Value>,
    suffix: &str,
) -> Result<(), Refused> {
    // Mirror pods reflect what a node already runs.
    if at(pod, "metadata.annotations").get("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let name = service_account_name(pod).to_owned();
    let Some(account) = account else {
        let namespace = text(pod, "metadata.namespace").to_owned();
        return Err(Refused::NoAccount { namespace, name });
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
            if mounts.iter().any(|mount| text(mount, "mountPath") == TOKEN_PATH) {
                continue;
            }
            mounts.push(json!({ "name": name, "readOnly": true, "mountPath": TOKEN_PATH }));
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
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
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

/// Priority: a pod is worth what its class says.
///
/// `class` is the object that the pod names, or else the default one, if it exists. The system's
/// own classes need no object.
///
/// # Errors
///
/// When a class does not exist, or the pod says otherwise than its class.
pub fn priority(pod: &mut Value, class: Option<&Value>) -> Result<(), Refused> {
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
        (None, None) => return Err(Refused::NoPriorityClass { name }),
    };
    if let Some(given) = int(pod, "spec.priority").filter(|given| *given != computed) {
        return Err(Refused::OtherPriority { given, computed });
    }
    let given = text(pod, "spec.preemptionPolicy").to_owned();
    if !given.is_empty() && given != policy {
        return Err(Refused::OtherPreemption { given, computed: policy });
    }
    put(pod, "spec.priority", computed);
    put(pod, "spec.preemptionPolicy", policy);
    Ok(())
}

/// Priority, for a pod that exists: what the plug-in computed when the pod was made is kept if the
/// update leaves it out. A different value is left for validation to refuse.
pub fn keep_priority(pod: &mut Value, old: &Value) {
    for field in ["spec.priority", "spec.preemptionPolicy"] {
        if !is_set(pod, field) && is_set(old, field) {
            put(pod, field, at(old, field).clone());
        }
    }
}

/// Priority, for classes: why a class may not become the default one.
///
/// `classes` are all that are stored. Of several default classes, which only a race can make, the
/// one with the lowest value counts.
#[must_use]
pub fn second_default_class<'a>(
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

/// DefaultTolerationSeconds: a pod stays for a while on a node that does not answer. Also on
/// updates.
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
                "tolerationSeconds": STAY_SECONDS,
            }));
        }
    }
    if !tolerations.is_empty() {
        put(pod, "spec.tolerations", tolerations);
    }
}

/// TaintNodesByCondition: nobody is sent to a new node before it is ready.
pub fn taint_new_node(node: &mut Value) {
    let mut taints = list(node, "spec.taints").to_vec();
    let key = "node.kubernetes.io/not-ready";
    let has = |it: &Value| text(it, "key") == key && text(it, "effect") == "NoSchedule";
    if !taints.iter().any(has) {
        taints.push(json!({ "key": key, "effect": "NoSchedule" }));
        put(node, "spec.taints", taints);
    }
}

/// StorageObjectInUseProtection: new volumes and claims stay while they are used.
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

/// DefaultStorageClass: a new claim that names no class gets the default one.
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
