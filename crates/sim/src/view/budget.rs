//! Budgets: how many pods may be missing at once.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, Selector, View};
use jiff::Timestamp;
use serde::Deserialize;

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
#[serde(default)]
pub struct BudgetSpec {
    /// Which pods; none when absent.
    pub selector: Option<Selector>,
}

/// What is left of a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// How many more pods may go now.
    pub disruptions_allowed: i64,
    /// Pods that were told to go and are still there, and since when.
    pub disrupted_pods: BTreeMap<String, Timestamp>,
}
