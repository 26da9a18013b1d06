//! Starts a real Kubernetes on this machine: etcd and kube-apiserver, with controllers and nodes on
//! request, on loopback, with its own certificates and RBAC on.
//!
//! It is the reference with which the embedded server is compared.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_process::clock::Clock;

use crate::http::{Target, TargetError, install_provider};
use crate::pki::{Authority, PkiError};
use crate::programs::{Programs, ProgramsError};
use crate::run::{Run, RunError};

mod external_controllers;
mod flags;
mod machine;
mod nodes;
mod ports;
mod ready;
mod user;

pub use external_controllers::ExternalControllers;
pub use machine::{IMAGE, NodeRequirementError};
pub use nodes::Nodes;
pub use user::{ClientError, User};

use flags::Files;
use machine::{Machine, Node};
use ports::Ports;

/// How often a start is retried when another process took one of its ports. Ports are chosen at
/// random among ten thousand: a second conflict is already unlikely.
const MAX_START_ATTEMPTS: u32 = 3;

/// A running cluster. Dropping it stops every process and removes every file of it.
#[derive(Debug)]
pub struct RealCluster {
    run: Mutex<Run>,
    authority: Authority,
    programs: Programs,
    base: String,
    admin: User,
    nodes: Vec<String>,
    took: Duration,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Controllers {
    #[default]
    None,
    Housekeeping,
    Claims,
    Scheduling,
    All,
}

/// The configuration of a cluster. The default is etcd and kube-apiserver alone.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    controllers: Controllers,
    durable: bool,
    nodes: Nodes,
    api_server_flags: Vec<String>,
    clock: Option<Clock>,
}

impl Plan {
    /// Adds kube-controller-manager and kube-scheduler.
    #[must_use]
    pub fn controllers(mut self) -> Self {
        self.controllers = Controllers::All;
        self
    }

    /// Adds the two controllers that complete deletions: the garbage collector and the namespace
    /// controller. The embedded server has both built in, so this is the cluster to compare it
    /// with.
    #[must_use]
    pub fn housekeeping(mut self) -> Self {
        if self.controllers == Controllers::None {
            self.controllers = Controllers::Housekeeping;
        }
        self
    }

    /// Adds the scheduler and the controllers that it needs to allocate devices to pods, and none
    /// that would taint nodes without a kubelet. None of them has a client rate limit.
    #[must_use]
    pub fn scheduling(mut self) -> Self {
        self.controllers = Controllers::Scheduling;
        self
    }

    /// Adds the same controllers without the scheduler, for tests that bring their own.
    #[must_use]
    pub fn claims(mut self) -> Self {
        self.controllers = Controllers::Claims;
        self
    }

    /// Adds nodes. A real node also adds controllers, without which it never becomes schedulable.
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = nodes;
        if nodes == Nodes::Real { self.controllers() } else { self }
    }

    /// Makes etcd wait for the disk, as in production. Tests do without; a benchmark must not.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Adds a flag to kube-apiserver, such as `--feature-gates=X=true`. The last one of a name is
    /// used.
    #[must_use]
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Uses this clock in place of the default one.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts the cluster and waits until it is ready for use.
    ///
    /// # Errors
    /// The cluster is not ready; the ends of all logs are on standard error.
    pub async fn start(self) -> Result<RealCluster, StartError> {
        install_provider();
        let clock = self.clock.clone().unwrap_or_else(Clock::system);
        let began = clock.moment();
        self.nodes.check()?;
        let programs = Programs::find()?;
        let mut attempt = 1;
        loop {
            let mut starting = StartingCluster::begin(&programs, &clock).await?;
            match Box::pin(starting.bring_up(&self, &clock)).await {
                Ok(()) => return Ok(starting.finish(&self, clock.moment() - began)),
                Err(StartError::Ended { .. })
                    if attempt < MAX_START_ATTEMPTS && starting.has_port_conflict() =>
                {
                    attempt += 1;
                }
                Err(error) => {
                    print(&starting.run.tails());
                    return Err(error);
                }
            }
        }
    }
}

/// A cluster during its start.
struct StartingCluster {
    run: Run,
    authority: Authority,
    programs: Programs,
    files: Files,
    ports: Ports,
    base: String,
    admin: User,
}

