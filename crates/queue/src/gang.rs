//! The pods of an AppWrapper one by one: how many there are of each kind, what each requests, where
//! it may be, and which devices it claims.
//!
//! Deciding whether all of them can be placed needs more than the sum of their requests. Declared
//! pods count as declared, all others as the scheduler will count them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gantry_api::devices::DEVICE_ANNOTATIONS;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::amounts::Amounts;
use crate::app_wrapper::{AppWrapper, Item};
use crate::demand::effective_request;
use crate::pod_sets;
use gantry_pods::fit;
use gantry_pods::view::{Affinity, Node, PodSpec, Toleration};

/// The pods of an AppWrapper, with identical pods grouped together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gang {
    /// The groups in the order of the items; none of them is empty.
    pub pods: Vec<IdenticalPods>,
}

/// A group of identical pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdenticalPods {
    /// How many pods there are, at least one.
    pub count: usize,
    /// What each of them requests.
    pub requests: Amounts,
    /// The nodes they may be on.
    pub node_constraints: NodeConstraints,
    /// The devices they claim.
    pub claims: Option<Arc<PodClaimContext>>,
}

/// What a pod says about devices, and the context needed to interpret it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodClaimContext {
    /// The namespace.
    pub namespace: String,
    /// The fields of the pod that are about devices, as text.
    pub pod: String,
    /// Objects of the same AppWrapper that the pod may refer to and that do not exist before the
    /// AppWrapper is admitted, as texts.
    pub sibling_objects: Vec<String>,
}

impl Gang {
    /// Returns the pods of an AppWrapper.
    #[must_use]
    pub fn of(wrapper: &AppWrapper) -> Self {
        let objects: Vec<Option<Value>> = wrapper.items().iter().map(Item::object).collect();
        let own = objects.iter().flatten().filter(|it| {
            let version = it["apiVersion"].as_str().unwrap_or_default();
            version.split_once('/').is_some_and(|(group, _)| group == "devmgmtproto.k8s.io")
        });
        let own: Vec<String> = own.map(Value::to_string).collect();
        let mut gang = Self::default();
        for (item, object) in wrapper.items().iter().zip(&objects) {
            let mut squads = pods_of_item(item, object.as_ref());
            for squad in &mut squads {
                if let Some(claims) = &mut squad.claims {
                    let namespace = wrapper.metadata.namespace.clone();
                    let (pod, own) = (claims.pod.clone(), own.clone());
                    *claims = Arc::new(PodClaimContext { namespace, pod, sibling_objects: own });
                }
            }
            gang.pods.extend(squads);
        }
        gang
    }

    /// Returns how many pods there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pods.iter().fold(0, |sum, it| sum.saturating_add(it.count))
    }

    /// Returns the pods that are still to be created when pods with these requests exist. Each
    /// existing pod stands for one with the same requests; one that matches none of them, for one
    /// of the first that are left.
    #[must_use]
    pub fn remaining<'a>(&self, pods: impl Iterator<Item = &'a Amounts>) -> Self {
        let mut rest = self.clone();
        for amounts in pods {
            let same = rest.pods.iter().position(|it| it.requests == *amounts);
            let Some(at) = same.or_else(|| (!rest.pods.is_empty()).then_some(0)) else { break };
            rest.pods[at].count -= 1;
            if rest.pods[at].count == 0 {
                rest.pods.remove(at);
            }
        }
        rest
    }
}

/// Returns the pods of one item. Declared pods belong to the template at the same position, if
/// there are as many templates as declarations, or to the only one; otherwise any template may
/// belong to any of them, and what they claim is unknown.
fn pods_of_item(item: &Item, object: Option<&Value>) -> Vec<IdenticalPods> {
    let nothing = Value::Null;
    let sets = object.map(pod_sets::find).unwrap_or_default();
    let templates: Vec<&Value> = sets.iter().filter_map(|set| object?.pointer(&set.path)).collect();
    let squad =
        |count: i64, requests: Amounts, of: &[&Value], claims: Option<Arc<PodClaimContext>>| {
            let count = usize::try_from(count).unwrap_or_default();
            (count > 0).then(|| IdenticalPods {
                count,
                requests,
                node_constraints: NodeConstraints::of(of),
                claims,
            })
        };
    if item.replicas.is_empty() {
        let sets = sets.iter().map(|set| {
            let template = object.and_then(|it| it.pointer(&set.path)).unwrap_or(&nothing);
            let requests = effective_request(&template["spec"]);
            squad(set.replicas, requests, &[template], device_claims(template))
        });
        return sets.flatten().collect();
    }
    let declared = item.replicas.iter().zip(&item.declared).enumerate();
    let pods = declared.map(|(at, (count, requests))| {
        let own = match templates.as_slice() {
            [only] => Some(*only),
            several if several.len() == item.replicas.len() => Some(several[at]),
            _ => None,
        };
        match own {
            Some(own) => squad(*count, requests.clone(), &[own], device_claims(own)),
            None => squad(*count, requests.clone(), &templates, None),
        }
    });
    pods.flatten().collect()
}

