//! How many pods a deployment may have beyond the desired number, and how many may be unavailable.

use crate::view::{Deployment, DeploymentStrategyKind, IntOrPercent, Rounding};

/// The limits of a deployment during a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutLimits {
    /// How many pods there may be beyond the desired number.
    pub(super) surge: i64,
    /// How many of the desired pods may be unavailable.
    pub(super) unavailable: i64,
}

impl RolloutLimits {
    /// Returns the limits of a deployment. With neither surge nor unavailability the rollout could
    /// not proceed, so one pod may be unavailable then.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let strategy = &deployment.spec.strategy;
        let replicas = deployment.spec.replicas;
        if strategy.kind == DeploymentStrategyKind::Recreate {
            return Self { surge: 0, unavailable: 0 };
        }
        let part = |share: &Option<IntOrPercent>, rounding| {
            share.as_ref().and_then(|it| it.of(replicas, rounding)).unwrap_or_default()
        };
        let surge = part(&strategy.rolling_update.max_surge, Rounding::Up);
        let unavailable = part(&strategy.rolling_update.max_unavailable, Rounding::Down);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { surge, unavailable: unavailable.min(replicas) }
    }
}
