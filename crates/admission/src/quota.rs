//! Quotas: how much objects use, and whether enough is left.

use serde_json::Value;

use crate::request::Operation;
use crate::resources::{ResourceList, containers, pod_resources, quota_usage, resource_list};
use gantry_quantity::Quantity;

/// What is counted: a resource of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaResource<'a> {
    /// Its group.
    pub group: &'a str,
    /// Its name in paths.
    pub resource: &'a str,
}

/// Kinds of the core group that quotas also know by their plain names.
const LEGACY_COUNT_NAMES: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "pods",
];

impl QuotaResource<'_> {
    /// The name under which its objects are counted.
    #[must_use]
    pub fn count_name(self) -> String {
        let Self { group, resource } = self;
        if group.is_empty() {
            format!("count/{resource}")
        } else {
            format!("count/{resource}.{group}")
        }
    }

    fn is(self, plain: &str) -> bool {
        self.group.is_empty() && self.resource == plain
    }

    /// Whether a quota's name is about this resource.
    #[must_use]
    pub fn covers(self, name: &str) -> bool {
        let plain =
            self.group.is_empty() && name == self.resource && LEGACY_COUNT_NAMES.contains(&name);
        if plain || name == self.count_name() {
            return true;
        }
        if self.is("pods") {
            let plain = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits."));
            let plain = plain.unwrap_or(name);
            return matches!(plain, "cpu" | "memory" | "ephemeral-storage")
                || plain.starts_with("hugepages-")
                || (name.starts_with("requests.")
                    && plain.contains('/')
                    && !plain.contains("kubernetes.io/"));
        }
        if self.is("services") {
            return matches!(name, "services.nodeports" | "services.loadbalancers");
        }
        if self.is("persistentvolumeclaims") {
            return name == "requests.storage" || name.contains(CLASS);
        }
        false
    }

    /// Whether a write can change what is used.
    #[must_use]
    pub fn affects_usage(
        self,
        operation: Operation,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> bool {
        let ignored =
            (self.group.is_empty() || self.group == "events.k8s.io") && self.resource == "events";
        match (operation, subresource) {
            _ if ignored => false,
            (Operation::Create, "") => true,
            (Operation::Update, "") if self.is("pods") => {
                old.is_some_and(|old| is_terminating(old) != is_terminating(object))
            }
            (Operation::Update, "resize") => self.is("pods"),
            (Operation::Update, "") => self.is("services") || self.is("persistentvolumeclaims"),
            _ => false,
        }
    }

    /// What an object uses up.
    #[must_use]
    pub fn usage(self, object: &Value) -> ResourceList {
        let one = Quantity::from_count(1);
        let mut usage = ResourceList::from([(self.count_name(), one)]);
        if self.is("pods") {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            if !matches!(phase, "Succeeded" | "Failed") {
                usage.extend(quota_usage(
                    &pod_resources(object, "requests"),
                    &pod_resources(object, "limits"),
                ));
            }
            return usage;
        }
        if self.group.is_empty() && LEGACY_COUNT_NAMES.contains(&self.resource) {
            usage.insert(self.resource.to_owned(), one);
        }
        if self.is("services") {
            let ports = object["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let spec = &object["spec"];
            let (nodes, balancers) = match spec["type"].as_str() {
                Some("NodePort") => (ports.len(), 0),
                Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
                    let set = |port: &&Value| port["nodePort"].as_i64().unwrap_or(0) != 0;
                    (ports.iter().filter(set).count(), 1)
                }
                Some("LoadBalancer") => (ports.len(), 1),
                _ => (0, 0),
            };
            usage.insert("services.nodeports".to_owned(), Quantity::from_count(nodes));
            usage.insert("services.loadbalancers".to_owned(), Quantity::from_count(balancers));
        }
        if self.is("persistentvolumeclaims") {
            let storage = Quantity::from_json(&object["spec"]["resources"]["requests"]["storage"]);
            let class = object["spec"]["storageClassName"].as_str().filter(|it| !it.is_empty());
            if let Some(class) = class {
                usage.insert(format!("{class}{CLASS}persistentvolumeclaims"), one);
            }
            if let Some(storage) = storage {
                usage.insert("requests.storage".to_owned(), storage);
                if let Some(class) = class {
                    usage.insert(format!("{class}{CLASS}requests.storage"), storage);
                }
            }
        }
        usage
    }

    /// Whether a quota is about an object at all: it names something that is used, and its scopes
    /// include the object.
    #[must_use]
    pub fn matches(self, quota: &Value, object: &Value) -> bool {
        let hard = resource_list(&quota["status"]["hard"]);
        hard.keys().any(|name| self.covers(name)) && self.in_scope(quota, object)
    }

    /// Whether the scopes of a quota include an object. Only pods have scopes.
    #[must_use]
    pub fn in_scope(self, quota: &Value, object: &Value) -> bool {
        let spec = &quota["spec"];
        let scopes = spec["scopes"].as_array().into_iter().flatten();
        let plain = scopes.map(|it| (it.as_str().unwrap_or_default(), "Exists", Vec::new()));
        let list = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
        let selected = list.map(|it| {
            let values = it["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let word = |name: &str| it[name].as_str().unwrap_or_default();
            (word("scopeName"), word("operator"), values.collect::<Vec<_>>())
        });
        plain.chain(selected).all(|(scope, operator, values)| {
            self.is("pods") && pod_in_scope(object, scope, operator, &values)
        })
    }
}

const CLASS: &str = ".storageclass.storage.k8s.io/";

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|it| it >= 0)
}

