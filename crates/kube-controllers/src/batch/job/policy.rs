//! Evaluates the pod failure policy and the success policy of a job.

use super::index_set::IndexSet;
use crate::view::{
    ConditionPattern, ContainerStatus, ExitCodes, Pod, PodFailurePolicy, PodFailurePolicyAction,
    SuccessPolicy,
};

/// The effect of a pod's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailureEffect {
    /// The failure counts towards the backoff limit.
    Counts,
    /// The failure does not count.
    Ignored,
    /// The failure counts, and the pod's index is not retried.
    FailsIndex,
    /// The failure counts, and the job fails with this message.
    FailsJob(String),
}

/// Returns the effect of the failure of `pod`: the first matching rule decides.
pub(super) fn match_failure_policy(policy: Option<&PodFailurePolicy>, pod: &Pod) -> FailureEffect {
    let rules = policy.into_iter().flat_map(|it| &it.rules).enumerate();
    for (at, rule) in rules {
        let place = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
        let why = if let Some(codes) = &rule.on_exit_codes {
            matching_exit_code(pod, codes).map(|(container, code)| {
                let rule = format!("matching FailJob rule at index {at}");
                format!("Container {container} for pod {place} failed with exit code {code} {rule}")
            })
        } else {
            matching_condition(pod, &rule.on_pod_conditions).map(|kind| {
                format!("Pod {place} has condition {kind} matching FailJob rule at index {at}")
            })
        };
        let Some(why) = why else { continue };
        match rule.action {
            PodFailurePolicyAction::FailJob => return FailureEffect::FailsJob(why),
            PodFailurePolicyAction::FailIndex => return FailureEffect::FailsIndex,
            PodFailurePolicyAction::Ignore => return FailureEffect::Ignored,
            PodFailurePolicyAction::Count => return FailureEffect::Counts,
            PodFailurePolicyAction::Unknown => {}
        }
    }
    FailureEffect::Counts
}

/// Returns the container that exited with one of these codes, and the code.
fn matching_exit_code<'a>(pod: &'a Pod, codes: &ExitCodes) -> Option<(&'a str, i64)> {
    let containers =
        pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let named = |it: &&ContainerStatus| codes.container_name.as_ref().is_none_or(|n| *n == it.name);
    let ended = containers.filter(named).filter_map(|it| {
        let code = it.state.terminated.as_ref()?.exit_code;
        Some((it.name.as_str(), code))
    });
    let meant = |code: i64| match codes.operator.as_str() {
        "In" => codes.values.contains(&code),
        "NotIn" => !codes.values.contains(&code),
        // An operator of a newer server: it matches nothing.
        _ => false,
    };
    let mut failed = ended.filter(|(_, code)| *code != 0);
    failed.find(|(_, code)| meant(*code))
}

fn matching_condition<'a>(pod: &'a Pod, patterns: &[ConditionPattern]) -> Option<&'a str> {
    let fits =
        |kind: &str, status| patterns.iter().any(|it| it.kind == kind && it.status == status);
    let mut conditions = pod.status.conditions.iter();
    conditions.find(|it| fits(&it.kind, it.status)).map(|it| it.kind.as_str())
}

