//! The submitted AppWrappers, and the quotas they are charged to.

use serde_json::{Map, Value, json};

use super::Size;
use super::amounts::{Amounts, GI};

/// The capacity of a node without accelerators, and of one with them.
pub(super) const PLAIN_NODE: Amounts = Amounts { cpu: 16, memory: 64 * GI, gpu: 0 };
pub(super) const GPU_NODE: Amounts = Amounts { cpu: 32, memory: 128 * GI, gpu: 8 };

/// The priorities, with their weights.
const PRIORITIES: [(i32, u32); 3] = [(9, 1), (5, 3), (0, 6)];

/// The sizes of jobs: weight, number of pods, and the requests of each pod.
const SIZES: [(u32, u32, Amounts); 7] = [
    (35, 1, Amounts { cpu: 1, memory: GI, gpu: 0 }),
    (30, 2, Amounts { cpu: 2, memory: 4 * GI, gpu: 0 }),
    (18, 4, Amounts { cpu: 4, memory: 8 * GI, gpu: 0 }),
    (7, 8, Amounts { cpu: 4, memory: 16 * GI, gpu: 0 }),
    (3, 12, Amounts { cpu: 6, memory: 16 * GI, gpu: 0 }),
    (5, 1, Amounts { cpu: 4, memory: 16 * GI, gpu: 4 }),
    (2, 2, Amounts { cpu: 8, memory: 32 * GI, gpu: 8 }),
];

/// The trees, with their roots and leaves: the percentage of the root's quota that each has, and
/// whether it may not borrow. A hard leaf is used by small jobs without accelerators only, which
/// fit its quota.
const TREES: [(&str, &str, &[QuotaLeaf]); 2] = [
    (
        "team",
        "everybody",
        &[
            QuotaLeaf { name: "gold", percent: 50, hard: false },
            QuotaLeaf { name: "silver", percent: 30, hard: false },
            QuotaLeaf { name: "bronze", percent: 15, hard: true },
            QuotaLeaf { name: "default", percent: 5, hard: false },
        ],
    ),
    (
        "project",
        "all",
        &[
            QuotaLeaf { name: "research", percent: 75, hard: false },
            QuotaLeaf { name: "serving", percent: 20, hard: false },
            QuotaLeaf { name: "default", percent: 5, hard: false },
        ],
    ),
];

/// The percentage of the nodes' capacity that the trees have as quota: quota and capacity both
/// matter.
const QUOTA_PERCENT_OF_NODES: i64 = 96;

struct QuotaLeaf {
    name: &'static str,
    percent: i64,
    hard: bool,
}

/// One AppWrapper to submit.
#[derive(Clone, Debug)]
pub(super) struct PlannedAppWrapper {
    pub(super) name: String,
    pub(super) priority: i32,
    /// The total requests.
    pub(super) demand: Amounts,
    /// The leaf it is charged to in each tree; the default leaf where it names none.
    pub(super) leaves: Vec<(&'static str, &'static str)>,
    /// The Jobs it wraps: their names, and how many pods each has.
    pub(super) items: Vec<(String, u32)>,
    /// The requests of a pod.
    pod: Amounts,
    /// The runtime of a pod, in milliseconds.
    run_for: u64,
}

/// The most that a node of a tree may admit, whatever it borrows.
#[derive(Clone, Debug)]
pub(super) struct QuotaLimit {
    pub(super) tree: &'static str,
    /// The leaf it limits; none for the root.
    pub(super) leaf: Option<&'static str>,
    pub(super) most: Amounts,
}

/// All AppWrappers of a drill.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    app_wrappers: Vec<PlannedAppWrapper>,
    root: Amounts,
}

impl Workload {
    pub(super) fn new(size: &Size, random: &mut fastrand::Rng) -> Self {
        let mut capacity = PLAIN_NODE.times(size.plain);
        capacity.add(GPU_NODE.times(size.gpu));
        let root = capacity.percent(QUOTA_PERCENT_OF_NODES);
        let app_wrappers =
            (0..size.jobs).map(|nth| random_app_wrapper(nth, size, root, random)).collect();
        Self { app_wrappers, root }
    }

    pub(super) fn app_wrappers(&self) -> &[PlannedAppWrapper] {
        &self.app_wrappers
    }

