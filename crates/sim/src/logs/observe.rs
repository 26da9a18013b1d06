//! Writes the logs of simulated containers from the status of their pods.

use jiff::Timestamp;
use serde_json::json;

use super::{LOG_LINES_ANNOTATION, Logs};
use crate::view::{ContainerStateTerminated, ContainerStatus, Pod};

impl Logs {
    /// Brings the logs of a pod's containers up to its status: runs that have started log the lines
    /// of the annotation ([`LOG_LINES_ANNOTATION`]) or that they have started, runs that have ended
    /// log how, and their followers reach the end.
    ///
    /// Observing twice changes nothing, and what one call has missed is caught up with at the next,
    /// as far as the status still has it. So this may be called with every change of a pod and with
    /// all pods after a start; logs are in memory, and a new process begins them again.
    pub fn observe(&self, pod: &Pod, now: Timestamp) {
        let status = &pod.status;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for container in all {
            self.observe_container(pod, container, now);
        }
    }

    fn observe_container(&self, pod: &Pod, status: &ContainerStatus, now: Timestamp) {
        let run = status.restart_count;
        let ended = |state: &Option<ContainerStateTerminated>| {
            state.clone().filter(|it| !it.container_id.is_empty())
        };
        let (now_ended, before) =
            (ended(&status.state.terminated), ended(&status.last_state.terminated));
        let (started, end, before) = match (&status.state.running, now_ended, before) {
            (Some(running), _, before) => (running.started_at, None, before),
            (None, Some(end), before) => (end.started_at, Some(end), before),
            // The container waits to be restarted, and the last run is still the current one.
            (None, None, Some(end)) => (end.started_at, Some(end), None),
            (None, None, None) => return,
        };
        if let Some(before) = before {
            self.observe_run(
                pod,
                status,
                run - 1,
                before.started_at.unwrap_or(now),
                Some(&before),
                now,
            );
        }
        self.observe_run(pod, status, run, started.unwrap_or(now), end.as_ref(), now);
    }

