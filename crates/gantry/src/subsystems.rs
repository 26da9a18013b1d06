//! The list of subsystems. Everything that Gantry does for all of them uses it.

use std::sync::LazyLock;

use anyhow::Context as _;
use gantry_api::kind::Kind;
use gantry_api::object::KINDS;
use gantry_controller::ManagerHandle;
use gantry_sharing::inventory::{InventoryEntry, ObjectKind, account_entry, operator_entry};
use gantry_subsystem::access::BASE_FILE;
use gantry_subsystem::settings::Values;
use gantry_subsystem::start::Reconfigure;
use gantry_subsystem::{
    ControllerSwitch, Feature, Grant, GrantBinding, GrantScope, Setup, Subsystem,
    SubsystemComponents,
};

use crate::config::keys::KEYS;

/// All subsystems, in the order of logs, pages and files.
pub const SUBSYSTEMS: &[Subsystem] = &[
    gantry_queue::subsystem::SUBSYSTEM,
    gantry_scaling::subsystem::SUBSYSTEM,
    gantry_sim::subsystem::SUBSYSTEM,
    gantry_placement::subsystem::SUBSYSTEM,
    gantry_kernel_modules::subsystem::SUBSYSTEM,
    gantry_actuation::subsystem::SUBSYSTEM,
];

/// The controllers that can be enabled by name.
pub static CONTROLLERS: LazyLock<Vec<ControllerSwitch>> =
    LazyLock::new(|| features().flat_map(|it| it.controllers).copied().collect());

/// The features that can be enabled.
pub fn features() -> impl Iterator<Item = &'static Feature> {
    SUBSYSTEMS.iter().flat_map(|it| it.features)
}

/// Returns the kinds that the enabled features require, each once.
#[must_use]
pub fn needed_kinds(values: &Values) -> Vec<&'static Kind> {
    let needed =
        |name: &str| features().any(|it| (it.enabled)(values) && it.definitions.contains(&name));
    KINDS.iter().filter(|kind| needed(&kind.crd_name())).collect()
}

/// Returns every cluster-scoped object of Gantry, including those of subsystems.
#[must_use]
pub fn inventory() -> Vec<InventoryEntry> {
    let mut entries = gantry_sharing::inventory::inventory();
    let (role, binding) = (ObjectKind::ClusterRole, ObjectKind::ClusterRoleBinding);
    let grants = SUBSYSTEMS.iter().flat_map(|it| (it.grants)());
    let own = |it: &Grant| it.scope == GrantScope::Cluster && it.file != BASE_FILE;
    for Grant { file, name, binding: membership, .. } in grants.filter(own) {
        let is_optional = file.starts_with("optional/");
        entries.push(operator_entry(role, name, is_optional));
        match membership {
            GrantBinding::Direct | GrantBinding::AggregatesLabel(_) => {
                entries.push(operator_entry(binding, name, is_optional));
            }
            GrantBinding::AggregatedByLabel(_) | GrantBinding::Unbound => {}
        }
    }
    // The list of accounts depends on no setting.
    let values = Values::from_layers(KEYS.as_slice(), []);
    for account in SUBSYSTEMS.iter().flat_map(|it| (it.accounts)(&values)) {
        entries.extend([role, binding].map(|kind| account_entry(kind, account.name)));
    }
    entries
}

/// Starts everything that is enabled.
///
/// # Errors
/// A subsystem cannot start; the error names it.
pub async fn start(setup: Setup<'_>) -> anyhow::Result<SubsystemComponents> {
    let mut parts = SubsystemComponents::default();
    for subsystem in SUBSYSTEMS {
        let started = (subsystem.start)(setup).await;
        let started = started.map_err(|error| anyhow::anyhow!(error));
        parts.extend(started.with_context(|| format!("could not start {}", subsystem.name))?);
    }
    Ok(parts)
}

/// Applies changed settings.
pub(crate) fn reconfigure(all: &[Reconfigure], values: &Values, handle: &ManagerHandle) {
    for reconfigure in all {
        if let Err(error) = reconfigure(values, handle) {
            // Both configurations that they are merged from were valid, and no rule spans them: a
            // test verifies it.
            tracing::error!(%error, "could not use the configuration in effect");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::config::operator::merge_and_check;

    fn needed(text: &str) -> Vec<&'static str> {
        let (layer, report) = document::read(text, "f");
        let checked = merge_and_check([&layer], report, &CONTROLLERS).unwrap();
        needed_kinds(&checked.values).iter().map(|kind| kind.plural).collect()
    }

    #[test]
    fn only_enabled_features_require_their_kinds() {
        let table = [
            ("the queue is on", "", vec!["appwrappers"]),
            ("quotas", "mcad: {quotaEnabled: true}", vec!["quotasubtrees", "appwrappers"]),
            ("nothing", "mcadEnabled: false", vec![]),
            ("no quotas without a queue", "mcadEnabled: false\nmcad: {quotaEnabled: true}", vec![]),
            ("scaling", "mcadEnabled: false\ninstascale: {enabled: true}", vec!["appwrappers"]),
            ("nodes", "mcadEnabled: false\nsimulation: {enabled: true}", vec![]),
            (
                "devices",
                "mcadEnabled: false\ndevices: {enabled: true}",
                vec![
                    "deviceclaims",
                    "deviceclaimtemplates",
                    "deviceclasses",
                    "devicedrivers",
                    "devicepools",
                    "deviceprivilegedclaims",
                    "poddevices",
                ],
            ),
        ];
        for (why, text, expected) in table {
            assert_eq!(needed(text), expected, "{why}");
        }
    }

    /// Two entries for one object would be two rules for it.
    #[test]
    fn cs_4_every_object_of_a_subsystem_has_one_rule() {
        let entries = inventory();
        for entry in &entries {
            let same = |it: &&InventoryEntry| it.kind == entry.kind && it.name == entry.name;
            assert_eq!(entries.iter().filter(same).count(), 1, "{entry:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let controllers: Vec<_> = CONTROLLERS.iter().map(|it| it.name).collect();
        let features: Vec<_> = features().map(|it| it.name).collect();
        let subsystems: Vec<_> = SUBSYSTEMS.iter().map(|it| it.name).collect();
        for names in [controllers, features, subsystems] {
            for (index, name) in names.iter().enumerate() {
                assert!(!names[index + 1..].contains(name), "{name} twice");
            }
        }
    }

    #[test]
    fn every_definition_is_one_of_ours() {
        for name in SUBSYSTEMS.iter().flat_map(Subsystem::definitions) {
            assert!(KINDS.iter().any(|kind| kind.crd_name() == name), "{name}");
        }
    }
}
