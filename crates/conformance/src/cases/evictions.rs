//! Evictions: what a disruption budget allows, what it costs, and in which words it refuses.
//!
//! The cases write the status of pods and budgets themselves, so that no controller is needed.

use serde_json::{Value, json};

use super::objects::{PODS, at, pod, service_account};
use crate::answer::Answer;
use crate::case::{Case, CaseError, Outcome, case, holds};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("eviction-without-a-budget", [21], without_a_budget),
    case!("eviction-spends-a-budget", [21], spends),
    case!("eviction-beyond-a-budget", [21], beyond),
    case!("eviction-under-a-budget-not-counted", [21], not_counted),
    case!("eviction-of-what-is-not-ready", [21], not_ready),
    case!("eviction-under-two-budgets", [21], two_budgets),
    case!("eviction-as-a-trial", [37], trial),
    case!("eviction-on-a-condition", [22], conditional),
    case!("eviction-of-another", [21], another),
];

const BUDGETS: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";

/// How a pod is that is to be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Ready,
    Unready,
    Pending,
}

async fn make_pod(
    talk: &mut Conversation,
    name: &str,
    health: Health,
) -> Result<Answer, CaseError> {
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
    talk.patch(&at(PODS, &format!("{name}/status")), Patch::Merge, &status).await?.expect(200)
}

/// A budget as if a controller had counted: how many are healthy, must be, and may go.
async fn make_budget(talk: &mut Conversation, name: &str, counts: (i32, i32, i32)) -> Outcome {
    let selector = json!({ "matchLabels": { "app": "a" } });
    let budget = json!({
        "metadata": { "name": name }, "spec": { "minAvailable": 1, "selector": selector },
    });
    talk.create(BUDGETS, &budget).await?;
    count(talk, name, counts, 1).await
}

async fn count(
    talk: &mut Conversation,
    name: &str,
    (healthy, desired, allowed): (i32, i32, i32),
    generation: i32,
) -> Outcome {
    let status = json!({ "status": {
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": healthy,
        "disruptionsAllowed": allowed, "observedGeneration": generation,
    } });
    let path = at(BUDGETS, &format!("{name}/status"));
    talk.patch(&path, Patch::Merge, &status).await?.expect(200)?;
    Ok(())
}

fn eviction(name: &str, options: &Value) -> Ask {
    let mut body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name },
    });
    if !options.is_null() {
        body["deleteOptions"] = options.clone();
    }
    Ask::post(at(PODS, &format!("{name}/eviction")), &body)
}

async fn evict(talk: &mut Conversation, name: &str) -> Result<Answer, CaseError> {
    talk.ask(eviction(name, &Value::Null)).await
}

async fn without_a_budget(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    evict(talk, "a").await?.expect(201)?.kind("Status")?.is("/status", &json!("Success"))?;
    let marked = talk.get(&at(PODS, "a")).await?.expect(200)?;
    holds("it is going", marked.at("/metadata/deletionTimestamp").is_string())?;
    marked.is("/status/conditions/1/type", &json!("DisruptionTarget"))?;
    marked.is("/status/conditions/1/reason", &json!("EvictionByEvictionAPI"))?;
    // It goes anyway.
    make_budget(talk, "none-may-go", (1, 1, 0)).await?;
    evict(talk, "a").await?.expect(201)?;
    Ok(())
}

async fn spends(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_pod(talk, "b", Health::Ready).await?;
    make_budget(talk, "two-may-go", (3, 1, 2)).await?;
    evict(talk, "a").await?.expect(201)?;
    let left = talk.get(&at(BUDGETS, "two-may-go")).await?.expect(200)?;
    left.is("/status/disruptionsAllowed", &json!(1))?;
    left.lacks("/status/conditions")?;
    holds("it is noted", left.at("/status/disruptedPods/a").is_string())?;
    evict(talk, "b").await?.expect(201)?;
    let left = talk.get(&at(BUDGETS, "two-may-go")).await?.expect(200)?;
    left.is("/status/disruptionsAllowed", &json!(0))?;
    left.is("/status/conditions/0/type", &json!("DisruptionAllowed"))?;
    left.is("/status/conditions/0/status", &json!("False"))?;
    left.is("/status/conditions/0/reason", &json!("InsufficientPods"))
}

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

