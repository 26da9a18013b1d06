//! Group `devmgmtproto.k8s.io`.
use crate::{decode::Decoded, finding::Findings, node::Node};
/// stub
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct NodeDevices;
/// stub
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PodCapacityClaim;
pub(crate) fn read_file_form(_: &mut Node, _: &mut Findings) -> Option<Decoded> {
    None
}
pub(crate) fn convert_set_claim(_: &mut Node, _: &mut Findings) {}
pub(crate) fn check_carrier(_: &mut Node, _: &mut Findings) {}
