//! The programs that serve models, as images of simulated pods.
//!
//! Both hosts of simulated nodes have them: `gantry up`, and the operator with
//! `simulation.enabled`. Requesters and notifiers run in this process. Launchers and engines are
//! processes of their own: their memory and their crashes are real. They are this program and
//! nothing else, and what pods and callers ask for is confined ([`gantry_engine::confinement`]):
//! they would run as the user who started this process. They are tethered to it, and end with it.

mod accelerators;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use gantry_engine::confinement::{self, CONFINEMENT_VARIABLE};
use gantry_engine::host::{ADDRESS_VARIABLE, LEDGERS_VARIABLE, OutputWriter, PodFacts};
use gantry_engine::kubernetes::{BoxFuture, KubernetesApi};
use gantry_engine::ledger::reap_all;
use gantry_engine::programs::Command;
use gantry_engine::tiny::options::known_options;
use gantry_engine::{Host, Invocation, Program, command_line};
use gantry_process::clock::Clock;
use gantry_process::descendants::Family;
use gantry_process::error_chain;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_sim::programs::{Binary, ChildProcess, PodApi, ProgramContext, ProgramRegistry};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use accelerators::{claimed_uuids, describe, read_map};

/// The registries of the images: Gantry's own, and that of the original project.
const REGISTRIES: [&str; 2] = ["gantry.dev", "ghcr.io/llm-d-incubation/llm-d-fast-model-actuation"];
/// The images, each with the program that it starts without a command.
const IMAGES: [(&str, Program); 7] = [
    ("requester", Program::Requester),
    ("test-requester", Program::TestRequester),
    ("launcher", Program::Launcher),
    ("test-launcher", Program::Launcher),
    ("notifier", Program::Notifier),
    ("engine", Program::Engine),
    ("test-server", Program::TestServer),
];
/// The extended resource that stands for accelerators.
const ACCELERATOR_RESOURCE: &str = "nvidia.com/gpu";
/// The variable by which an engine chooses accelerators.
const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that only the processes of one run of a container have.
const RUN_VARIABLE: &str = "GANTRY_POD_RUN";
/// The most containers whose programs are processes.
const MAX_PROCESSES: usize = 64;
/// Runs whose processes are still to be ended.
const MAX_ENDED_RUNS: usize = 256;
/// The largest response of the API server.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// How long ending what a program left behind may take.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code of a program that cannot be started, as container runtimes have it.
const NOT_STARTED_EXIT_CODE: u8 = 128;

/// Registers the images. `pods` is the directory of the files of pods; those of these programs are
/// beside it, and what an earlier run left there is removed. A temporary directory that contains
/// them is removed when no program needs it any more.
///
/// # Errors
/// The program that child processes run cannot be found, or the directories cannot be used.
pub(crate) fn register(
    mut registry: ProgramRegistry,
    pods: &Path,
    scratch: Option<TempDir>,
    tasks: &mut Tasks,
) -> anyhow::Result<ProgramRegistry> {
    let executable = std::env::current_exe().context("could not find this program")?;
    let (ledgers, shared) = (pods.with_file_name("accelerators"), pods.with_file_name("engines"));
    for directory in [&ledgers, &shared] {
        renew_directory(directory)
            .with_context(|| format!("could not use the directory {}", directory.display()))?;
    }
    let programs = Arc::new(ModelPrograms {
        executable,
        ledgers,
        shared,
        permits: Arc::new(Semaphore::new(MAX_PROCESSES)),
        describing: Mutex::default(),
        ended: spawn_cleaner(tasks),
        _scratch: scratch,
    });
    for (image, default) in IMAGES {
        for prefix in REGISTRIES {
            let program = ModelProgram { default, programs: Arc::clone(&programs) };
            registry = registry.with(&format!("{prefix}/{image}"), program);
        }
    }
    Ok(registry)
}

fn renew_directory(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    make_directory(directory)
}

