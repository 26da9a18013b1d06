//! The question put to every node, and what came of it.

use gantry_api::devices::{DeviceAllocation, DevicePool, PodCapacityClaim};
use gantry_api::yaml::WriteError;
use serde_json::{Value, json};

use super::explain::explain;
use super::objects::Objects;
use super::wishes::{Wishes, of_every_claim, of_pod};
use crate::constraint::Constraints;
use crate::dump::file::{FileQuestion, FileResult, Standing, Wording, file_result, tree};
use crate::dump::{self, NodeResult, Outcome, node_result};
use crate::lower::{Catalog, ClaimError, ResolveError, Snapshot, allocations};
use crate::problem::{Answer, Budget, Request};
use crate::{Offer, Packing, allocate, choose};

/// For whom devices are looked for.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// For every claim that has none yet, all together.
    Claims,
    /// For a pod.
    Pod {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// For the claims of a pod in the oldest files.
    CapacityClaim(&'a PodCapacityClaim),
}

/// How it is answered.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to search on each node.
    pub steps: u64,
    /// Whether to say why nodes, pools and devices are refused.
    pub explain: bool,
    /// What devices are called in answers about the oldest files.
    pub wording: Wording,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: Budget::STEPS, explain: false, wording: Wording::default() }
    }
}

/// Why a question cannot be put.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskedError {
    /// There is no such pod.
    #[error("there is no pod {0}")]
    NoPod(String),
    /// What the pod says about devices cannot be read.
    #[error("pod {pod} is invalid: {problems}")]
    Carrier {
        /// The pod.
        pod: String,
        /// What is wrong.
        problems: String,
    },
    /// The object with what the pod says about devices is missing.
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

/// What came of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Whether anybody gets anything.
    pub verdict: Verdict,
    /// The node that is chosen.
    pub node: Option<String>,
    /// What should be known besides, a sentence each.
    pub notes: Vec<String>,
    /// Why nodes, pools and devices are refused, if that was asked for.
    pub explanation: Vec<String>,
    found: Found,
}

/// Whether claims are satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of them, on some node.
    Satisfied,
    /// On no node all of them.
    Unsatisfied,
    /// On no node that is known; on some the search ended before it knew.
    Undecided,
}

#[derive(Clone, Debug, PartialEq)]
enum Found {
    Claims { allocations: Option<Vec<DeviceAllocation>>, nodes: Vec<NodeResult> },
    File { nodes: Vec<FileResult>, wording: Wording },
}

/// Looks for devices, on every node.
///
/// # Errors
/// Something that is asked for is missing or contradicts itself, whatever devices there are.
pub fn decide(
    objects: &Objects,
    asked: Asked<'_>,
    options: &Options,
) -> Result<Decision, AskedError> {
    let catalog = Catalog::new(objects.source, &objects.drivers, &objects.classes);
    let constraints = Constraints::default();
    let nodes = objects.all_nodes();
    let mut snapshot = objects.snapshot(&catalog);
    let mut notes = unreachable(&objects.pools);
    notes.extend(snapshot.lost.iter().map(|lost| {
        let device = lost.device.as_ref().map(|name| format!(", device {name}"));
        let device = device.unwrap_or_default();
        format!("pool {}{device}: held, and not published any more", lost.pool)
    }));
    let wishes = match asked {
        Asked::Claims => of_every_claim(objects),
        Asked::Pod { namespace, name } => of_pod(objects, namespace, name)?,
        Asked::CapacityClaim(_) => Wishes::default(),
    };
    let lowered = match asked {
        Asked::CapacityClaim(pod) => snapshot.file_request(&catalog, &constraints, pod)?,
        Asked::Claims | Asked::Pod { .. } => {
            snapshot.request(&catalog, &constraints, &wishes.wanted())?
        }
    };
    notes.extend(wishes.notes.iter().cloned());
    notes.extend(lowered.notes.iter().map(ToString::to_string));
    let open: Vec<usize> = (0..nodes.len()).filter(|at| wishes.admit(&nodes[*at])).collect();
    let budget = Budget { steps: options.steps, stop: None };
    let request = &lowered.request;
    let answers: Vec<(usize, Answer)> =
        open.iter().map(|at| (*at, allocate(&snapshot.inventory, *at, request, &budget))).collect();
    let mut decision = match asked {
        Asked::CapacityClaim(pod) => {
            let question = FileQuestion {
                inventory: &snapshot.inventory,
                pools: &objects.pools,
                request,
                pod,
                budget,
                wording: options.wording,
            };
            of_file(open.iter().map(|at| file_result(&question, *at)).collect(), options.wording)
        }
        Asked::Claims | Asked::Pod { .. } => of_claims(&snapshot, request, &answers, &budget),
    };
    decision.notes = notes;
    if options.explain {
        let chosen = decision.node.as_deref();
        decision.explanation = explain(&snapshot.inventory, request, &answers, chosen);
    }
    Ok(decision)
}

