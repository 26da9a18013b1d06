//! How many pods a deployment may have beyond those wanted, and how many of those may be missing.

use crate::view::{Deployment, Rounding, Share, StrategyKind};

/// How far a deployment may stray from its size while pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// How many pods there may be beyond those wanted.
    pub(super) surge: i64,
    /// How many of those wanted may be unavailable.
    pub(super) unavailable: i64,
}

impl Limits {
    /// The limits of a deployment. With neither surge nor unavailability nothing could move, so one
    /// pod may be missing then.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let strategy = &deployment.spec.strategy;
        let replicas = deployment.spec.replicas;
        if strategy.kind == StrategyKind::Recreate {
            return Self { surge: 0, unavailable: 0 };
        }
        let part = |share: &Option<Share>, rounding| {
            share.as_ref().and_then(|it| it.of(replicas, rounding)).unwrap_or_default()
        };
        let surge = part(&strategy.rolling_update.max_surge, Rounding::Up);
        let unavailable = part(&strategy.rolling_update.max_unavailable, Rounding::Down);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { surge, unavailable: unavailable.min(replicas) }
    }
}
