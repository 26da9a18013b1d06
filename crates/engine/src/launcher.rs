//! The launcher: starts, watches and stops engines as its children, behind the original's API.
//!
//! An engine is started by running a program (`exec`), or by forking a Python process that has
//! imported the engine's modules before (`zygote`), which saves the time of the imports. Nothing
//! survives a stop: the launcher is the subreaper of its engines, and answers a deletion when no
//! process of the engine is left and its accelerators' memory is free.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::descendants;
use gantry_process::tasks::{OnLoss, Tasks};
use tokio::signal::unix::{SignalKind, signal};

use crate::confinement;
use crate::exchange::{self, Call, ServerBounds};
use crate::host::Host;

mod accelerator_map;
mod api;
mod config;
mod create;
mod fence;
mod forward;
mod index;
mod instance;
mod instance_table;
mod log_file;
mod log_range;
mod start;
mod watch;
mod zygote;

use accelerator_map::AcceleratorMap;
pub use accelerator_map::MAP_VARIABLE;
pub(crate) use start::ENGINE_COMMAND_VARIABLE;
use start::Starter;

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The most instances at one time.
const MAX_INSTANCES: usize = 64;
/// The most bytes of the log of an instance.
const MAX_LOG_BYTES: u64 = 64 << 20;
/// How long requests may take when it stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request that is forwarded to an engine may take.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(180);
/// The exit code of wrong options.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of a launcher that cannot serve.
const FAILED_EXIT_CODE: u8 = 1;

const EXAMPLES: &str = "\
Examples:
  gantry launcher
  gantry launcher --mock-gpus --mock-gpu-count 2 --port 8001
  gantry launcher --mode exec --engine-command 'gantry engine'
  gantry launcher --mode zygote --zygote-preload torch --zygote-entry mymodule:main";

/// Start engines on request, and put them to sleep and wake them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Accelerators are those of ConfigMap gpu-map, or invented ones.
    #[arg(long)]
    pub mock_gpus: bool,
    /// How many accelerators are invented where there is no ConfigMap.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub mock_gpu_count: u32,
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub host: IpAddr,
    /// The port to listen on.
    #[arg(long, default_value_t = 8001)]
    pub port: u16,
    /// The level of the log: critical, error, warning, info or debug.
    #[arg(long, default_value = "info", value_parser = [
        "critical", "error", "warning", "info", "debug",
    ])]
    pub log_level: String,
    /// How engines are started: `zygote` where Python has the engine's modules, else `exec`.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// The program of engines, with arguments that come first [default: $GANTRY_ENGINE_COMMAND, or
    /// the engine of this binary].
    #[arg(long, value_name = "WORDS")]
    pub engine_command: Option<String>,
    /// The Python modules to import before engines are forked, separated by commas.
    #[arg(long, value_name = "MODULES", default_value = "vllm.entrypoints.openai.api_server")]
    pub zygote_preload: String,
    /// The Python function that is an engine, as MODULE:FUNCTION; its arguments are in sys.argv.
    #[arg(long, value_name = "FUNCTION", default_value = "vllm.entrypoints.cli.main:main")]
    pub zygote_entry: String,
    /// The file of a token that callers must present [default: $GANTRY_TOKEN_FILE, or none].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How long an engine may take to end after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub stop_seconds: u64,
}

/// How engines are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// `zygote` where Python has the modules, else `exec`.
    Auto,
    /// A program each.
    Exec,
    /// Forks of a Python process.
    Zygote,
}

/// Runs until the tasks stop, and returns the exit code. It must be alone in its process: it
/// becomes the parent of whatever its engines leave behind.
pub async fn run(arguments: Arguments, host: Host, mut tasks: Tasks) -> u8 {
    match serve(arguments, &host, &mut tasks).await {
        Ok(()) => 0,
        Err((code, message)) => {
            host.log(&message);
            tasks.token().cancel();
            while tasks.join().await.is_err() {}
            code
        }
    }
}

