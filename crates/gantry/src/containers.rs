//! Pretend containers as the server reaches them: what is asked of nodes, put to crate `sim`.

use bytes::Bytes;
use gantry_apiserver::nodes::{
    Action, Chunks, Ends, Exit, Fault, Later, LogOptions, Nodes, Session, Target,
};
use gantry_process::clock::Clock;
use gantry_sim::logs::{Logs, Options, Reader, Run, readable};
use gantry_sim::shell::{self, Setting, Stdio};

/// The containers of all pretend nodes.
#[derive(Clone, Debug)]
pub struct Containers {
    logs: Logs,
    clock: Clock,
}

impl Containers {
    /// Containers that say what is in `logs`.
    #[must_use]
    pub fn new(logs: Logs, clock: Clock) -> Self {
        Self { logs, clock }
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
            variables: shell::variables(&target.object, &target.container),
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
