//! The programs that serve models, as images of simulated pods.
//!
//! Requesters and notifiers run in this process. Launchers and engines are processes of their own:
//! their memory and their crashes are real. Memory of accelerators is recorded in the ledgers of
//! their node, in a directory beside those of the pods.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use gantry_engine::allocation::{MAP_NAME, accelerators_of};
use gantry_engine::host::{ADDRESS_VARIABLE, LEDGERS_VARIABLE, OutputWriter, PodFacts};
use gantry_engine::kubernetes::{BoxFuture, KubernetesApi, request};
use gantry_engine::launcher::MAP_VARIABLE;
use gantry_engine::ledger::{DEFAULT_CAPACITY, Ledger, reap_all};
use gantry_engine::programs::Command;
use gantry_engine::{Host, Invocation, Program, command_line};
use gantry_process::descendants::Family;
use gantry_process::error_chain;
use gantry_process::tasks::Tasks;
use gantry_sim::programs::{
    AllocatedDevice, Binary, ChildProcess, PodApi, ProgramContext, ProgramRegistry,
};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;

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
/// The variable that only the processes of one run of a container have.
const RUN_VARIABLE: &str = "GANTRY_POD_RUN";
/// The largest response of the API server.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// How long ending what a program left behind may take.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code of a program that cannot be started, as container runtimes have it.
const NOT_STARTED_EXIT_CODE: u8 = 128;

/// Registers the images.
///
/// # Errors
/// The program that child processes run cannot be found.
pub(super) fn register(
    mut registry: ProgramRegistry,
    pods: &Path,
) -> anyhow::Result<ProgramRegistry> {
    let executable = std::env::current_exe().context("could not find this program")?;
    let ledgers = pods.with_file_name("accelerators");
    for (image, default) in IMAGES {
        for prefix in REGISTRIES {
            let (executable, ledgers) = (executable.clone(), ledgers.clone());
            let program = ModelProgram { default, executable, ledgers };
            registry = registry.with(&format!("{prefix}/{image}"), program);
        }
    }
    Ok(registry)
}

/// One image.
#[derive(Clone, Debug)]
struct ModelProgram {
    /// What it starts without a command.
    default: Program,
    executable: PathBuf,
    /// The directory with the ledgers of each node.
    ledgers: PathBuf,
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
    let parsed = invocation(image.default, context.program.as_deref(), &context.args);
    // Launchers and engines parse their arguments themselves; a mistake is found here, too.
    let parsed = parsed.and_then(|it| {
        let command = Command::parse(it.clone()).map_err(|(_, message)| message)?;
        Ok((it, command))
    });
    let (invocation, command) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => {
            context.termination_message.set(&message);
            (context.log)(&message);
            return NOT_STARTED_EXIT_CODE;
        }
    };
    // The name of a node is that of a directory.
    let ledgers = image.ledgers.join(&context.node);
    context.environment.insert(ADDRESS_VARIABLE.to_owned(), context.address.to_string());
    context.environment.insert(LEDGERS_VARIABLE.to_owned(), ledgers.to_string_lossy().into_owned());
    let api: Option<Arc<dyn KubernetesApi>> = match context.api.take() {
        Some(api) => Some(Arc::new(AccountApi(api))),
        None => None,
    };
    let map = match &api {
        Some(api) => accelerator_map(&**api, &context).await,
        None => BTreeMap::new(),
    };
    if let Err(message) = describe(&ledgers, &map, &context.devices, tasks.clock().now()) {
        (context.log)(&message);
    }
    if matches!(invocation.program, Program::Requester | Program::TestRequester | Program::Notifier)
    {
        return command.run(host(image.executable, context, api), tasks).await;
    }
    if !map.is_empty() {
        let map = serde_json::to_string(&map).unwrap_or_default();
        context.environment.insert(MAP_VARIABLE.to_owned(), map);
    }
    let mark = format!("{}.{:016x}", context.uid, fastrand::u64(..));
    context.environment.insert(RUN_VARIABLE.to_owned(), mark.clone());
    let family = Family { root: None, mark: Some(format!("{RUN_VARIABLE}={mark}")) };
    let guard = RunGuard { family, ledgers, clock: tasks.clock().clone() };
    let name = match invocation.program {
        Program::Launcher => "launcher",
        Program::Engine | Program::TestServer => "engine",
        Program::VendorTool => "nvidia-smi",
        Program::Requester | Program::TestRequester | Program::Notifier | Program::EngineCore => {
            "help"
        }
    };
    let mut first = vec![name];
    if invocation.program == Program::TestServer {
        first.extend(["--startup-delay", "47"]);
    }
    context.args = invocation.arguments;
    let code = ChildProcess::new(&image.executable, &first).run(context, tasks).await;
    guard.end().await;
    code
}

