//! The pods of an AppWrapper one by one: how many there are of each kind, what each asks for, where it may
//! be, and what devices it claims.
//!
//! Who wants to know whether all of them find a place needs more than their sum. Declared pods count as
//! declared, all others as the scheduler will count them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gantry_api::devices::CARRIER_ANNOTATIONS;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::amounts::Amounts;
use crate::app_wrapper::{AppWrapper, Item};
use crate::demand::as_scheduled;
use crate::fit;
use crate::pod_sets;
use crate::view::{Affinity, Node, PodSpec, Toleration};

/// The pods of an AppWrapper, alike ones together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gang {
    /// In the order of the items; none of them is empty.
    pub squads: Vec<Squad>,
}

/// Pods that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Squad {
    /// How many, never less than one.
    pub count: usize,
    /// What each asks for.
    pub requests: Amounts,
    /// Where they may be.
    pub wishes: Wishes,
    /// What devices they claim.
    pub claims: Option<Arc<Claims>>,
}

/// What a pod says about devices, and where that is to be understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claims {
    /// The namespace.
    pub namespace: String,
    /// The pod, as far as it is about devices, as text.
    pub pod: String,
    /// Objects of the same AppWrapper that it may refer to and that are not there before it passes, as
    /// texts.
    pub own: Vec<String>,
}

impl Gang {
    /// The pods of an AppWrapper.
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
            let mut squads = squads(item, object.as_ref());
            for squad in &mut squads {
                if let Some(claims) = &mut squad.claims {
                    let namespace = wrapper.metadata.namespace.clone();
                    let (pod, own) = (claims.pod.clone(), own.clone());
                    *claims = Arc::new(Claims { namespace, pod, own });
                }
            }
            gang.squads.extend(squads);
        }
        gang
    }

    /// How many pods there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.squads.iter().fold(0, |sum, it| sum.saturating_add(it.count))
    }

    /// Those that are still to come when there are pods that ask for this. Each stands for one that asks
    /// for the same; one that is like none of them, for one of the first that are left.
    #[must_use]
    pub fn without<'a>(&self, pods: impl Iterator<Item = &'a Amounts>) -> Self {
        let mut rest = self.clone();
        for amounts in pods {
            let same = rest.squads.iter().position(|it| it.requests == *amounts);
            let Some(at) = same.or_else(|| (!rest.squads.is_empty()).then_some(0)) else { break };
            rest.squads[at].count -= 1;
            if rest.squads[at].count == 0 {
                rest.squads.remove(at);
            }
        }
        rest
    }
}

/// The pods of one item. Declared pods are those of the template in the same place, if there are as many
/// templates as declarations, or of the only one; else any template may be that of any of them, and what
/// they claim is not known.
fn squads(item: &Item, object: Option<&Value>) -> Vec<Squad> {
    let nothing = Value::Null;
    let sets = object.map(pod_sets::find).unwrap_or_default();
    let templates: Vec<&Value> =
        sets.iter().filter_map(|set| object?.pointer(&set.place)).collect();
    let squad = |count: i64, requests: Amounts, of: &[&Value], claims: Option<Arc<Claims>>| {
        let count = usize::try_from(count).unwrap_or_default();
        (count > 0).then(|| Squad { count, requests, wishes: Wishes::of(of), claims })
    };
    if item.replicas.is_empty() {
        let sets = sets.iter().map(|set| {
            let template = object.and_then(|it| it.pointer(&set.place)).unwrap_or(&nothing);
            let requests = as_scheduled(&template["spec"]);
            squad(set.replicas, requests, &[template], claims(template))
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
            Some(own) => squad(*count, requests.clone(), &[own], claims(own)),
            None => squad(*count, requests.clone(), &templates, None),
        }
    });
    pods.flatten().collect()
}

/// Whether pods of an object claim devices.
pub(crate) fn claims_devices(object: &Value) -> bool {
    let templates = pod_sets::find(object).into_iter();
    templates.filter_map(|set| object.pointer(&set.place)).any(says_of_devices)
}

fn says_of_devices(template: &Value) -> bool {
    let annotations = &template["metadata"]["annotations"];
    CARRIER_ANNOTATIONS.iter().any(|name| !annotations[*name].is_null())
}