async fn beyond(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "none-may-go", (2, 2, 0)).await?;
    let answer = evict(talk, "a").await?.refused(429, "TooManyRequests", REFUSED)?;
    let cause = "The disruption budget none-may-go needs 2 healthy pods and has 2 currently";
    answer.caused_by(&[("", "DisruptionBudget", cause)])?;
    answer.lacks("/details/retryAfterSeconds")?;
    answer.has_header("retry-after", "")?;
    talk.get(&at(PODS, "a")).await?.expect(200)?.lacks("/metadata/deletionTimestamp")
}

/// What a budget allowed before it was changed says nothing about what it allows now.
async fn not_counted(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "changed", (2, 1, 1)).await?;
    let more = json!({ "spec": { "minAvailable": 2 } });
    talk.patch(&at(BUDGETS, "changed"), Patch::Merge, &more).await?.expect(200)?;
    let answer = evict(talk, "a").await?.refused(429, "TooManyRequests", REFUSED)?;
    let cause = "The disruption budget changed is still being processed by the server.";
    answer.caused_by(&[("", "DisruptionBudget", cause)])?;
    answer.is("/details/retryAfterSeconds", &json!(10))?;
    answer.has_header("retry-after", "10")?;
    count(talk, "changed", (3, 2, 1), 2).await?;
    evict(talk, "a").await?.expect(201)?;
    Ok(())
}

async fn not_ready(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "early", Health::Pending).await?;
    make_pod(talk, "a", Health::Unready).await?;
    make_pod(talk, "b", Health::Unready).await?;
    make_budget(talk, "none-may-go", (1, 2, 0)).await?;
    evict(talk, "early").await?.expect(201)?;
    evict(talk, "a").await?.expect(429)?;
    // Enough others are healthy.
    count(talk, "none-may-go", (2, 2, 0), 1).await?;
    evict(talk, "a").await?.expect(201)?;
    talk.get(&at(BUDGETS, "none-may-go")).await?.expect(200)?.lacks("/status/disruptedPods")?;
    let always = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    talk.patch(&at(BUDGETS, "none-may-go"), Patch::Merge, &always).await?.expect(200)?;
    evict(talk, "b").await?.expect(201)?;
    Ok(())
}

async fn two_budgets(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "one", (3, 1, 2)).await?;
    make_budget(talk, "two", (3, 1, 2)).await?;
    evict(talk, "a").await?.expect(500)?.is(
        "/message",
        &json!(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
             not support."
        ),
    )
}

async fn trial(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    make_budget(talk, "one-may-go", (2, 1, 1)).await?;
    let by_option = eviction("a", &json!({ "dryRun": ["All"] }));
    talk.ask(by_option).await?.expect(201)?;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" },
    });
    talk.post(&at(PODS, "a/eviction?dryRun=All"), &body).await?.expect(201)?;
    talk.get(&at(PODS, "a")).await?.expect(200)?.lacks("/metadata/deletionTimestamp")?;
    let budget = talk.get(&at(BUDGETS, "one-may-go")).await?.expect(200)?;
    budget.is("/status/disruptionsAllowed", &json!(1))?;
    count(talk, "one-may-go", (1, 1, 0), 1).await?;
    talk.ask(eviction("a", &json!({ "dryRun": ["All"] }))).await?.expect(429)?;
    Ok(())
}

async fn conditional(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    let made = make_pod(talk, "a", Health::Ready).await?;
    let other = "00000000-0000-0000-0000-000000000000";
    for condition in [json!({ "uid": other }), json!({ "resourceVersion": "1" })] {
        let options = json!({ "preconditions": condition });
        talk.ask(eviction("a", &options)).await?.expect(409)?;
    }
    let known = json!({
        "uid": made.at("/metadata/uid"), "resourceVersion": made.at("/metadata/resourceVersion"),
    });
    talk.ask(eviction("a", &json!({ "preconditions": known }))).await?.expect(201)?;
    Ok(())
}

async fn another(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    make_pod(talk, "a", Health::Ready).await?;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "b" },
    });
    talk.post(&at(PODS, "a/eviction"), &body).await?.expect(400)?;
    evict(talk, "b").await?.expect(404)?;
    Ok(())
}