/// Returns the message of the first success rule that these indexes meet.
pub(super) fn match_success_policy(
    policy: Option<&SuccessPolicy>,
    succeeded: &IndexSet,
    completions: u32,
) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rules = policy.into_iter().flat_map(|it| &it.rules);
    let met = rules.into_iter().position(|rule| {
        let (have, all) = match &rule.succeeded_indexes {
            Some(text) => {
                let wanted = IndexSet::parse(text, completions);
                (succeeded.intersection_len(&wanted), Some(wanted.len()).filter(|count| *count > 0))
            }
            None => (succeeded.len(), None),
        };
        // Indexes that cannot be parsed select nothing, and so are never met.
        let readable = rule.succeeded_indexes.is_none() || all.is_some();
        let enough = rule.succeeded_count.is_some_and(|count| have >= count);
        readable && (enough || all == Some(have))
    });
    met.map(|at| format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failed(codes: &[(&str, i64)], condition: &str) -> Pod {
        let state = |(name, code): &(&str, i64)| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let text = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "status": {
                "phase": "Failed",
                "containerStatuses": codes.iter().map(state).collect::<Vec<_>>(),
                "conditions": [{"type": condition, "status": "True"}],
            },
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let codes = |action: &str, operator: &str, values: &[i64], container: Option<&str>| {
            json!({
                "action": action,
                "onExitCodes": {"operator": operator, "values": values, "containerName": container},
            })
        };
        let condition = |action: &str, kind: &str| json!({"action": action, "onPodConditions": [{"type": kind, "status": "True"}]});
        let lost = || condition("Ignore", "DisruptionTarget");
        let because = |text: &str| FailureEffect::FailsJob(text.to_owned());
        let table = [
            ("no rules", vec![], failed(&[("a", 1)], ""), FailureEffect::Counts),
            (
                "a code that fails the job",
                vec![codes("FailJob", "In", &[42], None)],
                failed(&[("a", 0), ("b", 42)], ""),
                because(
                    "Container b for pod n/p failed with exit code 42 matching FailJob rule at index 0",
                ),
            ),
            (
                "success is never meant",
                vec![codes("FailJob", "NotIn", &[1], None)],
                failed(&[("a", 0)], ""),
                FailureEffect::Counts,
            ),
            (
                "another container",
                vec![codes("FailJob", "In", &[42], Some("a"))],
                failed(&[("b", 42)], ""),
                FailureEffect::Counts,
            ),
            (
                "all codes but one",
                vec![codes("FailIndex", "NotIn", &[1], None)],
                failed(&[("a", 2)], ""),
                FailureEffect::FailsIndex,
            ),
            (
                "the first decides",
                vec![lost(), codes("FailJob", "In", &[1], None)],
                failed(&[("a", 1)], "DisruptionTarget"),
                FailureEffect::Ignored,
            ),
            (
                "a condition that fails the job",
                vec![codes("Count", "In", &[7], None), condition("FailJob", "ConfigIssue")],
                failed(&[("a", 1)], "ConfigIssue"),
                because("Pod n/p has condition ConfigIssue matching FailJob rule at index 1"),
            ),
            (
                "counted on purpose",
                vec![codes("Count", "In", &[7], None), codes("FailJob", "In", &[7], None)],
                failed(&[("a", 7)], ""),
                FailureEffect::Counts,
            ),
            (
                "an unknown action",
                vec![codes("Dance", "In", &[7], None), codes("Ignore", "In", &[7], None)],
                failed(&[("a", 7)], ""),
                FailureEffect::Ignored,
            ),
        ];
        for (why, rules, pod, expected) in table {
            let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
            assert_eq!(match_failure_policy(Some(&policy), &pod), expected, "{why}");
        }
    }

    #[test]
    fn success_policies_are_applied() {
        let table: [(Value, &str, Option<usize>); 9] = [
            (json!([]), "0-9", None),
            (json!([{"succeededCount": 3}]), "0-2", Some(0)),
            (json!([{"succeededCount": 3}]), "0,1", None),
            (json!([{"succeededIndexes": "0,5"}]), "0-4", None),
            (json!([{"succeededIndexes": "0,5"}]), "0,5", Some(0)),
            (json!([{"succeededIndexes": "0-4", "succeededCount": 2}]), "3,4", Some(0)),
            (json!([{"succeededIndexes": "0-4", "succeededCount": 2}]), "4,5", None),
            (json!([{"succeededIndexes": "x"}, {"succeededCount": 1}]), "9", Some(1)),
            (json!([{"succeededCount": 0}]), "", None),
        ];
        for (rules, succeeded, expected) in table {
            let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
            let met = match_success_policy(Some(&policy), &IndexSet::parse(succeeded, 10), 10);
            let expected = expected.map(|at| format!("Matched rules at index {at}"));
            assert_eq!(met, expected, "{rules} {succeeded}");
        }
    }
}
