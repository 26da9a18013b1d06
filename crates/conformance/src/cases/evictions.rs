//! Evictions: what a disruption budget allows, what it costs, and in which words it refuses.
//!
//! The cases write the status of pods and budgets themselves, so that no controller is needed.

use serde_json::{Value, json};

use super::objects::{PODS, object_path, pod, service_account};
use crate::case::{Case, CaseError, Outcome, case, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("eviction-without-a-budget", [21], without_a_budget),
    case!("eviction-spends-a-budget", [21], decrements_budget),
    case!("eviction-beyond-a-budget", [21], exceeds_budget),
    case!("eviction-under-a-budget-not-counted", [21], not_counted),
    case!("eviction-of-what-is-not-ready", [21], not_ready),
    case!("eviction-under-two-budgets", [21], two_budgets),
    case!("eviction-as-a-trial", [37], dry_run),
    case!("eviction-on-a-condition", [22], conditional),
    case!("eviction-of-another", [21], mismatched_name),
];

const BUDGETS: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";

/// How a pod is that is to be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Ready,
    Unready,
    Pending,
}

async fn make_pod(talk: &mut Session, name: &str, health: Health) -> Result<Response, CaseError> {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({ "app": "a" });
    let made = talk.create(PODS, &object).await?;
    if health == Health::Pending {
        return Ok(made);
    }
    let ready = if health == Health::Ready { "True" } else { "False" };
    let status = json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }],
    } });
    talk.patch(&object_path(PODS, &format!("{name}/status")), PatchType::Merge, &status)
        .await?
        .expect(200)
}

/// A budget as if a controller had counted: how many are healthy, must be, and may go.
async fn make_budget(talk: &mut Session, name: &str, counts: (i32, i32, i32)) -> Outcome {
    let selector = json!({ "matchLabels": { "app": "a" } });
    let budget = json!({
        "metadata": { "name": name }, "spec": { "minAvailable": 1, "selector": selector },
    });
    talk.create(BUDGETS, &budget).await?;
    set_budget_counts(talk, name, counts, 1).await
}

async fn set_budget_counts(
    talk: &mut Session,
    name: &str,
    (healthy, desired, allowed): (i32, i32, i32),
    generation: i32,
) -> Outcome {
    let status = json!({ "status": {
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": healthy,
        "disruptionsAllowed": allowed, "observedGeneration": generation,
    } });
    let path = object_path(BUDGETS, &format!("{name}/status"));
    talk.patch(&path, PatchType::Merge, &status).await?.expect(200)?;
    Ok(())
}

fn eviction(name: &str, options: &Value) -> RequestSpec {
    let mut body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name },
    });
    if !options.is_null() {
        body["deleteOptions"] = options.clone();
    }
    RequestSpec::post(object_path(PODS, &format!("{name}/eviction")), &body)
}

async fn evict(talk: &mut Session, name: &str) -> Result<Response, CaseError> {
    talk.send(eviction(name, &Value::Null)).await
}

async fn without_a_budget(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    evict(talk, "a")
        .await?
        .expect(201)?
        .expect_kind("Status")?
        .has_value("/status", &json!("Success"))?;
    let marked = talk.get(&object_path(PODS, "a")).await?.expect(200)?;
    expect_true("it is going", marked.at("/metadata/deletionTimestamp").is_string())?;
    marked.has_value("/status/conditions/1/type", &json!("DisruptionTarget"))?;
    marked.has_value("/status/conditions/1/reason", &json!("EvictionByEvictionAPI"))?;
    // It goes anyway.
    make_budget(talk, "none-may-go", (1, 1, 0)).await?;
    evict(talk, "a").await?.expect(201)?;
    Ok(())
}

async fn decrements_budget(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_pod(talk, "b", Health::Ready).await?;
    make_budget(talk, "two-may-go", (3, 1, 2)).await?;
    evict(talk, "a").await?.expect(201)?;
    let left = talk.get(&object_path(BUDGETS, "two-may-go")).await?.expect(200)?;
    left.has_value("/status/disruptionsAllowed", &json!(1))?;
    left.has_no_value("/status/conditions")?;
    expect_true("it is noted", left.at("/status/disruptedPods/a").is_string())?;
    evict(talk, "b").await?.expect(201)?;
    let left = talk.get(&object_path(BUDGETS, "two-may-go")).await?.expect(200)?;
    left.has_value("/status/disruptionsAllowed", &json!(0))?;
    left.has_value("/status/conditions/0/type", &json!("DisruptionAllowed"))?;
    left.has_value("/status/conditions/0/status", &json!("False"))?;
    left.has_value("/status/conditions/0/reason", &json!("InsufficientPods"))
}

