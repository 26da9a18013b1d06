//! Binds a provider to a requester.

use gantry_reconcile::Step;
use serde_json::{Map, Value, json};

use super::status::{Paired, paired};
use super::{Planner, finalizers_with, notice, patch};
use crate::actuation_record::ActuationRecord;
use crate::bookkeeping::{Bookkeeping, InstanceUse};
use crate::facts::RequesterAccelerators;
use crate::inquiries::requester_endpoint;
use crate::instance::DesiredInstance;
use crate::labels::{
    BINDING_COUNTER_ANNOTATION, DUAL_LABEL, INSTANCE_USE_ANNOTATION, LAST_USE_ANNOTATION,
    PROVIDER_FINALIZER, RECORD_ANNOTATION, REQUESTER_ANNOTATION,
};
use crate::view::ActuationPod;

impl Planner<'_> {
    /// Binds a provider, then writes to the requester that it is paired.
    pub(super) fn bind(
        &mut self,
        requester: &ActuationPod,
        provider: &ActuationPod,
        accelerators: &[String],
        instance: Option<&DesiredInstance>,
        path: &str,
        record: ActuationRecord,
    ) {
        let mut annotations = instance.map(Bookkeeping::annotations).unwrap_or_default();
        let counter = provider.binding_counter();
        annotations.extend(self.binding_annotations(requester, counter, record));
        if let Some(instance) = instance {
            let uses = InstanceUse::read(provider).after(&instance.id, self.now);
            annotations.insert(INSTANCE_USE_ANNOTATION.to_owned(), json!(uses));
        }
        let labels = json!({ DUAL_LABEL: requester.metadata.name });
        let mut metadata = json!({"labels": labels, "annotations": annotations});
        if let Some(finalizers) = finalizers_with(provider, PROVIDER_FINALIZER) {
            metadata["finalizers"] = json!(finalizers);
        }
        let message = format!("bound to provider {} ({path})", provider.metadata.name);
        let pair = Paired {
            provider: &provider.metadata.name,
            instance: instance.map(|it| it.id.as_str()),
            accelerators,
        };
        let mut step =
            Step::new(patch(provider, &metadata)).on_success(notice(requester, "Bound", message));
        step.then.extend(paired(requester, pair).map(Step::new));
        self.plan.steps.push(step);
    }

    /// The annotations of a provider that is bound to a requester for the next time.
    pub(super) fn binding_annotations(
        &self,
        requester: &ActuationPod,
        counter: u64,
        record: ActuationRecord,
    ) -> Map<String, Value> {
        let meta = &requester.metadata;
        let record = self.record_of(requester, record);
        let entries = [
            (REQUESTER_ANNOTATION, format!("{} {}", meta.uid, meta.name)),
            (BINDING_COUNTER_ANNOTATION, counter.saturating_add(1).to_string()),
            (LAST_USE_ANNOTATION, self.now.to_string()),
        ];
        let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
        entries.chain([(RECORD_ANNOTATION.to_owned(), record)]).collect()
    }

    /// The text of the record of a binding that begins now.
    pub(super) fn record_of(&self, requester: &ActuationPod, record: ActuationRecord) -> Value {
        let facts = self.world.facts::<RequesterAccelerators>();
        let known = requester_endpoint(requester).and_then(|it| facts.observed(&it));
        let requester = requester.metadata.uid.as_str().to_owned();
        let (accelerators_known, bound) = (known.map(|it| it.at), Some(self.now));
        ActuationRecord { requester, accelerators_known, bound, ..record }.text()
    }
}
