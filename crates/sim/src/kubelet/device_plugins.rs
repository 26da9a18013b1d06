//! Device plugins: which resources of a node come from them, and how many devices there are. Pure.
//!
//! A resource that a plugin registered once stays in the status of its node: with 0 devices while
//! no plugin offers it. Kubelets keep these names in a checkpoint file; here they are in an
//! annotation, which is written before the status.

use std::collections::BTreeSet;

use gantry_reconcile::World;
use serde_json::{Value, json};

use super::annotation;
use crate::view::{Node, ResourceList, registered_devices};

/// The directory of the socket on which a kubelet takes registrations of device plugins.
pub(crate) const DEVICE_PLUGIN_DIRECTORY: &str = "/var/lib/kubelet/device-plugins";

/// The most resources of one node that come from device plugins.
const MAX_PLUGIN_RESOURCES: usize = 64;

/// Checks whether a device plugin may register a resource on a node.
///
/// # Errors
/// Why it is refused, and what to do.
pub(crate) fn check_registration(node: &Node, resource: &str) -> Result<(), String> {
    let known = plugin_resources(node);
    let name = &node.metadata.name;
    let has_own = match known.contains(resource) {
        true => shape_resources(node).contains(resource),
        false => {
            let amount = node.status.capacity.get(resource);
            shape_resources(node).contains(resource) || amount.is_some_and(|it| it.sign() != 0)
        }
    };
    if has_own {
        return Err(format!(
            "node {name} has {resource} of its own: remove it from the shape of the node \
             (annotation {}), or register another resource",
            annotation::CAPACITY
        ));
    }
    if !known.contains(resource) && known.len() >= MAX_PLUGIN_RESOURCES {
        return Err(format!(
            "device plugins have registered {MAX_PLUGIN_RESOURCES} resources on node {name}, which \
             is the limit: remove unused ones from annotation {}",
            annotation::DEVICE_PLUGINS
        ));
    }
    Ok(())
}

/// Returns the annotation that names the resources of device plugins, if it is not up to date.
pub(super) fn due_annotation(world: &World, node: &Node) -> Option<(&'static str, Value)> {
    let mut resources = plugin_resources(node);
    let before = resources.len();
    let own = shape_resources(node);
    let registered = registered_devices(world, &node.metadata.name).into_keys();
    resources.extend(registered.filter(|it| !own.contains(it)));
    let text = resources.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    (resources.len() != before).then(|| (annotation::DEVICE_PLUGINS, json!(text)))
}

/// Removes the resources of device plugins from amounts of a status, which leaves the node's own.
pub(super) fn without_plugin_resources(node: &Node, amounts: &ResourceList) -> ResourceList {
    let plugins = plugin_resources(node);
    let own = amounts.iter().filter(|(name, _)| !plugins.contains(*name));
    own.map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// Adds the resources of device plugins to amounts that are the node's own.
pub(super) fn add_plugin_resources(world: &World, node: &Node, amounts: &mut ResourceList) {
    let registered = registered_devices(world, &node.metadata.name);
    let own = shape_resources(node);
    for resource in plugin_resources(node).into_iter().filter(|it| !own.contains(it)) {
        let count = registered.get(&resource).map_or(0, |it| it.value.count);
        amounts.insert(resource, count.into());
    }
}

/// Returns the resources that device plugins have registered on a node.
fn plugin_resources(node: &Node) -> BTreeSet<String> {
    let text = node.metadata.annotations.get(annotation::DEVICE_PLUGINS);
    let names = text.iter().flat_map(|it| it.split(','));
    names.filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// Returns the resources that the shape of a node has. Annotations that cannot be read count as
/// absent: the kubelet reports them.
fn shape_resources(node: &Node) -> BTreeSet<String> {
    let names = [annotation::CAPACITY, annotation::ALLOCATABLE];
    let texts = names.iter().filter_map(|it| node.metadata.annotations.get(*it));
    let lists = texts.filter_map(|it| serde_json::from_str::<ResourceList>(it).ok());
    lists.flat_map(ResourceList::into_keys).collect()
}
