//! Budgets for disruptions: how many pods may be missing at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Key, Kind, Note, Part, Plan, Reference, Step, Uid, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::view::{
    Condition, Deployment, Pod, PodDisruptionBudget, ReplicaSet, ReplicationController, Rounding,
    Share, StatefulSet, Truth,
};
use gantry_pods::said::{Said, say};

/// How long a pod that was told to go may still be there.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// Keeps what is left of budgets up to date.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budgets;

impl Budgets {
    /// The account it acts as.
    pub const ACCOUNT: &str = "disruption-controller";
}

impl Controller for Budgets {
    fn name(&self) -> &'static str {
        "disruption"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<PodDisruptionBudget>(),
            Kind::of::<Pod>(),
            Kind::of::<ReplicaSet>(),
            Kind::of::<ReplicationController>(),
            Kind::of::<Deployment>(),
            Kind::of::<StatefulSet>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<PodDisruptionBudget>() {
            return vec![change.key.clone()];
        }
        let budgets = world.shelf::<PodDisruptionBudget>().within(change.key.namespace());
        let concerned = |budget: &&Arc<PodDisruptionBudget>| match change.is::<Pod>() {
            true => change.both::<Pod>().any(|pod| selects(budget, pod)),
            false => true,
        };
        if !counts_differently(change) {
            return Vec::new();
        }
        budgets.iter().filter(concerned).map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// Whether anything changed that budgets are counted by.
fn counts_differently(change: &Change) -> bool {
    if let (Some(before), Some(after)) = (change.before::<Pod>(), change.after::<Pod>()) {
        return before.metadata.labels != after.metadata.labels
            || before.metadata.uid != after.metadata.uid
            || before.metadata.is_going() != after.metadata.is_going()
            || before.is_ready() != after.is_ready()
            || before.metadata.owner_references != after.metadata.owner_references;
    }
    let scale = |it: Option<&Deployment>| it.map(|it| it.spec.replicas);
    let size = |it: Option<&ReplicaSet>| it.map(|it| it.spec.replicas);
    let copies = |it: Option<&ReplicationController>| it.map(|it| it.spec.replicas);
    let parts = |it: Option<&StatefulSet>| it.map(|it| it.spec.replicas);
    change.is::<Pod>()
        || parts(change.before()) != parts(change.after())
        || scale(change.before()) != scale(change.after())
        || size(change.before()) != size(change.after())
        || copies(change.before()) != copies(change.after())
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
}

/// What decides about one budget.
#[derive(Clone, Debug)]
pub struct BudgetSeen {
    /// The budget.
    pub budget: Arc<PodDisruptionBudget>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// How many pods those who made them want in all, or why that is not known.
    pub scale: Result<i64, String>,
    /// The time.
    pub now: Timestamp,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<BudgetSeen> {
    let budget = world.shelf::<PodDisruptionBudget>().get(key)?;
    let mut pods = world.shelf::<Pod>().within(key.namespace());
    pods.retain(|pod| selects(&budget, pod));
    let scale = scale(world, key, &pods);
    Some(BudgetSeen { budget, pods, scale, now })
}

/// How many pods are wanted by all who made these.
fn scale(world: &World, key: &Key, pods: &[Arc<Pod>]) -> Result<i64, String> {
    let mut makers: BTreeMap<Uid, i64> = BTreeMap::new();
    let mut asked: BTreeSet<Uid> = BTreeSet::new();
    for pod in pods {
        let Some(owner) = pod.metadata.controller() else { continue };
        if !asked.insert(owner.uid.clone()) {
            continue;
        }
        let unknown = || format!("found no controllers for pod {:?}", pod.metadata.name);
        let (uid, wanted) = match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = world.shelf::<ReplicaSet>().get(&key.beside(&owner.name));
                let set = set.filter(|it| it.metadata.uid == owner.uid).ok_or_else(unknown)?;
                let above = set.metadata.controller().filter(|it| it.kind == "Deployment");
                match above {
                    None => (set.metadata.uid.clone(), set.spec.replicas),
                    Some(above) => {
                        let deployment = world.shelf::<Deployment>().get(&key.beside(&above.name));
                        let deployment = deployment.filter(|it| it.metadata.uid == above.uid);
                        let deployment = deployment.ok_or_else(unknown)?;
                        (deployment.metadata.uid.clone(), deployment.spec.replicas)
                    }
                }
            }
            "ReplicationController" => {
                let set = world.shelf::<ReplicationController>().get(&key.beside(&owner.name));
                let set = set.filter(|it| it.metadata.uid == owner.uid).ok_or_else(unknown)?;
                (set.metadata.uid.clone(), set.spec.replicas)
            }
            "StatefulSet" => {
                let set = world.shelf::<StatefulSet>().get(&key.beside(&owner.name));
                let set = set.filter(|it| it.metadata.uid == owner.uid).ok_or_else(unknown)?;
                (set.metadata.uid.clone(), set.spec.replicas)
            }
            "Job" | "DaemonSet" => {
                return Err(format!(
                    "{} does not implement the scale subresource",
                    resource(&owner.kind)
                ));
            }
            _ => return Err(unknown()),
        };
        makers.insert(uid, wanted);
    }
    Ok(makers.values().sum())
}