fn pod_in_scope(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let best_effort = || {
        let asks = |container: &Value| {
            ["requests", "limits"].iter().any(|field| {
                let asked = resource_list(&container["resources"][*field]);
                asked
                    .iter()
                    .any(|(name, it)| matches!(name.as_str(), "cpu" | "memory") && !it.is_zero())
            })
        };
        !containers(pod).any(asks)
    };
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => {
            let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
            match operator {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => {
            let affinity = &pod["spec"]["affinity"];
            ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
                let kind = &affinity[*kind];
                let required = kind["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
                let preferred = kind["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
                let terms = required.into_iter().flatten();
                let weighted = preferred.into_iter().flatten().map(|it| &it["podAffinityTerm"]);
                terms.chain(weighted).any(|term| {
                    term["namespaces"].as_array().is_some_and(|it| !it.is_empty())
                        || !term["namespaceSelector"].is_null()
                })
            })
        }
        _ => false,
    }
}

/// What a write does to a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaCharge {
    /// Nothing.
    Unchanged,
    /// It uses this much more; the quota then has this much used in all.
    Increase {
        /// What it adds.
        added: ResourceList,
        /// All that is used then.
        used: ResourceList,
    },
}

/// Whether a quota has enough left for a write.
///
/// # Errors
/// Why it is refused, in the words of a server.
pub fn charge(
    counted: QuotaResource<'_>,
    quota: &Value,
    object: &Value,
    old: Option<&Value>,
) -> Result<QuotaCharge, String> {
    if !counted.matches(quota, object) {
        return Ok(QuotaCharge::Unchanged);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    let (hard, used) =
        (resource_list(&quota["status"]["hard"]), resource_list(&quota["status"]["used"]));
    let restricted: Vec<&String> = hard.keys().filter(|it| counted.covers(it)).collect();
    if counted.is("pods") {
        let missing = unspecified(&restricted, object);
        if !missing.is_empty() {
            return Err(format!("failed quota: {name}: must specify {missing}"));
        }
    }
    if restricted.iter().any(|it| !used.contains_key(*it)) {
        let names: Vec<&str> = restricted.iter().map(|it| it.as_str()).collect();
        return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
    }
    let mut added = counted.usage(object);
    if let Some(old) = old.filter(|old| counted.matches(quota, old)) {
        let before = counted.usage(old);
        for (name, amount) in &mut added {
            *amount = amount.minus(before.get(name).copied().unwrap_or_default());
        }
    }
    added.retain(|name, amount| hard.contains_key(name) && !amount.is_zero());
    if added.is_empty() {
        return Ok(QuotaCharge::Unchanged);
    }
    let mut after = used.clone();
    let mut exceeded = Vec::new();
    for (name, amount) in &added {
        let sum = used.get(name).copied().unwrap_or_default().plus(*amount);
        if hard.get(name).is_some_and(|most| sum > *most) {
            exceeded.push(name);
        }
        after.insert(name.clone(), sum);
    }
    if exceeded.is_empty() {
        return Ok(QuotaCharge::Increase { added, used: after });
    }
    let shown = |amounts: &ResourceList| {
        let words = exceeded.iter().filter_map(|name| Some((*name, amounts.get(*name)?)));
        words.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(&added),
        shown(&used),
        shown(&hard)
    ))
}

/// The resources that containers must specify when a quota limits them: `requests.cpu for: a,b; …`.
fn unspecified(restricted: &[&String], pod: &Value) -> String {
    if !pod["spec"]["resources"].is_null() {
        return String::new();
    }
    let bound = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let mut said = Vec::new();
    for name in bound.iter().filter(|it| restricted.iter().any(|known| known == *it)) {
        let mut silent: Vec<&str> = containers(pod)
            .filter(|container| {
                let requests = resource_list(&container["resources"]["requests"]);
                let limits = resource_list(&container["resources"]["limits"]);
                !quota_usage(&requests, &limits).contains_key(*name)
            })
            .filter_map(|container| container["name"].as_str())
            .collect();
        silent.sort_unstable();
        if !silent.is_empty() {
            said.push(format!("{name} for: {}", silent.join(",")));
        }
    }
    said.join("; ")
}

/// What is used of all that a quota limits, given the usage of every object it is about.
#[must_use]
pub fn total_usage<'a>(
    hard: &ResourceList,
    usages: impl IntoIterator<Item = &'a ResourceList>,
) -> ResourceList {
    let mut used: ResourceList =
        hard.keys().map(|name| (name.clone(), Quantity::default())).collect();
    for usage in usages {
        for (name, sum) in &mut used {
            if let Some(amount) = usage.get(name) {
                *sum = sum.plus(*amount);
            }
        }
    }
    used
}

#[cfg(test)]
mod tests;
