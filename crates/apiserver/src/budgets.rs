//! Disruption budgets, as far as an eviction spends them.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::{Api, Ask};
use crate::parts::{resource, set_condition};
use crate::rules::Part;
use crate::selector::LabelSelector;
use crate::status::{Cause, Refusal};
use crate::stored::Metadata;
use crate::write::{Changed, meta, seconds};

impl Api {
    /// Takes one disruption from the budget a pod is under, or refuses.
    pub(crate) async fn spend_budget(
        &self,
        ask: &Ask,
        pod: &Value,
        dry_run: bool,
    ) -> Result<(), Refusal> {
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
                let code = StatusCode::INTERNAL_SERVER_ERROR;
                return Err(Refusal::verdict(code, "InternalError", words.to_owned()));
            }
        };
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let status = &budget["status"];
        let healthy = status["currentHealthy"].as_i64().unwrap_or(0);
        let desired = status["desiredHealthy"].as_i64().unwrap_or(0);
        if !is_ready(pod) && (always || (healthy >= desired && desired > 0)) {
            return Ok(());
        }
        let (name, now) = (meta(budget, "name").to_owned(), seconds(ask.now));
        let metadata = Metadata {
            name: name.clone(),
            namespace: ask.target.namespace.clone(),
            ..Metadata::default()
        };
        let mut write = self.own_write(&budgets, &metadata, Part::Status);
        write.dry_run = dry_run;
        let victim = meta(pod, "name").to_owned();
        self.modify(&mut write, |_, write, live| {
            let left = live["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            if left < 1 {
                return Err(exhausted(&name, &live["status"]));
            }
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
            write.resource.own(write, Some(live), &mut budget);
            Ok(Changed::to(budget))
        })
        .await?;
        Ok(())
    }
}

fn exhausted(name: &str, status: &Value) -> Refusal {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (desired, healthy) = (number("desiredHealthy"), number("currentHealthy"));
    let cause = Cause {
        reason: "DisruptionBudget".to_owned(),
        message: format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        ),
        field: String::new(),
    };
    let words = "Cannot evict pod as it would violate the pod's disruption budget.";
    Refusal::too_many(words, Some(cause))
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
    let text = crate::scale::selector_text(selector);
    LabelSelector::read(&text).is_ok_and(|selector| selector.matches(labels))
}
