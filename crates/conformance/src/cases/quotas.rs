//! Limit ranges and quotas.
//!
//! A real server alone counts nothing: what is used is written by a controller, or raised by a write.
//! So each case says what is used before it begins, which is nothing, and ends before anything goes.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, PODS, SERVICES, at, config_map, service_account, with};
use crate::case::{Case, Outcome, case};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("limits-defaults", [], limit_defaults),
    case!("limits-of-containers", [], container_limits),
    case!("limits-of-pods", [], pod_limits),
    case!("limits-of-claims", [], claim_limits),
    case!("quota-counts", [], counts),
    case!("quota-of-pods", [], pods),
    case!("quota-scopes", [], scopes),
    case!("quota-services", [], services),
];

const RANGES: &str = "/api/v1/namespaces/{ns}/limitranges";
const QUOTAS: &str = "/api/v1/namespaces/{ns}/resourcequotas";
const CLAIMS: &str = "/api/v1/namespaces/{ns}/persistentvolumeclaims";

/// A pod of one container that asks for these resources.
fn asking(name: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{
            "name": "c", "image": "registry.test/c:1", "resources": resources,
        }] },
    })
}

/// Makes a range and waits until it is in effect.
async fn range(talk: &mut Conversation, limits: &Value) -> Outcome {
    service_account(talk).await?;
    let object = json!({ "metadata": { "name": "range" }, "spec": { "limits": limits } });
    talk.create(RANGES, &object).await?;
    // A claim for too much is refused by every range of these cases.
    let much = claim("probe", "9Ei");
    let ask = Ask::post(with(CLAIMS, "dryRun=All"), &much);
    talk.ask_until_unrecorded(ask, |answer| answer.status == 403).await.map(drop)
}

fn claim(name: &str, storage: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": storage } },
        },
    })
}

fn claims_limited() -> Value {
    json!({
        "type": "PersistentVolumeClaim", "max": { "storage": "10Gi" }, "min": { "storage": "1Gi" },
    })
}

async fn limit_defaults(talk: &mut Conversation) -> Outcome {
    let limits = json!([
        {
            "type": "Container", "default": { "cpu": "500m", "memory": "256Mi" },
            "defaultRequest": { "cpu": "100m" },
        },
        claims_limited(),
    ]);
    range(talk, &limits).await?;
    let answer = talk.create(PODS, &asking("none", &json!({}))).await?;
    answer.has(&[
        ("/spec/containers/0/resources/limits/cpu", json!("500m")),
        ("/spec/containers/0/resources/requests/cpu", json!("100m")),
        ("/spec/containers/0/resources/requests/memory", json!("256Mi")),
    ])?;
    let some = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } });
    talk.create(PODS, &asking("some", &some)).await?;
    let all = json!({
        "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1", "memory": "1Gi" },
    });
    talk.create(PODS, &asking("all", &all)).await?;
    let mut two = asking("two", &json!({}));
    two["spec"]["initContainers"] = json!([{ "name": "i", "image": "registry.test/i:1" }]);
    talk.create(PODS, &two).await?;
    Ok(())
}

async fn container_limits(talk: &mut Conversation) -> Outcome {
    let limits = json!([
        { "type": "Container", "max": { "cpu": "2" }, "min": { "cpu": "100m" } },
        claims_limited(),
    ]);
    range(talk, &limits).await?;
    let dry = with(PODS, "dryRun=All");
    let cpu = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
    let answer = talk.post(&dry, &asking("much", &cpu("1", "3"))).await?;
    answer.refused(
        403,
        "Forbidden",
        "pods \"much\" is forbidden: maximum cpu usage per Container is 2, but limit is 3",
    )?;
    for (name, resources) in [
        ("little", cpu("50m", "1")),
        ("tiny", cpu("10m", "20m")),
        ("limit-only", json!({ "limits": { "cpu": "2500m" } })),
        ("request-only", json!({ "requests": { "cpu": "50m" } })),
    ] {
        talk.post(&dry, &asking(name, &resources)).await?.expect(403)?;
    }
    talk.post(&dry, &asking("fine", &cpu("100m", "2"))).await?.expect(201)?;
    Ok(())
}

