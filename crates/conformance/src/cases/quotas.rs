//! Limit ranges and quotas.
//!
//! A real server alone counts nothing: what is used is written by a controller, or raised by a
//! write. So each case says what is used before it begins, which is nothing, and ends before
//! anything goes.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, PODS, SERVICES, config_map, object_path, service_account, with_query,
};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

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
fn pod_with_resources(name: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{
            "name": "c", "image": "registry.test/c:1", "resources": resources,
        }] },
    })
}

/// Makes a range and waits until it is in effect.
async fn create_limit_range(talk: &mut Session, limits: &Value) -> Outcome {
    service_account(talk).await?;
    let object = json!({ "metadata": { "name": "range" }, "spec": { "limits": limits } });
    talk.create(RANGES, &object).await?;
    // A claim for too much is refused by every range of these cases.
    let much = claim("probe", "9Ei");
    let ask = RequestSpec::post(with_query(CLAIMS, "dryRun=All"), &much);
    talk.send_until_unrecorded(ask, |answer| answer.status == 403).await.map(drop)
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

async fn limit_defaults(talk: &mut Session) -> Outcome {
    let limits = json!([
        {
            "type": "Container", "default": { "cpu": "500m", "memory": "256Mi" },
            "defaultRequest": { "cpu": "100m" },
        },
        claims_limited(),
    ]);
    create_limit_range(talk, &limits).await?;
    let answer = talk.create(PODS, &pod_with_resources("none", &json!({}))).await?;
    answer.has_values(&[
        ("/spec/containers/0/resources/limits/cpu", json!("500m")),
        ("/spec/containers/0/resources/requests/cpu", json!("100m")),
        ("/spec/containers/0/resources/requests/memory", json!("256Mi")),
    ])?;
    let some = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } });
    talk.create(PODS, &pod_with_resources("some", &some)).await?;
    let all = json!({
        "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1", "memory": "1Gi" },
    });
    talk.create(PODS, &pod_with_resources("all", &all)).await?;
    let mut two = pod_with_resources("two", &json!({}));
    two["spec"]["initContainers"] = json!([{ "name": "i", "image": "registry.test/i:1" }]);
    talk.create(PODS, &two).await?;
    Ok(())
}

async fn container_limits(talk: &mut Session) -> Outcome {
    let limits = json!([
        { "type": "Container", "max": { "cpu": "2" }, "min": { "cpu": "100m" } },
        claims_limited(),
    ]);
    create_limit_range(talk, &limits).await?;
    let dry = with_query(PODS, "dryRun=All");
    let cpu = |request: &str, limit: &str| {
        json!({
            "requests": { "cpu": request }, "limits": { "cpu": limit },
        })
    };
    let answer = talk.post(&dry, &pod_with_resources("much", &cpu("1", "3"))).await?;
    answer.expect_error(
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
        talk.post(&dry, &pod_with_resources(name, &resources)).await?.expect(403)?;
    }
    talk.post(&dry, &pod_with_resources("fine", &cpu("100m", "2"))).await?.expect(201)?;
    Ok(())
}

async fn pod_limits(talk: &mut Session) -> Outcome {
    let limits = json!([
        { "type": "Pod", "max": { "cpu": "2" }, "maxLimitRequestRatio": { "memory": "2" } },
        claims_limited(),
    ]);
    create_limit_range(talk, &limits).await?;
    let dry = with_query(PODS, "dryRun=All");
    let pod = |name: &str, cpu: &str, request: &str, limit: &str| {
        let resources = json!({
            "requests": { "cpu": cpu, "memory": request },
            "limits": { "cpu": cpu, "memory": limit },
        });
        let mut pod = pod_with_resources(name, &resources);
        let mut second = pod["spec"]["containers"][0].clone();
        second["name"] = json!("d");
        pod["spec"]["containers"] = json!([pod["spec"]["containers"][0], second]);
        pod
    };
    talk.post(&dry, &pod("fine", "1", "1Gi", "2Gi")).await?.expect(201)?;
    talk.post(&dry, &pod("much", "1500m", "1Gi", "1Gi")).await?.expect(403)?;
    talk.post(&dry, &pod("spread", "1", "1Gi", "3Gi")).await?.expect(403)?;
    talk.post(&dry, &pod_with_resources("none", &json!({ "limits": { "cpu": "1" } })))
        .await?
        .expect(403)?;
    Ok(())
}