async fn serve(arguments: Arguments, host: &Host, tasks: &mut Tasks) -> Result<(), (u8, String)> {
    let usage = |message: String| (USAGE_EXIT_CODE, message);
    let failed = |message: String| (FAILED_EXIT_CODE, message);
    let token =
        host.token(arguments.token_file.as_ref()).map_err(|error| usage(error.to_string()))?;
    descendants::become_subreaper()
        .map_err(|error| failed(format!("could not become the subreaper of engines: {error}")))?;
    let clock = tasks.clock().clone();
    let accelerators = AcceleratorMap::find(&arguments, host, &clock).await.map_err(failed)?;
    host.log(&format!("accelerators: {accelerators}"));
    spawn_reaper(host, tasks).map_err(|error| failed(error.to_string()))?;
    let starter = Starter::prepare(&arguments, host, tasks).await.map_err(failed)?;
    host.log(&format!("engines are started by {starter}"));
    let forwarder = exchange::pod_client(clock.clone(), FORWARD_TIMEOUT);
    let forwarder = forwarder.map_err(|error| failed(gantry_process::error_chain(&error)))?;
    let is_confined = host.confinement().is_some();
    let (instances, log_bytes, max_body_bytes) = match is_confined {
        true => {
            (confinement::MAX_INSTANCES, confinement::MAX_LOG_BYTES, confinement::MAX_BODY_BYTES)
        }
        false => (MAX_INSTANCES, MAX_LOG_BYTES, MAX_BODY_BYTES),
    };
    let settings = api::LauncherSettings {
        host: host.clone(),
        clock: clock.clone(),
        token,
        accelerators,
        stop_time: Duration::from_secs(arguments.stop_seconds),
        forwarder,
        bounds: api::LauncherBounds { instances, log_bytes },
    };
    let launcher = api::Launcher::new(settings, starter, tasks)
        .map_err(|error| failed(format!("could not make a directory for logs: {error}")))?;
    let launcher = Arc::new(launcher);
    let bounds = ServerBounds { max_body_bytes, drain: DRAIN_TIMEOUT };
    let shared = Arc::clone(&launcher);
    let answer = move |call: Call| {
        let launcher = Arc::clone(&shared);
        async move { launcher.answer(call).await }
    };
    let address = SocketAddr::from((host.listen_address(arguments.host), arguments.port));
    let listening = exchange::listen(tasks, "launcher", address, bounds, answer).await;
    let bound = listening.map_err(|error| failed(gantry_process::error_chain(&error)))?;
    host.log(&format!("listening on {bound}"));
    (host.set_ready)(true);
    let lost = tasks.join().await.is_err();
    while tasks.join().await.is_err() {}
    match lost {
        true => Err(failed("lost a task that cannot be restarted".to_owned())),
        false => Ok(()),
    }
}

/// Reaps processes that engines left behind and that have ended.
fn spawn_reaper(host: &Host, tasks: &mut Tasks) -> std::io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    let log = host.clone();
    tasks.spawn("reaper", OnLoss::EndOwner, move |stop| async move {
        loop {
            tokio::select! {
                biased;
                // Either may be dropped: the next signal means all that have ended.
                () = stop.cancelled() => return Ok(()),
                _ = ended.recv() => {}
            }
            if let Err(error) = descendants::reap_orphans() {
                log.log(&format!("could not reap processes: {error}"));
            }
        }
    });
    Ok(())
}

/// Reaps the ledgers of a node after processes have ended.
fn reap_ledgers(host: &Host, clock: &Clock) {
    let Some(directory) = host.ledgers() else { return };
    match crate::ledger::reap_all(&directory, clock.now()) {
        Ok(0) => {}
        Ok(count) => host.log(&format!("freed the memory of {count} ended processes")),
        Err(error) => host.log(&gantry_process::error_chain(&error)),
    }
}
