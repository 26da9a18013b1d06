//! Logs and conversations with containers, as far as a server answers without asking a node.

use serde_json::{Value, json};

use super::objects::{PODS, object_path, pod, service_account, with_query};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("log-options", [], log_options),
    case!("log-options-that-cannot-be-read", [], unreadable_options),
    case!("log-of-one-of-many-containers", [], containers),
    case!("log-of-a-pod-without-a-node", [], without_node),
    case!("log-in-other-forms", [], forms),
    case!("exec-and-attach-without-a-node", [], conversations),
    case!("exec-and-attach-without-an-upgrade", [], no_upgrade),
    case!("port-forward-without-a-node", [], ports),
];

/// A pod of one container that is on no node.
fn unscheduled_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"].as_object_mut().map(|spec| spec.remove("nodeName"));
    pod
}

/// Makes the pods of a case.
async fn create_pods(talk: &mut Session, pods: &[Value]) -> Outcome {
    service_account(talk).await?;
    for pod in pods {
        talk.create(PODS, pod).await?;
    }
    Ok(())
}

/// A pod with three containers, the first of which comes before the others.
fn multi_container_pod(name: &str) -> Value {
    let mut pod = unscheduled_pod(name);
    let container = |name: &str| json!({ "name": name, "image": "registry.test/c:1" });
    pod["spec"]["initContainers"] = json!([container("first")]);
    pod["spec"]["containers"] = json!([container("c"), container("d")]);
    pod
}

async fn log_options(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("p")]).await?;
    let log = object_path(PODS, "p/log");
    let invalid = |faults: &str| format!("PodLogOptions \"p\" is invalid: {faults}");
    let table = [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=-5", "sinceSeconds: Invalid value: -5: must be greater than 0"),
        (
            "sinceSeconds=0&limitBytes=-1&tailLines=-7",
            "[tailLines: Invalid value: -7: must be greater than or equal to 0, limitBytes: \
             Invalid value: -1: must be greater than 0, sinceSeconds: Invalid value: 0: must be \
             greater than 0]",
        ),
        (
            "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (
            "sinceSeconds=0&sinceTime=",
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=Stdout", "stream: Forbidden: may not be specified"),
        ("stream=", "stream: Forbidden: may not be specified"),
    ];
    for (query, faults) in table {
        let answer = talk.get(&with_query(&log, query)).await?;
        answer.expect_error(422, "Invalid", &invalid(faults))?;
    }
    for query in [
        "follow=true&previous=true&timestamps=true",
        "follow=maybe&tailLines=0&limitBytes=1&sinceSeconds=1",
        "sinceTime=2020-01-01T00:00:00.5%2B02:00&unknown=x&pretty=true",
        "sinceTime=&insecureSkipTLSVerifyBackend=true",
    ] {
        talk.get(&with_query(&log, query)).await?.expect(204)?;
    }
    Ok(())
}

async fn unreadable_options(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("p")]).await?;
    let log = object_path(PODS, "p/log");
    let number = |text: &str, why: &str| format!("strconv.ParseInt: parsing \"{text}\": {why}");
    let layout = "\"2006-01-02T15:04:05Z07:00\"";
    let table = [
        ("tailLines=x", number("x", "invalid syntax")),
        ("tailLines=", number("", "invalid syntax")),
        ("limitBytes=1.5", number("1.5", "invalid syntax")),
        ("sinceSeconds=99999999999999999999", number("99999999999999999999", "value out of range")),
        (
            "sinceTime=yesterday",
            format!(
                "parsing time \"yesterday\" as {layout}: cannot parse \"yesterday\" as \"2006\""
            ),
        ),
        (
            "sinceTime=2020-13-01T00:00:00Z",
            "parsing time \"2020-13-01T00:00:00Z\": month out of range".to_owned(),
        ),
    ];
    for (query, words) in table {
        talk.get(&with_query(&log, query)).await?.expect_error(400, "BadRequest", &words)?;
    }
    Ok(())
}

async fn containers(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("one"), multi_container_pod("many")]).await?;
    let words = "container x is not valid for pod one";
    let log = with_query(&object_path(PODS, "one/log"), "container=x");
    talk.get(&log).await?.expect_error(400, "BadRequest", words)?;
    let words = "a container name must be specified for pod many, choose one of: [first c d]";
    talk.get(&object_path(PODS, "many/log")).await?.expect_error(400, "BadRequest", words)?;
    for container in ["first", "c", "d"] {
        let log = with_query(&object_path(PODS, "many/log"), &format!("container={container}"));
        talk.get(&log).await?.expect(204)?;
    }
    // What is wrong with the options comes first, then the container, then the node.
    talk.get(&with_query(&object_path(PODS, "many/log"), "tailLines=-1")).await?.expect(422)?;
    talk.get(&with_query(&object_path(PODS, "none/log"), "tailLines=-1")).await?.expect(422)?;
    Ok(())
}

