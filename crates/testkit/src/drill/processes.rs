//! The server and the operator as processes that die.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use super::observer::Observer;
use super::workload::shapes;
use super::{Plan, Stage};
use crate::embedded::{self, Embedded};
use crate::http::Target;
use crate::run::Run;

/// The namespace of the operator.
pub(super) const NAMESPACE: &str = "gantry-system";

/// How often an operator may end by itself, as one does that cannot renew its lease in time. A Deployment
/// would start it anew as well; one that ends again and again is a fault.
const RELAPSES: u32 = 3;

/// How long an operator may take to stop when it is told to.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is put to the operator: everything on that is off by default and takes AppWrappers back.
const CONFIG: &str = "\
mcad: {quotaEnabled: true, preemption: true, activeEviction: true, backoffTime: 2, requeueCheckInterval: 10s}
clientConnection: {qps: -1}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";
const LEASE: &str = "\
leaderElection: {leaderElect: true, leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
";

/// How often whom death came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Operators that were killed.
    pub operators: u32,
    /// Servers that were killed.
    pub servers: u32,
    /// Operators that ended by themselves and were started again.
    pub relapses: u32,
}

/// What runs.
pub(super) struct Processes {
    program: PathBuf,
    data: PathBuf,
    port: u16,
    kubeconfig: PathBuf,
    config: PathBuf,
    target: Target,
    server: Option<Embedded>,
    operator: Option<Run>,
    kills: Kills,
    /// The last words of those that were killed.
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
        let nodes = file("nodes.yaml", &shapes(&plan.size).to_string())?;
        let lease = if plan.size.lease { LEASE } else { "" };
        let config = file("operator.yaml", &format!("{CONFIG}{lease}"))?;
        let data = plan.folder.join("data");
        let first =
            server(&plan.program, &data, 0).flag("--nodes").flag(nodes.display().to_string());
        let server = first.start(clock).await.map_err(|error| error.to_string())?;
        let target = server.target().clone();
        let port = target.base.rsplit(':').next().and_then(|it| it.parse().ok());
        let port = port.ok_or_else(|| format!("{} has no port", target.base))?;
        // That of the process goes with it, and the next one would write the same.
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

    /// The ends of all logs.
    pub(super) fn tails(&self) -> String {
        let server = self.server.as_ref().map(Embedded::tails).unwrap_or_default();
        let operator = self.operator.as_ref().map(Run::tails).unwrap_or_default();
        format!("{}{server}{operator}", self.tails)
    }

    pub(super) async fn start_operator(&mut self, stage: &Stage) -> Result<(), String> {
        let runs = std::env::temp_dir().join("gantry-embedded");
        let mut run = Run::begin(&runs, &stage.clock).await.map_err(|error| error.to_string())?;
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

    /// Kills the operator, starts another, and waits until that has written something.
    pub(super) async fn kill_operator(&mut self, stage: &Stage) -> Result<(), String> {
        stage.event("the operator is killed");
        if let Some(run) = self.operator.take() {
            self.tails = run.tails();
            // Dropped, its process gets SIGKILL.
            drop(run);
        }
        self.kills.operators += 1;
        let killed = stage.at();
        self.start_operator(stage).await?;
        let moves = move |it: &Observer| it.last_step() > killed;
        stage.until(self, "the queue is to go on", moves).await?;
        let pause = stage.at().saturating_sub(killed);
        stage.event(&format!("the queue goes on, {:.1} s after the death", pause.as_secs_f64()));
        Ok(())
    }

    /// Kills the server and all that is in its process, and starts another on what it left.
    pub(super) async fn kill_server(&mut self, stage: &Stage) -> Result<(), String> {
        stage.event("the server is killed, with the nodes and all controllers in it");
        if let Some(server) = self.server.take() {
            self.tails = server.tails();
            drop(server);
        }
        self.kills.servers += 1;
        let again = server(&self.program, &self.data, self.port).start(&stage.clock).await;
        let again = again.map_err(|error| error.to_string())?;
        stage.event(&format!("the server is back after {:.1} s", again.took().as_secs_f64()));
        self.server = Some(again);
        Ok(())
    }

    /// Starts an operator that ended by itself again.
    pub(super) async fn look(&mut self, stage: &Stage) -> Result<(), String> {
        let ended = |run: &mut Run| run.ended().map(|(_, status)| status);
        if let Some(status) = self.server.as_mut().and_then(|it| ended(it.run())) {
            return Err(format!("the server ended by itself: {status}"));
        }
        let Some(status) = self.operator.as_mut().and_then(ended) else { return Ok(()) };
        self.kills.relapses += 1;
        if self.kills.relapses > RELAPSES {
            return Err(format!("the operator ends by itself again and again: {status}"));
        }
        stage.event(&format!("the operator ended by itself ({status}), and is started again"));
        self.tails = self.operator.as_ref().map(Run::tails).unwrap_or_default();
        self.start_operator(stage).await
    }

    /// Tells the operator to stop, and sees that it does.
    pub(super) async fn stop_operator(&mut self, stage: &Stage) -> Result<(), String> {
        let Some(run) = self.operator.as_mut() else { return Ok(()) };
        let pid = run.processes().first().and_then(|(_, pid)| i32::try_from(*pid).ok());
        let pid = pid.and_then(Pid::from_raw).ok_or("the operator has no process")?;
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        let began = stage.clock.moment();
        loop {
            match run.ended() {
                Some((_, status)) if status.success() => return Ok(()),
                Some((_, status)) => return Err(format!("the operator stopped with {status}")),
                None if stage.clock.moment() - began > PATIENCE => {
                    return Err("the operator does not stop".to_owned());
                }
                None => stage.clock.sleep(super::LOOK).await,
            }
        }
    }

    /// `gantry node`, as people type it.
    pub(super) async fn node(&self, words: &[&str]) -> Result<(), String> {
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
