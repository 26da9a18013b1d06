//! `gantry modules`: signs and verifies kernel modules, in files and in images, builds images, and
//! gathers diagnostic data.

mod build;
mod container_files;
mod gather;
mod image_files;
mod key_files;
mod merge_auth;
mod registry_flags;
mod sign;
mod sign_file;
mod verify;

use anyhow::Error;
use gantry_kernel_modules::SignImageError;

use super::CommandOutcome;
use crate::output::Output;

/// Sign and verify kernel modules, in files and in container images; collect diagnostic data.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules sign --unsigned-image registry.example/driver:v1-unsigned \\
      --signed-image registry.example/driver:v1 --file '/opt/lib/modules/*/driver.ko' \\
      --key-file key.pem --cert-file cert.pem
  gantry modules sign-file sha256 key.pem cert.pem driver.ko
  gantry modules verify --cert-file cert.pem driver.ko
  gantry modules gather")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sign(Box<sign::Arguments>),
    SignFile(sign_file::Arguments),
    Verify(Box<verify::Arguments>),
    MergeAuth(merge_auth::Arguments),
    Build(Box<build::Arguments>),
    Gather(gather::Arguments),
}

pub(crate) use build::{ImageBuilder, find_buildah};
pub(crate) use container_files::ContainerFiles;
pub(crate) use registry_flags::{ClusterRegistry, RegistryScope};

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let ended = match arguments.command {
        Command::Sign(arguments) => sign::run(&arguments, output),
        Command::SignFile(arguments) => sign_file::run(&arguments, output),
        Command::Verify(arguments) => verify::run(&arguments, output),
        Command::MergeAuth(arguments) => merge_auth::run(&arguments, output),
        Command::Build(arguments) => build::run(*arguments, output),
        Command::Gather(arguments) => return gather::run(&arguments, output),
    };
    outcome(ended, output)
}

/// Runs a command in a simulated pod: with the files of its container, the registries that the pod
/// reaches, and its log.
pub(crate) async fn run_in_container(
    arguments: Arguments,
    files: &ContainerFiles,
    registries: &RegistryScope,
    builder: &ImageBuilder,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let ended = match arguments.command {
        Command::Sign(arguments) => {
            let arguments = arguments.in_container(files)?;
            sign::execute(&arguments, registries, output).await
        }
        Command::MergeAuth(arguments) => merge_auth::run(&arguments.in_container(files)?, output),
        Command::Build(arguments) => {
            build::execute(arguments.in_container(files)?, registries, builder, output).await
        }
        Command::SignFile(_) | Command::Verify(_) | Command::Gather(_) => {
            anyhow::bail!("only sign, build and merge-auth run in simulated pods");
        }
    };
    outcome(ended, output)
}

fn outcome(
    ended: Result<CommandOutcome, Failure>,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    match ended {
        Ok(outcome) => Ok(outcome),
        Err(Failure { code, error }) => {
            output.failure(&error);
            Ok(CommandOutcome::FailureWithCode(code as u8))
        }
    }
}

/// Reads a name with its value.
fn named_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// The exit codes of the commands; 0 is success, 1 any other failure and 2 a wrong command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ExitReason {
    Other = 1,
    Pull = 3,
    FileNotFound = 4,
    KeyOrCertificate = 5,
    Repack = 6,
    Push = 7,
    Verification = 8,
}

/// Why a command failed, and the code it ends with.
#[derive(Debug)]
struct Failure {
    code: ExitReason,
    error: Error,
}

impl ExitReason {
    /// Ends a command with this code.
    fn because(self, error: impl Into<Error>) -> Failure {
        Failure { code: self, error: error.into() }
    }
}

impl From<SignImageError> for Failure {
    fn from(error: SignImageError) -> Self {
        let reason = match &error {
            SignImageError::Blob(_) | SignImageError::Layer(_) => ExitReason::Pull,
            SignImageError::Selection(_) => ExitReason::FileNotFound,
            SignImageError::Key { .. } => ExitReason::KeyOrCertificate,
            SignImageError::Module { .. } | SignImageError::Image(_) => ExitReason::Repack,
            SignImageError::SelfVerification(_) => ExitReason::Verification,
        };
        reason.because(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        ExitReason::Other.because(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        ExitReason::Other.because(error)
    }
}