/// Whether pods of an object claim devices.
pub(crate) fn claims_devices(object: &Value) -> bool {
    let templates = pod_sets::find(object).into_iter();
    templates.filter_map(|set| object.pointer(&set.path)).any(template_claims_devices)
}

fn template_claims_devices(template: &Value) -> bool {
    let annotations = &template["metadata"]["annotations"];
    DEVICE_ANNOTATIONS.iter().any(|name| !annotations[*name].is_null())
}

/// Returns what pods of a template say about devices, and nothing else of them.
fn device_claims(template: &Value) -> Option<Arc<PodClaimContext>> {
    if !template_claims_devices(template) {
        return None;
    }
    let annotations = &template["metadata"]["annotations"];
    let annotations: Map<String, Value> = DEVICE_ANNOTATIONS
        .iter()
        .filter(|name| !annotations[**name].is_null())
        .map(|name| ((*name).to_owned(), annotations[*name].clone()))
        .collect();
    let names = |list: &str| -> Value {
        let list = template["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|it| json!({"name": it["name"]})).collect()
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": annotations},
        "spec": {"containers": names("containers"), "initContainers": names("initContainers")},
    });
    let (namespace, own) = (String::new(), Vec::new());
    Some(Arc::new(PodClaimContext { namespace, pod: pod.to_string(), sibling_objects: own }))
}

/// The nodes that pods may be on: those that the pods of at least one of some templates may be on.
#[derive(Clone, Debug, Default)]
pub struct NodeConstraints {
    templates: Vec<TemplateNodeConstraints>,
    /// The same as one string, for comparison.
    comparison_key: String,
}

#[derive(Clone, Debug)]
struct TemplateNodeConstraints {
    tolerations: Vec<Toleration>,
    labels: std::collections::BTreeMap<String, String>,
    affinity: Affinity,
}

impl NodeConstraints {
    fn of(templates: &[&Value]) -> Self {
        let mut constraints = Self::default();
        for template in templates {
            // A template that cannot be parsed creates no pods: the API server will reject it.
            let Ok(spec) = PodSpec::deserialize(&template["spec"]) else { continue };
            let PodSpec { tolerations, node_selector: labels, affinity, .. } = spec;
            let word = format!("{tolerations:?}{labels:?}{:?}", affinity.node_affinity.required);
            if !constraints.comparison_key.contains(&word) {
                constraints.comparison_key.push_str(&word);
                constraints.templates.push(TemplateNodeConstraints {
                    tolerations,
                    labels,
                    affinity,
                });
            }
        }
        constraints
    }

    /// Whether the pods may be on a node, regardless of its free capacity. Of pods without a
    /// template it is only known that they do not tolerate the taints that repel ordinary pods.
    #[must_use]
    pub fn allows_node(&self, node: &Node) -> bool {
        let taints = &node.spec.taints;
        match self.templates.as_slice() {
            [] => !taints.iter().any(fit::repels_ordinary_pods),
            templates => templates.iter().any(|it| {
                !fit::has_untolerated_taint(taints, &it.tolerations)
                    && fit::matches_node_affinity(&it.labels, &it.affinity, node)
            }),
        }
    }
}

impl PartialEq for NodeConstraints {
    fn eq(&self, other: &Self) -> bool {
        self.comparison_key == other.comparison_key
    }
}

impl Eq for NodeConstraints {}