    fn observe_run(
        &self,
        pod: &Pod,
        status: &ContainerStatus,
        run: i64,
        started: Timestamp,
        end: Option<&ContainerStateTerminated>,
        now: Timestamp,
    ) {
        let (uid, name) = (pod.metadata.uid.as_str(), status.name.as_str());
        let wanted = pod.metadata.annotations.get(LOG_LINES_ANNOTATION);
        let said = |what: &str| {
            let mut line = json!({ "level": "info", "msg": what, "container": name, "run": run });
            match end {
                Some(end) if what == "exited" => {
                    line["exitCode"] = json!(end.exit_code);
                    line["reason"] = json!(end.reason);
                }
                Some(_) | None => line["image"] = json!(status.image),
            }
            line.to_string()
        };
        match wanted {
            Some(text) => self.start_run(uid, name, run, started, text.lines()),
            None => self.start_run(uid, name, run, started, [said("started").as_str()]),
        }
        if let Some(end) = end {
            let at = end.finished_at.unwrap_or(now);
            let line = wanted.is_none().then(|| said("exited"));
            self.finish_run(uid, name, run, at, line.as_deref());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{ContainerRun, LogReadOptions, select_run};
    use super::*;

    const T: [&str; 4] = [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:02Z",
        "2026-01-01T00:00:03Z",
    ];

    fn running(at: &str) -> Value {
        json!({ "running": { "startedAt": at } })
    }

    fn ended(code: i64, from: &str, to: &str) -> Value {
        json!({ "terminated": {
            "exitCode": code, "reason": "Error", "containerID": "x://1", "startedAt": from,
            "finishedAt": to,
        } })
    }

    fn waiting() -> Value {
        json!({ "waiting": { "reason": "CrashLoopBackOff" } })
    }

    /// Builds a pod with a container in this state.
    fn pod(run: i64, state: &Value, last: &Value) -> Value {
        json!({
            "metadata": { "name": "p", "uid": "u" },
            "status": { "containerStatuses": [{
                "name": "c", "image": "i", "restartCount": run, "state": state, "lastState": last,
            }] },
        })
    }

    fn observe(logs: &Logs, pod: &Value) {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        logs.observe(&pod, now);
        // Again, as after every unrelated change.
        logs.observe(&pod, now);
    }

    /// Reads the current run and the previous one.
    async fn read_logs(logs: &Logs, pod: &Value) -> [Option<String>; 2] {
        let mut all = [const { None }; 2];
        for (place, previous) in [false, true].into_iter().enumerate() {
            let Ok(run) = select_run(pod, "c", previous) else { continue };
            let options = LogReadOptions { timestamps: true, ..LogReadOptions::default() };
            let Some(mut reader) = logs.read("u", "c", run, &options) else { continue };
            let mut text = String::new();
            while let Some(bytes) = reader.next().await {
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            all[place] = Some(text);
        }
        all
    }

    fn started(run: i64, at: &str) -> String {
        let at = at.replace('Z', ".000000000Z");
        format!(
            "{at} {{\"level\":\"info\",\"msg\":\"started\",\"container\":\"c\",\"run\":{run},\
             \"image\":\"i\"}}\n"
        )
    }

    fn exited(run: i64, code: i64, at: &str) -> String {
        let at = at.replace('Z', ".000000000Z");
        format!(
            "{at} {{\"level\":\"info\",\"msg\":\"exited\",\"container\":\"c\",\"run\":{run},\
             \"exitCode\":{code},\"reason\":\"Error\"}}\n"
        )
    }

    #[tokio::test]
    async fn container_starts_and_exits_are_logged() {
        let none = json!({});
        let first = started(0, T[0]) + &exited(0, 1, T[1]);
        let steps = [
            ("it is made", pod(0, &json!({ "waiting": {} }), &none), [None, None]),
            ("it runs", pod(0, &running(T[0]), &none), [Some(started(0, T[0])), None]),
            ("it ends", pod(0, &ended(1, T[0], T[1]), &none), [Some(first.clone()), None]),
            (
                "it waits",
                pod(0, &waiting(), &ended(1, T[0], T[1])),
                // The last run is also the previous one.
                [Some(first.clone()), Some(first.clone())],
            ),
            (
                "it runs again",
                pod(1, &running(T[2]), &ended(1, T[0], T[1])),
                [Some(started(1, T[2])), Some(first.clone())],
            ),
            (
                "it ends again",
                pod(1, &ended(2, T[2], T[3]), &ended(1, T[0], T[1])),
                [Some(started(1, T[2]) + &exited(1, 2, T[3])), Some(first)],
            ),
        ];
        let logs = Logs::new();
        for (why, pod, expected) in &steps {
            observe(&logs, pod);
            assert_eq!(read_logs(&logs, pod).await, *expected, "{why}");
        }
        // An observer that starts late, as after a restart, knows what the status still has.
        for (why, pod, expected) in &steps {
            let logs = Logs::new();
            observe(&logs, pod);
            assert_eq!(read_logs(&logs, pod).await, *expected, "late: {why}");
        }
    }

    #[tokio::test]
    async fn annotated_lines_are_logged() {
        let logs = Logs::new();
        let mut pod = pod(0, &ended(1, T[0], T[1]), &json!({}));
        pod["metadata"]["annotations"] = json!({ LOG_LINES_ANNOTATION: "hello\nworld" });
        observe(&logs, &pod);
        let mut reader =
            logs.read("u", "c", ContainerRun::Current, &LogReadOptions::default()).unwrap();
        assert_eq!(reader.next().await.unwrap(), "hello\nworld\n");
    }

    #[tokio::test]
    async fn following_ends_with_the_run() {
        let logs = Logs::new();
        observe(&logs, &pod(0, &running(T[0]), &json!({})));
        let follow = LogReadOptions { follow: true, tail: Some(0), ..LogReadOptions::default() };
        let mut reader = logs.read("u", "c", ContainerRun::Current, &follow).unwrap();
        observe(&logs, &pod(1, &running(T[2]), &ended(1, T[0], T[1])));
        let last = exited(0, 1, T[1]);
        let (_, last) = last.split_once(' ').unwrap();
        assert_eq!(reader.next().await.unwrap(), last);
        assert_eq!(reader.next().await, None);
    }
}