impl StartingCluster {
    async fn begin(programs: &Programs, clock: &Clock) -> Result<Self, StartError> {
        let run = Run::begin(programs.runs(), clock).await?;
        let authority = Authority::new("gantry-testbed")?;
        let ports = Ports::choose(&mut fastrand::Rng::new()).ok_or(StartError::NoPorts)?;
        let base = format!("https://127.0.0.1:{}", ports.api_server);
        let make = |user: &str, groups: &[&str]| {
            User::new(&run, &authority, programs.path("kubectl")?, &base, user, groups)
        };
        let admin = make("admin", &["system:masters"])?;
        make("system:kube-controller-manager", &[])?;
        make("system:kube-scheduler", &[])?;
        let files = Files::write(&run, &authority)?;
        Ok(Self { run, authority, programs: programs.clone(), files, ports, base, admin })
    }

    async fn bring_up(&mut self, plan: &Plan, clock: &Clock) -> Result<(), StartError> {
        self.launch("etcd", &self.files.etcd(&self.ports, plan.durable))?;
        let mut flags = self.files.api_server(&self.ports);
        flags.extend_from_slice(&plan.api_server_flags);
        self.launch("kube-apiserver", &flags)?;
        let deadline = clock.moment() + ready::START_TIMEOUT;
        ready::api_server(&mut self.run, &self.admin, clock, deadline).await?;
        match plan.controllers {
            Controllers::None => {}
            Controllers::Housekeeping => {
                let flags = self.files.housekeeping(&self.ports);
                self.launch("kube-controller-manager", &flags)?;
            }
            Controllers::Claims | Controllers::Scheduling => {
                let flags = self.files.claims(&self.ports);
                self.launch("kube-controller-manager", &flags)?;
                if plan.controllers == Controllers::Scheduling {
                    self.launch(
                        "kube-scheduler",
                        &self.files.unlimited_rate_scheduler(&self.ports),
                    )?;
                }
            }
            Controllers::All => {
                let flags = self.files.controller_manager(&self.ports);
                self.launch("kube-controller-manager", &flags)?;
                self.launch("kube-scheduler", &self.files.scheduler(&self.ports))?;
            }
        }
        nodes::create(self.admin.target(), clock, plan.nodes).await?;
        match plan.nodes {
            Nodes::None => {}
            Nodes::Simulated(_) => {
                let stages = self.programs.path("kwok-stages.yaml")?;
                self.launch("kwok", &nodes::kwok(self.admin.kubeconfig(), &stages))?;
            }
            Nodes::Real => self.launch_node()?,
        }
        match plan.controllers {
            Controllers::None => {}
            Controllers::Housekeeping | Controllers::Claims | Controllers::Scheduling => {
                let port = self.ports.controller_manager;
                let authority = &self.authority.own.certificate;
                ready::housekeeping(&mut self.run, authority, port, clock, deadline).await?;
            }
            Controllers::All => {
                let ports = [self.ports.controller_manager, self.ports.scheduler];
                let admin = self.admin.target();
                let authority = &self.authority.own.certificate;
                ready::controllers(&mut self.run, admin, authority, ports, clock, deadline).await?;
            }
        }
        let (admin, names) = (self.admin.target(), plan.nodes.names());
        ready::nodes(&mut self.run, admin, &names, clock, deadline).await
    }

    fn launch(&mut self, name: &'static str, flags: &[String]) -> Result<(), StartError> {
        let program = self.programs.path(name)?;
        Ok(self.run.start(name, &program, flags)?)
    }

    fn launch_node(&mut self) -> Result<(), StartError> {
        let machine = Machine::check(&self.programs)?;
        for name in Nodes::Real.names() {
            let user = format!("system:node:{name}");
            let kubectl = self.programs.path("kubectl")?;
            let (run, authority) = (&self.run, &self.authority);
            let user = User::new(run, authority, kubectl, &self.base, &user, &["system:nodes"])?;
            let node = Node { name: &name, user: &user, port: self.ports.kubelet };
            machine::start(&mut self.run, &machine, &node)?;
        }
        Ok(())
    }

    fn has_port_conflict(&self) -> bool {
        self.run.tails().contains("address already in use")
    }