async fn without_node(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("free"), pod("bound")]).await?;
    talk.get(&object_path(PODS, "free/log")).await?.expect(204)?;
    let answer = talk.get(&object_path(PODS, "none/log")).await?;
    answer.expect_error(404, "NotFound", "pods \"none\" not found")?;
    // The node is not there, and is taken for a pod.
    talk.get(&object_path(PODS, "bound/log")).await?.expect(404)?;
    talk.get(&with_query(&object_path(PODS, "bound/log"), "container=x")).await?.expect(400)?;
    talk.get(&object_path(PODS, "free/log/x")).await?.expect(404)?;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        talk.send(RequestSpec::new(method, object_path(PODS, "free/log"))).await?.expect(405)?;
    }
    Ok(())
}

async fn forms(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("p")]).await?;
    let log = || RequestSpec::get(object_path(PODS, "p/log"));
    for accept in ["*/*", "application/json", "application/yaml", "application/json, */*"] {
        talk.send(log().accept(accept)).await?.expect(204)?;
    }
    for accept in ["text/plain", "image/png", "text/plain, image/png"] {
        talk.send(log().accept(accept)).await?.expect(406)?;
    }
    // A conversation has no form.
    let exec = RequestSpec::new("POST", object_path(PODS, "p/exec"));
    talk.send(exec.accept("image/png")).await?.expect(400)?;
    Ok(())
}

async fn conversations(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("free"), pod("bound"), multi_container_pod("many")])
        .await?;
    for part in ["exec", "attach"] {
        let path = |name: &str| object_path(PODS, &format!("{name}/{part}"));
        for method in ["GET", "POST"] {
            let refused = [
                (path("free"), 400, "BadRequest", "pod free does not have a host assigned"),
                (
                    with_query(&path("free"), "container=x&stdin=maybe"),
                    400,
                    "BadRequest",
                    "container x is not valid for pod free",
                ),
                (
                    with_query(&path("many"), "command=ls&stdout=1"),
                    400,
                    "BadRequest",
                    "a container name must be specified for pod many, choose one of: [first c d]",
                ),
                (path("none"), 404, "NotFound", "pods \"none\" not found"),
            ];
            for (path, code, reason, words) in refused {
                talk.send(RequestSpec::new(method, path))
                    .await?
                    .expect_error(code, reason, words)?;
            }
            talk.send(RequestSpec::new(method, path("bound"))).await?.expect(404)?;
        }
        talk.send(RequestSpec::new("PUT", path("free"))).await?.expect(405)?;
        talk.send(RequestSpec::delete(path("free"))).await?.expect(405)?;
        talk.get(&format!("{}/x", path("free"))).await?.expect(404)?;
    }
    Ok(())
}

/// Creates the node of the pods, at an address where nothing listens.
async fn create_node(talk: &mut Session) -> Outcome {
    let node = json!({ "metadata": { "name": "node-of-{ns}" } });
    talk.create("/api/v1/nodes", &node).await?;
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 9 } },
    } });
    let path = "/api/v1/nodes/node-of-{ns}/status";
    talk.patch(path, PatchType::Merge, &status).await?.expect(200)?;
    Ok(())
}

async fn no_upgrade(talk: &mut Session) -> Outcome {
    create_pods(talk, &[pod("p")]).await?;
    create_node(talk).await?;
    let words = "Upgrade request required";
    for part in ["exec?command=ls&stdout=1", "attach?stdout=1", "exec", "portforward?ports=80"] {
        for method in ["GET", "POST"] {
            let ask = RequestSpec::new(method, object_path(PODS, &format!("p/{part}")));
            talk.send(ask).await?.expect_error(400, "BadRequest", words)?;
        }
    }
    talk.delete("/api/v1/nodes/node-of-{ns}").await?.expect(200)?;
    Ok(())
}

async fn ports(talk: &mut Session) -> Outcome {
    create_pods(talk, &[unscheduled_pod("free"), pod("bound")]).await?;
    let path = object_path(PODS, "free/portforward");
    let answer = talk.get(&with_query(&path, "ports=80")).await?;
    answer.expect_error(400, "BadRequest", "pod free does not have a host assigned")?;
    let number = |text: &str, why: &str| {
        format!("cannot convert to []int32: strconv.ParseUint: parsing \"{text}\": {why}")
    };
    let table = [
        ("ports=x", number("x", "invalid syntax")),
        ("ports=80,-1", number("-1", "invalid syntax")),
        ("ports=65536", number("65536", "value out of range")),
    ];
    for (query, words) in table {
        talk.get(&with_query(&path, query)).await?.expect_error(400, "BadRequest", &words)?;
    }
    let ask = RequestSpec::new("POST", object_path(PODS, "none/portforward"));
    talk.send(ask).await?.expect_error(404, "NotFound", "pods \"none\" not found")?;
    talk.get(&object_path(PODS, "bound/portforward")).await?.expect(404)?;
    Ok(())
}
