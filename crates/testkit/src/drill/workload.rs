//! What is submitted, and what it is charged to.

use serde_json::{Map, Value, json};

use super::Size;
use super::amounts::{Amounts, GI};

/// A node without accelerators, and one with.
pub(super) const PLAIN: Amounts = Amounts { cpu: 16, memory: 64 * GI, gpu: 0 };
pub(super) const GPU: Amounts = Amounts { cpu: 32, memory: 128 * GI, gpu: 8 };

/// The priorities there are, with how often they occur.
const PRIORITIES: [(i32, u32); 3] = [(9, 1), (5, 3), (0, 6)];

/// How large jobs are: how often that occurs, pods, and what each takes.
const SIZES: [(u32, u32, Amounts); 7] = [
    (35, 1, Amounts { cpu: 1, memory: GI, gpu: 0 }),
    (30, 2, Amounts { cpu: 2, memory: 4 * GI, gpu: 0 }),
    (18, 4, Amounts { cpu: 4, memory: 8 * GI, gpu: 0 }),
    (7, 8, Amounts { cpu: 4, memory: 16 * GI, gpu: 0 }),
    (3, 12, Amounts { cpu: 6, memory: 16 * GI, gpu: 0 }),
    (5, 1, Amounts { cpu: 4, memory: 16 * GI, gpu: 4 }),
    (2, 2, Amounts { cpu: 8, memory: 32 * GI, gpu: 8 }),
];

/// The trees, with their roots and leaves: what hundredth of the root's quota each has, and whether it
/// may not borrow. A leaf that is hard takes small jobs without accelerators only, which it has room for.
const TREES: [(&str, &str, &[Leaf]); 2] = [
    (
        "team",
        "everybody",
        &[
            Leaf { name: "gold", percent: 50, hard: false },
            Leaf { name: "silver", percent: 30, hard: false },
            Leaf { name: "bronze", percent: 15, hard: true },
            Leaf { name: "default", percent: 5, hard: false },
        ],
    ),
    (
        "project",
        "all",
        &[
            Leaf { name: "research", percent: 75, hard: false },
            Leaf { name: "serving", percent: 20, hard: false },
            Leaf { name: "default", percent: 5, hard: false },
        ],
    ),
];

/// What hundredth of the nodes the trees hand out: quota and room both matter.
const HANDED_OUT: i64 = 96;

struct Leaf {
    name: &'static str,
    percent: i64,
    hard: bool,
}

/// One AppWrapper.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) priority: i32,
    /// What all of it takes.
    pub(super) demand: Amounts,
    /// The leaf it is charged to in each tree; where it names none, it is the usual one.
    pub(super) leaves: Vec<(&'static str, &'static str)>,
    /// The Jobs it wraps: their names, and how many pods each has.
    pub(super) items: Vec<(String, u32)>,
    /// What a pod takes.
    pod: Amounts,
    /// How long a pod runs, in milliseconds.
    run_for: u64,
}

/// What a node of a tree may hand out at most, whatever it borrows.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) tree: &'static str,
    /// The leaf it is about; none for the root.
    pub(super) leaf: Option<&'static str>,
    pub(super) most: Amounts,
}

/// Everything that is made in a drill.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    wishes: Vec<Wish>,
    root: Amounts,
}

impl Workload {
    pub(super) fn new(size: &Size, random: &mut fastrand::Rng) -> Self {
        let mut room = PLAIN.times(size.plain);
        room.add(GPU.times(size.gpu));
        let root = room.percent(HANDED_OUT);
        let wishes = (0..size.jobs).map(|nth| wish(nth, size, root, random)).collect();
        Self { wishes, root }
    }

    pub(super) fn wishes(&self) -> &[Wish] {
        &self.wishes
    }

    /// What no tree ever hands out more of.
    pub(super) fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        for (tree, _, leaves) in TREES {
            limits.push(Limit { tree, leaf: None, most: self.root });
            for leaf in leaves.iter().filter(|leaf| leaf.hard) {
                let most = self.root.percent(leaf.percent);
                limits.push(Limit { tree, leaf: Some(leaf.name), most });
            }
        }
        limits
    }

    /// What must be there before: the namespace of the lease, and the trees.
    pub(super) fn surroundings(&self) -> Vec<(String, Value)> {
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
            let child = |name: &str, most: Amounts, hard: bool| json!({"name": name, "quotas": {"requests": most.write(), "hardLimit": hard}});
            let top = vec![child(root, self.root, false)];
            let leaf = |it: &Leaf| child(it.name, self.root.percent(it.percent), it.hard);
            let below = leaves.iter().map(leaf).collect();
            objects.push((QUOTAS.to_owned(), subtree(tree.to_owned(), None, top)));
            let members = subtree(format!("{tree}-members"), Some(root), below);
            objects.push((QUOTAS.to_owned(), members));
        }
        objects
    }
}

