//! The webhook that records who makes AppWrappers, and says whether they may use the leaves they name.

use gantry_subsystem::admission::{AdmissionHook, HookCaller};
use serde_json::Value;

use super::NAME;
use crate::author;
use crate::effects::admission::LeafAdmission;

/// Answers about AppWrappers.
#[derive(Clone, Debug)]
pub(super) struct AuthorHook {
    /// What the queue says about leaves, once it runs.
    pub(super) leaves: LeafAdmission,
}

impl AdmissionHook for AuthorHook {
    fn topic(&self) -> &'static str {
        "the authors of AppWrappers"
    }

    fn is_called_at(&self, path: &str) -> bool {
        path == author::PATH
    }

    fn review(&self, _: &str, review: &Value) -> Value {
        self.leaves.complete(review, author::answer(review))
    }

    fn manager(&self) -> &'static str {
        NAME
    }

    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value> {
        vec![author::configuration(caller.client)]
    }
}
