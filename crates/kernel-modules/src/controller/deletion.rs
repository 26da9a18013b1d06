//! Deletes a Module: device plugins first, then drivers, Jobs, node labels, and the finalizer.

use std::time::Duration;

use gantry_reconcile::world::AnyStore;
use gantry_reconcile::{
    Event, Fence, Held, Key, ObjectReference, Plan, Propagation, Subresource, View as _, World,
    Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::objects::pods_of;
use crate::labels::{
    FINALIZER, ModulePart, NAMESPACE_LABEL, NodeLabel, NodeLabelKind, SKIP_UNLOAD_ANNOTATION,
    kmm_ready_labels,
};
use crate::settings::Settings;
use crate::view::{DaemonSet, Job, Module, Namespace, Node};

/// After how long a deletion that does not finish is reported.
const STALLED_AFTER: Duration = Duration::from_secs(600);
/// How often it is reported.
const STALLED_INTERVAL: Duration = Duration::from_secs(3600);

/// Plans the deletion of a Module.
pub(super) fn plan(world: &World, module: &Module, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let metadata = &module.metadata;
    if !metadata.finalizers.iter().any(|it| it == FINALIZER) {
        return plan;
    }
    let skips = metadata.annotations.get(SKIP_UNLOAD_ANNOTATION).is_some_and(|it| it == "true");
    for part in [ModulePart::DevicePlugin, ModulePart::DriverContainer] {
        let is_gone = delete_part(world, module, part, &mut plan);
        if !is_gone && !skips {
            report_stall(world, module, part, now, &mut plan);
            return plan;
        }
    }
    for job in world.store::<Job>().owned_by(&metadata.uid) {
        if !job.metadata.is_terminating() {
            plan.write(delete(&Job::RESOURCE, &job.metadata, Propagation::Background));
        }
    }
    if remove_node_labels(world, module, settings, &mut plan) {
        // The finalizer goes when the labels are gone.
        return plan;
    }
    let finalizers: Vec<&String> =
        metadata.finalizers.iter().filter(|it| *it != FINALIZER).collect();
    plan.write(Write::Merge {
        resource: Module::RESOURCE,
        key: metadata.key(),
        subresource: Subresource::Main,
        fence: metadata.fence(),
        body: json!({"metadata": {"finalizers": finalizers}}),
    });
    plan
}

fn delete(
    resource: &gantry_reconcile::Resource,
    metadata: &gantry_reconcile::Meta,
    propagation: Propagation,
) -> Write {
    Write::Delete {
        resource: resource.clone(),
        key: metadata.key(),
        fence: Fence { revision: None, ..metadata.fence() },
        grace: None,
        propagation: Some(propagation),
    }
}

/// Deletes the DaemonSets of a part. Returns whether they and their pods are gone.
fn delete_part(world: &World, module: &Module, part: ModulePart, plan: &mut Plan) -> bool {
    let sets = world.store::<DaemonSet>().owned_by(&module.metadata.uid);
    let mut is_gone = true;
    for set in sets.iter().filter(|it| it.part() == Some(part)) {
        is_gone = false;
        if !set.metadata.is_terminating() {
            plan.write(delete(&DaemonSet::RESOURCE, &set.metadata, Propagation::Foreground));
        }
    }
    is_gone && pods_of(world, &module.metadata.key(), part).is_empty()
}

/// Says which pods a deletion waits for.
fn report_stall(world: &World, module: &Module, part: ModulePart, now: Timestamp, plan: &mut Plan) {
    let metadata = &module.metadata;
    let about = ObjectReference::to(&Module::RESOURCE, metadata);
    let pods = pods_of(world, &metadata.key(), part);
    let places: Vec<String> = pods
        .iter()
        .take(10)
        .map(|pod| format!("{} on {}", pod.metadata.name, pod.spec.node_name))
        .collect();
    let more = if pods.len() > places.len() { " and others" } else { "" };
    let message = format!(
        "waiting until the pods of the {} are gone: {}{more}",
        part.as_str(),
        if places.is_empty() { "none is left".to_owned() } else { places.join(", ") }
    );
    let since = metadata.deletion_timestamp.unwrap_or(now);
    let stalled = since
        .checked_add(SignedDuration::try_from(STALLED_AFTER).unwrap_or_default())
        .unwrap_or(now);
    let mut held = Held {
        about: about.clone(),
        reason: "Unloading".into(),
        message: message.clone(),
        until: Some(stalled),
    };
    if now >= stalled {
        let message = format!(
            "{message}; look at them, or annotate the Module with {SKIP_UNLOAD_ANNOTATION}=true \
             to leave the module loaded"
        );
        plan.events.push(Event::warning(about, "UnloadStalled", message.clone()));
        let next = SignedDuration::try_from(STALLED_INTERVAL).unwrap_or_default();
        held = Held {
            reason: "UnloadStalled".into(),
            message,
            until: now.checked_add(next).ok(),
            ..held
        };
    }
    plan.hold(held, now);
}

/// Removes the labels about a Module from nodes; that of the administrator stays. Returns whether
/// there were any.
fn remove_node_labels(
    world: &World,
    module: &Module,
    settings: &Settings,
    plan: &mut Plan,
) -> bool {
    let metadata = &module.metadata;
    let mut found = false;
    for node in world.store::<Node>().list() {
        let removed = labels_of(&node, &metadata.key(), settings);
        if removed.is_empty() {
            continue;
        }
        found = true;
        plan.write(Write::Merge {
            resource: Node::RESOURCE,
            key: node.metadata.key(),
            subresource: Subresource::Main,
            fence: Fence { revision: None, ..node.metadata.fence() },
            body: json!({"metadata": {"labels": removed}}),
        });
    }
    found
}

/// The labels of a node about a Module that Gantry has set, as a patch that removes them.
fn labels_of(node: &Node, module: &Key, settings: &Settings) -> Map<String, Value> {
    let others = kmm_ready_labels(module).into_iter().filter(|_| settings.kmm_labels);
    let others: Vec<String> = others.collect();
    let keys = node.metadata.labels.keys().filter(|key| {
        let own = NodeLabel::parse(key).is_some_and(|label| {
            label.module_key() == *module && label.kind != NodeLabelKind::WantedVersion
        });
        own || others.contains(key)
    });
    keys.map(|key| (key.clone(), Value::Null)).collect()
}

/// Removes the label of a namespace without Modules.
pub(super) fn plan_namespace(world: &World, namespace: &str) -> Plan {
    let mut plan = Plan::default();
    let modules = world.store::<Module>();
    // A Module that cannot be read is one, too.
    let unreadable = AnyStore::unreadable(modules);
    let mut unreadable = unreadable.iter().map(|it| it.about.key.namespace());
    if !modules.in_namespace(namespace).is_empty() || unreadable.any(|it| it == namespace) {
        return plan;
    }
    let key = Key::cluster(namespace);
    let Some(namespace) = world.store::<Namespace>().get(&key) else { return plan };
    if namespace.metadata.labels.contains_key(NAMESPACE_LABEL) {
        plan.write(Write::Merge {
            resource: Namespace::RESOURCE,
            key,
            subresource: Subresource::Main,
            fence: Fence { revision: None, ..namespace.metadata.fence() },
            body: json!({"metadata": {"labels": {NAMESPACE_LABEL: null}}}),
        });
    }
    plan
}
