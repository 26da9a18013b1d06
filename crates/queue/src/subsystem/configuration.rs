//! The section `mcad` of the configuration.

use std::time::Duration;

use gantry_subsystem::settings::read::{length, seconds};
use gantry_subsystem::settings::{
    Alias, ConfigReport, DefaultValue, Effect, Key, ValueType, Values, ZeroMeaning,
};
use serde::Deserialize;

use crate::settings::{Inference, Settings, UserAccess};

const COUNT: ValueType = ValueType::Integer { min: 0, max: i32::MAX, zero: ZeroMeaning::Literal };

/// The keys of the queue.
pub const KEYS: &[Key] = &[
    Key {
        path: "mcadEnabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(true),
        effect: Effect::Restart,
        about: "Whether the queue runs. Also read as `mcad.enabled`, its name in the original.",
    },
    Key {
        path: "mcad.dynamicPriority",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether priority grows with the time spent waiting. Turns preemption off.",
    },
    Key {
        path: "mcad.preemption",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether resources used by lower priorities count as free, and may be preempted.",
    },
    Key {
        path: "mcad.backoffTime",
        value_type: COUNT,
        default: DefaultValue::Count(20),
        effect: Effect::Live,
        about: "Seconds an AppWrapper waits after it did not fit or was preempted.",
    },
    Key {
        path: "mcad.headOfLineHoldingTime",
        value_type: COUNT,
        default: DefaultValue::Count(0),
        effect: Effect::Live,
        about: "Seconds the head of the queue is retried before others may be admitted before it.",
    },
    Key {
        path: "mcad.quotaEnabled",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether quota trees are evaluated.",
    },
    Key {
        path: "mcad.dispatcher",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Dispatching to other clusters, which Gantry does not do: `true` is refused.",
    },
    Key {
        path: "mcad.agentConfigs",
        value_type: ValueType::Texts,
        default: DefaultValue::Empty,
        effect: Effect::Never("has no effect: Gantry does not dispatch to other clusters"),
        about: "Clusters to dispatch to. Read and not used.",
    },
    Key {
        path: "mcad.demandInference",
        value_type: ValueType::Word(&["compat", "full"]),
        default: DefaultValue::Text("full"),
        effect: Effect::Live,
        about: "What AppWrappers are charged: `full` for what the templates of every known kind \
                ask for and at least what is declared, `compat` as MCAD for what is declared, \
                whatever the templates ask for.",
    },
    Key {
        path: "mcad.requireQuotaBindings",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Live,
        about: "Whether only leaves of quota trees that are bound to namespaces or groups may be \
                used.",
    },
    Key {
        path: "mcad.honorNodeSelector",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Live,
        about: "Whether only nodes that the pods may run on count as free capacity.",
    },
    Key {
        path: "mcad.requeueDefaultSeconds",
        value_type: ValueType::Integer { min: 1, max: i32::MAX, zero: ZeroMeaning::Default },
        default: DefaultValue::Count(300),
        effect: Effect::Live,
        about: "Seconds the pods of a dispatched AppWrapper have to come up if it does not say.",
    },
    Key {
        path: "mcad.requeueCheckInterval",
        value_type: ValueType::Duration { zero: ZeroMeaning::Default },
        default: DefaultValue::Text("1m0s"),
        effect: Effect::Live,
        about: "How often the pods of dispatched AppWrappers are checked for that.",
    },
    Key {
        path: "mcad.wakeOnRelease",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(true),
        effect: Effect::Live,
        about: "Whether released capacity ends the backoff of AppWrappers that wait for it.",
    },
    Key {
        path: "mcad.packingCheck",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Live,
        about: "Whether every pod of an AppWrapper must fit on a node, and not only their sum in \
                the cluster.",
    },
    Key {
        path: "mcad.fairness",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Live,
        about: "Whether namespaces of the same priority take turns, the one that has the least \
                first.",
    },
    Key {
        path: "mcad.activeEviction",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Live,
        about: "Whether AppWrappers of lower priority are preempted for one of a higher, with \
                `preemption`. Turns the packing check on.",
    },
    Key {
        path: "mcad.checkUserAccess",
        value_type: ValueType::Bool,
        default: DefaultValue::Flag(false),
        effect: Effect::Restart,
        about: "Whether the author of an AppWrapper must be allowed to create what it wraps. The \
                API server then asks who that is, where `devices.webhook` says.",
    },
];

