//! The text that the original printed.

use gantry_api::devices::{DeviceAllocation, TopologyAssignment};
use gantry_api::quantity::Quantity;
use gantry_api::yaml::{self, WriteError};
use serde::Serialize;

use super::{NodeResult, Outcome};

/// An allocation as it is printed. Fields are in the order in which they are printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocations: Vec<PrintedPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    device_pool_name: &'a str,
}

#[derive(Serialize)]
struct PrintedPart<'a> {
    allocation: Quantity,
    name: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topologies: Vec<PrintedPlace<'a>>,
}

#[derive(Serialize)]
struct PrintedPlace<'a> {
    name: &'a str,
    r#type: &'a str,
}

/// What was allocated, and a line for each node, by name. Nothing allocated is `null`.
///
/// # Errors
/// If something cannot be written as YAML.
pub fn normal(
    allocations: Option<&[DeviceAllocation]>,
    nodes: &[NodeResult],
) -> Result<String, WriteError> {
    let mut text = head(allocations)?;
    for node in ordered(nodes) {
        let name = &node.node_name;
        let line = match &node.outcome {
            Outcome::Satisfied { score } => {
                format!("{name}: satisfied all claims with score {score}")
            }
            Outcome::Unsatisfied { claims } => {
                format!("{name}: could not satisfy these claims: {}", claims.join(", "))
            }
            Outcome::Undecided => format!("{name}: the search ended before it knew"),
        };
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// What was allocated, and everything that was found on each node, by name.
///
/// # Errors
/// If something cannot be written as YAML.
pub fn verbose(
    allocations: Option<&[DeviceAllocation]>,
    nodes: &[NodeResult],
) -> Result<String, WriteError> {
    Ok(head(allocations)? + &yaml::write(&ordered(nodes))?)
}

fn head(allocations: Option<&[DeviceAllocation]>) -> Result<String, WriteError> {
    let printed: Option<Vec<Printed<'_>>> =
        allocations.map(|allocations| allocations.iter().map(printed).collect());
    let allocated = yaml::write(&printed)?;
    Ok(format!(
        "ALLOCATIONS\n-----------\n{}\n\nNODE RESULTS\n------------\n",
        allocated.trim_end()
    ))
}

fn printed(allocation: &DeviceAllocation) -> Printed<'_> {
    let parts = allocation.allocations.iter().map(|part| PrintedPart {
        allocation: part.allocation,
        name: &part.name,
        topologies: part.topologies.iter().map(place).collect(),
    });
    Printed {
        allocations: parts.collect(),
        device_count: allocation.device_count,
        device_name: allocation.device_name.as_deref(),
        device_pool_name: &allocation.device_pool_name,
    }
}

fn place(at: &TopologyAssignment) -> PrintedPlace<'_> {
    PrintedPlace { name: &at.name, r#type: &at.r#type }
}

/// Nodes by name, as they are printed.
pub(crate) fn ordered(nodes: &[NodeResult]) -> Vec<&NodeResult> {
    let mut ordered: Vec<&NodeResult> = nodes.iter().collect();
    ordered.sort_by(|one, two| one.node_name.cmp(&two.node_name));
    ordered
}
