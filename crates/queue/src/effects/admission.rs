//! What the API server is answered about AppWrappers beside who made them: whether they may use the quota leaves
//! they name, and that they are charged less than they ask for.

use std::sync::{Arc, OnceLock};

use gantry_controller::Handle;
use gantry_reconcile::View as _;
use serde_json::Value;

use crate::leaf;
use crate::quota::Subtree;
use crate::settings::Live;

/// What reviews of AppWrappers are decided by: what the queue sees, and its settings.
#[derive(Clone, Debug)]
pub struct AdmissionContext {
    /// What the queue sees.
    pub handle: Handle,
    /// The settings it decides by.
    pub settings: Live,
}

/// Completes answers about AppWrappers, once the queue runs. Clones are the same one.
///
/// Until then, and while what it sees is not complete, nothing is refused: the queue decides by the same
/// rules, and holds what nobody refused.
#[derive(Clone, Debug, Default)]
pub struct LeafAdmission(Arc<OnceLock<AdmissionContext>>);

impl LeafAdmission {
    /// Decides by this from now on.
    pub fn follow(&self, context: Option<AdmissionContext>) {
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
        let shelf = handle.world().shelf_at::<Subtree>(&Subtree::RESOURCE);
        let subtrees = shelf.map(|it| it.all()).unwrap_or_default();
        leaf::review(review, answer, &subtrees, &settings)
    }
}
