//! Tables: what people see.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, PODS, config_map, labelled, object_path, pod, service_account, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::response::Response;
use crate::session::{RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("table-columns", [10], columns),
    case!("table-of-pods", [10], pods),
    case!("table-of-one", [10], one),
    case!("table-rows-and-objects", [10], objects),
    case!("table-watch", [10], watch),
    case!("table-streamed-list", [10, 30], streamed),
    case!("table-of-an-error", [10], error),
    case!("table-old-version", [10], old_version),
];

/// The columns people see, and after the bar those of `-o wide`.
const COLUMNS: [(&str, &str); 24] = [
    (
        "/api/v1/namespaces/{ns}/pods",
        "Name,Ready,Status,Restarts,Age|IP,Node,Nominated Node,Readiness Gates",
    ),
    (
        "/api/v1/nodes",
        "Name,Status,Roles,Age,Version|Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime",
    ),
    ("/api/v1/namespaces", "Name,Status,Age|"),
    ("/api/v1/namespaces/{ns}/configmaps", "Name,Data,Age|"),
    ("/api/v1/namespaces/{ns}/secrets", "Name,Type,Data,Age|"),
    ("/api/v1/namespaces/{ns}/serviceaccounts", "Name,Secrets,Age|"),
    ("/api/v1/namespaces/{ns}/services", "Name,Type,Cluster-IP,External-IP,Port(s),Age|Selector"),
    (
        "/api/v1/namespaces/{ns}/events",
        "Last Seen,Type,Reason,Object,Message|Subobject,Source,First Seen,Count,Name",
    ),
    ("/api/v1/namespaces/{ns}/resourcequotas", "Name,Request,Limit,Age|"),
    ("/api/v1/namespaces/{ns}/limitranges", "Name,Created At|"),
    (
        "/apis/apps/v1/namespaces/{ns}/deployments",
        "Name,Ready,Up-to-date,Available,Age|Containers,Images,Selector",
    ),
    (
        "/apis/apps/v1/namespaces/{ns}/replicasets",
        "Name,Desired,Current,Ready,Age|Containers,Images,Selector",
    ),
    ("/apis/apps/v1/namespaces/{ns}/statefulsets", "Name,Ready,Age|Containers,Images"),
    (
        "/apis/apps/v1/namespaces/{ns}/daemonsets",
        "Name,Desired,Current,Ready,Up-to-date,Available,Node \
         Selector,Age|Containers,Images,Selector",
    ),
    (
        "/apis/batch/v1/namespaces/{ns}/jobs",
        "Name,Status,Completions,Duration,Age|Containers,Images,Selector",
    ),
    (
        "/apis/batch/v1/namespaces/{ns}/cronjobs",
        "Name,Schedule,Timezone,Suspend,Active,Last Schedule,Age|Containers,Images,Selector",
    ),
    (
        "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
        "Name,Min Available,Max Unavailable,Allowed Disruptions,Age|",
    ),
    (
        "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
        "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age|",
    ),
    ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", "Name,Holder,Age|"),
    ("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", "Name,Created At|"),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
        "Name,Role,Age|Users,Groups,ServiceAccounts",
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "Name,Value,Global-Default,Age,PreemptionPolicy|",
    ),
    ("/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims", "Name,State,Age|"),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "Name,Created At|"),
];

/// Columns of a table, those with priority 0 before the bar.
fn column_names(answer: &Response) -> String {
    let columns = answer.at("/columnDefinitions").as_array().cloned().unwrap_or_default();
    let names = |wide: bool| -> String {
        let of_kind = columns.iter().filter(|it| (it["priority"] != 0) == wide);
        let names: Vec<&str> = of_kind.filter_map(|it| it["name"].as_str()).collect();
        names.join(",")
    };
    format!("{}|{}", names(false), names(true))
}

async fn columns(talk: &mut Session) -> Outcome {
    for (path, expected) in COLUMNS {
        let path = with_query(path, "fieldSelector=metadata.name%3Dnone");
        let answer =
            talk.send(RequestSpec::get(path).table()).await?.expect(200)?.expect_kind("Table")?;
        answer.has_value("/apiVersion", &json!("meta.k8s.io/v1"))?;
        answer.has_no_value("/rows/0")?;
        expect_equal(&answer.request_line, &expected, &column_names(&answer).as_str())?;
    }
    Ok(())
}