/// The shapes of the nodes, as `gantry up --nodes` reads them.
pub(super) fn shapes(size: &Size) -> Value {
    let shape = |name: &str, count: u32, has: Amounts| {
        let mut shape = json!({
            "name": name, "count": count, "cpu": has.cpu, "memory": format!("{}Gi", has.memory / GI),
        });
        if has.gpu > 0 {
            shape["accelerators"] = json!({"nvidia.com/gpu": {"count": has.gpu}});
        }
        shape
    };
    json!({"nodes": [shape("plain", size.plain, PLAIN), shape("gpu", size.gpu, GPU)]})
}

fn wish(nth: u32, size: &Size, root: Amounts, random: &mut fastrand::Rng) -> Wish {
    let name = format!("job-{nth:03}");
    let priority = weighed(&PRIORITIES.map(|(it, weight)| (weight, it)), random);
    let mut leaves = Vec::new();
    let mut most = root;
    for (tree, _, all) in TREES {
        let chosen = weighed(
            &all.iter().map(|it| (it.percent.unsigned_abs(), it)).collect::<Vec<_>>(),
            random,
        );
        leaves.push((tree, chosen.name));
        if chosen.hard {
            most = Amounts { gpu: 0, ..root.percent(chosen.percent) };
        }
    }
    // One that could never run would say nothing about the queue.
    let sizes: Vec<(u64, (u32, Amounts))> = SIZES
        .iter()
        .filter(|(_, pods, pod)| pod.times(*pods).fits(most))
        .map(|(weight, pods, pod)| (u64::from(*weight), (*pods, *pod)))
        .collect();
    let (pods, pod) = weighed(&sizes, random);
    // Some have two items, all or none of which are made.
    let items = match nth.is_multiple_of(5) && pods.is_multiple_of(2) {
        true => vec![(format!("{name}-a"), pods / 2), (format!("{name}-b"), pods / 2)],
        false => vec![(name.clone(), pods)],
    };
    let run_for = random.u64(size.run_for.0..=size.run_for.1);
    Wish { name, priority, demand: pod.times(pods), leaves, items, pod, run_for }
}

/// One of several, by how often each is to occur. The last one if there are no weights.
fn weighed<W: Copy + Into<u64>, T: Copy>(all: &[(W, T)], random: &mut fastrand::Rng) -> T {
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

impl Wish {
    /// The AppWrapper.
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
        // A node that is lost is not waited for.
        let leaves = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        json!({
            "completionstatus": "Complete",
            "custompodresources": [{"replicas": pods, "requests": takes, "limits": takes}],
            "generictemplate": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {
                    "parallelism": pods, "completions": pods,
                    // Pods that are lost with their node are no failures of the job's.
                    "backoffLimit": 1000,
                    "template": {
                        "metadata": {"annotations": {"gantry.dev/sim-run-for": format!("{}ms", self.run_for)}},
                        "spec": {
                            "restartPolicy": "Never",
                            "tolerations": [
                                leaves("node.kubernetes.io/unreachable"),
                                leaves("node.kubernetes.io/not-ready"),
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

    /// Whatever the seed, everything can run, and there is something of each kind.
    #[test]
    fn every_wish_can_come_true() {
        for (size, seed) in
            [(Size::full(), 1), (Size::full(), 2), (Size::small(), 1), (Size::small(), 2)]
        {
            let workload = Workload::new(&size, &mut fastrand::Rng::with_seed(seed));
            assert_eq!(workload.wishes().len(), usize::try_from(size.jobs).unwrap());
            for wish in workload.wishes() {
                for limit in workload.limits() {
                    let charged =
                        limit.leaf.is_none_or(|leaf| wish.leaves.contains(&(limit.tree, leaf)));
                    assert!(!charged || wish.demand.fits(limit.most), "{wish:?} {limit:?}");
                }
                let object = wish.object();
                assert!(!object["metadata"]["labels"].to_string().contains("default"), "{object}");
            }
        }
        let one = Workload::new(&Size::full(), &mut fastrand::Rng::with_seed(7));
        let has = |what: fn(&Wish) -> bool| one.wishes().iter().any(what);
        assert!(has(|it| it.priority == 9) && has(|it| it.priority == 0));
        assert!(has(|it| it.demand.gpu > 0) && has(|it| it.demand.cpu >= 32));
        assert!(has(|it| it.items.len() == 2));
        assert!(has(|it| it.leaves.contains(&("team", "bronze"))));
        let two = Workload::new(&Size::full(), &mut fastrand::Rng::with_seed(7));
        assert_eq!(format!("{one:?}"), format!("{two:?}"), "a seed decides everything");
    }
}
