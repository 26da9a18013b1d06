//! Counts all, used and free devices, by node and class.

use std::collections::BTreeSet;

use gantry_api::devices::{ClaimSpec, DeviceRequest, Term};
use gantry_columns::{TABLE_GAP, align};
use serde::Serialize;

use crate::constraint::Constraints;
use crate::lower::{Catalog, ClaimError, ClaimSpecRef, Snapshot};
use crate::problem::{Pool, PoolDevices, Request, Signature, Verdict};
use crate::report;
use crate::schedule::Objects;

/// The devices of a class on a node. A device may be of several classes, and is counted in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The node.
    pub node: String,
    /// The class; `None` for devices of no class.
    pub class: Option<String>,
    /// The driver of devices of no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// How many devices there are.
    pub devices: u64,
    /// How many are held.
    pub used: u64,
    /// How many a claim could have exclusively now. Devices that are neither used nor free are
    /// tainted, of an invalid pool, or lack resources of their pool.
    pub free: u64,
}

/// Counts devices by node and class, in the order of their names. Classes with administrator
/// access, whose holds are invisible, are left out.
///
/// # Errors
/// A class contradicts itself.
pub fn top(objects: &Objects) -> Result<Vec<Row>, ClaimError> {
    let catalog = Catalog::new(objects.source, &objects.drivers, &objects.classes);
    let constraints = Constraints::default();
    let mut snapshot = objects.snapshot(&catalog);
    let mut classes: Vec<&str> = objects
        .classes
        .iter()
        .filter(|class| !class.spec.admin_access)
        .filter_map(|class| class.metadata.name.as_deref())
        .collect();
    classes.sort_unstable();
    let mut drivers: Vec<&str> =
        objects.pools.iter().map(|pool| pool.spec.driver.as_str()).collect();
    drivers.sort_unstable();
    drivers.dedup();
    let mut ask = |ask: DeviceRequest| {
        let term = Term { name: "main".to_owned(), ask, ..Term::default() };
        let spec = ClaimSpec { claims: vec![term], ..ClaimSpec::default() };
        let lowered =
            snapshot.request(&catalog, &constraints, &[("top", ClaimSpecRef::Claim(&spec))]);
        lowered.map(|lowered| lowered.request)
    };
    let mut by_class = Vec::new();
    for class in classes {
        let device_class = Some(class.to_owned());
        by_class.push((class, ask(DeviceRequest { device_class, ..DeviceRequest::default() })?));
    }
    let mut by_driver = Vec::new();
    for driver in drivers {
        by_driver.push((
            driver,
            ask(DeviceRequest { driver: Some(driver.to_owned()), ..DeviceRequest::default() })?,
        ));
    }
    let mut nodes: Vec<usize> = (0..snapshot.inventory.nodes().len()).collect();
    nodes.sort_by_key(|at| &snapshot.inventory.nodes()[*at].name);
    let mut rows = Vec::new();
    for at in nodes {
        let count = RowCounter { snapshot: &snapshot, node: at };
        for (class, request) in &by_class {
            rows.extend(
                count
                    .row(request, |_| true)
                    .map(|row| Row { class: Some((*class).to_owned()), ..row }),
            );
        }
        let classless = |signature: Signature| {
            by_class.iter().all(|(_, request)| *request.verdict(0, signature) != Verdict::Met)
        };
        for (driver, request) in &by_driver {
            rows.extend(
                count
                    .row(request, classless)
                    .map(|row| Row { driver: Some((*driver).to_owned()), ..row }),
            );
        }
    }
    Ok(rows)
}

struct RowCounter<'a> {
    snapshot: &'a Snapshot,
    node: usize,
}

impl RowCounter<'_> {
    /// Returns what a request finds on the node among some devices; `None` if there is none.
    fn row(&self, request: &Request, counts: impl Fn(Signature) -> bool) -> Option<Row> {
        let inventory = &self.snapshot.inventory;
        let node = &inventory.nodes()[self.node];
        let counts =
            |signature| counts(signature) && *request.verdict(0, signature) == Verdict::Met;
        let mut row = Row {
            node: node.name.clone(),
            class: None,
            driver: None,
            devices: 0,
            used: 0,
            free: 0,
        };
        let found = report::terms(inventory, node, request);
        for report in found.iter().flat_map(|term| &term.alternatives).flat_map(|way| &way.pools) {
            let Some(Pool { devices: stock, .. }) = inventory.pools().get(report.pool) else {
                continue;
            };
            match stock {
                PoolDevices::Counted(counted) if counts(counted.signature) => {
                    row.devices += u64::from(counted.count);
                    row.used += u64::from(counted.held.min(counted.count));
                    row.free += report.candidates;
                }
                PoolDevices::Counted(_) => {}
                PoolDevices::Listed(devices) => {
                    let refused: BTreeSet<usize> =
                        report.devices.iter().map(|refused| refused.device).collect();
                    for (at, device) in devices.iter().enumerate() {
                        if counts(device.signature) {
                            row.devices += 1;
                            row.used += u64::from(device.holds > 0);
                            row.free += u64::from(!refused.contains(&at));
                        }
                    }
                }
            }
        }
        (row.devices > 0).then_some(row)
    }
}

/// Formats the rows as a table.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let head = ["NODE", "CLASS", "DEVICES", "USED", "FREE"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let class = match (&row.class, &row.driver) {
            (Some(class), _) => class.clone(),
            (None, Some(driver)) => format!("(no class; driver {driver})"),
            (None, None) => String::new(),
        };
        let numbers = [row.devices, row.used, row.free].map(|number| number.to_string());
        let [devices, used, free] = numbers;
        [row.node.clone(), class, devices, used, free]
    });
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(cells).collect();
    align(&lines, TABLE_GAP)
}

#[cfg(test)]
mod tests;
