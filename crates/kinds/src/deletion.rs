//! Computes the grace period, the propagation policy and the finalizers of a deletion.

use serde_json::Value;

use crate::behaviour::{Behaviour, Propagation};
use crate::tree::{int, is_set, list, text};

/// The finalizer of an object whose dependents must be orphaned first.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// The finalizer of an object whose dependents must be deleted first.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Returns the grace period of a deletion in seconds: the requested one, or the object's own.
/// `None` for kinds without a grace period.
///
/// A pod that is not bound or has ended has a period of zero.
#[must_use]
pub fn grace_period(object: &Value, asked: Option<i64>, behaviour: &Behaviour) -> Option<i64> {
    if !behaviour.is_graceful() {
        return None;
    }
    let own = int(object, "spec.terminationGracePeriodSeconds");
    let period = asked.or(own).unwrap_or(30);
    if text(object, "spec.nodeName").is_empty()
        || matches!(text(object, "status.phase"), "Succeeded" | "Failed")
    {
        return Some(0);
    }
    // A negative number does not mean "immediately": that needs a zero.
    Some(if period < 0 { 1 } else { period })
}

/// Returns the propagation policy of a deletion that names none.
///
/// Finalizers that the object already has take precedence over the kind's default.
#[must_use]
pub fn propagation_policy(
    object: &Value,
    asked: Option<Propagation>,
    behaviour: &Behaviour,
) -> Propagation {
    let has = |name: &str| list(object, "metadata.finalizers").iter().any(|it| it == name);
    match asked {
        Some(policy) => policy,
        None if has(ORPHAN_FINALIZER) => Propagation::Orphan,
        None if has(FOREGROUND_FINALIZER) => Propagation::Foreground,
        None => behaviour.default_propagation,
    }
}

/// Returns the finalizers of an object once a deletion with this policy has begun.
#[must_use]
pub fn finalizers_for_policy(object: &Value, policy: Propagation) -> Vec<String> {
    let all = list(object, "metadata.finalizers").iter().filter_map(Value::as_str);
    let own = |name: &str| name == ORPHAN_FINALIZER || name == FOREGROUND_FINALIZER;
    let mut kept: Vec<String> = all.filter(|name| !own(name)).map(str::to_owned).collect();
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => kept.push(FOREGROUND_FINALIZER.to_owned()),
        Propagation::Orphan => kept.push(ORPHAN_FINALIZER.to_owned()),
    }
    kept
}

/// Returns the warning for a deletion without a policy.
#[must_use]
pub fn propagation_warning(
    group: &str,
    resource: &str,
    asked: Option<Propagation>,
) -> Option<&'static str> {
    let silent = asked.is_none() && (group, resource) == ("batch", "jobs");
    silent.then_some(
        "child pods are preserved by default when jobs are deleted; set \
         propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
         this warning",
    )
}

/// Returns whether an update that leaves this object behind removes it.
#[must_use]
pub fn is_ready_for_removal(object: &Value) -> bool {
    is_set(object, "metadata.deletionTimestamp")
        && list(object, "metadata.finalizers").is_empty()
        && int(object, "metadata.deletionGracePeriodSeconds").unwrap_or_default() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::behaviour;
    use serde_json::json;

    #[test]
    fn only_running_pods_get_grace() {
        let pod = |spec: Value, phase: &str| json!({ "spec": spec, "status": { "phase": phase } });
        let own = json!({ "nodeName": "n", "terminationGracePeriodSeconds": 7 });
        let table = [
            ("its own period", pod(own.clone(), "Running"), None, Some(7)),
            ("what is asked for", pod(own.clone(), "Running"), Some(5), Some(5)),
            ("at once", pod(own.clone(), "Running"), Some(0), Some(0)),
            ("never negative", pod(own.clone(), "Running"), Some(-3), Some(1)),
            ("ended", pod(own.clone(), "Failed"), Some(5), Some(0)),
            ("unscheduled", pod(json!({}), "Pending"), Some(5), Some(0)),
            ("by default", pod(json!({ "nodeName": "n" }), "Pending"), None, Some(30)),
        ];
        for (why, object, asked, expected) in table {
            assert_eq!(grace_period(&object, asked, behaviour("", "pods")), expected, "{why}");
        }
        assert_eq!(grace_period(&pod(own, "Running"), Some(5), behaviour("", "nodes")), None);
    }

    #[test]
    fn a_policy_replaces_the_finalizer_of_another() {
        use Propagation::{Background, Foreground, Orphan};
        let object = json!({ "metadata": { "finalizers": ["a.test/b", "orphan"] } });
        assert_eq!(finalizers_for_policy(&object, Background), ["a.test/b"]);
        assert_eq!(finalizers_for_policy(&object, Foreground), ["a.test/b", "foregroundDeletion"]);
        assert_eq!(finalizers_for_policy(&object, Orphan), ["a.test/b", "orphan"]);
        let fresh = json!({});
        assert_eq!(propagation_policy(&fresh, None, behaviour("batch", "jobs")), Orphan);
        assert_eq!(propagation_policy(&fresh, None, behaviour("apps", "deployments")), Background);
        assert_eq!(
            propagation_policy(&fresh, Some(Foreground), behaviour("batch", "jobs")),
            Foreground
        );
        assert_eq!(propagation_policy(&object, None, behaviour("apps", "deployments")), Orphan);
        assert!(propagation_warning("batch", "jobs", None).is_some());
        assert!(propagation_warning("batch", "jobs", Some(Orphan)).is_none());
        assert!(propagation_warning("batch", "cronjobs", None).is_none());
    }

    #[test]
    fn removal_waits_for_finalizers() {
        let object = |finalizers: Value, grace: Value| {
            json!({ "metadata": { "deletionTimestamp": "t", "finalizers": finalizers,
                "deletionGracePeriodSeconds": grace } })
        };
        assert!(is_ready_for_removal(&object(json!([]), json!(0))));
        assert!(is_ready_for_removal(&object(json!(null), json!(null))));
        assert!(!is_ready_for_removal(&object(json!(["a.test/b"]), json!(0))));
        assert!(!is_ready_for_removal(&object(json!([]), json!(30))));
        assert!(!is_ready_for_removal(&json!({ "metadata": {} })));
    }
}