async fn pod_limits(talk: &mut Conversation) -> Outcome {
    let limits = json!([
        { "type": "Pod", "max": { "cpu": "2" }, "maxLimitRequestRatio": { "memory": "2" } },
        claims_limited(),
    ]);
    range(talk, &limits).await?;
    let dry = with(PODS, "dryRun=All");
    let pod = |name: &str, cpu: &str, request: &str, limit: &str| {
        let resources = json!({
            "requests": { "cpu": cpu, "memory": request }, "limits": { "cpu": cpu, "memory": limit },
        });
        let mut pod = asking(name, &resources);
        let mut second = pod["spec"]["containers"][0].clone();
        second["name"] = json!("d");
        pod["spec"]["containers"] = json!([pod["spec"]["containers"][0], second]);
        pod
    };
    talk.post(&dry, &pod("fine", "1", "1Gi", "2Gi")).await?.expect(201)?;
    talk.post(&dry, &pod("much", "1500m", "1Gi", "1Gi")).await?.expect(403)?;
    talk.post(&dry, &pod("spread", "1", "1Gi", "3Gi")).await?.expect(403)?;
    talk.post(&dry, &asking("none", &json!({ "limits": { "cpu": "1" } }))).await?.expect(403)?;
    Ok(())
}

async fn claim_limits(talk: &mut Conversation) -> Outcome {
    range(talk, &json!([claims_limited()])).await?;
    let dry = with(CLAIMS, "dryRun=All");
    talk.post(&dry, &claim("much", "11Gi")).await?.expect(403)?;
    talk.post(&dry, &claim("little", "500Mi")).await?.expect(403)?;
    talk.post(&dry, &claim("fine", "5Gi")).await?.expect(201)?;
    Ok(())
}

/// Makes a quota of which nothing is used yet, and waits until it is in effect.
async fn quota(
    talk: &mut Conversation,
    name: &str,
    spec: &Value,
    blocked: (&str, &Value),
) -> Outcome {
    service_account(talk).await?;
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    talk.create(QUOTAS, &object).await?;
    let mut used = spec["hard"].clone();
    for (_, value) in used.as_object_mut().into_iter().flatten() {
        *value = json!("0");
    }
    let status = json!({ "status": { "hard": spec["hard"], "used": used } });
    let path = format!("{}/status", at(QUOTAS, name));
    talk.ask_unrecorded(Ask::patch(path, Patch::Merge, &status)).await?.expect(200)?;
    let (collection, object) = blocked;
    let ask = Ask::post(with(collection, "dryRun=All"), object);
    talk.ask_until_unrecorded(ask, |answer| {
        answer.status == 403
            && answer.string("/message").contains(&format!("quota: {name}"))
            && !answer.string("/message").contains("status unknown")
    })
    .await
    .map(drop)
}

/// What a quota says is used; the rest of it is not compared.
async fn used(talk: &mut Conversation, name: &str, expected: &Value) -> Outcome {
    let answer = talk.ask_unrecorded(Ask::get(at(QUOTAS, name))).await?.expect(200)?;
    answer.is("/status/used", expected)
}

