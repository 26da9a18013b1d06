//! Runs the server and the operator as processes that can be killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use super::observer::Observer;
use super::workload::node_shapes;
use super::{DrillContext, Plan};
use crate::embedded::{self, EmbeddedServer};
use crate::http::Target;
use crate::run::Run;

/// The namespace of the operator.
pub(super) const NAMESPACE: &str = "gantry-system";

/// How often an operator may exit by itself, as one does that cannot renew its lease in time. A
/// Deployment would restart it as well; an operator that exits again and again is a failure.
const MAX_OPERATOR_RESTARTS: u32 = 3;

/// How long an operator may take to stop on request.
const OPERATOR_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The operator's configuration: all features that are off by default and preempt AppWrappers are
/// on.
const CONFIG: &str = "mcad: {quotaEnabled: true, preemption: true, activeEviction: true, \
backoffTime: 2, requeueCheckInterval: 10s}
clientConnection: {qps: -1}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";
const LEASE: &str = "\
leaderElection: {leaderElect: true, leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
";

/// The number of kills by process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Operators that were killed.
    pub operators: u32,
    /// Servers that were killed.
    pub servers: u32,
    /// Operators that exited by themselves and were restarted.
    pub restarts: u32,
}

/// The running processes.
pub(super) struct Processes {
    program: PathBuf,
    data: PathBuf,
    port: u16,
    kubeconfig: PathBuf,
    config: PathBuf,
    target: Target,
    server: Option<EmbeddedServer>,
    operator: Option<Run>,
    kills: Kills,
    /// The ends of the logs of killed processes.
    tails: String,
}