async fn pods(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    talk.create(PODS, &pod("p")).await?;
    let answer = talk.send(RequestSpec::get(PODS).table()).await?.expect(200)?;
    let columns = answer.at("/columnDefinitions").as_array().map_or(0, Vec::len);
    expect_equal("the number of columns", &9, &columns)?;
    let cells = answer.at("/rows/0/cells").as_array().cloned().unwrap_or_default();
    let node = talk.with_namespace("node-of-{ns}");
    expect_equal("ready", &json!("0/1"), &cells[1])?;
    expect_equal("status", &json!("Pending"), &cells[2])?;
    expect_equal("restarts", &json!("0"), &cells[3])?;
    let wide = [json!("<none>"), json!(node), json!("<none>"), json!("<none>")];
    expect_equal("wide cells", &&wide[..], &&cells[5..])
}

async fn one(talk: &mut Session) -> Outcome {
    let made = talk.send(RequestSpec::post(CONFIG_MAPS, &config_map("a", "x")).table()).await?;
    let made = made.expect(201)?.expect_kind("Table")?;
    made.has_value("/rows/0/cells/1", &json!(1))?;
    let got =
        talk.send(RequestSpec::get(object_path(CONFIG_MAPS, "a")).table()).await?.expect(200)?;
    got.has_names(&["a"])?;
    got.has_value("/rows/0/cells/0", &json!("a"))
}

async fn objects(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let rows = |include: &str| RequestSpec::get(with_query(CONFIG_MAPS, include)).table();
    let default = talk.send(rows("")).await?.expect(200)?;
    default.has_value("/rows/0/object/kind", &json!("PartialObjectMetadata"))?;
    default.has_value("/rows/0/object/apiVersion", &json!("meta.k8s.io/v1"))?;
    default.has_no_value("/rows/0/object/data")?;
    let metadata = talk.send(rows("includeObject=Metadata")).await?.expect(200)?;
    // Not the whole row: its age may turn between two requests.
    expect_equal("the default", default.at("/rows/0/object"), metadata.at("/rows/0/object"))?;
    let full = talk.send(rows("includeObject=Object")).await?.expect(200)?;
    full.has_value("/rows/0/object/data", &json!({ "a": "x" }))?;
    let none = talk.send(rows("includeObject=None")).await?.expect(200)?;
    none.has_value(
        "/rows/0",
        &json!({ "cells": ["a", 1, none.at("/rows/0/cells/2")], "object": null }),
    )?;
    talk.send(rows("includeObject=Some")).await?.expect(400)?;
    Ok(())
}

async fn watch(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with_query(CONFIG_MAPS, &format!("watch=1&resourceVersion={}", made.revision() - 1));
    let watch = talk.watch(RequestSpec::get(path).table()).await?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    let answer = talk.finish_watch(watch, Until::Events(3)).await?;
    answer.has_events(&[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")])?;
    let columns = |event: &Value| event["object"]["columnDefinitions"].is_array();
    let told: Vec<bool> = answer.events().iter().map(columns).collect();
    expect_equal("events with columns", &vec![true, false, false], &told)
}

async fn streamed(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &labelled("a", &json!({ "l": "1" }))).await?;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                 allowWatchBookmarks=true&labelSelector=l%3D1";
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, query)).table()).await?;
    let answer = talk.finish_watch(watch, Until::InitialEventsEnd).await?;
    let end = answer.events().last().cloned().unwrap_or_default();
    expect_equal("a bookmark is a table", &json!("Table"), &end["object"]["kind"])?;
    let mark = end.pointer("/object/rows/0/object/metadata/annotations").cloned();
    let expected = json!({ "k8s.io/initial-events-end": "true" });
    expect_equal("the mark", &expected, &mark.unwrap_or_default())
}

async fn error(talk: &mut Session) -> Outcome {
    let answer = talk.send(RequestSpec::get(object_path(CONFIG_MAPS, "none")).table()).await?;
    answer.expect_error(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn old_version(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let answer = talk.send(RequestSpec::get(CONFIG_MAPS).accept(accept)).await?.expect(200)?;
    answer.has_values(&[
        ("/apiVersion", json!("meta.k8s.io/v1beta1")),
        ("/rows/0/object/apiVersion", json!("meta.k8s.io/v1beta1")),
    ])
}