async fn claim_limits(talk: &mut Session) -> Outcome {
    create_limit_range(talk, &json!([claims_limited()])).await?;
    let dry = with_query(CLAIMS, "dryRun=All");
    talk.post(&dry, &claim("much", "11Gi")).await?.expect(403)?;
    talk.post(&dry, &claim("little", "500Mi")).await?.expect(403)?;
    talk.post(&dry, &claim("fine", "5Gi")).await?.expect(201)?;
    Ok(())
}

/// Makes a quota of which nothing is used yet, and waits until it is in effect.
async fn create_quota(
    talk: &mut Session,
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
    let path = format!("{}/status", object_path(QUOTAS, name));
    talk.send_unrecorded(RequestSpec::patch(path, PatchType::Merge, &status)).await?.expect(200)?;
    let (collection, object) = blocked;
    let ask = RequestSpec::post(with_query(collection, "dryRun=All"), object);
    talk.send_until_unrecorded(ask, |answer| {
        answer.status == 403
            && answer.string("/message").contains(&format!("quota: {name}"))
            && !answer.string("/message").contains("status unknown")
    })
    .await
    .map(drop)
}

/// What a quota says is used; the rest of it is not compared.
async fn expect_used(talk: &mut Session, name: &str, expected: &Value) -> Outcome {
    let answer =
        talk.send_unrecorded(RequestSpec::get(object_path(QUOTAS, name))).await?.expect(200)?;
    answer.has_value("/status/used", expected)
}

