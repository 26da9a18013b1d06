//! Waits until a cluster is ready, by polling it.

use std::time::Duration;

use ::http::StatusCode;
use gantry_process::clock::{Clock, Moment};
use serde_json::Value;

use super::{StartError, User};
use crate::http::{Client, Credentials, Protocol, Request, Response, Target};
use crate::run::Run;

/// How long a start may take. It takes a few seconds; a machine that builds on all cores at the
/// same time needs several times that.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The first pause between two requests, and the longest: short compared with what is waited for,
/// long compared with the cost of a request.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// The timeout of one request: a server that is starting may hold a request for long.
const READINESS_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until the server serves, has its roles, and has the namespace `default`.
pub(super) async fn api_server(
    run: &mut Run,
    admin: &User,
    clock: &Clock,
    deadline: Moment,
) -> Result<(), StartError> {
    let mut wait = ReadinessWait { run, clock, deadline };
    let client = admin.http(Protocol::Http1, clock.clone())?;
    wait.until("kube-apiserver", &client, "/readyz", |answer| answer.text() == "ok").await?;
    wait.until("namespace default", &client, "/api/v1/namespaces/default", |_| true).await
}

/// Waits until both serve, and until pods can be created, which needs a service account. The
/// certificates of both are signed by `authority`.
pub(super) async fn controllers(
    run: &mut Run,
    admin: &Target,
    authority: &str,
    ports: [u16; 2],
    clock: &Clock,
    deadline: Moment,
) -> Result<(), StartError> {
    let mut wait = ReadinessWait { run, clock, deadline };
    for (port, name) in ports.into_iter().zip(["kube-controller-manager", "kube-scheduler"]) {
        wait.component(name, authority, port).await?;
    }
    let client = Client::new(admin, Protocol::Http1, clock.clone())?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    wait.until("service account default", &client, account, |_| true).await
}

/// Waits until the controller manager serves. It does so before it has synced its caches; its first
/// deletions take a moment, as with any cluster.
pub(super) async fn housekeeping(
    run: &mut Run,
    authority: &str,
    port: u16,
    clock: &Clock,
    deadline: Moment,
) -> Result<(), StartError> {
    ReadinessWait { run, clock, deadline }
        .component("kube-controller-manager", authority, port)
        .await
}

/// Waits until every node reports that it is ready.
pub(super) async fn nodes(
    run: &mut Run,
    admin: &Target,
    names: &[String],
    clock: &Clock,
    deadline: Moment,
) -> Result<(), StartError> {
    let mut wait = ReadinessWait { run, clock, deadline };
    let client = Client::new(admin, Protocol::Http1, clock.clone())?;
    for name in names {
        let path = format!("/api/v1/nodes/{name}");
        let ready = |answer: &Response| answer.json().is_ok_and(|node| is_ready(&node));
        wait.until(&format!("node {name}"), &client, &path, ready).await?;
    }
    Ok(())
}

/// Returns whether an object has the condition `Ready`, and no taint keeps pods away from it.
fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let free = node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    free && conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

struct ReadinessWait<'start> {
    run: &'start mut Run,
    clock: &'start Clock,
    deadline: Moment,
}

impl ReadinessWait<'_> {
    /// Waits for a program beside the server, whose health endpoint needs no credentials.
    async fn component(
        &mut self,
        name: &str,
        authority: &str,
        port: u16,
    ) -> Result<(), StartError> {
        let target = Target {
            base: format!("https://127.0.0.1:{port}"),
            authority: authority.to_owned(),
            credentials: Credentials::Anonymous,
        };
        let client = Client::new(&target, Protocol::Http1, self.clock.clone())?;
        self.until(name, &client, "/healthz", |answer| answer.text() == "ok").await
    }

    /// Polls until the answer is 200 and `enough`, a program has exited, or the time is up.
    async fn until(
        &mut self,
        what: &str,
        client: &Client,
        path: &str,
        enough: impl Fn(&Response) -> bool,
    ) -> Result<(), StartError> {
        let client = client.clone().with_timeout(READINESS_REQUEST_TIMEOUT);
        let [mut pause, longest] = POLL_INTERVALS;
        loop {
            let answer = client.send(Request::get(path)).await;
            let last = match answer {
                Ok(answer) if answer.status == StatusCode::OK && enough(&answer) => return Ok(()),
                Ok(answer) => format!("{}: {}", answer.status, answer.text()),
                Err(error) => error.cause.to_string(),
            };
            if let Some((program, status)) = self.run.exited_process() {
                return Err(StartError::Ended { program, status });
            }
            if self.clock.moment() >= self.deadline {
                let what = what.to_owned();
                return Err(StartError::NotReady { what, last, limit: START_TIMEOUT });
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_when_pods_may_come() {
        let node = |status: &str, taints: Value| {
            json!({
                "spec": {"taints": taints},
                "status": {"conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": status},
                ]},
            })
        };
        let table = [
            ("ready", node("True", Value::Null), true),
            ("no taints is none", node("True", json!([])), true),
            ("not yet", node("False", Value::Null), false),
            ("kept free", node("True", json!([{"key": "a"}])), false),
            ("nothing known", json!({}), false),
        ];
        for (why, node, expected) in table {
            assert_eq!(is_ready(&node), expected, "{why}");
        }
    }
}