impl Hash for NodeConstraints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.comparison_key.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use gantry_api::devices::DEVICE_CLAIMS_ANNOTATION;

    use super::*;

    fn wrapper(items: &Value) -> AppWrapper {
        let object = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"resources": {"GenericItems": items}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn template(cpu: &str, more: &Value) -> Value {
        let mut spec =
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        json!({"spec": spec})
    }

    fn job(pods: i64, cpu: &str) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {
            "parallelism": pods, "completions": pods, "template": template(cpu, &json!({}))}})
    }

    fn counts(gang: &Gang) -> Vec<(usize, i64)> {
        gang.pods.iter().map(|it| (it.count, it.requests.cpu)).collect()
    }

    #[test]
    fn pods_are_those_declared_or_those_of_templates() {
        let declared =
            |replicas: i64, cpu: &str| json!({"replicas": replicas, "requests": {"cpu": cpu}});
        let table = [
            ("a job", json!([{"generictemplate": job(3, "2")}]), vec![(3, 2000)]),
            (
                "what is declared counts",
                json!([{"generictemplate": job(3, "2"), "custompodresources": [declared(2, "1")]}]),
                vec![(2, 1000)],
            ),
            (
                "items one after the other",
                json!([{"generictemplate": job(1, "1")}, {"custompodresources": [declared(2, "3"), declared(0, "9")]}]),
                vec![(1, 1000), (2, 3000)],
            ),
            (
                "no pods",
                json!([{"generictemplate": {"apiVersion": "v1", "kind": "Service", "spec": {}}}, {}]),
                vec![],
            ),
        ];
        for (why, items, expected) in table {
            assert_eq!(counts(&Gang::of(&wrapper(&items))), expected, "{why}");
        }
    }

    #[test]
    fn existing_pods_are_subtracted() {
        let items = json!([{"custompodresources": [
            {"replicas": 2, "requests": {"cpu": 1}}, {"replicas": 2, "requests": {"cpu": 2}}]}]);
        let gang = Gang::of(&wrapper(&items));
        let amounts = |cpu: i64| Amounts { cpu, ..Amounts::default() };
        let table = [
            ("no pods exist", vec![], vec![(2, 1000), (2, 2000)]),
            ("one of the second", vec![2000], vec![(2, 1000), (1, 2000)]),
            ("a stranger stands for the first", vec![7], vec![(1, 1000), (2, 2000)]),
            ("all", vec![1000, 2000, 7, 7, 7], vec![]),
        ];
        for (why, pods, expected) in table {
            let pods: Vec<Amounts> = pods.into_iter().map(amounts).collect();
            assert_eq!(counts(&gang.remaining(pods.iter())), expected, "{why}");
        }
    }

    #[test]
    fn node_constraints_come_from_the_template() {
        let node = |labels: Value, taints: Value| -> Node {
            let object =
                json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
            serde_json::from_value(object).unwrap()
        };
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
        let plain = node(json!({}), json!([]));
        let gpu = node(json!({"zone": "a"}), taint("gpu"));
        let master = node(json!({}), taint("node-role.kubernetes.io/control-plane"));
        let tolerates = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
        let wants = json!({"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]});
        let table = [
            ("a usual pod", vec![json!({})], [true, false, false]),
            ("one with a toleration", vec![tolerates.clone()], [true, true, false]),
            ("one with a wish", vec![wants], [false, true, false]),
            ("no template", vec![], [true, true, false]),
            ("one of two", vec![json!({}), tolerates], [true, true, false]),
        ];
        for (why, specs, expected) in table {
            let templates: Vec<Value> = specs.iter().map(|it| template("1", it)).collect();
            let templates: Vec<&Value> = templates.iter().collect();
            let constraints = NodeConstraints::of(&templates);
            assert_eq!(
                [&plain, &gpu, &master].map(|it| constraints.allows_node(it)),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn device_claims_include_referenced_objects() {
        let mut job = job(2, "1");
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {DEVICE_CLAIMS_ANNOTATION: "[]", "other": "x"}});
        let kind =
            json!({"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaimTemplate"});
        let wrapper = wrapper(&json!([{"generictemplate": kind}, {"generictemplate": job}]));
        assert!(wrapper.claims_devices());
        let gang = Gang::of(&wrapper);
        let claims = gang.pods[0].claims.as_ref().unwrap();
        assert_eq!((claims.namespace.as_str(), claims.sibling_objects.len()), ("n", 1));
        assert!(claims.pod.contains(DEVICE_CLAIMS_ANNOTATION) && !claims.pod.contains("other"));
    }
}