    /// Returns the limits that no tree may exceed.
    pub(super) fn limits(&self) -> Vec<QuotaLimit> {
        let mut limits = Vec::new();
        for (tree, _, leaves) in TREES {
            limits.push(QuotaLimit { tree, leaf: None, most: self.root });
            for leaf in leaves.iter().filter(|leaf| leaf.hard) {
                let most = self.root.percent(leaf.percent);
                limits.push(QuotaLimit { tree, leaf: Some(leaf.name), most });
            }
        }
        limits
    }

    /// Returns the objects that must exist before: the namespace of the lease, and the trees.
    pub(super) fn prerequisites(&self) -> Vec<(String, Value)> {
        const QUOTAS: &str =
            "/apis/quota.codeflare.dev/v1alpha1/namespaces/kube-system/quotasubtrees";
        let namespace = json!({"metadata": {"name": super::processes::NAMESPACE}});
        let mut objects = vec![("/api/v1/namespaces".to_owned(), namespace)];
        for (tree, root, leaves) in TREES {
            let subtree = |name: String, parent: Option<&str>, children: Vec<Value>| {
                let mut spec = json!({"children": children});
                if let Some(parent) = parent {
                    spec["parent"] = json!(parent);
                }
                json!({
                    "apiVersion": "quota.codeflare.dev/v1alpha1", "kind": "QuotaSubtree",
                    "metadata": {"name": name, "labels": {"tree": tree}}, "spec": spec,
                })
            };
            let child = |name: &str, most: Amounts, hard: bool| {
                json!({
                    "name": name, "quotas": {"requests": most.write(), "hardLimit": hard},
                })
            };
            let top = vec![child(root, self.root, false)];
            let leaf = |it: &QuotaLeaf| child(it.name, self.root.percent(it.percent), it.hard);
            let below = leaves.iter().map(leaf).collect();
            objects.push((QUOTAS.to_owned(), subtree(tree.to_owned(), None, top)));
            let members = subtree(format!("{tree}-members"), Some(root), below);
            objects.push((QUOTAS.to_owned(), members));
        }
        objects
    }
}

/// Returns the shapes of the nodes, in the format of `gantry up --nodes`.
pub(super) fn node_shapes(size: &Size) -> Value {
    let shape = |name: &str, count: u32, has: Amounts| {
        let mut shape = json!({
            "name": name, "count": count, "cpu": has.cpu,
            "memory": format!("{}Gi", has.memory / GI),
        });
        if has.gpu > 0 {
            shape["accelerators"] = json!({"nvidia.com/gpu": {"count": has.gpu}});
        }
        shape
    };
    json!({"nodes": [shape("plain", size.plain, PLAIN_NODE), shape("gpu", size.gpu, GPU_NODE)]})
}

fn random_app_wrapper(
    nth: u32,
    size: &Size,
    root: Amounts,
    random: &mut fastrand::Rng,
) -> PlannedAppWrapper {
    let name = format!("job-{nth:03}");
    let priority = weighted_choice(&PRIORITIES.map(|(it, weight)| (weight, it)), random);
    let mut leaves = Vec::new();
    let mut most = root;
    for (tree, _, all) in TREES {
        let chosen = weighted_choice(
            &all.iter().map(|it| (it.percent.unsigned_abs(), it)).collect::<Vec<_>>(),
            random,
        );
        leaves.push((tree, chosen.name));
        if chosen.hard {
            most = Amounts { gpu: 0, ..root.percent(chosen.percent) };
        }
    }
    // An AppWrapper that could never run would not test the queue.
    let sizes: Vec<(u64, (u32, Amounts))> = SIZES
        .iter()
        .filter(|(_, pods, pod)| pod.times(*pods).fits(most))
        .map(|(weight, pods, pod)| (u64::from(*weight), (*pods, *pod)))
        .collect();
    let (pods, pod) = weighted_choice(&sizes, random);
    // Some have two items, all or none of which are created.
    let items = match nth.is_multiple_of(5) && pods.is_multiple_of(2) {
        true => vec![(format!("{name}-a"), pods / 2), (format!("{name}-b"), pods / 2)],
        false => vec![(name.clone(), pods)],
    };
    let run_for = random.u64(size.run_for.0..=size.run_for.1);
    PlannedAppWrapper { name, priority, demand: pod.times(pods), leaves, items, pod, run_for }
}

