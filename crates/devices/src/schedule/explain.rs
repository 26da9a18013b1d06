//! Explains why nodes, pools and devices are refused, in sentences.

use crate::problem::{
    AllocationOutcome, Alternative, AlternativeReport, Inventory, Node, PoolDevices, PoolReport,
    Request, TermReport, Undecided, UnsatisfiableReport,
};
use crate::report;

/// Returns a line for each node, by name, and below it for each claim, pool and device that is a
/// reason.
pub(super) fn explain(
    inventory: &Inventory,
    request: &Request,
    answers: &[(usize, AllocationOutcome)],
    chosen: Option<&str>,
) -> Vec<String> {
    let nodes = inventory.nodes();
    let mut answers: Vec<(&Node, &AllocationOutcome)> =
        answers.iter().filter_map(|(at, answer)| Some((nodes.get(*at)?, answer))).collect();
    answers.sort_by(|(one, _), (two, _)| one.name.cmp(&two.name));
    let mut lines = Vec::new();
    if answers.is_empty() {
        lines.push("there are no nodes".to_owned());
    }
    for (node, answer) in answers {
        let name = &node.name;
        lines.push(match answer {
            AllocationOutcome::Allocated(allocation) => {
                let fate = match chosen == Some(name.as_str()) {
                    true => "is chosen",
                    false => "is feasible, but another node is chosen",
                };
                format!(
                    "node {name} {fate}: it satisfies all claims with score {}",
                    allocation.score
                )
            }
            AllocationOutcome::Unsatisfiable(report) => {
                let failed = unsatisfied_claims(request, report).join(", ");
                format!("node {name} is refused: it cannot satisfy {failed}")
            }
            AllocationOutcome::Indeterminate(why) => {
                let why = match why {
                    Undecided::Steps(steps) => {
                        format!("the search was given up after {steps} steps")
                    }
                    Undecided::TooLarge => "it has more devices than are searched".to_owned(),
                    Undecided::Stopped => "the search was stopped".to_owned(),
                };
                format!("node {name} is undecided: {why}")
            }
        });
        let unsatisfied = match answer {
            AllocationOutcome::Unsatisfiable(report) => Some(report),
            AllocationOutcome::Allocated(_) | AllocationOutcome::Indeterminate(_) => None,
        };
        let told = Explainer { inventory, node, request, unsatisfied };
        for term in report::terms(inventory, node, request) {
            told.term(&term, &mut lines);
        }
    }
    lines
}

/// Returns the claims that a node cannot satisfy beside those before them.
fn unsatisfied_claims(request: &Request, report: &UnsatisfiableReport) -> Vec<String> {
    let claims = request.claims.iter().zip(&report.claims);
    claims.filter(|(_, fits)| **fits != Some(true)).map(|(claim, _)| claim.name.clone()).collect()
}

struct Explainer<'a> {
    inventory: &'a Inventory,
    node: &'a Node,
    request: &'a Request,
    unsatisfied: Option<&'a UnsatisfiableReport>,
}

impl Explainer<'_> {
    fn term(&self, term: &TermReport, lines: &mut Vec<String>) {
        let TermReport { claim: claim_at, term: at, alternatives } = term;
        let Some(claim) = self.request.claims.get(*claim_at) else { return };
        let Some(asked) = claim.terms.get(*at) else { return };
        let name = match claim.terms.len() {
            1 => claim.name.clone(),
            _ => format!("{}/{}", claim.name, asked.name),
        };
        for (way, (asked, found)) in asked.alternatives.iter().zip(alternatives).enumerate() {
            let of = match alternatives.len() {
                1 => format!("claim {name}"),
                _ => format!("claim {name}, alternative {}", way + 1),
            };
            let there: u64 = found.pools.iter().map(|pool| self.devices(pool)).sum();
            let AlternativeReport { wanted, candidates, pools } = found;
            let needs = format!("{of} needs {}", count(*wanted));
            let have = match (candidates < wanted, self.failed(*claim_at)) {
                (true, _) => format!("only {candidates} of {there} here qualify"),
                (false, false) => format!("{candidates} of {there} here qualify"),
                (false, true) => format!(
                    "{candidates} of {there} here qualify, but no choice of them satisfies \
                     everything at once{}",
                    self.group_conditions(*claim_at, asked)
                ),
            };
            lines.push(format!("  {needs}; {have}"));
            for pool in pools {
                self.pool(pool, lines);
            }
        }
    }

    fn failed(&self, claim: usize) -> bool {
        let told = self.unsatisfied.and_then(|report| report.claims.get(claim));
        told.is_some_and(|fits| *fits != Some(true))
    }

    /// Describes why devices that qualify individually cannot be combined.
    fn group_conditions(&self, claim: usize, asked: &Alternative) -> String {
        let claim = &self.request.claims[claim];
        let mut why = Vec::new();
        let same: Vec<&str> = claim
            .match_attributes
            .iter()
            .chain(&asked.match_attributes)
            .map(String::as_str)
            .collect();
        if !same.is_empty() {
            why.push(format!("they must have the same {}", same.join(" and ")));
        }
        let different: Vec<&str> = claim
            .distinct_attributes
            .iter()
            .chain(&asked.distinct_attributes)
            .map(String::as_str)
            .collect();
        if !different.is_empty() {
            why.push(format!("each must have another {}", different.join(" and ")));
        }
        let rules = [&asked.topologies, &claim.topologies, &self.request.topologies];
        if rules.iter().any(|rules| !rules.is_empty()) {
            why.push("topologies are required".to_owned());
        }
        if !asked.draws.is_empty() {
            why.push("their capacities may not suffice".to_owned());
        }
        let pools = self.node.pools.iter().filter_map(|at| self.inventory.pools().get(*at));
        if pools.into_iter().any(|pool| !pool.resources.is_empty()) {
            why.push("they share resources of their pool".to_owned());
        }
        let terms: usize = self.request.claims.iter().map(|claim| claim.terms.len()).sum();
        if terms > 1 {
            why.push("other entries of the pod need devices too".to_owned());
        }
        if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) }
    }

    fn devices(&self, report: &PoolReport) -> u64 {
        match self.inventory.pools().get(report.pool).map(|pool| &pool.devices) {
            Some(PoolDevices::Listed(devices)) => devices.len() as u64,
            Some(PoolDevices::Counted(counted)) => u64::from(counted.count),
            None => 0,
        }
    }

    fn pool(&self, report: &PoolReport, lines: &mut Vec<String>) {
        let Some(pool) = self.inventory.pools().get(report.pool) else { return };
        let (name, there) = (&pool.name, self.devices(report));
        let told = match &report.reason {
            Some(reason) => {
                let all = report.devices.iter().all(|device| device.reason == *reason);
                lines.push(format!("    pool {name}: none of {}: {reason}", count(there)));
                all
            }
            None => {
                if there > report.candidates {
                    let fit = report.candidates;
                    lines.push(format!("    pool {name}: {fit} of {}", count(there)));
                }
                false
            }
        };
        let PoolDevices::Listed(devices) = &pool.devices else { return };
        for refused in report.devices.iter().filter(|_| !told) {
            if let Some(device) = devices.get(refused.device) {
                lines.push(format!("      device {}: {}", device.name, refused.reason));
            }
        }
    }
}

fn count(devices: u64) -> String {
    match devices {
        1 => "1 device".to_owned(),
        several => format!("{several} devices"),
    }
}
