//! Webhooks that other parts of the process answer.
//!
//! They are known by the service that a configuration names, like those of a cluster, and asked and
//! believed in the same way; only that nothing listens, and nothing can fail in between.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use gantry_webhook::Place;
use serde_json::Value;

use crate::api::Api;

/// Who answers, by namespace and name of the service.
#[derive(Default)]
pub(super) struct Residents(RwLock<BTreeMap<(String, String), Resident>>);

/// Answers what is asked at a path.
pub(super) type Resident = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

impl Api {
    /// Answers admission webhooks of a service from now on, in the place of the service. `answer` is
    /// given the path that is asked and the document, and must not wait for anything.
    pub fn answer(
        &self,
        namespace: &str,
        service: &str,
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) {
        let residents = &self.0.admission_webhooks.residents.0;
        let mut residents = residents.write().unwrap_or_else(PoisonError::into_inner);
        residents.insert((namespace.to_owned(), service.to_owned()), Arc::new(answer));
    }

    /// Who answers at a place, if it is in this process.
    pub(super) fn resident(&self, place: &Place) -> Option<Resident> {
        match place {
            Place::Host { .. } => None,
            Place::Service { namespace, name, .. } => {
                let residents = &self.0.admission_webhooks.residents.0;
                let residents = residents.read().unwrap_or_else(PoisonError::into_inner);
                residents.get(&(namespace.clone(), name.clone())).cloned()
            }
        }
    }
}

impl fmt::Debug for Residents {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let residents = self.0.read().unwrap_or_else(PoisonError::into_inner);
        to.debug_set().entries(residents.keys()).finish()
    }
}