/// Makes a directory that only the user who runs this can read.
fn make_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// What all images share.
struct ModelPrograms {
    executable: PathBuf,
    /// The directory with the ledgers of each node.
    ledgers: PathBuf,
    /// The directory that all processes share.
    shared: PathBuf,
    permits: Arc<Semaphore>,
    /// Held while the accelerators of a node are described: each gets a place of its own.
    describing: Mutex<()>,
    ended: mpsc::Sender<EndedRun>,
    /// Contains the directories, if they are temporary.
    _scratch: Option<TempDir>,
}

/// One image.
#[derive(Clone)]
struct ModelProgram {
    /// What it starts without a command.
    default: Program,
    programs: Arc<ModelPrograms>,
}

impl fmt::Debug for ModelProgram {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ModelProgram({:?})", self.default)
    }
}

impl Binary for ModelProgram {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(run(self.clone(), context, tasks))
    }
}

async fn run(image: ModelProgram, mut context: ProgramContext, tasks: Tasks) -> u8 {
    let programs = image.programs;
    let parsed = parse(image.default, &context);
    let (invocation, command) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return refuse(&context, &message),
    };
    // The name of a node is that of a directory.
    let ledgers = programs.ledgers.join(&context.node);
    let api: Option<Arc<dyn KubernetesApi>> = match context.api.take() {
        Some(api) => Some(Arc::new(AccountApi(api))),
        None => None,
    };
    let map = match &api {
        Some(api) => read_map(&**api, &context).await,
        None => BTreeMap::new(),
    };
    let described = {
        let _one = programs.describing.lock().unwrap_or_else(PoisonError::into_inner);
        describe(&ledgers, &map, &context.devices, tasks.clock().now())
    };
    if let Err(message) = described {
        (context.log)(&message);
    }
    let own = [
        (ADDRESS_VARIABLE, context.address.to_string()),
        (LEDGERS_VARIABLE, ledgers.to_string_lossy().into_owned()),
        (CONFINEMENT_VARIABLE, programs.shared.to_string_lossy().into_owned()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let Some((name, arguments)) = process_of(invocation) else {
        context.environment.extend(own);
        let host = host(programs.executable.clone(), context, api);
        return command.run(host, tasks).await;
    };
    let guard = match RunGuard::begin(&programs, &context.uid, ledgers, tasks.clock()) {
        Ok(guard) => guard,
        Err(message) => return refuse(&context, &message),
    };
    let (mut environment, withheld) = confinement::divide(&context.environment);
    let withheld: Vec<String> = withheld.into_iter().filter(|it| !is_of_every_pod(it)).collect();
    if !withheld.is_empty() {
        let names = withheld.join(", ");
        (context.log)(&format!("variables that processes of simulated pods do not get: {names}"));
    }
    if !context.devices.is_empty() && name == "engine" {
        let uuids: Vec<String> = context.devices.iter().flat_map(claimed_uuids).collect();
        environment.entry(VISIBLE_VARIABLE.to_owned()).or_insert_with(|| uuids.join(","));
    }
    environment.extend(own);
    environment.insert(RUN_VARIABLE.to_owned(), guard.mark.clone());
    context.environment = environment;
    context.directory = Some(guard.directory.clone());
    context.args = arguments;
    let code = ChildProcess::new(&programs.executable, &[name]).run(context, tasks).await;
    guard.end().await;
    code
}

/// Whether every container has a variable, so that withholding it is no news.
fn is_of_every_pod(name: &str) -> bool {
    name == "HOSTNAME" || name == "PATH" || name.contains("_SERVICE_") || name.contains("_PORT")
}

fn refuse(context: &ProgramContext, message: &str) -> u8 {
    context.termination_message.set(message);
    (context.log)(message);
    NOT_STARTED_EXIT_CODE
}

/// Reads what a container runs, and checks that a simulated pod may.
fn parse(default: Program, context: &ProgramContext) -> Result<(Invocation, Command), String> {
    let invocation = invocation(default, context.program.as_deref(), &context.args)?;
    let command = Command::parse(invocation.clone()).map_err(|(_, message)| message)?;
    confinement::check(&command, &context.environment)?;
    Ok((invocation, command))
}

/// Returns the program of a container.
fn invocation(
    default: Program,
    program: Option<&str>,
    args: &[String],
) -> Result<Invocation, String> {
    match program {
        None => Ok(Invocation { program: default, arguments: args.to_vec() }),
        Some(program) => {
            let words = [&[program.to_owned()], args].concat();
            command_line::resolve(&words).map_err(|error| error.to_string())
        }
    }
}

/// Returns the command and the arguments of a program that is a process of its own.
fn process_of(invocation: Invocation) -> Option<(&'static str, Vec<String>)> {
    let Invocation { program, arguments } = invocation;
    match program {
        Program::Launcher => Some(("launcher", arguments)),
        Program::Engine => Some(("engine", known_options(&arguments))),
        Program::TestServer => {
            let default = ["--startup-delay", "47"].map(str::to_owned);
            Some(("engine", known_options(&[&default[..], &arguments[..]].concat())))
        }
        Program::Requester
        | Program::TestRequester
        | Program::Notifier
        | Program::VendorTool
        | Program::EngineCore => None,
    }
}

/// The processes and files of a run of a container.
struct EndedRun {
    mark: String,
    directory: PathBuf,
    ledgers: PathBuf,
    _permit: OwnedSemaphorePermit,
}

impl EndedRun {
    fn family(&self) -> Family {
        Family { root: None, mark: Some(format!("{RUN_VARIABLE}={}", self.mark)) }
    }

    /// Ends what is left, frees the memory of accelerators that it had, and removes its files.
    async fn clean(self, clock: &Clock) {
        if let Err(error) = self.family().end(clock, KILL_TIMEOUT).await {
            tracing::warn!(%error, "a simulated pod left processes behind");
        }
        if let Err(error) = reap_all(&self.ledgers, clock.now()) {
            tracing::warn!(error = %error_chain(&error), "could not free memory of accelerators");
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, "could not remove the files of a simulated pod");
        }
    }
}