/// Paths of the original configuration that have another name now. Both names at once are accepted
/// while their values agree.
pub const ALIASES: &[Alias] = &[Alias { path: "mcad.enabled", key: "mcadEnabled" }];

/// Returns whether the queue runs.
#[must_use]
pub fn is_enabled(values: &Values) -> bool {
    values.is_on("mcadEnabled")
}

/// Returns the settings of the queue, with or without device controllers beside it.
///
/// # Errors
/// Fails when the declared keys and the fields disagree: no value that has the form of its key is
/// refused.
pub fn settings(values: &Values) -> Result<Settings, serde_json::Error> {
    let section = values.section::<Section>("mcad")?;
    let Section {
        dynamic_priority,
        preemption,
        backoff_time,
        head_of_line_holding_time,
        quota_enabled,
        require_quota_bindings,
        dispatcher: _,
        agent_configs: _,
        demand_inference,
        honor_node_selector,
        requeue_default,
        requeue_check_interval,
        wake_on_release,
        packing_check,
        fairness,
        active_eviction,
        check_user_access,
    } = section;
    Ok(Settings {
        dynamic_priority,
        preemption,
        backoff: backoff_time,
        holding: head_of_line_holding_time,
        quota: quota_enabled,
        require_quota_bindings,
        inference: match demand_inference {
            DemandInference::Compat => Inference::Compat,
            DemandInference::Full => Inference::Full,
        },
        honor_node_selector,
        requeue_default,
        requeue_interval: requeue_check_interval,
        wake_on_release,
        packing_check,
        fairness,
        active_eviction,
        user_access: match check_user_access {
            true => UserAccess::Reviewed,
            false => UserAccess::Unchecked,
        },
        devices: values.is_on("devices.enabled"),
    })
}

/// Returns the settings beside an API server in the same process, which can create items as their
/// authors.
///
/// # Errors
/// As for [`settings`].
pub fn embedded_settings(values: &Values) -> Result<Settings, serde_json::Error> {
    let settings = settings(values)?;
    let user_access = match settings.user_access {
        UserAccess::Unchecked => UserAccess::Unchecked,
        UserAccess::Reviewed | UserAccess::OnBehalf => UserAccess::OnBehalf,
    };
    Ok(Settings { user_access, ..settings })
}

/// Checks the rules that span several keys.
pub fn check(values: &mut Values, report: &mut ConfigReport) {
    if values.is_on("mcad.dispatcher") {
        let text = "Gantry does not dispatch to other clusters; remove it";
        report.refuse(values, "mcad.dispatcher", text.to_owned());
    }
    if values.is_on("mcad.dynamicPriority") && values.is_on("mcad.preemption") {
        let text = "has no effect: mcad.dynamicPriority turns preemption off";
        report.warn(values, "mcad.preemption", text.to_owned());
        values.reset("mcad.preemption");
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "these are the keys of a file, one by one")]
struct Section {
    dynamic_priority: bool,
    preemption: bool,
    #[serde(deserialize_with = "seconds")]
    backoff_time: Duration,
    #[serde(deserialize_with = "seconds")]
    head_of_line_holding_time: Duration,
    quota_enabled: bool,
    require_quota_bindings: bool,
    #[expect(dead_code, reason = "refused when it is on, and read so that no key is unknown")]
    dispatcher: bool,
    #[expect(dead_code, reason = "has no effect, and is read so that no key is unknown")]
    agent_configs: Vec<String>,
    demand_inference: DemandInference,
    honor_node_selector: bool,
    #[serde(deserialize_with = "seconds", rename = "requeueDefaultSeconds")]
    requeue_default: Duration,
    #[serde(deserialize_with = "length")]
    requeue_check_interval: Duration,
    wake_on_release: bool,
    packing_check: bool,
    fairness: bool,
    active_eviction: bool,
    check_user_access: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum DemandInference {
    Compat,
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cf_4_what_nobody_configured_is_as_the_queue_has_it() {
        assert_eq!(settings(&Values::from_layers(KEYS, [])).unwrap(), Settings::default());
    }
}