impl Processes {
    /// Starts the server with its nodes. The operator is started later.
    pub(super) async fn start(plan: &Plan, clock: &Clock) -> Result<Self, String> {
        let file = |name: &str, text: &str| {
            let path = plan.folder.join(name);
            let made = std::fs::create_dir_all(&plan.folder);
            let written = made.and_then(|()| std::fs::write(&path, text));
            written.map(|()| path.clone()).map_err(|error| format!("{}: {error}", path.display()))
        };
        let nodes = file("nodes.yaml", &node_shapes(&plan.size).to_string())?;
        let lease = if plan.size.lease { LEASE } else { "" };
        let config = file("operator.yaml", &format!("{CONFIG}{lease}"))?;
        let data = plan.folder.join("data");
        let first =
            server(&plan.program, &data, 0).flag("--nodes").flag(nodes.display().to_string());
        let server = first.start(clock).await.map_err(|error| error.to_string())?;
        let target = server.target().clone();
        let port = target.base.rsplit(':').next().and_then(|it| it.parse().ok());
        let port = port.ok_or_else(|| format!("{} has no port", target.base))?;
        // The kubeconfig of the process is removed with it, and the next one would write the same.
        let text =
            std::fs::read_to_string(server.kubeconfig()).map_err(|error| error.to_string())?;
        let kubeconfig = file("kubeconfig", &text)?;
        Ok(Self {
            program: plan.program.clone(),
            data,
            port,
            kubeconfig,
            config,
            target,
            server: Some(server),
            operator: None,
            kills: Kills::default(),
            tails: String::new(),
        })
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn kills(&self) -> Kills {
        self.kills
    }

    /// Returns the ends of all logs.
    pub(super) fn tails(&self) -> String {
        let server = self.server.as_ref().map(EmbeddedServer::tails).unwrap_or_default();
        let operator = self.operator.as_ref().map(Run::tails).unwrap_or_default();
        format!("{}{server}{operator}", self.tails)
    }

    pub(super) async fn start_operator(&mut self, context: &DrillContext) -> Result<(), String> {
        let runs = std::env::temp_dir().join("gantry-embedded");
        let mut run = Run::begin(&runs, &context.clock).await.map_err(|error| error.to_string())?;
        let text = |path: &Path| path.display().to_string();
        let arguments = [
            "operator".to_owned(),
            "--namespace".to_owned(),
            NAMESPACE.to_owned(),
            "--config-file".to_owned(),
            text(&self.config),
            "--kubeconfig".to_owned(),
            text(&self.kubeconfig),
        ];
        run.start("operator", &self.program, &arguments).map_err(|error| error.to_string())?;
        self.operator = Some(run);
        Ok(())
    }

    /// Kills the operator, starts another, and waits until that has written a status.
    pub(super) async fn kill_operator(&mut self, context: &DrillContext) -> Result<(), String> {
        context.print_event("the operator is killed");
        if let Some(run) = self.operator.take() {
            self.tails = run.tails();
            // Dropped, its process gets SIGKILL.
            drop(run);
        }
        self.kills.operators += 1;
        let killed = context.elapsed();
        self.start_operator(context).await?;
        let moves = move |it: &Observer| it.last_transition() > killed;
        context.wait_until(self, "waiting for the queue to continue", moves).await?;
        let pause = context.elapsed().saturating_sub(killed);
        context.print_event(&format!(
            "the queue continues, {:.1} s after the kill",
            pause.as_secs_f64()
        ));
        Ok(())
    }

    /// Kills the server and all that runs in its process, and starts another on its data.
    pub(super) async fn kill_server(&mut self, context: &DrillContext) -> Result<(), String> {
        context.print_event("the server is killed, with the nodes and all controllers in it");
        if let Some(server) = self.server.take() {
            self.tails = server.tails();
            drop(server);
        }
        self.kills.servers += 1;
        let again = server(&self.program, &self.data, self.port).start(&context.clock).await;
        let again = again.map_err(|error| error.to_string())?;
        context
            .print_event(&format!("the server is back after {:.1} s", again.took().as_secs_f64()));
        self.server = Some(again);
        Ok(())
    }

    /// Restarts an operator that exited by itself.
    pub(super) async fn restart_exited_operator(
        &mut self,
        context: &DrillContext,
    ) -> Result<(), String> {
        let ended = |run: &mut Run| run.exited_process().map(|(_, status)| status);
        if let Some(status) = self.server.as_mut().and_then(|it| ended(it.run())) {
            return Err(format!("the server exited by itself: {status}"));
        }
        let Some(status) = self.operator.as_mut().and_then(ended) else { return Ok(()) };
        self.kills.restarts += 1;
        if self.kills.restarts > MAX_OPERATOR_RESTARTS {
            return Err(format!("the operator keeps exiting by itself: {status}"));
        }
        context.print_event(&format!("the operator exited by itself ({status}), and is restarted"));
        self.tails = self.operator.as_ref().map(Run::tails).unwrap_or_default();
        self.start_operator(context).await
    }

    /// Stops the operator, and checks that it exits.
    pub(super) async fn stop_operator(&mut self, context: &DrillContext) -> Result<(), String> {
        let Some(run) = self.operator.as_mut() else { return Ok(()) };
        let pid = run.processes().first().and_then(|(_, pid)| i32::try_from(*pid).ok());
        let pid = pid.and_then(Pid::from_raw).ok_or("the operator is not running")?;
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        let began = context.clock.moment();
        loop {
            match run.exited_process() {
                Some((_, status)) if status.success() => return Ok(()),
                Some((_, status)) => return Err(format!("the operator stopped with {status}")),
                None if context.clock.moment() - began > OPERATOR_STOP_TIMEOUT => {
                    return Err("the operator does not stop".to_owned());
                }
                None => context.clock.sleep(super::POLL_INTERVAL).await,
            }
        }
    }

    /// Runs `gantry node` as a user would.
    pub(super) async fn run_node_command(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.arg("node").args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        let shown = words.join(" ");
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        let output =
            ended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("gantry node {shown}: {}", said.trim_end()))
            }
        }
    }
}

/// A server with nodes and without a queue.
fn server(program: &Path, data: &Path, port: u16) -> embedded::Plan {
    embedded::Plan::new(program).whole_cluster().data(data).port(port).flag("--no-queue")
}