/// Cleans up after runs that were dropped: a pod that is deleted without notice, and a node that
/// loses its power, wait for nobody.
fn spawn_cleaner(tasks: &mut Tasks) -> mpsc::Sender<EndedRun> {
    let (sender, mut receiver) = mpsc::channel::<EndedRun>(MAX_ENDED_RUNS);
    let clock = tasks.clock().clone();
    tasks.spawn("ended model programs", OnLoss::CarryOn, move |stop| async move {
        loop {
            let run = tokio::select! {
                biased;
                // Either may be dropped: processes that are left end with this one.
                () = stop.cancelled() => return Ok(()),
                run = receiver.recv() => run,
            };
            let Some(run) = run else { return Ok(()) };
            run.clean(&clock).await;
        }
    });
    sender
}

/// A run of a container. Nothing of it is left when it ends, nor when this is dropped.
struct RunGuard {
    mark: String,
    directory: PathBuf,
    /// Absent once it is cleaned up.
    run: Option<EndedRun>,
    clock: Clock,
    ended: mpsc::Sender<EndedRun>,
}

impl RunGuard {
    fn begin(
        programs: &ModelPrograms,
        uid: &str,
        ledgers: PathBuf,
        clock: &Clock,
    ) -> Result<Self, String> {
        let permit = Arc::clone(&programs.permits).try_acquire_owned().map_err(|_| {
            format!(
                "{MAX_PROCESSES} containers of launchers and engines run already: delete some pods"
            )
        })?;
        let mark = format!("{uid}.{:016x}", fastrand::u64(..));
        let directory = programs.shared.join("runs").join(&mark);
        make_directory(&directory)
            .map_err(|error| format!("could not make {}: {error}", directory.display()))?;
        let (run_mark, run_directory) = (mark.clone(), directory.clone());
        let run = EndedRun { mark: run_mark, directory: run_directory, ledgers, _permit: permit };
        let (clock, ended) = (clock.clone(), programs.ended.clone());
        Ok(Self { mark, directory, run: Some(run), clock, ended })
    }

