//! Tries a request on every node, and reports the decision.

use gantry_api::devices::{DeviceAllocation, DevicePool, PodCapacityClaim};
use gantry_yaml::WriteError;
use serde_json::{Value, json};

use super::explain::explain;
use super::objects::Objects;
use super::requested_claims::{RequestedClaims, of_every_claim, of_pod};
use crate::constraint::Constraints;
use crate::dump::file::{FileOutcome, FileQuery, FileResult, Wording, file_result, tree};
use crate::dump::{self, NodeResult, Outcome, node_result};
use crate::lower::{Catalog, ClaimError, ResolveError, Snapshot, allocations};
use crate::problem::{AllocationOutcome, Budget, Request};
use crate::{FeasibleNode, Packing, allocate, choose};

/// What devices are searched for.
#[derive(Clone, Copy, Debug)]
pub enum ScheduleTarget<'a> {
    /// All claims without devices, together.
    Claims,
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// The claims of a pod in the oldest files.
    CapacityClaim(&'a PodCapacityClaim),
}

/// The options of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The budget of the search on each node, in steps.
    pub steps: u64,
    /// Whether to explain why nodes, pools and devices are refused.
    pub explain: bool,
    /// What devices are called in results about the oldest files.
    pub wording: Wording,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: Budget::STEPS, explain: false, wording: Wording::default() }
    }
}

/// Why a decision is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There is no such pod.
    #[error("there is no pod {0}")]
    NoPod(String),
    /// The claims of the pod cannot be parsed.
    #[error("pod {pod} is invalid: {problems}")]
    Carrier {
        /// The pod.
        pod: String,
        /// The problems.
        problems: String,
    },
    /// The object with the claims of the pod is missing.
    #[error("pod {pod}: PodDevices \"{name}\" not found")]
    NoPodDevices {
        /// The pod.
        pod: String,
        /// The object.
        name: String,
    },
    /// A claim or a template is missing.
    #[error("pod {pod}: {error}")]
    Resolve {
        /// The pod.
        pod: String,
        /// What is missing.
        error: ResolveError,
    },
    /// A claim contradicts itself or its class.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// The result of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Whether the claims are satisfied.
    pub verdict: Verdict,
    /// The node that is chosen.
    pub node: Option<String>,
    /// Further notes, one sentence each.
    pub notes: Vec<String>,
    /// Why nodes, pools and devices are refused, if that was requested.
    pub explanation: Vec<String>,
    result: DecisionResult,
}

/// Whether claims are satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of them are, on some node.
    Satisfied,
    /// No node satisfies all of them.
    Unsatisfied,
    /// No node is known to satisfy them; on some the search ended without a result.
    Undecided,
}

#[derive(Clone, Debug, PartialEq)]
enum DecisionResult {
    Claims { allocations: Option<Vec<DeviceAllocation>>, nodes: Vec<NodeResult> },
    File { nodes: Vec<FileResult>, wording: Wording },
}

/// Searches devices on every node.
///
/// # Errors
/// Something that is requested is missing or contradicts itself, whatever devices there are.
pub fn decide(
    objects: &Objects,
    asked: ScheduleTarget<'_>,
    options: &Options,
) -> Result<Decision, ScheduleError> {
    let catalog = Catalog::new(objects.source, &objects.drivers, &objects.classes);
    let constraints = Constraints::default();
    let nodes = objects.all_nodes();
    let mut snapshot = objects.snapshot(&catalog);
    let mut notes = unreachable_pools(&objects.pools);
    notes.extend(snapshot.lost_holds.iter().map(|lost| {
        let device = lost.device.as_ref().map(|name| format!(", device {name}"));
        let device = device.unwrap_or_default();
        format!("pool {}{device}: held, but not published any more", lost.pool)
    }));
    let requested = match asked {
        ScheduleTarget::Claims => of_every_claim(objects),
        ScheduleTarget::Pod { namespace, name } => of_pod(objects, namespace, name)?,
        ScheduleTarget::CapacityClaim(_) => RequestedClaims::default(),
    };
    let lowered = match asked {
        ScheduleTarget::CapacityClaim(pod) => snapshot.file_request(&catalog, &constraints, pod)?,
        ScheduleTarget::Claims | ScheduleTarget::Pod { .. } => {
            snapshot.request(&catalog, &constraints, &requested.specs())?
        }
    };
    notes.extend(requested.notes.iter().cloned());
    notes.extend(lowered.warnings.iter().map(ToString::to_string));
    let open: Vec<usize> =
        (0..nodes.len()).filter(|at| requested.allows_node(&nodes[*at])).collect();
    let budget = Budget { steps: options.steps, stop: None };
    let request = &lowered.request;
    let answers: Vec<(usize, AllocationOutcome)> =
        open.iter().map(|at| (*at, allocate(&snapshot.inventory, *at, request, &budget))).collect();
    let mut decision = match asked {
        ScheduleTarget::CapacityClaim(pod) => {
            let question = FileQuery {
                inventory: &snapshot.inventory,
                pools: &objects.pools,
                request,
                pod,
                budget,
                wording: options.wording,
            };
            file_decision(
                open.iter().map(|at| file_result(&question, *at)).collect(),
                options.wording,
            )
        }
        ScheduleTarget::Claims | ScheduleTarget::Pod { .. } => {
            claims_decision(&snapshot, request, &answers, &budget)
        }
    };
    decision.notes = notes;
    if options.explain {
        let chosen = decision.node.as_deref();
        decision.explanation = explain(&snapshot.inventory, request, &answers, chosen);
    }
    Ok(decision)
}

