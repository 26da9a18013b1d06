//! The webhook that records the authors of AppWrappers, and checks whether they may use the quota
//! leaves they name.

use gantry_subsystem::admission::{AdmissionHook, HookCaller};
use serde_json::Value;

use super::FIELD_MANAGER;
use crate::author;
use crate::effects::admission::LeafAdmission;

/// Answers admission reviews of AppWrappers.
#[derive(Clone, Debug)]
pub(super) struct AuthorHook {
    /// The queue's decision about quota leaves, once the queue runs.
    pub(super) leaves: LeafAdmission,
}

impl AdmissionHook for AuthorHook {
    fn topic(&self) -> &'static str {
        "the authors of AppWrappers"
    }

    fn handles_path(&self, path: &str) -> bool {
        path == author::WEBHOOK_PATH
    }

    fn review(&self, _: &str, review: &Value) -> Value {
        self.leaves.complete(review, author::answer_review(review))
    }

    fn manager(&self) -> &'static str {
        FIELD_MANAGER
    }

    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value> {
        vec![author::webhook_configuration(caller.client)]
    }
}