const BUDGET_VIOLATION_MESSAGE: &str =
    "Cannot evict pod as it would violate the pod's disruption budget.";

async fn exceeds_budget(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "none-may-go", (2, 2, 0)).await?;
    let answer =
        evict(talk, "a").await?.expect_error(429, "TooManyRequests", BUDGET_VIOLATION_MESSAGE)?;
    let cause = "The disruption budget none-may-go needs 2 healthy pods and has 2 currently";
    answer.has_causes(&[("", "DisruptionBudget", cause)])?;
    answer.has_no_value("/details/retryAfterSeconds")?;
    answer.has_header("retry-after", "")?;
    talk.get(&object_path(PODS, "a"))
        .await?
        .expect(200)?
        .has_no_value("/metadata/deletionTimestamp")
}

/// What a budget allowed before it was changed says nothing about what it allows now.
async fn not_counted(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "changed", (2, 1, 1)).await?;
    let more = json!({ "spec": { "minAvailable": 2 } });
    talk.patch(&object_path(BUDGETS, "changed"), PatchType::Merge, &more).await?.expect(200)?;
    let answer =
        evict(talk, "a").await?.expect_error(429, "TooManyRequests", BUDGET_VIOLATION_MESSAGE)?;
    let cause = "The disruption budget changed is still being processed by the server.";
    answer.has_causes(&[("", "DisruptionBudget", cause)])?;
    answer.has_value("/details/retryAfterSeconds", &json!(10))?;
    answer.has_header("retry-after", "10")?;
    set_budget_counts(talk, "changed", (3, 2, 1), 2).await?;
    evict(talk, "a").await?.expect(201)?;
    Ok(())
}

async fn not_ready(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "early", Health::Pending).await?;
    make_pod(talk, "a", Health::Unready).await?;
    make_pod(talk, "b", Health::Unready).await?;
    make_budget(talk, "none-may-go", (1, 2, 0)).await?;
    evict(talk, "early").await?.expect(201)?;
    evict(talk, "a").await?.expect(429)?;
    // Enough others are healthy.
    set_budget_counts(talk, "none-may-go", (2, 2, 0), 1).await?;
    evict(talk, "a").await?.expect(201)?;
    talk.get(&object_path(BUDGETS, "none-may-go"))
        .await?
        .expect(200)?
        .has_no_value("/status/disruptedPods")?;
    let always = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    talk.patch(&object_path(BUDGETS, "none-may-go"), PatchType::Merge, &always)
        .await?
        .expect(200)?;
    evict(talk, "b").await?.expect(201)?;
    Ok(())
}

async fn two_budgets(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "one", (3, 1, 2)).await?;
    make_budget(talk, "two", (3, 1, 2)).await?;
    evict(talk, "a").await?.expect(500)?.has_value(
        "/message",
        &json!(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
             not support."
        ),
    )
}

async fn dry_run(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "one-may-go", (2, 1, 1)).await?;
    let by_option = eviction("a", &json!({ "dryRun": ["All"] }));
    talk.send(by_option).await?.expect(201)?;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" },
    });
    talk.post(&object_path(PODS, "a/eviction?dryRun=All"), &body).await?.expect(201)?;
    talk.get(&object_path(PODS, "a"))
        .await?
        .expect(200)?
        .has_no_value("/metadata/deletionTimestamp")?;
    let budget = talk.get(&object_path(BUDGETS, "one-may-go")).await?.expect(200)?;
    budget.has_value("/status/disruptionsAllowed", &json!(1))?;
    set_budget_counts(talk, "one-may-go", (1, 1, 0), 1).await?;
    talk.send(eviction("a", &json!({ "dryRun": ["All"] }))).await?.expect(429)?;
    Ok(())
}

async fn conditional(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    let made = make_pod(talk, "a", Health::Ready).await?;
    let other = "00000000-0000-0000-0000-000000000000";
    for condition in [json!({ "uid": other }), json!({ "resourceVersion": "1" })] {
        let options = json!({ "preconditions": condition });
        talk.send(eviction("a", &options)).await?.expect(409)?;
    }
    let known = json!({
        "uid": made.at("/metadata/uid"), "resourceVersion": made.at("/metadata/resourceVersion"),
    });
    talk.send(eviction("a", &json!({ "preconditions": known }))).await?.expect(201)?;
    Ok(())
}

async fn mismatched_name(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "b" },
    });
    talk.post(&object_path(PODS, "a/eviction"), &body).await?.expect(400)?;
    evict(talk, "b").await?.expect(404)?;
    Ok(())
}
