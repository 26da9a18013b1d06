//! The values of the chart: those of the original, and the section `gantry`.

use serde_json::{Value, json};

use super::super::chart_values::ChartValue;

/// The values, in the order in which they are shown.
pub(super) fn entries() -> Vec<ChartValue> {
    let entry = |section, name, default, form, about| ChartValue {
        path: [section, name],
        default,
        form,
        about,
    };
    let text = || json!({ "type": "string" });
    let switch = || json!({ "type": "boolean" });
    let count = || json!({ "type": "integer", "minimum": 0, "maximum": i32::MAX });
    let global = [
        entry(
            "global",
            "imageRegistry",
            json!(""),
            text(),
            "Where the image is: `<imageRegistry>/<gantry.imageName>:<imageTag>`. Empty: \
             `<gantry.imageName>:<imageTag>`.",
        ),
        entry(
            "global",
            "imageTag",
            json!(""),
            // A tag of digits is a number on the command line.
            json!({ "type": ["string", "integer"] }),
            "The tag of the image. Empty: the version of the chart.",
        ),
        entry(
            "global",
            "nodeViewClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may get, list and watch nodes, which is then bound to the \
             account of the controllers. Binding it needs an administrator. Empty: no binding.",
        ),
        entry(
            "global",
            "local",
            json!(false),
            switch(),
            "Whether the nodes have the image of the dual-pods controller already: it is never \
             pulled then, and otherwise always.",
        ),
        entry(
            "global",
            "produceCoverdata",
            json!(false),
            switch(),
            "Whether there are a volume in which a dual-pods controller that was built for it \
             writes what was executed, and a Deployment of no pods to look at it.",
        ),
        entry(
            "global",
            "coverdataInspectorImage",
            json!("busybox:stable"),
            text(),
            "The image of that Deployment.",
        ),
    ];
    let controllers = [
        entry(
            "dualPodsController",
            "enabled",
            json!(true),
            switch(),
            "Whether the controller that pairs requesters and providers is deployed.",
        ),
        entry(
            "dualPodsController",
            "sleeperLimit",
            json!(2),
            count(),
            "How many sleeping direct providers may share an accelerator with an awake one.",
        ),
        entry(
            "dualPodsController",
            "debugAcceleratorMemory",
            json!(false),
            switch(),
            "Whether the used memory of accelerators is checked before an engine is woken. Only \
             requesters that have the tool of the vendor can tell it.",
        ),
        entry(
            "launcherPopulator",
            "enabled",
            json!(true),
            switch(),
            "Whether the controller that keeps the stock of launchers is deployed.",
        ),
        entry(
            "launcherPopulator",
            "pullPolicy",
            json!("IfNotPresent"),
            json!({ "enum": ["Always", "IfNotPresent", "Never"] }),
            "When its image is pulled.",
        ),
        entry(
            "launcherPopulator",
            "replicaCount",
            json!(1),
            count(),
            "How many run; one of them works, the others wait for it to go.",
        ),
        entry(
            "launcherPopulator",
            "resources",
            json!({
                "limits": { "cpu": 2, "memory": "2Gi" },
                "requests": { "cpu": "100m", "memory": "128Mi" },
            }),
            json!({ "type": "object" }),
            "What its container requests, and its limits.",
        ),
    ];
    let mut all: Vec<ChartValue> = global.into_iter().chain(controllers).collect();
    all.extend(own_entries());
    all
}

/// The values that the original does not have. Without them the chart does what the original does.
fn own_entries() -> [ChartValue; 6] {
    let entry = |name, default: Value, form: Value, about| ChartValue {
        path: ["gantry", name],
        default,
        form,
        about,
    };
    [
        entry(
            "imageName",
            json!("gantry"),
            json!({ "type": "string" }),
            "The name of the image. Empty: `dual-pods-controller` and `launcher-populator`, for \
             registries that have it under the names of the original.",
        ),
        entry(
            "retentionTime",
            json!(""),
            json!({ "type": "string", "pattern": "^(([0-9]+(\\.[0-9]+)?(ms|s|m|h))+|0)?$" }),
            "How long launchers beyond the policies are kept for the engines that sleep in them, \
             for instance `10m`. Empty: they are deleted at once.",
        ),
        entry(
            "tokenSecret",
            json!(""),
            json!({ "type": "string", "maxLength": 253 }),
            "A Secret in this namespace whose key `token` has a bearer token. The controllers send \
             it to requesters and launchers, which have to ask for it: `--token-file` or \
             `$GANTRY_TOKEN_FILE`. Empty: no token.",
        ),
        entry(
            "networkPolicy",
            json!(false),
            json!({ "type": "boolean" }),
            "Whether NetworkPolicies let only the controllers of this release reach the API of \
             launchers and the port for controllers of requesters. Other ports are not affected.",
        ),
        entry(
            "requesterLabels",
            json!({}),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            "Labels that all requesters of this namespace have, for `gantry.networkPolicy`.",
        ),
        entry(
            "spiPort",
            json!(8081),
            json!({ "type": "integer", "minimum": 2, "maximum": 65534 }),
            "The port for controllers of requesters, for `gantry.networkPolicy`: what their \
             annotation `dual-pods.llm-d.ai/admin-port` says.",
        ),
    ]
}