    async fn end(mut self) {
        if let Some(run) = self.run.take() {
            run.clean(&self.clock).await;
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        // At once, so that a node without power does nothing more.
        if let Err(error) = run.family().kill_once() {
            tracing::warn!(%error, "could not look for processes of a simulated pod");
        }
        if self.ended.try_send(run).is_err() {
            tracing::warn!("the memory of accelerators of a simulated pod is freed later");
        }
    }
}

fn host(executable: PathBuf, context: ProgramContext, api: Option<Arc<dyn KubernetesApi>>) -> Host {
    let mut host = Host::new(context.environment, executable);
    let known = |text: String| Some(text).filter(|it| !it.is_empty());
    host.pod = PodFacts {
        namespace: known(context.pod.namespace().to_owned()),
        name: known(context.pod.name().to_owned()),
        uid: known(context.uid),
        node: known(context.node),
        claimed: match context.devices.is_empty() {
            true => None,
            false => Some(context.devices.iter().flat_map(claimed_uuids).collect()),
        },
        requested: context
            .extended_resources
            .get(ACCELERATOR_RESOURCE)
            .and_then(|it| usize::try_from(*it).ok()),
    };
    host.output = output(Arc::from(context.log));
    host.set_ready = Arc::from(context.set_ready);
    host.kubernetes = api;
    host
}

/// Returns an output whose lines are the log of a container.
fn output(log: Arc<dyn Fn(&str) + Send + Sync>) -> OutputWriter {
    Arc::new(move |bytes| {
        let text = String::from_utf8_lossy(bytes);
        log(text.strip_suffix('\n').unwrap_or(&text));
        Ok(())
    })
}

/// The API server as the service account of a pod.
struct AccountApi(Box<dyn PodApi>);

impl KubernetesApi for AccountApi {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, String>> {
        Box::pin(async move {
            let (parts, mut body) = self.0.send(request).await?.into_parts();
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
                if bytes.len() > MAX_RESPONSE_BYTES {
                    return Err(format!("the response has more than {MAX_RESPONSE_BYTES} bytes"));
                }
            }
            Ok(Response::from_parts(parts, bytes.freeze()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_container_wins_over_its_image() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let table = [
            (None, "--port 1", Ok((Program::Launcher, "--port 1"))),
            (Some("/app/launcher.py"), "--port 1", Ok((Program::Launcher, "--port 1"))),
            (Some("python3"), "launcher.py --port 1", Ok((Program::Launcher, "--port 1"))),
            (Some("python3"), "/app/launcher_pod_notifier.py", Ok((Program::Notifier, ""))),
            (Some("/ko-app/test-requester"), "", Ok((Program::TestRequester, ""))),
            (Some("/app/requester"), "", Ok((Program::Requester, ""))),
            (Some("/ko-app/test-server"), "--port 1", Ok((Program::TestServer, "--port 1"))),
            (Some("/bin/rm"), "-rf", Err("/bin/rm: no such program")),
            (Some("/bin/bash"), "script", Err("/bin/bash: no such program")),
        ];
        for (program, args, expected) in table {
            let found = invocation(Program::Launcher, program, &words(args));
            match (found, expected) {
                (Ok(found), Ok((program, arguments))) => {
                    assert_eq!(
                        (found.program, found.arguments.join(" ").as_str()),
                        (program, arguments)
                    );
                }
                (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[test]
    fn the_arguments_of_processes_are_those_that_are_known() {
        let table = [
            (Program::TestServer, "--port 9", Some("engine --startup-delay 47 --port 9")),
            (Program::TestServer, "--startup-delay=3", Some("engine --startup-delay=3")),
            (Program::Engine, "--config /etc/passwd --model m stray", Some("engine --model m")),
            (Program::Launcher, "--port 9", Some("launcher --port 9")),
            (Program::Requester, "", None),
            (Program::Notifier, "", None),
            (Program::EngineCore, "name", None),
        ];
        for (program, arguments, expected) in table {
            let arguments = arguments.split_whitespace().map(str::to_owned).collect();
            let found = process_of(Invocation { program, arguments });
            let found = found.map(|(name, words)| format!("{name} {}", words.join(" ")));
            assert_eq!(found.as_deref(), expected, "{program:?}");
        }
    }
}