fn resource(kind: &str) -> &'static str {
    if kind == "Job" { "jobs.batch" } else { "daemonsets.apps" }
}

/// How many pods there should be and how many must be healthy.
fn demands(seen: &BudgetSeen) -> Result<(i64, i64), String> {
    let spec = &seen.budget.spec;
    let part = |share: &Share, whole: i64| {
        let wrong =
            || "invalid value for IntOrString: invalid type: string is not a percentage".to_owned();
        share.of(whole, Rounding::Up).ok_or_else(wrong)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = seen.scale.clone()?;
            Ok((expected, (expected - part(most, expected)?).max(0)))
        }
        (None, Some(Share::Number(least))) => Ok((count(seen.pods.len()), *least)),
        (None, Some(least @ Share::Percent(_))) => {
            let expected = seen.scale.clone()?;
            Ok((expected, part(least, expected)?))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// Says what is left of a budget.
#[must_use]
pub fn plan(seen: &BudgetSeen) -> Plan {
    let mut plan = Plan::default();
    let budget = &seen.budget;
    let about = Reference::to(&PodDisruptionBudget::RESOURCE, &budget.metadata);
    let mut next = budget.status.clone();
    let note = match demands(seen) {
        Err(why) => {
            // Nobody may go while it is not known how many are needed.
            next.disruptions_allowed = 0;
            set(
                &mut next.conditions,
                Truth::False,
                "SyncFailed",
                &why,
                next.observed_generation,
                seen.now,
            );
            let words = format!("Failed to calculate the number of expected pods: {why}");
            Some(Note::warning(about, "CalculateExpectedPodCountFailed", words))
        }
        Ok((expected, desired)) => {
            next.disrupted_pods = disrupted(seen, &mut plan);
            next.current_healthy = healthy(seen, &next.disrupted_pods);
            (next.expected_pods, next.desired_healthy) = (expected, desired);
            let left = next.current_healthy - desired;
            next.disruptions_allowed = if expected > 0 { left.max(0) } else { 0 };
            next.observed_generation = budget.metadata.generation;
            let (truth, reason) = match next.disruptions_allowed {
                0 => (Truth::False, "InsufficientPods"),
                _ => (Truth::True, "SufficientPods"),
            };
            set(&mut next.conditions, truth, reason, "", next.observed_generation, seen.now);
            remark(seen, about)
        }
    };
    if next == budget.status {
        return plan;
    }
    let gone = budget.status.disrupted_pods.keys();
    let mut disrupted: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
    disrupted
        .extend(next.disrupted_pods.iter().map(|(name, at)| (name.clone(), json!(at.to_string()))));
    let write = Write::Merge {
        resource: PodDisruptionBudget::RESOURCE,
        key: budget.metadata.key(),
        part: Part::Status,
        fence: budget.metadata.fence(),
        body: json!({"status": {
            "disruptionsAllowed": next.disruptions_allowed,
            "currentHealthy": next.current_healthy,
            "desiredHealthy": next.desired_healthy,
            "expectedPods": next.expected_pods,
            "disruptedPods": disrupted,
            "observedGeneration": next.observed_generation,
            "conditions": next.conditions.iter().map(spell).collect::<Vec<_>>(),
        }}),
    };
    let mut step = Step::new(write);
    step.done.extend(note);
    plan.steps.push(step);
    plan
}

/// What is worth telling of the pods of a budget.
fn remark(seen: &BudgetSeen, about: Reference) -> Option<Note> {
    let spec = &seen.budget.spec;
    if seen.pods.is_empty() {
        return Some(Note::normal(about, "NoPods", "No matching pods found".to_owned()));
    }
    let by_number =
        matches!(spec.min_available, Some(Share::Number(_))) && spec.max_unavailable.is_none();
    let unmanaged = seen.pods.iter().any(|pod| pod.metadata.controller().is_none());
    if by_number || !unmanaged {
        return None;
    }
    let labels = spec.selector.iter().flat_map(|it| &it.match_labels);
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let words = format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    );
    Some(Note::warning(about, "UnmanagedPods", words))
}

/// The pods that were told to go and are still there, without those that nobody expects to go any
/// more.
fn disrupted(seen: &BudgetSeen, plan: &mut Plan) -> BTreeMap<String, Timestamp> {
    let mut left = BTreeMap::new();
    for pod in seen.pods.iter().filter(|pod| !pod.metadata.is_going()) {
        let Some(at) = seen.budget.status.disrupted_pods.get(&pod.metadata.name) else { continue };
        let until = at.checked_add(PATIENCE).unwrap_or(*at);
        if until < seen.now {
            let meta = &seen.budget.metadata;
            let words = format!(
                "Pod was expected by PDB {}/{} to be deleted but it wasn't",
                meta.namespace, meta.name
            );
            let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
            plan.notes.push(Note::warning(about, "NotDeleted", words));
        } else {
            // A moment later, because until then it is still expected.
            plan.look_at(
                until.checked_add(SignedDuration::from_millis(1)).unwrap_or(until),
                seen.now,
            );
            left.insert(pod.metadata.name.clone(), *at);
        }
    }
    left
}

fn healthy(seen: &BudgetSeen, disrupted: &BTreeMap<String, Timestamp>) -> i64 {
    let healthy = seen.pods.iter().filter(|pod| {
        pod.is_ready() && !pod.metadata.is_going() && !disrupted.contains_key(&pod.metadata.name)
    });
    count(healthy.count())
}

fn set(
    conditions: &mut Vec<Condition>,
    status: Truth,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    const KIND: &str = "DisruptionAllowed";
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let old = conditions.iter().position(|it| it.kind == KIND);
    let since = old.map(|at| &conditions[at]).filter(|it| it.status == status);
    let condition = Condition {
        kind: KIND.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.map_or(Some(now), |it| it.last_transition_time),
        observed_generation: Some(generation).filter(|it| *it > 0),
        ..Condition::default()
    };
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

fn spell(condition: &Condition) -> Value {
    let mut text = json!({
        "type": condition.kind, "status": condition.status.as_str(),
        "lastTransitionTime": condition.last_transition_time.map(|it| it.to_string()),
        "reason": condition.reason, "message": condition.message,
    });
    if let Some(generation) = condition.observed_generation {
        text["observedGeneration"] = json!(generation);
    }
    text
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Takes back that a pod is to go when it stays nonetheless.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaleDisruptions;

impl StaleDisruptions {
    /// The account it acts as.
    pub const ACCOUNT: &str = "disruption-controller";
}

impl Controller for StaleDisruptions {
    fn name(&self) -> &'static str {
        "stale-disruption"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let marked = change.after::<Pod>().is_some_and(|pod| marked_at(pod).is_some());
        marked.then(|| change.key.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        let Some(at) = marked_at(&pod) else { return plan };
        let until = at.checked_add(PATIENCE).unwrap_or(at);
        if until > now {
            plan.look_at(until, now);
        } else {
            let stays = Said {
                kind: "DisruptionTarget",
                status: Truth::False,
                reason: String::new(),
                message: String::new(),
            };
            plan.write(say(&pod, Some(&stays), None, now));
        }
        plan
    }
}

/// Since when a pod that is not going is said to go; its own node may take as long as it likes.
fn marked_at(pod: &Pod) -> Option<Timestamp> {
    if pod.metadata.is_going() || pod.is_over() {
        return None;
    }
    let said = pod.condition("DisruptionTarget").filter(|it| it.status == Truth::True)?;
    if said.reason == "TerminationByKubelet" { None } else { said.last_transition_time }
}

#[cfg(test)]
mod tests;