/// Ends what a program left behind, also when its run is dropped.
struct RunGuard {
    family: Family,
    ledgers: PathBuf,
    clock: gantry_process::clock::Clock,
}

impl RunGuard {
    async fn end(self) {
        if let Err(error) = self.family.end(&self.clock, KILL_TIMEOUT).await {
            tracing::warn!(%error, "a simulated pod left processes behind");
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        if let Err(error) = self.family.kill_once() {
            tracing::warn!(%error, "could not look for processes of a simulated pod");
        }
        if let Err(error) = reap_all(&self.ledgers, self.clock.now()) {
            tracing::warn!(error = %error_chain(&error), "could not free memory of accelerators");
        }
    }
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
    let log = Arc::from(context.log);
    host.output = output(log);
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

/// Returns what the devices of a claim are called. Devices of a pool of identical ones have no
/// names: the first of the pool are meant.
fn claimed_uuids(device: &AllocatedDevice) -> Vec<String> {
    match (device.device.as_str(), device.count) {
        ("", count) => {
            let count = count.unwrap_or(1).clamp(0, 1024);
            (0..count).map(|it| format!("{}-{it}", device.pool)).collect()
        }
        (name, _) => vec![format!("{}/{name}", device.pool)],
    }
}

/// Reads the accelerators of the pod's node in ConfigMap `gpu-map` of its namespace.
async fn accelerator_map(
    api: &dyn KubernetesApi,
    context: &ProgramContext,
) -> BTreeMap<String, u32> {
    let namespace = context.pod.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{MAP_NAME}");
    match request(api, Method::GET, &path, "application/json", None).await {
        Ok(map) => accelerators_of(&map, &context.node),
        // There need not be one, and not every account may read it.
        Err(_) => BTreeMap::new(),
    }
}

/// Describes the accelerators of a node, so that all its processes agree about their places.
fn describe(
    ledgers: &Path,
    map: &BTreeMap<String, u32>,
    devices: &[AllocatedDevice],
    now: jiff::Timestamp,
) -> Result<(), String> {
    let failed = |error| error_chain(&error);
    reap_all(ledgers, now).map_err(failed)?;
    for (uuid, index) in map {
        let ledger = Ledger::of(ledgers, uuid).map_err(failed)?;
        ledger.describe(*index, DEFAULT_CAPACITY).map_err(failed)?;
    }
    for uuid in devices.iter().flat_map(claimed_uuids) {
        if Ledger::find(ledgers, &uuid).is_none() {
            let count = Ledger::all(ledgers).map_err(failed)?.len();
            let ledger = Ledger::of(ledgers, &uuid).map_err(failed)?;
            let index = u32::try_from(count).unwrap_or(u32::MAX);
            ledger.describe(index, DEFAULT_CAPACITY).map_err(failed)?;
        }
    }
    Ok(())
}

/// The API server as the service account of a pod.
struct AccountApi(Box<dyn PodApi>);

impl fmt::Debug for AccountApi {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("AccountApi")
    }
}

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
            (Some("python3"), "/app/launcher_pod_notifier.py", Ok((Program::Notifier, ""))),
            (Some("/bin/rm"), "-rf", Err("/bin/rm: no such program")),
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
    fn devices_of_claims_have_names() {
        let device = |device: &str, count: Option<i64>| AllocatedDevice {
            claim: "c".into(),
            request: String::new(),
            driver: None,
            pool: "n1-gpus".into(),
            device: device.into(),
            count,
        };
        assert_eq!(claimed_uuids(&device("gpu-1", None)), ["n1-gpus/gpu-1"]);
        assert_eq!(claimed_uuids(&device("", Some(2))), ["n1-gpus-0", "n1-gpus-1"]);
    }
}