async fn counts(talk: &mut Session) -> Outcome {
    let hard = json!({ "count/configmaps": "2", "count/leases.coordination.k8s.io": "0" });
    let lease = json!({ "metadata": { "name": "l" } });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
    create_quota(talk, "q", &json!({ "hard": hard }), (leases, &lease)).await?;
    let answer = talk.post(leases, &lease).await?;
    answer.expect_error(
        403,
        "Forbidden",
        "leases.coordination.k8s.io \"l\" is forbidden: exceeded quota: q, requested: \
         count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: \
         count/leases.coordination.k8s.io=0",
    )?;
    talk.create(CONFIG_MAPS, &config_map("one", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("two", "x")).await?;
    let used_up = json!({ "count/configmaps": "2", "count/leases.coordination.k8s.io": "0" });
    expect_used(talk, "q", &used_up).await?;
    talk.post(CONFIG_MAPS, &config_map("three", "x")).await?.expect(403)?;
    // What is there may change, and a wish that is not fulfilled costs nothing.
    talk.patch(
        &object_path(CONFIG_MAPS, "one"),
        PatchType::Merge,
        &json!({ "data": { "a": "y" } }),
    )
    .await?;
    talk.post(&with_query(CONFIG_MAPS, "dryRun=All"), &config_map("three", "x"))
        .await?
        .expect(403)?;
    expect_used(talk, "q", &used_up).await
}

async fn pods(talk: &mut Session) -> Outcome {
    let hard = json!({
        "pods": "3", "requests.cpu": "1", "limits.memory": "1Gi", "requests.example.test/gpu": "2",
    });
    create_quota(
        talk,
        "q",
        &json!({ "hard": hard }),
        (PODS, &pod_with_resources("probe", &json!({}))),
    )
    .await?;
    let resources = |cpu: &str, memory: &str, gpu: &str| {
        json!({
            "requests": { "cpu": cpu, "example.test/gpu": gpu },
            "limits": { "memory": memory, "example.test/gpu": gpu },
        })
    };
    let answer = talk.post(PODS, &pod_with_resources("silent", &json!({}))).await?;
    answer.expect_error(
        403,
        "Forbidden",
        "pods \"silent\" is forbidden: failed quota: q: must specify limits.memory for: c; \
         requests.cpu for: c",
    )?;
    talk.create(PODS, &pod_with_resources("one", &resources("600m", "512Mi", "1"))).await?;
    let expected = json!({
        "limits.memory": "512Mi", "pods": "1", "requests.cpu": "600m",
        "requests.example.test/gpu": "1",
    });
    expect_used(talk, "q", &expected).await?;
    let answer =
        talk.post(PODS, &pod_with_resources("two", &resources("500m", "1Gi", "2"))).await?;
    answer.expect_error(
        403,
        "Forbidden",
        "pods \"two\" is forbidden: exceeded quota: q, requested: \
         limits.memory=1Gi,requests.cpu=500m,requests.example.test/gpu=2, used: \
         limits.memory=512Mi,requests.cpu=600m,requests.example.test/gpu=1, limited: \
         limits.memory=1Gi,requests.cpu=1,requests.example.test/gpu=2",
    )?;
    talk.create(PODS, &pod_with_resources("three", &resources("400m", "512Mi", "1"))).await?;
    let expected = json!({
        "limits.memory": "1Gi", "pods": "2", "requests.cpu": "1", "requests.example.test/gpu": "2",
    });
    expect_used(talk, "q", &expected).await
}

async fn scopes(talk: &mut Session) -> Outcome {
    let deadline = |name: &str| {
        let mut pod = pod_with_resources(name, &json!({}));
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
        pod
    };
    let one = json!({ "hard": { "pods": "0" }, "scopes": ["Terminating"] });
    create_quota(talk, "ending", &one, (PODS, &deadline("probe"))).await?;
    let cpu = json!({ "requests": { "cpu": "1" } });
    let two = json!({ "hard": { "pods": "0" }, "scopes": ["NotBestEffort"] });
    create_quota(talk, "eager", &two, (PODS, &pod_with_resources("probe", &cpu))).await?;
    let mut urgent = pod_with_resources("urgent", &json!({}));
    urgent["spec"]["priorityClassName"] = json!("system-node-critical");
    let three = json!({ "hard": { "pods": "0" }, "scopeSelector": { "matchExpressions": [{
        "scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"],
    }] } });
    create_quota(talk, "urgent", &three, (PODS, &urgent)).await?;
    let dry = with_query(PODS, "dryRun=All");
    talk.post(&dry, &pod_with_resources("plain", &json!({}))).await?.expect(201)?;
    talk.post(&dry, &deadline("ending")).await?.expect(403)?;
    talk.post(&dry, &pod_with_resources("eager", &cpu)).await?.expect(403)?;
    talk.post(&dry, &urgent).await?.expect(403)?;
    Ok(())
}

async fn services(talk: &mut Session) -> Outcome {
    let service = |name: &str, kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "type": kind, "ports": [{ "port": 80 }] },
        })
    };
    let hard = json!({ "services": "2", "services.nodeports": "1", "services.loadbalancers": "0" });
    let blocked = service("probe", "LoadBalancer");
    create_quota(talk, "q", &json!({ "hard": hard }), (SERVICES, &blocked)).await?;
    talk.post(&with_query(SERVICES, "dryRun=All"), &service("b", "LoadBalancer"))
        .await?
        .expect(403)?;
    for (name, kind) in [("one", "NodePort"), ("two", "ClusterIP")] {
        let ask = RequestSpec::post(SERVICES, &service(name, kind));
        talk.send_unrecorded(ask).await?.expect(201)?;
    }
    talk.post(&with_query(SERVICES, "dryRun=All"), &service("three", "ClusterIP"))
        .await?
        .expect(403)?;
    let other = json!({ "spec": { "type": "NodePort" } });
    talk.patch(&object_path(SERVICES, "two"), PatchType::Merge, &other).await?.expect(403)?;
    Ok(())
}
