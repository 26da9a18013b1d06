use serde_json::json;

use super::*;
use crate::config::document;
use crate::config::keys::{Effect, KEYS};
use crate::config::operator::merge_and_check;

fn reloaded(text: &str) -> ReloadedConfig {
    let (layer, report) = document::read(text, "f");
    match merge_and_check([&layer], report, &[]) {
        Ok(checked) => ReloadedConfig::Valid(Box::new(checked)),
        Err(report) => ReloadedConfig::Invalid(report),
    }
}

fn started(text: &str) -> ConfigTracker {
    match reloaded(text) {
        ReloadedConfig::Valid(checked) => ConfigTracker::new(&checked),
        other => panic!("{other:?}"),
    }
}

/// Summarizes a reload result.
fn summary(step: &ReloadResult) -> Vec<String> {
    let ReloadResult {
        applied,
        restart_required: waiting,
        reverted,
        warnings,
        unknown,
        problem: fault,
        recovered,
    } = step;
    let change = |what: &str, it: &Change| format!("{what} {} {} -> {}", it.key, it.old, it.new);
    let mut words: Vec<String> = Vec::new();
    words.extend(recovered.then(|| "recovered".to_owned()));
    words.extend(applied.iter().map(|it| change("applied", it)));
    words.extend(waiting.iter().map(|it| change("waits", it)));
    words.extend(reverted.iter().map(|it| change("back", it)));
    words.extend(warnings.iter().map(|it| format!("warning {it}")));
    words.extend(unknown.iter().map(|it| format!("unknown {it}")));
    words.extend(fault.iter().map(|it| match it {
        ConfigProblem::Invalid(errors) => {
            let errors: Vec<_> = errors.iter().map(|it| it.key.as_str()).collect();
            format!("refused {}", errors.join(", "))
        }
        ConfigProblem::Deleted { source } => format!("gone {source}"),
        ConfigProblem::Unreadable { why } => format!("unreadable {why}"),
    }));
    words
}

#[test]
fn each_reload_reports_only_what_is_new() {
    const SLOW: &str = "mcad: {backoffTime: 20}";
    const FAST: &str = "mcad: {backoffTime: 5}";
    const MOVED: &str = "mcad: {backoffTime: 5}\nmetrics: {bindAddress: ':1'}";
    const ELSEWHERE: &str = "mcad: {backoffTime: 5}\nmetrics: {bindAddress: ':2'}";
    let gone = || ReloadedConfig::Deleted { source: "ConfigMap a/b".to_owned() };
    let down = || ReloadedConfig::Unreadable { why: "no answer".to_owned() };
    let table = [
        ("nothing has changed", reloaded(SLOW), vec![]),
        ("the same in other words", reloaded("# more\nmcad:\n  backoffTime: 20\n"), vec![]),
        ("a safe value", reloaded(FAST), vec!["applied mcad.backoffTime 20 -> 5"]),
        ("is taken over once", reloaded(FAST), vec![]),
        (
            "a value that needs a start",
            reloaded(MOVED),
            vec![r#"waits metrics.bindAddress "127.0.0.1:8080" -> ":1""#],
        ),
        ("is said once", reloaded(MOVED), vec![]),
        (
            "again if it is another",
            reloaded(ELSEWHERE),
            vec![r#"waits metrics.bindAddress "127.0.0.1:8080" -> ":2""#],
        ),
        (
            "an invalid one is rejected as a whole",
            reloaded(
                "mcad: {backoffTime: 7, headOfLineHoldingTime: soon}\ninstascale: {cooldown: x}",
            ),
            vec!["refused mcad.headOfLineHoldingTime, instascale.cooldown"],
        ),
        (
            "and said once",
            reloaded(
                "mcad: {backoffTime: 7, headOfLineHoldingTime: soon}\ninstascale: {cooldown: x}",
            ),
            vec![],
        ),
        (
            "another mistake is another fault",
            reloaded("mcad: {backoffTime: never}"),
            vec!["refused mcad.backoffTime"],
        ),
        ("one that cannot be read changes nothing", down(), vec!["unreadable no answer"]),
        ("one that is gone neither", gone(), vec!["gone ConfigMap a/b"]),
        ("nor the second time", gone(), vec![]),
        (
            "back again, with everything at once",
            reloaded("mcad: {backoffTime: 6}\nother: 1"),
            vec![
                "recovered",
                "applied mcad.backoffTime 5 -> 6",
                r#"back metrics.bindAddress "127.0.0.1:8080" -> ":2""#,
                "warning f:2:1: other: ignored: unknown key",
                "unknown other",
            ],
        ),
        ("quiet", reloaded("mcad: {backoffTime: 6}\nother: 1"), vec![]),
    ];
    let mut watched = started(SLOW);
    for (why, seen, expected) in table {
        let step = watched.apply_reload(seen);
        assert_eq!(summary(&step), expected, "{why}");
    }
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(6));
    assert!(watched.restart_required().is_empty() && watched.problem().is_none());
}

#[test]
fn what_is_in_force_changes_with_safe_values_only() {
    let mut watched = started("");
    watched.apply_reload(reloaded(
        "mcad: {backoffTime: 5, preemption: true}\nclientConnection: {qps: 7}",
    ));
    let in_force = |key: &str| watched.in_force().get(key).clone();
    assert_eq!(in_force("mcad.backoffTime"), json!(5));
    assert_eq!(in_force("clientConnection.qps"), json!(7));
    assert_eq!(in_force("mcad.preemption"), json!(false));
    let waiting: Vec<_> = watched.restart_required().iter().map(|it| it.key).collect();
    assert_eq!(waiting, ["mcad.preemption"]);
    // A wrong one takes nothing over, not even what is right in it.
    watched.apply_reload(reloaded("mcad: {backoffTime: 9}\nmetrics: {bindAddress: nowhere}"));
    assert_eq!(watched.in_force().get("mcad.backoffTime"), &json!(5));
    assert_eq!(watched.restart_required().len(), 1, "what waited still does");
}

/// The values in effect are a mixture of two valid configurations. They are valid, because no rule
/// spans keys of both kinds: these are the keys that rules span.
#[test]
fn no_rule_spans_values_that_change_apart() {
    let spanned = [
        "leaderElection.leaderElect",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
        "leaderElection.retryPeriod",
        "instascale.ocmSecretRef.name",
        "instascale.ocmSecretRef.namespace",
        "health.livenessEndpointName",
        "health.readinessEndpointName",
        "mcad.dynamicPriority",
        "mcad.preemption",
        "controllers",
    ];
    for key in KEYS.iter().filter(|key| key.effect == Effect::Live) {
        assert!(!spanned.contains(&key.path), "{}", key.path);
    }
}
