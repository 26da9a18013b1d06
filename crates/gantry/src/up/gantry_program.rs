//! Gantry's own image in simulated pods: the commands that Jobs of Modules run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Parser as _;
use gantry_process::tasks::Tasks;
use gantry_registry::{CredentialFile, SecretText};
use gantry_sim::programs::{Binary, PodApi, ProgramContext};
use serde_json::json;

use crate::cli::modules::{self, ClusterRegistry, ContainerFiles, ImageBuilder, RegistryScope};
use crate::cli::{CommandOutcome, PodCommandLine};
use crate::output::Output;

/// The image without its tag.
pub(super) const IMAGE: &str = "gantry.dev/gantry";

/// The program in the image, by the names that containers call it.
const PROGRAMS: [&str; 2] = ["/usr/bin/gantry", "gantry"];
/// The exit code of a command that failed.
const FAILURE_EXIT_CODE: u8 = 1;
/// The exit code of a wrong command line.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of a program that does not exist, as container runtimes have it.
const NOT_FOUND_EXIT_CODE: u8 = 127;
/// The exit code of a program that was stopped.
const STOPPED_EXIT_CODE: u8 = 143;

/// Runs commands of `gantry modules` in this process.
///
/// Users who create pods write their command lines, so a command has the rights of its pod and not
/// those of the server: it finds the files of its volumes only, calls no service of this machine
/// but the cluster's registry, and there it is the service account of its pod. The exception is a
/// build with buildah, which `gantry up` was asked for: that runs commands of users.
#[derive(Debug)]
pub(super) struct GantryProgram {
    addresses: Vec<String>,
    roots: Bytes,
    builder: ImageBuilder,
}

impl GantryProgram {
    /// Commands that reach the cluster's registry under these names, with these certificates, and
    /// build with this builder.
    pub(super) fn new(addresses: Vec<String>, roots: Bytes, builder: ImageBuilder) -> Self {
        Self { addresses, roots, builder }
    }
}

impl Binary for GantryProgram {
    fn run(
        &self,
        context: ProgramContext,
        tasks: Tasks,
    ) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        let (addresses, roots) = (self.addresses.clone(), self.roots.clone());
        let builder = self.builder.clone();
        Box::pin(async move {
            let stop = tasks.token().clone();
            (context.set_ready)(true);
            tokio::select! {
                biased;
                // May be dropped: what it has pushed is whole, and what it has not is not named.
                code = run(context, addresses, roots, &builder) => code,
                () = stop.cancelled() => STOPPED_EXIT_CODE,
            }
        })
    }
}

async fn run(
    context: ProgramContext,
    addresses: Vec<String>,
    roots: Bytes,
    builder: &ImageBuilder,
) -> u8 {
    let ProgramContext { program, args, mounts, api, log, .. } = context;
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::from(log);
    let files = ContainerFiles::new(mounts);
    let shown = {
        let files = files.clone();
        move |line: &str| log(&files.in_container_paths(line))
    };
    let mut output = Output::to_log(Arc::new(shown));
    if let Some(program) = program.filter(|it| !PROGRAMS.contains(&it.as_str())) {
        output.error(format_args!("{program}: no such file or directory"));
        return NOT_FOUND_EXIT_CODE;
    }
    let words = std::iter::once("gantry".to_owned()).chain(args);
    let arguments = match PodCommandLine::try_parse_from(words) {
        Ok(line) => line.into_modules(),
        Err(error) => {
            output.note(error.render());
            return USAGE_EXIT_CODE;
        }
    };
    let ended = async {
        let credentials_text = credentials(&addresses, api.as_deref()).await?;
        let credentials = CredentialFile::parse(credentials_text.reveal().as_bytes())?;
        let registry = ClusterRegistry { addresses, roots, credentials, credentials_text };
        let registries = RegistryScope::Pod(registry);
        modules::run_in_container(arguments, &files, &registries, builder, &mut output).await
    };
    match ended.await {
        Ok(CommandOutcome::Success) => 0,
        Ok(CommandOutcome::Failure) => FAILURE_EXIT_CODE,
        Ok(CommandOutcome::FailureWithCode(code)) => code,
        Err(error) => {
            output.failure(&error);
            FAILURE_EXIT_CODE
        }
    }
}

/// The credentials of a pod's service account for the cluster's registry.
async fn credentials(addresses: &[String], api: Option<&dyn PodApi>) -> anyhow::Result<SecretText> {
    let mut entries = serde_json::Map::new();
    if let Some(api) = api {
        let token = api.token().await.map_err(anyhow::Error::msg);
        let token = token.context("could not get a token of the pod's service account")?;
        let auth = STANDARD.encode(format!("gantry:{}", token.text));
        entries = addresses.iter().map(|it| (it.clone(), json!({"auth": auth}))).collect();
    }
    Ok(SecretText::new(json!({"auths": entries}).to_string()))
}
