//! Writes the DaemonSets of a Module.

use std::collections::BTreeSet;

use gantry_reconcile::{Event, Fence, Propagation, Step, View as _, Write};

use super::Planner;
use super::objects::apply;
use crate::daemon_set::{DesiredDaemonSet, plugin_daemon_set};
use crate::labels::{KERNEL_ANNOTATION, ModulePart, NodeLabelKind};
use crate::module_kernels::ModuleKernels;
use crate::node_labels::device_user::{DRAIN_NOT_POSSIBLE, drain_problem};
use crate::plugin_image::plugin_image;
use crate::view::{DaemonSet, Module};

/// DaemonSets that stay as they are, although nothing is desired of them.
#[derive(Debug, Default)]
pub(super) struct KeptDaemonSets {
    /// The drivers of these kernels.
    pub(super) kernels: BTreeSet<String>,
    /// The device plugin.
    pub(super) plugin: bool,
}

impl Planner<'_> {
    /// Plans the DaemonSet of the device plugin.
    pub(super) fn plan_device_plugin(
        &mut self,
        kernels: &ModuleKernels,
        desired: &mut Vec<DesiredDaemonSet>,
        kept: &mut KeptDaemonSets,
    ) {
        if let Some(why) = drain_problem(self.module, self.settings.drain_device_users) {
            self.warn(DRAIN_NOT_POSSIBLE, why);
        }
        let Some(plugin) = &kernels.spec.device_plugin else { return };
        match plugin_image(&self.module.metadata.key(), &plugin.container.image) {
            Ok(image) => {
                let metadata = &self.module.metadata;
                desired.push(plugin_daemon_set(kernels, metadata, plugin, &image));
            }
            Err(why) => {
                kept.plugin = true;
                self.warn("TemplateError", format!("devicePlugin.container.image: {why}"));
            }
        }
    }

    /// Applies the DaemonSets that differ and deletes those that nothing wants.
    pub(super) fn write_daemon_sets(
        &mut self,
        desired: Vec<DesiredDaemonSet>,
        kept: &KeptDaemonSets,
    ) {
        let owned = self.world.store::<DaemonSet>().owned_by(&self.module.metadata.uid);
        let version = self.module.version();
        let names: BTreeSet<&str> = desired.iter().map(|it| it.name.as_str()).collect();
        for found in &owned {
            let metadata = &found.metadata;
            if names.contains(metadata.name.as_str()) || metadata.is_terminating() {
                continue;
            }
            let Some(part) = found.part() else { continue };
            let kernel = metadata.annotations.get(KERNEL_ANNOTATION);
            let is_kept = match part {
                ModulePart::DriverContainer => kernel.is_some_and(|it| kept.kernels.contains(it)),
                ModulePart::DevicePlugin => kept.plugin,
            };
            if is_kept {
                continue;
            }
            let version_label = match part {
                ModulePart::DriverContainer => NodeLabelKind::DriverVersion,
                ModulePart::DevicePlugin => NodeLabelKind::PluginVersion,
            };
            let key = version_label.key(&metadata.namespace, &self.module.metadata.name);
            let found_version = metadata.labels.get(&key).map_or("", String::as_str);
            let is_observed = found.status.observed_generation >= metadata.generation;
            let is_wanted = found.status.desired_number_scheduled > 0 || !is_observed;
            // Nodes leave an old version one by one, when the administrator says so.
            let has_part = match part {
                ModulePart::DriverContainer => self.spec_has_driver(),
                ModulePart::DevicePlugin => self.spec_has_plugin(),
            };
            if found_version != version && !version.is_empty() && has_part && is_wanted {
                continue;
            }
            self.delete_daemon_set(found);
        }
        for desired in desired {
            let key = self.module.metadata.key().in_same_namespace(&desired.name);
            let found = self.world.store::<DaemonSet>().get(&key);
            if let Some(other) = found.as_deref().filter(|it| !is_ours(it, self.module)) {
                self.name_taken(other);
                continue;
            }
            if found
                .as_ref()
                .is_some_and(|it| it.metadata.is_terminating() || desired.is_current(it))
            {
                continue;
            }
            self.apply_daemon_set(desired, found.as_deref());
        }
    }

    /// Applies a DaemonSet.
    fn apply_daemon_set(&mut self, desired: DesiredDaemonSet, found: Option<&DaemonSet>) {
        let DesiredDaemonSet { part, name, image, body, .. } = desired;
        let key = self.module.metadata.key().in_same_namespace(&name);
        let mut step = Step::new(apply(DaemonSet::RESOURCE, key, body));
        let containers = found.into_iter().flat_map(|it| &it.spec.template.spec.containers);
        let is_new_image = !containers.map(|it| &it.image).any(|it| *it == image);
        if let Some(kernel) = self.made_images.get(&name).filter(|_| is_new_image) {
            let message = format!("kernel {kernel}: {image} is ready; DaemonSet {name} runs it");
            step = step.on_success(Event::normal(self.about.clone(), "ImageReady", message));
        }
        if found.is_none() {
            let message = format!("created DaemonSet {name} ({}): {image}", part.as_str());
            step = step.on_success(Event::normal(self.about.clone(), "DaemonSetCreated", message));
        }
        let refused = format!("could not apply DaemonSet {name}");
        let refused = Event::warning(self.about.clone(), "DaemonSetRefused", refused);
        self.create(step.on_refusal(refused));
    }

    /// Says that a DaemonSet of somebody else has the name of one that is needed.
    fn name_taken(&mut self, found: &DaemonSet) {
        let name = &found.metadata.name;
        let message = match found.metadata.is_terminating() {
            true => format!(
                "DaemonSet {name} of a deleted Module is still being deleted; the new \
                          one is created after that"
            ),
            false => format!("DaemonSet {name} exists and is not of this Module; delete it"),
        };
        self.warn("NameTaken", message);
    }

    /// Deletes a DaemonSet; its pods end with it, and unload.
    fn delete_daemon_set(&mut self, found: &DaemonSet) {
        let metadata = &found.metadata;
        let message = format!("deleted DaemonSet {}: no node needs it", metadata.name);
        let event = Event::normal(self.about.clone(), "DaemonSetDeleted", message);
        self.plan.steps.push(
            Step::new(Write::Delete {
                resource: DaemonSet::RESOURCE,
                key: metadata.key(),
                fence: Fence { revision: None, ..metadata.fence() },
                grace: None,
                propagation: Some(Propagation::Foreground),
            })
            .on_success(event),
        );
    }

    fn spec_has_driver(&self) -> bool {
        self.module.spec.as_ref().is_ok_and(|it| it.driver_container.is_some())
    }

    fn spec_has_plugin(&self) -> bool {
        self.module.spec.as_ref().is_ok_and(|it| it.device_plugin.is_some())
    }
}

/// Whether a DaemonSet belongs to this Module and not to somebody else, or to a Module of the same
/// name that was deleted.
fn is_ours(found: &DaemonSet, module: &Module) -> bool {
    found.metadata.is_controlled_by(&module.metadata.uid)
}
