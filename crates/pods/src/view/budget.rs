//! Budgets: how many pods may be missing at once.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, Selector, View};
use jiff::Timestamp;
use serde::Deserialize;

use super::{Condition, Share};

/// A budget for disruptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: BudgetSpec,
    /// What is.
    pub status: BudgetStatus,
}

impl View for PodDisruptionBudget {
    const RESOURCE: Resource =
        Resource::namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What a budget is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    /// Which pods; none when absent.
    pub selector: Option<Selector>,
    /// How many must be left.
    pub min_available: Option<Share>,
    /// How many may be missing.
    pub max_unavailable: Option<Share>,
}

/// What is left of a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// How many more pods may go now.
    pub disruptions_allowed: i64,
    /// Pods that were told to go and are still there, and since when.
    pub disrupted_pods: BTreeMap<String, Timestamp>,
    /// How many pods are healthy.
    pub current_healthy: i64,
    /// How many must be.
    pub desired_healthy: i64,
    /// How many there should be.
    pub expected_pods: i64,
    /// For which generation this was found.
    pub observed_generation: i64,
    /// What is true of it.
    pub conditions: Vec<Condition>,
}
