//! Creates a provider for a requester, and reports why the server refused one.

use std::collections::BTreeSet;

use gantry_reconcile::{Step, Write};
use serde_json::{Value, json};

use super::status::{Paired, paired, problem};
use super::{PODS, Planner, delete, finalizers_with, patch};
use crate::actuation_record::{ActuationPath, ActuationRecord};
use crate::bookkeeping::Bookkeeping;
use crate::instance::DesiredInstance;
use crate::labels::{
    DUAL_LABEL, PAIRING_MANAGER, PROVIDER_FINALIZER, RECORD_ANNOTATION, REQUESTER_FINALIZER,
    STATUS_ANNOTATION,
};
use crate::launcher_template::LauncherTemplate;
use crate::nominal_pod::NominalPod;
use crate::object_names::requested_launcher;
use crate::view::{ActuationPod, on_node};

impl Planner<'_> {
    /// Creates the direct provider. Its engine starts awake, so the requester gets its finalizer
    /// before.
    pub(super) fn create_direct(
        &mut self,
        requester: &ActuationPod,
        nominal: &NominalPod,
        accelerators: &[String],
    ) {
        let key = requester.metadata.key();
        let mut body = nominal.bound_to(&key, &requester.metadata.uid, self.now);
        let reason = "no sleeping provider on the node was made from the same pod";
        let record = ActuationRecord::new(ActuationPath::Cold, reason);
        body["metadata"]["annotations"][RECORD_ANNOTATION] = self.record_of(requester, record);
        self.create_provider(requester, body, accelerators, None);
    }

    /// Creates a launcher that is bound from the start.
    pub(super) fn create_launcher(
        &mut self,
        requester: &ActuationPod,
        template: &LauncherTemplate,
        instance: &DesiredInstance,
        accelerators: &[String],
        record: ActuationRecord,
    ) {
        let name = requested_launcher(template.config(), &requester.metadata.uid);
        let mut body = template.pod(&name, &requester.node_name);
        let metadata = &mut body["metadata"];
        let annotations = Bookkeeping::annotations(instance).into_iter();
        for (key, value) in annotations.chain(self.binding_annotations(requester, 0, record)) {
            metadata["annotations"][key] = value;
        }
        metadata["labels"][DUAL_LABEL] = json!(requester.metadata.name);
        metadata["finalizers"] = json!([PROVIDER_FINALIZER]);
        self.create_provider(requester, body, accelerators, Some(&instance.id));
    }

    fn create_provider(
        &mut self,
        requester: &ActuationPod,
        body: Value,
        accelerators: &[String],
        instance: Option<&str>,
    ) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let prefix = format!("cannot create provider {name}: ");
        let said = requester.annotation(STATUS_ANNOTATION).unwrap_or_default();
        if said.contains(&prefix) {
            // The same pod would be refused again; another patch has another name.
            return self.hold(requester, "ProviderRefused", said.to_owned());
        }
        let key = requester.pairing_key();
        let refused = self.world.refused_writes(PAIRING_MANAGER, &key);
        let refused = refused.iter().find(|it| it.verb == "create" && it.key.name() == name);
        if let Some(refusal) = refused.map(|it| &it.refusal).filter(|it| it.code == 422) {
            let text = format!("{prefix}{refusal}");
            self.hold(requester, "ProviderRefused", text.clone());
            let write = problem(requester, &[text], accelerators);
            return self.plan.steps.extend(write.map(Step::new));
        }
        let create = Step::new(Write::Create { resource: PODS, body })
            .require_present(super::reference(requester));
        let pair = Paired { provider: &name, instance, accelerators };
        if instance.is_some() {
            // The label says that there is a provider: without one its requester is given up.
            let mut create = create;
            create.then.extend(paired(requester, pair).map(Step::new));
            return self.plan.steps.push(create);
        }
        match finalizers_with(requester, REQUESTER_FINALIZER) {
            Some(finalizers) => {
                let write = patch(requester, &json!({ "finalizers": finalizers }));
                self.plan.steps.push(Step::new(write).then(create));
            }
            None => self.plan.steps.push(create),
        }
    }

    /// Deletes the sleepers that are one too many on these accelerators, the least recently used
    /// first. Returns whether there are any.
    pub(super) fn enforce_sleeper_limit(
        &mut self,
        requester: &ActuationPod,
        indices: &[u32],
    ) -> bool {
        let providers = self.world.store::<ActuationPod>().by_index(&on_node(&requester.node_name));
        let mut chosen = BTreeSet::new();
        for index in indices {
            let index = index.to_string();
            let mut sharing: Vec<_> = providers
                .iter()
                .filter(|it| !it.metadata.is_terminating() && !chosen.contains(&it.metadata.key()))
                .filter(|it| {
                    let engine = it.engine.as_ref();
                    engine.is_some_and(|it| it.visible_devices.contains(&index))
                })
                .collect();
            sharing.sort_by_key(|it| {
                let written = it.last_write.or(it.metadata.creation_timestamp);
                (written, it.metadata.name.clone())
            });
            let excess = sharing.len().saturating_sub(self.settings.sleeper_limit);
            let victims = sharing.iter().filter(|it| it.binding().is_none()).take(excess);
            for victim in victims {
                chosen.insert(victim.metadata.key());
                self.plan.write(delete(victim));
            }
        }
        !chosen.is_empty()
    }
}
