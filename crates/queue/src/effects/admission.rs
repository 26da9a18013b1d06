//! Answers admission reviews of AppWrappers beside recording the author: whether they may use the
//! quota leaves they name, and that they are charged less than they request.

use std::sync::{Arc, OnceLock};

use gantry_controller::ManagerHandle;
use gantry_reconcile::View as _;
use serde_json::Value;

use crate::quota::Subtree;
use crate::quota_leaf;
use crate::settings::LiveSettings;

/// What reviews of AppWrappers are decided by: the cache of the queue, and its settings.
#[derive(Clone, Debug)]
pub struct AdmissionContext {
    /// The cache of the queue.
    pub handle: ManagerHandle,
    /// The settings of the queue.
    pub settings: LiveSettings,
}

/// Completes answers about AppWrappers, once the queue runs. Clones share one state.
///
/// Until then, and while the cache is not synced, nothing is refused: the queue applies the same
/// rules, and holds what was not refused.
#[derive(Clone, Debug, Default)]
pub struct LeafAdmission(Arc<OnceLock<AdmissionContext>>);

impl LeafAdmission {
    /// Sets what answers are decided by from now on.
    pub fn set_context(&self, context: Option<AdmissionContext>) {
        if let Some(context) = context {
            // A queue is started once.
            let _ = self.0.set(context);
        }
    }

    /// Completes the answer to a review of an AppWrapper.
    #[must_use]
    pub fn complete(&self, review: &Value, answer: Value) -> Value {
        let Some(AdmissionContext { handle, settings }) = self.0.get() else { return answer };
        let settings = settings.get();
        let store = handle.world().store_for::<Subtree>(&Subtree::RESOURCE);
        let subtrees = store.map(|it| it.list()).unwrap_or_default();
        quota_leaf::complete_review(review, answer, &subtrees, &settings)
    }
}
