//! Pod disruption budgets: how many pods may be unavailable at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, Uid, View,
    World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::view::{
    Condition, ConditionStatus, Deployment, IntOrPercent, Pod, PodDisruptionBudget, ReplicaSet,
    ReplicationController, Rounding, StatefulSet,
};
use gantry_pods::pod_condition::{PodConditionUpdate, update_pod_status};

/// How long a disrupted pod may take to be deleted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// Updates the status of pod disruption budgets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisruptionController;

impl DisruptionController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "disruption-controller";
}

impl Controller for DisruptionController {
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
        let budgets = world.store::<PodDisruptionBudget>().in_namespace(change.key.namespace());
        let concerned = |budget: &&Arc<PodDisruptionBudget>| match change.is::<Pod>() {
            true => change.both::<Pod>().any(|pod| selects(budget, pod)),
            false => true,
        };
        if !affects_budgets(change) {
            return Vec::new();
        }
        budgets.iter().filter(concerned).map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

/// Returns whether a change affects the counts of budgets.
fn affects_budgets(change: &Change) -> bool {
    if let (Some(before), Some(after)) = (change.before::<Pod>(), change.after::<Pod>()) {
        return before.metadata.labels != after.metadata.labels
            || before.metadata.uid != after.metadata.uid
            || before.metadata.is_terminating() != after.metadata.is_terminating()
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

/// The inputs of the decision about one budget.
#[derive(Clone, Debug)]
pub struct ObservedBudget {
    /// The budget.
    pub budget: Arc<PodDisruptionBudget>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The number of pods that their controllers want in all, or why that is unknown.
    pub scale: Result<i64, String>,
    /// The current time.
    pub now: Timestamp,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<ObservedBudget> {
    let budget = world.store::<PodDisruptionBudget>().get(key)?;
    let mut pods = world.store::<Pod>().in_namespace(key.namespace());
    pods.retain(|pod| selects(&budget, pod));
    let scale = expected_scale(world, key, &pods);
    Some(ObservedBudget { budget, pods, scale, now })
}

/// Returns how many pods the controllers of these pods want in all.
fn expected_scale(world: &World, key: &Key, pods: &[Arc<Pod>]) -> Result<i64, String> {
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
                let set = world.store::<ReplicaSet>().get(&key.in_same_namespace(&owner.name));
                let set = set.filter(|it| it.metadata.uid == owner.uid).ok_or_else(unknown)?;
                let above = set.metadata.controller().filter(|it| it.kind == "Deployment");
                match above {
                    None => (set.metadata.uid.clone(), set.spec.replicas),
                    Some(above) => {
                        let deployment =
                            world.store::<Deployment>().get(&key.in_same_namespace(&above.name));
                        let deployment = deployment.filter(|it| it.metadata.uid == above.uid);
                        let deployment = deployment.ok_or_else(unknown)?;
                        (deployment.metadata.uid.clone(), deployment.spec.replicas)
                    }
                }
            }
            "ReplicationController" => {
                let set =
                    world.store::<ReplicationController>().get(&key.in_same_namespace(&owner.name));
                let set = set.filter(|it| it.metadata.uid == owner.uid).ok_or_else(unknown)?;
                (set.metadata.uid.clone(), set.spec.replicas)
            }
            "StatefulSet" => {
                let set = world.store::<StatefulSet>().get(&key.in_same_namespace(&owner.name));
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

/// Returns how many pods there should be and how many must be healthy.
fn expected_and_desired_healthy(observed: &ObservedBudget) -> Result<(i64, i64), String> {
    let spec = &observed.budget.spec;
    let part = |share: &IntOrPercent, whole: i64| {
        let wrong =
            || "invalid value for IntOrString: invalid type: string is not a percentage".to_owned();
        share.of(whole, Rounding::Up).ok_or_else(wrong)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = observed.scale.clone()?;
            Ok((expected, (expected - part(most, expected)?).max(0)))
        }
        (None, Some(IntOrPercent::Number(least))) => Ok((count(observed.pods.len()), *least)),
        (None, Some(least @ IntOrPercent::Percent(_))) => {
            let expected = observed.scale.clone()?;
            Ok((expected, part(least, expected)?))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// Computes and writes the status of a budget.
#[must_use]
pub fn plan(observed: &ObservedBudget) -> Plan {
    let mut plan = Plan::default();
    let budget = &observed.budget;
    let about = ObjectReference::to(&PodDisruptionBudget::RESOURCE, &budget.metadata);
    let mut next = budget.status.clone();
    let note = match expected_and_desired_healthy(observed) {
        Err(why) => {
            // No pod may be evicted while it is unknown how many are needed.
            next.disruptions_allowed = 0;
            set_disruption_allowed(
                &mut next.conditions,
                ConditionStatus::False,
                "SyncFailed",
                &why,
                next.observed_generation,
                observed.now,
            );
            let words = format!("Failed to calculate the number of expected pods: {why}");
            Some(Event::warning(about, "CalculateExpectedPodCountFailed", words))
        }
        Ok((expected, desired)) => {
            next.disrupted_pods = disrupted_pods(observed, &mut plan);
            next.current_healthy = count_healthy(observed, &next.disrupted_pods);
            (next.expected_pods, next.desired_healthy) = (expected, desired);
            let left = next.current_healthy - desired;
            next.disruptions_allowed = if expected > 0 { left.max(0) } else { 0 };
            next.observed_generation = budget.metadata.generation;
            let (truth, reason) = match next.disruptions_allowed {
                0 => (ConditionStatus::False, "InsufficientPods"),
                _ => (ConditionStatus::True, "SufficientPods"),
            };
            set_disruption_allowed(
                &mut next.conditions,
                truth,
                reason,
                "",
                next.observed_generation,
                observed.now,
            );
            budget_event(observed, about)
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
        subresource: Subresource::Status,
        fence: budget.metadata.fence(),
        body: json!({"status": {
            "disruptionsAllowed": next.disruptions_allowed,
            "currentHealthy": next.current_healthy,
            "desiredHealthy": next.desired_healthy,
            "expectedPods": next.expected_pods,
            "disruptedPods": disrupted,
            "observedGeneration": next.observed_generation,
            "conditions": next.conditions.iter().map(condition_body).collect::<Vec<_>>(),
        }}),
    };
    let mut step = Step::new(write);
    step.success_events.extend(note);
    plan.steps.push(step);
    plan
}

/// Returns the event about the pods of a budget, if one is due.
fn budget_event(observed: &ObservedBudget, about: ObjectReference) -> Option<Event> {
    let spec = &observed.budget.spec;
    if observed.pods.is_empty() {
        return Some(Event::normal(about, "NoPods", "No matching pods found".to_owned()));
    }
    let by_number = matches!(spec.min_available, Some(IntOrPercent::Number(_)))
        && spec.max_unavailable.is_none();
    let unmanaged = observed.pods.iter().any(|pod| pod.metadata.controller().is_none());
    if by_number || !unmanaged {
        return None;
    }
    let labels = spec.selector.iter().flat_map(|it| &it.match_labels);
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let words = format!(
        "Pods selected by this PodDisruptionBudget (selector: \
         &LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}) \
         were found to be unmanaged. As a result, the status of the PDB cannot be calculated \
         correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    );
    Some(Event::warning(about, "UnmanagedPods", words))
}

/// Returns the disrupted pods that still exist, without those whose deletion has timed out.
fn disrupted_pods(observed: &ObservedBudget, plan: &mut Plan) -> BTreeMap<String, Timestamp> {
    let mut left = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| !pod.metadata.is_terminating()) {
        let Some(at) = observed.budget.status.disrupted_pods.get(&pod.metadata.name) else {
            continue;
        };
        let until = at.checked_add(DELETION_TIMEOUT).unwrap_or(*at);
        if until < observed.now {
            let meta = &observed.budget.metadata;
            let words = format!(
                "Pod was expected by PDB {}/{} to be deleted but it wasn't",
                meta.namespace, meta.name
            );
            let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
            plan.events.push(Event::warning(about, "NotDeleted", words));
        } else {
            // A moment after the timeout, because until then the deletion is still expected.
            plan.requeue_at(
                until.checked_add(SignedDuration::from_millis(1)).unwrap_or(until),
                observed.now,
            );
            left.insert(pod.metadata.name.clone(), *at);
        }
    }
    left
}

fn count_healthy(observed: &ObservedBudget, disrupted: &BTreeMap<String, Timestamp>) -> i64 {
    let healthy = observed.pods.iter().filter(|pod| {
        pod.is_ready()
            && !pod.metadata.is_terminating()
            && !disrupted.contains_key(&pod.metadata.name)
    });
    count(healthy.count())
}

fn set_disruption_allowed(
    conditions: &mut Vec<Condition>,
    status: ConditionStatus,
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

fn condition_body(condition: &Condition) -> Value {
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

/// Resets the condition `DisruptionTarget` of pods that were not deleted after all.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaleDisruptionController;

impl StaleDisruptionController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "disruption-controller";
}

impl Controller for StaleDisruptionController {
    fn name(&self) -> &'static str {
        "stale-disruption"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let marked =
            change.after::<Pod>().is_some_and(|pod| disruption_target_since(pod).is_some());
        marked.then(|| change.key.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return plan };
        let Some(at) = disruption_target_since(&pod) else { return plan };
        let until = at.checked_add(DELETION_TIMEOUT).unwrap_or(at);
        if until > now {
            plan.requeue_at(until, now);
        } else {
            let stays = PodConditionUpdate {
                kind: "DisruptionTarget",
                status: ConditionStatus::False,
                reason: String::new(),
                message: String::new(),
            };
            plan.write(update_pod_status(&pod, Some(&stays), None, now));
        }
        plan
    }
}

/// Returns since when a pod that is not terminating has had the condition; a kubelet's own
/// disruption may take any time.
fn disruption_target_since(pod: &Pod) -> Option<Timestamp> {
    if pod.metadata.is_terminating() || pod.is_terminal() {
        return None;
    }
    let said = pod.condition("DisruptionTarget").filter(|it| it.status == ConditionStatus::True)?;
    if said.reason == "TerminationByKubelet" { None } else { said.last_transition_time }
}

#[cfg(test)]
mod tests;
