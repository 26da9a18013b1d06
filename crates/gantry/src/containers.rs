//! Pretend containers as the server reaches them: what is asked of nodes, put to crate `sim`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gantry_apiserver::nodes::{
    Action, Chunks, Ends, Exit, Fault, Later, LogOptions, Nodes, Session, Target,
};
use gantry_process::clock::Clock;
use gantry_sim::kubelet::annotation;
use gantry_sim::logs::{Logs, Options, Reader, Run, readable};
use gantry_sim::programs::ProgramObserver;
use gantry_sim::shell::{self, Setting, Stdio};

/// The containers of all pretend nodes.
#[derive(Clone, Debug)]
pub struct Containers {
    logs: Logs,
    clock: Clock,
    programs: Arc<OnceLock<ProgramObserver>>,
}

impl Containers {
    /// Containers that say what is in `logs`.
    #[must_use]
    pub fn new(logs: Logs, clock: Clock) -> Self {
        Self { logs, clock, programs: Arc::default() }
    }

    /// Lets commands in containers that are programs see the variables of those.
    pub fn show_environments_of(&self, programs: &ProgramObserver) {
        // Only the first counts, and there is only one.
        let _ = self.programs.set(programs.clone());
    }

    /// The variables of a container: those its program was started with, or else what its pod says.
    fn variables(&self, target: &Target) -> Vec<(String, String)> {
        let programs = self.programs.get();
        match programs.and_then(|it| it.environment(&target.uid, &target.container)) {
            Some(known) => {
                known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            None => shell::variables(&target.object, &target.container),
        }
    }

    async fn attach(&self, target: &Target, ends: Ends) -> Result<Exit, Fault> {
        let (pod, namespace) = (&target.pod, &target.namespace);
        if !is_running(target) {
            let words =
                format!("container {} not found in pod {pod}_{namespace}", target.container);
            return Err(Fault::Unknown(words));
        }
        let options = Options { follow: true, tail: Some(0), ..Options::default() };
        let reader = self.logs.read(&target.uid, &target.container, Run::Current, &options);
        // What is typed goes nowhere: no pretend program reads.
        drop(ends.stdin);
        if let (Some(mut reader), Some(stdout)) = (reader, ends.stdout) {
            while let Some(bytes) = reader.next().await {
                if stdout.send(bytes).await.is_err() {
                    break;
                }
            }
        }
        Ok(Exit(0))
    }

    async fn exec(
        &self,
        target: &Target,
        command: &[String],
        tty: bool,
        ends: Ends,
    ) -> Result<Exit, Fault> {
        if !is_running(target) {
            return Err(Fault::Unknown(format!("container not found ({:?})", target.container)));
        }
        let setting = Setting {
            hostname: shell::hostname(&target.object),
            variables: self.variables(target),
            tty,
            clock: self.clock.clone(),
        };
        let Ends { stdin, stdout, stderr, size: _, gone } = ends;
        let stdio = Stdio { stdin, stdout, stderr };
        match shell::run(command, &setting, stdio, &gone).await {
            Ok(code) => Ok(Exit(code)),
            Err(words) => Err(Fault::Failed(words)),
        }
    }
}

impl Nodes for Containers {
    fn logs(
        &self,
        target: Target,
        options: LogOptions,
    ) -> Later<'_, Result<Box<dyn Chunks>, Fault>> {
        Box::pin(async move {
            let path = format!("containerLogs/{}/{}", target.namespace, target.pod);
            is_reachable(&target).map_err(|(address, words)| {
                let url = format!("https://{address}/{path}/{}", target.container);
                Fault::Unreachable(format!("Get {url:?}: {words}"))
            })?;
            let LogOptions { follow, previous, timestamps, since, tail, limit } = options;
            let run =
                readable(&target.object, &target.container, previous).map_err(Fault::NotNow)?;
            let options = Options { follow, timestamps, since, tail, limit };
            let reader = self.logs.read(&target.uid, &target.container, run, &options);
            // It runs, says its status, but has said nothing yet that is kept.
            Ok(Box::new(Log(reader)) as Box<dyn Chunks>)
        })
    }