async fn counts(talk: &mut Conversation) -> Outcome {
    let hard = json!({ "count/configmaps": "2", "count/leases.coordination.k8s.io": "0" });
    let lease = json!({ "metadata": { "name": "l" } });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
    quota(talk, "q", &json!({ "hard": hard }), (leases, &lease)).await?;
    let answer = talk.post(leases, &lease).await?;
    answer.refused(
        403,
        "Forbidden",
        "leases.coordination.k8s.io \"l\" is forbidden: exceeded quota: q, requested: \
         count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: \
         count/leases.coordination.k8s.io=0",
    )?;
    talk.create(CONFIG_MAPS, &config_map("one", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("two", "x")).await?;
    let used_up = json!({ "count/configmaps": "2", "count/leases.coordination.k8s.io": "0" });
    used(talk, "q", &used_up).await?;
    talk.post(CONFIG_MAPS, &config_map("three", "x")).await?.expect(403)?;
    // What is there may change, and a wish that is not fulfilled costs nothing.
    talk.patch(&at(CONFIG_MAPS, "one"), Patch::Merge, &json!({ "data": { "a": "y" } })).await?;
    talk.post(&with(CONFIG_MAPS, "dryRun=All"), &config_map("three", "x")).await?.expect(403)?;
    used(talk, "q", &used_up).await
}

async fn pods(talk: &mut Conversation) -> Outcome {
    let hard = json!({
        "pods": "3", "requests.cpu": "1", "limits.memory": "1Gi", "requests.example.test/gpu": "2",
    });
    quota(talk, "q", &json!({ "hard": hard }), (PODS, &asking("probe", &json!({})))).await?;
    let resources = |cpu: &str, memory: &str, gpu: &str| {
        json!({
            "requests": { "cpu": cpu, "example.test/gpu": gpu },
            "limits": { "memory": memory, "example.test/gpu": gpu },
        })
    };
    let answer = talk.post(PODS, &asking("silent", &json!({}))).await?;
    answer.refused(
        403,
        "Forbidden",
        "pods \"silent\" is forbidden: failed quota: q: must specify limits.memory for: c; \
         requests.cpu for: c",
    )?;
    talk.create(PODS, &asking("one", &resources("600m", "512Mi", "1"))).await?;
    let expected = json!({
        "limits.memory": "512Mi", "pods": "1", "requests.cpu": "600m",
        "requests.example.test/gpu": "1",
    });
    used(talk, "q", &expected).await?;
    let answer = talk.post(PODS, &asking("two", &resources("500m", "1Gi", "2"))).await?;
    answer.refused(
        403,
        "Forbidden",
        "pods \"two\" is forbidden: exceeded quota: q, requested: \
         limits.memory=1Gi,requests.cpu=500m,requests.example.test/gpu=2, used: \
         limits.memory=512Mi,requests.cpu=600m,requests.example.test/gpu=1, limited: \
         limits.memory=1Gi,requests.cpu=1,requests.example.test/gpu=2",
    )?;
    talk.create(PODS, &asking("three", &resources("400m", "512Mi", "1"))).await?;
    let expected = json!({
        "limits.memory": "1Gi", "pods": "2", "requests.cpu": "1", "requests.example.test/gpu": "2",
    });
    used(talk, "q", &expected).await
}

async fn scopes(talk: &mut Conversation) -> Outcome {
    let deadline = |name: &str| {
        let mut pod = asking(name, &json!({}));
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
        pod
    };
    let one = json!({ "hard": { "pods": "0" }, "scopes": ["Terminating"] });
    quota(talk, "ending", &one, (PODS, &deadline("probe"))).await?;
    let cpu = json!({ "requests": { "cpu": "1" } });
    let two = json!({ "hard": { "pods": "0" }, "scopes": ["NotBestEffort"] });
    quota(talk, "eager", &two, (PODS, &asking("probe", &cpu))).await?;
    let mut urgent = asking("urgent", &json!({}));
    urgent["spec"]["priorityClassName"] = json!("system-node-critical");
    let three = json!({ "hard": { "pods": "0" }, "scopeSelector": { "matchExpressions": [{
        "scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"],
    }] } });
    quota(talk, "urgent", &three, (PODS, &urgent)).await?;
    let dry = with(PODS, "dryRun=All");
    talk.post(&dry, &asking("plain", &json!({}))).await?.expect(201)?;
    talk.post(&dry, &deadline("ending")).await?.expect(403)?;
    talk.post(&dry, &asking("eager", &cpu)).await?.expect(403)?;
    talk.post(&dry, &urgent).await?.expect(403)?;
    Ok(())
}

async fn services(talk: &mut Conversation) -> Outcome {
    let service = |name: &str, kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "type": kind, "ports": [{ "port": 80 }] },
        })
    };
    let hard = json!({ "services": "2", "services.nodeports": "1", "services.loadbalancers": "0" });
    let blocked = service("probe", "LoadBalancer");
    quota(talk, "q", &json!({ "hard": hard }), (SERVICES, &blocked)).await?;
    talk.post(&with(SERVICES, "dryRun=All"), &service("b", "LoadBalancer")).await?.expect(403)?;
    for (name, kind) in [("one", "NodePort"), ("two", "ClusterIP")] {
        let ask = Ask::post(SERVICES, &service(name, kind));
        talk.ask_unrecorded(ask).await?.expect(201)?;
    }
    talk.post(&with(SERVICES, "dryRun=All"), &service("three", "ClusterIP")).await?.expect(403)?;
    let other = json!({ "spec": { "type": "NodePort" } });
    talk.patch(&at(SERVICES, "two"), Patch::Merge, &other).await?.expect(403)?;
    Ok(())
}