/// What pods of a template say about devices, and nothing else of them.
fn claims(template: &Value) -> Option<Arc<Claims>> {
    if !says_of_devices(template) {
        return None;
    }
    let annotations = &template["metadata"]["annotations"];
    let annotations: Map<String, Value> = CARRIER_ANNOTATIONS
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
    Some(Arc::new(Claims { namespace, pod: pod.to_string(), own }))
}

/// Where pods may be: on nodes that one of some templates may be on.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    templates: Vec<Wish>,
    /// The same as one word, to compare.
    word: String,
}

#[derive(Clone, Debug)]
struct Wish {
    tolerations: Vec<Toleration>,
    labels: std::collections::BTreeMap<String, String>,
    affinity: Affinity,
}

impl Wishes {
    fn of(templates: &[&Value]) -> Self {
        let mut wishes = Self::default();
        for template in templates {
            // A template that cannot be read makes no pods: the server will refuse it.
            let Ok(spec) = PodSpec::deserialize(&template["spec"]) else { continue };
            let PodSpec { tolerations, node_selector: labels, affinity, .. } = spec;
            let word = format!("{tolerations:?}{labels:?}{:?}", affinity.node_affinity.required);
            if !wishes.word.contains(&word) {
                wishes.word.push_str(&word);
                wishes.templates.push(Wish { tolerations, labels, affinity });
            }
        }
        wishes
    }

    /// Whether the pods may be on a node, room apart. Of pods without a template it is only known that
    /// they do not put up with what keeps all usual pods away.
    #[must_use]
    pub fn allow(&self, node: &Node) -> bool {
        let taints = &node.spec.taints;
        match self.templates.as_slice() {
            [] => !taints.iter().any(fit::keeps_usual_pods_away),
            templates => templates.iter().any(|it| {
                !fit::keeps_away(taints, &it.tolerations)
                    && fit::wants_node(&it.labels, &it.affinity, node)
            }),
        }
    }
}

impl PartialEq for Wishes {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl Eq for Wishes {}

impl Hash for Wishes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.word.hash(state);
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
        gang.squads.iter().map(|it| (it.count, it.requests.cpu)).collect()
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
    fn pods_that_are_there_are_not_to_come() {
        let items = json!([{"custompodresources": [
            {"replicas": 2, "requests": {"cpu": 1}}, {"replicas": 2, "requests": {"cpu": 2}}]}]);
        let gang = Gang::of(&wrapper(&items));
        let amounts = |cpu: i64| Amounts { cpu, ..Amounts::default() };
        let table = [
            ("nobody is there", vec![], vec![(2, 1000), (2, 2000)]),
            ("one of the second", vec![2000], vec![(2, 1000), (1, 2000)]),
            ("a stranger stands for the first", vec![7], vec![(1, 1000), (2, 2000)]),
            ("all", vec![1000, 2000, 7, 7, 7], vec![]),
        ];
        for (why, pods, expected) in table {
            let pods: Vec<Amounts> = pods.into_iter().map(amounts).collect();
            assert_eq!(counts(&gang.without(pods.iter())), expected, "{why}");
        }
    }

    #[test]
    fn where_pods_may_be_is_what_their_template_says() {
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
            let wishes = Wishes::of(&templates);
            assert_eq!([&plain, &gpu, &master].map(|it| wishes.allow(it)), expected, "{why}");
        }
    }

    #[test]
    fn claims_are_found_with_what_they_refer_to() {
        let mut job = job(2, "1");
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {DEVICE_CLAIMS_ANNOTATION: "[]", "other": "x"}});
        let kind =
            json!({"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaimTemplate"});
        let wrapper = wrapper(&json!([{"generictemplate": kind}, {"generictemplate": job}]));
        assert!(wrapper.claims_devices());
        let gang = Gang::of(&wrapper);
        let claims = gang.squads[0].claims.as_ref().unwrap();
        assert_eq!((claims.namespace.as_str(), claims.own.len()), ("n", 1));
        assert!(claims.pod.contains(DEVICE_CLAIMS_ANNOTATION) && !claims.pod.contains("other"));
    }
}
