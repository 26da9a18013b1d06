//! Prints results in the format of the original.

use gantry_api::devices::{DeviceAllocation, TopologyAssignment};
use gantry_api::quantity::Quantity;
use gantry_yaml::{self as yaml, WriteError};
use serde::Serialize;

use super::{NodeResult, Outcome};

/// An allocation as it is printed. Fields are in the order in which they are printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedAllocation<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocations: Vec<PrintedCapacity<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    device_pool_name: &'a str,
}

#[derive(Serialize)]
struct PrintedCapacity<'a> {
    allocation: Quantity,
    name: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topologies: Vec<PrintedTopology<'a>>,
}

#[derive(Serialize)]
struct PrintedTopology<'a> {
    name: &'a str,
    r#type: &'a str,
}

/// Prints what was allocated, and a line for each node, by name. Nothing allocated is `null`.
///
/// # Errors
/// If something cannot be written as YAML.
pub fn normal(
    allocations: Option<&[DeviceAllocation]>,
    nodes: &[NodeResult],
) -> Result<String, WriteError> {
    let mut text = allocations_text(allocations)?;
    for node in ordered(nodes) {
        let name = &node.node_name;
        let line = match &node.outcome {
            Outcome::Satisfied { score } => {
                format!("{name}: satisfied all claims with score {score}")
            }
            Outcome::Unsatisfied { claims } => {
                format!("{name}: could not satisfy these claims: {}", claims.join(", "))
            }
            Outcome::Undecided => format!("{name}: the search ended without a result"),
        };
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// Prints what was allocated, and everything that was found on each node, by name.
///
/// # Errors
/// If something cannot be written as YAML.
pub fn verbose(
    allocations: Option<&[DeviceAllocation]>,
    nodes: &[NodeResult],
) -> Result<String, WriteError> {
    Ok(allocations_text(allocations)? + &yaml::write(&ordered(nodes))?)
}

fn allocations_text(allocations: Option<&[DeviceAllocation]>) -> Result<String, WriteError> {
    let printed: Option<Vec<PrintedAllocation<'_>>> =
        allocations.map(|allocations| allocations.iter().map(printed).collect());
    let allocated = yaml::write(&printed)?;
    Ok(format!(
        "ALLOCATIONS\n-----------\n{}\n\nNODE RESULTS\n------------\n",
        allocated.trim_end()
    ))
}

fn printed(allocation: &DeviceAllocation) -> PrintedAllocation<'_> {
    let parts = allocation.allocations.iter().map(|part| PrintedCapacity {
        allocation: part.allocation,
        name: &part.name,
        topologies: part.topologies.iter().map(printed_topology).collect(),
    });
    PrintedAllocation {
        allocations: parts.collect(),
        device_count: allocation.device_count,
        device_name: allocation.device_name.as_deref(),
        device_pool_name: &allocation.device_pool_name,
    }
}

fn printed_topology(at: &TopologyAssignment) -> PrintedTopology<'_> {
    PrintedTopology { name: &at.name, r#type: &at.r#type }
}

/// Returns the nodes by name, as they are printed.
pub(crate) fn ordered(nodes: &[NodeResult]) -> Vec<&NodeResult> {
    let mut ordered: Vec<&NodeResult> = nodes.iter().collect();
    ordered.sort_by(|one, two| one.node_name.cmp(&two.node_name));
    ordered
}
