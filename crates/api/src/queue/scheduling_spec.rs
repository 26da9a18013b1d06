//! How an AppWrapper is scheduled; also a kind of its own that the originals install and never
//! read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Findings;
use crate::kind::Trust;
use crate::object::object;
use gantry_yaml::node::{Node, Path};

object! {
    /// SchedulingSpec holds scheduling settings. It is installed because clients of the original
    /// expect it; nothing reads it. AppWrappers carry the same settings in `spec.schedulingSpec`.
    pub struct SchedulingSpec {
        /// The settings.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<SchedulingSettings>,
    }
    group: "workload.codeflare.dev",
    version: "v1beta1",
    plural: "schedulingspecs",
    scope: Namespaced,
    trust: Trust::Tenant,
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            drop_ignored(spec, &IGNORED, &Path::of("spec"), findings);
        }
    },
    serve: |schema| declare_ignored(&mut schema["properties"]["spec"]),
}

impl SchedulingSpec {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        if let Some(spec) = &self.spec {
            spec.validate(&Path::of("spec"), findings);
        }
    }
}

/// When an AppWrapper counts as running, and what happens when it does not get there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingSettings {
    /// Node labels that the pods need. Counts as a limit on capacity only if the queue is
    /// configured to honour it; it is never copied into pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// How many pods must be running or have succeeded. 0 switches requeuing off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_available: i64,
    /// What happens when too few pods come up in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeuing: Option<Requeuing>,
    /// How long the work may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch_duration: Option<DispatchDuration>,
    /// Seconds that pods and wrapped objects have to go when the AppWrapper is preempted or
    /// requeued; then they are removed without grace. 0 means 600. Pods on nodes that are not ready
    /// or gone have 60 at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub force_deletion_time_in_seconds: i64,
}

/// Settings for requeuing a dispatched AppWrapper whose pods did not come up in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Requeuing {
    /// Seconds to wait before the pods are counted.
    #[schemars(extend("default" = 300))]
    pub time_in_seconds: i64,
    /// Kept by the controller: the wait before it grew. 0 means `timeInSeconds`.
    #[schemars(extend("default" = 0))]
    pub initial_time_in_seconds: i64,
    /// Longest wait after growing. 0 means no limit.
    #[schemars(extend("default" = 0))]
    pub max_time_in_seconds: i64,
    /// How the wait grows with each requeuing: `exponential`, `linear`, or anything else for none.
    #[schemars(extend("default" = "exponential"))]
    pub growth_type: String,
    /// Legacy counter. The one that counts is `status.numberOfRequeueings`.
    #[schemars(extend("default" = 0))]
    pub num_requeuings: i64,
    /// How often the AppWrapper may be requeued before it is given up. 0 means without end.
    #[schemars(extend("default" = 0))]
    pub max_num_requeuings: i64,
    /// Seconds before a requeued AppWrapper may be dispatched again. 0 means the queue's own pause.
    #[serde(skip_serializing_if = "is_zero")]
    pub pause_time_in_seconds: i64,
}

impl Default for Requeuing {
    fn default() -> Self {
        Self {
            time_in_seconds: 300,
            initial_time_in_seconds: 0,
            max_time_in_seconds: 0,
            growth_type: "exponential".to_owned(),
            num_requeuings: 0,
            max_num_requeuings: 0,
            pause_time_in_seconds: 0,
        }
    }
}

/// How long the work may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DispatchDuration {
    /// Expected seconds, for information only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expected: i64,
    /// Seconds allowed from the first running pod on. 0 means without end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub limit: i64,
    /// Set by the controller when the limit was passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overrun: bool,
}

/// Fields that samples and client libraries of the original contain and nothing reads.
pub(super) const IGNORED: [&str; 2] = ["clusterScheduling", "dispatchingWindow"];

impl SchedulingSettings {
    pub(super) fn validate(&self, path: &Path, findings: &mut Findings) {
        let numbers = [
            ("minAvailable", self.min_available),
            ("forceDeletionTimeInSeconds", self.force_deletion_time_in_seconds),
        ];
        let requeuing = self.requeuing.iter().flat_map(|requeuing| {
            [
                ("requeuing.timeInSeconds", requeuing.time_in_seconds),
                ("requeuing.initialTimeInSeconds", requeuing.initial_time_in_seconds),
                ("requeuing.maxTimeInSeconds", requeuing.max_time_in_seconds),
                ("requeuing.maxNumRequeuings", requeuing.max_num_requeuings),
                ("requeuing.pauseTimeInSeconds", requeuing.pause_time_in_seconds),
            ]
        });
        let duration = self.dispatch_duration.iter().flat_map(|duration| {
            [
                ("dispatchDuration.limit", duration.limit),
                ("dispatchDuration.expected", duration.expected),
            ]
        });
        for (name, number) in numbers.into_iter().chain(requeuing).chain(duration) {
            if number < 0 {
                findings.warn(&path.join(name), format!("{number} is negative and counts as 0"));
            }
        }
        if let Some(requeuing) = &self.requeuing
            && !matches!(requeuing.growth_type.as_str(), "exponential" | "linear" | "none" | "")
        {
            findings.warn(
                &path.join("requeuing.growthType"),
                format!(
                    "\"{}\" means that the wait does not grow; use \"exponential\", \"linear\" or \
                     \"none\"",
                    requeuing.growth_type
                ),
            );
        }
    }
}

/// Drops fields that are accepted for the sake of old manifests and have no effect. Empty ones,
/// which client libraries write into every object, are dropped without a warning.
pub(super) fn drop_ignored(
    holder: &mut Node,
    names: &[&str],
    path: &Path,
    findings: &mut Findings,
) {
    for name in names {
        if let Some((key, value)) = holder.take(name) {
            let empty = value.entries().is_some_and(<[_]>::is_empty)
                || value.items().is_some_and(<[_]>::is_empty);
            if !empty {
                findings.warn_at(&path.key(name), key.at, "has no effect; remove it");
            }
        }
    }
}

/// Declares [`IGNORED`] in a served schema.
pub(super) fn declare_ignored(schema: &mut serde_json::Value) {
    for name in IGNORED {
        schema["properties"][name] = serde_json::json!({
            "type": "object",
            "description": "Deprecated: accepted and ignored.",
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
