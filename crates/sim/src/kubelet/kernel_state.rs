//! Decides what the annotations of a node say about its kernel, and reboots it with another one.

use gantry_reconcile::{Key, World};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::annotation;
use crate::kernel::{self, Boot, KernelState};
use crate::view::Node;

/// Returns when a node that reboots will have booted; `None` if it does not reboot.
pub(super) fn boots_at(node: &Node) -> Option<Timestamp> {
    let boot = Boot::of(node).filter(|it| it.kernel == kernel::desired_release(node));
    boot.filter(|_| kernel::is_rebooting(node)).map(|it| it.time())
}

/// Returns the annotation that is to be written, if one is.
///
/// A reboot begins with an annotation that says when. Everything else follows from it, so that a
/// process that ends at any point changes neither the time nor the boot.
pub(super) fn due_annotation(
    world: &World,
    node: &Node,
    now: Timestamp,
) -> Option<(&'static str, Value)> {
    let boot = Boot::of(node);
    let written = node.metadata.annotations.get(annotation::LOADED_MODULES);
    if kernel::is_rebooting(node) {
        let desired = kernel::desired_release(node);
        if boot.is_some_and(|it| it.kernel == desired) {
            return None;
        }
        let boot = Boot { kernel: desired.to_owned(), begun_at: now };
        let boot = serde_json::to_string(&boot).ok()?;
        return Some((annotation::BOOT, json!(boot)));
    }
    // A reboot that was called off before the other kernel ran.
    let running = &node.status.node_info.kernel_version;
    if boot.is_some_and(|it| !running.is_empty() && it.kernel != *running) {
        return Some((annotation::BOOT, Value::Null));
    }
    let boot_id = kernel::boot_id(node);
    let state = world.facts::<KernelState>().observed(&Key::cluster(&node.metadata.name));
    let Some(state) = state.filter(|it| it.value.boot_id == boot_id) else {
        // Nothing was loaded since this process was started; what an earlier boot had is gone.
        let before = written.and_then(|it| serde_json::from_str::<KernelState>(it).ok())?;
        return (before.boot_id != boot_id).then_some((annotation::LOADED_MODULES, Value::Null));
    };
    let text = serde_json::to_string(&state.value).ok()?;
    let is_written = match written {
        Some(written) => *written == text,
        None => state.value.modules.is_empty() && state.value.taint == 0,
    };
    (!is_written).then(|| (annotation::LOADED_MODULES, json!(text)))
}