    fn finish(self, plan: &Plan, took: Duration) -> RealCluster {
        let Self { run, authority, programs, files: _, ports: _, base, admin } = self;
        let nodes = plan.nodes.names();
        RealCluster { run: Mutex::new(run), authority, programs, base, admin, nodes, took }
    }
}

impl RealCluster {
    /// Starts etcd and kube-apiserver alone. For more, see [`RealCluster::plan`].
    ///
    /// # Errors
    /// As in [`Plan::start`].
    pub async fn start() -> Result<Self, StartError> {
        Box::pin(Plan::default().start()).await
    }

    /// Returns the plan of a cluster that has more than a server.
    #[must_use]
    pub fn plan() -> Plan {
        Plan::default()
    }

    /// How long the start took, from nothing to ready.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The user with all permissions, by a certificate of the group `system:masters`.
    #[must_use]
    pub fn admin(&self) -> &User {
        &self.admin
    }

    /// Creates a user with a certificate of its own; no role is bound to it yet. At most two groups
    /// are possible.
    ///
    /// # Errors
    /// The certificate could not be made or written.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<User, StartError> {
        let kubectl = self.programs.path("kubectl")?;
        User::new(&self.run(), &self.authority, kubectl, &self.base, name, groups)
    }

    /// Returns the server as a target without credentials; add the ones to test.
    #[must_use]
    pub fn target(&self, credentials: crate::http::Credentials) -> Target {
        let authority = self.authority.own.certificate.clone();
        Target { base: self.base.clone(), authority, credentials }
    }

    /// The names of its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Lets the real node pull images from a registry on this machine that speaks plain HTTP.
    ///
    /// # Errors
    /// The folder of the cluster cannot be written.
    pub fn allow_plain_registry(&self, address: &str) -> Result<(), StartError> {
        Ok(machine::allow_plain_registry(&self.folder(), address)?)
    }

    /// The folder with its certificates, data and logs.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.run().folder().to_path_buf()
    }

    /// Its programs with their process ids. Each leads a process group of that id.
    #[must_use]
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        self.run().processes()
    }

    /// Returns the end of every log, for a person to read.
    #[must_use]
    pub fn tails(&self) -> String {
        self.run().tails()
    }

    /// Prints the ends of the logs if the thread panics while the returned guard is held. A cluster
    /// that a test owns does so anyway; this is for tests that share one.
    #[must_use]
    pub fn tails_on_panic(&self) -> TailsOnPanic<'_> {
        TailsOnPanic(self)
    }

    /// The run is consistent after every call on it, so a poisoned lock can still be used.
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        drop(self.tails_on_panic());
    }
}

/// See [`RealCluster::tails_on_panic`].
#[derive(Debug)]
pub struct TailsOnPanic<'cluster>(&'cluster RealCluster);

impl Drop for TailsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print(&self.0.tails());
        }
    }
}

/// Bypasses the test harness, which captures what a passing test prints. A closed standard error
/// cannot be reported anywhere.
fn print(tails: &str) {
    let _ = std::io::stderr().write_all(tails.as_bytes());
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The programs are not built.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// A real node was requested, and this machine cannot be one.
    #[error(transparent)]
    Unfit(#[from] NodeRequirementError),
    /// The folder or one of the programs could not be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A certificate could not be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The server's address or our certificates are not usable.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No port is free.
    #[error("could not find free ports on 127.0.0.1")]
    NoPorts,
    /// A program exited during the start.
    #[error("could not start the cluster: {program} ended with {status}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// The start took too long.
    #[error("could not start the cluster: {what} is not ready after {}: {last}", show(*limit))]
    NotReady {
        /// What the start waited for.
        what: String,
        /// The last answer or error.
        last: String,
        /// The time limit.
        limit: Duration,
    },
    /// The server rejected a request that the start needs.
    #[error("could not create {what}: {answer}")]
    Refused {
        /// What was created.
        what: String,
        /// The server's answer.
        answer: String,
    },
}

fn show(limit: Duration) -> String {
    format!("{} s", limit.as_secs())
}

/// Returns the file name for a user name that may contain colons and slashes.
fn file_name(user: &str) -> String {
    user.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Returns a path as text for a flag; our paths come from environment variables, which are text.
fn text(path: &Path) -> String {
    path.display().to_string()
}