/// Picks one of several by weight. The last one if there are no weights.
fn weighted_choice<W: Copy + Into<u64>, T: Copy>(all: &[(W, T)], random: &mut fastrand::Rng) -> T {
    let total: u64 = all.iter().map(|(weight, _)| (*weight).into()).sum();
    let mut left = random.u64(0..total.max(1));
    let mut chosen = all.len().saturating_sub(1);
    for (place, (weight, _)) in all.iter().enumerate() {
        let weight: u64 = (*weight).into();
        if left < weight {
            chosen = place;
            break;
        }
        left -= weight;
    }
    all[chosen].1
}

impl PlannedAppWrapper {
    /// Returns the AppWrapper object.
    pub(super) fn object(&self) -> Value {
        let named = self.leaves.iter().filter(|(_, leaf)| *leaf != "default");
        let labels: Map<String, Value> =
            named.map(|(tree, leaf)| ((*tree).to_owned(), json!(leaf))).collect();
        let pods: u32 = self.items.iter().map(|(_, pods)| pods).sum();
        let items: Vec<Value> =
            self.items.iter().map(|(name, pods)| self.item(name, *pods)).collect();
        json!({
            "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "priority": self.priority,
                "schedulingSpec": {
                    "minAvailable": pods,
                    "requeuing": {"timeInSeconds": 20, "growthType": "none"},
                },
                "resources": {"GenericItems": items},
            },
        })
    }

    fn item(&self, name: &str, pods: u32) -> Value {
        let takes = self.pod.write();
        // Pods are evicted from a lost node after 5 seconds.
        let toleration = |key: &str| {
            json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            })
        };
        json!({
            "completionstatus": "Complete",
            "custompodresources": [{"replicas": pods, "requests": takes, "limits": takes}],
            "generictemplate": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {
                    "parallelism": pods, "completions": pods,
                    // Pods that are lost with their node do not count as failures of the job.
                    "backoffLimit": 1000,
                    "template": {
                        "metadata": {
                            "annotations": {
                                "gantry.dev/sim-run-for": format!("{}ms", self.run_for),
                            },
                        },
                        "spec": {
                            "restartPolicy": "Never",
                            "tolerations": [
                                toleration("node.kubernetes.io/unreachable"),
                                toleration("node.kubernetes.io/not-ready"),
                            ],
                            "containers": [{
                                "name": "main", "image": "example.com/work:1",
                                "resources": {"requests": takes, "limits": takes},
                            }],
                        },
                    },
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every seed, everything can run, and there is something of each kind.
    #[test]
    fn every_app_wrapper_can_run() {
        for (size, seed) in
            [(Size::full(), 1), (Size::full(), 2), (Size::small(), 1), (Size::small(), 2)]
        {
            let workload = Workload::new(&size, &mut fastrand::Rng::with_seed(seed));
            assert_eq!(workload.app_wrappers().len(), usize::try_from(size.jobs).unwrap());
            for planned in workload.app_wrappers() {
                for limit in workload.limits() {
                    let charged =
                        limit.leaf.is_none_or(|leaf| planned.leaves.contains(&(limit.tree, leaf)));
                    assert!(!charged || planned.demand.fits(limit.most), "{planned:?} {limit:?}");
                }
                let object = planned.object();
                assert!(!object["metadata"]["labels"].to_string().contains("default"), "{object}");
            }
        }
        let one = Workload::new(&Size::full(), &mut fastrand::Rng::with_seed(7));
        let has = |what: fn(&PlannedAppWrapper) -> bool| one.app_wrappers().iter().any(what);
        assert!(has(|it| it.priority == 9) && has(|it| it.priority == 0));
        assert!(has(|it| it.demand.gpu > 0) && has(|it| it.demand.cpu >= 32));
        assert!(has(|it| it.items.len() == 2));
        assert!(has(|it| it.leaves.contains(&("team", "bronze"))));
        let two = Workload::new(&Size::full(), &mut fastrand::Rng::with_seed(7));
        assert_eq!(format!("{one:?}"), format!("{two:?}"), "a seed decides everything");
    }
}
