//! The section `mcad` of the configuration.

use std::time::Duration;

use gantry_subsystem::settings::read::{length, seconds};
use gantry_subsystem::settings::{Alias, Effect, Form, Key, Report, Usual, Values, Zero};
use serde::Deserialize;

use crate::settings::{Inference, Settings, UserAccess};

const COUNT: Form = Form::Integer { least: 0, most: i32::MAX, zero: Zero::Itself };

/// The keys of the queue.
pub const KEYS: &[Key] = &[
    Key {
        path: "mcadEnabled",
        form: Form::Flag,
        default: Usual::Flag(true),
        effect: Effect::Restart,
        about: "Whether the queue runs. Also read as `mcad.enabled`, its name in the original.",
    },
    Key {
        path: "mcad.dynamicPriority",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether priority grows with the time spent waiting. Turns preemption off.",
    },
    Key {
        path: "mcad.preemption",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether what lower priorities use counts as free, and may be taken back.",
    },
    Key {
        path: "mcad.backoffTime",
        form: COUNT,
        default: Usual::Count(20),
        effect: Effect::Live,
        about: "Seconds an AppWrapper waits after it did not fit or was preempted.",
    },
    Key {
        path: "mcad.headOfLineHoldingTime",
        form: COUNT,
        default: Usual::Count(0),
        effect: Effect::Live,
        about: "Seconds the first of the queue is tried again before others may pass it.",
    },
    Key {
        path: "mcad.quotaEnabled",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether quota trees are evaluated.",
    },
    Key {
        path: "mcad.dispatcher",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Dispatching to other clusters, which Gantry does not do: `true` is refused.",
    },
    Key {
        path: "mcad.agentConfigs",
        form: Form::Texts,
        default: Usual::Empty,
        effect: Effect::Never("has no effect: Gantry does not dispatch to other clusters"),
        about: "Clusters to dispatch to. Read and not used.",
    },
    Key {
        path: "mcad.demandInference",
        form: Form::Word(&["compat", "full"]),
        default: Usual::Text("full"),
        effect: Effect::Live,
        about: "What AppWrappers are charged: `full` for what the templates of every known kind ask for and at least what is declared, `compat` as MCAD for what is declared, whatever the templates ask for.",
    },
    Key {
        path: "mcad.requireQuotaBindings",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether only leaves of quota trees that are bound to namespaces or groups may be used.",
    },
    Key {
        path: "mcad.honorNodeSelector",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether only nodes that the pods may run on count as room.",
    },
    Key {
        path: "mcad.requeueDefaultSeconds",
        form: Form::Integer { least: 1, most: i32::MAX, zero: Zero::Default },
        default: Usual::Count(300),
        effect: Effect::Live,
        about: "Seconds the pods of a dispatched AppWrapper have to come up if it does not say.",
    },
    Key {
        path: "mcad.requeueCheckInterval",
        form: Form::Duration { zero: Zero::Default },
        default: Usual::Text("1m0s"),
        effect: Effect::Live,
        about: "How often dispatched AppWrappers are looked at for that.",
    },
    Key {
        path: "mcad.wakeOnRelease",
        form: Form::Flag,
        default: Usual::Flag(true),
        effect: Effect::Live,
        about: "Whether released room ends the pause of those that wait for it.",
    },
    Key {
        path: "mcad.packingCheck",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether the pods of an AppWrapper must find nodes one by one, and not only in sum.",
    },
    Key {
        path: "mcad.fairness",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether namespaces of the same priority take turns, the one that has the least first.",
    },
    Key {
        path: "mcad.activeEviction",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Live,
        about: "Whether AppWrappers of lower priority are taken back for one of a higher, with `preemption`. Turns the packing check on.",
    },
    Key {
        path: "mcad.checkUserAccess",
        form: Form::Flag,
        default: Usual::Flag(false),
        effect: Effect::Restart,
        about: "Whether the author of an AppWrapper must be allowed to create what it wraps. The API server then asks who that is, where `devices.webhook` says.",
    },
];

/// Paths of the original that have another name now. Both names at once are accepted while they say
/// the same.
pub const ALIASES: &[Alias] = &[Alias { path: "mcad.enabled", key: "mcadEnabled" }];

/// Whether the queue runs.
#[must_use]
pub fn is_enabled(values: &Values) -> bool {
    values.is_on("mcadEnabled")
}

/// How the queue decides, beside the controllers of devices or without.
///
/// # Errors
/// The keys and the fields disagree: no value that has the form of its key is refused.
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

/// The same beside an API server in the same process, which can create items in the name of their authors.
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

/// Checks the rules that span keys.
pub fn check(values: &mut Values, report: &mut Report) {
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
        assert_eq!(settings(&Values::stack(KEYS, [])).unwrap(), Settings::default());
    }
}
