//! Binds a provider to a requester.

use gantry_reconcile::Step;
use serde_json::{Map, Value, json};

use super::status::{Paired, paired};
use super::{Planner, finalizers_with, notice, patch};
use crate::bookkeeping::{Bookkeeping, InstanceUse};
use crate::instance::DesiredInstance;
use crate::labels::{
    BINDING_COUNTER_ANNOTATION, DUAL_LABEL, INSTANCE_USE_ANNOTATION, LAST_USE_ANNOTATION,
    PROVIDER_FINALIZER, REQUESTER_ANNOTATION,
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
    ) {
        let mut annotations = instance.map(Bookkeeping::annotations).unwrap_or_default();
        annotations.extend(self.binding_annotations(requester, provider.binding_counter()));
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
    ) -> Map<String, Value> {
        let meta = &requester.metadata;
        let entries = [
            (REQUESTER_ANNOTATION, format!("{} {}", meta.uid, meta.name)),
            (BINDING_COUNTER_ANNOTATION, counter.saturating_add(1).to_string()),
            (LAST_USE_ANNOTATION, self.now.to_string()),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
    }
}
