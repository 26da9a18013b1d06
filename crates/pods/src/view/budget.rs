//! PodDisruptionBudgets: how many pods may be unavailable at once.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, Selector, View};
use jiff::Timestamp;
use serde::Deserialize;

use super::{Condition, IntOrPercent};

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: BudgetSpec,
    /// The observed state.
    pub status: BudgetStatus,
}

impl View for PodDisruptionBudget {
    const RESOURCE: Resource =
        Resource::namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    /// The pods it protects; none when absent.
    pub selector: Option<Selector>,
    /// How many must stay available.
    pub min_available: Option<IntOrPercent>,
    /// How many may be unavailable.
    pub max_unavailable: Option<IntOrPercent>,
}

/// The status of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// How many more pods may be evicted now.
    pub disruptions_allowed: i64,
    /// Pods whose eviction was accepted and that are still there, and since when.
    pub disrupted_pods: BTreeMap<String, Timestamp>,
    /// How many pods are healthy.
    pub current_healthy: i64,
    /// How many must be healthy.
    pub desired_healthy: i64,
    /// How many pods there should be.
    pub expected_pods: i64,
    /// The generation for which this was computed.
    pub observed_generation: i64,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}