fn of_claims(
    snapshot: &Snapshot,
    request: &Request,
    answers: &[(usize, Answer)],
    budget: &Budget<'_>,
) -> Decision {
    let inventory = &snapshot.inventory;
    let offers: Vec<Offer> =
        answers.iter().map(|(node, _)| Offer { node: *node, load: 0 }).collect();
    let chosen = choose(inventory, &offers, request, Packing::Tight, budget);
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
        found: Found::Claims {
            allocations: given.filter(|given| !given.is_empty()),
            nodes: nodes.collect(),
        },
    }
}

fn of_file(nodes: Vec<FileResult>, wording: Wording) -> Decision {
    let best = dump::file::best(&nodes).map(|node| node.node_name.clone());
    let undecided = nodes.iter().any(|node| node.standing == Standing::Undecided);
    Decision {
        verdict: match (&best, undecided) {
            (Some(_), _) => Verdict::Satisfied,
            (None, false) => Verdict::Unsatisfied,
            (None, true) => Verdict::Undecided,
        },
        node: best,
        notes: Vec::new(),
        explanation: Vec::new(),
        found: Found::File { nodes, wording },
    }
}

impl Decision {
    /// What the original printed, and the explanation after it.
    ///
    /// # Errors
    /// If something cannot be written as YAML.
    pub fn text(&self, verbose: bool) -> Result<String, WriteError> {
        let mut text = match &self.found {
            Found::Claims { allocations, nodes } => match verbose {
                false => dump::normal(allocations.as_deref(), nodes)?,
                true => dump::verbose(allocations.as_deref(), nodes)?,
            },
            Found::File { nodes, wording } => dump::file::answer(nodes, verbose, *wording)?,
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

    /// Everything, for other programs.
    #[must_use]
    pub fn tree(&self) -> Value {
        let verdict = match self.verdict {
            Verdict::Satisfied => "Satisfied",
            Verdict::Unsatisfied => "Unsatisfied",
            Verdict::Undecided => "Undecided",
        };
        let mut all = json!({"verdict": verdict, "nodeName": self.node, "notes": self.notes});
        match &self.found {
            Found::Claims { allocations, nodes } => {
                all["allocations"] = json!(allocations);
                all["nodeResults"] = dump::ordered(nodes).into_iter().map(node_tree).collect();
            }
            Found::File { nodes, wording } => {
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

/// Pools that say nothing of nodes, which nobody can use.
fn unreachable(pools: &[DevicePool]) -> Vec<String> {
    let nowhere = |pool: &&DevicePool| {
        let spec = &pool.spec;
        spec.node_name.is_none() && spec.node_selector.is_none() && !spec.all_nodes
    };
    let name = |pool: &DevicePool| pool.metadata.name.clone().unwrap_or_default();
    let told = |pool| format!("pool {}: pool is not associated with a node", name(pool));
    pools.iter().filter(nowhere).map(told).collect()
}
