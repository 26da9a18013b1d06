//! The global settings, parsed once into a checked value.

pub mod changes;
pub mod document;
pub mod fetch;
pub mod keys;
pub mod legacy;
pub mod load;
pub mod operator;
pub mod reload;
pub mod render;
pub mod source;

use std::path::{Path, PathBuf};

use anstream::ColorChoice;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use gantry_process::telemetry;
pub use gantry_subsystem::settings::{duration, value_type, values};
use zeroize::Zeroizing;

/// Flags that every command accepts.
#[derive(Args, Clone, Debug)]
pub struct GlobalFlags {
    /// How much to log: 0 changes of state (default), 1 decisions, 2 writes, 4 reads, 6 payloads.
    #[arg(
        long = "v",
        short = 'v',
        value_name = "LEVEL",
        global = true,
        value_parser = clap::value_parser!(u8).range(0..=10)
    )]
    verbosity: Option<u8>,

    /// The format of log lines on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    logging_format: LogFormat,

    /// When to use colour. NO_COLOR and pipes are respected with `auto`.
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// One line of text, as Kubernetes components write it.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The checked form of [`GlobalFlags`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The log format.
    pub telemetry: telemetry::Settings,
    /// The verbosity, if it was given.
    pub verbosity: Option<u8>,
    /// When to use colour.
    pub color: ColorChoice,
}

impl From<GlobalFlags> for Settings {
    fn from(flags: GlobalFlags) -> Self {
        let GlobalFlags { verbosity, logging_format, color } = flags;
        Self {
            telemetry: telemetry::Settings {
                format: match logging_format {
                    LogFormat::Text => telemetry::Format::Text,
                    LogFormat::Json => telemetry::Format::Json,
                },
                verbosity: verbosity.unwrap_or_default(),
                ..telemetry::Settings::default()
            },
            verbosity,
            color: match color {
                Color::Auto => ColorChoice::Auto,
                Color::Always => ColorChoice::Always,
                Color::Never => ColorChoice::Never,
            },
        }
    }
}

/// Returns the directory of a server's data: the given one, or the default for this user.
///
/// # Errors
/// No directory is given, and neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn data_dir(said: Option<&Path>) -> anyhow::Result<PathBuf> {
    match said {
        Some(directory) => Ok(directory.to_owned()),
        None => Ok(data_home()?.join("gantry/apiserver")),
    }
}

/// Returns the kubeconfig that clients of this user read: the first that `KUBECONFIG` names, or the
/// one in the home directory.
///
/// # Errors
/// Neither `KUBECONFIG` nor `HOME` is set.
pub fn kubeconfig() -> anyhow::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = variable("KUBECONFIG");
    // As in kubectl, empty names in the list are ignored.
    let named = named
        .as_ref()
        .and_then(|list| std::env::split_paths(list).find(|path| !path.as_os_str().is_empty()));
    let own = || variable("HOME").map(|home| Path::new(&home).join(".kube/config"));
    named.or_else(own).context("neither KUBECONFIG nor HOME is set; name the file")
}

/// Returns whether the environment names a kubeconfig.
#[must_use]
pub fn has_kubeconfig_variable() -> bool {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    let named = std::env::var_os("KUBECONFIG");
    named.is_some_and(|named| !named.is_empty())
}

/// Returns whether the environment asks for verbose output, as with the original `schedule`:
/// `VERBOSE=y`.
#[must_use]
pub fn verbose() -> bool {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    let said = std::env::var_os("VERBOSE");
    let said = said.as_ref().and_then(|said| said.to_str()).map(str::to_ascii_lowercase);
    said.is_some_and(|said| matches!(said.as_str(), "y" | "yes" | "true" | "1"))
}

/// Returns the directories with programs, as `PATH` lists them.
#[must_use]
pub fn program_path() -> Option<std::ffi::OsString> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    std::env::var_os("PATH")
}

/// Returns the passphrase of a signing key, from the variable that the kernel's `sign-file` reads.
#[must_use]
pub fn sign_pin() -> Option<Zeroizing<Vec<u8>>> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    let pin = std::env::var_os("KBUILD_SIGN_PIN")?;
    Some(Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(pin)))
}

/// Returns the environment, for `lookup('env', …)` in inventories. What is not UTF-8 is left out.
#[must_use]
pub fn environment() -> std::collections::BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Returns the directory for application data of this user.
///
/// # Errors
/// Neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn data_home() -> anyhow::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".local/share")));
    home.context("neither XDG_DATA_HOME nor HOME is set; use --data-dir")
}
