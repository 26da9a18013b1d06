//! Webhooks that other parts of the process serve.
//!
//! They are identified by the service that a configuration names, like those of a cluster, and
//! called and checked in the same way; only that nothing listens, and no call can fail on the way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use gantry_webhook::WebhookTarget;
use serde_json::Value;

use crate::api::Api;

/// The handlers, by namespace and name of the service.
#[derive(Default)]
pub(super) struct InProcessWebhooks(RwLock<BTreeMap<(String, String), InProcessHandler>>);

/// Handles a request to a path.
pub(super) type InProcessHandler = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

impl Api {
    /// Registers a handler for the admission webhooks of a service, which replaces the service.
    /// `handler` gets the path and the document, and must not block.
    pub fn register_webhook_handler(
        &self,
        namespace: &str,
        service: &str,
        handler: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) {
        let residents = &self.0.admission_webhooks.in_process.0;
        let mut residents = residents.write().unwrap_or_else(PoisonError::into_inner);
        residents.insert((namespace.to_owned(), service.to_owned()), Arc::new(handler));
    }

    /// Returns the handler of a service, if it is in this process.
    pub(super) fn in_process_handler(&self, place: &WebhookTarget) -> Option<InProcessHandler> {
        match place {
            WebhookTarget::Host { .. } => None,
            WebhookTarget::Service { namespace, name, .. } => {
                let residents = &self.0.admission_webhooks.in_process.0;
                let residents = residents.read().unwrap_or_else(PoisonError::into_inner);
                residents.get(&(namespace.clone(), name.clone())).cloned()
            }
        }
    }
}

impl fmt::Debug for InProcessWebhooks {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let residents = self.0.read().unwrap_or_else(PoisonError::into_inner);
        to.debug_set().entries(residents.keys()).finish()
    }
}
