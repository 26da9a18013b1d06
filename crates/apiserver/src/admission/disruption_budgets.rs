//! PodDisruptionBudgets, as far as an eviction uses them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::{Api, ResourceRequest};
use crate::request::selector::LabelSelector;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::Metadata;
use crate::response::status::{Cause, StatusError};
use crate::verbs::subresources::{resource, set_condition};
use crate::verbs::write::{ModifiedObject, format_seconds, meta};

/// The `Retry-After` seconds for a budget that was changed and is not processed again yet.
const BUDGET_RETRY_SECONDS: u32 = 10;
/// The largest number of disrupted pods that a budget records.
const MAX_DISRUPTED_PODS: usize = 2000;

impl Api {
    /// Takes one disruption from the budget of a pod, or refuses.
    pub(crate) async fn spend_budget(
        &self,
        ask: &ResourceRequest,
        pod: &Value,
        dry_run: bool,
    ) -> Result<(), StatusError> {
        let Some(budgets) = resource(self, "policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let labels: BTreeMap<String, String> =
            serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
        let prefix = format!("{}/", ask.target.namespace);
        let space = self.0.store.space(&budgets.space);
        let matching: Vec<Value> = space
            .iter()
            .filter(|entry| entry.key.starts_with(prefix.as_bytes()))
            .map(|entry| budgets.tree(entry))
            .filter(|budget| selects(&budget["spec"]["selector"], &labels))
            .collect();
        let budget = match matching.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let words = "This pod has more than one PodDisruptionBudget, which the eviction \
                             subresource does not support.";
                return Err(StatusError::failure(words));
            }
        };
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let status = &budget["status"];
        let healthy = status["currentHealthy"].as_i64().unwrap_or(0);
        let desired = status["desiredHealthy"].as_i64().unwrap_or(0);
        if !is_ready(pod) && (always || (healthy >= desired && desired > 0)) {
            return Ok(());
        }
        let (name, now) = (meta(budget, "name").to_owned(), format_seconds(ask.now));
        let metadata = Metadata {
            name: name.clone(),
            namespace: ask.target.namespace.clone(),
            ..Metadata::default()
        };
        let mut write = self.server_write(&budgets, &metadata, WrittenSubresource::Status);
        write.dry_run = dry_run;
        let victim = meta(pod, "name").to_owned();
        self.modify(&mut write, |_, write, live| {
            let left = disruptions_allowed(live)?;
            let mut budget = live.clone();
            budget["status"]["disruptionsAllowed"] = json!(left - 1);
            budget["status"]["disruptedPods"][&victim] = json!(now);
            if left == 1 {
                let condition = json!({
                    "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
                    "message": "", "lastTransitionTime": now,
                    "observedGeneration": live["metadata"]["generation"],
                });
                set_condition(&mut budget, condition);
            }
            write.resource.update_managed_fields(write, Some(live), &mut budget);
            Ok(ModifiedObject::new(budget))
        })
        .await?;
        Ok(())
    }
}

/// Returns how many disruptions a budget has left, which is at least one.
fn disruptions_allowed(budget: &Value) -> Result<i64, StatusError> {
    let (name, status) = (meta(budget, "name"), &budget["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let refusal = |message: String| {
        let reason = "DisruptionBudget".to_owned();
        let cause = Cause { reason, message, field: String::new() };
        let words = "Cannot evict pod as it would violate the pod's disruption budget.";
        StatusError::too_many(words, Some(cause))
    };
    let forbidden = |why: &str| StatusError::forbidden("policy", "poddisruptionbudget", name, why);
    // The status is from before the last change of the budget and does not count.
    if number(&status["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        let message =
            format!("The disruption budget {name} is still being processed by the server.");
        return Err(refusal(message).with_retry(BUDGET_RETRY_SECONDS));
    }
    let left = number(&status["disruptionsAllowed"]);
    if left < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|it| it.len() > MAX_DISRUPTED_PODS) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(why));
    }
    if left == 0 {
        let desired = number(&status["desiredHealthy"]);
        let healthy = number(&status["currentHealthy"]);
        return Err(refusal(format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )));
    }
    Ok(left)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Whether a label selector of an object selects labels; an absent one selects nothing.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    if selector.is_null() {
        return false;
    }
    let text = crate::verbs::scale::selector_text(selector);
    LabelSelector::read(&text).is_ok_and(|selector| selector.matches(labels))
}