    fn run(&self, target: Target, session: Session, ends: Ends) -> Later<'_, Result<Exit, Fault>> {
        Box::pin(async move {
            is_reachable(&target).map_err(|(_, words)| Fault::Unreachable(words))?;
            match session.action {
                Action::Exec(command) => self.exec(&target, &command, session.tty, ends).await,
                Action::Attach => self.attach(&target, ends).await,
            }
        })
    }
}

/// A log as the server reads it; none is an empty one.
struct Log(Option<Reader>);

impl Chunks for Log {
    fn next(&mut self) -> Later<'_, Option<Bytes>> {
        Box::pin(async move { self.0.as_mut()?.next().await })
    }
}

/// Whether the container runs, by what its pod says.
fn is_running(target: &Target) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| target.object["status"][list].as_array());
    let mut found = statuses.flatten().filter(|status| status["name"] == target.container);
    found.any(|status| status["state"]["running"].is_object())
}

/// Whether the node has power; its address and the words of who tries in vain if not.
fn is_reachable(target: &Target) -> Result<(), (String, String)> {
    let host = &target.host;
    if host["metadata"]["annotations"][annotation::POWER] != "down" {
        return Ok(());
    }
    let addresses = host["status"]["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|it| it["type"] == "InternalIP");
    let address = internal.find_map(|it| it["address"].as_str()).unwrap_or(&target.node);
    let port = host["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let address = format!("{address}:{}", port.unwrap_or(10_250));
    let words = format!("dial tcp {address}: connect: no route to host");
    Err((address, words))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn target(state: &Value, host: &Value) -> Target {
        let object = json!({ "metadata": { "name": "p" }, "status": { "containerStatuses": [
            { "name": "c", "state": state },
        ] } });
        Target {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            container: "c".to_owned(),
            object: Arc::new(object),
            host: Arc::new(host.clone()),
        }
    }

    async fn run(target: Target, action: Action) -> Result<Exit, Fault> {
        let containers = Containers::new(Logs::new(), Clock::system());
        let (stdout, _out) = mpsc::channel(8);
        let ends = Ends {
            stdin: None,
            stdout: Some(stdout),
            stderr: None,
            size: watch::channel(None).1,
            gone: CancellationToken::new(),
        };
        containers.run(target, Session { action, tty: false }, ends).await
    }

    #[tokio::test]
    async fn what_does_not_run_cannot_be_spoken_to() {
        let (running, waiting) = (json!({ "running": {} }), json!({ "waiting": {} }));
        let up = json!({});
        let down = json!({
            "metadata": { "annotations": { annotation::POWER: "down" } },
            "status": {
                "addresses": [
                    { "type": "Hostname", "address": "n" },
                    { "type": "InternalIP", "address": "127.1.0.1" },
                ],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10251 } },
            },
        });
        let exec = |name: &str| Action::Exec(vec![name.to_owned()]);
        let route = "dial tcp 127.1.0.1:10251: connect: no route to host";
        let missing = "OCI runtime exec failed: exec failed: unable to start container process: \
                       exec: \"x\": executable file not found in $PATH";
        let unknown = |words: &str| Err(Fault::Unknown(words.to_owned()));
        let table = [
            (&running, &up, exec("true"), Ok(Exit(0))),
            (&running, &up, exec("false"), Ok(Exit(1))),
            (&running, &up, exec("x"), Err(Fault::Failed(missing.to_owned()))),
            (&running, &down, exec("true"), Err(Fault::Unreachable(route.to_owned()))),
            (&waiting, &up, exec("true"), unknown("container not found (\"c\")")),
            (&waiting, &up, Action::Attach, unknown("container c not found in pod p_ns")),
            // It runs and says nothing.
            (&running, &up, Action::Attach, Ok(Exit(0))),
        ];
        for (state, host, action, expected) in table {
            let words = format!("{state} {action:?}");
            assert_eq!(run(target(state, host), action).await, expected, "{words}");
        }
        let containers = Containers::new(Logs::new(), Clock::system());
        let fault = containers.logs(target(&running, &down), LogOptions::default()).await.err();
        let words = format!("Get \"https://127.1.0.1:10251/containerLogs/ns/p/c\": {route}");
        assert_eq!(fault, Some(Fault::Unreachable(words)));
        let opened = containers.logs(target(&running, &up), LogOptions::default()).await;
        assert_eq!(opened.unwrap().next().await, None);
    }
}
