//! The order in which a node changes from one version of a driver to the next.
//!
//! The administrator says which version a node should have. The device plugin of the old version
//! goes first, then the pods that use its devices where that is wanted, then its driver, then the
//! driver of the new version comes, and last its device plugin.

/// The version labels of a node about one Module, and the pods there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether some pods are there")]
pub struct VersionLabels {
    /// The version that the administrator wants.
    pub wanted: Option<String>,
    /// The version of the driver that may run.
    pub driver: Option<String>,
    /// The version of the device plugin that may run.
    pub plugin: Option<String>,
    /// Whether there is a pod of the driver, in any state.
    pub has_driver_pod: bool,
    /// Whether there is a pod of the device plugin, in any state.
    pub has_plugin_pod: bool,
    /// Whether there are pods that have to be evicted before the driver goes.
    pub has_device_users: bool,
    /// Whether the node says that the Module is ready.
    pub is_ready: bool,
}

/// The next change of a node's version labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// There is nothing to do.
    None,
    /// Pods of the Module have to end first.
    Wait,
    /// Pods that use the devices have to be evicted first.
    Drain,
    /// The driver of this version may run.
    SetDriver(String),
    /// The device plugin of this version may run.
    SetPlugin(String),
    /// No driver may run.
    RemoveDriver,
    /// No device plugin may run.
    RemovePlugin,
}

/// Decides the next change, one at a time.
#[must_use]
pub fn next_step(labels: &VersionLabels) -> UpgradeStep {
    let VersionLabels {
        wanted,
        driver,
        plugin,
        has_driver_pod,
        has_plugin_pod,
        has_device_users,
        is_ready,
    } = labels;
    match (wanted, driver, plugin) {
        (None, None, None) => UpgradeStep::None,
        (Some(wanted), Some(driver), Some(plugin)) if driver == wanted && plugin == wanted => {
            UpgradeStep::None
        }
        (Some(wanted), Some(driver), None) if driver == wanted => {
            UpgradeStep::SetPlugin(wanted.clone())
        }
        // Waiting for the pods of the device plugin here would wait for ever: this ends them.
        (_, _, Some(_)) => UpgradeStep::RemovePlugin,
        (_, Some(_), None) if *has_plugin_pod => UpgradeStep::Wait,
        // Its devices are allocated to no new pod any more.
        (_, Some(_), None) if *has_device_users => UpgradeStep::Drain,
        (_, Some(_), None) => UpgradeStep::RemoveDriver,
        (Some(_), None, None) if *has_driver_pod || *is_ready => UpgradeStep::Wait,
        (Some(wanted), None, None) => UpgradeStep::SetDriver(wanted.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the table of an ordered upgrade, with its conditions.
    #[test]
    fn kms_82_nodes_are_upgraded_in_order() {
        use UpgradeStep::{
            Drain, None as Nothing, RemoveDriver, RemovePlugin, SetDriver, SetPlugin, Wait,
        };
        let v = |text: &str| text.to_owned();
        // Wanted, driver, plugin; driver pod, plugin pod, device users, ready.
        let table: [([&str; 3], [bool; 4], UpgradeStep); 22] = [
            (["", "", ""], [true, true, true, true], Nothing),
            (["", "1", "1"], [true, true, true, true], RemovePlugin),
            (["", "1", ""], [true, true, false, true], Wait),
            (["", "1", ""], [true, true, true, true], Wait),
            (["", "1", ""], [true, false, true, true], Drain),
            (["", "1", ""], [true, false, false, true], RemoveDriver),
            (["2", "", ""], [true, false, false, false], Wait),
            (["2", "", ""], [false, false, false, true], Wait),
            (["2", "", ""], [false, false, false, false], SetDriver(v("2"))),
            (["2", "", ""], [false, false, true, false], SetDriver(v("2"))),
            (["2", "2", ""], [false, false, false, false], SetPlugin(v("2"))),
            (["2", "2", ""], [true, false, true, true], SetPlugin(v("2"))),
            (["2", "2", "2"], [true, true, true, true], Nothing),
            (["2", "1", "1"], [true, true, false, true], RemovePlugin),
            (["2", "1", "1"], [true, true, true, true], RemovePlugin),
            (["2", "1", ""], [true, true, true, true], Wait),
            (["2", "1", ""], [true, false, true, true], Drain),
            (["2", "1", ""], [true, false, false, true], RemoveDriver),
            (["2", "1", "2"], [true, true, true, true], RemovePlugin),
            (["2", "2", "1"], [true, true, true, true], RemovePlugin),
            (["2", "", "1"], [false, true, false, false], RemovePlugin),
            (["", "", "1"], [false, true, false, false], RemovePlugin),
        ];
        for ([wanted, driver, plugin], [driver_pod, plugin_pod, device_users, ready], expected) in
            table
        {
            let label = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let labels = VersionLabels {
                wanted: label(wanted),
                driver: label(driver),
                plugin: label(plugin),
                has_driver_pod: driver_pod,
                has_plugin_pod: plugin_pod,
                has_device_users: device_users,
                is_ready: ready,
            };
            assert_eq!(next_step(&labels), expected, "{labels:?}");
        }
    }
}
