//! What the members of a gang need, and how many of their pods fit.

use super::{Gang, GangMember};

pub(super) fn has_claims(member: &GangMember<'_>) -> bool {
    member.request.is_some() || !member.shared.is_empty()
}

pub(super) fn is_allowed_on(member: &GangMember<'_>, node: usize) -> bool {
    member.nodes.get(node).copied().unwrap_or_default()
}

pub(super) fn need(member: &GangMember<'_>, resource: usize) -> i128 {
    i128::from(member.needs.get(resource).copied().unwrap_or_default().max(0))
}

pub(super) fn width(count: usize) -> i128 {
    i128::try_from(count).unwrap_or(i128::MAX)
}

/// Returns how many pods of a member fit into what is left of a node.
pub(super) fn fits(member: &GangMember<'_>, free: &[i64]) -> usize {
    let wanted = member.needs.iter().zip(free).filter(|(need, _)| **need > 0);
    let most =
        wanted.map(|(need, left)| usize::try_from((*left).max(0) / need).unwrap_or(usize::MAX));
    most.min().unwrap_or(usize::MAX).min(member.count)
}

/// Returns how large a member's pods are: the largest share of what all nodes have of any resource,
/// in millionths.
pub(super) fn size(member: &GangMember<'_>, gang: &Gang<'_>) -> i128 {
    let resources = member.needs.iter().enumerate();
    let parts = resources.map(|(at, need)| {
        let all = gang.free_capacity.iter().filter_map(|it| it.get(at));
        let all = all.map(|it| i128::from(*it).max(0)).sum::<i128>();
        i128::from(*need).max(0) * 1_000_000 / all.max(1)
    });
    parts.max().unwrap_or_default()
}