fn claims_decision(
    snapshot: &Snapshot,
    request: &Request,
    answers: &[(usize, AllocationOutcome)],
    budget: &Budget<'_>,
) -> Decision {
    let inventory = &snapshot.inventory;
    let offers: Vec<FeasibleNode> =
        answers.iter().map(|(node, _)| FeasibleNode { node: *node, load: 0 }).collect();
    let chosen = choose(inventory, &offers, request, Packing::BinPack, budget);
    let given = chosen.placement.as_ref().map(|placement| {
        let claims = request.claims.iter().zip(&placement.allocation.claims);
        let given = claims.flat_map(|(claim, given)| allocations(inventory, claim, given));
        given.collect::<Vec<_>>()
    });
    let nodes = answers.iter().map(|(at, answer)| node_result(inventory, *at, request, answer));
    let node = chosen.placement.as_ref().and_then(|it| inventory.nodes().get(it.node));
    Decision {
        verdict: match (&chosen.placement, chosen.undecided.is_empty()) {
            (Some(_), _) => Verdict::Satisfied,
            (None, true) => Verdict::Unsatisfied,
            (None, false) => Verdict::Undecided,
        },
        node: node.map(|node| node.name.clone()),
        notes: Vec::new(),
        explanation: Vec::new(),
        result: DecisionResult::Claims {
            allocations: given.filter(|given| !given.is_empty()),
            nodes: nodes.collect(),
        },
    }
}

fn file_decision(nodes: Vec<FileResult>, wording: Wording) -> Decision {
    let best = dump::file::best(&nodes).map(|node| node.node_name.clone());
    let undecided = nodes.iter().any(|node| node.outcome == FileOutcome::Undecided);
    Decision {
        verdict: match (&best, undecided) {
            (Some(_), _) => Verdict::Satisfied,
            (None, false) => Verdict::Unsatisfied,
            (None, true) => Verdict::Undecided,
        },
        node: best,
        notes: Vec::new(),
        explanation: Vec::new(),
        result: DecisionResult::File { nodes, wording },
    }
}

impl Decision {
    /// Returns the text of the original, and the explanation after it.
    ///
    /// # Errors
    /// If something cannot be written as YAML.
    pub fn text(&self, verbose: bool) -> Result<String, WriteError> {
        let mut text = match &self.result {
            DecisionResult::Claims { allocations, nodes } => match verbose {
                false => dump::normal(allocations.as_deref(), nodes)?,
                true => dump::verbose(allocations.as_deref(), nodes)?,
            },
            DecisionResult::File { nodes, wording } => {
                dump::file::file_text(nodes, verbose, *wording)?
            }
        };
        if !self.explanation.is_empty() {
            text += "\nEXPLANATION\n-----------\n";
            for line in &self.explanation {
                text += line;
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Returns everything as JSON, for other programs.
    #[must_use]
    pub fn tree(&self) -> Value {
        let verdict = match self.verdict {
            Verdict::Satisfied => "Satisfied",
            Verdict::Unsatisfied => "Unsatisfied",
            Verdict::Undecided => "Undecided",
        };
        let mut all = json!({"verdict": verdict, "nodeName": self.node, "notes": self.notes});
        match &self.result {
            DecisionResult::Claims { allocations, nodes } => {
                all["allocations"] = json!(allocations);
                all["nodeResults"] = dump::ordered(nodes).into_iter().map(node_tree).collect();
            }
            DecisionResult::File { nodes, wording } => {
                let scored = nodes.iter().map(|node| {
                    let mut result = tree(node, *wording);
                    result["score"] = node.score.into();
                    result
                });
                all["nodeResults"] = scored.collect();
            }
        }
        if !self.explanation.is_empty() {
            all["explanation"] = json!(self.explanation);
        }
        all
    }
}

fn node_tree(node: &NodeResult) -> Value {
    let mut tree = json!({"nodeName": node.node_name});
    match &node.outcome {
        Outcome::Satisfied { score } => {
            tree["outcome"] = "Satisfied".into();
            tree["score"] = (*score).into();
        }
        Outcome::Unsatisfied { claims } => {
            tree["outcome"] = "Unsatisfied".into();
            tree["unsatisfiedClaims"] = json!(claims);
        }
        Outcome::Undecided => tree["outcome"] = "Undecided".into(),
    }
    tree["deviceClaimResults"] = json!(node.device_claim_results);
    tree
}

/// Returns the pools that specify no nodes, and so cannot be used.
fn unreachable_pools(pools: &[DevicePool]) -> Vec<String> {
    let nowhere = |pool: &&DevicePool| {
        let spec = &pool.spec;
        spec.node_name.is_none() && spec.node_selector.is_none() && !spec.all_nodes
    };
    let name = |pool: &DevicePool| pool.metadata.name.clone().unwrap_or_default();
    let told = |pool| format!("pool {}: pool is not associated with a node", name(pool));
    pools.iter().filter(nowhere).map(told).collect()
}
